/*
 * A mixture of experts as a block's second half, experts spread over the EP
 * group (GShard: Lepikhin et al., 2020; Megatron-LM's all-to-all dispatcher):
 *
 *   own rows -> router -> rows by expert -> all-to-all -> rows of each own
 *   expert -> fc1, activation, fc2 -> back the same way -> weighted sum
 *
 *   source order   rows x k, by expert, then by row: what is sent
 *   arrival order  by source rank, then by own expert: what is received
 *   expert order   by own expert, then by source rank: what GEMMs run on
 *
 * How many rows arrive depends on the data; memory is laid out for the worst
 * case, that every row of the group comes here. No row is dropped.
 *
 * Auxiliary loss (Fedus et al., Switch Transformer, 2022, section 2.2):
 * alpha E sum_e f_e P_e over the tokens of a micro-batch, f_e the part of the
 * choices that went to expert e (a constant), P_e the mean probability; its
 * gradient reaches the router, the loss that is reported leaves it out.
 * With expert tensor parallelism each rank of an ETP group has a part of the
 * rows and columns of the same experts: what came to one of them goes to all,
 * and their partial sums are added on the way back. Arrival order is then by
 * rank of the ETP group first. Left out: router biases.
 */
#include "exec/exec_int.h"

/* ---- counts and places -------------------------------------------------- */
static int n_sent(const struct mw_exec *ex)
{
    return ex->dims.own_rows * ex->dims.top_k;
}

/* Counts of the sources that one rank of the ETP group hears from directly. */
static int64_t *arrived_at(const struct mw_exec *ex, const struct mw_moe_fwd *f,
                           int etp_rank)
{
    return f->host_arrived +
           (size_t)etp_rank * (size_t)ex->ep->size * (size_t)ex->dims.n_local;
}

/* Rows that came to one rank of the ETP group; each then has those of all. */
static int rows_at_rank(const struct mw_exec *ex, const struct mw_moe_fwd *f,
                        int etp_rank)
{
    const int64_t *arrived = arrived_at(ex, f, etp_rank);
    int64_t n = 0;
    for (int i = 0; i < ex->ep->size * ex->dims.n_local; i++) {
        n += arrived[i];
    }
    return (int)n;
}

static int arrived_rows(const struct mw_exec *ex, const struct mw_moe_fwd *f)
{
    int n = 0;
    for (int i = 0; i < ex->etp->size; i++) {
        n += rows_at_rank(ex, f, i);
    }
    return n;
}

static int expert_rows(const struct mw_exec *ex, const struct mw_moe_fwd *f,
                       int expert)
{
    int64_t n = 0;
    for (int src = 0; src < ex->dims.n_sources; src++) {
        n += f->host_arrived[src * ex->dims.n_local + expert];
    }
    return (int)n;
}

/* Choices in the order of experts; the host hears how many each one gets. */
static void sort_choices(const struct mw_exec *ex, struct mw_moe_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_k_sort a = {.choice = f->choice,
                                .n_sent = n_sent(ex),
                                .n = d->n_experts,
                                .k = d->top_k,
                                .place = f->place,
                                .from = f->from,
                                .leaving = f->leaving};
    ex->dev->ops->experts->sort(ex->dev, &a);
    ex->dev->ops->to_host(ex->dev, f->host_leaving, f->leaving,
                          (size_t)d->n_experts * sizeof *f->leaving);
}

/* Order and home of the rows that come, where each own expert's begin. */
static void sort_arrivals(const struct mw_exec *ex, struct mw_moe_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    size_t n = (size_t)d->n_sources * (size_t)d->n_local;
    const struct mw_k_order a = {.arrived = f->arrived,
                                 .n_sources = d->n_sources,
                                 .n_local = d->n_local,
                                 .order = f->order,
                                 .home = f->home,
                                 .first = f->first};
    ex->dev->ops->to_device(ex->dev, f->arrived, f->host_arrived,
                            n * sizeof *f->arrived);
    ex->dev->ops->experts->order(ex->dev, &a);
    f->host_first[0] = 0;
    for (int e = 0; e < d->n_local; e++) {
        f->host_first[e + 1] = f->host_first[e] + expert_rows(ex, f, e);
    }
}

/* ---- all-to-all --------------------------------------------------------- */
static enum mw_status exchange(struct mw_exec *ex, const char *name,
                               const int64_t *sent, const int64_t *got,
                               size_t width, const void *from, void *to)
{
    struct mw_comm *ep = ex->ep;
    size_t n_send[MW_EP_MAX] = {0}, n_recv[MW_EP_MAX] = {0};
    size_t n = (size_t)n_sent(ex) * width; /* as much comes back */
    for (int i = 0; i < ep->size * ex->dims.n_local; i++) {
        n_send[i / ex->dims.n_local] += (size_t)sent[i] * width;
        n_recv[i / ex->dims.n_local] += (size_t)got[i] * width;
    }
    const struct mw_rec_event e = {.type = MW_REC_COLL,
                                   .span = MW_SPAN_EP,
                                   .name = name,
                                   .microbatch = ex->rec->label.microbatch,
                                   .stage = ex->rec->label.stage,
                                   .bytes = (double)(n * ex->dev->elem_bytes),
                                   .dim = MW_DIM_EP,
                                   .coll = MW_ALL_TO_ALL};
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        ep->ops->all_to_all_v(ep, from, n_send, to, n_recv, ex->elem, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

/* Rows of the ETP group's ranks: all to each, or sums of all back to each. */
static enum mw_status share_rows(struct mw_exec *ex, const struct mw_moe_fwd *f,
                                 bool is_back)
{
    struct mw_comm *etp = ex->etp;
    size_t n[MW_EP_MAX] = {0}, all = 0;
    for (int i = 0; i < etp->size; i++) {
        n[i] = (size_t)rows_at_rank(ex, f, i) * (size_t)ex->dims.hidden;
        all += n[i];
    }
    const struct mw_rec_event e = {.type = MW_REC_COLL,
                                   .span = MW_SPAN_EP,
                                   .name = "experts",
                                   .microbatch = ex->rec->label.microbatch,
                                   .stage = ex->rec->label.stage,
                                   .bytes = (double)(all * ex->dev->elem_bytes),
                                   .dim = MW_DIM_ETP,
                                   .coll = is_back ? MW_REDUCE_SCATTER
                                                   : MW_ALL_GATHER};
    if (etp->size == 1) {
        return MW_OK;
    }
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        is_back
            ? etp->ops->reduce_scatter_v(etp, ex->moe_far, n, ex->elem, ex->err)
            : etp->ops->all_gather_v(etp, ex->moe_far, n, ex->elem, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

/* Where the rows that came to this rank itself stand among the ETP group's. */
static void *own_far(const struct mw_exec *ex, const struct mw_moe_fwd *f)
{
    size_t row = 0;
    for (int i = 0; i < ex->etp->rank; i++) {
        row += (size_t)rows_at_rank(ex, f, i);
    }
    return mw_dev_at(ex->dev, ex->moe_far, row * (size_t)ex->dims.hidden);
}

static void copy_sent(struct mw_exec *ex, void *to, const void *from)
{
    ex->dev->ops->copy(ex->dev, to, from,
                       (size_t)n_sent(ex) * (size_t)ex->dims.hidden *
                           ex->dev->elem_bytes);
}

/* Rows in source order to expert order on the ranks of their experts. */
static enum mw_status dispatch(struct mw_exec *ex, const struct mw_moe_fwd *f,
                               void *from, void *to)
{
    const struct mw_dims *d = &ex->dims;
    if (d->n_sources == 1) {
        copy_sent(ex, to, from);
        return MW_OK;
    }
    if (ex->ep->size == 1) {
        copy_sent(ex, own_far(ex, f), from);
    } else {
        MW_TRY(exchange(ex, "dispatch", f->host_leaving,
                        arrived_at(ex, f, ex->etp->rank), (size_t)d->hidden,
                        from, own_far(ex, f)));
    }
    MW_TRY(share_rows(ex, f, false));
    ex->dev->ops->experts->gather(ex->dev, to, ex->moe_far, f->order,
                                  arrived_rows(ex, f), d->hidden);
    return MW_OK;
}

/* And back. */
static enum mw_status bring_back(struct mw_exec *ex, const struct mw_moe_fwd *f,
                                 void *from, void *to)
{
    const struct mw_dims *d = &ex->dims;
    if (d->n_sources == 1) {
        copy_sent(ex, to, from);
        return MW_OK;
    }
    ex->dev->ops->experts->gather(ex->dev, ex->moe_far, from, f->home,
                                  arrived_rows(ex, f), d->hidden);
    MW_TRY(share_rows(ex, f, true));
    if (ex->ep->size == 1) {
        copy_sent(ex, to, own_far(ex, f));
        return MW_OK;
    }
    return exchange(ex, "combine", arrived_at(ex, f, ex->etp->rank),
                    f->host_leaving, (size_t)d->hidden, own_far(ex, f), to);
}

static enum mw_status exchange_counts(struct mw_exec *ex, struct mw_moe_fwd *f)
{
    size_t each[MW_EP_MAX], n = (size_t)ex->ep->size * (size_t)ex->dims.n_local;
    for (int i = 0; i < ex->ep->size; i++) {
        each[i] = (size_t)ex->dims.n_local;
    }
    MW_TRY(ex->ep->ops->all_to_all_v(ex->ep, f->host_leaving, each,
                                     arrived_at(ex, f, ex->etp->rank), each,
                                     MW_ELEM_I64, ex->err));
    return ex->etp->ops->all_gather(ex->etp, f->host_arrived, n, MW_ELEM_I64,
                                    ex->err);
}

/* ---- auxiliary loss ----------------------------------------------------- */
/* aux[e] = d(alpha E sum f P)/dp, with the counts of the whole micro-batch. */
static enum mw_status balance(struct mw_exec *ex, struct mw_moe_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    double tokens = (double)d->n_seqs * d->seq;
    struct mw_comm *const groups[] = {d->is_sp ? ex->tp : NULL, ex->cp};
    float *aux = ex->moe_aux;
    for (int e = 0; e < d->n_experts; e++) {
        aux[e] = (float)f->host_leaving[e];
    }
    for (int i = 0; i < 2; i++) {
        if (groups[i] && groups[i]->size > 1) {
            MW_TRY(groups[i]->ops->all_reduce(groups[i], aux,
                                              (size_t)d->n_experts, MW_ELEM_F32,
                                              MW_REDUCE_SUM, ex->err));
        }
    }
    /* The mean over micro-batches of a mean over tokens: loss_scale. */
    for (int e = 0; e < d->n_experts; e++) {
        double part = (double)aux[e] / (tokens * d->top_k);
        aux[e] = (float)(ex->aux_weight * d->n_experts * part *
                         (double)ex->loss_scale);
    }
    ex->dev->ops->to_device(ex->dev, f->aux, aux,
                            (size_t)d->n_experts * sizeof *aux);
    return MW_OK;
}

/* Around what takes as long as rows came here. */
static void routed_begin(struct mw_exec *ex, const struct mw_moe_fwd *f)
{
    if (ex->ep->size > 1) {
        mw_rec_routed_begin(ex->rec, arrived_rows(ex, f));
    }
}

static void routed_end(struct mw_exec *ex)
{
    if (ex->ep->size > 1) {
        mw_rec_routed_end(ex->rec);
    }
}

/* ---- passes -------------------------------------------------------------- */
enum mw_status mw_experts_forward(struct mw_exec *ex, const struct mw_block *b,
                                  struct mw_block_fwd *f, void *y)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct mw_moe_fwd *m = &f->moe;
    ops->linear_fwd_wide(ex->dev, m->probs, f->n2, b->router.w, d->own_rows,
                         d->n_experts, d->hidden);
    ops->experts->route_fwd(ex->dev, m->probs, m->choice, m->weight,
                            d->own_rows, d->n_experts, d->top_k);
    sort_choices(ex, m);
    MW_TRY(balance(ex, m));
    MW_TRY(exchange_counts(ex, m));
    sort_arrivals(ex, m);
    ops->experts->gather(ex->dev, ex->moe_near, f->n2, m->from, n_sent(ex),
                         d->hidden);
    MW_TRY(dispatch(ex, m, ex->moe_near, m->in));
    routed_begin(ex, m);
    mw_expert_products_forward(ex, b, f, ex->moe_out);
    routed_end(ex);
    MW_TRY(bring_back(ex, m, ex->moe_out, m->out));
    ops->experts->combine(ex->dev, y, m->out, m->place, m->weight, f->mid,
                          d->own_rows, d->top_k, d->hidden);
    return d->shared_ffn > 0 ? mw_shared_forward(ex, b, f, y) : MW_OK;
}

size_t mw_experts_kept_bytes(const struct mw_exec *ex,
                             const struct mw_moe_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    size_t width = (size_t)mw_expert_fc1_width(d);
    if (d->lora_rank == 0 || d->adapts_mlp) {
        width += (size_t)d->hidden + (size_t)d->moe_ffn;
    }
    if (d->adapts_mlp) { /* gate and up, or up alone; down */
        width += (size_t)d->lora_rank * (d->is_gated ? 3 : 2);
    }
    return (size_t)arrived_rows(ex, f) * width * ex->dev->elem_bytes;
}

enum mw_status mw_experts_backward(struct mw_exec *ex, const struct mw_block *b,
                                   const struct mw_block_fwd *f,
                                   struct mw_block_bwd *k, const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const struct mw_moe_fwd *m = &f->moe;
    struct mw_moe_bwd *g = &k->moe;
    ops->experts->combine_bwd(ex->dev, ex->moe_near, g->dweight, dy, m->out,
                              m->place, m->weight, d->own_rows, d->top_k,
                              d->hidden);
    MW_TRY(dispatch(ex, m, ex->moe_near, g->dy));
    routed_begin(ex, m);
    mw_expert_products_backward(ex, b, f, k, ex->moe_out);
    routed_end(ex);
    MW_TRY(bring_back(ex, m, ex->moe_out, ex->moe_near));
    ops->experts->combine(ex->dev, k->dn2, ex->moe_near, m->place, NULL, NULL,
                          d->own_rows, d->top_k, d->hidden);
    ops->experts->route_bwd(ex->dev, g->dlogits, g->dweight, m->probs,
                            m->choice, m->weight, m->aux, d->own_rows,
                            d->n_experts, d->top_k);
    ops->linear_bwd_input(ex->dev, ex->tmp, g->dlogits, b->router.w,
                          d->own_rows, d->n_experts, d->hidden);
    ops->add(ex->dev, k->dn2, k->dn2, NULL, ex->tmp, d->own_rows, d->hidden);
    return d->shared_ffn > 0 ? mw_shared_backward(ex, b, f, k, dy) : MW_OK;
}

enum mw_status mw_experts_weight(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *f,
                                 const struct mw_block_bwd *k, const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    routed_begin(ex, &f->moe);
    mw_expert_products_weight(ex, b, f, k);
    routed_end(ex);
    if (b->router.g) {
        ex->dev->ops->linear_bwd_weight(ex->dev, b->router.g, NULL,
                                        k->moe.dlogits, f->n2, d->own_rows,
                                        d->n_experts, d->hidden);
    }
    return d->shared_ffn > 0 ? mw_shared_weight(ex, b, f, k, dy) : MW_OK;
}

/* ---- memory ------------------------------------------------------------- */
/* Rows in and out of the experts: those sent, those that may arrive. */
void mw_experts_open(struct mw_exec *ex)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    if (d->n_experts > 0) {
        size_t row = (size_t)d->hidden * ex->dev->elem_bytes;
        ex->moe_bytes = (size_t)d->moe_rows * row;
        ex->moe_near = ops->alloc(ex->dev, ex->moe_bytes);
        ex->moe_far = ops->alloc(ex->dev, ex->moe_bytes);
        ex->moe_out = ops->alloc(ex->dev, ex->moe_bytes);
        ex->moe_dg_bytes =
            (size_t)d->moe_rows * (size_t)d->moe_ffn * ex->dev->elem_bytes;
        ex->moe_dg = ops->alloc(ex->dev, ex->moe_dg_bytes);
        ex->moe_aux = mw_arena_alloc(&ex->arena, (size_t)d->n_experts,
                                     sizeof *ex->moe_aux);
    }
}

void mw_experts_lay_host(struct mw_exec *ex, struct mw_moe_fwd *f)
{
    size_t n_local = (size_t)ex->dims.n_local;
    size_t n = (size_t)ex->dims.n_sources * n_local;
    f->host_leaving = mw_arena_alloc(&ex->arena, (size_t)ex->dims.n_experts,
                                     sizeof *f->host_leaving);
    f->host_arrived = mw_arena_alloc(&ex->arena, n, sizeof *f->host_arrived);
    f->host_first =
        mw_arena_alloc(&ex->arena, n_local + 1, sizeof *f->host_first);
}

void mw_experts_close(struct mw_exec *ex)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    if (ex->moe_near) {
        ops->free(ex->dev, ex->moe_near, ex->moe_bytes);
        ops->free(ex->dev, ex->moe_far, ex->moe_bytes);
        ops->free(ex->dev, ex->moe_out, ex->moe_bytes);
        ops->free(ex->dev, ex->moe_dg, ex->moe_dg_bytes);
    }
}
