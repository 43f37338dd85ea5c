/*
 * Which layers a measured run had on its stages, where its file does not say:
 *
 *   InternEvo   partition_uniform: layers that do not divide go one each to the
 *               last stages
 *   others      modules of multi-token prediction and the head as a layer each
 *               of the last stage, as recipes place them; one layer less at
 *               both ends, where embedding and head are, if the others are
 *               equal then
 *
 * Otherwise even: the first stages have one more. Left out: nanotron's balance
 * by cost (models/base.py: blocks go to a stage until a layer's 4 h^2 + 3 h ffn
 * and the head's h vocab pass its part of the sum). It brings step times 0.6
 * points nearer, but memory of first stages further off: 7.8 % left out for
 * 4.8, and 6.9 when a stage's layers bound the buffers that wait for a stream
 * (two a layer). A stage of a pipeline then seems to keep 1.0 to 1.2 times what
 * the model's table says, runs without a pipeline 1.5: not understood.
 */
#include "sim/validate/validate_int.h"

static int *new_layers(struct mw_case *c, int n)
{
    mw_case_fill(c, MW_FILL_LAYERS);
    c->layers = mw_arena_alloc(c->arena, (size_t)n, sizeof *c->layers);
    return c->layers;
}

static void partition_mtp(struct mw_case *c, int n, int extra)
{
    int slots = c->scenario.model.n_layers + extra;

    if (slots / n <= extra) {
        return;
    }
    int *layers = new_layers(c, n);

    for (int k = 0; k < n; k++) {
        layers[k] = slots / n + (k < slots % n) - (k == n - 1 ? extra : 0);
    }
}

static void partition_late(struct mw_case *c, int n)
{
    int n_layers = c->scenario.model.n_layers, *layers = new_layers(c, n);

    for (int k = 0; k < n; k++) {
        layers[k] = n_layers / n + (k >= n - n_layers % n);
    }
}

static void partition_thin_ends(struct mw_case *c, int n, int each)
{
    int *layers = new_layers(c, n);

    for (int k = 0; k < n; k++) {
        layers[k] = each - (k == 0 || k == n - 1);
    }
}

void mw_case_partition(struct mw_case *c)
{
    int n = c->layout.pp * c->layout.vpp;
    int n_layers = c->scenario.model.n_layers, each = (n_layers + 2) / n;

    if (n == 1) {
        return;
    }
    if (c->scenario.model.n_mtp > 0) {
        partition_mtp(c, n, c->scenario.model.n_mtp + 1);
    } else if (n_layers % n == 0) {
        return;
    } else if (mw_text_has(c->row->framework, "InternEvo") && n_layers > n) {
        partition_late(c, n);
    } else if (n >= 3 && (n_layers + 2) % n == 0 && each >= 1) {
        partition_thin_ends(c, n, each);
    }
}
