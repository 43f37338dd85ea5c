/*
 * Checkpoints on four ranks: written under one layout, read under another; a
 * file that is not whole, not unaltered or not of this model is refused.
 */
#include "matrix.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct mw_comm *world;
static const char file[] = "matrix.ckpt";

/* Losses of a run of `steps`; status MW_OK. */
static void train(const struct matrix_case *c, int steps, const char *resume,
                  const char *checkpoint, bool verify, double *out_loss)
{
    const struct mw_drive_opts opts = {.steps = steps,
                                       .resume = resume,
                                       .checkpoint = checkpoint,
                                       .verify = verify};
    struct mw_drive_result r;
    struct mw_err err = {0};
    if (matrix_run(world, c, &opts, &r, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    for (int i = 0; i < steps; i++) {
        out_loss[i] = r.loss[i];
    }
    assert_int_equal(r.first_step, resume ? 3 : 0);
    mw_drive_result_release(&r);
}

/* Six steps under `a`; three under `a`, saved, and three under `b`. */
static void go_on(const struct matrix_case *a, const struct matrix_case *b,
                  double tolerance)
{
    double whole[6], first[3], rest[3];
    train(a, 6, NULL, NULL, false, whole);
    train(a, 3, NULL, file, false, first);
    train(b, 3, file, NULL, false, rest);
    for (int i = 0; i < 3; i++) {
        mw_assert_near(first[i], whole[i], 0, 0);
        mw_assert_near(rest[i], whole[3 + i], tolerance, 0);
    }
    assert_true(a->lora_rank > 0 || rest[2] < first[0]);
}

static void pipelines_go_on_to_the_bit(void **state)
{
    (void)state;
    go_on(&(struct matrix_case){.tp = 1, .pp = 4, .dp = 1},
          &(struct matrix_case){.tp = 1,
                                .pp = 2,
                                .vpp = 2,
                                .dp = 1,
                                .cp = 2,
                                .schedule = "interleaved-1f1b"},
          2e-6);
    go_on(&(struct matrix_case){.tp = 1, .pp = 4, .dp = 1},
          &(struct matrix_case){
              .tp = 1, .pp = 4, .vpp = 2, .dp = 1, .schedule = "zb-v"},
          0);
}

static void other_layouts_go_on(void **state)
{
    (void)state;
    go_on(&(struct matrix_case){.tp = 4, .pp = 1, .dp = 1, .sp = true},
          &(struct matrix_case){.tp = 1, .pp = 2, .dp = 2, .zero = 1}, 2e-6);
    go_on(
        &(struct matrix_case){
            .model = MATRIX_LLAMA, .tp = 1, .pp = 1, .dp = 4, .zero = 3},
        &(struct matrix_case){.model = MATRIX_LLAMA, .tp = 2, .pp = 2, .dp = 1},
        2e-6);
    go_on(
        &(struct matrix_case){.model = MATRIX_LLAMA, .tp = 2, .pp = 1, .dp = 2},
        &(struct matrix_case){
            .model = MATRIX_LLAMA, .tp = 1, .pp = 2, .dp = 2, .zero = 2},
        2e-6);
}

/* States are where they were before; the file does not tell. */
static void states_on_the_host_go_on(void **state)
{
    (void)state;
    const struct matrix_case on_host = matrix_read("gpt pp4 offload70");
    const struct matrix_case plain = matrix_read("gpt pp4 x2 zb-v");
    go_on(&on_host, &plain, 0);
    go_on(&plain, &on_host, 0);
}

/* Both copies of a tied matrix are read from the one that is written. */
static void tied_shares_move(void **state)
{
    (void)state;
    const struct matrix_case split = matrix_read("gpt pp2 dp2 zero3");
    const struct matrix_case whole = matrix_read("gpt tp2 dp2");
    go_on(&split, &whole, 2e-6);
    go_on(&whole, &split, 2e-6);
}

static void experts_move(void **state)
{
    (void)state;
    const struct matrix_case sets = matrix_read("moe dp4 ep2 zero3 shard2");
    const struct matrix_case kept = matrix_read("moe pp2 dp2 zero3 kept");
    go_on(&sets, &kept, 2e-6);
    go_on(
        &(struct matrix_case){
            .model = MATRIX_MOE, .tp = 1, .pp = 1, .dp = 4, .ep = 4},
        &(struct matrix_case){.model = MATRIX_MOE,
                              .tp = 2,
                              .sp = true,
                              .pp = 2,
                              .dp = 1,
                              .ep = 2},
        2e-6);
}

/* ---- adapters ------------------------------------------------------------ */
static void adapters_go_on(void **state)
{
    (void)state;
    go_on(&(struct matrix_case){.tp = 1, .pp = 4, .dp = 1, .lora_rank = 4},
          &(struct matrix_case){.tp = 1,
                                .pp = 4,
                                .vpp = 2,
                                .dp = 1,
                                .schedule = "zb-v",
                                .lora_rank = 4},
          0);
    go_on(&(struct matrix_case){.model = MATRIX_LLAMA,
                                .tp = 1,
                                .pp = 1,
                                .dp = 4,
                                .zero = 3,
                                .lora_rank = 4},
          &(struct matrix_case){.model = MATRIX_LLAMA,
                                .tp = 2,
                                .sp = true,
                                .pp = 2,
                                .dp = 1,
                                .lora_rank = 4},
          2e-6);
}

enum { TUNED = 12, TRAINED = 40 };
static const char base[] = "base.ckpt", tuned[] = "tuned.ckpt";

static void tune(const struct matrix_case *c, double *out_loss)
{
    const struct mw_drive_opts opts = {
        .steps = TUNED, .base = base, .checkpoint = tuned, .verify = true};
    struct mw_drive_result r;
    struct mw_err err = {0};
    if (matrix_run(world, c, &opts, &r, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    memcpy(out_loss, r.loss, TUNED * sizeof *out_loss);
    mw_drive_result_release(&r);
}

/* Adapters of rank 4 on q, kv, proj, gate and up, down of 8 layers: weights and
 * two moments of r (in + out) each. */
static long adapter_bytes(void)
{
    long q = 32 + 32, kv = 2 * (32 + 16), proj = 32 + 32;
    long mlp = 2 * (32 + 48) + (48 + 32);
    return 3L * 4 * 8 * 4 * (q + kv + proj + mlp);
}

static void check_size(const char *path, long payload)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    assert_int_equal(ftell(f), 4096 + payload);
    fclose(f);
}

/* Two layouts tune what a third has trained: the loss begins where training has
 * brought it and goes on falling, and what is written are the adapters. */
static void adapters_of_a_trained_model(void **state)
{
    (void)state;
    const struct matrix_case whole = {
        .model = MATRIX_LLAMA, .tp = 2, .pp = 2, .dp = 1};
    struct matrix_case one = {.model = MATRIX_LLAMA,
                              .tp = 1,
                              .pp = 1,
                              .dp = 4,
                              .zero = 3,
                              .lora_rank = 4};
    struct matrix_case two = {
        .model = MATRIX_LLAMA, .tp = 4, .pp = 1, .dp = 1, .lora_rank = 4};
    double trained[TRAINED], a[TUNED], b[TUNED], early = 0.0, late = 0.0;
    train(&whole, TRAINED, NULL, base, false, trained);
    tune(&one, a);
    tune(&two, b);
    for (int i = 0; i < TUNED; i++) {
        mw_assert_near(a[i], b[i], 2e-6, 0);
        *(i < TUNED / 2 ? &early : &late) += a[i];
    }
    assert_true(a[0] < 0.95 * trained[0]);
    assert_true(late < early);
    check_size(tuned, adapter_bytes());
}

static void a_base_is_for_adapters(void **state)
{
    (void)state;
    const struct matrix_case plain = {
        .model = MATRIX_LLAMA, .tp = 1, .pp = 1, .dp = 4};
    struct matrix_case other = {.tp = 1, .pp = 1, .dp = 4, .lora_rank = 4};
    const struct mw_drive_opts opts = {.steps = 1, .base = base};
    struct mw_drive_result r;
    struct mw_err err = {0};
    assert_int_equal(matrix_run(world, &plain, &opts, &r, &err), MW_EUSAGE);
    assert_non_null(strstr(err.text, "has no adapters"));
    mw_drive_result_release(&r);
    err = (struct mw_err){0};
    assert_int_equal(matrix_run(world, &other, &opts, &r, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "other parameters"));
    mw_drive_result_release(&r);
}

/* The reference goes on from the same file. */
static void a_resumed_run_is_verified(void **state)
{
    (void)state;
    const struct matrix_case c = {.tp = 2, .pp = 2, .dp = 1};
    double loss[3];
    train(&c, 3, NULL, file, false, loss);
    train(&c, 3, file, NULL, true, loss);
}

/* ---- refusals ----------------------------------------------------------- */
static void refused(enum matrix_model model, const char *path, const char *word)
{
    const struct matrix_case c = {.model = model, .tp = 2, .pp = 2, .dp = 1};
    const struct mw_drive_opts opts = {.steps = 1, .resume = path};
    struct mw_drive_result r;
    struct mw_err err = {0};
    assert_int_equal(matrix_run(world, &c, &opts, &r, &err), MW_EINPUT);
    if (!strstr(err.text, word) || !strstr(err.text, path)) {
        fail_msg("'%s' does not say '%s' of %s", err.text, word, path);
    }
    mw_drive_result_release(&r);
}

/* Flips one bit of the byte at `offset` on rank 0, again to undo it. */
static void flip(long offset)
{
    struct mw_err err = {0};
    if (world->rank == 0) {
        FILE *f = fopen(file, "r+b");
        assert_non_null(f);
        fseek(f, offset, SEEK_SET);
        int byte = fgetc(f);
        fseek(f, offset, SEEK_SET);
        fputc(byte ^ 0x10, f);
        fclose(f);
    }
    world->ops->barrier(world, &err);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    const struct matrix_case c = {.tp = 2, .pp = 2, .dp = 1};
    struct mw_err err = {0};
    double loss[3];
    train(&c, 3, NULL, file, false, loss);
    refused(MATRIX_LLAMA, file, "other parameters");
    refused(MATRIX_GPT, "no-such.ckpt", "cannot open");
    refused(MATRIX_GPT, "matrix-0-4.yaml", "not a checkpoint");
    flip(9000);
    refused(MATRIX_GPT, file, "damaged");
    flip(9000);
    flip(10); /* in the header */
    refused(MATRIX_GPT, file, "header is damaged");
    flip(10);
    train(&c, 1, file, NULL, false, loss);
    if (world->rank == 0) {
        assert_int_equal(truncate(file, 20000), 0);
    }
    world->ops->barrier(world, &err);
    refused(MATRIX_GPT, file, "20000 bytes instead of");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_go_on_to_the_bit),
        cmocka_unit_test(other_layouts_go_on),
        cmocka_unit_test(states_on_the_host_go_on),
        cmocka_unit_test(tied_shares_move),
        cmocka_unit_test(experts_move),
        cmocka_unit_test(adapters_go_on),
        cmocka_unit_test(adapters_of_a_trained_model),
        cmocka_unit_test(a_base_is_for_adapters),
        cmocka_unit_test(a_resumed_run_is_verified),
        cmocka_unit_test(damaged_files_are_refused),
    };
    matrix_begin(&world);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_end(world);
    return failed;
}
