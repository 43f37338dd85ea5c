/* A world for every system, NCCL version and settings of a table of
 * measurements. */
#include "sim/coll/coll_fit.h"
#include "sim/coll/coll_int.h"

#include <stdio.h>
#include <string.h>

struct place {
    struct mw_coll_world *world;
    enum mw_nccl_version version;
    char env[sizeof((struct mw_coll_row *)0)->env];
};
struct mw_coll_atlas {
    const struct mw_hwdb *db;
    struct mw_nccl_opts opts;
    MW_ARRAY(struct place) place;
    struct mw_coll_fit fit; /* of mw_coll_atlas_set_fit */
    bool has_fit;
};

struct mw_coll_atlas *mw_coll_atlas_new(const struct mw_hwdb *db,
                                        const struct mw_nccl_opts *opts)
{
    struct mw_coll_atlas *a = mw_calloc(1, sizeof *a);
    a->db = db;
    mw_nccl_opts_default(&a->opts);
    if (opts) {
        a->opts = *opts;
    }
    return a;
}

void mw_coll_atlas_free(struct mw_coll_atlas *atlas)
{
    if (!atlas) {
        return;
    }
    for (size_t i = 0; i < atlas->place.n; i++) {
        mw_coll_world_free(atlas->place.v[i].world);
    }
    mw_array_release(&atlas->place);
    mw_coll_fit_release(&atlas->fit);
    mw_free(atlas);
}

/* Pairs separated by blanks. */
static enum mw_status set_env(struct mw_nccl_opts *opts, const char *env,
                              struct mw_err *err)
{
    enum mw_status s = MW_OK;
    while (*env != '\0' && s == MW_OK) {
        char pair[sizeof((struct mw_coll_row *)0)->env];
        int n = (int)strcspn(env, " ");
        snprintf(pair, sizeof pair, "%.*s", n, env);
        s = mw_nccl_opts_env(opts, pair, err);
        env += n + (env[n] == ' ');
    }
    return s;
}

enum mw_status mw_coll_atlas_world(struct mw_coll_atlas *atlas,
                                   const struct mw_coll_row *row,
                                   struct mw_coll_world **out,
                                   struct mw_err *err)
{
    for (size_t i = 0; i < atlas->place.n; i++) {
        const struct place *p = &atlas->place.v[i];
        if (strcmp(p->world->system->slug, row->system) == 0 &&
            p->version == row->version && strcmp(p->env, row->env) == 0) {
            *out = p->world;
            return MW_OK;
        }
    }
    struct place p = {.version = row->version};
    struct mw_nccl_opts opts = atlas->opts;
    opts.version = row->version;
    memcpy(p.env, row->env, sizeof p.env);
    enum mw_status s = set_env(&opts, row->env, err);
    if (s == MW_OK) {
        s = mw_coll_world_new(atlas->db, row->system, &opts, &p.world, err);
    }
    if (s == MW_OK) {
        if (atlas->has_fit) {
            mw_coll_world_set_fit(p.world, &atlas->fit);
        }
        mw_array_push(&atlas->place, p);
        *out = p.world;
    }
    return s;
}

void mw_coll_atlas_set_fit(struct mw_coll_atlas *atlas,
                           const struct mw_coll_fit *fit)
{
    coll_fit_copy(fit, &atlas->fit);
    atlas->has_fit = true;
    for (size_t i = 0; i < atlas->place.n; i++) {
        mw_coll_world_set_fit(atlas->place.v[i].world, fit);
    }
}
