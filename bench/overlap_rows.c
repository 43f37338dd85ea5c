/*
 * Measurements of communication beside computation, each next to what the
 * mechanism says (sim/step/contend.c, hide.c), as Markdown (docs/overlap.md).
 *
 *   overlap_rows [HWDB]
 *
 * "Alone" is the same with hidden communication taking nothing from the work
 * beside it. Sources of the measurements stand in the page; none of them is
 * fitted on, but torchtitan's rows, which are among those of the constants.
 */
#include "base/log.h"
#include "sim/coll/coll_library.h"
#include "sim/step/step.h"
#include "sim/step/step_int.h"

#include <stdio.h>
#include <string.h>

struct world {
    struct mw_hwdb *db;
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
};

static bool open_world(struct world *w, const struct mw_hwdb *db,
                       const char *text, const char *stack)
{
    struct mw_err err = {0};

    if (mw_scenario_parse("row", text, strlen(text), &w->s, &err) != MW_OK ||
        mw_cost_ctx_init(&w->ctx, db, w->s.cluster.system, w->s.cluster.n_nodes,
                         w->s.cluster.gpus_per_node, &err) != MW_OK ||
        mw_cost_ctx_set_stack(&w->ctx, stack, &err) != MW_OK) {
        mw_log(MW_LOG_ERROR, "overlap", "%s", err.text);
        return false;
    }
    return true;
}

static double step_s(const struct world *w, const struct mw_layout *l)
{
    double time_s = 0;
    struct mw_err err = {0};

    if (mw_step_estimate(&w->s, l, NULL, &w->ctx, &time_s, NULL, &err) !=
        MW_OK) {
        mw_log(MW_LOG_ERROR, "overlap", "%s", err.text);
    }
    return time_s;
}

/* ---- attention in a ring ---------------------------------------------------
 */
/* Cores of a layer's passes and what goes with them: merging, exchanges that
 * show, and the time that those beside them cost. */
static double attention_s(const struct world *w, const struct mw_layout *l,
                          int n_passes, bool contends)
{
    static const enum mw_phase phases[] = {MW_PHASE_F, MW_PHASE_B};
    struct mw_cost_ctx ctx = w->ctx;
    struct mw_step_price p;
    struct mw_ops ops = {NULL, 0, 0};
    double sum = 0;

    ctx.stack.contends = contends;
    mw_step_price_begin(&p, &w->s, l, &ctx);
    mw_step_price_units(&p, NULL);
    for (int i = 0; i < n_passes; i++) {
        const struct mw_phase_cost *c = &p.cost[MW_UNIT_DENSE].phase[phases[i]];

        sum += c->slowed_s + c->ring_s;
        mw_step_unit_ops(&p, MW_UNIT_DENSE, phases[i], &ops);
    }
    for (size_t i = 0; i < ops.n; i++) {
        const struct mw_op *op = &ops.v[i];

        if (op->kind == MW_OP_ATTENTION || strcmp(op->name, "cp_merge") == 0) {
            sum += mw_op_times(op) * mw_cost_op(&ctx, op, NULL).time_s;
        }
    }
    mw_array_release(&ops);
    return sum;
}

static bool print_rings(const struct mw_hwdb *db)
{
    static const struct {
        const char *system, *what;
        int n_passes;
        double measured;
    } rows[] = {{"dgx-h100", "H800, forward", 1, 0.853},
                {"dgx-h100", "H800, forward and backward", 2, 0.902},
                {"dgx-a100", "A100, forward and backward", 2, 0.898}};

    printf("## Attention in a ring\n\n"
           "Eight devices of a node, 65,536 causal tokens in zigzag pieces, "
           "the heads of Llama-3.1\n8B: rate over that of one device on an "
           "eighth of the work (zhuzilin/ring-flash-attention,\nREADME at "
           "01c8baf5ea). Predicted for a DGX H100 and A100.\n\n"
           "| | measured | predicted | alone |\n|---|--:|--:|--:|\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        struct world w;
        struct mw_layout ring, whole;

        snprintf(text, sizeof text,
                 "format: 1\nname: ring\nmodel: llama3-8b\n"
                 "cluster: {system: %s, nodes: 1}\n"
                 "workload: {seq: 65536, global_batch: 8}\n",
                 rows[i].system);
        if (!open_world(&w, db, text, "plain")) {
            return false;
        }
        mw_layout_default(&ring);
        ring.cp = 8;
        whole = ring;
        ring.cp_form = MW_CP_RING;
        double ideal_s = attention_s(&w, &whole, rows[i].n_passes, false);

        printf("| %s | %.3f | %.3f | %.3f |\n", rows[i].what, rows[i].measured,
               ideal_s / attention_s(&w, &ring, rows[i].n_passes, true),
               ideal_s / attention_s(&w, &ring, rows[i].n_passes, false));
        mw_scenario_release(&w.s);
    }
    return true;
}

/* ---- asynchronous tensor parallelism ---------------------------------------
 */
static bool print_async(const struct mw_hwdb *db)
{
    static const struct {
        const char *what, *work, *stack, *async;
        double vanilla_s, async_s;
    } rows[] = {
        {"bf16, 2025-06", "dtype: bf16", "torchtitan", "torchtitan-async",
         27.43, 25.113},
        {"float8, a scale a tensor, 2025-06", "dtype: fp8, fp8_scaling: tensor",
         "torchtitan", "torchtitan-async", 20.232, 17.385},
        {"float8, a scale a row, 2025-06", "dtype: fp8, fp8_scaling: row",
         "torchtitan", "torchtitan-async", 27.325, 26.223},
        {"float8, a scale a tensor, 2024-12", "dtype: fp8, fp8_scaling: tensor",
         "torchtitan-2024", "torchtitan-async-2024", 19.764, 18.703}};

    printf("\n## Asynchronous tensor parallelism\n\n"
           "torchtitan, Llama-3 70B on 256 H100, tp 8, micro-batches of 16, "
           "full recomputation\n(benchmarks/asyncTP_llama3_h100_2025-06_"
           "torchtitan.md and llama3_h100_202412_torchtitan.md\n"
           "at b5bcd76c66): step time without over step time with it. "
           "Predicted for DGX H100.\n\n"
           "| | measured | predicted | alone |\n|---|--:|--:|--:|\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        struct world off, on;
        struct mw_layout l;

        snprintf(text, sizeof text,
                 "format: 1\nname: async\nmodel: llama3-70b\n"
                 "cluster: {system: dgx-h100, nodes: 32}\n"
                 "workload: {seq: 8192, global_batch: 512, %s}\n",
                 rows[i].work);
        if (!open_world(&off, db, text, rows[i].stack) ||
            !open_world(&on, db, text, rows[i].async)) {
            return false;
        }
        mw_layout_default(&l);
        l.tp = 8;
        l.sp = true;
        l.dp = 32;
        l.zero = 3;
        l.micro_batch = 16;
        l.recompute = MW_RECOMPUTE_FULL;
        double with = step_s(&off, &l) / step_s(&on, &l);

        off.ctx.stack.contends = on.ctx.stack.contends = false;
        on.ctx.stack.chunks_tp = false;
        printf("| %s | %.3f | %.3f | %.3f |\n", rows[i].what,
               rows[i].vanilla_s / rows[i].async_s, with,
               step_s(&off, &l) / step_s(&on, &l));
        mw_scenario_release(&off.s);
        mw_scenario_release(&on.s);
    }
    return true;
}

/* ---- data parallelism ------------------------------------------------------
 */
static bool print_data(const struct mw_hwdb *db)
{
    static const char text[] = "format: 1\nname: megascale\nmodel: gpt3-175b\n"
                               "cluster: {system: dgx-a100, nodes: 32}\n"
                               "workload: {seq: 2048, global_batch: 256}\n";
    struct world w;
    struct mw_layout l;
    double ratio[2];

    if (!open_world(&w, db, text, "megatron-core")) {
        return false;
    }
    mw_layout_default(&l);
    l.tp = 8;
    l.sp = true;
    l.pp = 8;
    l.vpp = 6;
    l.dp = 4;
    l.zero = 1;
    l.schedule = "interleaved-1f1b";
    for (int i = 0; i < 2; i++) {
        w.ctx.stack.contends = i == 0;
        l.overlap_off = MW_OVERLAP_GRADS | MW_OVERLAP_PARAMS;
        ratio[i] = step_s(&w, &l);
        l.overlap_off = 0;
        ratio[i] /= step_s(&w, &l);
    }
    printf("\n## Gradients and parameters\n\n"
           "MegaScale's ablation (Jiang et al., NSDI 2024, table 3): GPT of "
           "175B on 256 A100, tp 8,\npp 8 of 6 chunks: MFU 59.5 %% with data "
           "parallelism overlapped over 58.0 %% without.\nPredicted for DGX "
           "A100 and Megatron-Core's buckets.\n\n"
           "| | measured | predicted | alone |\n|---|--:|--:|--:|\n"
           "| overlapped | %.3f | %.3f | %.3f |\n",
           59.5 / 58.0, ratio[0], ratio[1]);
    mw_scenario_release(&w.s);
    return true;
}

int main(int argc, char **argv)
{
    struct mw_hwdb *db;
    struct mw_err err = {0};

    if (mw_hwdb_load(argc > 1 ? argv[1] : NULL, &db, &err) != MW_OK) {
        mw_log(MW_LOG_ERROR, "overlap", "%s", err.text);
        return 3;
    }
    mw_coll_library_lend(db);
    printf("# Communication beside computation\n\n"
           "Generated: `cmake --build BUILD --target overlap-rows` "
           "(`bench/overlap_rows.c`). The\nmechanism is that of "
           "[step.md](step.md). *Alone*: hidden communication takes "
           "nothing\nfrom the work beside it, and products are not cut.\n\n");
    bool is_done = print_rings(db) && print_async(db) && print_data(db);

    mw_hwdb_free(db);
    return is_done ? 0 : 3;
}
