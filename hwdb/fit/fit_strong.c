/*
 * Strong scaling: one job on more and more GPUs. The layouts are a rule's, so
 * only the slope counts: how much of its MFU the largest run loses against the
 * smallest.
 *
 *   MFU = model FLOPs / (time x GPUs x peak)
 *
 * No row of it is in the fit.
 */
#include "hwdb/fit/fit_report.h"

void mw_fit_doc_strong(const struct mw_fit *f, FILE *out)
{
    const struct mw_validate *v = f->v;
    double first[2] = {0, 0}, last[2] = {0, 0};

    fprintf(out, "| row | layout | MFU measured | predicted |\n"
                 "|---|---|--:|--:|\n");
    for (size_t i = 0; i < v->rows.n; i++) {
        const struct mw_validate_row *r = &v->rows.v[i];

        if (r->skipped != NULL ||
            (r->fills >> MW_FILL_STRONG_SCALING & 1) == 0) {
            continue;
        }
        last[0] = 100 * r->full_rate_s / r->measured_s;
        last[1] = 100 * r->full_rate_s / mw_validate_again(f->v, i);
        for (int k = 0; k < 2 && !(first[1] > 0); k++) {
            first[k] = last[k];
        }
        fprintf(out, "| %s | %s | %.1f %% | %.1f %% |\n", r->id, r->layout,
                last[0], last[1]);
    }
    fprintf(out,
            "| **lost from the first to the last** | | **%.1f points** | "
            "**%.1f points** |\n",
            first[0] - last[0], first[1] - last[1]);
}
