/*
 * The published recipe of a measured run (hwdb/recipe.h): what a vendor's table
 * does not print and its launch scripts do. Found by release, model, device,
 * precision and layout; only cells that are empty are filled, and CUDA graphs,
 * dispatchers and capacities, which no column is for. A run without a recipe
 * keeps the rules of case_layout.c.
 */
#include "sim/validate/validate_int.h"

#include "hwdb/recipe.h"

#include <math.h>
#include <string.h>

/* "NeMo/Megatron (dgxc v25.05)", "Megatron-Bridge 26.04.01 NeMo Container": the
 * name that recipes have, and where the release begins. */
static const char *release_of(const char *framework, const char **out_name)
{
    static const struct {
        const char *said, *name;
    } names[] = {{"Megatron-Bridge ", "megatron-bridge"}, {"dgxc v", "dgxc"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *at = strstr(framework, names[i].said);

        if (at != NULL) {
            *out_name = names[i].name;
            return at + strlen(names[i].said);
        }
    }
    return NULL;
}

/* One precision of several has no recipe ("fp8-mx/blockwise" is its first). */
static const char *precision_of(const struct mw_workload *w)
{
    switch (w->dtype) {
    case MW_FP8:
        return w->scaling == MW_SCALE_MX ? "fp8-mx" : "fp8";
    case MW_FP4:
        return "fp4";
    case MW_BF16:
        return "bf16";
    case MW_FP32:
    case MW_TF32:
    case MW_FP16:
    case MW_DTYPE_COUNT:
        break;
    }
    return "";
}

static const struct mw_recipe *find(struct mw_case *c)
{
    const struct mw_layout *l = &c->layout;
    const char *name = NULL, *at = release_of(c->row->framework, &name);
    const struct mw_gpu *gpu = mw_case_gpu(c);

    if (at == NULL || gpu == NULL || mw_text_has(c->row->kind, "lora") ||
        mw_text_has(c->row->kind, "sft")) {
        return NULL;
    }
    struct mw_recipe_run run = {
        .framework = name,
        .version = mw_arena_printf(c->arena, "%.*s",
                                   (int)strspn(at, "0123456789."), at),
        .model = c->row->model,
        .gpu = gpu->slug,
        .dtype = precision_of(&c->scenario.workload),
        .tp = l->tp,
        .pp = l->pp,
        .cp = l->cp,
        .ep = l->ep,
        .micro_batch = l->micro_batch};

    return mw_hwdb_recipe(c->db, &run);
}

/* The value of a word that the database has checked; -1: there is none. */
static int value_of(const struct mw_enum *enums, const char *word, size_t n)
{
    for (; enums->name != NULL; enums++) {
        if (strlen(enums->name) == n && strncmp(enums->name, word, n) == 0) {
            return enums->value;
        }
    }
    return -1;
}

static int modules_of(const char *list)
{
    int modules = 0;

    for (const char *at = list; *at != '\0'; at += strspn(at, ";")) {
        size_t n = strcspn(at, ";");

        modules |= value_of(mw_recompute_module_enums, at, n);
        at += n;
    }
    return modules;
}

/* Megatron-Core passes over a module that a model does not have. */
static int of_model(const struct mw_model *m, int modules)
{
    if (!m->mla.on) {
        modules &= ~MW_MODULE_MLA_UP_PROJ;
    }
    if (m->moe.n_experts == 0) {
        modules &= ~(MW_MODULE_MOE | MW_MODULE_MOE_ACT);
    }
    return m->moe.shared_ffn == 0 ? modules & ~MW_MODULE_SHARED_EXPERTS
                                  : modules;
}

static void take_recompute(struct mw_case *c, const struct mw_recipe *r)
{
    struct mw_layout *l = &c->layout;

    if (strcmp(r->recompute, "full") == 0) {
        l->recompute = MW_RECOMPUTE_FULL;
        l->recompute_layers = (int)r->recompute_layers;
    } else if (strcmp(r->recompute, "none") != 0) {
        int modules = of_model(&c->scenario.model, modules_of(r->recompute));

        l->recompute = modules ? MW_RECOMPUTE_SELECTIVE : MW_RECOMPUTE_NONE;
        l->recompute_modules = modules;
    }
    c->fills &= ~(UINT64_C(1) << MW_FILL_RECOMPUTE);
}

/* Megatron-Core offloads the first layers of a pipeline stage; the scripts do
 * so without a pipeline alone. */
static double offloaded_part(const struct mw_case *c, int64_t n_layers)
{
    return fmin(1,
                (double)n_layers * c->layout.pp / c->scenario.model.n_layers);
}

void mw_case_recipe(struct mw_case *c)
{
    struct mw_layout *l = &c->layout;
    const struct mw_recipe *r = find(c);

    if (r == NULL) {
        return;
    }
    mw_case_fill(c, MW_FILL_RECIPE);
    if (c->row->recompute[0] == '\0' && r->recompute[0] != '\0') {
        take_recompute(c, r);
    }
    if (c->row->offload[0] == '\0' && r->offload_layers > 0) {
        l->offload_activations = offloaded_part(c, r->offload_layers);
    }
    if (r->cuda_graph[0] != '\0') {
        l->cuda_graph = (enum mw_cuda_graph)value_of(
            mw_cuda_graph_enums, r->cuda_graph, strlen(r->cuda_graph));
    }
    if (r->dispatcher[0] != '\0' && c->scenario.model.moe.n_experts > 0) {
        l->dispatcher = (enum mw_dispatcher)value_of(
            mw_dispatcher_enums, r->dispatcher, strlen(r->dispatcher));
    }
    if (!isnan(r->capacity_factor)) {
        c->scenario.workload.capacity_factor = r->capacity_factor;
        c->scenario.workload.pads_to_capacity = true;
    }
}
