/* Words of `objective:` and --objective: see objective.h. */
#include "sim/model/objective.h"

#include "base/units.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 120 };

static const char *const names[MW_GOAL_COUNT] = {
    [MW_GOAL_STEP_TIME] = "step_time",
    [MW_GOAL_TOKENS_PER_GPU] = "tokens_per_s_per_gpu",
    [MW_GOAL_COST] = "cost_per_token",
    [MW_GOAL_ENERGY] = "energy_per_token",
    [MW_GOAL_GPUS] = "gpus",
    [MW_GOAL_MEMORY] = "memory"};

const char *mw_goal_name(enum mw_goal goal)
{
    return names[goal];
}

/* Copies without blanks at the ends; false when it is too long. */
static bool trim(const char *text, size_t n, char out[TEXT_MAX])
{
    while (n > 0 && isspace((unsigned char)*text)) {
        text++;
        n--;
    }
    while (n > 0 && isspace((unsigned char)text[n - 1])) {
        n--;
    }
    if (n >= TEXT_MAX) {
        return false;
    }
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

/* "2 %", "2%" or "0.02" to a part. */
static bool parse_part(const char *text, double *out)
{
    char number[TEXT_MAX];
    size_t n = strlen(text);
    bool is_percent = n > 0 && text[n - 1] == '%';

    if (!trim(text, n - is_percent, number) ||
        mw_double_parse(number, out, NULL) != MW_OK) {
        return false;
    }
    *out /= is_percent ? 100 : 1;
    return *out >= 0 && *out <= 100;
}

static enum mw_status add(struct mw_objective *out, const char *text, size_t n,
                          struct mw_err *err)
{
    char word[TEXT_MAX] = "";
    char *part = NULL;
    double within = 0;
    int goal = 0;

    if (trim(text, n, word) && (part = strstr(word, " within ")) != NULL) {
        *part = '\0';
        part += strlen(" within ");
    }
    while (goal < MW_GOAL_COUNT && strcmp(word, names[goal]) != 0) {
        goal++;
    }
    if (goal == MW_GOAL_COUNT) {
        return mw_fail(err, MW_EUSAGE,
                       "'%.*s' is no goal; step_time, tokens_per_s_per_gpu, "
                       "cost_per_token, energy_per_token, gpus or memory, each "
                       "perhaps with 'within 2 %%'",
                       (int)n, text);
    }
    if (part != NULL && !parse_part(part, &within)) {
        return mw_fail(err, MW_EUSAGE,
                       "'%s within %s': no part of 0 or more, such as 2 %% or "
                       "0.02",
                       word, part);
    }
    for (int i = 0; i < out->n; i++) {
        if ((int)out->v[i].goal == goal) {
            return mw_fail(err, MW_EUSAGE, "goal %s is named twice", word);
        }
    }
    out->v[out->n].goal = (enum mw_goal)goal;
    out->v[out->n++].within = within;
    return MW_OK;
}

enum mw_status mw_objective_add(struct mw_objective *out, const char *text,
                                struct mw_err *err)
{
    return add(out, text, strlen(text), err);
}

enum mw_status mw_objective_parse(const char *text, struct mw_objective *out,
                                  struct mw_err *err)
{
    struct mw_objective made = {.n = 0};
    enum mw_status status = MW_OK;

    for (const char *at = text; status == MW_OK;) {
        size_t n = strcspn(at, ",");

        status = add(&made, at, n, err);
        if (at[n] == '\0') {
            break;
        }
        at += n + 1;
    }
    if (status == MW_OK) {
        *out = made;
    }
    return status;
}

enum mw_status mw_objective_read(struct mw_node *node, struct mw_objective *out,
                                 struct mw_err *err)
{
    bool is_list = node != NULL && mw_node_kind(node) == MW_NODE_SEQ;
    size_t n = is_list ? mw_node_count(node) : node != NULL;

    *out = (struct mw_objective){.n = 0};
    for (size_t i = 0; i < n; i++) {
        struct mw_node *item = is_list ? mw_node_item(node, i) : node;
        struct mw_err why = {0};

        if (mw_node_kind(item) != MW_NODE_SCALAR) {
            return mw_node_fail(item, err,
                                "objective is a goal or a list of goals, such "
                                "as [step_time within 2 %%, memory]");
        }
        if (mw_objective_add(out, mw_node_text(item), &why) != MW_OK) {
            return mw_node_fail(item, err, "objective: %s", why.text);
        }
    }
    if (node != NULL && n == 0) {
        return mw_node_fail(node, err,
                            "objective names no goal; for example step_time");
    }
    if (node == NULL) {
        return mw_objective_add(out, names[MW_GOAL_STEP_TIME], err);
    }
    return MW_OK;
}

bool mw_objective_is(const struct mw_objective *objective, enum mw_goal goal)
{
    return objective->n == 1 && objective->v[0].goal == goal;
}

bool mw_objective_needs_nodes(const struct mw_objective *objective)
{
    for (int i = 0; i < objective->n; i++) {
        if (objective->v[i].goal != MW_GOAL_STEP_TIME &&
            objective->v[i].goal != MW_GOAL_MEMORY) {
            return true;
        }
    }
    return false;
}
