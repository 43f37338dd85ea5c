/* Private to the rules of a layout (rules.c, rules_state.c). */
#ifndef MW_SIM_MODEL_RULES_INT_H
#define MW_SIM_MODEL_RULES_INT_H

#include "sim/model/scenario.h"

/* A layout under check; err gets the message of the broken rule. */
struct check {
    const struct mw_layout *l;
    const struct mw_model *m;
    const struct mw_workload *w;
    int n_ranks;
    struct mw_err *err;
};

#define BROKEN(c, ...)                                                         \
    ((void)((c)->err != NULL ? mw_fail((c)->err, MW_ENO, __VA_ARGS__)          \
                             : MW_ENO),                                        \
     false)

/* Is the rule met? docs/scenario.md says what each asks for. */
bool mw_rule_reshard(const struct check *c);
bool mw_rule_fsdp(const struct check *c);
bool mw_rule_recompute_layers(const struct check *c);
bool mw_rule_stage_layers(const struct check *c);
bool mw_rule_modules(const struct check *c);
bool mw_rule_offload(const struct check *c);
bool mw_rule_offload_nvme(const struct check *c);
bool mw_rule_compression(const struct check *c);
bool mw_rule_states(const struct check *c);
bool mw_rule_vpp_group(const struct check *c);
bool mw_rule_bucket(const struct check *c);

#endif
