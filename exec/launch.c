/*
 * mpirun as a child process.
 *
 * Environment, each variable with its reason:
 *   OMPI_ALLOW_RUN_AS_ROOT*      only when we are root: Open MPI refuses it
 *                                otherwise (containers run as root)
 *   OMPI_MCA_btl_vader_single_copy_mechanism=none
 *                                copy through shared memory instead of
 *                                cross-memory attach, which containers forbid
 *                                and which is slower below 8 MiB
 *   OPENBLAS_NUM_THREADS=1       a rank is one core
 * --oversubscribe, when there are more ranks than cores, also makes idle ranks
 * yield.
 *
 * The ranks write their outcome to a file of ours; mpirun's own messages are
 * read only when that file is missing, to say which rank died of what.
 */
#include "exec/launch.h"

#include "base/file.h"
#include "base/log.h"
#include "exec/heartbeat.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    ARGV_MAX = MW_LAUNCH_ARGS_MAX + 16,
    RESULT_MAX = 64 << 20,
    WATCH_MS = 200
};

struct child {
    struct mw_arena arena;
    const char *program, *exec, *result; /* started: mpirun, or exec itself */
    char *argv[ARGV_MAX + 1];
    int argc;
    MW_ARRAY(char *) env;
    struct mw_str noise; /* what mpirun and the ranks said on stderr */
    struct mw_beat *beats;
    const char *beats_path;
    struct mw_watch watch;
    char hung[256]; /* empty: they do not */
};

void mw_launch_arg(struct mw_launch *launch, const char *arg)
{
    int n = 0;
    while (n < MW_LAUNCH_ARGS_MAX && launch->args[n]) {
        n++;
    }
    MW_ASSERT(n < MW_LAUNCH_ARGS_MAX - 1, "%d arguments", n);
    launch->args[n] = arg;
}

/* ---- finding programs --------------------------------------------------- */
static const char *find_in_path(struct mw_arena *arena, const char *name)
{
    const char *path = getenv("PATH");
    for (const char *p = path; p && *p;) {
        size_t n = strcspn(p, ":");
        char *full = mw_arena_printf(arena, "%.*s/%s", (int)n, p, name);
        if (n > 0 && access(full, X_OK) == 0) {
            return full;
        }
        p += n + (p[n] == ':');
    }
    return NULL;
}

const char *mw_launch_beside(struct mw_arena *arena, const char *name)
{
    static const char *const folders[] = {"", "/../libexec/meshwright"};
    char dir[4096];
    for (int i = 0; i < 2 && mw_program_dir(dir, sizeof dir); i++) {
        const char *path =
            mw_arena_printf(arena, "%s%s/%s", dir, folders[i], name);
        if (access(path, X_OK) == 0) {
            return path;
        }
    }
    return NULL;
}

static const char *find_exec(struct mw_arena *arena)
{
    const char *beside = mw_launch_beside(arena, "meshwright-exec");
    return beside ? beside : find_in_path(arena, "meshwright-exec");
}

static enum mw_status find_programs(struct child *c, bool is_local,
                                    struct mw_err *err)
{
    c->exec = find_exec(&c->arena);
    if (!c->exec) {
        return mw_fail(err, MW_EMISSING,
                       "meshwright-exec is neither beside meshwright nor in "
                       "PATH; it is built where Open MPI and OpenBLAS are: "
                       "apt-get install libopenmpi-dev openmpi-bin "
                       "libopenblas-serial-dev, then build again");
    }
    c->program = is_local ? c->exec : find_in_path(&c->arena, "mpirun");
    if (!c->program) {
        return mw_fail(err, MW_EMISSING,
                       "mpirun is not in PATH; apt-get install openmpi-bin");
    }
    return MW_OK;
}

/* ---- command line ------------------------------------------------------- */
static bool is_oversubscribed(int n_ranks)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n_ranks > (n > 0 ? n : 1);
}

static void add_arg(struct child *c, const char *arg)
{
    MW_ASSERT(c->argc < ARGV_MAX, "%d arguments", c->argc);
    c->argv[c->argc++] = mw_arena_strdup(&c->arena, arg);
    c->argv[c->argc] = NULL;
}

static void build_command(struct child *c, const struct mw_launch *launch)
{
    add_arg(c, c->program);
    if (!launch->is_local) {
        add_arg(c, "-np");
        add_arg(c, mw_arena_printf(&c->arena, "%d", launch->n_ranks));
        if (is_oversubscribed(launch->n_ranks)) {
            add_arg(c, "--oversubscribe");
        }
        add_arg(c, c->exec);
    }
    for (int i = 0; launch->args[i]; i++) {
        add_arg(c, launch->args[i]);
    }
}

struct variable {
    const char *name, *value;
    bool only_root;
};
static const struct variable variables[] = {
    {"OMPI_ALLOW_RUN_AS_ROOT", "1", true},
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", true},
    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none", false},
    {"OPENBLAS_NUM_THREADS", "1", false},
};
enum { N_VARIABLES = sizeof variables / sizeof variables[0] };

static bool is_set_by_us(const char *assignment)
{
    for (int i = 0; i < N_VARIABLES; i++) {
        size_t n = strlen(variables[i].name);
        if (strncmp(assignment, variables[i].name, n) == 0 &&
            assignment[n] == '=') {
            return true;
        }
    }
    return false;
}

static void build_environment(struct child *c)
{
    for (char **e = environ; *e; e++) {
        if (!is_set_by_us(*e)) {
            mw_array_push(&c->env, *e);
        }
    }
    for (int i = 0; i < N_VARIABLES; i++) {
        const struct variable *v = &variables[i];
        if (!v->only_root || geteuid() == 0) {
            mw_array_push(&c->env, mw_arena_printf(&c->arena, "%s=%s", v->name,
                                                   v->value));
        }
    }
    mw_array_push(&c->env, NULL);
}

/* ---- running ------------------------------------------------------------ */
static enum mw_status make_result_file(struct child *c, struct mw_err *err)
{
    const char *dir = getenv("TMPDIR");
    char *path = mw_arena_printf(&c->arena, "%s/meshwright-XXXXXX",
                                 dir && *dir ? dir : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) {
        return mw_fail(err, MW_EFAILED, "%s: cannot make a file: %s", path,
                       strerror(errno));
    }
    close(fd);
    c->result = path;
    add_arg(c, "--result");
    add_arg(c, path);
    return MW_OK;
}

static enum mw_status
make_beats(struct child *c, const struct mw_launch *launch, struct mw_err *err)
{
    if (launch->hang_limit_s <= 0.0) {
        return MW_OK;
    }
    c->beats_path = mw_arena_printf(&c->arena, "%s.beats", c->result);
    add_arg(c, "--heartbeat");
    add_arg(c, c->beats_path);
    enum mw_status st =
        mw_beats_make(c->beats_path, launch->n_ranks, &c->beats, err);
    mw_watch_init(&c->watch, c->beats, c->beats ? launch->n_ranks : 0,
                  launch->hang_limit_s);
    return st;
}

/* Ends all ranks once they hang; mpirun then ends by itself, and is asked to
 * in case it waits for a rank that it does not know to be dead. */
static void watch(struct child *c, pid_t mpirun)
{
    if (c->beats && c->hung[0] == '\0' &&
        !mw_watch_tick(&c->watch, mw_clock_wall_ns(), c->hung,
                       sizeof c->hung)) {
        mw_watch_kill(&c->watch);
        kill(mpirun, SIGTERM);
    }
}

/* Everything that comes through the pipe, kept up to a limit. */
static void drain(struct child *c, int fd, pid_t mpirun)
{
    char buf[4096];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        watch(c, mpirun);
        if (poll(&p, 1, WATCH_MS) <= 0) {
            continue;
        }
        ssize_t n = read(fd, buf, sizeof buf - 1);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return;
        }
        buf[n] = '\0';
        if (c->noise.n < (1 << 16)) {
            mw_str_add(&c->noise, buf);
        }
    }
}

static enum mw_status spawn_child(struct child *c, int out_fd, pid_t *out_pid,
                                  struct mw_err *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_fd, STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, out_fd);
    int rc =
        posix_spawn(out_pid, c->program, &actions, NULL, c->argv, c->env.v);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) {
        return mw_fail(err, MW_EFAILED, "cannot start %s: %s", c->program,
                       strerror(rc));
    }
    return MW_OK;
}

static enum mw_status run_child(struct child *c, int *out_wait,
                                struct mw_err *err)
{
    int fd[2];
    pid_t pid = -1;
    if (pipe(fd) != 0) {
        return mw_fail(err, MW_EFAILED, "pipe: %s", strerror(errno));
    }
    enum mw_status st = spawn_child(c, fd[1], &pid, err);
    close(fd[1]);
    if (st == MW_OK) {
        drain(c, fd[0], pid);
        while (waitpid(pid, out_wait, 0) < 0 && errno == EINTR) {
        }
    }
    close(fd[0]);
    return st;
}

/* ---- outcome ------------------------------------------------------------ */
/* Copies the line that begins at p, without trailing white space. */
static void copy_line(char *out, size_t room, const char *p)
{
    size_t n = strcspn(p, "\n");
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\r')) {
        n--;
    }
    snprintf(out, room, "%.*s", (int)n, p);
}

/*
 * Why there is no result: what a rank said itself, else mpirun's "process
 * rank N ... exited on signal S", else the last line of all.
 */
static enum mw_status explain_death(const struct child *c, int wait_status,
                                    struct mw_err *err)
{
    const char *text = c->noise.s ? c->noise.s : "";
    const char *own = strstr(text, "meshwright-exec: ");
    const char *died = strstr(text, "process rank ");
    char line[512];
    int rank, signal_number;
    if (c->hung[0] != '\0') {
        return mw_fail(err, MW_EFAILED, "%s", c->hung);
    }
    if (own) {
        copy_line(line, sizeof line, own + strlen("meshwright-exec: "));
        return mw_fail(err, MW_EFAILED, "%s", line);
    }
    const char *on = died ? strstr(died, "exited on signal ") : NULL;
    if (on && sscanf(died, "process rank %d", &rank) == 1 &&
        sscanf(on, "exited on signal %d", &signal_number) == 1) {
        return mw_fail(err, MW_EFAILED,
                       "rank %d was ended by signal %d; the other ranks were "
                       "stopped",
                       rank, signal_number);
    }
    if (strstr(text, "not enough slots")) {
        return mw_fail(err, MW_EFAILED,
                       "mpirun has fewer slots than ranks; set "
                       "OMPI_MCA_rmaps_base_oversubscribe=1");
    }
    int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128;
    return mw_fail(err, MW_EFAILED, "%s ended with status %d and no result",
                   c->program, code);
}

static enum mw_status status_of(const json_t *o, struct mw_err *err)
{
    enum mw_status st =
        (enum mw_status)json_integer_value(json_object_get(o, "status"));
    const char *text = json_string_value(json_object_get(o, "error"));
    if (st != MW_OK) {
        return mw_fail_text(err, st, text ? text : mw_status_name(st));
    }
    return MW_OK;
}

static enum mw_status read_result(const struct child *c, int wait_status,
                                  json_t **out, struct mw_err *err)
{
    json_t *o = NULL;
    if (mw_json_load(c->result, RESULT_MAX, &o, NULL) != MW_OK) {
        return explain_death(c, wait_status, err);
    }
    enum mw_status st = status_of(o, err);
    json_t *result = json_object_get(o, "result");
    if (out && json_is_object(result)) {
        *out = json_incref(result);
    }
    json_decref(o);
    return st;
}

static void child_release(struct child *c)
{
    if (c->result) {
        unlink(c->result);
    }
    if (c->beats) {
        mw_beats_close(c->beats, c->watch.n);
        unlink(c->beats_path);
    }
    mw_array_release(&c->env);
    mw_str_release(&c->noise);
    mw_arena_release(&c->arena);
}

enum mw_status mw_launch_run(const struct mw_launch *launch,
                             json_t **out_result, struct mw_err *err)
{
    struct child c = {0};
    int wait_status = 0;
    mw_arena_init(&c.arena);
    if (out_result) {
        *out_result = NULL;
    }
    enum mw_status st = find_programs(&c, launch->is_local, err);
    if (st == MW_OK) {
        build_command(&c, launch);
        build_environment(&c);
        st = make_result_file(&c, err);
    }
    if (st == MW_OK) {
        st = make_beats(&c, launch, err);
    }
    if (st == MW_OK) {
        st = run_child(&c, &wait_status, err);
    }
    if (st == MW_OK) {
        st = read_result(&c, wait_status, out_result, err);
        mw_log(MW_LOG_DEBUG, "exec", "the ranks said:\n%s",
               c.noise.s ? c.noise.s : "(nothing)");
    }
    child_release(&c);
    return st;
}

/* ---- --print-launch ----------------------------------------------------- */
static void print_exec(const struct child *c, const struct mw_launch *launch,
                       struct mw_str *out)
{
    mw_str_addf(out, " %s", c->exec);
    for (int i = 0; launch->args[i]; i++) {
        mw_str_addf(out, " %s", launch->args[i]);
    }
    mw_str_add(out, "\n");
}

enum mw_status mw_launch_print(const struct mw_launch *launch,
                               struct mw_str *out, struct mw_err *err)
{
    struct child c = {0};
    mw_arena_init(&c.arena);
    enum mw_status st = find_programs(&c, launch->is_local, err);
    if (st == MW_OK && launch->is_local) {
        mw_str_add(out, "OPENBLAS_NUM_THREADS=1");
        print_exec(&c, launch, out);
    } else if (st == MW_OK) {
        for (int i = 0; i < N_VARIABLES; i++) {
            const struct variable *v = &variables[i];
            if (!v->only_root || geteuid() == 0) {
                mw_str_addf(out, "%s=%s ", v->name, v->value);
            }
        }
        mw_str_addf(out, "%s -np %d%s", c.program, launch->n_ranks,
                    is_oversubscribed(launch->n_ranks) ? " --oversubscribe"
                                                       : "");
        print_exec(&c, launch, out);
        mw_str_addf(out,
                    "OPENBLAS_NUM_THREADS=1 srun --mpi=pmix -n %d "
                    "--cpus-per-task=1",
                    launch->n_ranks);
        print_exec(&c, launch, out);
    }
    child_release(&c);
    return st;
}
