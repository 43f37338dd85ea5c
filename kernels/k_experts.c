/*
 * Mixture of experts on one rank: the router, and rows between the order of
 * tokens and the order of experts.
 *
 *   p = softmax(logits); the k largest are chosen (the lower index of equals);
 *   w_j = p_j / s with s the sum of the chosen (Mixtral: Jiang et al., 2024,
 *   section 2.1: a softmax over the chosen logits is the same)
 *
 * Backward, with D = sum_j dw_j w_j:
 *   dp_j = (dw_j - D) / s of the chosen, plus the auxiliary loss's gradient;
 *   dlogit_i = p_i (dp_i - sum_j dp_j p_j)
 *
 * The gate of a shared expert: the output times sigmoid of one logit a row
 * (Qwen2-MoE: Yang et al., Qwen2 technical report, 2024, section 2.2.2).
 */
#include "kernels/kernels.h"

#include <math.h>
#include <stdbool.h>

static void softmax_row(float *p, int n)
{
    float max = p[0], sum = 0.0f;
    for (int i = 1; i < n; i++) {
        max = p[i] > max ? p[i] : max;
    }
    for (int i = 0; i < n; i++) {
        p[i] = expf(p[i] - max);
        sum += p[i];
    }
    for (int i = 0; i < n; i++) {
        p[i] /= sum;
    }
}

static bool is_taken(const int32_t *choice, int n, int i)
{
    for (int j = 0; j < n; j++) {
        if (choice[j] == i) {
            return true;
        }
    }
    return false;
}

/* Returns the sum of the chosen probabilities. */
static float choose(const float *p, int32_t *choice, int n, int k)
{
    float sum = 0.0f;
    for (int j = 0; j < k; j++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            if ((best < 0 || p[i] > p[best]) && !is_taken(choice, j, i)) {
                best = i;
            }
        }
        choice[j] = best;
        sum += p[best];
    }
    return sum;
}

void mw_k_route_fwd(float *p, int32_t *choice, float *weight, int rows, int n,
                    int k)
{
    for (int r = 0; r < rows; r++, p += n, choice += k, weight += k) {
        softmax_row(p, n);
        float sum = choose(p, choice, n, k);
        for (int j = 0; j < k; j++) {
            weight[j] = p[choice[j]] / sum;
        }
    }
}

void mw_k_route_bwd(float *dlogits, const float *dweight, const float *p,
                    const int32_t *choice, const float *weight,
                    const float *aux, int rows, int n, int k)
{
    for (int r = 0; r < rows; r++) {
        float sum = 0.0f, mean = 0.0f, dot = 0.0f;
        for (int j = 0; j < k; j++) {
            sum += p[choice[j]];
            mean += dweight[j] * weight[j];
        }
        for (int i = 0; i < n; i++) {
            dlogits[i] = aux[i];
        }
        for (int j = 0; j < k; j++) {
            dlogits[choice[j]] += (dweight[j] - mean) / sum;
        }
        for (int i = 0; i < n; i++) {
            dot += dlogits[i] * p[i];
        }
        for (int i = 0; i < n; i++) {
            dlogits[i] = p[i] * (dlogits[i] - dot);
        }
        dlogits += n;
        p += n;
        dweight += k;
        choice += k;
        weight += k;
    }
}

void mw_k_route_sort(const struct mw_k_sort *a)
{
    int64_t begin = 0;
    for (int e = 0; e < a->n; e++) {
        a->leaving[e] = 0;
    }
    for (int i = 0; i < a->n_sent; i++) {
        a->leaving[a->choice[i]]++;
    }
    for (int e = 0; e < a->n; e++) { /* where the next one goes */
        int64_t n = a->leaving[e];
        a->leaving[e] = begin;
        begin += n;
    }
    for (int i = 0; i < a->n_sent; i++) {
        int32_t at = (int32_t)a->leaving[a->choice[i]]++;
        a->place[i] = at;
        a->from[at] = i / a->k;
    }
    for (int e = a->n - 1; e > 0; e--) { /* ends into numbers */
        a->leaving[e] -= a->leaving[e - 1];
    }
}

void mw_k_route_order(const struct mw_k_order *a)
{
    int32_t t = 0;
    for (int e = 0; e < a->n_local; e++) {
        int32_t at = 0;
        a->first[e] = t;
        for (int i = 0; i < a->n_sources * a->n_local; i++) {
            int32_t n = (int32_t)a->arrived[i];
            for (int32_t r = 0; i % a->n_local == e && r < n; r++) {
                a->home[at + r] = t;
                a->order[t++] = at + r;
            }
            at += n;
        }
    }
    a->first[a->n_local] = t;
}

void mw_k_rows_gather(float *dst, const float *src, const int32_t *from,
                      int rows, int width)
{
    for (int r = 0; r < rows; r++) {
        const float *s = src + (size_t)from[r] * (size_t)width;
        float *d = dst + (size_t)r * (size_t)width;
        for (int i = 0; i < width; i++) {
            d[i] = s[i];
        }
    }
}

void mw_k_rows_combine(float *y, const float *x, const int32_t *place,
                       const float *weight, const float *residual, int rows,
                       int k, int width)
{
    for (int r = 0; r < rows; r++) {
        float *out = y + (size_t)r * (size_t)width;
        for (int i = 0; i < width; i++) {
            out[i] = residual ? residual[(size_t)r * (size_t)width + (size_t)i]
                              : 0.0f;
        }
        for (int j = 0; j < k; j++) {
            int at = r * k + j;
            const float *s = x + (size_t)place[at] * (size_t)width;
            float w = weight ? weight[at] : 1.0f;
            for (int i = 0; i < width; i++) {
                out[i] += w * s[i];
            }
        }
    }
}

void mw_k_rows_combine_bwd(float *dx, float *dweight, const float *dy,
                           const float *x, const int32_t *place,
                           const float *weight, int rows, int k, int width)
{
    for (int at = 0; at < rows * k; at++) {
        const float *g = dy + (size_t)(at / k) * (size_t)width;
        const float *s = x + (size_t)place[at] * (size_t)width;
        float *d = dx + (size_t)place[at] * (size_t)width;
        float dot = 0.0f;
        for (int i = 0; i < width; i++) {
            dot += g[i] * s[i];
            d[i] = weight[at] * g[i];
        }
        dweight[at] = dot;
    }
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

void mw_k_rows_gate(float *y, const float *x, const float *logit, int rows,
                    int width)
{
    for (int r = 0; r < rows; r++) {
        const float *s = x + (size_t)r * (size_t)width;
        float *out = y + (size_t)r * (size_t)width, p = sigmoid(logit[r]);
        for (int i = 0; i < width; i++) {
            out[i] += p * s[i];
        }
    }
}

void mw_k_rows_gate_bwd(float *dx, float *dlogit, const float *dy,
                        const float *x, const float *logit, int rows, int width)
{
    for (int r = 0; r < rows; r++) {
        size_t at = (size_t)r * (size_t)width;
        float p = sigmoid(logit[r]), dot = 0.0f;
        for (int i = 0; i < width; i++) {
            dot += dy[at + (size_t)i] * x[at + (size_t)i];
            dx[at + (size_t)i] = p * dy[at + (size_t)i];
        }
        dlogit[r] = p * (1.0f - p) * dot;
    }
}
