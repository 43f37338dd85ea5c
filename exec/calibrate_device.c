/*
 * The device's row of an overlay: the shipped row of host-cpu with the peak
 * that was measured, the highest rate of any GEMM. MFU on this machine is
 * relative to it. Other columns stay as shipped.
 */
#include "exec/calibrate_int.h"

#include "base/csv.h"
#include "base/file.h"
#include "hwdb/hwdb.h"

#include <stdio.h>
#include <string.h>

static void write_row(const struct mw_csv *csv, size_t row, double flops_per_s,
                      FILE *f)
{
    static const char source[] =
        "meshwright calibrate: peak is the highest rate of a measured GEMM";
    struct mw_str line = {0};
    char peak[32];
    snprintf(peak, sizeof peak, "%.6f", 1e-12 * flops_per_s);
    for (size_t c = 0; c < csv->n_cols; c++) {
        const char *name = csv->header[c];
        const char *text = mw_csv_str(csv, row, (int)c);
        if (strcmp(name, "fp32_tflops") == 0) {
            text = peak;
        } else if (strcmp(name, "fp64_tflops") == 0 ||
                   strcmp(name, "boost_MHz") == 0 ||
                   strcmp(name, "note") == 0) {
            text = ""; /* not measured */
        } else if (strcmp(name, "source") == 0) {
            text = source;
        }
        mw_csv_add_cell(&line, text, c + 1 == csv->n_cols);
    }
    fputs(line.s, f);
    mw_str_release(&line);
}

static enum mw_status write_table(const struct mw_csv *csv, double flops_per_s,
                                  const char *path, struct mw_err *err)
{
    int slug = mw_csv_col(csv, "slug");
    struct mw_outfile o = {0};
    enum mw_status st = mw_outfile_open(&o, path, err);
    if (st != MW_OK) {
        return st;
    }
    for (size_t c = 0; c < csv->n_cols; c++) {
        fprintf(o.f, "%s%s", c > 0 ? "," : "", csv->header[c]);
    }
    fputc('\n', o.f);
    for (size_t row = 0; row < csv->n_rows; row++) {
        if (strcmp(mw_csv_str(csv, row, slug), "host-cpu") == 0) {
            write_row(csv, row, flops_per_s, o.f);
            break;
        }
    }
    st = mw_outfile_commit(&o, err);
    mw_outfile_abort(&o);
    return st;
}

enum mw_status mw_calibrate_device(double flops_per_s, const char *path,
                                   struct mw_err *err)
{
    struct mw_hwdb *db = NULL;
    enum mw_status st = mw_hwdb_load(NULL, &db, err);
    if (st != MW_OK) {
        return st;
    }
    st = write_table(mw_hwdb_table(db, "gpus"), flops_per_s, path, err);
    mw_hwdb_free(db);
    return st;
}
