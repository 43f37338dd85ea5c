/* `meshwright export PLAN --to FRAMEWORK`: launch files for the user. */
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/world.h"

#include "base/file.h"
#include "planner/export/export.h"

#include <stdio.h>
#include <string.h>

struct args {
    struct mw_cli cli;
    const char *file, *out, *to, *hosts;
};

enum { OPT_TO = 0x2000, OPT_HOSTS, HOSTS_BYTES_MAX = 1 << 26 };

static const struct argp_option options[] = {
    {"to", OPT_TO, "FRAMEWORK", 0,
     "megatron-core, torchtitan or nanotron; or hosts", 0},
    {"hosts", OPT_HOSTS, "FILE", 0,
     "With --to hosts: the allocation's hosts, one a line, in its order "
     "(scontrol show hostnames)",
     0},
    {"output", 'o', "FILE", 0,
     "The file to write (default: standard output, without launch line and "
     "notes)",
     0},
    {0}};

static const char doc[] =
    "Writes a plan (or a scenario's layout, else the best that a search finds) "
    "as the configuration of a training framework, and prints the launch line. "
    "What the framework cannot do is refused with the rule that forbids it.\v"
    "Examples:\n"
    "  meshwright export plan.yaml --to megatron-core -o llama.args\n"
    "  meshwright export plan.yaml --to torchtitan -o llama.toml\n"
    "  meshwright plan scenario.yaml -o plan.yaml && meshwright export "
    "plan.yaml --to nanotron -o llama.yaml\n"
    "  scontrol show hostnames > hosts && meshwright export plan.yaml --to "
    "hosts --hosts hosts -o ordered\n\n"
    "hosts: the list of hosts in the order in which the plan's ranks lie on "
    "them, for SLURM_HOSTFILE or mpirun --hostfile.\n"
    "megatron-core: options of pretrain_gpt.py, Megatron-LM of August 2026; "
    "torchtitan: TOML of 0.2.2; nanotron: YAML of 0.4. Data, tokenizer, "
    "learning rate and number of steps are placeholders. Plan with `limits: "
    "framework:` to search only what the framework can run.\n"
    "Exit status: 0 written; 1 the framework cannot run this plan; 2 usage; 3 "
    "bad input file, or the file cannot be written.";

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a != NULL ? &a->cli : NULL;
        return 0;
    case OPT_TO:
        a->to = arg;
        return 0;
    case OPT_HOSTS:
        a->hosts = arg;
        return 0;
    case 'o':
        a->out = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (a->file) {
            argp_error(state, "one plan is exported at a time");
        }
        a->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->file) {
            argp_error(state, "which plan?");
        }
        if (!a->to) {
            argp_error(state, "--to: megatron-core, torchtitan, nanotron or "
                              "hosts?");
        }
        if ((strcmp(a->to, "hosts") == 0) != (a->hosts != NULL)) {
            argp_error(state, "--to hosts needs --hosts FILE, and nothing else "
                              "takes it");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum mw_status write_file(const struct args *a,
                                 const struct mw_export *e, struct mw_err *err)
{
    struct mw_outfile out = {0};
    enum mw_status status = mw_outfile_open(&out, a->out, err);
    if (status == MW_OK) {
        fwrite(e->file.s, 1, e->file.n, out.f);
        status = mw_outfile_commit(&out, err);
    }
    return status;
}

static json_t *notes_json(const struct mw_export *e)
{
    json_t *list = json_array();
    const char *at = e->notes.s ? e->notes.s : "";
    while (*at != '\0') {
        size_t n = strcspn(at, "\n");
        json_array_append_new(list, json_stringn(at, n));
        at += n + (at[n] == '\n');
    }
    return list;
}

static enum mw_status show(const struct args *a, const struct mw_export *e,
                           struct mw_err *err)
{
    if (a->cli.json) {
        json_t *o = json_object();
        mw_json_set_str(o, "framework", a->to);
        mw_json_set_str(o, "file", e->file.s);
        mw_json_set_str(o, "launch", e->launch.s);
        mw_json_set(o, "notes", notes_json(e));
        return mw_cli_print_json(o) == 0
                   ? MW_OK
                   : mw_fail(err, MW_EFAILED, "cannot write to stdout");
    }
    fputs(a->out ? e->launch.s : e->file.s, stdout);
    if (!a->cli.quiet && e->notes.s) {
        fprintf(stderr, "%s", e->notes.s);
    }
    return MW_OK;
}

static enum mw_status export_hosts(const struct args *a,
                                   const struct mw_export_in *in,
                                   struct mw_export *out, struct mw_err *err)
{
    char *text = NULL;
    size_t n = 0;
    enum mw_status status =
        mw_file_read(a->hosts, HOSTS_BYTES_MAX, &text, &n, err);

    if (status == MW_OK) {
        status = mw_export_hosts(a->hosts, text, in, out, err);
        mw_free(text);
    }
    return status;
}

static enum mw_status export_subject(const void *ctx,
                                     const struct mw_cli_subject *s,
                                     struct mw_err *err)
{
    const struct args *a = ctx;
    struct mw_export e;
    const struct mw_export_in in = {&s->scenario, &s->plan, &s->ctx,
                                    a->out ? a->out : "FILE"};
    enum mw_status status = a->hosts ? export_hosts(a, &in, &e, err)
                                     : mw_export_plan(a->to, &in, &e, err);
    if (status != MW_OK) {
        return status;
    }
    status = a->out ? write_file(a, &e, err) : MW_OK;
    if (status == MW_OK) {
        status = show(a, &e, err);
    }
    mw_export_release(&e);
    return status;
}

int mw_verb_export(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "PLAN|SCENARIO",
                                     .doc = doc,
                                     .children = children};
    struct args a = {0};
    struct mw_err err = {0};
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    enum mw_status status =
        mw_cli_with_subject(&a.cli, a.file, NULL, export_subject, &a, &err);
    return status == MW_OK ? 0 : mw_cli_fail(&err);
}
