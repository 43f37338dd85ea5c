/*
 * torch.distributed.pipelining CSV files: any bytes are either read or refused
 * with a message; what is read and is a right schedule is written and read back
 * unchanged, and replays.
 */
#include "fuzz/fuzz.h"
#include "sim/pipe/torch_csv.h"

#include <string.h>

static void check_round_trip(const struct mw_schedule *s)
{
    struct mw_str text = {0};
    struct mw_schedule back = {0};
    struct mw_err err = {0};
    size_t n = s->first[s->n_stages];

    MW_ASSERT(mw_torch_csv_add(s, &text, &err) == MW_OK, "%s", err.text);
    MW_ASSERT(mw_torch_csv_parse("back", text.s, text.n, &back, &err) == MW_OK,
              "%s", err.text);
    MW_ASSERT(back.first[back.n_stages] == n &&
                  back.placement == s->placement &&
                  memcmp(back.slot, s->slot, n * sizeof *s->slot) == 0,
              "%zu slots changed", n);
    mw_schedule_release(&back);
    mw_str_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_schedule s = {0};
    struct mw_err err = {0};

    if (mw_torch_csv_parse("in.csv", size > 0 ? (const char *)data : "", size,
                           &s, &err) != MW_OK) {
        MW_ASSERT(err.n_findings == 1 && err.len > 0, "no message");
        return 0;
    }
    if (mw_schedule_check(&s, &err) == MW_OK) {
        check_round_trip(&s);
    } else {
        MW_ASSERT(err.n_findings == 1, "%d findings", err.n_findings);
    }
    mw_schedule_release(&s);
    return 0;
}
