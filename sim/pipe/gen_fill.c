/*
 * Schedules that finish all forwards before the first backward:
 *   GPipe       F0..Fm-1, then BW0..BWm-1 (PyTorch) or reversed (Alpa)
 *   looped BFS  the same chunk by chunk, everything reversed on the way back
 *   forward-only
 * Makespan (m v + p - 1)(F + B + W) of a chunk, peak m v activations.
 */
#include "sim/pipe/schedule_int.h"

static void begin(struct mw_sched_build *b, const struct mw_sched_args *a,
                  const char *name)
{
    struct mw_sched_shape shape = {name,        a->n_stages, a->n_microbatches,
                                   a->n_chunks, 1,           MW_PLACE_LOOP};

    mw_sched_begin(b, &shape);
}

static void push_forwards(struct mw_sched_build *b, int d,
                          const struct mw_sched_args *a)
{
    int c, k;

    for (c = 0; c < a->n_chunks; c++) {
        for (k = 0; k < a->n_microbatches; k++) {
            mw_sched_push(b, d, MW_PASS_F, k, c);
        }
    }
}

enum mw_status mw_gen_gpipe(const struct mw_sched_args *a,
                            struct mw_schedule *out, struct mw_err *err)
{
    struct mw_sched_build b;
    int d, k;

    (void)err;
    begin(&b, a, "gpipe");
    for (d = 0; d < a->n_stages; d++) {
        push_forwards(&b, d, a);
        for (k = 0; k < a->n_microbatches; k++) {
            mw_sched_push(&b, d, MW_PASS_BW, k, 0);
        }
    }
    mw_sched_end(&b, out);
    return MW_OK;
}

static enum mw_status make_reversed(const char *name,
                                    const struct mw_sched_args *a,
                                    struct mw_schedule *out)
{
    struct mw_sched_build b;
    int d, c, k;

    begin(&b, a, name);
    for (d = 0; d < a->n_stages; d++) {
        push_forwards(&b, d, a);
        for (c = a->n_chunks - 1; c >= 0; c--) {
            for (k = a->n_microbatches - 1; k >= 0; k--) {
                mw_sched_push(&b, d, MW_PASS_BW, k, c);
            }
        }
    }
    mw_sched_end(&b, out);
    return MW_OK;
}

enum mw_status mw_gen_gpipe_lifo(const struct mw_sched_args *a,
                                 struct mw_schedule *out, struct mw_err *err)
{
    (void)err;
    return make_reversed("gpipe-lifo", a, out);
}

enum mw_status mw_gen_looped_bfs(const struct mw_sched_args *a,
                                 struct mw_schedule *out, struct mw_err *err)
{
    (void)err;
    return make_reversed("looped-bfs", a, out);
}

/* Micro-batches through all chunks of a group of p before the next group, as
 * interleaved training does; with one chunk simply in order. */
enum mw_status mw_gen_forward(const struct mw_sched_args *a,
                              struct mw_schedule *out, struct mw_err *err)
{
    struct mw_sched_build b;
    int d, c, k, g, p = a->n_stages, m = a->n_microbatches;

    (void)err;
    begin(&b, a, "forward-only");
    b.s.is_forward_only = true;
    for (d = 0; d < p; d++) {
        for (g = 0; g < m; g += p) {
            for (c = 0; c < a->n_chunks; c++) {
                for (k = g; k < g + p && k < m; k++) {
                    mw_sched_push(&b, d, MW_PASS_F, k, c);
                }
            }
        }
    }
    mw_sched_end(&b, out);
    return MW_OK;
}
