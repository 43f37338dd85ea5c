/*
 * `meshwright coll --program`: a built-in algorithm, an MSCCL file or an
 * MSCCL++ plan, checked on symbols, then run message by message over the
 * topology with the latencies of the database; --write-program writes it down.
 */
#include "cli/verb_coll.h"

#include "base/file.h"
#include "sim/coll/onesided.h"
#include "sim/coll/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 1024 };

/* One of both. */
struct program {
    struct mw_prog *prog;
    struct mw_oneside *plan;
    enum mw_prog_op op;
    int n_ranks;
};

static bool is_json(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

static bool prog_op_of(enum mw_coll_op op, enum mw_prog_op *out)
{
    for (int i = 0; i < MW_PROG_OPS; i++) {
        if (strcmp(mw_coll_op_name(op), mw_prog_op_name((enum mw_prog_op)i)) ==
            0) {
            *out = (enum mw_prog_op)i;
            return true;
        }
    }
    return false;
}

/* Trays of one scale-up domain count as one node of a program. */
static int ranks_of_domain(const struct mw_coll_query *q,
                           const struct mw_system *system)
{
    int n = q->n_nodes * q->ranks_per_node;
    int trays = system->scaleup_gpus / system->gpus_per_node;
    int domain = q->ranks_per_node * (trays > 1 ? trays : 1);

    return domain < n ? domain : n;
}

static enum mw_status built_in(const struct mw_coll_query *q,
                               const struct mw_coll_world *world,
                               enum mw_prog_algo algo, struct program *out,
                               struct mw_err *err)
{
    const struct mw_system *system = mw_coll_world_system(world);
    struct mw_prog_spec spec = {.algo = algo,
                                .n_ranks = q->n_nodes * q->ranks_per_node,
                                .local = algo == MW_ALGO_HIERARCHICAL
                                             ? q->ranks_per_node
                                             : ranks_of_domain(q, system),
                                .pieces = 16};
    bool is_nvls = algo == MW_ALGO_NVLS || algo == MW_ALGO_NVLS_TREE;

    if (is_nvls && !mw_coll_world_has_nvls(world)) {
        return mw_fail(err, MW_EUSAGE,
                       "--program: %s has no switch that adds up, which %s "
                       "needs",
                       system->slug, mw_prog_algo_name(algo));
    }
    if (!prog_op_of(q->op, &spec.op)) {
        return mw_fail(err, MW_EUSAGE, "--program: there is none for %s",
                       mw_coll_op_name(q->op));
    }
    enum mw_status s = mw_prog_build(&spec, &out->prog, err);
    if (s != MW_OK) {
        mw_err_prefix(err, "--program");
        return MW_EUSAGE;
    }
    return MW_OK;
}

/* A file's operation takes the place of --op. */
static enum mw_status from_file(const struct coll_args *a,
                                struct mw_coll_query *q, struct program *out,
                                struct mw_err *err)
{
    int n = q->n_nodes * q->ranks_per_node;
    enum mw_status s = is_json(a->program)
                           ? mw_oneside_load(a->program, &out->plan, err)
                           : mw_prog_load(a->program, &out->prog, err);
    if (s != MW_OK) {
        return s;
    }
    out->op = out->plan ? mw_oneside_op(out->plan) : out->prog->op;
    out->n_ranks = out->plan ? mw_oneside_ranks(out->plan) : out->prog->n_ranks;
    for (int i = 0; i < MW_COLL_OP_COUNT; i++) {
        if (strcmp(mw_prog_op_name(out->op),
                   mw_coll_op_name((enum mw_coll_op)i)) == 0) {
            q->op = (enum mw_coll_op)i;
        }
    }
    if (out->n_ranks != n) {
        return mw_fail(err, MW_EINPUT,
                       "%s: a program of %d ranks on a group of %d (--nodes, "
                       "--gpus-per-node)",
                       a->program, out->n_ranks, n);
    }
    return out->plan ? mw_oneside_check(out->plan, err)
                     : mw_prog_check(out->prog, err);
}

static enum mw_status get_program(const struct coll_args *a,
                                  const struct mw_coll_world *world,
                                  struct mw_coll_query *q, struct program *out,
                                  struct mw_err *err)
{
    if (q->n_nodes > RANKS_MAX / q->ranks_per_node) {
        return mw_fail(err, MW_EUSAGE, "--program: at most %d ranks",
                       RANKS_MAX);
    }
    for (int i = 0; i < MW_ALGOS; i++) {
        if (strcmp(a->program, mw_prog_algo_name((enum mw_prog_algo)i)) == 0) {
            return built_in(q, world, (enum mw_prog_algo)i, out, err);
        }
    }
    return from_file(a, q, out, err);
}

static enum mw_status write_program(const struct mw_prog *prog,
                                    const char *path, struct mw_err *err)
{
    struct mw_outfile o;
    struct mw_str text = {NULL, 0, 0};
    if (is_json(path)) {
        mw_prog_write_json(prog, &text);
    } else {
        mw_prog_write_xml(prog, &text);
    }
    enum mw_status s = mw_outfile_open(&o, path, err);
    if (s == MW_OK) {
        fwrite(text.s, 1, text.n, o.f);
        s = mw_outfile_commit(&o, err);
    }
    mw_str_release(&text);
    return s;
}

static enum mw_status run_one(const struct program *p,
                              const struct mw_prog_run *run,
                              struct mw_prog_time *out, struct mw_err *err)
{
    if (p->plan) {
        return mw_oneside_simulate(p->plan, run, out, err);
    }
    mw_prog_simulate(p->prog, run, out);
    return MW_OK;
}

static enum mw_status run_sizes(const struct coll_args *a,
                                const struct program *p,
                                const struct mw_topology *topo,
                                const struct mw_coll_query *q,
                                struct coll_rows *rows, struct mw_err *err)
{
    const struct mw_system *system = mw_topology_system(topo, 0);
    int n = q->n_nodes * q->ranks_per_node;
    int *gpu_of_rank = mw_calloc((size_t)n, sizeof *gpu_of_rank);
    for (int r = 0; r < n; r++) {
        gpu_of_rank[r] = mw_topology_first_gpu(topo, r / q->ranks_per_node) +
                         r % q->ranks_per_node;
    }
    enum mw_status s = MW_OK;
    for (double bytes = a->min_bytes; bytes <= a->max_bytes && s == MW_OK;
         bytes = coll_next_size(a, bytes)) {
        struct coll_row row = {.bytes = floor(bytes), .a.ratio = 1};
        struct mw_prog_run run = {.topo = topo,
                                  .gpu_of_rank = gpu_of_rank,
                                  .bytes = row.bytes,
                                  .latency_s = system->intra_alpha_s,
                                  .net_latency_s = system->inter_alpha_s};
        struct mw_prog_time t = {0};
        s = run_one(p, &run, &t, err);
        mw_free(t.finish_s);
        row.a.time_s = t.time_s;
        row.a.algbw_Bps = t.time_s > 0 ? row.bytes / t.time_s : 0;
        row.a.busbw_Bps = row.a.algbw_Bps * mw_coll_bus_factor(q->op, n);
        row.a.source = "a program, message by message";
        mw_array_push(&rows->v, row);
    }
    mw_free(gpu_of_rank);
    return s;
}

enum mw_status coll_program(const struct coll_args *a,
                            const struct mw_coll_world *world,
                            const struct mw_topology *topo,
                            struct mw_coll_query *q, struct coll_rows *rows,
                            struct mw_err *err)
{
    struct program p = {NULL, NULL, MW_PROG_OPS, 0};
    struct mw_topology *plain = NULL;
    enum mw_status s = get_program(a, world, q, &p, err);
    if (s == MW_OK && !topo) {
        struct mw_topology_spec spec = {.n_kinds = 1};
        spec.kind[0].system = mw_coll_world_system(world);
        spec.kind[0].n_nodes = q->n_nodes;
        s = mw_topology_new(&spec, &plain, err);
    }
    if (s == MW_OK && a->write_program && !p.prog) {
        s = mw_fail(err, MW_EUSAGE,
                    "--write-program: an MSCCL++ plan is not written again");
    } else if (s == MW_OK && a->write_program && p.prog->n_switches > 0) {
        s = mw_fail(err, MW_EUSAGE,
                    "--write-program: %s works in the switch, for which MSCCL "
                    "has no steps",
                    a->program);
    } else if (s == MW_OK && a->write_program) {
        s = write_program(p.prog, a->write_program, err);
    }
    if (s == MW_OK) {
        s = run_sizes(a, &p, topo ? topo : plain, q, rows, err);
    }
    mw_topology_free(plain);
    mw_prog_free(p.prog);
    mw_oneside_free(p.plan);
    return s;
}
