/*
 * One search over several machines, through plain files: a shard walks every
 * n-th outer item of the space (mw_search_opts.shard), writes what it found and
 * counted, and the files of all shards are joined into the result of the whole.
 *
 * Where racks can be cut in several ways a shard's file has a search of each,
 * and each is joined by itself (domains.h).
 *
 * Every shard weighs its layouts against the same seeds, whichever shard they
 * are of, and drops only what cannot be among the first `top` of all. So the
 * first `top` of the joined plans, ordered by score, time and place in the
 * enumeration, are those of one search over all, and so are the layouts
 * enumerated, the legal ones and the reasons but those of bounds (a shard
 * simulates more, for want of the others' times).
 */
#ifndef MW_PLANNER_SHARDS_H
#define MW_PLANNER_SHARDS_H

#include "planner/planner.h"

enum { MW_SHARD_FORMAT = 2 };

/* What a shard is of: parts of different questions are not joined. */
struct mw_shard_head {
    int shard, n_shards;
    uint64_t question; /* mw_sweep_question: scenario, pins, stack */
    double usable_bytes;
    int top;
};

/* A part on its way to its file (YAML, format 2): begun, a search added for
 * each way to cut the racks (0: there is no choice), and ended, which writes
 * it. Searches may have no plans. */
struct mw_shard_part {
    struct mw_str text;
};
void mw_shard_begin(struct mw_shard_part *part,
                    const struct mw_shard_head *head);
void mw_shard_add(struct mw_shard_part *part, int domain_nodes,
                  const struct mw_search_result *r);
enum mw_status mw_shard_end(struct mw_shard_part *part, const char *path,
                            struct mw_err *err);

/*
 * Joins the files' searches under one way to cut the racks; a file without it
 * is of a shard that was cut short. head says what they must answer (shard and
 * n_shards are taken from the files). MW_EINPUT for a file that is wrong,
 * answers another question or is of another division; MW_ENO, with *out filled,
 * where shards are missing (err names them) or none has a plan. Release *out
 * with mw_search_result_release in every case.
 */
enum mw_status mw_shards_join(const struct mw_shard_head *head,
                              const char *const *paths, int n_paths,
                              int domain_nodes, enum mw_rank_by rank_by,
                              struct mw_search_result *out, struct mw_err *err);

#endif
