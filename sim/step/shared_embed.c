/*
 * The matrix of the embedding where several devices of a pipeline hold it: the
 * first stage for its look-up; the last one where the head is tied to it; and
 * the stage of multi-token prediction, which looks the next tokens up
 * (Megatron-LM, core/models/common/language_module: copies in "mtp process
 * stage" and "post processing stage", whose gradients
 * finalize_model_grads._allreduce_word_embedding_grads adds up in one
 * all-reduce). An untied head's matrix is the last stage's alone: hidden states
 * of modules that lie ahead of it come to it.
 *
 * Where one device has both ends (a pipeline folded once, two routes), they
 * share the matrix as it is (DeepSeek-V3, arXiv:2412.19437, section 3.2.2).
 * Left out: copies of learned positions.
 */
#include "sim/step/step_int.h"

static bool has_modules(const struct mw_step_price *p)
{
    return p->scenario->model.n_mtp > 0;
}

/* Does the stage with the head need the matrix of the embedding? */
static bool at_head(const struct mw_scenario *scenario,
                    const struct mw_layout *layout)
{
    return scenario->model.tied ||
           (scenario->model.n_mtp > 0 && layout->mtp_ahead == 0);
}

/* ---- who holds it ----------------------------------------------------------
 */
static void add_holder(struct mw_holders *h, int device)
{
    if (!mw_step_holds(h, device)) {
        h->device[h->n++] = device;
    }
}

bool mw_step_holds(const struct mw_holders *h, int device)
{
    for (int i = 0; i < h->n; i++) {
        if (h->device[i] == device) {
            return true;
        }
    }
    return false;
}

struct mw_holders mw_step_holders(const struct mw_step_price *p,
                                  const struct mw_ends *ends, int n_routes)
{
    struct mw_holders h = {.n = 0};
    bool is_ahead = has_modules(p) && p->layout->mtp_ahead > 0;

    add_holder(&h, ends->first);
    if (n_routes > 1) { /* each end has both ends of the model */
        if (is_ahead) {
            add_holder(&h, ends->last);
            add_holder(&h, ends->ahead);
            add_holder(&h, p->layout->pp - 1 - ends->ahead);
        }
    } else {
        if (is_ahead) {
            add_holder(&h, ends->ahead);
        }
        if (at_head(p->scenario, p->layout)) {
            add_holder(&h, ends->last);
        }
    }
    h.n = h.n > 1 ? h.n : 0;
    return h;
}

struct mw_group mw_step_holders_group(const struct mw_step_price *p,
                                      const struct mw_holders *h)
{
    struct mw_group g = mw_step_pair(p, h->device[0], h->device[h->n - 1]);

    for (int i = 1; i + 1 < h->n; i++) {
        struct mw_group to = mw_step_pair(p, h->device[0], h->device[i]);
        struct mw_group from =
            mw_step_pair(p, h->device[i], h->device[h->n - 1]);

        g.n_ranks++;
        if (to.n_nodes > 1 && from.n_nodes > 1) {
            g.n_nodes++;
        }
        g.nic_sharers =
            to.nic_sharers > g.nic_sharers ? to.nic_sharers : g.nic_sharers;
    }
    g.ranks_per_node = (g.n_ranks + g.n_nodes - 1) / g.n_nodes;
    return g;
}

int mw_step_copies_held(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT])
{
    bool is_end = n_units[MW_UNIT_HEAD] > 0 && at_head(p->scenario, p->layout);

    if (n_units[MW_UNIT_EMBEDDING] > 0) {
        return 0;
    }
    return n_units[MW_UNIT_MTP] > 0 ? n_units[MW_UNIT_MTP] : is_end;
}

/* ---- what it is ------------------------------------------------------------
 */
struct mw_param mw_step_tied_param(const struct mw_step_price *p)
{
    return (struct mw_param){.name = "tied embedding",
                             .layer = -1,
                             .outer = 1,
                             .rows = p->scenario->model.vocab,
                             .cols = p->scenario->model.hidden,
                             .n_copies = 1,
                             .shard = MW_SHARD_ROWS};
}

static double tied_elements(const struct mw_step_price *p)
{
    struct mw_param table = mw_step_tied_param(p);

    return (double)mw_param_shard_count(&table, p->layout);
}

double mw_step_tied_params(const struct mw_step_price *p)
{
    return p->work.lora_rank > 0 ? 0 : tied_elements(p);
}

double mw_step_tied_frozen_bytes(const struct mw_step_price *p)
{
    return p->work.lora_rank > 0 ? tied_elements(p) * p->weight_bytes : 0;
}

bool mw_step_copies_tied(const struct mw_scenario *scenario,
                         const struct mw_layout *layout)
{
    return (scenario->model.tied || scenario->model.n_mtp > 0) &&
           layout->zero >= 2 && layout->pp > 1;
}

/* Under ZeRO-2 and 3 in a pipeline: of the head's unit, or the modules'. */
static bool has_copy(const struct mw_step_price *p, enum mw_step_unit unit)
{
    return p->has_tied_copy &&
           (unit == MW_UNIT_HEAD  ? at_head(p->scenario, p->layout)
            : unit == MW_UNIT_MTP ? p->layout->mtp_ahead > 0
                                  : false);
}

double mw_step_copy_params(const struct mw_step_price *p,
                           enum mw_step_unit unit)
{
    return has_copy(p, unit) ? mw_step_tied_params(p) : 0;
}

double mw_step_copy_bytes(const struct mw_step_price *p, enum mw_step_unit unit)
{
    return mw_step_copy_params(p, unit) * p->weight_bytes +
           (has_copy(p, unit) ? mw_step_tied_frozen_bytes(p) : 0);
}

double mw_step_tied_grads(const struct mw_step_price *p)
{
    double whole = mw_step_tied_params(p);

    return p->layout->zero >= 2 ? mw_step_share(p, whole, 0) : whole;
}
