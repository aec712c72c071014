/* Layouts of strided tensors; copies and sums of pieces. See rows.h. */
#include "tensor/cuda/rows.cuh"

ls_cuda_axes ls_cuda_axes_of(const ls_tensor *tensor) {
    ls_cuda_axes axes = {};
    axes.rank = tensor->rank;
    for (int i = 0; i < tensor->rank; i++) {
        axes.dim[i] = tensor->dim[i];
        axes.stride[i] = tensor->stride[i];
    }
    return axes;
}

ls_cuda_axes ls_cuda_axes_of_rows(int64_t rows, int64_t width, int64_t stride) {
    ls_cuda_axes axes = {};
    axes.rank = 2;
    axes.dim[0] = rows;
    axes.dim[1] = width;
    axes.stride[0] = stride;
    axes.stride[1] = 1;
    return axes;
}

static int64_t count_of(const ls_cuda_axes *axes) {
    int64_t count = 1;
    for (int i = 0; i < axes->rank; i++) count *= axes->dim[i];
    return count;
}

/* Adds an axis outside the others, or to the outermost where every operand simply goes on. */
static bool add_axis(ls_cuda_layout *layout, int64_t dim, const int64_t *step) {
    int last = layout->axes - 1;
    bool goes_on = last >= 0;
    for (int o = 0; o < layout->operands && goes_on; o++)
        goes_on = step[o] == layout->stride[last][o] * layout->dim[last];
    if (goes_on) {
        layout->dim[last] *= dim;
        return true;
    }
    if (layout->axes == LS_CUDA_AXES) return false;
    layout->dim[layout->axes] = dim;
    for (int o = 0; o < layout->operands; o++) layout->stride[layout->axes][o] = step[o];
    layout->axes++;
    return true;
}

/* The innermost axis becomes the row where all operands are contiguous along it. */
static void split_rows(ls_cuda_layout *layout) {
    layout->width = 1;
    if (layout->axes == 0) return;
    for (int o = 0; o < layout->operands; o++)
        if (layout->stride[0][o] != 1) return;
    layout->width = layout->dim[0];
    layout->axes--;
    memmove(layout->dim, layout->dim + 1, (size_t)layout->axes * sizeof layout->dim[0]);
    memmove(layout->stride, layout->stride + 1, (size_t)layout->axes * sizeof layout->stride[0]);
}

/* Walks all shapes from the inside: each axis is cut where any operand's ends. */
static bool refine(int operands, const ls_cuda_axes *operand, ls_cuda_layout *layout) {
    int at[LS_CUDA_OPERANDS];
    int64_t left[LS_CUDA_OPERANDS], step[LS_CUDA_OPERANDS];
    for (int o = 0; o < operands; o++) {
        if (count_of(&operand[o]) != layout->count) return false;
        at[o] = operand[o].rank;
        left[o] = 1;
    }
    for (int64_t done = 1; done < layout->count;) {
        int64_t part = layout->count;
        for (int o = 0; o < operands; o++) {
            while (left[o] == 1) {
                at[o]--;
                left[o] = operand[o].dim[at[o]];
                step[o] = operand[o].stride[at[o]];
            }
            part = ls_min(part, left[o]);
        }
        for (int o = 0; o < operands; o++)
            if (left[o] % part != 0) return false;
        if (!add_axis(layout, part, step)) return false;
        for (int o = 0; o < operands; o++) {
            left[o] /= part;
            step[o] *= part;
        }
        done *= part;
    }
    return true;
}

/* False where a tensor is so large that the divisions would not be exact. */
static bool add_divisors(ls_cuda_layout *layout) {
    uint64_t most = UINT64_MAX / (uint64_t)ls_max(layout->count, 1);
    bool exact = layout->axes == 0 || (uint64_t)layout->width <= most;
    layout->row = ls_cuda_divisor_of(layout->width);
    for (int axis = 0; axis < layout->axes; axis++) {
        layout->by_dim[axis] = ls_cuda_divisor_of(layout->dim[axis]);
        exact = exact && (uint64_t)layout->dim[axis] <= most;
    }
    return exact;
}

bool ls_cuda_lay_out(const ls_run *run, int operands, const ls_cuda_axes *operand,
                     ls_cuda_layout *out) {
    *out = {};
    out->operands = operands;
    out->count = count_of(&operand[0]);
    if (!refine(operands, operand, out)) {
        ls_cuda_note_text(ls_cuda_of(run), "laying out operands", "their shapes do not fit");
        return false;
    }
    split_rows(out);
    if (add_divisors(out)) return true;
    ls_cuda_note_text(ls_cuda_of(run), "laying out operands", "they are too large");
    return false;
}

bool ls_cuda_in_lanes(const ls_cuda_layout *layout, int lanes) {
    if (layout->width % lanes != 0) return false;
    for (int axis = 0; axis < layout->axes; axis++)
        for (int o = 0; o < layout->operands; o++)
            if (layout->stride[axis][o] % lanes != 0) return false;
    return true;
}

/* ---- copies ---- */

/* `lanes` elements make one word. */
template <typename Word>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    copy_kernel(const ls_cuda_layout layout, int lanes, char *to, const char *from) {
    enum { AHEAD = 2 };
    uint64_t begin = (uint64_t)blockIdx.x * (AHEAD * LS_CUDA_THREADS) + threadIdx.x;
    size_t size = sizeof(Word) / (unsigned)lanes;
    Word word[AHEAD];
    int64_t place[AHEAD][2];
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ahead++) {
        uint64_t index = (begin + (uint64_t)ahead * LS_CUDA_THREADS) * (unsigned)lanes;
        word[ahead] = Word{};
        if (index >= (uint64_t)layout.count) continue;
        ls_cuda_place(layout, index, place[ahead]);
        if (from != NULL) word[ahead] = *(const Word *)(from + place[ahead][1] * (int64_t)size);
    }
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ahead++) {
        uint64_t index = (begin + (uint64_t)ahead * LS_CUDA_THREADS) * (unsigned)lanes;
        if (index < (uint64_t)layout.count)
            *(Word *)(to + place[ahead][0] * (int64_t)size) = word[ahead];
    }
}

template <typename Word>
static void copy_words(const ls_run *run, const ls_cuda_layout *layout, int lanes, void *to,
                       const void *from) {
    copy_kernel<Word>
        <<<ls_cuda_blocks(layout->count / lanes, 2 * LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
           ls_cuda_of(run)->stream>>>(*layout, lanes, (char *)to, (const char *)from);
}

void ls_cuda_copy(const ls_run *run, const ls_cuda_layout *layout, void *to, const void *from,
                  size_t size, const char *what) {
    if (layout->count == 0) return;
    int lanes = (int)(16 / size);
    bool wide = ls_cuda_in_lanes(layout, lanes) && ls_cuda_aligned(to) && ls_cuda_aligned(from);
    if (wide)
        copy_words<uint4>(run, layout, lanes, to, from);
    else if (size == 8)
        copy_words<uint2>(run, layout, 1, to, from);
    else if (size == 4)
        copy_words<uint32_t>(run, layout, 1, to, from);
    else if (size == 2)
        copy_words<uint16_t>(run, layout, 1, to, from);
    else
        copy_words<uint8_t>(run, layout, 1, to, from);
    ls_cuda_launched(run, what);
}

/* ---- sums of pieces ---- */

enum { SUM_COLUMNS = 8, SUM_LINES = 128 };

/* Two sums over the same pieces: the second begins `apart` after the first. Either may be NULL. */
template <typename T> struct sum_targets {
    T *to[2];
    int64_t apart;
};

/* A block has 8 columns (32 bytes, the least that memory moves); line l of it adds up the pieces l,
 * l + 128, ...; then the lines are added by a fixed tree. */
template <typename T>
static __global__ void __launch_bounds__(SUM_COLUMNS *SUM_LINES)
    add_pieces_kernel(const float *__restrict__ partial, int64_t pieces, int64_t stride,
                      const ls_cuda_layout columns, const sum_targets<T> targets, bool add) {
    __shared__ float lines[SUM_LINES][SUM_COLUMNS];
    T *to = blockIdx.y == 0 ? targets.to[0] : targets.to[1];
    if (to == NULL) return;
    partial += blockIdx.y * targets.apart;
    int64_t column = (int64_t)blockIdx.x * SUM_COLUMNS + threadIdx.x;
    bool exists = column < columns.count;
    float sum = 0;
    if (exists) {
#pragma unroll 8
        for (int64_t piece = threadIdx.y; piece < pieces; piece += SUM_LINES)
            sum += partial[piece * stride + column];
    }
    lines[threadIdx.y][threadIdx.x] = sum;
    for (unsigned half = SUM_LINES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
            lines[threadIdx.y][threadIdx.x] += lines[threadIdx.y + half][threadIdx.x];
    }
    if (threadIdx.y != 0 || !exists) return;
    int64_t place[1];
    ls_cuda_place(columns, (uint64_t)column, place);
    float all = lines[0][threadIdx.x];
    to[place[0]] = ls_cuda_narrow<T>(add ? ls_cuda_wide(to[place[0]]) + all : all);
}

template <typename T>
static void launch_sums(const ls_run *run, const float *partial, int64_t pieces, int64_t stride,
                        int64_t apart, const ls_cuda_layout *columns, void *const to[2], bool add) {
    const sum_targets<T> targets = {{(T *)to[0], (T *)to[1]}, apart};
    const dim3 threads(SUM_COLUMNS, SUM_LINES);
    const dim3 blocks(ls_cuda_blocks(columns->count, SUM_COLUMNS), to[1] == NULL ? 1 : 2);
    add_pieces_kernel<<<blocks, threads, 0, ls_cuda_of(run)->stream>>>(partial, pieces, stride,
                                                                       *columns, targets, add);
}

void ls_cuda_add_pieces_to_two(const ls_run *run, const float *partial, int64_t pieces,
                               int64_t stride, int64_t apart, const ls_cuda_layout *columns,
                               void *const to[2], ls_dtype type, bool add, const char *what) {
    if (columns->count == 0) return;
    if (type == LS_BF16)
        launch_sums<ls_cuda_bf16>(run, partial, pieces, stride, apart, columns, to, add);
    else
        launch_sums<float>(run, partial, pieces, stride, apart, columns, to, add);
    ls_cuda_launched(run, what);
}

void ls_cuda_add_pieces(const ls_run *run, const float *partial, int64_t pieces, int64_t stride,
                        const ls_cuda_layout *columns, void *to, ls_dtype type, bool add,
                        const char *what) {
    void *const one[2] = {to, NULL};
    ls_cuda_add_pieces_to_two(run, partial, pieces, stride, 0, columns, one, type, add, what);
}
