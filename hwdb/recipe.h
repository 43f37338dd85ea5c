/*
 * Published recipes: what a vendor's own launch scripts set for the runs of its
 * tables that the tables do not print. One row a run: framework, versions
 * [from_version, to_version), model, device, precision and layout say which it
 * is, the rest what was set. An empty setting is one that the recipe leaves to
 * somebody else; `unsaid` names those that a layout has no key for.
 *
 *   r = mw_hwdb_recipe(db, &(struct mw_recipe_run){
 *           "megatron-bridge", "26.04.01", "deepseekv3", "b200-sxm", "fp8-mx",
 *           .tp = 1, .pp = 8, .cp = 1, .ep = 32, .micro_batch = 1});
 *   r->recompute     "mla_up_proj;mlp"
 *   r->source        file and commit where it is written
 *
 * Files are cited at the stored version whose layout is that of the release's
 * table; the table of a release names no commit.
 */
#ifndef MW_HWDB_RECIPE_H
#define MW_HWDB_RECIPE_H

#include "hwdb/hwdb.h"

struct mw_recipe {
    const char *framework, *from_version, *to_version;
    const char *model; /* names, ';' between them */
    const char *gpu;   /* slug */
    const char *dtype; /* bf16, fp8 (per tensor or block), fp8-mx, fp4 */
    int64_t tp, pp, cp, ep, micro_batch;
    const char *recompute;    /* "": unsaid; none, full, or modules of
                                 Megatron-Core's --recompute-modules, ';' between
                                 them */
    int64_t recompute_layers; /* of full: the first so many of each stage */
    int64_t offload_layers;   /* whose activations go to the host's memory */
    const char *cuda_graph; /* "": unsaid; none, attn, layer, full_iteration */
    const char *dispatcher; /* "": unsaid; alltoall, deepep, hybridep */
    double capacity_factor; /* experts padded to it; NaN: no token is dropped */
    const char *unsaid;     /* what a layout cannot say */
    const char *confidence, *source, *note;
};

/* The run that is looked for; texts in any case. */
struct mw_recipe_run {
    const char *framework, *version, *model, *gpu, *dtype;
    int tp, pp, cp, ep, micro_batch;
};

/* The recipe of a run, NULL when none is known: every cell must be the run's,
 * but for chunks of a stage, which no setting depends on. O(rows); what is
 * returned lives as long as db. */
const struct mw_recipe *mw_hwdb_recipe(const struct mw_hwdb *db,
                                       const struct mw_recipe_run *run);
/* i-th recipe in the order of the table, NULL past the end. */
const struct mw_recipe *mw_hwdb_recipe_at(const struct mw_hwdb *db, size_t i);

#endif
