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

/* A line of the findings that has all of the parts. */
static bool has_finding(const char *text, const struct wrong *w)
{
    char place[64] = "", column[64] = "";
    if (w->line > 0) {
        snprintf(place, sizeof place, "/%s:%d: ", w->file, w->line);
    }
    if (w->column != NULL) {
        snprintf(column, sizeof column, "column '%s'", w->column);
    }
    for (const char *at = text; *at != '\0';) {
        char line[1024];
        size_t n = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, at);
        if (strstr(line, place) && strstr(line, column) &&
            strstr(line, w->says[0]) &&
            (w->says[1] == NULL || strstr(line, w->says[1]))) {
            return true;
        }
        at += n + (at[n] == '\n');
    }
    return false;
}

void overlay_check_wrong(const struct wrong *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct mw_err err = {0};
        struct mw_hwdb *db = NULL;
        enum mw_status status =
            overlay_load(cases[i].file, cases[i].text, &db, &err);
        if (status != MW_EINPUT || db != NULL) {
            fail_msg("%s: loaded", cases[i].name);
        }
        if (!has_finding(err.text, &cases[i])) {
            fail_msg("%s: the findings are\n%s", cases[i].name, err.text);
        }
    }
}
