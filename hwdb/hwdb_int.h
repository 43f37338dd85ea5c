/*
 * Inside of the hardware database: one struct per row of each table (members
 * are named like the columns, so that a unit is never lost on the way), the
 * merged tables, and the helpers by which the checks report.
 *
 * Numbers that are not known are NaN, integers 0 or as the field table says.
 */
#ifndef MW_HWDB_HWDB_INT_H
#define MW_HWDB_HWDB_INT_H

#include "base/csv.h"
#include "base/units.h"
#include "hwdb/hwdb.h"

enum mw_hw_table_id {
    MW_HW_GPUS,
    MW_HW_NVLINK,
    MW_HW_NVSWITCH,
    MW_HW_PCIE,
    MW_HW_INFINIBAND,
    MW_HW_ETHERNET,
    MW_HW_LATENCY,
    MW_HW_SYSTEMS,
    MW_HW_COSTS,
    MW_HW_ALPHA_BETA,
    MW_HW_ACHIEVED,
    MW_HW_CONSTANTS,
    MW_HW_PROFILES,
    MW_HW_RECIPES,
    MW_HW_KERNELS,
    MW_HW_CURVES,
    MW_HW_MACHINE,
    MW_HW_ROUTER,
    MW_HW_MODEL_ERROR,
    MW_HW_N_TABLES
};

struct mw_hw_gpu_row {
    const char *slug, *name, *aliases, *vendor, *form, *arch, *cc, *status;
    int64_t year;
    double fp64_tflops, fp64_tensor_tflops, fp32_tflops, tf32_tflops;
    double fp16_tflops, bf16_tflops, fp8_tflops, int8_tops, fp4_tflops;
    double mem_GiB, mem_bw_GBps, l2_MiB;
    const char *mem_type;
    int64_t sms;
    double boost_MHz, tdp_W;
    const char *scaleup;
    int64_t links;
    double link_GBps_per_dir, scaleup_GBps_per_dir, scaleup_total_bidir_GBps;
    const char *pcie_gen;
    const char *confidence, *source, *note;
};

struct mw_hw_nvlink_row {
    const char *generation, *gpu, *modulation;
    int64_t year, links_per_gpu, max_domain_gpus;
    double signalling_Gbps_per_lane, lanes_per_link_per_dir;
    double raw_link_GBps_per_dir, link_GBps_per_dir, link_GBps_bidir;
    double gpu_GBps_per_dir, gpu_GBps_bidir, nccl_model_link_GBps_per_dir;
    const char *confidence, *source, *note;
};

struct mw_hw_nvswitch_row {
    const char *generation, *nvlink, *system, *sharp;
    int64_t year, ports_per_chip, chips_per_system, gpus_per_domain;
    double port_GBps_per_dir, port_GBps_bidir;
    double chip_GBps_per_dir, chip_GBps_bidir, chip_Tbps_bidir;
    double bisection_GBps_per_dir, bisection_GBps_bidir;
    double aggregate_gpu_GBps_per_dir, aggregate_gpu_GBps_bidir;
    const char *confidence, *source, *note;
};

struct mw_hw_pcie_row {
    const char *gen, *encoding, *achieved_how;
    int64_t year;
    double GTps, x16_GBps_per_dir_theory, x16_GBps_per_dir_achieved;
    double nccl_model_x16_GBps_per_dir;
    const char *confidence, *source, *note;
};

struct mw_hw_infiniband_row {
    const char *name, *encoding, *nic_examples, *switch_examples;
    int64_t year, switch_ports;
    double lane_signalling_Gbps, link_4x_Gbps_nominal, link_4x_data_Gbps;
    double link_4x_GBps_per_dir, link_4x_GBps_bidir;
    double adapter_latency_us, switch_latency_ns, nccl_lane_Mbps;
    const char *confidence, *source, *note;
};

struct mw_hw_ethernet_row {
    const char *name, *lanes_typical, *example;
    double rate_Gbps, GBps_per_dir, GBps_bidir;
    double roce_latency_us_low, roce_latency_us_high;
    double tcp_latency_us_low, tcp_latency_us_high, switch_latency_ns_typ;
    const char *confidence, *source, *note;
};

struct mw_hw_latency_row {
    const char *level, *what, *usual_range, *verdict;
    double low_ns, typical_ns, high_ns;
    const char *confidence, *source, *note;
};

struct mw_hw_system_row {
    const char *slug, *name, *aliases, *gpu, *intra_fabric, *intra_class;
    const char *nvswitch_gen, *nic_type, *inter_class, *gpu_to_nic;
    const char *cpu, *local_nvme, *gpu_host_link, *nccl_topology;
    int64_t gpus_per_node, nvswitch_chips, scaleup_domain_gpus;
    int64_t nics_per_node, rails, cpu_sockets;
    double intra_GBps_per_gpu_per_dir, peer_GBps_per_dir;
    double nic_Gbps, node_net_GBps_per_dir, host_mem_GB;
    const char *confidence, *source, *note;
};

/* host_link.c: the link to the host's memory and that memory's rate. */
void mw_hw_set_host(const struct mw_hwdb *db,
                    const struct mw_hw_system_row *row, struct mw_system *s);

struct mw_hw_cost_row {
    const char *gpu, *provider_or_tier, *kind, *as_of;
    double usd_per_gpu_hour_low, usd_per_gpu_hour_high;
    const char *confidence, *source;
};

struct mw_hw_alpha_beta_row {
    const char *system, *scope, *path;
    double alpha_us, beta_us_per_MB, link_GBps_per_dir;
    const char *confidence, *source, *note;
};

struct mw_hw_achieved_row {
    const char *gpu, *dtype;
    double measured_tflops, theory_tflops, efficiency;
    const char *confidence, *source, *note;
};

struct mw_hw_profile_row {
    const char *framework, *from_version, *to_version, *family, *field, *value;
    const char *confidence, *source, *note;
};

struct mw_hw_machine_row {
    const char *key, *value;
};

/* What is known of a table before reading it. */
enum { MW_HW_KEY_MAX = 8 };
struct mw_hw_desc {
    const char *name; /* file name without ".csv" */
    /* Columns that make a row unique; one that may be absent goes last. */
    const char *key[MW_HW_KEY_MAX];
    const struct mw_csv_field *fields;
    size_t row_size;
    bool is_shipped; /* must be in the data folder */
};
extern const struct mw_hw_desc mw_hw_descs[MW_HW_N_TABLES];

/* A table after merging: a row may come from either file. */
struct mw_hw_table {
    struct mw_csv csv;     /* csv.file is the shipped file */
    const char **row_file; /* file of each row */
    void *rows;            /* array of desc->row_size */
};

struct mw_hwdb {
    struct mw_arena arena;
    struct mw_hw_table tables[MW_HW_N_TABLES];
    struct mw_gpu *gpus;       /* one per row of MW_HW_GPUS */
    struct mw_system *systems; /* one per row of MW_HW_SYSTEMS */
    struct mw_kernel_row *kernels;
    struct mw_curve_row *curves; /* both sorted by their keys */
    const char **names; /* every slug, name and alias, for nearest matches */
    size_t n_names;
    const char *overlay_dir;
    uint64_t overlay_hash; /* of its tables' names and bytes; 0: none */
    const char *data_dir;  /* of the shipped tables */
    struct mw_hw_measured *measured; /* measured_load.c; has its own lock */
    struct mw_hwdb_loan *loan;       /* NULL: none */
};

/* Rows of a table as its struct. */
#define MW_HW_ROWS(db, id, type) ((const type *)(db)->tables[id].rows)
static inline size_t mw_hw_n_rows(const struct mw_hwdb *db,
                                  enum mw_hw_table_id id)
{
    return db->tables[id].csv.n_rows;
}

/* ---- hwdb_table.c ------------------------------------------------------- */
/* Reads data_dir/NAME.csv, merges overlay_dir/NAME.csv (NULL: none) by key and
 * binds the rows. */
enum mw_status mw_hw_table_load(struct mw_hw_table *t,
                                const struct mw_hw_desc *desc,
                                const char *data_dir, const char *overlay_dir,
                                struct mw_arena *arena, struct mw_err *err);
/* A table of one row that shows row i with the file it came from. */
struct mw_csv mw_hw_table_row(const struct mw_hw_table *t, size_t i);

/* ---- hwdb_lookup.c ------------------------------------------------------- */
/* ASCII comparison without case; the locale has no say. */
int mw_hw_casecmp(const char *a, const char *b);
/* Whether text names one of a ';' separated list, any case. */
bool mw_hw_list_has(const char *list, const char *text);
/* Copies item i of a ';' separated list, trimmed, to out; false past the
 * end. */
bool mw_hw_list_item(const char *list, size_t i, char *out, size_t out_size);
/* Row of MW_HW_GPUS / MW_HW_SYSTEMS by slug, name or alias; -1 when none. */
long mw_hw_find_gpu(const struct mw_hwdb *db, const char *name);
long mw_hw_find_system(const struct mw_hwdb *db, const char *name);
/* NULL when there is no such constant. */
const struct mw_constant *mw_hw_constant(const struct mw_hwdb *db,
                                         const char *name);
/* constant "what.a" or "what.a.b" (b may be NULL): lower case, ' ' as '-'. */
const struct mw_constant *mw_hw_constant_of(const struct mw_hwdb *db,
                                            const char *what, const char *a,
                                            const char *b);
void mw_hw_names_build(struct mw_hwdb *db);

/* ---- hwdb_device.c, hwdb_curves.c ---------------------------------------- */
extern const char *const mw_hw_dtype_names[MW_HW_DTYPES];
void mw_hw_devices_build(struct mw_hwdb *db);
void mw_hw_curves_build(struct mw_hwdb *db);

/* ---- measured_load.c ----------------------------------------------------- */
struct mw_hw_measured *mw_hw_measured_new(void);
void mw_hw_measured_free(struct mw_hw_measured *m);

/* ---- checks -------------------------------------------------------------- */
/* One table being checked; findings go to err with the place of the row. */
struct mw_hw_check {
    const struct mw_hwdb *db;
    enum mw_hw_table_id table;
    struct mw_err *err;
    int n_bad;
};
/* A finding at a row and column. */
void mw_hw_bad(struct mw_hw_check *c, size_t row, const char *col,
               const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* value must be right within rtol, else "is VALUE but WHY gives RIGHT". NaN on
 * either side (not known) passes. */
void mw_hw_expect(struct mw_hw_check *c, size_t row, const char *col,
                  double value, double right, double rtol, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));
/* value must not exceed limit (times 1 + 1e-6). NaN passes. */
void mw_hw_expect_max(struct mw_hw_check *c, size_t row, const char *col,
                      double value, double limit, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* Generation digit of "NVLink4 bridge (pair)", 0 when it is no NVLink. */
char mw_hw_nvlink_digit(const char *scaleup);

void mw_hw_check_nvlink(struct mw_hw_check *c);
void mw_hw_check_nvswitch(struct mw_hw_check *c);
void mw_hw_check_pcie(struct mw_hw_check *c);
void mw_hw_check_infiniband(struct mw_hw_check *c);
void mw_hw_check_ethernet(struct mw_hw_check *c);
void mw_hw_check_gpus(struct mw_hw_check *c);
void mw_hw_check_systems(struct mw_hw_check *c);
void mw_hw_check_latency(struct mw_hw_check *c);
void mw_hw_check_costs(struct mw_hw_check *c);
void mw_hw_check_alpha_beta(struct mw_hw_check *c);
void mw_hw_check_achieved(struct mw_hw_check *c);
void mw_hw_check_constants(struct mw_hw_check *c);
void mw_hw_check_profiles(struct mw_hw_check *c); /* profile.c */
void mw_hw_check_recipes(struct mw_hw_check *c);  /* recipe.c */
void mw_hw_check_kernels(struct mw_hw_check *c);
void mw_hw_check_curves(struct mw_hw_check *c);

#endif
