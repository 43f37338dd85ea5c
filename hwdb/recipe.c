/*
 * Published recipes (recipe.h): looking one up, and the rules of the table:
 *
 *   device known; from_version before to_version; no two rows for one run;
 *   words that are known; layers only of full recomputation; something said.
 */
#include "hwdb/recipe.h"

#include "hwdb/hwdb_int.h"
#include "hwdb/profile.h"

#include <math.h>
#include <string.h>

static const char dtypes[] = "bf16;fp8;fp8-mx;fp4";
static const char graphs[] = "none;attn;layer;full_iteration";
static const char dispatchers[] = "alltoall;allgather;deepep;hybridep";
static const char modules[] =
    "core_attn;mla_up_proj;layernorm;mlp;moe;moe_act;shared_experts";

static const struct mw_recipe *rows_of(const struct mw_hwdb *db)
{
    return MW_HW_ROWS(db, MW_HW_RECIPES, struct mw_recipe);
}

const struct mw_recipe *mw_hwdb_recipe_at(const struct mw_hwdb *db, size_t i)
{
    return i < mw_hw_n_rows(db, MW_HW_RECIPES) ? &rows_of(db)[i] : NULL;
}

static bool has_version(const struct mw_recipe *r, const char *version)
{
    return mw_profile_version_cmp(version, r->from_version) >= 0 &&
           (*r->to_version == '\0' ||
            mw_profile_version_cmp(version, r->to_version) < 0);
}

const struct mw_recipe *mw_hwdb_recipe(const struct mw_hwdb *db,
                                       const struct mw_recipe_run *run)
{
    const struct mw_recipe *r;

    for (size_t i = 0; (r = mw_hwdb_recipe_at(db, i)) != NULL; i++) {
        if (mw_hw_casecmp(r->framework, run->framework) == 0 &&
            has_version(r, run->version) &&
            mw_hw_list_has(r->model, run->model) &&
            mw_hw_casecmp(r->gpu, run->gpu) == 0 &&
            mw_hw_casecmp(r->dtype, run->dtype) == 0 && r->tp == run->tp &&
            r->pp == run->pp && r->cp == run->cp && r->ep == run->ep &&
            r->micro_batch == run->micro_batch) {
            return r;
        }
    }
    return NULL;
}

/* ---- rules ------------------------------------------------------------------
 */

static void check_word(struct mw_hw_check *c, size_t i, const char *col,
                       const char *word, const char *allowed)
{
    if (!mw_hw_list_has(allowed, word)) {
        mw_hw_bad(c, i, col, "'%s' is not one of %s", word, allowed);
    }
}

static void check_recompute(struct mw_hw_check *c, size_t i,
                            const struct mw_recipe *r)
{
    char item[64];
    bool is_full = strcmp(r->recompute, "full") == 0;

    if (r->recompute_layers > 0 && !is_full) {
        mw_hw_bad(c, i, "recompute_layers", "layers are of recompute 'full'");
    }
    if (is_full || strcmp(r->recompute, "none") == 0) {
        return;
    }
    for (size_t k = 0; mw_hw_list_item(r->recompute, k, item, sizeof item);
         k++) {
        check_word(c, i, "recompute", item, modules);
    }
}

/* Is there a run that both rows are the recipe of? */
static bool is_twice(const struct mw_recipe *a, const struct mw_recipe *b)
{
    char name[64];
    bool shares = false;

    for (size_t k = 0; mw_hw_list_item(a->model, k, name, sizeof name); k++) {
        shares = shares || mw_hw_list_has(b->model, name);
    }
    return shares && strcmp(a->framework, b->framework) == 0 &&
           strcmp(a->gpu, b->gpu) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
           a->tp == b->tp && a->pp == b->pp && a->cp == b->cp &&
           a->ep == b->ep && a->micro_batch == b->micro_batch &&
           (has_version(a, b->from_version) || has_version(b, a->from_version));
}

static bool says_nothing(const struct mw_recipe *r)
{
    return *r->recompute == '\0' && *r->cuda_graph == '\0' &&
           *r->dispatcher == '\0' && r->offload_layers == 0 &&
           isnan(r->capacity_factor) && *r->unsaid == '\0';
}

static void check_run(struct mw_hw_check *c, size_t i,
                      const struct mw_recipe *rows)
{
    const struct mw_recipe *r = &rows[i];

    if (mw_hw_find_gpu(c->db, r->gpu) < 0) {
        mw_hw_bad(c, i, "gpu", "no device '%s'", r->gpu);
    }
    if (*r->to_version != '\0' &&
        mw_profile_version_cmp(r->from_version, r->to_version) >= 0) {
        mw_hw_bad(c, i, "to_version", "'%s' is not after '%s'", r->to_version,
                  r->from_version);
    }
    for (size_t j = 0; j < i; j++) {
        if (is_twice(&rows[j], r)) {
            mw_hw_bad(c, i, "model", "line %d has a recipe of this run already",
                      c->db->tables[c->table].csv.line[j]);
        }
    }
}

void mw_hw_check_recipes(struct mw_hw_check *c)
{
    const struct mw_recipe *r;

    for (size_t i = 0; (r = mw_hwdb_recipe_at(c->db, i)) != NULL; i++) {
        check_run(c, i, rows_of(c->db));
        check_word(c, i, "dtype", r->dtype, dtypes);
        check_recompute(c, i, r);
        if (*r->cuda_graph != '\0') {
            check_word(c, i, "cuda_graph", r->cuda_graph, graphs);
        }
        if (*r->dispatcher != '\0') {
            check_word(c, i, "dispatcher", r->dispatcher, dispatchers);
        }
        if (says_nothing(r)) {
            mw_hw_bad(c, i, "recompute", "a recipe that says nothing");
        }
    }
}
