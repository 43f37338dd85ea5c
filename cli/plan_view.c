/* How searches are shown: a ranked table, why the rest fell out, what is
 * proved; comparisons term by term. */
#include "cli/plan_view.h"

#include "base/table.h"

#include <stdio.h>

/* ---- printing
 * ----------------------------------------------------------------- */

static void print_plans(const struct mw_search_result *r, size_t top)
{
    static const char *const names[] = {
        "#",      "tp",  "cp",          "ep",         "pp",       "vpp",
        "dp",     "mbs", "zero",        "recompute",  "schedule", "step time",
        "slower", "MFU", "peak memory", "rank order", "also"};
    size_t n_names = sizeof names / sizeof names[0];
    char also[MW_PLAN_TEXT_MAX];
    bool has_also = false;

    for (size_t i = 0; i < r->n_plans && i < top; i++) {
        has_also =
            has_also || *mw_layout_rare_text(&r->plans[i].layout, also) != '\0';
    }
    n_names -= !has_also;

    struct mw_table *t = mw_table_new();
    for (size_t i = 0; i < n_names; i++) {
        mw_table_col(t, names[i], i != 9 && i != 10 && i < 15);
    }
    for (size_t i = 0; i < r->n_plans && i < top; i++) {
        const struct mw_candidate *c = &r->plans[i];
        char time[MW_FMT_MAX], peak[MW_FMT_MAX];
        mw_table_row(t);
        mw_table_cell(t, "%zu", i + 1);
        mw_table_cell(t, "%d", c->layout.tp);
        mw_table_cell(t, "%d", c->layout.cp);
        mw_table_cell(t, "%d", c->layout.ep);
        mw_table_cell(t, "%d", c->layout.pp);
        mw_table_cell(t, "%d", c->layout.vpp);
        mw_table_cell(t, "%d", c->layout.dp);
        mw_table_cell(t, "%d", c->layout.micro_batch);
        mw_table_cell(t, "%d", c->layout.zero);
        mw_table_cell(t, "%s", mw_recompute_name(c->layout.recompute));
        mw_table_cell(t, "%s", c->layout.pp > 1 ? c->layout.schedule : "-");
        mw_table_cell(t, "%s", mw_fmt_seconds(c->step_time_s, time));
        mw_table_cell(t, "%.1f %%",
                      100 * (c->step_time_s / r->plans[0].step_time_s - 1));
        mw_table_cell(t, "%.1f %%", 100 * c->mfu);
        mw_table_cell(t, "%s", mw_fmt_bytes(c->peak_bytes, peak));
        mw_table_cell(t, "%s", c->layout.order);
        if (has_also) {
            mw_table_cell(t, "%s", mw_layout_rare_text(&c->layout, also));
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static void print_reasons(const struct mw_search_result *r)
{
    if (r->n_reasons == 0) {
        return;
    }
    printf("\nWhy the others fell out:\n");
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "layouts", true);
    mw_table_col(t, "reason", false);
    mw_table_col(t, "nearest miss", false);
    for (int i = 0; i < r->n_reasons; i++) {
        mw_table_row(t);
        mw_table_cell(t, "%llu", (unsigned long long)r->reasons[i].count);
        mw_table_cell(t, "%s", r->reasons[i].rule);
        mw_table_cell(t, "%s", r->reasons[i].nearest);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static void print_layers(const struct mw_search_result *r)
{
    const struct mw_candidate *c = &r->plans[0];
    if (c->layout.pp * c->layout.vpp < 2) {
        return;
    }
    printf("Layers per stage of the best:");
    for (int k = 0; k < c->layout.pp * c->layout.vpp; k++) {
        printf(" %d", c->layers[k]);
    }
    printf("%s\n",
           r->layers_proved ? " (the integer program finds none better)" : "");
}

/* Where leaves are uneven: which nodes hold which ranks. */
static void print_nodes(const struct mw_search_result *r)
{
    const struct mw_candidate *c = &r->plans[0];
    struct mw_str text = {NULL, 0, 0};
    char as_given[MW_FMT_MAX], bare[MW_FMT_MAX];

    if (c->layout.nodes.n == 0) {
        return;
    }
    mw_layout_nodes_add(&text, &c->layout.nodes, " ");
    printf("Nodes of the best in the order of its ranks: %s", text.s);
    if (c->bare_s > 0) { /* chosen in this search */
        printf(" (%s; as allocated %s, without leaves %s)",
               c->is_order_proved ? "proved best of all orders"
                                  : "the best order found",
               mw_fmt_seconds(c->allocated_s, as_given),
               mw_fmt_seconds(c->bare_s, bare));
    }
    printf("\n");
    mw_str_release(&text);
}

/* Where nobody said how much memory a plan may use. */
static void print_margin(const struct mw_scenario *s,
                         const struct mw_cost_ctx *ctx)
{
    char usable[MW_FMT_MAX];

    if (!s->limits.has_memory_fraction && !ctx->gpu->is_cpu) {
        printf("memory: %s of a rank are used at most: p99 of our error %.1f "
               "%%, allocator %.1f %%\n",
               mw_fmt_bytes(mw_step_usable_bytes(s, ctx), usable),
               100 * ctx->stack.memory.error,
               100 * (ctx->stack.memory.reserve_factor - 1));
    }
    printf("\n");
}

void mw_plan_view_print(const struct mw_scenario *s,
                        const struct mw_cost_ctx *ctx,
                        const struct mw_search_result *r, size_t top)
{
    printf("%s (%d ranks of %s), priced as %s\n", s->name,
           ctx->n_nodes * ctx->gpus_per_node, ctx->gpu->name, ctx->stack.name);
    print_margin(s, ctx);
    print_plans(r, top);
    print_layers(r);
    print_nodes(r);
    print_reasons(r);
    printf("\n%llu layouts enumerated, %llu legal and evaluated, %llu "
           "simulated; ",
           (unsigned long long)r->enumerated, (unsigned long long)r->evaluated,
           (unsigned long long)r->simulated);
    if (r->n_proved > 1) {
        printf("the first %d are proved best of all enumerated.\n",
               r->n_proved);
    } else if (r->proved_optimal) {
        printf("the first is proved best of all enumerated.\n");
    } else if (r->gap > 0) {
        printf("the first is the best simulated, at most %.1f %% slower than "
               "the best.\n",
               100 * r->gap);
    } else {
        printf("the first is the best simulated, not proved best.\n");
    }
    mw_plan_view_tied(ctx, r);
}

static void set_modules(json_t *o, int modules)
{
    struct mw_str names = {NULL, 0, 0};

    mw_recompute_modules_add(&names, modules, " ");
    mw_json_set_str(o, "recompute_modules", names.s != NULL ? names.s : "");
    mw_str_release(&names);
}

static json_t *list_json(const struct mw_int_list *list)
{
    json_t *out = json_array();

    for (size_t i = 0; i < list->n; i++) {
        json_array_append_new(out, json_integer(list->v[i]));
    }
    return out;
}

json_t *mw_plan_view_candidate(const struct mw_candidate *c)
{
    json_t *o = json_object();
    const struct mw_layout *l = &c->layout;
    const struct {
        const char *key;
        int value;
    } ints[] = {
        {"tp", l->tp},   {"cp", l->cp},   {"pp", l->pp},
        {"vpp", l->vpp}, {"dp", l->dp},   {"zero", l->zero},
        {"ep", l->ep},   {"etp", l->etp}, {"micro_batch", l->micro_batch}};
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        mw_json_set_int(o, ints[i].key, ints[i].value);
    }
    mw_json_set_bool(o, "sp", l->sp);
    mw_json_set_str(o, "cp_form", mw_cp_form_name(l->cp_form));
    mw_json_set_int(o, "cp_inner", l->cp_inner);
    mw_json_set_int(o, "bucket_size", l->bucket_size);
    mw_json_set_int(o, "mtp_ahead", l->mtp_ahead);
    mw_json_set_int(o, "vpp_group", l->vpp_group);
    mw_json_set_str(o, "cuda_graph", mw_cuda_graph_name(l->cuda_graph));
    mw_json_set_str(o, "dispatcher", mw_dispatcher_name(l->dispatcher));
    mw_json_set_bool(o, "overlap_shared_experts", l->overlap_shared_experts);
    mw_json_set_int(o, "dp_shard", l->dp_shard);
    mw_json_set_bool(o, "reshard", l->reshard);
    mw_json_set_int(o, "fsdp_unit", l->fsdp_unit);
    mw_json_set_int(o, "fsdp_prefetch", l->fsdp_prefetch);
    mw_json_set_int(o, "recompute_layers", l->recompute_layers);
    set_modules(o, l->recompute_modules);
    mw_json_set_str(o, "grad_compression",
                    mw_grad_compression_name(l->grad_compression));
    struct mw_str off = {NULL, 0, 0};

    mw_overlap_off_add(&off, l->overlap_off, " ");
    mw_json_set_str(o, "overlap_off", off.s != NULL ? off.s : "");
    mw_str_release(&off);
    mw_json_set_str(o, "dtype", mw_dtype_choice_name(l->dtype));
    mw_json_set_str(o, "grad_dtype", mw_dtype_choice_name(l->grad_dtype));
    mw_json_set_str(o, "main_params_dtype",
                    mw_main_params_choice_name(l->main_params));
    mw_json_set_str(o, "exp_avg_dtype", mw_dtype_choice_name(l->exp_avg));
    mw_json_set_str(o, "exp_avg_sq_dtype", mw_dtype_choice_name(l->exp_avg_sq));
    mw_json_set_str(o, "offload_nvme", mw_offload_nvme_name(l->offload_nvme));
    mw_json_set_real(o, "offload_optimizer", l->offload_optimizer);
    mw_json_set_real(o, "offload_weights", l->offload_weights);
    mw_json_set_real(o, "offload_activations", l->offload_activations);
    mw_json_set_str(o, "schedule", l->schedule);
    mw_json_set_str(o, "order", l->order);
    mw_json_set_str(o, "recompute", mw_recompute_name(l->recompute));
    mw_json_set_real(o, "step_time_s", c->step_time_s);
    mw_json_set_real(o, "peak_bytes", c->peak_bytes);
    mw_json_set_real(o, "mfu", c->mfu);
    json_t *layers = json_array();
    for (int k = 0; k < l->pp * l->vpp; k++) {
        json_array_append_new(layers, json_integer(c->layers[k]));
    }
    mw_json_set(o, "layers", layers);
    if (l->stage_recompute_layers.n > 0) {
        mw_json_set(o, "stage_recompute_layers",
                    list_json(&l->stage_recompute_layers));
    }
    if (l->nodes.n > 0) {
        mw_json_set(o, "nodes", list_json(&l->nodes));
        mw_json_set_bool(o, "order_proved", c->is_order_proved);
        mw_json_set_real(o, "allocated_s", c->allocated_s);
        mw_json_set_real(o, "without_leaves_s", c->bare_s);
    }
    return o;
}

json_t *mw_plan_view_reasons_json(const struct mw_search_result *r)
{
    json_t *list = json_array();

    for (int i = 0; i < r->n_reasons; i++) {
        json_t *o = json_object();

        mw_json_set_str(o, "rule", r->reasons[i].rule);
        mw_json_set_int(o, "count", (long long)r->reasons[i].count);
        mw_json_set_str(o, "nearest", r->reasons[i].nearest);
        json_array_append_new(list, o);
    }
    return list;
}

json_t *mw_plan_view_json(const struct mw_scenario *s,
                          const struct mw_cost_ctx *ctx,
                          const struct mw_search_result *r)
{
    json_t *o = json_object(), *pruned = json_object(), *plans = json_array();
    const struct mw_model_error *error = mw_robust_error(ctx);

    mw_json_set_str(o, "stack", ctx->stack.name);
    mw_json_set_real(o, "usable_bytes", mw_step_usable_bytes(s, ctx));
    mw_json_set_int(o, "enumerated", (long long)r->enumerated);
    for (int i = 0; i < r->n_reasons; i++) {
        mw_json_set_int(pruned, r->reasons[i].rule,
                        (long long)r->reasons[i].count);
    }
    mw_json_set(o, "pruned", pruned);
    mw_json_set(o, "reasons", mw_plan_view_reasons_json(r));
    mw_json_set_int(o, "evaluated", (long long)r->evaluated);
    mw_json_set_int(o, "simulated", (long long)r->simulated);
    mw_json_set_bool(o, "proved_optimal", r->proved_optimal);
    mw_json_set_bool(o, "layers_proved", r->layers_proved);
    mw_json_set_int(o, "n_proved", r->n_proved);
    mw_json_set_real(o, "gap", r->gap);
    mw_json_set_real(o, "wall_time_s", r->wall_time_s);
    for (size_t i = 0; i < r->n_plans; i++) {
        json_t *plan = mw_plan_view_candidate(&r->plans[i]);

        mw_json_set_bool(plan, "within_model_error",
                         mw_robust_is_tied(error, r->plans[i].step_time_s,
                                           mw_plan_view_fastest(r)));
        json_array_append_new(plans, plan);
    }
    mw_json_set(o, "model_error", mw_plan_view_error_json(error));
    mw_json_set(o, "plans", plans);
    return o;
}

/* ---- comparisons and changes
 * ------------------------------------------------------- */

/* Why the best is the best although the other may be faster. */
static void print_standing(const struct mw_comparison *c, double usable_bytes,
                           bool is_proved)
{
    char needs[MW_FMT_MAX], may[MW_FMT_MAX];

    if (c->other_bytes > usable_bytes) {
        printf("The other does not fit: it needs %s of %s usable.\n",
               mw_fmt_bytes(c->other_bytes, needs),
               mw_fmt_bytes(usable_bytes, may));
    } else if (c->other_s < c->best_s * (1 - 1e-9)) {
        printf("The other is faster: %s.\n",
               is_proved ? "it is not among the layouts enumerated (--space "
                           "full, --free and limits enumerate more)"
                         : "the search was cut short, or ranks by another "
                           "goal");
    }
}

void mw_plan_view_why(const struct mw_comparison *c, const char *name,
                      double usable_bytes, bool is_proved)
{
    struct mw_table *t = mw_table_new();
    char x[MW_FMT_MAX], y[MW_FMT_MAX];

    printf("\nThe best against %s, exposed time (mean over stages):\n", name);
    mw_table_col(t, "term", false);
    mw_table_col(t, "best", true);
    mw_table_col(t, "other", true);
    mw_table_col(t, "difference", true);
    mw_table_col(t, "of the best step", true);
    for (int i = 0; i <= c->n_time; i++) {
        struct mw_term sum = {"step time", c->best_s, c->other_s};
        const struct mw_term *term = i < c->n_time ? &c->time[i] : &sum;
        double d = term->other - term->best;
        char z[MW_FMT_MAX];

        mw_table_row(t);
        mw_table_cell(t, "%s", term->name);
        mw_table_cell(t, "%s", mw_fmt_seconds(term->best, x));
        mw_table_cell(t, "%s", mw_fmt_seconds(term->other, y));
        mw_table_cell(t, "%s%s", d < 0 ? "-" : "+",
                      mw_fmt_seconds(d < 0 ? -d : d, z));
        mw_table_cell(t, "%+.1f %%", 100 * d / c->best_s);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    t = mw_table_new();
    printf("\nMemory of the fullest rank:\n");
    mw_table_col(t, "term", false);
    mw_table_col(t, "best", true);
    mw_table_col(t, "other", true);
    for (int i = 0; i <= MW_MEMORY_TERMS; i++) {
        struct mw_term sum = {"together", c->best_bytes, c->other_bytes};
        const struct mw_term *term = i < MW_MEMORY_TERMS ? &c->memory[i] : &sum;

        mw_table_row(t);
        mw_table_cell(t, "%s", term->name);
        mw_table_cell(t, "%s", mw_fmt_bytes(term->best, x));
        mw_table_cell(t, "%s", mw_fmt_bytes(term->other, y));
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    print_standing(c, usable_bytes, is_proved);
}

static json_t *terms_json(const struct mw_term *terms, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++) {
        json_t *o = json_object();

        mw_json_set_str(o, "term", terms[i].name);
        mw_json_set_real(o, "best", terms[i].best);
        mw_json_set_real(o, "other", terms[i].other);
        json_array_append_new(list, o);
    }
    return list;
}

json_t *mw_plan_view_why_json(const struct mw_comparison *c,
                              double usable_bytes)
{
    json_t *o = json_object();

    mw_json_set_bool(o, "feasible", c->other_bytes <= usable_bytes);

    mw_json_set_real(o, "best_s", c->best_s);
    mw_json_set_real(o, "other_s", c->other_s);
    mw_json_set(o, "time_s", terms_json(c->time, c->n_time));
    mw_json_set_real(o, "best_bytes", c->best_bytes);
    mw_json_set_real(o, "other_bytes", c->other_bytes);
    mw_json_set(o, "memory_bytes", terms_json(c->memory, MW_MEMORY_TERMS));
    return o;
}

/* How the stage that has it recomputes multi-token prediction. */
static const char *mtp_word(const struct mw_split_stage *s)
{
    for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
        if (s->n[1][r] > 0) {
            return mw_recompute_name((enum mw_recompute)r);
        }
    }
    return "";
}

void mw_plan_view_stages(const struct mw_stage_options *o)
{
    struct mw_table *t = mw_table_new();
    static const char *const names[] = {
        "stage", "layers",          "none",  "selective",
        "full",  "one micro-batch", "memory"};
    char time[MW_FMT_MAX], other[MW_FMT_MAX];

    printf("\nRecomputation by stage (exact; bound of 1F1B): %s, as ranked "
           "first %s (%.2f %% more)\n",
           mw_fmt_seconds(o->answer.value_s, time),
           mw_fmt_seconds(o->uniform_s, other),
           100 * (o->uniform_s / o->answer.value_s - 1));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], true);
    }
    if (o->has_mtp) {
        mw_table_col(t, "MTP", false);
    }
    for (int i = 0; i < o->n_stages; i++) {
        const struct mw_split_stage *s = &o->stage[i];
        const int *n = s->n[0];

        mw_table_row(t);
        mw_table_cell(t, "%d", i);
        mw_table_cell(t, "%d", n[0] + n[1] + n[2]);
        for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
            mw_table_cell(t, "%d", n[r]);
        }
        mw_table_cell(t, "%s", mw_fmt_seconds(s->time_s, time));
        mw_table_cell(t, "%s", mw_fmt_bytes(s->bytes, other));
        if (o->has_mtp) {
            mw_table_cell(t, "%s", mtp_word(s));
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

json_t *mw_plan_view_stages_json(const struct mw_stage_options *o)
{
    json_t *out = json_object(), *list = json_array();

    mw_json_set_real(out, "bound_s", o->answer.value_s);
    mw_json_set_real(out, "uniform_bound_s", o->uniform_s);
    mw_json_set_bool(out, "proved_optimal", o->answer.is_proved);
    for (int i = 0; i < o->n_stages; i++) {
        json_t *s = json_object();

        for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
            mw_json_set_int(s, mw_recompute_name((enum mw_recompute)r),
                            o->stage[i].n[0][r]);
        }
        if (o->has_mtp) {
            mw_json_set_str(s, "mtp", mtp_word(&o->stage[i]));
        }
        mw_json_set_real(s, "time_s", o->stage[i].time_s);
        mw_json_set_real(s, "bytes", o->stage[i].bytes);
        json_array_append_new(list, s);
    }
    mw_json_set(out, "stages", list);
    mw_json_set(out, "plan",
                o->plan.is_found ? mw_plan_view_candidate(&o->plan.candidate)
                                 : json_null());
    if (o->plan.refusal != NULL) {
        mw_json_set_str(out, "refused", o->plan.refusal);
        mw_json_set_real(out, "refused_s", o->plan.refused_s);
    }
    return out;
}

void mw_plan_view_changes(const struct mw_changes *changes, FILE *f)
{
    char time[MW_FMT_MAX], peak[MW_FMT_MAX];

    if (changes->n == 0 && !changes->is_cut_short) {
        fprintf(f, "No single change of %llu tried makes it possible.\n",
                (unsigned long long)changes->n_tried);
        return;
    }
    if (changes->is_joint) {
        fprintf(f, "No single change of those tried makes it possible, these "
                   "do together:\n");
    } else if (changes->n > 0) {
        fprintf(f, "Any one of these changes makes it possible:\n");
    }
    for (int i = 0; i < changes->n; i++) {
        const struct mw_change *c = &changes->v[i];

        fprintf(f, "  %s: %s, %s, %s\n", c->what,
                mw_fmt_seconds(c->step_time_s, time),
                mw_fmt_bytes(c->peak_bytes, peak), c->layout);
    }
    if (changes->is_cut_short) {
        fprintf(f,
                "Interrupted: after %llu of them the others were not "
                "tried.\n",
                (unsigned long long)changes->n_tried);
    }
}

json_t *mw_plan_view_changes_json(const struct mw_changes *changes)
{
    json_t *list = json_array();

    for (int i = 0; i < changes->n; i++) {
        json_t *o = json_object();

        mw_json_set_str(o, "change", changes->v[i].what);
        mw_json_set_real(o, "step_time_s", changes->v[i].step_time_s);
        mw_json_set_real(o, "peak_bytes", changes->v[i].peak_bytes);
        mw_json_set_str(o, "layout", changes->v[i].layout);
        json_array_append_new(list, o);
    }
    return list;
}
