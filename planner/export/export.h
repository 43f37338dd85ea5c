/*
 * A plan as the launch files of a training framework. What the framework cannot
 * do is refused with the rule that forbids it: first the framework's own rules
 * (planner/rules.h), then what its files cannot say. What a plan does not
 * say (data, learning rate, iterations) takes a placeholder and a note.
 */
#ifndef MW_PLANNER_EXPORT_EXPORT_H
#define MW_PLANNER_EXPORT_EXPORT_H

#include "base/err.h"
#include "base/mem.h"
#include "sim/cost/cost.h"
#include "sim/plan/plan.h"

struct mw_export_in {
    const struct mw_scenario *scenario;
    const struct mw_plan *plan;
    const struct mw_cost_ctx *ctx;
    const char *file; /* what the launch line calls the file */
};

struct mw_export {
    struct mw_str file;   /* its text */
    struct mw_str launch; /* one line a node, with a final newline */
    struct mw_str notes;  /* lines: what the plan does not say; may be empty */
};
void mw_export_release(struct mw_export *out);

/*
 * Writes *out (released by the caller) on success. MW_EUSAGE: no such
 * framework; MW_ENO: it cannot run this plan ("megatron-core cannot run this
 * plan: RULE: what is wrong").
 */
enum mw_status mw_export_plan(const char *name, const struct mw_export_in *in,
                              struct mw_export *out, struct mw_err *err);

/*
 * The hosts of an allocation (text, one a line, in the allocation's order:
 * `scontrol show hostnames`) in the order in which the plan's ranks lie on
 * them, one a line, those that stand by left out; and the line that launches a
 * task on each. hosts_file names the text in messages: MW_EINPUT when it does
 * not list as many different hosts as the scenario's allocation has.
 */
enum mw_status mw_export_hosts(const char *hosts_file, const char *hosts,
                               const struct mw_export_in *in,
                               struct mw_export *out, struct mw_err *err);

#endif
