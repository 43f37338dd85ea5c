/*
 * Runs gnuplot as a child: the script comes from a file on its standard input
 * and the picture goes to a file on its standard output, so nothing can
 * deadlock on a full pipe and no name has to be quoted. Settings of the user
 * are not read (-d), numbers are in the C locale: the same script gives the
 * same picture.
 */
#include "plots/plot_int.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static enum mw_status fail_missing(struct mw_err *err)
{
    return mw_fail(err, MW_EMISSING, "gnuplot is not installed");
}

/* gnuplot's first line of complaint, without the empty lines and the "line
 * 12:" in front of it. */
static enum mw_status fail_words(FILE *errors, int status, struct mw_err *err)
{
    char line[256], words[256] = "";
    rewind(errors);
    while (fgets(line, sizeof line, errors)) {
        line[strcspn(line, "\r\n")] = '\0';
        const char *text = line + strspn(line, " \t\"^");
        if (*text && !words[0]) {
            snprintf(words, sizeof words, "%s", text);
        }
    }
    if (WIFSIGNALED(status)) {
        return mw_fail(err, MW_EFAILED, "gnuplot was ended by signal %d",
                       WTERMSIG(status));
    }
    return mw_fail(err, MW_EFAILED, "gnuplot failed with status %d: %s",
                   WEXITSTATUS(status), words);
}

/* Starts it with the three files as its standard ones; 0 or an errno. */
static int start(FILE *in, FILE *out, FILE *errors, pid_t *out_pid)
{
    char name[] = "gnuplot", defaults[] = "-d";
    char *argv[] = {name, defaults, NULL};
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) {
        return error;
    }
    FILE *const files[] = {in, out, errors};
    for (int fd = 0; fd < 3 && !error; fd++) {
        error =
            posix_spawn_file_actions_adddup2(&actions, fileno(files[fd]), fd);
    }
    if (!error) {
        error = posix_spawnp(out_pid, name, &actions, NULL, argv, environ);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* 127 is what a shell, and a spawn that fails late, say of a missing file. */
static enum mw_status wait_for(pid_t pid, FILE *errors, struct mw_err *err)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return mw_fail(err, MW_EFAILED, "cannot wait for gnuplot: %s",
                           strerror(errno));
        }
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        return fail_missing(err);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? MW_OK
               : fail_words(errors, status, err);
}

static enum mw_status run_files(FILE *in, FILE *out, FILE *errors,
                                struct mw_err *err)
{
    pid_t pid;
    int error = start(in, out, errors, &pid);
    if (error == ENOENT || error == EACCES || error == ENOTDIR) {
        return fail_missing(err);
    }
    if (error) {
        return mw_fail(err, MW_EFAILED, "cannot start gnuplot: %s",
                       strerror(error));
    }
    return wait_for(pid, errors, err);
}

enum mw_status mw_gnuplot_run(const char *script, size_t len, FILE *out,
                              struct mw_err *err)
{
    enum mw_status status;
    FILE *in = tmpfile(), *errors = tmpfile();
    if (!in || !errors || fwrite(script, 1, len, in) != len || fflush(in) ||
        fflush(out)) {
        status = mw_fail(err, MW_EFAILED,
                         "cannot write a temporary file for gnuplot: %s",
                         strerror(errno));
    } else {
        rewind(in);
        status = run_files(in, out, errors, err);
    }
    if (in) {
        fclose(in);
    }
    if (errors) {
        fclose(errors);
    }
    return status;
}
