/* `meshwright hw topo`: a system or cluster drawn as text or for Graphviz. */
#include "cli/cli.h"
#include "cli/verb_hw.h"

#include "sim/net/topology.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct topo_args {
    struct mw_cli cli;
    const char *cluster;
    bool is_dot;
};

enum { OPT_DOT = 0x2200, DOT_NODES_MAX = 8 };

static const struct argp_option options[] = {
    {"dot", OPT_DOT, NULL, 0, "Print a graph for Graphviz (dot -Tsvg)", 0},
    {0}};

static const char doc[] =
    "Draws a cluster: nodes, links, NICs and what a message crosses.\v"
    "Examples:\n"
    "  meshwright hw topo dgx-h100\n"
    "  meshwright hw topo \"dgx-h100 x 64, rail, leaf 32, oversub 2\"\n"
    "  meshwright hw topo \"dgx-h100 x 2 + dgx-a100 x 2\" --dot | dot -Tsvg\n\n"
    "Words: one-switch rail fat-tree dragonfly, leaf N, spines N, group N, "
    "oversub F, dmodk, ecmp, pxn.\n"
    "Exit status: 0 done; 2 usage or an unknown name.";

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct topo_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a != NULL ? &a->cli : NULL;
        return 0;
    case OPT_DOT:
        a->is_dot = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->cluster) {
            argp_error(state, "one cluster; quote it: \"dgx-h100 x 4, rail\"");
        }
        a->cluster = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which system or cluster?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int print_json(const struct mw_topology *t)
{
    json_t *o = json_object(), *links = json_array();
    mw_json_set_int(o, "nodes", mw_topology_nodes(t));
    mw_json_set_int(o, "gpus", mw_topology_gpus(t));
    for (size_t l = 0; l < mw_topology_links(t); l++) {
        char name[64];
        json_t *link = json_object();
        mw_json_set_str(link, "name", mw_topology_link_name(t, l, name));
        mw_json_set_real(link, "capacity_Bps", mw_topology_capacity(t)[l]);
        json_array_append_new(links, link);
    }
    mw_json_set(o, "links", links);
    return mw_cli_print_json(o);
}

static enum mw_status show(const struct topo_args *a, const struct mw_hwdb *db,
                           int *out_rc, struct mw_err *err)
{
    struct mw_topology_spec spec;
    struct mw_topology *t = NULL;
    struct mw_str text = {NULL, 0, 0};
    enum mw_status s = mw_topology_parse(db, a->cluster, &spec, err);
    if (s == MW_OK) {
        s = mw_topology_new(&spec, &t, err);
    }
    if (s != MW_OK) {
        return MW_EUSAGE; /* the description stands on the command line */
    }
    const char *wrong = mw_topology_check(t);
    if (wrong) {
        s = mw_fail(err, MW_EINPUT, "%s: %s", a->cluster, wrong);
    } else if (a->cli.json) {
        *out_rc = print_json(t);
    } else if (a->is_dot) {
        mw_topology_dot(t, DOT_NODES_MAX, &text);
    } else {
        mw_topology_text(t, &text);
    }
    if (text.s) {
        fputs(text.s, stdout);
    }
    mw_str_release(&text);
    mw_topology_free(t);
    return s;
}

int mw_hw_topo(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "CLUSTER",
                                     .doc = doc,
                                     .children = children};
    struct topo_args a = {.cluster = NULL};
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    int rc = 0;
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    enum mw_status s = mw_hwdb_load(a.cli.hwdb, &db, &err);
    if (s == MW_OK) {
        s = show(&a, db, &rc, &err);
        mw_hwdb_free(db);
    }
    if (s != MW_OK) {
        err.status = s;
        return mw_cli_fail(&err);
    }
    return rc;
}
