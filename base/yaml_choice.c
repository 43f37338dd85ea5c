/*
 * Ranges of values to choose among: {from: a, to: b, by: c} stands for the list
 * a, a + c, a + 2 c, ... up to b. Whole numbers go by 1 where nothing is said;
 * other numbers have no next one, so c is needed. Left out: open ends, ranges
 * by a factor (a list says those).
 */
#include "base/yaml_int.h"

#include <math.h>
#include <stddef.h>

struct whole_range {
    int64_t from, to, by;
};
struct range {
    double from, to, by;
};

static const struct mw_field whole_fields[] = {
    {.key = "from",
     .type = MW_F_INT,
     .offset = offsetof(struct whole_range, from),
     .required = true},
    {.key = "to",
     .type = MW_F_INT,
     .offset = offsetof(struct whole_range, to),
     .required = true},
    {.key = "by",
     .type = MW_F_INT,
     .offset = offsetof(struct whole_range, by),
     .min = 1,
     .max = 1e15},
    MW_FIELD_END};
static const struct mw_field fields[] = {
    {.key = "from",
     .type = MW_F_NUM,
     .offset = offsetof(struct range, from),
     .required = true},
    {.key = "to",
     .type = MW_F_NUM,
     .offset = offsetof(struct range, to),
     .required = true},
    {.key = "by",
     .type = MW_F_NUM,
     .offset = offsetof(struct range, by),
     .required = true,
     .min = 1e-6,
     .max = 1e15,
     .doc = "from one value to the next"},
    MW_FIELD_END};

/* Values of a range, 0 where they are none or too many. A sum of steps may miss
 * its end by rounding. */
static enum mw_status count(struct mw_node *map, const struct range *r,
                            size_t *out, struct mw_err *err)
{
    double steps = (r->to - r->from) / r->by * (1 + 1e-12);

    if (steps < 0) {
        return mw_node_fail(map, err,
                            "from %.15g to %.15g there is nothing; from is "
                            "the least value",
                            r->from, r->to);
    }
    if (!(steps < MW_RANGE_MAX)) {
        return mw_node_fail(map, err,
                            "from %.15g to %.15g by %.15g are more than %d "
                            "values; a larger by, or a list",
                            r->from, r->to, r->by, MW_RANGE_MAX);
    }
    *out = (size_t)floor(steps) + 1;
    return MW_OK;
}

enum mw_status mw_yaml_int_range(struct mw_node *map, struct mw_arena *arena,
                                 struct mw_int_list *out, struct mw_err *err)
{
    struct whole_range r = {.by = 1};
    size_t n = 0;
    enum mw_status status = mw_yaml_bind(map, whole_fields, &r, arena, err);

    if (status == MW_OK) {
        struct range of = {(double)r.from, (double)r.to, (double)r.by};

        status = count(map, &of, &n, err);
    }
    if (status == MW_OK) {
        int64_t *v = mw_arena_alloc(arena, n, sizeof *v);

        for (size_t i = 0; i < n; i++) {
            v[i] = r.from + (int64_t)i * r.by;
        }
        *out = (struct mw_int_list){v, n};
    }
    return status;
}

enum mw_status mw_yaml_num_range(struct mw_node *map, struct mw_arena *arena,
                                 struct mw_num_list *out, struct mw_err *err)
{
    struct range r = {.by = 1};
    size_t n = 0;
    enum mw_status status = mw_yaml_bind(map, fields, &r, arena, err);

    status = status == MW_OK ? count(map, &r, &n, err) : status;
    if (status == MW_OK) {
        double *v = mw_arena_alloc(arena, n, sizeof *v);

        for (size_t i = 0; i < n; i++) {
            v[i] = fmin(r.from + (double)i * r.by, r.to);
        }
        *out = (struct mw_num_list){v, n};
    }
    return status;
}
