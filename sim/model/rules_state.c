/*
 * Rules of what a rank keeps and sends of the step's state: what ZeRO-3
 * gathers, what is recomputed, offloaded, compressed, sent in buckets. Called
 * by rules.c, which has their names and their order.
 */
#include "sim/model/rules_int.h"

bool mw_rule_reshard(const struct check *c)
{
    return c->l->reshard || c->l->zero == 3 ||
           BROKEN(c,
                  "reshard: false keeps what ZeRO-3 has gathered, but zero is "
                  "%d",
                  c->l->zero);
}

bool mw_rule_fsdp(const struct check *c)
{
    const struct mw_layout *l = c->l;

    if (l->fsdp_unit < 0 || l->fsdp_prefetch < -1 ||
        l->fsdp_prefetch > MW_FSDP_PREFETCH_MAX) {
        return BROKEN(c,
                      "fsdp_unit is %d, fsdp_prefetch %d; units are of 1 layer "
                      "or more (0: of a stage), 0 to %d of them ahead",
                      l->fsdp_unit, l->fsdp_prefetch, MW_FSDP_PREFETCH_MAX);
    }
    return l->zero == 3 || (l->fsdp_unit == 1 && l->fsdp_prefetch == -1) ||
           BROKEN(c,
                  "fsdp_unit and fsdp_prefetch say what ZeRO-3 gathers at "
                  "once, but zero is %d; set zero to 3",
                  l->zero);
}

bool mw_rule_recompute_layers(const struct check *c)
{
    int n = c->l->recompute_layers;

    return (n >= 0 && (n == 0 || c->l->recompute != MW_RECOMPUTE_NONE)) ||
           BROKEN(c,
                  "recompute_layers is %d but recompute is none; set recompute "
                  "to full or selective",
                  n);
}

bool mw_rule_stage_layers(const struct check *c)
{
    const struct mw_layout *l = c->l;
    const struct mw_int_list *list = &l->stage_recompute_layers;
    int64_t n_stages = (int64_t)l->pp * l->vpp, left = c->m->n_layers;

    if (list->n == 0) {
        return true;
    }
    if (l->recompute == MW_RECOMPUTE_NONE || l->recompute_layers > 0) {
        return BROKEN(c,
                      "stage_recompute_layers counts what recompute does, "
                      "instead of recompute_layers; set recompute to full or "
                      "selective and leave recompute_layers out");
    }
    if ((int64_t)list->n != n_stages) {
        return BROKEN(c,
                      "stage_recompute_layers has %zu entries; one for each of "
                      "the %lld virtual stages (pp x vpp)",
                      list->n, (long long)n_stages);
    }
    for (size_t k = 0; k < list->n && left >= 0; k++) {
        left = list->v[k] < 0 ? -1 : left - list->v[k];
    }
    return left >= 0 ||
           BROKEN(c,
                  "stage_recompute_layers asks for more layers than the %lld "
                  "of the model, or for less than none",
                  (long long)c->m->n_layers);
}

bool mw_rule_modules(const struct check *c)
{
    int modules = c->l->recompute_modules;
    int of_experts = MW_MODULE_MOE | MW_MODULE_MOE_ACT;

    if (modules == 0) {
        return true;
    }
    if (c->l->recompute != MW_RECOMPUTE_SELECTIVE) {
        return BROKEN(c, "recompute_modules are of selective recomputation; "
                         "set recompute to selective");
    }
    if ((modules & of_experts) != 0 && c->m->moe.n_experts == 0) {
        return BROKEN(c, "recompute_modules moe and moe_act need experts");
    }
    if ((modules & MW_MODULE_SHARED_EXPERTS) != 0 &&
        c->m->moe.shared_ffn == 0) {
        return BROKEN(c, "recompute_modules shared_experts needs shared "
                         "experts");
    }
    if ((modules & MW_MODULE_MLA_UP_PROJ) != 0 && !c->m->mla.on) {
        return BROKEN(c, "recompute_modules mla_up_proj needs latent "
                         "attention (mla)");
    }
    return c->w->lora_rank == 0 || modules == MW_MODULE_CORE_ATTN ||
           BROKEN(c, "recompute_modules other than core_attn are not modelled "
                     "under adapters (lora_rank)");
}

bool mw_rule_offload(const struct check *c)
{
    const struct {
        const char *key;
        double part;
    } v[] = {{"offload_optimizer", c->l->offload_optimizer},
             {"offload_weights", c->l->offload_weights},
             {"offload_activations", c->l->offload_activations}};

    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        if (!(v[i].part >= 0 && v[i].part <= 1)) {
            return BROKEN(c, "%s is %g; a part is 0 to 1", v[i].key, v[i].part);
        }
    }
    return true;
}

bool mw_rule_offload_nvme(const struct check *c)
{
    const struct mw_layout *l = c->l;
    unsigned nvme = (unsigned)l->offload_nvme;

    if ((nvme & MW_NVME_OPTIMIZER) != 0 && !(l->offload_optimizer > 0)) {
        return BROKEN(c,
                      "offload_nvme %s puts the offloaded optimizer on "
                      "drives, but offload_optimizer is 0",
                      mw_offload_nvme_name(l->offload_nvme));
    }
    return (nvme & MW_NVME_WEIGHTS) == 0 || l->offload_weights > 0 ||
           BROKEN(c,
                  "offload_nvme %s puts offloaded weights on drives, but "
                  "offload_weights is 0",
                  mw_offload_nvme_name(l->offload_nvme));
}

bool mw_rule_compression(const struct check *c)
{
    const struct mw_layout *l = c->l;

    switch (l->grad_compression) {
    case MW_COMPRESS_NONE:
        return true;
    case MW_COMPRESS_ONEBIT:
        return (l->zero == 0 && !(l->offload_optimizer > 0)) ||
               BROKEN(c, "grad_compression onebit (1-bit Adam) keeps the whole "
                         "optimizer on each device; set zero and "
                         "offload_optimizer to 0");
    case MW_COMPRESS_ZEROPP:
        return (l->zero == 3 && l->dp_shard == 0 && l->reshard &&
                c->w->lora_rank == 0) ||
               BROKEN(c, "grad_compression zeropp (ZeRO++) needs zero 3 over "
                         "all of dp, with reshard and without adapters");
    }
    return BROKEN(c, "grad_compression is %d", (int)l->grad_compression);
}

bool mw_rule_bucket(const struct check *c)
{
    const struct mw_layout *l = c->l;

    return l->bucket_size == 0 ||
           (l->bucket_size > 0 && l->zero <= 1 &&
            l->grad_compression == MW_COMPRESS_NONE) ||
           BROKEN(c, "bucket_size is of plain gradients that are reduced at "
                     "the step's end; set zero to 0 or 1, grad_compression to "
                     "none");
}

/* After the rule of the batch: there are whole micro-batches. */
bool mw_rule_vpp_group(const struct check *c)
{
    const struct mw_layout *l = c->l;
    int g = l->vpp_group, m = mw_microbatches(l, c->w);

    if (g == 0) {
        return true;
    }
    if (l->vpp < 2 || !mw_layout_is_grouped(l)) {
        return BROKEN(c,
                      "vpp_group is of interleaved schedules with vpp of at "
                      "least 2, not of %.32s with vpp %d",
                      l->schedule, l->vpp);
    }
    return (g >= l->pp && g <= m && (m % g == 0 || m % g >= l->pp)) ||
           BROKEN(c,
                  "vpp_group %d: groups have at least pp %d micro-batches and "
                  "at most all %d, the last one too",
                  g, l->pp, m);
}

/* Types of states that the optimizer has. */
bool mw_rule_states(const struct check *c)
{
    const struct mw_optimizer *o = &c->w->optimizer;
    enum mw_dtype dtype = mw_work_dtype(c->l, c->w);

    if (c->l->main_params > 1 + MW_MAIN_FP32 &&
        (dtype == MW_FP32 || dtype == MW_TF32)) {
        return BROKEN(c,
                      "main_params_dtype %s: with dtype %s the weights are "
                      "their own main copy",
                      mw_main_params_choice_name(c->l->main_params),
                      mw_dtype_name(dtype));
    }
    if ((c->l->exp_avg > 1 && !mw_optimizer_has_exp_avg(o)) ||
        (c->l->exp_avg_sq > 1 && !mw_optimizer_has_exp_avg_sq(o))) {
        return BROKEN(c, "optimizer %s has no %s moment of a type to choose",
                      mw_optimizer_name(o->kind),
                      c->l->exp_avg > 1 && !mw_optimizer_has_exp_avg(o)
                          ? "first"
                          : "second");
    }
    return true;
}
