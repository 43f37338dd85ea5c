/*
 * Lists as text: "F0 F1 BW0 ..." one device a line, pass, micro-batch, and
 * ".chunk" where a device has several chunks; "F4.1+BW2.0" is an overlapped
 * pair. What plan files hold and `sched --order` prints.
 */
#include "sim/pipe/schedule_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *const pass_text[MW_PASS_COUNT] = {"F", "B", "W", "BW"};

const char *mw_slot_name(const struct mw_schedule *s,
                         const struct mw_slot *slot, char buf[MW_SLOT_NAME_MAX])
{
    const char *pass = slot->pass < MW_PASS_COUNT ? pass_text[slot->pass] : "?";

    if (s->n_chunks > 1) {
        snprintf(buf, MW_SLOT_NAME_MAX, "%s%d.%d", pass, (int)slot->microbatch,
                 (int)slot->chunk);
    } else {
        snprintf(buf, MW_SLOT_NAME_MAX, "%s%d", pass, (int)slot->microbatch);
    }
    return buf;
}

void mw_schedule_format(const struct mw_schedule *s, int device,
                        struct mw_str *text)
{
    char name[MW_SLOT_NAME_MAX];
    const char *sep = "";
    uint32_t i;

    for (i = s->first[device]; i < s->first[device + 1]; i++) {
        mw_str_add(text, sep);
        mw_str_add(text, mw_slot_name(s, &s->slot[i], name));
        sep = (s->slot[i].flags & MW_SLOT_PAIR) != 0 ? "+" : " ";
    }
}

/* ---- reading ----------------------------------------------------------- */
struct reader {
    struct mw_sched_build b;
    int device;
    struct mw_err *err;
};

/* Digits at *p as 0 .. limit - 1; -1 when there are none or too many. */
static int number(const char **p, int limit)
{
    long v = 0;

    if (!isdigit((unsigned char)**p)) {
        return -1;
    }
    for (; isdigit((unsigned char)**p); (*p)++) {
        v = v * 10 + (**p - '0');
        if (v > INT32_MAX / 2) {
            return -1;
        }
    }
    return v < limit ? (int)v : limit;
}

static int pass_of(const char **p)
{
    if (strncmp(*p, "BW", 2) == 0) {
        *p += 2;
        return MW_PASS_BW;
    }
    switch (*(*p)++) {
    case 'F':
        return MW_PASS_F;
    case 'B':
        return MW_PASS_B;
    case 'W':
        return MW_PASS_W;
    default:
        return -1;
    }
}

static enum mw_status bad_token(const struct reader *r, const char *token,
                                const char *why)
{
    int len = (int)strcspn(token, " \t");

    return mw_fail(r->err, MW_EINPUT, "stage %d: '%.*s' %s", r->device,
                   len > 40 ? 40 : len, token, why);
}

/* One pass at *p; leaves *p behind it. */
static enum mw_status read_slot(struct reader *r, const char *token,
                                const char **p)
{
    int pass = pass_of(p), chunk = 0, item;
    int items = mw_schedule_items(&r->b.s);

    if (pass < 0) {
        return bad_token(r, token,
                         "is not a pass; write F3, B3, W3 or BW3, "
                         "and F3.1 for chunk 1");
    }
    item = number(p, items);
    if (item < 0) {
        return bad_token(r, token, "needs a micro-batch number, as in F3");
    }
    if (**p == '.') {
        (*p)++;
        chunk = number(p, r->b.s.n_chunks);
    }
    if (item >= items) {
        return mw_fail(r->err, MW_EINPUT,
                       "stage %d: '%.*s' is of micro-batch %d or more, but "
                       "there are %d (0 to %d)",
                       r->device, (int)strcspn(token, " \t"), token, item,
                       items, items - 1);
    }
    if (chunk < 0 || chunk >= r->b.s.n_chunks) {
        return mw_fail(r->err, MW_EINPUT,
                       "stage %d: '%.*s' needs a chunk from 0 to %d", r->device,
                       (int)strcspn(token, " \t"), token, r->b.s.n_chunks - 1);
    }
    mw_sched_push(&r->b, r->device, (enum mw_pass)pass, item, chunk);
    return MW_OK;
}

static enum mw_status read_list(struct reader *r, const char *text)
{
    const char *p = text;

    for (;;) {
        const char *token;
        enum mw_status st;

        p += strspn(p, " \t\r\n,");
        if (*p == '\0') {
            return MW_OK;
        }
        token = p;
        st = read_slot(r, token, &p);
        if (st == MW_OK && *p == '+') {
            mw_sched_pair(&r->b, r->device);
            p++;
            st = read_slot(r, token, &p);
        }
        if (st == MW_OK && *p != '\0' && strchr(" \t\r\n,", *p) == NULL) {
            st = bad_token(r, token,
                           "goes on after the pass; separate passes "
                           "by spaces");
        }
        if (st != MW_OK) {
            return st;
        }
    }
}

static int placement_of(const char *name)
{
    int i;

    for (i = MW_PLACE_LOOP; i <= MW_PLACE_BIDIRECTIONAL; i++) {
        if (strcmp(name, mw_placement_name((enum mw_placement)i)) == 0) {
            return i;
        }
    }
    return -1;
}

static enum mw_status check_shape(int n_stages, int n_microbatches,
                                  int n_chunks, const char *placement,
                                  struct mw_err *err)
{
    int place = placement_of(placement);

    if (n_stages < 1 || n_stages > MW_SCHED_STAGES_MAX || n_microbatches < 1 ||
        n_microbatches > MW_SCHED_MICROBATCHES_MAX || n_chunks < 1 ||
        n_chunks > MW_SCHED_CHUNKS_MAX || n_stages * n_chunks > INT16_MAX) {
        return mw_fail(
            err, MW_EINPUT,
            "a schedule of %d stages, %d micro-batches and %d chunks "
            "is out of range",
            n_stages, n_microbatches, n_chunks);
    }
    if (place < 0) {
        return mw_fail(err, MW_EINPUT,
                       "placement '%s' is not known; write loop, v or "
                       "bidirectional",
                       placement);
    }
    if (place == MW_PLACE_BIDIRECTIONAL &&
        (n_microbatches % 2 != 0 || n_chunks % 2 != 0 ||
         (n_chunks != 2 && n_stages > 1))) {
        return mw_fail(err, MW_EINPUT,
                       "a bidirectional schedule has 2 chunks and an even "
                       "number of micro-batches, not %d and %d",
                       n_chunks, n_microbatches);
    }
    return MW_OK;
}

static bool has_backward(const struct mw_schedule *s)
{
    uint32_t i;

    for (i = 0; i < s->first[s->n_stages]; i++) {
        if (s->slot[i].pass != MW_PASS_F) {
            return true;
        }
    }
    return false;
}

enum mw_status mw_schedule_parse_parts(const char *const *device_lists,
                                       int n_stages, int n_microbatches,
                                       int n_chunks, int n_parts,
                                       const char *placement,
                                       struct mw_schedule *out,
                                       struct mw_err *err)
{
    enum mw_status st =
        check_shape(n_stages, n_microbatches, n_chunks, placement, err);
    struct mw_sched_shape shape = {"custom", n_stages, n_microbatches,
                                   n_chunks, n_parts,  MW_PLACE_LOOP};
    struct reader r = {.err = err};

    if (st != MW_OK) {
        return st;
    }
    if (n_parts < 1 || n_parts > MW_SCHED_CHUNKS_MAX) {
        return mw_fail(err, MW_EINPUT,
                       "a micro-batch has 1 to %d parts, not %d",
                       MW_SCHED_CHUNKS_MAX, n_parts);
    }
    shape.placement = (enum mw_placement)placement_of(placement);
    mw_sched_begin(&r.b, &shape);
    for (; st == MW_OK && r.device < n_stages; r.device++) {
        st = read_list(&r, device_lists[r.device]);
    }
    if (st != MW_OK) {
        mw_sched_drop(&r.b);
        return st;
    }
    mw_sched_end(&r.b, out);
    out->is_forward_only = !has_backward(out);
    return MW_OK;
}

enum mw_status mw_schedule_parse(const char *const *device_lists, int n_stages,
                                 int n_microbatches, int n_chunks,
                                 const char *placement, struct mw_schedule *out,
                                 struct mw_err *err)
{
    return mw_schedule_parse_parts(device_lists, n_stages, n_microbatches,
                                   n_chunks, 1, placement, out, err);
}
