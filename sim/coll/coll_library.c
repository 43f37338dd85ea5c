/*
 * Worlds of systems, made when first priced, behind the curves of sim/cost.
 *
 * sim/cost counts scale-up domains (a node, or 72 GPUs of a rack) as nodes; a
 * query counts trays. A group of r ranks in a domain of trays with g GPUs is
 * put on r / p trays of p ranks, p the largest divisor of r that a tray holds:
 * behind an NVLink switch it does not matter which.
 */
#include "sim/coll/coll_library.h"

#include "sim/coll/moe.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* What a world depends on of a system, and its curves. */
struct shelf {
    struct mw_system system;
    struct mw_coll_world *world;
    struct mw_coll_curves *curves; /* NULL: no model */
};

struct library {
    struct mw_coll_library head; /* first: it is what others point to */
    const struct mw_hwdb *db;
    pthread_mutex_t lock;
    MW_ARRAY(struct shelf *) shelf;
    struct mw_moe_table *moe; /* NULL: not read yet, or not there */
    bool has_tried_moe;
};

struct mw_coll_query mw_coll_query_of(const struct mw_system *system,
                                      enum mw_coll_op op, double bytes,
                                      const struct mw_group *group)
{
    int per_domain = (group->n_ranks + group->n_nodes - 1) / group->n_nodes;
    int per_tray = per_domain;

    while (per_tray > system->gpus_per_node || per_domain % per_tray != 0) {
        per_tray--;
    }
    int trays = per_domain / per_tray;

    return (struct mw_coll_query){.op = op,
                                  .bytes = bytes,
                                  .type = MW_NCCL_FLOAT16,
                                  .redop = MW_NCCL_SUM,
                                  .n_nodes = group->n_nodes * trays,
                                  .ranks_per_node = per_tray,
                                  .nic_sharers = group->nic_sharers,
                                  .domain_trays = trays};
}

static bool point(void *owner, enum mw_coll_op op, double bytes,
                  const struct mw_group *group, struct mw_coll_point *out)
{
    struct shelf *s = owner;
    struct mw_coll_query q = mw_coll_query_of(&s->system, op, bytes, group);
    struct mw_coll_answer a;

    if (mw_coll_predict(s->world, MW_COLL_FIT, &q, &a, NULL) != MW_OK) {
        return false;
    }
    out->time_s = a.time_s;
    out->source = a.source;
    out->how[0] = '\0';
    out->n_channels = 0;
    if (a.has_choice) {
        out->n_channels = a.n_channels;
        snprintf(out->how, sizeof out->how, "%s %s, %d channels",
                 mw_nccl_algo_name(a.algo), mw_nccl_proto_name(a.proto),
                 a.n_channels);
    }
    return true;
}

static bool is_alike(const struct mw_system *a, const struct mw_system *b)
{
    return a->n_nics == b->n_nics && a->gpus_per_node == b->gpus_per_node &&
           a->scaleup_gpus == b->scaleup_gpus &&
           !(a->nic_bw_Bps < b->nic_bw_Bps) &&
           !(a->nic_bw_Bps > b->nic_bw_Bps) && strcmp(a->slug, b->slug) == 0 &&
           strcmp(a->inter_class, b->inter_class) == 0;
}

static struct shelf *add_shelf(struct library *lib,
                               const struct mw_system *system)
{
    struct shelf *s = mw_calloc(1, sizeof *s);

    s->system = *system;
    if (!system->gpu->is_cpu &&
        mw_coll_world_of(lib->db, system, NULL, &s->world, NULL) == MW_OK) {
        s->curves = mw_coll_curves_new(point, s);
    }
    mw_array_push(&lib->shelf, s);
    return s;
}

static struct mw_coll_curves *curves_of(struct mw_coll_library *library,
                                        const struct mw_system *system)
{
    struct library *lib = (struct library *)library;
    struct shelf *found = NULL;

    pthread_mutex_lock(&lib->lock);
    for (size_t i = 0; i < lib->shelf.n && found == NULL; i++) {
        if (is_alike(&lib->shelf.v[i]->system, system)) {
            found = lib->shelf.v[i];
        }
    }
    if (found == NULL) {
        found = add_shelf(lib, system);
    }
    pthread_mutex_unlock(&lib->lock);
    return found->curves;
}

/* Multiprocessors that the kernels take: Buffer.num_sms of DeepEP and
 * moe_deepep_num_sms of Megatron-Core. */
enum { EXPERT_SMS = 20 };

static const struct mw_moe_table *moe_of(struct library *lib)
{
    pthread_mutex_lock(&lib->lock);
    if (!lib->has_tried_moe) {
        lib->has_tried_moe = true;
        if (mw_moe_table_load(lib->db, &lib->moe, NULL) != MW_OK) {
            lib->moe = NULL;
        }
    }
    pthread_mutex_unlock(&lib->lock);
    return lib->moe;
}

/* The throughput kernels; an even router, as the step's own bytes are. Racks
 * are left to all-to-alls: stacks take HybridEP there (Megatron-Bridge's
 * recipes for GB200 and GB300), whose kernels have no row. */
static bool experts_s(struct mw_coll_library *library,
                      const struct mw_system *system,
                      const struct mw_expert_exchange *x, double *out_s,
                      const char **out_source)
{
    const struct mw_moe_table *table = moe_of((struct library *)library);
    struct mw_moe_traffic traffic = {.n_experts = x->n_experts,
                                     .top_k = x->top_k,
                                     .n_ranks = x->group.n_ranks,
                                     .ranks_per_node = x->group.ranks_per_node,
                                     .n_nodes_max = x->node_limit,
                                     .routing = MW_MOE_UNIFORM};
    struct mw_moe_query query = {.kernel = MW_MOE_NORMAL,
                                 .tokens_per_rank = x->token_bytes,
                                 .hidden = 1,
                                 .dispatch_bytes = 1,
                                 .combine_bytes = 1,
                                 .sms = EXPERT_SMS};
    struct mw_moe_time t;

    if (table == NULL || system->scaleup_gpus > system->gpus_per_node ||
        !mw_moe_is_measured(table, system, query.kernel, x->group.n_nodes) ||
        mw_moe_predict(table, system, &traffic, &query, &t, NULL) != MW_OK) {
        return false;
    }
    *out_s = x->is_return ? t.balanced_combine_s : t.balanced_dispatch_s;
    *out_source = t.source;
    return true;
}

static void library_free(struct mw_hwdb_loan *loan)
{
    struct library *lib = (struct library *)loan;

    for (size_t i = 0; i < lib->shelf.n; i++) {
        mw_coll_curves_free(lib->shelf.v[i]->curves);
        mw_coll_world_free(lib->shelf.v[i]->world);
        mw_free(lib->shelf.v[i]);
    }
    mw_array_release(&lib->shelf);
    mw_moe_table_free(lib->moe);
    pthread_mutex_destroy(&lib->lock);
    mw_free(lib);
}

void mw_coll_library_lend(struct mw_hwdb *db)
{
    struct library *lib = mw_calloc(1, sizeof *lib);

    lib->head.loan.free = library_free;
    lib->head.curves_of = curves_of;
    lib->head.experts_s = experts_s;
    lib->db = db;
    pthread_mutex_init(&lib->lock, NULL);
    mw_hwdb_lend(db, &lib->head.loan);
}
