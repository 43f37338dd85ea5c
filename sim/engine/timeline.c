/*
 * Timelines: names, spans, order, the invariant check.
 *
 * Names are interned (open addressing, linear probing, at most half full): a
 * step has millions of spans and a few dozen names. Sorting orders small keys
 * that end in the insertion index, so the order is total whatever the library's
 * qsort does with equal keys, and then moves each span once.
 */
#include "sim/engine/timeline.h"

#include "base/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const stream_names[MW_STREAM_COUNT] = {
    [MW_STREAM_COMPUTE] = "compute", [MW_STREAM_TP] = "tp",
    [MW_STREAM_CP] = "cp",           [MW_STREAM_EP] = "ep",
    [MW_STREAM_PP] = "pp",           [MW_STREAM_DP] = "dp",
    [MW_STREAM_OFFLOAD] = "offload", [MW_STREAM_HOST] = "host"};

static const char *const kind_names[MW_SPAN_KIND_COUNT] = {
    [MW_SPAN_F] = "F",
    [MW_SPAN_B] = "B",
    [MW_SPAN_W] = "W",
    [MW_SPAN_RECOMPUTE] = "recompute",
    [MW_SPAN_TP] = "tp",
    [MW_SPAN_CP] = "cp",
    [MW_SPAN_EP] = "ep",
    [MW_SPAN_PP] = "pp",
    [MW_SPAN_DP] = "dp",
    [MW_SPAN_OPTIMIZER] = "optimizer",
    [MW_SPAN_OFFLOAD] = "offload",
    [MW_SPAN_HOST] = "host",
    [MW_SPAN_BUBBLE] = "bubble"};

static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (strcasecmp(names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

const char *mw_stream_name(enum mw_stream_kind stream)
{
    MW_ASSERT((unsigned)stream < MW_STREAM_COUNT, "stream %d", (int)stream);
    return stream_names[stream];
}

int mw_stream_find(const char *name)
{
    return find_name(stream_names, MW_STREAM_COUNT, name);
}

const char *mw_span_kind_name(enum mw_span_kind kind)
{
    MW_ASSERT((unsigned)kind < MW_SPAN_KIND_COUNT, "kind %d", (int)kind);
    return kind_names[kind];
}

int mw_span_kind_find(const char *name)
{
    return find_name(kind_names, MW_SPAN_KIND_COUNT, name);
}

void mw_timeline_init(struct mw_timeline *t)
{
    *t = (struct mw_timeline){.clock = "simulated"};
}

void mw_timeline_release(struct mw_timeline *t)
{
    for (size_t i = 0; i < t->names.n; i++) {
        mw_free(t->names.v[i]);
    }
    mw_array_release(&t->names);
    mw_array_release(&t->name_slots);
    mw_array_release(&t->spans);
}

/* The slot that holds the name, or the free one where it belongs. */
static size_t name_slot(const struct mw_timeline *t, const char *name)
{
    size_t mask = t->name_slots.n - 1;
    size_t i = (size_t)mw_hash64(MW_HASH_INIT, name, strlen(name)) & mask;
    while (t->name_slots.v[i] != 0 &&
           strcmp(t->names.v[t->name_slots.v[i] - 1], name) != 0) {
        i = (i + 1) & mask;
    }
    return i;
}

static void grow_slots(struct mw_timeline *t)
{
    size_t n = t->name_slots.n ? 2 * t->name_slots.n : 64;
    mw_array_clear(&t->name_slots);
    mw_array_reserve(&t->name_slots, n);
    t->name_slots.n = n;
    memset(t->name_slots.v, 0, n * sizeof *t->name_slots.v);
    for (size_t i = 0; i < t->names.n; i++) {
        t->name_slots.v[name_slot(t, t->names.v[i])] = (uint32_t)(i + 1);
    }
}

uint32_t mw_timeline_name(struct mw_timeline *t, const char *name)
{
    if (2 * (t->names.n + 1) > t->name_slots.n) {
        grow_slots(t);
    }
    size_t slot = name_slot(t, name);
    if (t->name_slots.v[slot] == 0) {
        char *copy = mw_strdup(name);
        mw_array_push(&t->names, copy);
        t->name_slots.v[slot] = (uint32_t)t->names.n;
    }
    return t->name_slots.v[slot] - 1;
}

/* What is wrong with a span by itself, or NULL. */
static const char *span_wrong(const struct mw_timeline *t,
                              const struct mw_span *s)
{
    if (s->start_ps < 0 || s->end_ps < s->start_ps) {
        return "ends before it starts, or starts before 0";
    }
    if (s->rank < 0 || s->rank >= MW_TIMELINE_RANKS_MAX) {
        return "has a rank out of range";
    }
    if (s->stream >= MW_STREAM_COUNT || s->kind >= MW_SPAN_KIND_COUNT) {
        return "has an unknown stream or kind";
    }
    if (s->name >= t->names.n) {
        return "has no name";
    }
    if (!isfinite(s->flops) || !isfinite(s->bytes)) {
        return "has flops or bytes that are not finite";
    }
    return NULL;
}

void mw_timeline_add(struct mw_timeline *t, const struct mw_span *span)
{
    const char *wrong = span_wrong(t, span);
    MW_ASSERT(!wrong,
              "span of rank %d, stream %u, %" PRId64 " to %" PRId64 " ps %s",
              span->rank, span->stream, span->start_ps, span->end_ps, wrong);
    mw_array_push(&t->spans, *span);
    if (span->rank >= t->n_ranks) {
        t->n_ranks = span->rank + 1;
    }
}

mw_time mw_timeline_window_ps(const struct mw_timeline *t)
{
    if (t->step_time_s > 0) {
        return (mw_time)llround(t->step_time_s * 1e12);
    }
    mw_time end_ps = 0;
    for (size_t i = 0; i < t->spans.n; i++) {
        end_ps = t->spans.v[i].end_ps > end_ps ? t->spans.v[i].end_ps : end_ps;
    }
    return end_ps;
}

/* ---- order -----------------------------------------------------------------
 */
struct sort_key {
    mw_time start_ps;
    uint64_t place; /* rank and stream */
    size_t index;
};

static uint64_t place_of(const struct mw_span *s)
{
    return (uint64_t)(uint32_t)s->rank << 16 | s->stream;
}

static int compare_keys(const void *pa, const void *pb)
{
    const struct sort_key *a = pa, *b = pb;
    if (a->place != b->place) {
        return a->place < b->place ? -1 : 1;
    }
    if (a->start_ps != b->start_ps) {
        return a->start_ps < b->start_ps ? -1 : 1;
    }
    return a->index < b->index ? -1 : a->index > b->index;
}

static bool is_sorted(const struct mw_timeline *t)
{
    for (size_t i = 1; i < t->spans.n; i++) {
        const struct mw_span *a = &t->spans.v[i - 1], *b = &t->spans.v[i];
        if (place_of(a) > place_of(b) ||
            (place_of(a) == place_of(b) && a->start_ps > b->start_ps)) {
            return false;
        }
    }
    return true;
}

void mw_timeline_sort(struct mw_timeline *t)
{
    if (is_sorted(t)) {
        return;
    }
    size_t n = t->spans.n;
    struct sort_key *keys = mw_calloc(n, sizeof *keys);
    struct mw_span *old = mw_calloc(n, sizeof *old);
    memcpy(old, t->spans.v, n * sizeof *old);
    for (size_t i = 0; i < n; i++) {
        keys[i] = (struct sort_key){old[i].start_ps, place_of(&old[i]), i};
    }
    qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n; i++) {
        t->spans.v[i] = old[keys[i].index];
    }
    mw_free(keys);
    mw_free(old);
}

/* ---- check -----------------------------------------------------------------
 */
static const char *span_name(const struct mw_timeline *t,
                             const struct mw_span *s)
{
    return t->names.v[s->name];
}

/* Of the spans that take time, each begins no earlier than the one before it
 * on its stream ends. */
static const char *check_overlap(const struct mw_timeline *t, char *buf,
                                 size_t len)
{
    const struct mw_span *prev = NULL;
    for (size_t i = 0; i < t->spans.n; i++) {
        const struct mw_span *s = &t->spans.v[i];
        if (s->start_ps == s->end_ps) {
            continue;
        }
        if (prev && place_of(prev) == place_of(s) &&
            s->start_ps < prev->end_ps) {
            snprintf(buf, len,
                     "rank %d, stream %s: '%s' starts at %" PRId64
                     " ps, before '%s' ends at %" PRId64 " ps",
                     s->rank, stream_names[s->stream], span_name(t, s),
                     s->start_ps, span_name(t, prev), prev->end_ps);
            return buf;
        }
        prev = s;
    }
    return NULL;
}

const char *mw_timeline_check(struct mw_timeline *t, char *buf, size_t len)
{
    for (size_t i = 0; i < t->spans.n; i++) {
        const struct mw_span *s = &t->spans.v[i];
        const char *wrong = span_wrong(t, s);
        if (!wrong && s->rank >= t->n_ranks) {
            wrong = "has a rank past the number of ranks";
        }
        if (wrong) {
            snprintf(buf, len, "span %zu (rank %d) %s", i, s->rank, wrong);
            return buf;
        }
    }
    mw_timeline_sort(t);
    return check_overlap(t, buf, len);
}
