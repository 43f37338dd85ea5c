/* Folding gives the rates of plain water-filling, with few classes where there
 * is symmetry. */
#include "mw_test.h"

#include "base/mem.h"
#include "base/rand.h"
#include "sim/net/flow.h"
#include "sim/net/fold.h"

enum { N = 48, ROUTE_MAX = 8 };

static void same_rates(size_t n_links, const double *cap, size_t n_flows,
                       const uint32_t *first, const uint32_t *route,
                       size_t classes_max)
{
    struct mw_fold f;
    double *want = mw_calloc(n_flows, sizeof *want);
    mw_maxmin_rates(n_links, cap, n_flows, first, route, want);
    mw_fold_make(n_links, cap, n_flows, first, route, &f);
    assert_true(f.n_flow_classes <= classes_max);
    for (size_t i = 0; i < n_flows; i++) {
        mw_assert_near(f.rate_Bps[f.flow_class[i]], want[i], 1e-9, 0);
    }
    mw_fold_release(&f);
    mw_free(want);
}

/* All-to-all on a star: one class of flows, two of links. */
static void all_to_all_is_one_class(void **state)
{
    (void)state;
    double cap[2 * N];
    uint32_t *first = mw_calloc(N * N + 1, sizeof *first);
    uint32_t *route = mw_calloc(2 * N * N, sizeof *route);
    uint32_t at = 0, n = 0;
    for (uint32_t i = 0; i < 2 * N; i++) {
        cap[i] = 50e9;
    }
    for (uint32_t a = 0; a < N; a++) {
        for (uint32_t b = 0; b < N; b++) {
            if (a != b) {
                route[at++] = a;
                route[at++] = N + b;
                first[++n] = at;
            }
        }
    }
    same_rates(2 * N, cap, n, first, route, 1);
    cap[3] = 25e9; /* a slow link splits the class, no more than needed */
    same_rates(2 * N, cap, n, first, route, 4);
    mw_free(first);
    mw_free(route);
}

static void random_graphs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        double cap[16];
        uint32_t first[N + 1] = {0}, route[N * ROUTE_MAX];
        uint64_t k = 0;
        uint32_t at = 0;
        for (size_t l = 0; l < 16; l++) {
            cap[l] = 1e9 * (double)(1 + mw_rand_u64(seed, 1, k++) % 3);
        }
        for (size_t i = 0; i < N; i++) {
            uint32_t mask = 0;
            size_t hops = 1 + mw_rand_u64(seed, 2, k++) % 3;
            for (size_t h = 0; h < hops; h++) {
                uint32_t l = (uint32_t)(mw_rand_u64(seed, 3, k++) % 16);
                if (!(mask >> l & 1)) {
                    route[at++] = l;
                    mask |= 1u << l;
                }
            }
            first[i + 1] = at;
        }
        same_rates(16, cap, N, first, route, N);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_to_all_is_one_class),
        cmocka_unit_test(random_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
