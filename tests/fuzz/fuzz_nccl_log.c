/*
 * What nccl-tests prints: any bytes are either read or refused with a message;
 * what is read has sizes and times that can be used as they are.
 */
#include "fuzz/fuzz.h"
#include "sim/coll/nccl_log.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_nccl_log log = {0};
    struct mw_err err = {0};

    if (mw_nccl_log_parse("in.txt", size > 0 ? (const char *)data : "", size,
                          &log, &err) != MW_OK) {
        MW_ASSERT(err.n_findings == 1 && err.len > 0, "no message");
        return 0;
    }
    MW_ASSERT(log.row.n > 0, "a log without rows");
    for (size_t i = 0; i < log.row.n; i++) {
        const struct mw_nccl_log_row *r = &log.row.v[i];
        MW_ASSERT(isfinite(r->bytes) && r->bytes >= 0, "row %zu: %g bytes", i,
                  r->bytes);
        MW_ASSERT(isfinite(r->time_s) && r->time_s >= 0, "row %zu: %g s", i,
                  r->time_s);
        MW_ASSERT(isfinite(r->busbw_Bps) && r->busbw_Bps >= 0,
                  "row %zu: %g B/s", i, r->busbw_Bps);
        MW_ASSERT(isfinite(r->in_place_time_s) && r->in_place_time_s >= 0,
                  "row %zu: %g s in place", i, r->in_place_time_s);
        MW_ASSERT(strlen(r->type) < sizeof r->type &&
                      strlen(r->redop) < sizeof r->redop,
                  "row %zu: open text", i);
    }
    MW_ASSERT(log.n_hosts <= log.n_ranks, "%d hosts of %d ranks", log.n_hosts,
              log.n_ranks);
    mw_nccl_log_release(&log);
    return 0;
}
