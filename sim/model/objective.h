/*
 * What a plan makes small: goals in order. The first is made as small as it can
 * be; among plans within so much of that, the second; and so on.
 *
 *   objective: memory
 *   objective: [step_time within 2 %, memory]
 */
#ifndef MW_SIM_MODEL_OBJECTIVE_H
#define MW_SIM_MODEL_OBJECTIVE_H

#include "base/err.h"
#include "base/yaml.h"

enum mw_goal {
    MW_GOAL_STEP_TIME,
    MW_GOAL_TOKENS_PER_GPU, /* tokens per second and GPU, made large */
    MW_GOAL_COST,           /* money per token */
    MW_GOAL_ENERGY,         /* energy per token */
    MW_GOAL_GPUS,           /* GPUs used; with a deadline: that are needed */
    MW_GOAL_MEMORY,         /* peak of the fullest rank: the least headroom */
    MW_GOAL_COUNT
};
/* "step_time", "tokens_per_s_per_gpu", "cost_per_token", "energy_per_token",
 * "gpus", "memory". */
const char *mw_goal_name(enum mw_goal goal);

struct mw_objective {
    struct {
        enum mw_goal goal;
        double within; /* plans up to (1 + within) times the least stay */
    } v[MW_GOAL_COUNT];
    int n; /* 1 or more */
};

/* One goal, "NAME" or "NAME within X %", behind those that *out has. MW_EUSAGE
 * for another word, a part below 0, or a goal that it has already. */
enum mw_status mw_objective_add(struct mw_objective *out, const char *text,
                                struct mw_err *err);
/* Goals separated by commas, into *out, which is emptied first. */
enum mw_status mw_objective_parse(const char *text, struct mw_objective *out,
                                  struct mw_err *err);
/* A word or a sequence of them; NULL: step_time. MW_EINPUT with the place. */
enum mw_status mw_objective_read(struct mw_node *node, struct mw_objective *out,
                                 struct mw_err *err);
/* The only goal, of one. */
bool mw_objective_is(const struct mw_objective *objective, enum mw_goal goal);
/* Is any of its goals one that other numbers of GPUs may serve better? */
bool mw_objective_needs_nodes(const struct mw_objective *objective);

#endif
