/*
 * One layout weighed: layers per stage, bound of the time, memory.
 *
 * Layers: even, unless the min-max partition has a smaller maximum. Memory of
 * a stage is linear in its layers, so where the partition does not fit, the
 * same program with memory rows finds the fastest one that does, or none does.
 * Partitions are for one chunk a device and layers that are alike but for their
 * windows, which memory does not see.
 *
 * The order of the tests is what makes the answer a proof: the bound is that
 * of the very layers that would be simulated.
 */
#include "planner/search_int.h"

#include <math.h>
#include <string.h>

void mw_weigher_init(struct weigher *w, const struct search *s)
{
    *w = (struct weigher){
        .s = s,
        .fast = mw_fast_new(s->is_placed ? &s->bare : s->scenario, s->ctx),
        .n_layers = s->scenario->model.n_layers};
    size_t n = (size_t)w->n_layers + 3; /* stages: the ends may have none */

    w->layers = mw_calloc(n, sizeof *w->layers);
    w->rows = mw_calloc(3 * n, sizeof *w->rows);
    w->costs = mw_calloc(n, sizeof *w->costs);
}

void mw_weigher_release(struct weigher *w)
{
    mw_fast_free(w->fast);
    mw_free(w->layers);
    mw_free(w->rows);
    mw_free(w->costs);
}

static bool can_partition(const struct weigher *w,
                          const struct mw_layout *layout)
{
    const struct mw_sched_kind *kind = mw_schedule_kind_find(layout->schedule);

    return layout->pp > 1 && layout->vpp == 1 && kind->max_chunks == 1 &&
           !w->s->is_mixed && w->n_layers > layout->pp &&
           mw_rule_set_allows_uneven(w->s->space.rules);
}

/* Times of the layers in order, where some have a window and others do not;
 * NULL: they are alike. Returns their sum. */
static double layer_costs(struct weigher *w, const struct mw_fast_units *units,
                          struct mw_partition_problem *p)
{
    const struct mw_model *model = &w->s->scenario->model;
    double sum = 0;

    p->layer_s = units->layer_s;
    p->layers_s = units->local_s > 0 ? w->costs : NULL;
    if (p->layers_s == NULL) {
        return w->n_layers * units->layer_s;
    }
    for (int i = 0; i < w->n_layers; i++) {
        w->costs[i] =
            mw_model_layer_is_local(model, i) ? units->local_s : units->layer_s;
        sum += w->costs[i];
    }
    return sum;
}

/* Replaces the even split where another has a smaller maximum. */
static struct mw_partition_problem level_layers(struct weigher *w,
                                                const struct mw_layout *layout)
{
    struct mw_fast_units units;
    int n = layout->pp;
    double *extra = w->rows;
    struct mw_partition_problem p = {.n_stages = n,
                                     .n_layers = w->n_layers,
                                     .extra_s = extra,
                                     .is_head_alone = layout->mtp_ahead > 0};

    mw_fast_units_of(w->fast, layout, &units);
    memset(extra, 0, (size_t)n * sizeof *extra);
    extra[0] = units.embedding_s;
    extra[n - 1] += units.head_s;
    if (layout->mtp_ahead > 0) {
        extra[n - 2] += units.mtp_s;
    }
    double layers_s = layer_costs(w, &units, &p);
    double even = mw_partition_slowest(&p, w->layers);
    double mean =
        (layers_s + units.embedding_s + units.head_s + units.mtp_s) / n;

    /* Whole layers: nothing below the mean is reached. */
    if (even - mean > 1e-3 * p.layer_s &&
        mw_partition_layers(&p, w->layers, NULL) == MW_OK &&
        mw_partition_slowest(&p, w->layers) >= even * (1 - 1e-12)) {
        mw_plan_even_of(&w->s->scenario->model, layout, w->layers);
    }
    return p;
}

bool mw_weigh_layers(struct weigher *w, const struct mw_layout *layout,
                     double *out_peak_bytes, enum mw_status *out_status,
                     struct mw_err *err)
{
    double usable = w->s->usable_bytes;
    bool can = can_partition(w, layout);
    struct mw_partition_problem p = {0};

    mw_plan_even_of(&w->s->scenario->model, layout, w->layers);
    if (can) {
        p = level_layers(w, layout);
    }
    *out_status =
        mw_fast_peak_bytes(w->fast, layout, w->layers, out_peak_bytes, err);
    if (*out_status != MW_OK || *out_peak_bytes <= usable || !can) {
        return *out_status == MW_OK && *out_peak_bytes <= usable;
    }
    double *slope = w->rows + layout->pp, *fixed = slope + layout->pp;

    mw_fast_memory_rows(w->fast, layout, slope, fixed, NULL);
    p.layer_bytes = slope;
    p.fixed_bytes = fixed;
    p.limit_bytes = usable;
    return mw_partition_layers(&p, w->layers, NULL) == MW_OK &&
           mw_fast_peak_bytes(w->fast, layout, w->layers, out_peak_bytes,
                              NULL) == MW_OK &&
           *out_peak_bytes <= usable;
}

/* The search levels layers without GLPK, thousands of times; the answer is then
 * checked once by the integer program, memory rows and all. Even splits within
 * a thousandth of a layer of the mean are kept, hence the tolerance. */
bool mw_weigh_certify(const struct search *s, const struct mw_candidate *c)
{
    struct weigher w;
    bool is_proved = false;

    mw_weigher_init(&w, s);
    if (can_partition(&w, &c->layout)) {
        double *slope = w.rows + c->layout.pp, *fixed = slope + c->layout.pp;

        mw_plan_even_of(&s->scenario->model, &c->layout, w.layers);
        struct mw_partition_problem p = level_layers(&w, &c->layout);
        mw_fast_memory_rows(w.fast, &c->layout, slope, fixed, NULL);
        p.layer_bytes = slope;
        p.fixed_bytes = fixed;
        p.limit_bytes = s->usable_bytes;
        is_proved = p.layers_s == NULL &&
                    mw_partition_solve(&p, w.layers, NULL) == MW_OK &&
                    mw_partition_slowest(&p, c->layers) <=
                        mw_partition_slowest(&p, w.layers) + 1e-3 * p.layer_s;
    }
    mw_weigher_release(&w);
    return is_proved;
}

/* Beyond what is allowed, or beaten? Bounds are to 1e-9. */
static bool is_lost(struct weigher *w, const struct mw_layout *layout,
                    double bound_s, double peak_bytes)
{
    const char *rule = NULL;

    if (mw_race_is_beyond(w->s, bound_s * (1 - 1e-9),
                          peak_bytes * (1 - 1e-9))) {
        rule = "objective";
    } else if (mw_race_is_beaten(w->s, bound_s, peak_bytes)) {
        rule = "bound";
    } else {
        return false;
    }
    mw_tally_add(w->tally, rule, 1, layout, bound_s, 1);
    return true;
}

static bool is_over_host(struct weigher *w, const struct mw_layout *layout,
                         const struct mw_fast_bound *bound)
{
    const struct search *s = w->s;
    double node_bytes = bound->host_bytes * s->ctx->gpus_per_node;

    if (!mw_race_is_over_host(s, node_bytes)) {
        return false;
    }
    mw_tally_add(w->tally, "host_memory", 1, layout, node_bytes,
                 s->ctx->system->host_mem_bytes);
    return true;
}

/* Cheap tests first where the layers are even anyway: making a schedule's
 * list for its memory is the dear one. */
static bool is_dropped_early(struct weigher *w, const struct mw_layout *layout,
                             struct mw_fast_bound *bound)
{
    const struct search *s = w->s;
    bool is_even = !can_partition(w, layout);

    if (mw_fast_bound_within(w->fast, layout, NULL,
                             is_even ? s->usable_bytes : HUGE_VAL, bound,
                             NULL) != MW_OK) {
        mw_tally_add(w->tally, "schedule", 1, layout, 0, 0);
        return true;
    }
    if (!is_even) {
        return false;
    }
    if (bound->least_bytes > s->usable_bytes) {
        mw_tally_add(w->tally, "memory", 1, layout, bound->least_bytes,
                     s->usable_bytes);
        return true;
    }
    return is_over_host(w, layout, bound) ||
           is_lost(w, layout, bound->time_s, bound->least_bytes);
}

/* Lists of some schedules take long to plan: a walk that is cut short stops
 * between two layouts. An interrupt leaves the seeds time for one, a time limit
 * either walk, so that there is an answer. */
static bool is_cut_short(const struct weigher *w)
{
    bool has_any;

    if (w->walk == NULL) {
        return false;
    }
    has_any = w->s->done.n > 0 || atomic_load(&w->walk->found);
    return (mw_search_is_asked_to_stop(w->s) && (has_any || !w->is_seeding)) ||
           (has_any && mw_search_is_late(w->s, 0));
}

void mw_weigh(void *weigher, const struct mw_layout *layout, uint64_t at)
{
    struct weigher *w = weigher;
    const struct search *s = w->s;
    struct mw_fast_bound bound;
    enum mw_status status;
    double peak;

    if (is_cut_short(w)) {
        mw_tally_add(w->tally, "not_simulated", 1, layout, 0, 0);
        atomic_store(&w->walk->skipped, true);
        return;
    }
    if (is_dropped_early(w, layout, &bound)) {
        return;
    }
    bool fits = mw_weigh_layers(w, layout, &peak, &status, NULL);

    if (status != MW_OK) {
        mw_tally_add(w->tally, "schedule", 1, layout, 0, 0);
        return;
    }
    if (!fits) {
        mw_tally_add(w->tally, "memory", 1, layout, peak, s->usable_bytes);
        return;
    }
    mw_fast_bound(w->fast, layout, w->layers, &bound, NULL);
    if (is_over_host(w, layout, &bound) ||
        is_lost(w, layout, bound.time_s, peak)) {
        return;
    }
    struct mw_candidate c = {.layout = *layout,
                             .bound_s = bound.time_s,
                             .peak_bytes = peak,
                             .id = w->id_base + at};

    mw_array_push(w->out, c);
    if (w->walk) {
        atomic_store(&w->walk->found, true);
    }
}
