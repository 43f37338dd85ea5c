/*
 * ZeRO-3 in units of several layers, some of them gathered ahead
 * (sim/step/fsdp_units.c): how many collectives of how many bytes, what shows
 * of them against closed forms and a replay of wire and work, memory.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/step/step_int.h"
#include "step_fixture.h"

#include <math.h>

enum { LAYERS = 16, MICROBATCHES = 2 };
/* Replicas on different nodes, stages inside one. */
#define ACROSS "tp-cp-ep-pp-dp"

static void open_world(struct step_world *w)
{
    step_scenario(&w->s, "dgx-a100", 4, 128, "bf16");
    step_world_price(w);
    w->ctx.stack.overlap_fsdp = 1;
    w->ctx.stack.contends = false; /* test_step_contend */
}

/* 32 / pp replicas, micro-batches of 2. */
static struct mw_layout layout(int pp, int unit, int prefetch)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.pp = pp;
    l.dp = 32 / pp;
    l.micro_batch = 2;
    l.zero = 3;
    l.fsdp_unit = unit;
    l.fsdp_prefetch = prefetch;
    return l;
}

static int units_of(int n_layers, int k)
{
    return (n_layers + k - 1) / k;
}

/* ---- counts ---------------------------------------------------------------
 */
static void test_counts(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 16, 100};
    struct step_world w;

    (void)state;
    open_world(&w);
    struct mw_layout l = layout(1, 1, -1);
    struct mw_ledger_row gather =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER);
    struct mw_ledger_row scatter =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_REDUCE_SCATTER);
    mw_assert_near(gather.count, 2 * MICROBATCHES * (LAYERS + 2), 0, 0);
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        bool reshards = i % 2 == 0;

        l = layout(1, sizes[i / 2], (int)i % 4 - 1);
        l.reshard = reshards;
        struct mw_ledger_row g =
            step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER);
        struct mw_ledger_row s =
            step_ledger_row(&w, &l, MW_DIM_DP, MW_REDUCE_SCATTER);
        double n = MICROBATCHES * (units_of(LAYERS, sizes[i / 2]) + 2);
        mw_assert_near(g.count, (reshards ? 2 : 1) * n, 0, 0);
        mw_assert_near(s.count, n, 0, 0);
        mw_assert_near(g.message_bytes,
                       gather.message_bytes / (reshards ? 1 : 2), 1e-12, 0);
        mw_assert_near(s.message_bytes, scatter.message_bytes, 1e-12, 0);
    }
    l = layout(1, 0, -1);
    struct mw_ledger_row one =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER);
    mw_assert_near(one.count, 2 * MICROBATCHES, 0, 0);
    mw_assert_near(one.message_bytes, gather.message_bytes, 1e-12, 0);
    step_world_close(&w);
}

/* The timeline's bytes are the ledger's. */
static void test_timeline_carries_the_ledger(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    for (int k = 0; k < 6; k++) {
        struct mw_layout l = layout(1, k, k % 3);
        struct mw_timeline t;
        struct mw_step_result r;
        double sent = 0;

        mw_timeline_init(&t);
        step_simulate(&r, &w.s, &l, &w.ctx, &t);
        for (size_t i = 0; i < t.spans.n; i++) {
            sent += t.spans.v[i].kind == MW_SPAN_DP && t.spans.v[i].rank == 0
                        ? t.spans.v[i].bytes
                        : 0;
        }
        mw_assert_near(
            sent,
            step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER).message_bytes +
                step_ledger_row(&w, &l, MW_DIM_DP, MW_REDUCE_SCATTER)
                    .message_bytes,
            1e-9, 0);
        mw_step_result_release(&r);
        mw_timeline_release(&t);
    }
    step_world_close(&w);
}

/* ---- time -----------------------------------------------------------------
 */
/* A stage's units in the order of a pass. */
struct pass {
    int n;
    double gather[LAYERS + 2], work[LAYERS + 2], scatter[LAYERS + 2];
};

static double kind_s(const struct mw_step_price *p, int unit,
                     enum mw_phase first, enum mw_phase last)
{
    double sum = 0;

    for (int phase = (int)first; phase <= (int)last; phase++) {
        for (int lane = 0; lane < MW_LANE_DP; lane++) {
            sum += p->cost[unit].phase[phase].s[lane];
        }
    }
    return sum;
}

static double coll_s(const struct step_world *w, const struct mw_step_price *p,
                     enum mw_coll_op op, double bytes)
{
    return mw_cost_coll(&w->ctx, op, bytes, &p->grad_group, NULL).time_s;
}

/* Alike layers in units of k, between the ends that the stage has. */
static struct pass pass_of(const struct step_world *w,
                           const struct mw_step_price *p,
                           const struct mw_vstage *v, int k, bool is_back)
{
    enum mw_phase first = is_back ? MW_PHASE_R : MW_PHASE_F;
    enum mw_phase last = is_back ? MW_PHASE_W : MW_PHASE_F;
    struct pass pass = {.n = 0};
    int left = v->n_units[MW_UNIT_DENSE];

    for (int unit = v->n_units[MW_UNIT_EMBEDDING] ? -1 : 0;
         left > 0 || unit < 0 || v->n_units[MW_UNIT_HEAD] > 0; unit++) {
        int kind = unit < 0   ? MW_UNIT_EMBEDDING
                   : left > 0 ? MW_UNIT_DENSE
                              : MW_UNIT_HEAD;
        int n = kind != MW_UNIT_DENSE ? 1 : left < k ? left : k;
        double params = n * p->size[kind].dense_params;
        int at = pass.n++;

        left -= kind == MW_UNIT_DENSE ? n : 0;
        pass.gather[at] = coll_s(w, p, MW_ALL_GATHER, 2 * params);
        pass.work[at] = n * kind_s(p, kind, first, last);
        pass.scatter[at] =
            is_back ? coll_s(w, p, MW_REDUCE_SCATTER, 4 * params) : 0;
        if (kind == MW_UNIT_HEAD) {
            break;
        }
    }
    for (int i = 0, j = pass.n - 1; is_back && i < j; i++, j--) {
        double *rows[] = {pass.gather, pass.work, pass.scatter};

        for (int r = 0; r < 3; r++) {
            double x = rows[r][i];

            rows[r][i] = rows[r][j];
            rows[r][j] = x;
        }
    }
    return pass;
}

/* Wire and work as a graph, whose longest paths are found by going over it
 * until nothing moves. The wire takes the gather that work waits for first. */
static double replay_s(const struct pass *p, int depth)
{
    enum { MAX = LAYERS + 2 };
    double gather[MAX] = {0}, work[MAX] = {0}, scatter[MAX] = {0}, end = 0;
    double sum = 0;

    for (int round = 0; round < 4 * MAX; round++) {
        double wire = 0;

        for (int i = 0; i < p->n + depth + 1; i++) {
            int g = i, s = i - depth - 1;

            if (g < p->n) {
                double asked = depth == 0 ? (g > 0 ? work[g - 1] : 0)
                               : g < depth
                                   ? 0
                                   : work[g - depth] - p->work[g - depth];

                wire = gather[g] = fmax(wire, asked) + p->gather[g];
            }
            if (s >= 0) {
                wire = scatter[s] = fmax(wire, work[s]) + p->scatter[s];
            }
        }
        for (int i = 0; i < p->n; i++) {
            work[i] = fmax(gather[i], i > 0 ? work[i - 1] : 0) + p->work[i];
        }
        end = fmax(work[p->n - 1], p->scatter[p->n - 1] > 0 ? wire : 0);
    }
    for (int i = 0; i < p->n; i++) {
        sum += p->work[i];
    }
    return end - sum;
}

static void frame_of(struct mw_step_frame *f, const struct step_world *w,
                     const struct mw_layout *l)
{
    int layers[LAYERS];

    for (int i = 0; i < l->pp; i++) {
        layers[i] = LAYERS / l->pp;
    }
    mw_step_frame_init(f, &w->s, l, layers, NULL, &w->ctx, true, NULL);
}

static double sum_of(const double *v, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        sum += v[i];
    }
    return sum;
}

static void test_replayed(void **state)
{
    struct step_world w;
    int bound_by_wire = 0, hidden = 0;

    (void)state;
    open_world(&w);
    w.ctx.domain_net_Bps /= 4;
    for (uint64_t i = 0; i < 300; i++) {
        int pp = 1 << mw_rand_u64(41, 1, i) % 3;
        int k = 1 + (int)(mw_rand_u64(41, 2, i) % 8);
        int d = (int)(mw_rand_u64(41, 3, i) % 4);
        struct mw_layout l = layout(pp, k, d);
        struct mw_step_frame f;

        l.micro_batch = 1 << mw_rand_u64(41, 4, i) % 5;
        if (mw_rand_u64(41, 5, i) % 2 == 0) {
            l.order = ACROSS;
        }
        frame_of(&f, &w, &l);
        for (int stage = 1; stage < (pp > 1 ? pp : 0); stage++) {
            for (int back = 0; back < 2; back++) {
                struct pass pass =
                    pass_of(&w, &f.price, &f.vstage[stage], k, back == 1);
                double all =
                    sum_of(pass.gather, pass.n) + sum_of(pass.scatter, pass.n);

                /* The last stage holds a copy of the tied embedding. */
                if (stage == pp - 1) {
                    continue;
                }
                mw_assert_near(f.vstage[stage].wrap_s[back], replay_s(&pass, d),
                               1e-9, 1e-12);
                mw_assert_near(f.vstage[stage].wrap_part[back] * all,
                               f.vstage[stage].wrap_s[back], 1e-9, 1e-12);
                bound_by_wire += all > sum_of(pass.work, pass.n);
                hidden += f.vstage[stage].wrap_s[back] < 0.5 * all;
            }
        }
        for (int back = 0; pp == 1 && back < 2; back++) {
            struct pass pass =
                pass_of(&w, &f.price, &f.vstage[0], k, back == 1);

            mw_assert_near(f.vstage[0].wrap_s[back], replay_s(&pass, d), 1e-9,
                           1e-12);
        }
        mw_step_frame_release(&f);
    }
    assert_true(bound_by_wire > 20);
    assert_true(hidden > 20);
    step_world_close(&w);
}

/* Alike layers, in closed form: of a forward pass with one unit ahead
 * n (g - w)+ + min(g, w), which is what the stack's own way comes to; with none
 * ahead all gathers; all in one unit that one gather, whatever is ahead. */
static void test_closed_forms(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    for (int slow = 0; slow < 2; slow++) {
        struct mw_layout l = layout(4, 1, 1);
        struct mw_step_frame f;

        if (slow) {
            l.order = ACROSS;
        } else {
            l.micro_batch = 16;
        }
        frame_of(&f, &w, &l);
        struct pass one = pass_of(&w, &f.price, &f.vstage[1], 1, false);
        double g = one.gather[0], work = one.work[0];

        assert_int_equal(one.n, 4);
        assert_true(slow ? g > work : g < work);
        mw_assert_near(f.vstage[1].wrap_s[0],
                       4 * fmax(0, g - work) + fmin(g, work), 1e-9, 0);
        mw_step_frame_release(&f);
        for (int d = 0; d < 3; d++) {
            l.fsdp_unit = 2;
            l.fsdp_prefetch = 0;
            frame_of(&f, &w, &l);
            struct pass two = pass_of(&w, &f.price, &f.vstage[1], 2, false);
            mw_assert_near(f.vstage[1].wrap_s[0], sum_of(two.gather, two.n),
                           1e-9, 0);
            mw_step_frame_release(&f);
            l.fsdp_unit = 0;
            l.fsdp_prefetch = d;
            frame_of(&f, &w, &l);
            struct pass all = pass_of(&w, &f.price, &f.vstage[1], 4, false);
            assert_int_equal(all.n, 1);
            mw_assert_near(f.vstage[1].wrap_s[0], all.gather[0], 1e-9, 0);
            mw_assert_near(
                f.vstage[1].wrap_s[1],
                all.gather[0] +
                    coll_s(&w, &f.price, MW_REDUCE_SCATTER,
                           4 * 4 * f.price.size[MW_UNIT_DENSE].dense_params),
                1e-9, 0);
            mw_step_frame_release(&f);
        }
    }
    step_world_close(&w);
}

/* A stack that hides nothing exposes every transfer; a layout's switches the
 * gathers, or the scatters; the rest is between. */
static void test_parts(void **state)
{
    static const double overlaps[] = {0, 0.4, 1};
    struct step_world w;
    double shown[3] = {0};

    (void)state;
    open_world(&w);
    for (int i = 0; i < 3; i++) {
        struct mw_layout l = layout(4, 2, 1);
        struct mw_step_frame f;

        w.ctx.stack.overlap_fsdp = overlaps[i];
        frame_of(&f, &w, &l);
        struct pass back = pass_of(&w, &f.price, &f.vstage[1], 2, true);
        double gathers = sum_of(back.gather, back.n);
        double scatters = sum_of(back.scatter, back.n);

        shown[i] = f.vstage[1].wrap_s[1];
        if (i == 0) {
            mw_assert_near(shown[i], gathers + scatters, 1e-9, 0);
        }
        mw_step_frame_release(&f);
        if (i == 2) {
            l.overlap_off = MW_OVERLAP_PARAMS | MW_OVERLAP_GRADS;
            frame_of(&f, &w, &l);
            mw_assert_near(f.vstage[1].wrap_s[1], gathers + scatters, 1e-9, 0);
            mw_step_frame_release(&f);
            l.overlap_off = MW_OVERLAP_PARAMS;
            frame_of(&f, &w, &l);
            assert_true(f.vstage[1].wrap_s[1] > gathers);
            assert_true(f.vstage[1].wrap_s[1] < gathers + scatters);
            mw_step_frame_release(&f);
        }
    }
    mw_assert_near(shown[1], 0.6 * shown[0] + 0.4 * shown[2], 1e-9, 0);
    assert_true(shown[2] < shown[0]);
    step_world_close(&w);
}

/* Fewer and larger collectives save latency where nothing is hidden; a unit
 * gathered ahead never costs time. */
static void test_orders(void **state)
{
    struct step_world w;
    double before = HUGE_VAL;

    (void)state;
    open_world(&w);
    for (int k = 1; k <= LAYERS; k *= 2) {
        struct mw_layout l = layout(1, k, 0);
        w.ctx.stack.overlap_fsdp = 0;
        double all_s = step_forms_agree(&w, &l);
        w.ctx.stack.overlap_fsdp = 1;
        double none_s = step_forms_agree(&w, &l);

        assert_true(all_s < before);
        before = all_s;
        for (int d = 1; d < 4; d++) {
            l.fsdp_prefetch = d;
            double ahead_s = step_forms_agree(&w, &l);
            assert_true(ahead_s <= none_s * (1 + 1e-12));
            none_s = ahead_s;
        }
    }
    step_world_close(&w);
}

/* ---- memory ---------------------------------------------------------------
 */
/* Whole weights that are there at a time, closed: (1 + d) units, fewer where
 * the stage ends; beside a layer the embedding once the last are in use. */
static void test_gathered(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    for (int k = 1; k <= 6; k++) {
        for (int d = 0; d < 5; d++) {
            struct mw_layout l = layout(1, k, d);
            const int middle[MW_UNIT_COUNT] = {[MW_UNIT_DENSE] = LAYERS};
            const int whole[MW_UNIT_COUNT] = {[MW_UNIT_EMBEDDING] = 1,
                                              [MW_UNIT_DENSE] = LAYERS,
                                              [MW_UNIT_HEAD] = 1};
            struct mw_step_price p;

            mw_step_price_begin(&p, &w.s, &l, &w.ctx);
            double layer = mw_step_unit_bytes(&p, MW_UNIT_DENSE);
            double table = mw_step_unit_bytes(&p, MW_UNIT_EMBEDDING);
            double head = mw_step_unit_bytes(&p, MW_UNIT_HEAD);
            int n = units_of(LAYERS, k), rest = LAYERS - (n - 1) * k;
            int live = (1 + d) * k < LAYERS ? (1 + d) * k : LAYERS;
            int before = d * k < LAYERS ? d * k : LAYERS;
            int behind = d == 0 ? 0 : rest + (d - 1) * k;

            mw_assert_near(
                mw_fsdp_gathered_bytes(&p, middle, MW_UNIT_DENSE, false),
                live * layer, 1e-12, 0);
            mw_assert_near(
                mw_fsdp_gathered_bytes(&p, whole, MW_UNIT_EMBEDDING, false),
                table, 1e-12, 0);
            mw_assert_near(
                mw_fsdp_gathered_bytes(&p, whole, MW_UNIT_HEAD, false),
                head + (behind < LAYERS ? behind : LAYERS) * layer +
                    (d > n ? table : 0),
                1e-12, 0);
            mw_assert_near(
                mw_fsdp_gathered_bytes(&p, whole, MW_UNIT_DENSE, false),
                d == 0 ? live * layer
                       : fmax(live * layer, before * layer + table),
                1e-12, 0);
            mw_assert_near(mw_fsdp_whole_params(&p, middle, MW_UNIT_DENSE),
                           k * p.size[MW_UNIT_DENSE].dense_params, 1e-12, 0);
            l.fsdp_unit = 0;
            mw_assert_near(
                mw_fsdp_gathered_bytes(&p, whole, MW_UNIT_DENSE, false),
                table + head + LAYERS * layer, 1e-12, 0);
        }
    }
    step_world_close(&w);
}

/* Of a whole step, in a stage without ends: each unit ahead is one more. */
static void test_peak(void **state)
{
    struct step_world w;
    double before = 0, layer = 0;

    (void)state;
    open_world(&w);
    for (int d = 0; d < 4; d++) {
        struct mw_layout l = layout(4, 1, d);
        struct mw_step_price p;
        struct mw_step_result r;

        mw_step_price_begin(&p, &w.s, &l, &w.ctx);
        layer = mw_step_unit_bytes(&p, MW_UNIT_DENSE);
        step_simulate(&r, &w.s, &l, &w.ctx, NULL);
        if (d > 0) {
            mw_assert_near(r.memory[1].total_bytes - before, layer, 1e-6, 0);
        }
        before = r.memory[1].total_bytes;
        mw_step_result_release(&r);
    }
    step_world_close(&w);
}

/* A depth that is not said is the profile's. */
static void test_depth_of_profile(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    for (int d = 0; d < 3; d++) {
        struct mw_layout l = layout(1, 2, -1);
        double of_profile_s;

        w.ctx.stack.fsdp_prefetch = d;
        of_profile_s = step_forms_agree(&w, &l);
        l.fsdp_prefetch = d;
        mw_assert_near(of_profile_s, step_forms_agree(&w, &l), 0, 0);
    }
    step_world_close(&w);
}

/* What is not said stays as it was: the stack's way is not a unit of one. */
static void test_default(void **state)
{
    struct mw_layout l = layout(1, 1, -1), plain = layout(1, 1, 1);

    (void)state;
    assert_false(mw_layout_wraps(&l));
    assert_true(mw_layout_wraps(&plain));
    l.fsdp_unit = 0;
    assert_true(mw_layout_wraps(&l));
    l.zero = 2;
    assert_false(mw_layout_wraps(&l));
}

/* Layers of two kinds: units are of neighbours, whichever they are. */
static void test_mixed(void **state)
{
    struct step_world w;

    (void)state;
    step_scenario_of(&w.s, "format: 1\nname: t\nmodel: deepseek-v3\n"
                           "cluster: {system: dgx-h100, nodes: 32}\n"
                           "workload: {seq: 4096, global_batch: 512}\n");
    step_world_price(&w);
    struct mw_layout l = layout(1, 4, 1);
    int layers[] = {61}, seen[MW_UNIT_COUNT] = {0};
    struct mw_step_frame f;

    l.dp = 256;
    l.ep = 64;
    l.micro_batch = 1;
    mw_step_frame_init(&f, &w.s, &l, layers, NULL, &w.ctx, true, NULL);
    assert_int_equal(mw_fsdp_units(&f.price, f.vstage), 18);
    for (int i = 0; i < 18; i++) {
        int n[MW_UNIT_COUNT];

        mw_fsdp_unit(&f.price, f.vstage, i, n);
        assert_int_equal(n[MW_UNIT_DENSE], i == 1 ? 3 : 0);
        assert_int_equal(n[MW_UNIT_MOE], i == 0 || i == 17   ? 0
                                         : i == 1 || i == 16 ? 1
                                                             : 4);
        for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
            seen[unit] += n[unit];
        }
    }
    assert_memory_equal(seen, f.vstage->n_units, sizeof seen);
    mw_step_frame_release(&f);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_timeline_carries_the_ledger),
        cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_gathered),
        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_depth_of_profile),
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_mixed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
