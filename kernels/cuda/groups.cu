/*
 * Products of all experts of a rank in one launch (k_linear.c, groups): tiles
 * of 64 x 64 of the result, a block each; operands come through shared memory
 * in slices of 32 of what is summed over, in the order in which they lie in
 * memory.
 *
 *   forward   y [r][n] = sum over k of x [r][k] w[n][k]    rows of a group
 *   input     dx[r][k] = sum over n of dy[r][n] w[n][k]    rows of a group
 *   weight    dw[n][k] += sum over r of dy[r][n] x[r][k]   all of a group
 *
 * A block of the first two is numbered as if each group began on a tile of its
 * own and ended one tile later than it may; those beyond the last return. No
 * asynchronous copies, so large experts are better off with a library.
 */
#include "kernels/cuda/cuda_int.cuh"
#include "kernels/cuda/mma_int.cuh"

enum { TILE = 64, SLICE = 32, SIDE = 16, PER = TILE / SIDE };

/* D[m][n] = (D +) A B over k; A is [m][k], or [k][m] where it is by columns; B
 * is [k][n], or [n][k]. Dense rows. */
template <typename T, typename D> struct product {
    const T *a, *b;
    D *d;
    int m, n, k;
};

/* Distance of rows in shared memory: odd for CUDA cores, a multiple of 8 for
 * tensor cores. */
template <typename T> __device__ constexpr int pitch(int cols)
{
    return sizeof(T) == 4 ? cols + 1 : cols + 8;
}

template <typename T> struct shared {
    alignas(32) T a[TILE * pitch<T>(SLICE)], b[TILE * pitch<T>(SLICE)];
};

template <> struct shared<mw_bf16> {
    alignas(32) mw_bf16 a[TILE * pitch<mw_bf16>(SLICE)];
    alignas(32) mw_bf16 b[TILE * pitch<mw_bf16>(SLICE)];
    alignas(32) float sum[TILE * (TILE + 4)];
};

__device__ static int tid()
{
    return static_cast<int>(threadIdx.x);
}

__device__ inline void set(float *to, const float *from)
{
    *to = from ? *from : 0.0f;
}

__device__ inline void set(mw_bf16 *to, const mw_bf16 *from)
{
    to->bits = from ? from->bits : static_cast<uint16_t>(0);
}

/* ROWS x COLS of a matrix of n_rows x n_cols from (row0, col0) on; zero
 * outside. */
template <int ROWS, int COLS, typename T>
__device__ static void load(T *to, const T *from, int row0, int n_rows,
                            int col0, int n_cols)
{
    for (int i = tid(); i < ROWS * COLS; i += MW_BLOCK) {
        int r = i / COLS, c = i % COLS;
        bool is_inside = row0 + r < n_rows && col0 + c < n_cols;
        size_t at = static_cast<size_t>(row0 + r) * static_cast<size_t>(n_cols);
        set(to + r * pitch<T>(COLS) + c,
            is_inside ? from + at + col0 + c : nullptr);
    }
}

/* ---- CUDA cores: 4 x 4 sums a thread ------------------------------------- */
template <typename T> struct sums {
    float v[PER][PER];
};

__device__ static void clear(sums<float> *s)
{
    *s = sums<float>();
}

template <bool A_COL, bool B_COL>
__device__ void add_slice(sums<float> *s, const shared<float> *t)
{
    const int lda = pitch<float>(A_COL ? TILE : SLICE);
    const int ldb = pitch<float>(B_COL ? SLICE : TILE);
    int m = PER * (tid() / SIDE), n = tid() % SIDE;
    for (int k = 0; k < SLICE; k++) {
        float x[PER], y[PER];
        for (int i = 0; i < PER; i++) {
            int col = n + SIDE * i;
            x[i] = t->a[A_COL ? k * lda + m + i : (m + i) * lda + k];
            y[i] = t->b[B_COL ? col * ldb + k : k * ldb + col];
        }
        for (int i = 0; i < PER; i++) {
            for (int j = 0; j < PER; j++) {
                s->v[i][j] += x[i] * y[j];
            }
        }
    }
}

/* Sums into place: F(row, column, sum) for each of this thread. */
template <typename F>
__device__ void emit(const sums<float> *s, shared<float> *, const F &put)
{
    for (int i = 0; i < PER; i++) {
        for (int j = 0; j < PER; j++) {
            put(PER * (tid() / SIDE) + i, tid() % SIDE + SIDE * j, s->v[i][j]);
        }
    }
}

/* ---- tensor cores: a warp has two of the 16 squares of a tile -------------
 */
template <> struct sums<mw_bf16> {
    mw_mma_sum v[2];
};

__device__ static void clear(sums<mw_bf16> *s)
{
    mw_mma_zero(&s->v[0]);
    mw_mma_zero(&s->v[1]);
}

__device__ static int warp_m()
{
    return tid() / MW_WARP % 4 * MW_MMA;
}

__device__ static int warp_n()
{
    return tid() / MW_WARP / 4 * 2 * MW_MMA;
}

template <bool A_COL, bool B_COL>
__device__ void add_slice(sums<mw_bf16> *s, const shared<mw_bf16> *t)
{
    const int lda = pitch<mw_bf16>(A_COL ? TILE : SLICE);
    const int ldb = pitch<mw_bf16>(B_COL ? SLICE : TILE);
    for (int k = 0; k < SLICE; k += MW_MMA) {
        int a = A_COL ? k * lda + warp_m() : warp_m() * lda + k;
        for (int j = 0; j < 2; j++) {
            int n = warp_n() + MW_MMA * j;
            mw_mma<A_COL, B_COL>(&s->v[j], t->a + a, lda,
                                 t->b + (B_COL ? n * ldb + k : k * ldb + n),
                                 ldb);
        }
    }
}

template <typename F>
__device__ void emit(const sums<mw_bf16> *s, shared<mw_bf16> *t, const F &put)
{
    for (int j = 0; j < 2; j++) {
        mw_mma_store(t->sum + warp_m() * (TILE + 4) + warp_n() + MW_MMA * j,
                     &s->v[j], TILE + 4);
    }
    __syncthreads();
    for (int i = tid(); i < TILE * TILE; i += MW_BLOCK) {
        put(i / TILE, i % TILE, t->sum[i / TILE * (TILE + 4) + i % TILE]);
    }
}

/* ---- a tile ----------------------------------------------------------------
 */
template <bool IS_ADDED, typename T, typename D> struct putter {
    product<T, D> p;
    int m0, n0;
    __device__ void operator()(int m, int n, float v) const
    {
        if (m0 + m < p.m && n0 + n < p.n) {
            D *d = p.d +
                   static_cast<size_t>(m0 + m) * static_cast<size_t>(p.n) + n0 +
                   n;
            mw_store(d, IS_ADDED ? mw_load(d) + v : v);
        }
    }
};

template <bool A_COL, bool B_COL, bool IS_ADDED, typename T, typename D>
__device__ void run_tile(const product<T, D> &p, int m0, int n0)
{
    __shared__ shared<T> t;
    sums<T> s;
    clear(&s);
    for (int k0 = 0; k0 < p.k; k0 += SLICE) {
        __syncthreads(); /* the last slice may still be read */
        if (A_COL) {
            load<SLICE, TILE>(t.a, p.a, k0, p.k, m0, p.m);
        } else {
            load<TILE, SLICE>(t.a, p.a, m0, p.m, k0, p.k);
        }
        if (B_COL) {
            load<TILE, SLICE>(t.b, p.b, n0, p.n, k0, p.k);
        } else {
            load<SLICE, TILE>(t.b, p.b, k0, p.k, n0, p.n);
        }
        __syncthreads();
        add_slice<A_COL, B_COL>(&s, &t);
    }
    emit(&s, &t, putter<IS_ADDED, T, D>{p, m0, n0});
}

/* ---- kernels ---------------------------------------------------------------
 */
/* Forward has `in` = k and `out` = n columns, input gradient the other way
 * round. */
template <typename T, bool IS_FORWARD>
__global__ void groups_rows(const struct mw_k_groups g, T *d, const T *a,
                            const T *w)
{
    int tile = static_cast<int>(blockIdx.x), group = 0;
    int in = IS_FORWARD ? g.k : g.n, out = IS_FORWARD ? g.n : g.k;
    while (group < g.n_groups) {
        int tiles = (g.first[group + 1] - g.first[group] + TILE - 1) / TILE;
        if (tile < tiles) {
            break;
        }
        tile -= tiles;
        group++;
    }
    if (group == g.n_groups) {
        return;
    }
    size_t row = static_cast<size_t>(g.first[group]);
    const product<T, T> p = {a + row * static_cast<size_t>(in),
                             w + static_cast<size_t>(group) *
                                     static_cast<size_t>(g.n) *
                                     static_cast<size_t>(g.k),
                             d + row * static_cast<size_t>(out),
                             g.first[group + 1] - g.first[group],
                             out,
                             in};
    run_tile<false, IS_FORWARD, false>(p, tile * TILE,
                                       static_cast<int>(blockIdx.y) * TILE);
}

template <typename T>
__global__ void groups_weight(const struct mw_k_groups g, float *dw,
                              const T *dy, const T *x)
{
    size_t group = blockIdx.z, n = static_cast<size_t>(g.n),
           k = static_cast<size_t>(g.k);
    size_t row = static_cast<size_t>(g.first[group]);
    const product<T, float> p = {
        dy + row * n, x + row * k, dw + group * n * k,
        g.n,          g.k,         g.first[group + 1] - g.first[group]};
    if (p.k > 0) {
        run_tile<true, false, true>(p, static_cast<int>(blockIdx.y) * TILE,
                                    static_cast<int>(blockIdx.x) * TILE);
    }
}

/* ---- launchers -------------------------------------------------------- */
static unsigned tiles(int n)
{
    return static_cast<unsigned>((n + TILE - 1) / TILE);
}

template <typename T, bool IS_FORWARD>
static int run_rows(const struct mw_k_groups_cuda *a, void *d, const void *in,
                    const void *w, void *stream)
{
    unsigned blocks = static_cast<unsigned>(a->rows / TILE + a->shape.n_groups);
    dim3 grid(blocks, tiles(IS_FORWARD ? a->shape.n : a->shape.k));
    MW_LAUNCH((groups_rows<T, IS_FORWARD>), grid, MW_BLOCK, stream)
    (a->shape, static_cast<T *>(d), static_cast<const T *>(in),
     static_cast<const T *>(w));
    return cudaGetLastError();
}

int mw_k_groups_fwd_cuda(const struct mw_k_groups_cuda *a, void *y,
                         const void *x, const void *w, void *stream)
{
    return MW_BY_ELEM(a->elem, (run_rows<float, true>(a, y, x, w, stream)),
                      (run_rows<mw_bf16, true>(a, y, x, w, stream)));
}

int mw_k_groups_bwd_input_cuda(const struct mw_k_groups_cuda *a, void *dx,
                               const void *dy, const void *w, void *stream)
{
    return MW_BY_ELEM(a->elem, (run_rows<float, false>(a, dx, dy, w, stream)),
                      (run_rows<mw_bf16, false>(a, dx, dy, w, stream)));
}

template <typename T>
static int run_weight(const struct mw_k_groups_cuda *a, float *dw,
                      const void *dy, const void *x, void *stream)
{
    dim3 grid(tiles(a->shape.k), tiles(a->shape.n),
              static_cast<unsigned>(a->shape.n_groups));
    MW_LAUNCH(groups_weight<T>, grid, MW_BLOCK, stream)
    (a->shape, dw, static_cast<const T *>(dy), static_cast<const T *>(x));
    return cudaGetLastError();
}

int mw_k_groups_bwd_weight_cuda(const struct mw_k_groups_cuda *a, float *dw,
                                const void *dy, const void *x, void *stream)
{
    return MW_BY_ELEM(a->elem, run_weight<float>(a, dw, dy, x, stream),
                      run_weight<mw_bf16>(a, dw, dy, x, stream));
}
