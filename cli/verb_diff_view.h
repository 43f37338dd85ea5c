/* How a difference of two plans is shown. */
#ifndef MW_CLI_VERB_DIFF_VIEW_H
#define MW_CLI_VERB_DIFF_VIEW_H

#include "base/json.h"
#include "planner/diff.h"

struct mw_diff_view {
    const struct mw_diff_side *side[2];
    const char *file[2];
    const struct mw_diff *diff;
};

/* "b.yaml is 1.23 times as fast as a.yaml: 4.20 s, not 5.17 s" into buf. */
enum { MW_DIFF_HEADLINE_MAX = 1024 };
const char *mw_diff_headline(const struct mw_diff_view *v,
                             char buf[MW_DIFF_HEADLINE_MAX]);
void mw_diff_view_print(const struct mw_diff_view *v, FILE *f);
/* The caller's reference. */
json_t *mw_diff_view_json(const struct mw_diff_view *v);

#endif
