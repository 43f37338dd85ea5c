/*
 * Importing logs of nccl-tests: see calibrate_nccl.h. A curve of the database
 * is keyed by system, collective and ranks, so one log is one curve; rows keep
 * the order of the logs, which the reader sorts.
 */
#include "exec/calibrate_nccl.h"

#include "base/csv.h"
#include "base/file.h"
#include "hwdb/hwdb.h"
#include "sim/coll/nccl_log.h"
#include "sim/model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct key {
    enum mw_coll_op op;
    int n_ranks;
};

struct import {
    const struct mw_nccl_import *in;
    struct mw_nccl_imported *out;
    const char *slug; /* of the system */
    FILE *f;
    MW_ARRAY(struct key) done;
    struct mw_err *err;
};

/* The names that nccl-tests' programs have. */
static const struct {
    const char *name;
    enum mw_coll_op op;
} programs[] = {{"all_reduce", MW_ALL_REDUCE},
                {"all_gather", MW_ALL_GATHER},
                {"reduce_scatter", MW_REDUCE_SCATTER},
                {"alltoall", MW_ALL_TO_ALL},
                {"all_to_all", MW_ALL_TO_ALL},
                {"broadcast", MW_BROADCAST},
                {"reduce", MW_REDUCE},
                {"sendrecv", MW_SEND_RECV},
                {"send_recv", MW_SEND_RECV}};

static bool find_op(const char *name, size_t len, enum mw_coll_op *out)
{
    if (len > 5 && strncmp(name + len - 5, "_perf", 5) == 0) {
        len -= 5;
    }
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        if (strlen(programs[i].name) == len &&
            strncmp(programs[i].name, name, len) == 0) {
            *out = programs[i].op;
            return true;
        }
    }
    return false;
}

/* The file of a log, and its collective where it is said. */
static enum mw_status split_name(struct import *im, const char *text,
                                 const char **out_file, bool *out_has_op,
                                 enum mw_coll_op *out_op)
{
    const char *equals = strchr(text, '=');
    *out_file = text;
    *out_has_op = false;
    if (equals == NULL || memchr(text, '/', (size_t)(equals - text)) ||
        memchr(text, '.', (size_t)(equals - text))) {
        return MW_OK;
    }
    *out_file = equals + 1;
    *out_has_op = find_op(text, (size_t)(equals - text), out_op);
    return *out_has_op
               ? MW_OK
               : mw_fail(im->err, MW_EUSAGE,
                         "--nccl-log: '%.*s' is no collective; for example "
                         "all_reduce=FILE",
                         (int)(equals - text), text);
}

static enum mw_status check_log(struct import *im, const char *file,
                                const struct mw_nccl_log *log,
                                const struct key *key)
{
    if (log->n_ranks < 2) {
        return mw_fail(im->err, MW_EINPUT,
                       "%s: has no lines '#  Rank', which say how many ranks "
                       "ran; keep the head of the log",
                       file);
    }
    for (size_t i = 0; i < im->done.n; i++) {
        if (im->done.v[i].op == key->op &&
            im->done.v[i].n_ranks == key->n_ranks) {
            return mw_fail(im->err, MW_EINPUT,
                           "%s: %s over %d ranks is in an earlier log as well; "
                           "give one log of each",
                           file, mw_coll_op_name(key->op), key->n_ranks);
        }
    }
    return MW_OK;
}

static enum mw_status write_row(struct import *im, const char *file,
                                const struct key *key,
                                const struct mw_nccl_log_row *r, int *n)
{
    double time_s = im->in->is_in_place ? r->in_place_time_s : r->time_s;
    struct mw_str source = {NULL, 0, 0};
    if (r->wrong > 0) {
        return mw_fail(im->err, MW_EINPUT,
                       "%s: %lld wrong results at %.0f bytes; run the test "
                       "again",
                       file, r->wrong, r->bytes);
    }
    if (!(r->bytes > 0) || !(time_s > 0)) {
        return MW_OK;
    }
    mw_str_addf(&source, "nccl-tests log %s, %s, %s place", file, r->type,
                im->in->is_in_place ? "in" : "out of");
    fprintf(im->f, "%s,%s,%d,%.0f,%.9g,", im->slug, mw_coll_op_name(key->op),
            key->n_ranks, r->bytes, time_s);
    struct mw_str cell = {NULL, 0, 0};
    mw_csv_add_cell(&cell, source.s, true);
    fputs(cell.s, im->f);
    mw_str_release(&cell);
    mw_str_release(&source);
    im->out->bytes_min = fmin(im->out->bytes_min, r->bytes);
    im->out->bytes_max = fmax(im->out->bytes_max, r->bytes);
    (*n)++;
    return MW_OK;
}

static enum mw_status write_curve(struct import *im, const char *file,
                                  const struct mw_nccl_log *log,
                                  const struct key *key)
{
    enum mw_status st = MW_OK;
    int n = 0;
    for (size_t i = 0; i < log->row.n && st == MW_OK; i++) {
        st = write_row(im, file, key, &log->row.v[i], &n);
    }
    if (st == MW_OK && n < 2) {
        return mw_fail(im->err, MW_EINPUT,
                       "%s: %d size with a time%s; a curve needs two", file, n,
                       im->in->is_in_place ? " in place" : "");
    }
    im->out->n_rows += n;
    im->out->n_curves++;
    mw_array_push(&im->done, *key);
    return st;
}

static enum mw_status import_log(struct import *im, const char *text)
{
    const char *file;
    struct mw_nccl_log log;
    struct key key;
    bool has_op;
    enum mw_status st = split_name(im, text, &file, &has_op, &key.op);
    if (st != MW_OK) {
        return st;
    }
    st = mw_nccl_log_load(file, &log, im->err);
    if (st != MW_OK) {
        return st;
    }
    key.n_ranks = log.n_ranks;
    if (!has_op && !find_op(log.op, strlen(log.op), &key.op)) {
        st = mw_fail(im->err, MW_EINPUT,
                     "%s: does not say which collective ran; give it as "
                     "all_reduce=%s",
                     file, file);
    }
    if (st == MW_OK) {
        st = check_log(im, file, &log, &key);
    }
    if (st == MW_OK) {
        st = write_curve(im, file, &log, &key);
    }
    mw_nccl_log_release(&log);
    return st;
}

static enum mw_status import_all(struct import *im)
{
    enum mw_status st = MW_OK;
    fprintf(im->f, "system,op,ranks,bytes,time_s,source\n");
    for (int i = 0; i < im->in->n_logs && st == MW_OK; i++) {
        st = import_log(im, im->in->logs[i]);
    }
    return st;
}

static enum mw_status to_file(struct import *im)
{
    struct mw_outfile o = {0};
    struct mw_str path = {NULL, 0, 0};
    enum mw_status st = mw_mkdirs(im->in->dir, im->err);
    mw_str_addf(&path, "%s/curves.csv", im->in->dir);
    if (st == MW_OK) {
        st = mw_outfile_open(&o, path.s, im->err);
    }
    if (st == MW_OK) {
        im->f = o.f;
        st = import_all(im);
    }
    if (st == MW_OK) {
        st = mw_outfile_commit(&o, im->err);
    }
    mw_outfile_abort(&o);
    mw_str_release(&path);
    return st;
}

enum mw_status mw_nccl_import(const struct mw_nccl_import *in,
                              struct mw_nccl_imported *out, struct mw_err *err)
{
    struct import im = {.in = in, .out = out, .err = err};
    const struct mw_system *system;
    struct mw_hwdb *db = NULL;
    *out = (struct mw_nccl_imported){.bytes_min = (double)INFINITY};
    enum mw_status st = mw_hwdb_load(in->hwdb, &db, err);
    if (st != MW_OK) {
        return st;
    }
    st = mw_hwdb_system(db, in->system, &system, err);
    if (st != MW_OK && err != NULL) {
        err->status = st = MW_EUSAGE;
        mw_err_prefix(err, "--system");
    }
    if (st == MW_OK) {
        im.slug = system->slug;
        st = to_file(&im);
    }
    mw_array_release(&im.done);
    mw_hwdb_free(db);
    return st;
}
