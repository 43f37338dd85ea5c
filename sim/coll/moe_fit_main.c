/*
 * moe_fit FILE... -o coll_moe.csv: fits latency and bandwidth of dispatch and
 * combine kernels on tables of measurements (moe_fit.h).
 */
#include "sim/coll/moe_fit.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_moe_samples samples = {{NULL, 0, 0}};
    if (argc < 4 || strcmp(argv[argc - 2], "-o") != 0) {
        fprintf(stderr, "usage: %s FILE... -o coll_moe.csv\n", argv[0]);
        return 2;
    }
    enum mw_status s = MW_OK;
    for (int i = 1; i < argc - 2 && s == MW_OK; i++) {
        s = mw_moe_samples_load(argv[i], &samples, &err);
    }
    if (s == MW_OK) {
        s = mw_moe_fit(&samples, NULL, argv[argc - 1], NULL, &err);
    }
    if (s != MW_OK) {
        fprintf(stderr, "moe_fit: %s\n", err.text);
    }
    mw_array_release(&samples.v);
    return mw_status_exit(s);
}
