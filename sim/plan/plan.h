/*
 * A plan says where everything goes and in which order it runs: layout,
 * layers per virtual stage, schedule. Written by `plan`, editable by hand,
 * checked on reading; simulated, executed, exported from the same file.
 */
#ifndef MW_SIM_PLAN_PLAN_H
#define MW_SIM_PLAN_PLAN_H

#include "base/err.h"
#include "base/mem.h"
#include "sim/model/scenario.h"
#include "sim/pipe/schedule.h"

#include <stdbool.h>
#include <stdint.h>

struct mw_predicted {
    double step_time_s;
    double peak_bytes; /* of the fullest rank */
    double mfu;
};

struct mw_plan {
    struct mw_arena arena;
    const char *file; /* when read */
    const char *name;
    const char *scenario_file; /* as written, relative to the plan */
    uint64_t scenario_hash;    /* of the scenario that it answers */
    struct mw_layout layout;
    /* [pp * vpp] layers of virtual stage k in the order of the model. The
     * first also holds the embedding, the last final norm, head and loss. */
    int *layers;
    int n_virtual;
    int n_microbatches;
    int n_parts; /* asked for: sequence parts of a micro-batch; 0: the kind's */
    bool has_schedule_order; /* explicit lists in the file */
    struct mw_schedule schedule;
    bool has_predicted;
    struct mw_predicted predicted;
};

/* A plan for a scenario from a layout: even partition (the first stages take
 * the remainder), schedule by name. Checks the layout (MW_EINPUT / MW_ENO). */
enum mw_status mw_plan_make(const struct mw_scenario *scenario,
                            const struct mw_layout *layout,
                            const int *layers, /* [pp * vpp] or NULL: even */
                            struct mw_plan *out, struct mw_err *err);
void mw_plan_release(struct mw_plan *plan);

/*
 * Reads a plan for a scenario: layout legal, layers sum to the model's, the
 * schedule complete and free of deadlocks, the hash equal to the scenario's
 * ("plan.yaml:3:16: this plan answers scenario 'a' (hash ...) but 'b' has hash
 * ...; plan again or pass its own scenario"). scenario NULL: the plan's own
 * scenario file is loaded by mw_plan_load_own.
 */
enum mw_status mw_plan_load(const char *path,
                            const struct mw_scenario *scenario,
                            struct mw_plan *out, struct mw_err *err);
/* The same from memory; name stands for the file in messages. The scenario
 * must be given. */
enum mw_status mw_plan_parse(const char *name, const char *text, size_t len,
                             const struct mw_scenario *scenario,
                             struct mw_plan *out, struct mw_err *err);
/* Reads a plan and the scenario it names (relative to the plan's folder). */
enum mw_status mw_plan_load_own(const char *path,
                                struct mw_scenario *out_scenario,
                                struct mw_plan *out, struct mw_err *err);
/* Writes YAML (format: 1), atomically. explicit_order writes the lists. */
enum mw_status mw_plan_save(const struct mw_plan *plan, const char *path,
                            bool explicit_order, struct mw_err *err);
/* The same as text, as it would stand in the file `path`. */
void mw_plan_text(const struct mw_plan *plan, const char *path,
                  bool explicit_order, struct mw_str *out);
/* Hash over layout, layers, schedule order: ties timelines to plans. */
uint64_t mw_plan_hash(const struct mw_plan *plan);

/* Layers split as evenly as they go over n virtual stages: the first ones take
 * one more each. One or two stages more than layers: the last holds the head
 * alone, the first the embedding. */
void mw_plan_even_layers(int n_layers, int n_virtual, int *out);
/* The same for a model and a layout. Under mtp_ahead the last stage has none,
 * and multi-token-prediction layers count among those of the stage before it,
 * which may be there for them alone. */
void mw_plan_even_of(const struct mw_model *model,
                     const struct mw_layout *layout, int *out);
int mw_plan_even_share_of(const struct mw_model *model,
                          const struct mw_layout *layout, int k);
/* Has every virtual stage as many layers? */
bool mw_plan_is_even(const struct mw_plan *plan);
/* Those of stage k. */
int mw_plan_even_share(int n_layers, int n_virtual, int k);
/* First layer of virtual stage k. */
int mw_plan_first_layer(const struct mw_plan *plan, int virtual_stage);

#endif
