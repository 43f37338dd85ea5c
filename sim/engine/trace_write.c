/*
 * Timelines out: Chrome trace JSON and CSV, span by span; no tree is built.
 *
 * Chrome trace: "Trace Event Format" (Google, document 1CvAClvFfyA5R-PhYUmn5OO
 * QtYMH4h6I0nSsKchNAySU, revision of 2016): complete events ph X, metadata
 * events ph M. traceEvents stands first because viewers may stop at a key that
 * they do not know. A picosecond is 1e-6 of the format's microsecond, so six
 * decimals hold times exactly; they are printed from integers.
 */
#include "sim/engine/timeline.h"

#include "base/csv.h"
#include "base/file.h"

#include <inttypes.h>

static void put_us(FILE *f, mw_time t_ps)
{
    fprintf(f, "%" PRId64 ".%06" PRId64, t_ps / 1000000, t_ps % 1000000);
}

/* A JSON string: quotes, backslashes and control characters escaped. */
static void put_json_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            fprintf(f, "\\%c", c);
        } else if (c < 0x20) {
            fprintf(f, "\\u%04x", c);
        } else {
            fputc(c, f);
        }
    }
    fputc('"', f);
}

/* What the metadata events say of a rank. */
struct rank_info {
    int32_t stage;    /* smallest virtual stage, -1: none */
    uint32_t streams; /* bit per stream that has spans */
};

/* Names the process (rank, with its stage) and its streams, once each. */
static void put_metadata(FILE *f, int rank, const struct rank_info *info)
{
    char name[64];
    if (info->stage >= 0) {
        snprintf(name, sizeof name, "rank %d (stage %d)", rank, info->stage);
    } else {
        snprintf(name, sizeof name, "rank %d", rank);
    }
    fprintf(f,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{"
            "\"name\":\"%s\"}},\n"
            "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,"
            "\"args\":{\"sort_index\":%d}},\n",
            rank, name, rank, rank);
    for (unsigned s = 0; s < MW_STREAM_COUNT; s++) {
        if (info->streams >> s & 1u) {
            fprintf(f,
                    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,"
                    "\"tid\":%u,\"args\":{\"name\":\"%s\"}},\n"
                    "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":"
                    "%d,\"tid\":%u,\"args\":{\"sort_index\":%u}},\n",
                    rank, s, mw_stream_name((enum mw_stream_kind)s), rank, s,
                    s);
        }
    }
}

static void put_all_metadata(FILE *f, const struct mw_timeline *t)
{
    size_t n = (size_t)t->n_ranks;
    struct rank_info *ranks = mw_calloc(n + 1, sizeof *ranks);
    for (size_t i = 0; i < t->spans.n; i++) {
        const struct mw_span *s = &t->spans.v[i];
        struct rank_info *r = &ranks[s->rank];
        if (r->streams == 0) {
            r->stage = -1;
        }
        if (s->stage >= 0 && (r->stage < 0 || s->stage < r->stage)) {
            r->stage = s->stage;
        }
        r->streams |= 1u << s->stream;
    }
    for (size_t i = 0; i < n; i++) {
        if (ranks[i].streams) {
            put_metadata(f, (int)i, &ranks[i]);
        }
    }
    mw_free(ranks);
}

static void put_span(FILE *f, const struct mw_timeline *t,
                     const struct mw_span *s, bool is_last)
{
    const char *kind = mw_span_kind_name((enum mw_span_kind)s->kind);
    fputs("{\"name\":", f);
    put_json_string(f, t->names.v[s->name]);
    fprintf(f,
            ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"ts\":", kind,
            s->rank, s->stream);
    put_us(f, s->start_ps);
    fputs(",\"dur\":", f);
    put_us(f, s->end_ps - s->start_ps);
    fprintf(f,
            ",\"args\":{\"mb\":%d,\"stage\":%d,\"kind\":\"%s\","
            "\"bytes\":%.17g,\"flops\":%.17g}}%s\n",
            s->microbatch, s->stage, kind, s->bytes, s->flops,
            is_last ? "" : ",");
}

static const char *source_name(const struct mw_timeline *t)
{
    return t->is_measured ? "measured" : "simulated";
}

static void put_other_data(FILE *f, const struct mw_timeline *t)
{
    fprintf(f, "\"otherData\":{\"format\":%d,\"source\":\"%s\",\"clock\":",
            MW_TIMELINE_FORMAT, source_name(t));
    put_json_string(f, t->clock);
    fputs(",\"plan_hash\":", f);
    put_json_string(f, t->plan_hash);
    fprintf(f, ",\"step_time_s\":%.17g,\"ranks\":%d}", t->step_time_s,
            t->n_ranks);
}

void mw_timeline_put_chrome(const struct mw_timeline *t, FILE *f)
{
    fputs("{\"traceEvents\":[\n", f);
    put_all_metadata(f, t);
    for (size_t i = 0; i < t->spans.n; i++) {
        put_span(f, t, &t->spans.v[i], i + 1 == t->spans.n);
    }
    fputs("],\n\"displayTimeUnit\":\"ms\",\n", f);
    put_other_data(f, t);
    fputs("}\n", f);
}

/* ---- CSV
 * --------------------------------------------------------------------- */
static void put_csv_span(FILE *f, const struct mw_timeline *t,
                         const struct mw_span *s, struct mw_str *cell)
{
    const mw_time second_ps = INT64_C(1000000000000);
    cell->n = 0;
    mw_csv_add_cell(cell, t->names.v[s->name], false);
    fprintf(f,
            "%d,%s,%s,%s%d,%d,%" PRId64 ".%012" PRId64 ",%" PRId64
            ".%012" PRId64 ",%.17g,%.17g\n",
            s->rank, mw_stream_name((enum mw_stream_kind)s->stream),
            mw_span_kind_name((enum mw_span_kind)s->kind), cell->s,
            s->microbatch, s->stage, s->start_ps / second_ps,
            s->start_ps % second_ps, s->end_ps / second_ps,
            s->end_ps % second_ps, s->bytes, s->flops);
}

void mw_timeline_put_csv(const struct mw_timeline *t, FILE *f)
{
    fprintf(f,
            "# meshwright timeline\n# format: %d\n# source: %s\n# clock: %s\n"
            "# plan_hash: %s\n# step_time_s: %.17g\n# ranks: %d\n"
            "rank,stream,kind,name,microbatch,stage,start_s,end_s,bytes,"
            "flops\n",
            MW_TIMELINE_FORMAT, source_name(t), t->clock, t->plan_hash,
            t->step_time_s, t->n_ranks);
    struct mw_str cell = {.s = NULL};
    for (size_t i = 0; i < t->spans.n; i++) {
        put_csv_span(f, t, &t->spans.v[i], &cell);
    }
    mw_str_release(&cell);
}

/* ---- files
 * ------------------------------------------------------------------- */
static enum mw_status
write_file(const struct mw_timeline *t, const char *path,
           void (*put)(const struct mw_timeline *, FILE *), struct mw_err *err)
{
    struct mw_outfile o = {.f = NULL};
    enum mw_status status = mw_outfile_open(&o, path, err);
    if (status != MW_OK) {
        return status;
    }
    put(t, o.f);
    return mw_outfile_commit(&o, err);
}

enum mw_status mw_timeline_write_chrome(const struct mw_timeline *t,
                                        const char *path, struct mw_err *err)
{
    return write_file(t, path, mw_timeline_put_chrome, err);
}

enum mw_status mw_timeline_write_csv(const struct mw_timeline *t,
                                     const char *path, struct mw_err *err)
{
    return write_file(t, path, mw_timeline_put_csv, err);
}
