/* The CUDA runtime of shim.h: memory, streams, events. */
#include "tests/shim/shim.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct op {
    bool (*run)(void *args);
    void *args;
    struct CUevent_st *wait; /* or: held back until this version is done */
    uint64_t version;
    struct op *next;
};

struct CUstream_st {
    struct op *head, **tail;
    struct CUstream_st *next;
};

struct CUevent_st {
    uint64_t recorded, done;
    int64_t done_ns;
    int pending; /* queued operations that name it */
    bool is_destroyed;
};

struct block {
    char *p;
    size_t bytes;
};

static struct {
    bool is_ready, has_failed;
    uint64_t seed, n_drawn;
    int64_t calls, fail_at;
    int devices, live;
    struct CUstream_st *streams;
    MW_ARRAY(struct block) blocks;
} shim;

/* ---- control
 * ----------------------------------------------------------------------- */
static void begin(void)
{
    if (!shim.is_ready) {
        const char *seed = getenv("MW_SHIM_SEED");
        const char *fail = getenv("MW_SHIM_FAIL");
        shim.is_ready = true;
        shim.devices = 1;
        shim.seed = seed ? strtoull(seed, NULL, 10) : 0;
        shim.fail_at = fail ? strtoll(fail, NULL, 10) : 0;
    }
}

void shim_seed(uint64_t seed)
{
    begin();
    shim.seed = seed;
    shim.n_drawn = 0;
}

void shim_fail_at(int64_t n)
{
    begin();
    shim.calls = 0;
    shim.fail_at = n;
    shim.has_failed = false;
}

int64_t shim_calls(void)
{
    return shim.calls;
}

bool shim_has_failed(void)
{
    return shim.has_failed;
}

void shim_set_devices(int n)
{
    begin();
    shim.devices = n;
}

int shim_live(void)
{
    return shim.live;
}

void shim_count(int delta)
{
    shim.live += delta;
}

uint64_t shim_draw(uint64_t n)
{
    begin();
    return mw_rand_u64(shim.seed, 77, shim.n_drawn++) % n;
}

bool shim_enters(void)
{
    begin();
    bool is_failing = ++shim.calls == shim.fail_at;
    shim.has_failed = shim.has_failed || is_failing;
    return is_failing;
}

/* Calls that give something back do so even when they are made to fail. */
#define ENTER()                                                                \
    do {                                                                       \
        if (shim_enters()) {                                                   \
            return cudaErrorUnknown;                                           \
        }                                                                      \
    } while (0)

/* ---- running
 * ------------------------------------------------------------------------- */
static void release_event(struct CUevent_st *e)
{
    if (e->is_destroyed && e->pending == 0) {
        mw_free(e);
    }
}

static bool is_held(const struct op *op)
{
    return op->wait && op->wait->done < op->version;
}

/* Runs the first operation of a stream; false when it must go on later. */
static bool run_head(struct CUstream_st *s)
{
    struct op *op = s->head;
    if (op->run && !op->run(op->args)) {
        return false;
    }
    if (op->wait) {
        op->wait->pending--;
        release_event(op->wait);
    }
    s->head = op->next;
    if (!s->head) {
        s->tail = &s->head;
    }
    mw_free(op->args);
    mw_free(op);
    return true;
}

/* A stream, drawn among those whose first operation is not held back. */
static struct CUstream_st *draw_stream(void)
{
    struct CUstream_st *chosen = NULL;
    uint64_t n = 0;
    for (struct CUstream_st *s = shim.streams; s; s = s->next) {
        if (s->head && !is_held(s->head) && shim_draw(++n) == 0) {
            chosen = s;
        }
    }
    return chosen;
}

void shim_progress(void)
{
    for (uint64_t n = shim_draw(4); n > 0; n--) {
        struct CUstream_st *s = draw_stream();
        if (!s) {
            return;
        }
        if (!run_head(s)) {
            sched_yield();
        }
    }
}

static void drain(const struct CUstream_st *s)
{
    while (s->head) {
        shim_progress();
    }
}

static void drain_all(void)
{
    for (struct CUstream_st *s = shim.streams; s; s = s->next) {
        drain(s);
    }
}

static void push(struct CUstream_st *s, const struct op *op)
{
    struct op *copy = mw_calloc(1, sizeof *copy);
    *copy = *op;
    *s->tail = copy;
    s->tail = &copy->next;
}

void shim_enqueue(cudaStream_t stream, bool (*run)(void *args),
                  const void *args, size_t size)
{
    MW_ASSERT(stream, "work on the default stream");
    struct op op = {.run = run, .args = mw_calloc(size, 1)};
    memcpy(op.args, args, size);
    push(stream, &op);
}

/* ---- device
 * ----------------------------------------------------------------------- */
cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER();
    if (shim.devices < 0) {
        return cudaErrorInsufficientDriver;
    }
    *count = shim.devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    ENTER();
    return device < shim.devices ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    ENTER();
    (void)device;
    memset(prop, 0, sizeof *prop);
    memcpy(prop->name, "stand-in", sizeof "stand-in");
    prop->multiProcessorCount = 1;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    ENTER();
    *total = (size_t)1 << 34;
    *free = *total;
    for (size_t i = 0; i < shim.blocks.n; i++) {
        *free -= shim.blocks.v[i].bytes;
    }
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    ENTER();
    *version = CUDART_VERSION;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess                   ? "no error"
           : error == cudaErrorInsufficientDriver ? "no driver (stand-in)"
           : error == cudaErrorMemoryAllocation   ? "out of memory (stand-in)"
           : error == cudaErrorUnknown            ? "made to fail (stand-in)"
                                                  : "an error (stand-in)";
}

/* ---- memory
 * ------------------------------------------------------------------------ */
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    ENTER();
    struct block b = {.bytes = bytes};
    if (bytes == 0 || bytes > (size_t)1 << 33) {
        return cudaErrorMemoryAllocation;
    }
    b.p = mw_calloc(bytes, 1); /* exactly, so that ASan sees the ends */
    memset(b.p, 0xff, bytes);  /* NaN */
    mw_array_push(&shim.blocks, b);
    shim_count(1);
    *out = b.p;
    return cudaSuccess;
}

bool shim_is_device(const void *p, size_t bytes)
{
    const char *c = p;
    for (size_t i = 0; i < shim.blocks.n; i++) {
        const struct block *b = &shim.blocks.v[i];
        if (c >= b->p && c < b->p + b->bytes) {
            return (size_t)(c - b->p) + bytes <= b->bytes;
        }
    }
    return false;
}

cudaError_t cudaFree(void *p)
{
    bool is_failing = shim_enters();
    drain_all();
    for (size_t i = 0; i < shim.blocks.n; i++) {
        if (shim.blocks.v[i].p == p) {
            mw_free(p);
            shim.blocks.v[i] = shim.blocks.v[--shim.blocks.n];
            if (shim.blocks.n == 0) {
                mw_array_release(&shim.blocks);
            }
            shim_count(-1);
            return is_failing ? cudaErrorUnknown : cudaSuccess;
        }
    }
    return p || is_failing ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    ENTER();
    *out = mw_calloc(bytes, 1);
    shim_count(1);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    bool is_failing = shim_enters();
    mw_free(p);
    shim_count(-1);
    return is_failing ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a,
                                     const void *p)
{
    ENTER();
    memset(a, 0, sizeof *a);
    a->type = shim_is_device(p, 1) ? cudaMemoryTypeDevice
                                   : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

struct copy {
    char *dst;
    const char *src;
    size_t bytes;
};

static bool run_copy(void *args)
{
    const struct copy *c = args;
    memmove(c->dst, c->src, c->bytes);
    return true;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER();
    bool to_device =
        kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device =
        kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (shim_is_device(dst, bytes) != to_device ||
        shim_is_device(src, bytes) != from_device) {
        return cudaErrorInvalidValue;
    }
    const struct copy c = {dst, src, bytes};
    shim_enqueue(stream, run_copy, &c, sizeof c);
    return cudaSuccess;
}

struct copy_rows {
    char *dst;
    const char *src;
    size_t ld_dst, ld_src, width, n;
};

static bool run_copy_rows(void *args)
{
    const struct copy_rows *c = args;
    for (size_t i = 0; i < c->n; i++) {
        memmove(c->dst + i * c->ld_dst, c->src + i * c->ld_src, c->width);
    }
    return true;
}

/* Between places of the device alone. */
cudaError_t cudaMemcpy2DAsync(void *dst, size_t ld_dst, const void *src,
                              size_t ld_src, size_t width, size_t n,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER();
    if (kind != cudaMemcpyDeviceToDevice || width > ld_dst || width > ld_src) {
        return cudaErrorInvalidValue;
    }
    if (n > 0 && (!shim_is_device(dst, (n - 1) * ld_dst + width) ||
                  !shim_is_device(src, (n - 1) * ld_src + width))) {
        return cudaErrorInvalidValue;
    }
    const struct copy_rows c = {dst, src, ld_dst, ld_src, width, n};
    shim_enqueue(stream, run_copy_rows, &c, sizeof c);
    return cudaSuccess;
}

struct fill {
    char *dst;
    int value;
    size_t bytes;
};

static bool run_fill(void *args)
{
    const struct fill *f = args;
    memset(f->dst, f->value, f->bytes);
    return true;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes,
                            cudaStream_t stream)
{
    ENTER();
    if (!shim_is_device(dst, bytes)) {
        return cudaErrorInvalidValue;
    }
    const struct fill f = {dst, value, bytes};
    shim_enqueue(stream, run_fill, &f, sizeof f);
    return cudaSuccess;
}

/* ---- streams
 * ---------------------------------------------------------------------- */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    ENTER();
    (void)flags;
    struct CUstream_st *s = mw_calloc(1, sizeof *s);
    s->tail = &s->head;
    s->next = shim.streams;
    shim.streams = s;
    shim_count(1);
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    bool is_failing = shim_enters();
    drain(stream);
    for (struct CUstream_st **p = &shim.streams; *p; p = &(*p)->next) {
        if (*p == stream) {
            *p = stream->next;
            break;
        }
    }
    mw_free(stream);
    shim_count(-1);
    return is_failing ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER();
    shim_progress();
    return stream->head ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags)
{
    ENTER();
    (void)flags;
    const struct op op = {.wait = event, .version = event->recorded};
    event->pending++;
    push(stream, &op);
    return cudaSuccess;
}

/* ---- events
 * ---------------------------------------------------------------------------
 */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    ENTER();
    (void)flags;
    *out = mw_calloc(1, sizeof **out);
    shim_count(1);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    bool is_failing = shim_enters();
    event->is_destroyed = true;
    release_event(event);
    shim_count(-1);
    return is_failing ? cudaErrorUnknown : cudaSuccess;
}

struct mark {
    struct CUevent_st *event;
    uint64_t version;
};

static bool run_mark(void *args)
{
    struct mark *m = args;
    m->event->done = m->version;
    m->event->done_ns = mw_clock_wall_ns();
    m->event->pending--;
    release_event(m->event);
    return true;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER();
    const struct mark m = {event, ++event->recorded};
    event->pending++;
    shim_enqueue(stream, run_mark, &m, sizeof m);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER();
    shim_progress();
    return event->done < event->recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    ENTER();
    if (start->done < start->recorded || end->done < end->recorded) {
        return cudaErrorNotReady;
    }
    *ms = 1e-6f * (float)(end->done_ns - start->done_ns);
    return cudaSuccess;
}
