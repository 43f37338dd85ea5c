/*
 * Rows computed by an independent program (tests/oracles/schedules/replay.csv):
 * every generator at p = 2, 4, 8 in unit and profiled times. Fixed schedules
 * must give exactly the makespan, span and peaks; for heuristics' rows ours
 * must be no longer at no more memory. orders_p4_m8.txt holds whole lists.
 */
#include "mw_test.h"

#include "base/csv.h"
#include "base/file.h"
#include "sim/pipe/replay_int.h"

#include <string.h>

/* Of the rows that are planned, one in so many; the slow test has the others.
 */
#if defined(__SANITIZE_ADDRESS__)
static const size_t sample = 29;
#else
static const size_t sample = 7;
#endif

static bool takes_others;
static const char *oracle_dir = ".";

struct row {
    const char *kind, *origin;
    int64_t chunks, parts, stages, microbatches;
    double f, b, w, comm, makespan, span, bubble_makespan, bubble_span;
    double peak_w1, peak_w05;
    int64_t is_bound;
};

#define FIELD(name, type)                                                      \
    {                                                                          \
#name, type, offsetof(struct row, name), true, 0, 0, 0                 \
    }
static const struct mw_csv_field fields[] = {FIELD(kind, MW_C_STR),
                                             FIELD(origin, MW_C_STR),
                                             FIELD(chunks, MW_C_INT),
                                             FIELD(parts, MW_C_INT),
                                             FIELD(stages, MW_C_INT),
                                             FIELD(microbatches, MW_C_INT),
                                             FIELD(f, MW_C_NUM),
                                             FIELD(b, MW_C_NUM),
                                             FIELD(w, MW_C_NUM),
                                             FIELD(comm, MW_C_NUM),
                                             FIELD(makespan, MW_C_NUM),
                                             FIELD(span, MW_C_NUM),
                                             FIELD(bubble_makespan, MW_C_NUM),
                                             FIELD(bubble_span, MW_C_NUM),
                                             FIELD(peak_w1, MW_C_NUM),
                                             FIELD(peak_w05, MW_C_NUM),
                                             FIELD(is_bound, MW_C_INT),
                                             {.name = NULL}};

static double peak(const struct mw_schedule *s, double w_share)
{
    double most = 0;
    int d;

    for (d = 0; d < s->n_stages; d++) {
        double x = mw_pipe_peak(s, d, w_share) * s->n_parts;

        most = x > most ? x : most;
    }
    return most;
}

static void replay_row(const struct row *r, const struct mw_schedule *s,
                       struct mw_pipe_run *out)
{
    size_t n = (size_t)s->n_stages * (size_t)s->n_chunks, i;
    mw_time *t = mw_calloc(3 * n, sizeof *t);
    struct mw_pipe_times times = {.f_ps = t,
                                  .b_ps = t + n,
                                  .w_ps = t + 2 * n,
                                  .comm_ps = (mw_time)r->comm};
    struct mw_err err = {0};

    for (i = 0; i < n; i++) {
        t[i] = (mw_time)r->f;
        t[n + i] = (mw_time)r->b;
        t[2 * n + i] = (mw_time)r->w;
    }
    if (mw_pipe_replay(s, &times, out, &err) != MW_OK) {
        fail_msg("%s: %s", r->origin, err.text);
    }
    mw_free(t);
}

/* The bubble is printed with five digits. */
static void expect_exact(const struct row *r, const struct mw_schedule *s,
                         const struct mw_pipe_run *run)
{
    double passes = (double)(r->microbatches * r->chunks * r->parts) /
                    (s->n_routes == 2 ? 2 : 1);
    double work = passes * (r->f + r->b + r->w);

    if ((double)run->makespan_ps != r->makespan ||
        (double)run->longest_span_ps != r->span || peak(s, 1) != r->peak_w1 ||
        peak(s, 0.5) != r->peak_w05) {
        fail_msg("%s p %d m %d: makespan %.0f span %.0f peaks %g %g but "
                 "expected %.0f %.0f %g %g",
                 r->origin, (int)r->stages, (int)r->microbatches,
                 (double)run->makespan_ps, (double)run->longest_span_ps,
                 peak(s, 1), peak(s, 0.5), r->makespan, r->span, r->peak_w1,
                 r->peak_w05);
    }
    mw_assert_near(1 - work / (double)run->makespan_ps, r->bubble_makespan, 0,
                   5.1e-6);
    mw_assert_near(1 - work / (double)run->longest_span_ps, r->bubble_span, 0,
                   5.1e-6);
}

static void check_row(const struct row *r)
{
    struct mw_sched_args a = {.n_stages = (int)r->stages,
                              .n_microbatches = (int)r->microbatches,
                              .n_chunks = (int)r->chunks,
                              .n_parts = (int)r->parts,
                              .f_s = r->f * 1e-6,
                              .b_s = r->b * 1e-6,
                              .w_s = r->w * 1e-6,
                              .comm_s = r->comm * 1e-6};
    struct mw_schedule s = {0};
    struct mw_pipe_run run = {0};
    struct mw_err err = {0};

    if (r->is_bound != 0) {
        a.memory_limit = r->peak_w1 / (double)r->chunks;
    }
    if (mw_schedule_make(r->kind, &a, &s, &err) != MW_OK ||
        mw_schedule_check(&s, &err) != MW_OK) {
        fail_msg("%s: %s", r->origin, err.text);
    }
    replay_row(r, &s, &run);
    if (r->is_bound == 0) {
        expect_exact(r, &s, &run);
    } else if ((double)run.makespan_ps > r->makespan ||
               peak(&s, 1) > r->peak_w1) {
        fail_msg("%s p %d m %d: makespan %.0f peak %g, theirs %.0f and %g",
                 r->origin, (int)r->stages, (int)r->microbatches,
                 (double)run.makespan_ps, peak(&s, 1), r->makespan, r->peak_w1);
    }
    mw_pipe_run_release(&run);
    mw_schedule_release(&s);
}

static void test_rows(void **state)
{
    struct mw_arena arena;
    struct mw_csv csv;
    struct mw_err err = {0};
    void *rows;
    char *path;
    size_t i;

    (void)state;
    mw_arena_init(&arena);
    path = mw_arena_printf(&arena, "%s/replay.csv", oracle_dir);
    if (mw_csv_load(path, &arena, &csv, &err) != MW_OK ||
        mw_csv_bind(&csv, fields, sizeof(struct row), true, &arena, &rows,
                    &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(csv.n_rows, 914);
    for (i = 0; i < csv.n_rows; i++) {
        const struct row *r = &((const struct row *)rows)[i];

        bool is_sampled = r->is_bound == 0 || i % sample == 0;

        if (is_sampled != takes_others) {
            check_row(r);
        }
    }
    mw_arena_release(&arena);
}

/* "= kind chunks parts", then the list of each of the 4 stages. */
static void check_orders(char *text)
{
    struct mw_schedule s = {0};
    int d = 0, n = 0;
    char *line, *save = NULL;

    for (line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        struct mw_str ours = {0};
        struct mw_sched_args a = {.n_stages = 4, .n_microbatches = 8};
        char kind[32];

        if (line[0] == '#') {
            continue;
        }
        if (line[0] == '=') {
            assert_int_equal(
                sscanf(line, "= %31s %d %d", kind, &a.n_chunks, &a.n_parts), 3);
            mw_schedule_release(&s);
            assert_int_equal(mw_schedule_make(kind, &a, &s, NULL), MW_OK);
            d = 0;
            continue;
        }
        mw_schedule_format(&s, d++, &ours);
        assert_string_equal(ours.s, line);
        mw_str_release(&ours);
        n++;
    }
    mw_schedule_release(&s);
    assert_int_equal(n, 4 * 18);
}

static void test_orders(void **state)
{
    struct mw_arena arena;
    struct mw_err err = {0};
    char *text;
    size_t len;

    (void)state;
    mw_arena_init(&arena);
    if (mw_file_read(mw_arena_printf(&arena, "%s/orders_p4_m8.txt", oracle_dir),
                     1 << 20, &text, &len, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    check_orders(text);
    mw_free(text);
    mw_arena_release(&arena);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_orders),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(test_rows),
    };

    if (argc > 1) {
        oracle_dir = argv[1];
    }
    takes_others = argc > 2;
    return takes_others ? cmocka_run_group_tests(others, NULL, NULL)
                        : cmocka_run_group_tests(tests, NULL, NULL);
}
