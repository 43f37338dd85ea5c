/* `plan --mixed`: a pipeline over nodes of different systems. */
#include "cli/plan_say.h"

#include "base/table.h"
#include "base/units.h"
#include "planner/mixed.h"

#include <stdio.h>

static enum mw_status read_systems(const char *text,
                                   struct mw_mixed_system *systems, int *out_n,
                                   struct mw_err *err)
{
    struct mw_cli_pair pairs[MW_CLI_PAIRS_MAX];
    int n = 0;
    enum mw_status status = mw_cli_pairs_like(
        "--mixed", "dgx-h100=4,dgx-a100=8", text, pairs, &n, err);

    if (status == MW_OK && n > MW_MIXED_KINDS_MAX) {
        return mw_fail(err, MW_EUSAGE, "--mixed: at most %d systems",
                       MW_MIXED_KINDS_MAX);
    }
    for (int i = 0; i < n && status == MW_OK; i++) {
        long long nodes = 0;

        status = mw_cli_int("--mixed", pairs[i].value, 1, 1 << 16, &nodes, err);
        systems[i].n_nodes = (int)nodes;
        snprintf(systems[i].name, sizeof systems[i].name, "%s", pairs[i].key);
    }
    *out_n = n;
    return status;
}

static bool has_offload(const struct mw_mixed *m)
{
    for (int i = 0; i < m->pp; i++) {
        if (m->stage[i].offload_optimizer > 0) {
            return true;
        }
    }
    return false;
}

static void print_mixed(const struct mw_mixed *m,
                        const struct mw_mixed_system *systems)
{
    static const char *const names[] = {
        "stage",          "system", "tp",        "ep",
        "GPUs",           "layers", "recompute", "optimizer on host",
        "one micro-batch"};
    struct mw_table *t = mw_table_new();
    char time[MW_FMT_MAX];

    printf("pp %d, dp %d, micro-batch %d: %s for %d micro-batches under 1F1B, "
           "without gradient reduction and optimizer%s\n\n",
           m->pp, m->dp, m->micro_batch,
           mw_fmt_seconds(m->answer.value_s, time), m->n_microbatches,
           has_offload(m) ? " (but for what it takes longer on the host)" : "");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i != 1 && i != 6);
    }
    for (int i = 0; i < m->pp; i++) {
        const struct mw_mixed_stage *s = &m->stage[i];

        mw_table_row(t);
        mw_table_cell(t, "%d", i);
        mw_table_cell(t, "%s", systems[s->kind].name);
        mw_table_cell(t, "%d", s->tp);
        mw_table_cell(t, "%d", s->ep);
        mw_table_cell(t, "%d", s->tp * m->dp);
        mw_table_cell(t, "%d", s->n_layers);
        mw_table_cell(t, "%s", mw_recompute_name(s->recompute));
        mw_table_cell(t, "%g", s->offload_optimizer);
        mw_table_cell(t, "%s", mw_fmt_seconds(s->time_s, time));
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("\n%d columns in %d problems, %s; %s.\n", m->n_columns,
           m->n_problems, mw_fmt_seconds(m->solve_s, time),
           m->is_proved ? "proved best of all tried" : "not proved");
}

static json_t *mixed_json(const struct mw_mixed *m,
                          const struct mw_mixed_system *systems)
{
    json_t *o = json_object(), *list = json_array();

    mw_json_set_int(o, "pp", m->pp);
    mw_json_set_int(o, "dp", m->dp);
    mw_json_set_int(o, "micro_batch", m->micro_batch);
    mw_json_set_real(o, "pipeline_s", m->answer.value_s);
    mw_json_set_bool(o, "proved_optimal", m->is_proved);
    mw_json_set_int(o, "columns", m->n_columns);
    mw_json_set_int(o, "problems", m->n_problems);
    for (int i = 0; i < m->pp; i++) {
        const struct mw_mixed_stage *s = &m->stage[i];
        json_t *stage = json_object();

        mw_json_set_str(stage, "system", systems[s->kind].name);
        mw_json_set_int(stage, "tp", s->tp);
        mw_json_set_int(stage, "ep", s->ep);
        mw_json_set_int(stage, "gpus", s->tp * m->dp);
        mw_json_set_int(stage, "layers", s->n_layers);
        mw_json_set_str(stage, "recompute", mw_recompute_name(s->recompute));
        mw_json_set_real(stage, "offload_optimizer", s->offload_optimizer);
        mw_json_set_real(stage, "time_s", s->time_s);
        mw_json_set_real(stage, "offload_s", s->after_s);
        json_array_append_new(list, stage);
    }
    mw_json_set(o, "stages", list);
    return o;
}

int mw_plan_run_mixed(const struct mw_plan_args *a,
                      const struct mw_scenario *scenario,
                      const struct mw_cost_ctx *ctx)
{
    struct mw_mixed_system systems[MW_MIXED_KINDS_MAX];
    struct mw_mixed *m = mw_calloc(1, sizeof *m);
    struct mw_err err = {0};
    int n = 0, exit_status = 0;
    enum mw_status status = read_systems(a->mixed, systems, &n, &err);

    if (status == MW_OK) {
        status = mw_mixed_find(scenario, ctx->db, a->stack, systems, n,
                               &a->search, a->lp, m, &err);
    }
    if (status != MW_OK) {
        exit_status = mw_cli_fail(&err);
    } else if (a->cli.json) {
        exit_status = mw_cli_print_json(mixed_json(m, systems));
    } else {
        print_mixed(m, systems);
    }
    mw_free(m);
    return exit_status;
}
