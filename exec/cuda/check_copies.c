/*
 * Copies, latencies and contention: pinned memory to and from the device, one
 * way and both at once; copies inside the device; what a launch costs the host
 * and the device, what an event costs; a product beside a copy that takes its
 * bandwidth (how much slower each becomes).
 */
#include "exec/cuda/check_int.h"

#include "base/log.h"

/* A second stream that runs beside the device's between fork and join. */
struct aside {
    cudaStream_t stream;
    cudaEvent_t fork, join;
};

static struct mw_cuda *cuda(struct mw_check *c)
{
    return (struct mw_cuda *)c->dev;
}

static void open_aside(struct mw_check *c, struct aside *a)
{
    struct mw_cuda *d = cuda(c);
    *a = (struct aside){NULL, NULL, NULL};
    MW_CUDA_RUN(d, cudaStreamCreateWithFlags, &a->stream,
                cudaStreamNonBlocking);
    MW_CUDA_RUN(d, cudaEventCreateWithFlags, &a->fork, cudaEventDisableTiming);
    MW_CUDA_RUN(d, cudaEventCreateWithFlags, &a->join, cudaEventDisableTiming);
}

static void close_aside(struct aside *a)
{
    if (a->stream) {
        cudaStreamDestroy(a->stream);
    }
    if (a->fork) {
        cudaEventDestroy(a->fork);
    }
    if (a->join) {
        cudaEventDestroy(a->join);
    }
}

static void fork_aside(struct mw_check *c, const struct aside *a)
{
    struct mw_cuda *d = cuda(c);
    MW_CUDA_RUN(d, cudaEventRecord, a->fork, d->stream);
    MW_CUDA_RUN(d, cudaStreamWaitEvent, a->stream, a->fork, 0);
}

static void join_aside(struct mw_check *c, const struct aside *a)
{
    struct mw_cuda *d = cuda(c);
    MW_CUDA_RUN(d, cudaEventRecord, a->join, a->stream);
    MW_CUDA_RUN(d, cudaStreamWaitEvent, d->stream, a->join, 0);
}

/* ---- copies
 * ---------------------------------------------------------------------- */
enum direction { H2D, D2H, BOTH, D2D, DIRECTIONS };

struct copy {
    enum direction direction;
    size_t bytes;
    char *host; /* two pieces of `bytes` */
    const struct aside *aside;
};

static void call_copy(struct mw_check *c, const void *arg)
{
    const struct copy *k = arg;
    struct mw_cuda *d = cuda(c);
    void *dst = mw_check_take(c, k->bytes / 2);
    void *src = mw_check_take(c, k->bytes / 2);
    switch (k->direction) {
    case H2D:
        MW_CUDA_RUN(d, cudaMemcpyAsync, dst, k->host, k->bytes,
                    cudaMemcpyHostToDevice, d->stream);
        break;
    case D2H:
        MW_CUDA_RUN(d, cudaMemcpyAsync, k->host, src, k->bytes,
                    cudaMemcpyDeviceToHost, d->stream);
        break;
    case BOTH:
        fork_aside(c, k->aside);
        MW_CUDA_RUN(d, cudaMemcpyAsync, dst, k->host, k->bytes,
                    cudaMemcpyHostToDevice, d->stream);
        MW_CUDA_RUN(d, cudaMemcpyAsync, k->host + k->bytes, src, k->bytes,
                    cudaMemcpyDeviceToHost, k->aside->stream);
        join_aside(c, k->aside);
        break;
    case D2D:
        MW_CUDA_RUN(d, cudaMemcpyAsync, dst, src, k->bytes,
                    cudaMemcpyDeviceToDevice, d->stream);
        break;
    case DIRECTIONS:
        break;
    }
}

static void measure_copy(struct mw_check *c, json_t *out, const struct copy *k)
{
    static const char *const name[] = {"h2d", "d2h", "both", "d2d"};
    char label[64];
    snprintf(label, sizeof label, "copy %s %zu", name[k->direction], k->bytes);
    struct mw_check_time t = mw_check_measure(c, label, call_copy, k);
    json_t *o = json_object();
    mw_json_set_str(o, "direction", name[k->direction]);
    mw_json_set_int(o, "bytes", (long long)k->bytes);
    mw_json_set_real(o, "time_s", t.s);
    mw_json_set_real(o, "cv", t.cv);
    mw_json_set_real(o, "bytes_per_s_per_direction", (double)k->bytes / t.s);
    json_array_append_new(out, o);
}

static void measure_copies(struct mw_check *c, const struct aside *aside)
{
    size_t max = (size_t)1 << (c->is_quick ? 16 : 28);
    json_t *out = json_array();
    void *host = NULL;
    mw_json_set(c->out, "copies", out);
    if (!MW_CUDA_RUN(cuda(c), cudaMallocHost, &host, 2 * max)) {
        return;
    }
    for (size_t bytes = c->is_quick ? max : (size_t)1 << 12; bytes <= max;
         bytes *= 4) {
        for (int d = 0; d < DIRECTIONS && !mw_check_is_late(c, "copies"); d++) {
            const struct copy k = {(enum direction)d, bytes, host, aside};
            measure_copy(c, out, &k);
        }
    }
    c->dev->ops->sync(c->dev, NULL);
    cudaFreeHost(host);
}

/* ---- latencies
 * --------------------------------------------------------------------- */
static void call_nothing(struct mw_check *c, const void *arg)
{
    (void)arg;
    float *p = mw_check_sums(c, 1);
    c->dev->ops->accumulate(c->dev, p, p, 1);
}

static void measure_latencies(struct mw_check *c)
{
    int n = c->is_quick ? 10 : 2000;
    json_t *o = json_object();
    struct mw_check_time t =
        mw_check_measure(c, "launch device", call_nothing, NULL);
    c->dev->ops->sync(c->dev, NULL);
    int64_t begin_ns = mw_clock_wall_ns();
    for (int i = 0; i < n; i++) {
        call_nothing(c, NULL);
    }
    int64_t launched_ns = mw_clock_wall_ns();
    c->dev->ops->sync(c->dev, NULL);
    int64_t events_ns = mw_clock_wall_ns();
    for (int i = 0; i < n; i++) {
        c->dev->ops->busy_ns(c->dev);
    }
    int64_t end_ns = mw_clock_wall_ns();
    mw_json_set_real(o, "launch_device_s", t.s);
    mw_json_set_real(o, "launch_host_s",
                     1e-9 * (double)(launched_ns - begin_ns) / n);
    mw_json_set_real(o, "event_round_trip_s",
                     1e-9 * (double)(end_ns - events_ns) / n);
    mw_json_set(c->out, "latency", o);
}

/* ---- contention
 * --------------------------------------------------------------------- */
struct beside {
    const struct aside *aside;
    int size;     /* of the product */
    size_t bytes; /* of the copy */
    bool has_gemm, has_copy;
};

static void call_beside(struct mw_check *c, const void *arg)
{
    const struct beside *b = arg;
    size_t n = (size_t)b->size * (size_t)b->size;
    void *dst = mw_check_take(c, b->bytes / 2);
    void *src = mw_check_take(c, b->bytes / 2);
    fork_aside(c, b->aside);
    if (b->has_copy) {
        MW_CUDA_RUN(cuda(c), cudaMemcpyAsync, dst, src, b->bytes,
                    cudaMemcpyDeviceToDevice, b->aside->stream);
    }
    if (b->has_gemm) {
        void *x = mw_check_take(c, n), *w = mw_check_take(c, n);
        c->dev->ops->linear_fwd(c->dev, mw_check_sums(c, n), x, w, NULL,
                                b->size, b->size, b->size);
    }
    join_aside(c, b->aside);
}

/* slowdown: both together over the longer one alone; 1 is free overlap. */
static void measure_beside(struct mw_check *c, const struct aside *aside)
{
    struct beside b = {.aside = aside,
                       .size = c->is_quick ? 64 : 8192,
                       .bytes = (size_t)1 << (c->is_quick ? 12 : 29)};
    json_t *o = json_object();
    b.has_gemm = true;
    double gemm_s = mw_check_measure(c, "beside gemm", call_beside, &b).s;
    b.has_copy = true;
    double both_s = mw_check_measure(c, "beside both", call_beside, &b).s;
    b.has_gemm = false;
    double copy_s = mw_check_measure(c, "beside copy", call_beside, &b).s;
    mw_json_set_real(o, "gemm_s", gemm_s);
    mw_json_set_real(o, "copy_s", copy_s);
    mw_json_set_real(o, "both_s", both_s);
    mw_json_set_real(o, "slowdown",
                     both_s / (gemm_s > copy_s ? gemm_s : copy_s));
    mw_json_set(c->out, "overlap", o);
}

void mw_check_copies(struct mw_check *c)
{
    struct aside aside;
    open_aside(c, &aside);
    measure_latencies(c);
    measure_copies(c, &aside);
    measure_beside(c, &aside);
    c->dev->ops->sync(c->dev, NULL);
    close_aside(&aside);
}
