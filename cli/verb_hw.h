/*
 * Parts of `meshwright hw`: what one device or system is made of, as a list of
 * figures that the table for people and the JSON are both printed from.
 */
#ifndef MW_CLI_VERB_HW_H
#define MW_CLI_VERB_HW_H

#include "base/err.h"
#include "hwdb/hwdb.h"

#include <stdbool.h>

/* One figure with the row's origin; value is text, printed as it stands. */
struct hw_figure {
    const char *name, *value, *confidence, *source;
    bool is_number;
};

/* What `hw show NAME` shows. The texts live in the arena or the database. */
struct hw_view {
    const char *kind; /* "gpu" or "system" */
    const char *slug, *name, *aliases, *note;
    MW_ARRAY(struct hw_figure) figures;
    struct mw_arena arena;
};

/* A system or device by slug, name or alias; MW_EINPUT names the nearest.
 * Release with hw_view_release. */
enum mw_status hw_view_make(const struct mw_hwdb *db, const char *name,
                            struct hw_view *out, struct mw_err *err);
void hw_view_release(struct hw_view *view);

#endif
