/*
 * Any text as a quantity of every kind, an integer, a number: what is accepted
 * is finite, not negative with a unit, of one dimension only, and an integer
 * is also a number of the same value.
 */
#include "base/mem.h"
#include "base/units.h"
#include "fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static void check_kinds(const char *text)
{
    int n_kinds = 0;
    for (int k = MW_Q_NONE; k <= MW_Q_WATT; k++) {
        struct mw_err err = {0};
        double v = -7;
        if (mw_quantity_parse(text, (enum mw_quantity)k, &v, &err) == MW_OK) {
            MW_ASSERT(isfinite(v), "'%s' is %g", text, v);
            MW_ASSERT(k == MW_Q_NONE || v >= 0, "'%s' is %g", text, v);
            n_kinds++;
        } else {
            MW_ASSERT(v == -7 && err.len > 0, "'%s' changed its target", text);
        }
    }
    MW_ASSERT(n_kinds <= 1, "'%s' is of %d kinds", text, n_kinds);
}

static void check_forms(double v)
{
    char buf[MW_FMT_MAX];
    MW_ASSERT(strlen(mw_fmt_bytes(v, buf)) > 0, "no form of %g", v);
    MW_ASSERT(strlen(mw_fmt_rate(v, buf)) > 0, "no form of %g", v);
    MW_ASSERT(strlen(mw_fmt_seconds(v, buf)) > 0, "no form of %g", v);
    MW_ASSERT(strlen(mw_fmt_flops(v, buf)) > 0, "no form of %g", v);
    if (v >= 0 && v < 9.2e6) {
        mw_time t_ps = mw_time_from_s(v);
        MW_ASSERT(mw_near(mw_time_to_s(t_ps), v, 1e-14, 1e-12),
                  "%.17g s became %lld ps", v, (long long)t_ps);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mw_calloc(size + 1, 1);
    if (size > 0) {
        memcpy(text, data, size);
    }
    int64_t n = 0;
    double v = 0;
    check_kinds(text);
    if (mw_double_parse(text, &v, NULL) == MW_OK) {
        MW_ASSERT(isfinite(v), "'%s' is %g", text, v);
        check_forms(v);
    }
    if (mw_int_parse(text, &n, NULL) == MW_OK) {
        MW_ASSERT(mw_double_parse(text, &v, NULL) == MW_OK &&
                      mw_near(v, (double)n, 1e-15, 0),
                  "'%s' is %lld and %g", text, (long long)n, v);
    }
    mw_free(text);
    return 0;
}
