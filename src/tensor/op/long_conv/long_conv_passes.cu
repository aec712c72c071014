#include "tensor/op/long_conv/long_conv_passes.cuh"

#include "tensor/op/long_conv/long_conv_columns.cuh"
#include "tensor/op/long_conv/long_conv_rows.cuh"

enum {
    /* Complex values of all planes of a slab, 32 MiB: they stay in the caches. But channels are as
     * many as lie together in memory. */
    SLAB_VALUES = 1 << 22,
    SLAB_CHANNELS = 16,
    CHANNEL_BITS = 2, /* of those that a thread block takes from neighbouring channels */
    BLOCK_VALUES = COLUMN_THREADS * TRANSFORM_VALUES,
    ROW_LONGEST = 4096,
    MOST = 1 << 30 /* angles of turns are multiples of a part of 2^32 */
};

/* ---- sizes ---- */

ls_conv_slab ls_conv_slab_of(int64_t B, int64_t length, int64_t D, bool backward) {
    ls_conv_slab slab = {LS_CONV_PASSES_LEAST, ls_ceil_div(D, 1 << CHANNEL_BITS) << CHANNEL_BITS, B,
                         false};
    while (slab.N < length) slab.N *= 2;
    const int64_t rows = SLAB_VALUES / slab.N; /* of all channels and planes */
    const int64_t each = backward ? 2 : 1, least = ls_min(slab.channels, SLAB_CHANNELS);
    slab.sequences = ls_max(1, ls_min(B, (rows / least - 1) / each));
    slab.sums_apart = backward && slab.sequences < B;
    const int64_t planes = 1 + each * slab.sequences + (slab.sums_apart ? 1 : 0);
    const int64_t channels = rows / planes / 8 * 8; /* 32 bytes */
    slab.channels = ls_min(slab.channels, ls_max(least, channels));
    return slab;
}
size_t ls_conv_slab_bytes(const ls_conv_slab &slab, bool backward) {
    const int64_t planes = 1 + (backward ? 2 : 1) * slab.sequences + (slab.sums_apart ? 1 : 0);
    return (size_t)(planes * slab.N * slab.channels) * sizeof(float2);
}

static int bits_under(int64_t power) {
    int bits = 0;
    while ((int64_t)1 << bits < power) bits++;
    return bits;
}

/* Columns of the first pass, of the next ones, and what is left in rows. */
struct pass_plan {
    int count, columns[8];
    int64_t rows;
};
static pass_plan plan_of(int64_t N, size_t shared_max) {
    pass_plan plan = {};
    int sixteens = (bits_under(N) - 8) / 4;
    plan.rows = N >> 4 * sixteens;
    /* an odd pass of 16 can be spared where rows can be longer */
    if (sixteens > 1 && sixteens % 2 == 1 && 16 * plan.rows <= ROW_LONGEST &&
        shared_max >= sizeof(row_memory<ROW_LONGEST, true>)) {
        plan.rows *= 16;
        sixteens--;
    }
    for (; sixteens > 0; sixteens -= 2) plan.columns[plan.count++] = sixteens > 1 ? 256 : 16;
    return plan;
}

/* ---- one pass ---- */

struct passes {
    const ls_run *run;
    const char *what;
    pass_plan plan;

    template <typename... Wanted, typename... Given>
    void launch(void (*kernel)(Wanted...), int64_t blocks, int threads, size_t bytes,
                const Given &...given) const {
        const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        ls_cuda_note(ls_cuda_of(run), error, what);
        kernel<<<(unsigned)blocks, threads, bytes, ls_cuda_of(run)->stream>>>(given...);
        ls_cuda_launched(run, what);
    }
};

static column_cut cut_of(int C, int64_t N, int64_t n, int by_channels) {
    const int64_t columns = BLOCK_VALUES / C >> by_channels;
    return {n,
            by_channels,
            bits_under(n / C / columns),
            bits_under(N / n),
            (unsigned)(4 * n - 1),
            0.5f / (float)n};
}
/* What goes through a pass together: series to planes, planes to planes or to where they go. */
template <typename In, typename Out> struct operands {
    int count;
    In in[column_work<In, Out>::MOST];
    Out out[column_work<In, Out>::MOST];
    int64_t sequences[column_work<In, Out>::MOST];

    void add(const In &from, const Out &to, int64_t some) {
        in[count] = from;
        out[count] = to;
        sequences[count++] = some;
    }
};
static const planes &planes_of(const planes &one, const planes &) {
    return one;
}
template <typename E> static const planes &planes_of(const series<E> &, const planes &one) {
    return one;
}
template <typename E> static const planes &planes_of(const planes &one, const real_target<E> &) {
    return one;
}
static int bits_between(const planes &, const planes &) {
    return 0;
}
template <typename E> static int bits_between(const series<E> &all, const planes &) {
    return all.by_channel == 1 ? CHANNEL_BITS : 0;
}
template <typename E> static int bits_between(const planes &, const real_target<E> &all) {
    return bits_between(all.to, planes{});
}

/* The pass of columns of C over parts of n values: `by_16` or `by_256`. */
template <typename In, typename Out>
static void pass_columns(const passes &p, int C, const operands<In, Out> &all, int64_t n,
                         void (*by_16)(column_work<In, Out>),
                         void (*by_256)(column_work<In, Out>)) {
    column_work<In, Out> work = {};
    int64_t blocks = 0;
    for (int i = 0; i < all.count; i++) {
        const planes &at = planes_of(all.in[i], all.out[i]);
        const int64_t own = all.sequences[i] * at.channels * at.N / BLOCK_VALUES;
        work.in[i] = all.in[i];
        work.out[i] = all.out[i];
        work.cut[i] = cut_of(C, at.N, n, bits_between(all.in[i], all.out[i]));
        work.blocks[i] = (unsigned)own;
        blocks += own;
    }
    if (C == 16)
        p.launch(by_16, blocks, COLUMN_THREADS, sizeof(column_memory<16>), work);
    else
        p.launch(by_256, blocks, COLUMN_THREADS, sizeof(column_memory<256>), work);
}

template <typename T>
static void to_rows(const passes &p, const operands<series<const T>, planes> &all) {
    typedef series<const T> In;
    int64_t n = all.out[0].N;
    pass_columns(p, p.plan.columns[0], all, n, columns_there<16, true, In>,
                 columns_there<256, true, In>);
    operands<planes, planes> inner = {};
    for (int i = 0; i < all.count; i++) inner.add(all.out[i], all.out[i], all.sequences[i]);
    for (int i = 1; i < p.plan.count; i++) {
        n /= p.plan.columns[i - 1];
        pass_columns(p, p.plan.columns[i], inner, n, columns_there<16, false, planes>,
                     columns_there<256, false, planes>);
    }
}
template <typename T>
static void from_rows(const passes &p, const operands<planes, real_target<T>> &all) {
    typedef real_target<T> Out;
    int64_t n = p.plan.rows;
    operands<planes, planes> inner = {};
    for (int i = 0; i < all.count; i++) inner.add(all.in[i], all.in[i], all.sequences[i]);
    for (int i = p.plan.count - 1; i > 0; i--) {
        n *= p.plan.columns[i];
        pass_columns(p, p.plan.columns[i], inner, n, columns_back<16, false, planes>,
                     columns_back<256, false, planes>);
    }
    pass_columns(p, p.plan.columns[0], all, all.in[0].N, columns_back<16, true, Out>,
                 columns_back<256, true, Out>);
}

/* Kernels are f32: they go along with sequences that are, and alone otherwise. */
static void add_kernels(const passes &, operands<series<const float>, planes> &all,
                        const series<const float> &k, const planes &to) {
    all.add(k, to, 1);
}
static void add_kernels(const passes &p, operands<series<const ls_cuda_bf16>, planes> &,
                        const series<const float> &k, const planes &to) {
    operands<series<const float>, planes> alone = {};
    alone.add(k, to, 1);
    to_rows(p, alone);
}
static void add_sums(const passes &, operands<planes, real_target<float>> &all, const planes &from,
                     const real_target<float> &to) {
    all.add(from, to, 1);
}
static void add_sums(const passes &p, operands<planes, real_target<ls_cuda_bf16>> &,
                     const planes &from, const real_target<float> &to) {
    operands<planes, real_target<float>> alone = {};
    alone.add(from, to, 1);
    from_rows(p, alone);
}

template <int R> static void launch_rows(const passes &p, const row_work &w) {
    const int64_t blocks = w.rows / row_sizes<R>::ROWS;
    if (w.sums != NULL)
        p.launch(rows_through<R, true>, blocks, row_sizes<R>::THREADS, sizeof(row_memory<R, true>),
                 w);
    else
        p.launch(rows_through<R, false>, blocks, row_sizes<R>::THREADS,
                 sizeof(row_memory<R, false>), w);
}
static void through_rows(const passes &p, const row_work &w) {
    const int64_t R = p.plan.rows;
    void (*launch)(const passes &, const row_work &) = R == 256    ? launch_rows<256>
                                                       : R == 512  ? launch_rows<512>
                                                       : R == 1024 ? launch_rows<1024>
                                                       : R == 2048 ? launch_rows<2048>
                                                                   : launch_rows<ROW_LONGEST>;
    launch(p, w);
}

/* ---- all of it ---- */

template <typename T>
void ls_conv_by_passes(const ls_run *run, const char *what, const ls_conv_slab &slab,
                       const ls_conv_job<T> &job) {
    const passes p = {run, what, plan_of(slab.N, ls_cuda_of(run)->shared_max)};
    const bool product = job.y.data != NULL, summed = job.sums.asked();
    if (!product && !summed) return;
    if (slab.N > MOST) {
        ls_cuda_note_text(ls_cuda_of(run), what, "more than 2^30 values");
        return;
    }
    const int64_t one = slab.N * slab.channels;
    const planes kernels = {(float2 *)run->workspace, slab.N, slab.channels};
    const planes x = {kernels.data + one, slab.N, slab.channels};
    const planes others = {x.data + slab.sequences * one, slab.N, slab.channels};
    planes sums = kernels;
    if (slab.sums_apart) sums.data = others.data + slab.sequences * one;
    row_work w = {};
    w.sequences = x.data;
    w.kernels = product ? kernels.data : NULL;
    w.others = others.data;
    w.sums = summed ? sums.data : NULL;
    w.rows = one / p.plan.rows;
    w.by_channel = slab.N / p.plan.rows;
    w.scale = 1.0f / (float)slab.N;
    w.conjugate = job.conjugate;
    for (int64_t d = 0; d < job.x.D; d += slab.channels) {
        w.skip = job.skip == NULL ? NULL : job.skip + d;
        w.D = job.x.D - d;
        for (int64_t b = 0; b < job.B; b += slab.sequences) {
            w.count = (int)ls_min(slab.sequences, job.B - b);
            w.first = b == 0;
            w.last = b + w.count == job.B;
            operands<series<const T>, planes> in = {};
            if (product && w.first) add_kernels(p, in, slab_of(job.k, 0, d), kernels);
            in.add(slab_of(job.x, b, d), x, w.count);
            if (summed) in.add(slab_of(job.other, b, d), others, w.count);
            to_rows(p, in);
            through_rows(p, w);
            operands<planes, real_target<T>> out = {};
            if (product) out.add(x, {slab_of(job.y, b, d), NULL}, w.count);
            if (summed && w.last) add_sums(p, out, sums, slab_of(job.sums, 0, d));
            if (out.count > 0) from_rows(p, out);
        }
    }
}

template void ls_conv_by_passes(const ls_run *, const char *, const ls_conv_slab &,
                                const ls_conv_job<float> &);
template void ls_conv_by_passes(const ls_run *, const char *, const ls_conv_slab &,
                                const ls_conv_job<ls_cuda_bf16> &);
