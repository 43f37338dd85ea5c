/* `meshwright calibrate`: measures this machine into a database overlay. */
#include "cli/cli.h"

#include "base/units.h"
#include "exec/calibrate.h"
#include "exec/calibrate_cuda.h"
#include "exec/calibrate_nccl.h"

#include <stdio.h>
#include <string.h>

enum { LOGS_MAX = 32 };

struct args {
    struct mw_cli cli;
    const char *backend, *system;
    const char *log[LOGS_MAX];
    int n_logs;
    bool is_in_place;
    struct mw_calibrate_opts opts;
    struct mw_calibrate_cuda_opts cuda;
};

enum {
    OPT_BACKEND = 0x2000,
    OPT_SCENARIO,
    OPT_DEVICE,
    OPT_LIMIT,
    OPT_QUICK,
    OPT_LOG,
    OPT_SYSTEM,
    OPT_IN_PLACE
};

static const struct argp_option options[] = {
    {"backend", OPT_BACKEND, "NAME", 0, "host (this machine's cores) or cuda",
     0},
    {"output", 'o', "DIR", 0, "Folder of the overlay; made if missing", 0},
    {"scenario", OPT_SCENARIO, "FILE", 0,
     "host: whose operators to time (default: the shipped "
     "gpt-small-this-machine)",
     0},
    {"device", OPT_DEVICE, "SLUG", 0,
     "cuda: the device of the rows (default: the one of the GPU's name)", 0},
    {"time-limit", OPT_LIMIT, "TIME", 0, "cuda: stop after it (default 300s)",
     0},
    {"quick", OPT_QUICK, NULL, 0,
     "cuda: a few small sizes, to see that it runs", 0},
    {"nccl-log", OPT_LOG, "[OP=]FILE", 0,
     "Instead of measuring: what a program of nccl-tests printed becomes a "
     "curve; again for each collective",
     0},
    {"system", OPT_SYSTEM, "NAME", 0,
     "The system that --nccl-log was measured on", 0},
    {"in-place", OPT_IN_PLACE, NULL, 0,
     "With --nccl-log: take the in-place times", 0},
    {0}};

static const char doc[] =
    "Measures this machine into an overlay of the hardware database, for "
    "--hwdb: operators of the scenario's model at every tensor-parallel split, "
    "communication between ranks, and the factors by which the parts of a real "
    "step (F, B, W, update) are slower than their kernels in loops; and of a "
    "mixture of experts counts how many tokens its routers send to each.\v"
    "Example:\n"
    "  meshwright calibrate --backend host -o out/hwdb\n"
    "  meshwright plan scenarios/gpt-small-this-machine.yaml --hwdb out/hwdb "
    "-o p.yaml\n"
    "  meshwright calibrate --backend cuda -o out/h200 --time-limit 240s\n"
    "  meshwright calibrate --nccl-log all_reduce.log --nccl-log "
    "all_gather.log --system dgx-h100 -o out/curves\n\n"
    "The factors come from running one plan (GPipe over two stages) in "
    "processes of its own; compare other plans with it. The overlay records "
    "processor, BLAS core and configuration, MPI and whether ranks share "
    "cores; `run` refuses it when one of them has changed.\n\n"
    "cuda measures one GPU: products, kernels, copies, launches, layers, a "
    "product beside a copy. A log of nccl-tests needs its head (ranks, "
    "collective); sizes outside of it are extrapolated and said to be.\n\n"
    "Exit status: 0 done; 2 usage; 3 bad scenario, log or unwritable folder; 4 "
    "no Open MPI, GPU or driver; 5 a measurement failed.";

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a ? &a->cli : NULL;
        return 0;
    case OPT_BACKEND:
        a->backend = arg;
        return 0;
    case OPT_SCENARIO:
        a->opts.scenario = arg;
        return 0;
    case 'o':
        a->opts.dir = arg;
        return 0;
    case OPT_DEVICE:
        a->cuda.device = arg;
        return 0;
    case OPT_LIMIT:
        if (mw_quantity_parse(arg, MW_Q_SECONDS, &a->cuda.limit_s, NULL) !=
                MW_OK ||
            !(a->cuda.limit_s > 0)) {
            argp_error(state,
                       "--time-limit: '%s' is not a time; for example "
                       "240s",
                       arg);
        }
        return 0;
    case OPT_QUICK:
        a->cuda.is_quick = true;
        return 0;
    case OPT_LOG:
        if (a->n_logs == LOGS_MAX) {
            argp_error(state, "--nccl-log: at most %d logs", (int)LOGS_MAX);
        }
        a->log[a->n_logs++] = arg;
        return 0;
    case OPT_SYSTEM:
        a->system = arg;
        return 0;
    case OPT_IN_PLACE:
        a->is_in_place = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum mw_status check(const struct args *a, struct mw_err *err)
{
    if (!a->opts.dir) {
        return mw_fail(err, MW_EUSAGE, "-o: which folder?");
    }
    if (a->n_logs > 0) {
        return a->backend ? mw_fail(err, MW_EUSAGE,
                                    "--nccl-log measures nothing; leave "
                                    "--backend out")
               : a->system
                   ? MW_OK
                   : mw_fail(err, MW_EUSAGE,
                             "--nccl-log: --system NAME, where was it run?");
    }
    if (a->system || a->is_in_place) {
        return mw_fail(err, MW_EUSAGE,
                       "--system and --in-place go with "
                       "--nccl-log");
    }
    if (!a->backend ||
        (strcmp(a->backend, "host") != 0 && strcmp(a->backend, "cuda") != 0)) {
        return mw_fail(err, MW_EUSAGE, "--backend host or --backend cuda?");
    }
    return MW_OK;
}

static void print_people(const struct args *a,
                         const struct mw_calibrate_result *r)
{
    char text[MW_FMT_MAX], measured[MW_FMT_MAX], hot[MW_FMT_MAX];
    printf("%s: %s, %d ranks, %s\n", a->opts.dir, r->cpu, r->n_ranks, r->mode);
    printf("  BLAS       %s kernels, best GEMM %s per core\n", r->blas_core,
           mw_fmt_flops(r->gemm_flops_per_s, text));
    printf("  MPI        %s\n", r->mpi);
    printf("  in situ    factor %.3f: a step of %s takes %s, its kernels in "
           "loops %s\n",
           r->insitu_factor, r->insitu_layout,
           mw_fmt_seconds(r->insitu_measured_s, measured),
           mw_fmt_seconds(r->insitu_hot_s, hot));
    printf("             F %.3f, B %.3f, W %.3f, update %.3f; with them the "
           "step is simulated %+.1f %% off\n",
           r->insitu_of[MW_INSITU_F], r->insitu_of[MW_INSITU_B],
           r->insitu_of[MW_INSITU_W], r->insitu_of[MW_INSITU_UPDATE],
           100.0 * r->insitu_error);
    printf("  took       %s\n", mw_fmt_seconds(r->wall_time_s, text));
}

static json_t *result_json(const struct args *a,
                           const struct mw_calibrate_result *r)
{
    json_t *o = json_object();
    mw_json_set_str(o, "dir", a->opts.dir);
    mw_json_set_str(o, "cpu", r->cpu);
    mw_json_set_str(o, "blas_core", r->blas_core);
    mw_json_set_str(o, "mpi", r->mpi);
    mw_json_set_str(o, "mode", r->mode);
    mw_json_set_int(o, "ranks", r->n_ranks);
    mw_json_set_str(o, "insitu_layout", r->insitu_layout);
    mw_json_set_real(o, "insitu_factor", r->insitu_factor);
    mw_json_set_real(o, "insitu_f", r->insitu_of[MW_INSITU_F]);
    mw_json_set_real(o, "insitu_b", r->insitu_of[MW_INSITU_B]);
    mw_json_set_real(o, "insitu_w", r->insitu_of[MW_INSITU_W]);
    mw_json_set_real(o, "insitu_update", r->insitu_of[MW_INSITU_UPDATE]);
    mw_json_set_real(o, "insitu_error", r->insitu_error);
    mw_json_set_real(o, "insitu_measured_s", r->insitu_measured_s);
    mw_json_set_real(o, "insitu_hot_s", r->insitu_hot_s);
    mw_json_set_real(o, "gemm_flops_per_s", r->gemm_flops_per_s);
    mw_json_set_real(o, "wall_time_s", r->wall_time_s);
    return o;
}

/* ---- the three kinds -------------------------------------------------------
 */
static enum mw_status host(struct args *a, struct mw_err *err)
{
    struct mw_calibrate_result r;
    a->opts.is_quiet = a->cli.quiet;
    enum mw_status st = mw_calibrate_host(&a->opts, &r, err);
    if (st != MW_OK) {
        return st;
    }
    if (!a->cli.json) {
        print_people(a, &r);
        return MW_OK;
    }
    return mw_cli_print_json(result_json(a, &r)) == 0
               ? MW_OK
               : mw_fail(err, MW_EFAILED, "cannot write to stdout");
}

static json_t *cuda_json(const struct args *a,
                         const struct mw_calibrate_cuda_result *r)
{
    json_t *o = json_object();
    mw_json_set_str(o, "dir", a->opts.dir);
    mw_json_set_str(o, "backend", "cuda");
    mw_json_set_real(o, "kernel_launch_s", r->launch_s);
    mw_json_set_real(o, "h2d_Bps", r->h2d_Bps);
    mw_json_set_real(o, "d2h_Bps", r->d2h_Bps);
    mw_json_set_real(o, "d2d_Bps", r->d2d_Bps);
    mw_json_set_real(o, "overlap_slowdown", r->slowdown);
    return o;
}

static enum mw_status cuda(struct args *a, struct mw_err *err)
{
    struct mw_calibrate_cuda_result r;
    char up[MW_FMT_MAX], down[MW_FMT_MAX], inside[MW_FMT_MAX],
        launch[MW_FMT_MAX];
    a->cuda.dir = a->opts.dir;
    enum mw_status st = mw_calibrate_cuda(&a->cuda, &r, err);
    if (st != MW_OK) {
        return st;
    }
    if (a->cli.json) {
        return mw_cli_print_json(cuda_json(a, &r)) == 0
                   ? MW_OK
                   : mw_fail(err, MW_EFAILED, "cannot write to stdout");
    }
    printf("%s: kernels.csv, constants.csv, machine.csv, gpu_check.json\n",
           a->opts.dir);
    printf("  launch     %s of device time for an empty kernel\n",
           mw_fmt_seconds(r.launch_s, launch));
    printf("  copies     to the device %s, from it %s, inside %s\n",
           mw_fmt_rate(r.h2d_Bps, up), mw_fmt_rate(r.d2h_Bps, down),
           mw_fmt_rate(r.d2d_Bps, inside));
    printf("  overlap    a product beside a copy takes %.2f times the longer "
           "one\n",
           r.slowdown);
    return MW_OK;
}

static json_t *imported_json(const struct args *a,
                             const struct mw_nccl_imported *r)
{
    json_t *o = json_object();
    mw_json_set_str(o, "dir", a->opts.dir);
    mw_json_set_str(o, "system", a->system);
    mw_json_set_int(o, "curves", r->n_curves);
    mw_json_set_int(o, "rows", r->n_rows);
    mw_json_set_real(o, "bytes_min", r->bytes_min);
    mw_json_set_real(o, "bytes_max", r->bytes_max);
    return o;
}

static enum mw_status import(struct args *a, struct mw_err *err)
{
    const struct mw_nccl_import in = {.logs = a->log,
                                      .n_logs = a->n_logs,
                                      .system = a->system,
                                      .dir = a->opts.dir,
                                      .hwdb = a->cli.hwdb,
                                      .is_in_place = a->is_in_place};
    struct mw_nccl_imported r;
    char low[MW_FMT_MAX], high[MW_FMT_MAX];
    enum mw_status st = mw_nccl_import(&in, &r, err);
    if (st != MW_OK) {
        return st;
    }
    if (a->cli.json) {
        return mw_cli_print_json(imported_json(a, &r)) == 0
                   ? MW_OK
                   : mw_fail(err, MW_EFAILED, "cannot write to stdout");
    }
    printf("%s/curves.csv: %d curves of %s, %d sizes from %s to %s\n",
           a->opts.dir, r.n_curves, a->system, r.n_rows,
           mw_fmt_bytes(r.bytes_min, low), mw_fmt_bytes(r.bytes_max, high));
    return MW_OK;
}

int mw_verb_calibrate(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options", 100}, {0}};
    static const struct argp argp = {options,  parse, "",  doc,
                                     children, NULL,  NULL};
    struct args a = {0};
    struct mw_err err = {0};
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    enum mw_status st = check(&a, &err);
    if (st == MW_OK) {
        st = a.n_logs > 0                     ? import(&a, &err)
             : strcmp(a.backend, "cuda") == 0 ? cuda(&a, &err)
                                              : host(&a, &err);
    }
    return st == MW_OK ? 0 : mw_cli_fail(&err);
}
