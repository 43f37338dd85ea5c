/*
 * A picture from data and commands: where it goes, its terminal, its data
 * file, gnuplot's run.
 *
 * PNG is drawn at twice the size in pixels, so that it is sharp on dense
 * screens; SVG scales by itself.
 */
#include "plots/plot_int.h"

#include "base/file.h"
#include "plots/plot.h"

#include <string.h>
#include <strings.h>

enum { PNG_SCALE = 2 };

/* Where a text picture's data go when gnuplot is missing. */
static const char text_data_path[] = "meshwright-plot.dat";

static bool ends_in(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcasecmp(path + n - m, suffix) == 0;
}

static bool target_of(const char *path, enum mw_plot_target *out)
{
    *out = strcmp(path, "-") == 0  ? MW_PLOT_TEXT
           : ends_in(path, ".png") ? MW_PLOT_PNG
                                   : MW_PLOT_SVG;
    return *out != MW_PLOT_SVG || ends_in(path, ".svg");
}

const char *mw_plot_path_wrong(const char *path)
{
    enum mw_plot_target target;
    return target_of(path, &target)
               ? NULL
               : "a picture is FILE.svg, FILE.png, or - for the terminal";
}

enum mw_status mw_plot_job_init(struct mw_plot_job *job, const char *path,
                                struct mw_err *err)
{
    *job = (struct mw_plot_job){.path = path};
    const char *wrong = mw_plot_path_wrong(path);
    if (wrong) {
        return mw_fail(err, MW_EUSAGE, "'%s': %s", path, wrong);
    }
    target_of(path, &job->target);
    return MW_OK;
}

void mw_plot_job_release(struct mw_plot_job *job)
{
    mw_str_release(&job->data);
    mw_str_release(&job->commands);
}

void mw_plot_job_terminal(struct mw_plot_job *job, int width, int height)
{
    struct mw_str *c = &job->commands;
    switch (job->target) {
    case MW_PLOT_SVG:
        mw_str_addf(c,
                    "set terminal svg size %d,%d font 'sans-serif,12' "
                    "background 'white' noenhanced\n",
                    width, height);
        break;
    case MW_PLOT_PNG:
        mw_str_addf(c,
                    "set terminal pngcairo size %d,%d font 'sans,9' "
                    "fontscale %d linewidth %d pointscale %d background "
                    "'white' noenhanced\n",
                    PNG_SCALE * width, PNG_SCALE * height, PNG_SCALE, PNG_SCALE,
                    PNG_SCALE);
        break;
    case MW_PLOT_TEXT:
        mw_str_addf(c, "set terminal dumb size %d,%d nofeed noenhanced mono\n",
                    width, height);
        break;
    }
    mw_str_add(c, "set encoding utf8\nunset mouse\n");
}

void mw_plot_job_quote(struct mw_plot_job *job, const char *text)
{
    mw_str_add(&job->commands, "'");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\'') {
            mw_str_add(&job->commands, "''");
        } else {
            char one[2] = {c < 0x20 ? ' ' : *text, '\0'};
            mw_str_add(&job->commands, one);
        }
    }
    mw_str_add(&job->commands, "'");
}

void mw_plot_job_comment(struct mw_plot_job *job, const char *text)
{
    for (; *text; text++) {
        char one[2] = {(unsigned char)*text < 0x20 ? ' ' : *text, '\0'};
        mw_str_add(&job->data, one);
    }
}

/* ---- files
 * ------------------------------------------------------------------------ */
static char *data_path(const struct mw_plot_job *job)
{
    if (job->target == MW_PLOT_TEXT) {
        return mw_strdup(text_data_path);
    }
    char *path = mw_strdup(job->path);
    memcpy(path + strlen(path) - 4, ".dat", 4); /* .svg and .png are as long */
    return path;
}

static enum mw_status write_data(const struct mw_plot_job *job,
                                 const char *path, struct mw_err *err)
{
    struct mw_outfile o = {.f = NULL};
    enum mw_status status = mw_outfile_open(&o, path, err);
    if (status != MW_OK) {
        return status;
    }
    fputs("# meshwright plot data\n# format: 1\n", o.f);
    fputs(job->data.s ? job->data.s : "", o.f);
    return mw_outfile_commit(&o, err);
}

/* Copies gnuplot's text without form feeds, spaces at line ends, and empty
 * lines (the charts have none inside). */
static void copy_text(FILE *from, FILE *to)
{
    char line[1024];
    rewind(from);
    while (fgets(line, sizeof line, from)) {
        size_t n = strlen(line);
        while (n > 0 && strchr(" \r\n\f", line[n - 1])) {
            n--;
        }
        line[n] = '\0';
        if (n > 0) {
            fprintf(to, "%s\n", line);
        }
    }
    fflush(to);
}

static enum mw_status draw_text(const struct mw_str *script, struct mw_err *err)
{
    FILE *picture = tmpfile();
    if (!picture) {
        return mw_fail(err, MW_EFAILED, "cannot make a temporary file");
    }
    enum mw_status status = mw_gnuplot_run(script->s, script->n, picture, err);
    if (status == MW_OK) {
        copy_text(picture, stdout);
    }
    fclose(picture);
    return status;
}

static enum mw_status draw_file(const char *path, const struct mw_str *script,
                                struct mw_err *err)
{
    struct mw_outfile o = {.f = NULL};
    enum mw_status status = mw_outfile_open(&o, path, err);
    if (status != MW_OK) {
        return status;
    }
    status = mw_gnuplot_run(script->s, script->n, o.f, err);
    if (status != MW_OK) {
        mw_outfile_abort(&o);
        return status;
    }
    return mw_outfile_commit(&o, err);
}

/* gnuplot is missing: the data file is there, or is written now. */
static enum mw_status explain_missing(const struct mw_plot_job *job,
                                      const char *path, struct mw_err *err)
{
    if (job->target == MW_PLOT_TEXT) {
        enum mw_status status = write_data(job, path, err);
        if (status != MW_OK) {
            return status;
        }
    }
    return mw_fail(err, MW_EMISSING,
                   "gnuplot is not installed; the data file is %s", path);
}

enum mw_status mw_plot_job_run(struct mw_plot_job *job, struct mw_err *err)
{
    struct mw_str script = {.s = NULL};
    struct mw_err *own = mw_calloc(1, sizeof *own);
    char *data = data_path(job);
    enum mw_status status = MW_OK;
    if (job->target != MW_PLOT_TEXT) {
        status = write_data(job, data, err);
    }
    if (status != MW_OK) {
        goto out;
    }
    mw_str_addf(&script, "$data << EOD\n");
    mw_str_add(&script, job->data.s ? job->data.s : "");
    mw_str_add(&script, "EOD\n");
    mw_str_add(&script, job->commands.s);
    status = job->target == MW_PLOT_TEXT ? draw_text(&script, own)
                                         : draw_file(job->path, &script, own);
    if (status == MW_EMISSING) {
        status = explain_missing(job, data, err);
    } else if (status != MW_OK) {
        mw_fail(err, status, "%s", own->text);
    }
out:
    mw_str_release(&script);
    mw_free(own);
    mw_free(data);
    return status;
}
