/*
 * A small XML reader for the two formats of this field that are XML: NCCL's
 * machine descriptions (NCCL_TOPO_DUMP_FILE) and MSCCL's algorithms.
 *
 * Elements, attributes, comments, declarations and CDATA-free text are read;
 * text between elements is ignored, the five named entities are decoded.
 * DOCTYPE and processing of entities beyond those is refused. Files over
 * MW_XML_SIZE_MAX bytes or nested deeper than MW_XML_DEPTH_MAX are errors.
 */
#ifndef MW_SIM_NET_XML_H
#define MW_SIM_NET_XML_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdint.h>

enum { MW_XML_SIZE_MAX = 64 << 20, MW_XML_DEPTH_MAX = 64 };

struct mw_xml_attr {
    const char *key, *value;
    struct mw_xml_attr *next;
};
struct mw_xml {
    const char *name;
    const char *file;
    int line;
    struct mw_xml_attr *attrs;         /* in file order */
    struct mw_xml *first_child, *next; /* children and siblings in order */
};

/* The root element; everything lives in the arena. MW_EINPUT with
 * FILE:LINE:COLUMN otherwise. O(length). */
enum mw_status mw_xml_parse(const char *name, const char *text, size_t len,
                            struct mw_arena *arena, struct mw_xml **out,
                            struct mw_err *err);
enum mw_status mw_xml_load(const char *path, struct mw_arena *arena,
                           struct mw_xml **out, struct mw_err *err);
/* Value of an attribute, or NULL. */
const char *mw_xml_attr(const struct mw_xml *node, const char *key);
/* Integer attribute (decimal, or hexadecimal after 0x) within [min, max];
 * absent: `absent` if has_absent, else MW_EINPUT naming element and line. */
enum mw_status mw_xml_int(const struct mw_xml *node, const char *key,
                          int64_t min, int64_t max, bool has_absent,
                          int64_t absent, int64_t *out, struct mw_err *err);
/* First child of that name, or NULL. */
const struct mw_xml *mw_xml_child(const struct mw_xml *node, const char *name);
/* MW_EINPUT with "FILE:LINE: ..." in front. */
enum mw_status mw_xml_fail(const struct mw_xml *node, struct mw_err *err,
                           const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
