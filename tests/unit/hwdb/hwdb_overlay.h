/* Overlay folders for the tests of hwdb/: made below the working directory,
 * one file at a time, removed after. */
#ifndef MW_TESTS_UNIT_HWDB_OVERLAY_H
#define MW_TESTS_UNIT_HWDB_OVERLAY_H

#include "hwdb/hwdb.h"

enum { OVERLAY_PATH_MAX = 512 };
struct overlay {
    char dir[OVERLAY_PATH_MAX];
};

void overlay_make(struct overlay *o);
/* Writes dir/name with this text. */
void overlay_put(const struct overlay *o, const char *name, const char *text);
/* Removes the folder with its files. */
void overlay_remove(const struct overlay *o);

/* Loads with an overlay of one file; the folder is gone afterwards. */
enum mw_status overlay_load(const char *name, const char *text,
                            struct mw_hwdb **out, struct mw_err *err);

#endif
