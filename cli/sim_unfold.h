/* `sim --unfold` and `--slow`: every rank simulated (sim/step/unfold.h). */
#ifndef MW_CLI_SIM_UNFOLD_H
#define MW_CLI_SIM_UNFOLD_H

#include "cli/cli.h"
#include "sim/step/unfold.h"

struct mw_sim_unfold {
    bool is_asked;
    int n_slow;
    struct {
        int rank;
        double pace; /* 1.3: takes 1.3 times as long */
    } slow[MW_CLI_PAIRS_MAX];
    struct mw_unfold result;
};

/* Reads "17=1.3,40=2"; MW_EUSAGE says what is wrong with it. */
enum mw_status mw_sim_unfold_slow(struct mw_sim_unfold *u, const char *text,
                                  struct mw_err *err);
/* MW_EUSAGE when a slow rank is none of the plan's. */
enum mw_status mw_sim_unfold_run(struct mw_sim_unfold *u,
                                 const struct mw_scenario *scenario,
                                 const struct mw_plan *plan,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_err *err);
/* Beside the folded step time. */
void mw_sim_unfold_print(const struct mw_sim_unfold *u, double folded_s);
json_t *mw_sim_unfold_json(const struct mw_sim_unfold *u);

#endif
