/*
 * The time of a candidate, the cheapest one, its channels and threads. Source:
 * NCCL 2.28.9, src/graph/tuning.cc (ncclTopoGetAlgoTime) and src/enqueue.cc.
 */
#include "sim/coll/nccl_int.h"

/* clang-format off */
/* Tree against the model, by floor(log2(bytes / 64)). */
enum { CORRECTIONS = 23 };
static const float tree_correction[MW_NCCL_PROTOS][CORRECTIONS] = {
    {1.0f, 1.0f, 1.0f, 1.0f, .9f, .8f, .7f, .7f, .7f, .7f, .6f, .5f,
     .4f, .4f, .5f, .6f, .7f, .8f, .9f, 1.0f, 1.0f, 1.0f, 1.0f},
    {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, .9f, .8f, .8f, .8f, .7f, .6f, .6f,
     .6f, .6f, .6f, .6f, .8f, .9f, .9f, .9f, .9f, 1.0f, 1.0f},
    {.9f, .9f, .9f, .9f, .9f, .9f, .9f, .8f, .7f, .6f, .6f, .5f,
     .5f, .5f, .5f, .6f, .7f, .8f, .7f, .7f, .8f, .9f, .9f}};
/* clang-format on */

static float latency_us(const struct mw_nccl_comm *comm, enum mw_nccl_func func,
                        enum mw_nccl_algo algo, enum mw_nccl_proto proto,
                        uint64_t bytes)
{
    float lat = comm->lat_us[func][algo][proto];
    uint64_t per = (uint64_t)comm->coll_channels * (uint64_t)comm->n_ranks;
    if (algo == MW_NCCL_RING && proto == MW_NCCL_SIMPLE &&
        func == MW_NCCL_ALL_REDUCE && comm->n_nodes > 1 && bytes / per >= 64) {
        lat = (float)((double)lat * (comm->sm_min < 80 ? 1.9 : 1.4));
    }
    return lat;
}

double mw_nccl_latency_us(const struct mw_nccl_comm *comm,
                          enum mw_nccl_func func, enum mw_nccl_algo algo,
                          enum mw_nccl_proto proto, uint64_t bytes)
{
    return (double)latency_us(comm, func, algo, proto, bytes);
}

double mw_nccl_time_us(const struct mw_nccl_comm *comm, enum mw_nccl_func func,
                       enum mw_nccl_algo algo, enum mw_nccl_proto proto,
                       uint64_t bytes, int n_ops)
{
    float bw = comm->bw_GBps[func][algo][proto];
    float lat = latency_us(comm, func, algo, proto, bytes);
    if (bw == 0) {
        return -1;
    }
    int log_size = bytes >= 64 ? nccl_log2(bytes >> 6) : -1;
    bool all_reduce = func == MW_NCCL_ALL_REDUCE;
    if (algo == MW_NCCL_TREE && all_reduce && log_size >= 0 &&
        log_size < CORRECTIONS) {
        bw *= tree_correction[proto][log_size];
    }
    enum { OPS_PER_BATCH = 10 };
    int k = algo == MW_NCCL_RING ? n_ops
                                 : (n_ops + OPS_PER_BATCH - 1) / OPS_PER_BATCH;
    return (double)(lat * (float)k + (float)bytes / (1000 * bw));
}

/* ---- choice ---- */

static bool nvls_reduces(enum mw_nccl_type type, enum mw_nccl_redop redop)
{
    switch (type) {
    case MW_NCCL_FLOAT16:
    case MW_NCCL_INT32:
        return redop == MW_NCCL_SUM || redop == MW_NCCL_MINMAX;
    case MW_NCCL_FLOAT32:
    case MW_NCCL_FLOAT64:
        return redop == MW_NCCL_SUM;
    case MW_NCCL_INT8:
    case MW_NCCL_FLOAT8:
        break;
    }
    return false;
}

/* NVLS gathers are documented up to 32 local ranks; NCCL 2.28.9's own choice
 * on a 72-GPU domain uses them all the same, and so do we. */
static bool is_allowed(const struct mw_nccl_comm *comm, enum mw_nccl_func func,
                       int algo, enum mw_nccl_type type,
                       enum mw_nccl_redop redop)
{
    if (algo == MW_NCCL_NVLS || algo == MW_NCCL_NVLS_TREE) {
        return func == MW_NCCL_ALL_GATHER || nvls_reduces(type, redop);
    }
    if (algo == MW_NCCL_PAT && func == MW_NCCL_REDUCE_SCATTER) {
        return redop != MW_NCCL_AVG;
    }
    if (algo == MW_NCCL_COLLNET_DIRECT || algo == MW_NCCL_COLLNET_CHAIN) {
        return comm->ppn <= 8;
    }
    return true;
}

struct mw_nccl_choice mw_nccl_choose(const struct mw_nccl_comm *comm,
                                     enum mw_nccl_func func,
                                     enum mw_nccl_type type,
                                     enum mw_nccl_redop redop, uint64_t bytes)
{
    struct mw_nccl_choice best = {.algo = MW_NCCL_RING,
                                  .proto = MW_NCCL_SIMPLE,
                                  .n_channels = 1,
                                  .n_threads = 0,
                                  .time_us = 0};
    if (comm->n_ranks <= 1) {
        return best;
    }
    bool found = false;
    for (int a = 0; a < MW_NCCL_ALGOS; a++) {
        for (int p = 0; p < MW_NCCL_PROTOS; p++) {
            if (!is_allowed(comm, func, a, type, redop)) {
                continue;
            }
            double t = mw_nccl_time_us(comm, func, (enum mw_nccl_algo)a,
                                       (enum mw_nccl_proto)p, bytes, 1);
            bool reduces =
                func != MW_NCCL_ALL_GATHER && func != MW_NCCL_BROADCAST;
            if (t >= 0 && a == MW_NCCL_RING && type == MW_NCCL_FLOAT8 &&
                reduces && comm->n_ranks > 8) {
                t *= 1024; /* NCCL avoids long chains of 8-bit sums */
            }
            if (t >= 0 && (!found || t < best.time_us)) {
                best.algo = (enum mw_nccl_algo)a;
                best.proto = (enum mw_nccl_proto)p;
                best.time_us = t;
                found = true;
            }
        }
    }
    mw_nccl_plan(comm, best.algo, best.proto, bytes, &best.n_channels,
                 &best.n_threads);
    return best;
}

static int direct_channels(const struct mw_nccl_comm *comm, uint64_t bytes,
                           int n, int threads, int *threshold)
{
    for (int step = 16; step >= 1; step /= 2) {
        for (;;) {
            uint64_t need = (uint64_t)n * (uint64_t)threads *
                            (uint64_t)comm->n_heads * (uint64_t)*threshold;
            if (bytes >= need) {
                return n;
            }
            if (n <= step) {
                break;
            }
            if (n == step + step / 2) {
                *threshold /= 2;
            }
            n--;
        }
    }
    return n;
}

void mw_nccl_plan(const struct mw_nccl_comm *comm, enum mw_nccl_algo algo,
                  enum mw_nccl_proto proto, uint64_t bytes, int *out_n_channels,
                  int *out_n_threads)
{
    enum { WARP = 32, THREADS_MAX = 640 };
    int n = comm->coll_channels;
    int threads = comm->max_threads[algo][proto];
    int threshold = comm->threshold[algo][proto];
    if (algo == MW_NCCL_COLLNET_DIRECT) {
        n = direct_channels(comm, bytes, n, threads, &threshold);
    } else if (algo == MW_NCCL_NVLS || algo == MW_NCCL_NVLS_TREE) {
        int nvls = comm->nvls_channels;
        bool capped = comm->n_nodes > 1 && algo == MW_NCCL_NVLS && nvls > n;
        n = capped ? n : nvls;
    } else {
        while (n >= 2 &&
               bytes < (uint64_t)n * (uint64_t)threads * (uint64_t)threshold) {
            n--;
        }
        while (threads > 0 && threads % 128 == 0 &&
               bytes < (uint64_t)n * (uint64_t)threads * (uint64_t)threshold) {
            threads /= 2;
        }
    }
    if (proto == MW_NCCL_SIMPLE) {
        threads += algo == MW_NCCL_RING   ? WARP
                   : algo == MW_NCCL_TREE ? 4 * WARP
                                          : 0;
    }
    threads = threads < 3 * WARP ? 3 * WARP : threads;
    if (algo == MW_NCCL_TREE || algo == MW_NCCL_PAT) {
        threads = THREADS_MAX;
    }
    *out_n_channels = n;
    *out_n_threads = threads;
}
