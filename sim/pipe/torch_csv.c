/*
 * Reading and writing the schedules of torch.distributed.pipelining (format as
 * in pytorch 00722e64, torch/distributed/pipelining/schedules.py: _Action,
 * _load_csv, _dump_csv). First all actions are read with their virtual stages;
 * then number of stages, chunks and placement follow from where they stand.
 */
#include "sim/pipe/torch_csv.h"
#include "sim/pipe/schedule_int.h"

#include <ctype.h>
#include <string.h>

/* A compute action as written. */
struct action {
    int32_t stage, microbatch;
    int16_t rank;
    uint8_t pass, flags;
};
struct reader {
    const char *file;
    const char *line; /* start of the line, for messages */
    int line_no, rank;
    struct {
        struct action *v;
        size_t n, cap;
    } actions;
    int n_virtual, n_microbatches;
    struct mw_err *err;
};

static enum mw_status bad(const struct reader *r, const char *at, int width,
                          const char *why)
{
    struct mw_pos pos = {.file = r->file,
                         .line = r->line_no,
                         .column = (int)(at - r->line) + 1,
                         .width = width > 0 ? width : 1};

    return mw_fail_at(r->err, MW_EINPUT, &pos, "'%.*s' %s",
                      width < 40 ? width : 40, at, why);
}

/* Digits in [*p, end); -1: none, or too large. */
static int number(const char **p, const char *end)
{
    int v = 0;

    if (*p == end || !isdigit((unsigned char)**p)) {
        return -1;
    }
    for (; *p < end && isdigit((unsigned char)**p); (*p)++) {
        v = v * 10 + (**p - '0');
        if (v > MW_SCHED_MICROBATCHES_MAX) {
            return -1;
        }
    }
    return v;
}

static bool is_word(const char *p, const char *end, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(end - p) >= n && memcmp(p, word, n) == 0;
}

/* Actions that are no passes; their number of characters, 0: none of them. */
static size_t other_action(const char *p, const char *end)
{
    static const char *const word[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD",
                                       "SEND_F",  "RECV_F",  "SEND_B",
                                       "RECV_B"};
    size_t i;

    for (i = 0; i < sizeof word / sizeof word[0]; i++) {
        if (is_word(p, end, word[i])) {
            return strlen(word[i]);
        }
    }
    return 0;
}

static int pass_of(char c)
{
    switch (c) {
    case 'F':
        return MW_PASS_F;
    case 'I':
        return MW_PASS_B;
    case 'W':
        return MW_PASS_W;
    case 'B':
        return MW_PASS_BW;
    default:
        return -1;
    }
}

/* One action without brackets: 3F12. */
static enum mw_status read_action(struct reader *r, const char *p,
                                  const char *end, uint8_t flags)
{
    static const char help[] =
        "is not an action; write stage, F, I, W or B, micro-batch, as in 2F0";
    const char *at = p;
    int width = (int)(end - at), pass;
    struct action a = {.rank = (int16_t)r->rank, .flags = flags};
    size_t other;

    a.stage = number(&p, end);
    if (a.stage < 0 || a.stage > INT16_MAX) {
        return bad(r, at, width, help);
    }
    other = other_action(p, end);
    if (other > 0) {
        p += other;
        number(&p, end);
        return p == end ? MW_OK : bad(r, at, width, help);
    }
    pass = p < end ? pass_of(*p++) : -1;
    a.microbatch = pass >= 0 ? number(&p, end) : -1;
    if (a.microbatch < 0 || p != end) {
        return bad(r, at, width, help);
    }
    if (r->actions.n >= MW_SCHED_SLOTS_MAX) {
        return bad(r, at, width, "is one action too many");
    }
    a.pass = (uint8_t)pass;
    mw_array_push(&r->actions, a);
    if (a.stage >= r->n_virtual) {
        r->n_virtual = a.stage + 1;
    }
    if (a.microbatch >= r->n_microbatches) {
        r->n_microbatches = a.microbatch + 1;
    }
    return MW_OK;
}

/* "(0F8;7B0)OVERLAP_F_B" */
static enum mw_status read_pair(struct reader *r, const char *p,
                                const char *end)
{
    static const char help[] =
        "is not an overlapped pair; write it as (0F8;7B0)OVERLAP_F_B";
    const char *semi = memchr(p, ';', (size_t)(end - p));
    const char *close = memchr(p, ')', (size_t)(end - p));
    enum mw_status st;

    if (semi == NULL || close == NULL || semi > close || end - close != 12 ||
        !is_word(close + 1, end, "OVERLAP_F_B")) {
        return bad(r, p, (int)(end - p), help);
    }
    st = read_action(r, p + 1, semi, MW_SLOT_PAIR);
    return st == MW_OK ? read_action(r, semi + 1, close, 0) : st;
}

static enum mw_status read_cell(struct reader *r, const char *p,
                                const char *end)
{
    while (p < end && strchr(" \t\"", *p) != NULL) {
        p++;
    }
    while (p < end && strchr(" \t\r\"", end[-1]) != NULL) {
        end--;
    }
    if (p == end) {
        return MW_OK;
    }
    return *p == '(' ? read_pair(r, p, end) : read_action(r, p, end, 0);
}

static enum mw_status read_line(struct reader *r, const char *end)
{
    const char *p = r->line;
    enum mw_status st = MW_OK;

    while (st == MW_OK && p <= end) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma != NULL ? comma : end;

        st = read_cell(r, p, stop);
        p = stop + 1;
    }
    return st;
}

static enum mw_status read_lines(struct reader *r, const char *text, size_t len)
{
    const char *end = text + len;
    enum mw_status st = MW_OK;

    for (r->line = text; st == MW_OK && r->line < end; r->line_no++) {
        const char *newline = memchr(r->line, '\n', (size_t)(end - r->line));
        const char *stop = newline != NULL ? newline : end;

        if (r->rank >= MW_SCHED_STAGES_MAX) {
            return bad(r, r->line, 1, "begins a rank too many");
        }
        st = read_line(r, stop);
        if (st == MW_OK) {
            r->rank++;
            r->line = stop + 1;
        }
    }
    return st;
}

/* Is every action where the placement puts its virtual stage? */
static bool is_placed(const struct reader *r, const struct mw_schedule *s)
{
    size_t i;

    for (i = 0; i < r->actions.n; i++) {
        const struct action *a = &r->actions.v[i];

        if (s->device[a->stage] != a->rank) {
            return false;
        }
    }
    return true;
}

static enum mw_status say_misplaced(const struct reader *r)
{
    return mw_fail(r->err, MW_EINPUT,
                   "%s: the %d stages lie on the %d ranks neither in a loop "
                   "(stage k on rank k mod %d) nor in a V",
                   r->file, r->n_virtual, r->rank, r->rank);
}

static enum mw_status build(const struct reader *r, struct mw_schedule *out)
{
    struct mw_sched_shape shape = {
        "custom", r->rank,      r->n_microbatches, r->n_virtual / r->rank,
        1,        MW_PLACE_LOOP};
    struct mw_sched_build b;
    bool has_backward = false;
    size_t i;

    mw_sched_begin(&b, &shape);
    if (!is_placed(r, &b.s)) {
        mw_sched_drop(&b);
        shape.placement = MW_PLACE_V;
        mw_sched_begin(&b, &shape);
        if (!is_placed(r, &b.s)) {
            mw_sched_drop(&b);
            return say_misplaced(r);
        }
    }
    for (i = 0; i < r->actions.n; i++) {
        const struct action *a = &r->actions.v[i];

        mw_sched_push(&b, a->rank, (enum mw_pass)a->pass, a->microbatch,
                      b.s.chunk[a->stage]);
        if ((a->flags & MW_SLOT_PAIR) != 0) {
            mw_sched_pair(&b, a->rank);
        }
        has_backward |= a->pass != MW_PASS_F;
    }
    mw_sched_end(&b, out);
    out->is_forward_only = !has_backward;
    return MW_OK;
}

enum mw_status mw_torch_csv_parse(const char *file, const char *text,
                                  size_t len, struct mw_schedule *out,
                                  struct mw_err *err)
{
    struct reader r = {.file = file, .line_no = 1, .err = err};
    enum mw_status st = read_lines(&r, text, len);

    if (st == MW_OK && r.actions.n == 0) {
        st = mw_fail(err, MW_EINPUT, "%s: there is no action in it", file);
    }
    if (st == MW_OK &&
        (r.n_virtual % r.rank != 0 ||
         (double)r.n_virtual * r.n_microbatches > MW_SCHED_SLOTS_MAX)) {
        st = mw_fail(err, MW_EINPUT,
                     "%s: %d stages and %d micro-batches do not fit %d ranks; "
                     "every rank has a line and the same number of stages",
                     file, r.n_virtual, r.n_microbatches, r.rank);
    }
    if (st == MW_OK) {
        st = build(&r, out);
    }
    mw_array_release(&r.actions);
    return st;
}

/* ---- writing ----------------------------------------------------------- */
static void add_action(const struct mw_schedule *s, int d,
                       const struct mw_slot *x, struct mw_str *text)
{
    static const char op[MW_PASS_COUNT] = {'F', 'I', 'W', 'B'};
    size_t at = (size_t)d * (size_t)s->n_chunks + (size_t)x->chunk;

    mw_str_addf(text, "%d%c%d", (int)s->virtual_stage[at], op[x->pass],
                (int)x->microbatch);
}

enum mw_status mw_torch_csv_add(const struct mw_schedule *s,
                                struct mw_str *text, struct mw_err *err)
{
    int d;
    uint32_t i;

    if (s->n_routes != 1 || s->n_parts != 1) {
        return mw_fail(err, MW_EUSAGE,
                       "the CSV format of torch.distributed.pipelining has no "
                       "words for %s, which %s",
                       s->name,
                       s->n_routes != 1 ? "runs micro-batches both ways"
                                        : "cuts sequences in parts");
    }
    for (d = 0; d < s->n_stages; d++) {
        for (i = s->first[d]; i < s->first[d + 1]; i++) {
            bool is_pair = (s->slot[i].flags & MW_SLOT_PAIR) != 0;

            mw_str_add(text, i > s->first[d] ? "," : "");
            mw_str_add(text, is_pair ? "(" : "");
            add_action(s, d, &s->slot[i], text);
            if (is_pair) {
                mw_str_add(text, ";");
                add_action(s, d, &s->slot[++i], text);
                mw_str_add(text, ")OVERLAP_F_B");
            }
        }
        mw_str_add(text, "\n");
    }
    return MW_OK;
}
