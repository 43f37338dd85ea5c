/* CSV files of torch.distributed.pipelining: known lines, round trips, errors.
 */
#include "mw_test.h"

#include "sim/pipe/torch_csv.h"

#include <string.h>

/* The form that the format's own documentation shows, with empty cells. */
static void test_known_file(void **state)
{
    static const char text[] =
        "0F0,0F1,,0B0,,0I1,0W1\n"
        ",1RECV_F0,1F0,1B0,\"1F1\",1I1,1W1,1REDUCE_GRAD\n";
    struct mw_schedule s;
    struct mw_str line = {0};

    (void)state;
    assert_int_equal(mw_torch_csv_parse("f", text, strlen(text), &s, NULL),
                     MW_OK);
    assert_int_equal(s.n_stages, 2);
    assert_int_equal(s.n_microbatches, 2);
    assert_int_equal(mw_schedule_check(&s, NULL), MW_OK);
    mw_schedule_format(&s, 1, &line);
    assert_string_equal(line.s, "F0 BW0 F1 B1 W1");
    mw_str_release(&line);
    mw_schedule_release(&s);
}

static void test_round_trips(void **state)
{
    static const char *const kind[] = {
        "gpipe", "1f1b",      "zb-h1",          "interleaved-1f1b",
        "zb-v",  "dualpipev", "interleaved-zb", "forward-only"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof kind / sizeof kind[0]; i++) {
        struct mw_sched_args a = {.n_stages = 4, .n_microbatches = 8};
        struct mw_schedule s, back;
        struct mw_str text = {0};

        assert_int_equal(mw_schedule_make(kind[i], &a, &s, NULL), MW_OK);
        assert_int_equal(mw_torch_csv_add(&s, &text, NULL), MW_OK);
        assert_int_equal(mw_torch_csv_parse("f", text.s, text.n, &back, NULL),
                         MW_OK);
        assert_int_equal(back.placement, s.placement);
        assert_int_equal(back.first[4], s.first[4]);
        assert_memory_equal(back.slot, s.slot, s.first[4] * sizeof *s.slot);
        assert_int_equal(mw_schedule_check(&back, NULL), MW_OK);
        mw_str_release(&text);
        mw_schedule_release(&s);
        mw_schedule_release(&back);
    }
}

static void test_pairs_are_written_as_overlap(void **state)
{
    struct mw_sched_args a = {.n_stages = 1, .n_microbatches = 2};
    struct mw_schedule s;
    struct mw_str text = {0};

    (void)state;
    assert_int_equal(mw_schedule_make("dualpipev", &a, &s, NULL), MW_OK);
    assert_int_equal(mw_torch_csv_add(&s, &text, NULL), MW_OK);
    assert_string_equal(text.s, "0F0,1F0,0F1,1B0,(1F1;0B0)OVERLAP_F_B,1B1,0I1,"
                                "0W1\n");
    mw_str_release(&text);
    mw_schedule_release(&s);
}

static void expect_bad(const char *text, const char *want)
{
    struct mw_schedule s;
    struct mw_err err = {0};

    assert_int_equal(mw_torch_csv_parse("f.csv", text, strlen(text), &s, &err),
                     MW_EINPUT);
    if (strncmp(err.text, want, strlen(want)) != 0) {
        fail_msg("'%s' does not begin '%s'", err.text, want);
    }
}

static void test_errors(void **state)
{
    (void)state;
    expect_bad("0F0,0X0\n", "f.csv:1:5: '0X0' is not an action");
    expect_bad("0F0\n1F0,1F\n", "f.csv:2:5: '1F' is not an action");
    expect_bad("0F0,(0F1;0B0)OVERLAP\n",
               "f.csv:1:5: '(0F1;0B0)OVERLAP' is not an overlapped pair");
    expect_bad("", "f.csv: there is no action in it");
    expect_bad("0F0,0SEND_F0x\n", "f.csv:1:5: '0SEND_F0x' is not an action");
    expect_bad("0F0\n0F1\n",
               "f.csv: 1 stages and 2 micro-batches do not fit 2");
    expect_bad("0F0,2F0\n1F0,3F0\n4F0,5F0\n",
               "f.csv: the 6 stages lie on the 3 ranks neither in a loop");
    expect_bad("0F0,0F9999999\n", "f.csv:1:5: '0F9999999' is not an action");
}

static void test_what_it_cannot_say(void **state)
{
    struct mw_sched_args a = {.n_stages = 4, .n_microbatches = 8};
    struct mw_schedule s;
    struct mw_str text = {0};
    struct mw_err err = {0};

    (void)state;
    assert_int_equal(mw_schedule_make("dualpipe", &a, &s, NULL), MW_OK);
    assert_int_equal(mw_torch_csv_add(&s, &text, &err), MW_EUSAGE);
    assert_non_null(strstr(err.text, "both ways"));
    mw_schedule_release(&s);
    mw_str_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_file),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_pairs_are_written_as_overlap),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_what_it_cannot_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
