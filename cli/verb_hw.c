/* `meshwright hw list|show|check|topo`: what the hardware database knows, with
 * the source and the confidence of every figure. */
#include "cli/cli.h"
#include "cli/verb_hw.h"

#include "base/csv.h"
#include "base/table.h"
#include "base/yaml.h"
#include "hwdb/measured.h"

#include <stdio.h>
#include <string.h>

struct args {
    struct mw_cli cli;
    const char *action, *name;
};

static const char doc[] =
    "Shows and checks the hardware database: devices, links, systems, prices "
    "and the constants of the cost model. Bandwidths are per direction.\n\n"
    "  list [TABLE]  systems, devices and tables; or every row of one table\n"
    "  show NAME     every figure of a system or device with its source\n"
    "  check         verifies every row (links x rate = total, GPUs x NICs, "
    "sources, ...)\n"
    "  topo CLUSTER  draws a system or cluster; see hw topo --help\v"
    "Examples:\n"
    "  meshwright hw list systems\n"
    "  meshwright hw show dgx-h100\n"
    "  meshwright hw show \"H100-SXM5\" --json\n"
    "  meshwright hw check --hwdb my-machine/\n"
    "  meshwright hw topo \"dgx-h100 x 4, rail\"\n\n"
    "Confidence: H primary source or measured; M secondary or fitted; L "
    "general knowledge, to be checked.\n"
    "Exit status: 0 done; 2 usage, an unknown name; 3 a row of the database is "
    "wrong.";

static void check_args(const struct args *a, struct argp_state *state)
{
    static const char *const actions[] = {"list", "show", "check", "topo"};
    bool is_known = false;
    for (size_t i = 0; i < 4; i++) {
        is_known |= strcmp(a->action, actions[i]) == 0;
    }
    if (!is_known) {
        const char *near = mw_nearest(a->action, actions, 4);
        argp_error(state, "'%s' is not list, show, check or topo%s%s%s",
                   a->action, near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "");
    } else if (strcmp(a->action, "show") == 0 && a->name == NULL) {
        argp_error(state, "show what? For example: hw show dgx-h100");
    } else if (strcmp(a->action, "check") == 0 && a->name != NULL) {
        argp_error(state, "check takes no name; it checks everything");
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a ? &a->cli : NULL;
        return 0;
    case ARGP_KEY_ARG:
        if (a->action == NULL) {
            a->action = arg;
        } else if (a->name == NULL) {
            a->name = arg;
        } else {
            argp_error(state,
                       "'%s' is one argument too many (names with "
                       "spaces need quotes)",
                       arg);
        }
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "list, show, check or topo?");
        return 0;
    case ARGP_KEY_SUCCESS:
        check_args(a, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- show -------------------------------------------------------------------
 */

/* Index of the source among those seen so far; adds it when it is new. */
static size_t source_id(const char **sources, size_t *n, const char *source)
{
    for (size_t i = 0; i < *n; i++) {
        if (strcmp(sources[i], source) == 0) {
            return i + 1;
        }
    }
    sources[(*n)++] = source;
    return *n;
}

static void print_aliases(const char *aliases)
{
    for (const char *at = aliases; *at != '\0';) {
        size_t n = strcspn(at, ";");
        printf("%s%.*s%s", at == aliases ? "also: " : "", (int)n, at,
               at[n] == ';' ? ", " : "\n");
        at += n + (at[n] == ';');
    }
}

static void print_view(const struct mw_hw_view *v)
{
    const char **sources = mw_calloc(v->figures.n + 1, sizeof *sources);
    size_t n_sources = 0;
    printf("%s (%s)\n", v->name, v->slug);
    print_aliases(v->aliases);
    if (*v->note != '\0') {
        printf("note: %s\n", v->note);
    }
    printf("\n");
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "figure", false);
    mw_table_col(t, "value", true);
    mw_table_col(t, "confidence", false);
    mw_table_col(t, "source", true);
    for (size_t i = 0; i < v->figures.n; i++) {
        const struct mw_hw_figure *f = &v->figures.v[i];
        mw_table_row(t);
        mw_table_cell(t, "%s", f->name);
        mw_table_cell(t, "%s", f->value);
        mw_table_cell(t, "%s", f->confidence);
        mw_table_cell(t, "[%zu]", source_id(sources, &n_sources, f->source));
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("\n");
    for (size_t i = 0; i < n_sources; i++) {
        printf("[%zu] %s\n", i + 1, sources[i]);
    }
    mw_free(sources);
}

static json_t *names_json(const char *aliases)
{
    json_t *names = json_array();
    for (const char *at = aliases; *at != '\0';) {
        size_t n = strcspn(at, ";");
        json_array_append_new(names, json_stringn(at, n));
        at += n + (at[n] == ';');
    }
    return names;
}

static json_t *view_json(const struct mw_hw_view *v)
{
    json_t *o = json_object(), *figures = json_array();
    mw_json_set_str(o, "kind", v->kind);
    mw_json_set_str(o, "slug", v->slug);
    mw_json_set_str(o, "name", v->name);
    mw_json_set(o, "aliases", names_json(v->aliases));
    mw_json_set_str(o, "note", v->note);
    for (size_t i = 0; i < v->figures.n; i++) {
        const struct mw_hw_figure *f = &v->figures.v[i];
        json_t *figure = json_object();
        mw_json_set_str(figure, "name", f->name);
        mw_json_set(figure, "value", mw_hw_value_json(f->value, f->is_number));
        mw_json_set_str(figure, "confidence", f->confidence);
        mw_json_set_str(figure, "source", f->source);
        json_array_append_new(figures, figure);
    }
    mw_json_set(o, "figures", figures);
    return o;
}

static int show(const struct args *a, const struct mw_hwdb *db)
{
    struct mw_err err = {0};
    struct mw_hw_view view;
    if (mw_hw_view_make(db, a->name, &view, &err) != MW_OK) {
        err.status = MW_EUSAGE; /* the name is the command line's */
        return mw_cli_fail(&err);
    }
    int exit_status = 0;
    if (a->cli.json) {
        exit_status = mw_cli_print_json(view_json(&view));
    } else {
        print_view(&view);
    }
    mw_hw_view_release(&view);
    return exit_status;
}

/* ---- check ------------------------------------------------------------------
 */

static int check_failed(const struct args *a, const struct mw_err *err)
{
    if (a->cli.json) {
        json_t *o = json_object(), *findings = json_array();
        mw_json_set_bool(o, "ok", false);
        for (const char *at = err->text; *at != '\0';) {
            size_t n = strcspn(at, "\n");
            json_array_append_new(findings, json_stringn(at, n));
            at += n + (at[n] == '\n');
        }
        mw_json_set(o, "findings", findings);
        mw_cli_print_json(o);
    }
    return mw_cli_fail(err);
}

static int check_passed(const struct args *a, const struct mw_hwdb *db)
{
    size_t n_rows = 0, n_tables = 0, n_measured = 0;
    struct mw_err err = {0};
    if (mw_hwdb_measured_check(db, &n_measured, &err) != MW_OK) {
        return check_failed(a, &err);
    }
    for (size_t i = 0; mw_hwdb_table_name(i) != NULL; i++) {
        size_t n = mw_hwdb_table(db, mw_hwdb_table_name(i))->n_rows;
        n_rows += n;
        n_tables += n > 0;
    }
    if (!a->cli.json) {
        printf("%zu rows of %zu tables and %zu measured kernels checked\n",
               n_rows, n_tables, n_measured);
        return 0;
    }
    json_t *o = json_object();
    mw_json_set_bool(o, "ok", true);
    mw_json_set_int(o, "rows", (long long)n_rows);
    mw_json_set_int(o, "tables", (long long)n_tables);
    mw_json_set_int(o, "measured_kernels", (long long)n_measured);
    mw_json_set(o, "findings", json_array());
    return mw_cli_print_json(o);
}

int mw_verb_hw(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100}, {0}};
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "list [TABLE]\nshow NAME\ncheck\ntopo CLUSTER",
        .doc = doc,
        .children = children};
    if (argc > 1 && strcmp(argv[1], "topo") == 0) {
        static char name[] = "meshwright hw topo";
        argv[1] = name;
        return mw_hw_topo(argc - 1, argv + 1);
    }
    struct args a = {0};
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    bool is_check = strcmp(a.action, "check") == 0;
    if (mw_hwdb_load(a.cli.hwdb, &db, &err) != MW_OK) {
        return is_check ? check_failed(&a, &err) : mw_cli_fail(&err);
    }
    int exit_status = is_check ? check_passed(&a, db)
                      : strcmp(a.action, "show") == 0
                          ? show(&a, db)
                          : mw_hw_list(db, a.name, a.cli.json);
    mw_hwdb_free(db);
    return exit_status;
}
