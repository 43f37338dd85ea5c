/* Inside of `calibrate`: its parts in files of their own. */
#ifndef MW_EXEC_CALIBRATE_INT_H
#define MW_EXEC_CALIBRATE_INT_H

#include "base/err.h"

/* Writes gpus.csv of an overlay: host-cpu with this fp32 peak. */
enum mw_status mw_calibrate_device(double flops_per_s, const char *path,
                                   struct mw_err *err);

#endif
