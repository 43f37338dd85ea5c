/*
 * Offload to drives: rates, times and bytes by hand, what the host's memory
 * still holds, both forms, what is refused.
 */
#include "mw_test.h"

#include "step_fixture.h"

#include <math.h>

enum { IN_NODE = 8, LAYERS = 16 };

static void open_world(struct step_world *w, const char *system)
{
    step_scenario(&w->s, system, 1, 32, "bf16");
    step_world_price(w);
}

static struct mw_layout layout(int zero, enum mw_offload_nvme nvme)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = IN_NODE;
    l.zero = zero;
    l.offload_nvme = nvme;
    l.offload_optimizer = 1;
    l.offload_weights = 1;
    return l;
}

static struct mw_step_result run(const struct step_world *w,
                                 const struct mw_layout *l)
{
    struct mw_step_result r;

    step_simulate(&r, &w->s, l, &w->ctx, NULL);
    return r;
}

/* Four drives of 3.25 GB/s give 10 GB/s of reads and 5 of writes (the blog's
 * own measurement); a DGX A100's 25 GB/s as much less. */
static void test_rates(void **state)
{
    static const struct {
        const char *system;
        double read_Bps;
    } rows[] = {{"coreweave-a100", 10e9}, {"dgx-a100", 25e9 * 10 / 13}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct step_world w;

        open_world(&w, rows[i].system);
        mw_assert_near(w.ctx.nvme_read_Bps * IN_NODE, rows[i].read_Bps, 0.005,
                       0);
        mw_assert_near(w.ctx.nvme_write_Bps, w.ctx.nvme_read_Bps / 2, 1e-12, 0);
        step_world_close(&w);
    }
}

/* 12 bytes of states a parameter are read and written; slow drives make that
 * the longest of all. */
static void test_optimizer(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-a100");
    w.ctx.nvme_read_Bps = 1e8;
    w.ctx.nvme_write_Bps = 5e7;
    struct mw_layout l = layout(1, MW_NVME_OPTIMIZER);

    l.offload_weights = 0;
    struct mw_step_result r = run(&w, &l);
    double n = r.memory->nvme_bytes / 12;

    mw_assert_near(r.breakdown_s[MW_SPAN_OFFLOAD] +
                       r.breakdown_s[MW_SPAN_OPTIMIZER],
                   12 * n / 1e8 + 12 * n / 5e7, 1e-6, 0);
    mw_step_result_release(&r);
    step_world_close(&w);
}

/* Reads of a pass are longer than its work: they are its length, twice a
 * micro-batch (forward, backward), and what the optimizer writes comes once. */
static void test_weights(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-a100");
    w.ctx.nvme_read_Bps = 1e6;
    w.ctx.nvme_write_Bps = 1e12;
    struct mw_layout l = layout(3, MW_NVME_WEIGHTS);
    struct mw_step_result r = run(&w, &l);
    double m = 32 / IN_NODE;

    mw_assert_near(r.step_time_s, 2 * m * r.memory->nvme_bytes / 1e6, 0.01, 0);
    mw_step_result_release(&r);
    step_world_close(&w);
}

/* The host keeps gradients, and two of the layers' worth of what is on drives;
 * the device the same in all cases. */
static void test_memory(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-a100");
    struct mw_layout l = layout(3, MW_NVME_NONE);
    struct mw_step_result host = run(&w, &l);
    const double grads = host.memory->host_bytes * 4 / (4 + 12 + 2);

    assert_true(host.memory->nvme_bytes == 0);
    for (int what = MW_NVME_OPTIMIZER; what <= MW_NVME_ALL; what++) {
        double moved = grads / 4 *
                       ((what & MW_NVME_OPTIMIZER ? 12 : 0) +
                        (what & MW_NVME_WEIGHTS ? 2 : 0));

        l = layout(3, (enum mw_offload_nvme)what);
        struct mw_step_result r = run(&w, &l);

        mw_assert_near(r.memory->nvme_bytes, moved, 1e-12, 0);
        mw_assert_near(r.memory->host_bytes,
                       host.memory->host_bytes - moved * (LAYERS - 2) / LAYERS,
                       1e-12, 0);
        assert_memory_equal(&r.peak_bytes, &host.peak_bytes, sizeof(double));
        assert_true(r.step_time_s >= host.step_time_s);
        mw_step_result_release(&r);
    }
    mw_step_result_release(&host);
    step_world_close(&w);
}

static void test_forms_agree(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100");
    for (int zero = 0; zero <= 3; zero++) {
        for (int what = MW_NVME_NONE; what <= MW_NVME_ALL; what++) {
            struct mw_layout l = layout(zero, (enum mw_offload_nvme)what);

            l.pp = 2;
            l.dp = IN_NODE / 2;
            step_forms_agree(&w, &l);
        }
    }
    step_world_close(&w);
}

static void test_unknown_drives(void **state)
{
    struct mw_layout l = layout(3, MW_NVME_ALL);
    struct mw_err err = {0};
    struct mw_plan plan;
    struct mw_step_result r;
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100");
    w.ctx.nvme_read_Bps = (double)NAN;
    step_plan(&plan, &w.s, &l);
    assert_int_equal(mw_step_simulate(&w.s, &plan, &w.ctx, NULL, &r, &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "nvme_rate.dgx-h100"));
    mw_plan_release(&plan);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_forms_agree),
        cmocka_unit_test(test_unknown_drives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
