/* Private to the readers of timelines: what the two forms share. */
#ifndef MW_SIM_ENGINE_TRACE_READ_INT_H
#define MW_SIM_ENGINE_TRACE_READ_INT_H

#include "sim/engine/timeline.h"

#include <stdbool.h>

/* Longest step a file may state: the range of mw_time. */
#define MW_TIMELINE_STEP_MAX_S 9.0e6

/* The clocks a timeline may name, and what a plan hash may look like (hex
 * digits, or empty): NULL when right, else what would be. */
const char *mw_trace_clock_wrong(const char *clock);
const char *mw_trace_hash_wrong(const char *hash);

/* Reads the CSV form into t (initialised); false with a finding. */
bool mw_trace_read_csv(const char *name, const char *text, size_t len,
                       struct mw_timeline *t, struct mw_err *err);

#endif
