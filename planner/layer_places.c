/*
 * The least prefix and period by trying all: a model has some hundred layers.
 * From the last layer backwards a period holds until a pair differs, so that
 * each period has one least prefix; O(n^2).
 */
#include "planner/layer_places.h"

#include <stdbool.h>

static bool is_alike(const struct mw_model *model, bool is_cut, int a, int b)
{
    return mw_model_layer_is_moe(model, a) == mw_model_layer_is_moe(model, b) &&
           (!is_cut || mw_model_layer_is_local(model, a) ==
                           mw_model_layer_is_local(model, b));
}

struct mw_layer_places mw_layer_places_of(const struct mw_model *model,
                                          int64_t span)
{
    int n = model->n_layers;
    bool is_cut = mw_window_keys(span, &model->window) < span;
    struct mw_layer_places best = {0, n};

    for (int period = 1; period < n; period++) {
        int prefix = n - period;

        while (prefix > 0 &&
               is_alike(model, is_cut, prefix - 1, prefix - 1 + period)) {
            prefix--;
        }
        if (prefix + period < best.prefix + best.period) {
            best = (struct mw_layer_places){prefix, period};
        }
    }
    return best;
}

int mw_layer_place(const struct mw_layer_places *places, int layer)
{
    return layer < places->prefix
               ? layer
               : places->prefix + (layer - places->prefix) % places->period;
}
