/*
 * One plan after the other: load, calibrate its scenario if need be, simulate,
 * run, compare. See set_run.h for the files.
 */
#include "exec/compare/set_run.h"

#include "base/file.h"
#include "exec/calibrate.h"
#include "exec/launch.h"
#include "sim/step/step.h"
#include "sim/coll/coll_library.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                              \
    do {                                                                       \
        enum mw_status try_ = (call);                                          \
        if (try_ != MW_OK) {                                                   \
            return try_;                                                       \
        }                                                                      \
    } while (0)

enum { STEPS_DEFAULT = 8, RESULT_BYTES_MAX = 16 << 20 };

struct runner {
    const struct mw_set_opts *opts;
    struct mw_arena *arena;
    struct mw_err *err;
    MW_ARRAY(const char *) names; /* plans, without folder and ending */
};

/* One plan open. */
struct opened {
    const char *file, *overlay, *hash;
    struct mw_scenario scenario;
    struct mw_plan plan;
};

static void say(const struct runner *r, const char *what, const char *name)
{
    if (!r->opts->is_quiet) {
        fprintf(stderr, "compare: %s %s\n", what, name);
    }
}

static const char *out_path(struct runner *r, const char *name,
                            const char *ending)
{
    return mw_arena_printf(r->arena, "%s/%s%s", r->opts->out, name, ending);
}

/* ---- which plans -----------------------------------------------------------
 */
/* A plan names a scenario; other YAML files are passed over. */
static enum mw_status is_plan(const char *path, bool *out, struct mw_err *err)
{
    struct mw_yaml *doc;
    TRY(mw_yaml_load(path, &doc, err));
    struct mw_node *root = mw_yaml_root(doc);
    *out = mw_node_kind(root) == MW_NODE_MAP &&
           mw_node_get(root, "scenario") != NULL;
    mw_yaml_free(doc);
    return MW_OK;
}

static enum mw_status add_file(struct runner *r, const char *file)
{
    const char *dot = strrchr(file, '.');
    bool is_one = false;
    if (file[0] == '.' || dot == NULL || strcmp(dot, ".yaml") != 0) {
        return MW_OK;
    }
    TRY(is_plan(mw_arena_printf(r->arena, "%s/%s", r->opts->dir, file), &is_one,
                r->err));
    if (is_one) {
        const char *name =
            mw_arena_printf(r->arena, "%.*s", (int)(dot - file), file);
        mw_array_push(&r->names, name);
    }
    return MW_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum mw_status list_plans(struct runner *r)
{
    DIR *d = opendir(r->opts->dir);
    enum mw_status st = MW_OK;
    if (d == NULL) {
        return mw_fail(r->err, MW_EINPUT, "%s: cannot read: %s", r->opts->dir,
                       strerror(errno));
    }
    for (struct dirent *e; st == MW_OK && (e = readdir(d)) != NULL;) {
        st = add_file(r, e->d_name);
    }
    closedir(d);
    if (st == MW_OK && r->names.n == 0) {
        return mw_fail(r->err, MW_EINPUT,
                       "%s: has no plan; write some with meshwright plan "
                       "SCENARIO -o %s/NAME.yaml",
                       r->opts->dir, r->opts->dir);
    }
    if (r->names.n > 0) { /* the order of readdir is the file system's */
        qsort(r->names.v, r->names.n, sizeof *r->names.v, by_name);
    }
    return st;
}

/* ---- calibration -----------------------------------------------------------
 */
static enum mw_status calibrate(struct runner *r, struct opened *o)
{
    struct mw_calibrate_result result;
    const struct mw_calibrate_opts opts = {.scenario = o->scenario.file,
                                           .dir = o->overlay,
                                           .is_quiet = r->opts->is_quiet};
    say(r, "calibrating for", o->scenario.name);
    return mw_calibrate_host(&opts, &result, r->err);
}

/* Was the overlay's factor fitted to this very plan? */
static enum mw_status check_apart(struct runner *r, const struct opened *o)
{
    struct mw_scenario scenario;
    struct mw_plan plan;
    const char *file =
        mw_arena_printf(r->arena, "%s/insitu-plan.yaml", o->overlay);
    if (!mw_file_exists(file)) {
        return MW_OK; /* fitted to nothing */
    }
    TRY(mw_plan_load_own(file, &scenario, &plan, r->err));
    bool is_same = mw_plan_hash(&plan) == mw_plan_hash(&o->plan);
    mw_plan_release(&plan);
    mw_scenario_release(&scenario);
    return is_same ? mw_fail(r->err, MW_EINPUT,
                             "%s: %s was calibrated on this plan; leave it out "
                             "of the set",
                             o->file, o->overlay)
                   : MW_OK;
}

static enum mw_status find_overlay(struct runner *r, struct opened *o)
{
    o->overlay = r->opts->hwdb != NULL
                     ? r->opts->hwdb
                     : mw_arena_printf(r->arena, "%s/hwdb-%s", r->opts->out,
                                       o->scenario.name);
    if (r->opts->hwdb == NULL && !mw_file_exists(mw_arena_printf(
                                     r->arena, "%s/machine.csv", o->overlay))) {
        TRY(calibrate(r, o));
    }
    return check_apart(r, o);
}

/* ---- predicted -------------------------------------------------------------
 */
static enum mw_status simulate_with(struct runner *r, const struct opened *o,
                                    const struct mw_hwdb *db,
                                    struct mw_set_plan *p)
{
    const struct mw_cluster *c = &o->scenario.cluster;
    const struct mw_step_opts opts = {.timeline = &p->simulated};
    struct mw_cost_ctx ctx;
    struct mw_step_result result;
    TRY(mw_cost_ctx_init(&ctx, db, c->system, c->n_nodes, c->gpus_per_node,
                         r->err));
    TRY(mw_step_simulate(&o->scenario, &o->plan, &ctx, &opts, &result, r->err));
    p->predicted_s = result.step_time_s;
    mw_step_result_release(&result);
    return mw_timeline_write_chrome(
        &p->simulated, out_path(r, p->name, ".simulated.json"), r->err);
}

static enum mw_status simulate(struct runner *r, const struct opened *o,
                               struct mw_set_plan *p)
{
    struct mw_hwdb *db = NULL;
    TRY(mw_hwdb_load(o->overlay, &db, r->err));
    mw_coll_library_lend(db);
    enum mw_status st = simulate_with(r, o, db, p);
    mw_hwdb_free(db);
    return st;
}

/* ---- measured --------------------------------------------------------------
 */
static enum mw_status launch(struct runner *r, const struct opened *o,
                             const struct mw_set_plan *p, json_t **out)
{
    struct mw_launch launch = {.n_ranks = p->n_ranks,
                               .hang_limit_s = 60,
                               .is_local = r->opts->is_local};
    int steps = r->opts->steps > 0 ? r->opts->steps : STEPS_DEFAULT;
    const char *args[] = {"run",       o->file,
                          "--backend", "host",
                          "--steps",   mw_arena_printf(r->arena, "%d", steps),
                          "--hwdb",    o->overlay,
                          "--trace",   out_path(r, p->name, ".measured.json")};
    for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
        mw_launch_arg(&launch, args[i]);
    }
    if (r->opts->is_wall) {
        mw_launch_arg(&launch, "--clock");
        mw_launch_arg(&launch, "wall");
    }
    if (r->opts->is_local) {
        mw_launch_arg(&launch, "--comm");
        mw_launch_arg(&launch, "local");
    }
    if (r->opts->slow != NULL) {
        mw_launch_arg(&launch, "--slow");
        mw_launch_arg(&launch, r->opts->slow);
    }
    return mw_launch_run(&launch, out, r->err);
}

static enum mw_status save_result(struct runner *r, const struct mw_set_plan *p,
                                  const json_t *result)
{
    struct mw_outfile out = {0};
    TRY(mw_outfile_open(&out, out_path(r, p->name, ".result.json"), r->err));
    enum mw_status st = mw_json_write(result, out.f, r->err);
    if (st == MW_OK) {
        st = mw_outfile_commit(&out, r->err);
    }
    mw_outfile_abort(&out);
    return st;
}

static bool has_text(const json_t *o, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(o, key));
    return value != NULL && strcmp(value, text) == 0;
}

/* What a run left here, when it is of this plan and clock; else NULL. */
static json_t *earlier_result(struct runner *r, const struct opened *o,
                              const struct mw_set_plan *p)
{
    json_t *result = NULL;
    const char *path = out_path(r, p->name, ".result.json");
    if (!r->opts->is_reused || !mw_file_exists(path) ||
        !mw_file_exists(out_path(r, p->name, ".measured.json")) ||
        mw_json_load(path, RESULT_BYTES_MAX, &result, NULL) != MW_OK) {
        return NULL;
    }
    if (!has_text(result, "plan_hash", o->hash) ||
        !has_text(result, "trace_clock",
                  r->opts->is_wall ? "wall" : "virtual")) {
        json_decref(result);
        return NULL;
    }
    return result;
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static enum mw_status measure(struct runner *r, const struct opened *o,
                              struct mw_set_plan *p)
{
    json_t *result = earlier_result(r, o, p);
    if (result == NULL) {
        say(r, "running", p->name);
        TRY(launch(r, o, p, &result));
        TRY(save_result(r, p, result));
    }
    bool is_wall = r->opts->is_wall;
    p->wall_s = number(result, "step_time_s");
    p->measured_s = is_wall ? p->wall_s : number(result, "virtual_step_time_s");
    p->spread_s =
        p->measured_s * number(result, is_wall ? "step_time_cv" : "virtual_cv");
    json_decref(result);
    return p->measured_s > 0 ? MW_OK
                             : mw_fail(r->err, MW_EFAILED,
                                       "%s: no step was measured", o->file);
}

/* ---- one plan --------------------------------------------------------------
 */
static enum mw_status compare(struct runner *r, const struct opened *o,
                              struct mw_set_plan *p)
{
    TRY(simulate(r, o, p));
    TRY(measure(r, o, p));
    mw_timeline_release(&p->measured);
    TRY(mw_timeline_load(out_path(r, p->name, ".measured.json"), &p->measured,
                         r->err));
    const struct mw_compare_side simulated = {&p->simulated, p->name};
    const struct mw_compare_side measured = {&p->measured, p->name};
    return mw_compare(&simulated, &measured, false, &p->comparison, r->err);
}

static enum mw_status compare_opened(struct runner *r, struct opened *o,
                                     struct mw_set_plan *p)
{
    const struct mw_layout *l = &o->plan.layout;
    o->hash = mw_arena_printf(r->arena, "%016" PRIx64, mw_plan_hash(&o->plan));
    p->scenario = mw_arena_strdup(r->arena, o->scenario.name);
    p->n_ranks = mw_layout_ranks(l);
    p->layout = mw_arena_printf(
        r->arena,
        "tp %d%s cp %d%s%s pp %d vpp %d dp %d zero %d ep %d mb %d %s%s%s",
        l->tp, l->sp ? "+sp" : "", l->cp, l->cp > 1 ? " " : "",
        l->cp > 1 ? mw_cp_form_name(l->cp_form) : "", l->pp, l->vpp, l->dp,
        l->zero, l->ep, l->micro_batch, l->schedule,
        l->recompute != MW_RECOMPUTE_NONE ? " recompute " : "",
        l->recompute != MW_RECOMPUTE_NONE ? mw_recompute_name(l->recompute)
                                          : "");
    TRY(find_overlay(r, o));
    return compare(r, o, p);
}

/* A plan of too many ranks is passed over: the set does not grow. */
static enum mw_status one_plan(struct runner *r, const char *name,
                               struct mw_set *set)
{
    struct mw_set_plan *p = &set->plans[set->n];
    int most = r->opts->max_ranks;
    struct opened o = {
        .file = mw_arena_printf(r->arena, "%s/%s.yaml", r->opts->dir, name)};
    enum mw_status st = MW_OK;
    TRY(mw_plan_load_own(o.file, &o.scenario, &o.plan, r->err));
    if (most == 0 || mw_layout_ranks(&o.plan.layout) <= most) {
        p->name = name;
        mw_timeline_init(&p->simulated);
        mw_timeline_init(&p->measured);
        set->n++;
        st = compare_opened(r, &o, p);
    }
    mw_plan_release(&o.plan);
    mw_scenario_release(&o.scenario);
    return st;
}

/* ---- all -------------------------------------------------------------------
 */
static enum mw_status run_all(struct runner *r, struct mw_set *set)
{
    TRY(list_plans(r));
    TRY(mw_mkdirs(r->opts->out, r->err));
    set->plans = mw_arena_alloc(r->arena, r->names.n, sizeof *set->plans);
    for (size_t i = 0; i < r->names.n; i++) {
        TRY(one_plan(r, r->names.v[i], set));
    }
    return set->n > 0 ? MW_OK
                      : mw_fail(r->err, MW_EINPUT,
                                "%s: no plan has %d ranks or fewer; raise "
                                "--max-ranks",
                                r->opts->dir, r->opts->max_ranks);
}

enum mw_status mw_set_run(const struct mw_set_opts *opts, struct mw_set *out,
                          struct mw_err *err)
{
    *out = (struct mw_set){.n = 0};
    mw_arena_init(&out->arena);
    struct runner r = {.opts = opts, .arena = &out->arena, .err = err};
    enum mw_status st = run_all(&r, out);
    mw_array_release(&r.names);
    if (st != MW_OK) {
        mw_set_release(out);
    }
    return st;
}

void mw_set_release(struct mw_set *s)
{
    for (int i = 0; i < s->n; i++) {
        mw_comparison_release(&s->plans[i].comparison);
        mw_timeline_release(&s->plans[i].simulated);
        mw_timeline_release(&s->plans[i].measured);
    }
    mw_arena_release(&s->arena);
    s->n = 0;
}
