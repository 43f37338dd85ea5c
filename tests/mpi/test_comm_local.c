/*
 * Virtual ranks of one process: every call of the communication table with
 * numbers by hand, plans of all dimensions verified against one rank, and a
 * rank that gives up. Threads report text; only the test's own thread asserts.
 */
#include "matrix.h"

#include "sim/plan/plan.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 8 };

/* ---- the table ------------------------------------------------------------
 */
struct report {
    char text[RANKS][128]; /* "" when all is well */
};

static void say(struct report *r, int rank, const char *what, double got,
                double want)
{
    if (got != want && r->text[rank][0] == '\0') {
        snprintf(r->text[rank], sizeof r->text[rank], "rank %d, %s: %g, not %g",
                 rank, what, got, want);
    }
}

static void reductions(struct mw_comm *w, struct report *r)
{
    float v[2] = {(float)w->rank, 1.0f};
    double most = w->rank, all[RANKS] = {0};
    w->ops->all_reduce(w, v, 2, MW_ELEM_F32, MW_REDUCE_SUM, NULL);
    say(r, w->rank, "sum", (double)v[0], 28);
    say(r, w->rank, "count", (double)v[1], 8);
    w->ops->all_reduce(w, &most, 1, MW_ELEM_F64, MW_REDUCE_MAX, NULL);
    say(r, w->rank, "maximum", most, 7);
    all[w->rank] = 10.0 + w->rank;
    w->ops->all_gather(w, all, 1, MW_ELEM_F64, NULL);
    say(r, w->rank, "gathered", all[5], 15);
    for (int i = 0; i < RANKS; i++) {
        all[i] = w->rank * i;
    }
    w->ops->reduce_scatter(w, all, 1, MW_ELEM_F64, NULL);
    say(r, w->rank, "scattered", all[w->rank], 28.0 * w->rank);
}

/* Rank i sends i + j + 1 numbers to rank j, and gets as many back. */
static void exchanges(struct mw_comm *w, struct report *r)
{
    int64_t from[RANKS * 16], to[RANKS * 16];
    size_t n[RANKS], at = 0, sum = 0;
    for (int j = 0; j < RANKS; j++) {
        n[j] = (size_t)(w->rank + j + 1);
        for (size_t k = 0; k < n[j]; k++) {
            from[at++] = 100 * w->rank + j;
        }
    }
    w->ops->all_to_all_v(w, from, n, to, n, MW_ELEM_I64, NULL);
    for (int j = 0; j < RANKS; j++) {
        sum += n[j];
        say(r, w->rank, "exchanged", (double)to[sum - 1], 100.0 * j + w->rank);
    }
    int64_t one[RANKS], got[RANKS];
    for (int j = 0; j < RANKS; j++) {
        one[j] = 10 * w->rank + j;
    }
    w->ops->all_to_all(w, one, got, 1, MW_ELEM_I64, NULL);
    say(r, w->rank, "turned", (double)got[3], 30.0 + w->rank);
}

/* Rank i has i elements. */
static void uneven(struct mw_comm *w, struct report *r)
{
    float v[28];
    size_t n[RANKS], first = 0;
    for (int i = 0; i < RANKS; i++) {
        n[i] = (size_t)i;
        first += i < w->rank ? n[i] : 0;
    }
    for (size_t k = 0; k < n[w->rank]; k++) {
        v[first + k] = (float)w->rank;
    }
    w->ops->all_gather_v(w, v, n, MW_ELEM_F32, NULL);
    say(r, w->rank, "last of all", (double)v[27], 7);
    w->ops->reduce_scatter_v(w, v, n, MW_ELEM_F32, NULL);
    if (w->rank > 0) {
        say(r, w->rank, "own sums", (double)v[first], 8.0 * w->rank);
    }
}

/* Two messages to the next, taken in the other order; halves of the world. */
static void messages(struct mw_comm *w, struct report *r)
{
    int next = (w->rank + 1) % RANKS, prev = (w->rank + RANKS - 1) % RANKS;
    float a = (float)w->rank, b = a + 100, got_a, got_b;
    struct mw_send sent[2] = {{NULL}, {NULL}};
    w->ops->send(w, &a, 1, MW_ELEM_F32, next, 7, &sent[0], NULL);
    w->ops->send(w, &b, 1, MW_ELEM_F32, next, 8, &sent[1], NULL);
    w->ops->recv(w, &got_b, 1, MW_ELEM_F32, prev, 8, NULL);
    w->ops->recv(w, &got_a, 1, MW_ELEM_F32, prev, 7, NULL);
    w->ops->wait(w, &sent[0], NULL);
    say(r, w->rank, "first message", (double)got_a, prev);
    say(r, w->rank, "second message", (double)got_b, prev + 100);
    struct mw_comm *half = NULL;
    w->ops->split(w, w->rank % 2, -w->rank, &half, NULL);
    say(r, w->rank, "half", half->size, 4);
    say(r, w->rank, "place", half->rank, (RANKS - 1 - w->rank) / 2);
    double v = w->rank, got[RANKS] = {0};
    half->ops->all_reduce(half, &v, 1, MW_ELEM_F64, MW_REDUCE_SUM, NULL);
    say(r, w->rank, "sum of half", v, w->rank % 2 ? 16 : 12);
    half->ops->free(half);
    v = w->rank == 2 ? 42 : 0;
    w->ops->broadcast(w, &v, sizeof v, 2, NULL);
    say(r, w->rank, "broadcast", v, 42);
    v = w->rank;
    w->ops->gather(w, &v, sizeof v, got, 6, NULL);
    say(r, w->rank, "at the root", got[4], w->rank == 6 ? 4 : 0);
}

static void all_calls(struct mw_comm *w, void *arg)
{
    for (int i = 0; i < 20; i++) {
        reductions(w, arg);
        exchanges(w, arg);
        uneven(w, arg);
        messages(w, arg);
        w->ops->barrier(w, NULL);
    }
}

static void every_call(void **state)
{
    (void)state;
    struct report r = {{{0}}};
    struct mw_err err = {0};
    assert_int_equal(mw_comm_local_run(RANKS, all_calls, &r, &err), MW_OK);
    for (int i = 0; i < RANKS; i++) {
        assert_string_equal(r.text[i], "");
    }
}

/* ---- a rank that gives up --------------------------------------------------
 */
struct end {
    enum mw_status status[RANKS];
    struct mw_err err[RANKS];
};

static void one_gives_up(struct mw_comm *w, void *arg)
{
    struct end *e = arg;
    float v = 0;
    if (w->rank == 3) {
        struct mw_err why = {0};
        e->status[3] = mw_fail(&why, MW_EFAILED, "rank 3 is tired");
        mw_comm_local_abort(w, &why);
    } else if (w->rank == 5) {
        e->status[5] = w->ops->recv(w, &v, 1, MW_ELEM_F32, 3, 1, &e->err[5]);
    } else {
        e->status[w->rank] = w->ops->barrier(w, &e->err[w->rank]);
    }
}

static void nobody_waits_for_ever(void **state)
{
    (void)state;
    struct end *e = mw_calloc(1, sizeof *e);
    struct mw_err err = {0};
    assert_int_equal(mw_comm_local_run(RANKS, one_gives_up, e, &err), MW_OK);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(e->status[i], i == 3 ? MW_EFAILED : MW_EBACKEND);
        assert_true(i == 3 || strstr(e->err[i].text, "rank 3 is tired"));
    }
    mw_free(e);
}

/* ---- plans -----------------------------------------------------------------
 */
struct outcome {
    enum mw_status status[RANKS];
    struct mw_err err[RANKS];
    struct mw_drive_result result; /* of rank 0 */
};

static void run_plan(struct mw_comm *w, void *arg)
{
    struct outcome *o = arg;
    struct mw_drive_result other, *r = w->rank == 0 ? &o->result : &other;
    char path[64];
    matrix_plan_name(path, sizeof path, w->size);
    const struct mw_drive_opts opts = {
        .plan = path, .backend = "host", .steps = 5, .verify = true};
    o->status[w->rank] = mw_drive_run(&opts, w, r, &o->err[w->rank]);
    if (o->status[w->rank] == MW_EFAILED || o->status[w->rank] == MW_EBACKEND) {
        mw_comm_local_abort(w, &o->err[w->rank]);
    }
    if (w->rank != 0) {
        mw_drive_result_release(&other);
    }
}

static void verify(const struct matrix_case *c)
{
    struct outcome *o = mw_calloc(1, sizeof *o);
    struct mw_err err = {0};
    char why[MATRIX_WHY_MAX] = "", text[512];
    matrix_write(c, RANKS);
    assert_int_equal(mw_comm_local_run(RANKS, run_plan, o, &err), MW_OK);
    for (int i = RANKS - 1; i >= 0; i--) {
        if (o->status[i] != MW_OK) {
            snprintf(why, sizeof why, "%.200s", o->err[i].text);
        }
    }
    if (why[0] == '\0') {
        matrix_judge(c, RANKS, &o->result, why);
    }
    matrix_describe(c, why, text, sizeof text);
    if (why[0] != '\0') {
        fail_msg("%s", text);
    }
    assert_true(o->result.is_verified);
    assert_true((o->result.verdict.max_error == 0.0) == matrix_is_exact(c));
    mw_drive_result_release(&o->result);
    mw_free(o);
}

static void plans(void **state)
{
    (void)state;
    static const struct matrix_case cases[] = {
        {.tp = 2, .pp = 2, .dp = 2},
        {.tp = 1, .pp = 8, .dp = 1, .schedule = "zb-h2"},
        {.tp = 1, .pp = 4, .vpp = 2, .dp = 2, .schedule = "interleaved-1f1b"},
        {.tp = 1, .cp = 4, .cp_form = MW_CP_RING, .pp = 2, .dp = 1},
        {.model = MATRIX_LLAMA,
         .tp = 2,
         .sp = true,
         .cp = 2,
         .cp_form = MW_CP_A2A,
         .pp = 1,
         .dp = 2,
         .zero = 3},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .pp = 4,
         .dp = 2,
         .zero = 2,
         .schedule = "dualpipe"},
        {.model = MATRIX_SHARED,
         .tp = 2,
         .sp = true,
         .pp = 1,
         .dp = 4,
         .ep = 2,
         .etp = 2,
         .zero = 1},
        {.model = MATRIX_LLAMA,
         .tp = 2,
         .sp = true,
         .pp = 2,
         .dp = 2,
         .micro_batch = 2,
         .doc_tokens = 4},
        {.tp = 1,
         .cp = 2,
         .cp_form = MW_CP_A2A,
         .pp = 4,
         .dp = 1,
         .micro_batch = 2,
         .doc_tokens = 8,
         .recompute = MW_RECOMPUTE_SELECTIVE},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .cp = 4,
         .cp_form = MW_CP_PASSQ,
         .pp = 2,
         .dp = 1,
         .micro_batch = 2,
         .recompute = MW_RECOMPUTE_SELECTIVE},
        {.tp = 1,
         .cp = 8,
         .cp_form = MW_CP_PASSQ,
         .cp_inner = 2,
         .pp = 1,
         .dp = 1},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .cp = 8,
         .cp_form = MW_CP_PASSQ,
         .pp = 1,
         .dp = 1,
         .recompute = MW_RECOMPUTE_FULL},
        {.model = MATRIX_LLAMA,
         .tp = 1,
         .cp = 8,
         .cp_form = MW_CP_RING,
         .cp_inner = 2,
         .pp = 1,
         .dp = 1},
        {.model = MATRIX_LLAMA,
         .tp = 2,
         .pp = 2,
         .dp = 2,
         .lora_rank = 4,
         .recompute = MW_RECOMPUTE_FULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        verify(&cases[i]);
    }
}

/* ---- routing ---------------------------------------------------------------
 * Four ranks with an expert each, and one with all of them, send each
 * sequence's tokens to the same experts.
 */
enum { EP_RANKS = 4, SEQS = 16, MOE_LAYERS = 4, EXPERTS = 4 };
struct routing {
    enum mw_status status[EP_RANKS];
    struct mw_err err[EP_RANKS];
    int64_t rows[MOE_LAYERS][SEQS][EXPERTS]; /* [sequence]: each rank its own */
};

static enum mw_status walk_once(struct mw_comm *w, const struct mw_job *job,
                                int64_t *routed, struct mw_err *err)
{
    struct mw_dev *dev;
    struct mw_rec rec;
    struct mw_exec ex;
    MW_TRY(mw_dev_host.open(w->rank, &dev, err));
    mw_rec_init(&rec, dev);
    enum mw_status st = mw_exec_open(&ex, job, w, dev, &rec, err);
    if (st == MW_OK) {
        ex.routed = routed;
        st = mw_exec_walk(&ex);
    }
    mw_exec_close(&ex);
    mw_rec_release(&rec);
    mw_dev_host.close(dev);
    return st;
}

static void route(struct mw_comm *w, void *arg)
{
    struct routing *r = arg;
    struct mw_scenario scenario;
    struct mw_plan plan;
    struct mw_job job;
    char path[64];
    int n = SEQS / w->size;
    int64_t mine[MOE_LAYERS * SEQS * EXPERTS] = {0};
    matrix_plan_name(path, sizeof path, w->size);
    r->status[w->rank] =
        mw_plan_load_own(path, &scenario, &plan, &r->err[w->rank]);
    if (r->status[w->rank] != MW_OK) {
        mw_comm_local_abort(w, &r->err[w->rank]);
        return;
    }
    mw_job_from_plan(&job, &scenario, &plan);
    r->status[w->rank] = walk_once(w, &job, mine, &r->err[w->rank]);
    for (int layer = 0; layer < MOE_LAYERS; layer++) {
        memcpy(r->rows[layer][n * w->rank], mine + layer * n * EXPERTS,
               (size_t)(n * EXPERTS) * sizeof *mine);
    }
    mw_plan_release(&plan);
    mw_scenario_release(&scenario);
}

static void route_on(int ranks, struct routing *r)
{
    struct mw_err err = {0};
    const struct matrix_case c = {
        .model = MATRIX_MOE, .tp = 1, .pp = 1, .dp = ranks, .ep = ranks};
    matrix_write(&c, ranks);
    assert_int_equal(mw_comm_local_run(ranks, route, r, &err), MW_OK);
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(r->status[i], MW_OK);
    }
}

static void routers_decide_alike(void **state)
{
    (void)state;
    struct routing *spread = mw_calloc(1, sizeof *spread);
    struct routing *alone = mw_calloc(1, sizeof *alone);
    route_on(EP_RANKS, spread);
    route_on(1, alone);
    assert_memory_equal(spread->rows, alone->rows, sizeof alone->rows);
    for (int i = 0; i < MOE_LAYERS * SEQS; i++) {
        const int64_t *row = alone->rows[i / SEQS][i % SEQS];
        assert_int_equal(row[0] + row[1] + row[2] + row[3], 16 * 2);
    }
    mw_free(spread);
    mw_free(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call),
        cmocka_unit_test(nobody_waits_for_ever),
        cmocka_unit_test(plans),
        cmocka_unit_test(routers_decide_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
