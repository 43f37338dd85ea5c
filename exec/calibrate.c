/*
 * The order of a calibration; see calibrate.h. The record (machine.csv) is
 * removed first and written last, so an interrupted calibration leaves no
 * overlay that looks whole.
 */
#include "exec/calibrate.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/log.h"
#include "exec/calibrate_int.h"
#include "exec/launch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *mw_calibrate_path(struct mw_calibration *c, const char *name)
{
    return mw_arena_printf(&c->arena, "%s/%s", c->opts->dir, name);
}

static void say(const struct mw_calibration *c, const char *what)
{
    if (!c->opts->is_quiet) {
        fprintf(stderr, "calibrate: %s\n", what);
    }
}

/* ---- the shipped scenario ----------------------------------------------- */
static const char *default_scenario(void)
{
    static const char *const places[] = {
        MW_SCENARIO_SOURCE_DIR "/gpt-small-this-machine.yaml",
        MW_SCENARIO_INSTALL_DIR "/gpt-small-this-machine.yaml"};
    return mw_file_exists(places[0]) ? places[0] : places[1];
}

static int cluster_ranks(const struct mw_calibration *c)
{
    const struct mw_cluster *k = &c->scenario.cluster;
    return k->n_nodes * (k->gpus_per_node > 0 ? k->gpus_per_node : 1);
}

/* ---- parts -------------------------------------------------------------- */
static enum mw_status run_bench(struct mw_calibration *c, const char *verb,
                                int n_ranks, const char *out)
{
    struct mw_launch launch = {.n_ranks = n_ranks};
    const char *args[] = {verb, c->scenario_file, "-o", out};
    for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
        mw_launch_arg(&launch, args[i]);
    }
    return mw_launch_run(&launch, NULL, c->err);
}

static void copy_text(char *out, size_t room, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    snprintf(out, room, "%s", text ? text : "unknown");
}

static enum mw_status read_fingerprint(struct mw_calibration *c)
{
    struct mw_launch launch = {.n_ranks = 1};
    struct mw_calibrate_result *r = c->out;
    json_t *o = NULL;
    mw_launch_arg(&launch, "fingerprint");
    mw_launch_arg(&launch, c->scenario_file);
    TRY(mw_launch_run(&launch, &o, c->err));
    copy_text(r->cpu, sizeof r->cpu, o, "cpu");
    copy_text(r->blas_core, sizeof r->blas_core, o, "blas_core");
    copy_text(r->mpi, sizeof r->mpi, o, "mpi");
    copy_text(c->blas_config, sizeof c->blas_config, o, "blas_config");
    json_int_t cores = json_integer_value(json_object_get(o, "cores"));
    snprintf(r->mode, sizeof r->mode, "%s",
             r->n_ranks <= cores ? "dedicated" : "oversubscribed");
    json_decref(o);
    return MW_OK;
}

/* Appends a CSV file to f, without its header after the first. */
static enum mw_status append_csv(struct mw_calibration *c, const char *path,
                                 bool is_first, FILE *f)
{
    char *text = NULL;
    size_t len = 0;
    TRY(mw_file_read(path, MW_CSV_SIZE_MAX, &text, &len, c->err));
    const char *body = text;
    if (!is_first) {
        body = strchr(text, '\n');
        body = body ? body + 1 : text + len;
    }
    fputs(body, f);
    mw_free(text);
    return MW_OK;
}

static enum mw_status curves_to(struct mw_calibration *c, FILE *f)
{
    const char *part = mw_calibrate_path(c, "raw-curves.csv");
    int ranks = c->out->n_ranks;
    bool is_first = true;
    for (int n = 2; n <= ranks; n++) {
        if (ranks % n != 0) {
            continue;
        }
        say(c, mw_arena_printf(&c->arena, "communication of %d ranks", n));
        TRY(run_bench(c, "bench-comm", n, part));
        TRY(append_csv(c, part, is_first, f));
        is_first = false;
    }
    unlink(part);
    return MW_OK;
}

static enum mw_status measure_curves(struct mw_calibration *c)
{
    struct mw_outfile o = {0};
    if (c->out->n_ranks < 2) {
        unlink(mw_calibrate_path(c, "curves.csv"));
        return MW_OK;
    }
    TRY(mw_outfile_open(&o, mw_calibrate_path(c, "curves.csv"), c->err));
    enum mw_status st = curves_to(c, o.f);
    if (st == MW_OK) {
        st = mw_outfile_commit(&o, c->err);
    }
    mw_outfile_abort(&o);
    return st;
}

static bool has_experts(const struct mw_calibration *c)
{
    return c->scenario.model.moe.n_experts > 0;
}

static enum mw_status count_routing(struct mw_calibration *c)
{
    const char *path = mw_calibrate_path(c, "router.csv");
    if (!has_experts(c)) {
        unlink(path);
        return MW_OK;
    }
    say(c, "where the routers send tokens");
    return run_bench(c, "bench-routing", 1, path);
}

enum mw_status mw_calibrate_record(struct mw_calibration *c)
{
    const struct mw_calibrate_result *r = c->out;
    struct mw_outfile o = {0};
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    TRY(mw_outfile_open(&o, mw_calibrate_path(c, "machine.csv"), c->err));
    const struct {
        const char *key, *value;
    } rows[] = {{"cpu", r->cpu},
                {"blas_core", r->blas_core},
                {"blas_config", c->blas_config},
                {"mpi", r->mpi},
                {"mode", r->mode},
                {"clock", "thread CPU time for compute; wall for messages"},
                {"scenario", c->scenario.name},
                {"insitu_layout", r->insitu_layout},
                {"date", date}};
    fprintf(o.f, "key,value\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fprintf(o.f, "%s,\"%s\"\n", rows[i].key, rows[i].value);
    }
    fprintf(o.f, "ranks,%d\ninsitu_factor,%.6f\n", r->n_ranks,
            r->insitu_factor);
    if (has_experts(c)) {
        fprintf(o.f, "router_scenario,%016" PRIx64 "\n", c->scenario.hash);
    }
    for (int part = 0; part < MW_INSITU_COUNT; part++) {
        if (r->insitu_of[part] > 0) {
            fprintf(o.f, "insitu_factor_%s,%.6f\n",
                    mw_insitu_name((enum mw_insitu)part), r->insitu_of[part]);
        }
    }
    enum mw_status st = mw_outfile_commit(&o, c->err);
    mw_outfile_abort(&o);
    return st;
}

/* ---- summary
 * -----------------------------------------------------------------------------
 */
static enum mw_status best_gemm(struct mw_calibration *c)
{
    struct mw_csv csv;
    TRY(mw_csv_load(mw_calibrate_path(c, "kernels.csv"), &c->arena, &csv,
                    c->err));
    int op = mw_csv_col(&csv, "op"), time_col = mw_csv_col(&csv, "time_s");
    int m = mw_csv_col(&csv, "m"), n = mw_csv_col(&csv, "n");
    int k = mw_csv_col(&csv, "k");
    for (size_t i = 0; i < csv.n_rows; i++) {
        double v[4];
        if (strcmp(mw_csv_str(&csv, i, op), "gemm") != 0) {
            continue;
        }
        TRY(mw_csv_num(&csv, i, m, &v[0], c->err));
        TRY(mw_csv_num(&csv, i, n, &v[1], c->err));
        TRY(mw_csv_num(&csv, i, k, &v[2], c->err));
        TRY(mw_csv_num(&csv, i, time_col, &v[3], c->err));
        c->out->gemm_flops_per_s =
            fmax(c->out->gemm_flops_per_s, 2.0 * v[0] * v[1] * v[2] / v[3]);
    }
    return MW_OK;
}

/* The rows are of this machine and of fp32: another system's scenario would
 * look them up in vain. */
static enum mw_status check_scenario(const struct mw_calibration *c)
{
    const struct mw_scenario *s = &c->scenario;
    if (strcmp(s->cluster.system, "this-machine") != 0) {
        return mw_fail(c->err, MW_EINPUT,
                       "%s: cluster.system is %s; --backend host measures "
                       "this-machine",
                       s->file, s->cluster.system);
    }
    if (s->workload.dtype != MW_FP32) {
        return mw_fail(c->err, MW_EINPUT,
                       "%s: workload.dtype is %s; the host backend computes "
                       "in fp32",
                       s->file, mw_dtype_name(s->workload.dtype));
    }
    return MW_OK;
}

static enum mw_status calibrate(struct mw_calibration *c)
{
    TRY(check_scenario(c));
    TRY(mw_mkdirs(c->opts->dir, c->err));
    unlink(mw_calibrate_path(c, "machine.csv"));
    c->out->n_ranks = cluster_ranks(c);
    TRY(read_fingerprint(c));
    say(c, "operators");
    TRY(run_bench(c, "bench-kernels", 1, mw_calibrate_path(c, "kernels.csv")));
    TRY(best_gemm(c));
    TRY(mw_calibrate_device(c->out->gemm_flops_per_s,
                            mw_calibrate_path(c, "gpus.csv"), c->err));
    TRY(measure_curves(c));
    TRY(count_routing(c));
    say(c, "a real step");
    TRY(mw_calibrate_factors(c));
    return mw_calibrate_record(c);
}

enum mw_status mw_calibrate_host(const struct mw_calibrate_opts *opts,
                                 struct mw_calibrate_result *out,
                                 struct mw_err *err)
{
    struct mw_calibration c = {.opts = opts, .out = out, .err = err};
    int64_t begin_ns = mw_clock_wall_ns();
    *out = (struct mw_calibrate_result){0};
    c.scenario_file = opts->scenario ? opts->scenario : default_scenario();
    enum mw_status st = mw_scenario_load(c.scenario_file, &c.scenario, err);
    if (st != MW_OK) {
        return st;
    }
    mw_arena_init(&c.arena);
    st = calibrate(&c);
    if (c.has_plan) {
        mw_plan_release(&c.plan);
    }
    mw_arena_release(&c.arena);
    mw_scenario_release(&c.scenario);
    out->wall_time_s = 1e-9 * (double)(mw_clock_wall_ns() - begin_ns);
    return st;
}
