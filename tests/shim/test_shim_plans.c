/*
 * Whole plans on --backend cuda over the stand-in: the program's own path from
 * dlopen of the module to verified gradients, with NCCL's part played by the
 * stand-in, under several seeds of the stream order.
 *
 * matrix.c runs plans on the host backend; this unit gives it a mw_drive_run
 * that changes the backend (see CMakeLists.txt).
 */
#include "tests/mpi/matrix.h"

#include <string.h>

#include "exec/drive.h"
#include "tests/shim/shim.h"

enum mw_status shim_drive_run(const struct mw_drive_opts *opts,
                              struct mw_comm *world,
                              struct mw_drive_result *out, struct mw_err *err);

static struct mw_comm *world;

enum mw_status shim_drive_run(const struct mw_drive_opts *opts,
                              struct mw_comm *comm, struct mw_drive_result *out,
                              struct mw_err *err)
{
    struct mw_drive_opts o = *opts;
    o.backend = "cuda";
    enum mw_status st = mw_drive_run(&o, comm, out, err);
    if (st == MW_OK) {
        assert_int_equal(shim_live(), 0);
    }
    return st;
}

static void run_cases(const struct matrix_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        shim_seed(16 * i + (uint64_t)world->rank);
        matrix_verify(world, &cases[i]);
    }
}

static void run_texts(const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct matrix_case c = matrix_read(texts[i]);
        run_cases(&c, 1);
    }
}

/* Sequences in parts, adapters, states in the host's memory. */
static void test_two_ranks_split_on(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "llama cp2 ring mb2",  "llama cp2",
        "gpt cp2 a2a",         "llama pp2 seq1f1b",
        "gpt tp2 sp lora4",    "llama dp2 lora4 zero1",
        "gpt pp2 offload100",  "llama dp2 zero1 offload40",
        "llama tp2 offload60",
    };
    if (world->size == 2) {
        run_texts(texts, sizeof texts / sizeof *texts);
    }
}

/* Experts: sent to other ranks, split, with shared ones and adapters. */
static void test_two_ranks_of_experts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "moe dp2 ep2",
        "moe dp2 etp2",
        "moe pp2 x2 interleaved-1f1b full",
        "shared tp2 sp ep2 mb2 zero1 offload50",
        "moe cp2 ring ep2",
        "moe dp2 ep2 lora4",
        "shared bf16 pp2 zb-h1",
        "moe bf16 dp2 etp2 mb2",
        "shared bf16 tp2 sp ep2 zero1",
        "moe bf16 dp2 ep2 zero2 full",
    };
    if (world->size == 2) {
        run_texts(texts, sizeof texts / sizeof *texts);
    }
}

static void test_four_ranks_of_experts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "moe dp4 ep2 etp2",
        "moe cp2 a2a dp2 ep4",
        "shared tp2 sp pp2 ep2 full",
        "moe bf16 dp4 ep2 etp2",
        "shared bf16 pp2 dp2 ep2 zero2 offload50",
    };
    if (world->size == 4) {
        run_texts(texts, sizeof texts / sizeof *texts);
    }
}

static void test_two_ranks_in_bfloat16(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "gpt bf16 pp2",
        "llama bf16 pp2 zb-h1",
        "llama bf16 dp2 zero1",
        "llama bf16 dp2 zero1 bucket3000",
        "llama bf16 dp2 zero2",
        "gpt bf16 tp2 sp",
        "llama bf16 tp2",
        "llama bf16 dp2 zero3",
        "llama bf16 cp2 ring",
        "gpt bf16 cp2 a2a mb2",
        "llama bf16 pp2 seq1f1b",
        "gpt bf16 dp2 lora4",
        "llama bf16 dp2 zero1 offload70",
        "llama bf16 pp2 offload100 full",
    };
    if (world->size == 2) {
        run_texts(texts, sizeof texts / sizeof *texts);
    }
}

static void test_two_ranks(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 2, .pp = 1, .dp = 1},
        {.tp = 1, .pp = 2, .dp = 1},
        {.tp = 1, .pp = 2, .vpp = 4, .dp = 1, .schedule = "interleaved-1f1b"},
        {.tp = 1, .pp = 1, .dp = 2, .zero = 1, .micro_batch = 4},
        {.model = MATRIX_LLAMA, .tp = 2, .pp = 1, .dp = 1, .micro_batch = 2},
        {.model = MATRIX_LLAMA, .tp = 1, .pp = 1, .dp = 2},
        {.tp = 2,
         .sp = true,
         .pp = 1,
         .dp = 1,
         .recompute = MW_RECOMPUTE_SELECTIVE},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 2,
         .dp = 1,
         .recompute = MW_RECOMPUTE_FULL},
    };
    if (world->size == 2) {
        run_cases(cases, sizeof cases / sizeof *cases);
    }
}

static void test_four_ranks(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 2, .pp = 2, .dp = 1, .schedule = "zb-h1"},
        {.tp = 1, .pp = 4, .dp = 1, .schedule = "zb-h1"},
        {.tp = 1, .pp = 4, .vpp = 2, .dp = 1, .schedule = "interleaved-1f1b"},
        {.model = MATRIX_LLAMA, .tp = 1, .pp = 2, .dp = 2, .zero = 1},
        {.model = MATRIX_LLAMA, .tp = 2, .sp = true, .pp = 1, .dp = 2},
    };
    if (world->size == 4) {
        run_cases(cases, sizeof cases / sizeof *cases);
    }
}

static void test_four_ranks_split_on(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "llama cp4 ring",
        "llama cp2 ring pp2",
        "gpt tp2 cp2 a2a sp",
        "llama cp4 inner2 ring",
        "llama bf16 tp2 sp dp2 zero1 offload50",
        "llama bf16 cp2 ring pp2 full",
    };
    if (world->size == 4) {
        run_texts(texts, sizeof texts / sizeof *texts);
    }
}

static void train(const char *text, int steps, const char *resume,
                  const char *checkpoint, double *out_loss)
{
    const struct matrix_case c = matrix_read(text);
    const struct mw_drive_opts opts = {
        .steps = steps, .resume = resume, .checkpoint = checkpoint};
    struct mw_drive_result r;
    struct mw_err err = {0};
    if (matrix_run(world, &c, &opts, &r, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    memcpy(out_loss, r.loss, (size_t)steps * sizeof *out_loss);
    mw_drive_result_release(&r);
}

/* A checkpoint has the float32 masters, so nothing is lost. */
static void test_bfloat16_goes_on(void **state)
{
    (void)state;
    static const char file[] = "shim.ckpt";
    double whole[6], first[3], rest[3];
    if (world->size != 2) {
        return;
    }
    train("llama bf16 pp2", 6, NULL, NULL, whole);
    train("llama bf16 pp2", 3, NULL, file, first);
    train("llama bf16 pp2 x2 interleaved-1f1b", 3, file, NULL, rest);
    for (int i = 0; i < 3; i++) {
        assert_true(first[i] == whole[i] && rest[i] == whole[3 + i]);
    }
    assert_true(rest[2] < first[0]);
    train("llama bf16 dp2 zero1 offload50", 3, file, NULL, rest);
    for (int i = 0; i < 3; i++) {
        mw_assert_near(rest[i], whole[3 + i], 1e-3, 0);
    }
}

/* One rank has no GPU: all say so, nobody waits for the others. */
static void test_a_rank_lacks_its_gpu(void **state)
{
    (void)state;
    const struct matrix_case c = {.tp = 1, .pp = 1, .dp = world->size};
    const struct mw_drive_opts opts = {.steps = 2};
    struct mw_drive_result r;
    struct mw_err err = {0};
    shim_set_devices(world->rank == world->size - 1 ? 0 : 1);
    assert_int_equal(matrix_run(world, &c, &opts, &r, &err), MW_EMISSING);
    assert_non_null(strstr(err.text, "cudaGetDeviceCount"));
    mw_drive_result_release(&r);
    shim_set_devices(1);
}

/* A kind of operator that is slowed on purpose shows in the step, and only it:
 * ten times the products are the most of it, ten times rotary is nothing where
 * there is none. */
static double step_s(enum mw_op_kind kind, double factor)
{
    const struct matrix_case c = {.tp = 1, .pp = world->size, .dp = 1};
    struct mw_drive_opts opts = {.steps = 6};
    struct mw_drive_result r;
    struct mw_err err = {0};
    opts.slow.factor[kind] = factor;
    if (matrix_run(world, &c, &opts, &r, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    double s = r.virtual_step_time_s;
    mw_drive_result_release(&r);
    return s;
}

static void test_a_slowed_kernel_shows(void **state)
{
    (void)state;
    double plain = step_s(MW_OP_GEMM, 1.0), slowed = step_s(MW_OP_GEMM, 10.0);
    double none = step_s(MW_OP_ROTARY, 10.0);
    double verdict[2] = {slowed / plain, slowed / none};
    struct mw_err err = {0};
    world->ops->broadcast(world, verdict, sizeof verdict, 0, &err);
    assert_true(verdict[0] > 2.0);
    assert_true(verdict[1] > 2.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_two_ranks_split_on),
        cmocka_unit_test(test_two_ranks_in_bfloat16),
        cmocka_unit_test(test_two_ranks_of_experts),
        cmocka_unit_test(test_four_ranks_of_experts),
        cmocka_unit_test(test_bfloat16_goes_on),
        cmocka_unit_test(test_four_ranks),
        cmocka_unit_test(test_four_ranks_split_on),
        cmocka_unit_test(test_a_rank_lacks_its_gpu),
        cmocka_unit_test(test_a_slowed_kernel_shows),
    };
    matrix_begin(&world);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_end(world);
    return failed;
}
