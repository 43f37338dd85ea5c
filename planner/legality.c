/*
 * Rules applied: the values that their conditions may name, of a layout, a
 * model, a workload and a device; the set of one framework, compiled; the first
 * that a layout breaks, and its message. The rows themselves are data, one file
 * a family: megatron_rules.c, torch_rules.c, kernel_rules.c.
 */
#include "planner/rules.h"

#include "planner/nanotron_split.h"
#include "planner/rule_expr.h"
#include "sim/pipe/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define VALUES(X)                                                              \
    X(tp) X(cp) X(pp) X(vpp) X(dp) X(ep) X(etp) X(sp) X(zero) X(micro_batch)   \
    X(recompute) X(schedule) X(order) X(microbatches) X(ranks) X(layers)       \
    X(heads) X(kv_heads) X(experts) X(vocab) X(seq) X(batch) X(dtype) X(tied)  \
    X(uneven) X(node) X(cp_form) X(dp_shard) X(reshard) X(offload_optimizer)   \
    X(offload_weights) X(offload_activations) X(offload_part)       \
    X(grad_compression) X(recompute_layers) X(stage_recompute_layers) X(offload_nvme) X(cp_inner) X(recompute_modules) \
    X(grad_dtype) X(bucket_size) X(own_types) X(packed) X(off_grads) X(off_params) X(off_tp) X(off_ep) \
    X(optimizer) X(main_params) X(exp_avg) X(exp_avg_sq) X(cuda_graph) X(loss) X(loss_chunks) \
    X(capacity) X(padded) X(dispatcher) X(topk) X(hidden) X(sm) X(short_dispatch) X(shared_overlap) \
    X(fsdp_unit) X(fsdp_prefetch) X(mtp_ahead) X(vpp_group) X(clip) X(scaling) X(flash) X(dropout) X(bias) X(mtp) \
    X(learned) X(re_attn) X(re_mlp) X(offload_layers) X(window) X(chunked) X(sinks) X(idle)
/* clang-format on */
enum value {
#define VALUE_ENUM(name) V_##name,
    VALUES(VALUE_ENUM)
#undef VALUE_ENUM
        VALUE_COUNT
};

static const struct mw_rule_table *const tables[] = {
    &mw_megatron_rules, &mw_torch_rules, &mw_kernel_rules};

struct mw_set_rule {
    const struct mw_rule *row;
    struct mw_rule_code code;
};
struct mw_rule_set {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    struct {
        struct mw_set_rule *v;
        size_t n, cap;
    } rules;
    bool allows_uneven;
};

const struct mw_rule *mw_rule_row(size_t i)
{
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        if (i < tables[t]->n) {
            return &tables[t]->v[i];
        }
        i -= tables[t]->n;
    }
    return NULL;
}

int mw_offload_layers(const struct mw_layout *layout,
                      const struct mw_model *model)
{
    return (int)lround(layout->offload_activations * model->n_layers);
}

/* ---- names -----------------------------------------------------------------
 */
static const char *const value_names[VALUE_COUNT] = {
#define VALUE_NAME(name) #name,
    VALUES(VALUE_NAME)
#undef VALUE_NAME
};

static int name_index(const char *name, int len)
{
    for (int i = 0; i < VALUE_COUNT; i++) {
        if (strncmp(value_names[i], name, (size_t)len) == 0 &&
            value_names[i][len] == '\0') {
            return i;
        }
    }
    return -1;
}

/* Ids of texts: schedules by their place, then orders, recomputation, dtypes.
 * Ranges do not overlap, so a text compared with the wrong value is false. */
enum {
    ID_ORDER = 1000,
    ID_RECOMPUTE = 2000,
    ID_DTYPE = 3000,
    ID_FORM = 4000,
    ID_OPTIMIZER = 5000,
    ID_DISPATCHER = 6000,
    ID_SCALING = 7000
};

static int64_t enum_id(const struct mw_enum *e, const char *text, size_t n,
                       int64_t base)
{
    for (; e->name; e++) {
        if (strncmp(e->name, text, n) == 0 && e->name[n] == '\0') {
            return base + e->value;
        }
    }
    return -1;
}

static const char *const orders[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"};

static int64_t order_id(const char *text, size_t n)
{
    for (int i = 0; i < 2; i++) {
        if (strncmp(orders[i], text, n) == 0 && orders[i][n] == '\0') {
            return ID_ORDER + i;
        }
    }
    return -1;
}

static int64_t text_id(const char *text, int len)
{
    size_t n = (size_t)len;
    int64_t id = order_id(text, n);

    for (size_t i = 0; mw_schedule_kind(i); i++) {
        const char *name = mw_schedule_kind(i)->name;

        if (strncmp(name, text, n) == 0 && name[n] == '\0') {
            return (int64_t)i;
        }
    }
    id = id < 0 ? enum_id(mw_recompute_enums, text, n, ID_RECOMPUTE) : id;
    id = id < 0 ? enum_id(mw_dtype_enums, text, n, ID_DTYPE) : id;
    id = id < 0 ? enum_id(mw_cp_form_enums, text, n, ID_FORM) : id;
    id = id < 0 ? enum_id(mw_dispatcher_enums, text, n, ID_DISPATCHER) : id;
    id = id < 0 ? enum_id(mw_scaling_enums, text, n, ID_SCALING) : id;
    return id < 0 ? enum_id(mw_optimizer_enums, text, n, ID_OPTIMIZER) : id;
}

/* ---- sets ------------------------------------------------------------------
 */
static void add_rules(struct mw_rule_set *set, int framework)
{
    static const struct mw_rule_names names = {name_index, text_id};

    for (size_t i = 0; mw_rule_row(i); i++) {
        struct mw_set_rule rule = {.row = mw_rule_row(i)};
        struct mw_err err = {0};

        if (rule.row->framework != framework) {
            continue;
        }
        MW_ASSERT(mw_rule_compile(rule.row->condition, &names, &rule.code,
                                  &err) == MW_OK,
                  "rule %s: %s", rule.row->id, err.text);
        mw_array_push(&set->rules, rule);
    }
}

struct mw_rule_set *mw_rule_set_new(const struct mw_scenario *scenario,
                                    const struct mw_cost_ctx *ctx)
{
    struct mw_rule_set *set = mw_calloc(1, sizeof *set);
    int framework = scenario->limits.framework;

    set->scenario = scenario;
    set->ctx = ctx;
    /* Uneven stages: Megatron-Core takes a list (pipeline layout), DeepSpeed a
     * partition method, Nanotron its own blocks, TorchTitan lists of modules
     * (module_fqns_per_model_part); all may leave the embedding or the head
     * alone. */
    set->allows_uneven = true;
    if (scenario->model.moe.n_experts > 0) {
        add_rules(set, MW_FRAMEWORK_ANY);
    }
    if (framework != MW_FRAMEWORK_ANY) {
        add_rules(set, framework);
    }
    if (ctx->gpu->is_cpu && framework != MW_FRAMEWORK_HOST) {
        add_rules(set, MW_FRAMEWORK_HOST);
    }
    return set;
}

void mw_rule_set_free(struct mw_rule_set *set)
{
    if (set) {
        mw_array_release(&set->rules);
    }
    mw_free(set);
}

bool mw_rule_set_allows_uneven(const struct mw_rule_set *set)
{
    return set->allows_uneven;
}

/* What a model and a workload leave no choice of. */
static void fill_work(const struct mw_model *m, const struct mw_workload *w,
                      int64_t v[VALUE_COUNT])
{
    v[V_scaling] = ID_SCALING + (int64_t)w->scaling;
    v[V_flash] = w->is_flash;
    v[V_dropout] = w->has_dropout;
    v[V_bias] = m->bias_mlp || m->moe.bias;
    v[V_mtp] = m->n_mtp;
    v[V_learned] = m->position == MW_POS_LEARNED;
    v[V_window] = m->window.tokens;
    v[V_chunked] = m->window.form == MW_WINDOW_CHUNKED;
    v[V_sinks] = m->sinks;
}

/* Modules that selective recomputation repeats, and offloaded layers as they
 * are rounded in launch files. */
static void fill_kept(const struct mw_model *m, const struct mw_layout *l,
                      int64_t v[VALUE_COUNT])
{
    int modules =
        l->recompute == MW_RECOMPUTE_SELECTIVE ? mw_layout_modules(l) : 0;

    v[V_re_attn] = (modules & MW_MODULE_CORE_ATTN) != 0;
    v[V_re_mlp] = (modules & MW_MODULE_MLP) != 0;
    v[V_offload_layers] = mw_offload_layers(l, m);
}

static bool is_part(double part)
{
    return part > 0 && part < 1;
}

static void fill_values(const struct mw_rule_set *set,
                        const struct mw_layout *l, int64_t v[VALUE_COUNT])
{
    const struct mw_model *m = &set->scenario->model;
    const struct mw_workload *w = &set->scenario->workload;
    int64_t order = order_id(l->order, strlen(l->order));

    v[V_tp] = l->tp;
    v[V_cp] = l->cp;
    v[V_pp] = l->pp;
    v[V_vpp] = l->vpp;
    v[V_dp] = l->dp;
    v[V_ep] = l->ep;
    v[V_etp] = l->etp;
    v[V_sp] = l->sp;
    v[V_zero] = l->zero;
    v[V_micro_batch] = l->micro_batch;
    v[V_recompute] = ID_RECOMPUTE + (int64_t)l->recompute;
    v[V_schedule] = text_id(l->schedule, (int)strlen(l->schedule));
    v[V_order] = order;
    v[V_microbatches] = mw_microbatches(l, w);
    v[V_ranks] = (int64_t)l->tp * l->cp * l->pp * l->dp;
    v[V_layers] = m->n_layers;
    v[V_heads] = m->n_heads;
    v[V_kv_heads] = m->mla.on ? m->n_heads : m->n_kv_heads;
    v[V_experts] = m->moe.n_experts;
    v[V_vocab] = m->vocab;
    v[V_seq] = w->seq;
    v[V_batch] = w->global_batch;
    v[V_dtype] = ID_DTYPE + (int64_t)mw_work_dtype(l, w);
    v[V_grad_dtype] = ID_DTYPE + (int64_t)mw_work_grad_dtype(l, w);
    v[V_bucket_size] = l->bucket_size;
    v[V_off_grads] = (l->overlap_off & MW_OVERLAP_GRADS) != 0;
    v[V_off_params] = (l->overlap_off & MW_OVERLAP_PARAMS) != 0;
    v[V_off_tp] = (l->overlap_off & MW_OVERLAP_TP) != 0;
    v[V_off_ep] = (l->overlap_off & MW_OVERLAP_EP) != 0;
    v[V_own_types] = l->dtype != MW_DTYPE_OF_WORKLOAD ||
                     l->grad_dtype != MW_DTYPE_OF_WORKLOAD;
    const struct mw_optimizer optimizer = mw_work_optimizer(l, w);

    v[V_optimizer] = ID_OPTIMIZER + (int64_t)optimizer.kind;
    v[V_main_params] = (int64_t)optimizer.main;
    v[V_exp_avg] = ID_DTYPE + (int64_t)optimizer.exp_avg;
    v[V_exp_avg_sq] = ID_DTYPE + (int64_t)optimizer.exp_avg_sq;
    v[V_cuda_graph] = (int64_t)l->cuda_graph;
    v[V_mtp_ahead] = l->mtp_ahead;
    v[V_vpp_group] = l->vpp_group;
    v[V_loss] = (int64_t)w->loss;
    v[V_loss_chunks] = w->loss_chunks;
    v[V_capacity] = w->capacity_factor > 0;
    v[V_shared_overlap] = l->overlap_shared_experts;
    v[V_padded] = w->pads_to_capacity;
    v[V_dispatcher] = ID_DISPATCHER + (int64_t)l->dispatcher;
    v[V_topk] = m->moe.top_k;
    v[V_hidden] = m->hidden;
    v[V_short_dispatch] = m->moe.fp8_dispatch;
    v[V_sm] = mw_compute_capability(set->ctx->gpu);
    v[V_clip] = (int64_t)w->clip;
    v[V_tied] = m->tied;
    v[V_packed] = mw_work_span(w->seq, w->doc_tokens) < w->seq;
    v[V_uneven] = m->n_layers % (l->pp * l->vpp) != 0;
    v[V_node] = set->ctx->gpus_per_node;
    v[V_cp_form] = ID_FORM + (int64_t)l->cp_form;
    v[V_dp_shard] = l->dp_shard;
    v[V_reshard] = l->reshard;
    v[V_fsdp_unit] = l->fsdp_unit;
    v[V_fsdp_prefetch] = l->fsdp_prefetch;
    v[V_offload_nvme] = (int64_t)l->offload_nvme;
    v[V_cp_inner] = l->cp_inner;
    v[V_grad_compression] = (int64_t)l->grad_compression;
    v[V_offload_optimizer] = l->offload_optimizer > 0;
    v[V_offload_weights] = l->offload_weights > 0;
    v[V_offload_activations] = l->offload_activations > 0;
    v[V_recompute_layers] = l->recompute_layers;
    v[V_stage_recompute_layers] = l->stage_recompute_layers.n > 0;
    v[V_recompute_modules] = l->recompute_modules;
    v[V_offload_part] = is_part(l->offload_optimizer) ||
                        is_part(l->offload_weights) ||
                        is_part(l->offload_activations);
    v[V_idle] =
        set->scenario->limits.framework == MW_FRAMEWORK_NANOTRON && l->pp > 1
            ? mw_nanotron_split(m, l->pp, NULL)
            : 0;
    fill_work(m, w, v);
    fill_kept(m, l, v);
}

const struct mw_rule *mw_rule_broken(const struct mw_rule_set *set,
                                     const struct mw_layout *layout)
{
    int64_t v[VALUE_COUNT];

    if (set->rules.n == 0) {
        return NULL;
    }
    fill_values(set, layout, v);
    for (size_t i = 0; i < set->rules.n; i++) {
        if (!mw_rule_eval(&set->rules.v[i].code, v)) {
            return set->rules.v[i].row;
        }
    }
    return NULL;
}

static void add_value(const struct mw_layout *l, const int64_t *v, int index,
                      struct mw_str *out)
{
    if (index == V_schedule) {
        mw_str_add(out, l->schedule);
    } else if (index == V_order) {
        mw_str_add(out, l->order);
    } else if (index == V_optimizer) {
        mw_str_add(out, mw_optimizer_name(
                            (enum mw_optimizer_kind)(v[index] - ID_OPTIMIZER)));
    } else {
        mw_str_addf(out, "%" PRId64, v[index]);
    }
}

void mw_rule_explain(const struct mw_rule_set *set, const struct mw_rule *rule,
                     const struct mw_layout *layout, struct mw_str *out)
{
    int64_t v[VALUE_COUNT];
    const char *at = rule->message;

    fill_values(set, layout, v);
    while (*at != '\0') {
        const char *open = strchr(at, '{');
        const char *close = open ? strchr(open, '}') : NULL;

        if (!close) {
            mw_str_add(out, at);
            break;
        }
        mw_str_addf(out, "%.*s", (int)(open - at), at);
        int index = name_index(open + 1, (int)(close - open - 1));

        MW_ASSERT(index >= 0, "rule %s: %s", rule->id, open);
        add_value(layout, v, index, out);
        at = close + 1;
    }
    mw_str_addf(out, " (%s)", rule->source);
}
