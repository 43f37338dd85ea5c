/*
 * MSCCL algorithm files: any bytes are either read or refused with a message;
 * what is read is written and read again unchanged, and the check of what the
 * program does ends with a verdict.
 */
#include "fuzz/fuzz.h"
#include "sim/coll/program.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_prog *prog = NULL, *back = NULL;
    struct mw_err err = {0};

    if (mw_prog_parse("in.xml", size > 0 ? (const char *)data : "", size, &prog,
                      &err) != MW_OK) {
        MW_ASSERT(prog == NULL && err.n_findings == 1 && err.len > 0,
                  "no message");
        return 0;
    }
    struct mw_str text = {0}, first = {0}, second = {0};
    mw_prog_write_xml(prog, &text);
    enum mw_status status =
        mw_prog_parse("back.xml", text.s, text.n, &back, &err);
    MW_ASSERT(status == MW_OK, "%s", err.text);
    mw_prog_write_json(prog, &first);
    mw_prog_write_json(back, &second);
    MW_ASSERT(first.n == second.n && memcmp(first.s, second.s, first.n) == 0,
              "the program changed");
    struct mw_err why = {0}, again = {0};
    status = mw_prog_check(prog, &why);
    MW_ASSERT(status == mw_prog_check(back, &again) &&
                  strcmp(why.text, again.text) == 0,
              "\"%s\" became \"%s\"", why.text, again.text);
    MW_ASSERT((status == MW_OK) == (why.n_findings == 0), "%d findings",
              why.n_findings);
    mw_str_release(&text);
    mw_str_release(&first);
    mw_str_release(&second);
    mw_prog_free(prog);
    mw_prog_free(back);
    return 0;
}
