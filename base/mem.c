/*
 * Checked allocation, growable arrays, arenas, strings.
 *
 * Out of memory aborts with the size asked. An arena is a list of blocks,
 * newest first; each new block is twice the last up to 1 MiB, and a request
 * that does not fit gets a block of its own size:
 *
 *   head -> [next|cap|used| .... free ....] -> [next|cap|used|........] -> NULL
 *
 * Nothing is given back before the whole arena is released.
 */
#include "base/mem.h"

#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, ARENA_FIRST = 4096, ARENA_BLOCK_MAX = 1 << 20 };

struct mw_arena_block {
    struct mw_arena_block *next;
    size_t cap, used;
    size_t pad; /* keeps the payload aligned to 16 bytes */
};
_Static_assert(sizeof(struct mw_arena_block) % ARENA_ALIGN == 0,
               "payload of a block must be aligned");

static _Noreturn void out_of_memory(size_t n, size_t size)
{
    fprintf(stderr, "out of memory: %zu items of %zu bytes asked\n", n, size);
    abort();
}

static size_t checked_size(size_t n, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(n, size, &total)) {
        out_of_memory(n, size);
    }
    return total > 0 ? total : 1;
}

void *mw_calloc(size_t n, size_t size)
{
    void *p = calloc(1, checked_size(n, size));
    if (p == NULL) {
        out_of_memory(n, size);
    }
    return p;
}

void *mw_realloc(void *p, size_t n, size_t size)
{
    void *q = realloc(p, checked_size(n, size));
    if (q == NULL) {
        out_of_memory(n, size);
    }
    return q;
}

void mw_free(void *p)
{
    free(p);
}

char *mw_strdup(const char *s)
{
    size_t size = strlen(s) + 1;
    return memcpy(mw_calloc(size, 1), s, size);
}

uint64_t mw_mul_u64(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    bool is_over = __builtin_mul_overflow(a, b, &product);
    MW_ASSERT(!is_over, "%llu * %llu does not fit in 64 bits",
              (unsigned long long)a, (unsigned long long)b);
    return product;
}

void *mw_array_grow(void *v, size_t *cap, size_t need, size_t size)
{
    size_t n = *cap < 8 ? 8 : *cap;
    while (n < need) {
        if (n > SIZE_MAX / 2) {
            out_of_memory(need, size);
        }
        n *= 2;
    }
    v = mw_realloc(v, n, size);
    *cap = n;
    return v;
}

void mw_arena_init(struct mw_arena *arena)
{
    *arena = (struct mw_arena){0};
}

void mw_arena_release(struct mw_arena *arena)
{
    struct mw_arena_block *b = arena->head;
    while (b != NULL) {
        struct mw_arena_block *next = b->next;
        mw_free(b);
        b = next;
    }
    mw_arena_init(arena);
}

static struct mw_arena_block *arena_block_new(const struct mw_arena *arena,
                                              size_t size)
{
    size_t cap = ARENA_FIRST;
    if (arena->head != NULL) {
        cap = arena->head->cap < ARENA_BLOCK_MAX / 2 ? arena->head->cap * 2
                                                     : ARENA_BLOCK_MAX;
    }
    if (cap < size) {
        cap = size;
    }
    struct mw_arena_block *b = mw_calloc(1, sizeof *b + cap);
    b->cap = cap;
    return b;
}

void *mw_arena_alloc(struct mw_arena *arena, size_t n, size_t size)
{
    size_t total = checked_size(n, size);
    if (total > SIZE_MAX / 2) {
        out_of_memory(n, size);
    }
    size_t rounded = (total + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    struct mw_arena_block *b = arena->head;
    if (b == NULL || b->cap - b->used < rounded) {
        b = arena_block_new(arena, rounded);
        b->next = arena->head;
        arena->head = b;
    }
    char *p = (char *)(b + 1) + b->used;
    b->used += rounded;
    arena->used_bytes += rounded;
    return p;
}

char *mw_arena_strdup(struct mw_arena *arena, const char *s)
{
    size_t size = strlen(s) + 1;
    return memcpy(mw_arena_alloc(arena, size, 1), s, size);
}

char *mw_arena_printf(struct mw_arena *arena, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    MW_ASSERT(n >= 0, "a string that cannot be formatted: %s", fmt);
    char *s = mw_arena_alloc(arena, (size_t)n + 1, 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

static void str_reserve(struct mw_str *str, size_t extra)
{
    if (str->cap - str->n <= extra) {
        str->s = mw_array_grow(str->s, &str->cap, str->n + extra + 1, 1);
    }
}

void mw_str_addf(struct mw_str *str, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    MW_ASSERT(n >= 0, "a string that cannot be formatted: %s", fmt);
    str_reserve(str, (size_t)n);
    vsnprintf(str->s + str->n, (size_t)n + 1, fmt, again);
    va_end(again);
    str->n += (size_t)n;
}

void mw_str_add(struct mw_str *str, const char *text)
{
    size_t n = strlen(text);
    str_reserve(str, n);
    memcpy(str->s + str->n, text, n + 1);
    str->n += n;
}

void mw_str_release(struct mw_str *str)
{
    mw_free(str->s);
    *str = (struct mw_str){0};
}
