/*
 * MSCCL++ execution plans: collectives of one-sided steps. Threadblocks copy
 * into and out of the buffers of other ranks (put, get), reduce, and tell each
 * other by signal and wait; the JSON form is read, checked on symbols like a
 * program of sends and receives (sim/coll/program.h), run over a topology, and
 * written for a program.
 *
 * Known: nop barrier put pws pwsf get copy signal rlxsignal wait rlxwait flush
 * re res rre rres sem_acquire sem_release and packets (ppkt rppkt cpkt upkt
 * repkt respkt recpkt recspkt: reading packets waits for the data). Refused by
 * name: glres and channels of switches, pipeline, groups of threadblocks.
 * Puts over ports are taken as finished when the data has left, so that flush
 * costs nothing. The check runs one order of events; it does not search for
 * races.
 *
 * Source: MSCCL++ 0.9 (microsoft/mscclpp), src/executor/execution_plan.cc and
 * execution_kernel.hpp; Cowan et al., arXiv 2504.09014.
 */
#ifndef MW_SIM_COLL_ONESIDED_H
#define MW_SIM_COLL_ONESIDED_H

#include "sim/coll/program.h"

enum { MW_PLAN_SIZE_MAX = 64 << 20 };

struct mw_oneside;

/* Errors name the file and "gpus[R].threadblocks[B].ops[K]". */
enum mw_status mw_oneside_load(const char *path, struct mw_oneside **out,
                               struct mw_err *err);
enum mw_status mw_oneside_parse(const char *name, const char *text, size_t len,
                                struct mw_oneside **out, struct mw_err *err);
void mw_oneside_free(struct mw_oneside *plan);
int mw_oneside_ranks(const struct mw_oneside *plan);
enum mw_prog_op mw_oneside_op(const struct mw_oneside *plan);

/* MW_EINPUT naming rank, threadblock and step: read before the write, a
 * contribution lost or twice, outside a buffer, waiting for ever. */
enum mw_status mw_oneside_check(const struct mw_oneside *plan,
                                struct mw_err *err);
/* As mw_prog_simulate. MW_EINPUT as for the check, which the times of a
 * topology may break where steps race. */
enum mw_status mw_oneside_simulate(const struct mw_oneside *plan,
                                   const struct mw_prog_run *run,
                                   struct mw_prog_time *out,
                                   struct mw_err *err);

#endif
