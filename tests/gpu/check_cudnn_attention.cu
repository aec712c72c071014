// nvcc -O2 -arch=native -Isrc {tests/gpu/check_,src/tensor/cuda/lib/}cudnn_attention.cu -ldl
/* Attention by cuDNN against plain kernels in f32, on a device: relative errors, equal bits from
 * run to run and from a captured graph, and times. A refused case is told with cuDNN's words. */
#include "tensor/cuda/lib/cudnn_attention.h"

enum { THREADS = 128, RUNS = 20, WARM = 3 };

static int failures;

static void fail(const char *what) {
    failures++;
    printf("    WRONG: %s\n", what);
}

/* The library's errors come here; in the plug-in the device keeps them. */
void ls_cuda_note_text(ls_cuda *cuda, const char *what, const char *why) {
    printf("    %s: %s\n", what, why);
    fail("a run failed");
}

void ls_cuda_note(ls_cuda *cuda, cudaError_t error, const char *what) {
    if (error != cudaSuccess) ls_cuda_note_text(cuda, what, cudaGetErrorString(error));
}

static void must(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(error));
    exit(2);
}

/* ---- the reference, for one batch; its arrays are [head, row, D] and [head, row] ---- */

typedef struct batch {
    ls_cudnn_shape s;
    const ls_cuda_bf16 *q, *k, *v, *d_o;
    const float *slopes;
    float *o, *lse, *inner, *dq, *dk, *dv; /* inner: the sum over m of P * dP */
} batch;

static __host__ __device__ bool visible(const ls_cudnn_shape &s, int64_t row, int64_t m) {
    int64_t n = row + s.N - s.T;
    return (!s.causal || m <= n) && (s.window == 0 || n - m < s.window);
}

static __device__ float dot(const ls_cuda_bf16 *a, const ls_cuda_bf16 *b, int64_t D) {
    float sum = 0;
    for (int64_t d = 0; d < D; d++) sum += ls_cuda_wide(a[d]) * ls_cuda_wide(b[d]);
    return sum;
}

static __device__ float score(const batch &a, int64_t h, int64_t row, int64_t m) {
    const ls_cudnn_shape &s = a.s;
    int64_t g = h / (s.H / s.G);
    float value = (float)s.scale * dot(a.q + row * s.q_stride[1] + h * s.q_stride[2],
                                       a.k + m * s.k_stride[1] + g * s.k_stride[2], s.D);
    return s.alibi ? value - a.slopes[h] * (float)(row + s.N - s.T - m) : value;
}

static __device__ float dp(const batch &a, int64_t h, int64_t row, int64_t m) {
    const ls_cudnn_shape &s = a.s;
    int64_t g = h / (s.H / s.G);
    return dot(a.d_o + row * s.do_stride[1] + h * s.do_stride[2],
               a.v + m * s.v_stride[1] + g * s.v_stride[2], s.D);
}

/* The sum or the largest of one value of each thread, given to all. */
static __device__ float of_all(float value, bool largest) {
    __shared__ float values[THREADS];
    values[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = values[threadIdx.x + half], mine = values[threadIdx.x];
            values[threadIdx.x] = largest ? fmaxf(mine, other) : mine + other;
        }
        __syncthreads();
    }
    float result = values[0];
    __syncthreads();
    return result;
}

/* One block for each query row of each head: o, lse, inner and dq. */
static __global__ void reference_rows(batch a) {
    extern __shared__ float weights[]; /* [N], then dS [N] */
    const ls_cudnn_shape &s = a.s;
    float *ds = weights + s.N;
    int64_t h = blockIdx.x / s.T, row = blockIdx.x % s.T, g = h / (s.H / s.G);
    float most = -INFINITY, sum = 0, inner = 0;
    for (int64_t m = threadIdx.x; m < s.N; m += THREADS) {
        weights[m] = visible(s, row, m) ? score(a, h, row, m) : -INFINITY;
        most = fmaxf(most, weights[m]);
    }
    most = of_all(most, true);
    for (int64_t m = threadIdx.x; m < s.N; m += THREADS) sum += expf(weights[m] - most);
    float lse = most + logf(of_all(sum, false));
    for (int64_t m = threadIdx.x; m < s.N; m += THREADS) {
        weights[m] = expf(weights[m] - lse);
        ds[m] = visible(s, row, m) ? dp(a, h, row, m) : 0;
        inner += weights[m] * ds[m];
    }
    inner = of_all(inner, false);
    for (int64_t m = threadIdx.x; m < s.N; m += THREADS)
        ds[m] = weights[m] * (ds[m] - inner) * (float)s.scale;
    __syncthreads();
    for (int64_t d = threadIdx.x; d < s.D; d += THREADS) {
        float o = 0, dq = 0;
        for (int64_t m = 0; m < s.N; m++) {
            o += weights[m] * ls_cuda_wide(a.v[m * s.v_stride[1] + g * s.v_stride[2] + d]);
            dq += ds[m] * ls_cuda_wide(a.k[m * s.k_stride[1] + g * s.k_stride[2] + d]);
        }
        a.o[(h * s.T + row) * s.D + d] = o;
        a.dq[(h * s.T + row) * s.D + d] = dq;
    }
    if (threadIdx.x == 0) a.lse[h * s.T + row] = lse, a.inner[h * s.T + row] = inner;
}

/* One block for each key row of each key head, after reference_rows: dk and dv. */
static __global__ void reference_keys(batch a) {
    __shared__ float weight[THREADS], ds[THREADS];
    const ls_cudnn_shape &s = a.s;
    int64_t g = blockIdx.x / s.N, m = blockIdx.x % s.N, share = s.H / s.G, d = threadIdx.x;
    float dk = 0, dv = 0;
    for (int64_t h = g * share; h < (g + 1) * share; h++)
        for (int64_t from = 0; from < s.T; from += THREADS) {
            int64_t row = from + threadIdx.x, rows = s.T - from < THREADS ? s.T - from : THREADS;
            bool seen = row < s.T && visible(s, row, m);
            float p = seen ? expf(score(a, h, row, m) - a.lse[h * s.T + row]) : 0;
            weight[threadIdx.x] = p;
            ds[threadIdx.x] =
                seen ? p * (dp(a, h, row, m) - a.inner[h * s.T + row]) * (float)s.scale : 0;
            __syncthreads();
            for (int64_t i = 0; i < rows && d < s.D; i++) {
                int64_t n = from + i;
                dv += weight[i] * ls_cuda_wide(a.d_o[n * s.do_stride[1] + h * s.do_stride[2] + d]);
                dk += ds[i] * ls_cuda_wide(a.q[n * s.q_stride[1] + h * s.q_stride[2] + d]);
            }
            __syncthreads();
        }
    if (d < s.D) a.dk[(g * s.N + m) * s.D + d] = dk, a.dv[(g * s.N + m) * s.D + d] = dv;
}

/* ---- a case and its memory ---- */

typedef struct check {
    const char *name;
    int64_t B, T, N, H, G, D, window;
    bool causal, alibi;
    bool together; /* q, k and v are parts of one array [B,T,3,H,D], and so are the gradients */
} check;

static const check checks[] = {
    {"causal 1024, D 64", 4, 1024, 1024, 12, 12, 64, 0, true, false, false},
    {"causal 1024, D 128", 4, 1024, 1024, 16, 16, 128, 0, true, false, false},
    {"causal 4096, D 64", 2, 4096, 4096, 16, 16, 64, 0, true, false, false},
    {"causal 4096, D 128", 2, 4096, 4096, 16, 16, 128, 0, true, false, false},
    {"alibi 1024, D 64", 4, 1024, 1024, 12, 12, 64, 0, true, true, false},
    {"alibi 4096, D 128", 2, 4096, 4096, 16, 16, 128, 0, true, true, false},
    {"one array, 1024, D 64", 4, 1024, 1024, 12, 12, 64, 0, true, false, true},
    {"one array, alibi 1024, D 128", 4, 1024, 1024, 16, 16, 128, 0, true, true, true},
    {"4 queries to a key, 1024, D 128", 4, 1024, 1024, 16, 4, 128, 0, true, false, false},
    {"one key head, 1024, D 64", 4, 1024, 1024, 16, 1, 64, 0, true, false, false},
    {"window 256 of 1024, D 64", 4, 1024, 1024, 12, 12, 64, 256, true, false, false},
    {"window 1000 of 4096, D 128", 2, 4096, 4096, 16, 16, 128, 1000, true, false, false},
    {"window 128 with alibi, D 64", 2, 1024, 1024, 16, 4, 64, 128, true, true, false},
    {"512 queries of 1024, D 64", 2, 512, 1024, 16, 16, 64, 0, true, false, false},
    {"512 queries of 1024, window 100", 2, 512, 1024, 16, 16, 64, 100, true, false, false},
    {"not causal 1024, D 64", 2, 1024, 1024, 16, 16, 64, 0, false, false, false},
    {"short: 64, D 128", 2, 64, 64, 4, 4, 128, 0, true, false, false},
    {"short: 192, alibi, D 64", 2, 192, 192, 4, 4, 64, 0, true, true, false},
};

/* One array of bf16 on the device, of which tensors are parts. */
typedef struct array {
    ls_cuda_bf16 *data;
    size_t count;
} array;

typedef struct memory {
    array in[3], d_o, o, gradient[3]; /* q, k, v */
    float *lse, *slopes;
    ls_cuda_bf16 *q, *k, *v, *dq, *dk, *dv;
} memory;

static __global__ void fill_random(ls_cuda_bf16 *out, size_t count, uint32_t seed) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= count) return;
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    float uniform = (float)((x ^ (x >> 31)) >> 40) / (float)(1 << 24);
    out[i] = ls_cuda_narrow<ls_cuda_bf16>((uniform - 0.5f) * 3.4641016f); /* variance 1 */
}

static array array_of(int64_t count, uint32_t seed) {
    array a = {NULL, (size_t)count};
    must(cudaMalloc((void **)&a.data, a.count * sizeof *a.data), "taking memory");
    fill_random<<<(unsigned)((a.count + 255) / 256), 256>>>(a.data, a.count, seed);
    must(cudaGetLastError(), "filling memory");
    return a;
}

static float *floats(int64_t count) {
    float *there = NULL;
    must(cudaMalloc((void **)&there, (size_t)count * sizeof(float)), "taking memory");
    return there;
}

static void set_strides(int64_t stride[3], int64_t rows, int64_t row, int64_t D) {
    stride[0] = rows * row, stride[1] = row, stride[2] = D;
}

static ls_cudnn_shape shape_of(const check *c) {
    ls_cudnn_shape s = {};
    s.B = c->B, s.T = c->T, s.N = c->N, s.H = c->H, s.G = c->G, s.D = c->D;
    s.scale = 1 / sqrt((double)c->D);
    s.causal = c->causal, s.window = c->window, s.alibi = c->alibi;
    int64_t query = c->H * c->D, key = c->together ? 3 * query : c->G * c->D;
    set_strides(s.q_stride, c->T, c->together ? key : query, c->D);
    set_strides(s.k_stride, c->N, key, c->D);
    set_strides(s.o_stride, c->T, query, c->D);
    memcpy(s.v_stride, s.k_stride, sizeof s.v_stride);
    memcpy(s.do_stride, s.o_stride, sizeof s.do_stride);
    memcpy(s.dq_stride, s.q_stride, sizeof s.dq_stride);
    memcpy(s.dk_stride, s.k_stride, sizeof s.dk_stride);
    memcpy(s.dv_stride, s.k_stride, sizeof s.dv_stride);
    return s;
}

static void place_parts(array arrays[3], const check *c, ls_cuda_bf16 **q, ls_cuda_bf16 **k,
                        ls_cuda_bf16 **v, uint32_t seed) {
    int64_t query = c->B * c->T * c->H * c->D, key = c->B * c->N * c->G * c->D;
    arrays[0] = array_of(c->together ? 3 * query : query, seed);
    arrays[1] = c->together ? array{NULL, 0} : array_of(key, seed + 1);
    arrays[2] = c->together ? array{NULL, 0} : array_of(key, seed + 2);
    *q = arrays[0].data;
    *k = c->together ? arrays[0].data + c->H * c->D : arrays[1].data;
    *v = c->together ? arrays[0].data + 2 * c->H * c->D : arrays[2].data;
}

static memory memory_of(const check *c) {
    memory m = {};
    place_parts(m.in, c, &m.q, &m.k, &m.v, 1);
    place_parts(m.gradient, c, &m.dq, &m.dk, &m.dv, 11);
    m.d_o = array_of(c->B * c->T * c->H * c->D, 21);
    m.o = array_of(c->B * c->T * c->H * c->D, 22);
    m.lse = floats(c->B * c->H * c->T);
    m.slopes = floats(c->H);
    float slopes[256];
    for (int64_t h = 0; h < c->H; h++) slopes[h] = exp2f(-8.0f * (float)(h + 1) / (float)c->H);
    must(cudaMemcpy(m.slopes, slopes, (size_t)c->H * sizeof *slopes, cudaMemcpyHostToDevice),
         "slopes");
    must(cudaDeviceSynchronize(), "filling memory");
    return m;
}

static void give_memory(memory *m) {
    for (int i = 0; i < 3; i++) cudaFree(m->in[i].data), cudaFree(m->gradient[i].data);
    cudaFree(m->d_o.data), cudaFree(m->o.data), cudaFree(m->lse), cudaFree(m->slopes);
}

/* ---- comparing ---- */

/* The reference of the last batch, so that a wrong batch stride shows. */
static batch reference_of(const ls_cudnn_shape *s, const memory *m) {
    int64_t b = s->B - 1, queries = s->H * s->T, keys = s->G * s->N;
    batch a = {};
    a.s = *s;
    a.q = m->q + b * s->q_stride[0], a.k = m->k + b * s->k_stride[0];
    a.v = m->v + b * s->v_stride[0], a.d_o = m->d_o.data + b * s->do_stride[0];
    a.slopes = m->slopes;
    a.o = floats(queries * s->D), a.dq = floats(queries * s->D);
    a.dk = floats(keys * s->D), a.dv = floats(keys * s->D);
    a.lse = floats(queries), a.inner = floats(queries);
    reference_rows<<<(unsigned)queries, THREADS, 2 * (size_t)s->N * sizeof(float)>>>(a);
    reference_keys<<<(unsigned)keys, THREADS>>>(a);
    must(cudaDeviceSynchronize(), "the reference");
    return a;
}

static void give_reference(batch *a) {
    cudaFree(a->o), cudaFree(a->dq), cudaFree(a->dk), cudaFree(a->dv);
    cudaFree(a->lse), cudaFree(a->inner);
}

static void *copied(const void *there, size_t bytes) {
    void *here = malloc(bytes);
    if (here == NULL) exit(2);
    must(cudaMemcpy(here, there, bytes, cudaMemcpyDeviceToHost), "copying");
    return here;
}

/* ||got - want|| / ||want|| over heads, rows and D of the last batch. */
static void compare(const char *name, const ls_cuda_bf16 *got, const int64_t stride[3],
                    const float *want, const ls_cudnn_shape *s, int64_t heads, int64_t rows,
                    double limit) {
    size_t span = (size_t)((rows - 1) * stride[1] + (heads - 1) * stride[2] + s->D);
    ls_cuda_bf16 *mine = (ls_cuda_bf16 *)copied(got + (s->B - 1) * stride[0], span * sizeof *mine);
    float *wanted = (float *)copied(want, (size_t)(heads * rows * s->D) * sizeof *wanted);
    double wrong = 0, all = 0;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t d = 0; d < s->D; d++) {
                double w = wanted[(h * rows + row) * s->D + d];
                double g = ls_cuda_wide(mine[row * stride[1] + h * stride[2] + d]);
                wrong += (g - w) * (g - w), all += w * w;
            }
    double error = sqrt(wrong / all);
    printf("%s %.2e  ", name, error);
    if (!(error < limit)) printf("(more than %.0e)\n", limit), fail(name);
    free(mine), free(wanted);
}

static void compare_lse(const float *got, const float *want, const ls_cudnn_shape *s) {
    size_t count = (size_t)(s->H * s->T);
    float *mine = (float *)copied(got + (s->B - 1) * s->H * s->T, count * sizeof *mine);
    float *wanted = (float *)copied(want, count * sizeof *wanted);
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double off = fabs((double)mine[i] - (double)wanted[i]);
        if (!(off <= most)) most = off; /* a NaN stays */
    }
    printf("lse %.2e (absolute)  ", most);
    if (!(most < 1e-3)) printf("(more than 1e-3)\n"), fail("lse");
    free(mine), free(wanted);
}

/* ---- running ---- */

/* Both ask first, as the operation does, in a capture too. */
static void forward(ls_cuda *cuda, const ls_cudnn_shape *s, const memory *m) {
    if (!ls_cudnn_attention_ready(cuda, s, false)) fail("forward is no longer ready");
    ls_cudnn_attention_forward(cuda, s, m->q, m->k, m->v, m->o.data, m->lse, m->slopes);
}

static void backward(ls_cuda *cuda, const ls_cudnn_shape *s, const memory *m) {
    if (!ls_cudnn_attention_ready(cuda, s, true)) fail("backward is no longer ready");
    ls_cudnn_attention_backward(cuda, s, m->q, m->k, m->v, m->o.data, m->lse, m->d_o.data, m->dq,
                                m->dk, m->dv, m->slopes);
}

typedef void step(ls_cuda *cuda, const ls_cudnn_shape *s, const memory *m);

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void time_it(ls_cuda *cuda, step *what, const ls_cudnn_shape *s, const memory *m,
                    double products) {
    float times[RUNS];
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "events"), must(cudaEventCreate(&end), "events");
    for (int i = -WARM; i < RUNS; i++) {
        cudaEventRecord(begin, cuda->stream);
        what(cuda, s, m);
        cudaEventRecord(end, cuda->stream);
        must(cudaEventSynchronize(end), "a timed run");
        if (i >= 0) cudaEventElapsedTime(&times[i], begin, end);
    }
    cudaEventDestroy(begin), cudaEventDestroy(end);
    qsort(times, RUNS, sizeof *times, by_size);
    double pairs = 0, ms = 0.5 * (times[RUNS / 2 - 1] + times[RUNS / 2]);
    for (int64_t row = 0; row < s->T; row++)
        for (int64_t key = 0; key < s->N; key++) pairs += visible(*s, row, key);
    double flop = products * 2 * pairs * (double)(s->D * s->B * s->H);
    printf("\n    %.3f ms, %.1f TFLOP/s\n", ms, flop / ms * 1e-9);
}

static void spoil(array a, cudaStream_t stream) {
    if (a.data != NULL) must(cudaMemsetAsync(a.data, 0xff, a.count * 2, stream), "spoiling");
}

static bool same_bits(array a, const void *before) {
    if (a.data == NULL) return true;
    void *now = copied(a.data, a.count * 2);
    bool same = memcmp(now, before, a.count * 2) == 0;
    free(now);
    return same;
}

/* What was written once is spoilt and written again, by calls and by a captured graph. */
static bool repeats(ls_cuda *cuda, step *what, const ls_cudnn_shape *s, const memory *m,
                    const array *out, int outs, bool captured) {
    void *before[3] = {};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    must(cudaStreamSynchronize(cuda->stream), "a run");
    for (int i = 0; i < outs; i++)
        if (out[i].data != NULL) before[i] = copied(out[i].data, out[i].count * 2);
    if (captured) {
        must(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal), "capture");
        what(cuda, s, m);
        must(cudaStreamEndCapture(cuda->stream, &graph), "end of capture");
        must(cudaGraphInstantiate(&ready, graph, 0), "graph");
    }
    bool same = true;
    for (int run = 0; run < 5; run++) {
        for (int i = 0; i < outs; i++) spoil(out[i], cuda->stream);
        if (captured)
            must(cudaGraphLaunch(ready, cuda->stream), "replay");
        else
            what(cuda, s, m);
        must(cudaStreamSynchronize(cuda->stream), "a run");
        for (int i = 0; i < outs; i++) same = same && same_bits(out[i], before[i]);
    }
    for (int i = 0; i < outs; i++) free(before[i]);
    if (captured) cudaGraphExecDestroy(ready), cudaGraphDestroy(graph);
    return same;
}

static void check_repeats(ls_cuda *cuda, step *what, const ls_cudnn_shape *s, const memory *m,
                          const array *out, int outs, bool required) {
    for (int captured = 0; captured < 2; captured++) {
        bool same = repeats(cuda, what, s, m, out, outs, captured != 0);
        printf("    %s: %s bits\n", captured ? "captured" : "repeated", same ? "same" : "other");
        if (!same && required) fail("bits change");
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool made_ready(ls_cuda *cuda, const ls_cudnn_shape *s, bool back, const char *name) {
    double start = now();
    bool ready = ls_cudnn_attention_ready(cuda, s, back);
    printf("  %s: %s after %.2f s: %s\n", name, ready ? "ready" : "REFUSED", now() - start,
           ls_cudnn_attention_about(cuda, s, back));
    if (!ready) fail("refused");
    return ready;
}

static void check_backward(ls_cuda *cuda, ls_cudnn_shape s, const memory *m, const batch *want,
                           bool any_order) {
    s.allow_nondeterministic = any_order;
    if (!made_ready(cuda, &s, true, any_order ? "backward, any order" : "backward")) return;
    for (int i = 0; i < 3; i++) spoil(m->gradient[i], cuda->stream);
    backward(cuda, &s, m);
    must(cudaStreamSynchronize(cuda->stream), "backward");
    printf("    ");
    compare("dq", m->dq, s.dq_stride, want->dq, &s, s.H, s.T, 1e-2);
    compare("dk", m->dk, s.dk_stride, want->dk, &s, s.G, s.N, 1e-2);
    compare("dv", m->dv, s.dv_stride, want->dv, &s, s.G, s.N, 1e-2);
    time_it(cuda, backward, &s, m, 5);
    check_repeats(cuda, backward, &s, m, m->gradient, 3, !any_order);
}

static void check_case(ls_cuda *cuda, const check *c) {
    printf("%s (B %lld, H %lld, G %lld)\n", c->name, (long long)c->B, (long long)c->H,
           (long long)c->G);
    ls_cudnn_shape s = shape_of(c);
    memory m = memory_of(c);
    batch want = reference_of(&s, &m);
    if (made_ready(cuda, &s, false, "forward")) {
        spoil(m.o, cuda->stream);
        forward(cuda, &s, &m);
        must(cudaStreamSynchronize(cuda->stream), "forward");
        printf("    ");
        compare("o", m.o.data, s.o_stride, want.o, &s, s.H, s.T, 5e-3);
        compare_lse(m.lse, want.lse, &s);
        time_it(cuda, forward, &s, &m, 2);
        check_repeats(cuda, forward, &s, &m, &m.o, 1, true);
        check_backward(cuda, s, &m, &want, false);
        check_backward(cuda, s, &m, &want, true);
    }
    give_reference(&want);
    give_memory(&m);
    fflush(stdout);
}

/* What has to be left to the own kernels. */
static void check_refusals(ls_cuda *cuda) {
    static const check odd[] = {
        {"D 96", 1, 128, 128, 2, 2, 96, 0, true, false, false},
        {"100 rows", 1, 100, 100, 2, 2, 64, 0, true, false, false},
        {"more queries than keys", 1, 256, 128, 2, 2, 64, 0, true, false, false},
        {"alibi with more keys", 1, 128, 256, 2, 2, 64, 0, true, true, false},
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        ls_cudnn_shape s = shape_of(&odd[i]);
        bool ready = ls_cudnn_attention_ready(cuda, &s, false);
        printf("%s: %s\n", odd[i].name, ls_cudnn_attention_about(cuda, &s, false));
        if (ready) fail("it should be refused");
    }
}

int main(void) {
    static ls_cuda cuda;
    must(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking), "making a stream");
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) check_case(&cuda, &checks[i]);
    check_refusals(&cuda);
    ls_cudnn_close(&cuda);
    must(cudaStreamDestroy(cuda.stream), "the stream");
    printf("%d wrong\n", failures);
    return failures == 0 ? 0 : 1;
}
