/*
 * What the optimizer keeps of each weight that learns: two moments, and a
 * float32 master where weights are stored in fewer bits. A part of it may lie
 * in the host's memory (layout.offload_optimizer: Ren et al., ZeRO-Offload,
 * 2021): the first elements of the buffer. Of these the gradient comes down
 * piece by piece, the host updates, and the new weight goes up.
 *
 *   state   |------ host: offload x n ------|---------- device ----------|
 *
 * The host's memory is counted apart (mw_dev.host_bytes), the two pinned pieces
 * for gradients and weights on their way included. Left out: an update that
 * runs beside the device.
 */
#include "exec/exec_int.h"

#include <math.h>
#include <string.h>

/* Elements that travel at once. */
enum { PIECE = 1 << 16 };

uint16_t mw_bf16_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u); /* a NaN stays one */
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void mw_weights_up(struct mw_exec *ex, void *dst, const float *src, size_t n)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    if (ex->elem == MW_ELEM_F32) {
        ops->to_device(ex->dev, dst, src, n * sizeof *src);
        return;
    }
    uint16_t *v = mw_calloc(n, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        v[i] = mw_bf16_of(src[i]);
    }
    ops->to_device(ex->dev, dst, v, n * sizeof *v);
    mw_free(v);
}

/* ---- memory -------------------------------------------------------------- */
static bool has_state(const struct mw_exec *ex, int which)
{
    return which != MW_STATE_MASTER || ex->elem != MW_ELEM_F32;
}

static size_t piece_elems(const struct mw_states *s)
{
    return s->n_host < PIECE ? s->n_host : PIECE;
}

void mw_states_open(struct mw_exec *ex)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct mw_states *s = &ex->states;
    double part = ex->job->layout.offload_optimizer;
    s->n = mw_buffer_size(ex, MW_BUFFER_STATE);
    s->n_host = (size_t)(part * (double)s->n);
    for (int i = 0; i < MW_STATES; i++) {
        if (!has_state(ex, i)) {
            continue;
        }
        s->device[i] = ops->alloc(ex->dev, (s->n - s->n_host) * sizeof(float));
        if (s->n_host > 0) {
            s->host[i] = ops->alloc_host(ex->dev, s->n_host * sizeof(float));
        }
    }
    for (int i = 0; i < 2 && s->n_host > 0; i++) {
        s->piece[i] = ops->alloc_host(ex->dev, piece_elems(s) * sizeof(float));
    }
}

void mw_states_close(struct mw_exec *ex)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct mw_states *s = &ex->states;
    for (int i = 0; i < MW_STATES; i++) {
        if (s->device[i]) {
            ops->free(ex->dev, s->device[i],
                      (s->n - s->n_host) * sizeof(float));
        }
        if (s->host[i]) {
            ops->free_host(ex->dev, s->host[i], s->n_host * sizeof(float));
        }
    }
    for (int i = 0; i < 2 && s->piece[i]; i++) {
        ops->free_host(ex->dev, s->piece[i], piece_elems(s) * sizeof(float));
    }
}

/* ---- in and out ---------------------------------------------------------- */
void mw_states_write(struct mw_exec *ex, enum mw_state which, size_t at,
                     const float *src, size_t n)
{
    struct mw_states *s = &ex->states;
    size_t on_host = at < s->n_host ? s->n_host - at : 0;
    on_host = on_host < n ? on_host : n;
    if (on_host > 0) {
        memcpy(s->host[which] + at, src, on_host * sizeof *src);
    }
    if (on_host < n) {
        ex->dev->ops->to_device(ex->dev,
                                s->device[which] + (at + on_host - s->n_host),
                                src + on_host, (n - on_host) * sizeof *src);
    }
}

void mw_states_read(const struct mw_exec *ex, enum mw_state which, float *dst)
{
    const struct mw_states *s = &ex->states;
    if (s->n_host > 0) {
        memcpy(dst, s->host[which], s->n_host * sizeof *dst);
    }
    if (s->n_host < s->n) {
        ex->dev->ops->to_host(ex->dev, dst + s->n_host, s->device[which],
                              (s->n - s->n_host) * sizeof *dst);
    }
}

/* ---- the update ---------------------------------------------------------- */
/* A piece of what lies on the host; weights at w, gradients at g. */
static void update_piece(struct mw_exec *ex, const struct mw_dev_adamw *h,
                         size_t at, void *w, const float *g, size_t n)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct mw_states *s = &ex->states;
    float *grad = s->piece[0], *weight = s->piece[1];
    bool has_master = s->host[MW_STATE_MASTER] != NULL;
    ops->to_host(ex->dev, grad, g, n * sizeof *grad);
    if (has_master) {
        weight = s->host[MW_STATE_MASTER] + at;
    } else {
        ops->to_host(ex->dev, weight, w, n * sizeof *weight);
    }
    mw_adamw_host(h, weight, grad, s->host[MW_STATE_M] + at,
                  s->host[MW_STATE_V] + at, n);
    mw_weights_up(ex, w, weight, n);
}

void mw_states_update(struct mw_exec *ex, const struct mw_dev_adamw *h,
                      size_t at, void *w, const float *g, size_t n)
{
    struct mw_states *s = &ex->states;
    while (n > 0 && at < s->n_host) {
        size_t part = s->n_host - at < n ? s->n_host - at : n;
        part = part < PIECE ? part : PIECE;
        update_piece(ex, h, at, w, g, part);
        w = mw_dev_at(ex->dev, w, part);
        at += part;
        g += part;
        n -= part;
    }
    if (n == 0) {
        return;
    }
    size_t in = at - s->n_host;
    float *master = s->device[MW_STATE_MASTER];
    ex->dev->ops->adamw(ex->dev, h, master ? master + in : w, master ? w : NULL,
                        g, s->device[MW_STATE_M] + in,
                        s->device[MW_STATE_V] + in, n);
}
