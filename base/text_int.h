/*
 * Text of an input file, shared by the YAML, CSV and JSON readers: is it text
 * at all, and where is a byte of it.
 */
#ifndef MW_BASE_TEXT_INT_H
#define MW_BASE_TEXT_INT_H

#include "base/err.h"
#include "base/mem.h"

#include <stddef.h>

/* Offset of the first byte at or after `from` that is not part of valid UTF-8
 * (RFC 3629: no surrogates, no overlong forms), or len. */
size_t mw_text_bad_utf8(const char *text, size_t len, size_t from);

/* Refuses what is not text: nothing in it, a NUL byte, invalid UTF-8. */
enum mw_status mw_text_check(const char *file, const char *text, size_t len,
                             struct mw_err *err);

/* Bytes of a UTF-8 byte order mark at the beginning: 3 or 0. */
size_t mw_text_bom(const char *text, size_t len);

/*
 * The place of a byte offset; line and column counted from 1, a column is a
 * character. The source line is copied to the arena; one of more than 64 KiB
 * is left out. O(offset).
 */
struct mw_pos mw_text_pos(const char *file, const char *text, size_t len,
                          size_t offset, int width, struct mw_arena *arena);

#endif
