/*
 * The fit of memory: figures that were made with another constant bring it
 * back, as far as its prior lets; constants of stacks without figures stay at
 * their priors.
 */
#include "mw_test.h"

#include "base/file.h"
#include "hwdb/fit/tensor_fit.h"

#include <math.h>
#include <string.h>

#define HEAD                                                                   \
    "id,model,hidden,layers,heads,seq,gpus,pp,micro_batch,microbatches,"       \
    "schedule,tp,dp,gpu,mem_gb,step_time_s\n"
enum { ROWS = 4 };
static const char *const jobs[ROWS] = {
    "gpt 14.6B,5120,46,40,1024,16,16,1,48,1F1B",
    "gpt 14.6B,5120,46,40,1024,16,16,1,48,ZB-2p",
    "gpt 28.3B,6144,62,48,1024,32,32,1,96,1F1B",
    "gpt 28.3B,6144,62,48,1024,32,32,1,96,ZB-2p"};

static const char factor[] = "memory_reserve_factor.zero-bubble";

static double *value_of(struct mw_hwdb *db, const char *name)
{
    const struct mw_constant *row = NULL;

    assert_int_equal(mw_hwdb_constant(db, name, &row, NULL), MW_OK);
    return &((struct mw_constant *)row)->value;
}

static void write_rows(const double *gib)
{
    struct mw_outfile out;
    struct mw_err err = {0};

    assert_int_equal(mw_outfile_open(&out, "figures.csv", &err), MW_OK);
    fputs(HEAD, out.f);
    for (int i = 0; i < ROWS; i++) {
        fprintf(out.f, "r%d,%s,1,1,A100-SXM4-80GB,%.8f,10\n", i, jobs[i],
                gib[i]);
    }
    assert_int_equal(mw_outfile_commit(&out, &err), MW_OK);
}

static void read_rows(struct mw_validate *v, struct mw_hwdb *db)
{
    struct mw_err err = {0};

    mw_validate_init(v, db);
    if (mw_validate_add(v, "figures.csv", &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    for (size_t i = 0; i < v->rows.n; i++) {
        assert_null(v->rows.v[i].skipped);
        assert_int_equal(v->rows.v[i].n_memory, 1);
    }
}

static void test_constants_come_back(void **state)
{
    struct mw_hwdb *db = NULL;
    struct mw_validate v;
    struct mw_tensor_fit f;
    struct mw_err err = {0};
    double gib[ROWS] = {1, 1, 1, 1};

    (void)state;
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    for (size_t k = 0; k < mw_tensor_param_count(); k++) {
        *value_of(db, mw_tensor_params[k].name) = mw_tensor_params[k].prior;
    }
    *value_of(db, factor) *= 1.03;
    write_rows(gib);
    read_rows(&v, db);
    for (int i = 0; i < ROWS; i++) {
        gib[i] = v.rows.v[i].memory[0].predicted_bytes / 0x1p30;
    }
    mw_validate_release(&v);
    write_rows(gib);
    read_rows(&v, db);
    *value_of(db, factor) /= 1.03;
    assert_int_equal(mw_tensor_fit_init(&f, db, &v, &err), MW_OK);
    assert_int_equal(f.n, ROWS);
    mw_tensor_fit_run(&f);
    mw_tensor_fit_leave_out(&f);
    for (size_t k = 0; k < f.p; k++) {
        const struct mw_fit_param *p = &mw_tensor_params[k];
        double data = ROWS * f.figure[0].weight, prior = 1 / (p->sd * p->sd);
        bool is_it = strcmp(p->name, factor) == 0;

        mw_assert_near(f.x[k] - log(p->prior),
                       is_it ? log(1.03) * data / (data + prior) : 0, 1e-5,
                       1e-7);
        if (is_it) {
            for (size_t i = 0; i < f.n; i++) { /* half of the data are out */
                mw_assert_near(f.figure[i].left_out,
                               -log(1.03) * prior / (data / 2 + prior), 1e-5,
                               1e-7);
            }
        }
    }
    mw_tensor_fit_release(&f);
    mw_validate_release(&v);
    mw_hwdb_free(db);
    remove("figures.csv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constants_come_back)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
