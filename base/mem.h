/*
 * Memory: checked allocation, growable arrays, arenas, strings.
 *
 * `malloc` is called nowhere else. Out of memory aborts with the size asked:
 * sizes that come from input are checked against a limit before. An arena is
 * a list of blocks freed together; a scenario, a plan and a simulation each
 * own one. Arrays are `MW_ARRAY(type)`: pointer, length, capacity.
 */
#ifndef MW_BASE_MEM_H
#define MW_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for n items of size bytes (n * size is checked); never NULL. */
void *mw_calloc(size_t n, size_t size);
/* Grows or makes; new part not zeroed. Never NULL. */
void *mw_realloc(void *p, size_t n, size_t size);
void mw_free(void *p);
char *mw_strdup(const char *s);

/* a * b, or abort: for products of checked input. */
uint64_t mw_mul_u64(uint64_t a, uint64_t b);

/* ---- growable arrays ----------------------------------------------- */
#define MW_ARRAY(type)                                                         \
    struct {                                                                   \
        type *v;                                                               \
        size_t n, cap;                                                         \
    }

/* Room for `extra` more items. Doubles, so pushing is O(1) amortised. */
#define mw_array_reserve(a, extra)                                             \
    ((void)((a)->n + (extra) > (a)->cap                                        \
                ? ((a)->v = mw_array_grow((a)->v, &(a)->cap, (a)->n + (extra), \
                                          sizeof *(a)->v))                     \
                : NULL))
#define mw_array_push(a, item)                                                 \
    do {                                                                       \
        mw_array_reserve(a, 1);                                                \
        (a)->v[(a)->n++] = (item);                                             \
    } while (0)
#define mw_array_clear(a) ((void)((a)->n = 0))
#define mw_array_release(a)                                                    \
    do {                                                                       \
        mw_free((a)->v);                                                       \
        (a)->v = NULL;                                                         \
        (a)->n = (a)->cap = 0;                                                 \
    } while (0)
/* Used by the macros: a buffer of at least `need` items; updates *cap. */
void *mw_array_grow(void *v, size_t *cap, size_t need, size_t size);

/* ---- arena --------------------------------------------------------- */
struct mw_arena_block;
struct mw_arena {
    struct mw_arena_block *head;
    size_t used_bytes; /* total handed out */
};
void mw_arena_init(struct mw_arena *arena);
void mw_arena_release(struct mw_arena *arena);
/* Zeroed, aligned to 16 bytes, valid until the arena is released. */
void *mw_arena_alloc(struct mw_arena *arena, size_t n, size_t size);
char *mw_arena_strdup(struct mw_arena *arena, const char *s);
char *mw_arena_printf(struct mw_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- growable string ----------------------------------------------- */
struct mw_str {
    char *s; /* NUL terminated once anything was added; NULL when empty */
    size_t n, cap;
};
void mw_str_addf(struct mw_str *str, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void mw_str_add(struct mw_str *str, const char *text);
void mw_str_release(struct mw_str *str);

#endif
