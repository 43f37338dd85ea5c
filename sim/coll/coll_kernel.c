/*
 * Likeness of collectives: how much the correction of one tells about that of
 * another.
 *
 * The log of measured / model's time is taken as a Gaussian process with mean
 * 0: without evidence NCCL's own figure stands, and every correction is pulled
 * towards it the more, the thinner the evidence (Rasmussen and Williams,
 * Gaussian Processes for Machine Learning, 2006, chapter 2; kriging in
 * geostatistics). The covariance of two points is a sum of what
 *
 *   all machines share    the knee between latency and bandwidth, by the
 *                         latency's share of the time
 *   GPUs of a kind share  base and hop latencies, two-rank rings
 *   a class shares        architecture and link or network: smooth over sizes,
 *                         and size by size (switch points of protocols)
 *   an odd machine has    networks and PCIe hosts that are like no other (TCP
 *                         and TCPX are like each other)
 *
 * each times likenesses of operation, algorithm, ranks and nodes. What all
 * machines and GPUs of a kind share is divided by where the time goes: the part
 * inside nodes tells about such parts, the network's about networks, which are
 * less alike. A campaign
 * of measurements has an offset of its own besides, which no prediction uses.
 *
 * The constants are standard deviations of a log ratio and lengths in octaves;
 * they were chosen by leaving out campaigns, and (machine, operation, ranks),
 * in turn. Halving or doubling any of them moves the medians by less than a
 * tenth of themselves.
 */
#include "sim/coll/coll_int.h"

#include <math.h>
#include <string.h>

enum { ALGO_P2P = MW_NCCL_ALGOS, ALGO_PLAIN };

enum coll_family {
    FAMILY_OTHER,
    FAMILY_RDMA,  /* InfiniBand and RoCE: the same verbs */
    FAMILY_RACKS, /* the same between NVL72 domains */
    FAMILY_NVSWITCH,
    FAMILY_TCP /* with and without GPUDirect: the host's stack */
};

/* clang-format off */
static const double
    SD_ALL = .20, SHARE_ALL = .20, KNEE_ALL = 1.5,
    SD_GPU = .22, SHARE_GPU = .20, RANKS_GPU = .8,
    SD_CLASS = .15, SIZE_CLASS = 2, SCALE_CLASS = 3,
    SD_SIZE = .15, SIZE_SIZE = .25, SCALE_SIZE = 1,
    SD_ODD = 2, SIZE_ODD = .5, SIZE_ODD_WIDE = 4,
    SD_ANY = .02,
    SD_CAMPAIGN = .05, SD_CAMPAIGN_NET = .05,
    SD_DRIFT = .07, SIZE_DRIFT = 4,
    SD_NOISE = .07, SD_NOISE_SMALL = .032,
    OTHER_ALGO = .6, OTHER_ALGO_P2P = .3, OTHER_OP = .6, OTHER_GATHER = .8,
    OTHER_SEND = .35, OTHER_ODD = .8, ODD_TO_USUAL = .5,
    FAMILY_KIN = .8, RDMA_KIN = .5, NET_ALIKE = .5, WIRE_ONLY = .5;
/* clang-format on */

static uint32_t hash(const char *s, size_t n)
{
    uint32_t h = 2166136261U;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)s[i]) * 16777619U;
    }
    return h;
}

static uint8_t index_of_op(const char *op)
{
    int i = 0;
    while (i < MW_COLL_OP_COUNT &&
           strcmp(op, mw_coll_op_name((enum mw_coll_op)i)) != 0) {
        i++;
    }
    return (uint8_t)i;
}

static uint8_t index_of_algo(const char *algo)
{
    for (int i = 0; i < MW_NCCL_ALGOS; i++) {
        if (strcmp(algo, mw_nccl_algo_name((enum mw_nccl_algo)i)) == 0) {
            return (uint8_t)i;
        }
    }
    return strcmp(algo, "p2p") == 0 ? ALGO_P2P : ALGO_PLAIN;
}

static uint8_t index_of_proto(const char *proto)
{
    int i = 0;
    while (i < MW_NCCL_PROTOS &&
           strcmp(proto, mw_nccl_proto_name((enum mw_nccl_proto)i)) != 0) {
        i++;
    }
    return (uint8_t)i;
}

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++) {
        if (strcmp(text, *list) == 0) {
            return true;
        }
    }
    return false;
}

static enum coll_family family_of(const char *kind)
{
    static const char *const rdma[] = {"ib", "roce", NULL};
    static const char *const racks[] = {"racks-ib", "racks-roce", NULL};
    static const char *const switches[] = {"nvswitch", "rack", NULL};
    static const char *const tcp[] = {"tcp", "tcpx", NULL};
    return is_one_of(kind, rdma)       ? FAMILY_RDMA
           : is_one_of(kind, racks)    ? FAMILY_RACKS
           : is_one_of(kind, switches) ? FAMILY_NVSWITCH
           : is_one_of(kind, tcp)      ? FAMILY_TCP
                                       : FAMILY_OTHER;
}

void coll_feature_of(const struct mw_coll_knot *k, struct coll_feature *f)
{
    static const char *const odd[] = {"tcp", "tcpx", "slingshot", NULL};
    const char *dot = strchr(k->cls, '.');
    const char *kind = dot ? dot + 1 : k->cls;
    double wire = 1 - k->share;
    *f = (struct coll_feature){
        .arch = hash(k->cls, (size_t)(kind - k->cls)),
        .kind = hash(kind, strlen(kind)),
        .machine = hash(k->machine, strlen(k->machine)),
        .campaign = hash(k->campaign, strlen(k->campaign)),
        .family = (uint8_t)family_of(kind),
        .op = index_of_op(k->op),
        .algo = index_of_algo(k->algo),
        .proto = index_of_proto(k->proto),
        .is_multi = k->nodes > 1,
        .is_odd = is_one_of(kind, odd) || strncmp(kind, "pcie", 4) == 0,
        .is_plain = strcmp(k->algo, "plain") == 0,
        .log2_ranks = log2(k->ranks),
        .log2_nodes = log2(k->nodes),
        .log2_bytes = k->log2_bytes,
        .net = k->net,
        .share = k->share};
    double knee = log2(k->share / (wire > 1e-4 ? wire : 1e-4));
    f->knee = knee > 4 ? 4 : knee < -5 ? -5 : knee;
}

static double near(double distance, double length)
{
    double x = distance / length;
    return exp(-.5 * x * x);
}

static double kind_likeness(const struct coll_feature *a,
                            const struct coll_feature *b)
{
    bool is_kin = a->family == b->family && a->family != FAMILY_OTHER;
    return a->kind == b->kind         ? 1
           : !is_kin                  ? 0
           : a->family == FAMILY_RDMA ? RDMA_KIN
                                      : FAMILY_KIN;
}

static bool is_gather(uint8_t op)
{
    return op == MW_ALL_GATHER || op == MW_REDUCE_SCATTER;
}

static double op_likeness(const struct coll_feature *a,
                          const struct coll_feature *b)
{
    return a->op == b->op                                   ? 1
           : a->op == MW_SEND_RECV || b->op == MW_SEND_RECV ? OTHER_SEND
           : is_gather(a->op) && is_gather(b->op)           ? OTHER_GATHER
                                                            : OTHER_OP;
}

static double algo_likeness(const struct coll_feature *a,
                            const struct coll_feature *b)
{
    return a->algo == b->algo ? 1
           : a->algo == ALGO_P2P || b->algo == ALGO_P2P
               ? OTHER_ALGO * OTHER_ALGO_P2P
               : OTHER_ALGO;
}

/* Bandwidths over the network are trusted more than latencies. */
static double trust(const struct coll_feature *f)
{
    return f->is_multi
               ? WIRE_ONLY + (1 - WIRE_ONLY) / (1 + exp(-2 * (f->knee + 3)))
               : 1;
}

static double odd_part(const struct coll_feature *a,
                       const struct coll_feature *b, double scale)
{
    double d = a->log2_bytes - b->log2_bytes;
    double like = (a->algo == b->algo ? 1 : OTHER_ODD) *
                  (a->op == b->op ? 1 : OTHER_ODD) * near(d, SIZE_ODD);
    return SD_ODD * SD_ODD * scale * (like + .5 * near(d, SIZE_ODD_WIDE));
}

double coll_kernel(const struct coll_feature *a, const struct coll_feature *b)
{
    if (a->is_plain != b->is_plain) {
        return 0;
    }
    double share = a->share - b->share, size = a->log2_bytes - b->log2_bytes;
    double ranks = a->log2_ranks - b->log2_ranks;
    double nodes = a->log2_nodes - b->log2_nodes;
    double algo = algo_likeness(a, b), op = op_likeness(a, b);
    double kind = kind_likeness(a, b);
    /* What is inside nodes tells about that, networks about networks. */
    double part = NET_ALIKE * a->net * b->net + (1 - a->net) * (1 - b->net);
    double far = part * (a->is_odd == b->is_odd ? 1 : ODD_TO_USUAL);
    double wide = trust(a) * trust(b) * algo * op * far;
    double k = SD_ANY * SD_ANY + SD_ALL * SD_ALL * wide *
                                     near(share, SHARE_ALL) *
                                     near(a->knee - b->knee, KNEE_ALL);
    bool same_gpu = a->arch == b->arch;
    if (same_gpu) {
        k += SD_GPU * SD_GPU * wide * near(share, SHARE_GPU) *
             near(ranks, RANKS_GPU);
    }
    bool same_host = !a->is_odd || a->machine == b->machine;
    if (same_gpu && kind > 0 && same_host) {
        double like = kind * op * (a->algo == b->algo ? 1 : OTHER_ALGO);
        k += like * SD_CLASS * SD_CLASS * near(size, SIZE_CLASS) *
             near(ranks, SCALE_CLASS) * near(nodes, SCALE_CLASS);
        k += like * (a->proto == b->proto ? 1 : .8) * SD_SIZE * SD_SIZE *
             near(size, SIZE_SIZE) * near(ranks, SCALE_SIZE) *
             near(nodes, SCALE_SIZE);
    }
    bool both_odd = a->is_odd && b->is_odd && same_host;
    if (both_odd && kind > 0) {
        k += odd_part(
            a, b, kind * near(ranks, SCALE_CLASS) * near(nodes, SCALE_CLASS));
    }
    return k;
}

double coll_kernel_campaign(const struct coll_feature *a,
                            const struct coll_feature *b)
{
    if (a->campaign != b->campaign) {
        return 0;
    }
    double net = a->is_multi && b->is_multi ? SD_CAMPAIGN_NET : 0;
    return SD_CAMPAIGN * SD_CAMPAIGN + net * net +
           SD_DRIFT * SD_DRIFT *
               near(a->log2_bytes - b->log2_bytes, SIZE_DRIFT) *
               (a->op == b->op ? 1 : .5);
}

double coll_kernel_noise(const struct coll_feature *a)
{
    double small = a->log2_bytes < 10 ? SD_NOISE_SMALL : 0;
    return SD_NOISE * SD_NOISE + small * small;
}

enum coll_kinship coll_kinship_of(const struct coll_feature *knots, size_t n,
                                  const struct coll_feature *at)
{
    enum coll_kinship best = COLL_KIN_NONE;
    for (size_t i = 0; i < n; i++) {
        const struct coll_feature *k = &knots[i];
        if (k->arch != at->arch || k->is_plain != at->is_plain) {
            continue;
        }
        bool is_class = k->kind == at->kind && k->is_multi == at->is_multi &&
                        (!at->is_odd || k->machine == at->machine);
        double nodes = fabs(k->log2_nodes - at->log2_nodes);
        enum coll_kinship kin = !is_class    ? COLL_KIN_GPU
                                : nodes <= 1 ? COLL_KIN_SEEN
                                             : COLL_KIN_CLASS;
        best = kin > best ? kin : best;
    }
    return best;
}
