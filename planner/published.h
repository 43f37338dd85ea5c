/*
 * Published layouts (scenarios/published): what the framework of that date and
 * ours of today would have chosen, and how far our prediction of the published
 * one is from what was measured.
 *
 * A row of published.csv names a scenario with the layout, the measured figure
 * and the training stack of that software.
 */
#ifndef MW_PLANNER_PUBLISHED_H
#define MW_PLANNER_PUBLISHED_H

#include "planner/planner.h"

struct mw_published {
    const char *scenario; /* NAME of NAME.yaml */
    const char *measure;  /* "step_s", "hardware_tflops", "model_tflops" */
    double value;
    const char *stack;
    const char *features;  /* "zero=0,sp=0": pinned when searching as then */
    const char *fits_with; /* keys of the layout whose memory is meant */
    const char *off;       /* why the prediction is off by more than 10 % */
    const char *source;
};
struct mw_published_rows {
    struct mw_arena arena;
    struct mw_published *v;
    size_t n;
};
/* Reads DIR/published.csv; release with mw_published_release. */
enum mw_status mw_published_load(const char *dir, struct mw_published_rows *out,
                                 struct mw_err *err);
void mw_published_release(struct mw_published_rows *rows);

/* One row opened: scenario, prices under the stack of the date. */
struct mw_published_case {
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
    struct mw_search_opts then; /* with the row's features */
    /* The published layout and its layers, simulated; layers in the scenario's
     * arena. */
    struct mw_candidate published;
    bool fits;           /* with the keys of fits_with */
    double needed_bytes; /* the same */
    double predicted;    /* in the row's measure */
    double error;        /* predicted over measured time, less 1 */
    /* Rule, framework's or ours, that the layout breaks, or NULL. */
    const char *broken;
    char broken_text[MW_PLAN_TEXT_MAX];
};
/* Opens a row of DIR and predicts its layout. db must outlive the case. */
enum mw_status mw_published_open(const struct mw_hwdb *db, const char *dir,
                                 const struct mw_published *row,
                                 struct mw_published_case *out,
                                 struct mw_err *err);
void mw_published_close(struct mw_published_case *c);
/* The same job today: the framework's stack of now (mw_stack_of_framework),
 * fused attention without dropout; the published layout is simulated again. */
enum mw_status mw_published_today(struct mw_published_case *c,
                                  struct mw_err *err);

/* The scenario's own layout and layers as a candidate, simulated; layers in
 * arena. MW_EUSAGE when it has none. */
enum mw_status mw_candidate_of_layout(const struct mw_scenario *scenario,
                                      const struct mw_cost_ctx *ctx,
                                      struct mw_arena *arena,
                                      struct mw_candidate *out,
                                      struct mw_err *err);

#endif
