/*
 * A stand-in for the parts of the CUDA runtime, cublasLt and NCCL that
 * exec/cuda uses: malloc, OpenBLAS, MPI and the host kernels behind the same
 * symbols, so that the unmodified host code runs without a GPU.
 *
 * Work is queued per stream, as on a device, and run later: when something is
 * waited for or asked about, and while the host waits in MPI. Which stream
 * goes on next, and how far, is drawn from a seed; events hold streams back as
 * the CUDA Programming Guide says (stream wait: the version recorded at the
 * time of the call). Any order that comes out is one that a GPU may take, so a
 * missing wait shows as a wrong result under some seed.
 *
 * Also strict where a GPU is kind: fresh memory is NaN, copies and operands
 * must lie inside live allocations, operations of one communicator run one at
 * a time in the order of their calls, a send ends only when the receive is
 * there, blocks that an in-place reduce-scatter leaves undefined become NaN.
 * Any call can be made to fail (shim_fail_at).
 *
 * Left out: time, several devices, groups of calls on several communicators,
 * warps (see cuda_emulate.h).
 */
#ifndef MW_TESTS_SHIM_H
#define MW_TESTS_SHIM_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- control -------------------------------------------------------------
 * At first from the environment: MW_SHIM_SEED, MW_SHIM_FAIL. */
void shim_seed(uint64_t seed);
/* Call number n from now (1: the next) fails; 0: none. */
void shim_fail_at(int64_t n);
/* Calls since shim_fail_at, and whether one was made to fail. */
int64_t shim_calls(void);
bool shim_has_failed(void);
/* From now on communicators with an operation under way have failed in the
 * background, as when the network breaks. */
void shim_break_network(bool is_broken);
/* Devices that cudaGetDeviceCount finds; -1: no driver. 1 at first. */
void shim_set_devices(int n);
/* Streams, events, allocations, descriptors and communicators not given
 * back. */
int shim_live(void);

/* ---- inside ---------------------------------------------------------------
 */
/* Counts a call of the library; true when it is to fail. */
bool shim_enters(void);
void shim_count(int delta);

/*
 * Queues work. `run` gets a copy of the arguments; it returns true when the
 * work has ended, false to be called again later (MPI under way).
 */
void shim_enqueue(cudaStream_t stream, bool (*run)(void *args),
                  const void *args, size_t size);
/* Runs a random number of queued operations, as a device does meanwhile. */
void shim_progress(void);
/* Whether [p, p + bytes) is inside one live allocation. */
bool shim_is_device(const void *p, size_t bytes);
uint64_t shim_draw(uint64_t n);

#endif
