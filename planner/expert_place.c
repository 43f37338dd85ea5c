/* Copies of experts and their places without a solver: see expert_place.h. */
#include "planner/expert_place.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Loads of ranks under a placement. */
static double fill_loads(const struct mw_expert_problem *p, const int *slot,
                         const int *copies, double *rank_load)
{
    double worst = 0;

    for (int r = 0; r < p->n_ranks; r++) {
        rank_load[r] = 0;
        for (int s = 0; s < p->n_slots; s++) {
            int e = slot[r * p->n_slots + s];

            if (e >= 0) {
                rank_load[r] += p->load[e] / copies[e];
            }
        }
        worst = fmax(worst, rank_load[r]);
    }
    return worst;
}

static void count_copies(const struct mw_expert_problem *p, const int *slot,
                         int *copies)
{
    for (int e = 0; e < p->n_experts; e++) {
        copies[e] = 0;
    }
    for (int i = 0; i < p->n_ranks * p->n_slots; i++) {
        if (slot[i] >= 0) {
            copies[slot[i]]++;
        }
    }
}

double mw_experts_worst(const struct mw_expert_problem *p, const int *slot)
{
    int *copies = mw_calloc((size_t)p->n_experts, sizeof *copies);
    double *loads = mw_calloc((size_t)p->n_ranks, sizeof *loads);
    bool has_all = true;

    count_copies(p, slot, copies);
    for (int e = 0; e < p->n_experts; e++) {
        has_all = has_all && copies[e] > 0;
    }
    for (int i = 0; i < p->n_ranks * p->n_slots; i++) {
        for (int j = i / p->n_slots * p->n_slots; j < i; j++) {
            has_all = has_all && (slot[i] < 0 || slot[i] != slot[j]);
        }
    }
    double worst = has_all ? fill_loads(p, slot, copies, loads) : HUGE_VAL;

    mw_free(copies);
    mw_free(loads);
    return worst;
}

/* ---- how many copies -------------------------------------------------------
 */
/* Largest share of all; *out_e gets whose, or -1 when none may have more. */
static double largest_share(const struct mw_expert_problem *p,
                            const int *copies, int *out_e)
{
    double most = 0, most_open = -1;

    *out_e = -1;
    for (int e = 0; e < p->n_experts; e++) {
        double share = p->load[e] / copies[e];

        most = fmax(most, share);
        if (copies[e] < p->n_ranks && share > most_open) {
            most_open = share;
            *out_e = e;
        }
    }
    return most;
}

static double replicate(const struct mw_expert_problem *p, int *copies)
{
    int e, left = p->n_ranks * p->n_slots - p->n_experts;

    for (int i = 0; i < p->n_experts; i++) {
        copies[i] = 1;
    }
    for (double most = largest_share(p, copies, &e); left > 0 && e >= 0;
         most = largest_share(p, copies, &e)) {
        if (!(most > 0)) {
            break;
        }
        copies[e]++;
        left--;
    }
    return largest_share(p, copies, &e);
}

/* ---- where they go ---------------------------------------------------------
 */
struct copy {
    int e;
    double share;
};

static int compare_copies(const void *a, const void *b)
{
    const struct copy *x = a, *y = b;

    if (x->share < y->share || x->share > y->share) {
        return x->share > y->share ? -1 : 1;
    }
    return x->e - y->e;
}

static bool holds(const struct mw_expert_problem *p, const int *slot, int r,
                  int e)
{
    for (int s = 0; s < p->n_slots; s++) {
        if (slot[r * p->n_slots + s] == e) {
            return true;
        }
    }
    return false;
}

static int free_slot(const struct mw_expert_problem *p, const int *slot, int r)
{
    for (int s = 0; s < p->n_slots; s++) {
        if (slot[r * p->n_slots + s] < 0) {
            return r * p->n_slots + s;
        }
    }
    return -1;
}

/* The least loaded rank with room and without the expert, or -1. */
static int place_for(const struct mw_expert_problem *p, const int *slot, int e,
                     const double *loads)
{
    int best = -1;

    for (int r = 0; r < p->n_ranks; r++) {
        if (free_slot(p, slot, r) >= 0 && !holds(p, slot, r, e) &&
            (best < 0 || loads[r] < loads[best])) {
            best = r;
        }
    }
    return best;
}

/* Returns an expert of which one copy found no place, or -1. */
static int pack(const struct mw_expert_problem *p, const int *copies, int *slot)
{
    int n = 0, left_over = -1;
    struct copy *copy =
        mw_calloc((size_t)p->n_ranks * (size_t)p->n_slots, sizeof *copy);
    double *loads = mw_calloc((size_t)p->n_ranks, sizeof *loads);

    for (int e = 0; e < p->n_experts; e++) {
        for (int k = 0; k < copies[e]; k++) {
            copy[n++] = (struct copy){e, p->load[e] / copies[e]};
        }
    }
    qsort(copy, (size_t)n, sizeof *copy, compare_copies);
    for (int i = 0; i < p->n_ranks * p->n_slots; i++) {
        slot[i] = -1;
    }
    for (int i = 0; i < n; i++) {
        int r = place_for(p, slot, copy[i].e, loads);

        if (r < 0) {
            left_over = copy[i].e;
            break;
        }
        slot[free_slot(p, slot, r)] = copy[i].e;
        loads[r] += copy[i].share;
    }
    mw_free(copy);
    mw_free(loads);
    return left_over;
}

/* Would slots i (of the busiest rank) and j do better the other way round? */
static bool try_swap(const struct mw_expert_problem *p, int *slot, int i, int j,
                     const int *copies, double *loads, double worst)
{
    int a = slot[i], b = slot[j], ra = i / p->n_slots, rb = j / p->n_slots;
    double x = p->load[a] / copies[a], y = b >= 0 ? p->load[b] / copies[b] : 0;

    if (x <= y || holds(p, slot, rb, a) || (b >= 0 && holds(p, slot, ra, b)) ||
        loads[rb] + x - y >= worst * (1 - 1e-12)) {
        return false;
    }
    slot[i] = b;
    slot[j] = a;
    loads[ra] += y - x;
    loads[rb] += x - y;
    return true;
}

static bool improve(const struct mw_expert_problem *p, int *slot,
                    const int *copies, double *loads)
{
    double worst = fill_loads(p, slot, copies, loads);
    int busiest = 0;

    for (int r = 1; r < p->n_ranks; r++) {
        busiest = loads[r] > loads[busiest] ? r : busiest;
    }
    for (int s = 0; s < p->n_slots; s++) {
        int i = busiest * p->n_slots + s;

        for (int j = 0; slot[i] >= 0 && j < p->n_ranks * p->n_slots; j++) {
            if (j / p->n_slots != busiest &&
                try_swap(p, slot, i, j, copies, loads, worst)) {
                return true;
            }
        }
    }
    return false;
}

static enum mw_status check(const struct mw_expert_problem *p,
                            double *out_total, struct mw_err *err)
{
    *out_total = 0;
    if (p->n_experts < 1 || p->n_ranks < 1 || p->n_slots < 1 ||
        (double)p->n_ranks * p->n_slots < p->n_experts) {
        return mw_fail(err, MW_EUSAGE,
                       "%d ranks with %d slots have no room for %d experts",
                       p->n_ranks, p->n_slots, p->n_experts);
    }
    for (int e = 0; e < p->n_experts; e++) {
        if (!(p->load[e] >= 0) || isinf(p->load[e])) {
            return mw_fail(err, MW_EUSAGE, "expert %d has a load of %g", e,
                           p->load[e]);
        }
        *out_total += p->load[e];
    }
    return *out_total > 0 ? MW_OK
                          : mw_fail(err, MW_EUSAGE, "no expert has any load");
}

enum mw_status mw_experts_pack(const struct mw_expert_problem *p, int *out_slot,
                               struct mw_expert_answer *out, struct mw_err *err)
{
    double total;
    enum mw_status status = check(p, &total, err);

    if (status != MW_OK) {
        return status;
    }
    int *copies = mw_calloc((size_t)p->n_experts, sizeof *copies);
    double *loads = mw_calloc((size_t)p->n_ranks, sizeof *loads);
    double share = replicate(p, copies);

    for (int e = pack(p, copies, out_slot); e >= 0;
         e = pack(p, copies, out_slot)) {
        copies[e]--; /* ranks with room hold it already */
    }
    while (improve(p, out_slot, copies, loads)) {
    }
    *out = (struct mw_expert_answer){.worst = mw_experts_worst(p, out_slot),
                                     .mean = total / p->n_ranks};
    out->bound = fmax(out->mean, share);
    out->is_proved = out->worst <= out->bound * (1 + 1e-9);
    mw_free(copies);
    mw_free(loads);
    return MW_OK;
}
