/*
 * The shared file of heartbeat.h: an array of slots, mapped by all.
 */
#include "exec/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static struct mw_beat *map(int fd, int n)
{
    void *p = mmap(NULL, (size_t)n * sizeof(struct mw_beat),
                   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

enum mw_status mw_beats_make(const char *path, int n, struct mw_beat **out,
                             struct mw_err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct mw_beat *beats = NULL;
    if (fd >= 0 && ftruncate(fd, (off_t)n * (off_t)sizeof *beats) == 0) {
        beats = map(fd, n);
    }
    int reason = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (!beats) {
        return mw_fail(err, MW_EFAILED, "%s: cannot make a file: %s", path,
                       strerror(reason));
    }
    *out = beats;
    return MW_OK;
}

struct mw_beat *mw_beats_open(const char *path, int n)
{
    int fd = open(path, O_RDWR);
    off_t want = (off_t)n * (off_t)sizeof(struct mw_beat);
    struct mw_beat *beats = NULL;
    if (fd < 0) {
        return NULL;
    }
    if (lseek(fd, 0, SEEK_END) == want) {
        beats = map(fd, n);
    }
    close(fd);
    return beats;
}

void mw_beats_close(struct mw_beat *beats, int n)
{
    if (beats) {
        munmap(beats, (size_t)n * sizeof *beats);
    }
}

void mw_beat_note(struct mw_beat *beat, const char *name, int microbatch,
                  int stage, bool is_waiting)
{
    if (!beat) {
        return;
    }
    beat->is_waiting = is_waiting;
    beat->microbatch = microbatch;
    beat->stage = stage;
    snprintf(beat->name, sizeof beat->name, "%s", name);
    beat->count++;
}

void mw_beat_tick(struct mw_beat *beat)
{
    if (beat) {
        beat->count++;
    }
}

/* ---- the launcher ------------------------------------------------------- */
void mw_watch_init(struct mw_watch *w, const struct mw_beat *beats, int n,
                   double limit_s)
{
    *w = (struct mw_watch){.beats = beats, .n = n, .limit_s = limit_s};
}

static bool is_watched(const struct mw_watch *w)
{
    for (int i = 0; i < w->n; i++) {
        if (w->beats[i].count == 0 || w->beats[i].is_done) {
            return false;
        }
    }
    return w->n > 0;
}

static bool is_dead(const struct mw_beat *b)
{
    return kill((pid_t)b->pid, 0) != 0 && errno == ESRCH;
}

/* Dead before busy before waiting; then the one that got least far. */
static int badness(const struct mw_beat *b)
{
    return is_dead(b) ? 2 : b->is_waiting ? 0 : 1;
}

static int find_culprit(const struct mw_watch *w)
{
    int worst = 0;
    for (int i = 1; i < w->n; i++) {
        int a = badness(&w->beats[i]), b = badness(&w->beats[worst]);
        if (a > b || (a == b && w->beats[i].count < w->beats[worst].count)) {
            worst = i;
        }
    }
    return worst;
}

static void explain(const struct mw_watch *w, int rank, char *why, size_t room)
{
    const struct mw_beat *b = &w->beats[rank];
    char where[64] = "";
    if (b->microbatch >= 0) {
        snprintf(where, sizeof where, " of micro-batch %d, stage %d",
                 (int)b->microbatch, (int)b->stage);
    }
    snprintf(why, room,
             "rank %d %s in %.*s%s: no rank moved for %.0f s; all were stopped",
             rank,
             is_dead(b)      ? "died"
             : b->is_waiting ? "waits forever"
                             : "hangs",
             MW_BEAT_NAME_MAX - 1, b->name, where, w->limit_s);
}

bool mw_watch_tick(struct mw_watch *w, int64_t now_ns, char *why, size_t room)
{
    uint64_t sum = 0;
    for (int i = 0; i < w->n; i++) {
        sum += w->beats[i].count;
    }
    if (sum != w->sum || w->moved_ns == 0 || !is_watched(w)) {
        w->sum = sum;
        w->moved_ns = now_ns;
        return true;
    }
    if (1e-9 * (double)(now_ns - w->moved_ns) < w->limit_s) {
        return true;
    }
    explain(w, find_culprit(w), why, room);
    return false;
}

void mw_watch_kill(const struct mw_watch *w)
{
    for (int i = 0; i < w->n; i++) {
        if (w->beats[i].pid > 0) {
            kill((pid_t)w->beats[i].pid, SIGKILL);
        }
    }
}
