/*
 * Measured memory of a row, and the prediction by the same definition.
 *
 *   mem_gib_per_gpu   GiB, of the kind that mem_def says: "allocated", or of
 *                     the device ("nvidia-smi"; "GB rounded up", as
 *                     BigScience's notes have it), or (anything else) reserved;
 *                     a second figure in mem_def, "reserved 47.05 GiB", counts
 *                     too
 *   mem_gb            GiB, reserved
 *   peak_mem_gb       tensors: 10^9 bytes as LitGPT prints them
 *                     (max_memory_allocated / 1e9), GiB as torchtune does
 *   model_states_MB, activation_MB, activation_peak_MB
 *                     MiB of the rank that the row names: Galvatron's profile
 *                     (memory after the backward pass; what the forward passes
 *                     leave more; the high-water mark less the states)
 *
 * A run is said to have run out of memory by "OOM" in kind or memory, or by
 * the column oom.
 */
#include "sim/validate/validate_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *text;
} kinds[MW_MEMORY_KIND_COUNT] = {
#define MW_MEMORY_ROW(name, key, text) {key, text},
    MW_MEMORY_MAP(MW_MEMORY_ROW)
#undef MW_MEMORY_ROW
};

const char *mw_memory_kind_name(enum mw_memory_kind kind)
{
    return kinds[kind].name;
}

const char *mw_memory_kind_text(enum mw_memory_kind kind)
{
    return kinds[kind].text;
}

bool mw_case_is_oom(const struct mw_measured *r)
{
    return mw_text_has(r->kind, "OOM") ||
           mw_text_has(r->mem_gib_per_gpu, "OOM") || r->oom > 0;
}

/* ---- measured --------------------------------------------------------------
 */
static void add(struct mw_validate_row *out, enum mw_memory_kind kind,
                double bytes)
{
    if (bytes > 0 && out->n_memory < MW_MEMORY_PER_ROW) {
        out->memory[out->n_memory].kind = kind;
        out->memory[out->n_memory].measured_bytes = bytes;
        out->n_memory++;
    }
}

static void read_defined(const struct mw_measured *row,
                         struct mw_validate_row *out)
{
    static const char second[] = "; reserved ";
    const char *at = strstr(row->mem_def, second);

    add(out,
        mw_text_has(row->mem_def, "allocated") ? MW_MEMORY_ALLOCATED
        : mw_text_has(row->mem_def, "nvidia-smi") ||
                mw_text_has(row->mem_def, "GB rounded up")
            ? MW_MEMORY_DEVICE
            : MW_MEMORY_RESERVED,
        0x1p30 * strtod(row->mem_gib_per_gpu, NULL));
    if (at != NULL) {
        add(out, MW_MEMORY_RESERVED,
            0x1p30 * strtod(at + sizeof second - 1, NULL));
    }
}

void mw_case_read_memory(const struct mw_measured *row,
                         struct mw_validate_row *out)
{
    double unit = mw_text_has(row->framework, "LitGPT") ? 1e9 : 0x1p30;

    read_defined(row, out);
    add(out, MW_MEMORY_RESERVED, 0x1p30 * row->mem_gb);
    add(out, MW_MEMORY_ALLOCATED, unit * row->peak_mem_gb);
    add(out, MW_MEMORY_OVER, 0x1p20 * row->activation_peak_MB);
    add(out, MW_MEMORY_KEPT, 0x1p20 * row->activation_MB);
    add(out, MW_MEMORY_STATES, 0x1p20 * row->model_states_MB);
}

/* ---- predicted -------------------------------------------------------------
 */
static double stage_bytes(const struct mw_step_result *r, int stage,
                          enum mw_memory_kind kind)
{
    const struct mw_stage_memory *m = &r->memory[stage];
    double tensors = m->total_bytes - m->overhead_bytes;
    double states =
        m->weight_bytes + m->grad_bytes + m->optimizer_bytes + m->buffer_bytes;

    switch (kind) {
    case MW_MEMORY_ALLOCATED:
        return tensors;
    case MW_MEMORY_RESERVED:
        return m->reserved_bytes;
    case MW_MEMORY_DEVICE:
        return m->reserved_bytes + m->overhead_bytes;
    case MW_MEMORY_STATES:
        return states;
    case MW_MEMORY_KEPT:
        return m->activation_bytes;
    case MW_MEMORY_OVER:
        return tensors - states;
    case MW_MEMORY_KIND_COUNT:
        break;
    }
    return 0;
}

/* Ranks of a stage are next to each other: pp is the slowest dimension.
 * nanotron prints what its first rank holds. */
static int stage_of(const struct mw_case *c, const struct mw_step_result *r)
{
    if (mw_text_has(c->row->framework, "nanotron")) {
        return 0;
    }
    double stage = c->row->rank / (c->row->gpus / r->n_stages);

    return stage < r->n_stages ? (int)stage : -1; /* NaN: of any rank */
}

void mw_case_memory(const struct mw_case *c, const struct mw_step_result *r,
                    struct mw_validate_row *out)
{
    int stage = stage_of(c, r);
    for (int i = 0; i < out->n_memory; i++) {
        struct mw_validate_memory *m = &out->memory[i];

        m->predicted_bytes = 0;
        for (int d = 0; d < r->n_stages; d++) {
            if (stage < 0 || d == stage) {
                m->predicted_bytes =
                    fmax(m->predicted_bytes, stage_bytes(r, d, m->kind));
            }
        }
    }
}
