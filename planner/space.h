/*
 * The space of layouts, walked without being stored: an outer list of
 * (tp, cp, pp, dp, ep, etp) whose products fit the cluster, and under each the
 * micro-batch, sequence parallelism, chunks, rank order, recomputation, ZeRO
 * stage and schedule. A walk of one outer item is independent of the others,
 * so they can be walked in any order and by several threads.
 *
 * Private to planner/.
 */
#ifndef MW_PLANNER_SPACE_H
#define MW_PLANNER_SPACE_H

#include "planner/planner.h"
#include "planner/rules.h"

enum {
    MW_SPACE_KINDS_MAX = 32,
    MW_SPACE_ORDERS_MAX = 24,
    MW_SPACE_ORDER_TEXT = 16,
    MW_SPACE_VPP_MAX = 64,
    MW_SPACE_OFFLOADS = MW_PARTS_MAX * MW_PARTS_MAX * MW_PARTS_MAX,
    MW_SPACE_MODULES = 128,
    MW_SPACE_TYPES = MW_DTYPE_COUNT + 1,
    MW_SPACE_STATES = 3 * 4 * 4, /* main copies and moments of each type */
    MW_SPACE_SHARDS_MAX = 64     /* divisors of dp */
};

struct mw_space {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    const struct mw_search_opts *opts;
    struct mw_rule_set *rules;
    int n_ranks;
    bool has_lists; /* limits list types, compression or offload */
    struct {
        struct mw_layout *v; /* only the outer dimensions are set */
        size_t n, cap;
    } outer;
    const struct mw_sched_kind *kind[MW_SPACE_KINDS_MAX];
    int n_kinds;
    bool has_plain; /* 1f1b among them, where none is fixed */
    char order[MW_SPACE_ORDERS_MAX][MW_SPACE_ORDER_TEXT];
    int n_orders;
    int zero[4], n_zero;
    int recompute[3], n_recompute;
    bool sp[2];
    int n_sp;
    enum mw_cp_form cp_form[4];
    int n_cp_forms;
    bool reshard[2];
    int n_reshard;
    enum mw_offload_nvme nvme[4];
    int n_nvmes;
    int dtype[MW_SPACE_TYPES], n_dtypes; /* as in mw_layout */
    int grad_dtype[MW_SPACE_TYPES], n_grad_dtypes;
    struct {
        int main, exp_avg, exp_avg_sq; /* as in mw_layout */
    } state[MW_SPACE_STATES];
    int n_states;
    int modules[MW_SPACE_MODULES], n_modules; /* of selective recomputation */
    enum mw_grad_compression compression[3];
    int n_compressions;
    struct mw_int_list graphs;      /* scopes of CUDA graphs, the same */
    struct mw_int_list overlaps;    /* of shared experts and exchanges */
    struct mw_int_list dispatchers; /* ways to the experts, the same */
    struct mw_int_list fsdp_units, fsdp_prefetches;
    bool mtp_ahead[2]; /* places to enumerate */
    int n_mtp;
    struct mw_int_list buckets; /* sizes to enumerate where none is fixed */
    /* Parts in the host's memory: of optimizer, weights, activations. */
    double offload[MW_SPACE_OFFLOADS][3];
    int n_offloads;
};

/* ---- space_limits.c: what the scenario's limits allow ---------------------
 */
/* A value of a list, which allows all when it is empty; a set among sets, as
 * far as `has` goes (0 among modules is the attention core). */
bool mw_limits_list_allows(const struct mw_int_list *list, int value);
bool mw_int_list_holds(const struct mw_int_list *list, int value);
/* Names of schedules and rank orders that the limits list: are there such, and
 * do they train? MW_EINPUT otherwise, with the key set. */
enum mw_status mw_limits_check_names(const struct mw_scenario *scenario,
                                     struct mw_err *err);
bool mw_limits_sets_allow(const struct mw_int_list *sets, int set, int has);
/* Are there gradients that wait for the end of the step? */
bool mw_layout_has_buckets(const struct mw_layout *l);
/* Are there shared experts to compute while an all-to-all goes on? */
bool mw_layout_can_overlap_shared(const struct mw_layout *layout,
                                  const struct mw_model *model);
/* Is there something offloaded that may lie on drives? */
bool mw_layout_can_spill(const struct mw_layout *layout);
/* Transfers that a layout has and nothing need hide. */
int mw_layout_can_show(const struct mw_layout *l);
/* What the limits list of types, compression, offload and the like. */
bool mw_space_allows_rare(const struct mw_space *s, const struct mw_layout *l);
/* Sizes: rule name, or NULL when the limits allow them. */
const char *mw_space_limit_rule(const struct mw_space *s,
                                const struct mw_layout *l);

/* ---- the walk -------------------------------------------------------------
 */
/* Counts by rule with the nearest miss, of one walk. */
struct mw_tally_row {
    const char *rule; /* static text */
    uint64_t count;
    double miss; /* needed / allowed of the nearest; 0 unknown */
    double needed, allowed;
    struct mw_layout nearest;
};
struct mw_tally {
    struct mw_tally_row row[MW_REASONS_MAX];
    int n;
    uint64_t enumerated, legal;
};
void mw_tally_add(struct mw_tally *t, const char *rule, uint64_t count,
                  const struct mw_layout *layout, double needed,
                  double allowed);
/* Adds b to a; of equal misses a's stays. */
void mw_tally_merge(struct mw_tally *a, const struct mw_tally *b);

/* Keeps pointers to scenario, ctx and opts. Release with mw_space_release. */
void mw_space_init(struct mw_space *space, const struct mw_scenario *scenario,
                   const struct mw_cost_ctx *ctx,
                   const struct mw_search_opts *opts);
void mw_space_release(struct mw_space *space);

/* Called for each legal layout; `at` is its place within the outer item. */
typedef void (*mw_leaf_fn)(void *arg, const struct mw_layout *layout,
                           uint64_t at);
enum mw_walk { MW_WALK_ALL, MW_WALK_SEED /* 1F1B, first order, ZeRO <= 1 */ };
/* Walks outer item i; what breaks a rule is tallied. Layouts point to texts of
 * the space. */
void mw_space_walk(const struct mw_space *space, size_t i, enum mw_walk walk,
                   struct mw_tally *tally, mw_leaf_fn leaf, void *arg);

/* The rule that forbids a layout, or NULL; text (may be NULL) gets the words.
 * The same checks as in a walk. */
const char *mw_space_forbids(const struct mw_space *space,
                             const struct mw_layout *layout,
                             char text[MW_PLAN_TEXT_MAX]);

#endif
