/*
 * High-water marks of activations for schedules whose order is known without
 * making the list: exactly what the walk over the list gives.
 *
 *   1F1B         device i holds min(m, p - i) micro-batches
 *   GPipe        all m
 *   interleaved  device i runs 2 (p-1-i) + (v-1) p forwards ahead, forward n
 *                of chunk (n / p) mod v, backward n of chunk v-1 - (n / p) mod
 *                v; what is held repeats after p v passes
 */
#include "sim/step/step_int.h"

#include <math.h>
#include <string.h>

static double loop_high_water(const struct mw_step_frame *f, int d, int m)
{
    int p = f->n_devices, v = f->n_virtual / p, n = m * v;
    int ahead = 2 * (p - 1 - d) + (v - 1) * p;
    int last = n < ahead + p * v ? n : ahead + p * v;
    double held = 0, most = 0;

    for (int i = 0; i < last; i++) {
        int forward = i / p % v, back = v - 1 - (i - ahead) / p % v;

        held += mw_vstage_activation_bytes(&f->price,
                                           f->vstage[forward * p + d].n_units);
        most = fmax(most, held);
        if (i >= ahead) {
            held -= mw_vstage_activation_bytes(&f->price,
                                               f->vstage[back * p + d].n_units);
        }
    }
    return most;
}

static double high_water(const struct mw_step_frame *f, enum mw_plain plain,
                         int d, int m)
{
    int held = m;

    if (plain == MW_PLAIN_LOOP) {
        return loop_high_water(f, d, m);
    }
    if (plain == MW_PLAIN_1F1B && f->n_devices - d < m) {
        held = f->n_devices - d;
    }
    return held * mw_vstage_activation_bytes(&f->price, f->vstage[d].n_units);
}

/* No term of a stage's memory falls when activations grow: of devices that have
 * the same units in a row, the one that holds most is the fullest. */
double mw_plain_peak_bytes(const struct mw_step_frame *f, enum mw_plain plain,
                           int m)
{
    double peak = 0, most = 0;

    for (int d = 0; d < f->n_devices; d++) {
        bool is_twin = mw_step_frame_is_twin(f, d);
        double held = high_water(f, plain, d, m);
        struct mw_stage_memory memory;

        if (d > 0 && held <= most &&
            is_twin == mw_step_frame_is_twin(f, d - 1) &&
            memcmp(f->units[d], f->units[d - 1], sizeof f->units[d]) == 0) {
            continue;
        }
        mw_stage_memory_of(&f->price, f->units[d], is_twin, held, &memory);
        peak = fmax(peak, memory.total_bytes);
        most = held;
    }
    return peak;
}
