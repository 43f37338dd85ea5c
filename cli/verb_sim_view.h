/* How `sim` shows a step: tables for people, or one JSON object. */
#ifndef MW_CLI_VERB_SIM_VIEW_H
#define MW_CLI_VERB_SIM_VIEW_H

#include "cli/cli.h"
#include "cli/sim_job.h"
#include "cli/sim_unfold.h"

#include "sim/step/jitter.h"
#include "sim/step/ledger.h"

struct mw_sim_view {
    const struct mw_scenario *scenario;
    const struct mw_plan *plan;
    const struct mw_cost_ctx *ctx;
    const struct mw_step_result *result;
    const struct mw_explain *explain; /* NULL: not asked for */
    const double *share;          /* [MW_RESOURCE_COUNT]; NULL: not asked for */
    const struct mw_sim_job *job; /* NULL: not asked for */
    const struct mw_jitter *jitter; /* NULL: not asked for */
    /* [pp] Exposed seconds of each stage; needed by has_ledger. */
    double (*stages_s)[MW_SPAN_KIND_COUNT];
    const struct mw_sim_unfold *unfold; /* not NULL; looks at is_asked */
    bool has_ledger;
};
void mw_sim_view_print(const struct mw_sim_view *view, bool as_json);

#endif
