/*
 * `plan --experts LOADS.csv`: which rank of the expert-parallel group holds
 * which copies of which experts, so that the busiest has the least to do.
 */
#include "cli/expert_loads.h"
#include "cli/plan_say.h"

#include "base/table.h"
#include "planner/expert_place.h"

#include <stdio.h>

struct job {
    struct mw_expert_problem p;
    struct mw_expert_answer a;
    const double *load;
    int *slot;
    double plain; /* busiest rank with the experts in order, no copies */
};

static enum mw_status set_sizes(const struct mw_plan_args *a,
                                const struct mw_scenario *scenario,
                                struct mw_expert_problem *p, struct mw_err *err)
{
    int experts = scenario->model.moe.n_experts;
    int ep = a->search.ep > 0       ? a->search.ep
             : scenario->has_layout ? scenario->layout.ep
                                    : 0;

    if (experts == 0) {
        return mw_fail(err, MW_EUSAGE, "--experts: %s has no experts",
                       scenario->model.name);
    }
    if (ep < 1) {
        return mw_fail(err, MW_EUSAGE,
                       "--experts: over how many ranks? --fix ep=N, or a "
                       "layout in the scenario");
    }
    if (a->redundant > (long long)experts * (ep - 1)) {
        return mw_fail(err, MW_EUSAGE,
                       "--redundant: %lld; ep %d ranks have use for %lld, one "
                       "of each of %d experts on every rank",
                       a->redundant, ep, (long long)experts * (ep - 1),
                       experts);
    }
    if ((experts + a->redundant) % ep != 0) {
        return mw_fail(err, MW_EUSAGE,
                       "--experts: %d experts and %lld more do not divide into "
                       "ep %d ranks; --redundant %lld would",
                       experts, a->redundant, ep,
                       a->redundant + ep - (experts + a->redundant) % ep);
    }
    p->n_experts = experts;
    p->n_ranks = ep;
    p->n_slots = (int)((experts + a->redundant) / ep);
    return MW_OK;
}

/* The experts in order, as many on each rank. */
static double plain_worst(const struct mw_expert_problem *p)
{
    double worst = 0;
    int each = (p->n_experts + p->n_ranks - 1) / p->n_ranks;

    for (int first = 0; first < p->n_experts; first += each) {
        double sum = 0;

        for (int e = first; e < first + each && e < p->n_experts; e++) {
            sum += p->load[e];
        }
        worst = sum > worst ? sum : worst;
    }
    return worst;
}

static void print_job(const struct job *j)
{
    struct mw_table *t = mw_table_new();

    mw_table_col(t, "rank", true);
    mw_table_col(t, "experts", false);
    for (int r = 0; r < j->p.n_ranks; r++) {
        struct mw_str text = {0};

        for (int s = 0; s < j->p.n_slots; s++) {
            int e = j->slot[r * j->p.n_slots + s];

            if (e >= 0) {
                mw_str_addf(&text, "%s%d", text.n > 0 ? " " : "", e);
            }
        }
        mw_table_row(t);
        mw_table_cell(t, "%d", r);
        mw_table_cell(t, "%s", text.n > 0 ? text.s : "-");
        mw_str_release(&text);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("\nBusiest rank over the mean: %.3f, in order and without copies "
           "%.3f; no placement is below %.3f, %s.\n",
           j->a.worst / j->a.mean, j->plain / j->a.mean, j->a.bound / j->a.mean,
           j->a.is_proved ? "proved best" : "not proved best");
}

static json_t *job_json(const struct job *j)
{
    json_t *o = json_object(), *ranks = json_array();

    mw_json_set_int(o, "ep", j->p.n_ranks);
    mw_json_set_int(o, "slots", j->p.n_slots);
    mw_json_set_real(o, "worst_over_mean", j->a.worst / j->a.mean);
    mw_json_set_real(o, "plain_over_mean", j->plain / j->a.mean);
    mw_json_set_real(o, "bound_over_mean", j->a.bound / j->a.mean);
    mw_json_set_real(o, "gap", j->a.worst / j->a.bound - 1);
    mw_json_set_bool(o, "proved_optimal", j->a.is_proved);
    mw_json_set_real(o, "solve_s", j->a.solve_s);
    for (int r = 0; r < j->p.n_ranks; r++) {
        json_t *list = json_array();

        for (int s = 0; s < j->p.n_slots; s++) {
            int e = j->slot[r * j->p.n_slots + s];

            if (e >= 0) {
                json_array_append_new(list, json_integer(e));
            }
        }
        json_array_append_new(ranks, list);
    }
    mw_json_set(o, "ranks", ranks);
    return o;
}

/* GLPK where its program is small, or is asked for as a file. */
static enum mw_status place(const struct mw_plan_args *a, struct job *j,
                            struct mw_err *err)
{
    enum { COLUMNS_MAX = 20000 };
    enum mw_status status = mw_experts_pack(&j->p, j->slot, &j->a, err);
    double columns = (double)j->p.n_experts * j->p.n_ranks *
                     (j->p.n_ranks * j->p.n_slots - j->p.n_experts + 1);

    if (status == MW_OK && (a->lp || columns < COLUMNS_MAX)) {
        status = mw_experts_solve(&j->p, a->search.time_limit_s, a->lp, j->slot,
                                  &j->a, err);
    }
    return status;
}

int mw_plan_run_experts(const struct mw_plan_args *a,
                        const struct mw_scenario *scenario)
{
    struct mw_arena arena;
    struct mw_err err = {0};
    struct job j = {.plain = 0};
    int exit_status = 0;

    mw_arena_init(&arena);
    enum mw_status status = set_sizes(a, scenario, &j.p, &err);

    if (status == MW_OK) {
        status = mw_cli_expert_loads(a->experts, j.p.n_experts, &arena, &j.load,
                                     &err);
    }
    if (status == MW_OK) {
        j.p.load = j.load;
        j.slot = mw_arena_alloc(
            &arena, (size_t)j.p.n_ranks * (size_t)j.p.n_slots, sizeof *j.slot);
        status = place(a, &j, &err);
    }
    if (status == MW_OK) {
        j.plain = plain_worst(&j.p);
        if (a->cli.json) {
            exit_status = mw_cli_print_json(job_json(&j));
        } else {
            print_job(&j);
        }
    }
    mw_arena_release(&arena);
    return status == MW_OK ? exit_status : mw_cli_fail(&err);
}
