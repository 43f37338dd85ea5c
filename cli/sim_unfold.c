/*
 * `sim --unfold`: the step with every rank simulated, beside the folded one,
 * and `--slow RANK=FACTOR,...`: what it costs that some ranks are slower.
 */
#include "cli/sim_unfold.h"

#include "base/mem.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>

enum mw_status mw_sim_unfold_slow(struct mw_sim_unfold *u, const char *text,
                                  struct mw_err *err)
{
    struct mw_cli_pair pairs[MW_CLI_PAIRS_MAX];
    int n = 0;
    enum mw_status status =
        mw_cli_pairs_like("--slow", "17=1.3", text, pairs, &n, err);

    for (int i = 0; i < n && status == MW_OK; i++) {
        long long rank = 0;
        double pace = 0;

        status = mw_cli_int("--slow", pairs[i].key, 0, MW_WAYS_MAX, &rank, err);
        if (status == MW_OK &&
            (mw_double_parse(pairs[i].value, &pace, NULL) != MW_OK ||
             !(pace >= 0.01 && pace <= 1000))) {
            status =
                mw_fail(err, MW_EUSAGE,
                        "--slow: '%s' is no factor from 0.01 to 1000, as in "
                        "--slow 17=1.3",
                        pairs[i].value);
        }
        for (int j = 0; j < i && status == MW_OK; j++) {
            if (u->slow[j].rank == rank) {
                status = mw_fail(
                    err, MW_EUSAGE,
                    "--slow: rank %lld has two factors; give it one", rank);
            }
        }
        u->slow[i].rank = (int)rank;
        u->slow[i].pace = pace;
    }
    u->is_asked = true;
    u->n_slow = n;
    return status;
}

enum mw_status mw_sim_unfold_run(struct mw_sim_unfold *u,
                                 const struct mw_scenario *scenario,
                                 const struct mw_plan *plan,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_err *err)
{
    int n = mw_layout_ranks(&plan->layout);
    double *pace = mw_calloc((size_t)n, sizeof *pace);
    enum mw_status status = MW_OK;

    for (int i = 0; i < n; i++) {
        pace[i] = 1;
    }
    for (int i = 0; i < u->n_slow && status == MW_OK; i++) {
        if (u->slow[i].rank >= n) {
            status = mw_fail(err, MW_EUSAGE,
                             "--slow: rank %d, but the plan has ranks 0 to %d",
                             u->slow[i].rank, n - 1);
        } else {
            pace[u->slow[i].rank] = u->slow[i].pace;
        }
    }
    if (status == MW_OK) {
        status = mw_step_unfold(scenario, plan, ctx, pace, &u->result, err);
    }
    mw_free(pace);
    return status;
}

void mw_sim_unfold_print(const struct mw_sim_unfold *u, double folded_s)
{
    char text[MW_FMT_MAX], wall[MW_FMT_MAX];

    printf("\nEvery rank simulated: %d ranks, %" PRIu64 " tasks in %s\n",
           u->result.n_ranks, u->result.n_tasks,
           mw_fmt_seconds(u->result.wall_time_s, wall));
    for (int i = 0; i < u->n_slow; i++) {
        printf("  rank %d takes %g times as long\n", u->slow[i].rank,
               u->slow[i].pace);
    }
    printf("  step time        %10s  %+.2f %%\n",
           mw_fmt_seconds(u->result.step_time_s, text),
           100 * (u->result.step_time_s / folded_s - 1));
}

json_t *mw_sim_unfold_json(const struct mw_sim_unfold *u)
{
    json_t *o = json_object(), *slow = json_array();

    for (int i = 0; i < u->n_slow; i++) {
        json_t *row = json_object();

        mw_json_set_int(row, "rank", u->slow[i].rank);
        mw_json_set_real(row, "factor", u->slow[i].pace);
        json_array_append_new(slow, row);
    }
    mw_json_set_int(o, "ranks", u->result.n_ranks);
    mw_json_set_int(o, "tasks", (long long)u->result.n_tasks);
    mw_json_set_real(o, "step_time_s", u->result.step_time_s);
    mw_json_set_real(o, "wall_time_s", u->result.wall_time_s);
    mw_json_set(o, "slow", slow);
    return o;
}
