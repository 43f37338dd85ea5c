/*
 * Optimizers that do not treat all elements alike (sim/model/optimizer.h):
 * what tensors have beyond the state of a large matrix's elements, and Muon's
 * orthogonalisation. Of a matrix with a rows and b columns, a <= b, each of
 * five Newton-Schulz steps on X (Jordan, "Muon", 2024; Megatron-LM
 * --muon-num-ns-steps) makes
 *
 *   A = X X^T       2 a a b FLOPs
 *   B = A A         2 a a a
 *   X = B X + ...   2 a a b
 *
 * in bf16, one matrix after the other, a query, key and value apart (--muon-
 * split-qkv), on the part that a tensor-parallel rank has (--muon-tp-mode
 * blockwise). X is written as bf16 from the momentum, read for its norm, and
 * read for the update. Left out: the other modes of tensor parallelism, kernels
 * for symmetric products.
 */
#include "sim/step/step_int.h"

#include <math.h>
#include <string.h>

enum { STEPS = 5, PRODUCTS = 3 };
static const double bf16_bytes = 2;

static double product_s(const struct mw_step_price *p, double m, double n,
                        double k)
{
    const struct mw_op op = {.kind = MW_OP_GEMM,
                             .pass = MW_PASS_F,
                             .name = "orthogonalise",
                             .m = (int64_t)m,
                             .n = (int64_t)n,
                             .k = (int64_t)k,
                             .batch = 1,
                             .dtype = MW_BF16,
                             .flops = 2 * m * n * k,
                             .bytes = bf16_bytes * (m * k + n * k + m * n)};

    return mw_cost_op(p->ctx, &op, NULL).time_s + p->ctx->stack.op_gap_s;
}

/* One matrix. The host may be slower than the device. */
static double matrix_s(const struct mw_step_price *p, double rows, double cols)
{
    double a = fmin(rows, cols), b = fmax(rows, cols);
    const struct mw_op cast = {.kind = MW_OP_OPTIMIZER,
                               .pass = MW_PASS_F,
                               .name = "momentum in bf16",
                               .m = (int64_t)(a * b),
                               .n = 1,
                               .batch = 1,
                               .dtype = MW_BF16,
                               .bytes = 3 * bf16_bytes * a * b};
    double step_s =
        product_s(p, a, a, b) + product_s(p, a, a, a) + product_s(p, a, b, a);
    double device_s = mw_cost_op(p->ctx, &cast, NULL).time_s +
                      p->ctx->stack.op_gap_s + STEPS * step_s;

    return fmax(device_s, (1 + STEPS * PRODUCTS) * p->ctx->stack.host_op_s);
}

/* Query, key and value are matrices of their own, gate and up are one. */
static double pieces_of(const struct mw_param *shard)
{
    return strncmp(shard->name, "attn.", 5) == 0 ? (double)shard->outer : 1;
}

static void count_muon(const struct mw_step_price *p,
                       const struct mw_param *shard, struct mw_unit_size *size)
{
    double pieces = pieces_of(shard);
    double one_s =
        matrix_s(p, (double)shard->outer * (double)shard->rows / pieces,
                 (double)shard->cols);
    double all_s = one_s * pieces * (double)shard->n_copies;

    *(shard->shard == MW_SHARD_EXPERT ? &size->expert_muon_s
                                      : &size->dense_muon_s) += all_s;
    size->longest_muon_s = fmax(size->longest_muon_s, pieces * one_s);
}

void mw_step_count_update(const struct mw_step_price *p,
                          const struct mw_param *param,
                          struct mw_unit_size *size)
{
    const struct mw_optimizer *o = &p->optimizer;

    if (mw_optimizer_is_uniform(o)) {
        return;
    }
    struct mw_param shard = mw_param_shard_of(param, p->layout);

    *(param->shard == MW_SHARD_EXPERT ? &size->expert_state_bytes
                                      : &size->dense_state_bytes) +=
        mw_optimizer_more_bytes(o, &shard);
    if (mw_optimizer_is_muon_matrix(o, &shard)) {
        count_muon(p, &shard, size);
    }
}

bool mw_step_reduces_whole(const struct mw_step_price *p)
{
    return p->layout->zero == 0 || p->optimizer.kind == MW_OPTIMIZER_MUON;
}

struct mw_step_update mw_step_update_of(const struct mw_step_price *p,
                                        const int n_units[MW_UNIT_COUNT],
                                        bool has_tied_twin)
{
    const struct mw_optimizer *o = &p->optimizer;
    double bytes[2] = {0, 0}, muon_s[2] = {0, 0}, longest_s = 0;

    if (mw_optimizer_is_uniform(o)) {
        return (struct mw_step_update){0, 0};
    }
    for (int unit = 0; unit < p->n_kinds; unit++) {
        const struct mw_unit_size *size = &p->size[unit];
        double n = n_units[unit];

        bytes[0] += n * size->dense_state_bytes;
        bytes[1] += n * size->expert_state_bytes;
        muon_s[0] += n * size->dense_muon_s;
        muon_s[1] += n * size->expert_muon_s;
        longest_s = n > 0 ? fmax(longest_s, size->longest_muon_s) : longest_s;
    }
    int copies = has_tied_twin && p->work.lora_rank == 0
                     ? mw_step_copies_held(p, n_units)
                     : 0;

    if (copies > 0) {
        struct mw_param table = mw_step_tied_param(p);

        table = mw_param_shard_of(&table, p->layout);
        bytes[0] += copies * mw_optimizer_more_bytes(o, &table);
    }
    if (p->layout->zero == 0) {
        return (struct mw_step_update){bytes[0] + bytes[1],
                                       muon_s[0] + muon_s[1]};
    }
    return (struct mw_step_update){
        mw_step_share(p, bytes[0], bytes[1]),
        fmax(longest_s, mw_step_share(p, muon_s[0], muon_s[1]))};
}
