/*
 * JSON out and in with jansson.
 *
 * Reals are written with 17 significant digits, so that reading them back
 * gives the same bits; what is not finite becomes null, because JSON has no
 * word for it. Text that is not UTF-8 (a file name can be anything) has the
 * offending bytes replaced: a report must not fail for that. Left out:
 * streaming; traces have their own writer.
 */
#include "base/json.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/text_int.h"

#include <math.h>
#include <string.h>

json_t *mw_json_real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

void mw_json_set(json_t *object, const char *key, json_t *value)
{
    int rc = json_object_set_new(object, key, value);
    MW_ASSERT(rc == 0, "cannot set key '%s' of a JSON object", key);
}

void mw_json_set_real(json_t *object, const char *key, double v)
{
    mw_json_set(object, key, mw_json_real(v));
}

void mw_json_set_int(json_t *object, const char *key, long long v)
{
    mw_json_set(object, key, json_integer(v));
}

static json_t *replaced_string(const char *v)
{
    char *copy = mw_strdup(v);
    size_t len = strlen(copy), at = 0;
    while ((at = mw_text_bad_utf8(copy, len, at)) < len) {
        copy[at] = '?';
    }
    json_t *s = json_string(copy);
    mw_free(copy);
    return s;
}

void mw_json_set_str(json_t *object, const char *key, const char *v)
{
    json_t *s = v == NULL ? json_null() : json_string(v);
    mw_json_set(object, key, s != NULL ? s : replaced_string(v));
}

void mw_json_set_bool(json_t *object, const char *key, int v)
{
    mw_json_set(object, key, json_boolean(v));
}

enum mw_status mw_json_write(const json_t *value, FILE *f, struct mw_err *err)
{
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY;
    if (json_dumpf(value, f, flags) != 0 || fputc('\n', f) == EOF) {
        return mw_fail(err, MW_EFAILED, "cannot write JSON output");
    }
    return MW_OK;
}

static enum mw_status fail_json(const char *path, const char *text, size_t len,
                                const json_error_t *e, struct mw_err *err)
{
    size_t at = e->position > 0 ? (size_t)e->position - 1 : 0;
    struct mw_arena arena;
    mw_arena_init(&arena);
    struct mw_pos pos =
        mw_text_pos(path, text, len, at < len ? at : len, 1, &arena);
    mw_fail_at(err, MW_EINPUT, &pos, "%s", e->text);
    mw_arena_release(&arena);
    return MW_EINPUT;
}

enum mw_status mw_json_load(const char *path, size_t max_bytes, json_t **out,
                            struct mw_err *err)
{
    char *text = NULL;
    size_t len = 0;
    enum mw_status st =
        mw_file_read_as(path, "JSON file", max_bytes, &text, &len, err);
    if (st != MW_OK) {
        return st;
    }
    json_error_t e = {0};
    st = mw_text_check(path, text, len, err);
    if (st == MW_OK) {
        json_t *value = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
        if (value != NULL) {
            *out = value;
        } else {
            st = fail_json(path, text, len, &e, err);
        }
    }
    mw_free(text);
    return st;
}
