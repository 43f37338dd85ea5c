/*
 * Timelines in CSV, read: comment lines "# key: value" in front say what the
 * timeline is, then a header row and a row for each span. Times are seconds
 * with up to twelve decimals, read from their digits (exact picoseconds).
 */
#include "sim/engine/trace_read_int.h"

#include "base/csv.h"
#include "sim/engine/json_pull_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- comment lines
 * ------------------------------------------------------------- */
struct head {
    const char *file;
    struct mw_timeline *t;
    struct mw_err *err;
    bool has_format;
};

static bool head_fail(const struct head *h, int line, const char *what,
                      const char *value)
{
    struct mw_pos pos = {.file = h->file, .line = line, .width = 1};
    mw_fail_at(h->err, MW_EINPUT, &pos, "%s, not '%.40s'", what, value);
    return false;
}

/* A text that must be right and fit. */
static bool head_text(const struct head *h, int line, const char *value,
                      const char *wrong, char *out)
{
    if (wrong) {
        return head_fail(h, line, wrong, value);
    }
    size_t size =
        out == h->t->clock ? sizeof h->t->clock : sizeof h->t->plan_hash;
    if (strlen(value) >= size) {
        return head_fail(h, line, "value is too long", value);
    }
    memcpy(out, value, strlen(value) + 1);
    return true;
}

static bool head_format(struct head *h, int line, const char *value)
{
    int64_t format;
    if (mw_int_parse(value, &format, NULL) != MW_OK || format < 1) {
        return head_fail(h, line, "format should be 1", value);
    }
    if (format > MW_TIMELINE_FORMAT) {
        return head_fail(h, line,
                         "format is newer than this program reads; it should "
                         "be 1",
                         value);
    }
    h->has_format = true;
    return true;
}

static bool head_step_time(struct head *h, int line, const char *value)
{
    double v;
    if (mw_double_parse(value, &v, NULL) != MW_OK || v < 0 ||
        v > MW_TIMELINE_STEP_MAX_S) {
        return head_fail(h, line, "step_time_s should be seconds", value);
    }
    h->t->step_time_s = v;
    return true;
}

static bool head_ranks(struct head *h, int line, const char *value)
{
    int64_t v;
    if (mw_int_parse(value, &v, NULL) != MW_OK || v < 0 ||
        v > MW_TIMELINE_RANKS_MAX) {
        return head_fail(h, line, "ranks should be a count", value);
    }
    h->t->n_ranks = (int)v;
    return true;
}

static bool head_source(struct head *h, int line, const char *value)
{
    h->t->is_measured = strcmp(value, "measured") == 0;
    if (!h->t->is_measured && strcmp(value, "simulated") != 0) {
        return head_fail(h, line, "source should be simulated or measured",
                         value);
    }
    return true;
}

static bool head_value(struct head *h, int line, const char *key,
                       const char *value)
{
    if (strcmp(key, "format") == 0) {
        return head_format(h, line, value);
    }
    if (strcmp(key, "source") == 0) {
        return head_source(h, line, value);
    }
    if (strcmp(key, "clock") == 0) {
        return head_text(h, line, value, mw_trace_clock_wrong(value),
                         h->t->clock);
    }
    if (strcmp(key, "plan_hash") == 0) {
        return head_text(h, line, value, mw_trace_hash_wrong(value),
                         h->t->plan_hash);
    }
    if (strcmp(key, "step_time_s") == 0) {
        return head_step_time(h, line, value);
    }
    if (strcmp(key, "ranks") == 0) {
        return head_ranks(h, line, value);
    }
    return true; /* any other comment */
}

/* "# key: value" of `len` characters. */
static bool head_line(struct head *h, int line, const char *s, size_t len)
{
    char text[256];
    if (len >= sizeof text) {
        return true; /* no line of ours is that long */
    }
    memcpy(text, s, len);
    text[len] = '\0';
    text[strcspn(text, "\r")] = '\0';
    char *key = text + 1 + strspn(text + 1, " ");
    char *colon = strchr(key, ':');
    if (!colon) {
        return true;
    }
    *colon = '\0';
    return head_value(h, line, key, colon + 1 + strspn(colon + 1, " "));
}

static bool read_head(struct head *h, const char *text)
{
    for (int line = 1; *text == '#'; line++) {
        size_t len = strcspn(text, "\n");
        if (!head_line(h, line, text, len)) {
            return false;
        }
        text += len + (text[len] == '\n');
    }
    if (!h->has_format) {
        struct mw_pos pos = {.file = h->file, .line = 1, .width = 1};
        mw_fail_at(h->err, MW_EINPUT, &pos,
                   "not a meshwright timeline: neither Chrome trace JSON nor "
                   "CSV with a line '# format: 1' in front");
    }
    return h->has_format;
}

/* ---- rows
 * ------------------------------------------------------------------------ */
enum col {
    COL_RANK,
    COL_STREAM,
    COL_KIND,
    COL_NAME,
    COL_MICROBATCH,
    COL_STAGE,
    COL_START,
    COL_END,
    COL_BYTES,
    COL_FLOPS,
    COL_COUNT
};
static const char *const col_names[COL_COUNT] = {[COL_RANK] = "rank",
                                                 [COL_STREAM] = "stream",
                                                 [COL_KIND] = "kind",
                                                 [COL_NAME] = "name",
                                                 [COL_MICROBATCH] =
                                                     "microbatch",
                                                 [COL_STAGE] = "stage",
                                                 [COL_START] = "start_s",
                                                 [COL_END] = "end_s",
                                                 [COL_BYTES] = "bytes",
                                                 [COL_FLOPS] = "flops"};

struct rows {
    const struct mw_csv *csv;
    int col[COL_COUNT];
    struct mw_err *err;
};

static bool row_int(const struct rows *r, size_t row, enum col c, int64_t max,
                    int64_t *out)
{
    int64_t min = c == COL_RANK ? 0 : -1; /* -1: none */
    if (mw_csv_int_or(r->csv, row, r->col[c], -1, out, r->err) != MW_OK) {
        return false;
    }
    if (*out < min || *out > max) {
        mw_csv_fail(r->csv, row, r->col[c], r->err,
                    "%lld is out of range; from %lld to %lld", (long long)*out,
                    (long long)min, (long long)max);
        return false;
    }
    return true;
}

static bool row_time(const struct rows *r, size_t row, enum col c, mw_time *out)
{
    const char *text = mw_csv_str(r->csv, row, r->col[c]);
    const char *wrong = mw_ps_parse(text, strlen(text), 12, out);
    if (wrong) {
        mw_csv_fail(r->csv, row, r->col[c], r->err, "'%.40s': %s", text, wrong);
    }
    return !wrong;
}

static bool row_word(const struct rows *r, size_t row, enum col c,
                     int (*find)(const char *), uint16_t *out)
{
    const char *text = mw_csv_str(r->csv, row, r->col[c]);
    int found = find(text);
    if (found < 0) {
        mw_csv_fail(r->csv, row, r->col[c], r->err, "unknown %s '%.40s'",
                    col_names[c], text);
        return false;
    }
    *out = (uint16_t)found;
    return true;
}

static bool read_row(const struct rows *r, size_t row, struct mw_timeline *t)
{
    struct mw_span s = {.name = 0};
    int64_t rank, microbatch, stage;
    if (!row_int(r, row, COL_RANK, MW_TIMELINE_RANKS_MAX - 1, &rank) ||
        !row_int(r, row, COL_MICROBATCH, INT32_MAX, &microbatch) ||
        !row_int(r, row, COL_STAGE, INT32_MAX, &stage) ||
        !row_word(r, row, COL_STREAM, mw_stream_find, &s.stream) ||
        !row_word(r, row, COL_KIND, mw_span_kind_find, &s.kind) ||
        !row_time(r, row, COL_START, &s.start_ps) ||
        !row_time(r, row, COL_END, &s.end_ps) ||
        mw_csv_num_or(r->csv, row, r->col[COL_BYTES], 0, &s.bytes, r->err) ||
        mw_csv_num_or(r->csv, row, r->col[COL_FLOPS], 0, &s.flops, r->err)) {
        return false;
    }
    if (s.end_ps < s.start_ps) {
        mw_csv_fail(r->csv, row, r->col[COL_END], r->err,
                    "ends before it starts");
        return false;
    }
    s.rank = (int32_t)rank;
    s.microbatch = (int32_t)microbatch;
    s.stage = (int32_t)stage;
    s.name = mw_timeline_name(t, mw_csv_str(r->csv, row, r->col[COL_NAME]));
    mw_timeline_add(t, &s);
    return true;
}

static bool find_columns(struct rows *r)
{
    for (int c = 0; c < COL_COUNT; c++) {
        r->col[c] = mw_csv_col(r->csv, col_names[c]);
        bool is_optional = c == COL_BYTES || c == COL_FLOPS ||
                           c == COL_MICROBATCH || c == COL_STAGE;
        if (r->col[c] < 0 && !is_optional) {
            mw_fail(r->err, MW_EINPUT,
                    "%s: no column '%s' in the header; this is not a "
                    "meshwright timeline",
                    r->csv->file, col_names[c]);
            return false;
        }
    }
    return true;
}

bool mw_trace_read_csv(const char *name, const char *text, size_t len,
                       struct mw_timeline *t, struct mw_err *err)
{
    struct head head = {.file = name, .t = t, .err = err};
    if (!read_head(&head, text)) {
        return false;
    }
    struct mw_arena arena;
    struct mw_csv csv;
    mw_arena_init(&arena);
    struct rows rows = {.csv = &csv, .err = err};
    bool ok = mw_csv_parse(name, text, len, &arena, &csv, err) == MW_OK &&
              find_columns(&rows);
    for (size_t row = 0; ok && row < csv.n_rows; row++) {
        ok = read_row(&rows, row, t);
    }
    mw_arena_release(&arena);
    return ok;
}
