/*
 * Rules of what runs beside a framework's own code: kernels that send tokens by
 * themselves, sizes that they have code for and devices that they run on; and
 * our host executor, what its interpreter does not do. Sources: DeepEP as of
 * its version 1.2 and its branch hybrid-ep; a rule is as strict as the
 * strictest of them.
 */
#include "planner/rules.h"

#include <string.h>

#define ANY MW_FRAMEWORK_ANY
#define HOST MW_FRAMEWORK_HOST

/* clang-format off */
static const struct mw_rule rules[] = {
    {"deepep_ranks", ANY,
     "dispatcher == 'deepep' -> ep * etp == 2 || ep * etp == 4 || ep * etp == 8 || ep * etp == 16 || ep * etp == 24 || "
     "ep * etp == 32 || ep * etp == 64 || ep * etp == 128 || ep * etp == 144 || ep * etp == 160",
     "DeepEP has settings for 2 4 8 16 24 32 64 128 144 160 ranks, not for ep {ep} x etp {etp}",
     "DeepEP deep_ep/buffer.py, get_dispatch_config"},
    {"deepep_hidden", ANY, "dispatcher == 'deepep' -> hidden % 8 == 0 && (short_dispatch -> hidden % 128 == 0)",
     "DeepEP sends 16 bytes at a time, FP8 with a scale for 128 elements; hidden is {hidden}",
     "DeepEP csrc/deep_ep.cpp, intranode_dispatch"},
    {"deepep_topk", ANY, "dispatcher == 'deepep' -> topk * etp <= 32", "DeepEP has a lane of a warp for each of top_k {topk} x etp {etp}; at most 32",
     "DeepEP csrc/kernels/intranode.cu, num_topk <= 32"},
    {"deepep_gpu", ANY, "dispatcher == 'deepep' -> sm >= 80 && (sm < 90 -> ep * etp <= node)",
     "DeepEP needs an NVIDIA GPU of compute capability 9.0, inside a node 8.0",
     "DeepEP README.md, Requirements; setup.py, DISABLE_SM90_FEATURES"},
    {"hybridep_gpu", ANY, "dispatcher == 'hybridep' -> sm >= 90", "HybridEP copies by TMA: an NVIDIA GPU of compute capability 9.0",
     "DeepEP (branch hybrid-ep) Hybrid-EP_Implementation.md"},
    {"hybridep_hidden", ANY, "dispatcher == 'hybridep' -> hidden % 8 == 0", "HybridEP sends 16 bytes at a time; hidden is {hidden}",
     "DeepEP (branch hybrid-ep) csrc/hybrid_ep/hybrid_ep.cu"},

    {"host_overlap", HOST, "!off_grads && !off_params && !off_tp && !off_ep", "our host executor's overlap is not switched", "exec/job.c"},
    {"host_dtype", HOST, "!own_types", "our host executor takes its types from the workload", "exec/job.c"},
    {"host_units", HOST, "fsdp_unit >= 1 && fsdp_prefetch <= 0", "our host executor gathers units of layers, none ahead", "exec/job.c"},
    {"host_graph", HOST, "cuda_graph == 0", "our host executor has no CUDA graphs", "exec/job.c"},
    {"host_mtp", HOST, "!mtp_ahead", "our host executor has no multi-token prediction", "exec/job.c"},
    {"host_loss", HOST, "loss == 0 && loss_chunks <= 1", "our host executor has one kernel of the loss", "exec/job.c"},
    {"host_dispatcher", HOST, "dispatcher == 'stack' || dispatcher == 'alltoall'", "our host executor sends tokens by all-to-alls", "exec/job.c"},
    {"host_shared_overlap", HOST, "!shared_overlap", "our host executor computes shared experts by themselves", "exec/job.c"},
    {"host_capacity", HOST, "!capacity", "our host executor drops no tokens", "exec/job.c"},
    {"host_clip", HOST, "clip != 1", "our host executor clips no gradients", "exec/job.c"},
    {"host_optimizer", HOST,
     "optimizer == 'adamw' && main_params == 0 && exp_avg == 'fp32' && exp_avg_sq == 'fp32'",
     "our host executor has AdamW with fp32 states", "exec/job.c"},
    {"host_compression", HOST, "!grad_compression", "our host executor compresses no gradients", "exec/job.c"},
    {"host_recompute_modules", HOST, "recompute_modules <= 1", "our host executor recomputes the attention core or whole layers", "exec/job.c"},
    {"host_offload", HOST, "!offload_weights && !offload_activations && !offload_nvme",
     "our host executor offloads optimizer states to memory alone", "exec/job.c"},
    {"host_window", HOST, "!window && !sinks", "our host executor attends to all tokens, without sinks", "exec/job.c"},
    {"host_packed", HOST, "packed -> cp == 1 || cp_form == 'a2a'", "our host executor has packed sequences in no ring or gather", "exec/job.c"},
    {"host_packed_parts", HOST, "packed -> schedule != 'seq1f1b'", "our host executor has no parts of packed sequences", "exec/job.c"},
    {"host_parts", HOST, "schedule == 'seq1f1b' -> cp == 1", "our host executor has no parts of sequences with cp {cp}", "exec/job.c"},
};
/* clang-format on */

const struct mw_rule_table mw_kernel_rules = MW_RULE_TABLE(rules);

int64_t mw_compute_capability(const struct mw_gpu *gpu)
{
    static const struct {
        const char *arch;
        int64_t sm;
    } v[] = {{"Pascal", 60},     {"Volta", 70},
             {"Turing", 75},     {"Ampere", 80},
             {"Ada", 89},        {"Hopper", 90},
             {"Blackwell", 100}, {"Blackwell Ultra", 103},
             {"Rubin", 107}};

    for (size_t i = 0; gpu->arch != NULL && i < sizeof v / sizeof v[0]; i++) {
        if (strcmp(v[i].arch, gpu->arch) == 0) {
            return v[i].sm;
        }
    }
    return 0;
}
