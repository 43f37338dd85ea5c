/*
 * Two ranks, each with a core: the same checks, what verification must catch,
 * what the executor refuses, and that a slowed kernel shows on the virtual
 * clock.
 */
#include "matrix.h"

#include "sim/plan/plan.h"

#include <math.h>
#include <string.h>

static struct mw_comm *world;

static void every_dimension(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 2, .pp = 1, .dp = 1},
        {.tp = 1, .pp = 2, .dp = 1},
        {.tp = 1, .pp = 1, .dp = 2},
        {.tp = 1, .pp = 1, .dp = 2, .zero = 1, .micro_batch = 4},
        {.tp = 1, .pp = 1, .dp = 2, .bucket = 5000},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 1,
         .dp = 2,
         .zero = 1,
         .bucket = 3001},
        {.tp = 1, .pp = 2, .vpp = 4, .dp = 1, .schedule = "interleaved-1f1b"},
        {.model = MATRIX_LLAMA, .tp = 2, .pp = 1, .dp = 1, .micro_batch = 2},
        {.model = MATRIX_LLAMA, .tp = 1, .pp = 1, .dp = 2},
        {.model = MATRIX_LLAMA, .tp = 1, .pp = 1, .dp = 2, .zero = 2},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 1,
         .dp = 2,
         .zero = 3,
         .micro_batch = 2,
         .recompute = MW_RECOMPUTE_FULL},
        {.tp = 2, .sp = true, .pp = 1, .dp = 1},
        {.model = MATRIX_MOE, .tp = 1, .pp = 2, .dp = 1},
        {.model = MATRIX_MOE, .tp = 1, .pp = 1, .dp = 2},
        {.model = MATRIX_MOE, .tp = 1, .pp = 1, .dp = 2, .ep = 2},
        {.model = MATRIX_MOE, .tp = 2, .sp = true, .pp = 1, .dp = 1, .ep = 2},
        {.model = MATRIX_MOE, .tp = 2, .sp = true, .pp = 1, .dp = 1, .etp = 2},
        {.model = MATRIX_MOE, .tp = 1, .pp = 1, .dp = 2, .ep = 2, .zero = 1},
        {.model = MATRIX_MOE, .tp = 1, .pp = 1, .dp = 2, .ep = 2, .zero = 3},
        {.model = MATRIX_SHARED, .tp = 1, .pp = 2, .dp = 1},
        {.model = MATRIX_SHARED, .tp = 2, .sp = true, .pp = 1, .dp = 1},
        {.tp = 1, .cp = 2, .pp = 1, .dp = 1, .micro_batch = 2},
        {.model = MATRIX_LLAMA, .tp = 1, .cp = 2, .pp = 1, .dp = 1},
        {.tp = 1,
         .cp = 2,
         .cp_form = MW_CP_RING,
         .pp = 1,
         .dp = 1,
         .micro_batch = 2},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .cp = 2,
         .cp_form = MW_CP_RING,
         .pp = 1,
         .dp = 1,
         .recompute = MW_RECOMPUTE_SELECTIVE},
        {.tp = 1, .cp = 2, .cp_form = MW_CP_A2A, .pp = 1, .dp = 1},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .cp = 2,
         .cp_form = MW_CP_A2A,
         .pp = 1,
         .dp = 1,
         .micro_batch = 2,
         .recompute = MW_RECOMPUTE_SELECTIVE},
        {.model = MATRIX_LLAMA,
         .tp = 2,
         .sp = true,
         .pp = 1,
         .dp = 1,
         .micro_batch = 2,
         .recompute = MW_RECOMPUTE_FULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        matrix_verify(world, &cases[i]);
    }
}

static void adapters(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 1, .pp = 2, .dp = 1},
        {.tp = 1, .pp = 2, .dp = 1, .lora_targets = MW_LORA_ATTENTION},
        {.tp = 2, .pp = 1, .dp = 1},
        {.model = MATRIX_LLAMA, .tp = 2, .sp = true, .pp = 1, .dp = 1},
        {.model = MATRIX_LLAMA, .tp = 1, .pp = 1, .dp = 2, .zero = 3},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 2,
         .dp = 1,
         .schedule = "zb-h1",
         .recompute = MW_RECOMPUTE_FULL},
        {.model = MATRIX_MOE, .tp = 1, .pp = 1, .dp = 2, .ep = 2, .zero = 1},
        {.model = MATRIX_MOE,
         .tp = 1,
         .pp = 2,
         .dp = 1,
         .lora_targets = MW_LORA_ATTENTION},
        {.model = MATRIX_SHARED, .tp = 2, .sp = true, .pp = 1, .dp = 1},
        {.model = MATRIX_SHARED, .tp = 1, .pp = 2, .dp = 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct matrix_case c = cases[i];
        c.lora_rank = 4;
        matrix_verify(world, &c);
    }
}

/* Recomputed activations are the same bits: pipelines stay equal to the
 * reference, which recomputes nothing. With W apart from B (zb-h1) too. */
static void recomputation_changes_no_bit(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 1, .pp = 2, .dp = 1, .recompute = MW_RECOMPUTE_SELECTIVE},
        {.tp = 1, .pp = 2, .dp = 1, .recompute = MW_RECOMPUTE_FULL},
        {.tp = 1,
         .pp = 2,
         .dp = 1,
         .recompute = MW_RECOMPUTE_FULL,
         .schedule = "zb-h1"},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 2,
         .vpp = 2,
         .dp = 1,
         .recompute = MW_RECOMPUTE_FULL,
         .schedule = "zb-v"},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 2,
         .dp = 1,
         .recompute = MW_RECOMPUTE_SELECTIVE,
         .schedule = "zb-h1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        matrix_verify(world, &cases[i]);
    }
}

/* ---- verification must fail -------------------------------------------------
 */
struct opened {
    struct mw_scenario scenario;
    struct mw_plan plan;
    struct mw_job job;
    struct mw_dev *dev;
    struct mw_rec rec;
    struct mw_exec ex;
    struct mw_reference ref;
    struct mw_err err;
};

static void open_case(struct opened *o, int tp, int pp)
{
    struct mw_layout l;
    memset(o, 0, sizeof *o);
    mw_layout_default(&l);
    l.tp = tp;
    l.pp = pp;
    assert_int_equal(mw_scenario_load("matrix-0-2.yaml", &o->scenario, &o->err),
                     MW_OK);
    assert_int_equal(mw_plan_make(&o->scenario, &l, NULL, &o->plan, &o->err),
                     MW_OK);
    mw_job_from_plan(&o->job, &o->scenario, &o->plan);
    assert_int_equal(mw_dev_host.open(0, &o->dev, &o->err), MW_OK);
    mw_rec_init(&o->rec, o->dev);
    assert_int_equal(
        mw_exec_open(&o->ex, &o->job, world, o->dev, &o->rec, &o->err), MW_OK);
    assert_int_equal(
        mw_reference_open(&o->ref, &o->job, world, &mw_dev_host, &o->err),
        MW_OK);
}

static void close_case(struct opened *o)
{
    mw_reference_close(&o->ref);
    mw_exec_close(&o->ex);
    mw_rec_release(&o->rec);
    mw_dev_host.close(o->dev);
    mw_plan_release(&o->plan);
    mw_scenario_release(&o->scenario);
}

static void wrong_gradient_is_found(void **state)
{
    (void)state;
    struct opened o;
    struct mw_verdict v = {.is_right = true, .error = -1.0};
    double loss;
    open_case(&o, 1, 2);
    assert_int_equal(mw_exec_walk(&o.ex), MW_OK);
    assert_int_equal(mw_exec_reduce_gradients(&o.ex), MW_OK);
    assert_int_equal(mw_exec_loss(&o.ex, &loss), MW_OK);
    const struct mw_slice *s =
        mw_shards_find(&o.ex.shards, "mlp.fc1.weight", 5);
    if (s) { /* layer 5 is on the second stage: one bit of one element */
        float *g = &o.ex.g[s->offset + 17];
        *g = nextafterf(*g, 1.0f);
    }
    assert_int_equal(mw_verify_step(&o.ex, &o.ref, loss, &v), MW_OK);
    assert_false(v.is_right);
    assert_string_equal(v.tensor, "layer 5 mlp.fc1.weight");
    assert_int_equal(v.rank, 1);
    assert_true(v.error > 0.0 && v.error < 1e-5);
    close_case(&o);
}

static void not_a_number_is_found(void **state)
{
    (void)state;
    struct opened o;
    struct mw_verdict v = {.is_right = true, .error = -1.0};
    double loss;
    open_case(&o, 2, 1);
    assert_int_equal(mw_exec_walk(&o.ex), MW_OK);
    assert_int_equal(mw_exec_reduce_gradients(&o.ex), MW_OK);
    assert_int_equal(mw_exec_loss(&o.ex, &loss), MW_OK);
    if (world->rank == 0) {
        o.ex.g[3] = NAN;
    }
    assert_int_equal(mw_verify_step(&o.ex, &o.ref, loss, &v), MW_OK);
    assert_false(v.is_right);
    assert_int_equal(v.rank, 0);
    close_case(&o);
}

static void wrong_loss_is_found(void **state)
{
    (void)state;
    struct opened o;
    struct mw_verdict v = {.is_right = true, .error = -1.0};
    double loss;
    open_case(&o, 1, 2);
    assert_int_equal(mw_exec_walk(&o.ex), MW_OK);
    assert_int_equal(mw_exec_loss(&o.ex, &loss), MW_OK);
    assert_int_equal(mw_exec_reduce_gradients(&o.ex), MW_OK);
    assert_int_equal(mw_verify_step(&o.ex, &o.ref, loss * 1.0001, &v), MW_OK);
    assert_false(v.is_right);
    assert_string_equal(v.tensor, "loss");
    close_case(&o);
}

/* ---- refusals ----------------------------------------------------------- */
static void wrong_number_of_ranks(void **state)
{
    (void)state;
    const struct mw_drive_opts opts = {.steps = 1};
    const struct matrix_case c = {.tp = 2, .pp = 2, .dp = 1, .ranks = 4};
    struct mw_drive_result r;
    struct mw_err err = {0};
    assert_int_equal(matrix_run(world, &c, &opts, &r, &err), MW_EUSAGE);
    assert_non_null(strstr(err.text, "needs 4 ranks"));
    mw_drive_result_release(&r);
}

static void missing_plan(void **state)
{
    (void)state;
    const struct mw_drive_opts opts = {
        .plan = "nothing.yaml", .backend = "host", .steps = 1};
    struct mw_drive_result r;
    struct mw_err err = {0};
    assert_int_equal(mw_drive_run(&opts, world, &r, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "nothing.yaml"));
    mw_drive_result_release(&r);
}

static void cuda_without_a_module(void **state)
{
    (void)state;
    const struct mw_dev_ops *ops = NULL;
    struct mw_err err = {0};
    assert_int_equal(mw_dev_find("cuda", MW_FP32, &ops, &err), MW_EMISSING);
    assert_non_null(strstr(err.text, "cuda backend is not available"));
}

/* ---- slowing ------------------------------------------------------------ */
static double virtual_step(const struct mw_slow *slow)
{
    const struct matrix_case c = {.tp = 1, .pp = 2, .dp = 1, .micro_batch = 4};
    struct mw_drive_opts opts = {.steps = 12};
    struct mw_drive_result r;
    struct mw_err err = {0};
    opts.slow = *slow;
    assert_int_equal(matrix_run(world, &c, &opts, &r, &err), MW_OK);
    double step_s = r.virtual_step_time_s;
    mw_drive_result_release(&r);
    return step_s;
}

/* Attention is a large part of this small model; three times as slow must
 * show, on the clock that a busy machine does not stretch. */
static void slow_kernel_shows(void **state)
{
    (void)state;
    struct mw_slow slow = {{0}};
    double plain_s = virtual_step(&slow);
    slow.factor[MW_OP_ATTENTION] = 4.0;
    assert_true(virtual_step(&slow) > 1.2 * plain_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dimension),
        cmocka_unit_test(adapters),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(wrong_gradient_is_found),
        cmocka_unit_test(not_a_number_is_found),
        cmocka_unit_test(wrong_loss_is_found),
        cmocka_unit_test(wrong_number_of_ranks),
        cmocka_unit_test(missing_plan),
        cmocka_unit_test(cuda_without_a_module),
        cmocka_unit_test(slow_kernel_shows),
    };
    matrix_begin(&world);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_end(world);
    return failed;
}
