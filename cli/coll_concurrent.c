/* `meshwright coll --concurrent` and `--topology`: several collectives at the
 * same time, and the fabric under them. */
#include "cli/verb_coll.h"

#include "base/table.h"

#include <stdio.h>
#include <string.h>

enum { JOBS_MAX = 16 };

enum mw_status coll_topology(const struct coll_args *a,
                             const struct mw_hwdb *db,
                             const struct mw_coll_query *q,
                             struct mw_topology **out, struct mw_err *err)
{
    if (!a->topology) {
        *out = NULL;
        return MW_OK;
    }
    struct mw_str text = {NULL, 0, 0};
    struct mw_topology_spec spec;
    mw_str_addf(&text, "%s x %d, %s", a->system, q->n_nodes, a->topology);
    enum mw_status s = mw_topology_parse(db, text.s, &spec, err);
    if (s == MW_OK) {
        s = mw_topology_new(&spec, out, err);
    }
    mw_str_release(&text);
    if (s != MW_OK) {
        mw_err_prefix(err, "--topology");
        return MW_EUSAGE;
    }
    return MW_OK;
}

/* "all_to_all:256M" or "all_reduce". */
static enum mw_status parse_job(const char *text, size_t len,
                                const struct coll_args *a,
                                struct mw_coll_query *q, struct mw_err *err)
{
    char part[64];
    snprintf(part, sizeof part, "%.*s", (int)(len < 63 ? len : 63), text);
    char *colon = strchr(part, ':');
    if (colon) {
        *colon = '\0';
    }
    q->bytes = a->max_bytes;
    bool found = false;
    for (int i = 0; i < MW_COLL_OP_COUNT && !found; i++) {
        found = strcmp(part, mw_coll_op_name((enum mw_coll_op)i)) == 0;
        q->op = found ? (enum mw_coll_op)i : q->op;
    }
    if (!found || (colon && !coll_size_parse(colon + 1, &q->bytes))) {
        return mw_fail(err, MW_EUSAGE,
                       "--concurrent: '%.*s' is not OP or OP:SIZE; for example "
                       "all_to_all:256M",
                       (int)len, text);
    }
    return MW_OK;
}

static enum mw_status parse_jobs(const struct coll_args *a,
                                 const struct mw_coll_query *q,
                                 struct mw_coll_job jobs[JOBS_MAX],
                                 size_t *out_n, struct mw_err *err)
{
    size_t n = 1;
    jobs[0] = (struct mw_coll_job){.query = *q};
    jobs[0].query.bytes = a->max_bytes;
    const char *p = a->concurrent;
    while (*p) {
        size_t len = strcspn(p, ",");
        if (n == JOBS_MAX) {
            return mw_fail(err, MW_EUSAGE, "--concurrent: more than %d",
                           JOBS_MAX - 1);
        }
        jobs[n] = (struct mw_coll_job){.query = *q};
        enum mw_status s = parse_job(p, len, a, &jobs[n].query, err);
        if (s != MW_OK) {
            return s;
        }
        n++;
        p += len + (p[len] == ',');
    }
    *out_n = n;
    return MW_OK;
}

static void print_people(const struct mw_coll_job *jobs,
                         const struct mw_coll_job_time *t, size_t n)
{
    struct mw_table *table = mw_table_new();
    mw_table_col(table, "op", false);
    mw_table_col(table, "size", true);
    mw_table_col(table, "alone us", true);
    mw_table_col(table, "together us", true);
    mw_table_col(table, "slower", true);
    for (size_t i = 0; i < n; i++) {
        mw_table_row(table);
        mw_table_cell(table, "%s", mw_coll_op_name(jobs[i].query.op));
        mw_table_cell(table, "%.0f", jobs[i].query.bytes);
        mw_table_cell(table, "%.1f", t[i].alone_s * 1e6);
        mw_table_cell(table, "%.1f", t[i].end_s * 1e6);
        mw_table_cell(table, "%.2fx", t[i].end_s / t[i].alone_s);
    }
    mw_table_print(table, stdout);
    mw_table_free(table);
}

static int print_json(const struct mw_coll_job *jobs,
                      const struct mw_coll_job_time *t, size_t n)
{
    json_t *o = json_object(), *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *j = json_object();
        mw_json_set_str(j, "op", mw_coll_op_name(jobs[i].query.op));
        mw_json_set_real(j, "bytes", jobs[i].query.bytes);
        mw_json_set_real(j, "alone_s", t[i].alone_s);
        mw_json_set_real(j, "together_s", t[i].end_s);
        mw_json_set_real(j, "slowdown", t[i].end_s / t[i].alone_s);
        json_array_append_new(list, j);
    }
    mw_json_set(o, "concurrent", list);
    return mw_cli_print_json(o);
}

enum mw_status coll_concurrent(const struct coll_args *a,
                               const struct mw_hwdb *db,
                               struct mw_coll_world *world,
                               const struct mw_coll_query *q, int *out_rc,
                               struct mw_err *err)
{
    struct mw_coll_job jobs[JOBS_MAX];
    struct mw_coll_job_time times[JOBS_MAX];
    struct mw_topology *topo = NULL;
    size_t n = 0;
    enum mw_status s = parse_jobs(a, q, jobs, &n, err);
    if (s == MW_OK) {
        s = coll_topology(a, db, q, &topo, err);
    }
    if (s == MW_OK) {
        s = mw_coll_event_run(world, topo, jobs, n, times, err);
    }
    mw_topology_free(topo);
    if (s == MW_OK && a->cli.json) {
        *out_rc = print_json(jobs, times, n);
    } else if (s == MW_OK) {
        print_people(jobs, times, n);
    }
    return s;
}
