/*
 * The grid of a sweep: axes and their values, as --vary names them.
 */
#include "planner/sweep_int.h"

#include <string.h>

const struct mw_enum mw_sweep_key_enums[] = {
    {"nodes", MW_SWEEP_NODES},
    {"system", MW_SWEEP_SYSTEM},
    {"model", MW_SWEEP_MODEL},
    {"seq", MW_SWEEP_SEQ},
    {"global_batch", MW_SWEEP_BATCH},
    {"net", MW_SWEEP_NET},
    {"gpus_per_node", MW_SWEEP_PER_NODE},
    {"nics", MW_SWEEP_NICS},
    {NULL, 0}};

const char *mw_sweep_key_name(enum mw_sweep_key key)
{
    const struct mw_enum *e = mw_sweep_key_enums;

    while (e->value != (int)key) {
        e++;
    }
    return e->name;
}

bool mw_sweep_key_is_number(enum mw_sweep_key key)
{
    return key == MW_SWEEP_NODES || key == MW_SWEEP_SEQ ||
           key == MW_SWEEP_BATCH || key == MW_SWEEP_PER_NODE ||
           key == MW_SWEEP_NICS;
}

static enum mw_status check_value(const struct mw_sweep_axis *axis,
                                  const char *name, const char *value,
                                  struct mw_err *err)
{
    int64_t number = 0;
    double factor = 0;

    if (mw_sweep_key_is_number(axis->key) &&
        (mw_int_parse(value, &number, NULL) != MW_OK || number < 1 ||
         number > 1 << 24)) {
        return mw_fail(err, MW_EUSAGE,
                       "--vary: %s is '%s'; it must be an integer in "
                       "1..16777216",
                       name, value);
    }
    if (axis->key == MW_SWEEP_NET &&
        (mw_double_parse(value, &factor, NULL) != MW_OK || !(factor > 0) ||
         factor > 1e3)) {
        return mw_fail(err, MW_EUSAGE,
                       "--vary: net is '%s'; it is a factor on the bandwidth "
                       "between nodes, for example 0.5",
                       value);
    }
    if (value[0] == '\0') {
        return mw_fail(err, MW_EUSAGE, "--vary: %s has an empty value", name);
    }
    return MW_OK;
}

static bool has_value(const struct mw_sweep_axis *axis, const char *value)
{
    for (int i = 0; i < axis->n; i++) {
        if (strcmp(axis->value[i], value) == 0) {
            return true;
        }
    }
    return false;
}

static enum mw_status add_values(struct mw_sweep_axis *axis, const char *name,
                                 const char *text, struct mw_err *err)
{
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");

        if (axis->n == MW_SWEEP_VALUES_MAX || len >= MW_SWEEP_TEXT_MAX) {
            return mw_fail(err, MW_EUSAGE,
                           "--vary: %s has more than %d values, or one longer "
                           "than %d characters",
                           name, MW_SWEEP_VALUES_MAX, MW_SWEEP_TEXT_MAX - 1);
        }
        memcpy(axis->value[axis->n], at, len);
        axis->value[axis->n][len] = '\0';
        enum mw_status status =
            check_value(axis, name, axis->value[axis->n], err);

        if (status != MW_OK) {
            return status;
        }
        if (has_value(axis, axis->value[axis->n])) {
            return mw_fail(err, MW_EUSAGE, "--vary: %s has %s twice", name,
                           axis->value[axis->n]);
        }
        axis->n++;
        at += len;
        if (*at == '\0') {
            return MW_OK;
        }
    }
}

enum mw_status mw_sweep_grid_add(struct mw_sweep_grid *grid, const char *text,
                                 struct mw_err *err)
{
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    const struct mw_enum *e = mw_sweep_key_enums;

    while (e->name &&
           (strlen(e->name) != len || strncmp(e->name, text, len) != 0)) {
        e++;
    }
    if (!e->name || !equals) {
        return mw_fail(
            err, MW_EUSAGE,
            "--vary: '%s' is not KEY=VALUE,... with a key of nodes, "
            "system, model, seq, global_batch, net, gpus_per_node, nics",
            text);
    }
    for (int i = 0; i < grid->n_axes; i++) {
        if ((int)grid->axis[i]->key == e->value) {
            return mw_fail(err, MW_EUSAGE, "--vary: %s is given twice",
                           e->name);
        }
    }
    struct mw_sweep_axis *axis = mw_calloc(1, sizeof *axis);

    axis->key = (enum mw_sweep_key)e->value;
    enum mw_status status = add_values(axis, e->name, equals + 1, err);

    if (status != MW_OK) {
        mw_free(axis);
        return status;
    }
    grid->axis[grid->n_axes++] = axis;
    if (mw_sweep_points(grid) > MW_SWEEP_POINTS_MAX) {
        return mw_fail(err, MW_EUSAGE, "--vary: more than %d points",
                       MW_SWEEP_POINTS_MAX);
    }
    return MW_OK;
}

void mw_sweep_grid_release(struct mw_sweep_grid *grid)
{
    for (int i = 0; i < grid->n_axes; i++) {
        mw_free(grid->axis[i]);
    }
    grid->n_axes = 0;
}

size_t mw_sweep_points(const struct mw_sweep_grid *grid)
{
    size_t n = 1;

    for (int i = 0; i < grid->n_axes; i++) {
        n *= (size_t)grid->axis[i]->n;
    }
    return n;
}
