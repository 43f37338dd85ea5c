/* Which part of a grid this process takes: an option's, or its batch system's.
 */
#include "planner/sweep.h"

#include "base/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool from_env(const char *index, const char *first, const char *count,
                     int *out_shard, int *out_n)
{
    const char *i_text = getenv(index), *n_text = getenv(count);
    const char *first_text = first ? getenv(first) : "0";
    int64_t i = 0, n = 0, at = 0;

    if (!i_text || !n_text || mw_int_parse(i_text, &i, NULL) != MW_OK ||
        mw_int_parse(n_text, &n, NULL) != MW_OK ||
        mw_int_parse(first_text ? first_text : "0", &at, NULL) != MW_OK ||
        n < 1 || n > 1 << 20 || i - at < 0 || i - at >= n) {
        return false;
    }
    *out_shard = (int)(i - at) + 1;
    *out_n = (int)n;
    return true;
}

enum mw_status mw_sweep_shard(const char *text, int *out_shard, int *out_n,
                              struct mw_err *err)
{
    const char *slash = strchr(text, '/');
    char head[32] = "";
    int64_t i = 0, n = 0;

    if (strcmp(text, "auto") == 0) {
        return from_env("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN",
                        "SLURM_ARRAY_TASK_COUNT", out_shard, out_n) ||
                       from_env("OMPI_COMM_WORLD_RANK", NULL,
                                "OMPI_COMM_WORLD_SIZE", out_shard, out_n) ||
                       from_env("SLURM_PROCID", NULL, "SLURM_NTASKS", out_shard,
                                out_n)
                   ? MW_OK
                   : mw_fail(err, MW_EUSAGE,
                             "--shard auto: neither SLURM_ARRAY_TASK_ID, "
                             "OMPI_COMM_WORLD_RANK nor SLURM_PROCID is set");
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
