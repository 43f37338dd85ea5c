/*
 * Eight ranks: every gradient and the loss against one rank, over tensor,
 * pipeline and data parallelism, schedules, chunks, ZeRO-1 and two models.
 */
#include "matrix.h"

static struct mw_comm *world;

static void tensor_8(void **state)
{
    (void)state;
    matrix_verify(world, &(struct matrix_case){.tp = 8, .pp = 1, .dp = 1});
}

static void all_three(void **state)
{
    (void)state;
    matrix_verify(world, &(struct matrix_case){.tp = 2, .pp = 2, .dp = 2});
}

static void pipeline_4_data_2(void **state)
{
    (void)state;
    matrix_verify(world, &(struct matrix_case){.tp = 1, .pp = 4, .dp = 2});
}

static void pipeline_8(void **state)
{
    (void)state;
    matrix_verify(world, &(struct matrix_case){.tp = 1, .pp = 8, .dp = 1});
}

static void tensor_4_pipeline_2(void **state)
{
    (void)state;
    matrix_verify(world, &(struct matrix_case){.tp = 4, .pp = 2, .dp = 1});
}

static void data_8(void **state)
{
    (void)state;
    matrix_verify(world, &(struct matrix_case){.tp = 1, .pp = 1, .dp = 8});
}

static void data_8_zero_1(void **state)
{
    (void)state;
    matrix_verify(world,
                  &(struct matrix_case){.tp = 1, .pp = 1, .dp = 8, .zero = 1});
}

static void zero_1_with_pipeline_and_tensor(void **state)
{
    (void)state;
    matrix_verify(world,
                  &(struct matrix_case){
                      .tp = 2, .pp = 2, .dp = 2, .zero = 1, .micro_batch = 2});
}

/*
 * Schedules add weight gradients in orders of their own (gpipe-lifo backwards,
 * zero-bubble ones late); the reference adds in the same order, so all are
 * equal to the bit.
 */
static void schedules_of_8_stages(void **state)
{
    (void)state;
    static const char *const names[] = {"gpipe", "gpipe-lifo", "eager-1f1b",
                                        "zb-h1", "zb-h2",      "zb-auto"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        matrix_verify(world,
                      &(struct matrix_case){
                          .tp = 1, .pp = 8, .dp = 1, .schedule = names[i]});
    }
}

/* Micro-batches from both ends: every virtual stage on two devices. */
static void two_routes_of_8_stages(void **state)
{
    (void)state;
    matrix_verify(world,
                  &(struct matrix_case){
                      .tp = 1, .pp = 8, .dp = 1, .schedule = "dualpipe"});
    matrix_verify(world, &(struct matrix_case){
                             .tp = 1, .pp = 8, .dp = 1, .schedule = "chimera"});
    matrix_verify(
        world,
        &(struct matrix_case){
            .tp = 1, .pp = 4, .dp = 2, .zero = 1, .schedule = "dualpipe"});
}

static void parts_of_sequences(void **state)
{
    (void)state;
    matrix_verify(world, &(struct matrix_case){
                             .tp = 1, .pp = 8, .dp = 1, .schedule = "seq1f1b"});
    matrix_verify(world, &(struct matrix_case){.model = MATRIX_LLAMA,
                                               .tp = 2,
                                               .sp = true,
                                               .pp = 4,
                                               .dp = 1,
                                               .micro_batch = 2,
                                               .schedule = "seq1f1b"});
}

/* Two chunks a device, in a loop or in a V: neighbours on one device. */
static void schedules_of_two_chunks(void **state)
{
    (void)state;
    static const char *const names[] = {
        "interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-v",
        "v-half",           "v-min",      "1f1b-v",         "zbv-auto",
        "dualpipev",        "hanayo"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        matrix_verify(
            world,
            &(struct matrix_case){
                .tp = 2, .pp = 4, .vpp = 2, .dp = 1, .schedule = names[i]});
    }
}

static void chunks_with_data(void **state)
{
    (void)state;
    matrix_verify(world,
                  &(struct matrix_case){
                      .tp = 1, .pp = 4, .vpp = 2, .dp = 2, .schedule = "zb-v"});
}

static void llama(void **state)
{
    (void)state;
    matrix_verify(world, &(struct matrix_case){
                             .model = MATRIX_LLAMA, .tp = 4, .pp = 2, .dp = 1});
    matrix_verify(world, &(struct matrix_case){
                             .model = MATRIX_LLAMA, .tp = 1, .pp = 8, .dp = 1});
}

/* A rank's own rows begin inside a sequence: 16 tokens over tp 4. */
static void sequence_parallel(void **state)
{
    (void)state;
    matrix_verify(world,
                  &(struct matrix_case){.tp = 4, .sp = true, .pp = 2, .dp = 1});
    matrix_verify(world, &(struct matrix_case){.tp = 2,
                                               .sp = true,
                                               .pp = 2,
                                               .dp = 2,
                                               .zero = 1,
                                               .micro_batch = 2,
                                               .recompute = MW_RECOMPUTE_FULL});
    matrix_verify(world, &(struct matrix_case){.model = MATRIX_LLAMA,
                                               .tp = 2,
                                               .sp = true,
                                               .pp = 4,
                                               .vpp = 2,
                                               .dp = 1,
                                               .schedule = "zb-v",
                                               .recompute = MW_RECOMPUTE_FULL});
}

/* Gradients and weights in parts, beside all the rest. */
static void zero_2_and_3(void **state)
{
    (void)state;
    matrix_verify(
        world,
        &(struct matrix_case){
            .model = MATRIX_LLAMA, .tp = 1, .pp = 1, .dp = 8, .zero = 3});
    matrix_verify(world, &(struct matrix_case){.model = MATRIX_LLAMA,
                                               .tp = 2,
                                               .sp = true,
                                               .pp = 2,
                                               .dp = 2,
                                               .zero = 3});
    matrix_verify(world, &(struct matrix_case){.model = MATRIX_LLAMA,
                                               .tp = 1,
                                               .pp = 4,
                                               .vpp = 2,
                                               .dp = 2,
                                               .zero = 2,
                                               .schedule = "zb-v"});
}

/* Zigzag parts of sequences: learned positions and rotary, with all else. */
static void context_parallel(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 1, .cp = 8, .cp_form = MW_CP_RING, .pp = 1, .dp = 1},
        {.tp = 2,
         .sp = true,
         .cp = 2,
         .cp_form = MW_CP_RING,
         .pp = 2,
         .dp = 1,
         .micro_batch = 2},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .cp = 4,
         .cp_form = MW_CP_RING,
         .pp = 1,
         .dp = 2,
         .zero = 3,
         .recompute = MW_RECOMPUTE_FULL},
        {.tp = 1, .cp = 8, .cp_form = MW_CP_A2A, .pp = 1, .dp = 1},
        {.model = MATRIX_LLAMA,
         .tp = 2,
         .sp = true,
         .cp = 2,
         .cp_form = MW_CP_A2A,
         .pp = 2,
         .dp = 1,
         .micro_batch = 2,
         .schedule = "zb-h1",
         .recompute = MW_RECOMPUTE_FULL},
        {.model = MATRIX_MOE,
         .tp = 1,
         .cp = 4,
         .cp_form = MW_CP_A2A,
         .pp = 1,
         .dp = 2,
         .ep = 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        matrix_verify(world, &cases[i]);
    }
    matrix_verify(world,
                  &(struct matrix_case){.tp = 1, .cp = 8, .pp = 1, .dp = 1});
    matrix_verify(
        world,
        &(struct matrix_case){
            .tp = 2, .sp = true, .cp = 2, .pp = 2, .dp = 1, .micro_batch = 2});
    matrix_verify(world,
                  &(struct matrix_case){.model = MATRIX_LLAMA,
                                        .tp = 1,
                                        .cp = 2,
                                        .pp = 2,
                                        .dp = 2,
                                        .zero = 3,
                                        .recompute = MW_RECOMPUTE_SELECTIVE});
    matrix_verify(world, &(struct matrix_case){.model = MATRIX_LLAMA,
                                               .tp = 2,
                                               .cp = 4,
                                               .pp = 1,
                                               .dp = 1,
                                               .recompute = MW_RECOMPUTE_FULL});
}

/* Experts on every rank, or spread over ranks of tp, cp and dp. */
static void experts(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 1, .pp = 2, .dp = 4, .ep = 4},
        {.tp = 2, .sp = true, .pp = 2, .dp = 2, .ep = 4, .micro_batch = 2},
        {.tp = 2, .sp = true, .cp = 2, .pp = 1, .dp = 2, .ep = 2},
        {.tp = 2, .sp = true, .pp = 1, .dp = 4, .zero = 3},
        {.tp = 2, .sp = true, .pp = 1, .dp = 4, .ep = 2, .etp = 2, .zero = 1},
        {.tp = 2, .sp = true, .pp = 2, .dp = 2, .etp = 4, .micro_batch = 2},
        {.tp = 1, .cp = 2, .pp = 1, .dp = 4, .ep = 2, .etp = 2, .zero = 2},
        {.tp = 2, .sp = true, .pp = 1, .dp = 4, .ep = 4, .zero = 3},
        {.tp = 1,
         .pp = 4,
         .vpp = 2,
         .dp = 2,
         .ep = 2,
         .schedule = "zb-v",
         .recompute = MW_RECOMPUTE_FULL},
        {.tp = 1, .pp = 8, .dp = 1, .schedule = "zb-h1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct matrix_case c = cases[i];
        c.model = MATRIX_MOE;
        matrix_verify(world, &c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_8),
        cmocka_unit_test(all_three),
        cmocka_unit_test(pipeline_4_data_2),
        cmocka_unit_test(pipeline_8),
        cmocka_unit_test(tensor_4_pipeline_2),
        cmocka_unit_test(data_8),
        cmocka_unit_test(data_8_zero_1),
        cmocka_unit_test(zero_1_with_pipeline_and_tensor),
        cmocka_unit_test(schedules_of_8_stages),
        cmocka_unit_test(two_routes_of_8_stages),
        cmocka_unit_test(parts_of_sequences),
        cmocka_unit_test(schedules_of_two_chunks),
        cmocka_unit_test(chunks_with_data),
        cmocka_unit_test(llama),
        cmocka_unit_test(sequence_parallel),
        cmocka_unit_test(zero_2_and_3),
        cmocka_unit_test(context_parallel),
        cmocka_unit_test(experts),
    };
    matrix_begin(&world);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_end(world);
    return failed;
}
