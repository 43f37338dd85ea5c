/* How `plan` shows the ways to cut racks into scale-up domains. */
#include "cli/plan_view.h"

#include "base/table.h"
#include "base/units.h"

#include <stdio.h>

static void set_json(const struct mw_domains *d, json_t *json)
{
    json_t *list = json_array();

    for (int i = 0; i < d->n; i++) {
        const struct mw_domain_choice *c = &d->choice[i];
        json_t *o = json_object();

        mw_json_set_int(o, "domain_nodes", c->domain_nodes);
        mw_json_set_int(o, "gpus", c->n_gpus);
        mw_json_set_int(o, "spare_nodes", c->spare_nodes);
        mw_json_set_bool(o, "feasible", c->step_time_s > 0);
        mw_json_set_real(o, "step_time_s", c->step_time_s);
        mw_json_set_bool(o, "proved", c->is_proved);
        json_array_append_new(list, o);
    }
    mw_json_set(json, "domains", list);
    mw_json_set_bool(json, "domains_proved", d->is_proved);
}

void mw_plan_view_domains(const struct mw_domains *d, json_t *json,
                          bool is_shown)
{
    static const char *const names[] = {"nodes in a domain", "GPUs", "stand by",
                                        "best step", ""};

    if (d->n > 0 && json) {
        set_json(d, json);
        return;
    }
    if (d->n == 0 || !is_shown) {
        return;
    }
    struct mw_table *t = mw_table_new();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i < 4);
    }
    for (int i = 0; i < d->n; i++) {
        const struct mw_domain_choice *c = &d->choice[i];
        char time[MW_FMT_MAX];

        mw_table_row(t);
        mw_table_cell(t, "%d", c->domain_nodes);
        mw_table_cell(t, "%d", c->n_gpus);
        mw_table_cell(t, "%d", c->spare_nodes);
        mw_table_cell(t, "%s",
                      c->step_time_s > 0 ? mw_fmt_seconds(c->step_time_s, time)
                                         : "none fits");
        mw_table_cell(t, "%s",
                      i != d->best   ? ""
                      : d->is_proved ? "taken, proved best"
                                     : "taken");
    }
    printf("\nHow the racks are cut:\n");
    mw_table_print(t, stdout);
    mw_table_free(t);
}
