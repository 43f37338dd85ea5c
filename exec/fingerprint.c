/*
 * Reads the fingerprint: the processor's name from /proc/cpuinfo, OpenBLAS's
 * own account of itself (openblas_get_corename, openblas_get_config), MPI's
 * library version. The same BLAS runs at half the speed with another core
 * type, so a curve measured with one says nothing about the other.
 */
#include "exec/fingerprint.h"

#include <cblas.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void copy_line(char *out, const char *text)
{
    size_t n = strcspn(text, "\n\r");
    while (n > 0 && text[n - 1] == ' ') {
        n--;
    }
    if (n >= MW_FINGERPRINT_TEXT) {
        n = MW_FINGERPRINT_TEXT - 1;
    }
    memcpy(out, text, n);
    out[n] = '\0';
    for (char *c = out; *c; c++) {
        if (*c == ',' || *c == '"') {
            *c = ';'; /* a cell of machine.csv */
        }
    }
}

static void read_cpu(char *out)
{
    char line[1024];
    FILE *f = fopen("/proc/cpuinfo", "r");
    copy_line(out, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", 10) == 0) {
            copy_line(out, colon + 2);
            break;
        }
    }
    if (f) {
        fclose(f);
    }
}

void mw_fingerprint_read(struct mw_fingerprint *out)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int len = 0;
    *out = (struct mw_fingerprint){0};
    read_cpu(out->cpu);
    copy_line(out->blas_core, openblas_get_corename());
    copy_line(out->blas_config, openblas_get_config());
    MPI_Get_library_version(version, &len);
    version[strcspn(version, ",")] = '\0';
    copy_line(out->mpi, version);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    out->n_cores = n > 0 ? (int)n : 1;
}

json_t *mw_fingerprint_json(void)
{
    struct mw_fingerprint f;
    json_t *o = json_object();
    mw_fingerprint_read(&f);
    mw_json_set_str(o, "cpu", f.cpu);
    mw_json_set_str(o, "blas_core", f.blas_core);
    mw_json_set_str(o, "blas_config", f.blas_config);
    mw_json_set_str(o, "mpi", f.mpi);
    mw_json_set_int(o, "cores", f.n_cores);
    return o;
}

const char *mw_fingerprint_mode(int n_ranks)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n_ranks <= (n > 0 ? n : 1) ? "dedicated" : "oversubscribed";
}

static enum mw_status check_key(const struct mw_hwdb *db, const char *key,
                                const char *now, struct mw_err *err)
{
    const char *then = mw_hwdb_machine(db, key);
    if (then && strcmp(then, now) == 0) {
        return MW_OK;
    }
    return mw_fail(err, MW_EINPUT,
                   "%s/machine.csv: stale calibration: %s was '%s' and is "
                   "'%s' now; run meshwright calibrate again",
                   mw_hwdb_overlay_dir(db), key, then ? then : "not recorded",
                   now);
}

enum mw_status mw_fingerprint_check(const struct mw_hwdb *db, int n_ranks,
                                    struct mw_err *err)
{
    struct mw_fingerprint now;
    enum mw_status st = MW_OK;
    /* An overlay without a record was written by hand: nothing to compare. */
    if (!mw_hwdb_overlay_dir(db) || !mw_hwdb_machine(db, "blas_core")) {
        return MW_OK;
    }
    mw_fingerprint_read(&now);
    const struct {
        const char *key, *value;
    } keys[] = {{"cpu", now.cpu},
                {"blas_core", now.blas_core},
                {"blas_config", now.blas_config},
                {"mpi", now.mpi},
                {"mode", mw_fingerprint_mode(n_ranks)}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && st == MW_OK; i++) {
        st = check_key(db, keys[i].key, keys[i].value, err);
    }
    return st;
}
