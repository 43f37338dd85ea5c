/*
 * Log lines, progress and clocks.
 *
 * This file holds the only mutable state of the program outside main: the
 * name in front of lines, quiet, and the levels of MW_LOG, read once. A line
 * is made whole and written with one call, so that lines of ranks and threads
 * do not mix.
 */
#include "base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MODULES_MAX = 16, MODULE_NAME_MAX = 24, LINE_MAX_BYTES = 4096 };

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static struct {
    char program[64];
    bool is_quiet;
    enum mw_log_level default_level;
    int n_modules;
    struct {
        char name[MODULE_NAME_MAX];
        enum mw_log_level level;
    } module[MODULES_MAX];
} state = {.program = "meshwright", .default_level = MW_LOG_WARN};

static pthread_once_t state_once = PTHREAD_ONCE_INIT;

static bool parse_level(const char *s, size_t n, enum mw_log_level *out)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++) {
        if (strlen(names[i]) == n && memcmp(names[i], s, n) == 0) {
            *out = (enum mw_log_level)i;
            return true;
        }
    }
    return false;
}

/* One item of MW_LOG: "module:level" or "level" for all modules. */
static bool parse_item(const char *s, size_t n)
{
    const char *colon = memchr(s, ':', n);
    if (colon == NULL) {
        return parse_level(s, n, &state.default_level);
    }
    size_t name_len = (size_t)(colon - s);
    enum mw_log_level level;
    if (name_len == 0 || name_len >= MODULE_NAME_MAX ||
        state.n_modules == MODULES_MAX ||
        !parse_level(colon + 1, n - name_len - 1, &level)) {
        return false;
    }
    memcpy(state.module[state.n_modules].name, s, name_len);
    state.module[state.n_modules++].level = level;
    return true;
}

static void read_environment(void)
{
    const char *s = getenv("MW_LOG");
    while (s != NULL && *s != '\0') {
        size_t n = strcspn(s, ",");
        if (n > 0 && !parse_item(s, n)) {
            fprintf(stderr,
                    "%s: warning: MW_LOG has '%.*s'; write module:level with "
                    "error, warn, info or debug\n",
                    state.program, (int)n, s);
        }
        s += n + (s[n] == ',');
    }
}

static bool is_shown(enum mw_log_level level, const char *module)
{
    if (state.is_quiet) {
        return level == MW_LOG_ERROR;
    }
    enum mw_log_level limit = state.default_level;
    for (int i = 0; i < state.n_modules; i++) {
        if (strcmp(state.module[i].name, module) == 0) {
            limit = state.module[i].level;
        }
    }
    return level <= limit;
}

void mw_log(enum mw_log_level level, const char *module, const char *fmt, ...)
{
    pthread_once(&state_once, read_environment);
    if (!is_shown(level, module)) {
        return;
    }
    char line[LINE_MAX_BYTES];
    int n = snprintf(line, sizeof line, "%s: %s: ", state.program,
                     level_names[level]);
    if (level >= MW_LOG_INFO) {
        n += snprintf(line + n, sizeof line - (size_t)n, "%.64s: ", module);
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    size_t len = strlen(line);
    line[len++] = '\n';
    fwrite(line, 1, len, stderr);
}

void mw_log_setup(const char *program, bool is_quiet)
{
    snprintf(state.program, sizeof state.program, "%s", program);
    state.is_quiet = is_quiet;
    pthread_once(&state_once, read_environment);
}

void mw_progress_begin(struct mw_progress *p, const char *what)
{
    *p = (struct mw_progress){.what = what};
    p->is_on = !state.is_quiet && isatty(STDERR_FILENO) == 1;
}

void mw_progress_update(struct mw_progress *p, uint64_t done, uint64_t total)
{
    static const int64_t period_ns = 200000000;
    if (!p->is_on) {
        return;
    }
    int64_t now_ns = mw_clock_wall_ns();
    if (p->last_ns == 0 || now_ns - p->last_ns >= period_ns) {
        p->last_ns = now_ns;
        fprintf(stderr, "\r%s %" PRIu64 "/%" PRIu64 "\x1b[K", p->what, done,
                total);
        fflush(stderr);
    }
}

void mw_progress_end(struct mw_progress *p)
{
    if (p->is_on && p->last_ns != 0) {
        fputs("\r\x1b[K", stderr);
    }
    p->is_on = false;
}

static int64_t clock_ns(clockid_t id)
{
    struct timespec t = {0};
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t mw_clock_wall_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t mw_clock_thread_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}
