/*
 * A shard's part as a file: YAML by hand, the keys of a layout by the one table
 * that plans are read by, so that what is added there is written here.
 */
#include "planner/search_shards.h"

#include "base/file.h"
#include "base/yaml.h"

#include <inttypes.h>
#include <string.h>

static void add_quoted(struct mw_str *text, const char *s)
{
    mw_str_add(text, "\"");
    for (; *s != '\0'; s++) {
        mw_str_addf(text, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
    }
    mw_str_add(text, "\"");
}

static void add_words(struct mw_str *text, const struct mw_enum *e, int bits)
{
    const char *between = "";

    mw_str_add(text, "[");
    for (; e->name; e++) {
        if ((bits & e->value) != 0) {
            mw_str_addf(text, "%s%s", between, e->name);
            between = ", ";
        }
    }
    mw_str_add(text, "]");
}

static const char *word_of(const struct mw_enum *e, int value)
{
    while (e->name && e->value != value) {
        e++;
    }
    return e->name ? e->name : "";
}

/* An empty list is none. */
static void add_ints(struct mw_str *text, const char *key,
                     const struct mw_int_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        if (i == 0) {
            mw_str_addf(text, ", %s: [", key);
        }
        mw_str_addf(text, "%s%lld", i > 0 ? ", " : "", (long long)list->v[i]);
    }
    mw_str_add(text, list->n > 0 ? "]" : "");
}

/* One key of a layout; no bits and no words are left out. */
static void add_key(struct mw_str *text, const struct mw_field *f,
                    const void *at)
{
    switch (f->type) {
    case MW_F_INT32:
        mw_str_addf(text, ", %s: %d", f->key, *(const int *)at);
        break;
    case MW_F_BOOL:
        mw_str_addf(text, ", %s: %s", f->key,
                    *(const bool *)at ? "true" : "false");
        break;
    case MW_F_NUM:
        mw_str_addf(text, ", %s: %.17g", f->key, *(const double *)at);
        break;
    case MW_F_STR:
        mw_str_addf(text, ", %s: ", f->key);
        add_quoted(text, *(const char *const *)at);
        break;
    case MW_F_ENUM:
        if (*word_of(f->enums, *(const int *)at) != '\0') {
            mw_str_addf(text, ", %s: %s", f->key,
                        word_of(f->enums, *(const int *)at));
        }
        break;
    case MW_F_FLAGS:
        if (*(const int *)at != 0) {
            mw_str_addf(text, ", %s: ", f->key);
            add_words(text, f->enums, *(const int *)at);
        }
        break;
    case MW_F_INT_LIST:
        add_ints(text, f->key, at);
        break;
    case MW_F_INT:
    case MW_F_QTY:
    case MW_F_FLAGS_LIST:
    case MW_F_NUM_LIST:
    case MW_F_STR_LIST:
    case MW_F_MAP:
    case MW_F_NODE:
        MW_ASSERT(false, "key %s of a layout", f->key);
    }
}

static void add_plan(struct mw_str *text, const struct mw_candidate *c)
{
    mw_str_addf(text,
                "      - {id: %" PRIu64 ", bound_s: %.17g, step_time_s: %.17g, "
                "peak_bytes: %.17g, mfu: %.17g,\n         layers: [",
                c->id, c->bound_s, c->step_time_s, c->peak_bytes, c->mfu);
    for (int k = 0; k < c->layout.pp * c->layout.vpp; k++) {
        mw_str_addf(text, "%s%d", k > 0 ? ", " : "", c->layers[k]);
    }
    mw_str_add(text, "],\n         layout: {");
    struct mw_str keys = {0};

    for (const struct mw_field *f = mw_layout_fields; f->key; f++) {
        add_key(&keys, f, (const char *)&c->layout + f->offset);
    }
    mw_str_addf(text, "%s}}\n", keys.s + strlen(", "));
    mw_str_release(&keys);
}

void mw_shard_begin(struct mw_shard_part *part,
                    const struct mw_shard_head *head)
{
    part->text = (struct mw_str){0};
    mw_str_addf(
        &part->text,
        "# meshwright plan, a part of a search: meshwright plan --merge "
        "joins them\nformat: %d\nshard: %d\nshards: %d\n"
        "question: \"%016" PRIx64 "\"\nusable_bytes: %.17g\ntop: %d\n"
        "searches:\n",
        MW_SHARD_FORMAT, head->shard, head->n_shards, head->question,
        head->usable_bytes, head->top);
}

static void add_reasons(struct mw_str *text, const struct mw_search_result *r)
{
    mw_str_addf(text, "    reasons:%s\n", r->n_reasons > 0 ? "" : " []");
    for (int i = 0; i < r->n_reasons; i++) {
        const struct mw_reason *reason = &r->reasons[i];

        mw_str_addf(text,
                    "      - {rule: %s, count: %" PRIu64 ", miss: %.17g, ",
                    reason->rule, reason->count, reason->miss);
        mw_str_add(text, "nearest: ");
        add_quoted(text, reason->nearest);
        mw_str_add(text, "}\n");
    }
}

void mw_shard_add(struct mw_shard_part *part, int domain_nodes,
                  const struct mw_search_result *r)
{
    struct mw_str *text = &part->text;

    mw_str_addf(text,
                "  - domain_nodes: %d\n    enumerated: %" PRIu64
                "\n    evaluated: %" PRIu64 "\n    simulated: %" PRIu64
                "\n    complete: %s\n    layers_proved: %s\n"
                "    gap: %.17g\n    wall_time_s: %.17g\n",
                domain_nodes, r->enumerated, r->evaluated, r->simulated,
                r->is_complete ? "true" : "false",
                r->layers_proved ? "true" : "false", r->gap, r->wall_time_s);
    add_reasons(text, r);
    mw_str_addf(text, "    plans:%s\n", r->n_plans > 0 ? "" : " []");
    for (size_t i = 0; i < r->n_plans; i++) {
        add_plan(text, &r->plans[i]);
    }
}

enum mw_status mw_shard_end(struct mw_shard_part *part, const char *path,
                            struct mw_err *err)
{
    struct mw_outfile o;
    enum mw_status status = mw_outfile_open(&o, path, err);

    if (status == MW_OK) {
        fputs(part->text.s, o.f);
        status = mw_outfile_commit(&o, err);
    }
    mw_str_release(&part->text);
    return status;
}
