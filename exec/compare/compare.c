/*
 * Predicted against measured: see compare.h for the formulas. Pure: two
 * timelines in, numbers out; no MPI, no files, so that the command can compare
 * on a machine that cannot run.
 */
#include "exec/compare/compare.h"

#include <math.h>
#include <string.h>

double mw_compare_difference_s(const struct mw_compare_term *term)
{
    return term->simulated_s - term->measured_s;
}

double mw_compare_error(const struct mw_compare_term *term)
{
    return term->measured_s > 0 ? term->simulated_s / term->measured_s - 1
                                : (double)NAN;
}

static double step_time_s(const struct mw_timeline *t)
{
    return t->step_time_s > 0 ? t->step_time_s
                              : mw_time_to_s(mw_timeline_window_ps(t));
}

/* ---- refusals
 * ------------------------------------------------------------------- */
static enum mw_status check_roles(const struct mw_compare_side *simulated,
                                  const struct mw_compare_side *measured,
                                  struct mw_err *err)
{
    bool is_first_measured = simulated->timeline->is_measured;
    bool is_second_measured = measured->timeline->is_measured;
    if (is_first_measured && !is_second_measured) {
        return mw_fail(err, MW_EINPUT,
                       "%s: is the measured timeline and %s the simulated one; "
                       "the simulated one goes first",
                       simulated->name, measured->name);
    }
    if (is_first_measured) {
        return mw_fail(err, MW_EINPUT,
                       "%s: was measured; a simulated timeline goes first (or "
                       "pass --force)",
                       simulated->name);
    }
    if (!is_second_measured) {
        return mw_fail(err, MW_EINPUT,
                       "%s: was simulated; a measured timeline goes second (or "
                       "pass --force)",
                       measured->name);
    }
    return MW_OK;
}

static const char *hash_or_none(const struct mw_compare_side *side)
{
    const char *hash = side->timeline->plan_hash;
    return *hash ? hash : "none";
}

static bool is_same_plan(const struct mw_compare_side *a,
                         const struct mw_compare_side *b)
{
    return strcmp(a->timeline->plan_hash, b->timeline->plan_hash) == 0;
}

static enum mw_status check_plans(const struct mw_compare_side *simulated,
                                  const struct mw_compare_side *measured,
                                  struct mw_err *err)
{
    if (is_same_plan(simulated, measured)) {
        return MW_OK;
    }
    return mw_fail(err, MW_EINPUT,
                   "%s: plan hash %s but %s has %s; compare timelines of one "
                   "plan, or pass --force",
                   measured->name, hash_or_none(measured), simulated->name,
                   hash_or_none(simulated));
}

/* ---- terms
 * ----------------------------------------------------------------------- */
/* Puts one side's breakdown where the terms want it. */
static void set_side(struct mw_compare_term *terms, const double *seconds,
                     bool is_measured)
{
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        double *to = is_measured ? &terms[k].measured_s : &terms[k].simulated_s;
        *to = seconds[k];
    }
}

/* The entry of a stage, made in its place when it is new. */
static struct mw_compare_stage *stage_entry(struct mw_comparison *c, int stage)
{
    size_t i = 0;
    while (i < c->stages.n && c->stages.v[i].stage < stage) {
        i++;
    }
    if (i == c->stages.n || c->stages.v[i].stage != stage) {
        mw_array_reserve(&c->stages, 1);
        memmove(&c->stages.v[i + 1], &c->stages.v[i],
                (c->stages.n - i) * sizeof *c->stages.v);
        c->stages.v[i] = (struct mw_compare_stage){.stage = stage};
        c->stages.n++;
    }
    return &c->stages.v[i];
}

static void add_stage(struct mw_comparison *c, struct mw_timeline *t, int stage,
                      bool is_measured)
{
    double seconds[MW_SPAN_KIND_COUNT];
    mw_timeline_breakdown_stage(t, stage, seconds);
    struct mw_compare_stage *s = stage_entry(c, stage);
    set_side(s->by_kind, seconds, is_measured);
    double *busy = is_measured ? &s->busy.measured_s : &s->busy.simulated_s;
    *busy = 0;
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        *busy += k == MW_SPAN_BUBBLE ? 0 : seconds[k];
    }
}

/* Every pipeline position of a side, once. */
static void add_stages(struct mw_comparison *c, struct mw_timeline *t,
                       bool is_measured)
{
    struct mw_rank_stages ranks = {.v = NULL};
    mw_timeline_stages(t, &ranks);
    int done = -1; /* stages ascend with ranks only by luck: take the next */
    for (;;) {
        int next = -1;
        for (size_t i = 0; i < ranks.n; i++) {
            int stage = ranks.v[i].stage;
            if (stage > done && (next < 0 || stage < next)) {
                next = stage;
            }
        }
        if (next < 0) {
            break;
        }
        add_stage(c, t, next, is_measured);
        done = next;
    }
    mw_array_release(&ranks);
}

static void add_side(struct mw_comparison *c, struct mw_timeline *t,
                     bool is_measured)
{
    double seconds[MW_SPAN_KIND_COUNT];
    mw_timeline_breakdown(t, seconds);
    set_side(c->by_kind, seconds, is_measured);
    add_stages(c, t, is_measured);
}

enum mw_status mw_compare(const struct mw_compare_side *simulated,
                          const struct mw_compare_side *measured,
                          bool is_forced, struct mw_comparison *out,
                          struct mw_err *err)
{
    enum mw_status status = MW_OK;
    if (!is_forced) {
        status = check_roles(simulated, measured, err);
        if (status == MW_OK) {
            status = check_plans(simulated, measured, err);
        }
    }
    if (status != MW_OK) {
        return status;
    }
    const struct mw_timeline *m = measured->timeline;
    struct mw_comparison c = {
        .step = {.simulated_s = step_time_s(simulated->timeline),
                 .measured_s = step_time_s(m)},
        .is_same_plan = is_same_plan(simulated, measured)};
    if (!(c.step.measured_s > 0)) {
        return mw_fail(err, MW_EINPUT, "%s: the step took no time",
                       measured->name);
    }
    c.error = mw_compare_error(&c.step);
    memcpy(c.clock, m->clock, sizeof c.clock);
    memcpy(c.plan_hash, m->plan_hash, sizeof c.plan_hash);
    add_side(&c, simulated->timeline, false);
    add_side(&c, measured->timeline, true);
    mw_deviation_find(simulated->timeline, measured->timeline,
                      MW_COMPARE_TOLERANCE, &c.deviation);
    *out = c;
    return MW_OK;
}

void mw_comparison_release(struct mw_comparison *c)
{
    mw_array_release(&c->stages);
}
