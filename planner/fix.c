/* KEY=VALUE of --fix, --why, --why-not: which dimensions of the search the
 * caller pins. */
#include "planner/planner.h"

#include "base/units.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void mw_search_opts_default(struct mw_search_opts *opts)
{
    *opts = (struct mw_search_opts){.zero = -1,
                                    .sp = -1,
                                    .recompute = -1,
                                    .cp_form = -1,
                                    .dp_shard = -1,
                                    .reshard = -1,
                                    .recompute_layers = -1,
                                    .recompute_modules = -1,
                                    .overlap_off = -1,
                                    .bucket_size = -1,
                                    .fsdp_unit = -1,
                                    .fsdp_prefetch = -1,
                                    .cuda_graph = -1,
                                    .dispatcher = -1,
                                    .overlap_shared_experts = -1,
                                    .mtp_ahead = -1,
                                    .vpp_group = -1,
                                    .grad_compression = -1,
                                    .offload_nvme = -1,
                                    .dtype = -1,
                                    .grad_dtype = -1,
                                    .main_params = -1,
                                    .exp_avg = -1,
                                    .exp_avg_sq = -1,
                                    .offload_optimizer = -1,
                                    .offload_weights = -1,
                                    .offload_activations = -1};
}

static const struct {
    const char *key;
    size_t offset;
    int min, max;
} fix_keys[] = {
    {"tp", offsetof(struct mw_search_opts, tp), 1, 1 << 20},
    {"cp", offsetof(struct mw_search_opts, cp), 1, 1 << 20},
    {"pp", offsetof(struct mw_search_opts, pp), 1, 1 << 20},
    {"dp", offsetof(struct mw_search_opts, dp), 1, 1 << 20},
    {"ep", offsetof(struct mw_search_opts, ep), 1, 1 << 20},
    {"etp", offsetof(struct mw_search_opts, etp), 1, 1 << 20},
    {"vpp", offsetof(struct mw_search_opts, vpp), 1, 1 << 10},
    {"micro_batch", offsetof(struct mw_search_opts, micro_batch), 1, 1 << 20},
    {"zero", offsetof(struct mw_search_opts, zero), 0, 3},
    {"sp", offsetof(struct mw_search_opts, sp), 0, 1},
    {"cp_inner", offsetof(struct mw_search_opts, cp_inner), 1, 1 << 20},
    {"dp_shard", offsetof(struct mw_search_opts, dp_shard), 0, 1 << 20},
    {"bucket_size", offsetof(struct mw_search_opts, bucket_size), 0, INT_MAX},
    {"fsdp_unit", offsetof(struct mw_search_opts, fsdp_unit), 0, 1 << 20},
    {"fsdp_prefetch", offsetof(struct mw_search_opts, fsdp_prefetch), 0,
     MW_FSDP_PREFETCH_MAX},
    {"vpp_group", offsetof(struct mw_search_opts, vpp_group), 0, 1 << 20},
    {"mtp_ahead", offsetof(struct mw_search_opts, mtp_ahead), 0, 1},
    {"reshard", offsetof(struct mw_search_opts, reshard), 0, 1},
    {"recompute_layers", offsetof(struct mw_search_opts, recompute_layers), 0,
     1 << 20},
};
enum { N_FIX_KEYS = sizeof fix_keys / sizeof fix_keys[0] };

static enum mw_status fix_word(const char *key, const struct mw_enum *e,
                               const char *value, int *out, struct mw_err *err)
{
    struct mw_str allowed = {0};

    for (; e->name; e++) {
        if (strcmp(e->name, value) == 0) {
            *out = e->value;
            mw_str_release(&allowed);
            return MW_OK;
        }
        mw_str_addf(&allowed, "%s%s", allowed.n > 0 ? ", " : "", e->name);
    }
    mw_fail(err, MW_EUSAGE, "%s is '%s'; allowed: %s", key, value, allowed.s);
    mw_str_release(&allowed);
    return MW_EUSAGE;
}

static enum mw_status fix_part(const char *key, const char *value, double *out,
                               struct mw_err *err)
{
    double part = 0;

    if (mw_double_parse(value, &part, NULL) != MW_OK || part < 0 || part > 1) {
        return mw_fail(err, MW_EUSAGE, "%s is '%s'; it must be a part, 0 to 1",
                       key, value);
    }
    *out = part;
    return MW_OK;
}

enum mw_status mw_search_free(struct mw_search_opts *opts, const char *text,
                              struct mw_err *err)
{
    static const struct mw_enum dims[] = {
        {"cp_form", MW_FREE_CP_FORM},
        {"dp_shard", MW_FREE_DP_SHARD},
        {"reshard", MW_FREE_RESHARD},
        {"offload", MW_FREE_OFFLOAD},
        {"recompute_layers", MW_FREE_RECOMPUTE_LAYERS},
        {"recompute_modules", MW_FREE_RECOMPUTE_MODULES},
        {"overlap_off", MW_FREE_OVERLAP},
        {"bucket_size", MW_FREE_BUCKET},
        {"fsdp_unit", MW_FREE_FSDP_UNIT},
        {"fsdp_prefetch", MW_FREE_FSDP_PREFETCH},
        {"dispatcher", MW_FREE_DISPATCHER},
        {"overlap_shared_experts", MW_FREE_SHARED_OVERLAP},
        {"mtp_ahead", MW_FREE_MTP},
        {"vpp_group", MW_FREE_VPP_GROUP},
        {"cp_inner", MW_FREE_CP_INNER},
        {"dtype", MW_FREE_DTYPE},
        {"grad_dtype", MW_FREE_GRAD_DTYPE},
        {"state_dtype", MW_FREE_STATE_DTYPE},
        {"grad_compression", MW_FREE_COMPRESSION},
        {"all", MW_FREE_ALL},
        {NULL, 0}};

    while (*text) {
        size_t n = strcspn(text, ",");
        const struct mw_enum *e = dims;

        while (e->name && (strncmp(e->name, text, n) != 0 || e->name[n])) {
            e++;
        }
        if (!e->name) {
            return mw_fail(
                err, MW_EUSAGE,
                "--free: '%.*s' is none of cp_form, dp_shard, "
                "reshard, offload, recompute_layers, "
                "recompute_modules, overlap_off, bucket_size, "
                "fsdp_unit, fsdp_prefetch, dispatcher, "
                "overlap_shared_experts, mtp_ahead, vpp_group, cp_inner, "
                "dtype, grad_dtype, state_dtype, grad_compression, all",
                (int)n, text);
        }
        opts->free |= (unsigned)e->value;
        text += text[n] ? n + 1 : n;
    }
    return MW_OK;
}

static enum mw_status fix_schedule(struct mw_search_opts *opts,
                                   const char *value, struct mw_err *err)
{
    const struct mw_sched_kind *kind = mw_schedule_kind_find(value);
    if (!kind) {
        return mw_fail(err, MW_EUSAGE,
                       "unknown schedule '%s'; see meshwright sched "
                       "--help",
                       value);
    }
    if (kind->is_forward_only) {
        return mw_fail(err, MW_EUSAGE,
                       "schedule %s is for inference; a training step "
                       "needs backward passes, for example 1f1b",
                       kind->name);
    }
    opts->schedule = kind->name;
    return MW_OK;
}

/* The text must outlive the search: one of the permutations' own. */
static enum mw_status fix_order(struct mw_search_opts *opts, const char *value,
                                struct mw_err *err)
{
    if (!mw_layout_order_valid(value)) {
        return mw_fail(err, MW_EUSAGE,
                       "order is '%s'; it must name tp, cp, dp and pp, "
                       "as in tp-cp-ep-dp-pp",
                       value);
    }
    snprintf(opts->order_text, sizeof opts->order_text, "%s", value);
    opts->order = opts->order_text;
    return MW_OK;
}

/* "layernorm+mla_up_proj"; "none" where nothing is meant. */
static enum mw_status fix_words(const char *key, const struct mw_enum *words,
                                const char *value, int *out, struct mw_err *err)
{
    int bits = 0;

    while (*value && strcmp(value, "none") != 0) {
        size_t n = strcspn(value, "+");
        char word[32];
        int bit = 0;

        snprintf(word, sizeof word, "%.*s", n < 31 ? (int)n : 31, value);
        enum mw_status status = fix_word(key, words, word, &bit, err);

        if (status != MW_OK) {
            return status;
        }
        bits |= bit;
        value += value[n] ? n + 1 : n;
    }
    *out = bits;
    return MW_OK;
}

static enum mw_status fix_modules(struct mw_search_opts *opts,
                                  const char *value, struct mw_err *err)
{
    int *modules = &opts->recompute_modules;
    enum mw_status status =
        fix_words("recompute_modules, overlap_off", mw_recompute_module_enums,
                  value, modules, err);

    /* The attention core alone is what 0 means. */
    *modules = *modules == MW_MODULE_CORE_ATTN ? 0 : *modules;
    return status;
}

/* A set of types stands for the three keys. */
static enum mw_status fix_states(struct mw_search_opts *opts, const char *value,
                                 struct mw_err *err)
{
    for (int i = 0; i < MW_STATE_SETS; i++) {
        const struct mw_state_set *set = &mw_state_sets[i];

        if (strcmp(set->name, value) == 0) {
            opts->main_params = 1 + (int)set->main;
            opts->exp_avg = 1 + (int)set->exp_avg;
            opts->exp_avg_sq = 1 + (int)set->exp_avg_sq;
            return MW_OK;
        }
    }
    return mw_fail(err, MW_EUSAGE,
                   "state_dtype is '%s'; allowed: fp32, bf16, fp8, fp16, "
                   "fp8-lm",
                   value);
}

enum mw_status mw_search_fix(struct mw_search_opts *opts, const char *key,
                             const char *value, struct mw_err *err)
{
    if (strcmp(key, "recompute") == 0) {
        return fix_word(key, mw_recompute_enums, value, &opts->recompute, err);
    }
    if (strcmp(key, "cp_form") == 0) {
        return fix_word(key, mw_cp_form_enums, value, &opts->cp_form, err);
    }
    if (strcmp(key, "grad_compression") == 0) {
        return fix_word(key, mw_grad_compression_enums, value,
                        &opts->grad_compression, err);
    }
    if (strcmp(key, "cuda_graph") == 0) {
        return fix_word(key, mw_cuda_graph_enums, value, &opts->cuda_graph,
                        err);
    }
    if (strcmp(key, "dispatcher") == 0) {
        return fix_word(key, mw_dispatcher_enums, value, &opts->dispatcher,
                        err);
    }
    if (strcmp(key, "overlap_shared_experts") == 0) {
        return fix_word(key, mw_bool_enums, value,
                        &opts->overlap_shared_experts, err);
    }
    if (strcmp(key, "overlap_off") == 0) {
        return fix_words(key, mw_overlap_enums, value, &opts->overlap_off, err);
    }
    if (strcmp(key, "recompute_modules") == 0) {
        return fix_modules(opts, value, err);
    }
    if (strcmp(key, "dtype") == 0) {
        return fix_word(key, mw_dtype_choice_enums, value, &opts->dtype, err);
    }
    if (strcmp(key, "grad_dtype") == 0) {
        return fix_word(key, mw_dtype_choice_enums, value, &opts->grad_dtype,
                        err);
    }
    if (strcmp(key, "state_dtype") == 0) {
        return fix_states(opts, value, err);
    }
    if (strcmp(key, "main_params_dtype") == 0) {
        return fix_word(key, mw_main_params_choice_enums, value,
                        &opts->main_params, err);
    }
    if (strcmp(key, "exp_avg_dtype") == 0) {
        return fix_word(key, mw_moment_choice_enums, value, &opts->exp_avg,
                        err);
    }
    if (strcmp(key, "exp_avg_sq_dtype") == 0) {
        return fix_word(key, mw_moment_choice_enums, value, &opts->exp_avg_sq,
                        err);
    }
    if (strcmp(key, "offload_nvme") == 0) {
        return fix_word(key, mw_offload_nvme_enums, value, &opts->offload_nvme,
                        err);
    }
    if (strcmp(key, "offload_optimizer") == 0) {
        return fix_part(key, value, &opts->offload_optimizer, err);
    }
    if (strcmp(key, "offload_weights") == 0) {
        return fix_part(key, value, &opts->offload_weights, err);
    }
    if (strcmp(key, "offload_activations") == 0) {
        return fix_part(key, value, &opts->offload_activations, err);
    }
    if (strcmp(key, "schedule") == 0) {
        return fix_schedule(opts, value, err);
    }
    if (strcmp(key, "order") == 0) {
        return fix_order(opts, value, err);
    }
    for (int i = 0; i < N_FIX_KEYS; i++) {
        if (strcmp(key, fix_keys[i].key) != 0) {
            continue;
        }
        int64_t number = 0;
        if (mw_int_parse(value, &number, NULL) != MW_OK ||
            number < fix_keys[i].min || number > fix_keys[i].max) {
            return mw_fail(err, MW_EUSAGE,
                           "%s is '%s'; it must be an integer in %d..%d", key,
                           value, fix_keys[i].min, fix_keys[i].max);
        }
        *(int *)(void *)((char *)opts + fix_keys[i].offset) = (int)number;
        return MW_OK;
    }
    return mw_fail(
        err, MW_EUSAGE,
        "unknown key '%s'; allowed: tp, cp, pp, dp, ep, etp, "
        "vpp, micro_batch, zero, sp, recompute, schedule, order, "
        "cp_form, cp_inner, dp_shard, reshard, dtype, grad_dtype, state_dtype, "
        "grad_compression, "
        "offload_optimizer, "
        "offload_weights, offload_activations, offload_nvme, recompute_layers, "
        "recompute_modules, overlap_off, bucket_size, fsdp_unit, "
        "fsdp_prefetch, cuda_graph, dispatcher, overlap_shared_experts, "
        "mtp_ahead, vpp_group, main_params_dtype, exp_avg_dtype, "
        "exp_avg_sq_dtype",
        key);
}
