/*
 * What a training stack holds beside the tensors of the model's tables: rows
 * memory_FIGURE.STACK of the constants (a variant STACK-WORD takes what it has
 * no row for from STACK). A stack without a row has the plain habit below.
 * docs/accuracy.md tells which of them were fitted.
 */
#include "sim/cost/cost_int.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define FIGURE(name, otherwise)                                                \
    {                                                                          \
        "memory_" #name, offsetof(struct mw_stack_memory, name), otherwise     \
    }

static const struct {
    const char *name;
    size_t offset;
    double plain;
} figures[] = {FIGURE(context_bytes, 0),
               FIGURE(workspace_bytes, 0),
               FIGURE(param_bytes, 0),
               FIGURE(update_bytes, 0),
               FIGURE(dummy_bytes, 0),
               FIGURE(head_grad_bytes, 0),
               FIGURE(embed_grad_bytes, 2),
               FIGURE(logit_kept_bytes, 4),
               FIGURE(logit_peak_bytes, 6),
               FIGURE(logit_tp_bytes, 0),
               FIGURE(grads_factor, 1),
               FIGURE(kept_factor, 1),
               FIGURE(kept_gated, 0),
               FIGURE(kept_rms, 0),
               FIGURE(kept_frozen, 0),
               FIGURE(cp_kept, 0),
               FIGURE(tp_kept, 0),
               FIGURE(sp_kept, 0),
               FIGURE(pp_kept, 0),
               FIGURE(pp_sent, 0),
               FIGURE(sp_buffers, 0),
               FIGURE(moe_kept, 2),
               FIGURE(moe_copies, 2),
               FIGURE(moe_workspace_bytes, 0),
               FIGURE(fsdp_units, 2),
               FIGURE(fsdp_grad_bytes, 0),
               FIGURE(fsdp_root, 0),
               FIGURE(load_whole, 0),
               FIGURE(reserve_factor, 1),
               FIGURE(reserve_moving, 0),
               FIGURE(reserve_pass, 0),
               FIGURE(reserve_vocab_bytes, 0),
               FIGURE(reserve_queued, 0),
               FIGURE(reserve_param_bytes, 0),
               FIGURE(reserve_shard_bytes, 0),
               FIGURE(reserve_spread, 1),
               FIGURE(shards_master, 0),
               FIGURE(remainders, 0),
               FIGURE(selects_ops, 0),
               FIGURE(remat_keeps, 0),
               FIGURE(error, 0)};

/* NAME.STACK, then without the last word of the stack's name as long as there
 * is one, then NAME. */
static double read_or(const struct mw_hwdb *db, const char *name,
                      const char *stack, double otherwise)
{
    const struct mw_constant *row;
    char key[96];

    for (size_t n = strlen(stack); n > 0;) {
        snprintf(key, sizeof key, "%s.%.*s", name, (int)n, stack);
        if (mw_hwdb_constant(db, key, &row, NULL) == MW_OK) {
            return row->value;
        }
        while (n > 0 && stack[n - 1] != '-') {
            n--;
        }
        n -= n > 0;
    }
    return mw_hwdb_constant(db, name, &row, NULL) == MW_OK ? row->value
                                                           : otherwise;
}

void mw_stack_memory_read(const struct mw_hwdb *db, const char *stack,
                          struct mw_stack_memory *out)
{
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        double value = read_or(db, figures[i].name, stack, figures[i].plain);

        memcpy((char *)out + figures[i].offset, &value, sizeof value);
    }
}
