/*
 * The columns of every table: name, type, whether a cell must be there, and
 * its range. Members of the row structs are named like the columns, so the
 * macros need the name once.
 *
 *   S text      S_ text that must be there
 *   N number    N_ number that must be there     (0 <= value, not known: NaN)
 *   I integer   I_ integer that must be there    (0 <= value, not known: 0)
 */
#include "hwdb/hwdb_int.h"
#include "hwdb/recipe.h"

#include <math.h>

enum { INT_CELL_MAX = 1000000000 };

#define FIELD(col, kind, need, lo, hi, none)                                   \
    {                                                                          \
        .name = #col, .type = (kind), .offset = offsetof(struct ROW, col),     \
        .required = (need), .min = (lo), .max = (hi), .absent = (none)         \
    }
#define S(col) FIELD(col, MW_C_STR, false, 0, 0, 0)
#define S_(col) FIELD(col, MW_C_STR, true, 0, 0, 0)
#define N(col) FIELD(col, MW_C_NUM, false, 0, 1e18, (double)NAN)
#define N_(col) FIELD(col, MW_C_NUM, true, 0, 1e18, (double)NAN)
#define I(col) FIELD(col, MW_C_INT, false, 0, INT_CELL_MAX, 0)
#define I_(col) FIELD(col, MW_C_INT, true, 0, INT_CELL_MAX, 0)
#define YEAR FIELD(year, MW_C_INT, true, 1990, 2100, 0)
#define ORIGIN S_(confidence), S_(source)
#define END                                                                    \
    {                                                                          \
        .name = NULL                                                           \
    }

#define ROW mw_hw_gpu_row
static const struct mw_csv_field gpu_fields[] = {S_(slug),
                                                 S_(name),
                                                 S(aliases),
                                                 S_(vendor),
                                                 S_(form),
                                                 S_(arch),
                                                 S(cc),
                                                 YEAR,
                                                 S_(status),
                                                 N(fp64_tflops),
                                                 N(fp64_tensor_tflops),
                                                 N(fp32_tflops),
                                                 N(tf32_tflops),
                                                 N(fp16_tflops),
                                                 N(bf16_tflops),
                                                 N(fp8_tflops),
                                                 N(int8_tops),
                                                 N(fp4_tflops),
                                                 N_(mem_GiB),
                                                 S(mem_type),
                                                 N_(mem_bw_GBps),
                                                 N(l2_MiB),
                                                 I(sms),
                                                 N(boost_MHz),
                                                 N(tdp_W),
                                                 S_(scaleup),
                                                 I(links),
                                                 N(link_GBps_per_dir),
                                                 N(scaleup_GBps_per_dir),
                                                 N(scaleup_total_bidir_GBps),
                                                 S(pcie_gen),
                                                 ORIGIN,
                                                 S(note),
                                                 END};
#undef ROW

#define ROW mw_hw_nvlink_row
static const struct mw_csv_field nvlink_fields[] = {
    S_(generation),
    YEAR,
    S_(gpu),
    N(signalling_Gbps_per_lane),
    S(modulation),
    N(lanes_per_link_per_dir),
    N(raw_link_GBps_per_dir),
    N_(link_GBps_per_dir),
    N_(link_GBps_bidir),
    I_(links_per_gpu),
    N_(gpu_GBps_per_dir),
    N_(gpu_GBps_bidir),
    N(nccl_model_link_GBps_per_dir),
    I_(max_domain_gpus),
    ORIGIN,
    S(note),
    END};
#undef ROW

#define ROW mw_hw_nvswitch_row
static const struct mw_csv_field nvswitch_fields[] = {
    S_(generation),
    YEAR,
    S_(nvlink),
    I_(ports_per_chip),
    N_(port_GBps_per_dir),
    N_(port_GBps_bidir),
    N_(chip_GBps_per_dir),
    N_(chip_GBps_bidir),
    N_(chip_Tbps_bidir),
    S_(system),
    I_(chips_per_system),
    I_(gpus_per_domain),
    N_(bisection_GBps_per_dir),
    N_(bisection_GBps_bidir),
    N_(aggregate_gpu_GBps_per_dir),
    N_(aggregate_gpu_GBps_bidir),
    S(sharp),
    ORIGIN,
    S(note),
    END};
#undef ROW

#define ROW mw_hw_pcie_row
static const struct mw_csv_field pcie_fields[] = {
    S_(gen),
    YEAR,
    N_(GTps),
    S_(encoding),
    N_(x16_GBps_per_dir_theory),
    N(x16_GBps_per_dir_achieved),
    S(achieved_how),
    N(nccl_model_x16_GBps_per_dir),
    ORIGIN,
    S(note),
    END};
#undef ROW

#define ROW mw_hw_infiniband_row
static const struct mw_csv_field infiniband_fields[] = {
    S_(name),
    YEAR,
    N_(lane_signalling_Gbps),
    S_(encoding),
    N_(link_4x_Gbps_nominal),
    N_(link_4x_data_Gbps),
    N_(link_4x_GBps_per_dir),
    N_(link_4x_GBps_bidir),
    N(adapter_latency_us),
    S(nic_examples),
    S(switch_examples),
    I(switch_ports),
    N(switch_latency_ns),
    N(nccl_lane_Mbps),
    ORIGIN,
    S(note),
    END};
#undef ROW

#define ROW mw_hw_ethernet_row
static const struct mw_csv_field ethernet_fields[] = {S_(name),
                                                      S_(lanes_typical),
                                                      N_(rate_Gbps),
                                                      N_(GBps_per_dir),
                                                      N_(GBps_bidir),
                                                      N(roce_latency_us_low),
                                                      N(roce_latency_us_high),
                                                      N(tcp_latency_us_low),
                                                      N(tcp_latency_us_high),
                                                      N(switch_latency_ns_typ),
                                                      S(example),
                                                      ORIGIN,
                                                      S(note),
                                                      END};
#undef ROW

#define ROW mw_hw_latency_row
static const struct mw_csv_field latency_fields[] = {
    S_(level),      S_(what),   N_(low_ns), N_(typical_ns), N_(high_ns),
    S(usual_range), S(verdict), ORIGIN,     S(note),        END};
#undef ROW

#define ROW mw_hw_system_row
static const struct mw_csv_field system_fields[] = {
    S_(slug),
    S_(name),
    S(aliases),
    I_(gpus_per_node),
    S_(gpu),
    S_(intra_fabric),
    S_(intra_class),
    S(nvswitch_gen),
    I(nvswitch_chips),
    N_(intra_GBps_per_gpu_per_dir),
    N_(peer_GBps_per_dir),
    I_(scaleup_domain_gpus),
    I_(nics_per_node),
    N_(nic_Gbps),
    S(nic_type),
    S_(inter_class),
    N_(node_net_GBps_per_dir),
    S(gpu_to_nic),
    I(rails),
    S(cpu),
    I(cpu_sockets),
    N(host_mem_GB),
    S(local_nvme),
    S(gpu_host_link),
    S(nccl_topology),
    ORIGIN,
    S(note),
    END};
#undef ROW

#define ROW mw_hw_cost_row
static const struct mw_csv_field cost_fields[] = {S_(gpu),
                                                  S_(provider_or_tier),
                                                  N_(usd_per_gpu_hour_low),
                                                  N_(usd_per_gpu_hour_high),
                                                  S_(kind),
                                                  S_(as_of),
                                                  ORIGIN,
                                                  END};
#undef ROW

#define ROW mw_hw_alpha_beta_row
static const struct mw_csv_field alpha_beta_fields[] = {S_(system),
                                                        S_(scope),
                                                        S_(path),
                                                        N_(alpha_us),
                                                        N_(beta_us_per_MB),
                                                        N_(link_GBps_per_dir),
                                                        ORIGIN,
                                                        S(note),
                                                        END};
#undef ROW

#define ROW mw_hw_achieved_row
static const struct mw_csv_field achieved_fields[] = {S_(gpu),
                                                      S_(dtype),
                                                      N_(measured_tflops),
                                                      N_(theory_tflops),
                                                      N_(efficiency),
                                                      ORIGIN,
                                                      S(note),
                                                      END};
#undef ROW

#define ROW mw_constant
static const struct mw_csv_field constant_fields[] = {
    S_(name), N_(value),      S_(unit), S_(source),
    S_(date), S_(confidence), S(note),  END};
#undef ROW

#define ROW mw_kernel_row
static const struct mw_csv_field kernel_fields[] = {
    S_(device), S_(op), S_(pass),   S_(dtype),  I_(m), I_(n),
    I_(k),      I(kv),  N_(time_s), S_(source), END};
#undef ROW

#define ROW mw_curve_row
static const struct mw_csv_field curve_fields[] = {
    S_(system), S_(op),     I_(ranks), FIELD(bytes, MW_C_INT, true, 0, 1e15, 0),
    N_(time_s), S_(source), END};
#undef ROW

#define ROW mw_hw_profile_row
static const struct mw_csv_field profile_fields[] = {
    S_(framework), S(from_version), S(to_version), S(family), S_(field),
    S_(value),     ORIGIN,          S(note),       END};
#undef ROW

#define ROW mw_recipe
static const struct mw_csv_field recipe_fields[] = {S_(framework),
                                                    S_(from_version),
                                                    S(to_version),
                                                    S_(model),
                                                    S_(gpu),
                                                    S_(dtype),
                                                    I_(tp),
                                                    I_(pp),
                                                    I_(cp),
                                                    I_(ep),
                                                    I_(micro_batch),
                                                    S(recompute),
                                                    I(recompute_layers),
                                                    I(offload_layers),
                                                    S(cuda_graph),
                                                    S(dispatcher),
                                                    N(capacity_factor),
                                                    S(unsaid),
                                                    ORIGIN,
                                                    S(note),
                                                    END};
#undef ROW

#define ROW mw_hw_machine_row
static const struct mw_csv_field machine_fields[] = {S_(key), S(value), END};
#undef ROW

#define ROW mw_router_row
static const struct mw_csv_field router_fields[] = {I_(layer), I_(sequence),
                                                    I_(expert), I_(rows), END};
#undef ROW

#define ROW mw_model_error
static const struct mw_csv_field model_error_fields[] = {
    S_(file),
    S_(group),
    I_(rows),
    N_(p50),
    N_(p90),
    N_(p99),
    FIELD(bias, MW_C_NUM, true, -1e18, 1e18, (double)NAN),
    END};
#undef ROW

const struct mw_hw_desc mw_hw_descs[MW_HW_N_TABLES] = {
    [MW_HW_GPUS] =
        {"gpus", {"slug"}, gpu_fields, sizeof(struct mw_hw_gpu_row), true},
    [MW_HW_NVLINK] = {"nvlink",
                      {"generation"},
                      nvlink_fields,
                      sizeof(struct mw_hw_nvlink_row),
                      true},
    [MW_HW_NVSWITCH] = {"nvswitch",
                        {"generation", "system"},
                        nvswitch_fields,
                        sizeof(struct mw_hw_nvswitch_row),
                        true},
    [MW_HW_PCIE] =
        {"pcie", {"gen"}, pcie_fields, sizeof(struct mw_hw_pcie_row), true},
    [MW_HW_INFINIBAND] = {"infiniband",
                          {"name"},
                          infiniband_fields,
                          sizeof(struct mw_hw_infiniband_row),
                          true},
    [MW_HW_ETHERNET] = {"ethernet",
                        {"name"},
                        ethernet_fields,
                        sizeof(struct mw_hw_ethernet_row),
                        true},
    [MW_HW_LATENCY] = {"latency",
                       {"level"},
                       latency_fields,
                       sizeof(struct mw_hw_latency_row),
                       true},
    [MW_HW_SYSTEMS] = {"systems",
                       {"slug"},
                       system_fields,
                       sizeof(struct mw_hw_system_row),
                       true},
    [MW_HW_COSTS] = {"costs",
                     {"gpu", "provider_or_tier"},
                     cost_fields,
                     sizeof(struct mw_hw_cost_row),
                     true},
    [MW_HW_ALPHA_BETA] = {"alpha_beta",
                          {"system", "scope", "path"},
                          alpha_beta_fields,
                          sizeof(struct mw_hw_alpha_beta_row),
                          true},
    [MW_HW_ACHIEVED] = {"achieved_matmul",
                        {"gpu", "dtype"},
                        achieved_fields,
                        sizeof(struct mw_hw_achieved_row),
                        true},
    [MW_HW_CONSTANTS] = {"constants",
                         {"name"},
                         constant_fields,
                         sizeof(struct mw_constant),
                         true},
    [MW_HW_PROFILES] = {"profiles",
                        {"framework", "from_version", "family", "field"},
                        profile_fields,
                        sizeof(struct mw_hw_profile_row),
                        true},
    [MW_HW_RECIPES] = {"recipes",
                       {"framework", "from_version", "model", "gpu", "dtype",
                        "pp", "ep", "micro_batch"},
                       recipe_fields,
                       sizeof(struct mw_recipe),
                       true},
    [MW_HW_KERNELS] = {"kernels",
                       {"device", "op", "pass", "dtype", "m", "n", "k", "kv"},
                       kernel_fields,
                       sizeof(struct mw_kernel_row),
                       false},
    [MW_HW_CURVES] = {"curves",
                      {"system", "op", "ranks", "bytes"},
                      curve_fields,
                      sizeof(struct mw_curve_row),
                      false},
    [MW_HW_MACHINE] = {"machine",
                       {"key"},
                       machine_fields,
                       sizeof(struct mw_hw_machine_row),
                       false},
    [MW_HW_ROUTER] = {"router",
                      {"layer", "sequence", "expert"},
                      router_fields,
                      sizeof(struct mw_router_row),
                      false},
    [MW_HW_MODEL_ERROR] = {"model_error",
                           {"file", "group"},
                           model_error_fields,
                           sizeof(struct mw_model_error),
                           true},
};
