/*
 * Quantities with units: "450GB/s", "400 Gb/s", "1.5us", "80GiB".
 *
 * Everything inside is SI: seconds, bytes, bytes per second, FLOP, FLOP per
 * second, hertz, watt. k/M/G/T/P are powers of 1000, Ki/Mi/Gi/Ti of 1024.
 * "b" is a bit, "B" a byte; a quantity of bytes written in bits is an error
 * except for rates, where Gb/s (Gbit/s) is common and converted (/ 8).
 */
#ifndef MW_BASE_UNITS_H
#define MW_BASE_UNITS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum mw_quantity {
    MW_Q_NONE,        /* a pure number; a unit is an error */
    MW_Q_BYTES,       /* 80GiB 2MB 512B */
    MW_Q_BYTES_PER_S, /* 450GB/s 400Gb/s 400Gbit/s */
    MW_Q_SECONDS,     /* 1.5us 3ms 2s 5ns 10min 2h */
    MW_Q_FLOPS,       /* 3 TFLOP */
    MW_Q_FLOPS_PER_S, /* 989TFLOP/s (TFLOPS is taken as well) */
    MW_Q_HERTZ,       /* 1.83GHz */
    MW_Q_WATT         /* 700W 1.2kW */
};

/*
 * Reads the whole of text as a finite number with a unit of the given kind,
 * one optional space between them. Errors say what is wrong and give an
 * example: "'450' needs a unit, for example 450GB/s". Returns MW_EINPUT with
 * a message without position (callers add it), *out untouched. A quantity of
 * a kind other than MW_Q_NONE is never negative.
 */
enum mw_status mw_quantity_parse(const char *text, enum mw_quantity kind,
                                 double *out, struct mw_err *err);

/* Whole token as an integer or a finite double; MW_EINPUT otherwise. */
enum mw_status mw_int_parse(const char *text, int64_t *out, struct mw_err *err);
enum mw_status mw_double_parse(const char *text, double *out,
                               struct mw_err *err);

/* An example of the kind for messages: "450GB/s". */
const char *mw_quantity_example(enum mw_quantity kind);
/* The unit of the value that parsing gives: "B/s"; "" for MW_Q_NONE. */
const char *mw_quantity_si_unit(enum mw_quantity kind);

/*
 * Human forms into buf (at least 32 bytes), returned: bytes as GiB ("12.3
 * GiB", binary prefixes), rates as GB/s, seconds with ns/us/ms/s, TFLOP/s.
 * Three significant digits, times four; independent of the locale.
 */
enum { MW_FMT_MAX = 32 };
const char *mw_fmt_bytes(double bytes, char buf[MW_FMT_MAX]);
const char *mw_fmt_rate(double bytes_per_s, char buf[MW_FMT_MAX]);
const char *mw_fmt_seconds(double seconds, char buf[MW_FMT_MAX]);
const char *mw_fmt_flops(double flops_per_s, char buf[MW_FMT_MAX]);
const char *mw_fmt_count(uint64_t n, char buf[MW_FMT_MAX]); /* 8,030,261,248 */

/* Simulated time: picoseconds, exact sums. Rounds up; aborts on NaN or
 * negative or more than about 106 days. */
typedef int64_t mw_time;
mw_time mw_time_from_s(double seconds);
double mw_time_to_s(mw_time t_ps);

/* |a - b| <= atol + rtol * max(|a|, |b|); false for NaN. */
bool mw_near(double a, double b, double rtol, double atol);

#endif
