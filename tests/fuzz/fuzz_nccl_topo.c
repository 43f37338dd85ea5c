/*
 * NCCL topology files: any bytes are either read or refused with a message;
 * in a machine that is read every pair of GPUs has a usable path, and the
 * searches of a very small one end with usable graphs.
 */
#include "fuzz/fuzz.h"
#include "sim/coll/nccl.h"

#include <math.h>
#include <stdlib.h>

enum { SEARCH_GPUS_MAX = 3, SEARCH_NICS_MAX = 2 };

static void check_pairs(const struct mw_nccl_machine *machine)
{
    int n = mw_nccl_machine_gpus(machine);
    MW_ASSERT(n >= 1 && n <= MW_NCCL_GPUS_MAX, "%d GPUs", n);
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            enum mw_nccl_path path;
            float bw = mw_nccl_machine_gpu_bw(machine, a, b, &path);
            MW_ASSERT(isfinite(bw) && bw >= 0, "%d to %d: %g GB/s", a, b,
                      (double)bw);
            MW_ASSERT(path <= MW_PATH_DIS, "%d to %d: path %d", a, b,
                      (int)path);
        }
    }
}

static void check_graph(const struct mw_nccl_graphs *graphs,
                        const struct mw_nccl_graph *graph)
{
    MW_ASSERT(graph->n_channels >= 0 &&
                  graph->n_channels <= MW_NCCL_CHANNELS_MAX,
              "%d channels", graph->n_channels);
    for (int c = 0; c < graph->n_channels; c++) {
        for (int i = 0; i < graphs->n_gpus; i++) {
            MW_ASSERT(graph->intra[c * graphs->n_gpus + i] < graphs->n_gpus,
                      "channel %d has rank %d", c,
                      graph->intra[c * graphs->n_gpus + i]);
        }
    }
}

static void check_search(const struct mw_nccl_machine *machine, bool is_multi)
{
    struct mw_nccl_graphs *graphs = mw_calloc(1, sizeof *graphs);
    struct mw_nccl_comm *comm = mw_calloc(1, sizeof *comm);
    struct mw_nccl_opts opts;
    struct mw_err err = {0};

    mw_nccl_opts_default(&opts);
    if (mw_nccl_search(machine, is_multi, &opts, graphs, &err) == MW_OK) {
        check_graph(graphs, &graphs->ring);
        check_graph(graphs, &graphs->tree);
        mw_nccl_comm_init(comm, graphs, is_multi ? 4 : 1, &opts);
        for (uint64_t bytes = 4; bytes <= (1ULL << 32); bytes *= 64) {
            struct mw_nccl_choice c = mw_nccl_choose(
                comm, MW_NCCL_ALL_REDUCE, MW_NCCL_FLOAT16, MW_NCCL_SUM, bytes);
            MW_ASSERT(!isnan(c.time_us) && c.n_channels >= 0,
                      "%g us, %d channels", c.time_us, c.n_channels);
        }
    }
    mw_free(comm);
    mw_free(graphs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_nccl_machine *machine = NULL;
    struct mw_err err = {0};

    if (mw_nccl_machine_parse("in.xml", size > 0 ? (const char *)data : "",
                              size, &machine, &err) != MW_OK) {
        MW_ASSERT(machine == NULL && err.n_findings == 1 && err.len > 0,
                  "no message");
        return 0;
    }
    check_pairs(machine);
    if (mw_nccl_machine_gpus(machine) <= SEARCH_GPUS_MAX &&
        mw_nccl_machine_nics(machine) <= SEARCH_NICS_MAX) {
        check_search(machine, false);
        check_search(machine, true);
    }
    mw_nccl_machine_free(machine);
    return 0;
}
