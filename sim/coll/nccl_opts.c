/*
 * Names, and the environment variables that change NCCL's decisions.
 * List syntax of NCCL_ALGO and NCCL_PROTO: entries separated by ';', each
 * "func:list" or, first entry only, "list"; a list is names separated by ','
 * with an optional '^' in front that inverts it. Source: NCCL 2.28.9,
 * src/graph/tuning.cc (parseList).
 */
#include "sim/coll/nccl.h"

#include "base/units.h"

#include <string.h>
#include <strings.h>

static const char *const algo_names[MW_NCCL_ALGOS] = {
    "tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
static const char *const proto_names[MW_NCCL_PROTOS] = {"ll", "ll128",
                                                        "simple"};
static const char *const func_names[MW_NCCL_FUNCS] = {
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};

const char *mw_nccl_algo_name(enum mw_nccl_algo algo)
{
    return algo_names[algo];
}

const char *mw_nccl_proto_name(enum mw_nccl_proto proto)
{
    return proto_names[proto];
}

const char *mw_nccl_func_name(enum mw_nccl_func func)
{
    return func_names[func];
}

const char *mw_nccl_path_name(enum mw_nccl_path path)
{
    static const char *const names[] = {"LOC", "NVL", "NVB", "C2C",
                                        "PIX", "PXB", "P2C", "PXN",
                                        "PHB", "SYS", "NET", "DIS"};
    return names[path];
}

const char *mw_nccl_pattern_name(enum mw_nccl_pattern pattern)
{
    static const char *const names[] = {
        "",     "balanced_tree", "split_tree",    "tree",
        "ring", "nvls",          "collnet_direct"};
    return names[pattern];
}

void mw_nccl_opts_default(struct mw_nccl_opts *opts)
{
    memset(opts, 0, sizeof *opts);
    opts->cross_nic = 2;
    for (int f = 0; f < MW_NCCL_FUNCS; f++) {
        opts->algos[f] = (1 << MW_NCCL_ALGOS) - 1;
        opts->protos[f] = (1 << MW_NCCL_PROTOS) - 1;
        opts->ll128_auto[f] = true;
    }
}

/* A token of [text, end) compared with a name, any case. */
static bool is_word(const char *text, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(text, name, n) == 0;
}

static enum mw_status read_names(const char *what, const char *text, size_t n,
                                 const char *const *names, int n_names,
                                 uint8_t *out, struct mw_err *err)
{
    bool is_not = n > 0 && text[0] == '^';
    size_t at = is_not ? 1 : 0;
    unsigned set = 0;
    while (at <= n) {
        const char *comma = memchr(text + at, ',', n - at);
        size_t len = comma ? (size_t)(comma - text) - at : n - at;
        int i = 0;
        while (i < n_names && !is_word(text + at, len, names[i])) {
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

/* Applies one list; is_proto: an explicit LL128 skips the automatic test. */
static enum mw_status read_list(const char *what, const char *value,
                                bool is_proto, struct mw_nccl_opts *o,
                                struct mw_err *err)
{
    const char *const *names = is_proto ? proto_names : algo_names;
    int n_names = is_proto ? MW_NCCL_PROTOS : MW_NCCL_ALGOS;
    const char *entry = value;
    while (entry) {
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
        enum mw_status s = read_names(what, list, len - (size_t)(list - entry),
                                      names, n_names, &set, err);
        if (s != MW_OK) {
            return s;
        }
        bool found = false;
        for (int f = 0; f < MW_NCCL_FUNCS; f++) {
            if (colon &&
                !is_word(entry, (size_t)(colon - entry), func_names[f])) {
                continue;
            }
            found = true;
            if (is_proto) {
                o->protos[f] = set;
                o->ll128_auto[f] = false;
            } else {
                o->algos[f] = set;
            }
        }
        if (!found) {
            return mw_fail(err, MW_EUSAGE, "%s: unknown collective '%.*s'",
                           what, (int)(colon - entry), entry);
        }
        entry = end ? end + 1 : NULL;
    }
    return MW_OK;
}

bool mw_nccl_env_known(const char *pair)
{
    static const char *const known[] = {
        "NCCL_ALGO",           "NCCL_PROTO",         "NCCL_CROSS_NIC",
        "NCCL_MIN_NCHANNELS",  "NCCL_MAX_NCHANNELS", "NCCL_NVLS_ENABLE",
        "NCCL_COLLNET_ENABLE", "NCCL_P2P_DISABLE"};
    size_t n = strcspn(pair, "=");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (is_word(pair, n, known[i])) {
            return true;
        }
    }
    return false;
}

static const struct {
    const char *prefix, *name;
} versions[] = {
    [MW_NCCL_2_28] = {"2.28", "2.28.9"}, [MW_NCCL_2_30] = {"2.30", "2.30.7"}};

const char *mw_nccl_version_name(enum mw_nccl_version version)
{
    return versions[version].name;
}

bool mw_nccl_version_find(const char *text, enum mw_nccl_version *out)
{
    *out = MW_NCCL_2_28;
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        size_t n = strlen(versions[i].prefix);
        if (strncmp(text, versions[i].prefix, n) == 0 &&
            (text[n] == '\0' || text[n] == '.' || text[n] == '+')) {
            *out = (enum mw_nccl_version)i;
            return true;
        }
    }
    return false;
}

enum mw_status mw_nccl_opts_env(struct mw_nccl_opts *opts, const char *pair,
                                struct mw_err *err)
{
    const char *eq = strchr(pair, '=');
    if (!eq || eq == pair) {
        return mw_fail(err, MW_EUSAGE, "'%.60s' is not NAME=VALUE", pair);
    }
    size_t n = (size_t)(eq - pair);
    if (is_word(pair, n, "NCCL_ALGO")) {
        return read_list("NCCL_ALGO", eq + 1, false, opts, err);
    }
    if (is_word(pair, n, "NCCL_PROTO")) {
        return read_list("NCCL_PROTO", eq + 1, true, opts, err);
    }
    int64_t v = 0;
    if (mw_int_parse(eq + 1, &v, NULL) != MW_OK || v < 0 || v > 64) {
        return mw_fail(err, MW_EUSAGE, "%.*s must be an integer from 0 to 64",
                       (int)n, pair);
    }
    if (is_word(pair, n, "NCCL_CROSS_NIC")) {
        opts->cross_nic = (int)(v > 2 ? 2 : v);
    } else if (is_word(pair, n, "NCCL_MIN_NCHANNELS")) {
        opts->min_channels = (int)v;
    } else if (is_word(pair, n, "NCCL_MAX_NCHANNELS")) {
        opts->max_channels = (int)v;
    } else if (is_word(pair, n, "NCCL_NVLS_ENABLE")) {
        opts->no_nvls = v == 0;
    } else if (is_word(pair, n, "NCCL_COLLNET_ENABLE")) {
        opts->collnet = v != 0;
    } else if (is_word(pair, n, "NCCL_P2P_DISABLE")) {
        opts->p2p_disable = v != 0;
    } else {
        return mw_fail(err, MW_EUSAGE,
                       "%.*s has no effect in this model; known: NCCL_ALGO "
                       "NCCL_PROTO NCCL_CROSS_NIC NCCL_MIN_NCHANNELS "
                       "NCCL_MAX_NCHANNELS NCCL_NVLS_ENABLE "
                       "NCCL_COLLNET_ENABLE NCCL_P2P_DISABLE",
                       (int)n, pair);
    }
    return MW_OK;
}
