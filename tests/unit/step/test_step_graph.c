/*
 * CUDA graphs: what the host still issues, counted operator by operator; the
 * stack's own scope; and the step against a stack that captures iterations.
 */
#include "mw_test.h"

#include "step_fixture.h"
#include "step_units.h"

#include <math.h>

static void open_world(struct step_world *w, const char *model,
                       const char *stack)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\nmodel: %s\n"
                     "cluster: {system: dgx-h100, nodes: 2}\n"
                     "workload: {seq: 2048, global_batch: 64}\n",
                     model);
    step_world_price(w);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, stack, NULL), MW_OK);
}

static struct mw_layout tensor_parallel(enum mw_cuda_graph graph)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = 2;
    l.sp = true;
    l.dp = 8;
    l.cuda_graph = graph;
    return l;
}

static double host_s(const struct step_world *w, const struct mw_layout *l,
                     enum mw_step_unit unit, enum mw_phase phase)
{
    struct mw_step_price p;

    mw_step_price_begin(&p, &w->s, l, &w->ctx);
    mw_step_price_unit(&p, unit, NULL);
    return p.cost[unit].phase[phase].host_s;
}

/* Host time of a layer's forward operators from `from` to the norm before the
 * MLP (or the end). */
static void count_forward(const struct step_world *w, const struct mw_layout *l,
                          double *attention_s, double *mlp_s)
{
    struct mw_step_price p;
    struct mw_ops ops = {NULL, 0, 0};
    double *sum = attention_s;

    *attention_s = *mlp_s = 0;
    mw_step_price_begin(&p, &w->s, l, &w->ctx);
    mw_layer_ops(&p.work, 0, MW_PASS_F, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        sum = strcmp(ops.v[i].name, "norm2") == 0 ? mlp_s : sum;
        *sum += mw_op_times(&ops.v[i]) * (ops.v[i].kind == MW_OP_COLL
                                              ? w->ctx.stack.host_coll_s
                                              : w->ctx.stack.host_op_s);
    }
    assert_true(*attention_s > 0 && *mlp_s > 0);
    mw_array_release(&ops);
}

static void test_dense_layer(void **state)
{
    struct step_world w;
    double attention_s, mlp_s;

    (void)state;
    open_world(&w, "llama3-8b", "megatron-core");
    struct mw_layout none = tensor_parallel(MW_GRAPH_NONE),
                     attn = tensor_parallel(MW_GRAPH_ATTN),
                     layer = tensor_parallel(MW_GRAPH_LAYER),
                     all = tensor_parallel(MW_GRAPH_ITERATION);
    double one_s = w.ctx.stack.host_op_s;

    count_forward(&w, &none, &attention_s, &mlp_s);
    mw_assert_near(host_s(&w, &none, MW_UNIT_DENSE, MW_PHASE_F),
                   attention_s + mlp_s, 1e-12, 0);
    mw_assert_near(host_s(&w, &attn, MW_UNIT_DENSE, MW_PHASE_F), one_s + mlp_s,
                   1e-12, 0);
    for (int phase = MW_PHASE_F; phase < MW_PHASE_COUNT; phase++) {
        bool has = phase != MW_PHASE_R;

        mw_assert_near(host_s(&w, &layer, MW_UNIT_DENSE, (enum mw_phase)phase),
                       has ? one_s : 0, 0, 0);
        assert_true(host_s(&w, &attn, MW_UNIT_DENSE, (enum mw_phase)phase) <=
                    host_s(&w, &none, MW_UNIT_DENSE, (enum mw_phase)phase));
        mw_assert_near(host_s(&w, &all, MW_UNIT_DENSE, (enum mw_phase)phase), 0,
                       0, 0);
    }
    /* The head is no layer. */
    mw_assert_near(host_s(&w, &layer, MW_UNIT_HEAD, MW_PHASE_F),
                   host_s(&w, &none, MW_UNIT_HEAD, MW_PHASE_F), 0, 0);
    mw_assert_near(host_s(&w, &all, MW_UNIT_HEAD, MW_PHASE_F), 0, 0, 0);
    step_world_close(&w);
}

/* What is recomputed is issued again, in one graph as well. */
static void test_recomputed_layer(void **state)
{
    struct step_world w;
    struct mw_layout l = tensor_parallel(MW_GRAPH_ATTN);

    (void)state;
    open_world(&w, "llama3-8b", "megatron-core");
    l.recompute = MW_RECOMPUTE_SELECTIVE;
    mw_assert_near(host_s(&w, &l, MW_UNIT_DENSE, MW_PHASE_R),
                   w.ctx.stack.host_op_s, 0, 0);
    step_world_close(&w);
}

/* Of experts the attention alone is captured: routing stays the host's. */
static void test_layer_of_experts(void **state)
{
    struct step_world w;
    struct mw_layout layer = tensor_parallel(MW_GRAPH_LAYER),
                     attn = tensor_parallel(MW_GRAPH_ATTN),
                     none = tensor_parallel(MW_GRAPH_NONE),
                     all = tensor_parallel(MW_GRAPH_ITERATION);

    (void)state;
    open_world(&w, "mixtral-8x7b", "megatron-core");
    for (int phase = MW_PHASE_F; phase < MW_PHASE_COUNT; phase++) {
        double in_layer_s =
            host_s(&w, &layer, MW_UNIT_MOE, (enum mw_phase)phase);

        mw_assert_near(in_layer_s,
                       host_s(&w, &attn, MW_UNIT_MOE, (enum mw_phase)phase), 0,
                       0);
        assert_true(in_layer_s <=
                    host_s(&w, &none, MW_UNIT_MOE, (enum mw_phase)phase));
        mw_assert_near(host_s(&w, &all, MW_UNIT_MOE, (enum mw_phase)phase), 0,
                       0, 0);
    }
    assert_true(host_s(&w, &layer, MW_UNIT_MOE, MW_PHASE_F) >
                w.ctx.stack.host_moe_s / 3);
    step_world_close(&w);
}

/* Experts padded to a capacity behind all-to-alls have shapes that the host
 * knows: all of their layer is one graph. Kernels that dispatch do not go in.
 */
static void test_layer_of_padded_experts(void **state)
{
    struct step_world w;
    struct mw_layout layer = tensor_parallel(MW_GRAPH_LAYER);

    (void)state;
    open_world(&w, "mixtral-8x7b", "megatron-core");
    layer.dispatcher = MW_DISPATCH_ALLTOALL;
    w.s.workload.capacity_factor = 1;
    w.s.workload.pads_to_capacity = true;
    for (int phase = MW_PHASE_F; phase < MW_PHASE_COUNT; phase++) {
        mw_assert_near(host_s(&w, &layer, MW_UNIT_MOE, (enum mw_phase)phase),
                       phase != MW_PHASE_R ? w.ctx.stack.host_op_s : 0, 0, 0);
    }
    step_forms_agree(&w, &layer);
    layer.dispatcher = MW_DISPATCH_DEEPEP;
    assert_true(host_s(&w, &layer, MW_UNIT_MOE, MW_PHASE_F) >
                w.ctx.stack.host_moe_s / 3);
    step_world_close(&w);
}

static double step_s(const char *stack, enum mw_cuda_graph graph)
{
    struct mw_layout l = tensor_parallel(graph);
    struct step_world w;
    double time_s;

    open_world(&w, "llama3-8b", stack);
    time_s = step_forms_agree(&w, &l);
    step_world_close(&w);
    return time_s;
}

static double host_of_head_s(const char *stack)
{
    struct mw_layout l = tensor_parallel(MW_GRAPH_LAYER);
    struct step_world w;
    double sum = 0;

    open_world(&w, "llama3-8b", stack);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        sum += host_s(&w, &l, MW_UNIT_HEAD, (enum mw_phase)phase);
    }
    step_world_close(&w);
    return sum;
}

/* The stack that captures iterations differs from its like in nothing else on a
 * dense model. */
static void test_scope_of_the_stack(void **state)
{
    (void)state;
    double plain_s = step_s("megatron-core-nemo", MW_GRAPH_STACK);
    double graphs_s = step_s("megatron-core-nemo-graphs", MW_GRAPH_STACK);
    double attn_s = step_s("megatron-core-nemo", MW_GRAPH_ATTN);
    double layer_s = step_s("megatron-core-nemo", MW_GRAPH_LAYER);

    mw_assert_near(step_s("megatron-core-nemo", MW_GRAPH_NONE), plain_s, 0, 0);
    mw_assert_near(step_s("megatron-core-nemo-graphs", MW_GRAPH_NONE), plain_s,
                   0, 0);
    mw_assert_near(step_s("megatron-core-nemo", MW_GRAPH_ITERATION), graphs_s,
                   0, 0);
    /* Where the host is slower than the head the reduction of gradients hides
     * a little longer behind it: no longer than the host takes. */
    assert_true(layer_s <= attn_s && attn_s < plain_s);
    assert_true(graphs_s < layer_s + host_of_head_s("megatron-core-nemo"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_layer),
        cmocka_unit_test(test_recomputed_layer),
        cmocka_unit_test(test_layer_of_experts),
        cmocka_unit_test(test_layer_of_padded_experts),
        cmocka_unit_test(test_scope_of_the_stack),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
