/* How `validate` shows errors: tables for people, or one JSON object. */
#ifndef MW_CLI_VERB_VALIDATE_VIEW_H
#define MW_CLI_VERB_VALIDATE_VIEW_H

#include "cli/cli.h"

#include "sim/validate/validate.h"

void mw_validate_view_print(const struct mw_validate *v, bool as_json,
                            bool all_rows);

#endif
