/*
 * Tables for people (libsmartcols behind it): aligned columns on a stream,
 * no colours, width not cut when the output is not a terminal.
 */
#ifndef MW_BASE_TABLE_H
#define MW_BASE_TABLE_H

#include <stdbool.h>
#include <stdio.h>

struct mw_table;
struct mw_table *mw_table_new(void);
void mw_table_free(struct mw_table *t);
/* Columns first, in order. */
void mw_table_col(struct mw_table *t, const char *name, bool right_align);
/* Then rows: begin a row, then one cell per column. */
void mw_table_row(struct mw_table *t);
void mw_table_cell(struct mw_table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Header and rows, without spaces at line ends; nothing if there are no rows.
 */
void mw_table_print(struct mw_table *t, FILE *f);

#endif
