/*
 * Cases as text, for long lists: words in any order, "gpt tp2 sp pp4 zb-h1".
 *
 *   gpt llama moe shared   the model
 *   tp cp inner pp x dp ep etp zero mb parts lora first offload shard doc
 * bucket with a number: that key, where x is chunks a stage, mb sequences a
 * micro-batch, first the layers of a stage that are recomputed, offload the
 * percentage of the optimizer that is on the host, shard dp_shard, doc the
 * tokens of a document, bucket bucket_size, unit fsdp_unit sp ring passq a2a
 * selective full bf16 attention              adapters of attention alone kept
 * reshard: false bare                   no layers beside embedding and head any
 * other word         a schedule
 */
#include "matrix.h"

#include "sim/pipe/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 32 };

static bool set_number(struct matrix_case *c, const char *word)
{
    const struct {
        const char *key;
        int *value;
    } keys[] = {{"tp", &c->tp},
                {"cp", &c->cp},
                {"inner", &c->cp_inner},
                {"pp", &c->pp},
                {"x", &c->vpp},
                {"dp", &c->dp},
                {"ep", &c->ep},
                {"etp", &c->etp},
                {"zero", &c->zero},
                {"parts", &c->parts},
                {"mb", &c->micro_batch},
                {"lora", &c->lora_rank},
                {"offload", &c->offload_pct},
                {"first", &c->recompute_layers},
                {"doc", &c->doc_tokens},
                {"bucket", &c->bucket},
                {"unit", &c->unit},
                {"shard", &c->dp_shard}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        size_t n = strlen(keys[i].key);
        char *end;
        if (strncmp(word, keys[i].key, n) == 0 && word[n] != '\0') {
            long v = strtol(word + n, &end, 10);
            if (*end == '\0') {
                *keys[i].value = (int)v;
                return true;
            }
        }
    }
    return false;
}

static bool set_word(struct matrix_case *c, const char *word)
{
    static const char *const models[MATRIX_MODELS] = {"gpt", "llama", "moe",
                                                      "shared"};
    for (int i = 0; i < MATRIX_MODELS; i++) {
        if (strcmp(word, models[i]) == 0) {
            c->model = (enum matrix_model)i;
            return true;
        }
    }
    if (strcmp(word, "sp") == 0) {
        c->sp = true;
    } else if (strcmp(word, "bystage") == 0) {
        c->is_by_stage = true;
    } else if (strcmp(word, "ring") == 0) {
        c->cp_form = MW_CP_RING;
    } else if (strcmp(word, "passq") == 0) {
        c->cp_form = MW_CP_PASSQ;
    } else if (strcmp(word, "a2a") == 0) {
        c->cp_form = MW_CP_A2A;
    } else if (strcmp(word, "selective") == 0) {
        c->recompute = MW_RECOMPUTE_SELECTIVE;
    } else if (strcmp(word, "full") == 0) {
        c->recompute = MW_RECOMPUTE_FULL;
    } else if (strcmp(word, "bare") == 0) {
        c->bare_ends = true;
    } else if (strcmp(word, "kept") == 0) {
        c->keeps_all = true;
    } else if (strcmp(word, "bf16") == 0) {
        c->is_bf16 = true;
    } else if (strcmp(word, "attention") == 0) {
        c->lora_targets = MW_LORA_ATTENTION;
    } else {
        return false;
    }
    return true;
}

static void set(struct matrix_case *c, const char *word, const char *text)
{
    const struct mw_sched_kind *kind = mw_schedule_kind_find(word);
    if (kind) {
        c->schedule = kind->name;
    } else if (!set_word(c, word) && !set_number(c, word)) {
        fail_msg("'%s' in '%s' is no word of a case", word, text);
    }
}

struct matrix_case matrix_read(const char *text)
{
    struct matrix_case c = {.tp = 1, .pp = 1, .dp = 1};
    for (const char *p = text; *p;) {
        char word[WORD_MAX];
        size_t n = strcspn(p, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        set(&c, word, text);
        p += n + strspn(p + n, " ");
    }
    return c;
}
