/*
 * nccl_replay DIR: replays whole tables of NCCL 2.28.9's decisions found in
 * DIR and prints how many rows agree. Exit status 1 if any differs.
 */
#include "nccl_replay.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum mw_status (*run)(const char *, struct replay_count *,
                              struct mw_err *);
    } parts[] = {{"graphs", replay_graphs},
                 {"orders", replay_orders},
                 {"latency and bandwidth", replay_latbw},
                 {"choice", replay_choice},
                 {"double trees", replay_trees},
                 {"send/recv rounds", replay_p2p_schedule},
                 {"cells and chunks", replay_cells},
                 {"all-to-all parts", replay_alltoall}};
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    int rc = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct replay_count c = {0, 0};
        struct mw_err err = {.status = MW_OK};
        if (parts[i].run(argv[1], &c, &err) != MW_OK) {
            fprintf(stderr, "%s\n", err.text);
            return mw_status_exit(err.status);
        }
        printf("%-24s %6ld rows, %ld differ\n", parts[i].name, c.rows, c.wrong);
        rc |= c.wrong != 0;
    }
    return rc;
}
