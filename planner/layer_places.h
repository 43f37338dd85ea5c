/*
 * Places of layers in a model whose layers are not alike: two layers are at the
 * same place where the kinds of layers from them on are the same, as far as the
 * model goes. The kinds of n consecutive layers then follow from the place of
 * the first and n. A prefix (DeepSeek-V3's three dense layers) and a cycle
 * (Llama 4: dense, MoE; Gemma 3: five with a window, one without) say all:
 * kind(i) = kind(i + period) from i = prefix on, prefix + period least.
 */
#ifndef MW_PLANNER_LAYER_PLACES_H
#define MW_PLANNER_LAYER_PLACES_H

#include "sim/model/model.h"

struct mw_layer_places {
    int prefix, period; /* prefix + period places */
};
/* Attention spans `span` tokens (mw_work_span): layers with a window beyond
 * that are as those without. */
struct mw_layer_places mw_layer_places_of(const struct mw_model *model,
                                          int64_t span);
/* 0 .. prefix + period - 1 of a layer from 0; also of the one past the last. */
int mw_layer_place(const struct mw_layer_places *places, int layer);

#endif
