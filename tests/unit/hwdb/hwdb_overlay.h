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

/* A file of an overlay that must not load, and the finding that must be there.
 */
struct wrong {
    const char *name; /* for the failure message */
    const char *file, *text;
    int line;           /* 0: any */
    const char *column; /* NULL: any */
    const char *says[2];
};
#define ORIGIN ",confidence,source\n"

/* Each case must fail with its finding: the rule with its numbers, and what
 * would be right. */
void overlay_check_wrong(const struct wrong *cases, size_t n);

#endif
