/*
 * MSCCL++ plans: any bytes are either read or refused with a message, and the
 * check of what is read ends with a verdict.
 */
#include "fuzz/fuzz.h"
#include "sim/coll/onesided.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_oneside *plan = NULL;
    struct mw_err err = {0}, why = {0};

    if (mw_oneside_parse("in.json", size > 0 ? (const char *)data : "", size,
                         &plan, &err) != MW_OK) {
        MW_ASSERT(plan == NULL && err.n_findings == 1 && err.len > 0,
                  "no message");
        return 0;
    }
    enum mw_status status = mw_oneside_check(plan, &why);
    MW_ASSERT((status == MW_OK) == (why.n_findings == 0), "%d findings",
              why.n_findings);
    mw_oneside_free(plan);
    return 0;
}
