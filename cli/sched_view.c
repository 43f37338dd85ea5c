/* `meshwright sched`: one schedule as JSON and as tables. */
#include "cli/sched.h"

#include "base/table.h"
#include "base/units.h"

#include <stdio.h>

static const char *objective_name(const struct mw_sched_ask *a)
{
    return a->objective == MW_OBJECTIVE_SPAN ? "span" : "makespan";
}

static json_t *order_json(const struct mw_schedule *s)
{
    json_t *order = json_array();

    for (int d = 0; d < s->n_stages; d++) {
        json_t *list = json_array();

        for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
            char name[MW_SLOT_NAME_MAX];

            json_array_append_new(
                list, json_string(mw_slot_name(s, &s->slot[i], name)));
        }
        json_array_append_new(order, list);
    }
    return order;
}

static json_t *stages_json(const struct mw_sched_made *m)
{
    json_t *list = json_array();

    for (int d = 0; d < m->s.n_stages; d++) {
        const struct mw_pipe_stage_stats *x = &m->stats.stage[d];
        json_t *o = json_object();

        mw_json_set_real(o, "busy_s", mw_time_to_s(x->busy_ps));
        mw_json_set_real(o, "span_s", mw_time_to_s(x->span_ps));
        mw_json_set_real(o, "exposed_transfer_s", mw_time_to_s(x->exposed_ps));
        mw_json_set_real(o, "peak_activations", x->peak);
        mw_json_set_real(o, "peak_bytes", x->peak_bytes);
        mw_json_set_int(o, "sends", (long long)x->n_sends);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *peaks_json(const struct mw_sched_made *m)
{
    json_t *list = json_array();

    for (int d = 0; d < m->s.n_stages; d++) {
        json_array_append_new(list, mw_json_real(m->stats.stage[d].peak));
    }
    return list;
}

json_t *mw_sched_json(const struct mw_sched_ask *a,
                      const struct mw_sched_made *m)
{
    json_t *o = json_object();

    mw_json_set_str(o, "kind", m->s.name);
    mw_json_set_str(o, "objective", objective_name(a));
    mw_json_set_str(o, "memory_model", mw_sched_memory_model(a));
    mw_json_set_real(o, "w_share", mw_sched_w_share(a));
    mw_json_set_int(o, "stages", m->s.n_stages);
    mw_json_set_int(o, "microbatches", m->s.n_microbatches);
    mw_json_set_int(o, "chunks", m->s.n_chunks);
    mw_json_set_str(o, "placement", mw_placement_name(m->s.placement));
    mw_json_set_real(o, "makespan_s", mw_time_to_s(m->run.makespan_ps));
    mw_json_set_real(o, "span_s", mw_time_to_s(m->run.longest_span_ps));
    mw_json_set_real(o, "bubble_rate_makespan", m->stats.bubble_makespan);
    mw_json_set_real(o, "bubble_rate_span", m->stats.bubble_span);
    mw_json_set_real(o, "lower_bound_s", mw_time_to_s(m->bound_ps));
    mw_json_set_str(o, "lower_bound_by", m->bound_by);
    mw_json_set_bool(o, "proved_optimal", m->is_proved);
    mw_json_set(o, "peak_activations", peaks_json(m));
    mw_json_set_real(o, "exposed_transfer_s",
                     mw_time_to_s(m->stats.exposed_ps));
    mw_json_set_int(o, "sends", (long long)m->stats.n_sends);
    mw_json_set_real(o, "sent_bytes", m->stats.sent_bytes);
    mw_json_set_int(o, "send_buffers", mw_schedule_send_buffers(&m->s));
    mw_json_set_real(o, "solve_time_s", m->solve_time_s);
    mw_json_set_str(o, "solver", m->solver);
    mw_json_set(o, "stage", stages_json(m));
    if (a->order) {
        mw_json_set(o, "order", order_json(&m->s));
    }
    return o;
}

static void print_stages(const struct mw_sched_ask *a,
                         const struct mw_sched_made *m)
{
    struct mw_table *t = mw_table_new();

    mw_table_col(t, "stage", true);
    mw_table_col(t, "busy", true);
    mw_table_col(t, "span", true);
    mw_table_col(t, "waits for transfers", true);
    mw_table_col(t, "peak activations", true);
    if (a->activation_bytes > 0) {
        mw_table_col(t, "peak memory", true);
    }
    for (int d = 0; d < m->s.n_stages; d++) {
        const struct mw_pipe_stage_stats *x = &m->stats.stage[d];
        char buf[MW_FMT_MAX];

        mw_table_row(t);
        mw_table_cell(t, "%d", d);
        mw_table_cell(t, "%s", mw_fmt_seconds(mw_time_to_s(x->busy_ps), buf));
        mw_table_cell(t, "%s", mw_fmt_seconds(mw_time_to_s(x->span_ps), buf));
        mw_table_cell(t, "%s",
                      mw_fmt_seconds(mw_time_to_s(x->exposed_ps), buf));
        mw_table_cell(t, "%.4g", x->peak);
        if (a->activation_bytes > 0) {
            mw_table_cell(t, "%s", mw_fmt_bytes(x->peak_bytes, buf));
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static void print_order(const struct mw_schedule *s)
{
    for (int d = 0; d < s->n_stages; d++) {
        struct mw_str text = {0};

        mw_schedule_format(s, d, &text);
        printf("%s%d: %s\n", d == 0 ? "\n" : "", d, text.s);
        mw_str_release(&text);
    }
}

void mw_sched_print(const struct mw_sched_ask *a, const struct mw_sched_made *m)
{
    mw_time value = mw_sched_value(a, m);
    double gap = (double)value / (double)m->bound_ps - 1;
    int buffers = mw_schedule_send_buffers(&m->s);
    char x[MW_FMT_MAX], y[MW_FMT_MAX], z[MW_FMT_MAX];

    printf("%s: %d stages, %d micro-batches, %d chunk%s per stage (%s)\n",
           m->s.name, m->s.n_stages, m->s.n_microbatches, m->s.n_chunks,
           m->s.n_chunks == 1 ? "" : "s", mw_placement_name(m->s.placement));
    printf("makespan %s, bubble %.2f %%; longest stage %s, bubble %.2f %%\n",
           mw_fmt_seconds(mw_time_to_s(m->run.makespan_ps), x),
           100 * m->stats.bubble_makespan,
           mw_fmt_seconds(mw_time_to_s(m->run.longest_span_ps), y),
           100 * m->stats.bubble_span);
    if (m->is_proved) {
        printf("proved optimal (%s; bound: %s)\n", objective_name(a),
               m->bound_by);
    } else {
        printf("no order of this placement and memory is below %s (%s bound): "
               "within %.2f %%\n",
               mw_fmt_seconds(mw_time_to_s(m->bound_ps), z), m->bound_by,
               100 * gap);
    }
    printf("found by %s; memory model %s; sends: %s\n\n", m->solver,
           mw_sched_memory_model(a),
           buffers == 0   ? "may block"
           : buffers == 1 ? "need one buffer"
                          : "need several buffers");
    print_stages(a, m);
    if (a->order) {
        print_order(&m->s);
    }
}
