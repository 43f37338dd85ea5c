/*
 * Four ranks: schedules with two routes, whose gradients are summed over both
 * holders of a virtual stage; schedules of parts of sequences.
 */
#include "matrix.h"

static struct mw_comm *world;

/* Both ends hold embedding and head, tied (GPT) or apart (Llama). */
static void two_routes(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 1, .pp = 4, .dp = 1, .schedule = "dualpipe"},
        {.tp = 1, .pp = 4, .dp = 1, .schedule = "chimera"},
        {.tp = 1, .pp = 4, .dp = 1, .schedule = "chimera", .zero = 1},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 4,
         .dp = 1,
         .schedule = "dualpipe"},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 4,
         .dp = 1,
         .zero = 2,
         .schedule = "dualpipe"},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 4,
         .dp = 1,
         .zero = 3,
         .schedule = "chimera"},
        {.model = MATRIX_MOE,
         .tp = 1,
         .pp = 2,
         .dp = 2,
         .ep = 2,
         .zero = 3,
         .schedule = "dualpipe"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        matrix_verify(world, &cases[i]);
    }
}

static void two_routes_with_replicas_and_tensors(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 1, .pp = 2, .dp = 2, .schedule = "dualpipe"},
        {.tp = 1, .pp = 2, .dp = 2, .schedule = "chimera", .zero = 1},
        {.model = MATRIX_LLAMA,
         .tp = 2,
         .sp = true,
         .pp = 2,
         .dp = 1,
         .schedule = "dualpipe",
         .recompute = MW_RECOMPUTE_FULL},
        {.model = MATRIX_MOE,
         .tp = 1,
         .pp = 2,
         .dp = 2,
         .ep = 2,
         .schedule = "chimera"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        matrix_verify(world, &cases[i]);
    }
}

/* An odd number of stages: the middle one is its own twin. Its sums do not
 * ascend, so the reference keeps virtual stages apart on both routes. */
static void two_routes_through_three_stages(void **state)
{
    (void)state;
    static const struct matrix_case c = {
        .tp = 1,
        .pp = 3,
        .dp = 1,
        .micro_batch = 4,
        .lists = {"F0.0 F1.0 F2.1 F3.1 BW2.1 BW3.1 BW0.0 BW1.0",
                  "F0.0 F2.1 F1.0 F3.1 BW1.0 BW2.1 BW0.0 BW3.1",
                  "F2.1 F3.1 F0.0 F1.0 BW0.0 BW1.0 BW3.1 BW2.1"}};
    struct mw_comm *three;
    struct mw_err err = {0};
    assert_int_equal(
        world->ops->split(world, world->rank < 3, world->rank, &three, &err),
        MW_OK);
    if (world->rank < 3) {
        matrix_verify(three, &c);
    }
    three->ops->free(three);
}

/* Two parts of eight tokens, four of four; one and two sequences a micro-batch.
 */
static void parts_of_sequences(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 1, .pp = 4, .dp = 1, .schedule = "seq1f1b"},
        {.tp = 1, .pp = 4, .dp = 1, .schedule = "seq1f1b", .parts = 4},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 4,
         .dp = 1,
         .micro_batch = 2,
         .schedule = "seq1f1b"},
        {.model = MATRIX_LLAMA,
         .tp = 2,
         .sp = true,
         .pp = 2,
         .dp = 1,
         .recompute = MW_RECOMPUTE_SELECTIVE,
         .schedule = "seq1f1b"},
        {.tp = 1,
         .pp = 2,
         .dp = 2,
         .zero = 1,
         .micro_batch = 2,
         .recompute = MW_RECOMPUTE_FULL,
         .schedule = "seq1f1b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        matrix_verify(world, &cases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_routes),
        cmocka_unit_test(two_routes_with_replicas_and_tensors),
        cmocka_unit_test(two_routes_through_three_stages),
        cmocka_unit_test(parts_of_sequences),
    };
    matrix_begin(&world);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_end(world);
    return failed;
}
