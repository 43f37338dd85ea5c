/* See emulated.h. */
#include "tests/shim/emulated.h"

#include "base/mem.h"
#include "base/rand.h"

#include <math.h>
#include <string.h>

static const double bf16_step = 1.0 / 256.0;

size_t elem_bytes(enum mw_k_elem e)
{
    return e == MW_K_F32 ? 4 : 2;
}

float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    u += 0x7fffu + ((u >> 16) & 1u);
    return (uint16_t)(u >> 16);
}

void *typed(float *x, size_t n, enum mw_k_elem e)
{
    char *p = mw_calloc(n, elem_bytes(e));
    for (size_t i = 0; i < n; i++) {
        uint16_t b = to_bf16(x[i]);
        if (e == MW_K_BF16) {
            x[i] = from_bits((uint32_t)b << 16);
        }
        memcpy(p + i * elem_bytes(e), e == MW_K_F32 ? (void *)&x[i] : &b,
               elem_bytes(e));
    }
    return p;
}

static float *floats(const void *p, size_t n, enum mw_k_elem e)
{
    float *x = mw_calloc(n, sizeof *x);
    const char *c = p;
    for (size_t i = 0; i < n; i++) {
        uint16_t b;
        if (e == MW_K_F32) {
            memcpy(&x[i], c + 4 * i, 4);
        } else {
            memcpy(&b, c + 2 * i, 2);
            x[i] = from_bits((uint32_t)b << 16);
        }
    }
    return x;
}

float *randoms(size_t n, uint64_t stream)
{
    float *x = mw_calloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        uint64_t r = mw_rand_u64(7, stream, i) >> 40;
        x[i] = (float)r / (float)(1 << 23) - 1.0f;
    }
    return x;
}

void check_steps(const char *what, const float *want, const void *got, size_t n,
                 enum mw_k_elem e, int n_steps)
{
    float *v = floats(got, n, e);
    double max = 0.0, worst = 0.0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        max = fmax(max, fabs((double)want[i]));
        double d = fabs((double)want[i] - (double)v[i]);
        if (!(d <= worst)) {
            worst = d;
            at = i;
        }
    }
    double allowed =
        (2e-5 + (e == MW_K_BF16 ? n_steps * bf16_step : 0.0)) * max + 1e-7;
    if (!(worst <= allowed)) {
        fail_msg("%s (elem %d): %g at %zu of %zu, expected %g (off by %g, "
                 "allowed %g)",
                 what, (int)e, (double)v[at], at, n, (double)want[at], worst,
                 allowed);
    }
    mw_free(v);
}

void check(const char *what, const float *want, const void *got, size_t n,
           enum mw_k_elem e)
{
    check_steps(what, want, got, n, e, 1);
}

void check_same(void **first, const void *now, size_t bytes, int seed)
{
    if (seed == 0) {
        *first = mw_calloc(bytes, 1);
        memcpy(*first, now, bytes);
    } else {
        assert_memory_equal(*first, now, bytes);
    }
    if (seed == N_SEEDS - 1) {
        mw_free(*first);
        *first = NULL;
    }
}

void free_all(void **p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mw_free(p[i]);
    }
}
