/*
 * Starting mw-gpu-check and taking its word: see calibrate_cuda.h. What it
 * writes on standard error comes through a pipe; its first line becomes the
 * message of a failure, by its exit status (0, 2, 3, 4, 5 as ours).
 */
#include "exec/calibrate_cuda.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "exec/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { ARGS_MAX = 10, SAID_MAX = 4096, CHECK_BYTES_MAX = 64 << 20 };

static const char *find_program(struct mw_arena *arena)
{
    const char *given = getenv("MW_GPU_CHECK");
    return given != NULL && *given != '\0'
               ? given
               : mw_launch_beside(arena, "mw-gpu-check");
}

/* Reads to the end of the pipe; the first SAID_MAX - 1 bytes stay. */
static void listen(int fd, char said[SAID_MAX])
{
    char block[512];
    size_t n = 0;
    for (ssize_t got; (got = read(fd, block, sizeof block)) != 0;) {
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            break;
        }
        size_t room = SAID_MAX - 1 - n;
        size_t take = (size_t)got < room ? (size_t)got : room;
        memcpy(said + n, block, take);
        n += take;
    }
    said[n] = '\0';
}

static enum mw_status verdict(int wait_status, const char *said,
                              struct mw_err *err)
{
    static const enum mw_status by_exit[] = {
        MW_OK, MW_ENO, MW_EUSAGE, MW_EINPUT, MW_EMISSING, MW_EFAILED};
    static const char own[] = "mw-gpu-check: ";
    int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 5;
    if (code == 0) {
        return MW_OK;
    }
    if (strncmp(said, own, strlen(own)) == 0) {
        said += strlen(own);
    }
    int line = (int)strcspn(said, "\n");
    return mw_fail(err, code < 6 ? by_exit[code] : MW_EFAILED, "%.*s",
                   line > 0 ? line : (int)strlen("mw-gpu-check failed"),
                   line > 0 ? said : "mw-gpu-check failed");
}

static enum mw_status run(char *const *argv, struct mw_err *err)
{
    posix_spawn_file_actions_t actions;
    char said[SAID_MAX];
    int ends[2], status = 0;
    pid_t pid;
    if (pipe(ends) != 0) {
        return mw_fail(err, MW_EFAILED, "cannot make a pipe: %s",
                       strerror(errno));
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    int failed = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failed == 0) {
        listen(ends[0], said);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    close(ends[0]);
    return failed == 0 ? verdict(status, said, err)
                       : mw_fail(err, MW_EMISSING, "%s: cannot start: %s",
                                 argv[0], strerror(failed));
}

/* ---- what it measured ------------------------------------------------------
 */
static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* The rate of the largest copy in a direction. */
static double copy_rate(const json_t *check, const char *direction)
{
    double bytes = 0, rate = (double)NAN;
    size_t i;
    json_t *copy;
    json_array_foreach(json_object_get(check, "copies"), i, copy)
    {
        const char *way = json_string_value(json_object_get(copy, "direction"));
        if (way != NULL && strcmp(way, direction) == 0 &&
            number(copy, "bytes") > bytes) {
            bytes = number(copy, "bytes");
            rate = number(copy, "bytes_per_s_per_direction");
        }
    }
    return rate;
}

static enum mw_status write_constants(const char *path, double launch_s,
                                      struct mw_err *err)
{
    struct mw_outfile o = {0};
    char date[16];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%d", &utc);
    enum mw_status st = mw_outfile_open(&o, path, err);
    if (st != MW_OK) {
        return st;
    }
    fprintf(o.f,
            "name,value,unit,source,date,confidence,note\n"
            "kernel_launch_s,%.6g,s,\"meshwright calibrate: an empty kernel "
            "after another\",%s,H,\n",
            launch_s, date);
    st = mw_outfile_commit(&o, err);
    mw_outfile_abort(&o);
    return st;
}

static enum mw_status read_check(const char *dir, struct mw_arena *arena,
                                 struct mw_calibrate_cuda_result *out,
                                 struct mw_err *err)
{
    json_t *check = NULL;
    enum mw_status st =
        mw_json_load(mw_arena_printf(arena, "%s/gpu_check.json", dir),
                     CHECK_BYTES_MAX, &check, err);
    if (st != MW_OK) {
        return st;
    }
    *out = (struct mw_calibrate_cuda_result){
        .launch_s =
            number(json_object_get(check, "latency"), "launch_device_s"),
        .h2d_Bps = copy_rate(check, "h2d"),
        .d2h_Bps = copy_rate(check, "d2h"),
        .d2d_Bps = copy_rate(check, "d2d"),
        .slowdown = number(json_object_get(check, "overlap"), "slowdown")};
    json_decref(check);
    return out->launch_s > 0
               ? write_constants(
                     mw_arena_printf(arena, "%s/constants.csv", dir),
                     out->launch_s, err)
               : MW_OK;
}

/* ---- both ------------------------------------------------------------------
 */
enum mw_status mw_calibrate_cuda(const struct mw_calibrate_cuda_opts *opts,
                                 struct mw_calibrate_cuda_result *out,
                                 struct mw_err *err)
{
    struct mw_arena arena;
    char *argv[ARGS_MAX] = {NULL};
    int n = 0;
    mw_arena_init(&arena);
    const char *program = find_program(&arena);
    enum mw_status st = MW_EMISSING;
    if (program == NULL) {
        mw_fail(err, MW_EMISSING,
                "mw-gpu-check is not beside meshwright; it is built where nvcc "
                "and NCCL are (docs/cuda.md); --backend host measures this "
                "machine's cores");
    } else {
        argv[n++] = mw_arena_strdup(&arena, program);
        argv[n++] = mw_arena_strdup(&arena, "-o");
        argv[n++] = mw_arena_strdup(&arena, opts->dir);
        argv[n++] = mw_arena_printf(&arena, "--seconds=%.9g",
                                    opts->limit_s > 0 ? opts->limit_s : 300);
        if (opts->device != NULL) {
            argv[n++] = mw_arena_printf(&arena, "--device=%s", opts->device);
        }
        if (opts->is_quick) {
            argv[n++] = mw_arena_strdup(&arena, "--quick");
        }
        st = run(argv, err);
        if (st == MW_OK) {
            st = read_check(opts->dir, &arena, out, err);
        }
    }
    mw_arena_release(&arena);
    return st;
}
