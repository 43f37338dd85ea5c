/* Private to sim/coll: rows of the table of dispatch and combine kernels. */
#ifndef MW_SIM_COLL_MOE_INT_H
#define MW_SIM_COLL_MOE_INT_H

#include "sim/coll/moe.h"

struct moe_row {
    const char *kernel, *arch;
    int64_t nodes, sms;
    double dispatch_alpha_s, dispatch_Bps, combine_alpha_s, combine_Bps;
};
struct mw_moe_table {
    struct mw_arena arena;
    const struct moe_row *row;
    size_t n;
};

#endif
