/*
 * Eight ranks: every gradient, the loss, memory and traffic of plans that mix
 * all dimensions, each against one rank. What the list must have is counted at
 * the end; under sanitizers only what begins with '*' runs.
 */
#include "matrix.h"

#include "sim/pipe/schedule.h"

#include <stdio.h>
#include <string.h>

static struct mw_comm *world;

/* clang-format off */
static const char *const tensor_and_data[] = {
    "*gpt tp8", "gpt tp4 pp2", "*gpt tp2 pp2 dp2", "gpt pp4 dp2", "gpt dp8",
    "gpt tp4 sp pp2",               /* own rows begin inside a sequence */
    "gpt dp8 zero1", "gpt tp2 pp2 dp2 zero1 mb2",
    "*gpt tp2 sp pp2 dp2 zero1 mb2 full",
    "llama tp4 pp2", "llama pp8", "llama dp8 zero3",
    "*llama tp2 sp pp2 dp2 zero3", "llama tp2 sp dp4 zero2 selective",
    "*llama tp2 sp pp2 dp2 zero1 offload60", "gpt pp8 zb-h1 offload100",
    "llama dp8 zero3 offload50 mb2",
    "*llama dp8 zero3 shard4", "gpt pp2 dp4 zero1 shard2",
    "llama tp2 sp dp4 zero2 shard2 selective", "llama dp8 zero3 shard2 kept",
    "*gpt tp2 sp pp2 dp2 full first1", "llama pp4 x2 dp2 zb-v full first1",
    "llama pp2 cp2 dp2 selective first2 zero3",
    "llama cp2 a2a pp2 dp2 selective first1", "moe pp2 dp4 ep4 full first2",
};
static const char *const tied[] = {
    "gpt dp8 zero2", "*gpt dp8 zero3", "gpt pp2 dp4 zero2 mb2",
    "*gpt tp2 sp pp2 dp2 zero3", "gpt pp4 dp2 zero3 selective",
    "gpt pp4 x2 dp2 zero3 zb-v", "gpt pp4 x2 dp2 zero2 interleaved-1f1b",
    "*gpt pp4 dp2 zero3 dualpipe", "gpt pp2 dp4 zero3 shard2 kept",
    "gpt dp8 zero2 shard4", "gpt cp2 a2a pp2 dp2 zero3", "gpt cp8 zero3 ring",
    "gpt tp2 pp2 dp2 zero3 lora4", "gpt dp8 zero3 lora4",
    "gpt tp4 pp2 zero3 offload50", "gpt pp4 dp2 zero2 zb-h1 full first1",
};
static const char *const schedules[] = {
    "gpt pp8 gpipe", "gpt pp8 gpipe-lifo", "gpt pp8 1f1b", "gpt pp8 eager-1f1b",
    "*gpt pp8 zb-h1", "gpt pp8 zb-h2 full", "gpt pp8 zb-h2", "gpt pp8 zb-auto",
    "gpt pp8 bare", "llama pp4 x2 dp2 zb-v bare",
    "gpt pp8 dualpipe", "gpt pp8 chimera",
    "gpt pp4 dp2 zero1 dualpipe", "*llama pp4 dp2 zero3 dualpipe",
    "llama pp4 dp2 zero2 chimera", "llama pp2 dp4 zero2 shard2 dualpipe",
    "llama pp4 x2 dp2 zero3 kept zb-v",
    "gpt pp8 seq1f1b", "*llama tp2 sp pp4 mb2 seq1f1b",
    "*gpt tp2 pp4 x2 interleaved-1f1b", "gpt tp2 pp4 x2 looped-bfs",
    "gpt tp2 pp4 x2 interleaved-zb", "gpt tp2 pp4 x2 zb-v",
    "gpt tp2 pp4 x2 v-half", "gpt tp2 pp4 x2 v-min", "gpt tp2 pp4 x2 1f1b-v",
    "gpt tp2 pp4 x2 zbv-auto", "gpt tp2 pp4 x2 dualpipev",
    "gpt tp2 pp4 x2 hanayo",
    "gpt pp4 x2 dp2 zb-v", "llama pp4 x2 dp2 zero2 zb-v",
    "llama tp2 sp pp4 x2 zb-v full", "llama pp8 zb-h1 selective",
};
static const char *const context[] = {
    "gpt cp8", "gpt tp2 sp cp2 pp2 mb2", "*llama cp2 pp2 dp2 zero3 selective",
    "llama tp2 cp4 full",
    "gpt cp8 ring", "*gpt tp2 sp cp2 ring pp2 mb2",
    "llama cp4 ring dp2 zero3 full", "llama cp2 ring pp4 zb-h2",
    "gpt cp8 a2a", "*llama tp2 sp cp2 a2a pp2 mb2 zb-h1 full",
    "*llama tp2 sp pp2 dp2 mb2 doc4", "gpt cp2 a2a pp4 mb2 doc8 selective",
    "*llama cp8 passq", "gpt cp4 passq pp2 mb2 selective", "llama cp2 passq pp4 zb-h1",
    "llama tp2 sp cp4 passq full", "gpt cp8 inner2 passq",
    "*llama cp8 inner2 ring", "gpt cp8 inner4 ring mb2", "gpt cp8 inner2",
    "llama tp2 sp cp4 inner2 selective", "*llama cp4 inner2 ring dp2 zero3 full",
    "llama cp4 inner2 pp2 zb-h1 selective first2", "moe cp4 inner2 ring dp2 ep4",
    "moe cp4 a2a dp2 ep4", "llama cp2 a2a pp2 dp2 zero2 selective",
};
static const char *const experts[] = {
    "moe pp2 dp4 ep4", "moe tp2 sp pp2 dp2 ep4 mb2", "moe tp2 sp cp2 dp2 ep2",
    "moe tp2 sp dp4 zero3", "*moe tp2 sp dp4 ep2 etp2 zero1",
    "moe tp2 sp pp2 dp2 etp4 mb2", "moe cp2 dp4 ep2 etp2 zero2",
    "moe tp2 sp dp4 ep4 zero3", "moe pp4 x2 dp2 ep2 zb-v full",
    "moe pp8 zb-h1", "*shared tp2 sp pp2 dp2 ep2 zero1",
    "moe tp2 sp dp4 ep2 zero2 shard2", "moe dp8 ep2 etp2 zero1 shard4",
    "shared pp4 dp2 ep2 full", "moe pp4 dp2 ep2 zero3 dualpipe",
    "*moe pp2 dp4 ep2 zero3 kept",
};
static const char *const by_stage[] = {
    "*gpt pp4 dp2 full bystage", "llama tp2 sp pp2 x2 dp2 interleaved-1f1b selective bystage",
    "*moe pp4 x2 dp2 ep2 zb-v full bystage", "llama cp2 a2a pp4 selective bystage",
    "llama pp4 dp2 zero1 dualpipe full bystage", "gpt pp4 dp2 zb-h1 full bystage",
};
static const char *const adapters[] = {
    "gpt tp2 pp2 dp2 lora4", "*llama tp2 sp pp2 dp2 zero3 lora4",
    "llama cp4 ring dp2 lora4 attention", "gpt pp8 zb-h1 lora4 full",
    "*moe tp2 sp dp4 ep4 zero2 lora4", "gpt pp4 dp2 zero1 dualpipe lora4",
    "moe tp2 sp dp4 ep2 zero1 lora4 offload100",
};
static const char *const buckets[] = {
    "*gpt dp8 bucket5000", "gpt tp2 sp pp2 dp2 zero1 bucket3001 mb2",
    "*llama dp8 zero1 bucket4096", "llama pp2 dp4 zero1 shard2 bucket2000",
    "llama pp2 cp2 dp2 bucket7000 offload50", "llama dp8 zero1 bucket777",
    "*moe tp2 sp dp4 ep2 zero1 bucket1500", "moe pp4 x2 dp2 ep2 zb-v bucket3000",
    "gpt pp4 dp2 zero1 dualpipe bucket2500", "gpt tp2 dp4 zero1 lora4 bucket100",
    "gpt dp8 zero1 bucket100000000", "gpt dp8 bucket30000",
};
static const char *const units[] = {
    "*llama dp8 zero3 unit2", "llama dp8 zero3 unit8 offload50 mb2",
    "llama pp2 dp4 zero3 unit3 full", "gpt pp2 x2 dp4 zero3 unit2 interleaved-1f1b",
    "llama pp4 dp2 zero3 unit2 dualpipe",
    "gpt tp2 sp pp2 dp2 zero3 unit2 selective zb-h1", "*moe tp2 sp dp4 ep2 zero3 unit3",
    "gpt pp2 dp4 zero3 shard2 kept unit2", "gpt dp8 zero3 unit4 lora4",
};
/* clang-format on */

struct list {
    const char *const *v;
    size_t n;
};
#define LIST(a)                                                                \
    {                                                                          \
        (a), sizeof(a) / sizeof *(a)                                           \
    }
static const struct list lists[] = {
    LIST(tensor_and_data), LIST(schedules), LIST(context),
    LIST(experts),         LIST(adapters),  LIST(tied),
    LIST(buckets),         LIST(units),     LIST(by_stage)};
enum { N_LISTS = sizeof lists / sizeof *lists };

#if defined(__SANITIZE_ADDRESS__)
static const bool is_sampled = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
static const bool is_sampled = true;
#else
static const bool is_sampled = false;
#endif
#else
static const bool is_sampled = false;
#endif

static bool is_sample(const char *text)
{
    return text[0] == '*';
}

static void verify_list(const struct list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->v[i] + is_sample(list->v[i]);
        const struct matrix_case c = matrix_read(text);
        if (is_sampled && !is_sample(list->v[i])) {
            continue;
        }
        assert_int_equal(c.tp * (c.cp ? c.cp : 1) * c.pp * c.dp, 8);
        matrix_verify(world, &c);
    }
}

static void test_tensor_and_data(void **state)
{
    (void)state;
    verify_list(&lists[0]);
}

static void test_schedules(void **state)
{
    (void)state;
    verify_list(&lists[1]);
}

static void test_context(void **state)
{
    (void)state;
    verify_list(&lists[2]);
}

static void test_experts(void **state)
{
    (void)state;
    verify_list(&lists[3]);
}

static void test_adapters(void **state)
{
    (void)state;
    verify_list(&lists[4]);
}

/* Both copies of a tied matrix are split alike. */
static void test_tied(void **state)
{
    (void)state;
    verify_list(&lists[5]);
}

static void test_buckets(void **state)
{
    (void)state;
    verify_list(&lists[6]);
}

static void test_units(void **state)
{
    (void)state;
    verify_list(&lists[7]);
}

static void test_by_stage(void **state)
{
    (void)state;
    verify_list(&lists[8]);
}

/* ---- what the list has -----------------------------------------------------
 */
struct counts {
    int plans, sampled, sp, ep, etp, lora, chunks, offload;
    int shard, kept, first, bucket, unit, by_stage;
    int zero[4], recompute[3], cp_form[4], model[MATRIX_MODELS];
};

static void count(const char *text, struct counts *n)
{
    const struct matrix_case c = matrix_read(text + is_sample(text));
    n->plans++;
    n->sampled += is_sample(text);
    n->sp += c.sp;
    n->ep += c.ep > 1;
    n->etp += c.etp > 1;
    n->lora += c.lora_rank > 0;
    n->chunks += c.vpp > 1;
    n->offload += c.offload_pct > 0;
    n->shard += c.dp_shard > 0;
    n->bucket += c.bucket > 0;
    n->unit += c.unit > 1;
    n->kept += c.keeps_all;
    n->first += c.recompute_layers > 0;
    n->by_stage += c.is_by_stage;
    n->zero[c.zero]++;
    n->recompute[c.recompute]++;
    n->model[c.model]++;
    if (c.cp > 1) {
        n->cp_form[c.cp_form]++;
    }
}

static int n_of_schedule(const char *name)
{
    int n = 0;
    for (size_t l = 0; l < N_LISTS; l++) {
        for (size_t i = 0; i < lists[l].n; i++) {
            const char *text = lists[l].v[i];
            const char *had = matrix_read(text + is_sample(text)).schedule;
            n += strcmp(had ? had : "1f1b", name) == 0;
        }
    }
    return n;
}

static void at_least(const char *what, int n, int least)
{
    if (n < least) {
        fail_msg("%d plans with %s, at least %d", n, what, least);
    }
}

static void all_of(const char *what, const int *v, int n, int least)
{
    char text[64];
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s %d", what, i);
        at_least(text, v[i], least);
    }
}

static void test_the_list_has_everything(void **state)
{
    (void)state;
    struct counts n = {0};
    for (size_t l = 0; l < N_LISTS; l++) {
        for (size_t i = 0; i < lists[l].n; i++) {
            count(lists[l].v[i], &n);
        }
    }
    at_least("anything", n.plans, 60);
    at_least("sanitizers", n.sampled, 12);
    at_least("sp", n.sp, 10);
    at_least("ep", n.ep, 5);
    at_least("etp", n.etp, 3);
    at_least("adapters", n.lora, 5);
    at_least("chunks", n.chunks, 10);
    at_least("offload", n.offload, 3);
    at_least("dp_shard", n.shard, 5);
    at_least("bucket_size", n.bucket, 10);
    at_least("fsdp_unit", n.unit, 8);
    at_least("reshard: false", n.kept, 3);
    at_least("recompute_layers", n.first, 4);
    at_least("stage_recompute_layers", n.by_stage, 6);
    all_of("zero", n.zero, 4, 5);
    all_of("recompute", n.recompute, 3, 3);
    all_of("cp_form", n.cp_form, 4, 3);
    all_of("model", n.model, MATRIX_MODELS, 2);
    const struct mw_sched_kind *kind;
    for (size_t i = 0; (kind = mw_schedule_kind(i)) != NULL; i++) {
        at_least(kind->name, n_of_schedule(kind->name),
                 kind->is_forward_only ? 0 : 1);
    }
    if (world->rank == 0) {
        printf("%d plans on 8 ranks, %d of them under sanitizers\n", n.plans,
               n.sampled);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_by_stage),
        cmocka_unit_test(test_tensor_and_data),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_the_list_has_everything),
    };
    matrix_begin(&world);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_end(world);
    return failed;
}
