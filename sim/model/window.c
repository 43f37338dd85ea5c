/*
 * Local attention: which layers have a window, and how much of the triangle of
 * causal pairs it keeps. Of s tokens and a window of w <= s
 *
 *   sliding   w (w + 1) / 2 + (s - w) w    (Mistral, arXiv:2310.06825)
 *   chunked   c w (w + 1) / 2 + r (r + 1) / 2,  s = c w + r   (Llama 4)
 *
 * since query i meets min(i, w) keys, or those of its chunk up to itself. A
 * window counts the query's own token, as transformers' `sliding_window` does;
 * Megatron-LM's --window-size counts those before it, one less.
 *
 * A kernel of t x t tiles computes whole each tile of which a pair is kept: of
 * a sliding window those that hold it for the tile's first query,
 * ceil((w - 1) / t) + 1 in a row, which is the same sum over tiles.
 */
#include "sim/model/model.h"

#include <math.h>

const struct mw_enum mw_window_form_enums[] = {
    {"sliding", MW_WINDOW_SLIDING}, {"chunked", MW_WINDOW_CHUNKED}, {NULL, 0}};

bool mw_model_layer_is_local(const struct mw_model *model, int layer)
{
    const struct mw_window *w = &model->window;

    return w->tokens > 0 && layer >= w->first_global &&
           (w->global_every == 0 || (layer + 1) % w->global_every != 0);
}

int mw_model_local_layers(const struct mw_model *model, int layer)
{
    int n = 0;

    for (int i = 0; i < layer; i++) {
        n += mw_model_layer_is_local(model, i);
    }
    return n;
}

bool mw_model_is_uniform(const struct mw_model *model, int64_t span)
{
    bool is_cut = mw_window_keys(span, &model->window) < span;

    for (int i = 1; i < model->n_layers; i++) {
        if (mw_model_layer_is_moe(model, i) !=
                mw_model_layer_is_moe(model, 0) ||
            (is_cut && mw_model_layer_is_local(model, i) !=
                           mw_model_layer_is_local(model, 0))) {
            return false;
        }
    }
    return true;
}

static double triangle(double n)
{
    return n * (n + 1) / 2;
}

int64_t mw_window_keys(int64_t span, const struct mw_window *window)
{
    return window != NULL && window->tokens > 0 && window->tokens < span
               ? window->tokens
               : span;
}

/* So many rows of which row i has min(i, width) entries. */
static double band(double rows, double width)
{
    return rows <= width ? triangle(rows)
                         : triangle(width) + (rows - width) * width;
}

double mw_window_pairs(int64_t span, const struct mw_window *window)
{
    int64_t keys = mw_window_keys(span, window);

    if (keys == span || window->form == MW_WINDOW_SLIDING) {
        return band((double)span, (double)keys);
    }
    return (double)(span / keys) * triangle((double)keys) +
           triangle((double)(span % keys));
}

/* Tiles that hold kept pairs. */
static double tiles_of(int64_t span, const struct mw_window *window, int tile)
{
    int64_t keys = mw_window_keys(span, window);
    double rows = ceil((double)span / tile);

    if (keys == span) {
        return triangle(rows);
    }
    if (window->form == MW_WINDOW_SLIDING) {
        return band(rows, ceil((double)(keys - 1) / tile) + 1);
    }
    return (double)(span / keys) * triangle(ceil((double)keys / tile)) +
           triangle(ceil((double)(span % keys) / tile));
}

double mw_window_tile_work(int64_t span, const struct mw_window *window,
                           int tile)
{
    double whole = tiles_of(span, NULL, tile) / mw_window_pairs(span, NULL);

    return mw_window_keys(span, window) == span
               ? 1
               : tiles_of(span, window, tile) / mw_window_pairs(span, window) /
                     whole;
}

double mw_op_tile_flops(const struct mw_op *op)
{
    return op->tile_work > 0 ? op->flops * op->tile_work : op->flops;
}
