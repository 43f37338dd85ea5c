/*
 * Rows that a fit has not seen: four jobs that take a twentieth longer than
 * predicted. Half of them teach the fit what the other half needs, so that rows
 * left out are met nearly as well as those of the fit.
 */
#include "mw_test.h"

#include "base/file.h"
#include "hwdb/fit/fit_step.h"

#include <math.h>
#include <stdio.h>

#define HEADER                                                                 \
    "id,model,hidden,layers,heads,seq,global_batch,micro_batch,gpus,nodes,"    \
    "gpu,tp,pp,dp,recompute,dtype,framework,step_time_s\n"

enum { ROWS = 4 };

static const double slower = 1.05;

static void read_rows(struct mw_validate *v, struct mw_hwdb *db,
                      const double *time_s)
{
    static const int hidden[ROWS] = {2304, 3072, 4096, 6144};
    struct mw_outfile out;
    struct mw_err err = {0};

    assert_int_equal(mw_outfile_open(&out, "folds.csv", &err), MW_OK);
    fputs(HEADER, out.f);
    for (int i = 0; i < ROWS; i++) {
        fprintf(out.f,
                "r%d,gpt-%d,%d,8,%d,2048,64,8,8,1,A100-SXM4-80GB,1,1,8,full,"
                "fp16,Megatron-LM 2.x,%.17g\n",
                i, hidden[i], hidden[i], hidden[i] / 128, time_s[i]);
    }
    assert_int_equal(mw_outfile_commit(&out, &err), MW_OK);
    mw_validate_init(v, db);
    assert_int_equal(mw_validate_add(v, "folds.csv", &err), MW_OK);
    remove("folds.csv");
}

static void test_left_out(void **state)
{
    double time_s[ROWS] = {1, 1, 1, 1};
    struct mw_hwdb *db = NULL;
    struct mw_validate v;
    struct mw_fit f;
    struct mw_err err = {0};

    (void)state;
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    read_rows(&v, db, time_s);
    assert_int_equal(v.rows.n, ROWS);
    for (int i = 0; i < ROWS; i++) {
        assert_null(v.rows.v[i].skipped);
        time_s[i] = slower * v.rows.v[i].predicted_s;
    }
    mw_validate_release(&v);
    read_rows(&v, db, time_s);
    assert_int_equal(mw_fit_init(&f, db, &v, &err), MW_OK);
    mw_fit_run(&f);
    mw_fit_leave_folds(&f, 2, 1, false);
    for (size_t i = 0; i < f.n; i++) {
        assert_true(fabs(f.r[i]) < 0.2 * log(slower));
        assert_true(fabs(f.left_out[i]) < 0.5 * log(slower));
        /* The fitted constants are back. */
        mw_assert_near(mw_validate_again(&v, f.row[i]), time_s[i] * exp(f.r[i]),
                       1e-9, 0);
    }
    mw_fit_release(&f);
    mw_validate_release(&v);
    mw_hwdb_free(db);
}

/* A row priced by a kernel that no table has takes three times as long: the
 * other rows are met as if it were not there, to the last bit. */
static void test_unmeasured(void **state)
{
    double time_s[ROWS] = {1, 1, 1, 1}, r[ROWS];
    struct mw_hwdb *db = NULL;
    struct mw_validate v;
    struct mw_fit f;
    struct mw_err err = {0};

    (void)state;
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    read_rows(&v, db, time_s);
    for (int i = 0; i < ROWS; i++) {
        time_s[i] = slower * v.rows.v[i].predicted_s;
    }
    mw_validate_release(&v);
    for (int times = 1; times <= 3; times += 2) {
        time_s[ROWS - 1] *= times;
        read_rows(&v, db, time_s);
        v.rows.v[ROWS - 1].is_unmeasured = true;
        assert_int_equal(mw_fit_init(&f, db, &v, &err), MW_OK);
        mw_fit_run(&f);
        for (size_t i = 0; i < ROWS - 1; i++) {
            assert_true(times == 1 || f.r[i] == r[i]);
            r[i] = f.r[i];
        }
        mw_fit_release(&f);
        mw_validate_release(&v);
    }
    mw_hwdb_free(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_left_out),
                                       cmocka_unit_test(test_unmeasured)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
