/* Variants of stacks among the parameters; see the header. */
#include "hwdb/fit/fit_base.h"

#include "sim/cost/cost.h"

#include <string.h>

/* Behind FIGURE's dot; the end of the name where there is none. */
static const char *tail_of(const char *name)
{
    size_t n = strcspn(name, ".");

    return name + n + (name[n] == '.');
}

static bool is_stack(const char *tail)
{
    for (size_t i = 0; mw_stack_name(i) != NULL; i++) {
        if (strcmp(tail, mw_stack_name(i)) == 0) {
            return true;
        }
    }
    return false;
}

/* STACK or STACK-WORD. */
static bool is_of(const char *stack, const char *of)
{
    size_t n = strlen(of);

    return strncmp(stack, of, n) == 0 && (stack[n] == '\0' || stack[n] == '-');
}

size_t mw_fit_base_of(const struct mw_fit_param *param, size_t p, size_t k)
{
    const char *tail = tail_of(param[k].name);
    size_t head = (size_t)(tail - param[k].name), base = p, longest = 0;

    if (strncmp(param[k].name, "host_", 5) != 0 || !is_stack(tail)) {
        return p;
    }
    for (size_t o = 0; o < p; o++) {
        const char *other = tail_of(param[o].name);

        if (o != k && strncmp(param[o].name, param[k].name, head) == 0 &&
            is_stack(other) && is_of(tail, other) && strlen(other) > longest) {
            base = o;
            longest = strlen(other);
        }
    }
    return base;
}

bool mw_fit_reaches(const char *name, const char *stack)
{
    const char *tail = tail_of(name);

    return !is_stack(tail) || is_of(stack, tail);
}
