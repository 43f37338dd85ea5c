/*
 * Paths between files, as text: a plan names its scenario relative to its own
 * folder, so that both can move together. "." and ".." are resolved, links
 * are not followed.
 */
#include "sim/plan/plan_int.h"

#include "base/mem.h"

#include <string.h>
#include <unistd.h>

enum { PATH_PARTS_MAX = 256, CWD_MAX = 4096 };

struct parts {
    char *v[PATH_PARTS_MAX];
    int n;
};

static bool is_absolute(const char *path)
{
    return path[0] == '/';
}

/* Adds the parts of path; false when there are too many. */
static bool add_parts(struct parts *parts, struct mw_arena *arena,
                      const char *path)
{
    for (char *p = mw_arena_strdup(arena, path); *p != '\0';) {
        size_t len = strcspn(p, "/");
        char *next = p[len] == '/' ? p + len + 1 : p + len;

        p[len] = '\0';
        if (strcmp(p, "..") == 0) {
            parts->n -= parts->n > 0;
        } else if (len > 0 && strcmp(p, ".") != 0) {
            if (parts->n == PATH_PARTS_MAX) {
                return false;
            }
            parts->v[parts->n++] = p;
        }
        p = next;
    }
    return true;
}

static bool absolute_parts(struct parts *parts, struct mw_arena *arena,
                           const char *path)
{
    char cwd[CWD_MAX];

    parts->n = 0;
    if (!is_absolute(path) &&
        (getcwd(cwd, sizeof cwd) == NULL || !add_parts(parts, arena, cwd))) {
        return false;
    }
    return add_parts(parts, arena, path);
}

const char *mw_plan_path_relative(struct mw_arena *arena, const char *from,
                                  const char *to)
{
    struct parts a, b;
    struct mw_str text = {NULL, 0, 0};
    int common = 0;

    if (is_absolute(to) || !absolute_parts(&a, arena, from) ||
        !absolute_parts(&b, arena, to) || a.n == 0 || b.n == 0) {
        return mw_arena_strdup(arena, to);
    }
    a.n--; /* the folder of the file */
    while (common < a.n && common < b.n - 1 &&
           strcmp(a.v[common], b.v[common]) == 0) {
        common++;
    }
    for (int i = common; i < a.n; i++) {
        mw_str_add(&text, "../");
    }
    for (int i = common; i < b.n; i++) {
        mw_str_add(&text, b.v[i]);
        mw_str_add(&text, i + 1 < b.n ? "/" : "");
    }
    const char *out = mw_arena_strdup(arena, text.s);

    mw_str_release(&text);
    return out;
}

const char *mw_plan_path_resolve(struct mw_arena *arena, const char *from,
                                 const char *path)
{
    const char *slash = strrchr(from, '/');

    if (is_absolute(path) || slash == NULL) {
        return mw_arena_strdup(arena, path);
    }
    return mw_arena_printf(arena, "%.*s/%s", (int)(slash - from), from, path);
}
