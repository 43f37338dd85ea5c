/*
 * Conditions of legality rules as text: "vpp > 1 -> microbatches % pp == 0".
 *
 *   ->   implies (right to left)      || && !      == != < <= > >=
 *   + - * / %  over 64-bit integers; a division by 0 gives 0
 *   lcm(a, b)  'text' (the id of a name)  numbers, names, ( )
 *
 * A condition is compiled once into a list of steps and evaluated on an array
 * of values. Private to planner/.
 */
#ifndef MW_PLANNER_RULE_EXPR_H
#define MW_PLANNER_RULE_EXPR_H

#include "base/err.h"

#include <stdint.h>

enum { MW_RULE_STEPS_MAX = 96, MW_RULE_STACK_MAX = 24 };

struct mw_rule_step {
    uint8_t op;
    int64_t value; /* a constant, or the index of a name */
};
struct mw_rule_code {
    struct mw_rule_step step[MW_RULE_STEPS_MAX];
    int n;
};

/* What names and quoted texts mean; -1: unknown. */
struct mw_rule_names {
    int (*name_index)(const char *name, int len);
    int64_t (*text_id)(const char *text, int len);
};

/* MW_EINPUT with the place in the text. */
enum mw_status mw_rule_compile(const char *text,
                               const struct mw_rule_names *names,
                               struct mw_rule_code *out, struct mw_err *err);
int64_t mw_rule_eval(const struct mw_rule_code *code, const int64_t *values);

#endif
