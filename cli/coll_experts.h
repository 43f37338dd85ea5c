/* `meshwright coll --experts`: options and what they do. */
#ifndef MW_CLI_COLL_EXPERTS_H
#define MW_CLI_COLL_EXPERTS_H

#include "cli/verb_coll.h"

/* A child of the verb's options; its input is a struct coll_experts. */
extern const struct argp coll_experts_argp;
void coll_experts_init(struct coll_experts *e);

/* Prints the loads of the ranks and the times of both phases; MW_EUSAGE for
 * experts that do not divide over the ranks of the query. */
enum mw_status coll_experts(struct coll_args *a, const struct mw_hwdb *db,
                            const struct mw_system *system,
                            const struct mw_coll_query *q, int *out_rc,
                            struct mw_err *err);

#endif
