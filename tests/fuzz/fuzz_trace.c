/*
 * Timeline files: any bytes are either read or refused with a message; what is
 * read passes its check, sums up to its step, and survives both forms exactly.
 */
#include "fuzz/fuzz.h"
#include "sim/engine/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_same(const struct mw_timeline *a, const struct mw_timeline *b)
{
    MW_ASSERT(a->spans.n == b->spans.n, "%zu spans became %zu", a->spans.n,
              b->spans.n);
    MW_ASSERT(strcmp(a->clock, b->clock) == 0 &&
                  strcmp(a->plan_hash, b->plan_hash) == 0 &&
                  a->n_ranks == b->n_ranks && a->is_measured == b->is_measured,
              "clock %s became %s", a->clock, b->clock);
    for (size_t i = 0; i < a->spans.n; i++) {
        const struct mw_span *x = &a->spans.v[i], *y = &b->spans.v[i];
        MW_ASSERT(x->start_ps == y->start_ps && x->end_ps == y->end_ps &&
                      x->rank == y->rank && x->stream == y->stream &&
                      x->kind == y->kind && x->stage == y->stage &&
                      x->microbatch == y->microbatch &&
                      strcmp(a->names.v[x->name], b->names.v[y->name]) == 0,
                  "span %zu changed", i);
    }
}

static void check_round_trip(const struct mw_timeline *t,
                             void (*put)(const struct mw_timeline *, FILE *))
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    MW_ASSERT(f != NULL, "no memory stream");
    put(t, f);
    fclose(f);
    struct mw_timeline back;
    struct mw_err err = {.status = MW_OK};
    enum mw_status status = mw_timeline_parse("back", text, len, &back, &err);
    MW_ASSERT(status == MW_OK, "%s", err.text);
    check_same(t, &back);
    mw_timeline_release(&back);
    free(text);
}

static void check_breakdown(struct mw_timeline *t)
{
    double out[MW_SPAN_KIND_COUNT], sum = 0;
    double step_s = mw_time_to_s(mw_timeline_window_ps(t));
    mw_timeline_breakdown(t, out);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        sum += out[k];
    }
    MW_ASSERT(fabs(sum - step_s) <= 1e-12 * step_s + 1e-12, "%g s of %g s", sum,
              step_s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_timeline t;
    struct mw_err err = {.status = MW_OK};
    char *text = mw_calloc(size + 1, 1); /* parse wants a NUL behind */
    memcpy(text, data, size);
    if (mw_timeline_parse("fuzz", text, size, &t, &err) != MW_OK) {
        MW_ASSERT(err.n_findings > 0, "a failure without a message");
    } else {
        char buf[256];
        const char *wrong = mw_timeline_check(&t, buf, sizeof buf);
        MW_ASSERT(!wrong, "%s", wrong);
        check_breakdown(&t);
        check_round_trip(&t, mw_timeline_put_chrome);
        check_round_trip(&t, mw_timeline_put_csv);
        mw_timeline_release(&t);
    }
    mw_free(text);
    return 0;
}
