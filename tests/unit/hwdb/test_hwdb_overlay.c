/*
 * Overlays: rows added and replaced by key, what a replaced row keeps, what a
 * calibration brings (kernels, curves, machine), and folders that are none.
 */
#include "mw_test.h"

#include "base/csv.h"
#include "hwdb_overlay.h"

#include <stdlib.h>
#include <string.h>

enum { FP32, TF32, BF16, FP16, FP8, FP4 };

static struct mw_hwdb *load_one(const char *file, const char *text)
{
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    if (overlay_load(file, text, &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return db;
}

static const struct mw_gpu *gpu(const struct mw_hwdb *db, const char *name)
{
    const struct mw_gpu *g = NULL;
    assert_int_equal(mw_hwdb_gpu(db, name, &g, NULL), MW_OK);
    return g;
}

static const struct mw_system *sys(const struct mw_hwdb *db, const char *name)
{
    const struct mw_system *s = NULL;
    assert_int_equal(mw_hwdb_system(db, name, &s, NULL), MW_OK);
    return s;
}

static void test_replaced_row_keeps_other_columns(void **state)
{
    (void)state;
    struct mw_hwdb *db =
        load_one("gpus.csv", "slug,mem_bw_GBps,confidence,source\n"
                             "H100-SXM,3352,M,our own reading\n");
    const struct mw_gpu *g = gpu(db, "h100-sxm");
    mw_assert_near(g->mem_bw_Bps, 3352e9, 1e-12, 0);
    assert_string_equal(g->source, "our own reading");
    assert_string_equal(g->confidence, "M");
    mw_assert_near(g->peak_flops[BF16], 989.4e12, 1e-12, 0);
    assert_string_equal(g->name, "H100-SXM5-80GB");
    assert_int_equal(g->n_links, 18);
    /* and no other row changes */
    mw_assert_near(gpu(db, "h200-sxm")->mem_bw_Bps, 4800e9, 1e-12, 0);
    assert_true(mw_hwdb_gpu_count(db) >= 54);
    assert_non_null(mw_hwdb_overlay_dir(db));
    mw_hwdb_free(db);
}

static void test_added_device_and_system(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_hwdb *plain = NULL, *db = NULL;
    struct overlay o;
    assert_int_equal(mw_hwdb_load(NULL, &plain, &err), MW_OK);
    overlay_make(&o);
    overlay_put(&o, "gpus.csv",
                "slug,name,vendor,form,arch,year,status,bf16_tflops,mem_GiB,"
                "mem_bw_GBps,scaleup,links,link_GBps_per_dir,"
                "scaleup_GBps_per_dir,scaleup_total_bidir_GBps,confidence,"
                "source\n"
                "acme-1,ACME One,ACME,OAM,Anvil,2026,ga,500,64,2000,Wire,4,50,"
                "200,400,L,a dream\n");
    overlay_put(&o, "systems.csv",
                "slug,name,gpus_per_node,gpu,intra_fabric,intra_class,"
                "intra_GBps_per_gpu_per_dir,peer_GBps_per_dir,"
                "scaleup_domain_gpus,nics_per_node,nic_Gbps,inter_class,"
                "node_net_GBps_per_dir,confidence,source\n"
                "acme-box,ACME Box,4,ACME One,Wire,wire,200,50,4,2,200,roce,50,"
                "L,a dream\n");
    overlay_put(&o, "constants.csv",
                "name,value,unit,date,confidence,source\n"
                "intra_alpha_s.wire,2e-6,s,2026-11-29,L,a dream\n"
                "intra_efficiency.acme-box,0.9,ratio,2026-11-29,L,a dream\n"
                "gemm_efficiency.anvil,0.66,ratio,2026-11-29,L,a dream\n"
                "mem_efficiency.acme-1,0.77,ratio,2026-11-29,L,a dream\n");
    if (mw_hwdb_load(o.dir, &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    overlay_remove(&o);
    const struct mw_system *s = sys(db, "ACME Box");
    assert_string_equal(s->gpu->slug, "acme-1");
    mw_assert_near(s->node_net_bw_Bps, 50e9, 1e-12, 0);
    mw_assert_near(s->intra_alpha_s, 2e-6, 1e-12, 0);
    mw_assert_near(s->intra_efficiency, 0.9, 1e-12, 0);
    mw_assert_near(s->gpu->gemm_efficiency[BF16], 0.66, 1e-12, 0);
    mw_assert_near(s->gpu->mem_efficiency, 0.77, 1e-12, 0);
    assert_int_equal(mw_hwdb_gpu_count(db), mw_hwdb_gpu_count(plain) + 1);
    assert_int_equal(mw_hwdb_system_count(db), mw_hwdb_system_count(plain) + 1);
    mw_hwdb_free(db);
    mw_hwdb_free(plain);
}

/* A constant of the device comes before what was measured on it, a constant of
 * the system before its class. */
static void test_most_special_constant_wins(void **state)
{
    (void)state;
    struct mw_hwdb *db =
        load_one("constants.csv",
                 "name,value,unit,date,confidence,source\n"
                 "gemm_efficiency.h100-sxm,0.5,ratio,2026-11-29,M,ours\n"
                 "gemm_efficiency.h100-sxm.fp8,0.4,ratio,2026-11-29,M,ours\n"
                 "inter_alpha_s.dgx-h100,9e-6,s,2026-11-29,M,ours\n"
                 "intra_efficiency.nvlink3,0.7,ratio,2026-11-29,M,ours\n");
    const struct mw_gpu *g = gpu(db, "h100-sxm");
    mw_assert_near(g->gemm_efficiency[BF16], 0.5, 1e-12, 0);
    mw_assert_near(g->gemm_efficiency[FP8], 0.4, 1e-12, 0);
    assert_string_equal(g->gemm_efficiency_source[FP8], "ours");
    mw_assert_near(sys(db, "dgx-h100")->inter_alpha_s, 9e-6, 1e-12, 0);
    mw_assert_near(sys(db, "dgx-h200")->inter_alpha_s, 4.6e-6, 1e-12, 0);
    mw_assert_near(sys(db, "dgx-a100")->intra_efficiency, 0.7, 1e-12, 0);
    mw_hwdb_free(db);
}

static void test_kernels_are_sorted_and_found(void **state)
{
    (void)state;
    struct mw_hwdb *db =
        load_one("kernels.csv", "device,op,pass,dtype,m,n,k,time_s,source\n"
                                "host-cpu,gemm,fwd,fp32,64,256,128,4e-3,run\n"
                                "cpu,gemm,fwd,fp32,128,128,128,2e-3,run\n"
                                "host-cpu,gemm,fwd,fp32,64,128,128,1e-3,run\n"
                                "host-cpu,gemm,bwd,fp32,64,128,128,3e-3,run\n"
                                "host-cpu,norm,fwd,fp32,64,128,0,5e-5,run\n"
                                "host-cpu,gemm,fwd,fp32,64,128,64,6e-4,run\n");
    const struct mw_kernel_row *k = NULL;
    /* by (k, n, m); the alias 'cpu' is the same device */
    assert_int_equal(mw_hwdb_kernels(db, "host-cpu", "gemm", "fwd", "fp32", &k),
                     4);
    const int64_t want[4][3] = {
        {64, 128, 64}, {128, 128, 64}, {128, 128, 128}, {128, 256, 64}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(k[i].k, want[i][0]);
        assert_int_equal(k[i].n, want[i][1]);
        assert_int_equal(k[i].m, want[i][2]);
    }
    mw_assert_near(k[3].time_s, 4e-3, 1e-12, 0);
    assert_int_equal(
        mw_hwdb_kernels(db, "Host CPU core", "GEMM", "bwd", "FP32", &k), 1);
    mw_assert_near(k[0].time_s, 3e-3, 1e-12, 0);
    assert_int_equal(mw_hwdb_kernels(db, "cpu", "norm", "fwd", "fp32", &k), 1);
    assert_int_equal(mw_hwdb_kernels(db, "cpu", "norm", "bwd", "fp32", &k), 0);
    assert_int_equal(mw_hwdb_kernels(db, "h100", "gemm", "fwd", "fp32", &k), 0);
    assert_int_equal(mw_hwdb_kernels(db, "zzz", "gemm", "fwd", "fp32", &k), 0);
    mw_hwdb_free(db);
}

/* Keys of attention over part of a sequence: a column that may be absent, and
 * part of the key where it is there. */
static void test_kernels_know_their_keys(void **state)
{
    (void)state;
    struct mw_hwdb *db = load_one(
        "kernels.csv", "device,op,pass,dtype,m,n,k,kv,time_s,source\n"
                       "host-cpu,attention,F,fp32,32,8,32,64,4e-5,run\n"
                       "host-cpu,attention,F,fp32,32,8,32,,2e-5,run\n"
                       "host-cpu,attention,F,fp32,32,8,32,128,8e-5,run\n");
    const struct mw_kernel_row *k = NULL;
    assert_int_equal(mw_hwdb_kernels(db, "cpu", "attention", "F", "fp32", &k),
                     3);
    assert_int_equal(k[0].kv, 0);
    assert_int_equal(k[1].kv, 64);
    assert_int_equal(k[2].kv, 128);
    mw_assert_near(k[2].time_s, 8e-5, 1e-12, 0);
    mw_hwdb_free(db);
}

static void test_curves_ascend(void **state)
{
    (void)state;
    struct mw_hwdb *db =
        load_one("curves.csv", "system,op,ranks,bytes,time_s,source\n"
                               "this-machine,all_reduce,4,1048576,9e-4,run\n"
                               "this-machine,all_reduce,2,1024,3e-6,run\n"
                               "local,all_reduce,4,1024,5e-6,run\n"
                               "this-machine,all_reduce,4,65536,5e-5,run\n"
                               "this-machine,p2p,2,8,1e-6,run\n");
    const struct mw_curve_row *c = NULL;
    assert_int_equal(mw_hwdb_curve(db, "this-machine", "all_reduce", 4, &c), 3);
    assert_int_equal(c[0].bytes, 1024);
    assert_int_equal(c[1].bytes, 65536);
    assert_int_equal(c[2].bytes, 1048576);
    assert_int_equal(mw_hwdb_curve(db, "This Machine", "all_reduce", 2, &c), 1);
    assert_int_equal(mw_hwdb_curve(db, "local", "all_reduce", 8, &c), 0);
    assert_int_equal(mw_hwdb_curve(db, "local", "p2p", 2, &c), 1);
    mw_hwdb_free(db);
}

static void test_machine_record(void **state)
{
    (void)state;
    struct mw_hwdb *db =
        load_one("machine.csv", "key,value\ncpu,AMD EPYC\n"
                                "blas_core,Zen\ninsitu_factor,1.27\n");
    assert_string_equal(mw_hwdb_machine(db, "cpu"), "AMD EPYC");
    assert_string_equal(mw_hwdb_machine(db, "BLAS_CORE"), "Zen");
    assert_null(mw_hwdb_machine(db, "gpu"));
    mw_hwdb_free(db);
}

static void test_header_alone_is_no_rows(void **state)
{
    (void)state;
    static const char *const tables[][2] = {
        {"kernels.csv", "device,op,pass,dtype,m,n,k,time_s,source\n"},
        {"curves.csv", "system,op,ranks,bytes,time_s,source\n"},
        {"machine.csv", "key,value\n"}};
    for (size_t i = 0; i < 3; i++) {
        struct mw_hwdb *db = load_one(tables[i][0], tables[i][1]);
        const struct mw_kernel_row *k = NULL;
        assert_int_equal(mw_hwdb_kernels(db, "cpu", "gemm", "fwd", "fp32", &k),
                         0);
        mw_hwdb_free(db);
    }
}

/* The origin of rows: shipped, replaced and added ones. */
static void test_rows_remember_their_file(void **state)
{
    (void)state;
    struct mw_hwdb *db =
        load_one("constants.csv", "name,value,unit,date,confidence,source\n"
                                  "kernel_launch_s,4e-6,s,2026-11-29,M,ours\n"
                                  "my_delay_s,1e-6,s,2026-11-29,M,ours\n");
    const struct mw_csv *t = mw_hwdb_table(db, "constants");
    size_t n = t->n_rows, n_ours = 0;
    for (size_t i = 0; i < n; i++) {
        n_ours += strstr(mw_hwdb_row_file(db, "constants", i),
                         "hwdb-overlay-") != NULL;
    }
    assert_int_equal(n_ours, 2);
    assert_string_equal(mw_csv_str(t, n - 1, mw_csv_col(t, "name")),
                        "my_delay_s");
    const struct mw_constant *c = NULL;
    assert_int_equal(mw_hwdb_constant(db, "kernel_launch_s", &c, NULL), MW_OK);
    mw_assert_near(c->value, 4e-6, 1e-12, 0);
    mw_hwdb_free(db);
}

static void test_environment_names_the_overlay(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    struct overlay o;
    overlay_make(&o);
    overlay_put(&o, "machine.csv", "key,value\ncpu,from the environment\n");
    setenv("MESHWRIGHT_HWDB", o.dir, 1);
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    unsetenv("MESHWRIGHT_HWDB");
    overlay_remove(&o);
    assert_string_equal(mw_hwdb_machine(db, "cpu"), "from the environment");
    mw_hwdb_free(db);
}

static void test_folders_that_are_no_overlay(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    assert_int_equal(mw_hwdb_load("no-such-folder", &db, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "no-such-folder: cannot read"));
    mw_err_clear(&err);
    assert_int_equal(overlay_load("gpu.csv", "slug\n", &db, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "did you mean gpus.csv?"));
    mw_err_clear(&err);
    assert_int_equal(overlay_load("notes.txt", "hello\n", &db, &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "no table"));
    assert_null(db);
}

static void test_raw_samples_are_ignored(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    struct overlay o;
    overlay_make(&o);
    overlay_put(&o, "machine.csv", "key,value\n");
    overlay_put(&o, "raw-gemm.csv", "anything,at all\n1\n");
    assert_int_equal(mw_hwdb_load(o.dir, &db, &err), MW_OK);
    overlay_remove(&o);
    mw_hwdb_free(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replaced_row_keeps_other_columns),
        cmocka_unit_test(test_added_device_and_system),
        cmocka_unit_test(test_most_special_constant_wins),
        cmocka_unit_test(test_kernels_are_sorted_and_found),
        cmocka_unit_test(test_kernels_know_their_keys),
        cmocka_unit_test(test_curves_ascend),
        cmocka_unit_test(test_machine_record),
        cmocka_unit_test(test_header_alone_is_no_rows),
        cmocka_unit_test(test_rows_remember_their_file),
        cmocka_unit_test(test_environment_names_the_overlay),
        cmocka_unit_test(test_folders_that_are_no_overlay),
        cmocka_unit_test(test_raw_samples_are_ignored)};
    unsetenv("MESHWRIGHT_HWDB");
    unsetenv("MESHWRIGHT_DATA");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
