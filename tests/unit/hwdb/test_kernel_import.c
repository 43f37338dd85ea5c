/*
 * The kernel importer on measurements made up for the test: which rows it
 * takes, that quantisation is found and taken off, that a row which goes is
 * said by those that stay, and that what it writes can be read.
 */
#include "mw_test.h"

#include "base/file.h"
#include "base/units.h"
#include "hwdb/import/import_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world {
    struct mw_hwdb *db;
    struct mw_arena arena;
    struct mw_import in;
    char dir[128];
};

static const char *const empty_files[][2] = {
    {"gemm_aiconfigurator", "gpu,dtype,m,n,k,time_us,software\n"},
    {"gemm_misc_measured", "gpu,dtype,m,n,k,time_us\n"},
    {"gemm_deepgemm_h800", "gpu,kind,groups,m_per_group,n,k,time_us\n"},
    {"ops_linear_vidur", "gpu,op,tokens,n,k,hidden,time_us\n"},
    {"ops_llmcompass_a100", "gpu,op,m,n,time_us\n"},
    {"ops_llmservingsim", "gpu,op\n"},
    {"attention_aiconfigurator",
     "gpu,phase,batch,q_len,kv_len,heads,kv_heads,head_dim,attn_dtype,"
     "kv_dtype,time_us,software\n"},
    {"attention_infersim", "gpu,phase,kind,batch,kv_len,heads,kv_heads,"
                           "head_dim,kv_dtype,time_us\n"},
    {"attention_llmservingsim", "gpu,prefill_chunk,n_decode\n"},
    {"moe_grouped_gemm_infersim",
     "gpu,tokens_per_expert,hidden,moe_ffn,local_experts,up_proj_us,"
     "down_proj_us,up_check,down_check\n"}};
enum { N_FILES = sizeof empty_files / sizeof *empty_files };

static void put(const struct world *w, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s.csv", w->dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void world_make(struct world *w)
{
    struct mw_err err = {0};
    *w = (struct world){.db = NULL};
    snprintf(w->dir, sizeof w->dir, "import-%ld", (long)getpid());
    assert_int_equal(mw_mkdirs(w->dir, NULL), MW_OK);
    assert_int_equal(mw_hwdb_load(NULL, &w->db, &err), MW_OK);
    mw_arena_init(&w->arena);
    w->in = (struct mw_import){.db = w->db, .dir = w->dir, .arena = &w->arena};
    for (size_t i = 0; i < N_FILES; i++) {
        put(w, empty_files[i][0], empty_files[i][1]);
    }
}

static void world_remove(struct world *w)
{
    char command[256];
    snprintf(command, sizeof command, "rm -r %s", w->dir);
    assert_int_equal(system(command), 0);
    mw_array_release(&w->in.samples);
    mw_array_release(&w->in.quantise);
    mw_arena_release(&w->arena);
    mw_hwdb_free(w->db);
}

static void read_all(struct world *w)
{
    struct mw_err err = {0};
    if (mw_import_read(&w->in, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

static size_t dropped(const struct world *w, const char *file,
                      enum mw_import_drop drop)
{
    for (size_t i = 0; i < MW_IMPORT_FILES; i++) {
        if (strcmp(w->in.files[i].name, file) == 0) {
            return w->in.files[i].dropped[drop];
        }
    }
    fail_msg("no file %s", file);
    return 0;
}

static void test_which_rows_are_taken(void **state)
{
    (void)state;
    struct world w;
    world_make(&w);
    /* 2 * 4096^3 in 510 us is 269 TFLOP/s of the A100's 312, its best 271; in
     * 440 us 312. */
    put(&w, "gemm_aiconfigurator",
        "gpu,dtype,m,n,k,time_us,software,split\n"
        "A100-SXM4-80GB,bfloat16,4096,4096,4096,510,trtllm 1.0.0,calibrate\n"
        "A100-SXM4-80GB,bfloat16,4096,4096,4096,520,trtllm 1.0.0,calibrate\n"
        "A100-SXM4-80GB,bfloat16,4096,4096,4096,560,trtllm 1.0.0,calibrate\n"
        "A100-SXM4-80GB,bfloat16,4096,4096,4096,440,trtllm 1.0.0,calibrate\n"
        "A100-SXM4-80GB,bfloat16,4096,4096,8192,1020,trtllm 1.0.0,holdout\n"
        "A100-SXM4-80GB,bfloat16,4096,4096,8192,1020,vllm 0.14.0,calibrate\n"
        "A100-SXM4-80GB,int8_smoothquant,8,8,8,9,trtllm 1.0.0,calibrate\n"
        "Abacus,bfloat16,4096,4096,4096,510,trtllm 1.0.0,calibrate\n");
    put(&w, "ops_linear_vidur",
        "gpu,op,tokens,n,k,hidden,time_us\n"
        "A40,mlp_up_proj,512,11008,4096,4096,500\n"
        "A40,add,512,,,4096,20\n"
        "A40,input_layernorm,512,,,4096,20\n");
    put(&w, "attention_aiconfigurator",
        "gpu,phase,batch,q_len,kv_len,heads,kv_heads,head_dim,attn_dtype,"
        "kv_dtype,time_us,software\n"
        "H100-SXM5-80GB,prefill_forward,2,2048,2048,32,4,128,bfloat16,"
        "bfloat16,150,vllm 0.24.0\n"
        "H100-SXM5-80GB,prefill_forward,2,2048,2048,32,8,128,bfloat16,"
        "bfloat16,160,vllm 0.24.0\n"
        "H100-SXM5-80GB,prefill_forward,2,2048,2048,32,4,128,bfloat16,"
        "bfloat16,190,trtllm 1.3.0rc20\n"
        "H100-SXM5-80GB,decode,64,1,2048,32,4,128,bfloat16,bfloat16,50,"
        "vllm 0.24.0\n");
    read_all(&w);
    assert_int_equal(dropped(&w, "gemm_aiconfigurator", MW_DROP_NONE), 3);
    assert_int_equal(dropped(&w, "gemm_aiconfigurator", MW_DROP_EASY), 1);
    assert_int_equal(dropped(&w, "gemm_aiconfigurator", MW_DROP_SPLIT), 1);
    assert_int_equal(dropped(&w, "gemm_aiconfigurator", MW_DROP_OTHER), 1);
    assert_int_equal(dropped(&w, "gemm_aiconfigurator", MW_DROP_DTYPE), 1);
    assert_int_equal(dropped(&w, "gemm_aiconfigurator", MW_DROP_DEVICE), 1);
    assert_int_equal(dropped(&w, "ops_linear_vidur", MW_DROP_INFER), 1);
    assert_int_equal(dropped(&w, "attention_aiconfigurator", MW_DROP_CACHE), 1);
    assert_int_equal(dropped(&w, "attention_aiconfigurator", MW_DROP_OTHER), 1);

    /* Three times of one shape: their median. */
    assert_int_equal(mw_import_sort(&w.in), 2);
    assert_int_equal(w.in.samples.n, 5);
    const struct mw_sample *s = w.in.samples.v;
    assert_string_equal(s[0].gpu->slug, "a100-sxm-80gb");
    assert_true(mw_near(s[0].time_s, 520e-6, 1e-12, 0));
    assert_string_equal(s[1].op, "add");
    assert_int_equal(s[1].n, 4096);
    /* 2 sequences of 32 heads; decoding: 64 sequences of 4 key heads. */
    assert_string_equal(s[3].op, "attention");
    assert_int_equal(s[3].batch, 64);
    assert_string_equal(s[4].op, "attention_decode");
    assert_int_equal(s[4].batch, 256);
    assert_int_equal(s[4].n, 2048);
    world_remove(&w);
}

static void test_a_missing_file_is_named(void **state)
{
    (void)state;
    struct world w;
    struct mw_err err = {0};
    char path[256];
    world_make(&w);
    snprintf(path, sizeof path, "%s/attention_infersim.csv", w.dir);
    assert_int_equal(remove(path), 0);
    assert_int_equal(mw_import_read(&w.in, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "attention_infersim.csv"));
    world_remove(&w);
}

/* Products of an H100 with a constant rate, and for FP8 8 bytes of traffic
 * per element of the input and a start of 10 us on top. */
static void add_products(struct world *w, const char *dtype,
                         enum mw_import_source source, double rate,
                         double bytes_per_element, double start_s)
{
    const struct mw_gpu *gpu;
    assert_int_equal(mw_hwdb_gpu(w->db, "h100-sxm", &gpu, NULL), MW_OK);
    double bw = gpu->mem_bw_Bps * gpu->mem_efficiency;
    for (int64_t m = 128; m <= 16384; m *= 2) {
        for (int64_t n = 1024; n <= 16384; n *= 4) {
            for (int64_t k = 1024; k <= 16384; k *= 4) {
                double work = (double)m * (double)n * (double)k;
                struct mw_sample s = {
                    .gpu = gpu,
                    .op = "gemm",
                    .dtype = dtype,
                    .m = m,
                    .n = n,
                    .k = k,
                    .batch = 1,
                    .time_s = 2 * work / rate + 3e-6 + start_s +
                              bytes_per_element * (double)m * (double)k / bw,
                    .source = source};
                mw_array_push(&w->in.samples, s);
            }
        }
    }
}

static void test_quantisation_is_found_and_taken_off(void **state)
{
    (void)state;
    struct world w;
    world_make(&w);
    add_products(&w, "bf16", MW_SRC_AIC_TRTLLM, 700e12, 0, 0);
    add_products(&w, "fp8", MW_SRC_AIC_TRTLLM_QUANTISE, 1300e12, 8, 10e-6);
    mw_import_sort(&w.in);
    size_t n = w.in.samples.n;
    mw_import_take_quantise_off(&w.in);
    assert_int_equal(w.in.quantise.n, 1);
    const struct mw_import_quantise *q = &w.in.quantise.v[0];
    assert_true(mw_near(q->bytes_per_element, 8, 1e-6, 0));
    assert_true(mw_near(q->start_s, 10e-6, 1e-6, 0));
    assert_true(q->n_dropped > 0);
    assert_int_equal(w.in.samples.n, n - q->n_dropped);
    for (size_t i = 0; i < w.in.samples.n; i++) {
        const struct mw_sample *s = &w.in.samples.v[i];
        double rate = strcmp(s->dtype, "fp8") == 0 ? 1300e12 : 700e12;
        double work = (double)s->m * (double)s->n * (double)s->k;
        assert_true(mw_near(s->time_s, 2 * work / rate + 3e-6, 1e-6, 0));
    }
    world_remove(&w);
}

/* Every row that went is within the tolerance of those that stay, by the
 * look-up that programs use. */
static void check_thinned(const struct world *w,
                          const struct mw_import_set *set, double tolerance)
{
    const struct mw_sample *s = &w->in.samples.v[set->first];
    struct mw_kernel_rates rates;
    struct mw_kernel_point *kept = mw_calloc(set->n, sizeof *kept);
    struct mw_kernel_table t = {.point = kept};
    assert_int_equal(
        mw_hwdb_kernel_rates(w->db, s->gpu, s->op, "F", s->dtype, &rates, NULL),
        MW_OK);
    for (size_t i = 0; i < set->n; i++) {
        struct mw_kernel_shape shape = {(double)s[i].m, (double)s[i].n,
                                        (double)s[i].k, 1};
        double base_s =
            mw_kernel_base_s(&rates, &shape, mw_kernel_flops("gemm", &shape),
                             mw_kernel_bytes("gemm", s->dtype, &shape));
        if (set->is_kept[i]) {
            kept[t.n].log_ratio = log(s[i].time_s / base_s);
            mw_kernel_place(t.form, &shape, kept[t.n++].x);
        }
    }
    assert_int_equal(t.n, set->n_kept);
    for (size_t i = 0; i < set->n; i++) {
        struct mw_kernel_shape shape = {(double)s[i].m, (double)s[i].n,
                                        (double)s[i].k, 1};
        double time_s = 0;
        assert_true(mw_kernel_time(
            &t, &rates, &shape, mw_kernel_flops("gemm", &shape),
            mw_kernel_bytes("gemm", s->dtype, &shape), &time_s, NULL));
        double most = s[i].m < 256 ? 3 * tolerance : tolerance;
        assert_true(fabs(time_s / s[i].time_s - 1) <= most * (1 + 1e-9));
    }
    mw_free(kept);
}

static void test_what_goes_is_said_by_what_stays(void **state)
{
    (void)state;
    static const double tolerance = 0.03;
    struct world w;
    struct mw_import_set *sets;
    struct mw_err err = {0};
    world_make(&w);
    add_products(&w, "bf16", MW_SRC_AIC_TRTLLM, 700e12, 0, 0);
    mw_import_sort(&w.in);
    /* An outlier that nothing predicts must stay. */
    size_t odd = 37;
    w.in.samples.v[odd].time_s *= 1.5;
    assert_int_equal(mw_import_cut_sets(&w.in, &sets), 1);
    assert_int_equal(mw_import_thin(&w.in, &sets[0], tolerance, &err), MW_OK);
    assert_true(sets[0].n_kept < sets[0].n);
    assert_true(sets[0].is_kept[odd]);
    assert_true(sets[0].thinned.max <= 3 * tolerance);
    check_thinned(&w, &sets[0], tolerance);
    world_remove(&w);
}

static void test_written_tables_can_be_read(void **state)
{
    (void)state;
    struct world w;
    struct mw_import_set *sets;
    struct mw_err err = {0};
    char *text, *again;
    size_t len, len_again;
    char kernels[256], path[300];
    world_make(&w);
    add_products(&w, "bf16", MW_SRC_AIC_TRTLLM, 700e12, 0, 0);
    mw_import_sort(&w.in);
    size_t n = mw_import_cut_sets(&w.in, &sets);
    assert_int_equal(mw_import_thin(&w.in, &sets[0], 0.03, &err), MW_OK);
    snprintf(kernels, sizeof kernels, "%s/kernels", w.dir);
    snprintf(path, sizeof path, "%s/h100-sxm.csv", kernels);
    assert_int_equal(mw_import_write_tables(&w.in, sets, n, kernels, &err),
                     MW_OK);
    assert_int_equal(mw_file_read(path, 1 << 20, &text, &len, &err), MW_OK);
    struct mw_csv csv;
    assert_int_equal(mw_csv_load(path, &w.arena, &csv, &err), MW_OK);
    assert_int_equal(csv.n_rows, sets[0].n_kept);
    assert_true(mw_csv_col(&csv, "time_s") >= 0);
    /* The same input, the same bytes. */
    assert_int_equal(mw_import_write_tables(&w.in, sets, n, kernels, &err),
                     MW_OK);
    assert_int_equal(mw_file_read(path, 1 << 20, &again, &len_again, &err),
                     MW_OK);
    assert_int_equal(len, len_again);
    assert_memory_equal(text, again, len);
    mw_free(text);
    mw_free(again);
    world_remove(&w);
}

static void test_the_page_keeps_its_own_text(void **state)
{
    (void)state;
    struct world w;
    struct mw_import_set *sets;
    struct mw_err err = {0};
    char path[256], *text;
    size_t len;
    world_make(&w);
    add_products(&w, "bf16", MW_SRC_AIC_TRTLLM, 700e12, 0, 0);
    mw_import_sort(&w.in);
    size_t n = mw_import_cut_sets(&w.in, &sets);
    assert_int_equal(mw_import_thin(&w.in, &sets[0], 0.03, &err), MW_OK);
    put(&w, "page",
        "before\n<!-- generated by import_kernels: begin -->\nold\n"
        "<!-- generated by import_kernels: end -->\nafter\n");
    snprintf(path, sizeof path, "%s/page.csv", w.dir);
    assert_int_equal(mw_import_write_doc(&w.in, sets, n, 0.03, path, &err),
                     MW_OK);
    assert_int_equal(mw_file_read(path, 1 << 20, &text, &len, &err), MW_OK);
    assert_true(strncmp(text, "before\n<!--", 11) == 0);
    assert_non_null(strstr(text, "end -->\nafter\n"));
    assert_null(strstr(text, "\nold\n"));
    assert_non_null(strstr(text, "| h100-sxm | gemm | bf16 | aic-trtllm |"));
    mw_free(text);
    put(&w, "page", "no marks\n");
    assert_int_equal(mw_import_write_doc(&w.in, sets, n, 0.03, path, &err),
                     MW_EINPUT);
    world_remove(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_rows_are_taken),
        cmocka_unit_test(test_a_missing_file_is_named),
        cmocka_unit_test(test_quantisation_is_found_and_taken_off),
        cmocka_unit_test(test_what_goes_is_said_by_what_stays),
        cmocka_unit_test(test_written_tables_can_be_read),
        cmocka_unit_test(test_the_page_keeps_its_own_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
