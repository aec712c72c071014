#include "tensor/cuda/column_sums.cuh"

enum { LANES = 32, DEEP = 8, BLOCK_COLUMNS = 256, BLOCKS_WANTED = 1024, PIECES_MAX = 256 };

/* So many pieces that the device is full, none of fewer than 64 rows. */
static int64_t rows_of_piece(int64_t rows, int64_t width) {
    int64_t across = (width + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
    int64_t pieces = BLOCKS_WANTED / across;
    if (pieces > PIECES_MAX) pieces = PIECES_MAX;
    if (pieces > rows / 64) pieces = rows / 64;
    if (pieces < 1) pieces = 1;
    return (rows + pieces - 1) / pieces;
}

static int64_t pieces_of(int64_t rows, int64_t width) {
    int64_t piece = rows_of_piece(rows, width);
    return (rows + piece - 1) / piece;
}

size_t ls_cuda_column_sums_bytes(int64_t rows, int64_t width) {
    return (size_t)(pieces_of(rows, width) * width) * sizeof(float);
}

/* WIDE columns of a row in one load: 16 bytes, or one element where they are not aligned. */
template <typename T, int WIDE> struct pack { T value[WIDE]; };
template <typename T> struct __align__(16) whole_pack : pack<T, 16 / sizeof(T)>{};

template <typename T, int WIDE, typename PACK>
static __global__ void __launch_bounds__(LANES *DEEP)
    piece_sums(const T *data, int64_t rows, int64_t width, int64_t stride, int64_t piece_rows,
               float *partial) {
    __shared__ float shared[DEEP][LANES * WIDE];
    int64_t base = (int64_t)blockIdx.x * (LANES * WIDE), column = base + threadIdx.x * WIDE;
    int64_t first = blockIdx.y * piece_rows;
    int64_t last = first + piece_rows < rows ? first + piece_rows : rows;
    float sum[WIDE] = {0};
    if (column < width)
#pragma unroll 4
        for (int64_t row = first + threadIdx.y; row < last; row += DEEP) {
            PACK values = *(const PACK *)(data + row * stride + column);
            for (int i = 0; i < WIDE; i++) sum[i] += ls_cuda_wide(values.value[i]);
        }
    for (int i = 0; i < WIDE; i++) shared[threadIdx.y][threadIdx.x * WIDE + i] = sum[i];
    __syncthreads();
    for (int i = threadIdx.y * LANES + threadIdx.x; i < LANES * WIDE; i += LANES * DEEP) {
        float total = 0;
        for (int j = 0; j < DEEP; j++) total += shared[j][i];
        if (base + i < width) partial[blockIdx.y * width + base + i] = total;
    }
}

static __global__ void add_vectors(const float *vectors, int64_t pieces, int64_t width,
                                   float *sums) {
    __shared__ float shared[DEEP][LANES];
    int64_t column = (int64_t)blockIdx.x * LANES + threadIdx.x;
    float sum = 0;
    if (column < width)
        for (int64_t i = threadIdx.y; i < pieces; i += DEEP) sum += vectors[i * width + column];
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= width) return;
    float total = 0;
    for (int i = 0; i < DEEP; i++) total += shared[i][threadIdx.x];
    sums[column] += total;
}

void ls_cuda_add_vectors(ls_cuda *cuda, const float *vectors, int64_t pieces, int64_t width,
                         float *sums) {
    unsigned blocks = (unsigned)((width + LANES - 1) / LANES);
    add_vectors<<<blocks, dim3(LANES, DEEP), 0, cuda->stream>>>(vectors, pieces, width, sums);
    ls_cuda_note(cuda, cudaGetLastError(), "adding sums");
}

template <typename T>
static void launch(ls_cuda *cuda, const T *data, int64_t rows, int64_t width, int64_t stride,
                   float *partial) {
    enum { WIDE = 16 / sizeof(T) };
    bool aligned = (uintptr_t)data % 16 == 0 && stride % WIDE == 0 && width % WIDE == 0;
    int64_t columns = aligned ? LANES * WIDE : LANES;
    dim3 blocks((unsigned)((width + columns - 1) / columns), (unsigned)pieces_of(rows, width));
    dim3 threads(LANES, DEEP);
    int64_t piece = rows_of_piece(rows, width);
    if (aligned)
        piece_sums<T, WIDE, whole_pack<T>>
            <<<blocks, threads, 0, cuda->stream>>>(data, rows, width, stride, piece, partial);
    else
        piece_sums<T, 1, pack<T, 1>>
            <<<blocks, threads, 0, cuda->stream>>>(data, rows, width, stride, piece, partial);
    ls_cuda_note(cuda, cudaGetLastError(), "summing columns");
}

void ls_cuda_column_sums(ls_cuda *cuda, const void *data, ls_dtype type, int64_t rows,
                         int64_t width, int64_t stride, float *sums, float *workspace) {
    if (type == LS_BF16)
        launch(cuda, (const ls_cuda_bf16 *)data, rows, width, stride, workspace);
    else
        launch(cuda, (const float *)data, rows, width, stride, workspace);
    ls_cuda_add_vectors(cuda, workspace, pieces_of(rows, width), width, sums);
}
