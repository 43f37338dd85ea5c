/* Rows of a sweep as CSV: one table of columns writes and reads them. Numbers
 * keep 17 digits, so that a row read again is the row that was written. */
#include "planner/sweep_int.h"

#include "base/csv.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct mw_sweep_row, member)
#define STR(member)                                                            \
    {                                                                          \
        .name = #member, .type = MW_C_STR, .offset = AT(member)                \
    }
#define INT(member)                                                            \
    {                                                                          \
        .name = #member, .type = MW_C_INT, .offset = AT(member),               \
        .required = true                                                       \
    }
#define NUM(member)                                                            \
    {                                                                          \
        .name = #member, .type = MW_C_NUM, .offset = AT(member),               \
        .required = true                                                       \
    }
static const struct mw_csv_field fields[] = {
    STR(scenario),
    STR(model),
    STR(system),
    STR(stack),
    INT(nodes),
    INT(gpus),
    INT(seq),
    INT(global_batch),
    NUM(net),
    INT(is_feasible),
    INT(is_proved),
    NUM(step_time_s),
    NUM(tokens_per_s),
    NUM(tokens_per_s_per_gpu),
    NUM(mfu),
    NUM(peak_bytes),
    NUM(gpu_hours_per_ttoken),
    INT(tp),
    INT(cp),
    INT(pp),
    INT(vpp),
    INT(dp),
    INT(ep),
    INT(etp),
    INT(zero),
    INT(sp),
    INT(micro_batch),
    STR(recompute),
    STR(schedule),
    STR(order),
    STR(reason),
    /* younger than the format */
    {.name = "nics", .type = MW_C_INT, .offset = AT(nics)},
    {.name = "domain_nodes", .type = MW_C_INT, .offset = AT(domain_nodes)},
    {.name = NULL}};

static const char *const *text_at(const struct mw_sweep_row *row, size_t offset)
{
    return (const void *)((const char *)row + offset);
}

static void add_cell(struct mw_str *line, const struct mw_sweep_row *row,
                     const struct mw_csv_field *f)
{
    const void *at = (const char *)row + f->offset;
    char text[40];
    bool is_last = f[1].name == NULL;

    switch (f->type) {
    case MW_C_STR:
        mw_csv_add_cell(line, *text_at(row, f->offset), is_last);
        return;
    case MW_C_NUM:
        snprintf(text, sizeof text, "%.17g", *(const double *)at);
        break;
    case MW_C_INT:
        snprintf(text, sizeof text, "%" PRId64, *(const int64_t *)at);
        break;
    }
    mw_csv_add_cell(line, text, is_last);
}

enum mw_status mw_sweep_write(const struct mw_sweep_rows *rows,
                              const char *path, struct mw_err *err)
{
    struct mw_outfile o;
    struct mw_str text = {0};
    enum mw_status status = mw_outfile_open(&o, path, err);

    if (status != MW_OK) {
        return status;
    }
    mw_str_add(&text, "# meshwright sweep, format 1: the best plan at each "
                      "point\n");
    for (const struct mw_csv_field *f = fields; f->name; f++) {
        mw_csv_add_cell(&text, f->name, f[1].name == NULL);
    }
    for (size_t i = 0; i < rows->n; i++) {
        for (const struct mw_csv_field *f = fields; f->name; f++) {
            add_cell(&text, &rows->v[i], f);
        }
    }
    fputs(text.s, o.f);
    mw_str_release(&text);
    return mw_outfile_commit(&o, err);
}

void mw_sweep_copy(struct mw_arena *arena, const struct mw_sweep_row *from,
                   struct mw_sweep_row *out)
{
    *out = *from;
    for (const struct mw_csv_field *f = fields; f->name; f++) {
        if (f->type == MW_C_STR) {
            const char **text = (void *)((char *)out + f->offset);

            *text = mw_arena_strdup(arena, *text);
        }
    }
}

enum mw_status mw_sweep_read(const char *path, struct mw_sweep_rows *rows,
                             struct mw_err *err)
{
    struct mw_arena arena;
    struct mw_csv csv;
    void *read = NULL;

    mw_arena_init(&arena);
    enum mw_status status = mw_csv_load(path, &arena, &csv, err);

    if (status == MW_OK) {
        status = mw_csv_bind(&csv, fields, sizeof(struct mw_sweep_row), false,
                             &arena, &read, err);
    }
    for (size_t i = 0; status == MW_OK && i < csv.n_rows; i++) {
        struct mw_sweep_row row;

        mw_sweep_copy(&rows->arena, (struct mw_sweep_row *)read + i, &row);
        mw_array_push(rows, row);
    }
    mw_arena_release(&arena);
    return status;
}

enum mw_status mw_sweep_read_of(const char *path, uint64_t question,
                                bool is_strict, struct mw_sweep_rows *rows,
                                struct mw_err *err)
{
    size_t first = rows->n, n_other = 0;
    char wanted[20];
    enum mw_status status = mw_sweep_read(path, rows, err);

    snprintf(wanted, sizeof wanted, "%016" PRIx64, question);
    for (size_t i = first; i < rows->n; i++) {
        n_other += strcmp(rows->v[i].scenario, wanted) != 0;
    }
    if (status != MW_OK || n_other == 0 ||
        (!is_strict && n_other < rows->n - first)) {
        return status;
    }
    return mw_fail(err, MW_EINPUT,
                   "%s: %zu of its %zu rows answer another scenario or other "
                   "options (--fix, --stack, --hwdb); %s",
                   path, n_other, rows->n - first,
                   is_strict ? "choose another file, or --again replaces them"
                             : "merge files of one sweep");
}
