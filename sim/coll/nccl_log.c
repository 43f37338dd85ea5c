/* Reading nccl-tests output; see nccl_log.h. */
#include "sim/coll/nccl_log.h"

#include "base/file.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 20, WORD_MAX = 32 };

struct line {
    char word[WORDS_MAX][WORD_MAX];
    int n;
};

/* Words of a line; false if one is too long or there are too many (then it is
 * no row of a table). */
static bool split(const char *p, const char *end, struct line *out)
{
    out->n = 0;
    while (p < end) {
        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) {
            p++;
        }
        size_t n = 0;
        while (p + n < end && p[n] != ' ' && p[n] != '\t' && p[n] != '\r') {
            n++;
        }
        if (n == 0) {
            break;
        }
        if (n >= WORD_MAX || out->n == WORDS_MAX) {
            return false;
        }
        memcpy(out->word[out->n], p, n);
        out->word[out->n++][n] = '\0';
        p += n;
    }
    return true;
}

static bool is_number(const char *text, double *out)
{
    return mw_double_parse(text, out, NULL) == MW_OK && isfinite(*out) &&
           *out >= 0;
}

/* "N/A" where the check is off. */
static bool read_wrong(const char *text, long long *out)
{
    double v = 0;
    if (strcmp(text, "N/A") == 0) {
        *out = -1;
        return true;
    }
    if (!is_number(text, &v) || v > 1e15) {
        return false;
    }
    *out = (long long)v;
    return true;
}

/*
 * size count type redop root time algbw busbw #wrong [time algbw busbw #wrong]
 * and without redop and root in old versions of all_gather and alltoall.
 */
static bool read_row(const struct line *l, struct mw_nccl_log_row *row)
{
    double count = 0, us = 0, alg = 0, bus = 0;
    memset(row, 0, sizeof *row);
    if (l->n < 7 || !is_number(l->word[0], &row->bytes) ||
        !is_number(l->word[1], &count)) {
        return false;
    }
    snprintf(row->type, sizeof row->type, "%.11s", l->word[2]);
    int at = 3;
    double ignore = 0;
    if (!is_number(l->word[3], &ignore)) {
        snprintf(row->redop, sizeof row->redop, "%.7s", l->word[3]);
        at = 5;
    }
    if (l->n < at + 4 || !is_number(l->word[at], &us) ||
        !is_number(l->word[at + 1], &alg) ||
        !is_number(l->word[at + 2], &bus) ||
        !read_wrong(l->word[at + 3], &row->wrong)) {
        return false;
    }
    row->time_s = us * 1e-6;
    row->busbw_Bps = bus * 1e9;
    if (l->n >= at + 7 && is_number(l->word[at + 4], &us) &&
        is_number(l->word[at + 6], &bus)) {
        row->in_place_time_s = us * 1e-6;
        row->in_place_busbw_Bps = bus * 1e9;
    }
    return true;
}

struct state {
    bool in_table;
    char hosts[64][WORD_MAX];
};

static void count_host(struct state *st, struct mw_nccl_log *log,
                       const struct line *l)
{
    log->n_ranks++;
    for (int i = 0; i + 1 < l->n; i++) {
        if (strcmp(l->word[i], "on") != 0) {
            continue;
        }
        int h = 0;
        while (h < log->n_hosts && strcmp(st->hosts[h], l->word[i + 1]) != 0) {
            h++;
        }
        if (h == log->n_hosts && h < 64) {
            memcpy(st->hosts[h], l->word[i + 1], WORD_MAX);
            log->n_hosts++;
        }
        return;
    }
}

/* "# Collective test starting: all_reduce_perf" */
static void read_comment(struct state *st, struct mw_nccl_log *log,
                         const struct line *l)
{
    if (l->n >= 3 && strcmp(l->word[1], "Rank") == 0) {
        count_host(st, log, l);
        return;
    }
    for (int i = 1; i + 1 < l->n; i++) {
        if (strcmp(l->word[i], "starting:") == 0) {
            snprintf(log->op, sizeof log->op, "%.23s", l->word[i + 1]);
            char *perf = strstr(log->op, "_perf");
            if (perf) {
                *perf = '\0';
            }
        }
        if (strcmp(l->word[i], "size") == 0 &&
            strcmp(l->word[i + 1], "count") == 0) {
            st->in_table = true;
        }
    }
}

enum mw_status mw_nccl_log_parse(const char *name, const char *text, size_t len,
                                 struct mw_nccl_log *out, struct mw_err *err)
{
    struct state st = {.in_table = false};
    const char *p = text, *end = text + len;
    int number = 0;
    enum mw_status s = MW_OK;
    memset(out, 0, sizeof *out);
    while (p < end && s == MW_OK) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *stop = nl ? nl : end;
        struct line l;
        struct mw_nccl_log_row row;
        double first = 0;
        number++;
        bool fits = split(p, stop, &l);
        if (fits && l.n > 0 && l.word[0][0] == '#') {
            read_comment(&st, out, &l);
        } else if (fits && st.in_table && l.n >= 4 &&
                   is_number(l.word[0], &first)) {
            if (read_row(&l, &row)) {
                mw_array_push(&out->row, row);
            } else {
                s = mw_fail(err, MW_EINPUT,
                            "%s:%d: a row of the table is broken; expected "
                            "size count type redop root time algbw busbw "
                            "#wrong",
                            name, number);
            }
        }
        p = nl ? nl + 1 : end;
    }
    if (s == MW_OK && out->row.n == 0) {
        s = mw_fail(err, MW_EINPUT,
                    "%s: no table of nccl-tests in it (a line '# size count "
                    "type ...' and rows under it)",
                    name);
    }
    if (s != MW_OK) {
        mw_nccl_log_release(out);
    }
    return s;
}

enum mw_status mw_nccl_log_load(const char *path, struct mw_nccl_log *out,
                                struct mw_err *err)
{
    char *text = NULL;
    size_t len = 0;
    enum mw_status s =
        mw_file_read(path, MW_NCCL_LOG_SIZE_MAX, &text, &len, err);
    if (s == MW_OK) {
        s = mw_nccl_log_parse(path, text, len, out, err);
        mw_free(text);
    }
    return s;
}

void mw_nccl_log_release(struct mw_nccl_log *log)
{
    mw_array_release(&log->row);
}
