/* Differences account for everything: terms sum to the step, causes to their
 * term, the reverse question has the reverse answer, and what did not change
 * causes nothing. */
#include "planner_world.h"

#include "planner/diff.h"
#include "planner/diff_int.h"

#include <math.h>
#include <string.h>

/* ---- the logarithmic mean --------------------------------------------------
 */
static void test_log_mean(void **state)
{
    (void)state;
    /* (e - 1) / ln e */
    mw_assert_near(mw_log_mean(1, exp(1)), exp(1) - 1, 1e-15, 0);
    mw_assert_near(mw_log_mean(2, 8), 6 / log(4), 1e-15, 0);
    mw_assert_near(mw_log_mean(8, 2), mw_log_mean(2, 8), 1e-15, 0);
    assert_true(mw_log_mean(3, 3) == 3);
    for (double x = 1; x < 2; x += 1e-3) { /* geometric < log < arithmetic */
        double mean = mw_log_mean(x, x + 1e-4);
        assert_true(mean >= sqrt(x * (x + 1e-4)) * (1 - 1e-12));
        assert_true(mean <= (x + 0.5e-4) * (1 + 1e-12));
    }
    /* Continuous over the switch to a + b over 2. */
    mw_assert_near(mw_log_mean(1, 1 + 1.001e-9), 1 + 0.5e-9, 1e-6, 0);
}

/* ---- pairs of plans --------------------------------------------------------
 */
struct pair {
    struct mw_plan plan[2];
    struct mw_diff_side side[2];
};

static void open_pair(const struct world *w, const struct mw_layout *a,
                      const struct mw_layout *b, struct pair *p)
{
    const struct mw_layout *layout[] = {a, b};
    struct mw_err err = {0};

    for (int i = 0; i < 2; i++) {
        if (mw_plan_make(&w->scenario, layout[i], NULL, &p->plan[i], &err) !=
                MW_OK ||
            mw_diff_side_init(&w->scenario, &p->plan[i], &w->ctx, &p->side[i],
                              &err) != MW_OK) {
            fail_msg("%s", err.text);
        }
    }
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        mw_diff_side_release(&p->side[i]);
        mw_plan_release(&p->plan[i]);
    }
}

static void check_sums(const struct mw_diff *d)
{
    double terms = 0;

    for (int i = 0; i < d->n_terms; i++) {
        const struct mw_diff_term *t = &d->term[i];
        double causes = 0;

        for (int k = 0; k < t->n_causes; k++) {
            causes += t->cause[k].difference_s;
        }
        if (t->n_causes > 0) {
            mw_assert_near(causes, t->b_s - t->a_s, 0,
                           1e-12 * (d->a_s + d->b_s));
        }
        terms += t->b_s - t->a_s;
    }
    mw_assert_near(terms, d->b_s - d->a_s, 0, 1e-12 * (d->a_s + d->b_s));
}

/* Of a kind that the difference has. */
static const struct mw_diff_term *term_of(const struct mw_diff *d,
                                          enum mw_span_kind kind)
{
    for (int i = 0; i < d->n_terms; i++) {
        if (d->term[i].kind == kind) {
            return &d->term[i];
        }
    }
    fail_msg("no term %s", mw_span_kind_name(kind));
    return &d->term[0];
}

static void check_reverse(const struct mw_diff *d, const struct mw_diff *back)
{
    double near_s = 1e-12 * (d->a_s + d->b_s);

    assert_int_equal(d->n_terms, back->n_terms);
    for (int i = 0; i < d->n_terms; i++) {
        const struct mw_diff_term *t = &d->term[i];
        const struct mw_diff_term *r = term_of(back, t->kind);

        assert_int_equal(t->n_causes, r->n_causes);
        for (int k = 0; k < t->n_causes; k++) {
            mw_assert_near(t->cause[k].difference_s, -r->cause[k].difference_s,
                           0, near_s);
        }
    }
    assert_int_equal(d->n_settings, back->n_settings);
}

/* Random layouts, schedules on two routes among them. */
static void test_sums_of_random_pairs(void **state)
{
    (void)state;
    struct world w;

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    for (uint64_t seed = 1; seed <= 24; seed++) {
        struct mw_layout a, b;
        struct pair p;
        struct mw_diff d, back;

        assert_true(draw_layout(&w, seed, &a));
        assert_true(draw_layout(&w, 1000 + seed, &b));
        open_pair(&w, &a, &b, &p);
        mw_diff(&p.side[0], &p.side[1], &d);
        mw_diff(&p.side[1], &p.side[0], &back);
        check_sums(&d);
        check_reverse(&d, &back);
        mw_diff_release(&d);
        mw_diff_release(&back);
        close_pair(&p);
    }
    close_world(&w);
}

static void test_equal_plans(void **state)
{
    (void)state;
    struct world w;
    struct pair p;
    struct mw_diff d;

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    open_pair(&w, &w.scenario.layout, &w.scenario.layout, &p);
    mw_diff(&p.side[0], &p.side[1], &d);
    assert_int_equal(d.n_settings, 0);
    assert_true(d.n_terms > 0);
    for (int i = 0; i < d.n_terms; i++) {
        for (int k = 0; k < d.term[i].n_causes; k++) {
            assert_true(d.term[i].cause[k].difference_s == 0);
        }
    }
    mw_diff_release(&d);
    close_pair(&p);
    close_world(&w);
}

/* A wire of half the speed: the same bytes, the same work; twice the time per
 * byte, less the part that is latency. */
static void test_slower_network_is_time_per_byte(void **state)
{
    (void)state;
    struct world w;
    struct mw_layout l;
    struct mw_plan plan;
    struct mw_diff_side a, b;
    struct mw_diff d;

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    l = w.scenario.layout;
    struct mw_cost_ctx slow = w.ctx;

    slow.net_speed = 0.5;
    assert_int_equal(mw_plan_make(&w.scenario, &l, NULL, &plan, NULL), MW_OK);
    assert_int_equal(mw_diff_side_init(&w.scenario, &plan, &w.ctx, &a, NULL),
                     MW_OK);
    assert_int_equal(mw_diff_side_init(&w.scenario, &plan, &slow, &b, NULL),
                     MW_OK);
    mw_diff(&a, &b, &d);
    const struct mw_diff_term *pp = term_of(&d, MW_SPAN_PP);
    const struct mw_diff_term *f = term_of(&d, MW_SPAN_F);

    assert_int_equal(pp->n_causes, 3);
    assert_true(pp->cause[0].difference_s == 0);
    assert_true(pp->cause[1].difference_s > 0.1 * pp->a_s);
    assert_int_equal(f->n_causes, 2);
    assert_true(f->cause[0].difference_s == 0 && f->cause[1].difference_s == 0);
    assert_int_equal(d.n_settings, 0);
    mw_diff_release(&d);
    mw_diff_side_release(&a);
    mw_diff_side_release(&b);
    mw_plan_release(&plan);
    close_world(&w);
}

/* Twice the tensor parallel ways, half the stages: half of the work less the
 * part that is not split, never more; both settings are named. */
static void test_settings_are_named(void **state)
{
    (void)state;
    struct world w;
    struct mw_layout a, b;
    struct pair p;
    struct mw_diff d;
    bool has_tp = false, has_pp = false;

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    mw_layout_default(&a);
    a.tp = 4;
    a.pp = 16;
    b = a;
    b.tp = 8;
    b.pp = 8;
    open_pair(&w, &a, &b, &p);
    mw_diff(&p.side[0], &p.side[1], &d);
    for (int i = 0; i < d.n_settings; i++) {
        const struct mw_diff_setting *s = &d.setting[i];

        has_tp = has_tp || (strcmp(s->key, "layout.tp") == 0 &&
                            strcmp(s->a, "4") == 0 && strcmp(s->b, "8") == 0);
        has_pp = has_pp || strcmp(s->key, "layout.pp") == 0;
    }
    assert_true(has_tp && has_pp);
    assert_int_equal(d.n_settings, 2);
    /* Each rank has 1 / (tp pp) of the layers' work either way. */
    const struct mw_diff_term *w_term = term_of(&d, MW_SPAN_W);

    mw_assert_near(w_term->cause[0].difference_s, 0, 0, 1e-9 * d.a_s);
    mw_diff_release(&d);
    close_pair(&p);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_mean),
        cmocka_unit_test(test_sums_of_random_pairs),
        cmocka_unit_test(test_equal_plans),
        cmocka_unit_test(test_slower_network_is_time_per_byte),
        cmocka_unit_test(test_settings_are_named)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
