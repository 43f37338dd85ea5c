/*
 * Which plan a verb works on: a plan file, the layout of a scenario, or the
 * search's best; and files of which either may be given.
 */
#ifndef MW_CLI_CHOOSE_H
#define MW_CLI_CHOOSE_H

#include "cli/cli.h"

#include "sim/cost/cost.h"
#include "sim/plan/plan.h"

/*
 * The plan of the file (not NULL), else the scenario's layout, else the best
 * that a search finds, which is said on stderr unless is_quiet. Release it with
 * mw_plan_release.
 */
enum mw_status mw_cli_choose(const char *plan_file,
                             const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx, bool is_quiet,
                             struct mw_plan *out, struct mw_err *err);

/* Puts the place in the scenario's file in front of an MW_EINPUT: what it asks
 * of the database or the machine is its own mistake. Returns status. */
enum mw_status mw_cli_blame(const struct mw_scenario *scenario,
                            enum mw_status status, struct mw_err *err);

/* A plan on its scenario with its prices. */
struct mw_cli_subject {
    struct mw_scenario scenario;
    struct mw_plan plan;
    struct mw_cost_ctx ctx; /* points into the caller's database */
    bool is_plan_file;
};
/*
 * Opens a plan file (with the scenario that it names) or a scenario file (with
 * the plan that mw_cli_choose finds), told apart by their keys. stack NULL:
 * plain. Nothing to release on failure.
 */
enum mw_status mw_cli_subject_open(const struct mw_hwdb *db, const char *file,
                                   const char *stack, bool is_quiet,
                                   struct mw_cli_subject *out,
                                   struct mw_err *err);
/* The same for a scenario file, with the layout and layers of another plan in
 * place of its own. MW_EINPUT when the scenario has no room for it. */
enum mw_status mw_cli_subject_like(const struct mw_hwdb *db, const char *file,
                                   const char *stack,
                                   const struct mw_plan *plan,
                                   struct mw_cli_subject *out,
                                   struct mw_err *err);
void mw_cli_subject_close(struct mw_cli_subject *s);

/* What a verb does with its one subject; ctx are its own arguments. */
typedef enum mw_status (*mw_cli_subject_fn)(const void *ctx,
                                            const struct mw_cli_subject *s,
                                            struct mw_err *err);
/* Opens database and subject, calls fn, closes both. */
enum mw_status mw_cli_with_subject(const struct mw_cli *cli, const char *file,
                                   const char *stack, mw_cli_subject_fn fn,
                                   const void *ctx, struct mw_err *err);

#endif
