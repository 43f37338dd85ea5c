/*
 * Which device table a backend's name stands for, and the slow-down option.
 *
 * The CUDA backend is a module: mw_cuda.so exports `mw_dev_cuda` (float32) and
 * `mw_dev_cuda_bf16`; it is loaded when asked for, so that meshwright-exec
 * itself needs neither driver nor libraries (UCC loads its CUDA components in
 * this way).
 */
#include "exec/dev.h"

#include "base/mem.h"
#include "base/units.h"

#include <dlfcn.h>
#include <string.h>

static enum mw_status find_cuda(enum mw_dtype dtype,
                                const struct mw_dev_ops **out,
                                struct mw_err *err)
{
    const char *symbol = dtype == MW_BF16 ? "mw_dev_cuda_bf16" : "mw_dev_cuda";
    void *module = dlopen("mw_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        return mw_fail(err, MW_EMISSING,
                       "the cuda backend is not available: %s; "
                       "--backend host runs without a GPU",
                       dlerror());
    }
    const struct mw_dev_ops *ops = dlsym(module, symbol);
    if (!ops) {
        dlclose(module);
        return mw_fail(err, MW_EMISSING,
                       "the cuda backend is not available: mw_cuda.so has no "
                       "%s",
                       symbol);
    }
    *out = ops;
    return MW_OK;
}

enum mw_status mw_dev_find(const char *backend, enum mw_dtype dtype,
                           const struct mw_dev_ops **out, struct mw_err *err)
{
    if (strcmp(backend, "host") == 0) {
        *out = &mw_dev_host;
        return MW_OK;
    }
    if (strcmp(backend, "cuda") == 0) {
        return find_cuda(dtype, out, err);
    }
    return mw_fail(err, MW_EUSAGE, "unknown backend '%s'; host or cuda",
                   backend);
}

/* ---- --slow ------------------------------------------------------------- */
static enum mw_status slow_one(char *item, struct mw_slow *out,
                               struct mw_err *err)
{
    char *eq = strchr(item, '=');
    double factor = 0.0;
    if (!eq || mw_double_parse(eq + 1, &factor, NULL) != MW_OK ||
        factor < 1.0 || factor > 100.0) {
        return mw_fail(err, MW_EUSAGE,
                       "--slow: '%s' is not KIND=FACTOR with a factor in "
                       "1..100, for example gemm=1.3",
                       item);
    }
    *eq = '\0';
    for (int k = 0; k < MW_OP_KIND_COUNT; k++) {
        if (strcmp(item, mw_op_kind_name((enum mw_op_kind)k)) == 0) {
            out->factor[k] = factor;
            return MW_OK;
        }
    }
    return mw_fail(err, MW_EUSAGE,
                   "--slow: '%s' is no kind of operator; gemm attention norm "
                   "rotary activation add embedding cross_entropy optimizer",
                   item);
}

enum mw_status mw_slow_parse(const char *text, struct mw_slow *out,
                             struct mw_err *err)
{
    char *copy = mw_strdup(text), *rest = copy;
    enum mw_status st = MW_OK;
    while (rest && st == MW_OK) {
        char *item = rest;
        rest = strchr(item, ',');
        if (rest) {
            *rest++ = '\0';
        }
        st = slow_one(item, out, err);
    }
    mw_free(copy);
    return st;
}
