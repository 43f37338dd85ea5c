/* The report of the program coll_fit. */
#ifndef MW_SIM_COLL_COLL_FIT_REPORT_H
#define MW_SIM_COLL_COLL_FIT_REPORT_H

#include "sim/coll/coll_fit.h"

#include <stdio.h>

struct coll_fit_report_opts {
    enum mw_coll_group by; /* what is left out together */
    bool with_event, is_markdown;
    FILE *out;
};
/* Median |error| / of messages of 1 MiB and more, in percent: NCCL's model,
 * fitted, left out, event; per campaign and per class. Leaves the atlas with
 * the corrections of the last group left out. */
void coll_fit_report(struct mw_coll_atlas *atlas,
                     const struct mw_coll_rows *rows,
                     const struct mw_coll_learn *learn,
                     const struct coll_fit_report_opts *opts);

#endif
