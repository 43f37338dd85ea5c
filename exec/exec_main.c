/*
 * meshwright-exec: the program that mpirun starts, one process a rank; or, with
 * --comm local, one process for all ranks of a plan, a thread each.
 *
 *   meshwright-exec run PLAN [--steps N] [--verify] [--trace FILE] ...
 *
 * `meshwright run` starts it; it can be started by hand on a cluster as well.
 * With --result FILE the outcome, good or bad, goes there as one JSON object
 * {status, error, result} and the process exits with 0, so that the launcher
 * relays one clear line and mpirun has nothing to add. Without, the object of
 * the run goes to standard output and the exit status is the run's.
 */
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "exec/bench.h"
#include "exec/drive.h"
#include "exec/fingerprint.h"
#include "sim/plan/plan.h"

#include <argp.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_MAX = 100000 };

struct args {
    const char *verb, *file, *result, *out, *slow, *comm;
    struct mw_drive_opts run;
};

enum {
    OPT_STEPS = 0x1000,
    OPT_VERIFY,
    OPT_TRACE,
    OPT_CLOCK,
    OPT_HWDB,
    OPT_SLOW,
    OPT_BACKEND,
    OPT_COMM,
    OPT_RESULT,
    OPT_BEATS,
    OPT_RESUME,
    OPT_BASE,
    OPT_TEXT,
    OPT_CHECKPOINT,
    OPT_EVERY,
    OPT_WARMUP
};

static const struct argp_option options[] = {
    {"backend", OPT_BACKEND, "NAME", 0, "host (default) or cuda", 0},
    {"comm", OPT_COMM, "NAME", 0,
     "run: mpi (default), or local: the plan's ranks are threads of this "
     "process",
     0},
    {"steps", OPT_STEPS, "N", 0, "Training steps (default 12)", 0},
    {"verify", OPT_VERIFY, NULL, 0,
     "Compare loss and gradients with a one-rank run", 0},
    {"trace", OPT_TRACE, "FILE", 0, "Write the measured timeline", 0},
    {"clock", OPT_CLOCK, "CLOCK", 0,
     "Clock of the timeline: virtual (default) or wall", 0},
    {"hwdb", OPT_HWDB, "DIR", 0, "Overlay of the hardware database", 0},
    {"slow", OPT_SLOW, "KIND=FACTOR", 0,
     "Test aid: make a kind of operator slower, for example gemm=1.3", 0},
    {"output", 'o', "FILE", 0, "bench-*: the CSV file to write", 0},
    {"result", OPT_RESULT, "FILE", 0, "Where the launcher wants the outcome",
     0},
    {"warmup", OPT_WARMUP, "N", 0, "Steps that are not timed (default 3)", 0},
    {"text", OPT_TEXT, "FILE", 0, "Train on its bytes (default: a sample)", 0},
    {"resume", OPT_RESUME, "FILE", 0, "Go on from a checkpoint", 0},
    {"base", OPT_BASE, "FILE", 0,
     "Adapters: the checkpoint that the frozen weights come from", 0},
    {"checkpoint", OPT_CHECKPOINT, "FILE", 0, "Write a checkpoint at the end",
     0},
    {"checkpoint-every", OPT_EVERY, "N", 0, "And after every N steps", 0},
    {"heartbeat", OPT_BEATS, "FILE", 0,
     "Where the launcher looks for signs of life", 0},
    {0}};

static const char doc[] =
    "The ranks of a run. Usually started by `meshwright run`.\v"
    "  run PLAN              execute the plan, one rank a process\n"
    "  bench-kernels SCENARIO -o FILE   time the operators of a scenario\n"
    "  bench-comm SCENARIO -o FILE      time collectives of this many ranks\n"
    "  bench-routing SCENARIO -o FILE    train a little, count the tokens "
    "of\n"
    "                                    each expert\n"
    "  fingerprint SCENARIO             processor, BLAS and MPI of this machine"
    "\n\n"
    "Example:\n"
    "  mpirun -np 8 --oversubscribe meshwright-exec run plan.yaml --verify\n\n"
    "Exit status: 0 done; 1 not verified; 2 usage; 3 bad input file; "
    "4 something is missing; 5 a run failed.";

static error_t parse_positional(struct args *a, char *arg,
                                struct argp_state *state)
{
    if (!a->verb) {
        a->verb = arg;
    } else if (!a->file) {
        a->file = arg;
    } else {
        argp_error(state, "unexpected argument '%s'", arg);
    }
    return 0;
}

static void parse_count(const char *option, int max, const char *arg, int *out,
                        struct argp_state *state)
{
    int64_t v = 0;
    if (mw_int_parse(arg, &v, NULL) != MW_OK || v < 1 || v > max) {
        argp_error(state, "%s: '%s' is not an integer in 1..%d", option, arg,
                   max);
    }
    *out = (int)v;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case OPT_BACKEND:
        a->run.backend = arg;
        return 0;
    case OPT_COMM:
        if (strcmp(arg, "mpi") != 0 && strcmp(arg, "local") != 0) {
            argp_error(state, "--comm: '%s' is not mpi or local", arg);
        }
        a->comm = arg;
        return 0;
    case OPT_STEPS:
        parse_count("--steps", STEPS_MAX, arg, &a->run.steps, state);
        return 0;
    case OPT_VERIFY:
        a->run.verify = true;
        return 0;
    case OPT_TRACE:
        a->run.trace = arg;
        return 0;
    case OPT_CLOCK:
        if (strcmp(arg, "wall") != 0 && strcmp(arg, "virtual") != 0) {
            argp_error(state, "--clock: '%s' is not virtual or wall", arg);
        }
        a->run.clock =
            strcmp(arg, "wall") == 0 ? MW_CLOCK_WALL : MW_CLOCK_VIRTUAL;
        return 0;
    case OPT_HWDB:
        a->run.hwdb = arg;
        return 0;
    case OPT_SLOW:
        a->slow = arg;
        return 0;
    case 'o':
        a->out = arg;
        return 0;
    case OPT_RESUME:
        a->run.resume = arg;
        return 0;
    case OPT_CHECKPOINT:
        a->run.checkpoint = arg;
        return 0;
    case OPT_TEXT:
        a->run.text = arg;
        return 0;
    case OPT_BASE:
        a->run.base = arg;
        return 0;
    case OPT_WARMUP:
        parse_count("--warmup", STEPS_MAX, arg, &a->run.warmup, state);
        return 0;
    case OPT_EVERY:
        parse_count("--checkpoint-every", STEPS_MAX, arg,
                    &a->run.checkpoint_every, state);
        return 0;
    case OPT_BEATS:
        a->run.beats = arg;
        return 0;
    case OPT_RESULT:
        a->result = arg;
        return 0;
    case ARGP_KEY_ARG:
        return parse_positional(a, arg, state);
    case ARGP_KEY_END:
        if (!a->verb || !a->file) {
            argp_error(state, "a verb and a file are needed");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- outcome ------------------------------------------------------------ */
static enum mw_status write_result(const struct args *a, enum mw_status st,
                                   json_t *result, struct mw_err *err)
{
    struct mw_err own = {0};
    json_t *o = json_object();
    struct mw_outfile file = {0};
    mw_json_set_int(o, "status", (long long)st);
    mw_json_set_str(o, "error", err->len ? err->text : "");
    mw_json_set(o, "result", result ? result : json_null());
    enum mw_status wrote = mw_outfile_open(&file, a->result, &own);
    if (wrote == MW_OK) {
        wrote = mw_json_write(o, file.f, &own);
    }
    if (wrote == MW_OK) {
        wrote = mw_outfile_commit(&file, &own);
    }
    mw_outfile_abort(&file);
    json_decref(o);
    if (wrote != MW_OK) {
        fprintf(stderr, "meshwright-exec: %s\n", own.text);
    }
    return wrote;
}

static int report(const struct args *a, enum mw_status st, json_t *result,
                  struct mw_err *err)
{
    if (a->result) {
        return write_result(a, st, result, err) == MW_OK ? 0 : 5;
    }
    struct mw_err own = {0};
    if (result) {
        mw_json_write(result, stdout, &own);
        json_decref(result);
    }
    if (st != MW_OK) {
        fprintf(stderr, "meshwright-exec: %s\n", err->text);
    }
    return mw_status_exit(st);
}

/* ---- verbs -------------------------------------------------------------- */
static enum mw_status run_verb(struct args *a, struct mw_comm *world,
                               json_t **out, struct mw_err *err)
{
    if (strcmp(a->verb, "run") == 0) {
        struct mw_drive_result r;
        a->run.plan = a->file;
        if (a->slow && mw_slow_parse(a->slow, &a->run.slow, err) != MW_OK) {
            return MW_EUSAGE;
        }
        enum mw_status st = mw_drive_run(&a->run, world, &r, err);
        if (st == MW_OK || st == MW_ENO) {
            *out = mw_drive_json(&a->run, &r);
        }
        mw_drive_result_release(&r);
        return st;
    }
    if (strcmp(a->verb, "fingerprint") == 0) {
        *out = mw_fingerprint_json();
        return MW_OK;
    }
    if (strcmp(a->verb, "bench-kernels") == 0 && a->out) {
        return mw_bench_kernels(a->file, a->out, err);
    }
    if (strcmp(a->verb, "bench-comm") == 0 && a->out) {
        return mw_bench_comm(a->file, a->out, world, err);
    }
    if (strcmp(a->verb, "bench-routing") == 0 && a->out) {
        return mw_bench_routing(a->file, a->out, world, err);
    }
    return mw_fail(
        err, MW_EUSAGE,
        "'%s' is not run PLAN, fingerprint SCENARIO, or "
        "bench-kernels, bench-comm or bench-routing SCENARIO -o FILE",
        a->verb);
}

/* Failures that every rank meets in the same way end in order; a failure in
 * the middle of a step would leave the others waiting, so it ends the job. */
static int finish(const struct args *a, struct mw_comm *world,
                  enum mw_status st, json_t *result, struct mw_err *err)
{
    int status = 0;
    if (st == MW_EFAILED || st == MW_EBACKEND) {
        fprintf(stderr, "meshwright-exec: rank %d: %s\n", world->rank,
                err->text);
        fflush(stderr);
        MPI_Abort(MPI_COMM_WORLD, 5);
    }
    if (world->rank == 0) {
        status = report(a, st, result, err);
    } else {
        json_decref(result);
        status = a->result ? 0 : mw_status_exit(st);
    }
    world->ops->free(world);
    MPI_Finalize();
    return status;
}

/* ---- ranks as threads -----------------------------------------------------
 */
struct local_run {
    struct args *args;
    enum mw_status status; /* of rank 0 */
    json_t *result;
    struct mw_err err;
};

static void local_rank(struct mw_comm *world, void *arg)
{
    struct local_run *run = arg;
    json_t *result = NULL;
    struct mw_err err = {0};
    enum mw_status st = run_verb(run->args, world, &result, &err);
    if (st == MW_EFAILED || st == MW_EBACKEND) {
        fprintf(stderr, "meshwright-exec: rank %d: %s\n", world->rank,
                err.text);
        mw_comm_local_abort(world, &err);
    }
    if (world->rank == 0) {
        run->status = st;
        run->result = result;
        run->err = err;
    } else {
        json_decref(result);
    }
}

/* As many threads as the plan has ranks. */
static enum mw_status count_ranks(const struct args *a, int *out,
                                  struct mw_err *err)
{
    struct mw_scenario scenario;
    struct mw_plan plan;
    if (strcmp(a->verb, "run") != 0) {
        return mw_fail(err, MW_EUSAGE, "--comm local is for run PLAN");
    }
    enum mw_status st = mw_plan_load_own(a->file, &scenario, &plan, err);
    if (st == MW_OK) {
        *out = mw_layout_ranks(&plan.layout);
        mw_plan_release(&plan);
        mw_scenario_release(&scenario);
    }
    return st;
}

static int run_local(struct args *a)
{
    struct local_run run = {.args = a};
    int n = 0;
    run.status = count_ranks(a, &n, &run.err);
    if (run.status == MW_OK) {
        enum mw_status st = mw_comm_local_run(n, local_rank, &run, &run.err);
        run.status = st == MW_OK ? run.status : st;
    }
    return report(a, run.status, run.result, &run.err);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "VERB FILE", doc,
                                     NULL,    NULL,  NULL};
    struct args a = {.run = {.backend = "host", .steps = 12}};
    struct mw_err err = {0};
    struct mw_comm *world = NULL;
    json_t *result = NULL;
    argp_err_exit_status = 2;
    mw_log_setup("meshwright-exec", false);
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.comm && strcmp(a.comm, "local") == 0) {
        return run_local(&a);
    }
    MPI_Init(&argc, &argv);
    enum mw_status st = mw_comm_mpi_world(&world, &err);
    if (st != MW_OK) {
        fprintf(stderr, "meshwright-exec: %s\n", err.text);
        MPI_Abort(MPI_COMM_WORLD, 5);
        return 5;
    }
    st = run_verb(&a, world, &result, &err);
    return finish(&a, world, st, result, &err);
}
