/* The scheduler of cuda_emulate.h. */
#include "tests/shim/cuda_emulate.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" void mw_emulate_seed(uint64_t seed);

namespace
{
enum class state { ready, at_block, at_warp, done };

struct fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    state at;
    dim3 index;
};

const unsigned warp_size = 32;
const size_t stack_bytes = 128 * 1024;

/* A block under way. */
struct scheduler {
    std::vector<fiber> fibers;
    std::vector<float> lanes; /* what each thread shuffles */
    std::vector<unsigned> ready;
    ucontext_t home;
    unsigned current = 0;
    int vote = 0, result = 0;
    const std::function<void()> *body = nullptr;
    uint64_t random = 1;
} s;

uint64_t draw(uint64_t n)
{
    s.random = s.random * 6364136223846793005u + 1442695040888963407u;
    return (s.random >> 33) % n;
}

[[noreturn]] void die(const char *what)
{
    std::fprintf(stderr, "emulated block (%u, %u, %u): %s\n", blockIdx.x,
                 blockIdx.y, blockIdx.z, what);
    std::abort();
}

void enter()
{
    (*s.body)();
    s.fibers[s.current].at = state::done;
    swapcontext(&s.fibers[s.current].context, &s.home);
}

void stop(state at)
{
    s.fibers[s.current].at = at;
    swapcontext(&s.fibers[s.current].context, &s.home);
}

void resume(unsigned i)
{
    s.current = i;
    threadIdx = s.fibers[i].index;
    swapcontext(&s.home, &s.fibers[i].context);
}

void start_fibers()
{
    unsigned n = blockDim.x * blockDim.y * blockDim.z;
    while (s.fibers.size() < n) {
        s.fibers.emplace_back();
        s.fibers.back().stack.reset(new char[stack_bytes]);
    }
    s.lanes.resize(n);
    s.ready.clear();
    for (unsigned i = 0; i < n; i++) {
        fiber &f = s.fibers[i];
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.get();
        f.context.uc_stack.ss_size = stack_bytes;
        f.context.uc_link = &s.home;
        makecontext(&f.context, enter, 0);
        f.at = state::ready;
        f.index = dim3(i % blockDim.x, i / blockDim.x % blockDim.y,
                       i / blockDim.x / blockDim.y);
        s.ready.push_back(i);
    }
}

unsigned count(unsigned first, unsigned n, state at)
{
    unsigned found = 0;
    for (unsigned i = first; i < first + n; i++) {
        found += s.fibers[i].at == at;
    }
    return found;
}

void release(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++) {
        s.fibers[i].at = state::ready;
        s.ready.push_back(i);
    }
}

/* Nothing can run: opens a barrier that all of its threads reached. False
 * when the block has ended. */
bool open_barrier(unsigned n)
{
    if (count(0, n, state::done) == n) {
        return false;
    }
    for (unsigned w = 0; w < n; w += warp_size) {
        unsigned width = n - w < warp_size ? n - w : warp_size;
        if (count(w, width, state::at_warp) == width) {
            release(w, width);
            return true;
        }
    }
    if (count(0, n, state::at_block) != n) {
        die("some threads wait at a barrier that others never reach");
    }
    s.result = s.vote;
    s.vote = 0;
    release(0, n);
    return true;
}

void run_block()
{
    unsigned n = blockDim.x * blockDim.y * blockDim.z;
    start_fibers();
    do {
        while (!s.ready.empty()) {
            size_t at = draw(s.ready.size());
            unsigned i = s.ready[at];
            s.ready[at] = s.ready.back();
            s.ready.pop_back();
            resume(i);
        }
    } while (open_barrier(n));
}
} /* namespace */

int mw_emulate_lane()
{
    return static_cast<int>(s.current % warp_size);
}

void mw_emulate_aligned(const void *p, unsigned bytes, int ld, int step)
{
    if (reinterpret_cast<uintptr_t>(p) % bytes != 0 || ld % step != 0) {
        die("a matrix that a warp function cannot load");
    }
}

void mw_emulate_seed(uint64_t seed)
{
    s.random = seed * 2 + 1;
}

void mw_emulate_grid(dim3 grid, dim3 block, const std::function<void()> &body)
{
    unsigned n = grid.x * grid.y * grid.z;
    std::vector<unsigned> order(n);
    for (unsigned i = 0; i < n; i++) {
        unsigned j = static_cast<unsigned>(draw(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    gridDim = grid;
    blockDim = block;
    s.body = &body;
    for (unsigned i : order) {
        blockIdx = dim3(i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y);
        run_block();
    }
}

void __syncthreads()
{
    stop(state::at_block);
}

int __syncthreads_or(int vote)
{
    s.vote |= vote;
    stop(state::at_block);
    return s.result;
}

float __shfl_xor_sync(unsigned mask, float v, int lane_mask)
{
    unsigned me = s.current;
    if (mask != 0xffffffffu || s.lanes.size() % warp_size != 0) {
        die("a shuffle of part of a warp");
    }
    s.lanes[me] = v;
    stop(state::at_warp);
    float got = s.lanes[me ^ static_cast<unsigned>(lane_mask)];
    stop(state::at_warp);
    return got;
}
