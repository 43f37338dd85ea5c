/*
 * Inside the automatic scheduler. Identical micro-batches run first in, first
 * out per pass and chunk (without loss of generality), so an order is one byte
 * a pass: type and chunk; micro-batch numbers follow by counting.
 *
 *   mw_zb         the problem, in ps and in memory units
 *   mw_zb_order   per device a sequence of codes
 *   mw_zb_run     workspace of one evaluation
 */
#ifndef MW_SIM_PIPE_ZB_INT_H
#define MW_SIM_PIPE_ZB_INT_H

#include "sim/pipe/auto.h"
#include "sim/pipe/schedule_int.h"

enum { MW_ZB_F = 0, MW_ZB_B = 1, MW_ZB_W = 2, MW_ZB_CHUNKS_MAX = 8 };
#define MW_ZB_CODE(type, chunk) ((uint8_t)((type) | (chunk) << 2))
#define MW_ZB_TYPE(code) ((code)&3)
#define MW_ZB_CHUNK(code) ((code) >> 2)
#define MW_ZB_NEVER INT64_MAX /* not feasible, or worse than the cutoff */

struct mw_zb {
    int p, m, v, n_virtual; /* n_virtual = p v */
    bool is_span;
    bool is_fused;      /* B carries W's time; W takes none and frees nothing */
    int *dev, *chunk;   /* [p v] of a virtual stage */
    int *vs;            /* [p v] of (device, chunk) */
    mw_time *f, *b, *w; /* [p v] by (device, chunk) */
    mw_time comm;
    /* Memory of a chunk's activation: F takes mem_f, B frees mem_b, W frees
     * mem_w; limit per device. */
    int64_t mem_f, mem_b, mem_w, *limit;
    mw_time *work;       /* [p] m (F + B + W) over the chunks */
    mw_time *head;       /* [p] earliest start of the first forward */
    int *k_max;          /* [p] chunk activations that fit, at most m v */
    double effort;       /* passes evaluated so far */
    double effort_limit; /* construction stops here */
};
/* Has the construction used up what it may? */
static inline bool mw_zb_is_spent(const struct mw_zb *z)
{
    return z->effort >= z->effort_limit;
}

void mw_zb_init(struct mw_zb *z, const struct mw_auto_problem *problem);
void mw_zb_release(struct mw_zb *z);
/* Other times (one block [3 * p v]: F, B, W; the problem's own is not freed)
 * with all that follows from them. */
void mw_zb_set_times(struct mw_zb *z, mw_time *fbw, mw_time comm);
/* Preconditions of a problem; names what is wrong (MW_EUSAGE). */
enum mw_status mw_zb_check(const struct mw_auto_problem *problem,
                           struct mw_err *err);
/* Fewest chunk activations with which any order can finish. */
int mw_zb_min_chunks(int p, int m, int v);

/* ---- orders ------------------------------------------------------------ */
struct mw_zb_order {
    uint8_t *code; /* device d: code[d * stride .. + n[d] - 1] */
    int *n;
    int stride;
};
void mw_zb_order_init(struct mw_zb_order *o, const struct mw_zb *z);
void mw_zb_order_release(struct mw_zb_order *o);
void mw_zb_order_copy(struct mw_zb_order *to, const struct mw_zb_order *from,
                      int p);
static inline uint8_t *mw_zb_list(const struct mw_zb_order *o, int d)
{
    return o->code + (size_t)d * (size_t)o->stride;
}
static inline void mw_zb_add(struct mw_zb_order *o, int d, uint8_t code)
{
    mw_zb_list(o, d)[o->n[d]++] = code;
}

/* ---- evaluation -------------------------------------------------------- */
/* Where the W passes go, given the order of F and B (zb_insert.c). */
struct mw_zb_rule {
    mw_time target;      /* objective aimed at while forwards are left ... */
    mw_time target_tail; /* ... and afterwards: idle beyond it is filled */
    bool fill_f, fill_b; /* a W may delay the F (B) that follows it */
    /* Rows only: idle is filled beyond that of the stage which has waited
     * longest so far, instead of beyond a target; and forwards are left out
     * where the next stage has enough. */
    bool is_level, may_skip;
};
struct mw_zb_run {
    mw_time *f_end, *b_end;  /* [p v][m] */
    int *n_f, *n_b, *n_w;    /* [p v] done, by (device, chunk) */
    struct mw_zb_lane *lane; /* [p] */
    uint8_t *queue;          /* [p][m v] chunks in the order of their B */
    int *stack;
    bool *is_stacked;
    int n_stacked;
    mw_time *start, *end; /* [p]: of the devices, after a run */
};
void mw_zb_run_init(struct mw_zb_run *r, const struct mw_zb *z);
void mw_zb_run_release(struct mw_zb_run *r);

/*
 * Runs the F/B order with W passes inserted; the objective, or MW_ZB_NEVER when
 * memory or dependencies forbid it or it cannot be below cutoff. out (may be
 * NULL) receives the full order.
 */
mw_time mw_zb_insert(struct mw_zb *z, struct mw_zb_run *r,
                     const struct mw_zb_order *fb,
                     const struct mw_zb_rule *rule, mw_time cutoff,
                     struct mw_zb_order *out);
/*
 * One chunk: warm[i] forwards on stage i, then row by row one F on every stage
 * from the first and one B from the last, after the
 * authors' heuristic. Values as mw_zb_insert.
 */
mw_time mw_zb_rows(struct mw_zb *z, struct mw_zb_run *r, const int *warm,
                   const struct mw_zb_rule *rule, mw_time cutoff,
                   struct mw_zb_order *out);
/* Objective of a full order by longest path; MW_ZB_NEVER when it deadlocks or
 * exceeds memory. r->f_end, b_end hold the ends afterwards. */
mw_time mw_zb_eval(struct mw_zb *z, struct mw_zb_run *r,
                   const struct mw_zb_order *full);

/* ---- bounds (zb_bound.c) ----------------------------------------------- */
mw_time mw_zb_bound(const struct mw_zb *z, const char **out_by);
/* One chunk: least time from the start of a forward on stage i to the start of
 * its B there. */
mw_time mw_zb_path(const struct mw_zb *z, int i);

/* ---- search ------------------------------------------------------------ */
void mw_zb_rows_order(const struct mw_zb *z, const int *w,
                      struct mw_zb_order *fb);
struct mw_zb_best {
    struct mw_zb_order order; /* full */
    mw_time value;
    mw_time bound;
    const char *found_by;
};
/* Keeps the order (by inserting again) when the rule gives less than best. True
 * when the bound is met. */
bool mw_zb_try(struct mw_zb *z, struct mw_zb_run *r,
               const struct mw_zb_order *fb, const struct mw_zb_rule *rule,
               struct mw_zb_best *best, const char *who);
/* One chunk: warm-up counts by budget, rows, portfolio of rules. */
void mw_zb_greedy(struct mw_zb *z, struct mw_zb_run *r,
                  struct mw_zb_best *best);
/* List scheduling (zb_list.c): W waits for `patience` of its time before it is
 * put into a gap; forwards come first while fewer than `lead` are in flight. */
/* Among passes of a kind: deeper chunk first; first come first; the one
 * farthest on its way (deeper forward, shallower backward). */
enum mw_zb_among { MW_ZB_DEEPER, MW_ZB_BY_ARRIVAL, MW_ZB_FARTHEST };
struct mw_zb_list_rule {
    double patience;
    int lead;
    enum mw_zb_among among;
    const struct mw_zb_order *base; /* F/B order to follow, or NULL */
    int look;
    int edge; /* overtaking only in the first and last `edge` places */
};
mw_time mw_zb_list_run(struct mw_zb *z, struct mw_zb_run *r,
                       const struct mw_zb_list_rule *rule,
                       struct mw_zb_order *out);
void mw_zb_lists(struct mw_zb *z, struct mw_zb_run *r, struct mw_zb_best *best);
/* Two chunks in V placement (zb_vee.c): block orders, advance, insertion. */
/* Block orders with a name. */
enum mw_zb_block { MW_ZB_V_MIN, MW_ZB_V_HALF, MW_ZB_1F1B_V };
void mw_zb_vee(struct mw_zb *z, struct mw_zb_run *r, struct mw_zb_best *best);
/* From one block order alone. */
void mw_zb_vee_block(struct mw_zb *z, struct mw_zb_run *r,
                     enum mw_zb_block kind, struct mw_zb_best *best);
/* From the passes of a schedule of the same shape, in real times. */
void mw_zb_vee_from(struct mw_zb *z, struct mw_zb_run *r,
                    const struct mw_schedule *s, struct mw_zb_best *best);
void mw_zb_strip(const struct mw_zb *z, const struct mw_zb_order *full,
                 struct mw_zb_order *fb);
/* Simulated annealing from the best order, for at most effort passes. */
void mw_zb_polish(struct mw_zb *z, struct mw_zb_run *r, double effort,
                  struct mw_zb_best *best);

#endif
