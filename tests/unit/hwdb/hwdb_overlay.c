/* See hwdb_overlay.h. */
#include "hwdb_overlay.h"

#include "mw_test.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void overlay_make(struct overlay *o)
{
    strcpy(o->dir, "hwdb-overlay-XXXXXX");
    assert_non_null(mkdtemp(o->dir));
}

static void path_of(const struct overlay *o, const char *name,
                    char path[2 * OVERLAY_PATH_MAX])
{
    int n = snprintf(path, 2 * OVERLAY_PATH_MAX, "%s/%s", o->dir, name);
    assert_in_range(n, 1, 2 * OVERLAY_PATH_MAX - 1);
}

void overlay_put(const struct overlay *o, const char *name, const char *text)
{
    char path[2 * OVERLAY_PATH_MAX];
    path_of(o, name, path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
}

void overlay_remove(const struct overlay *o)
{
    DIR *d = opendir(o->dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.') {
            char path[2 * OVERLAY_PATH_MAX];
            path_of(o, e->d_name, path);
            assert_int_equal(unlink(path), 0);
        }
    }
    closedir(d);
    assert_int_equal(rmdir(o->dir), 0);
}

enum mw_status overlay_load(const char *name, const char *text,
                            struct mw_hwdb **out, struct mw_err *err)
{
    struct overlay o;
    overlay_make(&o);
    overlay_put(&o, name, text);
    enum mw_status status = mw_hwdb_load(o.dir, out, err);
    overlay_remove(&o);
    return status;
}
