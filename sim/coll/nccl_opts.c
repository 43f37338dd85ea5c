/*
 * Names, defaults and versions; the environment is read in nccl_env.c.
 */
#include "sim/coll/nccl.h"

#include <string.h>

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
    opts->gdr_level = MW_PATH_PXB;
    opts->copy_above_bytes = -1;
    for (int f = 0; f < MW_NCCL_FUNCS; f++) {
        opts->algos[f] = (1 << MW_NCCL_ALGOS) - 1;
        opts->protos[f] = (1 << MW_NCCL_PROTOS) - 1;
        opts->ll128_auto[f] = true;
    }
}

static const struct {
    const char *prefix, *name;
} versions[] = {[MW_NCCL_2_28] = {"2.28", "2.28.9"},
                [MW_NCCL_2_30] = {"2.30", "2.30.7"},
                [MW_NCCL_2_26] = {"2.26", "2.26"}};

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
    /* 2.20 to 2.25 */
    if (strncmp(text, "2.2", 3) == 0 && text[3] >= '0' && text[3] <= '5') {
        *out = MW_NCCL_2_26;
    }
    return false;
}
