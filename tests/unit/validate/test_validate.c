/*
 * Validation: error statistics worked out by hand, filling rules, reasons for
 * skipping, measured times from rates.
 */
#include "mw_test.h"

#include "base/file.h"
#include "sim/validate/validate.h"

#include <math.h>
#include <string.h>

static int setup(void **state)
{
    struct mw_hwdb *db = NULL;
    struct mw_err err = {0};

    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    *state = db;
    return 0;
}

static int teardown(void **state)
{
    mw_hwdb_free(*state);
    return 0;
}

#define MEASURED(l, j, la, m, p)                                               \
    {                                                                          \
        .file = "f", .line = (l), .job = (j), .series = (j), .layout = (la),   \
        .peers = "", .tokens_per_gpu = 1000, .measured_s = (m),                \
        .predicted_s = (p)                                                     \
    }

/* Job a: layouts x (measured 12 and 10), y 20, z 11; predicted x 15, y 9, z 14:
 * y is picked, which takes twice the best. Job b has two layouts only. Pairs
 * that differ by more than 3 %: all but x 10 with b's x 10.2, so 14 of 15. At
 * most 12.5 can be right: a's two x differ (0.5 of 1), and z lies between them
 * (1 of 2). b's y scatters and takes part in 5 pairs. Were the two x of two
 * architectures, all could be right. */
static void test_regret_by_hand(void **state)
{
    struct mw_validate v = {0};
    struct mw_validate_regret r;
    struct mw_validate_row rows[] = {
        MEASURED(2, "a", "x", 12, 15),  MEASURED(3, "a", "x", 10, 15),
        MEASURED(4, "a", "y", 20, 9),   MEASURED(5, "a", "z", 11, 14),
        MEASURED(6, "b", "x", 10.2, 1), MEASURED(7, "b", "y", 30, 40)};
    double right = 0, quiet = 0;

    (void)state;
    rows[5].is_noisy = true;
    for (size_t i = 0; i < 6; i++) {
        mw_array_push(&v.rows, rows[i]);
        for (size_t j = 0; j < i; j++) {
            double m = rows[j].measured_s / rows[i].measured_s;
            double p = rows[j].predicted_s / rows[i].predicted_s;

            if (i + j != 5 || i != 4) { /* 10 and 10.2 s are the same */
                right += p > 1 ? m > 1 : p < 1 ? m < 1 : 0.5;
            }
        }
        quiet = i < 5 ? right : quiet;
    }
    mw_validate_regret(&v, &r);
    assert_int_equal(r.jobs.n, 1);
    assert_int_equal(r.jobs.v[0].n_layouts, 3);
    assert_int_equal(r.jobs.v[0].picked->line, 4);
    assert_int_equal(r.jobs.v[0].best->line, 3);
    mw_assert_near(r.mean, 1, 1e-12, 0);
    mw_assert_near(r.max, 1, 1e-12, 0);
    assert_int_equal(r.runs.n, 14);
    mw_assert_near(r.runs.right, right, 1e-12, 0);
    mw_assert_near(r.runs_possible, 12.5, 1e-12, 0);
    assert_int_equal(r.quiet.n, 9);
    mw_assert_near(r.quiet.right, quiet, 1e-12, 0);
    assert_int_equal(r.other.n, 1); /* b's two; a has a regret */
    mw_assert_near(r.other.right, 1, 1e-12, 0);
    /* x of a counts with its 10 s: ten pairs less that with b's x. Wrong are
     * those of a alone: x is predicted slowest and y, the slowest, fastest. */
    assert_int_equal(r.layouts.n, 9);
    mw_assert_near(r.layouts.right, 6, 1e-12, 0);
    assert_int_equal(r.other_layouts.n, 1);
    mw_assert_near(r.other_layouts.right, 1, 1e-12, 0);
    mw_validate_regret_release(&r);
    v.rows.v[0].series = "a of other heads";
    mw_validate_regret(&v, &r);
    mw_assert_near(r.runs.right, right, 1e-12, 0);
    mw_assert_near(r.runs_possible, 14, 1e-12, 0);
    assert_int_equal(r.jobs.v[0].n_layouts, 3);
    mw_validate_regret_release(&r);
    mw_array_release(&v.rows);
}

/* Jobs a: measured 10 20 40, predicted 12 30 20; b: one row, 50 and 45.
 * Errors +0.2 +0.5 -0.5 -0.1: MAPE 0.325, bias 0.025, median 0.35, p90 0.5.
 * Pairs of a: (10, 20) right, (10, 40) right, (20, 40) wrong: 2/3. The pick of
 * a is its first row, which is the fastest: no regret. */
static void test_statistics_by_hand(void **state)
{
    const struct mw_validate_row rows[] = {
        {.file = "f",
         .line = 2,
         .job = "a",
         .measured_s = 10,
         .predicted_s = 12},
        {.file = "f",
         .line = 3,
         .job = "b",
         .measured_s = 50,
         .predicted_s = 45},
        {.file = "f",
         .line = 4,
         .job = "a",
         .measured_s = 20,
         .predicted_s = 30},
        {.file = "f",
         .line = 5,
         .job = "a",
         .measured_s = 40,
         .predicted_s = 20},
        {.file = "f", .line = 6, .job = "a", .skipped = "why"}};
    const struct mw_validate_row *list[] = {&rows[0], &rows[1], &rows[2],
                                            &rows[3], &rows[4]};
    struct mw_validate_group g = {0};

    (void)state;
    mw_validate_stats(list, 5, &g);
    assert_int_equal(g.rows, 4);
    mw_assert_near(g.mape, 0.325, 1e-12, 0);
    mw_assert_near(g.bias, 0.025, 1e-12, 0);
    mw_assert_near(g.median_ape, 0.35, 1e-12, 0);
    mw_assert_near(g.p90_ape, 0.5, 1e-12, 0);
    mw_assert_near(g.order_rate, 2.0 / 3, 1e-12, 0);
    mw_assert_near(g.regret_median, 0, 0, 1e-12);
}

/* The prediction picks the slower of two: 15 instead of 10 seconds. */
static void test_regret(void **state)
{
    const struct mw_validate_row rows[] = {{.file = "f",
                                            .line = 2,
                                            .job = "a",
                                            .measured_s = 10,
                                            .predicted_s = 9},
                                           {.file = "f",
                                            .line = 3,
                                            .job = "a",
                                            .measured_s = 15,
                                            .predicted_s = 8}};
    const struct mw_validate_row *list[] = {&rows[0], &rows[1]};
    struct mw_validate_group g = {0};

    (void)state;
    mw_validate_stats(list, 2, &g);
    mw_assert_near(g.regret_median, 0.5, 1e-12, 0);
    mw_assert_near(g.order_rate, 0, 0, 1e-12);
    mw_validate_stats(list, 1, &g);
    assert_true(isnan(g.regret_median) && isnan(g.order_rate));
}

#define HEADER                                                                 \
    "id,kind,model,hidden,layers,heads,ffn,vocab,experts,seq,global_batch,"    \
    "micro_batch,gpus,nodes,gpu,interconnect,tp,pp,vpp,dp,zero,recompute,"     \
    "dtype,framework,step_time_s,tokens_per_s_per_gpu,tflops_per_gpu,"         \
    "tflops_def\n"
#define MACHINE "8,1,A100-SXM4-80GB,8x200Gb HDR IB"

static void write_file(const char *path, const char *text)
{
    struct mw_outfile out;
    struct mw_err err = {0};

    assert_int_equal(mw_outfile_open(&out, path, &err), MW_OK);
    fputs(text, out.f);
    assert_int_equal(mw_outfile_commit(&out, &err), MW_OK);
}

static void predict(struct mw_validate *v, void **state, const char *text)
{
    struct mw_err err = {0};

    write_file("rows.csv", text);
    mw_validate_init(v, *state);
    if (mw_validate_add(v, "rows.csv", &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_validate_finish(v);
    remove("rows.csv");
}

static bool is_filled(const struct mw_validate_row *r, enum mw_fill fill)
{
    return (r->fills >> fill & 1) != 0;
}

static void test_fully_given_row(void **state)
{
    struct mw_validate v;

    predict(&v, state,
            HEADER "a,pretrain,gpt,1024,24,16,4096,51200,,1024,64,4," MACHINE
                   ",2,2,,2,0,full,fp16,Megatron-LM 2.x,1.5,,,\n");
    const struct mw_validate_row *r = &v.rows.v[0];
    assert_null(r->skipped);
    assert_string_equal(r->layout, "tp2 pp2 dp2 mbs4 full");
    mw_assert_near(r->measured_s, 1.5, 0, 0);
    assert_true(r->predicted_s > 0.05 && r->predicted_s < 5);
    assert_false(is_filled(r, MW_FILL_MICRO_BATCH));
    assert_false(is_filled(r, MW_FILL_STEP_TIME));
    assert_true(is_filled(r, MW_FILL_ATTENTION));
    assert_true(is_filled(r, MW_FILL_KV_HEADS));
    mw_validate_release(&v);
}

/* 64 sequences x 1024 tokens / (2048 tokens/s x 8 GPUs) = 4 s. */
static void test_measured_time_from_rates(void **state)
{
    struct mw_validate v;

    predict(&v, state,
            HEADER "t,pretrain,gpt,1024,24,16,4096,51200,,1024,64,4," MACHINE
                   ",2,2,,2,0,full,fp16,Megatron-LM 2.x,,2048,,\n"
                   "h,pretrain,gpt,1024,24,16,4096,51200,,1024,64,4," MACHINE
                   ",2,2,,2,0,full,fp16,Megatron-LM 2.x,,,100,hardware\n"
                   "m,pretrain,gpt,1024,24,16,4096,51200,,1024,64,4," MACHINE
                   ",2,2,,2,0,full,fp16,Megatron-LM 2.x,,,100,model\n");
    mw_assert_near(v.rows.v[0].measured_s, 4, 1e-12, 0);
    assert_true(is_filled(&v.rows.v[0], MW_FILL_STEP_TIME));
    /* SC21: 96 B s l h^2 (1 + s/6h + V/16lh) with recomputation; per token of
     * layer 24 h^2 (1 + s/6h) x 4, and 6 V h of the head. */
    double h = 1024, s = 1024, tokens = 64 * s;
    double layers = 24 * 24 * h * h * (1 + s / (6 * h)), head = 6 * 51200 * h;
    mw_assert_near(v.rows.v[1].measured_s,
                   tokens * (4 * layers + head) / (100e12 * 8), 1e-6, 0);
    mw_assert_near(v.rows.v[2].measured_s,
                   tokens * (3 * layers + head) / (100e12 * 8), 1e-6, 0);
    mw_validate_release(&v);
}

static void test_empty_cells_are_filled_by_rule(void **state)
{
    struct mw_validate v;

    predict(&v, state,
            HEADER
            /* a twin has the micro-batch; ways and vocab are left out */
            "a,pretrain,gpt,1024,24,16,,,,1024,64,," MACHINE
            ",2,1,,4,,,,Megatron-LM 2.x,1,,,\n"
            "b,pretrain,gpt,1024,24,16,,,,1024,64,8," MACHINE
            ",2,1,,4,,,,Megatron-LM 2.x,1,,,\n"
            "c,pretrain,gpt,1024,24,16,,,,1024,64,," MACHINE
            ",4,,,,,,,Megatron-Core 0.9,1,,,\n");
    const struct mw_validate_row *a = &v.rows.v[0], *c = &v.rows.v[2];
    assert_string_equal(a->layout, "tp2 pp1 dp4 mbs8 none");
    assert_true(is_filled(a, MW_FILL_MICRO_BATCH_TWIN));
    assert_true(is_filled(a, MW_FILL_VOCAB) && is_filled(a, MW_FILL_FFN));
    assert_true(is_filled(a, MW_FILL_RECOMPUTE) && is_filled(a, MW_FILL_DTYPE));
    assert_string_equal(c->layout, "tp4s pp1 dp2 zero1 mbs1 none");
    assert_true(is_filled(c, MW_FILL_PP) && is_filled(c, MW_FILL_DP));
    assert_true(is_filled(c, MW_FILL_SP) && is_filled(c, MW_FILL_ZERO));
    assert_true(is_filled(c, MW_FILL_MICRO_BATCH));
    mw_validate_release(&v);
}

/* Adapters where the row is a LoRA run: no weight gradients, a smaller time. */
static void test_lora_is_filled(void **state)
{
    struct mw_validate v;

    predict(&v, state,
            HEADER "a,pretrain,gpt,1024,24,16,,,,1024,64,1," MACHINE
                   ",1,1,,8,,,,,1,,,\n"
                   "b,lora,gpt,1024,24,16,,,,1024,64,1," MACHINE
                   ",1,1,,8,,,,,1,,,\n");
    assert_true(is_filled(&v.rows.v[1], MW_FILL_LORA));
    assert_false(is_filled(&v.rows.v[0], MW_FILL_LORA));
    assert_true(v.rows.v[1].breakdown_s[MW_SPAN_W] <
                v.rows.v[0].breakdown_s[MW_SPAN_W]);
    assert_true(v.rows.v[1].predicted_s < v.rows.v[0].predicted_s);
    mw_validate_release(&v);
}

/* What is measured never reaches the prediction. */
static void test_prediction_does_not_see_the_measurement(void **state)
{
    struct mw_validate v;

    predict(&v, state,
            HEADER "a,pretrain,gpt,1024,24,16,,,,1024,64,," MACHINE
                   ",2,2,,2,,,,,1,,,\n"
                   "b,pretrain,gpt,1024,24,16,,,,1024,64,," MACHINE
                   ",2,2,,2,,,,,900,,,\n");
    mw_assert_near(v.rows.v[0].predicted_s, v.rows.v[1].predicted_s, 0, 0);
    mw_validate_release(&v);
}

static void test_what_cannot_be_expressed_says_why(void **state)
{
    static const struct {
        const char *row, *why;
    } rows[] = {
        {"c,pretrain,gpt,1024,24,16,,,,1024,64,1," MACHINE ",,,,,,,,,1,,,",
         "layout is not given"},
        {"d,pretrain,gpt,1024,24,16,,,,1024,64,1," MACHINE ",3,1,,2,,,,,1,,,",
         "is not the number of GPUs"},
        {"e,pretrain,nobody-knows,,,,,,,1024,64,1," MACHINE ",1,1,,8,,,,,1,,,",
         "no preset"},
        {"f,pretrain,gpt,1024,24,16,,,,1024,64,1,8,1,TPU v99,,1,1,,8,,,,,1,,,",
         "unknown GPU 'TPU v99'"},
        {"g,pretrain,gpt,1024,24,16,,,,1024,64,1," MACHINE ",1,1,,8,,,,,,,,",
         "no measured time"},
        {"h,pretrain,gpt,1024,24,16,,,,1024,64,1," MACHINE
         ",1,1,,8,,,fp8,,1,,,",
         "no fp8 rate"},
        {"i,pretrain,gpt,1024,24,16,,,,1024,63,1," MACHINE ",1,1,,8,,,,,1,,,",
         "63"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_validate v;
        char text[1024];

        snprintf(text, sizeof text, "%s%s\n", HEADER, rows[i].row);
        predict(&v, state, text);
        const char *why = v.rows.v[0].skipped;
        if (why == NULL || strstr(why, rows[i].why) == NULL) {
            fail_msg("row %zu: '%s' is not about '%s'", i,
                     why != NULL ? why : "(predicted)", rows[i].why);
        }
        assert_int_equal(v.overall.rows, 0);
        assert_true(isnan(v.overall.mape));
        mw_validate_release(&v);
    }
}

static void test_files_that_are_wrong(void **state)
{
    static const struct {
        const char *text, *says;
    } files[] = {{"id,model\na,b\n", "gpu"},
                 {HEADER "a,pretrain\n", "rows.csv:2"},
                 {HEADER "a,pretrain,gpt,many,24,16,,,,1024,64,1," MACHINE
                         ",1,1,,8,,,,,1,,,\n",
                  "hidden"}};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct mw_validate v;
        struct mw_err err = {0};

        write_file("rows.csv", files[i].text);
        mw_validate_init(&v, *state);
        assert_int_equal(mw_validate_add(&v, "rows.csv", &err), MW_EINPUT);
        assert_non_null(strstr(err.text, files[i].says));
        mw_validate_release(&v);
        remove("rows.csv");
    }
}

static void test_filters(void **state)
{
    struct mw_validate v;
    struct mw_err err = {0};

    write_file("rows.csv",
               HEADER "x-1,pretrain,gpt,1024,24,16,,,,1024,64,1," MACHINE
                      ",1,1,,8,,,,,1,,,\n"
                      "y-1,pretrain,llama,1024,24,16,,,,1024,64,1," MACHINE
                      ",1,1,,8,,,,,1,,,\n");
    mw_validate_init(&v, *state);
    v.id_prefix = "y-";
    assert_int_equal(mw_validate_add(&v, "rows.csv", &err), MW_OK);
    assert_int_equal(v.rows.n, 1);
    v.id_prefix = NULL;
    v.model = "GPT";
    assert_int_equal(mw_validate_add(&v, "rows.csv", &err), MW_OK);
    assert_int_equal(v.rows.n, 2);
    assert_string_equal(v.rows.v[1].id, "x-1");
    mw_validate_release(&v);
    remove("rows.csv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regret_by_hand),
        cmocka_unit_test(test_statistics_by_hand),
        cmocka_unit_test(test_regret),
        cmocka_unit_test(test_fully_given_row),
        cmocka_unit_test(test_measured_time_from_rates),
        cmocka_unit_test(test_empty_cells_are_filled_by_rule),
        cmocka_unit_test(test_lora_is_filled),
        cmocka_unit_test(test_prediction_does_not_see_the_measurement),
        cmocka_unit_test(test_what_cannot_be_expressed_says_why),
        cmocka_unit_test(test_files_that_are_wrong),
        cmocka_unit_test(test_filters),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
