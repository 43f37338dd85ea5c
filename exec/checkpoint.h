/*
 * Checkpoints: weights and moments of a step in one file that knows nothing of
 * the layout, so that another one can go on from it.
 *
 *   0     "MWCKPT01"
 *   8     header: one JSON object, padded with spaces; at its end 16 digits, a
 *         hash of all before them
 *   4096  for each parameter of the model's table: weights, first moments,
 *         second moments, as whole float32 tensors, in the order of the table
 *
 * Every rank writes what it owns to its place. The file stands under a
 * temporary name until rank 0 has read it back, put its hash into the header
 * and renamed it: a name without ".part" is a whole file. All ranks must see
 * the same file system.
 */
#ifndef MW_EXEC_CHECKPOINT_H
#define MW_EXEC_CHECKPOINT_H

#include "exec/exec_int.h"

/*
 * Saving, in three phases with an agreement of all ranks between them:
 * rank 0 makes the file, all write, rank 0 finishes it. Failures are MW_EINPUT
 * with the file's name and the reason.
 */
enum mw_status mw_checkpoint_begin(const struct mw_exec *ex, const char *path,
                                   struct mw_err *err);
enum mw_status mw_checkpoint_write(struct mw_exec *ex, const char *path,
                                   struct mw_err *err);
enum mw_status mw_checkpoint_finish(const struct mw_exec *ex, const char *path,
                                    struct mw_err *err);

/*
 * Loading: rank 0 checks the file (whole, unaltered, of this model), then all
 * read their slices; ex->step is the number of steps done. A checkpoint of a
 * run with adapters holds them alone. With `is_base` the file is one of the
 * whole model, and its weights become those that adapters leave as they are.
 */
enum mw_status mw_checkpoint_check(const struct mw_exec *ex, const char *path,
                                   bool is_base, struct mw_err *err);
enum mw_status mw_checkpoint_read(struct mw_exec *ex, const char *path,
                                  bool is_base, struct mw_err *err);

#endif
