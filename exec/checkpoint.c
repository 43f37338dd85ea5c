/*
 * Writing and reading the file of checkpoint.h.
 *
 * A slice is a set of runs of the whole tensor; runs are as long as elements
 * follow each other on both sides, so a slice of rows is one write and a slice
 * of columns one per row. Of equal copies one rank writes: data rank 0 where
 * ZeRO does not split, tp rank 0 of tensors that tp does not split, the
 * embedding rather than its twin at the head.
 */
#include "exec/checkpoint.h"

#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MAGIC = 8,
    HEADER = 4088,
    PAYLOAD = MAGIC + HEADER,
    SEAL = 17,
    CHUNK = 1 << 20
};
enum tensor { TENSOR_WEIGHT, TENSOR_M, TENSOR_V, TENSORS };

static enum mw_status fails(struct mw_err *err, const char *path,
                            const char *what)
{
    return mw_fail(err, MW_EINPUT, "%s: %s: %s", path, what, strerror(errno));
}

static char *part_name(const char *path)
{
    struct mw_str s = {0};
    mw_str_addf(&s, "%s.part", path);
    return s.s;
}

/* ---- what the file is of ------------------------------------------------ */
/* Parameters first .. end - 1 of the table: those that learn; or, in a file of
 * the whole model that a run with adapters begins from, those it freezes. */
struct content {
    size_t first, end;
    bool is_base;
};

static struct content content_of(const struct mw_exec *ex, bool is_base)
{
    const struct mw_shards *s = &ex->shards;
    return is_base ? (struct content){0, s->n_frozen_params, true}
                   : (struct content){s->n_frozen_params, s->params.n, false};
}

static uint64_t whole_count(const struct mw_param *p)
{
    return (uint64_t)p->n_copies * (uint64_t)p->outer * (uint64_t)p->rows *
           (uint64_t)p->cols;
}

static uint64_t count_of(const struct mw_exec *ex, size_t first, size_t end)
{
    uint64_t n = 0;
    for (size_t i = first; i < end; i++) {
        n += TENSORS * whole_count(&ex->shards.params.v[i]);
    }
    return n;
}

/* Float at which a tensor of parameter `id` begins in the payload. */
static uint64_t place_of(const struct mw_exec *ex, const struct content *c,
                         size_t id, enum tensor t)
{
    return count_of(ex, c->first, id) +
           (uint64_t)t * whole_count(&ex->shards.params.v[id]);
}

static uint64_t payload_bytes(const struct mw_exec *ex, const struct content *c)
{
    return count_of(ex, c->first, c->end) * sizeof(float);
}

/* Names and shapes of the parameters: of adapters, of what they change too. */
static uint64_t model_hash(const struct mw_exec *ex, const struct content *c)
{
    uint64_t h = MW_HASH_INIT;
    for (size_t i = 0; i < c->end; i++) {
        const struct mw_param *p = &ex->shards.params.v[i];
        const int64_t shape[] = {p->layer, p->n_copies, p->outer, p->rows,
                                 p->cols};
        h = mw_hash64(h, p->name, strlen(p->name));
        h = mw_hash64(h, shape, sizeof shape);
    }
    return h;
}

static enum mw_status payload_hash(int fd, uint64_t bytes, const char *path,
                                   uint64_t *out, struct mw_err *err)
{
    char *buf = mw_calloc(CHUNK, 1);
    uint64_t h = MW_HASH_INIT, at = 0;
    while (at < bytes) {
        size_t want = bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK;
        ssize_t n = pread(fd, buf, want, (off_t)(PAYLOAD + at));
        if (n <= 0) {
            break;
        }
        h = mw_hash64(h, buf, (size_t)n);
        at += (uint64_t)n;
    }
    mw_free(buf);
    *out = h;
    return at == bytes ? MW_OK
                       : mw_fail(err, MW_EINPUT,
                                 "%s: ends after %" PRIu64 " of %" PRIu64
                                 " bytes of tensors",
                                 path, at, bytes);
}

/* ---- runs --------------------------------------------------------------- */
struct file {
    int fd;
    bool is_reading;
    struct content content;
    const char *path;
    struct mw_err *err;
};

static enum mw_status move(const struct file *f, float *mine, size_t n,
                           uint64_t place)
{
    off_t at = (off_t)(PAYLOAD + place * sizeof *mine);
    char *p = (char *)mine;
    for (size_t left = n * sizeof *mine; left > 0;) {
        ssize_t did = f->is_reading ? pread(f->fd, p, left, at)
                                    : pwrite(f->fd, p, left, at);
        if (did < 0 && errno == EINTR) {
            continue;
        }
        if (did == 0) {
            return mw_fail(f->err, MW_EINPUT, "%s: ends early", f->path);
        }
        if (did < 0) {
            return fails(f->err, f->path, f->is_reading ? "read" : "write");
        }
        p += did;
        at += did;
        left -= (size_t)did;
    }
    return MW_OK;
}

/* Elements skip .. skip + n - 1 of a slice, at `mine`. */
static enum mw_status move_runs(const struct file *f, const struct mw_slice *s,
                                size_t skip, size_t n, float *mine,
                                uint64_t place)
{
    for (size_t i = 0; i < n;) {
        uint64_t at = mw_slice_whole_index(s, skip + i);
        size_t run = 1;
        while (i + run < n &&
               mw_slice_whole_index(s, skip + i + run) == at + run) {
            run++;
        }
        MW_TRY(move(f, mine + i, run, place + at));
        i += run;
    }
    return MW_OK;
}

/* The buffers of a rank on the host, as float32. */
struct mirror {
    float *v[TENSORS];
};

/* Owned parts of the masters, where there are any, into or out of a mirror of
 * the weights. */
static void move_masters(struct mw_exec *ex, float *weights, bool is_reading)
{
    float *masters = mw_calloc(ex->states.n, sizeof *masters);
    if (!is_reading) {
        mw_states_read(ex, MW_STATE_MASTER, masters);
    }
    for (size_t i = 0; i < ex->shards.units.n; i++) {
        if (ex->shards.units.v[i].is_frozen) {
            continue;
        }
        struct mw_range r = mw_unit_owned(ex, (int)i);
        size_t at = mw_stored_at(ex, MW_BUFFER_STATE, &r);
        float *w = weights + mw_stored_at(ex, MW_BUFFER_WEIGHT, &r);
        if (is_reading) {
            mw_states_write(ex, MW_STATE_MASTER, at, w, r.n);
        } else {
            memcpy(w, masters + at, r.n * sizeof *w);
        }
    }
    mw_free(masters);
}

static void read_weights(struct mw_exec *ex, float *dst, size_t n)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    if (ex->elem == MW_ELEM_F32) {
        ops->to_host(ex->dev, dst, ex->w, n * sizeof *dst);
        return;
    }
    uint16_t *v = mw_calloc(n, sizeof *v);
    ops->to_host(ex->dev, v, ex->w, n * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)v[i] << 16;
        memcpy(&dst[i], &bits, sizeof bits);
    }
    mw_free(v);
    move_masters(ex, dst, false);
}

static void mirror_make(struct mw_exec *ex, struct mirror *m)
{
    size_t n = mw_buffer_size(ex, MW_BUFFER_WEIGHT);
    m->v[TENSOR_WEIGHT] = mw_calloc(n, sizeof(float));
    m->v[TENSOR_M] = mw_calloc(ex->states.n, sizeof(float));
    m->v[TENSOR_V] = mw_calloc(ex->states.n, sizeof(float));
    read_weights(ex, m->v[TENSOR_WEIGHT], n);
    mw_states_read(ex, MW_STATE_M, m->v[TENSOR_M]);
    mw_states_read(ex, MW_STATE_V, m->v[TENSOR_V]);
}

/* Back to the device; of a base the weights alone. */
static void mirror_put(struct mw_exec *ex, const struct mirror *m, bool is_base)
{
    mw_weights_up(ex, ex->w, m->v[TENSOR_WEIGHT],
                  mw_buffer_size(ex, MW_BUFFER_WEIGHT));
    if (is_base) {
        return;
    }
    if (ex->elem != MW_ELEM_F32) {
        move_masters(ex, m->v[TENSOR_WEIGHT], true);
    }
    mw_states_write(ex, MW_STATE_M, 0, m->v[TENSOR_M], ex->states.n);
    mw_states_write(ex, MW_STATE_V, 0, m->v[TENSOR_V], ex->states.n);
}

static void mirror_free(struct mirror *m)
{
    for (int t = 0; t < TENSORS; t++) {
        mw_free(m->v[t]);
    }
}

/* Moments are only of what learns, and not taken from a base. */
static bool has_tensor(const struct file *f, enum tensor t)
{
    return t == TENSOR_WEIGHT || !f->content.is_base;
}

static enum mw_status move_slice(const struct mw_exec *ex, const struct file *f,
                                 const struct mw_slice *s, struct mirror *m)
{
    struct mw_range owned = mw_slice_owned(ex, s);
    for (int t = 0; t < TENSORS; t++) {
        enum mw_buffer b =
            t == TENSOR_WEIGHT ? MW_BUFFER_WEIGHT : MW_BUFFER_STATE;
        struct mw_range r = owned;
        if (t == TENSOR_WEIGHT && f->is_reading && !ex->unit_w) {
            r = (struct mw_range){s->offset, s->n, 0}; /* all, to compute */
        }
        if (r.n > 0 && has_tensor(f, (enum tensor)t)) {
            MW_TRY(move_runs(
                f, s, r.first - s->offset, r.n,
                m->v[t] + mw_stored_at(ex, b, &r),
                place_of(ex, &f->content, (size_t)s->id, (enum tensor)t)));
        }
    }
    return MW_OK;
}

static bool writes(const struct mw_exec *ex, const struct mw_slice *s)
{
    const struct mw_layout *l = &ex->job->layout;
    const struct mw_unit *u = &ex->shards.units.v[s->unit];
    bool is_whole = s->param->shard == MW_SHARD_NONE;
    bool is_copy = s->is_tied || ex->copies->rank > 0 ||
                   (l->zero == 0 && mw_unit_group(ex, u)->rank > 0) ||
                   (is_whole && ex->tp->rank > 0);
    return !is_copy;
}

static enum mw_status move_all(const struct mw_exec *ex, const struct file *f,
                               struct mirror *m)
{
    for (size_t i = 0; i < ex->shards.slices.n; i++) {
        const struct mw_slice *s = &ex->shards.slices.v[i];
        if (s->is_frozen == f->content.is_base &&
            (f->is_reading || writes(ex, s))) {
            MW_TRY(move_slice(ex, f, s, m));
        }
    }
    return MW_OK;
}

/* ---- saving ------------------------------------------------------------- */
enum mw_status mw_checkpoint_begin(const struct mw_exec *ex, const char *path,
                                   struct mw_err *err)
{
    char *part = part_name(path);
    const struct content c = content_of(ex, false);
    off_t size = (off_t)(PAYLOAD + payload_bytes(ex, &c));
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    enum mw_status st = MW_OK;
    if (fd < 0 || ftruncate(fd, size) != 0) {
        st = fails(err, part, "cannot write");
    }
    if (fd >= 0) {
        close(fd);
    }
    mw_free(part);
    return st;
}

enum mw_status mw_checkpoint_write(struct mw_exec *ex, const char *path,
                                   struct mw_err *err)
{
    char *part = part_name(path);
    struct file f = {.fd = open(part, O_WRONLY),
                     .content = content_of(ex, false),
                     .path = part,
                     .err = err};
    enum mw_status st = f.fd < 0 ? fails(err, part, "cannot open") : MW_OK;
    if (st == MW_OK) {
        struct mirror m;
        mirror_make(ex, &m);
        st = move_all(ex, &f, &m);
        mirror_free(&m);
    }
    if (st == MW_OK && fsync(f.fd) != 0) {
        st = fails(err, part, "fsync");
    }
    if (f.fd >= 0) {
        close(f.fd);
    }
    mw_free(part);
    return st;
}

static enum mw_status write_header(const struct mw_exec *ex, int fd,
                                   uint64_t hash, const char *part,
                                   struct mw_err *err)
{
    const struct content c = content_of(ex, false);
    char text[PAYLOAD + 1];
    int n = snprintf(text, sizeof text,
                     "MWCKPT01{\"format\": 1, \"model\": \"%.200s\", "
                     "\"model_hash\": \"%016" PRIx64 "\", \"step\": %d, "
                     "\"seed\": %" PRIu64 ", \"payload_bytes\": %" PRIu64
                     ", \"payload_hash\": \"%016" PRIx64 "\"}",
                     ex->job->model->name ? ex->job->model->name : "unnamed",
                     model_hash(ex, &c), ex->step,
                     (uint64_t)ex->job->workload->seed, payload_bytes(ex, &c),
                     hash);
    memset(text + n, ' ', sizeof text - (size_t)n);
    snprintf(text + PAYLOAD - SEAL, SEAL + 1, "%016" PRIx64 "\n",
             mw_hash64(MW_HASH_INIT, text, PAYLOAD - SEAL));
    if (pwrite(fd, text, PAYLOAD, 0) != PAYLOAD || fsync(fd) != 0) {
        return fails(err, part, "write");
    }
    return MW_OK;
}

enum mw_status mw_checkpoint_finish(const struct mw_exec *ex, const char *path,
                                    struct mw_err *err)
{
    const struct content c = content_of(ex, false);
    char *part = part_name(path);
    uint64_t hash = 0;
    int fd = open(part, O_RDWR);
    enum mw_status st = fd < 0 ? fails(err, part, "cannot open") : MW_OK;
    if (st == MW_OK) {
        st = payload_hash(fd, payload_bytes(ex, &c), part, &hash, err);
    }
    if (st == MW_OK) {
        st = write_header(ex, fd, hash, part, err);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (st == MW_OK && rename(part, path) != 0) {
        st = fails(err, path, "rename");
    }
    mw_free(part);
    return st;
}

/* ---- loading ------------------------------------------------------------ */
static enum mw_status read_header(int fd, const char *path, json_t **out,
                                  struct mw_err *err)
{
    char text[PAYLOAD + 1] = "";
    ssize_t n = pread(fd, text, PAYLOAD, 0);
    if (n < MAGIC || memcmp(text, "MWCKPT01", MAGIC) != 0) {
        return mw_fail(err, MW_EINPUT, "%s: not a checkpoint of meshwright",
                       path);
    }
    uint64_t seal = 0;
    bool is_whole = n == PAYLOAD &&
                    sscanf(text + PAYLOAD - SEAL, "%16" SCNx64, &seal) == 1 &&
                    seal == mw_hash64(MW_HASH_INIT, text, PAYLOAD - SEAL);
    *out = is_whole ? json_loadb(text + MAGIC, HEADER - SEAL, 0, NULL) : NULL;
    if (!*out) {
        return mw_fail(err, MW_EINPUT, "%s: the header is damaged", path);
    }
    return MW_OK;
}

static uint64_t hex_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    uint64_t v = 0;
    return text && sscanf(text, "%16" SCNx64, &v) == 1 ? v : 0;
}

static enum mw_status check_header(const struct mw_exec *ex,
                                   const struct content *c, const json_t *o,
                                   const char *path, struct mw_err *err)
{
    json_int_t format = json_integer_value(json_object_get(o, "format"));
    const char *model = json_string_value(json_object_get(o, "model"));
    if (format != 1) {
        return mw_fail(err, MW_EINPUT,
                       "%s: format %lld; this program reads format 1", path,
                       (long long)format);
    }
    if (hex_of(o, "model_hash") != model_hash(ex, c) ||
        (uint64_t)json_integer_value(json_object_get(o, "payload_bytes")) !=
            payload_bytes(ex, c)) {
        return mw_fail(err, MW_EINPUT,
                       "%s: its model is %s, with other parameters than the "
                       "plan's %s",
                       path, model ? model : "unnamed",
                       ex->job->model->name ? ex->job->model->name : "model");
    }
    return MW_OK;
}

static enum mw_status check_payload(uint64_t bytes, const json_t *o, int fd,
                                    const char *path, struct mw_err *err)
{
    uint64_t hash = 0;
    off_t size = lseek(fd, 0, SEEK_END);
    if (size != (off_t)(PAYLOAD + bytes)) {
        return mw_fail(err, MW_EINPUT,
                       "%s: has %lld bytes instead of %" PRIu64
                       "; it was cut short or added to",
                       path, (long long)size, PAYLOAD + bytes);
    }
    MW_TRY(payload_hash(fd, bytes, path, &hash, err));
    if (hash != hex_of(o, "payload_hash")) {
        return mw_fail(err, MW_EINPUT,
                       "%s: its tensors have hash %016" PRIx64
                       " but %016" PRIx64 " was written; it is damaged",
                       path, hash, hex_of(o, "payload_hash"));
    }
    return MW_OK;
}

enum mw_status mw_checkpoint_check(const struct mw_exec *ex, const char *path,
                                   bool is_base, struct mw_err *err)
{
    const struct content c = content_of(ex, is_base);
    json_t *o = NULL;
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        return fails(err, path, "cannot open");
    }
    enum mw_status st = read_header(fd, path, &o, err);
    if (st == MW_OK) {
        st = check_header(ex, &c, o, path, err);
    }
    if (st == MW_OK) {
        st = check_payload(payload_bytes(ex, &c), o, fd, path, err);
    }
    json_decref(o);
    close(fd);
    return st;
}

static enum mw_status read_tensors(struct mw_exec *ex, const struct file *f)
{
    struct mirror m;
    mirror_make(ex, &m);
    enum mw_status st = move_all(ex, f, &m);
    if (st == MW_OK) {
        mirror_put(ex, &m, f->content.is_base);
    }
    mirror_free(&m);
    return st;
}

enum mw_status mw_checkpoint_read(struct mw_exec *ex, const char *path,
                                  bool is_base, struct mw_err *err)
{
    struct file f = {.fd = open(path, O_RDONLY),
                     .is_reading = true,
                     .content = content_of(ex, is_base),
                     .path = path,
                     .err = err};
    json_t *o = NULL;
    if (f.fd < 0) {
        return fails(err, path, "cannot open");
    }
    enum mw_status st = read_header(f.fd, path, &o, err);
    if (st == MW_OK) {
        st = read_tensors(ex, &f);
    }
    if (st == MW_OK && !is_base) {
        ex->step = (int)json_integer_value(json_object_get(o, "step"));
    }
    json_decref(o);
    close(f.fd);
    return st;
}
