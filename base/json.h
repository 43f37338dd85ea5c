/*
 * JSON out with jansson: numbers keep 17 digits, key order is insertion
 * order, NaN and infinity never reach a file.
 */
#ifndef MW_BASE_JSON_H
#define MW_BASE_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

/* A real, or null when v is not finite. */
json_t *mw_json_real(double v);
/* Sets object[key] and steals value. */
void mw_json_set(json_t *object, const char *key, json_t *value);
void mw_json_set_real(json_t *object, const char *key, double v);
void mw_json_set_int(json_t *object, const char *key, long long v);
void mw_json_set_str(json_t *object, const char *key, const char *v);
void mw_json_set_bool(json_t *object, const char *key, int v);
/* Writes with a final newline (indent 2, %.17g). */
enum mw_status mw_json_write(const json_t *value, FILE *f, struct mw_err *err);
/* Loads a JSON file with FILE:LINE:COLUMN errors; caller json_decref()s. */
enum mw_status mw_json_load(const char *path, size_t max_bytes, json_t **out,
                            struct mw_err *err);

#endif
