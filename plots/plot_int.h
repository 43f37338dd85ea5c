/*
 * Private to plots/: a picture in the making. Data and commands are gathered
 * as text, then handed to gnuplot in one go; the data reach it inside the
 * script, so no path is ever quoted.
 */
#ifndef MW_PLOTS_PLOT_INT_H
#define MW_PLOTS_PLOT_INT_H

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>

enum mw_plot_target { MW_PLOT_SVG, MW_PLOT_PNG, MW_PLOT_TEXT };

/* Columns of text pictures, and pixels of the others' width. */
enum { MW_PLOT_COLUMNS = 110, MW_PLOT_WIDTH_PX = 1200 };

struct mw_plot_job {
    const char *path;
    enum mw_plot_target target;
    struct mw_str data;     /* the table of FILE.dat, without its first lines */
    struct mw_str commands; /* gnuplot's, data is the block $data */
};

/* Says what is drawn; MW_EUSAGE for an unknown ending. */
enum mw_status mw_plot_job_init(struct mw_plot_job *job, const char *path,
                                struct mw_err *err);
void mw_plot_job_release(struct mw_plot_job *job);
/* The terminal of a picture: pixels for files, characters for text. */
void mw_plot_job_terminal(struct mw_plot_job *job, int width, int height);
/* Text as a gnuplot string in single quotes, appended to commands. */
void mw_plot_job_quote(struct mw_plot_job *job, const char *text);
/* Text for a comment line of the data: no line breaks. */
void mw_plot_job_comment(struct mw_plot_job *job, const char *text);
/* Writes FILE.dat, runs gnuplot, puts the picture in its place. */
enum mw_status mw_plot_job_run(struct mw_plot_job *job, struct mw_err *err);

/*
 * Runs gnuplot on a script with its output going to `out` (a file, flushed).
 * MW_EMISSING with "gnuplot is not installed" when there is none, MW_EFAILED
 * with its first line of complaint.
 */
enum mw_status mw_gnuplot_run(const char *script, size_t len, FILE *out,
                              struct mw_err *err);

#endif
