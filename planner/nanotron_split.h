/*
 * Layers of pipeline stages as Nanotron cuts them: no key of its configuration
 * says them.
 */
#ifndef MW_PLANNER_NANOTRON_SPLIT_H
#define MW_PLANNER_NANOTRON_SPLIT_H

#include "sim/model/model.h"

/* Layers of each of pp stages into layers[pp], which may be NULL; how many
 * stages get no parameter, for which there is no optimizer. O(layers). */
int mw_nanotron_split(const struct mw_model *model, int pp, int *layers);

#endif
