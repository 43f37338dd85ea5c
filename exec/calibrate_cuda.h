/*
 * `calibrate --backend cuda`: starts mw-gpu-check, the one program that is
 * linked with the GPU's libraries, and relays what it says. It measures device
 * 0 and writes an overlay: kernels.csv, machine.csv, raw_samples.csv and
 * gpu_check.json (copies, launches, layers, a product beside a copy).
 */
#ifndef MW_EXEC_CALIBRATE_CUDA_H
#define MW_EXEC_CALIBRATE_CUDA_H

#include "base/err.h"

#include <stdbool.h>

struct mw_calibrate_cuda_opts {
    const char *dir;    /* made if missing */
    const char *device; /* slug of the rows; NULL: by the device's name */
    double limit_s;     /* 0: 300 */
    bool is_quick;      /* a few small sizes: does it run at all? */
};
/* Of gpu_check.json; NaN: not measured. */
struct mw_calibrate_cuda_result {
    double launch_s;                  /* device time of an empty kernel */
    double h2d_Bps, d2h_Bps, d2d_Bps; /* of the largest copy */
    double slowdown; /* product and copy together over the longer one alone */
};
/*
 * The program is $MW_GPU_CHECK, else the one beside meshwright or in its
 * libexec folder. MW_EMISSING when there is none, or no driver or GPU;
 * MW_EFAILED when the device failed; MW_EUSAGE, MW_EINPUT as it reports.
 */
enum mw_status mw_calibrate_cuda(const struct mw_calibrate_cuda_opts *opts,
                                 struct mw_calibrate_cuda_result *out,
                                 struct mw_err *err);

#endif
