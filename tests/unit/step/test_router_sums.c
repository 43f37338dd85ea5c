/*
 * Loads of routers from sums of counts, against counting every row of every
 * expert of every sequence where it belongs, on random tables and layouts: the
 * same to the bit, asked for alone and remembered by a search.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "base/stats.h"
#include "sim/coll/coll_library.h"
#include "sim/step/fast_int.h"
#include "step_units.h"

#include <math.h>

enum { BATCH = 24, STEPS = 2, ROOM = 64, HELD = 4096 };

struct table {
    int n_layers, n_experts;
    int64_t *rows; /* [n_layers][STEPS * BATCH][n_experts] */
};

static int pick(uint64_t stream, uint64_t *i, int n)
{
    return (int)(mw_rand_u64(5, stream, (*i)++) % (uint64_t)n);
}

/* ---- counted directly ------------------------------------------------------
 */
struct direct {
    const struct table *t;
    const struct step_world *w;
    const struct mw_layout *l;
    double capacity;
    int n_together, n_microbatches, per_node;
    double held[HELD], routed, kept;
    size_t n_held;
};

/* What micro-batch m brings to each rank of a group in a layer. */
static double bring(struct direct *d, int step, int group, int m, int layer,
                    double *x)
{
    int n_experts = d->t->n_experts, b = d->l->micro_batch;
    double all = 0, kept = 0;

    for (int i = 0; i < d->n_together; i++) {
        int replica = group * d->n_together + i;
        double got[ROOM] = {0}, sum = 0;

        for (int s = 0; s < b; s++) {
            int q = step * BATCH + (replica * d->n_microbatches + m) * b + s;

            for (int e = 0; e < n_experts; e++) {
                int at = (layer * STEPS * BATCH + q) * n_experts + e;

                got[e] += (double)d->t->rows[at];
                sum += (double)d->t->rows[at];
            }
        }
        for (int e = 0; e < n_experts; e++) {
            double n = d->capacity > 0
                           ? fmin(got[e], d->capacity * sum / n_experts)
                           : got[e];

            x[e / (n_experts / d->l->ep)] += n;
            kept += n;
        }
        all += sum;
    }
    d->routed += all;
    d->kept += kept;
    return all;
}

static double busiest(const double *x, int n, int together, double all)
{
    double most = 0;

    for (int r = 0; r < n; r += together) {
        double sum = 0;

        for (int i = r; i < n && i < r + together; i++) {
            sum += x[i];
        }
        most = fmax(most, sum);
    }
    return all > 0 ? most * n / together / all : 1;
}

static struct mw_router_load direct_group(struct direct *d, int step, int group)
{
    int n = d->t->n_layers, n_stages = d->l->pp * d->l->vpp, ended = 0;
    int depth = (n + n_stages - 1) / n_stages;
    struct mw_router_load sum = {0};

    for (int m = 0; m < d->n_microbatches; m++) {
        double stage[ROOM] = {0}, stage_all = 0;

        for (int layer = 0; layer < n; layer++) {
            double x[ROOM] = {0};
            double all = bring(d, step, group, m, layer, x);

            sum.synced += busiest(x, d->l->ep, 1, all);
            sum.nodes += busiest(x, d->l->ep, d->per_node, all);
            for (int r = 0; r < d->l->ep; r++) {
                stage[r] += x[r];
            }
            stage_all += all;
            if ((layer + 1) % depth == 0 || layer + 1 == n) {
                double load = busiest(stage, d->l->ep, 1, stage_all);

                assert_true(d->n_held < HELD);
                d->held[d->n_held++] = load;
                sum.apart += load;
                memset(stage, 0, sizeof stage);
                stage_all = 0;
                ended++;
            }
        }
    }
    sum.synced /= d->n_microbatches * n;
    sum.nodes /= d->n_microbatches * n;
    sum.apart /= ended;
    return sum;
}

static struct mw_router_load direct(const struct table *t,
                                    const struct step_world *w,
                                    const struct mw_layout *l)
{
    int inside = l->tp * l->cp, all = l->ep * l->etp;
    struct direct d = {.t = t,
                       .w = w,
                       .l = l,
                       .capacity = w->s.workload.capacity_factor,
                       .n_together = all > inside ? all / inside : 1,
                       .n_microbatches = BATCH / (l->dp * l->micro_batch)};
    struct mw_router_load load = {0};

    d.per_node = mw_cost_group(l, MW_DIM_EP, w->ctx.domain_gpus).ranks_per_node;
    for (int step = 0; step < STEPS; step++) {
        struct mw_router_load most = {0};

        for (int i = 0; i < l->dp / d.n_together; i++) {
            struct mw_router_load one = direct_group(&d, step, i);

            most.synced = fmax(most.synced, one.synced);
            most.apart = fmax(most.apart, one.apart);
            most.nodes = fmax(most.nodes, one.nodes);
        }
        load.synced += most.synced / STEPS;
        load.apart += most.apart / STEPS;
        load.nodes += most.nodes / STEPS;
    }
    load.held = mw_quantile(d.held, d.n_held, 0.5);
    load.held_p90 = mw_quantile(d.held, d.n_held, 0.9);
    load.dropped = (d.routed - d.kept) / d.routed;
    if (l->recompute == MW_RECOMPUTE_FULL) {
        load.apart = load.synced;
    }
    return load;
}

/* ---- random tables ---------------------------------------------------------
 */
static void draw_table(struct table *t, uint64_t stream, uint64_t *i)
{
    size_t n = (size_t)t->n_layers * STEPS * BATCH * (size_t)t->n_experts;

    t->rows = mw_calloc(n, sizeof *t->rows);
    for (size_t k = 0; k < n; k++) {
        /* Some experts get nothing of a sequence. */
        t->rows[k] = pick(stream, i, 3) == 0 ? 0 : pick(stream, i, 1000);
    }
}

static bool draw_layout(const struct table *t, uint64_t stream, uint64_t *i,
                        struct mw_layout *l)
{
    mw_layout_default(l);
    l->tp = 1 << pick(stream, i, 2);
    l->cp = 1 << pick(stream, i, 2);
    l->dp = 1 + pick(stream, i, 12);
    l->pp = 1 + pick(stream, i, 4);
    l->vpp = 1 + pick(stream, i, 2);
    l->ep = 1 << pick(stream, i, 4);
    l->etp = 1 << pick(stream, i, 2);
    l->micro_batch = 1 + pick(stream, i, 3);
    l->order = pick(stream, i, 2) == 0 ? "tp-cp-ep-dp-pp" : "tp-cp-ep-pp-dp";
    l->recompute =
        pick(stream, i, 2) == 0 ? MW_RECOMPUTE_FULL : MW_RECOMPUTE_NONE;
    int inside = l->tp * l->cp, all = l->ep * l->etp;

    return l->ep > 1 && t->n_experts % l->ep == 0 &&
           (all > inside ? all % inside == 0 && l->dp % (all / inside) == 0
                         : inside % all == 0) &&
           BATCH % (l->dp * l->micro_batch) == 0;
}

static void open_world(struct step_world *w, const struct table *t,
                       const char *more)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\n"
                     "model: {hidden: 64, layers: %d, heads: 4, ffn: 128, "
                     "vocab: 256, moe: {experts: %d, top_k: 1, ffn: 64}}\n"
                     "cluster: {system: dgx-h100, nodes: 4}\n"
                     "workload: {seq: 2048, global_batch: %d%s}\n",
                     t->n_layers, t->n_experts, BATCH, more);
    w->s.router.rows = t->rows;
    w->s.router.n_seqs = STEPS * BATCH;
    w->db = step_hwdb();
    mw_coll_library_lend(w->db);
    step_ctx(&w->ctx, w->db, &w->s);
}

static int expect_layouts(struct table *t, const char *more, uint64_t stream)
{
    struct step_world w;
    uint64_t i = 0;
    int n = 0;

    draw_table(t, stream, &i);
    open_world(&w, t, more);
    struct mw_fast *f = mw_fast_new(&w.s, &w.ctx);

    for (int tries = 0; tries < 400; tries++) {
        struct mw_layout l;

        if (!draw_layout(t, stream, &i, &l)) {
            continue;
        }
        struct mw_router_load want = direct(t, &w, &l);
        struct mw_router_load once = mw_router_load_of(&w.ctx, &w.s, &l);
        struct mw_router_load kept = mw_fast_router_load(f, &l);

        assert_memory_equal(&once, &want, sizeof want);
        assert_memory_equal(&kept, &want, sizeof want);
        n++;
    }
    mw_fast_free(f);
    mw_free(t->rows);
    step_world_close(&w);
    return n;
}

static void test_as_counted(void **state)
{
    static const char *const more[] = {"", ", capacity_factor: 0.7",
                                       ", capacity_factor: 1.3"};

    (void)state;
    for (uint64_t k = 0; k < 9; k++) {
        struct table t = {.n_layers = 1 + (int)(k % 4),
                          .n_experts = k % 2 == 0 ? 8 : 24};

        assert_true(expect_layouts(&t, more[k % 3], k) > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
