/*
 * Tables that measure memory alone, turned into rows of the common form before
 * anything else looks at them. What their columns leave out is said here once,
 * for the whole table.
 *
 *   fine-tuning (column `method`): LitGPT's tutorials/resource-tables.md and
 *   torchtune's README. One replica a GPU, its state shared out where there
 *   are several. The longest sequence of the data set comes first in LitGPT's
 *   scripts, so that the peak is that of seq_max. LitGPT's LoRA: rank 8 on
 *   query and value (ours: all of attention). torchtune's recipes: rank 16 on
 *   attention and MLP, activations recomputed, and full fine-tuning of 70B
 *   with everything offloaded (README: "uses CPU offload").
 *
 *   profile of layers (column `model_states_MB`): Galvatron's model profiler,
 *   which profiles with one micro-batch a replica, gpipe, and everything
 *   sharded (profiling_general_args: chunks 1, zero3, sdp). Its files without
 *   a length in their name were made at the model's own context, 4096.
 */
#include "sim/validate/validate_int.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* ---- names -----------------------------------------------------------------
 */
/* "Llama 3.1 8B" -> "llama3.1-8b", "CodeLlama 34B", "TinyLlama 1.1B": lower
 * case, no space after the family, a dash before the size. */
static const char *preset_name(struct mw_arena *arena, const char *text)
{
    static const struct {
        const char *said, *meant;
    } names[] = {{"phi-1.5", "phi-1.5"},
                 {"StableLM Alpha", "stablelm-alpha-3b"},
                 {"Falcon 40B", "falcon-40b"}};
    size_t n = strlen(text), m = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (mw_text_has(text, names[i].said)) {
            return names[i].meant;
        }
    }
    const char *last = strrchr(text, ' ');
    char *out = mw_arena_alloc(arena, n + 1, 1);

    for (const char *at = text; *at != '\0'; at++) {
        if (*at != ' ') {
            out[m++] = (char)tolower((unsigned char)*at);
        } else if (at == last) {
            out[m++] = '-';
        }
    }
    return out;
}

/* ---- fine-tuning -----------------------------------------------------------
 */
/* torchtune trains on one device with bitsandbytes' paged 8-bit Adam
 * (recipes/configs/llama3_1/8B_full_single_device.yaml). */
static bool has_paged_optimizer(const struct mw_measured *r)
{
    return mw_text_has(r->method, "8-bit") ||
           (mw_text_has(r->framework, "torchtune") &&
            mw_text_has(r->method, "full, single device"));
}

static void refuse_method(struct mw_case *c, const struct mw_measured *r)
{
    const char *method = r->method;

    if (mw_text_has(method, "Adapter")) {
        mw_case_skip(c,
                     "adapters of prompts, biases and scales (LLaMA-Adapter) "
                     "are not modelled");
    } else if (mw_text_has(method, "generation")) {
        mw_case_skip(c, "inference, not a training step");
    } else if (has_paged_optimizer(r)) {
        mw_case_skip(c,
                     "an optimizer of 8-bit states that pages to the host is "
                     "not modelled");
    }
}

/* bitsandbytes' two kinds of four bits have the same size. */
static void refuse_quantisation(struct mw_case *c, const char *said)
{
    if (said[0] != '\0' && !mw_text_has(said, "nf4") &&
        !mw_text_has(said, "bnb.fp4")) {
        mw_case_skip(c, "quantisation '%s' is not modelled", said);
    }
}

static void take_finetune(struct mw_case *c, struct mw_measured *r)
{
    mw_case_fill(c, MW_FILL_FINETUNE);
    refuse_method(c, r);
    refuse_quantisation(c, r->quantisation);
    r->kind = r->method;
    r->model = preset_name(c->arena, r->model);
    r->seq = r->seq_max;
    r->tp = r->pp = 1;
    r->dp = r->gpus;
    r->zero = r->gpus > 1 ? "3" : "0";
    if (mw_text_has(r->framework, "torchtune")) {
        r->recompute = "full";
        r->offload = mw_text_has(r->method, "full, FSDP") ? "all" : "";
    }
}

/* ---- profile of layers -----------------------------------------------------
 */
/* "c_vtp_sp": checkpoints, vocabulary split, sequence parallelism. */
static void refuse_flags(struct mw_case *c, const char *flags)
{
    static const char *const known[] = {"sp", "vtp", "c"};

    for (const char *at = flags; *at != '\0'; at += strspn(at, "_")) {
        size_t n = strcspn(at, "_");
        bool is_known = false;

        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            is_known = is_known ||
                       (strlen(known[i]) == n && strncmp(at, known[i], n) == 0);
        }
        if (!is_known) {
            mw_case_skip(c, "flag '%.*s' is not known", (int)n, at);
        }
        at += n;
    }
}

static void take_profile(struct mw_case *c, struct mw_measured *r)
{
    mw_case_fill(c, MW_FILL_PROFILE);
    refuse_flags(c, r->flags);
    if (r->gpu[0] == '\0') {
        r->gpu = "A100-SXM4-80GB";
    }
    r->framework = "Galvatron";
    r->gated_mlp = 1;
    r->zero = "3";
    r->micro_batch = r->global_batch / r->dp;
    r->seq_parallel = mw_text_has(r->flags, "sp") ? "1" : "0";
    r->recompute = r->flags[0] == 'c' ? "full" : "none";
    r->schedule = r->pp > 1 ? "gpipe" : "";
    if (!mw_text_has(r->source, "_seqlen")) {
        r->seq = 4096;
    }
}

void mw_case_take_table(struct mw_case *c)
{
    bool is_finetune = c->row->method[0] != '\0';
    bool is_profile = c->row->model_states_MB > 0;

    if (is_finetune || is_profile) {
        struct mw_measured *r = mw_arena_alloc(c->arena, 1, sizeof *r);

        *r = *c->row;
        c->row = r;
        if (is_finetune) {
            take_finetune(c, r);
        } else {
            take_profile(c, r);
        }
    }
}
