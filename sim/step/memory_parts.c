/*
 * What makes a stage's peak: parts that add up to its total, named after
 * tensors. Activations are those of the operators that keep them, over all
 * micro-batches in flight and all layers of the stage; small ones and what the
 * stack's habits add are one part.
 */
#include "sim/step/step_int.h"

#include <math.h>
#include <stdlib.h>

static void add(struct mw_stage_memory *m, const char *name, double bytes)
{
    MW_ASSERT(m->n_parts < MW_MEMORY_PARTS_MAX, "%d parts", m->n_parts);
    if (bytes > 0) {
        m->parts[m->n_parts++] = (struct mw_memory_part){name, bytes};
    }
}

/* ---- activations -----------------------------------------------------------
 */
enum { KEPT_MAX = 64, KEPT_SHOWN = 10 };

struct kept {
    struct mw_memory_part v[KEPT_MAX];
    int n;
};

/* Operators of one name are one part. */
static void note_kept(struct kept *kept, const char *name, double bytes)
{
    for (int i = 0; i < kept->n; i++) {
        if (kept->v[i].name == name) {
            kept->v[i].bytes += bytes;
            return;
        }
    }
    if (bytes > 0 && kept->n < KEPT_MAX) {
        kept->v[kept->n++] = (struct mw_memory_part){name, bytes};
    }
}

static int larger_first(const void *a, const void *b)
{
    const struct mw_memory_part *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* `times` micro-batches of the stage are in flight. */
static void add_activations(const struct mw_step_price *p,
                            const int n_units[MW_UNIT_COUNT],
                            struct mw_stage_memory *m)
{
    double pass = mw_vstage_activation_bytes(p, n_units), left;
    double times = pass > 0 ? m->activation_bytes / pass : 0;
    struct kept kept = {.n = 0};

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        struct mw_ops ops = {NULL, 0, 0};

        if (n_units[unit] == 0) {
            continue;
        }
        mw_step_unit_ops(p, (enum mw_step_unit)unit, MW_PHASE_F, &ops);
        for (size_t i = 0; i < ops.n; i++) {
            note_kept(&kept, ops.v[i].name,
                      times * n_units[unit] * ops.v[i].save_bytes);
        }
        mw_array_release(&ops);
    }
    qsort(kept.v, (size_t)kept.n, sizeof kept.v[0], larger_first);
    left = m->activation_bytes;
    for (int i = 0; i < kept.n && i < KEPT_SHOWN && kept.v[i].bytes <= left;
         i++) {
        add(m, kept.v[i].name, kept.v[i].bytes);
        left -= kept.v[i].bytes;
    }
    add(m, "other activations", left);
}

void mw_stage_memory_parts(const struct mw_step_price *p,
                           const int n_units[MW_UNIT_COUNT],
                           struct mw_stage_memory *m)
{
    m->n_parts = 0;
    add(m, "weights", m->weight_bytes);
    add(m, "gradients", m->grad_bytes);
    add(m, "optimizer", m->optimizer_bytes);
    add_activations(p, n_units, m);
    add(m, "temporary", m->temporary_bytes);
    add(m, "buffers of the stack", m->buffer_bytes);
    add(m, "context and communicators", m->overhead_bytes);
}
