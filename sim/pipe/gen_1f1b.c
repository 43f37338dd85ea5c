/*
 * The 1F1B family: w_i warm-up forwards on device i, then forward and backward
 * in turn, then the remaining backwards. Two streams of (item, chunk) say in
 * which order forwards and backwards come; the schedules differ in the streams
 * and in w_i:
 *   1F1B         w_i = p-1-i                          peak min(m, p-i)
 *   eager        w_i = 2(p-1-i)                       peak min(m, 2(p-i)-1)
 *   interleaved  w_i = 2(p-1-i) + (v-1)N, groups of N micro-batches
 *   Seq1F1B      w_i = p-i-2+q over q parts of a micro-batch
 * Megatron-LM schedules.py (groups of p) demands p | m; PyTorch's
 * ScheduleInterleaved1F1B cuts m into max(1, m div p) equal groups. Groups of
 * more than p (--microbatch-group-size-per-virtual-pipeline-stage) leave time
 * for transfers and hold more; the last one may be smaller, but not below p.
 */
#include "sim/pipe/schedule_int.h"

struct item {
    int32_t item;
    int32_t chunk;
};
struct streams {
    struct item *f, *b; /* [n] */
    int n;
};

static void streams_init(struct streams *s, int n)
{
    s->n = n;
    s->f = mw_calloc((size_t)n, sizeof *s->f);
    s->b = mw_calloc((size_t)n, sizeof *s->b);
}

static void streams_release(struct streams *s)
{
    mw_free(s->f);
    mw_free(s->b);
}

/* The list of device d with w warm-up forwards. */
static void push_1f1b(struct mw_sched_build *b, int d, const struct streams *s,
                      int w)
{
    int i, nf = w < s->n ? w : s->n;

    for (i = 0; i < nf; i++) {
        mw_sched_push(b, d, MW_PASS_F, s->f[i].item, s->f[i].chunk);
    }
    for (i = 0; i < s->n; i++) {
        if (nf < s->n) {
            mw_sched_push(b, d, MW_PASS_F, s->f[nf].item, s->f[nf].chunk);
            nf++;
        }
        mw_sched_push(b, d, MW_PASS_BW, s->b[i].item, s->b[i].chunk);
    }
}

static enum mw_status make_plain(const char *name,
                                 const struct mw_sched_args *a, int per_stage,
                                 struct mw_schedule *out)
{
    struct mw_sched_shape shape = {name, a->n_stages, a->n_microbatches,
                                   1,    1,           MW_PLACE_LOOP};
    struct mw_sched_build b;
    struct streams s;
    int d, k;

    streams_init(&s, a->n_microbatches);
    for (k = 0; k < s.n; k++) {
        s.f[k].item = s.b[k].item = k;
    }
    mw_sched_begin(&b, &shape);
    for (d = 0; d < a->n_stages; d++) {
        push_1f1b(&b, d, &s, per_stage * (a->n_stages - 1 - d));
    }
    streams_release(&s);
    mw_sched_end(&b, out);
    return MW_OK;
}

enum mw_status mw_gen_1f1b(const struct mw_sched_args *a,
                           struct mw_schedule *out, struct mw_err *err)
{
    (void)err;
    return make_plain("1f1b", a, 1, out);
}

enum mw_status mw_gen_eager_1f1b(const struct mw_sched_args *a,
                                 struct mw_schedule *out, struct mw_err *err)
{
    (void)err;
    return make_plain("eager-1f1b", a, 2, out);
}

/* The group that is asked for, or 0 with a message. */
static int asked_group(const struct mw_sched_args *a, const char *name,
                       struct mw_err *err)
{
    int p = a->n_stages, m = a->n_microbatches, n = a->group;

    if (n >= p && n <= m && (m % n == 0 || m % n >= p)) {
        return n;
    }
    mw_fail(err, MW_EUSAGE,
            "%s takes groups of at least as many micro-batches as stages, %d, "
            "and at most all %d, the last as well: not %d",
            name, p, m, n);
    return 0;
}

/* Micro-batches per group, or 0 with a message. p | m gives p (Megatron). */
static int group_size(const struct mw_sched_args *a, const char *name,
                      struct mw_err *err)
{
    int p = a->n_stages, m = a->n_microbatches;
    int rounds = m / p > 1 ? m / p : 1;

    if (a->group > 0) {
        return asked_group(a, name, err);
    }
    if (m % rounds == 0) {
        return m / rounds;
    }
    mw_fail(
        err, MW_EUSAGE,
        "%s needs a micro-batch count that its %d groups divide (%d stages): "
        "not %d but %d or %d",
        name, rounds, p, m, m - m % rounds, m - m % rounds + rounds);
    return 0;
}

/* Group after group, in a group chunk after chunk; backward from the last. */
static void fill_grouped(struct streams *s, int m, int v, int group)
{
    int g, c, k, n = 0;

    for (g = 0; g < m; g += group) {
        for (c = 0; c < v; c++) {
            for (k = g; k < g + group && k < m; k++, n++) {
                s->f[n].item = s->b[n].item = k;
                s->f[n].chunk = c;
                s->b[n].chunk = v - 1 - c;
            }
        }
    }
}

enum mw_status mw_gen_interleaved(const struct mw_sched_args *a,
                                  struct mw_schedule *out, struct mw_err *err)
{
    struct mw_sched_shape shape = {
        "interleaved-1f1b", a->n_stages, a->n_microbatches,
        a->n_chunks,        1,           MW_PLACE_LOOP};
    struct mw_sched_build b;
    struct streams s;
    int d, v = a->n_chunks, n = group_size(a, shape.name, err);

    if (n == 0) {
        return MW_EUSAGE;
    }
    streams_init(&s, a->n_microbatches * v);
    fill_grouped(&s, a->n_microbatches, v, n);
    mw_sched_begin(&b, &shape);
    for (d = 0; d < a->n_stages; d++) {
        push_1f1b(&b, d, &s, 2 * (a->n_stages - 1 - d) + (v - 1) * n);
    }
    streams_release(&s);
    mw_sched_end(&b, out);
    return MW_OK;
}

/*
 * Device d of the interleaved zero-bubble list: w forwards, then F, B in turn;
 * from the d-th backward on every B is followed by the oldest W outstanding.
 */
static void push_interleaved_zb(struct mw_sched_build *b, int d,
                                const struct streams *s, int w)
{
    int i, nw = 0, nf = w < s->n ? w : s->n;

    for (i = 0; i < nf; i++) {
        mw_sched_push(b, d, MW_PASS_F, s->f[i].item, s->f[i].chunk);
    }
    for (i = 0; i < s->n; i++) {
        if (nf < s->n) {
            mw_sched_push(b, d, MW_PASS_F, s->f[nf].item, s->f[nf].chunk);
            nf++;
        }
        mw_sched_push(b, d, MW_PASS_B, s->b[i].item, s->b[i].chunk);
        if (i >= d) {
            mw_sched_push(b, d, MW_PASS_W, s->b[nw].item, s->b[nw].chunk);
            nw++;
        }
    }
    for (; nw < s->n; nw++) {
        mw_sched_push(b, d, MW_PASS_W, s->b[nw].item, s->b[nw].chunk);
    }
}

enum mw_status mw_gen_interleaved_zb(const struct mw_sched_args *a,
                                     struct mw_schedule *out,
                                     struct mw_err *err)
{
    struct mw_sched_shape shape = {
        "interleaved-zb", a->n_stages, a->n_microbatches,
        a->n_chunks,      1,           MW_PLACE_LOOP};
    struct mw_sched_build b;
    struct streams s;
    int d, v = a->n_chunks, n = group_size(a, shape.name, err);

    if (n == 0) {
        return MW_EUSAGE;
    }
    streams_init(&s, a->n_microbatches * v);
    fill_grouped(&s, a->n_microbatches, v, n);
    mw_sched_begin(&b, &shape);
    for (d = 0; d < a->n_stages; d++) {
        push_interleaved_zb(&b, d, &s, a->n_stages - 1 - d + (v - 1) * n);
    }
    streams_release(&s);
    mw_sched_end(&b, out);
    return MW_OK;
}

enum mw_status mw_gen_seq1f1b(const struct mw_sched_args *a,
                              struct mw_schedule *out, struct mw_err *err)
{
    int q = a->n_parts > 1 ? a->n_parts : 2;
    struct mw_sched_shape shape = {"seq1f1b", a->n_stages, a->n_microbatches,
                                   1,         q,           MW_PLACE_LOOP};
    struct mw_sched_build b;
    struct streams s;
    int d, k, j;

    (void)err;
    streams_init(&s, a->n_microbatches * q);
    for (k = 0; k < a->n_microbatches; k++) {
        for (j = 0; j < q; j++) {
            s.f[k * q + j].item = k * q + j;
            s.b[k * q + j].item = k * q + q - 1 - j;
        }
    }
    mw_sched_begin(&b, &shape);
    for (d = 0; d < a->n_stages; d++) {
        push_1f1b(&b, d, &s, a->n_stages - d - 2 + q);
    }
    streams_release(&s);
    mw_sched_end(&b, out);
    return MW_OK;
}
