/*
 * Four ranks: schedules with two routes, whose gradients are summed over both
 * holders of a virtual stage.
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
    };
    matrix_begin(&world);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_end(world);
    return failed;
}
