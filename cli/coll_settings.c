/* Version, environment and harness of `meshwright coll`. */
#include "cli/verb_coll.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

static void notice(struct coll_args *a, const char *what, const char *value,
                   const char *taken)
{
    char text[160];
    snprintf(text, sizeof text, "%s %.60s is not known: %s", what, value,
             taken);
    mw_log(MW_LOG_WARN, "coll", "%s", text);
    mw_array_push(&a->notice, mw_strdup(text));
}

enum mw_status coll_settings(struct coll_args *a, struct mw_nccl_opts *opts,
                             struct mw_coll_query *q, struct mw_err *err)
{
    char taken[64];
    mw_nccl_opts_default(opts);
    if (a->nccl_version &&
        !mw_nccl_version_find(a->nccl_version, &opts->version)) {
        snprintf(taken, sizeof taken, "taken as %s",
                 mw_nccl_version_name(opts->version));
        notice(a, "NCCL version", a->nccl_version, taken);
    }
    for (int i = 0; i < a->n_env; i++) {
        if (strchr(a->env[i], '=') && !mw_nccl_env_known(a->env[i])) {
            notice(a, "environment", a->env[i], "left at NCCL's default");
            continue;
        }
        enum mw_status s = mw_nccl_opts_env(opts, a->env[i], err);
        if (s != MW_OK) {
            mw_err_prefix(err, "--env");
            return s;
        }
    }
    if (a->harness && !mw_coll_harness_find(a->harness, &q->harness)) {
        snprintf(taken, sizeof taken, "taken as %s",
                 mw_coll_harness_name(q->harness));
        notice(a, "harness", a->harness, taken);
    }
    return MW_OK;
}

void coll_args_release(struct coll_args *a)
{
    for (size_t i = 0; i < a->notice.n; i++) {
        mw_free(a->notice.v[i]);
    }
    mw_array_release(&a->notice);
}
