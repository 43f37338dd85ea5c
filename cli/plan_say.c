/* What `plan` says beside its table: why, why not, what would help, how robust
 * the ranking is, recomputation by stage. */
#include "cli/plan_say.h"

#include "cli/plan_view.h"
#include "planner/published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum mw_status mw_plan_pairs(const char *option, const char *text,
                             struct mw_search_opts *search, struct mw_err *err)
{
    struct mw_cli_pair pairs[MW_CLI_PAIRS_MAX];
    int n = 0;
    enum mw_status status = mw_cli_pairs(option, text, pairs, &n, err);
    for (int i = 0; i < n && status == MW_OK; i++) {
        status = mw_search_fix(search, pairs[i].key, pairs[i].value, err);
        if (status != MW_OK) {
            mw_err_prefix(err, "%s", option);
        }
    }
    return status;
}

/* The scenario's own layout as the only plan of a result. */
static enum mw_status own_layout(const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_search_result *out,
                                 struct mw_err *err)
{
    *out = (struct mw_search_result){.n_plans = 0};
    mw_arena_init(&out->arena);
    out->plans = mw_arena_alloc(&out->arena, 1, sizeof *out->plans);
    enum mw_status status =
        mw_candidate_of_layout(scenario, ctx, &out->arena, &out->plans[0], err);

    out->n_plans = status == MW_OK;
    return status;
}

static bool is_of_layout(const struct mw_plan_args *a)
{
    return a->why && strcmp(a->why, "layout") == 0;
}

enum mw_status mw_plan_check_why(const struct mw_plan_args *a,
                                 const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_err *err)
{
    struct mw_search_opts opts = a->search;
    struct mw_search_result r;

    if (!is_of_layout(a)) {
        return a->why ? mw_plan_pairs("--why", a->why, &opts, err) : MW_OK;
    }
    enum mw_status status = own_layout(scenario, ctx, &r, err);

    mw_search_result_release(&r);
    return status;
}

/* The plan to compare with: the scenario's layout, the best with the asked
 * values, or the second. */
static enum mw_status find_other(const struct mw_plan_args *a,
                                 const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_search_result *out,
                                 struct mw_err *err)
{
    struct mw_search_opts opts = a->search;

    opts.top = a->why ? 1 : 2;
    if (is_of_layout(a)) {
        return own_layout(scenario, ctx, out, err);
    }
    if (a->why) {
        enum mw_status status = mw_plan_pairs("--why", a->why, &opts, err);

        if (status != MW_OK) {
            return status;
        }
    }
    return mw_search(scenario, ctx, &opts, out, err);
}

/* Term by term, and whether the other could have been chosen at all. */
static enum mw_status compare(const struct mw_side *best,
                              const struct mw_side *other, const char *called,
                              bool is_proved, json_t *json, struct mw_err *err)
{
    struct mw_comparison c;
    double usable = mw_step_usable_bytes(other->scenario, other->ctx);
    enum mw_status status = mw_sides_compare(best, other, &c, err);

    if (status == MW_OK && json) {
        mw_json_set(json, "why", mw_plan_view_why_json(&c, usable));
    } else if (status == MW_OK) {
        char text[MW_PLAN_TEXT_MAX], name[2 * MW_PLAN_TEXT_MAX];

        snprintf(name, sizeof name, "%s (%s)", called,
                 mw_layout_text(&other->plan->layout, text));
        mw_plan_view_why(&c, name, usable, is_proved);
    }
    return status;
}

/* No plan has what was asked for: that is the answer, and its reasons. */
static void say_no_other(const struct mw_plan_args *a,
                         const struct mw_search_result *r, json_t *json,
                         struct mw_err *err)
{
    if (a->why) {
        mw_err_prefix(err, "--why=%s", a->why);
    }
    if (json) {
        json_t *o = json_object();

        mw_json_set_bool(o, "feasible", false);
        mw_json_set(o, "reasons", mw_plan_view_reasons_json(r));
        mw_json_set(json, "why", o);
    }
}

enum mw_status mw_plan_say_why(const struct mw_plan_args *a,
                               const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_search_result *best,
                               json_t *json, struct mw_err *err)
{
    struct mw_search_result r = {.n_plans = 0};
    bool has_other = a->has_goals && !a->why; /* ranked by the same goals */
    enum mw_status status =
        has_other ? MW_OK : find_other(a, scenario, ctx, &r, err);
    size_t which = a->why ? 0 : 1;
    const struct mw_search_result *from = has_other ? best : &r;

    if (status == MW_OK && from->n_plans <= which) {
        status = mw_fail(err, MW_ENO, "there is no other plan to compare with");
    }
    if (status == MW_OK) {
        const struct mw_side sides[] = {{scenario, ctx, &best->plans[0]},
                                        {scenario, ctx, &from->plans[which]}};

        status =
            compare(&sides[0], &sides[1], a->why ? a->why : "the runner-up",
                    best->proved_optimal, json, err);
    } else if (status == MW_ENO) {
        say_no_other(a, &r, json, err);
    }
    if (!has_other) {
        mw_search_result_release(&r);
    }
    return status;
}

enum mw_status mw_plan_say_robust(const struct mw_plan_args *a,
                                  const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_search_result *r,
                                  json_t *json, struct mw_err *err)
{
    struct mw_robust_row rows[MW_ROBUST_PLANS_MAX];
    size_t n = r->n_plans < (size_t)a->top ? r->n_plans : (size_t)a->top;

    n = n < MW_ROBUST_PLANS_MAX ? n : MW_ROBUST_PLANS_MAX;
    enum mw_status status = mw_robust(scenario, ctx, r->plans, n, rows, err);

    if (status == MW_OK && json) {
        mw_json_set(json, "robust", mw_plan_view_robust_json(rows, n));
    } else if (status == MW_OK) {
        mw_plan_view_robust(ctx, rows, n);
    }
    return status;
}

/* The layers, and those that are recomputed, of each stage. */
static void add_stages(struct mw_str *text, const struct mw_candidate *c)
{
    const struct mw_layout *l = &c->layout;

    mw_str_addf(text, "recompute %s", mw_recompute_name(l->recompute));
    for (int k = 0; k < l->pp; k++) {
        mw_str_addf(text, "%s%d of %d", k > 0 ? ", " : ": ",
                    l->recompute == MW_RECOMPUTE_NONE
                        ? 0
                        : mw_layout_recomputed(l, k, c->layers[k]),
                    c->layers[k]);
    }
}

static void show_stage_plan(const struct mw_stage_plan *p,
                            const struct mw_candidate *first)
{
    char time[MW_FMT_MAX], other[MW_FMT_MAX], peak[MW_FMT_MAX];
    struct mw_str text = {NULL, 0, 0};

    if (p->refusal != NULL) {
        printf("By stage a plan takes %s, simulated, but the framework has no "
               "such: %s\n",
               mw_fmt_seconds(p->refused_s, time), p->refusal);
    }
    if (!p->is_found && p->refusal == NULL) {
        printf("No plan says it: nothing fits with none and one kind of "
               "recomputation in a stage.\n");
    }
    if (!p->is_found) {
        return;
    }
    double gain = first->step_time_s / p->candidate.step_time_s - 1;

    add_stages(&text, &p->candidate);
    printf("As a plan, simulated: %s, as ranked first %s (%.2f %% %s); %s; at "
           "most %s\n",
           mw_fmt_seconds(p->candidate.step_time_s, time),
           mw_fmt_seconds(first->step_time_s, other), 100 * fabs(gain),
           gain < 0 ? "less" : "more", text.s,
           mw_fmt_bytes(p->candidate.peak_bytes, peak));
    mw_str_release(&text);
}

/* In place of the first, where it is faster and obeys the same limits. */
static enum mw_status write_stage_plan(const struct mw_plan_args *a,
                                       const struct mw_scenario *scenario,
                                       const struct mw_stage_plan *p,
                                       const struct mw_candidate *first,
                                       bool *out_written, struct mw_err *err)
{
    struct mw_plan plan;
    double most = a->search.max_peak_bytes;

    *out_written = a->out != NULL && p->is_found && !a->has_goals &&
                   a->search.rank_by == MW_RANK_TIME &&
                   p->candidate.step_time_s < first->step_time_s &&
                   (!(most > 0) || p->candidate.peak_bytes <= most);
    if (!*out_written) {
        return MW_OK;
    }
    enum mw_status status =
        mw_candidate_plan(scenario, &p->candidate, &plan, err);

    if (status == MW_OK) {
        status = mw_plan_save(&plan, a->out, a->is_explicit, err);
        mw_plan_release(&plan);
    }
    return status;
}

enum mw_status mw_plan_say_stages(const struct mw_plan_args *a,
                                  const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_search_result *r,
                                  json_t *json, struct mw_err *err)
{
    struct mw_stage_options o;
    enum mw_status status =
        mw_stage_options_find(scenario, ctx, &r->plans[0], a->lp, &o, err);

    bool is_written = false;

    if (status == MW_OK) {
        status = write_stage_plan(a, scenario, &o.plan, &r->plans[0],
                                  &is_written, err);
    }
    if (status == MW_OK && json) {
        json_t *stages = mw_plan_view_stages_json(&o);

        mw_json_set_bool(stages, "written", is_written);
        mw_json_set(json, "stages", stages);
    } else if (status == MW_OK) {
        mw_plan_view_stages(&o);
        show_stage_plan(&o.plan, &r->plans[0]);
        if (is_written) {
            printf("It is what %s holds.\n", a->out);
        }
    }
    mw_stage_options_release(&o);
    return status;
}

/* Nothing found: what would help goes after the reasons. */
int mw_plan_say_changes(const struct mw_scenario *scenario,
                        const struct mw_cost_ctx *ctx,
                        const struct mw_search_opts *opts, json_t *json)
{
    struct mw_changes *changes = mw_calloc(1, sizeof *changes);

    mw_changes_find(scenario, ctx, opts, changes);
    int exit_status = changes->is_cut_short ? 130 : 1;

    if (json) {
        mw_json_set(json, "changes", mw_plan_view_changes_json(changes));
    } else {
        mw_plan_view_changes(changes, stderr);
    }
    mw_free(changes);
    return exit_status;
}

/* The best under any way to cut the racks, and where it runs. */
struct found {
    struct mw_domains domains; /* n = 0: there is no choice */
    struct mw_search_result r;
    struct mw_side side;
    bool is_proved;
};

static enum mw_status search_cuts(const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_search_opts *opts,
                                  struct found *out, struct mw_err *err)
{
    bool is_choice = scenario->cluster.domains.n > 1;
    enum mw_status status = is_choice
                                ? mw_domains_search(scenario, ctx, opts,
                                                    &out->domains, &out->r, err)
                                : mw_search(scenario, ctx, opts, &out->r, err);

    if (status == MW_OK) {
        out->side = is_choice
                        ? (struct mw_side){&out->domains.scenario,
                                           &out->domains.ctx, out->r.plans}
                        : (struct mw_side){scenario, ctx, out->r.plans};
        out->is_proved =
            is_choice ? out->domains.is_proved : out->r.proved_optimal;
    }
    return status;
}

static void say_slower(const char *called, const struct found *best,
                       const struct found *other, json_t *json)
{
    const struct mw_candidate *plan = other->side.plan;
    double slower = plan->step_time_s / best->side.plan->step_time_s - 1;
    int cut = other->side.scenario->cluster.domain_nodes;
    int best_cut = best->side.scenario->cluster.domain_nodes;
    bool is_choice = other->domains.n > 0;
    char text[MW_PLAN_TEXT_MAX];

    if (json) {
        mw_json_set_bool(json, "feasible", true);
        mw_json_set_real(json, "slower", slower);
        if (is_choice) {
            mw_json_set_int(json, "domain_nodes", cut);
            mw_json_set_int(json, "best_domain_nodes", best_cut);
        }
        return;
    }
    printf("%s is legal and fits; its best (%s) is %.1f %% %s than the "
           "best of all%s.\n",
           called, mw_layout_text(&plan->layout, text), 100 * fabs(slower),
           slower < 0 ? "faster" : "slower",
           slower < 0 ? " enumerated (--space full, --free and limits "
                        "enumerate more)"
                      : "");
    if (is_choice) {
        printf("It has domains of %d nodes, the best of all of %d.\n", cut,
               best_cut);
    }
}

/* The values asked for are possible: how far their best is off. */
static enum mw_status say_possible(const struct mw_plan_args *a,
                                   const struct mw_scenario *scenario,
                                   const struct mw_cost_ctx *ctx,
                                   const struct found *other, json_t *json,
                                   struct mw_err *err)
{
    struct found *best = mw_calloc(1, sizeof *best);
    enum mw_status status = search_cuts(scenario, ctx, &a->search, best, err);

    if (status == MW_OK) {
        say_slower(a->why_not, best, other, json);
        status = compare(&best->side, &other->side, a->why_not, best->is_proved,
                         json, err);
    }
    mw_search_result_release(&best->r);
    mw_free(best);
    return status;
}

/* The best layout with the values asked for, and how far it is off. */
int mw_plan_run_why_not(const struct mw_plan_args *a,
                        const struct mw_scenario *scenario,
                        const struct mw_cost_ctx *ctx)
{
    struct mw_err err = {0};
    struct mw_search_opts asked = a->search;
    json_t *json = a->cli.json ? json_object() : NULL;
    int exit_status = 0;

    if (mw_plan_pairs("--why-not", a->why_not, &asked, &err) != MW_OK) {
        json_decref(json);
        return mw_cli_fail(&err);
    }
    struct found *other = mw_calloc(1, sizeof *other);
    enum mw_status status = search_cuts(scenario, ctx, &asked, other, &err);

    if (status == MW_ENO) {
        mw_cli_fail(&err);
        if (json) {
            mw_json_set_bool(json, "feasible", false);
            mw_json_set(json, "reasons", mw_plan_view_reasons_json(&other->r));
        }
        exit_status = mw_plan_say_changes(scenario, ctx, &asked, json);
    } else if (status == MW_OK) {
        status = say_possible(a, scenario, ctx, other, json, &err);
    }
    if (status != MW_OK && status != MW_ENO) {
        exit_status = mw_cli_fail(&err);
    }
    mw_search_result_release(&other->r);
    mw_free(other);
    if (json) {
        mw_cli_print_json(json);
    }
    return exit_status;
}
