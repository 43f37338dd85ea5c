/* A plan as one page: what `report` writes. */
#ifndef MW_CLI_REPORT_PAGE_H
#define MW_CLI_REPORT_PAGE_H

#include "planner/diff.h"
#include "plots/page.h"

struct mw_report {
    const char *file;          /* plan or scenario, as given */
    struct mw_diff_side *side; /* simulated */
    const struct mw_explain *explain;
    const double *share;          /* [MW_RESOURCE_COUNT] */
    struct mw_timeline *measured; /* or NULL */
};
/* Builds the whole page; save or release it. */
void mw_report_page(const struct mw_report *r, struct mw_page *page);

#endif
