/* Which part of a grid this process takes: an option's, or its batch system's.
 */
#include "planner/sweep.h"

#include "base/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An integer of the environment; `absent` where it is not set. */
static bool read_env(const char *name, int64_t absent, int64_t *out)
{
    const char *text = name ? getenv(name) : NULL;

    *out = absent;
    return !text || mw_int_parse(text, out, NULL) == MW_OK;
}

/* Names of the environment: this process's number, the first one, the distance
 * of two, how many there are. */
struct source {
    const char *index, *first, *step, *count;
};
static const struct source sources[] = {
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP",
     "SLURM_ARRAY_TASK_COUNT"},
    {"OMPI_COMM_WORLD_RANK", NULL, NULL, "OMPI_COMM_WORLD_SIZE"},
    {"SLURM_PROCID", NULL, NULL, "SLURM_NTASKS"}};

/* An array 1-9:4 has the tasks 1, 5 and 9. Lists (1,2,7) have no distance: a
 * number that is not on the grid is refused, for no point must be left out. */
static enum mw_status from_env(const struct source *s, int *out_shard,
                               int *out_n, struct mw_err *err)
{
    int64_t i, first, step, n;

    if (!read_env(s->index, -1, &i) || !read_env(s->first, 0, &first) ||
        !read_env(s->step, 1, &step) || !read_env(s->count, 0, &n) ||
        step < 1 || n < 1 || n > 1 << 20 || (i - first) % step != 0 ||
        i < first || (i - first) / step >= n) {
        return mw_fail(err, MW_EUSAGE,
                       "--shard auto: %s '%s' of %s '%s' is no task of an "
                       "evenly spaced array, as in 1-8 or 0-14:2; --shard I/N "
                       "says it",
                       s->index, getenv(s->index), s->count, getenv(s->count));
    }
    *out_shard = (int)((i - first) / step) + 1;
    *out_n = (int)n;
    return MW_OK;
}

static enum mw_status from_any(int *out_shard, int *out_n, struct mw_err *err)
{
    for (size_t k = 0; k < sizeof sources / sizeof sources[0]; k++) {
        if (getenv(sources[k].index) && getenv(sources[k].count)) {
            return from_env(&sources[k], out_shard, out_n, err);
        }
    }
    return mw_fail(err, MW_EUSAGE,
                   "--shard auto: neither SLURM_ARRAY_TASK_ID, "
                   "OMPI_COMM_WORLD_RANK nor SLURM_PROCID is set");
}

enum mw_status mw_sweep_shard(const char *text, int *out_shard, int *out_n,
                              struct mw_err *err)
{
    const char *slash = strchr(text, '/');
    char head[32] = "";
    int64_t i = 0, n = 0;

    if (strcmp(text, "auto") == 0) {
        return from_any(out_shard, out_n, err);
    }
    if (slash && slash - text < (long)sizeof head) {
        snprintf(head, sizeof head, "%.*s", (int)(slash - text), text);
    }
    if (!slash || mw_int_parse(head, &i, NULL) != MW_OK ||
        mw_int_parse(slash + 1, &n, NULL) != MW_OK || i < 1 || n < i ||
        n > 1 << 20) {
        return mw_fail(err, MW_EUSAGE,
                       "--shard: '%s' is not I/N with 1 <= I <= N, as in 3/8",
                       text);
    }
    *out_shard = (int)i;
    *out_n = (int)n;
    return MW_OK;
}
