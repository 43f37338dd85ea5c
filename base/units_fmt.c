/*
 * Writing quantities for people, simulated time, comparison of doubles.
 *
 * A value is shown with three significant digits (times: four) and the prefix
 * that leaves one to three digits before the point; the prefix is chosen after
 * rounding, so that 999.9996 GB/s is "1.00 TB/s" and never "1000 GB/s".
 */
#include "base/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct scale {
    double factor;
    const char *unit;
};

/* Decimals that leave `digits` significant digits of v >= 1. */
static int decimals_of(double v, int digits)
{
    int n = digits - 1;
    for (double limit = 10; n > 0; limit *= 10) {
        if (v < limit - 0.5 * pow(10, -n)) {
            break;
        }
        n--;
    }
    return n;
}

/* scales ascend; `limit` is the first value that goes to the next one. */
static const char *fmt_scaled(double v, const struct scale *scales, size_t n,
                              double limit, int digits, char buf[MW_FMT_MAX])
{
    if (!isfinite(v)) {
        snprintf(buf, MW_FMT_MAX, "%s", isnan(v) ? "nan" : "inf");
        return buf;
    }
    double a = fabs(v);
    size_t i = 0;
    while (i + 1 < n && a / scales[i].factor >= limit) {
        i++;
    }
    double shown = a / scales[i].factor;
    int decimals = shown == 0 ? 0 : decimals_of(shown, digits);
    if (shown >= 1e15) {
        snprintf(buf, MW_FMT_MAX, "%s%.3g %s", v < 0 ? "-" : "", shown,
                 scales[i].unit);
    } else {
        snprintf(buf, MW_FMT_MAX, "%s%.*f %s", v < 0 ? "-" : "", decimals,
                 shown, scales[i].unit);
    }
    return buf;
}

const char *mw_fmt_bytes(double bytes, char buf[MW_FMT_MAX])
{
    static const struct scale scales[] = {{0x1p10, "KiB"}, {0x1p20, "MiB"},
                                          {0x1p30, "GiB"}, {0x1p40, "TiB"},
                                          {0x1p50, "PiB"}, {0x1p60, "EiB"}};
    if (fabs(bytes) < 1023.5) { /* whole bytes have no decimals */
        snprintf(buf, MW_FMT_MAX, "%.0f B", bytes);
        return buf;
    }
    return fmt_scaled(bytes, scales, 6, 1023.5, 3, buf);
}

const char *mw_fmt_rate(double bytes_per_s, char buf[MW_FMT_MAX])
{
    static const struct scale scales[] = {{1, "B/s"},     {1e3, "kB/s"},
                                          {1e6, "MB/s"},  {1e9, "GB/s"},
                                          {1e12, "TB/s"}, {1e15, "PB/s"}};
    return fmt_scaled(bytes_per_s, scales, 6, 999.5, 3, buf);
}

const char *mw_fmt_seconds(double seconds, char buf[MW_FMT_MAX])
{
    static const struct scale scales[] = {
        {1e-9, "ns"}, {1e-6, "us"}, {1e-3, "ms"}, {1, "s"}};
    return fmt_scaled(seconds, scales, 4, 999.95, 4, buf);
}

const char *mw_fmt_flops(double flops_per_s, char buf[MW_FMT_MAX])
{
    static const struct scale scales[] = {{1, "FLOP/s"},     {1e3, "kFLOP/s"},
                                          {1e6, "MFLOP/s"},  {1e9, "GFLOP/s"},
                                          {1e12, "TFLOP/s"}, {1e15, "PFLOP/s"},
                                          {1e18, "EFLOP/s"}};
    return fmt_scaled(flops_per_s, scales, 7, 999.5, 3, buf);
}

const char *mw_fmt_count(uint64_t n, char buf[MW_FMT_MAX])
{
    char digits[MW_FMT_MAX];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n);
    int at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0) {
            buf[at++] = ',';
        }
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

mw_time mw_time_from_s(double seconds)
{
    /* 1e-6 s * 1e12 may miss the integer by an ulp; rounding that up would add
     * a picosecond that nobody meant. */
    static const double ulps = 4 * 0x1p-52;
    MW_ASSERT(seconds >= 0 && seconds < 9.2e6, "%g s is not a simulated time",
              seconds);
    double t_ps = seconds * 1e12, nearest = nearbyint(t_ps);
    if (fabs(t_ps - nearest) <= ulps * t_ps) {
        return (mw_time)nearest;
    }
    return (mw_time)ceil(t_ps);
}

double mw_time_to_s(mw_time t_ps)
{
    return (double)t_ps / 1e12;
}

bool mw_near(double a, double b, double rtol, double atol)
{
    if (a == b) {
        return true;
    }
    return isfinite(a) && isfinite(b) &&
           fabs(a - b) <= atol + rtol * fmax(fabs(a), fabs(b));
}
