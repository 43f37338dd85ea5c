/*
 * The environment variables that change NCCL's decisions or the bandwidth of
 * its network.
 *
 * List syntax of NCCL_ALGO and NCCL_PROTO: entries separated by ';', each
 * "func:list" or, first entry only, "list"; a list is names separated by ','
 * with an optional '^' in front that inverts it. NCCL_IB_HCA: names of NICs
 * separated by ',', "=" in front: exact names and not beginnings of names, "^":
 * all but those, ":PORT" behind. Source: NCCL 2.28.9, src/graph/tuning.cc
 * (parseList), src/graph/paths.cc, src/misc/param.cc, src/transport/net_ib.cc;
 * libfabric's fi_cxi(7) for FI_*.
 */
#include "sim/coll/nccl.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A token of [text, end) compared with a name, any case. */
static bool is_word(const char *text, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(text, name, n) == 0;
}

/* ---- lists of algorithms and protocols ---- */

static enum mw_status read_names(const char *what, const char *text, size_t n,
                                 bool is_proto, uint8_t *out,
                                 struct mw_err *err)
{
    int n_names = is_proto ? (int)MW_NCCL_PROTOS : (int)MW_NCCL_ALGOS;
    bool is_not = n > 0 && text[0] == '^';
    size_t at = is_not ? 1 : 0;
    unsigned set = 0;
    while (at <= n) {
        const char *comma = memchr(text + at, ',', n - at);
        size_t len = comma ? (size_t)(comma - text) - at : n - at;
        int i = 0;
        while (i < n_names &&
               !is_word(text + at, len,
                        is_proto ? mw_nccl_proto_name((enum mw_nccl_proto)i)
                                 : mw_nccl_algo_name((enum mw_nccl_algo)i))) {
            i++;
        }
        if (i == n_names) {
            return mw_fail(err, MW_EUSAGE, "%s: unknown name '%.*s'", what,
                           (int)(len > 40 ? 40 : len), text + at);
        }
        set |= 1u << i;
        at += len + 1;
    }
    unsigned all = (1u << n_names) - 1;
    *out = (uint8_t)(is_not ? all & ~set : set);
    return MW_OK;
}

/* The list of one collective, or of all (name NULL). */
static enum mw_status set_list(struct mw_nccl_opts *o, const char *what,
                               bool is_proto, const char *name, size_t len,
                               uint8_t set, struct mw_err *err)
{
    bool found = false;
    for (int f = 0; f < MW_NCCL_FUNCS; f++) {
        if (name &&
            !is_word(name, len, mw_nccl_func_name((enum mw_nccl_func)f))) {
            continue;
        }
        found = true;
        if (is_proto) { /* an explicit LL128 skips the automatic test */
            o->protos[f] = set;
            o->ll128_auto[f] = false;
        } else {
            o->algos[f] = set;
        }
    }
    return found ? MW_OK
                 : mw_fail(err, MW_EUSAGE, "%s: unknown collective '%.*s'",
                           what, (int)len, name);
}

static enum mw_status read_list(struct mw_nccl_opts *o, const char *what,
                                const char *value, bool is_proto,
                                struct mw_err *err)
{
    const char *entry = value;
    enum mw_status s = MW_OK;
    while (entry && s == MW_OK) {
        const char *end = strchr(entry, ';');
        size_t len = end ? (size_t)(end - entry) : strlen(entry);
        const char *colon = memchr(entry, ':', len);
        if (!colon && entry != value) {
            return mw_fail(err, MW_EUSAGE,
                           "%s: only the first entry may lack a collective",
                           what);
        }
        const char *list = colon ? colon + 1 : entry;
        uint8_t set = 0;
        s = read_names(what, list, len - (size_t)(list - entry), is_proto, &set,
                       err);
        if (s == MW_OK) {
            s = set_list(o, what, is_proto, colon ? entry : NULL,
                         colon ? (size_t)(colon - entry) : 0, set, err);
        }
        entry = end ? end + 1 : NULL;
    }
    return s;
}

/* ---- NICs ---- */

/* NICs whose names a token means. Our NIC k stands for any device of number k:
 * "mlx5_3", "3"; "mlx5" means all of them. Without `exact` mlx5_1 also begins
 * mlx5_10 to mlx5_19. */
static uint64_t nics_of(const char *token, size_t n, bool exact)
{
    const char *colon = memchr(token, ':', n);
    size_t end = colon ? (size_t)(colon - token) : n, at = end;
    uint64_t mask = 0;
    char number[16], want[8];
    while (at > 0 && token[at - 1] >= '0' && token[at - 1] <= '9') {
        at--;
    }
    if (at > 0 && end - at == 1 && strncmp(token, "mlx5", 4) == 0 && at == 3) {
        at = end; /* the 5 of "mlx5" is no number of a device */
    }
    snprintf(want, sizeof want, "%.*s", (int)(end - at > 7 ? 7 : end - at),
             token + at);
    for (int k = 0; k < 64; k++) {
        snprintf(number, sizeof number, "%d", k);
        bool is_it = exact ? strcmp(number, want) == 0
                           : strncmp(number, want, strlen(want)) == 0;
        mask |= is_it || want[0] == '\0' ? (uint64_t)1 << k : 0;
    }
    return mask;
}

static enum mw_status read_nics(struct mw_nccl_opts *o, const char *value,
                                struct mw_err *err)
{
    bool is_not = value[0] == '^';
    value += is_not;
    bool exact = value[0] == '=';
    value += exact;
    uint64_t mask = 0;
    for (const char *at = value; *at != '\0';) {
        size_t n = strcspn(at, ",");
        mask |= n > 0 ? nics_of(at, n, exact) : 0;
        at += n + (at[n] == ',');
    }
    mask = is_not ? ~mask : mask;
    if (value[0] == '\0' || mask == 0) {
        return mw_fail(err, MW_EUSAGE, "NCCL_IB_HCA leaves no NIC");
    }
    o->nic_mask = ~mask == 0 ? 0 : mask;
    return MW_OK;
}

/* "PXB", or NCCL's older numbers 0 to 5. */
static enum mw_status read_gdr_level(struct mw_nccl_opts *o, const char *value,
                                     struct mw_err *err)
{
    static const enum mw_nccl_path levels[] = {MW_PATH_LOC, MW_PATH_PIX,
                                               MW_PATH_PXB, MW_PATH_PHB,
                                               MW_PATH_SYS, MW_PATH_SYS};
    for (int i = 0; i < 6; i++) {
        char number[2] = {(char)('0' + i), '\0'};
        if (strcasecmp(value, mw_nccl_path_name(levels[i])) == 0 ||
            strcmp(value, number) == 0) {
            o->gdr_level = levels[i];
            return MW_OK;
        }
    }
    return mw_fail(err, MW_EUSAGE,
                   "NCCL_NET_GDR_LEVEL=%.20s; LOC, PIX, PXB, PHB, SYS or 0 to "
                   "5",
                   value);
}

static enum mw_status read_net(struct mw_nccl_opts *o, const char *value,
                               struct mw_err *err)
{
    if (strcasecmp(value, "Socket") != 0 && strcasecmp(value, "IB") != 0) {
        return mw_fail(err, MW_EUSAGE, "NCCL_NET=%.20s; IB or Socket", value);
    }
    o->is_socket = strcasecmp(value, "Socket") == 0;
    return MW_OK;
}

/* ---- numbers ---- */

enum number {
    NO_NUMBER,
    CROSS_NIC,
    MIN_CHANNELS,
    MAX_CHANNELS,
    NVLS_ENABLE,
    COLLNET_ENABLE,
    P2P_DISABLE,
    IB_DISABLE,
    COPY_THRESHOLD,
    USE_GDRCOPY
};

static const struct {
    const char *name;
    enum number number; /* NO_NUMBER: text */
    int64_t max;
} known[] = {
    {"NCCL_ALGO", NO_NUMBER, 0},
    {"NCCL_PROTO", NO_NUMBER, 0},
    {"NCCL_NET", NO_NUMBER, 0},
    {"NCCL_IB_HCA", NO_NUMBER, 0},
    {"NCCL_NET_GDR_LEVEL", NO_NUMBER, 0},
    {"NCCL_IB_GDR_LEVEL", NO_NUMBER, 0}, /* its name of before 2.4 */
    {"NCCL_CROSS_NIC", CROSS_NIC, 64},
    {"NCCL_MIN_NCHANNELS", MIN_CHANNELS, 64},
    {"NCCL_MAX_NCHANNELS", MAX_CHANNELS, 64},
    {"NCCL_NVLS_ENABLE", NVLS_ENABLE, 64},
    {"NCCL_COLLNET_ENABLE", COLLNET_ENABLE, 64},
    {"NCCL_P2P_DISABLE", P2P_DISABLE, 64},
    {"NCCL_IB_DISABLE", IB_DISABLE, 64},
    {"FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD", COPY_THRESHOLD, 1000000000},
    {"FI_HMEM_CUDA_USE_GDRCOPY", USE_GDRCOPY, 1},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static int find_known(const char *pair)
{
    size_t n = strcspn(pair, "=");
    for (int i = 0; i < KNOWN; i++) {
        if (is_word(pair, n, known[i].name)) {
            return i;
        }
    }
    return -1;
}

bool mw_nccl_env_known(const char *pair)
{
    return find_known(pair) >= 0;
}

static void set_number(struct mw_nccl_opts *o, enum number number, int64_t v)
{
    switch (number) {
    case CROSS_NIC:
        o->cross_nic = (int)(v > 2 ? 2 : v);
        break;
    case MIN_CHANNELS:
        o->min_channels = (int)v;
        break;
    case MAX_CHANNELS:
        o->max_channels = (int)v;
        break;
    case NVLS_ENABLE:
        o->no_nvls = v == 0;
        break;
    case COLLNET_ENABLE:
        o->collnet = v != 0;
        break;
    case P2P_DISABLE:
        o->p2p_disable = v != 0;
        break;
    case IB_DISABLE:
        o->is_socket = v != 0;
        break;
    case COPY_THRESHOLD:
        o->copy_above_bytes = (double)v;
        break;
    case USE_GDRCOPY:
        o->copy_above_bytes = v != 0 ? -1 : 0;
        break;
    case NO_NUMBER:
        break;
    }
}

static enum mw_status read_number(struct mw_nccl_opts *opts, int at,
                                  const char *value, struct mw_err *err)
{
    int64_t v = 0;
    if (mw_int_parse(value, &v, NULL) != MW_OK || v < 0 || v > known[at].max) {
        return mw_fail(err, MW_EUSAGE, "%s must be an integer from 0 to %lld",
                       known[at].name, (long long)known[at].max);
    }
    set_number(opts, known[at].number, v);
    return MW_OK;
}

static enum mw_status fail_unknown(const char *pair, struct mw_err *err)
{
    struct mw_str names = {NULL, 0, 0};
    for (int i = 0; i < KNOWN; i++) {
        mw_str_addf(&names, " %s", known[i].name);
    }
    enum mw_status s =
        mw_fail(err, MW_EUSAGE, "%.*s has no effect in this model; known:%s",
                (int)strcspn(pair, "="), pair, names.s);
    mw_str_release(&names);
    return s;
}

enum mw_status mw_nccl_opts_env(struct mw_nccl_opts *opts, const char *pair,
                                struct mw_err *err)
{
    const char *eq = strchr(pair, '=');
    if (!eq || eq == pair) {
        return mw_fail(err, MW_EUSAGE, "'%.60s' is not NAME=VALUE", pair);
    }
    int at = find_known(pair);
    if (at < 0) {
        return fail_unknown(pair, err);
    }
    const char *name = known[at].name;
    return known[at].number != NO_NUMBER ? read_number(opts, at, eq + 1, err)
           : strcmp(name, "NCCL_ALGO") == 0
               ? read_list(opts, name, eq + 1, false, err)
           : strcmp(name, "NCCL_PROTO") == 0
               ? read_list(opts, name, eq + 1, true, err)
           : strcmp(name, "NCCL_NET") == 0 ? read_net(opts, eq + 1, err)
           : strcmp(name, "NCCL_IB_HCA") == 0
               ? read_nics(opts, eq + 1, err)
               : read_gdr_level(opts, eq + 1, err);
}
