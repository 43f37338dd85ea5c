/*
 * Counter-based random numbers from SplitMix64.
 *
 * SplitMix64 gives for state h the outputs mix(h + g), mix(h + 2 g), ... with
 * g the golden gamma (Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014, figures 13 and 16). Its i-th output needs no
 * earlier one. Here it is used three times: the seed makes a state, the
 * stream-th output of that is the state of the stream, the index-th output of
 * that is the value. Not for cryptography.
 */
#include "base/rand.h"

#include <math.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Output number i (from 0) of SplitMix64 started with the state. */
static uint64_t output(uint64_t state, uint64_t i)
{
    static const uint64_t golden_gamma = UINT64_C(0x9e3779b97f4a7c15);
    return mix(state + golden_gamma * (i + 1));
}

uint64_t mw_rand_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    return output(output(output(seed, 0), stream), index);
}

double mw_rand_unit(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(mw_rand_u64(seed, stream, index) >> 11) * 0x1p-53;
}

double mw_rand_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    static const double two_pi = 6.283185307179586476925;
    double u = 1 - mw_rand_unit(seed, stream, 2 * index); /* in (0, 1] */
    double angle = two_pi * mw_rand_unit(seed, stream, 2 * index + 1);
    return sqrt(-2 * log(u)) * cos(angle);
}
