/*
 * Statistics of a replay. A stage waits for a transfer from the moment when
 * both it is free and the producer has ended; that wait is the exposed part of
 * the transfer (at most its duration), the rest of a wait is bubble.
 */
#include "sim/pipe/pipe_stats.h"
#include "sim/pipe/replay_int.h"

#include <string.h>

struct view {
    const struct mw_schedule *s;
    const struct mw_pipe_run *run;
    int items;
    mw_time *f_end, *b_end; /* [route_len * items] */
};

static size_t local(const struct mw_schedule *s, int d, int chunk)
{
    return (size_t)d * (size_t)s->n_chunks + (size_t)chunk;
}

static size_t cell_of(const struct view *v, int k, int item)
{
    return (size_t)k * (size_t)v->items + (size_t)item;
}

static void note_ends(struct view *v)
{
    const struct mw_schedule *s = v->s;
    int d;
    uint32_t i;

    for (d = 0; d < s->n_stages; d++) {
        for (i = s->first[d]; i < s->first[d + 1]; i++) {
            const struct mw_slot *x = &s->slot[i];
            int k = s->virtual_stage[local(s, d, x->chunk)];

            if (x->pass == MW_PASS_F) {
                v->f_end[cell_of(v, k, x->microbatch)] = v->run->end_ps[i];
            } else if (x->pass != MW_PASS_W) {
                v->b_end[cell_of(v, k, x->microbatch)] = v->run->end_ps[i];
            }
        }
    }
}

/* Virtual stage whose output the slot needs from another device, -1: none. */
static int source_of(const struct view *v, int d, const struct mw_slot *x)
{
    const struct mw_schedule *s = v->s;
    size_t at = local(s, d, x->chunk);
    int k = s->virtual_stage[at], from = x->pass == MW_PASS_F ? k - 1 : k + 1;

    if (x->pass == MW_PASS_W || from < 0 || from == s->route_len ||
        s->device[s->route[at] * s->route_len + from] == d) {
        return -1;
    }
    return from;
}

/* Wait for a transfer in front of a slot whose device is free from free_ps. */
static mw_time exposed(const struct view *v, int d, uint32_t i, mw_time free_ps)
{
    const struct mw_slot *x = &v->s->slot[i];
    int from = source_of(v, d, x);
    mw_time produced, since;

    if (from < 0) {
        return 0;
    }
    produced =
        (x->pass == MW_PASS_F ? v->f_end
                              : v->b_end)[cell_of(v, from, x->microbatch)];
    since = produced > free_ps ? produced : free_ps;
    return v->run->start_ps[i] > since ? v->run->start_ps[i] - since : 0;
}

static void stage_stats(const struct view *v, const struct mw_pipe_times *times,
                        const struct mw_pipe_stats_opts *opts, int d,
                        struct mw_pipe_stage_stats *out)
{
    const struct mw_schedule *s = v->s;
    mw_time opt = times->opt_ps != NULL ? times->opt_ps[d] : 0;
    uint32_t a = s->first[d], z = s->first[d + 1], i;

    out->busy_ps = opt;
    for (i = a; i < z; i++) {
        bool is_second = i > a && (s->slot[i - 1].flags & MW_SLOT_PAIR) != 0;
        const struct mw_slot *x = &s->slot[i];
        int k = s->virtual_stage[local(s, d, x->chunk)];
        int to = x->pass == MW_PASS_F ? k + 1 : k - 1;
        size_t way =
            (size_t)s->route[local(s, d, x->chunk)] * (size_t)s->route_len;

        if (!is_second) {
            out->busy_ps += v->run->end_ps[i] - v->run->start_ps[i];
        }
        if (i > a && !is_second) {
            out->exposed_ps += exposed(v, d, i, v->run->end_ps[i - 1]);
        }
        out->n_sends += x->pass != MW_PASS_W && to >= 0 && to < s->route_len &&
                        s->device[way + (size_t)to] != d;
    }
    if (a < z) {
        out->span_ps = v->run->end_ps[z - 1] + opt - v->run->start_ps[a];
    }
    out->peak = mw_pipe_peak(s, d, opts->w_share) / mw_schedule_route_chunks(s);
    if (opts->activation_bytes != NULL) {
        out->peak_bytes = mw_pipe_peak_weighted(
            s, d, opts->w_share, opts->activation_bytes + local(s, d, 0));
    }
}

void mw_pipe_stats(const struct mw_schedule *s,
                   const struct mw_pipe_times *times,
                   const struct mw_pipe_run *run,
                   const struct mw_pipe_stats_opts *opts,
                   struct mw_pipe_stats *out)
{
    struct view v = {s, run, mw_schedule_items(s), NULL, NULL};
    size_t n = (size_t)s->route_len * (size_t)v.items;
    mw_time busiest = 0;
    int d;

    memset(out, 0, sizeof *out);
    out->n_stages = s->n_stages;
    out->stage = mw_calloc((size_t)s->n_stages, sizeof *out->stage);
    v.f_end = mw_calloc(2 * n, sizeof *v.f_end);
    v.b_end = v.f_end + n;
    note_ends(&v);
    for (d = 0; d < s->n_stages; d++) {
        struct mw_pipe_stage_stats *x = &out->stage[d];

        stage_stats(&v, times, opts, d, x);
        busiest = x->busy_ps > busiest ? x->busy_ps : busiest;
        out->exposed_ps =
            x->exposed_ps > out->exposed_ps ? x->exposed_ps : out->exposed_ps;
        out->n_sends += x->n_sends;
    }
    out->sent_bytes = (double)out->n_sends * opts->boundary_bytes / s->n_parts;
    if (run->makespan_ps > 0) {
        out->bubble_makespan = 1 - (double)busiest / (double)run->makespan_ps;
        out->bubble_span = 1 - (double)busiest / (double)run->longest_span_ps;
    }
    mw_free(v.f_end);
}

void mw_pipe_stats_release(struct mw_pipe_stats *stats)
{
    mw_free(stats->stage);
    memset(stats, 0, sizeof *stats);
}
