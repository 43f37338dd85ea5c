/*
 * The task graph of a step against closed forms: passes of given picoseconds
 * on hand-made stages, transfers of a given time.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/step/tasks_int.h"
#include "step_fixture.h"

#include <math.h>

struct bench {
    struct mw_hwdb *db;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
    struct mw_system system; /* transfers of a constant time */
    struct mw_gpu gpu;
    enum mw_recompute recompute;
};

static int setup(void **state)
{
    struct bench *b = mw_calloc(1, sizeof *b);

    b->db = step_hwdb();
    step_scenario(&b->scenario, "dgx-a100", 1, 64, "bf16");
    step_ctx(&b->ctx, b->db, &b->scenario);
    b->system = *b->ctx.system;
    b->gpu = *b->ctx.gpu;
    b->system.slug = "none";
    b->system.intra_bw_Bps = (double)INFINITY;
    b->ctx.domain_net_Bps = (double)INFINITY;
    b->ctx.system = &b->system;
    b->ctx.gpu = &b->gpu;
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    mw_scenario_release(&b->scenario);
    mw_hwdb_free(b->db);
    mw_free(b);
    return 0;
}

/* A stage of compute alone. */
static void set_stage(struct mw_vstage *v, mw_time f, mw_time b, mw_time w)
{
    memset(v->ps, 0, sizeof v->ps);
    v->ps[MW_PHASE_F][MW_LANE_COMPUTE] = v->f_ps = f;
    v->ps[MW_PHASE_B][MW_LANE_COMPUTE] = v->b_ps = b;
    v->ps[MW_PHASE_W][MW_LANE_COMPUTE] = v->w_ps = w;
}

/* times: [n_virtual][3]. The end of the step without a tail. */
static mw_time run(struct bench *b, const struct mw_schedule *s,
                   mw_time (*times)[3], mw_time transfer_ps)
{
    struct mw_layout l;
    struct mw_step_frame frame;
    struct mw_step_tasks tasks;
    struct mw_timeline timeline;
    struct mw_err err = {0};
    mw_time end_ps = 0;
    int layers[64] = {0};
    char text[256];

    mw_layout_default(&l);
    l.pp = s->n_stages;
    l.recompute = b->recompute;
    l.vpp = s->route_len / s->n_stages;
    b->system.intra_alpha_s = b->system.inter_alpha_s =
        mw_time_to_s(transfer_ps);
    mw_step_frame_init(&frame, &b->scenario, &l, layers, s, &b->ctx, true,
                       NULL);
    for (int k = 0; k < s->route_len; k++) {
        set_stage(&frame.vstage[k], times[k][0], times[k][1], times[k][2]);
    }
    memset(frame.tail, 0, (size_t)s->n_stages * sizeof *frame.tail);
    mw_timeline_init(&timeline);
    mw_step_tasks_init(&tasks, &timeline);
    mw_step_tasks_build(&tasks, &frame, s);
    if (mw_step_tasks_run(&tasks, true, &end_ps, NULL, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_null(mw_timeline_check(&timeline, text, sizeof text));
    mw_step_tasks_release(&tasks);
    mw_timeline_release(&timeline);
    mw_step_frame_release(&frame);
    return end_ps;
}

static void make(struct mw_schedule *s, const char *kind, int p, int m, int v)
{
    struct mw_sched_args args = {
        .n_stages = p, .n_microbatches = m, .n_chunks = v, .n_parts = 1};
    struct mw_err err = {0};

    if (mw_schedule_make(kind, &args, s, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

/* Equal stages, no transfers: makespan (m v + p - 1) t, so the bubble is
 * exactly (p - 1) / (m v + p - 1) of it (SC21, sections 2.2.1 and 2.2.2). */
static void test_bubble_of_equal_stages(void **state)
{
    static const struct {
        const char *kind;
        int v;
    } kinds[] = {{"gpipe", 1},
                 {"1f1b", 1},
                 {"interleaved-1f1b", 2},
                 {"interleaved-1f1b", 4}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (int p = 2; p <= 8; p *= 2) {
            int v = kinds[i].v, m = 2 * p;
            mw_time times[32][3], t = 1001 + 1777 + 223;
            struct mw_schedule s;

            for (int k = 0; k < p * v; k++) {
                times[k][0] = 1001;
                times[k][1] = 1777;
                times[k][2] = 223;
            }
            make(&s, kinds[i].kind, p, m, v);
            mw_time end = run(*state, &s, times, 0);
            assert_int_equal(end, (m * v + p - 1) * t);
            assert_int_equal((end - m * v * t) * (m * v + p - 1),
                             (p - 1) * end);
            mw_schedule_release(&s);
        }
    }
}

/* One micro-batch: the sum of everything on its way, transfers twice. */
static void test_one_microbatch(void **state)
{
    mw_time times[][3] = {{10, 20, 5}, {30, 40, 7}, {11, 13, 17}};
    struct bench *b = *state;
    struct mw_schedule s;

    make(&s, "1f1b", 3, 1, 1);
    assert_int_equal(run(b, &s, times, 1000), 35 + 77 + 41 + 4 * 1000);
    /* our executor sends the gradient before W: W of the later stages is off
     * the way */
    b->gpu.is_cpu = true;
    assert_int_equal(run(b, &s, times, 1000), 35 + 70 + 24 + 4 * 1000);
    /* full recomputation brings back a layer at a time: its W comes first */
    b->recompute = MW_RECOMPUTE_FULL;
    assert_int_equal(run(b, &s, times, 1000), 35 + 77 + 41 + 4 * 1000);
    b->recompute = MW_RECOMPUTE_NONE;
    b->gpu.is_cpu = false;
    mw_schedule_release(&s);
}

/* The same lists replayed by sim/pipe, which shares no code with the graph:
 * every schedule, random times, with and without transfers (a part of a
 * micro-batch takes its share). Overlapped pairs
 * are left out: a step runs them one after the other. */
static void test_every_schedule_equals_the_replay(void **state)
{
    const struct mw_sched_kind *kind;
    uint64_t draw = 0;

    for (size_t i = 0; (kind = mw_schedule_kind(i)) != NULL; i++) {
        int v = kind->min_chunks, p = 4, m = 8;
        mw_time times[64][3], f[64], b[64], w[64];
        struct mw_pipe_times given = {.f_ps = f, .b_ps = b, .w_ps = w};
        struct mw_pipe_run replayed;
        struct mw_schedule s;
        bool has_pairs = false;

        make(&s, kind->name, p, m, v);
        for (uint32_t k = 0; k < s.first[p]; k++) {
            has_pairs |= (s.slot[k].flags & MW_SLOT_PAIR) != 0;
        }
        for (int k = 0; k < s.route_len; k++) {
            for (int pass = 0; pass < 3; pass++) {
                times[k][pass] =
                    s.n_parts * (100 + (int)(mw_rand_u64(1, 2, draw++) % 900));
            }
        }
        for (int at = 0; at < p * s.n_chunks; at++) {
            f[at] = times[s.virtual_stage[at]][0] / s.n_parts;
            b[at] = times[s.virtual_stage[at]][1] / s.n_parts;
            w[at] = times[s.virtual_stage[at]][2] / s.n_parts;
        }
        for (given.comm_ps = 0; given.comm_ps < 100 && !has_pairs;
             given.comm_ps += 37) {
            assert_int_equal(mw_pipe_replay(&s, &given, &replayed, NULL),
                             MW_OK);
            mw_time end = run(*state, &s, times, s.n_parts * given.comm_ps);
            if (end != replayed.makespan_ps) {
                fail_msg("%s, transfer %d ps: %lld but replay %lld", kind->name,
                         (int)given.comm_ps, (long long)end,
                         (long long)replayed.makespan_ps);
            }
            mw_pipe_run_release(&replayed);
        }
        mw_schedule_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bubble_of_equal_stages),
        cmocka_unit_test(test_one_microbatch),
        cmocka_unit_test(test_every_schedule_equals_the_replay),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
