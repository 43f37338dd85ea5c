/*
 * The terms of a difference and their causes: see diff.h for the formulas.
 *
 * FLOPs and exposed times are those of the simulated timeline, bytes those of
 * the ledger, so nothing here is worked out a second time. What a rank of the
 * timeline stands for is a whole pipeline stage; means are over stages, as in
 * the breakdown of the step.
 */
#include "planner/diff.h"

#include "planner/diff_int.h"

#include <math.h>

/* ---- one side --------------------------------------------------------------
 */
static void fill_stages(struct mw_diff_side *side)
{
    for (int d = 0; d < side->n_stages; d++) {
        double seconds[MW_SPAN_KIND_COUNT];
        struct mw_diff_stage *s = &side->stage[d];

        mw_timeline_breakdown_rank(
            &side->timeline,
            mw_layout_rank(&side->plan->layout, (struct mw_coord){.pp = d}),
            seconds);
        s->bubble_s = seconds[MW_SPAN_BUBBLE];
        s->busy_s = side->result.step_time_s - s->bubble_s;
        s->peak_bytes = side->result.memory[d].total_bytes;
        mw_step_ledger(side->scenario, side->plan, side->ctx, d,
                       &side->ledger[d]);
        mw_ledger_expose(&side->ledger[d], seconds);
    }
}

enum mw_status mw_diff_side_init(const struct mw_scenario *scenario,
                                 const struct mw_plan *plan,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_diff_side *out, struct mw_err *err)
{
    struct mw_diff_side side = {.scenario = scenario,
                                .plan = plan,
                                .ctx = ctx,
                                .n_stages = plan->layout.pp};
    const struct mw_step_opts opts = {.timeline = &side.timeline};

    mw_timeline_init(&side.timeline);
    enum mw_status status =
        mw_step_simulate(scenario, plan, ctx, &opts, &side.result, err);

    if (status != MW_OK) {
        mw_timeline_release(&side.timeline);
        return status;
    }
    side.stage = mw_calloc((size_t)side.n_stages, sizeof *side.stage);
    side.ledger = mw_calloc((size_t)side.n_stages, sizeof *side.ledger);
    fill_stages(&side);
    *out = side;
    return MW_OK;
}

void mw_diff_side_release(struct mw_diff_side *side)
{
    for (int d = 0; d < side->n_stages; d++) {
        mw_array_release(&side->ledger[d]);
    }
    mw_free(side->ledger);
    mw_free(side->stage);
    mw_timeline_release(&side->timeline);
    mw_step_result_release(&side->result);
}

/* ---- factors ---------------------------------------------------------------
 */
double mw_log_mean(double a, double b)
{
    double ratio = b / a;

    /* Near 1 the quotient loses its digits; the mean is then a + b over 2. */
    return fabs(ratio - 1) < 1e-9 ? 0.5 * (a + b) : (b - a) / log(ratio);
}

/* Splits term->b_s - term->a_s over factors whose product the term is, each
 * positive on both sides; else leaves it whole. */
static void split(struct mw_diff_term *term, int n, const char *const *names,
                  const double *a, const double *b)
{
    double sum = 0;
    int largest = 0;

    for (int i = 0; i < n; i++) {
        if (!(a[i] > 0) || !(b[i] > 0)) {
            return;
        }
    }
    for (int i = 0; i < n; i++) {
        double d = mw_log_mean(term->a_s, term->b_s) * log(b[i] / a[i]);

        term->cause[i] = (struct mw_diff_cause){names[i], d};
        sum += d;
        largest =
            fabs(d) > fabs(term->cause[largest].difference_s) ? i : largest;
    }
    /* Roundings of the logarithms go to the largest. */
    term->cause[largest].difference_s += term->b_s - term->a_s - sum;
    term->n_causes = n;
}

/* ---- compute ---------------------------------------------------------------
 */
static double flops_of(const struct mw_diff_side *side, enum mw_span_kind kind)
{
    double flops = 0;

    for (size_t i = 0; i < side->timeline.spans.n; i++) {
        const struct mw_span *s = &side->timeline.spans.v[i];

        flops +=
            s->kind == kind && s->stream == MW_STREAM_COMPUTE ? s->flops : 0;
    }
    return flops / side->n_stages;
}

static void split_compute(const struct mw_diff_side *a,
                          const struct mw_diff_side *b,
                          struct mw_diff_term *term)
{
    static const char *const names[] = {"work of a rank", "pace"};
    double fa = flops_of(a, term->kind), fb = flops_of(b, term->kind);
    const double xa[] = {fa, term->a_s / fa}, xb[] = {fb, term->b_s / fb};

    split(term, 2, names, xa, xb);
}

/* ---- communication ---------------------------------------------------------
 */
static struct mw_diff_traffic traffic_of(const struct mw_diff_side *side,
                                         enum mw_dim dim, int op)
{
    struct mw_diff_traffic sum = {0, 0, 0};

    for (int d = 0; d < side->n_stages; d++) {
        for (size_t i = 0; i < side->ledger[d].n; i++) {
            const struct mw_ledger_row *row = &side->ledger[d].v[i];

            if (row->dim == dim && (op < 0 || (int)row->op == op)) {
                sum.count += row->count / side->n_stages;
                sum.wire_bytes += row->wire_bytes / side->n_stages;
                sum.time_s += row->time_s / side->n_stages;
            }
        }
    }
    return sum;
}

static int dim_of(enum mw_span_kind kind)
{
    static const int dims[MW_SPAN_KIND_COUNT] = {[MW_SPAN_TP] = MW_DIM_TP + 1,
                                                 [MW_SPAN_CP] = MW_DIM_CP + 1,
                                                 [MW_SPAN_EP] = MW_DIM_EP + 1,
                                                 [MW_SPAN_PP] = MW_DIM_PP + 1,
                                                 [MW_SPAN_DP] = MW_DIM_DP + 1};

    return dims[kind] - 1;
}

static void split_traffic(const struct mw_diff_side *a,
                          const struct mw_diff_side *b,
                          struct mw_diff_term *term)
{
    static const char *const names[] = {"bytes sent", "time per byte",
                                        "share exposed"};
    enum mw_dim dim = (enum mw_dim)dim_of(term->kind);
    struct mw_diff_traffic x = traffic_of(a, dim, -1);
    struct mw_diff_traffic y = traffic_of(b, dim, -1);
    const double xa[] = {x.wire_bytes, x.time_s / x.wire_bytes,
                         term->a_s / x.time_s};
    const double xb[] = {y.wire_bytes, y.time_s / y.wire_bytes,
                         term->b_s / y.time_s};

    split(term, 3, names, xa, xb);
}

/* ---- bubble ----------------------------------------------------------------
 */
/* The busiest stage's time over the mean. */
static double imbalance_s(const struct mw_diff_side *side)
{
    double most = 0, sum = 0;

    for (int d = 0; d < side->n_stages; d++) {
        most = fmax(most, side->stage[d].busy_s);
        sum += side->stage[d].busy_s;
    }
    return most - sum / side->n_stages;
}

static void split_bubble(const struct mw_diff_side *a,
                         const struct mw_diff_side *b,
                         struct mw_diff_term *term)
{
    double unequal = imbalance_s(b) - imbalance_s(a);

    term->cause[0] = (struct mw_diff_cause){"stages of unequal work", unequal};
    term->cause[1] = (struct mw_diff_cause){"filling, draining, waiting",
                                            term->b_s - term->a_s - unequal};
    term->n_causes = 2;
}

/* ---- both ------------------------------------------------------------------
 */
static void split_term(const struct mw_diff_side *a,
                       const struct mw_diff_side *b, struct mw_diff_term *term)
{
    if (term->kind == MW_SPAN_BUBBLE) {
        split_bubble(a, b, term);
    } else if (dim_of(term->kind) >= 0) {
        split_traffic(a, b, term);
    } else {
        split_compute(a, b, term);
    }
}

static void fill_terms(const struct mw_diff_side *a,
                       const struct mw_diff_side *b, struct mw_diff *out)
{
    const struct mw_comparison *c = &out->account;

    for (int i = 0; i < c->n_time; i++) {
        struct mw_diff_term *term = &out->term[out->n_terms++];

        *term = (struct mw_diff_term){
            .kind = (enum mw_span_kind)mw_span_kind_find(c->time[i].name),
            .a_s = c->time[i].best,
            .b_s = c->time[i].other};
        split_term(a, b, term);
    }
}

static void fill_colls(const struct mw_diff_side *a,
                       const struct mw_diff_side *b, struct mw_diff *out)
{
    for (int dim = 0; dim <= MW_DIM_COUNT; dim++) { /* the last: all ranks */
        for (int op = 0; op < MW_COLL_OP_COUNT; op++) {
            const struct mw_diff_coll c = {(enum mw_dim)dim,
                                           (enum mw_coll_op)op,
                                           traffic_of(a, (enum mw_dim)dim, op),
                                           traffic_of(b, (enum mw_dim)dim, op)};

            if (c.a.count > 0 || c.b.count > 0) {
                out->coll[out->n_colls++] = c;
            }
        }
    }
}

void mw_diff(const struct mw_diff_side *a, const struct mw_diff_side *b,
             struct mw_diff *out)
{
    *out = (struct mw_diff){.a_s = a->result.step_time_s,
                            .b_s = b->result.step_time_s};
    mw_arena_init(&out->arena);
    mw_results_compare(&a->result, &b->result, &out->account);
    fill_terms(a, b, out);
    fill_colls(a, b, out);
    mw_diff_settings(a, b, out);
}

void mw_diff_release(struct mw_diff *d)
{
    mw_arena_release(&d->arena);
}
