/*
 * meshwright: finds the verb and hands over. The exit status is the verb's:
 * 0 done, 1 the answer is no, 2 usage, 3 bad input file, 4 something missing,
 * 5 a run failed, 130 interrupted.
 */
#include "cli/cli.h"

#include "base/log.h"
#include "base/yaml.h"
#include "cli/version.h"

#include <stdio.h>
#include <string.h>

struct verb {
    const char *name, *args, *what;
    mw_verb_fn run;
};

/* clang-format off */
static const struct verb verbs[] = {
#ifdef MW_VERB_HW
    {"hw", "list|show NAME|check|topo",
     "what the hardware database knows, with sources", mw_verb_hw},
#endif
#ifdef MW_VERB_COLL
    {"coll", "--system NAME --nodes N --op OP",
     "a collective sweep, in the columns of nccl-tests", mw_verb_coll},
#endif
#ifdef MW_VERB_SCHED
    {"sched", "--kind NAME --stages P --microbatches M",
     "one pipeline schedule: order, bubble, memory, Gantt", mw_verb_sched},
#endif
#ifdef MW_VERB_SIM
    {"sim", "SCENARIO [--plan PLAN]", "one training step, explained",
     mw_verb_sim},
#endif
#ifdef MW_VERB_PLAN
    {"plan", "SCENARIO -o PLAN", "search layouts, rank, explain, write a plan",
     mw_verb_plan},
#endif
#ifdef MW_VERB_SWEEP
    {"sweep", "SCENARIO --vary nodes=8,16,32",
     "what-if: the best plan at each point of a grid", mw_verb_sweep},
#endif
#ifdef MW_VERB_VALIDATE
    {"validate", "FILE.csv...", "predictions against a table of measurements",
     mw_verb_validate},
#endif
#ifdef MW_VERB_RUN
    {"run", "PLAN --backend host|cuda", "execute a plan on real ranks",
     mw_verb_run},
#endif
#ifdef MW_VERB_COMPARE
    {"compare", "SIMULATED MEASURED", "predicted against measured, by term",
     mw_verb_compare},
#endif
#ifdef MW_VERB_DIFF
    {"diff", "PLAN|SCENARIO PLAN|SCENARIO",
     "why one is faster than the other", mw_verb_diff},
#endif
#ifdef MW_VERB_CALIBRATE
    {"calibrate", "--backend host -o DIR",
     "measure this machine into a database overlay", mw_verb_calibrate},
#endif
#ifdef MW_VERB_REPORT
    {"report", "PLAN|SCENARIO -o FILE.html", "a plan as one page with pictures",
     mw_verb_report},
#endif
#ifdef MW_VERB_EXPORT
    {"export", "PLAN --to FRAMEWORK -o FILE",
     "launch files for the user's framework", mw_verb_export},
#endif
};
/* clang-format on */
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static void print_help(FILE *f)
{
    fprintf(f, "Usage: meshwright VERB [ARGUMENTS]\n"
               "       meshwright VERB --help | --help | --version\n\n"
               "Predicts, chooses and proves how a model is laid out on a "
               "cluster.\n\nVerbs:\n");
    for (int i = 0; i < N_VERBS; i++) {
        fprintf(f, "  %-10s %-40s %s\n", verbs[i].name, verbs[i].args,
                verbs[i].what);
    }
    fprintf(f,
            "\nExamples:\n"
            "  meshwright plan scenarios/llama3-8b-2xdgx-h100.yaml -o p.yaml\n"
            "  meshwright sim scenarios/llama3-8b-2xdgx-h100.yaml --plan "
            "p.yaml\n"
            "  meshwright hw show dgx-h100\n\n"
            "Exit status: 0 done; 1 the answer is no; 2 usage; 3 bad input "
            "file;\n4 something is missing at run time; 5 a run failed; 130 "
            "interrupted.\n");
}

static int unknown_verb(const char *word)
{
    const char *names[N_VERBS + 1];
    for (int i = 0; i < N_VERBS; i++) {
        names[i] = verbs[i].name;
    }
    const char *near = mw_nearest(word, names, N_VERBS);
    fprintf(stderr, "meshwright: unknown verb '%s'; ", word);
    if (near) {
        fprintf(stderr, "did you mean '%s'?\n", near);
    } else {
        fprintf(stderr, "see meshwright --help\n");
    }
    return 2;
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof name, "meshwright %s", verb->name);
    char *shown = name;
    char **args = mw_calloc((size_t)argc, sizeof *args);
    memcpy(args, argv + 1, (size_t)(argc - 1) * sizeof *args);
    args[0] = shown;
    int status = verb->run(argc - 1, args);
    mw_free(args);
    return status;
}

int main(int argc, char **argv)
{
    mw_log_setup("meshwright", false);
    argp_err_exit_status = 2;
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("meshwright %s (commit %s)\n", MW_VERSION, MW_COMMIT);
        return 0;
    }
    int status = -1;
    for (int i = 0; i < N_VERBS && status < 0; i++) {
        if (strcmp(argv[1], verbs[i].name) == 0) {
            status = run_verb(&verbs[i], argc, argv);
        }
    }
    if (status < 0) {
        status = unknown_verb(argv[1]);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "meshwright: cannot write to standard output\n");
        status = status ? status : 5;
    }
    return status;
}
