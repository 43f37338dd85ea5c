/*
 * Timelines in: Chrome trace JSON (this file) and CSV (trace_csv.c), told apart
 * by their first character. The JSON text is walked twice: once for "otherData"
 * (which stands last) so that a newer format is refused before its events are
 * looked at, once for the events. Keys may stand in any order, unknown ones are
 * passed over, doubled ones refused. Only complete (X) and metadata (M) events
 * are taken.
 */
#include "sim/engine/trace_read_int.h"

#include "base/file.h"
#include "base/text_int.h"
#include "sim/engine/json_pull_int.h"

#include <string.h>

/* ---- otherData
 * ----------------------------------------------------------------- */
static bool read_format(struct mw_jp *jp)
{
    long long format;
    if (!mw_jp_int(jp, 1, 1000000, &format)) {
        return false;
    }
    if (format > MW_TIMELINE_FORMAT) {
        return mw_jp_fail(jp, jp->token,
                          "format %lld is newer than this program reads (%d); "
                          "use a newer meshwright",
                          format, MW_TIMELINE_FORMAT);
    }
    return true;
}

const char *mw_trace_clock_wrong(const char *clock)
{
    bool is_right = strcmp(clock, "simulated") == 0 ||
                    strcmp(clock, "wall") == 0 || strcmp(clock, "virtual") == 0;
    return is_right ? NULL : "clock should be simulated, wall or virtual";
}

const char *mw_trace_hash_wrong(const char *hash)
{
    size_t n = strspn(hash, "0123456789abcdef");
    return hash[n] == '\0' ? NULL : "plan_hash should be hexadecimal digits";
}

/* A string of ours: must fit, and be right. */
static bool read_text(struct mw_jp *jp, struct mw_str *scratch,
                      const char *(*wrong)(const char *), char *out,
                      size_t size)
{
    if (!mw_jp_string(jp, scratch)) {
        return false;
    }
    const char *what = wrong ? wrong(scratch->s) : NULL;
    if (what) {
        return mw_jp_fail(jp, jp->token, "%s, not '%.40s'", what, scratch->s);
    }
    if (scratch->n >= size) {
        return mw_jp_fail(jp, jp->token, "text of %zu bytes; at most %zu",
                          scratch->n, size - 1);
    }
    memcpy(out, scratch->s, scratch->n + 1);
    return true;
}

static bool read_source(struct mw_jp *jp, struct mw_timeline *t)
{
    char source[16] = "";
    struct mw_str scratch = {.s = NULL};
    bool ok = read_text(jp, &scratch, NULL, source, sizeof source);
    mw_str_release(&scratch);
    if (!ok) {
        return false;
    }
    t->is_measured = strcmp(source, "measured") == 0;
    if (!t->is_measured && strcmp(source, "simulated") != 0) {
        return mw_jp_fail(jp, jp->token,
                          "source '%s' should be simulated or measured",
                          source);
    }
    return true;
}

static bool read_step_time(struct mw_jp *jp, struct mw_timeline *t)
{
    if (!mw_jp_number(jp, &t->step_time_s)) {
        return false;
    }
    if (t->step_time_s < 0 || t->step_time_s > MW_TIMELINE_STEP_MAX_S) {
        return mw_jp_fail(jp, jp->token, "step time %.17g s; from 0 to %g s",
                          t->step_time_s, MW_TIMELINE_STEP_MAX_S);
    }
    return true;
}

static bool read_ranks(struct mw_jp *jp, struct mw_timeline *t)
{
    long long ranks;
    if (!mw_jp_int(jp, 0, MW_TIMELINE_RANKS_MAX, &ranks)) {
        return false;
    }
    t->n_ranks = (int)ranks;
    return true;
}

/* The value of one member of otherData. */
static bool read_other(struct mw_jp *jp, const char *key, struct mw_timeline *t,
                       struct mw_str *scratch, bool *has_format)
{
    if (strcmp(key, "format") == 0) {
        *has_format = true;
        return read_format(jp);
    }
    if (strcmp(key, "source") == 0) {
        return read_source(jp, t);
    }
    if (strcmp(key, "clock") == 0) {
        return read_text(jp, scratch, mw_trace_clock_wrong, t->clock,
                         sizeof t->clock);
    }
    if (strcmp(key, "plan_hash") == 0) {
        return read_text(jp, scratch, mw_trace_hash_wrong, t->plan_hash,
                         sizeof t->plan_hash);
    }
    if (strcmp(key, "step_time_s") == 0) {
        return read_step_time(jp, t);
    }
    if (strcmp(key, "ranks") == 0) {
        return read_ranks(jp, t);
    }
    return mw_jp_skip(jp);
}

/* First walk: syntax of the whole file, and otherData. */
static bool read_head(struct mw_jp *jp, struct mw_timeline *t)
{
    struct mw_str key = {.s = NULL}, scratch = {.s = NULL};
    bool has_format = false;
    for (bool more = mw_jp_enter(jp, '{'); more; more = mw_jp_more(jp, '}')) {
        if (!mw_jp_key(jp, &key)) {
            break;
        }
        if (strcmp(key.s, "otherData") != 0) {
            mw_jp_skip(jp);
            continue;
        }
        for (bool in = mw_jp_enter(jp, '{'); in; in = mw_jp_more(jp, '}')) {
            if (!mw_jp_key(jp, &key) ||
                !read_other(jp, key.s, t, &scratch, &has_format)) {
                break;
            }
        }
    }
    mw_jp_end(jp);
    if (!jp->failed && !has_format) {
        mw_jp_fail(jp, 0,
                   "not a meshwright timeline: otherData.format is not there");
    }
    mw_str_release(&key);
    mw_str_release(&scratch);
    return !jp->failed;
}

/* ---- events
 * ------------------------------------------------------------------------ */
enum event_key {
    KEY_NAME,
    KEY_PH,
    KEY_PID,
    KEY_TID,
    KEY_TS,
    KEY_DUR,
    KEY_ARGS,
    KEY_KIND,
    KEY_MB,
    KEY_STAGE,
    KEY_BYTES,
    KEY_FLOPS,
    KEY_COUNT
};
static const char *const key_names[KEY_COUNT] = {
    [KEY_NAME] = "name",   [KEY_PH] = "ph",       [KEY_PID] = "pid",
    [KEY_TID] = "tid",     [KEY_TS] = "ts",       [KEY_DUR] = "dur",
    [KEY_ARGS] = "args",   [KEY_KIND] = "kind",   [KEY_MB] = "mb",
    [KEY_STAGE] = "stage", [KEY_BYTES] = "bytes", [KEY_FLOPS] = "flops"};

/* An event in the making, and the buffers of the walk. */
struct event {
    unsigned seen; /* bit per event_key */
    char ph;
    struct mw_span span;
    struct mw_str name, key, text;
};

/* Looks the key up among first .. last and marks it; -1 unknown, -2 doubled. */
static int note_key(struct mw_jp *jp, struct event *e, int first, int last)
{
    for (int k = first; k <= last; k++) {
        if (strcmp(e->key.s, key_names[k]) != 0) {
            continue;
        }
        if (e->seen >> k & 1u) {
            mw_jp_fail(jp, jp->token, "key '%s' stands twice", e->key.s);
            return -2;
        }
        e->seen |= 1u << k;
        return k;
    }
    return -1;
}

static bool read_kind(struct mw_jp *jp, struct event *e)
{
    if (!mw_jp_string(jp, &e->text)) {
        return false;
    }
    int kind = mw_span_kind_find(e->text.s);
    if (kind < 0) {
        return mw_jp_fail(jp, jp->token, "unknown kind of work '%.32s'",
                          e->text.s);
    }
    e->span.kind = (uint16_t)kind;
    return true;
}

static bool read_int32(struct mw_jp *jp, int min, int max, int32_t *out)
{
    long long v;
    if (!mw_jp_int(jp, min, max, &v)) {
        return false;
    }
    *out = (int32_t)v;
    return true;
}

static bool read_args(struct mw_jp *jp, struct event *e)
{
    for (bool more = mw_jp_enter(jp, '{'); more; more = mw_jp_more(jp, '}')) {
        if (!mw_jp_key(jp, &e->key)) {
            return false;
        }
        int k = note_key(jp, e, KEY_KIND, KEY_FLOPS);
        bool ok =
            k == KEY_KIND ? read_kind(jp, e)
            : k == KEY_MB ? read_int32(jp, -1, INT32_MAX, &e->span.microbatch)
            : k == KEY_STAGE ? read_int32(jp, -1, INT32_MAX, &e->span.stage)
            : k == KEY_BYTES ? mw_jp_number(jp, &e->span.bytes)
            : k == KEY_FLOPS ? mw_jp_number(jp, &e->span.flops)
                             : k == -1 && mw_jp_skip(jp);
        if (!ok) {
            return false;
        }
    }
    return !jp->failed;
}

static bool read_phase(struct mw_jp *jp, struct event *e)
{
    if (!mw_jp_string(jp, &e->text)) {
        return false;
    }
    if (strcmp(e->text.s, "X") != 0 && strcmp(e->text.s, "M") != 0) {
        return mw_jp_fail(jp, jp->token,
                          "event phase '%.8s'; a meshwright timeline has X "
                          "(complete) and M (metadata) only",
                          e->text.s);
    }
    e->ph = e->text.s[0];
    return true;
}

static bool read_member(struct mw_jp *jp, struct event *e, int k)
{
    int32_t tid;
    switch (k) {
    case KEY_NAME:
        return mw_jp_string(jp, &e->name);
    case KEY_PH:
        return read_phase(jp, e);
    case KEY_PID:
        return read_int32(jp, 0, MW_TIMELINE_RANKS_MAX - 1, &e->span.rank);
    case KEY_TID:
        if (!read_int32(jp, 0, MW_STREAM_COUNT - 1, &tid)) {
            return false;
        }
        e->span.stream = (uint16_t)tid;
        return true;
    case KEY_TS:
        return mw_jp_time(jp, 6, &e->span.start_ps);
    case KEY_DUR:
        return mw_jp_time(jp, 6, &e->span.end_ps); /* made an end later */
    case KEY_ARGS:
        return read_args(jp, e);
    default:
        return mw_jp_skip(jp);
    }
}

/* A complete event becomes a span. */
static bool add_event(struct mw_jp *jp, size_t at, struct event *e,
                      struct mw_timeline *t)
{
    for (int k = 0; k <= KEY_KIND; k++) {
        if (!(e->seen >> k & 1u)) {
            return mw_jp_fail(jp, at, "event without '%s%s'",
                              k == KEY_KIND ? "args." : "", key_names[k]);
        }
    }
    if (__builtin_add_overflow(e->span.start_ps, e->span.end_ps,
                               &e->span.end_ps)) {
        return mw_jp_fail(jp, at, "event ends past 106 days");
    }
    e->span.name = mw_timeline_name(t, e->name.s);
    mw_timeline_add(t, &e->span);
    return true;
}

static bool read_event(struct mw_jp *jp, struct event *e, struct mw_timeline *t)
{
    mw_jp_peek(jp);
    size_t at = jp->at;
    e->seen = 0;
    e->ph = '\0';
    e->span = (struct mw_span){.microbatch = -1, .stage = -1};
    for (bool more = mw_jp_enter(jp, '{'); more; more = mw_jp_more(jp, '}')) {
        if (!mw_jp_key(jp, &e->key)) {
            return false;
        }
        int k = note_key(jp, e, KEY_NAME, KEY_ARGS);
        if (k == -2 || !read_member(jp, e, k)) {
            return false;
        }
    }
    if (jp->failed || e->ph == 'M') {
        return !jp->failed;
    }
    return add_event(jp, at, e, t);
}

/* Second walk: traceEvents. */
static bool read_events(struct mw_jp *jp, struct mw_timeline *t)
{
    struct event e = {.seen = 0};
    bool has_events = false;
    for (bool more = mw_jp_enter(jp, '{'); more; more = mw_jp_more(jp, '}')) {
        if (!mw_jp_key(jp, &e.key)) {
            break;
        }
        if (strcmp(e.key.s, "traceEvents") != 0) {
            mw_jp_skip(jp);
            continue;
        }
        has_events = true;
        for (bool in = mw_jp_enter(jp, '['); in && read_event(jp, &e, t);) {
            in = mw_jp_more(jp, ']');
        }
    }
    if (!jp->failed && !has_events) {
        mw_jp_fail(jp, 0, "not a meshwright timeline: no traceEvents");
    }
    mw_str_release(&e.name);
    mw_str_release(&e.key);
    mw_str_release(&e.text);
    return !jp->failed;
}

static bool read_chrome(const char *name, const char *text, size_t len,
                        struct mw_timeline *t, struct mw_err *err)
{
    struct mw_jp jp = {.file = name, .text = text, .len = len, .err = err};
    if (!read_head(&jp, t)) {
        return false;
    }
    jp.at = 0;
    return read_events(&jp, t);
}

/* ---- either
 * ------------------------------------------------------------------------- */
enum mw_status mw_timeline_parse(const char *name, const char *text, size_t len,
                                 struct mw_timeline *out, struct mw_err *err)
{
    if (mw_text_check(name, text, len, err) != MW_OK) {
        return MW_EINPUT;
    }
    size_t bom = mw_text_bom(text, len);
    text += bom;
    len -= bom;
    size_t first = strspn(text, " \t\r\n");
    if (first >= len) {
        return mw_fail(err, MW_EINPUT,
                       "%s: is empty; a timeline is Chrome trace JSON or CSV",
                       name);
    }
    struct mw_timeline t;
    mw_timeline_init(&t);
    bool is_json = text[first] == '{' || text[first] == '[';
    bool ok = is_json ? read_chrome(name, text, len, &t, err)
                      : mw_trace_read_csv(name, text, len, &t, err);
    char buf[256];
    const char *wrong = ok ? mw_timeline_check(&t, buf, sizeof buf) : NULL;
    if (wrong) {
        mw_fail(err, MW_EINPUT, "%s: %s", name, wrong);
    }
    if (!ok || wrong) {
        mw_timeline_release(&t);
        return MW_EINPUT;
    }
    *out = t;
    return MW_OK;
}

enum mw_status mw_timeline_load(const char *path, struct mw_timeline *out,
                                struct mw_err *err)
{
    char *text;
    size_t len;
    enum mw_status status =
        mw_file_read(path, MW_TIMELINE_SIZE_MAX, &text, &len, err);
    if (status != MW_OK) {
        return status;
    }
    status = mw_timeline_parse(path, text, len, out, err);
    mw_free(text);
    return status;
}
