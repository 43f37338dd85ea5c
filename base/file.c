/*
 * Whole-file reads with a limit, and writes that never leave a partial file.
 *
 * An output file is written as NAME.PID-N.tmp beside its final name, so that
 * rename() stays within one file system and is atomic (POSIX.1-2008, rename).
 * It is not fsync()ed: after a power cut the old or no content may be there,
 * and everything written here can be made again.
 */
#define _XOPEN_SOURCE 700 /* realpath() is XSI, not base POSIX */

#include "base/file.h"

#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reasons in our words where the system's say less. */
static const char *reason(int error)
{
    switch (error) {
    case ENOENT:
        return "no such file or directory";
    case ENOTDIR:
        return "a part of the path is not a directory";
    case EACCES:
        return "permission denied";
    case ENOSPC:
        return "no space left on the device";
    case EROFS:
        return "the file system is read-only";
    case ENAMETOOLONG:
        return "the name is too long";
    default:
        return strerror(error);
    }
}

/* ---- reading ------------------------------------------------------- */

/* Limits are whole MiB as a rule: "16 MiB" reads better than "16.0 MiB". */
static const char *fmt_limit(size_t bytes, char buf[MW_FMT_MAX])
{
    const size_t mib = (size_t)1 << 20;
    if (bytes >= mib && bytes % mib == 0) {
        snprintf(buf, MW_FMT_MAX, "%zu MiB", bytes / mib);
        return buf;
    }
    return mw_fmt_bytes((double)bytes, buf);
}

static enum mw_status fail_size(const char *path, const char *what, off_t size,
                                size_t max_bytes, struct mw_err *err)
{
    char is[MW_FMT_MAX], max[MW_FMT_MAX];
    return mw_fail(err, MW_EINPUT, "%s: is %s; a %s may have at most %s", path,
                   mw_fmt_bytes((double)size, is), what,
                   fmt_limit(max_bytes, max));
}

static enum mw_status check_kind(int fd, const char *path, const char *what,
                                 size_t max_bytes, struct mw_err *err)
{
    struct stat s;
    if (fstat(fd, &s) != 0) {
        return mw_fail(err, MW_EINPUT, "%s: cannot read: %s", path,
                       reason(errno));
    }
    if (S_ISDIR(s.st_mode)) {
        return mw_fail(err, MW_EINPUT, "%s: is a directory; a %s is needed",
                       path, what);
    }
    if (!S_ISREG(s.st_mode)) {
        return mw_fail(err, MW_EINPUT,
                       "%s: is not a regular file; a %s is "
                       "needed",
                       path, what);
    }
    if ((uintmax_t)s.st_size > max_bytes) {
        return fail_size(path, what, s.st_size, max_bytes, err);
    }
    return MW_OK;
}

/* Reads to the end rather than st_size bytes: a file may grow meanwhile, and
 * those of /proc say 0. */
static enum mw_status read_all(int fd, const char *path, const char *what,
                               size_t max_bytes, struct mw_str *text,
                               struct mw_err *err)
{
    for (;;) {
        if (text->cap - text->n < 4096) {
            text->s = mw_array_grow(text->s, &text->cap, text->cap + 65536, 1);
        }
        ssize_t got = read(fd, text->s + text->n, text->cap - text->n - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return mw_fail(err, MW_EINPUT, "%s: cannot read: %s", path,
                           reason(errno));
        }
        text->n += (size_t)got;
        if (text->n > max_bytes) {
            return fail_size(path, what, (off_t)text->n, max_bytes, err);
        }
        if (got == 0) {
            text->s[text->n] = '\0';
            return MW_OK;
        }
    }
}

enum mw_status mw_file_read_as(const char *path, const char *what,
                               size_t max_bytes, char **out, size_t *out_len,
                               struct mw_err *err)
{
    /* O_NONBLOCK: opening a pipe must fail below, not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return mw_fail(err, MW_EINPUT, "%s: cannot read: %s", path,
                       reason(errno));
    }
    struct mw_str text = {0};
    enum mw_status st = check_kind(fd, path, what, max_bytes, err);
    if (st == MW_OK) {
        st = read_all(fd, path, what, max_bytes, &text, err);
    }
    close(fd);
    if (st != MW_OK) {
        mw_str_release(&text);
        return st;
    }
    *out = text.s;
    *out_len = text.n;
    return MW_OK;
}

enum mw_status mw_file_read(const char *path, size_t max_bytes, char **out,
                            size_t *out_len, struct mw_err *err)
{
    return mw_file_read_as(path, "file", max_bytes, out, out_len, err);
}

/* ---- writing ------------------------------------------------------- */

static enum mw_status fail_write(const char *path, int error,
                                 struct mw_err *err)
{
    const char *slash = strrchr(path, '/');
    if (error == ENOENT && slash != NULL && slash != path) {
        return mw_fail(err, MW_EINPUT,
                       "%s: cannot write: the directory '%.*s' does not exist; "
                       "make it or choose another place",
                       path, (int)(slash - path), path);
    }
    return mw_fail(err, MW_EINPUT, "%s: cannot write: %s; choose another place",
                   path, reason(error));
}

/* A temporary beside o->path; the kernel applies the umask. */
static enum mw_status open_temporary(struct mw_outfile *o, struct mw_err *err)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        struct mw_str tmp = {0};
        mw_str_addf(&tmp, "%s.%ld-%d.tmp", o->path, (long)getpid(), i);
        int fd =
            open(tmp.s, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)0666);
        if (fd >= 0) {
            o->tmp_path = tmp.s;
            o->f = fdopen(fd, "w");
            MW_ASSERT(o->f != NULL, "fdopen: %s", strerror(errno));
            return MW_OK;
        }
        mw_str_release(&tmp);
        if (errno != EEXIST) {
            return fail_write(o->path, errno, err);
        }
    }
    return fail_write(o->path, EEXIST, err);
}

static enum mw_status open_directly(struct mw_outfile *o, struct mw_err *err)
{
    o->f = fopen(o->path, "we");
    return o->f != NULL ? MW_OK : fail_write(o->path, errno, err);
}

static enum mw_status open_path(struct mw_outfile *o, struct mw_err *err)
{
    struct stat s;
    if (stat(o->path, &s) != 0) {
        return open_temporary(o, err);
    }
    if (S_ISDIR(s.st_mode)) {
        return mw_fail(err, MW_EINPUT,
                       "%s: cannot write: it is a directory; a file name is "
                       "needed",
                       o->path);
    }
    if (!S_ISREG(s.st_mode)) {
        return open_directly(o, err);
    }
    if (access(o->path, W_OK) != 0) {
        return fail_write(o->path, errno, err);
    }
    char *target = realpath(o->path, NULL);
    if (target != NULL) {
        mw_free(o->path);
        o->path = target;
    }
    return open_temporary(o, err);
}

static void release(struct mw_outfile *o)
{
    mw_free(o->path);
    mw_free(o->tmp_path);
    *o = (struct mw_outfile){0};
}

enum mw_status mw_outfile_open(struct mw_outfile *o, const char *path,
                               struct mw_err *err)
{
    *o = (struct mw_outfile){0};
    if (*path == '\0') {
        return mw_fail(err, MW_EINPUT, "the name of an output file is empty");
    }
    o->path = mw_strdup(path);
    if (strcmp(path, "-") == 0) {
        o->f = stdout;
        return MW_OK;
    }
    enum mw_status st = open_path(o, err);
    if (st != MW_OK) {
        release(o);
    }
    return st;
}

enum mw_status mw_outfile_check(const char *path, struct mw_err *err)
{
    struct mw_outfile o;
    struct stat s;

    if (path == NULL || strcmp(path, "-") == 0 ||
        (stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode))) {
        return MW_OK;
    }
    enum mw_status status = mw_outfile_open(&o, path, err);

    if (status == MW_OK) {
        mw_outfile_abort(&o);
    }
    return status;
}

enum mw_status mw_outfile_commit(struct mw_outfile *o, struct mw_err *err)
{
    MW_ASSERT(o->f != NULL, "commit of an output file that is not open");
    const char *name = o->f == stdout ? "standard output" : o->path;
    bool had_error = ferror(o->f) != 0;
    errno = 0;
    bool is_bad = fflush(o->f) != 0 || had_error;
    int error = errno;
    if (o->f != stdout && fclose(o->f) != 0 && !is_bad) {
        is_bad = true;
        error = errno;
    }
    o->f = NULL;
    if (!is_bad && o->tmp_path != NULL && rename(o->tmp_path, o->path) != 0) {
        is_bad = true;
        error = errno;
    }
    enum mw_status st = MW_OK;
    if (is_bad) {
        st = mw_fail(err, MW_EFAILED, "%s: cannot write: %s", name,
                     error != 0 ? reason(error) : "an earlier write failed");
        mw_outfile_abort(o);
    }
    release(o);
    return st;
}

void mw_outfile_abort(struct mw_outfile *o)
{
    if (o->f != NULL && o->f != stdout) {
        fclose(o->f);
    }
    if (o->tmp_path != NULL) {
        unlink(o->tmp_path);
    }
    release(o);
}

static enum mw_status make_directory(const char *path, struct mw_err *err)
{
    struct stat s;
    if (mkdir(path, (mode_t)0777) == 0 || errno == EISDIR) {
        return MW_OK;
    }
    int error = errno;
    if (stat(path, &s) == 0) {
        if (S_ISDIR(s.st_mode)) {
            return MW_OK;
        }
        error = ENOTDIR;
    }
    return mw_fail(err, MW_EINPUT, "%s: cannot make the directory: %s", path,
                   reason(error));
}

enum mw_status mw_mkdirs(const char *path, struct mw_err *err)
{
    char *part = mw_strdup(path);
    enum mw_status st = MW_OK;
    for (char *p = part + 1; *part != '\0' && *p != '\0' && st == MW_OK; p++) {
        if (*p == '/') {
            *p = '\0';
            st = make_directory(part, err);
            *p = '/';
        }
    }
    mw_free(part);
    return st == MW_OK ? make_directory(path, err) : st;
}

bool mw_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool mw_program_dir(char *buf, size_t len)
{
    ssize_t n = readlink("/proc/self/exe", buf, len);
    if (n <= 0 || (size_t)n >= len) {
        return false;
    }
    buf[n] = '\0';
    char *slash = strrchr(buf, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

uint64_t mw_hash64(uint64_t h, const void *data, size_t len)
{
    /* Fowler, Noll, Vo: FNV-1a with the 64-bit prime 2^40 + 0x1b3. */
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++) {
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}
