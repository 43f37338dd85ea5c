/*
 * Hosts in the order of a plan's ranks: for launchers that take a list. Slurm
 * starts task i on line i of $SLURM_HOSTFILE under --distribution=arbitrary
 * (srun(1)); torchrun's --node-rank is then the task's number.
 */
#include "planner/export/export_int.h"

#include <string.h>

struct host {
    const char *at;
    size_t len;
};
struct hosts {
    struct host *v;
    size_t n, cap;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Lines without the space around them; empty ones are none. */
static void split(const char *text, struct hosts *out)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n"), len = n;
        const char *at = text;

        text += n + (text[n] == '\n');
        while (len > 0 && is_space(*at)) {
            at++;
            len--;
        }
        while (len > 0 && is_space(at[len - 1])) {
            len--;
        }
        if (len > 0) {
            struct host host = {at, len};

            mw_array_push(out, host);
        }
    }
}

static bool same(const struct host *a, const struct host *b)
{
    return a->len == b->len && memcmp(a->at, b->at, a->len) == 0;
}

static enum mw_status check(const char *file, const struct hosts *hosts,
                            int n_nodes, struct mw_err *err)
{
    if (hosts->n != (size_t)n_nodes) {
        return mw_fail(err, MW_EINPUT,
                       "%s: %zu hosts but the scenario's allocation has %d "
                       "nodes; one host a line, in the allocation's order",
                       file, hosts->n, n_nodes);
    }
    for (size_t i = 0; i < hosts->n; i++) {
        for (size_t k = 0; k < i; k++) {
            if (same(&hosts->v[i], &hosts->v[k])) {
                return mw_fail(err, MW_EINPUT,
                               "%s: host %.*s is listed twice; each once", file,
                               (int)hosts->v[i].len, hosts->v[i].at);
            }
        }
    }
    return MW_OK;
}

enum mw_status mw_export_hosts(const char *hosts_file, const char *text,
                               const struct mw_export_in *in,
                               struct mw_export *out, struct mw_err *err)
{
    const struct mw_int_list *nodes = &in->plan->layout.nodes;
    const struct mw_cluster *cluster = &in->scenario->cluster;
    struct hosts hosts = {NULL, 0, 0};
    struct mw_export made = {.file = {NULL, 0, 0}};

    split(text, &hosts);
    enum mw_status status =
        check(hosts_file, &hosts, mw_cluster_allocated(cluster), err);

    for (int i = 0; i < cluster->n_nodes && status == MW_OK; i++) {
        const struct host *h = &hosts.v[nodes->n > 0 ? nodes->v[i] : i];

        mw_str_addf(&made.file, "%.*s\n", (int)h->len, h->at);
    }
    if (status == MW_OK) {
        mw_str_addf(&made.launch,
                    "SLURM_HOSTFILE=%s srun --distribution=arbitrary --nodes "
                    "%d --ntasks %d ...\n",
                    in->file, cluster->n_nodes, cluster->n_nodes);
        *out = made;
    } else {
        mw_export_release(&made);
    }
    mw_array_release(&hosts);
    return status;
}
