/* State of one search, shared by search.c, weigh.c, race.c. Private. */
#ifndef MW_PLANNER_SEARCH_INT_H
#define MW_PLANNER_SEARCH_INT_H

#include "planner/node_order.h"
#include "planner/space.h"
#include "sim/step/fast.h"

#include <stdatomic.h>

enum { MW_ROUND = 16, MW_TOP_MAX = 1024 };

struct mw_candidates {
    struct mw_candidate *v;
    size_t n, cap;
};

struct search {
    const struct mw_scenario *scenario;
    /* The same, where the order of nodes is free as if leaves did not matter:
     * bounds hold for every order. */
    struct mw_scenario bare;
    bool is_placed; /* the order of nodes is free */

    const struct mw_cost_ctx *ctx;
    const struct mw_search_opts *opts;
    struct mw_search_result *result;
    struct mw_space space;
    struct mw_tally tally;
    struct mw_candidates left; /* survivors of weighing */
    struct mw_candidates done; /* simulated, fit, best first */
    bool is_mixed; /* dense and MoE layers: they differ in memory too */
    double usable_bytes;
    int top, jobs;
    int64_t start_ns;
    bool has_walked;   /* the whole space, not only the seeds */
    bool is_cut_short; /* by the time limit or a signal */
    bool is_whole; /* the whole space was weighed: what is left has bounds */
};

/* ---- weigh.c ---------------------------------------------------------------
 */
/* Of one walk: has any thread a survivor, has any passed over a layout? */
struct walk_state {
    atomic_bool found, skipped;
};

/* What one thread needs to weigh layouts. */
struct weigher {
    const struct search *s;
    struct mw_fast *fast;
    struct mw_tally *tally;
    struct mw_candidates *out; /* survivors; layers are not set */
    uint64_t id_base;
    int *layers, n_layers;
    double *rows;
    double *costs; /* [n_layers] of layers that differ by their windows */
    struct walk_state *walk; /* of all threads; NULL: nothing ends the walk */
    bool is_seeding;
};
void mw_weigher_init(struct weigher *w, const struct search *s);
void mw_weigher_release(struct weigher *w);
/*
 * A mw_leaf_fn: tallies the layout under "schedule", "bound" (needed: the
 * bound; allowed 1 s, until the best is known) or "memory", or appends it to
 * w->out.
 */
void mw_weigh(void *weigher, const struct mw_layout *layout, uint64_t at);
/*
 * Layers per virtual stage of a candidate: even, or where the framework
 * allows it the min-max partition, and where that does not fit the min-max
 * partition that does. Returns whether any does; *out_peak_bytes is the least
 * peak found. MW_EUSAGE from the schedule goes to *out_status and err.
 */
bool mw_weigh_layers(struct weigher *w, const struct mw_layout *layout,
                     double *out_peak_bytes, enum mw_status *out_status,
                     struct mw_err *err);
/* Does the integer program (GLPK) find no better layers for the candidate?
 * False as well where layers are not free (one stage, chunks, mixed layers). */
bool mw_weigh_certify(const struct search *s, const struct mw_candidate *c);

/* ---- race.c ----------------------------------------------------------------
 */
/* Is what a node's ranks offload more than it has? False where that is not
 * known. */
bool mw_race_is_over_host(const struct search *s, double node_bytes);
/* Can a layout with these bounds not be among the best, whatever it is? */
bool mw_race_is_beaten(const struct search *s, double bound_s,
                       double peak_bytes);
/* Can it not meet what the caller allows at most (max_step_s and so on)? Then
 * it is tallied under "objective". */
bool mw_race_is_beyond(const struct search *s, double time_s,
                       double peak_bytes);
/* The value that rank_by orders by. */
double mw_race_score(const struct search *s, double time_s, double peak_bytes);
/* Simulates s->left, least bound first, until all the others are beaten or
 * max_simulated are done; moves those that fit to s->done. */
enum mw_status mw_race(struct search *s, size_t max_simulated,
                       struct mw_err *err);
/* Orders s->done by score, then time, then id. */
void mw_race_sort(struct search *s);
bool mw_search_is_over(struct search *s);
/* The two ways in which a search ends early: asked to by a signal, or out of
 * time by more than grace_s. For any thread. */
bool mw_search_is_asked_to_stop(const struct search *s);
bool mw_search_is_late(const struct search *s, double grace_s);

/* ---- reasons.c -------------------------------------------------------------
 */
/* Turns s->tally into the result's reasons, sorted. */
void mw_reasons_write(struct search *s);
/* Most frequent first; without a plan those that came nearest to one first. */
void mw_reasons_sort(struct mw_search_result *r);
/* The message of an infeasible search: counts, nearest misses, what would
 * help. Returns MW_ENO. */
enum mw_status mw_reasons_say_no(const struct search *s, struct mw_err *err);

#endif
