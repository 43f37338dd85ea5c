/*
 * A difference as tables for people and as JSON for programs. Times of one
 * table are in one unit, chosen by the slower step, so that columns compare at
 * a glance; a difference has its sign: + means that B has more.
 */
#include "cli/verb_diff_view.h"

#include "base/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { STAGES_MAX = 32 };

struct unit {
    const char *name;
    double per_s;
};

static struct unit unit_for(const struct mw_diff *d)
{
    double s = fmax(d->a_s, d->b_s);
    return s >= 10     ? (struct unit){"s", 1}
           : s >= 1e-2 ? (struct unit){"ms", 1e3}
                       : (struct unit){"us", 1e6};
}

static double tokens(const struct mw_diff_side *s)
{
    return (double)s->scenario->workload.global_batch *
           (double)s->scenario->workload.seq;
}

const char *mw_diff_headline(const struct mw_diff_view *v,
                             char buf[MW_DIFF_HEADLINE_MAX])
{
    const struct mw_diff *d = v->diff;
    int fast = d->b_s <= d->a_s ? 1 : 0;
    double least = fmin(d->a_s, d->b_s), most = fmax(d->a_s, d->b_s);
    char x[MW_FMT_MAX], y[MW_FMT_MAX];
    if (d->a_s == d->b_s) {
        snprintf(buf, MW_DIFF_HEADLINE_MAX, "A and B take the same time: %s",
                 mw_fmt_seconds(least, x));
    } else {
        snprintf(buf, MW_DIFF_HEADLINE_MAX,
                 "%s is %.3f times as fast as %s: %s a step, not %s",
                 fast == 1 ? "B" : "A", most / least, fast == 1 ? "A" : "B",
                 mw_fmt_seconds(least, x), mw_fmt_seconds(most, y));
    }
    return buf;
}

/* ---- for people ------------------------------------------------------------
 */
static void print_side(const struct mw_diff_view *v, int i, FILE *f)
{
    const struct mw_diff_side *s = v->side[i];
    char text[MW_PLAN_TEXT_MAX];
    fprintf(f, "%c  %s: %s on %d x %s, %s\n", "AB"[i], v -> file[i],
            s -> scenario -> model.name, s->ctx->n_nodes, s->ctx->system->name,
            mw_layout_text(&s->plan->layout, text));
}

static void print_rates(const struct mw_diff_view *v, FILE *f)
{
    const struct mw_step_result *a = &v->side[0]->result,
                                *b = &v->side[1]->result;
    double x = tokens(v->side[0]), y = tokens(v->side[1]);
    fprintf(f,
            "tokens/s/GPU %.1f and %.1f (%+.1f %%), MFU %.1f %% and %.1f "
            "%%\n",
            a->tokens_per_s_per_gpu, b->tokens_per_s_per_gpu,
            100 * (b->tokens_per_s_per_gpu / a->tokens_per_s_per_gpu - 1),
            100 * a->mfu, 100 * b->mfu);
    if (x != y) {
        fprintf(f,
                "(the steps are not of the same work: %.0f and %.0f "
                "tokens)\n",
                x, y);
    }
}

static void print_settings(const struct mw_diff *d, FILE *f)
{
    struct mw_table *t = mw_table_new();
    if (d->n_settings == 0) {
        fprintf(f, "\nNo setting differs.\n");
    } else {
        fprintf(f, "\nSettings that differ:\n");
    }
    mw_table_col(t, "setting", false);
    mw_table_col(t, "A", false);
    mw_table_col(t, "B", false);
    for (int i = 0; i < d->n_settings; i++) {
        mw_table_row(t);
        mw_table_cell(t, "%s", d->setting[i].key);
        mw_table_cell(t, "%s", d->setting[i].a);
        mw_table_cell(t, "%s", d->setting[i].b);
    }
    mw_table_print(t, f);
    mw_table_free(t);
}

/* Empty a and b: a cause, which has a difference alone. */
static void time_row(struct mw_table *t, struct unit u, const struct mw_diff *d,
                     const char *name, const double *ab, double difference_s)
{
    mw_table_row(t);
    mw_table_cell(t, "%s", name);
    for (int i = 0; i < 2; i++) {
        if (ab != NULL) {
            mw_table_cell(t, "%.3f", u.per_s * ab[i]);
        } else {
            mw_table_cell(t, "%s", "");
        }
    }
    mw_table_cell(t, "%+.3f", u.per_s * difference_s);
    mw_table_cell(t, "%+.1f %%", 100 * difference_s / d->a_s);
}

static void print_time(const struct mw_diff *d, FILE *f)
{
    struct unit u = unit_for(d);
    struct mw_table *t = mw_table_new();
    char name[64];
    fprintf(f, "\nExposed time, mean over stages, %s:\n", u.name);
    mw_table_col(t, "term", false);
    mw_table_col(t, "A", true);
    mw_table_col(t, "B", true);
    mw_table_col(t, "B less A", true);
    mw_table_col(t, "of A's step", true);
    for (int i = 0; i < d->n_terms; i++) {
        const struct mw_diff_term *term = &d->term[i];
        const double ab[] = {term->a_s, term->b_s};
        time_row(t, u, d, mw_span_kind_name(term->kind), ab,
                 term->b_s - term->a_s);
        bool is_equal = fabs(term->b_s - term->a_s) * u.per_s < 5e-4;
        for (int k = 0; k < term->n_causes && !is_equal; k++) {
            snprintf(name, sizeof name, "  %s", term->cause[k].name);
            time_row(t, u, d, name, NULL, term->cause[k].difference_s);
        }
    }
    const double steps[] = {d->a_s, d->b_s};
    time_row(t, u, d, "step", steps, d->b_s - d->a_s);
    mw_table_print(t, f);
    mw_table_free(t);
}

static void print_memory(const struct mw_diff_view *v, FILE *f)
{
    const struct mw_comparison *c = &v->diff->account;
    struct mw_table *t = mw_table_new();
    char text[MW_FMT_MAX];
    fprintf(f, "\nMemory of the fullest rank:\n");
    mw_table_col(t, "what", false);
    mw_table_col(t, "A", true);
    mw_table_col(t, "B", true);
    mw_table_col(t, "B less A", true);
    for (int i = 0; i <= MW_MEMORY_TERMS; i++) {
        const struct mw_term sum = {"together", c->best_bytes, c->other_bytes};
        const struct mw_term *m = i < MW_MEMORY_TERMS ? &c->memory[i] : &sum;
        double more = m->other - m->best;
        mw_table_row(t);
        mw_table_cell(t, "%s", m->name);
        mw_table_cell(t, "%s", mw_fmt_bytes(m->best, text));
        mw_table_cell(t, "%s", mw_fmt_bytes(m->other, text));
        mw_table_cell(t, "%s%s", more < 0 ? "-" : "+",
                      mw_fmt_bytes(fabs(more), text));
    }
    mw_table_print(t, f);
    mw_table_free(t);
    for (int i = 0; i < 2; i++) {
        if (!v->side[i]->result.fits) {
            fprintf(f, "%c does not fit in %s\n", "AB"[i],
                    mw_fmt_bytes(v->side[i]->result.usable_bytes, text));
        }
    }
}

static void stage_cells(struct mw_table *t, struct unit u,
                        const struct mw_diff_side *s, int d)
{
    char text[MW_FMT_MAX];
    if (d >= s->n_stages) {
        mw_table_cell(t, "-");
        mw_table_cell(t, "-");
        mw_table_cell(t, "-");
        return;
    }
    mw_table_cell(t, "%.3f", u.per_s * s->stage[d].busy_s);
    mw_table_cell(t, "%.3f", u.per_s * s->stage[d].bubble_s);
    mw_table_cell(t, "%s", mw_fmt_bytes(s->stage[d].peak_bytes, text));
}

static void print_stages(const struct mw_diff_view *v, FILE *f)
{
    static const char *const columns[] = {"stage",    "A busy", "A bubble",
                                          "A memory", "B busy", "B bubble",
                                          "B memory"};
    const struct mw_diff_side *a = v->side[0], *b = v->side[1];
    int n = a->n_stages > b->n_stages ? a->n_stages : b->n_stages;
    int shown = n < STAGES_MAX ? n : STAGES_MAX;
    struct unit u = unit_for(v->diff);
    struct mw_table *t = mw_table_new();
    fprintf(f, "\nPipeline stages, %s:\n", u.name);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        mw_table_col(t, columns[i], true);
    }
    for (int d = 0; d < shown; d++) {
        mw_table_row(t);
        mw_table_cell(t, "%d", d);
        stage_cells(t, u, a, d);
        stage_cells(t, u, b, d);
    }
    mw_table_print(t, f);
    mw_table_free(t);
    if (shown < n) {
        fprintf(f, "(%d more stages: --json has them)\n", n - shown);
    }
}

static void print_traffic(const struct mw_diff *d, FILE *f)
{
    static const char *const columns[] = {"dimension", "collective", "A calls",
                                          "B calls",   "A sent",     "B sent",
                                          "A alone",   "B alone"};
    struct mw_table *t = mw_table_new();
    char text[MW_FMT_MAX];
    if (d->n_colls > 0) {
        fprintf(f, "\nCommunication of a rank in a step, mean over stages "
                   "(alone: without overlap or waiting):\n");
    }
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        mw_table_col(t, columns[i], i > 1);
    }
    for (int i = 0; i < d->n_colls; i++) {
        const struct mw_diff_coll *c = &d->coll[i];
        mw_table_row(t);
        mw_table_cell(t, "%s", mw_dim_name(c->dim));
        mw_table_cell(t, "%s", mw_coll_op_name(c->op));
        mw_table_cell(t, "%.1f", c->a.count);
        mw_table_cell(t, "%.1f", c->b.count);
        mw_table_cell(t, "%s", mw_fmt_bytes(c->a.wire_bytes, text));
        mw_table_cell(t, "%s", mw_fmt_bytes(c->b.wire_bytes, text));
        mw_table_cell(t, "%s", mw_fmt_seconds(c->a.time_s, text));
        mw_table_cell(t, "%s", mw_fmt_seconds(c->b.time_s, text));
    }
    mw_table_print(t, f);
    mw_table_free(t);
}

void mw_diff_view_print(const struct mw_diff_view *v, FILE *f)
{
    char headline[MW_DIFF_HEADLINE_MAX];
    print_side(v, 0, f);
    print_side(v, 1, f);
    fprintf(f, "\n%s\n", mw_diff_headline(v, headline));
    print_rates(v, f);
    print_settings(v->diff, f);
    print_time(v->diff, f);
    print_memory(v, f);
    print_stages(v, f);
    print_traffic(v->diff, f);
}

/* ---- JSON ------------------------------------------------------------------
 */
static json_t *side_json(const struct mw_diff_view *v, int i)
{
    const struct mw_diff_side *s = v->side[i];
    const struct mw_step_result *r = &s->result;
    json_t *o = json_object(), *stages = json_array();
    char text[MW_PLAN_TEXT_MAX], hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, mw_plan_hash(s->plan));
    mw_json_set_str(o, "file", v->file[i]);
    mw_json_set_str(o, "scenario", s->scenario->name);
    mw_json_set_str(o, "system", s->ctx->system->slug);
    mw_json_set_str(o, "stack", s->ctx->stack.name);
    mw_json_set_str(o, "layout", mw_layout_text(&s->plan->layout, text));
    mw_json_set_str(o, "plan_hash", hash);
    mw_json_set_int(o, "ranks", mw_layout_ranks(&s->plan->layout));
    mw_json_set_real(o, "tokens", tokens(s));
    mw_json_set_real(o, "step_time_s", r->step_time_s);
    mw_json_set_real(o, "tokens_per_s_per_gpu", r->tokens_per_s_per_gpu);
    mw_json_set_real(o, "mfu", r->mfu);
    mw_json_set_real(o, "peak_bytes", r->peak_bytes);
    mw_json_set_bool(o, "fits", r->fits);
    for (int d = 0; d < s->n_stages; d++) {
        json_t *stage = json_object();
        mw_json_set_int(stage, "stage", d);
        mw_json_set_real(stage, "busy_s", s->stage[d].busy_s);
        mw_json_set_real(stage, "bubble_s", s->stage[d].bubble_s);
        mw_json_set_real(stage, "peak_bytes", s->stage[d].peak_bytes);
        json_array_append_new(stages, stage);
    }
    mw_json_set(o, "stages", stages);
    return o;
}

static json_t *time_json(const struct mw_diff *d)
{
    json_t *list = json_array();
    for (int i = 0; i < d->n_terms; i++) {
        const struct mw_diff_term *term = &d->term[i];
        json_t *o = json_object(), *causes = json_array();
        mw_json_set_str(o, "kind", mw_span_kind_name(term->kind));
        mw_json_set_real(o, "a_s", term->a_s);
        mw_json_set_real(o, "b_s", term->b_s);
        mw_json_set_real(o, "difference_s", term->b_s - term->a_s);
        for (int k = 0; k < term->n_causes; k++) {
            json_t *c = json_object();
            mw_json_set_str(c, "cause", term->cause[k].name);
            mw_json_set_real(c, "difference_s", term->cause[k].difference_s);
            json_array_append_new(causes, c);
        }
        mw_json_set(o, "causes", causes);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *memory_json(const struct mw_comparison *c)
{
    json_t *list = json_array();
    for (int i = 0; i < MW_MEMORY_TERMS; i++) {
        json_t *o = json_object();
        mw_json_set_str(o, "term", c->memory[i].name);
        mw_json_set_real(o, "a_bytes", c->memory[i].best);
        mw_json_set_real(o, "b_bytes", c->memory[i].other);
        mw_json_set_real(o, "difference_bytes",
                         c->memory[i].other - c->memory[i].best);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *settings_json(const struct mw_diff *d)
{
    json_t *list = json_array();
    for (int i = 0; i < d->n_settings; i++) {
        json_t *o = json_object();
        mw_json_set_str(o, "setting", d->setting[i].key);
        mw_json_set_str(o, "a", d->setting[i].a);
        mw_json_set_str(o, "b", d->setting[i].b);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *traffic_json(const struct mw_diff_traffic *t)
{
    json_t *o = json_object();
    mw_json_set_real(o, "count", t->count);
    mw_json_set_real(o, "wire_bytes", t->wire_bytes);
    mw_json_set_real(o, "time_s", t->time_s);
    return o;
}

static json_t *ledger_json(const struct mw_diff *d)
{
    json_t *list = json_array();
    for (int i = 0; i < d->n_colls; i++) {
        json_t *o = json_object();
        mw_json_set_str(o, "dimension", mw_dim_name(d->coll[i].dim));
        mw_json_set_str(o, "collective", mw_coll_op_name(d->coll[i].op));
        mw_json_set(o, "a", traffic_json(&d->coll[i].a));
        mw_json_set(o, "b", traffic_json(&d->coll[i].b));
        json_array_append_new(list, o);
    }
    return list;
}

json_t *mw_diff_view_json(const struct mw_diff_view *v)
{
    const struct mw_diff *d = v->diff;
    json_t *o = json_object();
    mw_json_set(o, "a", side_json(v, 0));
    mw_json_set(o, "b", side_json(v, 1));
    mw_json_set_real(o, "difference_s", d->b_s - d->a_s);
    mw_json_set_real(o, "ratio", d->b_s / d->a_s);
    mw_json_set(o, "settings", settings_json(d));
    mw_json_set(o, "time", time_json(d));
    mw_json_set(o, "memory", memory_json(&d->account));
    mw_json_set(o, "ledger", ledger_json(d));
    return o;
}
