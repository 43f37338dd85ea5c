/*
 * What two plans and their scenarios are told apart by: every key of the
 * binder tables whose values differ, as text. The tables are those that files
 * are read with, so a new key shows up here by itself; the workload, which is
 * turned into another struct on reading, has a table of its own below.
 */
#include "planner/diff_int.h"

#include <stdio.h>
#include <string.h>

#define W_AT(member) offsetof(struct mw_workload, member)

static const struct mw_field workload_fields[] = {
    {.key = "seq", .type = MW_F_INT, .offset = W_AT(seq)},
    {.key = "global_batch", .type = MW_F_INT, .offset = W_AT(global_batch)},
    {.key = "dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(dtype),
     .enums = mw_dtype_enums},
    {.key = "grad_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(grad_dtype),
     .enums = mw_dtype_enums},
    {.key = "flash_attention", .type = MW_F_BOOL, .offset = W_AT(is_flash)},
    {.key = "dropout", .type = MW_F_BOOL, .offset = W_AT(has_dropout)},
    {.key = "optimizer",
     .type = MW_F_ENUM,
     .offset = W_AT(optimizer.kind),
     .enums = mw_optimizer_enums},
    {.key = "loss",
     .type = MW_F_ENUM,
     .offset = W_AT(loss),
     .enums = mw_loss_enums},
    {.key = "loss_chunks", .type = MW_F_INT32, .offset = W_AT(loss_chunks)},
    {.key = "capacity_factor",
     .type = MW_F_NUM,
     .offset = W_AT(capacity_factor)},
    {.key = "pad_to_capacity",
     .type = MW_F_BOOL,
     .offset = W_AT(pads_to_capacity)},
    {.key = "expert_imbalance",
     .type = MW_F_NUM,
     .offset = W_AT(expert_imbalance)},
    {.key = "clip_grad",
     .type = MW_F_ENUM,
     .offset = W_AT(clip),
     .enums = mw_clip_enums},
    {.key = "main_params_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(optimizer.main),
     .enums = mw_main_params_enums},
    {.key = "exp_avg_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(optimizer.exp_avg),
     .enums = mw_dtype_enums},
    {.key = "exp_avg_sq_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(optimizer.exp_avg_sq),
     .enums = mw_dtype_enums},
    {.key = "doc_tokens", .type = MW_F_INT, .offset = W_AT(doc_tokens)},
    {.key = "lora_rank", .type = MW_F_INT32, .offset = W_AT(lora_rank)},
    {.key = "lora_targets",
     .type = MW_F_ENUM,
     .offset = W_AT(lora_targets),
     .enums = mw_lora_targets_enums},
    {.key = "base_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(base_dtype),
     .enums = mw_base_dtype_enums},
    {.key = "fp8_scaling",
     .type = MW_F_ENUM,
     .offset = W_AT(scaling),
     .enums = mw_scaling_enums},
    MW_FIELD_END};

/* ---- values as text --------------------------------------------------------
 */
static const char *enum_name(const struct mw_enum *enums, int value)
{
    for (; enums->name != NULL; enums++) {
        if (enums->value == value) {
            return enums->name;
        }
    }
    return "?";
}

static const char *flags_text(struct mw_arena *arena,
                              const struct mw_enum *enums, int value)
{
    const char *text = "";

    for (; enums->name != NULL; enums++) {
        if ((value & enums->value) != 0) {
            text = mw_arena_printf(arena, "%s%s%s", text,
                                   *text != '\0' ? " " : "", enums->name);
        }
    }
    return text;
}

static const char *list_text(struct mw_arena *arena,
                             const struct mw_int_list *list,
                             const struct mw_enum *enums)
{
    struct mw_str text = {NULL, 0, 0};

    for (size_t i = 0; i < list->n; i++) {
        mw_str_add(&text, i > 0 ? " " : "");
        if (enums != NULL) {
            mw_str_add(&text, enum_name(enums, (int)list->v[i]));
        } else {
            mw_str_addf(&text, "%lld", (long long)list->v[i]);
        }
    }
    const char *out = mw_arena_strdup(arena, text.s != NULL ? text.s : "");

    mw_str_release(&text);
    return out;
}

/* "tp+grad_reduce tp none" */
static const char *flags_list_text(struct mw_arena *arena,
                                   const struct mw_int_list *list,
                                   const struct mw_enum *enums)
{
    const char *text = "";

    for (size_t i = 0; i < list->n; i++) {
        const char *set = "";

        for (const struct mw_enum *e = enums; e->name != NULL; e++) {
            if ((list->v[i] & e->value) != 0) {
                set = mw_arena_printf(arena, "%s%s%s", set,
                                      *set != '\0' ? "+" : "", e->name);
            }
        }
        text = mw_arena_printf(arena, "%s%s%s", text, i > 0 ? " " : "",
                               *set != '\0' ? set : "none");
    }
    return text;
}

static const char *num_list_text(struct mw_arena *arena,
                                 const struct mw_num_list *list)
{
    struct mw_str text = {NULL, 0, 0};

    for (size_t i = 0; i < list->n; i++) {
        mw_str_addf(&text, "%s%g", i > 0 ? " " : "", list->v[i]);
    }
    const char *out = mw_arena_strdup(arena, text.s != NULL ? text.s : "");

    mw_str_release(&text);
    return out;
}

static const char *str_list_text(struct mw_arena *arena,
                                 const struct mw_str_list *list)
{
    struct mw_str text = {0};

    for (size_t i = 0; i < list->n; i++) {
        mw_str_addf(&text, "%s%s", i > 0 ? " " : "", list->v[i]);
    }
    const char *out = mw_arena_strdup(arena, text.s != NULL ? text.s : "");

    mw_str_release(&text);
    return out;
}

/* NULL for what has no text: nested tables and nodes. */
static const char *value_text(struct mw_arena *arena, const struct mw_field *f,
                              const void *base)
{
    const void *at = (const char *)base + f->offset;
    const char *text;

    switch (f->type) {
    case MW_F_STR:
        text = *(const char *const *)at;
        return text != NULL ? text : "";
    case MW_F_BOOL:
        return *(const bool *)at ? "true" : "false";
    case MW_F_INT:
        return mw_arena_printf(arena, "%lld", (long long)*(const int64_t *)at);
    case MW_F_INT32:
        return mw_arena_printf(arena, "%d", *(const int *)at);
    case MW_F_ENUM:
        return enum_name(f->enums, *(const int *)at);
    case MW_F_FLAGS:
        return flags_text(arena, f->enums, *(const int *)at);
    case MW_F_NUM:
    case MW_F_QTY:
        return mw_arena_printf(arena, "%.12g", *(const double *)at);
    case MW_F_FLAGS_LIST:
        return flags_list_text(arena, at, f->enums);
    case MW_F_INT_LIST:
        return list_text(arena, at, f->enums);
    case MW_F_NUM_LIST:
        return num_list_text(arena, at);
    case MW_F_STR_LIST:
        return str_list_text(arena, at);
    case MW_F_MAP:
    case MW_F_NODE:
        break;
    }
    return NULL;
}

/* ---- differences -----------------------------------------------------------
 */
struct list {
    struct mw_arena *arena;
    MW_ARRAY(struct mw_diff_setting) v;
};

static void add(struct list *l, const char *group, const char *key,
                const char *a, const char *b)
{
    if (strcmp(a, b) != 0) {
        const struct mw_diff_setting s = {
            mw_arena_printf(l->arena, "%s%s%s", group, *group ? "." : "", key),
            mw_arena_strdup(l->arena, a), mw_arena_strdup(l->arena, b)};

        mw_array_push(&l->v, s);
    }
}

static void add_fields(struct list *l, const char *group,
                       const struct mw_field *fields, const void *a,
                       const void *b)
{
    for (const struct mw_field *f = fields; f->key != NULL; f++) {
        const char *x = value_text(l->arena, f, a);

        if (x != NULL) {
            add(l, group, f->key, x, value_text(l->arena, f, b));
        } else if (f->type == MW_F_MAP) {
            add_fields(l, f->key, f->sub, (const char *)a + f->offset,
                       (const char *)b + f->offset);
        }
    }
}

static const char *layers_text(struct mw_arena *arena,
                               const struct mw_plan *plan)
{
    struct mw_str text = {NULL, 0, 0};

    for (int k = 0; k < plan->n_virtual; k++) {
        mw_str_addf(&text, "%s%d", k > 0 ? " " : "", plan->layers[k]);
    }
    const char *out = mw_arena_strdup(arena, text.s != NULL ? text.s : "");

    mw_str_release(&text);
    return out;
}

/* Even layers follow from the model and pp x vpp: nothing of their own. */
static void add_layers(struct list *l, const struct mw_plan *a,
                       const struct mw_plan *b)
{
    if (!mw_plan_is_even(a) || !mw_plan_is_even(b)) {
        add(l, "", "layers", layers_text(l->arena, a),
            layers_text(l->arena, b));
    }
}

void mw_diff_settings(const struct mw_diff_side *a,
                      const struct mw_diff_side *b, struct mw_diff *out)
{
    struct list l = {.arena = &out->arena};

    add_fields(&l, "layout", mw_layout_fields, &a->plan->layout,
               &b->plan->layout);
    add_layers(&l, a->plan, b->plan);
    if (a->plan->has_schedule_order || b->plan->has_schedule_order) {
        add(&l, "schedule", "order",
            a->plan->has_schedule_order ? "written out" : "by name",
            b->plan->has_schedule_order ? "written out" : "by name");
    }
    add(&l, "", "model", a->scenario->model.name, b->scenario->model.name);
    add_fields(&l, "model", mw_model_fields, &a->scenario->model,
               &b->scenario->model);
    add(&l, "cluster", "system", a->ctx->system->slug, b->ctx->system->slug);
    add_fields(&l, "cluster", mw_cluster_fields + 1, &a->scenario->cluster,
               &b->scenario->cluster);
    add_fields(&l, "workload", workload_fields, &a->scenario->workload,
               &b->scenario->workload);
    add(&l, "", "stack", a->ctx->stack.name, b->ctx->stack.name);
    out->n_settings = (int)l.v.n;
    out->setting = mw_arena_alloc(&out->arena, l.v.n + 1, sizeof *out->setting);
    if (l.v.n > 0) {
        memcpy(out->setting, l.v.v, l.v.n * sizeof *l.v.v);
    }
    mw_array_release(&l.v);
}
