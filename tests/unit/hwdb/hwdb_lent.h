/* The database, lent to the collectives, as a group's state. Include after
 * mw_test.h. */
#ifndef MW_TESTS_UNIT_HWDB_LENT_H
#define MW_TESTS_UNIT_HWDB_LENT_H

#include "sim/coll/coll_library.h"

static inline int hwdb_lent_setup(void **state)
{
    struct mw_hwdb *db = NULL;
    struct mw_err err = {0};

    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_coll_library_lend(db);
    *state = db;
    return 0;
}

static inline int hwdb_lent_teardown(void **state)
{
    mw_hwdb_free(*state);
    return 0;
}

#endif
