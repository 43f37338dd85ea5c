/*
 * Errors of predicted memory by group of rows and kind of figure. A figure is
 * what a source says of one run; runs that are near copies of one another count
 * each.
 */
#include "sim/validate/validate_int.h"

#include "base/stats.h"

#include <math.h>
#include <string.h>

void mw_memory_stats(const double *ratio, size_t n, struct mw_memory_group *out)
{
    double *ape = mw_calloc(n + 1, sizeof *ape);
    double bias = 0;

    for (size_t i = 0; i < n; i++) {
        ape[i] = fabs(ratio[i] - 1);
        bias += ratio[i] - 1;
    }
    out->rows = n;
    out->mape = mw_mean(ape, n);
    out->bias = n > 0 ? bias / (double)n : (double)NAN;
    out->median_ape = mw_median(ape, n);
    out->p90_ape = mw_quantile(ape, n, 0.9);
    out->p99_ape = mw_quantile(ape, n, 0.99);
    mw_free(ape);
}

struct ratios {
    double *v;
    size_t n, cap;
};

/* group NULL: all of them. */
static void collect(const struct mw_validate *v, const char *group,
                    enum mw_memory_kind kind, struct ratios *out)
{
    mw_array_clear(out);
    for (size_t i = 0; i < v->rows.n; i++) {
        const struct mw_validate_row *r = &v->rows.v[i];

        for (int k = 0; r->skipped == NULL && k < r->n_memory; k++) {
            const struct mw_validate_memory *m = &r->memory[k];

            if (group == NULL ||
                (m->kind == kind && strcmp(r->group, group) == 0)) {
                mw_array_push(out, m->predicted_bytes / m->measured_bytes);
            }
        }
    }
}

static bool is_known(const struct mw_validate *v, const char *group,
                     enum mw_memory_kind kind)
{
    for (size_t g = 0; g < v->memory.n; g++) {
        if (v->memory.v[g].kind == kind &&
            strcmp(v->memory.v[g].name, group) == 0) {
            return true;
        }
    }
    return false;
}

static void add_groups_of(struct mw_validate *v,
                          const struct mw_validate_row *r,
                          struct ratios *ratios)
{
    for (int k = 0; r->skipped == NULL && k < r->n_memory; k++) {
        struct mw_memory_group group = {.name = r->group,
                                        .kind = r->memory[k].kind};

        if (!is_known(v, group.name, group.kind)) {
            collect(v, group.name, group.kind, ratios);
            mw_memory_stats(ratios->v, ratios->n, &group);
            mw_array_push(&v->memory, group);
        }
    }
}

void mw_validate_finish_memory(struct mw_validate *v)
{
    struct ratios ratios = {0};

    mw_array_clear(&v->memory);
    for (size_t i = 0; i < v->rows.n; i++) {
        add_groups_of(v, &v->rows.v[i], &ratios);
    }
    collect(v, NULL, MW_MEMORY_ALLOCATED, &ratios);
    v->memory_overall = (struct mw_memory_group){.name = "overall"};
    mw_memory_stats(ratios.v, ratios.n, &v->memory_overall);
    mw_array_release(&ratios);
}
