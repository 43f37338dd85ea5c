/* Reading what nccl-tests prints, new and old forms, and what is not it. */
#include "mw_test.h"

#include "sim/coll/nccl_log.h"

#include <string.h>

static const char sample[] =
    "# Collective test starting: all_reduce_perf\n"
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor)\n"
    "#\n# Using devices\n"
    "#  Rank  0 Group  0 Pid   1 on    node-a device  0 [0x07] NVIDIA H100\n"
    "#  Rank  1 Group  0 Pid   2 on    node-b device  0 [0x07] NVIDIA H100\n"
    "#\n"
    "#                                    out-of-place           in-place\n"
    "#   size  count  type  redop  root  time  algbw  busbw #wrong  time  "
    "algbw "
    "busbw #wrong\n"
    "#    (B)  (elements)  (us)  (GB/s)  (GB/s)\n"
    "       8     2   float   sum   -1   22.57   0.00   0.00   0  21.04  0.00  "
    "0.00   0\n"
    "   1048576   262144   float   sum   -1   38.85   26.99   47.23  N/A  37.9 "
    "27.6  48.4  N/A\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 23.6\n";

static void new_form(void **state)
{
    (void)state;
    struct mw_nccl_log log;
    struct mw_err err = {.status = MW_OK};
    assert_int_equal(
        mw_nccl_log_parse("a.log", sample, strlen(sample), &log, &err), MW_OK);
    assert_int_equal(log.row.n, 2);
    assert_int_equal(log.n_ranks, 2);
    assert_int_equal(log.n_hosts, 2);
    assert_string_equal(log.op, "all_reduce");
    mw_assert_near(log.row.v[1].time_s, 38.85e-6, 1e-12, 0);
    mw_assert_near(log.row.v[1].in_place_busbw_Bps, 48.4e9, 1e-12, 0);
    assert_int_equal(log.row.v[1].wrong, -1);
    assert_string_equal(log.row.v[0].redop, "sum");
    mw_nccl_log_release(&log);
}

static void old_form_without_redop(void **state)
{
    (void)state;
    static const char text[] = "# size count type time algbw busbw error\n"
                               "1024 256 float 10.5 0.10 0.09 0e+00\n";
    struct mw_nccl_log log;
    struct mw_err err = {.status = MW_OK};
    assert_int_equal(mw_nccl_log_parse("b.log", text, strlen(text), &log, &err),
                     MW_OK);
    mw_assert_near(log.row.v[0].time_s, 10.5e-6, 1e-12, 0);
    mw_nccl_log_release(&log);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *what;
    } cases[] = {{"", "no table"},
                 {"hello\nworld\n", "no table"},
                 {"# size count type\n", "no table"},
                 {"# size count type redop root time algbw busbw #wrong\n"
                  "8 2 float sum -1 x 0 0 0\n",
                  "c.log:2: a row of the table is broken"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_nccl_log log;
        struct mw_err err = {.status = MW_OK};
        assert_int_equal(mw_nccl_log_parse("c.log", cases[i].text,
                                           strlen(cases[i].text), &log, &err),
                         MW_EINPUT);
        if (!strstr(err.text, cases[i].what)) {
            fail_msg("'%s' lacks '%s'", err.text, cases[i].what);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_form), cmocka_unit_test(old_form_without_redop),
        cmocka_unit_test(other_files_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
