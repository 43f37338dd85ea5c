/*
 * The registry of schedule generators: name, what it is, who described it,
 * what it needs; and the one entry point that checks the arguments common to
 * all and calls the generator.
 */
#include "sim/pipe/schedule_int.h"

#include "base/yaml.h"

#include <ctype.h>
#include <math.h>

/* clang-format off */
static const struct mw_gen gens[] = {
    {{"gpipe", "all forwards, then all backwards in the same order",
      "Huang et al., GPipe, NeurIPS 2019; order of PyTorch ScheduleGPipe",
      false, 1, 1, false, false}, mw_gen_gpipe, 1},
    {{"gpipe-lifo", "all forwards, then all backwards, last micro-batch first",
      "Huang et al., GPipe, NeurIPS 2019; order of Alpa's GpipeSchedule",
      false, 1, 1, false, false}, mw_gen_gpipe_lifo, 1},
    {{"1f1b", "p-1-i warm-up forwards, then one forward, one backward",
      "Narayanan et al., PipeDream-Flush / Megatron-LM, SC 2021, section 2.2",
      false, 1, 1, false, false}, mw_gen_1f1b, 1},
    {{"eager-1f1b", "1F1B with twice the warm-up: hides transfers",
      "Zhuang et al., arXiv 2211.05322, MLSys 2023",
      false, 1, 1, false, false}, mw_gen_eager_1f1b, 1},
    {{"interleaved-1f1b", "1F1B over v chunks a device, groups of p",
      "Narayanan et al., SC 2021; PyTorch's rule when p does not divide m",
      false, 2, MW_SCHED_CHUNKS_MAX, false, false}, mw_gen_interleaved, 1},
    {{"looped-bfs", "chunk by chunk, all micro-batches each",
      "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023",
      false, 2, MW_SCHED_CHUNKS_MAX, false, false}, mw_gen_looped_bfs, 1},
    {{"interleaved-zb", "interleaved, backward split in B and W",
      "PyTorch ScheduleInterleavedZeroBubble",
      true, 2, MW_SCHED_CHUNKS_MAX, false, false}, mw_gen_interleaved_zb, 1},
    {{"zb-h1", "zero-bubble with the memory of 1F1B",
      "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.1",
      true, 1, 1, false, false}, mw_gen_zb_h1, 1},
    {{"zb-h2", "zero-bubble with twice the memory of 1F1B",
      "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2",
      true, 1, 1, false, false}, mw_gen_zb_h2, 1},
    {{"zb-v", "zero-bubble on a V of two chunks, memory of 1F1B",
      "Qi et al., arXiv 2405.15362; PyTorch ScheduleZBVZeroBubble",
      true, 2, 2, false, false}, mw_gen_zb_v, 1},
    {{"v-half", "zero-bubble on a V with half the memory of 1F1B",
      "Qi et al., Controllable Memory, arXiv 2405.15362, V-Half",
      true, 2, 2, false, false}, mw_gen_v_half, 1},
    {{"v-min", "zero-bubble on a V with a third of the memory of 1F1B",
      "Qi et al., Controllable Memory, arXiv 2405.15362, V-Min",
      true, 2, 2, false, false}, mw_gen_v_min, 1},
    {{"1f1b-v", "1F1B on a V of two chunks with two thirds of the memory",
      "sail-sg/zero-bubble-pipeline-parallelism v1f1b.py",
      false, 2, 2, false, false}, mw_gen_1f1b_v, 1},
    {{"zb-auto", "zero-bubble order made for the times and the memory limit",
      "this program; the problem of Qi et al., ICLR 2024, section 3",
      true, 1, 1, false, false}, mw_gen_zb_auto, 1},
    {{"zbv-auto", "the same on a V of two chunks",
      "this program; the problem of Qi et al., arXiv 2405.15362",
      true, 2, 2, false, false}, mw_gen_zbv_auto, 1},
    {{"dualpipe", "micro-batches from both ends, F over B overlapped",
      "DeepSeek-V3, arXiv 2412.19437, section 3.2.1; deepseek-ai/DualPipe",
      true, 1, 2, false, true}, mw_gen_dualpipe, 2},
    {{"dualpipev", "DualPipe cut in half: a V of two chunks",
      "deepseek-ai/DualPipe dualpipev.py; PyTorch ScheduleDualPipeV",
      true, 2, 2, false, false}, mw_gen_dualpipev, 1},
    {{"chimera", "two pipelines in opposite directions",
      "Li and Hoefler, Chimera, SC 2021",
      false, 1, 2, false, true}, mw_gen_chimera, 2},
    {{"hanayo", "waves: 2W chunks a device in V placement",
      "Liu et al., Hanayo, SC 2023",
      false, 2, MW_SCHED_CHUNKS_MAX, false, false}, mw_gen_hanayo, 1},
    {{"seq1f1b", "1F1B over parts of the sequence",
      "Sun et al., Seq1F1B, arXiv 2406.03488",
      false, 1, 1, false, false}, mw_gen_seq1f1b, 1},
    {{"forward-only", "forwards of inference, no backward",
      "Megatron-LM forward_only",
      false, 1, MW_SCHED_CHUNKS_MAX, true, false}, mw_gen_forward, 1},
};
/* clang-format on */

enum { N_GENS = sizeof gens / sizeof gens[0] };

static bool same_name(const char *a, const char *b)
{
    while (*a != '\0' &&
           tolower((unsigned char)*a) == tolower((unsigned char)*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

const struct mw_sched_kind *mw_schedule_kind(size_t i)
{
    return i < N_GENS ? &gens[i].kind : NULL;
}

static const struct mw_gen *find(const char *name)
{
    size_t i;

    for (i = 0; i < N_GENS; i++) {
        if (same_name(name, gens[i].kind.name)) {
            return &gens[i];
        }
    }
    return NULL;
}

const struct mw_sched_kind *mw_schedule_kind_find(const char *name)
{
    const struct mw_gen *g = find(name);

    return g != NULL ? &g->kind : NULL;
}

static enum mw_status unknown(const char *kind, struct mw_err *err)
{
    const char *name[N_GENS], *near;
    size_t i;

    for (i = 0; i < N_GENS; i++) {
        name[i] = gens[i].kind.name;
    }
    near = mw_nearest(kind, name, N_GENS);
    if (near != NULL) {
        return mw_fail(err, MW_EUSAGE,
                       "there is no schedule '%s'; did you mean %s?", kind,
                       near);
    }
    return mw_fail(err, MW_EUSAGE,
                   "there is no schedule '%s'; there are gpipe, 1f1b, zb-h1, "
                   "zb-v, zb-auto and others (see sched --help)",
                   kind);
}

static enum mw_status check_chunks(const struct mw_gen *g, int chunks,
                                   struct mw_err *err)
{
    const struct mw_sched_kind *k = &g->kind;

    if (chunks >= k->min_chunks && chunks <= k->max_chunks) {
        return MW_OK;
    }
    if (k->min_chunks == k->max_chunks) {
        return mw_fail(err, MW_EUSAGE,
                       "%s needs exactly %d chunk%s per stage, not %d", k->name,
                       k->min_chunks, k->min_chunks == 1 ? "" : "s", chunks);
    }
    return mw_fail(err, MW_EUSAGE, "%s needs %d to %d chunks per stage, not %d",
                   k->name, k->min_chunks, k->max_chunks, chunks);
}

static enum mw_status check_counts(const struct mw_gen *g,
                                   const struct mw_sched_args *a,
                                   struct mw_err *err)
{
    if (a->n_stages < g->min_stages || a->n_stages > MW_SCHED_STAGES_MAX) {
        return mw_fail(err, MW_EUSAGE, "%s needs %d to %d stages, not %d",
                       g->kind.name, g->min_stages, MW_SCHED_STAGES_MAX,
                       a->n_stages);
    }
    if (a->n_microbatches < 1 ||
        a->n_microbatches > MW_SCHED_MICROBATCHES_MAX) {
        return mw_fail(err, MW_EUSAGE, "%s needs 1 to %d micro-batches, not %d",
                       g->kind.name, MW_SCHED_MICROBATCHES_MAX,
                       a->n_microbatches);
    }
    if (a->n_parts < 0 || a->n_parts > MW_SCHED_CHUNKS_MAX) {
        return mw_fail(err, MW_EUSAGE,
                       "a micro-batch has 1 to %d parts, not %d",
                       MW_SCHED_CHUNKS_MAX, a->n_parts);
    }
    if (a->n_stages * a->n_chunks > INT16_MAX) {
        return mw_fail(err, MW_EUSAGE,
                       "%d stages x %d chunks are more than %d virtual stages",
                       a->n_stages, a->n_chunks, INT16_MAX);
    }
    if (3.0 * a->n_stages * a->n_microbatches * a->n_chunks *
            (a->n_parts > 1 ? a->n_parts : 1) >
        MW_SCHED_SLOTS_MAX) {
        return mw_fail(err, MW_EUSAGE,
                       "%d stages x %d micro-batches x %d chunks are more than "
                       "%d passes",
                       a->n_stages, a->n_microbatches, a->n_chunks,
                       MW_SCHED_SLOTS_MAX);
    }
    return MW_OK;
}

/* Simulated time ends at about 106 days. */
enum { STEP_SECONDS_MAX = 4000000 };

static enum mw_status check_length(const struct mw_sched_args *a,
                                   struct mw_err *err)
{
    double passes = (double)a->n_microbatches * a->n_chunks +
                    2.0 * a->n_stages * a->n_chunks;
    double step_s = passes * (a->f_s + a->b_s + a->w_s + 2 * a->comm_s);

    if (step_s > STEP_SECONDS_MAX) {
        return mw_fail(err, MW_EUSAGE,
                       "a step of %g seconds is longer than %d; times are in "
                       "seconds",
                       step_s, STEP_SECONDS_MAX);
    }
    return MW_OK;
}

static enum mw_status check_reals(const struct mw_sched_args *a,
                                  struct mw_err *err)
{
    const struct {
        const char *name;
        double v;
    } real[] = {{"the forward time", a->f_s},
                {"the input-gradient time", a->b_s},
                {"the weight-gradient time", a->w_s},
                {"the transfer time", a->comm_s},
                {"the memory limit", a->memory_limit}};
    size_t i;

    for (i = 0; i < sizeof real / sizeof real[0]; i++) {
        if (!isfinite(real[i].v) || real[i].v < 0) {
            return mw_fail(err, MW_EUSAGE,
                           "%s is %g; it must be finite and not negative",
                           real[i].name, real[i].v);
        }
    }
    return check_length(a, err);
}

enum mw_status mw_schedule_make(const char *kind,
                                const struct mw_sched_args *args,
                                struct mw_schedule *out, struct mw_err *err)
{
    const struct mw_gen *g = find(kind);
    struct mw_sched_args a = *args;
    enum mw_status st;

    if (g == NULL) {
        return unknown(kind, err);
    }
    if (a.n_chunks == 0) {
        a.n_chunks = g->kind.min_chunks;
    }
    st = check_chunks(g, a.n_chunks, err);
    if (st == MW_OK) {
        st = check_counts(g, &a, err);
    }
    if (st == MW_OK) {
        st = check_reals(&a, err);
    }
    if (st == MW_OK) {
        st = g->make(&a, out, err);
    }
    return st;
}
