/*
 * What an optimizer keeps of each parameter and moves in a step. With e_m and
 * e_v the bytes of a first and a second moment (4 by default) and c those of
 * the main copy that low-precision weights have (4; 2 in fp16; 0: none), bytes
 * of state per element of a large matrix:
 *
 *   adamw         c + e_m + e_v   (Loshchilov and Hutter, ICLR 2019)
 *   sgd           c
 *   sgd-momentum  c + e_m
 *   adam8bit      c + 2 + 2 x 4 / 256   (Dettmers et al., ICLR 2022: blocks of
 *                 256 with an fp32 scale each since bitsandbytes 0.44; tensors
 *                 of less than 4096 elements keep fp32 moments, 8)
 *   muon          c + e_m; c + e_m + e_v of embeddings, head and vectors, which
 *                 AdamW updates (Jordan, "Muon", 2024; Megatron-LM
 *                 megatron/core/optimizer/muon.py)
 *   adafactor     c + 4 (rows + cols) / (rows cols); c + 4 of vectors (Shazeer
 *                 and Stern, ICML 2018: no first moment)
 *
 * In fp32 training the weights are their own main copy. Left out: fp32 scales
 * of whole tensors in fp16 and fp8 states, step counters.
 */
#ifndef MW_SIM_MODEL_OPTIMIZER_H
#define MW_SIM_MODEL_OPTIMIZER_H

#include "sim/model/layout.h"

struct mw_param;

enum mw_optimizer_kind {
    MW_OPTIMIZER_ADAMW,
    MW_OPTIMIZER_SGD,
    MW_OPTIMIZER_MOMENTUM,
    MW_OPTIMIZER_ADAM8BIT,
    MW_OPTIMIZER_MUON,
    MW_OPTIMIZER_ADAFACTOR
};
/* The copy that low-precision weights are rounded from. */
enum mw_main_params { MW_MAIN_FP32, MW_MAIN_FP16, MW_MAIN_NONE };

extern const struct mw_enum mw_optimizer_enums[], mw_main_params_enums[];
const char *mw_optimizer_name(enum mw_optimizer_kind kind); /* "adamw" */

struct mw_optimizer {
    enum mw_optimizer_kind kind;
    enum mw_main_params main;
    enum mw_dtype exp_avg, exp_avg_sq; /* fp32, bf16, fp16 or fp8 */
};

/*
 * Types of Adam's states that training stacks use together: c, e_m, e_v and the
 * bytes a parameter beside weights of 16 bits.
 *
 *   fp32    4 4 4  12
 *   bf16    4 2 2   8   DeepSeek-V3 (2024), 3.3.2; TorchTitan's
 *                       implementation fused_opt_states_bf16
 *   fp8     4 1 1   6   Megatron-Core --exp-avg-dtype, --exp-avg-sq-dtype
 *   fp16    2 2 2   6   and --main-params-dtype
 *   fp8-lm  2 1 2   5   Peng et al., "FP8-LM", 2023, 2.2
 */
struct mw_state_set {
    const char *name;
    enum mw_main_params main;
    enum mw_dtype exp_avg, exp_avg_sq;
};
enum { MW_STATE_SETS = 5 };
extern const struct mw_state_set mw_state_sets[MW_STATE_SETS];
/* Has it a first moment, a second one, in a type of the user's choice? */
bool mw_optimizer_has_exp_avg(const struct mw_optimizer *o);
bool mw_optimizer_has_exp_avg_sq(const struct mw_optimizer *o);
/* Do weights of that type have a copy beside them? */
bool mw_optimizer_has_main(const struct mw_optimizer *o, enum mw_dtype dtype);
/* Bytes of state per element of a large matrix, main copy included. */
double mw_optimizer_bytes(const struct mw_optimizer *o, enum mw_dtype dtype);
/* Has every element of every tensor the same state (no block scales, factors
 * or matrices treated apart)? Then the next is 0. */
bool mw_optimizer_is_uniform(const struct mw_optimizer *o);
/* What all of a tensor's state has beyond that (less: negative), of the shape
 * that a rank holds (mw_param_shard_of). */
double mw_optimizer_more_bytes(const struct mw_optimizer *o,
                               const struct mw_param *shard);
/*
 * Bytes read and written per element in the update itself: the gradient once,
 * states and what is updated (main copy, else the weight) twice, the weight
 * where it is rounded from a copy. Adafactor reads the gradient for its row and
 * column means, for the root mean square that it clips by, and for the update.
 */
double mw_optimizer_traffic_bytes(const struct mw_optimizer *o,
                                  enum mw_dtype dtype, double grad_bytes,
                                  double weight_bytes);
/* Does Muon orthogonalise it? Matrices of layers, experts' among them; not
 * embeddings and the head. */
bool mw_optimizer_is_muon_matrix(const struct mw_optimizer *o,
                                 const struct mw_param *p);
/* Why a layout cannot have the optimizer; NULL: it can. Static text. */
const char *mw_optimizer_refuses(const struct mw_optimizer *o,
                                 const struct mw_layout *layout);

#endif
