/*
 * Running a set of plans: each is simulated and executed, and the two are
 * compared. What it leaves in the folder `out`:
 *
 *   hwdb-SCENARIO/       calibration for the plans of a scenario, unless one is
 *                        given; made once, taken again when it is there
 *   NAME.simulated.json  predicted timeline of NAME.yaml
 *   NAME.measured.json   timeline on the clock asked for
 *   NAME.result.json     what `run` reports
 *
 * A calibration fits its in-situ factor to one run of one plan of its own. A
 * set that holds that plan is refused: what is compared must not have been
 * fitted.
 */
#ifndef MW_EXEC_COMPARE_SET_RUN_H
#define MW_EXEC_COMPARE_SET_RUN_H

#include "exec/compare/set.h"

struct mw_set_opts {
    const char *dir;  /* *.yaml that are plans; scenarios may lie beside them */
    const char *out;  /* made if missing */
    const char *hwdb; /* overlay; NULL: calibrate */
    const char *slow; /* "gemm=1.3" for every run, or NULL */
    bool is_local;    /* ranks are threads of one process, one at a time */
    bool is_wall;     /* measured on the wall clock, not the virtual one */
    int max_ranks;    /* plans of more ranks are left out; 0: none */
    int steps;        /* of each run, 3 of them warm up; 0: 8 */
    bool is_reused;   /* runs that lie in `out` and are of the same plan */
    bool is_quiet;
};

struct mw_set {
    struct mw_arena arena;
    struct mw_set_plan *plans; /* by name */
    int n;
};

/*
 * MW_EINPUT: no plan in the folder, a bad one, or one that a calibration was
 * fitted to; MW_EMISSING, MW_EFAILED as mw_launch_run. Release with
 * mw_set_release.
 */
enum mw_status mw_set_run(const struct mw_set_opts *opts, struct mw_set *out,
                          struct mw_err *err);
void mw_set_release(struct mw_set *s);

/* The set as one self-contained page. */
enum mw_status mw_set_page(struct mw_set *s, const struct mw_set_score *score,
                           const char *path, struct mw_err *err);

#endif
