/*
 * ZeRO-3 in units of several layers, gathered some units ahead (Zhao et al.,
 * "PyTorch FSDP", VLDB 2023, sections 3.2 and 3.3: wrapped modules,
 * forward_prefetch, limit_all_gathers; DeepSpeed's
 * stage3_prefetch_bucket_size). A virtual stage of L layers under fsdp_unit k:
 *
 *   embedding | k layers | k layers | ... | the rest | head
 *
 * is ceil(L / k) gathers a pass and what the ends are by themselves; k = 0 is
 * one gather of all. With n units of gather g, work w and scatter r, d of them
 * gathered ahead, one after another on one wire:
 *
 *   wire   g0 |g1    |  g2     |           d = 1: g(i+d) is asked for when w(i)
 *   work      |w0 | .|w1    |.|w2   |      begins, and w(i) waits for g(i)
 *
 *   d = 0: g(i) is asked for when w(i-1) has ended, and nothing hides it. The
 *   first d gathers of a pass are asked for as it begins. Backward the same
 *   from the last unit to the first, r(i) behind g(i+1+d), the last one alone.
 *
 * What a pass takes longer than its work is R; of a stack that hides a part o
 * of what it could, (1 - o) sum(g + r) + o R is exposed. d + 1 units are whole
 * at a time.
 *
 * The stack's own way (a layer a unit, no depth given) is price.c's formula,
 * which takes a layer's neighbours to be like it and the first weights of a
 * backward pass to be there from the forward pass: for alike layers the two
 * differ by that gather alone.
 *
 * The work beside what is hidden takes longer (contend.c), which stands with
 * what is exposed.
 *
 * Left out: that longer work hides more; parts of a layer as units; that a
 * gather ahead crosses the end of a pass; of two kinds of layers memory takes
 * the larger ones to be neighbours.
 */
#include "sim/step/step_int.h"

#include <math.h>

/* ---- which units ----------------------------------------------------------
 */
static bool is_whole(const struct mw_step_price *p)
{
    return p->layout->fsdp_unit == 0;
}

bool mw_fsdp_is_alike(const struct mw_step_price *p)
{
    return !mw_layout_wraps(p->layout) ||
           ((p->layer[MW_UNIT_DENSE] < 0 || p->layer[MW_UNIT_MOE] < 0) &&
            p->local[MW_UNIT_DENSE] < 0 && p->local[MW_UNIT_MOE] < 0);
}

int mw_fsdp_units(const struct mw_step_price *p, const struct mw_vstage *v)
{
    int k = p->layout->fsdp_unit;

    return is_whole(p) ? 1
                       : v->n_units[MW_UNIT_EMBEDDING] +
                             (mw_units_layers(v->n_units) + k - 1) / k +
                             v->n_units[MW_UNIT_HEAD];
}

/* Layers from `begin` on of a virtual stage, up to `end`. */
static void count_layers(const struct mw_step_price *p,
                         const struct mw_vstage *v, int begin, int end,
                         int n_units[MW_UNIT_COUNT])
{
    int recomputed = v->n_units[MW_UNIT_DENSE] + v->n_units[MW_UNIT_MOE] +
                     v->n_units[MW_UNIT_DENSE_LOCAL] +
                     v->n_units[MW_UNIT_MOE_LOCAL];

    for (int i = begin; i < end; i++) {
        n_units[mw_step_layer_unit(p, v->first + i, i >= recomputed)]++;
    }
}

void mw_fsdp_unit(const struct mw_step_price *p, const struct mw_vstage *v,
                  int i, int n_units[MW_UNIT_COUNT])
{
    int k = p->layout->fsdp_unit, n = mw_units_layers(v->n_units);

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        n_units[unit] = is_whole(p) ? v->n_units[unit] : 0;
    }
    if (is_whole(p)) {
        return;
    }
    i -= v->n_units[MW_UNIT_EMBEDDING];
    if (i < 0) {
        n_units[MW_UNIT_EMBEDDING] = 1;
    } else if (i * k >= n) {
        n_units[MW_UNIT_HEAD] = 1;
    } else {
        count_layers(p, v, i * k, (i + 1) * k < n ? (i + 1) * k : n, n_units);
    }
}

/* ---- time -----------------------------------------------------------------
 */
struct piece {
    double gather_s, work_s, scatter_s;
};

/* Of a forward and of a backward pass. */
struct unit_times {
    struct piece way[2];
};

static double work_s(const struct mw_step_price *p,
                     const int n_units[MW_UNIT_COUNT], enum mw_phase first,
                     enum mw_phase last)
{
    double sum = 0;

    for (int unit = 0; unit < p->n_kinds; unit++) {
        for (int phase = (int)first; n_units[unit] > 0 && phase <= (int)last;
             phase++) {
            for (int lane = 0; lane < MW_LANE_DP; lane++) {
                sum += n_units[unit] * p->cost[unit].phase[phase].s[lane];
            }
        }
    }
    return sum;
}

static struct unit_times times_of(const struct mw_step_price *p,
                                  const int n_units[MW_UNIT_COUNT])
{
    const struct mw_group groups[] = {mw_step_sharers(p, p->grad_group, 0),
                                      mw_step_sharers(p, p->expert_group, 0)};
    struct mw_zero_colls colls;
    struct unit_times t = {{{0, 0, 0}, {0, 0, 0}}};
    double dense = 0, expert = 0;

    for (int unit = 0; unit < p->n_kinds; unit++) {
        dense +=
            n_units[unit] * (p->size[unit].dense_params +
                             mw_step_copy_params(p, (enum mw_step_unit)unit));
        expert += n_units[unit] * p->size[unit].expert_params;
    }
    mw_zero_many_colls(p, n_units, groups, &colls);
    t.way[0].gather_s = mw_zero_colls_s(p, &colls, MW_ZERO_FORWARD);
    t.way[0].work_s = work_s(p, n_units, MW_PHASE_F, MW_PHASE_F);
    t.way[1].gather_s = mw_zero_colls_s(p, &colls, MW_ZERO_BACKWARD);
    t.way[1].work_s = work_s(p, n_units, MW_PHASE_R, MW_PHASE_W);
    t.way[1].scatter_s = mw_zero_colls_s(p, &colls, MW_ZERO_SCATTER) +
                         mw_step_replicas_s(p, dense, expert, 1);
    return t;
}

static bool is_same(const int a[MW_UNIT_COUNT], const int b[MW_UNIT_COUNT])
{
    bool same = true;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        same = same && a[unit] == b[unit];
    }
    return same;
}

/* Most units are like the one before. */
static void fill_times(const struct mw_step_price *p, const struct mw_vstage *v,
                       int n, struct unit_times *out)
{
    int now[MW_UNIT_COUNT], before[MW_UNIT_COUNT];

    for (int i = 0; i < n; i++) {
        mw_fsdp_unit(p, v, i, now);
        out[i] = i > 0 && is_same(now, before) ? out[i - 1] : times_of(p, now);
        for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
            before[unit] = now[unit];
        }
    }
}

/* What a pass over n units takes longer than their work. */
static double beyond_work_s(const struct piece *v, int n, int depth)
{
    double ready_s[MW_FSDP_PREFETCH_MAX + 1]; /* gathers, by unit mod depth + 1
                                               */
    double wire_s = 0, end_s = 0, all_s = 0;

    for (int i = 0; i < depth && i < n; i++) {
        wire_s += v[i].gather_s;
        ready_s[i] = wire_s;
    }
    for (int i = 0; i < n; i++) {
        int ahead = i + depth;
        double before_s = end_s;

        if (depth > 0) {
            end_s = fmax(end_s, ready_s[i % (depth + 1)]);
        }
        if (ahead < n) {
            wire_s = v[ahead].gather_s > 0 ? fmax(wire_s, end_s) : wire_s;
            wire_s += v[ahead].gather_s;
            ready_s[ahead % (depth + 1)] = v[ahead].gather_s > 0 ? wire_s : 0;
        }
        if (depth == 0) {
            end_s = fmax(end_s, ready_s[0]);
        }
        if (i > 0 && v[i - 1].scatter_s > 0) {
            wire_s = fmax(wire_s, before_s) + v[i - 1].scatter_s;
        }
        end_s += v[i].work_s;
        all_s += v[i].work_s;
    }
    wire_s = fmax(wire_s, end_s) + v[n - 1].scatter_s;
    return wire_s - all_s;
}

/* Exposed seconds of one way, and of which; `v` is spoilt. */
static double expose(const struct mw_step_price *p, struct piece *v, int n,
                     double *out_part)
{
    double overlap = p->ctx->stack.overlap_fsdp, off_s = 0, all_s = 0;
    int off = p->layout->overlap_off;
    int depth =
        p->layout->fsdp_prefetch >= 0
            ? p->layout->fsdp_prefetch
            : (int)fmin(p->ctx->stack.fsdp_prefetch, MW_FSDP_PREFETCH_MAX);

    for (int i = 0; i < n; i++) {
        if ((off & MW_OVERLAP_PARAMS) != 0) {
            off_s += v[i].gather_s;
            v[i].gather_s = 0;
        }
        if ((off & MW_OVERLAP_GRADS) != 0) {
            off_s += v[i].scatter_s;
            v[i].scatter_s = 0;
        }
        all_s += v[i].gather_s + v[i].scatter_s;
    }
    double exposed_s = off_s + (1 - overlap) * all_s +
                       (overlap > 0 ? overlap * beyond_work_s(v, n, depth) : 0);

    *out_part = off_s + all_s > 0 ? exposed_s / (off_s + all_s) : 0;
    return exposed_s;
}

/* What the work of a way takes longer beside hidden_s of its collectives, which
 * take all_s (contend.c). */
static double slowed_s(const struct mw_step_price *p, const struct mw_vstage *v,
                       bool is_back, double all_s, double hidden_s)
{
    const struct mw_group groups[] = {mw_step_sharers(p, p->grad_group, 0),
                                      mw_step_sharers(p, p->expert_group, 0)};
    enum mw_phase first = is_back ? MW_PHASE_R : MW_PHASE_F;
    enum mw_phase last = is_back ? MW_PHASE_W : MW_PHASE_F;
    struct mw_comm_load load = {.time_s = all_s};
    double all_work_s = work_s(p, v->n_units, first, last);
    double compute_s = 0, matrix_s = 0;
    struct mw_zero_colls colls;

    mw_zero_many_colls(p, v->n_units, groups, &colls);
    mw_zero_colls_load(p, &colls, is_back ? MW_ZERO_BACKWARD : MW_ZERO_FORWARD,
                       &load);
    if (is_back) {
        mw_zero_colls_load(p, &colls, MW_ZERO_SCATTER, &load);
    }
    for (int unit = 0; unit < p->n_kinds; unit++) {
        for (int phase = (int)first; phase <= (int)last; phase++) {
            const struct mw_phase_cost *c = &p->cost[unit].phase[phase];

            compute_s += v->n_units[unit] * c->s[MW_LANE_COMPUTE];
            matrix_s += v->n_units[unit] * c->matrix_s;
        }
    }
    double growth =
        mw_step_work_growth(p, &load, all_work_s, compute_s, matrix_s);

    return hidden_s * growth / (1 + growth);
}

void mw_fsdp_expose(const struct mw_step_price *p, struct mw_vstage *v)
{
    v->wrap_s[0] = v->wrap_s[1] = 0;
    v->wrap_part[0] = v->wrap_part[1] = 1;
    if (!mw_layout_wraps(p->layout)) {
        return;
    }
    int n = mw_fsdp_units(p, v);
    struct unit_times *times = mw_calloc((size_t)n, sizeof *times);
    struct piece *way = mw_calloc((size_t)n, sizeof *way);

    fill_times(p, v, n, times);
    for (int back = 0; n > 0 && back < 2; back++) {
        for (int i = 0; i < n; i++) {
            way[i] = times[back ? n - 1 - i : i].way[back];
        }
        double all_s = 0;

        for (int i = 0; i < n; i++) {
            all_s += way[i].gather_s + way[i].scatter_s;
        }
        double shown_s = expose(p, way, n, &v->wrap_part[back]);

        v->wrap_s[back] =
            shown_s + slowed_s(p, v, back == 1, all_s, all_s - shown_s);
    }
    mw_free(way);
    mw_free(times);
}

/* ---- memory ---------------------------------------------------------------
 */
/* Layers of a device's longest virtual stage. */
static int stage_layers(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT])
{
    int chunks = p->layout->vpp * p->n_copies;

    return (mw_units_layers(n_units) + chunks - 1) / chunks;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* So many neighbouring layers, the larger kind first; of each what `of` says.
 */
static double sum_of_layers(const struct mw_step_price *p,
                            const int n_units[MW_UNIT_COUNT], int n,
                            double (*of)(const struct mw_step_price *,
                                         enum mw_step_unit))
{
    int moe = mw_units_moe(n_units), dense = mw_units_dense(n_units);
    double each_moe = moe > 0 ? of(p, MW_UNIT_MOE) : 0;
    double each_dense = dense > 0 ? of(p, MW_UNIT_DENSE) : 0;
    int first = each_moe > each_dense ? least(n, moe) : n - least(n, dense);

    return first * each_moe + (n - first) * each_dense;
}

static double params_of(const struct mw_step_price *p, enum mw_step_unit unit)
{
    return p->size[unit].dense_params + p->size[unit].expert_params +
           mw_step_copy_params(p, unit);
}

static double
ends_of(const struct mw_step_price *p, const int n_units[MW_UNIT_COUNT],
        double (*of)(const struct mw_step_price *, enum mw_step_unit))
{
    return (n_units[MW_UNIT_EMBEDDING] > 0 ? of(p, MW_UNIT_EMBEDDING) : 0) +
           (n_units[MW_UNIT_HEAD] > 0 ? of(p, MW_UNIT_HEAD) : 0);
}

/* `units` of layers from the last one of the stage, the rest, on backward, and
 * the embedding after them. */
static double from_last(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT], int units,
                        bool is_full_first, double embedding)
{
    int k = p->layout->fsdp_unit, n = stage_layers(p, n_units);
    int rest = is_full_first || n % k == 0 ? k : n % k;
    int layers = units > 0 ? least(n, rest + (units - 1) * k) : 0;
    bool is_past = units > (n + k - 1) / k;

    return sum_of_layers(p, n_units, layers, mw_step_unit_bytes) +
           (is_past ? embedding : 0);
}

double mw_fsdp_gathered_bytes(const struct mw_step_price *p,
                              const int n_units[MW_UNIT_COUNT],
                              enum mw_step_unit unit, bool ends_are_root)
{
    int live = p->layout->fsdp_prefetch >= 0
                   ? 1 + p->layout->fsdp_prefetch
                   : (int)lround(p->ctx->stack.memory.fsdp_units);
    double embedding = !ends_are_root && n_units[MW_UNIT_EMBEDDING] > 0
                           ? mw_step_unit_bytes(p, MW_UNIT_EMBEDDING)
                           : 0;

    if (is_whole(p)) {
        return sum_of_layers(p, n_units, stage_layers(p, n_units),
                             mw_step_unit_bytes) +
               (ends_are_root ? 0 : ends_of(p, n_units, mw_step_unit_bytes));
    }
    if (unit == MW_UNIT_EMBEDDING) {
        return embedding;
    }
    if (unit == MW_UNIT_HEAD) {
        return (ends_are_root ? 0 : mw_step_unit_bytes(p, unit)) +
               from_last(p, n_units, live - 1, false, embedding);
    }
    /* In the middle, or where the embedding comes up behind the last ones. */
    return fmax(from_last(p, n_units, live, true, embedding),
                from_last(p, n_units,
                          least(live - 1, (stage_layers(p, n_units) +
                                           p->layout->fsdp_unit - 1) /
                                              p->layout->fsdp_unit),
                          true, 0) +
                    (live > 1 ? embedding : 0));
}

double mw_fsdp_whole_params(const struct mw_step_price *p,
                            const int n_units[MW_UNIT_COUNT],
                            enum mw_step_unit unit)
{
    int n = stage_layers(p, n_units);

    if (is_whole(p)) {
        return sum_of_layers(p, n_units, n, params_of) +
               ends_of(p, n_units, params_of);
    }
    return mw_unit_is_layer(unit)
               ? sum_of_layers(p, n_units, least(n, p->layout->fsdp_unit),
                               params_of)
               : params_of(p, unit);
}
