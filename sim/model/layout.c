/*
 * The parallel layout: defaults, binder table, rank <-> coordinates.
 *
 * Ranks are numbered with the first dimension of the order fastest:
 *   rank = sum over dims of coord[d] * (product of the sizes before d)
 * which is Megatron-LM's RankGenerator (core/parallel_state.py) with its
 * default order tp-cp-ep-dp-pp. Expert parallelism folds into the other
 * dimensions ("parallel folding", arXiv:2504.14960), so "ep" takes no place.
 */
#include "sim/model/layout.h"

#include "sim/model/scenario.h"

#include <limits.h>
#include <string.h>

const struct mw_enum mw_dtype_enums[] = {
    {"fp32", MW_FP32}, {"tf32", MW_TF32}, {"bf16", MW_BF16}, {"fp16", MW_FP16},
    {"fp8", MW_FP8},   {"fp4", MW_FP4},   {NULL, 0}};

const struct mw_enum mw_dtype_choice_enums[] = {
    {"workload", MW_DTYPE_OF_WORKLOAD},
    {"fp32", 1 + MW_FP32},
    {"tf32", 1 + MW_TF32},
    {"bf16", 1 + MW_BF16},
    {"fp16", 1 + MW_FP16},
    {"fp8", 1 + MW_FP8},
    {"fp4", 1 + MW_FP4},
    {NULL, 0}};

const struct mw_enum mw_main_params_choice_enums[] = {
    {"workload", MW_DTYPE_OF_WORKLOAD},
    {"fp32", 1 + MW_MAIN_FP32},
    {"fp16", 1 + MW_MAIN_FP16},
    {"none", 1 + MW_MAIN_NONE},
    {NULL, 0}};
const struct mw_enum mw_moment_choice_enums[] = {
    {"workload", MW_DTYPE_OF_WORKLOAD},
    {"fp32", 1 + MW_FP32},
    {"bf16", 1 + MW_BF16},
    {"fp16", 1 + MW_FP16},
    {"fp8", 1 + MW_FP8},
    {NULL, 0}};

const struct mw_enum mw_recompute_enums[] = {
    {"none", MW_RECOMPUTE_NONE},
    {"selective", MW_RECOMPUTE_SELECTIVE},
    {"full", MW_RECOMPUTE_FULL},
    {NULL, 0}};

const struct mw_enum mw_recompute_module_enums[] = {
    {"core_attn", MW_MODULE_CORE_ATTN},
    {"mla_up_proj", MW_MODULE_MLA_UP_PROJ},
    {"layernorm", MW_MODULE_LAYERNORM},
    {"mlp", MW_MODULE_MLP},
    {"moe", MW_MODULE_MOE},
    {"moe_act", MW_MODULE_MOE_ACT},
    {"shared_experts", MW_MODULE_SHARED_EXPERTS},
    {NULL, 0}};

const struct mw_enum mw_overlap_enums[] = {{"grad_reduce", MW_OVERLAP_GRADS},
                                           {"param_gather", MW_OVERLAP_PARAMS},
                                           {"tp", MW_OVERLAP_TP},
                                           {"ep", MW_OVERLAP_EP},
                                           {NULL, 0}};

const struct mw_enum mw_cp_form_enums[] = {{"gather", MW_CP_GATHER},
                                           {"ring", MW_CP_RING},
                                           {"a2a", MW_CP_A2A},
                                           {"pass_q", MW_CP_PASSQ},
                                           {NULL, 0}};

const struct mw_enum mw_grad_compression_enums[] = {
    {"none", MW_COMPRESS_NONE},
    {"onebit", MW_COMPRESS_ONEBIT},
    {"zeropp", MW_COMPRESS_ZEROPP},
    {NULL, 0}};

const struct mw_enum mw_offload_nvme_enums[] = {
    {"none", MW_NVME_NONE},
    {"optimizer", MW_NVME_OPTIMIZER},
    {"weights", MW_NVME_WEIGHTS},
    {"all", MW_NVME_ALL},
    {NULL, 0}};

const struct mw_enum mw_cuda_graph_enums[] = {
    {"stack", MW_GRAPH_STACK},
    {"none", MW_GRAPH_NONE},
    {"attn", MW_GRAPH_ATTN},
    {"layer", MW_GRAPH_LAYER},
    {"full_iteration", MW_GRAPH_ITERATION},
    {NULL, 0}};

/* Lists of what is or is not. */
const struct mw_enum mw_bool_enums[] = {{"false", 0}, {"true", 1}, {NULL, 0}};

const struct mw_enum mw_dispatcher_enums[] = {
    {"stack", MW_DISPATCH_STACK},         {"alltoall", MW_DISPATCH_ALLTOALL},
    {"allgather", MW_DISPATCH_ALLGATHER}, {"deepep", MW_DISPATCH_DEEPEP},
    {"hybridep", MW_DISPATCH_HYBRIDEP},   {NULL, 0}};

const struct mw_field mw_layout_fields[] = {MW_LAYOUT_FIELD_ROWS(0),
                                            MW_FIELD_END};

double mw_dtype_bytes(enum mw_dtype dtype)
{
    static const double bytes[MW_DTYPE_COUNT] = {
        [MW_FP32] = 4, [MW_TF32] = 4, [MW_BF16] = 2,
        [MW_FP16] = 2, [MW_FP8] = 1,  [MW_FP4] = 0.5};

    MW_ASSERT((unsigned)dtype < MW_DTYPE_COUNT, "dtype %d", (int)dtype);
    return bytes[dtype];
}

static const char *enum_name(const struct mw_enum *enums, int value)
{
    for (; enums->name != NULL; enums++) {
        if (enums->value == value) {
            return enums->name;
        }
    }
    return "?";
}

const char *mw_cuda_graph_name(enum mw_cuda_graph graph)
{
    return enum_name(mw_cuda_graph_enums, (int)graph);
}

const char *mw_dispatcher_name(enum mw_dispatcher how)
{
    return enum_name(mw_dispatcher_enums, (int)how);
}

const char *mw_dtype_name(enum mw_dtype dtype)
{
    return enum_name(mw_dtype_enums, (int)dtype);
}

const char *mw_dtype_choice_name(int choice)
{
    return enum_name(mw_dtype_choice_enums, choice);
}

const char *mw_main_params_choice_name(int choice)
{
    return enum_name(mw_main_params_choice_enums, choice);
}

const char *mw_recompute_name(enum mw_recompute recompute)
{
    return enum_name(mw_recompute_enums, (int)recompute);
}

const char *mw_cp_form_name(enum mw_cp_form form)
{
    return enum_name(mw_cp_form_enums, (int)form);
}

const char *mw_grad_compression_name(enum mw_grad_compression compression)
{
    return enum_name(mw_grad_compression_enums, (int)compression);
}

const char *mw_offload_nvme_name(enum mw_offload_nvme nvme)
{
    return enum_name(mw_offload_nvme_enums, (int)nvme);
}

int mw_layout_modules(const struct mw_layout *layout)
{
    if (layout->recompute != MW_RECOMPUTE_SELECTIVE) {
        return 0;
    }
    return layout->recompute_modules != 0 ? layout->recompute_modules
                                          : MW_MODULE_CORE_ATTN;
}

static void add_words(struct mw_str *text, const struct mw_enum *words,
                      int bits, const char *between)
{
    bool is_first = true;

    for (; words->name != NULL; words++) {
        if ((bits & words->value) != 0) {
            mw_str_addf(text, "%s%s", is_first ? "" : between, words->name);
            is_first = false;
        }
    }
}

void mw_recompute_modules_add(struct mw_str *text, int modules,
                              const char *between)
{
    add_words(text, mw_recompute_module_enums, modules, between);
}

void mw_overlap_off_add(struct mw_str *text, int bits, const char *between)
{
    add_words(text, mw_overlap_enums, bits, between);
}

int mw_layout_cp_outer(const struct mw_layout *layout)
{
    return layout->cp_inner > 1 ? layout->cp / layout->cp_inner : layout->cp;
}

int mw_layout_shard_ways(const struct mw_layout *layout)
{
    return layout->dp_shard > 0 ? layout->dp_shard : layout->dp;
}

bool mw_layout_keeps_layers(const struct mw_layout *layout)
{
    return layout->recompute_layers > 0 || layout->stage_recompute_layers.n > 0;
}

bool mw_layout_offloads(const struct mw_layout *layout)
{
    return layout->offload_optimizer > 0 || layout->offload_weights > 0 ||
           layout->offload_activations > 0;
}

void mw_layout_default(struct mw_layout *layout)
{
    *layout = (struct mw_layout){.tp = 1,
                                 .cp = 1,
                                 .pp = 1,
                                 .vpp = 1,
                                 .dp = 1,
                                 .ep = 1,
                                 .etp = 1,
                                 .micro_batch = 1,
                                 .schedule = "1f1b",
                                 .recompute = MW_RECOMPUTE_NONE,
                                 .order = "tp-cp-ep-dp-pp",
                                 .cp_form = MW_CP_GATHER,
                                 .cp_inner = 1,
                                 .reshard = true,
                                 .fsdp_unit = 1,
                                 .fsdp_prefetch = -1};
}

bool mw_layout_wraps(const struct mw_layout *layout)
{
    return layout->zero == 3 &&
           (layout->fsdp_unit != 1 || layout->fsdp_prefetch >= 0);
}

int mw_layout_ranks(const struct mw_layout *layout)
{
    uint64_t n =
        mw_mul_u64(mw_mul_u64((uint64_t)layout->tp, (uint64_t)layout->cp),
                   mw_mul_u64((uint64_t)layout->pp, (uint64_t)layout->dp));

    MW_ASSERT(n <= INT_MAX, "tp %d cp %d pp %d dp %d", layout->tp, layout->cp,
              layout->pp, layout->dp);
    return (int)n;
}

/* ---- rank order -----------------------------------------------------------
 */
enum axis { AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP, AXIS_EP, AXIS_COUNT };
enum { N_GRID_AXES = AXIS_EP };

/* Reads "tp-cp-ep-dp-pp" into the grid axes, fastest first. */
static bool parse_order(const char *order, enum axis out[N_GRID_AXES])
{
    static const char names[AXIS_COUNT][3] = {"tp", "cp", "dp", "pp", "ep"};
    bool seen[AXIS_COUNT] = {false};
    int n = 0;

    for (const char *p = order;; p += 3) {
        int axis = 0;

        while (axis < AXIS_COUNT &&
               (p[0] != names[axis][0] || p[1] != names[axis][1])) {
            axis++;
        }
        if (axis == AXIS_COUNT || seen[axis]) {
            return false;
        }
        seen[axis] = true;
        if (axis != AXIS_EP) {
            out[n++] = (enum axis)axis;
        }
        if (p[2] == '\0') {
            return n == N_GRID_AXES;
        }
        if (p[2] != '-') {
            return false;
        }
    }
}

bool mw_layout_is_grouped(const struct mw_layout *layout)
{
    return strcmp(layout->schedule, "interleaved-1f1b") == 0 ||
           strcmp(layout->schedule, "interleaved-zb") == 0;
}

bool mw_layout_order_valid(const char *order)
{
    enum axis axes[N_GRID_AXES];

    return order != NULL && parse_order(order, axes);
}

static void axis_sizes(const struct mw_layout *layout, int size[N_GRID_AXES])
{
    size[AXIS_TP] = layout->tp;
    size[AXIS_CP] = layout->cp;
    size[AXIS_DP] = layout->dp;
    size[AXIS_PP] = layout->pp;
}

struct mw_coord mw_layout_coord(const struct mw_layout *layout, int rank)
{
    enum axis axes[N_GRID_AXES] = {AXIS_TP};
    int size[N_GRID_AXES], at[N_GRID_AXES];
    int rest = rank;

    MW_ASSERT(parse_order(layout->order, axes), "order %s", layout->order);
    MW_ASSERT(rank >= 0 && rank < mw_layout_ranks(layout), "rank %d of %d",
              rank, mw_layout_ranks(layout));
    axis_sizes(layout, size);
    for (int i = 0; i < N_GRID_AXES; i++) {
        at[axes[i]] = rest % size[axes[i]];
        rest /= size[axes[i]];
    }
    return (struct mw_coord){.tp = at[AXIS_TP],
                             .cp = at[AXIS_CP],
                             .dp = at[AXIS_DP],
                             .pp = at[AXIS_PP]};
}

int mw_layout_rank(const struct mw_layout *layout, struct mw_coord at)
{
    enum axis axes[N_GRID_AXES] = {AXIS_TP};
    const int coord[N_GRID_AXES] = {[AXIS_TP] = at.tp,
                                    [AXIS_CP] = at.cp,
                                    [AXIS_DP] = at.dp,
                                    [AXIS_PP] = at.pp};
    int size[N_GRID_AXES];
    int rank = 0, stride = 1;

    MW_ASSERT(parse_order(layout->order, axes), "order %s", layout->order);
    axis_sizes(layout, size);
    for (int i = 0; i < N_GRID_AXES; i++) {
        enum axis axis = axes[i];

        MW_ASSERT(coord[axis] >= 0 && coord[axis] < size[axis],
                  "axis %d: coordinate %d of %d", (int)axis, coord[axis],
                  size[axis]);
        rank += coord[axis] * stride;
        stride *= size[axis];
    }
    return rank;
}

/* ---- with a workload -------------------------------------------------------
 */
enum mw_dtype mw_work_dtype(const struct mw_layout *layout,
                            const struct mw_workload *workload)
{
    return layout->dtype == MW_DTYPE_OF_WORKLOAD
               ? workload->dtype
               : (enum mw_dtype)(layout->dtype - 1);
}

struct mw_optimizer mw_work_optimizer(const struct mw_layout *layout,
                                      const struct mw_workload *workload)
{
    struct mw_optimizer o = workload->optimizer;

    if (layout->main_params != MW_DTYPE_OF_WORKLOAD) {
        o.main = (enum mw_main_params)(layout->main_params - 1);
    }
    if (layout->exp_avg != MW_DTYPE_OF_WORKLOAD) {
        o.exp_avg = (enum mw_dtype)(layout->exp_avg - 1);
    }
    if (layout->exp_avg_sq != MW_DTYPE_OF_WORKLOAD) {
        o.exp_avg_sq = (enum mw_dtype)(layout->exp_avg_sq - 1);
    }
    return o;
}

enum mw_dtype mw_work_grad_dtype(const struct mw_layout *layout,
                                 const struct mw_workload *workload)
{
    return layout->grad_dtype == MW_DTYPE_OF_WORKLOAD
               ? workload->grad_dtype
               : (enum mw_dtype)(layout->grad_dtype - 1);
}

int mw_microbatches(const struct mw_layout *layout,
                    const struct mw_workload *workload)
{
    int64_t n =
        workload->global_batch / ((int64_t)layout->dp * layout->micro_batch);

    MW_ASSERT(n >= 0 && n <= INT_MAX, "%lld micro-batches", (long long)n);
    return (int)n;
}
