/*
 * Communication curves of this machine's ranks.
 *
 * A sample is a batch of calls between a barrier and a maximum over ranks.
 * Samples in which any rank was preempted (getrusage's involuntary context
 * switches) are dropped as long as enough clean ones remain: on a busy machine
 * the median of all samples is many times too long. With more ranks than cores
 * every collective switches, so the lower quartile of all samples stands; the
 * mode is in the calibration record. Sizes are spaced by 4 from 64 B to 16 MiB
 * and interpolated by the reader: the curve is not one alpha-beta line (eager,
 * pipelined in cache, out of cache).
 */
#include "exec/bench.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stats.h"
#include "sim/model/scenario.h"

#include <stdio.h>
#include <sys/resource.h>

enum {
    SAMPLES = 9,
    CLEAN_MIN = 4,
    SIZES = 10,
    BYTES_MIN = 64,
    BYTES_MAX = 16 << 20,
    TARGET_NS = 200000,  /* a sample's calls take about as long */
    BUDGET_NS = 25000000 /* and all samples of a point at most */
};

struct point {
    enum mw_coll_op op;
    size_t bytes; /* whole buffer */
};

struct bench {
    struct mw_comm *world;
    float *buf;
    struct mw_err *err;
};

static int64_t preemptions(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
}

static enum mw_status ping_pong(struct bench *b, size_t n)
{
    struct mw_comm *w = b->world;
    struct mw_send sent = {0};
    int peer = 1 - w->rank;
    if (w->rank == 0) {
        enum mw_status st =
            w->ops->send(w, b->buf, n, MW_ELEM_F32, peer, 0, &sent, b->err);
        if (st == MW_OK) {
            st = w->ops->wait(w, &sent, b->err);
        }
        return st == MW_OK
                   ? w->ops->recv(w, b->buf, n, MW_ELEM_F32, peer, 0, b->err)
                   : st;
    }
    enum mw_status st =
        w->ops->recv(w, b->buf, n, MW_ELEM_F32, peer, 0, b->err);
    if (st == MW_OK) {
        st = w->ops->send(w, b->buf, n, MW_ELEM_F32, peer, 0, &sent, b->err);
    }
    return st == MW_OK ? w->ops->wait(w, &sent, b->err) : st;
}

static enum mw_status call(struct bench *b, const struct point *p)
{
    struct mw_comm *w = b->world;
    size_t n = p->bytes / sizeof(float), part = n / (size_t)w->size;
    switch (p->op) {
    case MW_ALL_REDUCE:
        return w->ops->all_reduce(w, b->buf, n, MW_ELEM_F32, MW_REDUCE_MAX,
                                  b->err);
    case MW_ALL_GATHER:
        return w->ops->all_gather(w, b->buf, part, MW_ELEM_F32, b->err);
    case MW_REDUCE_SCATTER:
        return w->ops->reduce_scatter(w, b->buf, part, MW_ELEM_F32, b->err);
    case MW_SEND_RECV:
        return ping_pong(b, n);
    case MW_ALL_TO_ALL:
    case MW_BROADCAST:
    case MW_REDUCE:
    case MW_COLL_OP_COUNT:
        break;
    }
    return MW_OK;
}

struct sample {
    double time_s;
    bool is_clean;
};

/* One batch; the slowest rank's time, and whether no rank was preempted. */
static enum mw_status take_sample(struct bench *b, const struct point *p,
                                  int calls, struct sample *out)
{
    struct mw_comm *w = b->world;
    enum mw_status st = w->ops->barrier(w, b->err);
    int64_t before = preemptions(), begin_ns = mw_clock_wall_ns();
    for (int i = 0; i < calls && st == MW_OK; i++) {
        st = call(b, p);
    }
    double v[2] = {1e-9 * (double)(mw_clock_wall_ns() - begin_ns) / calls,
                   (double)(preemptions() - before)};
    if (st == MW_OK) {
        st = w->ops->all_reduce(w, v, 2, MW_ELEM_F64, MW_REDUCE_MAX, b->err);
    }
    /* A ping-pong is two transfers. */
    out->time_s = p->op == MW_SEND_RECV ? v[0] / 2.0 : v[0];
    out->is_clean = v[1] == 0.0;
    return st;
}

static double settle(const struct sample *s, int n)
{
    double clean[SAMPLES], all[SAMPLES];
    size_t n_clean = 0;
    for (int i = 0; i < n; i++) {
        all[i] = s[i].time_s;
        if (s[i].is_clean) {
            clean[n_clean++] = s[i].time_s;
        }
    }
    return n_clean >= CLEAN_MIN ? mw_median(clean, n_clean)
                                : mw_quantile(all, (size_t)n, 0.25);
}

static enum mw_status measure(struct bench *b, const struct point *p,
                              double *out)
{
    struct sample s[SAMPLES];
    enum mw_status st = take_sample(b, p, 1, &s[0]);
    if (st == MW_OK) {
        st = take_sample(b, p, 2, &s[0]);
    }
    double once = s[0].time_s > 1e-7 ? s[0].time_s : 1e-7;
    int calls = (int)(1e-9 * TARGET_NS / once) + 1;
    int n = (int)(1e-9 * BUDGET_NS / (once * calls));
    n = n > SAMPLES ? SAMPLES : n < CLEAN_MIN ? CLEAN_MIN : n;
    for (int i = 0; i < n && st == MW_OK; i++) {
        st = take_sample(b, p, calls, &s[i]);
    }
    if (st == MW_OK) {
        *out = settle(s, n);
    }
    return st;
}

static enum mw_status measure_curve(struct bench *b, const char *system,
                                    enum mw_coll_op op, FILE *f)
{
    size_t bytes = BYTES_MIN;
    for (int i = 0; i < SIZES; i++, bytes *= 4) {
        const struct point p = {op, bytes};
        double time_s = 0.0;
        enum mw_status st = measure(b, &p, &time_s);
        if (st != MW_OK) {
            return st;
        }
        if (f) {
            fprintf(f,
                    "%s,%s,%d,%zu,%.6e,\"meshwright calibrate: wall time, "
                    "samples without preemption where there are any\"\n",
                    system, mw_coll_op_name(op), b->world->size, bytes, time_s);
        }
    }
    return MW_OK;
}

static enum mw_status measure_all(struct bench *b, const char *system, FILE *f)
{
    static const enum mw_coll_op ops[] = {MW_ALL_REDUCE, MW_ALL_GATHER,
                                          MW_REDUCE_SCATTER, MW_SEND_RECV};
    size_t n = b->world->size == 2 ? 4 : 3;
    enum mw_status st = MW_OK;
    if (f) {
        fprintf(f, "system,op,ranks,bytes,time_s,source\n");
    }
    for (size_t i = 0; i < n && st == MW_OK; i++) {
        st = measure_curve(b, system, ops[i], f);
    }
    return st;
}

static enum mw_status to_file(struct bench *b, const char *system,
                              const char *path)
{
    struct mw_outfile out = {0};
    enum mw_status st = MW_OK;
    if (b->world->rank == 0) {
        st = mw_outfile_open(&out, path, b->err);
    }
    int64_t failed = st != MW_OK;
    MW_ASSERT(b->world->size > 1, "%d ranks", b->world->size);
    st = b->world->ops->all_reduce(b->world, &failed, 1, MW_ELEM_I64,
                                   MW_REDUCE_MAX, b->err);
    if (st == MW_OK && failed) {
        return b->err->status ? b->err->status : MW_EINPUT;
    }
    if (st == MW_OK) {
        st = measure_all(b, system, out.f);
    }
    if (st == MW_OK && out.f) {
        st = mw_outfile_commit(&out, b->err);
    }
    mw_outfile_abort(&out);
    return st;
}

enum mw_status mw_bench_comm(const char *scenario, const char *path,
                             struct mw_comm *world, struct mw_err *err)
{
    struct mw_scenario s;
    struct bench b = {.world = world, .err = err};
    if (world->size < 2) {
        return mw_fail(err, MW_EUSAGE, "bench-comm needs at least two ranks");
    }
    enum mw_status st = mw_scenario_load(scenario, &s, err);
    if (st != MW_OK) {
        return st;
    }
    b.buf = mw_calloc(BYTES_MAX / sizeof(float) + 64, sizeof(float));
    st = to_file(&b, s.cluster.system, path);
    mw_free(b.buf);
    mw_scenario_release(&s);
    return st;
}
