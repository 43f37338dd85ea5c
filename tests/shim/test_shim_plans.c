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

static void test_nothing_is_slowed(void **state)
{
    (void)state;
    const struct matrix_case c = {.tp = 1, .pp = 1, .dp = world->size};
    struct mw_drive_opts opts = {.steps = 2};
    struct mw_drive_result r;
    struct mw_err err = {0};
    opts.slow.factor[MW_OP_GEMM] = 2.0;
    assert_int_equal(matrix_run(world, &c, &opts, &r, &err), MW_EUSAGE);
    assert_non_null(strstr(err.text, "--slow"));
    mw_drive_result_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_four_ranks),
        cmocka_unit_test(test_a_rank_lacks_its_gpu),
        cmocka_unit_test(test_nothing_is_slowed),
    };
    matrix_begin(&world);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_end(world);
    return failed;
}
