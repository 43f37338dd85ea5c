/* Which frameworks there are, their rules, and what emitters share. */
#include "planner/export/export_int.h"

#include "planner/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef enum mw_status (*emit_fn)(const struct mw_export_in *in,
                                  struct mw_export *out, struct mw_err *err);

static const struct {
    const char *name; /* of a framework, and whose rules hold */
    int framework;
    emit_fn emit;
} targets[] = {
    {"megatron-core", MW_FRAMEWORK_MEGATRON_CORE, mw_export_megatron},
    {"torchtitan", MW_FRAMEWORK_TORCHTITAN, mw_export_torchtitan},
    {"nanotron", MW_FRAMEWORK_NANOTRON, mw_export_nanotron}};

enum { N_TARGETS = sizeof targets / sizeof targets[0] };

void mw_export_release(struct mw_export *out)
{
    mw_str_release(&out->file);
    mw_str_release(&out->launch);
    mw_str_release(&out->notes);
}

/* ---- shared by emitters ----------------------------------------------------
 */
enum mw_status mw_export_refuse(struct mw_err *err, const char *rule,
                                const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return mw_fail(err, MW_ENO, "%s: %s", rule, text);
}

void mw_export_note(struct mw_export *out, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    mw_str_addf(&out->notes, "%s\n", text);
}

void mw_export_torchrun(const struct mw_export_in *in, struct mw_export *out)
{
    int ranks = mw_layout_ranks(&in->plan->layout);
    int per_node = in->ctx->gpus_per_node;
    int nodes = ranks > per_node ? ranks / per_node : 1;

    mw_str_addf(&out->launch, "torchrun --nnodes %d --nproc-per-node %d", nodes,
                ranks > per_node ? per_node : ranks);
    if (nodes > 1 && in->plan->layout.nodes.n > 0) {
        /* a rendezvous would number the nodes as they come */
        mw_str_add(&out->launch, " --node-rank $SLURM_PROCID --master-addr "
                                 "$HEAD_NODE --master-port 29500");
    } else if (nodes > 1) {
        mw_str_add(&out->launch, " --rdzv-backend c10d --rdzv-endpoint "
                                 "$HEAD_NODE:29500 --rdzv-id plan");
    }
    mw_str_add(&out->launch, " ");
}

void mw_args_flag(struct mw_args *args, const char *name)
{
    mw_str_addf(&args->out->file, "--%s\n", name);
}

void mw_args_number(struct mw_args *args, const char *name, long long v)
{
    mw_str_addf(&args->out->file, "--%s %lld\n", name, v);
}

void mw_args_word(struct mw_args *args, const char *name, const char *v)
{
    mw_str_addf(&args->out->file, "--%s %s\n", name, v);
}

/* ---- checks ----------------------------------------------------------------
 */
/* The framework's rows (planner/rules.h), whatever the scenario's own
 * limits say. */
static enum mw_status check_rules(const struct mw_export_in *in, int framework,
                                  struct mw_err *err)
{
    struct mw_scenario scenario = *in->scenario;
    struct mw_str text = {NULL, 0, 0};
    enum mw_status status = MW_OK;

    scenario.limits.framework = framework;
    struct mw_rule_set *set = mw_rule_set_new(&scenario, in->ctx);
    const struct mw_rule *rule = mw_rule_broken(set, &in->plan->layout);

    if (rule != NULL) {
        mw_rule_explain(set, rule, &in->plan->layout, &text);
        status = mw_fail(err, MW_ENO, "%s: %s", rule->id, text.s);
    }
    mw_str_release(&text);
    mw_rule_set_free(set);
    return status;
}

/* What no framework's files can say. */
static enum mw_status check_plan(const struct mw_export_in *in,
                                 struct mw_err *err)
{
    if (in->plan->has_schedule_order) {
        return mw_export_refuse(err, "schedule_order",
                                "the plan lists every pass of its schedule; a "
                                "framework takes schedules by name");
    }
    if (in->scenario->workload.lora_rank > 0) {
        return mw_export_refuse(err, "lora",
                                "adapters are not among what is exported");
    }
    if (in->scenario->workload.doc_tokens > 0) {
        return mw_export_refuse(err, "documents",
                                "packed documents are the data loader's "
                                "affair; leave doc_tokens out");
    }
    return MW_OK;
}

static void note_what_is_open(const struct mw_export_in *in,
                              struct mw_export *out)
{
    mw_export_note(out,
                   "data, tokenizer, learning rate and number of steps are "
                   "placeholders: a plan does not say them");
    if (in->scenario->model.position == MW_POS_ROTARY) {
        mw_export_note(out, "the base of rotary positions is the framework's "
                            "default where it is not named: set your model's");
    }
    if (in->plan->layout.nodes.n > 0) {
        struct mw_str nodes = {NULL, 0, 0};

        mw_layout_nodes_add(&nodes, &in->plan->layout.nodes, " ");
        mw_export_note(out,
                       "the plan's ranks lie on nodes %.300s of the "
                       "allocation, in this order: export --to hosts writes "
                       "the list of hosts to start on",
                       nodes.s);
        mw_str_release(&nodes);
    }
}

enum mw_status mw_export_plan(const char *name, const struct mw_export_in *in,
                              struct mw_export *out, struct mw_err *err)
{
    struct mw_export made = {.file = {NULL, 0, 0}};
    size_t i = 0;

    while (i < N_TARGETS && strcasecmp(targets[i].name, name) != 0) {
        i++;
    }
    if (i == N_TARGETS) {
        return mw_fail(err, MW_EUSAGE,
                       "--to: '%s' is not a framework that plans are written "
                       "for; megatron-core, torchtitan or nanotron",
                       name);
    }
    struct mw_scenario scenario = *in->scenario;
    struct mw_export_in resolved = *in;

    /* Files say types as such, whoever chose them. */
    scenario.workload.dtype =
        mw_work_dtype(&in->plan->layout, &in->scenario->workload);
    scenario.workload.grad_dtype =
        mw_work_grad_dtype(&in->plan->layout, &in->scenario->workload);
    scenario.workload.optimizer =
        mw_work_optimizer(&in->plan->layout, &in->scenario->workload);
    resolved.scenario = &scenario;
    in = &resolved;
    enum mw_status status = check_plan(in, err);

    status =
        status == MW_OK ? check_rules(in, targets[i].framework, err) : status;
    if (status == MW_OK) {
        status = targets[i].emit(in, &made, err);
    }
    if (status != MW_OK) {
        if (status == MW_ENO) {
            mw_err_prefix(err, "%s cannot run this plan", targets[i].name);
        }
        mw_export_release(&made);
        return status;
    }
    note_what_is_open(in, &made);
    *out = made;
    return MW_OK;
}
