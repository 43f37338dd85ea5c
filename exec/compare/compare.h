/*
 * Predicted against measured, term by term: two timelines of one plan.
 *
 * Both sides are broken down by the same code (mw_timeline_breakdown), so a
 * term is a subtraction:
 *
 *   difference = simulated - measured          seconds exposed per step
 *   error      = simulated / measured - 1      of the step time
 *
 * The differences of all kinds, bubble among them, sum to the difference of
 * the step times. Which clock the measured side kept is part of the result: a
 * virtual clock (thread CPU time plus modelled communication) tests compute,
 * order and bubbles, not communication, whose times come from the same curves
 * on both sides.
 */
#ifndef MW_EXEC_COMPARE_COMPARE_H
#define MW_EXEC_COMPARE_COMPARE_H

#include "base/err.h"
#include "base/json.h"
#include "exec/compare/deviation.h"
#include "sim/engine/timeline.h"

#include <stdbool.h>
#include <stdio.h>

/* One term on both sides, seconds per step. */
struct mw_compare_term {
    double simulated_s, measured_s;
};
double mw_compare_difference_s(const struct mw_compare_term *term);
/* simulated / measured - 1; NaN when nothing was measured. */
double mw_compare_error(const struct mw_compare_term *term);

struct mw_compare_stage {
    int stage;                   /* pipeline position (mw_timeline_stages) */
    struct mw_compare_term busy; /* step time less bubble */
    struct mw_compare_term by_kind[MW_SPAN_KIND_COUNT];
};

struct mw_comparison {
    struct mw_compare_term step; /* the step times */
    double error;                /* of the step time */
    struct mw_compare_term
        by_kind[MW_SPAN_KIND_COUNT]; /* averaged over ranks */
    struct {
        struct mw_compare_stage *v; /* ascending by stage */
        size_t n, cap;
    } stages;
    struct mw_deviation deviation; /* beyond MW_COMPARE_TOLERANCE */
    char clock[16];                /* of the measured side */
    char plan_hash[17];            /* of the measured side */
    bool is_same_plan;             /* false only when forced */
};

/* The part of the step by which ends of passes may differ before the timelines
 * are said to part. */
#define MW_COMPARE_TOLERANCE 0.02

/* A timeline and what messages call it: its file. */
struct mw_compare_side {
    struct mw_timeline *timeline;
    const char *name;
};

/*
 * Compares; sorts both timelines. Refuses (MW_EINPUT) timelines of different
 * plans, a measured one in the place of the simulated one or the reverse, and
 * a measured step time of zero; `is_forced` lets the first two pass. Release
 * *out with mw_comparison_release.
 *
 *   struct mw_compare_side s = {&simulated, "simulated.json"},
 *                          m = {&measured, "measured.json"};
 *   mw_compare(&s, &m, false, &comparison, &err);
 */
enum mw_status mw_compare(const struct mw_compare_side *simulated,
                          const struct mw_compare_side *measured,
                          bool is_forced, struct mw_comparison *out,
                          struct mw_err *err);
void mw_comparison_release(struct mw_comparison *c);

/* ---- results for people and programs ----------------------------------------
 */
/* "predicted 12.34 ms, measured 12.01 ms (virtual clock), error +2.7 %" into
 * buf, returned. */
enum { MW_COMPARE_HEADLINE_MAX = 160 };
const char *mw_compare_headline(const struct mw_comparison *c,
                                char buf[MW_COMPARE_HEADLINE_MAX]);
/* What the clock can and cannot show, one sentence without a full stop. */
const char *mw_compare_clock_note(const struct mw_comparison *c);
/* The headline and the tables: by kind, by stage, by stage and kind; where the
 * timelines part. */
void mw_compare_print(const struct mw_comparison *c, FILE *f);
/*
 * simulated_step_time_s, measured_step_time_s, difference_s, error, clock,
 * clock_note, plan_hash, same_plan, by_kind{KIND: {simulated_s, measured_s,
 * difference_s, error}}, by_stage[] of stage, simulated_busy_s,
 * measured_busy_s, difference_s, error, by_kind{}; first_deviation (null: none)
 * of text, why, rank, kind, microbatch, stage, simulated_end_s, measured_end_s,
 * difference_s, own_s, waiting_s, before_s{KIND}. An error without a measured
 * time is null. The caller's reference.
 */
json_t *mw_compare_json(const struct mw_comparison *c);

#endif
