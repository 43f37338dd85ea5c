/*
 * Virtual ranks that share one GPU (threads of this process, exec/cuda/
 * comm_shared.c) on the stand-in: every call on buffers of the device leaves
 * what the local communicator leaves on those of the host; plans of 8 ranks
 * equal the one-rank run; when a call of the libraries fails on one rank, all
 * of them end. Threads report; only the test's own thread asserts.
 */
#include "tests/mpi/matrix.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rand.h"
#include "exec/drive.h"
#include "exec/exec_int.h"
#include "tests/shim/shim.h"

enum { RANKS = 8, ROOM = 512, BLOCK = 24 };

/* matrix.c is compiled for tests that change the run (CMakeLists.txt). */
enum mw_status shim_drive_run(const struct mw_drive_opts *opts,
                              struct mw_comm *world,
                              struct mw_drive_result *out, struct mw_err *err);
enum mw_status shim_drive_run(const struct mw_drive_opts *opts,
                              struct mw_comm *world,
                              struct mw_drive_result *out, struct mw_err *err)
{
    return mw_drive_run(opts, world, out, err);
}

/* ---- the table ------------------------------------------------------------
 */
struct calls {
    const struct mw_dev_ops *ops;
    enum mw_elem elem;
    char why[RANKS][128];
};

/* The same numbers on both sides; small whole ones are exact in bfloat16. */
struct side {
    struct mw_dev *dev;
    struct mw_comm *host, *shared;
    struct calls *calls;
    enum mw_elem elem;
    void *a, *b;         /* device: buffer, another */
    float wide[2][ROOM]; /* host: the same, float32 */
    struct mw_err err;
};

static void say(struct side *s, const char *what)
{
    char *why = s->calls->why[s->host->rank];
    if (why[0] == '\0') {
        snprintf(why, sizeof s->calls->why[0], "%s: %.90s", what, s->err.text);
    }
}

static void fill(struct side *s)
{
    uint16_t half[2][ROOM];
    void *to[2] = {s->a, s->b};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < ROOM; i++) {
            uint64_t at = i + ROOM * (size_t)s->host->rank;
            s->wide[k][i] = (float)(mw_rand_u64(3, (uint64_t)k, at) % 9) - 4;
            half[k][i] = mw_bf16_of(s->wide[k][i]);
        }
        s->dev->ops->to_device(s->dev, to[k],
                               s->elem == MW_ELEM_F32 ? (void *)s->wide[k]
                                                      : (void *)half[k],
                               ROOM * mw_elem_bytes(s->elem));
    }
}

/* Elements [first, first + n) of buffer k are the host's. */
static void same(struct side *s, const char *what, int k, size_t first,
                 size_t n)
{
    float wide[ROOM];
    uint16_t half[ROOM];
    bool is_wide = s->elem == MW_ELEM_F32;
    s->dev->ops->to_host(s->dev, is_wide ? (void *)wide : (void *)half,
                         k ? s->b : s->a, ROOM * mw_elem_bytes(s->elem));
    for (size_t i = first; i < first + n; i++) {
        if (is_wide ? wide[i] != s->wide[k][i]
                    : half[i] != mw_bf16_of(s->wide[k][i])) {
            say(s, what);
        }
    }
}

#define BOTH(name, call_device, call_host)                                     \
    do {                                                                       \
        fill(s);                                                               \
        if ((call_device) != MW_OK || (call_host) != MW_OK) {                  \
            say(s, name);                                                      \
            return;                                                            \
        }                                                                      \
    } while (0)

static void reductions(struct side *s, struct mw_comm *d, struct mw_comm *h)
{
    const struct mw_comm_ops *o = d->ops, *p = h->ops;
    size_t own = BLOCK * (size_t)h->rank;
    for (int op = 0; op < 2; op++) {
        enum mw_reduce reduce = (enum mw_reduce)op;
        BOTH("all-reduce",
             o->all_reduce(d, s->a, 101, s->elem, reduce, &s->err),
             p->all_reduce(h, s->wide[0], 101, MW_ELEM_F32, reduce, &s->err));
        same(s, "all-reduce", 0, 0, ROOM);
    }
    BOTH("all-reduce of 3", o->all_reduce(d, s->a, 3, s->elem, 0, &s->err),
         p->all_reduce(h, s->wide[0], 3, MW_ELEM_F32, 0, &s->err));
    same(s, "all-reduce of 3", 0, 0, ROOM);
    BOTH("reduce-scatter", o->reduce_scatter(d, s->a, BLOCK, s->elem, &s->err),
         p->reduce_scatter(h, s->wide[0], BLOCK, MW_ELEM_F32, &s->err));
    same(s, "reduce-scatter", 0, own, BLOCK);
    BOTH("all-gather", o->all_gather(d, s->a, BLOCK, s->elem, &s->err),
         p->all_gather(h, s->wide[0], BLOCK, MW_ELEM_F32, &s->err));
    same(s, "all-gather", 0, 0, ROOM);
    BOTH("all-to-all", o->all_to_all(d, s->a, s->b, BLOCK, s->elem, &s->err),
         p->all_to_all(h, s->wide[0], s->wide[1], BLOCK, MW_ELEM_F32, &s->err));
    same(s, "all-to-all", 1, 0, ROOM);
}

/* Blocks of different lengths, some empty. */
static void uneven(struct side *s, struct mw_comm *d, struct mw_comm *h)
{
    size_t n[RANKS], n_from[RANKS], n_to[RANKS], own = 0;
    for (int r = 0; r < h->size; r++) {
        n[r] = r % 3 == 1 ? 0 : (size_t)(5 + r);
        own += r < h->rank ? n[r] : 0;
        n_from[r] = (size_t)((h->rank + 2 * r) % 4 * 3);
        n_to[r] = (size_t)((r + 2 * h->rank) % 4 * 3);
    }
    BOTH("reduce-scatter of blocks",
         d->ops->reduce_scatter_v(d, s->a, n, s->elem, &s->err),
         h->ops->reduce_scatter_v(h, s->wide[0], n, MW_ELEM_F32, &s->err));
    same(s, "reduce-scatter of blocks", 0, own, n[h->rank]);
    BOTH("all-gather of blocks",
         d->ops->all_gather_v(d, s->a, n, s->elem, &s->err),
         h->ops->all_gather_v(h, s->wide[0], n, MW_ELEM_F32, &s->err));
    same(s, "all-gather of blocks", 0, 0, ROOM);
    BOTH("all-to-all of blocks",
         d->ops->all_to_all_v(d, s->a, n_from, s->b, n_to, s->elem, &s->err),
         h->ops->all_to_all_v(h, s->wide[0], n_from, s->wide[1], n_to,
                              MW_ELEM_F32, &s->err));
    same(s, "all-to-all of blocks", 1, 0, ROOM);
}

static void messages(struct side *s, struct mw_comm *d, struct mw_comm *h)
{
    int next = (h->rank + 1) % h->size;
    int prev = (h->rank + h->size - 1) % h->size;
    struct mw_send sent = {NULL}, other = {NULL};
    BOTH(
        "send", d->ops->send(d, s->a, 50, s->elem, next, 1, &sent, &s->err),
        h->ops->send(h, s->wide[0], 50, MW_ELEM_F32, next, 2, &other, &s->err));
    if (d->ops->recv(d, s->b, 50, s->elem, prev, 1, &s->err) != MW_OK ||
        h->ops->recv(h, s->wide[1], 50, MW_ELEM_F32, prev, 2, &s->err) !=
            MW_OK ||
        d->ops->wait(d, &sent, &s->err) != MW_OK) {
        say(s, "receive");
    }
    same(s, "message", 1, 0, ROOM);
}

static void all_calls(struct side *s)
{
    struct mw_comm *halves[2] = {NULL, NULL};
    int color = s->host->rank % 2, key = -s->host->rank;
    s->shared->ops->split(s->shared, color, key, &halves[0], &s->err);
    s->host->ops->split(s->host, color, key, &halves[1], &s->err);
    reductions(s, s->shared, s->host);
    uneven(s, s->shared, s->host);
    messages(s, s->shared, s->host);
    reductions(s, halves[0], halves[1]);
    uneven(s, halves[0], halves[1]);
    halves[0]->ops->free(halves[0]);
    halves[1]->ops->free(halves[1]);
}

static void call_rank(struct mw_comm *world, void *arg)
{
    struct side *s = mw_calloc(1, sizeof *s);
    s->calls = arg;
    s->elem = s->calls->elem;
    s->host = world;
    if (s->calls->ops->open(0, &s->dev, &s->err) != MW_OK ||
        s->calls->ops->wrap_comm(s->dev, world, NULL, 0, &s->shared, &s->err) !=
            MW_OK) {
        say(s, "open");
    } else {
        size_t bytes = ROOM * mw_elem_bytes(s->elem);
        s->a = s->dev->ops->alloc(s->dev, bytes);
        s->b = s->dev->ops->alloc(s->dev, bytes);
        all_calls(s);
        s->dev->ops->free(s->dev, s->a, bytes);
        s->dev->ops->free(s->dev, s->b, bytes);
        s->shared->ops->free(s->shared);
        s->dev->ops->close(s->dev);
    }
    mw_free(s);
}

static void every_call(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct calls c = {.elem = i % 2 ? MW_ELEM_BF16 : MW_ELEM_F32};
        struct mw_err err = {0};
        shim_seed((uint64_t)i);
        assert_int_equal(
            mw_dev_find("cuda", i % 2 ? MW_BF16 : MW_FP32, &c.ops, &err),
            MW_OK);
        assert_int_equal(mw_comm_local_run(RANKS, call_rank, &c, &err), MW_OK);
        for (int r = 0; r < RANKS; r++) {
            assert_string_equal(c.why[r], "");
        }
        assert_int_equal(shim_live(), 0);
    }
}

/* ---- plans ------------------------------------------------------------------
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
    matrix_plan_name(path, sizeof path, RANKS);
    const struct mw_drive_opts opts = {
        .plan = path, .backend = "cuda", .steps = 5, .verify = true};
    o->status[w->rank] = mw_drive_run(&opts, w, r, &o->err[w->rank]);
    if (o->status[w->rank] == MW_EFAILED || o->status[w->rank] == MW_EBACKEND) {
        mw_comm_local_abort(w, &o->err[w->rank]);
    }
    if (w->rank != 0) {
        mw_drive_result_release(&other);
    }
}

static void verify(const char *plan_text)
{
    const struct matrix_case c = matrix_read(plan_text);
    struct outcome *o = mw_calloc(1, sizeof *o);
    struct mw_err err = {0};
    char why[MATRIX_WHY_MAX] = "";
    matrix_write(&c, RANKS);
    assert_int_equal(mw_comm_local_run(RANKS, run_plan, o, &err), MW_OK);
    for (int i = RANKS - 1; i >= 0; i--) {
        if (o->status[i] != MW_OK) {
            snprintf(why, sizeof why, "%.200s", o->err[i].text);
        }
    }
    if (why[0] == '\0') {
        matrix_judge(&c, RANKS, &o->result, why);
    }
    if (why[0] != '\0') {
        fail_msg("%s: %s", plan_text, why);
    }
    assert_true(o->result.is_verified);
    mw_drive_result_release(&o->result);
    mw_free(o);
    assert_int_equal(shim_live(), 0);
}

static void plans(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "gpt tp2 pp2 dp2",
        "gpt pp8 zb-h2",
        "gpt pp4 dp2 gpipe",
        "llama pp4 x2 dp2 interleaved-1f1b",
        "gpt cp4 ring pp2",
        "llama tp2 sp cp2 a2a dp2 zero3",
        "llama tp2 pp2 dp2 lora4 full",
        "shared tp2 sp dp4 ep2 etp2 zero1",
        "moe bf16 pp2 dp4 ep4",
        "moe bf16 tp2 sp cp2 dp2 ep4",
        "llama bf16 tp2 sp pp2 dp2 zero2",
        "llama bf16 pp4 dp2 dualpipe zero1",
        "gpt bf16 pp2 dp4 offload50 zero1",
        "gpt bf16 pp4 dp2 zero3",
        "moe bf16 cp4 inner2 ring dp2 ep4",
        "llama bf16 tp2 sp pp2 dp2 mb2 doc4",
        "llama bf16 dp8 zero3 shard2 kept",
        "llama bf16 pp4 dp2 full first1 zb-h1",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        shim_seed(i);
        verify(texts[i]);
    }
}

/* Calls at a stride through a run: some rank fails, all end with its words. */
static void each_call_fails(void **state)
{
    (void)state;
    enum { FAILURES = 12 };
    const struct matrix_case c = matrix_read("llama tp2 pp2 dp2");
    struct outcome *o = mw_calloc(1, sizeof *o);
    struct mw_err err = {0};
    int n_failed = 0;
    int64_t n_calls;
    matrix_write(&c, RANKS);
    shim_fail_at(0);
    assert_int_equal(mw_comm_local_run(RANKS, run_plan, o, &err), MW_OK);
    n_calls = shim_calls();
    mw_drive_result_release(&o->result);
    for (int k = 0; k < FAILURES; k++) {
        memset(o, 0, sizeof *o);
        shim_fail_at(1 + n_calls * k / FAILURES);
        assert_int_equal(mw_comm_local_run(RANKS, run_plan, o, &err), MW_OK);
        for (int r = 0; r < RANKS; r++) {
            assert_true(o->status[r] == MW_OK || o->err[r].len > 0);
            n_failed += o->status[r] != MW_OK;
        }
        mw_drive_result_release(&o->result);
        assert_int_equal(shim_live(), 0);
    }
    shim_fail_at(0);
    assert_true(n_failed > RANKS * FAILURES / 2);
    mw_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call),
        cmocka_unit_test(plans),
        cmocka_unit_test(each_call_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
