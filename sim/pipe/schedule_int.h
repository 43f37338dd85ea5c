/*
 * What the generators share: a schedule in the making (one growable list per
 * device), and the checks on their arguments. A generator is a pure function
 * of its arguments: begin, push passes device by device, end.
 */
#ifndef MW_SIM_PIPE_SCHEDULE_INT_H
#define MW_SIM_PIPE_SCHEDULE_INT_H

#include "sim/pipe/schedule.h"

enum {
    MW_SCHED_STAGES_MAX = 4096,
    MW_SCHED_MICROBATCHES_MAX = 1 << 20,
    MW_SCHED_CHUNKS_MAX = 1024,
    MW_SCHED_SLOTS_MAX = 1 << 25 /* passes of all devices */
};

struct mw_sched_list {
    struct mw_slot *v;
    size_t n, cap;
};
struct mw_sched_build {
    struct mw_schedule s;       /* shape and placement; lists still empty */
    struct mw_sched_list *list; /* [n_stages] */
};
struct mw_sched_shape {
    const char *name;
    int n_stages, n_microbatches, n_chunks, n_parts;
    enum mw_placement placement;
};

void mw_sched_begin(struct mw_sched_build *b,
                    const struct mw_sched_shape *shape);
void mw_sched_push(struct mw_sched_build *b, int device, enum mw_pass pass,
                   int item, int chunk);
/* The last slot pushed on device overlaps with the next one. */
void mw_sched_pair(struct mw_sched_build *b, int device);
/* Moves the lists into *out; b is released. */
void mw_sched_end(struct mw_sched_build *b, struct mw_schedule *out);
void mw_sched_drop(struct mw_sched_build *b);

typedef enum mw_status (*mw_gen_fn)(const struct mw_sched_args *a,
                                    struct mw_schedule *out,
                                    struct mw_err *err);
/* A row of the registry: a kind, and how it is made. */
struct mw_gen {
    struct mw_sched_kind kind;
    mw_gen_fn make;
    int min_stages;
};

enum mw_status mw_gen_gpipe(const struct mw_sched_args *a,
                            struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_gpipe_lifo(const struct mw_sched_args *a,
                                 struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_forward(const struct mw_sched_args *a,
                              struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_looped_bfs(const struct mw_sched_args *a,
                                 struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_1f1b(const struct mw_sched_args *a,
                           struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_eager_1f1b(const struct mw_sched_args *a,
                                 struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_interleaved(const struct mw_sched_args *a,
                                  struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_interleaved_zb(const struct mw_sched_args *a,
                                     struct mw_schedule *out,
                                     struct mw_err *err);
enum mw_status mw_gen_seq1f1b(const struct mw_sched_args *a,
                              struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_zb_h1(const struct mw_sched_args *a,
                            struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_zb_h2(const struct mw_sched_args *a,
                            struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_zb_v(const struct mw_sched_args *a,
                           struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_dualpipe(const struct mw_sched_args *a,
                               struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_dualpipev(const struct mw_sched_args *a,
                                struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_chimera(const struct mw_sched_args *a,
                              struct mw_schedule *out, struct mw_err *err);
/* Hanayo's rule run in time, before it is improved (auto.c). */
enum mw_status mw_gen_wave(const struct mw_sched_args *a,
                           struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_hanayo(const struct mw_sched_args *a,
                             struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_zb_auto(const struct mw_sched_args *a,
                              struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_zbv_auto(const struct mw_sched_args *a,
                               struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_v_half(const struct mw_sched_args *a,
                             struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_v_min(const struct mw_sched_args *a,
                            struct mw_schedule *out, struct mw_err *err);
enum mw_status mw_gen_1f1b_v(const struct mw_sched_args *a,
                             struct mw_schedule *out, struct mw_err *err);

#endif
