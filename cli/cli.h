/*
 * What the verbs of `meshwright` share: options every verb has, the way
 * results and errors are printed, exit statuses. One file per verb; a verb
 * has an argp table and prints, and no logic of its own.
 */
#ifndef MW_CLI_CLI_H
#define MW_CLI_CLI_H

#include "base/err.h"
#include "base/json.h"

#include <argp.h>
#include <stdbool.h>

/* A verb: argv[0] is "meshwright VERB"; returns the exit status. */
typedef int (*mw_verb_fn)(int argc, char **argv);

int mw_verb_hw(int argc, char **argv);
int mw_verb_coll(int argc, char **argv);
int mw_verb_sched(int argc, char **argv);
int mw_verb_sim(int argc, char **argv);
int mw_verb_plan(int argc, char **argv);
int mw_verb_sweep(int argc, char **argv);
int mw_verb_validate(int argc, char **argv);
int mw_verb_run(int argc, char **argv);
int mw_verb_compare(int argc, char **argv);
int mw_verb_diff(int argc, char **argv);
int mw_verb_calibrate(int argc, char **argv);
int mw_verb_report(int argc, char **argv);
int mw_verb_export(int argc, char **argv);

/*
 * --json, --quiet, --hwdb DIR: a child parser for every verb. Put
 * {&mw_cli_argp, 0, "Common options", 100} among a verb's argp children and
 * set state->child_inputs[0] to a struct mw_cli in ARGP_KEY_INIT.
 */
struct mw_cli {
    bool json, quiet;
    const char *hwdb;
};
extern const struct argp mw_cli_argp;

/*
 * Parses with the house rules: exit status 2 on usage errors, --help complete,
 * no long-only matching. Returns MW_OK or MW_EUSAGE (message printed already).
 */
enum mw_status mw_cli_parse(const struct argp *argp, int argc, char **argv,
                            void *input);

/* Whether all these files could be written, before long work (NULL: not asked
 * for): the first that could not is said, as writing would. */
enum mw_status mw_cli_check_outputs(const char *const *path, size_t n,
                                    struct mw_err *err);

/* A usage error where --json and an option with FILE `-` (path NULL: not given)
 * both want stdout. */
void mw_cli_one_stdout(const struct mw_cli *cli, const char *option,
                       const char *path, struct argp_state *state);

/* Prints "meshwright: <findings>" on stderr and returns the exit status. */
int mw_cli_fail(const struct mw_err *err);
/* Prints the object on stdout (one JSON object, nothing else) and drops it;
 * returns an exit status. */
int mw_cli_print_json(json_t *object);

/*
 * Option values: "tp=2,pp=4" (mw_cli_pairs) and quantities; failures are
 * MW_EUSAGE with the option's name in front ("--fix: ..."). mw_cli_pairs also
 * refuses a key that is given twice: the last would win without a word.
 */
enum { MW_CLI_PAIRS_MAX = 16 };
struct mw_cli_pair {
    char key[24];
    char value[64];
};
enum mw_status mw_cli_pairs(const char *option, const char *text,
                            struct mw_cli_pair out[MW_CLI_PAIRS_MAX],
                            int *out_n, struct mw_err *err);
/* The same with another example in the message: "17=1.3". */
enum mw_status mw_cli_pairs_like(const char *option, const char *example,
                                 const char *text,
                                 struct mw_cli_pair out[MW_CLI_PAIRS_MAX],
                                 int *out_n, struct mw_err *err);
enum mw_status mw_cli_int(const char *option, const char *text, long long min,
                          long long max, long long *out, struct mw_err *err);

#endif
