/*
 * Signs of life: a file shared by the ranks of one machine and the launcher.
 * Every rank notes what it is doing; a launcher that sees nothing move knows
 * which rank to name. Ranks on other machines cannot open the file and go
 * without.
 */
#ifndef MW_EXEC_HEARTBEAT_H
#define MW_EXEC_HEARTBEAT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { MW_BEAT_NAME_MAX = 32 };

/* Of one rank; written by it alone. `name` may be read half-written: it is
 * for a message only. */
struct mw_beat {
    _Atomic uint64_t count; /* grows with everything done */
    _Atomic int32_t pid;    /* 0: not there yet */
    _Atomic int32_t is_waiting, is_done;
    _Atomic int32_t microbatch, stage; /* -1: none */
    char name[MW_BEAT_NAME_MAX];
};

/* Makes the file with n zeroed slots and maps it. */
enum mw_status mw_beats_make(const char *path, int n, struct mw_beat **out,
                             struct mw_err *err);
/* Maps an existing one; NULL when that is not possible. */
struct mw_beat *mw_beats_open(const char *path, int n);
void mw_beats_close(struct mw_beat *beats, int n);

/* What the rank does now; beat may be NULL. */
void mw_beat_note(struct mw_beat *beat, const char *name, int microbatch,
                  int stage, bool is_waiting);
/* It is still at it. */
void mw_beat_tick(struct mw_beat *beat);

/* ---- the launcher ------------------------------------------------------- */
struct mw_watch {
    const struct mw_beat *beats;
    int n;
    double limit_s;   /* that nothing may move */
    uint64_t sum;     /* of the counts when something last moved */
    int64_t moved_ns; /* and when that was */
};
void mw_watch_init(struct mw_watch *w, const struct mw_beat *beats, int n,
                   double limit_s);
/*
 * To be called a few times a second. False when the ranks hang: nothing moved
 * for limit_s although all have begun and none is done. `why` then names the
 * rank: one that died; else one that does not wait for others; else the one
 * that got least far.
 */
bool mw_watch_tick(struct mw_watch *w, int64_t now_ns, char *why, size_t room);
/* Ends the ranks that the file names, stopped ones too. */
void mw_watch_kill(const struct mw_watch *w);

#endif
