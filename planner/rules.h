/*
 * What a framework can run: rules as data, one row each.
 *
 * Every layout must also meet the rules of sim/model (mw_layout_check), which
 * hold everywhere. A framework adds its own: schedules that it has, products
 * that must divide, features that exclude each other.
 */
#ifndef MW_PLANNER_RULES_H
#define MW_PLANNER_RULES_H

#include "base/err.h"
#include "sim/cost/cost.h"
#include "sim/model/scenario.h"

#include <stdbool.h>

struct mw_rule {
    const char *id;        /* stable: "megatron_schedule" */
    int framework;         /* enum mw_framework whose rule it is */
    const char *condition; /* must hold (planner/rule_expr.h) */
    const char *message;   /* {name} stands for a value */
    const char *source;
};
/* Rows of a family of frameworks. kernel_rules.c has those of kernels that a
 * layout may name (dispatcher), under every framework (MW_FRAMEWORK_ANY), and
 * our host executor's. */
struct mw_rule_table {
    const struct mw_rule *v;
    size_t n;
};
#define MW_RULE_TABLE(rows)                                                    \
    {                                                                          \
        rows, sizeof rows / sizeof rows[0]                                     \
    }
extern const struct mw_rule_table mw_megatron_rules, mw_torch_rules,
    mw_kernel_rules;
/* What rules ask of a device: NVIDIA's compute capability times ten of an
 * architecture in gpus.csv, 0 for others. */
int64_t mw_compute_capability(const struct mw_gpu *gpu);

/* Layers whose activations a framework that offloads whole layers sends to the
 * host for a layout's part of them. */
int mw_offload_layers(const struct mw_layout *layout,
                      const struct mw_model *model);

/* i-th row, NULL past the end; for documents and tests. */
const struct mw_rule *mw_rule_row(size_t i);

/* The rules of one framework, compiled; for a device that is a CPU those of
 * our host executor are added. */
struct mw_rule_set;
struct mw_rule_set *mw_rule_set_new(const struct mw_scenario *scenario,
                                    const struct mw_cost_ctx *ctx);
void mw_rule_set_free(struct mw_rule_set *set);
/* May layers differ from stage to stage? */
bool mw_rule_set_allows_uneven(const struct mw_rule_set *set);

/* The first broken rule, or NULL. */
const struct mw_rule *mw_rule_broken(const struct mw_rule_set *set,
                                     const struct mw_layout *layout);
/* Its message with values in it, condition and source after it. */
void mw_rule_explain(const struct mw_rule_set *set, const struct mw_rule *rule,
                     const struct mw_layout *layout, struct mw_str *out);

#endif
