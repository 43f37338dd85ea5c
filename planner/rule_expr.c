/*
 * Recursive descent, one function a level of precedence, to a list of stack
 * steps. Both sides of && and || are evaluated: they have no effects, and a
 * division by zero is harmless.
 */
#include "planner/rule_expr.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum {
    OP_CONST,
    OP_NAME,
    OP_IMPLIES,
    OP_OR,
    OP_AND,
    OP_EQ,
    OP_NE,
    OP_LE,
    OP_GE,
    OP_LT,
    OP_GT,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_MOD,
    OP_LCM,
    OP_NOT,
    OP_NEG
};

struct reader {
    const char *text, *at;
    const struct mw_rule_names *names;
    struct mw_rule_code *code;
    struct mw_err *err;
    int depth; /* of the value stack */
    bool is_bad;
};

static void fail(struct reader *r, const char *what)
{
    if (!r->is_bad) {
        mw_fail(r->err, MW_EINPUT, "condition '%s': %s at '%s'", r->text, what,
                r->at);
    }
    r->is_bad = true;
}

static void emit(struct reader *r, int op, int64_t value)
{
    r->depth += op <= OP_NAME ? 1 : op < OP_NOT ? -1 : 0;
    if (r->code->n == MW_RULE_STEPS_MAX || r->depth > MW_RULE_STACK_MAX) {
        fail(r, "too long");
        return;
    }
    r->code->step[r->code->n++] = (struct mw_rule_step){(uint8_t)op, value};
}

static void skip_space(struct reader *r)
{
    while (*r->at == ' ') {
        r->at++;
    }
}

static bool take(struct reader *r, const char *token)
{
    size_t n = strlen(token);

    skip_space(r);
    if (strncmp(r->at, token, n) != 0) {
        return false;
    }
    r->at += n;
    return true;
}

static void read_all(struct reader *r);

static void read_number(struct reader *r)
{
    int64_t v = 0;

    for (; isdigit((unsigned char)*r->at); r->at++) {
        v = 10 * v + (*r->at - '0');
    }
    emit(r, OP_CONST, v);
}

static void read_text(struct reader *r)
{
    const char *end = strchr(r->at, '\'');
    int64_t id = end ? r->names->text_id(r->at, (int)(end - r->at)) : -1;

    if (id < 0) {
        fail(r, "unknown text");
        return;
    }
    emit(r, OP_CONST, id);
    r->at = end + 1;
}

static void read_name(struct reader *r)
{
    int n = 0;

    while (islower((unsigned char)r->at[n]) || r->at[n] == '_') {
        n++;
    }
    int index = n > 0 ? r->names->name_index(r->at, n) : -1;

    if (index < 0) {
        fail(r, "unknown name");
        return;
    }
    r->at += n;
    emit(r, OP_NAME, index);
}

static void read_atom(struct reader *r)
{
    skip_space(r);
    if (take(r, "(")) {
        read_all(r);
        if (!take(r, ")")) {
            fail(r, "')' is missing");
        }
    } else if (take(r, "lcm(")) {
        read_all(r);
        if (!take(r, ",")) {
            fail(r, "lcm takes two values");
            return;
        }
        read_all(r);
        if (!take(r, ")")) {
            fail(r, "lcm takes two values");
        }
        emit(r, OP_LCM, 0);
    } else if (take(r, "'")) {
        read_text(r);
    } else if (isdigit((unsigned char)*r->at)) {
        read_number(r);
    } else {
        read_name(r);
    }
}

static void read_unary(struct reader *r)
{
    skip_space(r);
    if (*r->at == '!' && r->at[1] != '=') {
        r->at++;
        read_unary(r);
        emit(r, OP_NOT, 0);
    } else if (*r->at == '-' && r->at[1] != '>') {
        r->at++;
        read_unary(r);
        emit(r, OP_NEG, 0);
    } else {
        read_atom(r);
    }
}

/* Left to right over the operators of one level. */
struct level {
    const char *token;
    int op;
};

static int take_one(struct reader *r, const struct level *level, int n)
{
    skip_space(r);
    for (int i = 0; i < n; i++) {
        bool is_arrow = r->at[0] == '-' && r->at[1] == '>';

        if (!is_arrow && take(r, level[i].token)) {
            return level[i].op;
        }
    }
    return -1;
}

static void read_product(struct reader *r)
{
    static const struct level level[] = {
        {"*", OP_MUL}, {"/", OP_DIV}, {"%", OP_MOD}};

    read_unary(r);
    for (int op; !r->is_bad && (op = take_one(r, level, 3)) >= 0;) {
        read_unary(r);
        emit(r, op, 0);
    }
}

static void read_sum(struct reader *r)
{
    static const struct level level[] = {{"+", OP_ADD}, {"-", OP_SUB}};

    read_product(r);
    for (int op; !r->is_bad && (op = take_one(r, level, 2)) >= 0;) {
        read_product(r);
        emit(r, op, 0);
    }
}

static void read_comparison(struct reader *r)
{
    static const struct level level[] = {{"==", OP_EQ}, {"!=", OP_NE},
                                         {"<=", OP_LE}, {">=", OP_GE},
                                         {"<", OP_LT},  {">", OP_GT}};

    read_sum(r);
    int op = take_one(r, level, 6);

    if (op >= 0) {
        read_sum(r);
        emit(r, op, 0);
    }
}

static void read_and(struct reader *r)
{
    read_comparison(r);
    while (!r->is_bad && take(r, "&&")) {
        read_comparison(r);
        emit(r, OP_AND, 0);
    }
}

static void read_or(struct reader *r)
{
    read_and(r);
    while (!r->is_bad && take(r, "||")) {
        read_and(r);
        emit(r, OP_OR, 0);
    }
}

static void read_all(struct reader *r)
{
    read_or(r);
    if (!r->is_bad && take(r, "->")) {
        read_all(r);
        emit(r, OP_IMPLIES, 0);
    }
}

enum mw_status mw_rule_compile(const char *text,
                               const struct mw_rule_names *names,
                               struct mw_rule_code *out, struct mw_err *err)
{
    struct reader r = {
        .text = text, .at = text, .names = names, .code = out, .err = err};

    out->n = 0;
    read_all(&r);
    skip_space(&r);
    if (!r.is_bad && *r.at != '\0') {
        fail(&r, "nothing is expected");
    }
    return r.is_bad ? MW_EINPUT : MW_OK;
}

static int64_t lcm(int64_t a, int64_t b)
{
    int64_t x = a, y = b;

    while (y != 0) {
        int64_t rest = x % y;

        x = y;
        y = rest;
    }
    return x != 0 ? a / x * b : 0;
}

static int64_t apply(int op, int64_t a, int64_t b)
{
    switch (op) {
    case OP_IMPLIES:
        return !a || b;
    case OP_OR:
        return a || b;
    case OP_AND:
        return a && b;
    case OP_EQ:
        return a == b;
    case OP_NE:
        return a != b;
    case OP_LE:
        return a <= b;
    case OP_GE:
        return a >= b;
    case OP_LT:
        return a < b;
    case OP_GT:
        return a > b;
    case OP_ADD:
        return a + b;
    case OP_SUB:
        return a - b;
    case OP_MUL:
        return a * b;
    case OP_DIV:
        return b != 0 ? a / b : 0;
    case OP_MOD:
        return b != 0 ? a % b : 0;
    case OP_LCM:
        return lcm(a, b);
    default:
        break;
    }
    MW_ASSERT(false, "operator %d", op);
    return 0;
}

int64_t mw_rule_eval(const struct mw_rule_code *code, const int64_t *values)
{
    int64_t stack[MW_RULE_STACK_MAX];
    int n = 0;

    for (int i = 0; i < code->n; i++) {
        const struct mw_rule_step *s = &code->step[i];

        if (s->op == OP_CONST) {
            stack[n++] = s->value;
        } else if (s->op == OP_NAME) {
            stack[n++] = values[s->value];
        } else if (s->op == OP_NOT) {
            stack[n - 1] = !stack[n - 1];
        } else if (s->op == OP_NEG) {
            stack[n - 1] = -stack[n - 1];
        } else {
            n--;
            stack[n - 1] = apply(s->op, stack[n - 1], stack[n]);
        }
    }
    return stack[0];
}
