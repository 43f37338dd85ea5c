/*
 * What NCCL does with a choice: cells per channel, chunk of the pipeline, the
 * double binary tree over nodes, the rounds and parts of send/recv.
 *
 * Source: NCCL 2.28.9, src/enqueue.cc, src/graph/trees.cc, src/init.cc; the
 * trees after Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan" (2009). Left out: several operations in one
 * group, CollNetDirect's and registered-buffer chunk sizes.
 */
#include "sim/coll/nccl.h"

static uint64_t div_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static int log2_floor(uint64_t v)
{
    int n = 0;
    while (v >>= 1) {
        n++;
    }
    return n;
}

/* Blocks of the whole buffer that one count stands for. */
static uint64_t ranks_of(const struct mw_nccl_comm *comm,
                         enum mw_nccl_func func)
{
    bool gather = func == MW_NCCL_ALL_GATHER || func == MW_NCCL_REDUCE_SCATTER;
    return gather ? (uint64_t)comm->n_ranks : 1;
}

static uint64_t nvls_chunk(const struct mw_nccl_comm *comm, uint64_t bytes)
{
    uint64_t chunk = 131072;
    uint64_t conc = (uint64_t)comm->n_nvls_heads;
    static const struct {
        uint64_t below, chunk;
    } steps[] = {{64, 65536}, {8, 32768}, {2, 16384}};
    for (int i = 0; i < 3; i++) {
        if (bytes < steps[i].below * conc * chunk && chunk > steps[i].chunk) {
            chunk = steps[i].chunk;
        }
    }
    return chunk;
}

static uint64_t nvls_tree_chunk(const struct mw_nccl_comm *comm, uint64_t bytes)
{
    uint64_t chunk = comm->n_nodes >= 4 ? 65536 : 131072;
    uint64_t conc = (uint64_t)comm->n_nvls_heads;
    static const struct {
        uint64_t below, chunk;
    } steps[] = {{32, 262144}, {16, 131072}, {4, 65536}, {1, 32768}};
    for (int i = 0; i < 4; i++) {
        if (bytes < steps[i].below * conc * chunk && chunk > steps[i].chunk) {
            chunk = steps[i].chunk;
        }
    }
    return chunk;
}

static uint64_t tree_ll128_chunk(const struct mw_nccl_comm *comm,
                                 uint64_t bytes, uint64_t chunk)
{
    double ppn = (double)comm->n_ranks / comm->n_nodes;
    double steps = 1 + log2_floor((uint64_t)comm->n_nodes) + 0.1 * ppn;
    while ((double)(bytes / chunk) < steps * 64 / ppn && chunk > 131072) {
        chunk /= 2;
    }
    while ((double)(bytes / chunk) < steps * 16 / ppn && chunk > 32768) {
        chunk /= 2;
    }
    return chunk;
}

/* `bytes`: whole buffer's part that the first channel works on. */
static uint64_t chunk_of(const struct mw_nccl_comm *comm,
                         enum mw_nccl_func func, const struct mw_nccl_choice *c,
                         uint64_t bytes)
{
    enum { STEP = 524288, STEP_LL = 32768, STEP_LL128 = 576000 };
    uint64_t chunk = c->proto == MW_NCCL_LL      ? STEP_LL
                     : c->proto == MW_NCCL_LL128 ? STEP_LL128
                                                 : STEP;
    bool pipelined = func != MW_NCCL_BROADCAST && func != MW_NCCL_REDUCE;
    if (c->algo == MW_NCCL_RING && c->proto == MW_NCCL_SIMPLE && pipelined) {
        chunk *= 4;
    } else if (c->algo == MW_NCCL_TREE && c->proto == MW_NCCL_LL128) {
        chunk = tree_ll128_chunk(comm, bytes, chunk);
    } else if (c->algo == MW_NCCL_NVLS) {
        chunk = nvls_chunk(comm, bytes);
    } else if (c->algo == MW_NCCL_NVLS_TREE) {
        chunk = nvls_tree_chunk(comm, bytes);
    } else if (c->algo == MW_NCCL_COLLNET_CHAIN) {
        uint64_t depth = (uint64_t)comm->ppn;
        chunk = 262144;
        while (bytes / chunk < 64 * depth && chunk > 131072) {
            chunk /= 2;
        }
        while (bytes / chunk < 8 * depth && chunk > 65536) {
            chunk /= 2;
        }
        while (bytes / chunk < depth && chunk > 32768) {
            chunk /= 2;
        }
    } else if (c->algo == MW_NCCL_PAT) {
        uint64_t k = func == MW_NCCL_ALL_GATHER ? 32 : 16;
        while (chunk * k > bytes && chunk > 65536) {
            chunk /= 2;
        }
    }
    uint64_t grain = c->proto == MW_NCCL_LL      ? 16
                     : c->proto == MW_NCCL_LL128 ? 1920
                                                 : 512;
    return chunk / grain * grain;
}

struct mw_nccl_cells mw_nccl_partition(const struct mw_nccl_comm *comm,
                                       enum mw_nccl_func func,
                                       const struct mw_nccl_choice *choice,
                                       uint64_t bytes, int elem_bytes)
{
    enum { TRAFFIC_MIN = 16384 };
    uint64_t blocks = ranks_of(comm, func);
    uint64_t own = bytes / blocks; /* what a rank counts */
    uint64_t per_byte = func == MW_NCCL_ALL_REDUCE ? 2 : blocks;
    if (choice->proto == MW_NCCL_LL) {
        per_byte *= 4;
    }
    uint64_t limit = (uint64_t)choice->n_channels;
    uint64_t traffic = own * per_byte;
    traffic = traffic > TRAFFIC_MIN ? traffic : TRAFFIC_MIN;
    uint64_t per_channel = traffic / limit;
    per_channel = per_channel > TRAFFIC_MIN ? per_channel : TRAFFIC_MIN;
    uint64_t cell = div_up(div_up(TRAFFIC_MIN, per_byte), 16) * 16;
    cell = cell / (uint64_t)elem_bytes * (uint64_t)elem_bytes;
    uint64_t cells = div_up(own, cell);
    uint64_t each = div_up(per_channel, cell * per_byte);
    each = each < cells ? each : cells;
    uint64_t lo = limit == 1 ? cells : each;
    uint64_t mid = lo < cells ? (cells - lo) / each : 0;
    uint64_t hi = lo < cells ? (cells - lo) % each : 0;
    if (1 + mid + (hi != 0) > limit) {
        mid = limit - 2;
        each = (cells - lo) / (mid + 1);
        hi = each + (cells - lo) % (mid + 1);
    }
    if (hi == 0 && mid != 0) {
        hi = each;
        mid--;
    }
    struct mw_nccl_cells out = {.n_channels = 1 + (int)mid + (hi != 0),
                                .lo_bytes = lo * cell,
                                .mid_bytes = mid ? each * cell : 0,
                                .hi_bytes = hi * cell};
    uint64_t excess = cells * cell - own;
    if (hi != 0) {
        out.hi_bytes -= excess;
    } else {
        out.lo_bytes -= excess;
    }
    out.chunk_bytes = chunk_of(comm, func, choice, out.lo_bytes * blocks);
    return out;
}

/* ---- trees ---- */

/* Parent and children by lowest set bit; root 0. */
static struct mw_nccl_tree_node binary_tree(int n, int r)
{
    struct mw_nccl_tree_node out = {-1, -1, -1, 0};
    int bit = 1;
    while (bit < n && !(bit & r)) {
        bit <<= 1;
    }
    if (r == 0) {
        out.down1 = n > 1 ? bit >> 1 : -1;
        return out;
    }
    int up = (r ^ bit) | (bit << 1);
    out.up = up < n ? up : r ^ bit;
    out.child_type = r < out.up ? 0 : 1;
    int low = bit >> 1;
    out.down0 = low == 0 ? -1 : r - low;
    out.down1 = low == 0 ? -1 : r + low;
    while (out.down1 >= n) {
        out.down1 = low == 0 ? -1 : r + low;
        low >>= 1;
    }
    return out;
}

void mw_nccl_double_tree(int n_nodes, int node, struct mw_nccl_tree_node out[2])
{
    int n = n_nodes;
    out[0] = binary_tree(n, node);
    bool shift = n % 2 == 1;
    struct mw_nccl_tree_node t =
        binary_tree(n, shift ? (node - 1 + n) % n : n - 1 - node);
    int *part[3] = {&t.up, &t.down0, &t.down1};
    for (int i = 0; i < 3; i++) {
        if (*part[i] != -1) {
            *part[i] = shift ? (*part[i] + 1) % n : n - 1 - *part[i];
        }
    }
    out[1] = t;
}

/* ---- send/recv ---- */

static int gcd(int a, int b)
{
    return b == 0 ? a : gcd(b, a % b);
}

void mw_nccl_p2p_round(int n_nodes, int ppn, int rank, int round, int *out_send,
                       int *out_recv)
{
    enum { GROUP_MAX = 8 };
    int size = gcd(ppn, GROUP_MAX);
    int n_groups = n_nodes * ppn / size;
    int pow2 = 1;
    while (pow2 < n_groups) {
        pow2 *= 2;
    }
    /* Group offsets 0 1 3 6 10 ... modulo pow2, those past the end skipped. */
    int want = round / size, seen = 0, delta = 0;
    for (int k = 0; k < pow2; k++) {
        if (k > 0) {
            delta = (delta + k) & (pow2 - 1);
        }
        if (delta < n_groups && seen++ == want) {
            break;
        }
    }
    int group = rank / size, local = rank % size, d = round % size;
    *out_send = (group + delta) % n_groups * size + (local + d) % size;
    *out_recv = (group - delta + n_groups) % n_groups * size +
                (local - d + size) % size;
}

static int p2p_channels(uint64_t bytes, int n_min, int n_max, uint64_t min_part,
                        uint64_t max_part)
{
    uint64_t part = div_up(bytes, (uint64_t)n_min);
    part = part > min_part ? part : min_part;
    int n = n_min;
    while (part > max_part && n <= n_max / 2) {
        n *= 2;
        part = div_up(bytes, (uint64_t)n);
    }
    return (int)div_up(bytes, part);
}

struct mw_nccl_p2p mw_nccl_p2p_plan(const struct mw_nccl_comm *comm,
                                    bool is_network, uint64_t bytes)
{
    enum { LL_THRESHOLD = 16384, LL_STEP = 65536, PART_GRAIN = 4096 };
    int n_max = comm->p2p_per_peer, n_min = n_max;
    while (n_min > 1 && n_min * comm->n_ranks > comm->p2p_channels) {
        n_min /= 2;
    }
    struct mw_nccl_p2p out = {.proto = MW_NCCL_SIMPLE};
    bool one_node = comm->n_nodes == 1;
    uint64_t step = one_node && comm->is_all_nvlink ? 524288 : 131072;
    if (!is_network && bytes <= (uint64_t)n_max * LL_THRESHOLD) {
        out.proto = MW_NCCL_LL;
        step = LL_STEP;
    }
    out.n_channels = bytes == 0 ? 1
                                : p2p_channels(bytes, n_min, n_max,
                                               one_node ? step / 8 : step / 2,
                                               one_node ? step * 32 : step);
    uint64_t part = div_up(bytes, (uint64_t)out.n_channels);
    out.part_bytes = div_up(part > 0 ? part : 1, PART_GRAIN) * PART_GRAIN;
    out.chunk_bytes = out.proto == MW_NCCL_LL ? step / 2 : step;
    if (is_network) {
        out.chunk_bytes = bytes < step       ? step / 4
                          : bytes < 8 * step ? step / 2
                                             : step;
    }
    return out;
}
