/* `meshwright calibrate`: measures this machine into a database overlay. */
#include "cli/cli.h"

#include "base/units.h"
#include "exec/calibrate.h"

#include <stdio.h>
#include <string.h>

struct args {
    struct mw_cli cli;
    const char *backend;
    struct mw_calibrate_opts opts;
};

enum { OPT_BACKEND = 0x2000, OPT_SCENARIO };

static const struct argp_option options[] = {
    {"backend", OPT_BACKEND, "NAME", 0, "host (this machine's cores) or cuda",
     0},
    {"output", 'o', "DIR", 0, "Folder of the overlay; made if missing", 0},
    {"scenario", OPT_SCENARIO, "FILE", 0,
     "Whose operators to time (default: the shipped gpt-small-this-machine)",
     0},
    {0}};

static const char doc[] =
    "Measures this machine into an overlay of the hardware database, for "
    "--hwdb: operators of the scenario's model at every tensor-parallel split, "
    "communication between ranks, and the factors by which the parts of a real "
    "step (F, B, W, update) are slower than their kernels in loops.\v"
    "Example:\n"
    "  meshwright calibrate --backend host -o out/hwdb\n"
    "  meshwright plan scenarios/gpt-small-this-machine.yaml --hwdb out/hwdb "
    "-o p.yaml\n\n"
    "The factors come from running one plan (GPipe over two stages) in "
    "processes of its own; compare other plans with it. The overlay records "
    "processor, BLAS core and configuration, MPI and whether ranks share "
    "cores; `run` refuses it when one of them has changed.\n\n"
    "Exit status: 0 done; 2 usage; 3 bad scenario or unwritable folder; 4 no "
    "Open MPI; 5 a measurement failed.";

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
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum mw_status check(const struct args *a, struct mw_err *err)
{
    if (!a->backend ||
        (strcmp(a->backend, "host") != 0 && strcmp(a->backend, "cuda") != 0)) {
        return mw_fail(err, MW_EUSAGE, "--backend host or --backend cuda?");
    }
    if (!a->opts.dir) {
        return mw_fail(err, MW_EUSAGE, "-o: which folder?");
    }
    if (strcmp(a->backend, "cuda") == 0) {
        return mw_fail(err, MW_EMISSING,
                       "calibrate --backend cuda is not there yet; "
                       "--backend host measures this machine's cores");
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

int mw_verb_calibrate(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options", 100}, {0}};
    static const struct argp argp = {options,  parse, "",  doc,
                                     children, NULL,  NULL};
    struct args a = {0};
    struct mw_err err = {0};
    struct mw_calibrate_result r;
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    enum mw_status st = check(&a, &err);
    if (st == MW_OK) {
        a.opts.is_quiet = a.cli.quiet;
        st = mw_calibrate_host(&a.opts, &r, &err);
    }
    if (st != MW_OK) {
        return mw_cli_fail(&err);
    }
    if (a.cli.json) {
        return mw_cli_print_json(result_json(&a, &r));
    }
    print_people(&a, &r);
    return 0;
}
