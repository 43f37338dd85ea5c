/*
 * The shipped tables: they load and pass the checks, and well-known machines
 * have the figures of their vendors. Numbers in the comments are worked out
 * from links, lanes and ports, not copied from the tables.
 */
#include "mw_test.h"

#include "base/csv.h"
#include "hwdb/hwdb.h"
#include "hwdb_loaded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FP32, TF32, BF16, FP16, FP8, FP4 };

static const struct mw_gpu *gpu(const struct mw_hwdb *db, const char *name)
{
    struct mw_err err = {0};
    const struct mw_gpu *g = NULL;
    if (mw_hwdb_gpu(db, name, &g, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return g;
}

static const struct mw_system *sys(const struct mw_hwdb *db, const char *name)
{
    struct mw_err err = {0};
    const struct mw_system *s = NULL;
    if (mw_hwdb_system(db, name, &s, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return s;
}

static void test_check_passes_and_no_row_is_lost(void **state)
{
    static const struct {
        const char *name;
        size_t rows;
    } tables[] = {{"gpus", 54},      {"nvlink", 9},           {"nvswitch", 6},
                  {"pcie", 5},       {"infiniband", 11},      {"ethernet", 8},
                  {"latency", 19},   {"systems", 43},         {"costs", 24},
                  {"alpha_beta", 5}, {"achieved_matmul", 20}, {"profiles", 90},
                  {"recipes", 60}};
    const struct mw_hwdb *db = *state;
    struct mw_err err = {0};
    assert_int_equal(mw_hwdb_check(db, &err), MW_OK);
    assert_int_equal(err.n_findings, 0);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const struct mw_csv *t = mw_hwdb_table(db, tables[i].name);
        assert_non_null(t);
        assert_true(t->n_rows >= tables[i].rows);
    }
    assert_null(mw_hwdb_table(db, "nothing"));
    assert_int_equal(mw_hwdb_table(db, "kernels")->n_rows, 0);
}

static void test_every_row_has_source_and_confidence(void **state)
{
    const struct mw_hwdb *db = *state;
    size_t n = 0;
    for (size_t i = 0; mw_hwdb_table_name(i) != NULL; i++) {
        const struct mw_csv *t = mw_hwdb_table(db, mw_hwdb_table_name(i));

        if (strcmp(mw_hwdb_table_name(i), "model_error") == 0) {
            continue; /* made by fit_step; the file says so */
        }
        int source = mw_csv_col(t, "source"),
            conf = mw_csv_col(t, "confidence");
        for (size_t row = 0; row < t->n_rows; row++, n++) {
            assert_true(strlen(mw_csv_str(t, row, source)) > 3);
            assert_non_null(strchr("HML", *mw_csv_str(t, row, conf)));
        }
    }
    assert_true(n > 290);
}

static void test_dgx_h100(void **state)
{
    const struct mw_system *s = sys(*state, "dgx-h100");
    assert_int_equal(s->gpus_per_node, 8);
    assert_int_equal(s->scaleup_gpus, 8);
    assert_string_equal(s->gpu->slug, "h100-sxm");
    /* 18 links x 25 GB/s per direction */
    mw_assert_near(s->intra_bw_Bps, 450e9, 1e-12, 0);
    mw_assert_near(s->peer_bw_Bps, 450e9, 1e-12, 0);
    /* 8 x 400 Gb/s / 8 = 8 x 50 GB/s */
    assert_int_equal(s->n_nics, 8);
    mw_assert_near(s->nic_bw_Bps, 50e9, 1e-12, 0);
    mw_assert_near(s->node_net_bw_Bps, 400e9, 1e-12, 0);
    /* 15.55 us over 14 steps; 352.6 of 450; 365.9 of 400 GB/s */
    mw_assert_near(s->intra_alpha_s, 15.55e-6 / 14, 1e-2, 0);
    mw_assert_near(s->intra_efficiency, 352.6 / 450, 1e-2, 0);
    mw_assert_near(s->inter_efficiency, 365.9 / 400, 1e-2, 0);
    assert_string_equal(s->intra_alpha->name, "intra_alpha_s.nvlink4");
    assert_string_equal(s->inter_eff->name, "inter_efficiency.ib");
}

static void test_h100(void **state)
{
    const struct mw_gpu *g = gpu(*state, "h100-sxm");
    /* 132 SM x 1.83 GHz x 4096 FLOP = 989.4 TFLOP/s; tf32 half, fp8 twice */
    mw_assert_near(g->peak_flops[BF16], 132 * 1.83e9 * 4096, 1e-3, 0);
    mw_assert_near(g->peak_flops[BF16], 989.4e12, 1e-12, 0);
    mw_assert_near(g->peak_flops[FP16], 989.4e12, 1e-12, 0);
    mw_assert_near(g->peak_flops[TF32], 494.5e12, 1e-12, 0);
    mw_assert_near(g->peak_flops[FP8], 1978.9e12, 1e-12, 0);
    mw_assert_near(g->peak_flops[FP32], 67e12, 1e-12, 0);
    assert_true(isnan(g->peak_flops[FP4]));
    assert_true(isnan(g->gemm_efficiency[FP4]));
    mw_assert_near(g->mem_bytes, 80 * 1073741824.0, 0, 0);
    mw_assert_near(g->mem_bw_Bps, 3.35e12, 1e-12, 0);
    assert_int_equal(g->n_links, 18);
    assert_int_equal(g->n_sms, 132);
    mw_assert_near(g->link_bw_Bps, 25e9, 1e-12, 0);
    mw_assert_near(g->scaleup_bw_Bps, 450e9, 1e-12, 0);
    assert_false(g->is_cpu);
}

/* Measured rows first (bf16, and fp16 by the same tensor cores), then the
 * architecture's constant, each with its source. */
static void test_gemm_efficiency_order(void **state)
{
    const struct mw_gpu *h100 = gpu(*state, "h100-sxm");
    mw_assert_near(h100->gemm_efficiency[BF16], 794.5 / 989.4, 1e-9, 0);
    mw_assert_near(h100->gemm_efficiency[FP16], 794.5 / 989.4, 1e-9, 0);
    mw_assert_near(h100->gemm_efficiency[FP8], 1402.6 / 1978.9, 1e-9, 0);
    assert_non_null(strstr(h100->gemm_efficiency_source[BF16], "matmul"));
    /* H200 was measured in fp8 alone */
    const struct mw_gpu *h200 = gpu(*state, "h200-sxm");
    mw_assert_near(h200->gemm_efficiency[FP8], 1453.4 / 1978.9, 1e-9, 0);
    mw_assert_near(h200->gemm_efficiency[BF16], 0.803, 1e-9, 0);
    /* H20: nothing measured; fp8 and bf16 have their own defaults */
    const struct mw_gpu *h20 = gpu(*state, "h20");
    mw_assert_near(h20->gemm_efficiency[FP8], 0.709, 1e-9, 0);
    mw_assert_near(h20->gemm_efficiency[BF16], 0.803, 1e-9, 0);
    /* no row for the architecture: the default */
    const struct mw_gpu *trn = gpu(*state, "trainium2");
    mw_assert_near(trn->gemm_efficiency[BF16], 0.70, 1e-9, 0);
    assert_true(strlen(trn->gemm_efficiency_source[BF16]) > 3);
    /* "Blackwell Ultra" is not "Blackwell" */
    const struct mw_gpu *gb300 = gpu(*state, "gb300");
    mw_assert_near(gb300->gemm_efficiency[BF16], 0.786, 1e-9, 0);
}

static void test_every_device_is_usable(void **state)
{
    const struct mw_hwdb *db = *state;
    for (size_t i = 0; i < mw_hwdb_gpu_count(db); i++) {
        const struct mw_gpu *g = mw_hwdb_gpu_at(db, i);
        bool has_any = false;
        assert_true(g->mem_bytes > 0 && g->mem_bw_Bps > 0);
        assert_true(g->mem_efficiency > 0 && g->mem_efficiency <= 1);
        for (int d = 0; d < MW_HW_DTYPES; d++) {
            if (!isnan(g->peak_flops[d])) {
                has_any = true;
                assert_true(g->gemm_efficiency[d] > 0);
                assert_true(g->gemm_efficiency[d] <= 1);
                assert_true(*g->gemm_efficiency_source[d] != '\0');
                assert_true(*g->gemm_efficiency_confidence[d] != '\0');
            }
        }
        assert_true(has_any);
    }
    for (size_t i = 0; i < mw_hwdb_system_count(db); i++) {
        const struct mw_system *s = mw_hwdb_system_at(db, i);
        assert_non_null(s->gpu);
        assert_true(s->intra_bw_Bps > 0 && s->intra_alpha_s > 0);
        assert_true(s->intra_efficiency > 0 && s->intra_efficiency <= 1);
        assert_true(s->inter_efficiency > 0 && s->inter_efficiency <= 1);
        assert_true(s->node_net_bw_Bps == 0 || s->inter_alpha_s > 0);
        assert_true((s->inter_eff != NULL) == (s->node_net_bw_Bps > 0));
    }
}

static void test_other_machines(void **state)
{
    const struct mw_system *dgx2 = sys(*state, "dgx-2");
    assert_int_equal(dgx2->gpus_per_node, 16);
    mw_assert_near(dgx2->intra_bw_Bps, 6 * 25e9, 1e-12, 0);
    mw_assert_near(dgx2->node_net_bw_Bps, 8 * 12.5e9, 1e-12, 0);

    const struct mw_system *a100 = sys(*state, "dgx-a100");
    assert_string_equal(a100->gpu->slug, "a100-sxm-80gb");
    mw_assert_near(a100->intra_bw_Bps, 12 * 25e9, 1e-12, 0);
    mw_assert_near(a100->node_net_bw_Bps, 8 * 25e9, 1e-12, 0);
    mw_assert_near(a100->gpu->peak_flops[BF16], 312e12, 1e-12, 0);

    const struct mw_system *v100 = sys(*state, "dgx-1v");
    mw_assert_near(v100->intra_bw_Bps, 150e9, 1e-12, 0);
    mw_assert_near(v100->peer_bw_Bps, 25e9, 1e-12, 0);
    mw_assert_near(v100->gpu->peak_flops[FP16], 125e12, 1e-12, 0);
    assert_true(isnan(v100->gpu->peak_flops[BF16]));

    /* trays of 4, one domain of 18 trays */
    const struct mw_system *nvl72 = sys(*state, "gb200-nvl72");
    assert_int_equal(nvl72->gpus_per_node, 4);
    assert_int_equal(nvl72->scaleup_gpus, 72);
    mw_assert_near(nvl72->intra_bw_Bps, 18 * 50e9, 1e-12, 0);
    mw_assert_near(nvl72->node_net_bw_Bps, 4 * 50e9, 1e-12, 0);

    /* a mesh: seven links of 64 GB/s, one to each peer */
    const struct mw_system *mi300 = sys(*state, "azure-nd-mi300x-v5");
    mw_assert_near(mi300->intra_bw_Bps, 7 * 64e9, 1e-12, 0);
    mw_assert_near(mi300->peer_bw_Bps, 64e9, 1e-12, 0);
    /* and three peers x 6 links x 25 GB/s */
    const struct mw_system *alps = sys(*state, "alps-gh200");
    mw_assert_near(alps->intra_bw_Bps, 3 * 6 * 25e9, 1e-12, 0);
    mw_assert_near(alps->peer_bw_Bps, 6 * 25e9, 1e-12, 0);
}

static void test_this_machine_without_calibration(void **state)
{
    const struct mw_system *s = sys(*state, "this-machine");
    assert_true(s->gpu->is_cpu);
    assert_string_equal(s->gpu->slug, "host-cpu");
    assert_true(s->gpus_per_node >= 8);
    assert_int_equal(s->n_nics, 0);
    assert_true(s->inter_alpha == NULL);
    mw_assert_near(s->inter_efficiency, 1, 0, 0);
    /* 2 FMA x 8 lanes x 2 FLOP x 2.5 GHz */
    mw_assert_near(s->gpu->peak_flops[FP32], 2 * 8 * 2 * 2.5e9, 1e-12, 0);
    assert_null(mw_hwdb_machine(*state, "cpu"));
}

static void test_names(void **state)
{
    const struct mw_hwdb *db = *state;
    assert_ptr_equal(gpu(db, "H100-SXM5"), gpu(db, "h100-sxm"));
    assert_ptr_equal(gpu(db, "h100-sxm5-80gb"), gpu(db, "h100-sxm"));
    assert_ptr_equal(gpu(db, "A100-SXM4-80GB"), gpu(db, "a100-sxm-80gb"));
    assert_ptr_equal(gpu(db, "a100"), gpu(db, "a100-sxm-80gb"));
    assert_ptr_equal(gpu(db, "V100-SXM3-32GB"), gpu(db, "v100-sxm3-32gb"));
    assert_ptr_equal(gpu(db, "H100-SXM-64GB"), gpu(db, "h100-sxm-64gb"));
    assert_ptr_equal(sys(db, "DGX H100"), sys(db, "dgx-h100"));
    assert_ptr_equal(sys(db, "DGX A100 640GB"), sys(db, "dgx-a100"));
    assert_ptr_equal(sys(db, "ndv2"), sys(db, "azure-ndv2"));
    /* every spelling of the measured data finds its device */
    static const char *const spellings[] = {
        "A100-PCIe", "A100-80GB", "A100-SXM4",  "B200-SXM",  "B300-SXM",
        "GB200",     "GB300",     "GH200-96GB", "GH200",     "H100-SXM5",
        "H200-SXM",  "L4",        "MI300X",     "RTX-A6000", "V100",
        "V100-16GB", "TPU-v5e",   "Gaudi2",     "H800",      "L40S"};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        gpu(db, spellings[i]);
    }
}

static void test_unknown_names_get_a_hint(void **state)
{
    const struct mw_hwdb *db = *state;
    struct mw_err err = {0};
    const struct mw_system *s = NULL;
    const struct mw_gpu *g = NULL;
    assert_int_equal(mw_hwdb_system(db, "dgx-h10", &s, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "did you mean 'dgx-h100'"));
    mw_err_clear(&err);
    assert_int_equal(mw_hwdb_gpu(db, "h100_sxm", &g, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "did you mean 'h100-sxm'"));
    mw_err_clear(&err);
    assert_int_equal(mw_hwdb_gpu(db, "quantum-9000-abacus", &g, &err),
                     MW_EINPUT);
    assert_null(strstr(err.text, "did you mean"));
    assert_null(g);
    assert_null(s);
}

static void test_constants(void **state)
{
    const struct mw_hwdb *db = *state;
    struct mw_err err = {0};
    const struct mw_constant *c = NULL;
    assert_int_equal(mw_hwdb_constant(db, "kernel_launch_s", &c, &err), MW_OK);
    mw_assert_near(c->value, 5e-6, 1e-12, 0);
    assert_string_equal(c->unit, "s");
    assert_true(*c->date != '\0' && *c->source != '\0');
    assert_int_equal(mw_hwdb_constant(db, "no_such_thing", &c, &err),
                     MW_EINPUT);
}

static void test_number_columns(void **state)
{
    (void)state;
    assert_true(mw_hwdb_is_number("gpus", "bf16_tflops"));
    assert_true(mw_hwdb_is_number("SYSTEMS", "gpus_per_node"));
    assert_false(mw_hwdb_is_number("gpus", "slug"));
    assert_false(mw_hwdb_is_number("nvlink", "generation"));
    assert_false(mw_hwdb_is_number("gpus", "no_such_column"));
}

static void test_data_folder_from_the_environment(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    setenv("MESHWRIGHT_DATA", "no-such-folder", 1);
    enum mw_status status = mw_hwdb_load(NULL, &db, &err);
    unsetenv("MESHWRIGHT_DATA");
    assert_int_equal(status, MW_EINPUT);
    assert_null(db);
    assert_non_null(strstr(err.text, "no-such-folder/gpus.csv"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_passes_and_no_row_is_lost),
        cmocka_unit_test(test_every_row_has_source_and_confidence),
        cmocka_unit_test(test_dgx_h100),
        cmocka_unit_test(test_h100),
        cmocka_unit_test(test_gemm_efficiency_order),
        cmocka_unit_test(test_every_device_is_usable),
        cmocka_unit_test(test_other_machines),
        cmocka_unit_test(test_this_machine_without_calibration),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_unknown_names_get_a_hint),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_number_columns),
        cmocka_unit_test(test_data_folder_from_the_environment)};
    unsetenv("MESHWRIGHT_HWDB");
    unsetenv("MESHWRIGHT_DATA");
    return cmocka_run_group_tests(tests, hwdb_loaded_setup,
                                  hwdb_loaded_teardown);
}
