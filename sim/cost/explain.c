/*
 * Explanation nodes: a cost function that is asked to explain hangs a child
 * with name, formula and source under the node it was given. Printing draws
 * the tree with times and shares of the parent. Nodes live in the arena of
 * their root; texts that are built per node live there as well.
 */
#include "sim/cost/explain.h"

#include "base/units.h"

struct mw_explain *mw_explain_child(struct mw_explain *parent, const char *name,
                                    double value_s, const char *formula,
                                    const char *source)
{
    if (parent == NULL) {
        return NULL;
    }
    struct mw_explain *child = mw_arena_alloc(parent->arena, 1, sizeof *child);

    *child = (struct mw_explain){.name = name,
                                 .formula = formula,
                                 .source = source,
                                 .value_s = value_s,
                                 .count = 1,
                                 .arena = parent->arena};
    if (parent->last_child == NULL) {
        parent->first_child = child;
    } else {
        parent->last_child->next = child;
    }
    parent->last_child = child;
    return child;
}

static void print_node(const struct mw_explain *node, double parent_s,
                       int depth, int max_depth, FILE *f)
{
    char text[MW_FMT_MAX];
    double total_s = node->value_s * node->count;

    fprintf(f, "%*s%s: %s", 2 * depth, "", node->name,
            mw_fmt_seconds(node->value_s, text));
    if (node->count > 1 || node->count < 1) {
        fprintf(f, " x %.10g", node->count);
    }
    if (parent_s > 0) {
        fprintf(f, " (%.1f %%)", 100 * total_s / parent_s);
    }
    if (node->bound != NULL) {
        fprintf(f, ", %s", node->bound);
    }
    if (node->formula != NULL) {
        fprintf(f, " = %s", node->formula);
    }
    if (node->source != NULL) {
        fprintf(f, " [%s]", node->source);
    }
    fputc('\n', f);
    if (depth >= max_depth) {
        return;
    }
    for (const struct mw_explain *c = node->first_child; c != NULL;
         c = c->next) {
        print_node(c, node->value_s, depth + 1, max_depth, f);
    }
}

void mw_explain_print(const struct mw_explain *root, int max_depth, FILE *f)
{
    if (root != NULL) {
        print_node(root, 0, 0, max_depth, f);
    }
}
