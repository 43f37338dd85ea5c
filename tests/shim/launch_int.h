/*
 * Inside of the stand-in's kernel launchers: a call and how it is queued, and
 * operands as float32 whatever they are stored in.
 */
#ifndef MW_TESTS_LAUNCH_INT_H
#define MW_TESTS_LAUNCH_INT_H

#include "kernels/cuda/cuda_kernels.h"
#include "tests/shim/shim.h"

enum { POINTERS = 10, INTS = 8 };

/* A launch: a function and what it needs, copied when it is queued. */
struct call {
    void (*run)(const struct call *c);
    enum mw_k_elem elem;
    void *p[POINTERS];
    int i[INTS];
    float f[2];
    size_t n;
    struct mw_k_attention attention;
    struct mw_k_queries own; /* n 0: whole sequences */
    struct mw_k_merge merge;
    struct mw_k_adamw adamw;
    struct mw_k_sort sort;
    struct mw_k_order order;
    struct mw_k_groups groups;
    void *in[MW_K_REDUCE_MAX]; /* of mw_k_reduce_cuda */
};

/* Queues a copy of the call; refuses operands that are no device memory. */
int shim_put(const struct call *c, void *stream);
/* n elements of operand `at` as floats: the operand itself, or a copy that
 * `give` writes back and frees, `drop` only frees. */
float *shim_take(const struct call *c, int at, size_t n);
void shim_drop(const struct call *c, float *f);
void shim_give(const struct call *c, int at, float *f, size_t n);
size_t shim_area(int rows, int cols);
void *shim_mutable(const void *p);

#endif
