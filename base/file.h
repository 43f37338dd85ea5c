/*
 * Files: whole-file reads with a limit, and writes that never leave a partial
 * file: written beside the final name, then renamed.
 */
#ifndef MW_BASE_FILE_H
#define MW_BASE_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Reads a regular file of at most max_bytes; *out is NUL terminated beyond
 * *out_len and freed by mw_free. Directory, missing, unreadable, too large:
 * MW_EINPUT with "FILE: what is wrong".
 */
enum mw_status mw_file_read(const char *path, size_t max_bytes, char **out,
                            size_t *out_len, struct mw_err *err);

/* The same; `what` names the kind of file in messages: "YAML file". */
enum mw_status mw_file_read_as(const char *path, const char *what,
                               size_t max_bytes, char **out, size_t *out_len,
                               struct mw_err *err);

/*
 * An output file in the making. "-" is stdout; a device or a pipe (/dev/null)
 * is written directly. A symbolic link keeps pointing where it did. The mode
 * of a new file is 0666 less the umask.
 */
struct mw_outfile {
    FILE *f;
    char *path, *tmp_path; /* tmp_path is NULL when nothing is renamed */
};
/* MW_EINPUT with "FILE: cannot write: reason; ..." when it cannot be made. */
enum mw_status mw_outfile_open(struct mw_outfile *o, const char *path,
                               struct mw_err *err);
/*
 * Whether such a file could be made, before long work: a temporary is opened
 * beside it and dropped. NULL, "-", devices and pipes pass. Errors are
 * mw_outfile_open's.
 */
enum mw_status mw_outfile_check(const char *path, struct mw_err *err);
/* Flushes, checks, renames; on failure the old file stays. Releases o. */
enum mw_status mw_outfile_commit(struct mw_outfile *o, struct mw_err *err);
/* Drops the temporary. Safe on a zeroed or committed one. */
void mw_outfile_abort(struct mw_outfile *o);

/* mkdir -p. */
enum mw_status mw_mkdirs(const char *path, struct mw_err *err);
bool mw_file_exists(const char *path);
/* Folder of the running program, without the last '/', into buf; false where
 * the system does not tell or buf is too small. */
bool mw_program_dir(char *buf, size_t len);

/* FNV-1a 64 of bytes, chained: start with MW_HASH_INIT. */
#define MW_HASH_INIT UINT64_C(0xcbf29ce484222325)
uint64_t mw_hash64(uint64_t h, const void *data, size_t len);

#endif
