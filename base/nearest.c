/*
 * The nearest word of a list, for "did you mean".
 *
 * Distance: insertions, deletions, substitutions and swaps of neighbours
 * ("optimal string alignment": Damerau, CACM 7(3), 1964, restricted to
 * disjoint edits), upper and lower case alike. Ties go to the earlier
 * candidate.
 */
#include "base/yaml.h"

#include <ctype.h>
#include <string.h>

enum { WORD_MAX = 64 };

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Three rows of the usual table; words of at most WORD_MAX characters. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= m; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *last = rows[(i + 2) % 3];
        const size_t *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t d = last[j - 1] + !is_same(a[i - 1], b[j - 1]);
            d = min_size(d, min_size(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) &&
                is_same(a[i - 2], b[j - 1])) {
                d = min_size(d, before[j - 2] + 1);
            }
            now[j] = d;
        }
    }
    return rows[n % 3][m];
}

const char *mw_nearest(const char *word, const char *const *candidates,
                       size_t n_candidates)
{
    size_t n = strlen(word);
    if (n > WORD_MAX) {
        return NULL;
    }
    const char *best = NULL;
    size_t best_distance = n / 3 + 1;
    for (size_t i = 0; i < n_candidates; i++) {
        size_t m = strlen(candidates[i]);
        if (m > WORD_MAX || m > n + n / 3 || n > m + n / 3) {
            continue;
        }
        size_t d = distance(word, n, candidates[i], m);
        if (d < best_distance) {
            best_distance = d;
            best = candidates[i];
        }
    }
    return best;
}
