/* Machine descriptions: reading, checking and asking them. */
#include "sim/coll/nccl_int.h"

#include "sim/net/xml.h"

#include <string.h>

/* Every GPU must reach every other one. */
static enum mw_status check_connected(const struct mw_nccl_machine *m,
                                      struct mw_err *err)
{
    const struct nccl_system *sys = m->sys;
    for (int a = 0; a < sys->count[NODE_GPU]; a++) {
        for (int b = 0; b < sys->count[NODE_GPU]; b++) {
            const struct nccl_path *p =
                nccl_path_to(sys, NODE_GPU, a, NODE_GPU, b);
            if (a != b && (p->count == 0 || p->type >= MW_PATH_DIS)) {
                return mw_xml_fail(
                    m->root, err,
                    "no way from GPU of rank %d to GPU of rank %d",
                    nccl_at(sys, NODE_GPU, a)->rank,
                    nccl_at(sys, NODE_GPU, b)->rank);
            }
        }
    }
    return MW_OK;
}

/* Takes the arena over. */
static enum mw_status finish(struct mw_arena arena, struct mw_xml *root,
                             struct mw_nccl_machine **out, struct mw_err *err)
{
    struct mw_nccl_machine *m = mw_calloc(1, sizeof *m);
    m->arena = arena;
    m->root = root;
    struct mw_nccl_opts opts;
    mw_nccl_opts_default(&opts);
    enum mw_status s = MW_OK;
    if (strcmp(root->name, "system") != 0) {
        s = mw_xml_fail(root, err, "the root is <%s>, not <system>",
                        root->name);
    }
    if (s == MW_OK) {
        s = nccl_system_build(m, true, &opts, &m->sys, err);
    }
    if (s == MW_OK) {
        s = check_connected(m, err);
    }
    if (s != MW_OK) {
        mw_nccl_machine_free(m);
        return s;
    }
    *out = m;
    return MW_OK;
}

enum mw_status mw_nccl_machine_parse(const char *name, const char *text,
                                     size_t len, struct mw_nccl_machine **out,
                                     struct mw_err *err)
{
    struct mw_arena arena;
    mw_arena_init(&arena);
    struct mw_xml *root = NULL;
    enum mw_status s = mw_xml_parse(name, text, len, &arena, &root, err);
    if (s != MW_OK) {
        mw_arena_release(&arena);
        return s;
    }
    return finish(arena, root, out, err);
}

enum mw_status mw_nccl_machine_load(const char *path,
                                    struct mw_nccl_machine **out,
                                    struct mw_err *err)
{
    struct mw_arena arena;
    mw_arena_init(&arena);
    struct mw_xml *root = NULL;
    enum mw_status s = mw_xml_load(path, &arena, &root, err);
    if (s != MW_OK) {
        mw_arena_release(&arena);
        return s;
    }
    return finish(arena, root, out, err);
}

void mw_nccl_machine_free(struct mw_nccl_machine *machine)
{
    if (!machine) {
        return;
    }
    nccl_system_free(machine->sys);
    mw_arena_release(&machine->arena);
    mw_free(machine);
}

int mw_nccl_machine_gpus(const struct mw_nccl_machine *machine)
{
    return machine->sys->count[NODE_GPU];
}

int mw_nccl_machine_nics(const struct mw_nccl_machine *machine)
{
    return machine->sys->count[NODE_NET];
}

int mw_nccl_machine_sm_min(const struct mw_nccl_machine *machine)
{
    int sm = nccl_at(machine->sys, NODE_GPU, 0)->sm;
    for (int g = 1; g < machine->sys->count[NODE_GPU]; g++) {
        int other = nccl_at(machine->sys, NODE_GPU, g)->sm;
        sm = other < sm ? other : sm;
    }
    return sm;
}

bool mw_nccl_machine_has_nvswitch(const struct mw_nccl_machine *machine)
{
    return machine->sys->count[NODE_NVS] > 0;
}

bool mw_nccl_machine_is_intel(const struct mw_nccl_machine *machine)
{
    return nccl_at(machine->sys, NODE_CPU, 0)->cpu == CPU_INTEL;
}

bool mw_nccl_machine_is_amd(const struct mw_nccl_machine *machine)
{
    return nccl_at(machine->sys, NODE_CPU, 0)->cpu == CPU_AMD;
}

float mw_nccl_machine_gpu_bw(const struct mw_nccl_machine *machine, int a,
                             int b, enum mw_nccl_path *out_path)
{
    const struct nccl_path *p =
        nccl_path_to(machine->sys, NODE_GPU, a, NODE_GPU, b);
    if (out_path) {
        *out_path = (enum mw_nccl_path)p->type;
    }
    return p->bw;
}
