/* Inside of `calibrate`: its parts in files of their own. */
#ifndef MW_EXEC_CALIBRATE_INT_H
#define MW_EXEC_CALIBRATE_INT_H

#include "exec/calibrate.h"
#include "sim/plan/plan.h"

struct mw_calibration {
    const struct mw_calibrate_opts *opts;
    const char *scenario_file;
    struct mw_scenario scenario;
    struct mw_plan plan; /* of the in-situ run */
    bool has_plan;
    struct mw_arena arena;
    struct mw_calibrate_result *out;
    char blas_config[256];
    struct mw_err *err;
};

#define TRY(call)                                                              \
    do {                                                                       \
        enum mw_status try_ = (call);                                          \
        if (try_ != MW_OK) {                                                   \
            return try_;                                                       \
        }                                                                      \
    } while (0)

/* A file of the overlay, in the calibration's arena. */
const char *mw_calibrate_path(struct mw_calibration *c, const char *name);
/* Writes machine.csv. */
enum mw_status mw_calibrate_record(struct mw_calibration *c);
/* Runs the in-situ plan and sets the factors of c->out. */
enum mw_status mw_calibrate_factors(struct mw_calibration *c);
/* Writes gpus.csv of an overlay: host-cpu with this fp32 peak. */
enum mw_status mw_calibrate_device(double flops_per_s, const char *path,
                                   struct mw_err *err);

#endif
