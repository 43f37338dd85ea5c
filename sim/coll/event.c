/* Placeholder until the event form is in place. */
#include "sim/coll/coll_int.h"

enum mw_status coll_event_time(struct mw_coll_world *world,
                               const struct mw_coll_query *query,
                               struct mw_coll_answer *a, struct mw_err *err)
{
    (void)world;
    (void)query;
    (void)a;
    return mw_fail(err, MW_EINPUT, "the event form is not there yet");
}
