/*
 * Log lines and progress on stderr; stdout is for results only.
 * MW_LOG=module:level[,…] (error warn info debug) sets levels; default warn.
 */
#ifndef MW_BASE_LOG_H
#define MW_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum mw_log_level { MW_LOG_ERROR, MW_LOG_WARN, MW_LOG_INFO, MW_LOG_DEBUG };

/* "meshwright: warning: ..." ; module is "sim", "planner", "exec", ... */
void mw_log(enum mw_log_level level, const char *module, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Name in front of lines; --quiet hides all but errors. */
void mw_log_setup(const char *program, bool is_quiet);

/* Progress "what 123/4567" at most 5 times a second, only on a terminal. */
struct mw_progress {
    const char *what;
    int64_t last_ns;
    bool is_on;
};
void mw_progress_begin(struct mw_progress *p, const char *what);
void mw_progress_update(struct mw_progress *p, uint64_t done, uint64_t total);
void mw_progress_end(struct mw_progress *p);

/* Monotonic wall clock and CPU time of the calling thread, nanoseconds. */
int64_t mw_clock_wall_ns(void);
int64_t mw_clock_thread_cpu_ns(void);

#endif
