/* Shared by the files of `meshwright coll`. */
#ifndef MW_CLI_VERB_COLL_H
#define MW_CLI_VERB_COLL_H

#include "cli/cli.h"
#include "sim/coll/coll.h"
#include "sim/coll/event.h"
#include "sim/coll/moe.h"
#include "sim/coll/nccl_log.h"

enum { COLL_ENV_MAX = 32, COLL_SIZES_MAX = 4096 };

/* --experts and what goes with it (coll_experts.h). */
struct coll_experts {
    struct mw_moe_traffic traffic; /* n_experts 0: not asked for */
    struct mw_moe_query query;
    const char *loads_path; /* of --routing FILE */
    bool has_exponent;
    enum { COLL_MOE_BOTH, COLL_MOE_DISPATCH, COLL_MOE_COMBINE } phase;
};

struct coll_args {
    struct mw_cli cli;
    const char *system, *scenario;
    int n_nodes, gpus_per_node; /* 0: not given */
    enum mw_coll_op op;
    bool has_op;
    const char *type_name;
    enum mw_nccl_type type;
    int elem_bytes;
    double min_bytes, max_bytes, factor;
    enum mw_coll_model model;
    const char *env[COLL_ENV_MAX];
    int n_env;
    const char *nccl_version, *harness;
    enum mw_coll_engine engine;
    bool is_eager;
    MW_ARRAY(char *) notice; /* what was taken as the default; owned */
    const char *against, *plot, *concurrent, *topology;
    const char *program, *write_program;
    struct mw_congestion congestion;
    struct coll_experts experts;
};

/* Fills args with defaults, reads the command line; MW_EUSAGE as printed. */
enum mw_status coll_args_read(struct coll_args *a, int argc, char **argv);

void coll_args_release(struct coll_args *a);

/* Settings of the job into opts and the query. What is not known takes the
 * default and is said: a warning, and a notice of the JSON object. */
enum mw_status coll_settings(struct coll_args *a, struct mw_nccl_opts *opts,
                             struct mw_coll_query *q, struct mw_err *err);

/* One size and what was said of it. */
struct coll_row {
    double bytes;
    struct mw_coll_answer a;
    double measured_s; /* of --against; 0: none */
};
struct coll_rows {
    MW_ARRAY(struct coll_row) v;
};

/* --concurrent: the collective of the options beside those of the list, at
 * --max-bytes where the list gives no size. Prints and sets the exit status. */
enum mw_status coll_concurrent(const struct coll_args *a,
                               const struct mw_hwdb *db,
                               struct mw_coll_world *world,
                               const struct mw_coll_query *q, int *out_rc,
                               struct mw_err *err);
/* --topology over the system and nodes of the query; NULL without it. */
enum mw_status coll_topology(const struct coll_args *a,
                             const struct mw_hwdb *db,
                             const struct mw_coll_query *q,
                             struct mw_topology **out, struct mw_err *err);
/* --program: rows of a program on a topology (NULL: one switch); a file's
 * operation goes into the query. */
enum mw_status coll_program(const struct coll_args *a,
                            const struct mw_coll_world *world,
                            const struct mw_topology *topo,
                            struct mw_coll_query *q, struct coll_rows *rows,
                            struct mw_err *err);
/* The size that follows in a sweep: --factor times it, a byte more at least. */
double coll_next_size(const struct coll_args *a, double bytes);
/* "64K", "1GiB", "8" as bytes; false if it is none. */
bool coll_size_parse(const char *text, double *out);

void coll_view_print(const struct coll_args *a, const struct mw_coll_query *q,
                     const struct mw_coll_world *world,
                     const struct coll_rows *rows);
int coll_view_json(const struct coll_args *a, const struct mw_coll_query *q,
                   const struct mw_coll_world *world,
                   const struct coll_rows *rows);
enum mw_status coll_view_plot(const struct coll_args *a,
                              const struct mw_coll_query *q,
                              const struct coll_rows *rows, struct mw_err *err);

#endif
