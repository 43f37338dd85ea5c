/* Inside of exports: one emitter a framework. */
#ifndef MW_PLANNER_EXPORT_EXPORT_INT_H
#define MW_PLANNER_EXPORT_EXPORT_INT_H

#include "planner/export/export.h"

/* MW_ENO "rule: message"; the framework's name goes in front later. */
enum mw_status mw_export_refuse(struct mw_err *err, const char *rule,
                                const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A line of notes. */
void mw_export_note(struct mw_export *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* "torchrun --nnodes N --nproc-per-node G ... " up to the program. */
void mw_export_torchrun(const struct mw_export_in *in, struct mw_export *out);

/* Options of a program, one a line: "--name", "--name 3", "--name text". */
struct mw_args {
    const struct mw_export_in *in;
    struct mw_export *out;
};
void mw_args_flag(struct mw_args *args, const char *name);
void mw_args_number(struct mw_args *args, const char *name, long long v);
void mw_args_word(struct mw_args *args, const char *name, const char *v);
/* Those of Megatron-LM that say what the model is; do they let exchanges with
 * experts run beside other work? */
void mw_args_model(struct mw_args *args);
bool mw_args_overlaps_experts(const struct mw_export_in *in);

enum mw_status mw_export_megatron(const struct mw_export_in *in,
                                  struct mw_export *out, struct mw_err *err);
enum mw_status mw_export_torchtitan(const struct mw_export_in *in,
                                    struct mw_export *out, struct mw_err *err);
enum mw_status mw_export_nanotron(const struct mw_export_in *in,
                                  struct mw_export *out, struct mw_err *err);

#endif
