/* A deviation in words. */
#include "exec/compare/deviation.h"

#include <math.h>
#include <stdio.h>

enum { PASS_MAX = 96 };

static const char *pass_text(const struct mw_timeline_pass *p,
                             char buf[PASS_MAX])
{
    const char *kind = mw_span_kind_name((enum mw_span_kind)p->kind);

    if (p->microbatch < 0) {
        snprintf(buf, PASS_MAX, "%s on rank %d", kind, (int)p->rank);
    } else {
        snprintf(buf, PASS_MAX, "%s of micro-batch %d, stage %d on rank %d",
                 kind, (int)p->microbatch, (int)p->stage, (int)p->rank);
    }
    return buf;
}

/* "1.2 ms early": measured against predicted. */
static const char *lateness(double difference_s, char buf[64])
{
    char text[MW_FMT_MAX];

    snprintf(buf, 64, "%s %s than predicted",
             mw_fmt_seconds(fabs(difference_s), text),
             difference_s > 0 ? "earlier" : "later");
    return buf;
}

static void own_text(const struct mw_deviation *d, char *buf, size_t len)
{
    char x[MW_FMT_MAX], y[MW_FMT_MAX];
    const struct mw_timeline_pass *s = &d->simulated, *m = &d->measured;

    snprintf(buf, len, "it took %s itself, predicted %s",
             mw_fmt_seconds(mw_time_to_s(m->end_ps - m->start_ps), x),
             mw_fmt_seconds(mw_time_to_s(s->end_ps - s->start_ps), y));
}

/* The kind whose passes before it deviate most in the same direction. */
static void sum_text(const struct mw_deviation *d, char *buf, size_t len)
{
    double sign = d->difference_s < 0 ? -1 : 1;
    char text[MW_FMT_MAX];
    int most = 0;

    for (int k = 1; k < MW_SPAN_KIND_COUNT; k++) {
        most = sign * d->by_kind_s[k] > sign * d->by_kind_s[most] ? k : most;
    }
    snprintf(buf, len, "%s passes before it took %s %s together",
             mw_span_kind_name((enum mw_span_kind)most),
             mw_fmt_seconds(fabs(d->by_kind_s[most]), text),
             sign > 0 ? "less" : "more");
}

static void wait_text(const struct mw_deviation *d, char *buf, size_t len)
{
    char pass[PASS_MAX], late[64];

    if (!d->has_peer) {
        snprintf(buf, len, "the rank waited %s for others",
                 d->difference_s > 0 ? "less" : "longer");
        return;
    }
    snprintf(buf, len, "it waits for %s, which ended %s",
             pass_text(&d->peer, pass), lateness(d->peer_difference_s, late));
}

const char *mw_deviation_text(const struct mw_deviation *d,
                              char buf[MW_DEVIATION_TEXT_MAX])
{
    char pass[PASS_MAX], late[64], why[256] = "";

    switch (d->why) {
    case MW_DEVIATION_NONE:
        snprintf(buf, MW_DEVIATION_TEXT_MAX,
                 "no pass ends further off than the tolerance");
        return buf;
    case MW_DEVIATION_OWN:
        own_text(d, why, sizeof why);
        break;
    case MW_DEVIATION_SUM:
        sum_text(d, why, sizeof why);
        break;
    case MW_DEVIATION_WAIT:
        wait_text(d, why, sizeof why);
        break;
    }
    snprintf(buf, MW_DEVIATION_TEXT_MAX, "%s ends %s: %s",
             pass_text(&d->simulated, pass), lateness(d->difference_s, late),
             why);
    return buf;
}
