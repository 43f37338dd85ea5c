/*
 * Scenario files: any bytes are either read or refused with a message; what
 * is read has a legal model and, with a layout, operators with finite sizes.
 */
#include "fuzz/fuzz.h"
#include "sim/model/scenario.h"

#include <math.h>

/* The operators of the first layer must be computable. */
static void check_layer(const struct mw_scenario *s)
{
    const struct mw_work work = {.model = &s->model,
                                 .layout = &s->layout,
                                 .seq = s->workload.seq,
                                 .dtype = s->workload.dtype,
                                 .is_flash = s->workload.is_flash,
                                 .has_dropout = s->workload.has_dropout,
                                 .grad_dtype = s->workload.grad_dtype};
    struct mw_ops ops = {0};

    mw_layer_ops(&work, 0, MW_PASS_F, &ops);
    mw_layer_ops(&work, 0, MW_PASS_BW, &ops);
    mw_layer_recompute_ops(&work, 0, &ops);
    mw_head_ops(&work, MW_PASS_BW, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        MW_ASSERT(isfinite(ops.v[i].flops) && ops.v[i].flops >= 0 &&
                      isfinite(ops.v[i].bytes) && ops.v[i].save_bytes >= 0,
                  "%s: flops %g bytes %g", ops.v[i].name, ops.v[i].flops,
                  ops.v[i].bytes);
    }
    mw_array_release(&ops);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_scenario s;
    struct mw_err err = {0};

    if (mw_scenario_parse("fuzz.yaml", size > 0 ? (const char *)data : "", size,
                          &s, &err) != MW_OK) {
        MW_ASSERT(err.n_findings > 0, "a failure without a message");
        return 0;
    }
    MW_ASSERT(mw_model_check(&s.model, &err) == MW_OK, "%s", err.text);
    if (s.has_layout) {
        check_layer(&s);
    }
    mw_scenario_release(&s);
    return 0;
}
