/*
 * Parts of `meshwright hw`: what one device or system is made of, as a list of
 * figures that the table for people and the JSON are both printed from.
 */
#ifndef MW_CLI_VERB_HW_H
#define MW_CLI_VERB_HW_H

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "hwdb/hwdb.h"

#include <stdbool.h>

/* One figure with the row's origin; value is text, printed as it stands. */
struct mw_hw_figure {
    const char *name, *value, *confidence, *source;
    bool is_number;
};

/* What `hw show NAME` shows. The texts live in the arena or the database. */
struct mw_hw_view {
    const char *kind; /* "gpu" or "system" */
    const char *slug, *name, *aliases, *note;
    MW_ARRAY(struct mw_hw_figure) figures;
    struct mw_arena arena;
};

/* A system or device by slug, name or alias; MW_EINPUT names the nearest.
 * Release with mw_hw_view_release. */
enum mw_status mw_hw_view_make(const struct mw_hwdb *db, const char *name,
                               struct mw_hw_view *out, struct mw_err *err);
void mw_hw_view_release(struct mw_hw_view *view);

/* A cell as JSON: a number (an integer when written as one), text, or null
 * when it is empty. */
json_t *mw_hw_value_json(const char *text, bool is_number);

/* Prints the overview (table NULL) or one table; returns an exit status. */
int mw_hw_list(const struct mw_hwdb *db, const char *table, bool is_json);

/* `hw topo CLUSTER`: its own options; argv[0] is "meshwright hw topo". */
int mw_hw_topo(int argc, char **argv);

#endif
