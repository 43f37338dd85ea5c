/*
 * The frameworks' rules said again, in C and without the table, for the
 * property test: what a rule forbids is written here from the same sources, so
 * a row that is lost or wrong lets a plan through that this refuses.
 */
#include "rules_again.h"

#include <string.h>

static bool one_of(const char *name, const char *const *list)
{
    for (; *list; list++) {
        if (strcmp(name, *list) == 0) {
            return true;
        }
    }
    return false;
}

/* The same of what is rarely other than its default. */
static bool may_run_rare(const struct world *w, const struct mw_layout *l)
{
    bool has_weights = l->offload_weights > 0,
         has_opt = l->offload_optimizer > 0;
    bool has_acts = l->offload_activations > 0;
    bool is_all = l->recompute_layers == 0 && l->recompute_modules == 0;

    switch (w->scenario.limits.framework) {
    case MW_FRAMEWORK_MEGATRON_CORE:
        return l->reshard && !has_weights && (!has_opt || l->zero >= 1) &&
               (l->recompute_layers == 0 ||
                l->recompute == MW_RECOMPUTE_FULL) &&
               (!has_acts || (l->pp == 1 && l->recompute == MW_RECOMPUTE_NONE));
    case MW_FRAMEWORK_MEGATRON_DEEPSPEED:
        return l->reshard && is_all && (l->dp_shard == 0 || l->zero == 3) &&
               (!has_opt || l->zero >= 1) && (!has_weights || l->zero == 3) &&
               (!has_acts || l->recompute == MW_RECOMPUTE_FULL);
    case MW_FRAMEWORK_TORCHTITAN:
        return is_all && (l->cp == 1 || l->cp_form != MW_CP_A2A) &&
               has_weights == has_opt && (!has_opt || l->zero >= 2) &&
               !has_acts;
    case MW_FRAMEWORK_NANOTRON:
        return is_all && l->cp == 1 && l->dp_shard == 0 && !has_weights &&
               !has_opt && !has_acts;
    case MW_FRAMEWORK_HOST:
        return !has_weights && !has_acts && l->recompute_modules == 0;
    default:
        return true;
    }
}

/* Megatron-Core's of the model and the kind of work. */
static bool may_run_megatron(const struct world *w, const struct mw_layout *l)
{
    const struct mw_model *m = &w->scenario.model;
    const struct mw_workload *k = &w->scenario.workload;
    enum mw_dtype d = mw_work_dtype(l, k);
    bool is_moe = m->moe.n_experts > 0, is_short = d >= MW_FP8;
    bool is_half = d == MW_BF16 || d == MW_FP16;
    int offloaded = (int)(l->offload_activations * m->n_layers + 0.5);
    int modules =
        l->recompute_modules == 0 ? MW_MODULE_CORE_ATTN : l->recompute_modules;
    bool is_again = l->recompute == MW_RECOMPUTE_SELECTIVE;
    bool is_graph = l->cuda_graph > MW_GRAPH_NONE;

    if (m->n_kv_heads % l->tp != 0 || (l->cp > 1 && !k->is_flash) ||
        (k->is_flash && !is_half && !is_short) ||
        (m->n_mtp > 0 && (m->position == MW_POS_LEARNED || l->cp > 1)) ||
        (m->moe.fp8_dispatch && l->ep * l->etp > 1) ||
        m->window.form == MW_WINDOW_CHUNKED || (m->sinks && l->cp > 1)) {
        return false;
    }
    if (strcmp(l->order, "tp-cp-ep-pp-dp") == 0 && l->pp > 1 &&
        (is_moe ? l->etp * l->ep : l->tp) != l->tp * l->cp) {
        return false;
    }
    if (is_moe && ((d != MW_BF16 && !is_short) || (m->bias_mlp && l->etp > 1) ||
                   (l->zero >= 2 && l->ep > 1 && l->dp_shard > 0))) {
        return false;
    }
    if (l->offload_activations > 0 &&
        (offloaded < 1 || offloaded >= m->n_layers)) {
        return false;
    }
    return !is_graph || (l->recompute != MW_RECOMPUTE_FULL && l->zero <= 1 &&
                         !(k->has_dropout && is_again &&
                           (modules & MW_MODULE_CORE_ATTN) != 0));
}

/* Does Nanotron's cut reach its last stage before the head? As if a stage took
 * blocks until what they cost exceeds all stages' share so far. */
static bool has_no_idle(const struct mw_model *m, int pp)
{
    double h = m->hidden, layer = 4 * h * h + 3 * h * m->ffn, sum = 0;
    double share = (m->n_layers * layer + m->vocab * h) / pp;
    int cuts = 0;

    for (int i = 0; i <= m->n_layers; i++) {
        sum += i < m->n_layers ? layer : 0; /* then the norm */
        cuts += sum > share * (cuts + 1);
    }
    return cuts >= pp - 1;
}

/* TorchTitan's, Nanotron's and Megatron-DeepSpeed's. */
static bool may_run_other(const struct world *w, const struct mw_layout *l)
{
    const struct mw_model *m = &w->scenario.model;
    const struct mw_workload *k = &w->scenario.workload;
    enum mw_dtype d = mw_work_dtype(l, k);
    bool is_moe = m->moe.n_experts > 0, is_many = l->vpp > 1;
    bool is_single =
        strcmp(l->schedule, "1f1b") == 0 || strcmp(l->schedule, "gpipe") == 0;
    bool is_v = strcmp(l->schedule, "zb-v") == 0 ||
                strcmp(l->schedule, "dualpipev") == 0;
    int borrowed = l->etp == 1 ? l->cp * l->tp : l->cp;

    bool is_plain = m->window.tokens == 0 && !m->sinks;

    if (m->n_mtp > 0 || (m->moe.fp8_dispatch && l->ep * l->etp > 1) ||
        (!is_plain &&
         (w->scenario.limits.framework != MW_FRAMEWORK_TORCHTITAN ||
          l->cp > 1))) {
        return false;
    }
    switch (w->scenario.limits.framework) {
    case MW_FRAMEWORK_MEGATRON_DEEPSPEED:
        if (l->zero == 0 &&
            mw_work_grad_dtype(l, k) != (d == MW_FP16 ? MW_FP16 : MW_FP32)) {
            return false;
        }
        return m->n_kv_heads % l->tp == 0 &&
               (!is_moe || (l->pp == 1 && (l->etp == 1 || l->etp == l->tp)));
    case MW_FRAMEWORK_NANOTRON:
        return k->is_flash && !k->has_dropout && has_no_idle(m, l->pp) &&
               (d == MW_BF16 || d == MW_FP16) &&
               l->recompute != MW_RECOMPUTE_SELECTIVE &&
               (mw_work_grad_dtype(l, k) == MW_FP32 ||
                mw_work_grad_dtype(l, k) == d);
    case MW_FRAMEWORK_TORCHTITAN:
        if ((l->zero == 0 && l->dp * l->cp > 1 &&
             l->dp < l->dp * l->tp * l->pp * l->cp) ||
            k->seq % (2 * l->cp * l->tp) != 0 || (l->tp > 1 && !l->sp)) {
            return false;
        }
        if (l->ep > 1 &&
            (l->ep % borrowed != 0 || (l->zero == 0 && l->dp > 1))) {
            return false;
        }
        return k->is_flash && !k->has_dropout && d != MW_FP16 && d != MW_FP4 &&
               (l->pp == 1 || (is_single != is_many && (!is_v || l->vpp == 2)));
    default:
        return true;
    }
}

/* What is gathered at once, and ahead. */
static bool may_wrap(const struct world *w, const struct mw_layout *l)
{
    int framework = w->scenario.limits.framework, ahead = l->fsdp_prefetch;

    return framework == MW_FRAMEWORK_ANY ||
           (framework == MW_FRAMEWORK_HOST
                ? l->fsdp_unit >= 1 && ahead <= 0
                : l->fsdp_unit == 1 &&
                      (framework == MW_FRAMEWORK_TORCHTITAN ||
                               framework == MW_FRAMEWORK_NANOTRON
                           ? ahead == -1 || ahead == 1
                           : framework != MW_FRAMEWORK_MEGATRON_CORE ||
                                 ahead != 0));
}

/* What computes in which types, and what makes gradients smaller. */
static bool may_run_types(const struct world *w, const struct mw_layout *l)
{
    enum mw_dtype d = mw_work_dtype(l, &w->scenario.workload);
    enum mw_dtype g = mw_work_grad_dtype(l, &w->scenario.workload);
    int64_t rows = w->scenario.workload.seq * l->micro_batch /
                   (l->cp * (l->sp ? l->tp : 1));
    bool is_plain = l->grad_compression == MW_COMPRESS_NONE;
    bool has_inner = l->cp_inner > 1, is_beside = l->overlap_off == 0;
    bool off_grads = (l->overlap_off & MW_OVERLAP_GRADS) != 0,
         off_params = (l->overlap_off & MW_OVERLAP_PARAMS) != 0,
         off_ep = (l->overlap_off & MW_OVERLAP_EP) != 0;
    bool has_bucket = l->bucket_size > 0;

    if (l->cuda_graph > MW_GRAPH_NONE) {
        return w->scenario.limits.framework == MW_FRAMEWORK_ANY ||
               (w->scenario.limits.framework == MW_FRAMEWORK_MEGATRON_CORE &&
                l->recompute != MW_RECOMPUTE_FULL);
    }

    switch (w->scenario.limits.framework) {
    case MW_FRAMEWORK_MEGATRON_CORE:
        return is_plain && (!has_inner || l->cp_form == MW_CP_RING) &&
               (!off_grads || ((l->zero == 0 || off_params) && !has_bucket)) &&
               (g != MW_FP16 || d == MW_FP16) &&
               (g != MW_BF16 || d == MW_BF16 || d == MW_FP8) &&
               (d != MW_FP8 || rows % 16 == 0);
    case MW_FRAMEWORK_MEGATRON_DEEPSPEED:
        return d != MW_FP8 && !has_inner && (!has_bucket || l->zero == 1) &&
               (l->overlap_off & MW_OVERLAP_TP) == 0 && !off_ep;
    case MW_FRAMEWORK_TORCHTITAN:
        return is_plain && !has_inner && g == MW_FP32 && !off_grads &&
               !off_params && !off_ep && !has_bucket;
    case MW_FRAMEWORK_NANOTRON:
        return is_plain && !has_inner && d != MW_FP8 && is_beside &&
               (!has_bucket || l->zero == 0);
    case MW_FRAMEWORK_HOST:
        return is_plain && is_beside && l->dtype == MW_DTYPE_OF_WORKLOAD &&
               l->grad_dtype == MW_DTYPE_OF_WORKLOAD;
    default:
        return true;
    }
}

/* Types of states: Megatron's distributed Adam on the device, with a main copy;
 * TorchTitan's bf16 moments there; others have fp32 alone. */
static bool may_keep(const struct world *w, const struct mw_layout *l)
{
    struct mw_optimizer o = mw_work_optimizer(l, &w->scenario.workload);
    bool has_main = o.main == MW_MAIN_FP32, is_same = o.exp_avg == o.exp_avg_sq;
    bool is_here = !(l->offload_optimizer > 0);

    if (has_main && is_same && o.exp_avg == MW_FP32) {
        return true;
    }
    switch (w->scenario.limits.framework) {
    case MW_FRAMEWORK_ANY:
        return true;
    case MW_FRAMEWORK_MEGATRON_CORE:
        return is_here && l->zero >= 1 && o.main != MW_MAIN_NONE;
    case MW_FRAMEWORK_TORCHTITAN:
        return is_here && has_main && is_same && o.exp_avg == MW_BF16;
    default:
        return false;
    }
}

/* Only Megatron-Core predicts several tokens, and there not on rank 0. */
static bool may_run_ahead(const struct world *w, const struct mw_layout *l)
{
    return l->mtp_ahead == 0 ||
           (w->scenario.model.n_mtp > 0 && l->pp * l->vpp > 2 &&
            (w->scenario.limits.framework == MW_FRAMEWORK_ANY ||
             (w->scenario.limits.framework == MW_FRAMEWORK_MEGATRON_CORE &&
              l->pp > 2)));
}

/* The frameworks' rules said again, without the table. */
static bool may_run(const struct world *w, const struct mw_layout *l)
{
    static const char *const mds[] = {"1f1b", "zb-h1", NULL};
    static const char *const titan[] = {
        "1f1b",           "gpipe", "interleaved-1f1b", "looped-bfs",
        "interleaved-zb", "zb-v",  "dualpipev",        NULL};
    static const char *const afab[] = {"1f1b", "gpipe", NULL};
    const struct mw_model *m = &w->scenario.model;
    int64_t seq = w->scenario.workload.seq;
    int64_t n = w->scenario.workload.global_batch / l->dp / l->micro_batch;
    bool is_plain_order = strcmp(l->order, "tp-cp-ep-dp-pp") == 0;

    switch (w->scenario.limits.framework) {
    case MW_FRAMEWORK_MEGATRON_CORE:
        if (l->pp > 1 && strcmp(l->schedule, l->vpp > 1 ? "interleaved-1f1b"
                                                        : "1f1b") != 0) {
            return false;
        }
        if (l->vpp > 1 &&
            (l->vpp_group == 0
                 ? n % l->pp != 0
                 : l->vpp_group < l->pp || l->vpp_group > n ||
                       (n % l->vpp_group > 0 && n % l->vpp_group < l->pp))) {
            return false;
        }
        if ((l->sp && (l->tp == 1 || seq % (2 * l->cp) || seq % l->tp)) ||
            !may_run_megatron(w, l)) {
            return false;
        }
        return (l->zero < 2 || (l->pp == 1 && !m->tied)) &&
               (is_plain_order || strcmp(l->order, "tp-cp-ep-pp-dp") == 0);
    case MW_FRAMEWORK_MEGATRON_DEEPSPEED:
        return is_plain_order && l->cp == 1 && l->vpp == 1 &&
               may_run_other(w, l) &&
               (l->pp == 1 || (one_of(l->schedule, mds) && l->zero <= 1)) &&
               !(l->sp && l->pp > 1 && strcmp(l->schedule, "zb-h1") == 0);
    case MW_FRAMEWORK_TORCHTITAN:
        return is_plain_order && may_run_other(w, l) && l->zero != 1 &&
               m->n_kv_heads % l->tp == 0 &&
               (l->pp == 1 || (one_of(l->schedule, titan) && !m->tied &&
                               (l->vpp > 1 || n >= l->pp)));
    case MW_FRAMEWORK_NANOTRON:
        return is_plain_order && may_run_other(w, l) && l->vpp == 1 &&
               l->zero <= 1 && l->tp <= m->n_kv_heads &&
               (l->pp == 1 ||
                (one_of(l->schedule, afab) &&
                 (strcmp(l->schedule, "gpipe") == 0 || n >= l->pp - 1)));
    default:
        return true;
    }
}

bool may_framework_run(const struct world *w, const struct mw_layout *l)
{
    return may_run(w, l) && may_run_rare(w, l) && may_wrap(w, l) &&
           may_run_ahead(w, l) && may_run_types(w, l) && may_keep(w, l);
}
