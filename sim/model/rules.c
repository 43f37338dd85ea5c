/*
 * What every layout must meet, each rule with a short stable name and the
 * layout key it speaks of. Rules of divisibility are Megatron-LM's
 * (megatron/training/arguments.py, core/transformer/transformer_config.py);
 * expert parallelism folds into the other dimensions as in arXiv:2504.14960.
 * Whether a schedule accepts a number of micro-batches is sim/pipe's matter;
 * whether it fits in memory is sim/step's.
 */
#include "sim/model/rules_int.h"

#include <limits.h>
#include <string.h>

enum { DIVISORS_MAX = 64 };

/* "1, 2, 3, 4, 6, 8": divisors of n up to `limit`. */
static void list_divisors(int64_t n, int64_t limit, struct mw_str *out)
{
    int listed = 0;

    for (int64_t d = 1; d <= limit && d <= n && listed < DIVISORS_MAX; d++) {
        if (n % d == 0) {
            mw_str_addf(out, "%s%lld", listed > 0 ? ", " : "", (long long)d);
            listed++;
        }
    }
}

/* Is n a multiple of ways? If not, says so: "tp 7 does not divide 96 heads". */
static bool fail_divide(const struct check *c, const char *key, int ways,
                        int64_t n, const char *what)
{
    struct mw_str divisors = {0};
    int64_t limit = 8;

    if (n % ways == 0) {
        return true;
    }
    if (c->err == NULL) {
        return false;
    }
    while (limit < ways) {
        limit *= 2;
    }
    list_divisors(n, limit, &divisors);
    mw_fail(c->err, MW_ENO,
            "%s %d does not divide %lld %s; divisors up to %lld: %s", key, ways,
            (long long)n, what, (long long)limit, divisors.s);
    mw_str_release(&divisors);
    return false;
}

/* ---- sizes and ranks -------------------------------------------------------
 */
static bool rule_sizes(const struct check *c)
{
    const struct mw_layout *l = c->l;
    const struct {
        const char *key;
        int value;
    } ways[] = {{"tp", l->tp},   {"cp", l->cp},
                {"pp", l->pp},   {"vpp", l->vpp},
                {"dp", l->dp},   {"ep", l->ep},
                {"etp", l->etp}, {"micro_batch", l->micro_batch}};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].value < 1 || ways[i].value > MW_WAYS_MAX) {
            return BROKEN(c, "%s is %d; it must be 1 to %d", ways[i].key,
                          ways[i].value, (int)MW_WAYS_MAX);
        }
    }
    return true;
}

static bool rule_zero(const struct check *c)
{
    return (c->l->zero >= 0 && c->l->zero <= 3) ||
           BROKEN(c, "zero is %d; stages are 0, 1, 2, 3", c->l->zero);
}

static bool rule_dp_shard(const struct check *c)
{
    int shard = c->l->dp_shard;

    if (shard == 0) {
        return true;
    }
    if (c->l->zero == 0) {
        return BROKEN(c,
                      "dp_shard %d says over how many replicas ZeRO shards, "
                      "but zero is 0; set zero to 1, 2 or 3",
                      shard);
    }
    return (shard > 0 && c->l->dp % shard == 0) ||
           BROKEN(c, "dp_shard %d does not divide dp %d", shard, c->l->dp);
}

static bool rule_loss_chunks(const struct check *c)
{
    int64_t tokens = c->l->micro_batch * c->w->seq / c->l->cp;

    return c->w->loss_chunks <= 1 || tokens % c->w->loss_chunks == 0 ||
           BROKEN(c,
                  "loss_chunks %d of the workload do not divide the %lld "
                  "tokens of a micro-batch and rank",
                  c->w->loss_chunks, (long long)tokens);
}

static bool rule_optimizer(const struct check *c)
{
    const struct mw_optimizer o = mw_work_optimizer(c->l, c->w);
    const char *why = mw_optimizer_refuses(&o, c->l);

    return why == NULL || BROKEN(c, "%s", why);
}

static bool rule_order(const struct check *c)
{
    return mw_layout_order_valid(c->l->order) ||
           BROKEN(c,
                  "order '%s' must name tp, cp, dp and pp once each (ep may "
                  "stand among them), as in tp-cp-ep-dp-pp",
                  c->l->order != NULL ? c->l->order : "");
}

/* tp * cp * pp * dp without overflow: each is at most 2^20. */
static double rank_product(const struct mw_layout *l)
{
    return (double)l->tp * l->cp * (double)l->pp * l->dp;
}

static bool rule_ranks(const struct check *c)
{
    const struct mw_layout *l = c->l;
    double ranks = rank_product(l);

    if (c->n_ranks > 0 && ranks != (double)c->n_ranks) {
        return BROKEN(c,
                      "tp %d x cp %d x pp %d x dp %d is %.0f ranks but the "
                      "cluster has %d",
                      l->tp, l->cp, l->pp, l->dp, ranks, c->n_ranks);
    }
    return ranks <= INT_MAX ||
           BROKEN(c, "tp %d x cp %d x pp %d x dp %d is %.0f ranks; at most %d",
                  l->tp, l->cp, l->pp, l->dp, ranks, INT_MAX);
}

/* ---- tensor and sequence parallelism ---------------------------------------
 */
static bool rule_tp_heads(const struct check *c)
{
    return fail_divide(c, "tp", c->l->tp, c->m->n_heads, "attention heads");
}

static bool rule_tp_kv_heads(const struct check *c)
{
    int tp = c->l->tp, kv = c->m->n_kv_heads;

    return c->m->mla.on || kv % tp == 0 || tp % kv == 0 ||
           BROKEN(c,
                  "tp %d neither divides %d key-value heads nor is a multiple "
                  "of them",
                  tp, kv);
}

static bool has_dense_layer(const struct mw_model *m)
{
    for (int i = 0; i < m->n_layers; i++) {
        if (!mw_model_layer_is_moe(m, i)) {
            return true;
        }
    }
    return false;
}

static bool rule_tp_ffn(const struct check *c)
{
    return !has_dense_layer(c->m) || fail_divide(c, "tp", c->l->tp, c->m->ffn,
                                                 "columns of the MLP (ffn)");
}

static bool rule_tp_shared_ffn(const struct check *c)
{
    return c->m->moe.shared_ffn == 0 ||
           fail_divide(c, "tp", c->l->tp, c->m->moe.shared_ffn,
                       "columns of the shared experts (moe.shared_ffn)");
}

static bool rule_tp_vocab(const struct check *c)
{
    int64_t vocab = c->m->vocab, tp = c->l->tp;
    int64_t pad = 128 * tp;

    return vocab % tp == 0 ||
           BROKEN(c,
                  "tp %d does not divide the vocabulary of %lld; pad it, for "
                  "example to %lld (model: vocab)",
                  c->l->tp, (long long)vocab,
                  (long long)((vocab + pad - 1) / pad * pad));
}

static bool rule_cp_seq(const struct check *c)
{
    int64_t seq = c->w->seq;
    int cp = c->l->cp;

    /* Two pieces a rank, one from each end, balance the causal half. */
    return cp == 1 || seq % (2 * (int64_t)cp) == 0 ||
           BROKEN(c,
                  "cp %d needs sequences of a multiple of %lld tokens, not "
                  "%lld",
                  cp, 2 * (long long)cp, (long long)seq);
}

/* Ulysses deals whole heads to the ranks. */
static bool rule_cp_heads(const struct check *c)
{
    int tp = c->l->tp, heads = c->m->n_heads / tp;
    int kv = c->m->mla.on ? heads : c->m->n_kv_heads / tp;
    bool is_whole = c->l->cp_form == MW_CP_A2A;
    int ways = is_whole ? c->l->cp : c->l->cp_inner;

    if (ways <= 1) {
        return true;
    }
    return (heads % ways == 0 && kv > 0 && kv % ways == 0) ||
           BROKEN(c,
                  "%s %d%s deals out heads, but tp %d leaves %d and %d of keys "
                  "and values; it must divide both",
                  is_whole ? "cp" : "cp_inner", ways,
                  is_whole ? " with cp_form a2a" : "", tp, heads, kv);
}

static bool rule_cp_inner(const struct check *c)
{
    const struct mw_layout *l = c->l;

    if (l->cp_inner <= 1) {
        return true;
    }
    return (l->cp_form != MW_CP_A2A && l->cp % l->cp_inner == 0 &&
            l->cp_inner < l->cp) ||
           BROKEN(c,
                  "cp_inner %d must be a smaller divisor of cp %d, with "
                  "cp_form ring or gather; all-to-alls over all of cp are "
                  "cp_form a2a",
                  l->cp_inner, l->cp);
}

static bool rule_cp_flash(const struct check *c)
{
    bool is_ring = c->l->cp_form == MW_CP_RING || c->l->cp_form == MW_CP_PASSQ;

    return !is_ring || c->l->cp == 1 || c->w->is_flash ||
           BROKEN(c,
                  "cp_form %s needs attention: flash, which can add up "
                  "parts of a softmax",
                  mw_cp_form_name(c->l->cp_form));
}

/* A ring's blocks meet one another whole: those that no window reaches would be
 * sent and not read, and Transformer Engine has no such kernels
 * (pytorch/attention/dot_product_attention/context_parallel.py:
 * windows go with all_gather and a2a). */
static bool rule_cp_window(const struct check *c)
{
    const struct mw_layout *l = c->l;
    int64_t span = mw_work_span(c->w->seq, c->w->doc_tokens);
    bool is_ring = l->cp_form == MW_CP_RING || l->cp_form == MW_CP_PASSQ ||
                   l->cp_inner > 1;

    return l->cp == 1 || !is_ring || c->m->window.tokens == 0 ||
           mw_window_keys(span, &c->m->window) == span ||
           BROKEN(c,
                  "cp_form %s%s passes whole blocks on; windows of %d tokens "
                  "need cp_form gather or a2a, without cp_inner",
                  mw_cp_form_name(l->cp_form),
                  l->cp_inner > 1 ? " with cp_inner" : "", c->m->window.tokens);
}

static bool rule_sp_seq(const struct check *c)
{
    int64_t tokens = c->w->seq / c->l->cp;

    return !c->l->sp || tokens % c->l->tp == 0 ||
           BROKEN(c,
                  "sp splits the %lld tokens of a rank's sequence part over "
                  "tp %d, which does not divide them",
                  (long long)tokens, c->l->tp);
}

/* ---- pipeline and batch ----------------------------------------------------
 */
static bool rule_pp_layers(const struct check *c)
{
    double stages = (double)c->l->pp * c->l->vpp;

    /* The first may hold the embedding alone, the last the head, the one before
     * it multi-token prediction. */
    double ends = stages >= 2 ? 2 + c->l->mtp_ahead : 0;

    return stages - ends <= c->m->n_layers ||
           BROKEN(c,
                  "pp %d x vpp %d needs %.0f layers but the model has %d; each "
                  "stage holds at least one, or the embedding or the head",
                  c->l->pp, c->l->vpp, stages - ends, c->m->n_layers);
}

static bool rule_mtp_ahead(const struct check *c)
{
    double stages = (double)c->l->pp * c->l->vpp;

    if (c->l->mtp_ahead == 0) {
        return true;
    }
    return c->m->n_mtp == 0
               ? BROKEN(c, "mtp_ahead 1 needs a model with multi-token "
                           "prediction (model: mtp)")
               : stages >= 3 ||
                     BROKEN(c,
                            "mtp_ahead 1 needs three virtual stages or more, "
                            "not pp %d x vpp %d",
                            c->l->pp, c->l->vpp);
}

int mw_layers_idle_stage(const struct mw_int_list *layers,
                         const struct mw_layout *layout)
{
    size_t n = layers->n;

    for (size_t k = 0; k < n; k++) {
        bool is_end =
            n > 1 && (k == 0 || k + 1 + (size_t)layout->mtp_ahead >= n);

        if (layers->v[k] == 0 && !is_end) {
            return (int)k;
        }
    }
    return -1;
}

bool mw_layers_pass_mtp(const struct mw_int_list *layers,
                        const struct mw_layout *layout)
{
    return layout->mtp_ahead > 0 && layers->n > 0 &&
           layers->v[layers->n - 1] > 0;
}

static bool rule_vpp_pp(const struct check *c)
{
    return c->l->vpp == 1 || c->l->pp > 1 ||
           BROKEN(c, "vpp %d needs pp of at least 2", c->l->vpp);
}

static bool rule_batch(const struct check *c)
{
    int64_t part = (int64_t)c->l->dp * c->l->micro_batch;
    int64_t batch = c->w->global_batch;

    return (batch >= part && batch % part == 0 && batch / part <= INT_MAX) ||
           BROKEN(c,
                  "dp %d x micro_batch %d is %lld sequences, which does not "
                  "divide the global batch of %lld",
                  c->l->dp, c->l->micro_batch, (long long)part,
                  (long long)batch);
}

/* ---- experts ---------------------------------------------------------------
 */
static bool rule_ep_dense(const struct check *c)
{
    return c->m->moe.n_experts > 0 || (c->l->ep == 1 && c->l->etp == 1) ||
           BROKEN(c, "ep %d and etp %d need a model with experts", c->l->ep,
                  c->l->etp);
}

static bool rule_ep_experts(const struct check *c)
{
    return c->m->moe.n_experts == 0 ||
           fail_divide(c, "ep", c->l->ep, c->m->moe.n_experts, "experts");
}

static bool rule_etp_ffn(const struct check *c)
{
    return c->m->moe.n_experts == 0 ||
           fail_divide(c, "etp", c->l->etp, c->m->moe.ffn,
                       "columns of an expert (moe.ffn)");
}

static bool rule_ep_ranks(const struct check *c)
{
    const struct mw_layout *l = c->l;
    int64_t ranks = (int64_t)l->tp * l->cp * l->dp;
    int64_t expert = (int64_t)l->ep * l->etp;

    return ranks % expert == 0 ||
           BROKEN(c,
                  "ep %d x etp %d does not divide tp %d x cp %d x dp %d, the "
                  "ranks of a stage",
                  l->ep, l->etp, l->tp, l->cp, l->dp);
}

/* The ranks of an expert lie inside one group of replicas. */
static bool rule_ep_shard(const struct check *c)
{
    const struct mw_layout *l = c->l;
    int64_t ranks = (int64_t)l->tp * l->cp * mw_layout_shard_ways(l);

    return l->dp_shard == 0 || ranks % ((int64_t)l->ep * l->etp) == 0 ||
           BROKEN(c,
                  "ep %d x etp %d does not divide tp %d x cp %d x dp_shard %d, "
                  "the ranks that hold the experts once",
                  l->ep, l->etp, l->tp, l->cp, l->dp_shard);
}

static bool rule_moe_sp(const struct check *c)
{
    return c->m->moe.n_experts == 0 || c->l->tp == 1 || c->l->sp ||
           BROKEN(c,
                  "tp %d with experts needs sp: true, so that each rank routes "
                  "its own tokens",
                  c->l->tp);
}

/* Kernels that send by themselves have nothing to do on one rank (Megatron-LM,
 * core/transformer/moe/token_dispatcher.py, MoEFlexTokenDispatcher). */
static bool rule_dispatcher(const struct check *c)
{
    const struct mw_layout *l = c->l;
    const char *name = mw_dispatcher_name(l->dispatcher);

    if (l->dispatcher == MW_DISPATCH_STACK) {
        return true;
    }
    if (c->m->moe.n_experts == 0) {
        return BROKEN(c, "dispatcher %s needs a model with experts", name);
    }
    return l->dispatcher == MW_DISPATCH_ALLTOALL ||
           l->dispatcher == MW_DISPATCH_ALLGATHER || l->ep * l->etp > 1 ||
           BROKEN(c, "dispatcher %s needs ep x etp of at least 2", name);
}

/* Megatron-LM, core/transformer/transformer_config.py: with the alltoall
 * dispatcher alone, and not where they are recomputed by themselves. */
static bool rule_shared_overlap(const struct check *c)
{
    const struct mw_layout *l = c->l;

    return !l->overlap_shared_experts ||
           (c->m->moe.shared_ffn > 0 && l->dispatcher == MW_DISPATCH_ALLTOALL &&
            (mw_layout_modules(l) & MW_MODULE_SHARED_EXPERTS) == 0) ||
           BROKEN(c,
                  "overlap_shared_experts needs shared experts (moe.shared), "
                  "dispatcher alltoall and no recomputation of "
                  "shared_experts");
}

/* FP8 and FP4 sums would lose what small gradients add. */
static bool rule_grad_dtype(const struct check *c)
{
    int choice = c->l->grad_dtype;

    return choice == MW_DTYPE_OF_WORKLOAD || choice == 1 + MW_FP32 ||
           choice == 1 + MW_BF16 || choice == 1 + MW_FP16 ||
           BROKEN(c,
                  "grad_dtype is %s; gradients are summed in fp32, bf16 or "
                  "fp16",
                  mw_dtype_choice_name(choice));
}

/* In order of checking: sizes first, so that the others need not. */
static const struct {
    const char *id, *key;
    bool (*is_met)(const struct check *c);
} rules[] = {
    {"sizes", "tp", rule_sizes},
    {"zero", "zero", rule_zero},
    {"dp_shard", "dp_shard", rule_dp_shard},
    {"reshard", "reshard", mw_rule_reshard},
    {"fsdp_unit", "fsdp_unit", mw_rule_fsdp},
    {"recompute_layers", "recompute_layers", mw_rule_recompute_layers},
    {"stage_recompute_layers", "stage_recompute_layers", mw_rule_stage_layers},
    {"recompute_modules", "recompute_modules", mw_rule_modules},
    {"offload", "offload_optimizer", mw_rule_offload},
    {"offload_nvme", "offload_nvme", mw_rule_offload_nvme},
    {"grad_compression", "grad_compression", mw_rule_compression},
    {"bucket_size", "bucket_size", mw_rule_bucket},
    {"grad_dtype", "grad_dtype", rule_grad_dtype},
    {"states", "exp_avg_dtype", mw_rule_states},
    {"optimizer", "zero", rule_optimizer},
    {"loss_chunks", "micro_batch", rule_loss_chunks},
    {"order", "order", rule_order},
    {"tp_heads", "tp", rule_tp_heads},
    {"tp_kv_heads", "tp", rule_tp_kv_heads},
    {"tp_ffn", "tp", rule_tp_ffn},
    {"tp_shared_ffn", "tp", rule_tp_shared_ffn},
    {"tp_vocab", "tp", rule_tp_vocab},
    {"cp_seq", "cp", rule_cp_seq},
    {"cp_inner", "cp_inner", rule_cp_inner},
    {"cp_heads", "cp", rule_cp_heads},
    {"cp_flash", "cp_form", rule_cp_flash},
    {"cp_window", "cp_form", rule_cp_window},
    {"sp_seq", "sp", rule_sp_seq},
    {"pp_layers", "pp", rule_pp_layers},
    {"mtp_ahead", "mtp_ahead", rule_mtp_ahead},
    {"vpp_pp", "vpp", rule_vpp_pp},
    {"batch", "dp", rule_batch},
    {"vpp_group", "vpp_group", mw_rule_vpp_group},
    {"ep_dense", "ep", rule_ep_dense},
    {"ep_experts", "ep", rule_ep_experts},
    {"etp_ffn", "etp", rule_etp_ffn},
    {"ep_ranks", "ep", rule_ep_ranks},
    {"ep_shard", "dp_shard", rule_ep_shard},
    {"moe_sp", "sp", rule_moe_sp},
    {"dispatcher", "dispatcher", rule_dispatcher},
    {"overlap_shared_experts", "overlap_shared_experts", rule_shared_overlap},
    {"ranks", "dp", rule_ranks}};

enum { N_RULES = sizeof rules / sizeof *rules };

enum mw_status mw_layout_check(const struct mw_layout *layout,
                               const struct mw_model *model,
                               const struct mw_workload *workload, int n_ranks,
                               const char **rule_id, struct mw_err *err)
{
    const struct check c = {
        .l = layout, .m = model, .w = workload, .n_ranks = n_ranks, .err = err};

    for (size_t i = 0; i < N_RULES; i++) {
        if (!rules[i].is_met(&c)) {
            if (rule_id != NULL) {
                *rule_id = rules[i].id;
            }
            return MW_ENO;
        }
    }
    return MW_OK;
}

const char *mw_layout_rule_key(const char *rule_id)
{
    for (size_t i = 0; i < N_RULES; i++) {
        if (strcmp(rules[i].id, rule_id) == 0) {
            return rules[i].key;
        }
    }
    return NULL;
}

const char *mw_layout_rule_name(size_t i)
{
    return i < N_RULES ? rules[i].id : NULL;
}
