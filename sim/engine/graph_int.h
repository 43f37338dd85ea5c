/* Private to sim/engine: what a task graph keeps. */
#ifndef MW_SIM_ENGINE_GRAPH_INT_H
#define MW_SIM_ENGINE_GRAPH_INT_H

#include "sim/engine/engine.h"

struct edge {
    mw_task_id before, after;
    mw_time lag_ps;
};

struct out_edge {
    mw_time lag_ps;
    mw_task_id after;
};

struct wire_use {
    mw_task_id task;
    mw_wire_id wire;
    double part;
};

struct mw_graph {
    MW_ARRAY(mw_time) duration_ps; /* per task */
    MW_ARRAY(uint64_t) tag;        /* per task */
    MW_ARRAY(mw_task_id) last;     /* per stream: last task added to it */
    MW_ARRAY(struct edge) edges;
    uint32_t n_wires;
    MW_ARRAY(struct wire_use) uses;
    mw_time alone_ps; /* end of the last run without sharing */
    /* Made by the run, kept for the next one. */
    MW_ARRAY(uint32_t) waits; /* per task: predecessors not ended yet */
    MW_ARRAY(uint32_t) first; /* per task: its first outgoing edge */
    MW_ARRAY(struct out_edge) out;
    MW_ARRAY(mw_task_id) ready; /* in topological order as the run goes */
};

/* wires.c: starts and ends of a run without sharing become those with it; adds
 * the events it took. Edges are sorted (g->first, g->out). */
enum mw_status mw_graph_share_wires(struct mw_graph *g, mw_time *start_ps,
                                    mw_time *end_ps, uint64_t *n_events,
                                    struct mw_err *err);
/* graph.c: MW_EFAILED naming the task. */
enum mw_status mw_graph_fail_overflow(const struct mw_graph *g, mw_task_id t,
                                      struct mw_err *err);

#endif
