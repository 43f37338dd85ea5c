/* The database as a group's state. Include after mw_test.h. */
#ifndef MW_TESTS_UNIT_HWDB_LOADED_H
#define MW_TESTS_UNIT_HWDB_LOADED_H

#include "hwdb/hwdb.h"

#include <stdio.h>

static inline int hwdb_loaded_setup(void **state)
{
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;

    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    *state = db;
    return 0;
}

static inline int hwdb_loaded_teardown(void **state)
{
    mw_hwdb_free(*state);
    return 0;
}

#endif
