/*
 * Traffic of one step that meets on NICs and links: by hand on two stages, and
 * that nothing changes where nothing meets.
 */
#include "mw_test.h"

#include "sim/coll/coll_library.h"
#include "sim/step/tasks_int.h"
#include "step_fixture.h"

#include <math.h>

/* Two stages on different nodes, each with replicas on other nodes, links
 * without latency: a transfer and a reduction fill the NIC while they last. */
struct bench {
    struct mw_hwdb *db;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
    struct mw_system system;
    struct mw_layout layout;
};

static int setup(void **state)
{
    struct bench *b = mw_calloc(1, sizeof *b);

    b->db = step_hwdb();
    step_scenario(&b->scenario, "dgx-a100", 4, 64, "bf16");
    step_ctx(&b->ctx, b->db, &b->scenario);
    assert_int_equal(mw_cost_ctx_set_stack(&b->ctx, "plain", NULL), MW_OK);
    b->system = *b->ctx.system;
    b->system.intra_alpha_s = b->system.inter_alpha_s = 0;
    b->ctx.system = &b->system;
    mw_layout_default(&b->layout);
    b->layout.tp = 8;
    b->layout.pp = 2;
    b->layout.dp = 2;
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

/* One micro-batch, passes of f, b and w, and a reduction after the last. */
static mw_time run(struct bench *b, mw_time reduce_ps, bool no_sharing,
                   mw_time *out_transfer_ps)
{
    struct mw_sched_args args = {
        .n_stages = 2, .n_microbatches = 1, .n_chunks = 1, .n_parts = 1};
    struct mw_schedule s;
    struct mw_step_frame frame;
    struct mw_step_tasks tasks;
    struct mw_timeline timeline;
    struct mw_err err = {0};
    mw_time end_ps = 0;
    int layers[2] = {1, 1};

    assert_int_equal(mw_schedule_make("1f1b", &args, &s, &err), MW_OK);
    mw_step_frame_init(&frame, &b->scenario, &b->layout, layers, &s, &b->ctx,
                       true, NULL);
    for (int k = 0; k < 2; k++) {
        struct mw_vstage *v = &frame.vstage[k];

        memset(v->ps, 0, sizeof v->ps);
        v->ps[MW_PHASE_F][MW_LANE_COMPUTE] = v->f_ps = 1000000;
        v->ps[MW_PHASE_B][MW_LANE_COMPUTE] = v->b_ps = 1000000;
        v->ps[MW_PHASE_W][MW_LANE_COMPUTE] = v->w_ps = 1000000;
        mw_assert_near(frame.tail[k].reduce_part[MW_WIRE_NIC], 1, 1e-9, 0);
        mw_assert_near(frame.tail[k].reduce_part[MW_WIRE_LINK], 0, 0, 0);
        frame.tail[k] = (struct mw_tail){.reduce_ps = reduce_ps,
                                         .reduce_bytes = 1e9,
                                         .reduce_part[MW_WIRE_NIC] = 1};
    }
    memset(&frame.wires, 0, sizeof frame.wires);
    *out_transfer_ps = mw_step_transfer_ps(&frame.price, 0, 1, 1);
    mw_timeline_init(&timeline);
    mw_step_tasks_init(&tasks, &timeline);
    tasks.no_sharing = no_sharing;
    mw_step_tasks_build(&tasks, &frame, &s);
    assert_int_equal(mw_step_tasks_run(&tasks, false, &end_ps, NULL, &err),
                     MW_OK);
    mw_step_tasks_release(&tasks);
    mw_timeline_release(&timeline);
    mw_step_frame_release(&frame);
    mw_schedule_release(&s);
    return end_ps;
}

/*
 * The last stage ends its backward pass, sends c to the first and reduces for
 * R: at half pace both, the shorter is done after twice its time. The first
 * stage waits min(c, R) longer.
 */
static void test_transfer_meets_reduction(void **state)
{
    struct bench *b = *state;
    mw_time c;
    mw_time alone = run(b, 1000000, true, &c);

    assert_true(c > 10000000);
    assert_int_equal(alone, 6000000 + 2 * c + 1000000);
    for (int i = 1; i <= 8; i++) {
        mw_time reduce_ps = c / 4 * i;
        mw_time met = run(b, reduce_ps, false, &c);
        mw_time delay = reduce_ps < c ? reduce_ps : c;

        alone = run(b, reduce_ps, true, &c);
        /* either rounds up to a picosecond */
        mw_assert_near((double)(met - alone), (double)delay, 0, 2);
    }
}

static double shared_s(const struct mw_cost_ctx *ctx,
                       const struct mw_scenario *s, const struct mw_layout *l,
                       double *out_step_s)
{
    struct mw_step_result r;

    step_simulate(&r, s, l, ctx, NULL);
    double shared = r.shared_wires_s;

    *out_step_s = r.step_time_s;
    mw_step_result_release(&r);
    return shared;
}

struct world {
    struct mw_hwdb *db;
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
};

static void open_world(struct world *w, const char *system, int nodes,
                       const char *dtype, const char *stack)
{
    char text[256];

    w->db = step_hwdb();
    mw_coll_library_lend(w->db);
    snprintf(text, sizeof text,
             "format: 1\nmodel: llama3-8b\ncluster: {system: %s, nodes: %d}\n"
             "workload: {seq: 4096, global_batch: 32, dtype: %s}\n",
             system, nodes, dtype);
    assert_int_equal(mw_scenario_parse("t", text, strlen(text), &w->s, NULL),
                     MW_OK);
    step_ctx(&w->ctx, w->db, &w->s);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, stack, NULL), MW_OK);
}

static void close_world(struct world *w)
{
    mw_scenario_release(&w->s);
    mw_hwdb_free(w->db);
}

/* Replicas and stages on the same NICs: their traffic meets, the more the
 * slower the network. Without a pipeline there is nothing to meet. */
static void test_who_meets(void **state)
{
    struct world w;
    struct mw_layout l;
    double step_s, slow_step_s;

    (void)state;
    open_world(&w, "dgx-h100", 4, "bf16", "megatron-core");
    mw_layout_default(&l);
    l.tp = 8;
    l.sp = true;
    l.pp = l.dp = 2;
    double fast = shared_s(&w.ctx, &w.s, &l, &step_s);

    w.ctx.net_speed = 0.25;
    double slow = shared_s(&w.ctx, &w.s, &l, &slow_step_s);

    assert_true(fast > 0 && slow > 2 * fast);
    assert_true(slow < 0.2 * slow_step_s);
    l.pp = 1;
    l.dp = 4;
    mw_assert_near(shared_s(&w.ctx, &w.s, &l, &step_s), 0, 0, 0);
    close_world(&w);
    open_world(&w, "this-machine", 1, "fp32", "plain");
    w.s.cluster.gpus_per_node = w.ctx.gpus_per_node = 4;
    l = (struct mw_layout){0};
    mw_layout_default(&l);
    l.pp = l.dp = 2;
    /* our own executor takes turns */
    mw_assert_near(shared_s(&w.ctx, &w.s, &l, &step_s), 0, 0, 0);
    close_world(&w);
}

/* Shards in a node, replicas over four, no latency: gradients are scattered on
 * the links and their shares added on the NICs, one after the other, so each
 * wire is full for its part of the time; parameters come over the links. */
static void test_each_on_its_own_wire(void **state)
{
    struct bench *b = *state;
    struct mw_step_frame frame;
    int layers[1] = {2};
    struct mw_plan plan;

    b->layout = (struct mw_layout){0};
    mw_layout_default(&b->layout);
    b->layout.dp = 32;
    b->layout.dp_shard = 8;
    b->layout.zero = 1;
    step_plan(&plan, &b->scenario, &b->layout);
    mw_step_frame_init(&frame, &b->scenario, &b->layout, layers, &plan.schedule,
                       &b->ctx, true, NULL);

    const struct mw_tail *tail = &frame.tail[0];
    double grads = 4 * frame.price.size[MW_UNIT_DENSE].dense_params * 2 +
                   4 * (frame.price.size[MW_UNIT_EMBEDDING].dense_params +
                        frame.price.size[MW_UNIT_HEAD].dense_params);
    double links_s =
        grads * 7 / 8 / (b->system.intra_bw_Bps * b->system.intra_efficiency);
    double nics_s = 2 * grads / 8 * 3 / 4 /
                    (b->ctx.domain_net_Bps / 8 * b->system.inter_efficiency);
    double all_s = links_s + nics_s;

    mw_assert_near(mw_time_to_s(tail->reduce_ps), all_s, 1e-9, 0);
    mw_assert_near(tail->reduce_part[MW_WIRE_LINK], links_s / all_s, 1e-9, 0);
    mw_assert_near(tail->reduce_part[MW_WIRE_NIC], nics_s / all_s, 1e-9, 0);
    mw_assert_near(tail->gather_part[MW_WIRE_LINK], 1, 1e-9, 0);
    mw_assert_near(tail->gather_part[MW_WIRE_NIC], 0, 0, 0);
    mw_step_frame_release(&frame);
    mw_plan_release(&plan);
}

/* A transfer takes of the NIC the part of its time that grows with its bytes,
 * under leaf switches as priced there: t of 4 and 5 sequences, ln t over ln
 * bytes. The narrower the leaves, the larger the part. */
static void test_transfer_part_is_the_priced_one(void **state)
{
    double before = 0;

    (void)state;
    for (int over = 1; over <= 4; over *= 2) {
        struct mw_step_frame frame[2];
        struct step_world w;
        double part[MW_WIRE_KINDS], t_s[2];
        struct mw_layout l[2];
        int layers[4] = {4, 4, 4, 4};

        step_scenario(&w.s, "dgx-h100", 8, 640, "bf16");
        w.s.cluster.leaf_nodes = 2;
        w.s.cluster.oversubscription = over;
        step_world_price(&w);
        assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "plain", NULL), MW_OK);
        for (int i = 0; i < 2; i++) {
            mw_layout_default(&l[i]);
            l[i].tp = 8;
            l[i].pp = 4;
            l[i].dp = 2;
            l[i].micro_batch = 4 + i;
            mw_step_frame_init(&frame[i], &w.s, &l[i], layers, NULL, &w.ctx,
                               true, NULL);
            t_s[i] =
                mw_time_to_s(mw_step_transfer_ps(&frame[i].price, 1, 2, 1));
        }
        mw_wires_transfer_part(&frame[0].price, 1, 2, 1, part);
        mw_assert_near(part[MW_WIRE_NIC], log(t_s[1] / t_s[0]) / log(1.25),
                       1e-5, 0);
        assert_true(part[MW_WIRE_NIC] > before);
        before = part[MW_WIRE_NIC];
        mw_step_frame_release(&frame[0]);
        mw_step_frame_release(&frame[1]);
        step_world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_transfer_meets_reduction, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_each_on_its_own_wire, setup,
                                        teardown),
        cmocka_unit_test(test_transfer_part_is_the_priced_one),
        cmocka_unit_test(test_who_meets)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
