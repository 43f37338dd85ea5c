/*
 * The recorder: segments around communications, one list for all steps, busy
 * times of a step and their lower quartile.
 */
#include "mw_test.h"

#include "exec/record.h"
#include "exec/replay_clock.h"

/* A device whose clock the test turns. */
static int64_t now_ns(struct mw_dev *dev)
{
    return (int64_t)dev->used_bytes;
}

static const struct mw_dev_ops fake_ops = {.name = "fake", .busy_ns = now_ns};

static void work(struct mw_dev *dev, size_t ns)
{
    dev->used_bytes += ns;
}

static const struct mw_rec_event reduce = {.type = MW_REC_COLL,
                                           .span = MW_SPAN_TP,
                                           .name = "reduce",
                                           .microbatch = 3,
                                           .bytes = 64};

/* compute a, all-reduce, compute b, end, compute c */
static void one_step(struct mw_rec *rec, size_t a, size_t b, size_t c)
{
    mw_rec_step_begin(rec);
    mw_rec_work(rec, MW_SPAN_F, "F", 3, 1);
    work(rec->dev, a);
    int64_t begin_ns = mw_rec_comm_begin(rec);
    work(rec->dev, 1000000); /* spinning in a collective is not compute */
    mw_rec_comm_end(rec, begin_ns, &reduce);
    work(rec->dev, b);
    mw_rec_idle(rec);
    work(rec->dev, 77);
    mw_rec_work(rec, MW_SPAN_W, "W", 3, 1);
    work(rec->dev, c);
    mw_rec_step_end(rec);
}

static void segments_and_steps(void **state)
{
    (void)state;
    struct mw_dev dev = {.ops = &fake_ops};
    struct mw_rec rec;
    mw_rec_init(&rec, &dev);
    one_step(&rec, 1, 2, 3); /* off: nothing is kept */
    assert_int_equal(rec.events.n, 0);
    rec.is_on = true;
    one_step(&rec, 100, 200, 300);
    one_step(&rec, 500, 600, 700);
    assert_int_equal(rec.n_steps, 2);
    assert_int_equal(rec.events.n, 4);
    assert_int_equal(rec.events.v[0].type, MW_REC_COMPUTE);
    assert_int_equal(rec.events.v[1].type, MW_REC_COLL);
    assert_int_equal(rec.events.v[2].span, MW_SPAN_F); /* label kept */
    assert_int_equal(rec.events.v[2].microbatch, 3);
    assert_int_equal(rec.events.v[3].span, MW_SPAN_W);
    assert_int_equal(mw_rec_time(&rec, 0, 0)->busy_ns, 100);
    assert_int_equal(mw_rec_time(&rec, 0, 2)->busy_ns, 200);
    assert_int_equal(mw_rec_time(&rec, 1, 3)->busy_ns, 700);
    assert_true(mw_rec_time(&rec, 1, 1)->end_ns >=
                mw_rec_time(&rec, 1, 1)->begin_ns);
    mw_rec_release(&rec);
}

/* Five steps of 1 .. 5 us: the lower quartile (type 7) is the second. */
static void lower_quartile_over_steps(void **state)
{
    (void)state;
    struct mw_dev dev = {.ops = &fake_ops};
    struct mw_rec rec;
    double busy_s[4];
    mw_rec_init(&rec, &dev);
    rec.is_on = true;
    static const size_t us[] = {5, 1, 3, 2, 4};
    for (int i = 0; i < 5; i++) {
        one_step(&rec, 1000 * us[i], 1000, 1000 * (6 - us[i]));
    }
    mw_replay_usual(&rec, 4, busy_s);
    mw_assert_near(busy_s[0], 2e-6, 1e-12, 0);
    mw_assert_near(busy_s[1], 0, 0, 0);
    mw_assert_near(busy_s[2], 1e-6, 1e-12, 0);
    mw_assert_near(busy_s[3], 2e-6, 1e-12, 0);
    mw_replay_busy(&rec, 2, busy_s);
    mw_assert_near(busy_s[0], 3e-6, 1e-12, 0);
    mw_rec_release(&rec);
}

/* dense 10, experts 2 or 3 ns a row, dense 20 */
static void routed_step(struct mw_rec *rec, size_t rows, size_t each)
{
    mw_rec_step_begin(rec);
    mw_rec_work(rec, MW_SPAN_F, "F", 0, 0);
    work(rec->dev, 10);
    mw_rec_routed_begin(rec, (int64_t)rows);
    work(rec->dev, rows * each);
    mw_rec_routed_end(rec);
    work(rec->dev, 20);
    mw_rec_step_end(rec);
}

/* Each step has its own rows, at the usual time of a row. */
static void routed_rows(void **state)
{
    (void)state;
    struct mw_dev dev = {.ops = &fake_ops};
    struct mw_rec rec;
    double busy_s[3];
    mw_rec_init(&rec, &dev);
    routed_step(&rec, 5, 2); /* off */
    rec.is_on = true;
    routed_step(&rec, 100, 2);
    routed_step(&rec, 0, 2);
    routed_step(&rec, 50, 2);
    routed_step(&rec, 200, 3);
    assert_int_equal(rec.events.n, 3);
    assert_true(rec.events.v[1].is_routed && !rec.events.v[2].is_routed);
    assert_int_equal(rec.events.v[2].span, MW_SPAN_F);
    for (int s = 0; s < 4; s++) {
        static const double rows[] = {100, 0, 50, 200};
        mw_replay_usual(&rec, s, busy_s);
        mw_assert_near(busy_s[0], 10e-9, 1e-12, 0);
        mw_assert_near(busy_s[1], rows[s] * 2e-9, 1e-12, 0);
        mw_assert_near(busy_s[2], 20e-9, 1e-12, 0);
    }
    mw_rec_release(&rec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_and_steps),
        cmocka_unit_test(lower_quartile_over_steps),
        cmocka_unit_test(routed_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
