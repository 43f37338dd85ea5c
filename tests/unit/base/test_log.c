/*
 * Log lines: levels from MW_LOG, quiet, form; the clocks. The state is read
 * once a process, so every case runs in a child with its stderr in a file.
 */
#include "base/log.h"
#include "mw_test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void log_all(void)
{
    mw_log(MW_LOG_ERROR, "sim", "e %d", 1);
    mw_log(MW_LOG_WARN, "sim", "w");
    mw_log(MW_LOG_INFO, "sim", "i");
    mw_log(MW_LOG_DEBUG, "sim", "d");
    mw_log(MW_LOG_INFO, "net", "ni");
    mw_log(MW_LOG_DEBUG, "net", "nd");
    struct mw_progress p;
    mw_progress_begin(&p, "searching");
    mw_progress_update(&p, 1, 2);
    mw_progress_end(&p);
}

/* What the child wrote to stderr. levels NULL: MW_LOG is not set. */
static void assert_logged(const char *levels, int quiet, const char *text)
{
    char got[4096] = "";
    FILE *f = tmpfile();
    assert_non_null(f);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(f), STDERR_FILENO);
        if (levels != NULL) {
            setenv("MW_LOG", levels, 1);
        } else {
            unsetenv("MW_LOG");
        }
        if (quiet >= 0) {
            mw_log_setup("prog", quiet != 0);
        }
        log_all();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rewind(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, text);
}

static void warnings_are_the_default(void **state)
{
    (void)state;
    assert_logged(NULL, 0, "prog: error: e 1\nprog: warning: w\n");
    assert_logged("", -1, "meshwright: error: e 1\nmeshwright: warning: w\n");
}

static void quiet_leaves_errors(void **state)
{
    (void)state;
    assert_logged("debug", 1, "prog: error: e 1\n");
}

static void levels_by_module(void **state)
{
    (void)state;
    assert_logged("net:debug,sim:error", 0,
                  "prog: error: e 1\nprog: info: net: ni\n"
                  "prog: debug: net: nd\n");
    assert_logged("info", 0,
                  "prog: error: e 1\nprog: warning: w\n"
                  "prog: info: sim: i\nprog: info: net: ni\n");
}

static void wrong_levels_are_named(void **state)
{
    (void)state;
    assert_logged("net:loud,,sim:error", 0,
                  "prog: warning: MW_LOG has 'net:loud'; write module:level "
                  "with error, warn, info or debug\n"
                  "prog: error: e 1\n");
}

static void clocks_go_forward(void **state)
{
    (void)state;
    int64_t wall = mw_clock_wall_ns(), cpu = mw_clock_thread_cpu_ns();
    volatile double x = 1;
    while (mw_clock_thread_cpu_ns() - cpu < 2000000) {
        x = x * 1.0000001;
    }
    /* 2 ms of work takes at least that on the wall, less the clock's grain */
    assert_true(mw_clock_wall_ns() - wall >= 1900000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warnings_are_the_default),
        cmocka_unit_test(quiet_leaves_errors),
        cmocka_unit_test(levels_by_module),
        cmocka_unit_test(wrong_levels_are_named),
        cmocka_unit_test(clocks_go_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
