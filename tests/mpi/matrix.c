/*
 * The shared part of the MPI tests; see matrix.h. Rank 0 writes the files, a
 * barrier lets the others read them.
 */
#include "matrix.h"

#include "sim/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

/* Clusters of other sizes: one that no test runs on, one for some ranks. */
enum { OTHER_RANKS = 4, SOME_RANKS = 3, STAGES_MAX = 64 };

static const char *const models[MATRIX_MODELS] = {
    [MATRIX_GPT] = "{preset: gpt-small, hidden: 32, heads: 8, head_dim: 4, "
                   "ffn: 64, vocab: 64, max_seq: 16, layers: 8, tied: true}",
    [MATRIX_LLAMA] =
        "{hidden: 32, layers: 8, heads: 8, kv_heads: 4, head_dim: 4, ffn: 48, "
        "vocab: 64, gated: true, norm: rms, position: rotary, activation: "
        "silu, tied: false}",
    [MATRIX_MOE] =
        "{hidden: 32, layers: 8, heads: 8, kv_heads: 4, head_dim: 4, ffn: 48, "
        "vocab: 64, gated: true, norm: rms, position: rotary, activation: "
        "silu, tied: false, moe: {experts: 4, top_k: 2, ffn: 24, every: 2}}",
    [MATRIX_SHARED] =
        "{hidden: 32, layers: 8, heads: 8, kv_heads: 4, head_dim: 4, ffn: 48, "
        "vocab: 64, gated: true, norm: rms, position: rotary, activation: "
        "silu, tied: false, moe: {experts: 4, top_k: 2, ffn: 24, every: 2, "
        "shared: 1, shared_ffn: 40, shared_gate: true}}"};

static void scenario_name(char *out, size_t room, enum matrix_model model,
                          int ranks)
{
    snprintf(out, room, "matrix-%d-%d.yaml", (int)model, ranks);
}

static void write_scenario(enum matrix_model model, int ranks, const char *name,
                           const char *dtype, const char *more)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fprintf(f,
            "format: 1\nname: matrix\nmodel: %s\n"
            "cluster: {system: this-machine, nodes: 1, gpus_per_node: %d}\n"
            "workload: {seq: 16, global_batch: 16, dtype: %s, grad_dtype: "
            "fp32, attention: flash, seed: 7%s}\n",
            models[model], ranks, dtype, more);
    assert_int_equal(fclose(f), 0);
}

static void write_plain(enum matrix_model model, int ranks)
{
    char name[64];
    scenario_name(name, sizeof name, model, ranks);
    write_scenario(model, ranks, name, "fp32", "");
}

/* The case's scenario: one of those, or written for it. */
static void find_scenario(const struct matrix_case *c, int ranks, char *name,
                          size_t room)
{
    char more[96] = "";
    int n = 0;
    scenario_name(name, room, c->model, ranks);
    if (access(name, R_OK) != 0) {
        write_plain(c->model, ranks);
    }
    if (c->lora_rank > 0) {
        n = snprintf(more, sizeof more, ", lora_rank: %d, lora_targets: %s",
                     c->lora_rank,
                     c->lora_targets == MW_LORA_ALL ? "all" : "attention");
    }
    if (c->doc_tokens > 0) {
        snprintf(more + n, sizeof more - (size_t)n, ", doc_tokens: %d",
                 c->doc_tokens);
    }
    if (more[0] != '\0' || c->is_bf16) {
        snprintf(name, room, "matrix-own-%d.yaml", ranks);
        write_scenario(c->model, ranks, name, c->is_bf16 ? "bf16" : "fp32",
                       more);
    }
}

void matrix_begin(struct mw_comm **out_world)
{
    struct mw_err err = {0};
    MPI_Init(NULL, NULL);
    assert_int_equal(mw_comm_mpi_world(out_world, &err), MW_OK);
    if ((*out_world)->rank == 0) {
        for (int m = 0; m < MATRIX_MODELS; m++) {
            write_plain((enum matrix_model)m, (*out_world)->size);
            write_plain((enum matrix_model)m, OTHER_RANKS);
            write_plain((enum matrix_model)m, SOME_RANKS);
        }
    }
    (*out_world)->ops->barrier(*out_world, &err);
}

void matrix_end(struct mw_comm *world)
{
    world->ops->free(world);
    MPI_Finalize();
}

/* Another schedule in the plan, where the case has one. */
static void replace_schedule(const struct matrix_case *c, struct mw_plan *plan)
{
    const struct mw_sched_args args = {.n_stages = c->pp,
                                       .n_microbatches = plan->n_microbatches,
                                       .n_chunks = 1,
                                       .n_parts = c->parts};
    struct mw_err err = {0};
    enum mw_status st = MW_OK;
    if (c->parts || c->lists[0]) {
        mw_schedule_release(&plan->schedule);
        st = c->parts
                 ? mw_schedule_make(c->schedule, &args, &plan->schedule, &err)
                 : mw_schedule_parse(c->lists, c->pp, plan->n_microbatches, 2,
                                     "bidirectional", &plan->schedule, &err);
    }
    if (st != MW_OK) {
        fail_msg("%s", err.text);
    }
}

/* All layers on the stages between the ends. */
static void share_layers(const struct mw_scenario *s, const struct mw_layout *l,
                         int layers[STAGES_MAX])
{
    int n = l->pp * l->vpp, inner = n > 2 ? n - 2 : 1;
    assert_true(n <= STAGES_MAX);
    for (int k = 0; k < n; k++) {
        bool is_end = k == 0 || k == n - 1;
        layers[k] = is_end ? 0
                           : s->model.n_layers / inner +
                                 (k <= s->model.n_layers % inner);
    }
}

/* None of the first stage, one layer of the second, ...; all of a stage where
 * it has no more, and from there as at first. */
static void count_by_stage(const struct mw_scenario *s, struct mw_layout *l,
                           int64_t *counts)
{
    for (int k = 0; k < l->pp * l->vpp; k++) {
        counts[k] = k % (1 + mw_plan_even_share_of(&s->model, l, k));
    }
    l->stage_recompute_layers =
        (struct mw_int_list){counts, (size_t)(l->pp * l->vpp)};
}

void matrix_write(const struct matrix_case *c, int ranks)
{
    char name[64], path[64];
    matrix_plan_name(path, sizeof path, ranks);
    ranks = c->ranks ? c->ranks : ranks;
    struct mw_scenario s;
    struct mw_plan plan;
    struct mw_err err = {0};
    struct mw_layout l;
    find_scenario(c, ranks, name, sizeof name);
    assert_int_equal(mw_scenario_load(name, &s, &err), MW_OK);
    mw_layout_default(&l);
    l.tp = c->tp;
    l.pp = c->pp;
    l.vpp = c->vpp ? c->vpp : 1;
    l.dp = c->dp;
    l.zero = c->zero;
    l.dp_shard = c->dp_shard;
    l.bucket_size = c->bucket;
    l.reshard = !c->keeps_all;
    l.fsdp_unit = c->unit ? c->unit : 1;
    l.sp = c->sp;
    l.cp = c->cp ? c->cp : 1;
    l.ep = c->ep ? c->ep : 1;
    l.etp = c->etp ? c->etp : 1;
    l.cp_form = c->cp_form;
    l.cp_inner = c->cp_inner ? c->cp_inner : 1;
    l.recompute = c->recompute;
    l.recompute_layers = c->recompute_layers;
    l.offload_optimizer = 0.01 * c->offload_pct;
    l.micro_batch = c->micro_batch ? c->micro_batch : 1;
    l.schedule = c->schedule ? c->schedule : "1f1b";
    int64_t counts[STAGES_MAX];
    if (c->is_by_stage) {
        count_by_stage(&s, &l, counts);
    }
    int layers[STAGES_MAX];
    share_layers(&s, &l, layers);
    if (mw_plan_make(&s, &l, c->bare_ends ? layers : NULL, &plan, &err) !=
        MW_OK) {
        fail_msg("%s", err.text);
    }
    replace_schedule(c, &plan);
    assert_int_equal(mw_plan_save(&plan, path, true, &err), MW_OK);
    mw_plan_release(&plan);
    mw_scenario_release(&s);
}

void matrix_plan_name(char *out, size_t room, int ranks)
{
    snprintf(out, room, "matrix-plan-%d.yaml", ranks);
}

enum mw_status matrix_run(struct mw_comm *world, const struct matrix_case *c,
                          const struct mw_drive_opts *opts,
                          struct mw_drive_result *out, struct mw_err *err)
{
    char path[64];
    matrix_plan_name(path, sizeof path, world->size);
    if (world->rank == 0) {
        matrix_write(c, world->size);
    }
    assert_int_equal(world->ops->barrier(world, err), MW_OK);
    struct mw_drive_opts o = *opts;
    o.plan = path;
    o.backend = "host";
    return mw_drive_run(&o, world, out, err);
}

void matrix_describe(const struct matrix_case *c, const char *why, char *out,
                     size_t room)
{
    snprintf(out, room,
             "model %d %s doc %d lora %d offload %d%% tp %d sp %d cp %d %s %d "
             "ep %d etp "
             "%d pp %d x %d dp %d zero %d in %d%s bucket %d unit %d recompute "
             "%s %d%s %s: %s",
             (int)c->model, c->is_bf16 ? "bf16" : "fp32", c->doc_tokens,
             c->lora_rank, c->offload_pct, c->tp, c->sp, c->cp,
             mw_cp_form_name(c->cp_form), c->cp_inner, c->ep, c->etp, c->pp,
             c->vpp, c->dp, c->zero, c->dp_shard, c->keeps_all ? " kept" : "",
             c->bucket, c->unit, mw_recompute_name(c->recompute),
             c->recompute_layers, c->is_by_stage ? " by stage" : "",
             c->schedule ? c->schedule : "1f1b", why);
}

static void fail_case(const struct matrix_case *c, const char *why)
{
    char text[512];
    matrix_describe(c, why, text, sizeof text);
    fail_msg("%s", text);
}

/* Pipelines of whole sequences add in the reference's order. */
bool matrix_is_exact(const struct matrix_case *c)
{
    bool is_parted = c->schedule && strcmp(c->schedule, "seq1f1b") == 0;
    bool has_two_routes =
        c->schedule && mw_schedule_kind_find(c->schedule)->has_two_routes;
    return c->tp == 1 && c->dp == 1 && c->cp <= 1 && !is_parted &&
           !(has_two_routes && c->zero >= 2);
}

void matrix_verify(struct mw_comm *world, const struct matrix_case *c)
{
    const struct mw_drive_opts opts = {.steps = 5, .verify = true};
    struct mw_drive_result r;
    struct mw_err err = {0};
    enum mw_status st = matrix_run(world, c, &opts, &r, &err);
    if (st != MW_OK) {
        fail_case(c, err.text);
    }
    char why[MATRIX_WHY_MAX] = "";
    if (world->rank == 0) {
        matrix_judge(c, world->size, &r, why);
    }
    assert_int_equal(world->ops->broadcast(world, why, sizeof why, 0, &err),
                     MW_OK);
    if (why[0] != '\0') {
        fail_case(c, why);
    }
    assert_true(r.is_verified);
    if (matrix_is_exact(c)) {
        assert_true(r.verdict.max_error == 0.0);
        assert_true(r.verdict.max_loss_error == 0.0);
    } else {
        assert_true(r.verdict.max_error > 0.0); /* it was compared */
    }
    assert_true(r.step_time_s > 0.0 && r.virtual_step_time_s > 0.0);
    mw_drive_result_release(&r);
}
