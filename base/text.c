/*
 * Text of an input file: validity and positions.
 *
 * UTF-8 by the table of RFC 3629, section 4. A position is found by walking
 * the text from its beginning; it is needed for errors only, so no index of
 * lines is kept.
 */
#include "base/text_int.h"

#include <stdbool.h>
#include <string.h>

enum { SOURCE_LINE_MAX = 1 << 16 };

static bool is_continuation(unsigned char c)
{
    return (c & 0xc0u) == 0x80u;
}

/* Length of the valid character at s, 0 if it is not one. */
static size_t char_length(const unsigned char *s, size_t left)
{
    unsigned char c = s[0];
    if (c < 0x80) {
        return 1;
    }
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0xc2 || c > 0xf4 || n > left) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if (!is_continuation(s[i])) {
            return 0;
        }
    }
    bool is_overlong = (c == 0xe0 && s[1] < 0xa0) || (c == 0xf0 && s[1] < 0x90);
    bool is_beyond = (c == 0xed && s[1] > 0x9f) || (c == 0xf4 && s[1] > 0x8f);
    return is_overlong || is_beyond ? 0 : n;
}

size_t mw_text_bad_utf8(const char *text, size_t len, size_t from)
{
    const unsigned char *s = (const unsigned char *)text;
    while (from < len) {
        size_t n = char_length(s + from, len - from);
        if (n == 0) {
            return from;
        }
        from += n;
    }
    return len;
}

size_t mw_text_bom(const char *text, size_t len)
{
    return len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static int line_of(const char *text, size_t offset)
{
    int line = 1;
    for (size_t i = 0; i < offset; i++) {
        line += text[i] == '\n';
    }
    return line;
}

enum mw_status mw_text_check(const char *file, const char *text, size_t len,
                             struct mw_err *err)
{
    if (len == mw_text_bom(text, len)) {
        return mw_fail(err, MW_EINPUT, "%s: is empty", file);
    }
    if (memchr(text, '\0', len) != NULL) {
        return mw_fail(err, MW_EINPUT, "%s: is not text (it has NUL bytes)",
                       file);
    }
    size_t bad = mw_text_bad_utf8(text, len, 0);
    if (bad < len) {
        return mw_fail(err, MW_EINPUT,
                       "%s: is not text (line %d is not valid UTF-8)", file,
                       line_of(text, bad));
    }
    return MW_OK;
}

struct mw_pos mw_text_pos(const char *file, const char *text, size_t len,
                          size_t offset, int width, struct mw_arena *arena)
{
    struct mw_pos pos = {.file = file, .column = 1, .width = width};
    size_t begin = offset, end = offset;
    while (begin > 0 && text[begin - 1] != '\n') {
        begin--;
    }
    while (end < len && text[end] != '\n' && text[end] != '\r') {
        end++;
    }
    pos.line = line_of(text, begin);
    if (begin == 0) {
        begin += mw_text_bom(text, len);
    }
    for (size_t i = begin; i < offset; i++) {
        pos.column += !is_continuation((unsigned char)text[i]);
    }
    if (end >= begin && end - begin <= SOURCE_LINE_MAX) {
        char *line = mw_arena_alloc(arena, end - begin + 1, 1);
        memcpy(line, text + begin, end - begin);
        pos.source_line = line;
    }
    return pos;
}
