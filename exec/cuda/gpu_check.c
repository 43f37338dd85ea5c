/*
 * mw-gpu-check: measures one GPU within a few minutes and writes an overlay of
 * the hardware database:
 *
 *   kernels.csv       GEMM shapes, attention and memory-bound kernels
 *   machine.csv       device, runtime, clock
 *   raw_samples.csv   every sample
 *   gpu_check.json    all of it, with the other kernels, copies, latencies,
 *                     whole layers, overlap and the runs of plans given with
 *                     --step and --virtual
 *
 * Exit status: 0 done; 2 usage; 3 a file; 4 no GPU; 5 the device failed.
 */
#include "exec/cuda/check_int.h"

#include "base/file.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/stats.h"
#include "base/units.h"
#include "exec/cuda/mw_cuda.h"
#include "hwdb/hwdb.h"

#include <argp.h>
#include <string.h>

enum { SAMPLES = 9, SAMPLES_QUICK = 2, NAMES_MAX = 16, BLOCK = 1 << 20 };
static const size_t RUN_BYTES_MAX = (size_t)1 << 24;

/* Values of an option that may be given several times. */
struct names {
    const char *v[NAMES_MAX];
    int n;
};

struct args {
    const char *out, *device;
    struct names steps, ranks, left_out;
    bool is_quick;
    double limit_s;
};

enum {
    OPT_QUICK = 0x1000,
    OPT_STEP,
    OPT_RANKS,
    OPT_LEFT_OUT,
    OPT_DEVICE,
    OPT_SECONDS
};

static const struct argp_option options[] = {
    {"output", 'o', "DIR", 0, "Folder of the overlay (default gpu-check)", 0},
    {"device", OPT_DEVICE, "SLUG", 0,
     "Device of the rows (default: the one of that name in the database)", 0},
    {"step", OPT_STEP, "RUN[,SIM]", 0,
     "Result of a plan's run to include, and what is predicted of it", 0},
    {"virtual", OPT_RANKS, "RUN[,SIM]", 0,
     "The same of virtual ranks on this GPU", 0},
    {"left-out", OPT_LEFT_OUT, "NAME", 0, "A run that there was no time for",
     0},
    {"seconds", OPT_SECONDS, "S", 0, "Time limit (default 300)", 0},
    {"quick", OPT_QUICK, NULL, 0, "A few small sizes: does it run at all?", 0},
    {0}};

static void add_name(struct names *n, const char *name,
                     const struct argp_state *state)
{
    if (n->n == NAMES_MAX) {
        argp_error(state, "'%s' is more than %d of its kind", name,
                   (int)NAMES_MAX);
        return;
    }
    n->v[n->n++] = name;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case 'o':
        a->out = arg;
        return 0;
    case OPT_DEVICE:
        a->device = arg;
        return 0;
    case OPT_QUICK:
        a->is_quick = true;
        return 0;
    case OPT_STEP:
        add_name(&a->steps, arg, state);
        return 0;
    case OPT_RANKS:
        add_name(&a->ranks, arg, state);
        return 0;
    case OPT_LEFT_OUT:
        add_name(&a->left_out, arg, state);
        return 0;
    case OPT_SECONDS:
        if (mw_double_parse(arg, &a->limit_s, NULL) != MW_OK ||
            a->limit_s < 1.0 || a->limit_s > 3600.0) {
            argp_error(state, "--seconds: '%s' is not a number in 1..3600",
                       arg);
        }
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- measuring
 * ------------------------------------------------------------------ */
static double elapsed_s(const struct mw_check *c)
{
    return 1e-9 * (double)(mw_clock_wall_ns() - c->begin_ns);
}

bool mw_check_is_late(struct mw_check *c, const char *what)
{
    if (elapsed_s(c) < c->limit_s) {
        return false;
    }
    json_array_append_new(json_object_get(c->out, "left_out"),
                          json_string(what));
    return true;
}

static double sample_s(struct mw_check *c, mw_check_fn fn, const void *arg,
                       int calls)
{
    int64_t begin_ns = c->dev->ops->busy_ns(c->dev);
    for (int i = 0; i < calls; i++) {
        fn(c, arg);
    }
    return 1e-9 * (double)(c->dev->ops->busy_ns(c->dev) - begin_ns) / calls;
}

struct mw_check_time mw_check_measure(struct mw_check *c, const char *label,
                                      mw_check_fn fn, const void *arg)
{
    double v[SAMPLES], once = sample_s(c, fn, arg, 1);
    int n = c->is_quick ? SAMPLES_QUICK : SAMPLES, calls = 1;
    if (!c->is_quick) {
        once = sample_s(c, fn, arg, 2);
        calls = 1 + (int)(4e-3 / (once > 1e-7 ? once : 1e-7));
    }
    for (int i = 0; i < n; i++) {
        v[i] = sample_s(c, fn, arg, calls);
        fprintf(c->raw, "%s,%d,%d,%.6e\n", label, i, calls, v[i]);
    }
    struct mw_check_time t = {.cv = mw_cv(v, (size_t)n)};
    t.s = mw_median(v, (size_t)n);
    return t;
}

void mw_check_row(struct mw_check *c, const char *op, const char *pass,
                  const int64_t mnk[3], double time_s)
{
    fprintf(c->kernels,
            "%s,%s,%s,bf16,%lld,%lld,%lld,%.6e,\"mw-gpu-check: events, median "
            "of %d samples, random rotated operands\"\n",
            c->slug, op, pass, (long long)mnk[0], (long long)mnk[1],
            (long long)mnk[2], time_s, c->is_quick ? SAMPLES_QUICK : SAMPLES);
}

/* ---- operands
 * -------------------------------------------------------------------- */
static char *next(const struct mw_check *c, char *base, size_t *at,
                  size_t bytes)
{
    size_t size = (bytes + 255) / 256 * 256;
    MW_ASSERT(size <= c->pool_bytes, "an operand of %zu bytes", bytes);
    if (*at + size > c->pool_bytes) {
        *at = 0;
    }
    char *p = base + *at;
    *at += size;
    return p;
}

void *mw_check_take(struct mw_check *c, size_t n)
{
    return next(c, c->pool, &c->pool_at, 2 * n);
}

float *mw_check_sums(struct mw_check *c, size_t n)
{
    return (float *)(void *)next(c, c->sums, &c->sums_at, 4 * n);
}

/* Uniform in [-1, 1): the upper half of a float32. */
static void fill_pool(struct mw_check *c)
{
    uint16_t *block = mw_calloc(BLOCK, sizeof *block);
    for (size_t i = 0; i < BLOCK; i++) {
        float v = (float)(mw_rand_u64(1, 2, i) >> 40) / (float)(1 << 23) - 1.0f;
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        block[i] = (uint16_t)(bits >> 16);
    }
    size_t bytes = BLOCK * sizeof *block;
    for (size_t at = 0; at < c->pool_bytes; at += bytes) {
        size_t part = c->pool_bytes - at < bytes ? c->pool_bytes - at : bytes;
        c->dev->ops->to_device(c->dev, c->pool + at, block, part);
    }
    mw_free(block);
}

static void open_memory(struct mw_check *c)
{
    int32_t *token = mw_calloc(MW_CHECK_TOKENS, sizeof *token);
    for (size_t i = 0; i < MW_CHECK_TOKENS; i++) {
        token[i] = (int32_t)(mw_rand_u64(1, 3, i) % MW_CHECK_VOCAB);
    }
    size_t bytes = MW_CHECK_TOKENS * sizeof *token;
    c->pool_bytes = (size_t)(c->is_quick ? 16 : 2048) << 20;
    c->pool = c->dev->ops->alloc(c->dev, c->pool_bytes);
    c->sums = c->dev->ops->alloc(c->dev, c->pool_bytes);
    c->token = c->dev->ops->alloc(c->dev, bytes);
    c->dev->ops->to_device(c->dev, c->token, token, bytes);
    fill_pool(c);
    mw_free(token);
}

static void close_memory(struct mw_check *c)
{
    c->dev->ops->free(c->dev, c->pool, c->pool_bytes);
    c->dev->ops->free(c->dev, c->sums, c->pool_bytes);
    c->dev->ops->free(c->dev, c->token, MW_CHECK_TOKENS * sizeof *c->token);
}

/* ---- files
 * ------------------------------------------------------------------------ */
static enum mw_status open_file(struct mw_outfile *o, const char *dir,
                                const char *name, struct mw_err *err)
{
    struct mw_str path = {0};
    mw_str_addf(&path, "%s/%s", dir, name);
    enum mw_status st = mw_outfile_open(o, path.s, err);
    mw_str_release(&path);
    return st;
}

static enum mw_status write_json(const json_t *o, const char *dir,
                                 struct mw_err *err)
{
    struct mw_outfile file = {0};
    enum mw_status st = open_file(&file, dir, "gpu_check.json", err);
    if (st == MW_OK) {
        st = mw_json_write(o, file.f, err);
    }
    if (st == MW_OK) {
        st = mw_outfile_commit(&file, err);
    }
    mw_outfile_abort(&file);
    return st;
}

static enum mw_status write_machine(const json_t *device, const char *dir,
                                    struct mw_err *err)
{
    struct mw_outfile file = {0};
    const char *key;
    json_t *value;
    enum mw_status st = open_file(&file, dir, "machine.csv", err);
    if (st != MW_OK) {
        return st;
    }
    fprintf(file.f, "key,value\nclock,events\n");
    json_object_foreach((json_t *)(uintptr_t)device, key, value)
    {
        if (json_is_string(value)) {
            fprintf(file.f, "%s,\"%s\"\n", key, json_string_value(value));
        } else {
            fprintf(file.f, "%s,%lld\n", key,
                    (long long)json_integer_value(value));
        }
    }
    st = mw_outfile_commit(&file, err);
    mw_outfile_abort(&file);
    return st;
}

/* "RESULT" or "RESULT,SIM": what a run measured, and what `sim --json` says of
 * its plan. */
static enum mw_status load_run(const char *names, json_t **out,
                               struct mw_err *err)
{
    const char *comma = strchr(names, ',');
    struct mw_str path = {0};
    json_t *sim = NULL;
    mw_str_addf(&path, "%.*s",
                (int)(comma ? comma - names : (ptrdiff_t)strlen(names)), names);
    enum mw_status st = mw_json_load(path.s, RUN_BYTES_MAX, out, err);
    mw_str_release(&path);
    if (st == MW_OK && comma) {
        st = mw_json_load(comma + 1, RUN_BYTES_MAX, &sim, err);
    }
    if (st != MW_OK) {
        json_decref(*out);
        return st;
    }
    mw_json_set_str(*out, "name", names);
    if (sim) {
        json_t *o = json_object();
        json_object_set(o, "step_time_s", json_object_get(sim, "step_time_s"));
        json_object_set(o, "memory", json_object_get(sim, "memory"));
        mw_json_set(*out, "predicted", o);
        json_decref(sim);
    }
    return MW_OK;
}

static enum mw_status add_runs(json_t *out, const char *key,
                               const struct names *runs, struct mw_err *err)
{
    json_t *list = json_array();
    mw_json_set(out, key, list);
    for (int i = 0; i < runs->n; i++) {
        json_t *o = NULL;
        enum mw_status st = load_run(runs->v[i], &o, err);
        if (st != MW_OK) {
            return st;
        }
        json_array_append_new(list, o);
    }
    return MW_OK;
}

/* ---- the run
 * ----------------------------------------------------------------------- */
static json_t *describe(const struct mw_check *c, const char *name)
{
    struct cudaDeviceProp prop;
    size_t free_bytes = 0, total_bytes = 0;
    int runtime = 0, nccl = 0;
    json_t *o = json_object();
    memset(&prop, 0, sizeof prop);
    cudaGetDeviceProperties(&prop, 0);
    cudaMemGetInfo(&free_bytes, &total_bytes);
    cudaRuntimeGetVersion(&runtime);
    ncclGetVersion(&nccl);
    mw_json_set_str(o, "gpu", name);
    mw_json_set_str(o, "slug", c->slug);
    mw_json_set_int(o, "n_sms", prop.multiProcessorCount);
    mw_json_set_int(o, "mem_bytes", (long long)total_bytes);
    mw_json_set_int(o, "cuda_runtime", runtime);
    mw_json_set_int(o, "nccl", nccl);
    return o;
}

static enum mw_status measure(struct mw_check *c, struct mw_err *err)
{
    fprintf(c->kernels, "device,op,pass,dtype,m,n,k,time_s,source\n");
    fprintf(c->raw, "what,sample,calls,time_s\n");
    open_memory(c);
    c->begin_ns = mw_clock_wall_ns();
    mw_check_copies(c);
    mw_check_kernels(c);
    mw_check_gemm(c);
    mw_check_more(c);
    mw_check_layers(c);
    mw_json_set_real(c->out, "seconds", elapsed_s(c));
    enum mw_status st = c->dev->ops->sync(c->dev, err);
    close_memory(c);
    return st;
}

static enum mw_status measure_to_files(struct mw_check *c, const char *dir,
                                       struct mw_err *err)
{
    struct mw_outfile kernels = {0}, raw = {0};
    enum mw_status st = open_file(&kernels, dir, "kernels.csv", err);
    if (st == MW_OK) {
        st = open_file(&raw, dir, "raw_samples.csv", err);
    }
    if (st == MW_OK) {
        c->kernels = kernels.f;
        c->raw = raw.f;
        st = measure(c, err);
    }
    if (st == MW_OK) {
        st = mw_outfile_commit(&kernels, err);
    }
    if (st == MW_OK) {
        st = mw_outfile_commit(&raw, err);
    }
    mw_outfile_abort(&kernels);
    mw_outfile_abort(&raw);
    return st;
}

static enum mw_status run_all(struct mw_check *c, const struct args *a,
                              const char *name, struct mw_err *err)
{
    json_t *device = describe(c, name);
    json_t *left_out = json_array();
    for (int i = 0; i < a->left_out.n; i++) {
        json_array_append_new(left_out, json_string(a->left_out.v[i]));
    }
    mw_json_set(c->out, "left_out", left_out);
    mw_json_set(c->out, "device", device);
    enum mw_status st = mw_mkdirs(a->out, err);
    if (st == MW_OK) {
        st = add_runs(c->out, "steps", &a->steps, err);
    }
    if (st == MW_OK) {
        st = add_runs(c->out, "virtual_ranks", &a->ranks, err);
    }
    if (st == MW_OK) {
        st = measure_to_files(c, a->out, err);
    }
    if (st == MW_OK) {
        st = write_machine(device, a->out, err);
    }
    return st == MW_OK ? write_json(c->out, a->out, err) : st;
}

/* The slug under which the database knows the device. */
static enum mw_status find_slug(struct mw_check *c, const struct args *a,
                                const struct mw_hwdb *db, const char *name,
                                struct mw_err *err)
{
    const struct mw_gpu *gpu = NULL;
    enum mw_status st =
        mw_hwdb_gpu(db, a->device ? a->device : name, &gpu, err);
    if (st == MW_OK) {
        c->slug = gpu->slug;
    } else {
        mw_err_prefix(err, "which row of gpus.csv is this device (--device)");
    }
    return st;
}

static enum mw_status check_device(const struct args *a, struct mw_err *err)
{
    struct mw_check c = {
        .is_quick = a->is_quick, .limit_s = a->limit_s, .out = json_object()};
    struct mw_hwdb *db = NULL;
    struct cudaDeviceProp prop;
    memset(&prop, 0, sizeof prop);
    enum mw_status st = mw_dev_cuda_bf16.open(0, &c.dev, err);
    if (st == MW_OK) {
        st = mw_hwdb_load(NULL, &db, err);
    }
    if (st == MW_OK) {
        cudaGetDeviceProperties(&prop, 0);
        st = find_slug(&c, a, db, prop.name, err);
    }
    if (st == MW_OK) {
        st = run_all(&c, a, prop.name, err);
    }
    if (c.dev) {
        c.dev->ops->close(c.dev);
    }
    mw_hwdb_free(db);
    json_decref(c.out);
    return st;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Measures the GPU and writes an overlay of the hardware database.",
        NULL,
        NULL,
        NULL};
    struct args a = {.out = "gpu-check", .limit_s = 300.0};
    struct mw_err err = {0};
    argp_err_exit_status = 2;
    mw_log_setup("mw-gpu-check", false);
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    enum mw_status st = check_device(&a, &err);
    if (st != MW_OK) {
        fprintf(stderr, "mw-gpu-check: %s\n", err.text);
    }
    return mw_status_exit(st);
}
