/*
 * Nanotron goes through its blocks in order (embedding, layers, norm, head,
 * cast, loss), adds up what it takes them to cost, and goes on to the next
 * stage behind the block with which the sum exceeds this stage's share:
 *
 *   layer   4 heads (hidden / heads) hidden + 3 ffn hidden
 *   head    vocab hidden               others nothing
 *   stage k ends behind the first block with sum > total (k + 1) / pp
 *
 * Sources: Nanotron src/nanotron/models/base.py build_model,
 * src/nanotron/models/llama.py get_block_compute_costs. Grouped queries are
 * counted as if there were none, as there.
 */
#include "planner/nanotron_split.h"

#include <string.h>

int mw_nanotron_split(const struct mw_model *model, int pp, int *layers)
{
    int64_t hidden = model->hidden, n = model->n_layers;
    int64_t layer = 4 * model->n_heads * (hidden / model->n_heads) * hidden +
                    3 * (int64_t)model->ffn * hidden;
    int64_t total = n * layer + model->vocab * hidden, sum = 0;
    int stage = 0, norm = 1; /* blocks behind the layers, before the head */

    if (layers != NULL) {
        memset(layers, 0, (size_t)pp * sizeof *layers);
    }
    for (int64_t i = 0; i < n + norm; i++) {
        if (layers != NULL && i < n) {
            layers[stage]++;
        }
        sum += i < n ? layer : 0;
        stage += (double)sum > (double)total * ((double)(stage + 1) / pp);
    }
    return pp - 1 - stage; /* the head's is the last one with parameters */
}
