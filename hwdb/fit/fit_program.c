/* The frame of the fitting programs; see the header. */
#include "hwdb/fit/fit_program.h"

#include "base/file.h"
#include "sim/coll/coll_library.h"

#include <string.h>

enum { SIZE_MAX_BYTES = 1 << 22 };

int mw_fit_program(int argc, char **argv, const char *usage,
                   mw_fit_program_fn run)
{
    struct mw_hwdb *db = NULL;
    struct mw_validate v;
    struct mw_err err = {0};

    if (argc < 2) {
        fprintf(stderr, "usage: %s\n", usage);
        return 2;
    }
    enum mw_status status = mw_hwdb_load(NULL, &db, &err);

    if (status == MW_OK) {
        mw_coll_library_lend(db);
        mw_validate_init(&v, db);
        status = run(argc, argv, db, &v, &err);
        mw_validate_release(&v);
        mw_hwdb_free(db);
    }
    if (status != MW_OK) {
        fprintf(stderr, "%.*s: %s\n", (int)strcspn(usage, " "), usage,
                err.text);
        return 3;
    }
    return 0;
}

enum mw_status mw_fit_copy_lines(const char *from, const char *to,
                                 mw_fit_line_fn fn, const void *ctx,
                                 struct mw_err *err)
{
    char *text = NULL;
    size_t len = 0;
    struct mw_outfile out = {0};
    enum mw_status status =
        mw_file_read(from, SIZE_MAX_BYTES, &text, &len, err);

    if (status == MW_OK) {
        status = mw_outfile_open(&out, to, err);
    }
    if (status == MW_OK) {
        for (size_t at = 0, n; at < len; at += n) {
            const char *end = memchr(text + at, '\n', len - at);

            n = end != NULL ? (size_t)(end - text) + 1 - at : len - at;
            fn(ctx, text + at, n, out.f);
        }
        fn(ctx, "", 0, out.f);
        status = mw_outfile_commit(&out, err);
    }
    mw_outfile_abort(&out);
    mw_free(text);
    return status;
}
