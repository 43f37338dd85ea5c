/*
 * Causal attention, forward and backward, head by head on sgemm.
 *
 * Queries are taken in blocks of BLOCK rows; a block sees keys 0 .. its last
 * row only, so the work is the causal half plus half a block:
 *
 *        keys 0 ......... q1          S  = Q K^T scale   [block][q1]
 *   q0  |x x x x x|.                  P  = exp(S - lse), 0 past the diagonal
 *       |x x x x x x|                 O  = P V
 *   q1  ------------
 *
 * Backward keeps no probabilities (Dao et al., FlashAttention, 2022, B.2):
 *   dV += P^T dO;  dP = dO V^T;  D = rowsum(dO O);  dS = P (dP - D) scale
 *   dQ = dS K;     dK += dS^T Q
 * Heads of one group add to the same dK and dV, in ascending order.
 *
 * A softmax over keys that come in parts (Milakov and Gimelshein, 2018; Liu et
 * al., Ring Attention, 2023): with L the log of a row's sum of exponentials,
 *   L = log(exp La + exp Lb),  O = exp(La - L) Oa + exp(Lb - L) Ob
 */
#include "kernels/kernels.h"
#include "kernels/fast_math_int.h"

#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { BLOCK = 64 };

/* One head of one sequence: where its rows are and how far apart. */
struct head {
    const float *q, *k, *v;
    float *dq, *dk, *dv;
    float *out, *lse;
    const float *dout, *dots;
    int ld_q, ld_kv, ld_out;
    int seq, dim; /* queries */
    int first;    /* keys that are older than the first query */
    int keys;     /* in all */
    bool adds_dq;
    float scale;
};

static struct head head_at(const struct mw_k_attention *a,
                           const struct mw_k_attention_io *io, int s, int h)
{
    size_t row = (size_t)s * (size_t)a->seq, dim = (size_t)a->head_dim;
    size_t rows = (size_t)a->n_seqs * (size_t)a->seq;
    size_t kv = (size_t)(h / (a->n_heads / a->n_kv_heads));
    int ld_out = a->n_heads * a->head_dim;
    size_t at_q = row * (size_t)a->ld_q + (size_t)h * dim;
    size_t at_kv = row * (size_t)a->ld_kv + kv * dim;
    size_t at_out = row * (size_t)ld_out + (size_t)h * dim;
    struct head hd = {.q = io->q + at_q,
                      .k = io->k + at_kv,
                      .v = io->v + at_kv,
                      .out = io->out ? io->out + at_out : NULL,
                      .lse = io->lse + (size_t)h * rows + row,
                      .ld_q = a->ld_q,
                      .ld_kv = a->ld_kv,
                      .ld_out = ld_out,
                      .seq = a->seq,
                      .keys = a->seq,
                      .dim = a->head_dim,
                      .scale = 1.0f / sqrtf((float)a->head_dim)};
    if (io->dout) {
        hd.dout = io->dout + at_out;
        hd.dq = io->dq + at_q;
        hd.dk = io->dk + at_kv;
        hd.dv = io->dv + at_kv;
    }
    return hd;
}

size_t mw_k_attention_scratch(const struct mw_k_attention *a)
{
    int block = a->seq < BLOCK ? a->seq : BLOCK;
    return 2 * (size_t)block * (size_t)a->seq + BLOCK;
}

/* Keys that query i of the block at q0 sees. */
static int visible(const struct head *hd, int q0, int i)
{
    int n = hd->first + q0 + i + 1;
    return n < hd->keys ? n : hd->keys;
}

/* s[n_q][n_k] = q[q0..] k^T scale. */
static void scores(const struct head *hd, float *s, int q0, int n_q, int n_k)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_q, n_k, hd->dim,
                hd->scale, hd->q + (size_t)q0 * (size_t)hd->ld_q, hd->ld_q,
                hd->k, hd->ld_kv, 0.0f, s, n_k);
}

/* Turns scores into probabilities; lse of each row of the block. */
static void softmax_block(const struct head *hd, float *s, int q0, int n_q,
                          int n_k)
{
    float *lse = hd->lse + q0;
    for (int i = 0; i < n_q; i++) {
        float *row = s + (size_t)i * (size_t)n_k;
        int n = visible(hd, q0, i);
        float max = row[0], sum = 0.0f;
        for (int j = 1; j < n; j++) {
            max = row[j] > max ? row[j] : max;
        }
        for (int j = 0; j < n; j++) {
            row[j] = mw_fast_exp(row[j] - max);
        }
        for (int j = 0; j < n; j++) {
            sum += row[j];
        }
        float inv = 1.0f / sum;
        for (int j = 0; j < n; j++) {
            row[j] *= inv;
        }
        memset(row + n, 0, (size_t)(n_k - n) * sizeof *row);
        lse[i] = max + logf(sum);
    }
}

/* Probabilities again from scores and lse. */
static void probabilities(const struct head *hd, float *s, int q0, int n_q,
                          int n_k)
{
    const float *lse = hd->lse + q0;
    for (int i = 0; i < n_q; i++) {
        float *row = s + (size_t)i * (size_t)n_k;
        int n = visible(hd, q0, i);
        for (int j = 0; j < n; j++) {
            row[j] = mw_fast_exp(row[j] - lse[i]);
        }
        memset(row + n, 0, (size_t)(n_k - n) * sizeof *row);
    }
}

static void head_fwd(const struct head *hd, float *scratch)
{
    for (int q0 = 0; q0 < hd->seq; q0 += BLOCK) {
        int n_q = hd->seq - q0 < BLOCK ? hd->seq - q0 : BLOCK;
        int n_k = visible(hd, q0, n_q - 1);
        scores(hd, scratch, q0, n_q, n_k);
        softmax_block(hd, scratch, q0, n_q, n_k);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n_q, hd->dim,
                    n_k, 1.0f, scratch, n_k, hd->v, hd->ld_kv, 0.0f,
                    hd->out + (size_t)q0 * (size_t)hd->ld_out, hd->ld_out);
    }
}

void mw_k_attention_fwd(const struct mw_k_attention *a,
                        const struct mw_k_attention_io *io)
{
    for (int s = 0; s < a->n_seqs; s++) {
        for (int h = 0; h < a->n_heads; h++) {
            struct head hd = head_at(a, io, s, h);
            head_fwd(&hd, io->scratch);
        }
    }
}

/* dS from P (in p) and dP (in dp), in place of dp. d[i] = dO_i . O_i. */
static void score_gradient(float *dp, const float *p, const float *d, int n_q,
                           int n_k, float scale)
{
    for (int i = 0; i < n_q; i++) {
        const float *pr = p + (size_t)i * (size_t)n_k;
        float *dr = dp + (size_t)i * (size_t)n_k;
        for (int j = 0; j < n_k; j++) {
            dr[j] = pr[j] * (dr[j] - d[i]) * scale;
        }
    }
}

static void row_dots(float *d, const float *dout, const float *out, int ld,
                     int n_q, int dim)
{
    for (int i = 0; i < n_q; i++) {
        const float *a = dout + (size_t)i * (size_t)ld;
        const float *b = out + (size_t)i * (size_t)ld;
        float sum = 0.0f;
        for (int j = 0; j < dim; j++) {
            sum += a[j] * b[j];
        }
        d[i] = sum;
    }
}

static void head_bwd(const struct head *hd, float *scratch)
{
    int block = hd->seq < BLOCK ? hd->seq : BLOCK;
    float *p = scratch, *dp = p + (size_t)block * (size_t)hd->keys;
    float *d = dp + (size_t)block * (size_t)hd->keys;
    for (int q0 = 0; q0 < hd->seq; q0 += BLOCK) {
        int n_q = hd->seq - q0 < BLOCK ? hd->seq - q0 : BLOCK;
        int n_k = visible(hd, q0, n_q - 1);
        size_t at_out = (size_t)q0 * (size_t)hd->ld_out;
        size_t at_q = (size_t)q0 * (size_t)hd->ld_q;
        const float *dout = hd->dout + at_out;
        scores(hd, p, q0, n_q, n_k);
        probabilities(hd, p, q0, n_q, n_k);
        if (hd->dots) {
            memcpy(d, hd->dots + q0, (size_t)n_q * sizeof *d);
        } else {
            row_dots(d, dout, hd->out + at_out, hd->ld_out, n_q, hd->dim);
        }
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n_k, hd->dim, n_q,
                    1.0f, p, n_k, dout, hd->ld_out, 1.0f, hd->dv, hd->ld_kv);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_q, n_k, hd->dim,
                    1.0f, dout, hd->ld_out, hd->v, hd->ld_kv, 0.0f, dp, n_k);
        score_gradient(dp, p, d, n_q, n_k, hd->scale);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n_q, hd->dim,
                    n_k, 1.0f, dp, n_k, hd->k, hd->ld_kv,
                    hd->adds_dq ? 1.0f : 0.0f, hd->dq + at_q, hd->ld_q);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n_k, hd->dim, n_q,
                    1.0f, dp, n_k, hd->q + at_q, hd->ld_q, 1.0f, hd->dk,
                    hd->ld_kv);
    }
}

static void clear_rows(float *x, int rows, int width, int ld)
{
    for (size_t r = 0; r < (size_t)rows; r++) {
        memset(x + r * (size_t)ld, 0, (size_t)width * sizeof *x);
    }
}

void mw_k_attention_bwd(const struct mw_k_attention *a,
                        const struct mw_k_attention_io *io)
{
    int rows = a->n_seqs * a->seq, kv_width = a->n_kv_heads * a->head_dim;
    clear_rows(io->dk, rows, kv_width, a->ld_kv);
    clear_rows(io->dv, rows, kv_width, a->ld_kv);
    for (int s = 0; s < a->n_seqs; s++) {
        for (int h = 0; h < a->n_heads; h++) {
            struct head hd = head_at(a, io, s, h);
            head_bwd(&hd, io->scratch);
        }
    }
}

/* ---- a part of a sequence ----------------------------------------------- */
static struct head part_at(const struct mw_k_attention *a,
                           const struct mw_k_queries *own,
                           const struct mw_k_attention_io *io, int h)
{
    struct head hd = head_at(a, io, 0, h);
    hd.lse = io->lse + (size_t)h * (size_t)own->ld_lse;
    hd.dots = own->dots ? own->dots + (size_t)h * (size_t)own->ld_lse : NULL;
    hd.seq = own->n;
    hd.first = own->first;
    hd.adds_dq = own->adds_dq;
    return hd;
}

void mw_k_attention_part_fwd(const struct mw_k_attention *a,
                             const struct mw_k_queries *own,
                             const struct mw_k_attention_io *io)
{
    for (int h = 0; h < a->n_heads; h++) {
        struct head hd = part_at(a, own, io, h);
        head_fwd(&hd, io->scratch);
    }
}

void mw_k_attention_part_bwd(const struct mw_k_attention *a,
                             const struct mw_k_queries *own,
                             const struct mw_k_attention_io *io)
{
    for (int h = 0; h < a->n_heads; h++) {
        struct head hd = part_at(a, own, io, h);
        head_bwd(&hd, io->scratch);
    }
}

void mw_k_attention_dots(const struct mw_k_attention *a,
                         const struct mw_k_queries *own,
                         const struct mw_k_attention_io *io, float *dots)
{
    int ld = a->n_heads * a->head_dim;
    for (int h = 0; h < a->n_heads; h++) {
        int at = h * a->head_dim;
        row_dots(dots + (size_t)h * (size_t)own->ld_lse, io->dout + at,
                 io->out + at, ld, own->n, a->head_dim);
    }
}

/* ---- parts of a softmax -------------------------------------------------- */
void mw_k_attention_merge(const struct mw_k_merge *m, float *out, float *lse,
                          const float *part, const float *part_lse)
{
    size_t dim = (size_t)m->head_dim, width = (size_t)m->n_heads * dim;
    for (size_t h = 0; h < (size_t)m->n_heads; h++) {
        float *a = lse + h * (size_t)m->ld_lse;
        const float *b = part_lse + h * (size_t)m->ld_lse;
        for (size_t r = 0; r < (size_t)m->rows; r++) {
            float max = a[r] > b[r] ? a[r] : b[r];
            float sum = max + logf(expf(a[r] - max) + expf(b[r] - max));
            float keep = expf(a[r] - sum), add = expf(b[r] - sum);
            float *o = out + r * width + h * dim;
            const float *p = part + r * width + h * dim;
            for (size_t i = 0; i < dim; i++) {
                o[i] = keep * o[i] + add * p[i];
            }
            a[r] = sum;
        }
    }
}
