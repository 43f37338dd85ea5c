/* Why layouts fell out: tallies turned into sentences, and what would help
 * when nothing is left. */
#include "planner/search_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void memory_text(const struct mw_tally_row *row,
                        char out[MW_PLAN_TEXT_MAX])
{
    char layout[MW_PLAN_TEXT_MAX], needs[MW_FMT_MAX], may[MW_FMT_MAX];

    char more[MW_FMT_MAX];

    snprintf(out, MW_PLAN_TEXT_MAX, "%.160s needs %s of %s usable, %s short",
             mw_layout_text(&row->nearest, layout),
             mw_fmt_bytes(row->needed, needs), mw_fmt_bytes(row->allowed, may),
             mw_fmt_bytes(row->needed - row->allowed, more));
}

static void host_text(const struct mw_tally_row *row,
                      char out[MW_PLAN_TEXT_MAX])
{
    char layout[MW_PLAN_TEXT_MAX], needs[MW_FMT_MAX], has[MW_FMT_MAX];

    snprintf(out, MW_PLAN_TEXT_MAX,
             "%.160s offloads %s to a node's %s of memory",
             mw_layout_text(&row->nearest, layout),
             mw_fmt_bytes(row->needed, needs), mw_fmt_bytes(row->allowed, has));
}

static void bound_text(const struct mw_tally_row *row, double best_s,
                       char out[MW_PLAN_TEXT_MAX])
{
    char layout[MW_PLAN_TEXT_MAX], bound[MW_FMT_MAX], best[MW_FMT_MAX];

    snprintf(out, MW_PLAN_TEXT_MAX,
             "%.160s takes at least %s, the best takes %s",
             mw_layout_text(&row->nearest, layout),
             mw_fmt_seconds(row->needed, bound), mw_fmt_seconds(best_s, best));
}

/* Beyond what earlier goals or a deadline leave. */
static void beyond_text(const struct search *s, const struct mw_tally_row *row,
                        char out[MW_PLAN_TEXT_MAX])
{
    char layout[MW_PLAN_TEXT_MAX], time[MW_FMT_MAX], may[MW_FMT_MAX];

    mw_layout_text(&row->nearest, layout);
    mw_fmt_seconds(row->needed, time);
    if (s->opts->max_step_s > 0) {
        snprintf(out, MW_PLAN_TEXT_MAX, "%.170s takes at least %s, allowed %s",
                 layout, time, mw_fmt_seconds(s->opts->max_step_s, may));
    } else {
        snprintf(out, MW_PLAN_TEXT_MAX, "%.170s needs more than the %s allowed",
                 layout, mw_fmt_bytes(s->opts->max_peak_bytes, may));
    }
}

static void schedule_text(const struct search *s,
                          const struct mw_tally_row *row,
                          char out[MW_PLAN_TEXT_MAX])
{
    struct mw_fast *fast = mw_fast_new(s->scenario, s->ctx);
    struct mw_err err = {0};
    double bytes;

    mw_fast_peak_bytes(fast, &row->nearest, NULL, &bytes, &err);
    snprintf(out, MW_PLAN_TEXT_MAX, "%.*s", MW_PLAN_TEXT_MAX - 1, err.text);
    mw_fast_free(fast);
}

static void reason_of(const struct search *s, const struct mw_tally_row *row,
                      struct mw_reason *out)
{
    *out = (struct mw_reason){
        .rule = row->rule, .count = row->count, .miss = row->miss};
    if (strcmp(row->rule, "memory") == 0) {
        memory_text(row, out->nearest);
    } else if (strcmp(row->rule, "host_memory") == 0) {
        host_text(row, out->nearest);
    } else if (strcmp(row->rule, "bound") == 0) {
        double best_s = s->done.n > 0 ? s->done.v[0].step_time_s : row->needed;

        out->miss = row->needed / best_s;
        bound_text(row, best_s, out->nearest);
    } else if (strcmp(row->rule, "objective") == 0) {
        beyond_text(s, row, out->nearest);
    } else if (strcmp(row->rule, "schedule") == 0) {
        schedule_text(s, row, out->nearest);
    } else if (strcmp(row->rule, "not_simulated") == 0) {
        snprintf(out->nearest, sizeof out->nearest,
                 "left out by the time limit, an interrupt or the cap on "
                 "simulations");
    } else {
        mw_space_forbids(&s->space, &row->nearest, out->nearest);
    }
}

static int compare_reason(const void *a, const void *b)
{
    const struct mw_reason *x = a, *y = b;

    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return strcmp(x->rule, y->rule);
}

/* How far a layout came: to be weighed, through the model's and framework's
 * rules, the limits, or not even to the number of ranks (pinned sizes). */
static int distance(const char *rule)
{
    static const struct mw_enum far[] = {
        {"host_memory", 0},   {"memory", 0},   {"objective", 0},
        {"bound", 0},         {"schedule", 0}, {"dominated", 0},
        {"not_simulated", 0}, {"limits", 2},   {"tp_node", 2},
        {"dtype_rate", 2},    {"ranks", 3},    {NULL, 1}};
    const struct mw_enum *e = far;

    while (e->name && strcmp(e->name, rule) != 0) {
        e++;
    }
    return e->value;
}

/* Where nothing is feasible what came nearest binds, whatever its number. */
static int compare_distance(const void *a, const void *b)
{
    const struct mw_reason *x = a, *y = b;
    int order = distance(x->rule) - distance(y->rule);

    return order != 0 ? order : compare_reason(a, b);
}

void mw_reasons_write(struct search *s)
{
    struct mw_search_result *r = s->result;

    for (int i = 0; i < s->tally.n; i++) {
        reason_of(s, &s->tally.row[i], &r->reasons[r->n_reasons++]);
    }
    mw_reasons_sort(r);
}

void mw_reasons_sort(struct mw_search_result *r)
{
    qsort(r->reasons, (size_t)r->n_reasons, sizeof *r->reasons,
          r->n_plans > 0 ? compare_reason : compare_distance);
}

enum mw_status mw_reasons_say_no(const struct search *s, struct mw_err *err)
{
    const struct mw_search_result *r = s->result;

    if (r->n_reasons == 0) {
        return mw_fail(err, MW_ENO,
                       "no feasible plan: no layout divides the ranks");
    }
    mw_fail(err, MW_ENO, "no feasible plan among %llu layouts:",
            (unsigned long long)r->enumerated);
    for (int i = 0; i < r->n_reasons && i < MW_ERR_LINES_MAX - 3; i++) {
        mw_fail(err, MW_ENO, "  %llu fell to %s; nearest: %s",
                (unsigned long long)r->reasons[i].count, r->reasons[i].rule,
                r->reasons[i].nearest);
    }
    return MW_ENO;
}
