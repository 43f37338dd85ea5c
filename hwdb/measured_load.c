/*
 * Reading data/kernels: sources.csv and siblings.csv once, SLUG.csv when a
 * device is first asked for. The database that callers see does not change
 * by it, so they hold it const; what has been read is kept beside it behind a
 * lock, because a search prices on several threads.
 *
 * A row is refused when it beats the device: faster than its peak rate, or
 * than its memory for an operator that cannot live in the cache (streams are
 * left out of this: a small one is read from the second-level cache).
 */
#include "hwdb/measured.h"

#include "hwdb/hwdb_int.h"

#include "base/file.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct source_row {
    const char *id, *source, *includes, *confidence;
};
struct sibling_row {
    const char *device, *sibling, *confidence, *source;
};
struct shipped_row {
    const char *op, *dtype, *source;
    int64_t m, n, k, batch;
    double time_s;
};

/* The rows of one device. */
struct device_rows {
    const char *slug;
    enum mw_status status;
    struct mw_kernel_table *sets;
    const char **op, **dtype; /* of each set */
    size_t n_sets, n_rows;
};

struct mw_hw_measured {
    pthread_mutex_t lock;
    struct mw_arena arena;
    bool is_open; /* sources and siblings are read */
    struct source_row *sources;
    struct sibling_row *siblings;
    size_t n_sources, n_siblings;
    MW_ARRAY(struct device_rows *) devices;
};

#define STR(row, f)                                                            \
    {                                                                          \
#f, MW_C_STR, offsetof(struct row, f), true, 0, 0, 0                   \
    }
#define SIZE(f)                                                                \
    {                                                                          \
#f, MW_C_INT, offsetof(struct shipped_row, f), true, 1, 1e15, 1        \
    }
static const struct mw_csv_field source_fields[] = {
    STR(source_row, id),
    STR(source_row, source),
    {"includes", MW_C_STR, offsetof(struct source_row, includes), false, 0, 0,
     0},
    STR(source_row, confidence),
    {.name = NULL}};
static const struct mw_csv_field sibling_fields[] = {
    STR(sibling_row, device),
    STR(sibling_row, sibling),
    STR(sibling_row, confidence),
    STR(sibling_row, source),
    {.name = NULL}};
static const struct mw_csv_field row_fields[] = {
    STR(shipped_row, op),
    STR(shipped_row, dtype),
    SIZE(m),
    SIZE(n),
    SIZE(k),
    SIZE(batch),
    {"time_s", MW_C_NUM, offsetof(struct shipped_row, time_s), true, 1e-9, 1e3,
     0},
    STR(shipped_row, source),
    {.name = NULL}};

struct mw_hw_measured *mw_hw_measured_new(void)
{
    struct mw_hw_measured *m = mw_calloc(1, sizeof *m);
    int rc = pthread_mutex_init(&m->lock, NULL);
    MW_ASSERT(rc == 0, "mutex %d", rc);
    mw_arena_init(&m->arena);
    return m;
}

void mw_hw_measured_free(struct mw_hw_measured *m)
{
    if (m == NULL) {
        return;
    }
    pthread_mutex_destroy(&m->lock);
    mw_array_release(&m->devices);
    mw_arena_release(&m->arena);
    mw_free(m);
}

/* Reads kernels/NAME.csv; *out_n is 0 when there is no such file. */
static enum mw_status read_file(struct mw_hw_measured *m, const char *dir,
                                const char *name,
                                const struct mw_csv_field *fields, size_t size,
                                struct mw_csv *csv, void **out,
                                struct mw_err *err)
{
    char *path = mw_arena_printf(&m->arena, "%s/kernels/%s.csv", dir, name);
    *csv = (struct mw_csv){.file = path};
    *out = NULL;
    if (!mw_file_exists(path)) {
        return MW_OK;
    }
    enum mw_status status = mw_csv_load(path, &m->arena, csv, err);
    return status == MW_OK
               ? mw_csv_bind(csv, fields, size, true, &m->arena, out, err)
               : status;
}

static enum mw_status open_tables(struct mw_hw_measured *m, const char *dir,
                                  struct mw_err *err)
{
    struct mw_csv csv;
    void *rows;
    enum mw_status status = MW_OK;
    if (m->is_open) {
        return MW_OK;
    }
    status = read_file(m, dir, "sources", source_fields,
                       sizeof(struct source_row), &csv, &rows, err);
    if (status == MW_OK) {
        m->sources = rows;
        m->n_sources = csv.n_rows;
        status = read_file(m, dir, "siblings", sibling_fields,
                           sizeof(struct sibling_row), &csv, &rows, err);
    }
    if (status == MW_OK) {
        m->siblings = rows;
        m->n_siblings = csv.n_rows;
        m->is_open = true;
    }
    return status;
}

/* ---- one device -------------------------------------------------------------
 */

static const struct source_row *find_source(const struct mw_hw_measured *m,
                                            const char *id)
{
    for (size_t i = 0; i < m->n_sources; i++) {
        if (strcmp(m->sources[i].id, id) == 0) {
            return &m->sources[i];
        }
    }
    return NULL;
}

static struct mw_kernel_shape shape_of(const struct shipped_row *r)
{
    return (struct mw_kernel_shape){(double)r->m, (double)r->n, (double)r->k,
                                    (double)r->batch};
}

/* What is wrong with a row by itself, or NULL. source: its row or NULL. */
static const char *row_fault(const struct source_row *source,
                             const struct mw_gpu *gpu,
                             const struct shipped_row *r)
{
    struct mw_kernel_shape s = shape_of(r);
    int dtype = -1;
    for (int d = 0; d < MW_HW_DTYPES; d++) {
        if (mw_hw_casecmp(mw_hw_dtype_names[d], r->dtype) == 0) {
            dtype = d;
        }
    }
    if (dtype < 0) {
        return "no such dtype";
    }
    if (source == NULL) {
        return "no such source in sources.csv";
    }
    if (isnan(gpu->peak_flops[dtype])) {
        return "the device has no rate for this dtype";
    }
    return mw_kernel_flops(r->op, &s) > gpu->peak_flops[dtype] * r->time_s
               ? "faster than the peak rate of the device"
               : NULL;
}

static enum mw_status
make_point(const struct mw_hwdb *db, const struct mw_gpu *gpu,
           const struct mw_csv *csv, size_t i, const struct shipped_row *r,
           struct mw_kernel_point *out, struct mw_err *err)
{
    struct mw_kernel_rates rates;
    struct mw_kernel_shape s = shape_of(r);
    enum mw_status status =
        mw_hwdb_kernel_rates(db, gpu, r->op, "F", r->dtype, &rates, err);
    if (status != MW_OK) {
        return status;
    }
    const struct source_row *source = find_source(db->measured, r->source);
    const char *fault = row_fault(source, gpu, r);
    if (source == NULL || fault != NULL) {
        return mw_csv_fail(csv, i, -1, err, "%s", fault);
    }
    double base_s = mw_kernel_base_s(&rates, &s, mw_kernel_flops(r->op, &s),
                                     mw_kernel_bytes(r->op, r->dtype, &s));
    *out = (struct mw_kernel_point){.log_ratio = log(r->time_s / base_s),
                                    .shape = s,
                                    .time_s = r->time_s,
                                    .source = source->source,
                                    .confidence = source->confidence,
                                    .includes = source->includes};
    mw_kernel_place(mw_kernel_form_of(r->op), &s, out->x);
    return MW_OK;
}

static int size_cmp(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int row_cmp(const struct shipped_row *a, const struct shipped_row *b)
{
    int c = strcmp(a->op, b->op);
    c = c != 0 ? c : strcmp(a->dtype, b->dtype);
    c = c != 0 ? c : size_cmp(a->k, b->k);
    c = c != 0 ? c : size_cmp(a->n, b->n);
    c = c != 0 ? c : size_cmp(a->m, b->m);
    return c != 0 ? c : size_cmp(a->batch, b->batch);
}

/* Cuts the sorted rows into sets; a row out of order is a finding, so that a
 * shape is in the table once. */
static enum mw_status make_sets(const struct mw_hwdb *db,
                                const struct mw_gpu *gpu,
                                const struct mw_csv *csv,
                                const struct shipped_row *row,
                                struct device_rows *d, struct mw_err *err)
{
    struct mw_arena *arena = &db->measured->arena;
    enum mw_status status = MW_OK;
    struct mw_kernel_point *points =
        mw_arena_alloc(arena, csv->n_rows + 1, sizeof *points);
    d->sets = mw_arena_alloc(arena, csv->n_rows + 1, sizeof *d->sets);
    d->op = mw_arena_alloc(arena, csv->n_rows + 1, sizeof *d->op);
    d->dtype = mw_arena_alloc(arena, csv->n_rows + 1, sizeof *d->dtype);
    for (size_t i = 0; i < csv->n_rows; i++) {
        bool is_new = i == 0 || strcmp(row[i].op, row[i - 1].op) != 0 ||
                      strcmp(row[i].dtype, row[i - 1].dtype) != 0;
        if (i > 0 && row_cmp(&row[i - 1], &row[i]) >= 0) {
            status = mw_csv_fail(csv, i, -1, err,
                                 "rows must ascend in (op, dtype, k, n, m, "
                                 "batch), each once");
        }
        if (is_new) {
            d->op[d->n_sets] = row[i].op;
            d->dtype[d->n_sets] = row[i].dtype;
            d->sets[d->n_sets++] =
                (struct mw_kernel_table){.point = &points[i],
                                         .gpu = gpu,
                                         .form = mw_kernel_form_of(row[i].op)};
        }
        d->sets[d->n_sets - 1].n++;
        enum mw_status s =
            make_point(db, gpu, csv, i, &row[i], &points[i], err);
        status = s != MW_OK ? s : status;
    }
    d->n_rows = csv->n_rows;
    return status;
}

/* The rows of a device, read when they are not there yet. The lock is held. */
static const struct device_rows *device_rows(const struct mw_hwdb *db,
                                             const struct mw_gpu *gpu,
                                             struct mw_err *err)
{
    struct mw_hw_measured *m = db->measured;
    struct mw_csv csv;
    void *rows;
    for (size_t i = 0; i < m->devices.n; i++) {
        if (m->devices.v[i]->slug == gpu->slug) {
            return m->devices.v[i];
        }
    }
    struct device_rows *d = mw_arena_alloc(&m->arena, 1, sizeof *d);
    d->slug = gpu->slug;
    d->status = read_file(m, db->data_dir, gpu->slug, row_fields,
                          sizeof(struct shipped_row), &csv, &rows, err);
    if (d->status == MW_OK && rows != NULL) {
        d->status = make_sets(db, gpu, &csv, rows, d, err);
    }
    mw_array_push(&m->devices, d);
    return d;
}

/* ---- look-up ----------------------------------------------------------------
 */

static enum mw_status find_set(const struct mw_hwdb *db,
                               const struct mw_gpu *gpu, const char *op,
                               const char *dtype, struct mw_kernel_table *out,
                               struct mw_err *err)
{
    const struct device_rows *d = device_rows(db, gpu, err);
    for (size_t i = 0; d->status == MW_OK && i < d->n_sets; i++) {
        if (mw_hw_casecmp(d->op[i], op) == 0 &&
            mw_hw_casecmp(d->dtype[i], dtype) == 0) {
            *out = d->sets[i];
        }
    }
    return d->status;
}

/* bf16 for fp16 and the other way round, else NULL. */
static const char *twin_of(const char *dtype)
{
    if (mw_hw_casecmp(dtype, "fp16") == 0) {
        return "bf16";
    }
    return mw_hw_casecmp(dtype, "bf16") == 0 ? "fp16" : NULL;
}

static enum mw_status find_twin(const struct mw_hwdb *db,
                                const struct mw_gpu *gpu, const char *op,
                                const char *dtype, struct mw_kernel_table *out,
                                struct mw_err *err)
{
    enum mw_status status = find_set(db, gpu, op, dtype, out, err);
    if (status == MW_OK && out->n == 0 && twin_of(dtype) != NULL) {
        status = find_set(db, gpu, op, twin_of(dtype), out, err);
    }
    return status;
}

static const struct mw_gpu *sibling_of(const struct mw_hwdb *db,
                                       const struct mw_gpu *gpu)
{
    const struct mw_hw_measured *m = db->measured;
    for (size_t i = 0; i < m->n_siblings; i++) {
        if (mw_hw_casecmp(m->siblings[i].device, gpu->slug) == 0) {
            long at = mw_hw_find_gpu(db, m->siblings[i].sibling);
            return at < 0 ? NULL : &db->gpus[at];
        }
    }
    return NULL;
}

enum mw_status mw_hwdb_measured(const struct mw_hwdb *db, const char *device,
                                const char *op, const char *dtype,
                                struct mw_kernel_table *out, struct mw_err *err)
{
    const struct mw_gpu *gpu;
    struct mw_kernel_table found = {.n = 0};
    enum mw_status status = mw_hwdb_gpu(db, device, &gpu, err);
    if (status != MW_OK) {
        return status;
    }
    pthread_mutex_lock(&db->measured->lock);
    status = open_tables(db->measured, db->data_dir, err);
    if (status == MW_OK) {
        status = find_twin(db, gpu, op, dtype, &found, err);
    }
    const struct mw_gpu *sibling = sibling_of(db, gpu);
    if (status == MW_OK && found.n == 0 && sibling != NULL) {
        status = find_twin(db, sibling, op, dtype, &found, err);
    }
    pthread_mutex_unlock(&db->measured->lock);
    if (status == MW_OK) {
        *out = found;
    }
    return status;
}

static enum mw_status check_siblings(const struct mw_hwdb *db,
                                     struct mw_err *err)
{
    const struct mw_hw_measured *m = db->measured;
    enum mw_status status = MW_OK;
    for (size_t i = 0; i < m->n_siblings; i++) {
        if (mw_hw_find_gpu(db, m->siblings[i].device) < 0 ||
            mw_hw_find_gpu(db, m->siblings[i].sibling) < 0) {
            status = mw_fail(err, MW_EINPUT,
                             "%s/kernels/siblings.csv: no device '%s' or '%s'",
                             db->data_dir, m->siblings[i].device,
                             m->siblings[i].sibling);
        }
    }
    return status;
}

enum mw_status mw_hwdb_measured_check(const struct mw_hwdb *db, size_t *n_rows,
                                      struct mw_err *err)
{
    size_t n = 0;
    pthread_mutex_lock(&db->measured->lock);
    enum mw_status status = open_tables(db->measured, db->data_dir, err);
    if (status == MW_OK) {
        status = check_siblings(db, err);
    }
    for (size_t i = 0; status == MW_OK && i < mw_hwdb_gpu_count(db); i++) {
        const struct device_rows *d = device_rows(db, &db->gpus[i], err);
        status = d->status;
        n += d->n_rows;
    }
    pthread_mutex_unlock(&db->measured->lock);
    if (status == MW_OK && n_rows != NULL) {
        *n_rows = n;
    }
    return status;
}
