/* nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -Isrc \
 *     tests/gpu/check_hopper_attention.cu src/tensor/op/attention/hopper_attention*.cu -o check
 *
 * Checks the attention kernels for compute capability 9.0 against plain ones in single precision,
 * then times them. `check_hopper_attention check` or `time` does one of the two. Exit status 1 if
 * a case fails. A case is named before it runs, so that one that hangs is known. */
#include "tensor/op/attention/hopper_attention.cuh"

#include <algorithm>
#include <cmath>
#include <vector>

/* ---- what the library's device.cu gives ---- */

void ls_cuda_note_text(ls_cuda *cuda, const char *what, const char *why) {
    if (cuda->wrong != cudaSuccess) return;
    snprintf(cuda->message, sizeof cuda->message, "%s: %s", what, why);
    cuda->wrong = cudaErrorUnknown;
}
void ls_cuda_note(ls_cuda *cuda, cudaError_t error, const char *what) {
    if (error != cudaSuccess) ls_cuda_note_text(cuda, what, cudaGetErrorString(error));
}

static void must(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
static void settle(ls_cuda *cuda, const char *what) {
    must(cudaDeviceSynchronize(), what);
    if (cuda->wrong == cudaSuccess) return;
    printf("FAILED: %s: %s\n", what, cuda->message);
    exit(1);
}

/* ---- a case ---- */

typedef enum { APART, FUSED, HEADS_FIRST } layout;
/* Of queries and keys: as they are filled; all of them shorter or longer; some rows far longer than
 * others; the early keys along all queries and the late ones, their own, against them. */
typedef enum { EVEN, SHORT, LONG, WILD, OPPOSED } norms;

typedef struct test_case {
    int64_t B, T, N, H, G, D, start, first, hi, block;
    bool sloped;
    layout how;
    bool decays;
    norms spread;
    bool every_key;
} test_case;

static const int64_t FAR = (int64_t)1 << 60;

static void describe(const test_case *c) {
    printf("B %ld T %ld N %ld H %ld G %ld D %ld start %ld first %ld", (long)c->B, (long)c->T,
           (long)c->N, (long)c->H, (long)c->G, (long)c->D, (long)c->start, (long)c->first);
    if (c->hi < FAR) printf(" hi %ld", (long)c->hi);
    if (c->block > 0) printf(" block %ld", (long)c->block);
    const char *const spreads[] = {"", " short", " long", " wild", " opposed"};
    printf("%s%s%s%s", c->sloped ? " slopes" : "", c->decays ? " decays" : "",
           c->how == FUSED         ? " fused"
           : c->how == HEADS_FIRST ? " heads first"
                                   : "",
           spreads[c->spread]);
    fflush(stdout);
}

typedef struct test_data {
    ls_hopper_attention a;
    std::vector<void *> memory;
} test_data;

static void *take(test_data *data, size_t bytes, int fill) {
    void *at = NULL;
    must(cudaMalloc(&at, bytes), "taking memory");
    must(cudaMemset(at, fill, bytes), "filling memory");
    data->memory.push_back(at);
    return at;
}

__global__ void fill_kernel(ls_cuda_bf16 *to, int64_t count, uint64_t seed) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float sum = 0; /* of four uniform numbers, scaled to variance 1 */
    for (int k = 0; k < 4; k++) {
        uint64_t x = (uint64_t)(i * 4 + k) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        sum += (float)((x ^ (x >> 31)) >> 40) / (float)(1 << 24) - 0.5f;
    }
    to[i] = ls_cuda_narrow<ls_cuda_bf16>(sum * 1.7320508f);
}

/* A row for each block: x gets the norms of its case. */
__global__ void spread_kernel(ls_hopper_array x, int64_t rows, int64_t heads, norms spread,
                              bool keys) {
    const int64_t row = blockIdx.x % rows, head = blockIdx.x / rows % heads;
    ls_cuda_bf16 *at = x.data + blockIdx.x / rows / heads * x.batch + row * x.row + head * x.head;
    const float value = ls_cuda_wide(at[threadIdx.x]);
    const unsigned hash = (unsigned)blockIdx.x * 2654435761u >> 16;
    float to = value;
    if (spread == SHORT) to = value * 0.125f;
    if (spread == LONG) to = value * 5;
    if (spread == WILD) to = value * exp2f((float)(hash % 11) - 7);
    if (spread == OPPOSED) to = 0.1f * value + (keys && row >= rows / 2 ? -1.5f : 1.5f);
    at[threadIdx.x] = ls_cuda_narrow<ls_cuda_bf16>(to);
}

static ls_hopper_array array_of(ls_cuda_bf16 *base, const test_case *c, int64_t rows,
                                int64_t heads) {
    if (c->how == HEADS_FIRST) return {base, heads * rows * c->D, c->D, rows * c->D};
    return {base, rows * heads * c->D, heads * c->D, c->D};
}

/* q, k, v (or their gradients) apart, or as views of one array where T = N. */
static void three(test_data *data, const test_case *c, uint64_t seed, ls_hopper_array *q,
                  ls_hopper_array *k, ls_hopper_array *v) {
    const int64_t heads = c->H + 2 * c->G, rows = c->how == FUSED ? c->T : std::max(c->T, c->N);
    const int64_t count = c->B * rows * heads * c->D;
    ls_cuda_bf16 *base = (ls_cuda_bf16 *)take(data, (size_t)count * 2, 0xff);
    if (seed != 0) fill_kernel<<<(unsigned)((count + 255) / 256), 256>>>(base, count, seed);
    if (c->how == FUSED) {
        *q = {base, rows * heads * c->D, heads * c->D, c->D};
        *k = *v = *q;
        k->data += c->H * c->D;
        v->data += (c->H + c->G) * c->D;
        return;
    }
    *q = array_of(base, c, c->T, c->H);
    *k = array_of(base + c->B * rows * c->H * c->D, c, c->N, c->G);
    *v = array_of(base + c->B * rows * (c->H + c->G) * c->D, c, c->N, c->G);
}

static void make(test_data *data, const test_case *c) {
    ls_hopper_attention *a = &data->a;
    *a = {.B = c->B, .T = c->T, .N = c->N, .H = c->H, .G = c->G, .D = c->D};
    a->start = c->start;
    a->first = c->first;
    a->hi = c->hi;
    a->block = c->block;
    a->every_key = c->every_key;
    a->scale = 1 / sqrtf((float)c->D);
    three(data, c, 1, &a->q, &a->k, &a->v);
    if (c->spread != EVEN) {
        const unsigned width = (unsigned)c->D;
        spread_kernel<<<(unsigned)(c->B * c->H * c->T), width>>>(a->q, c->T, c->H, c->spread,
                                                                 false);
        spread_kernel<<<(unsigned)(c->B * c->G * c->N), width>>>(a->k, c->N, c->G, c->spread, true);
    }
    three(data, c, 0, &a->dq, &a->dk, &a->dv);
    const int64_t count = c->B * c->T * c->H * c->D;
    a->o = array_of((ls_cuda_bf16 *)take(data, (size_t)count * 2, 0xff), c, c->T, c->H);
    a->d_o = array_of((ls_cuda_bf16 *)take(data, (size_t)count * 2, 0), c, c->T, c->H);
    fill_kernel<<<(unsigned)((count + 255) / 256), 256>>>(a->d_o.data, count, 2);
    a->lse = (float *)take(data, (size_t)(c->B * c->H * c->T) * sizeof(float), 0xff);
    a->workspace = take(data, ls_hopper_attention_workspace(a, true) + 256, 0xff);
    if (c->sloped) {
        std::vector<float> slopes((size_t)c->H);
        for (int64_t h = 0; h < c->H; h++)
            slopes[(size_t)h] = h == 1 ? 0 : exp2f(-8.0f * (float)(h + 1) / (float)c->H);
        float *there = (float *)take(data, slopes.size() * sizeof(float), 0);
        must(
            cudaMemcpy(there, slopes.data(), slopes.size() * sizeof(float), cudaMemcpyHostToDevice),
            "copying slopes");
        a->slopes = there;
    }
    if (c->decays) { /* xPos's, the last pairs without */
        a->decays = true;
        a->decay_block = 512;
        a->decay_pairs = c->D / 2 - 4;
        a->decay_halves = c->how == FUSED;
        std::vector<float> rates((size_t)a->decay_pairs);
        for (size_t i = 0; i < rates.size(); i++)
            rates[i] = log2f((2 * (float)i / (float)c->D + 0.4f) / 1.4f) / 512;
        float *there = (float *)take(data, rates.size() * sizeof(float), 0);
        must(cudaMemcpy(there, rates.data(), rates.size() * sizeof(float), cudaMemcpyHostToDevice),
             "copying rates");
        a->log_decay = there;
    }
}

static void drop(test_data *data) {
    for (void *at : data->memory) must(cudaFree(at), "giving memory back");
}

/* ---- the plain kernels ---- */

__device__ float element(const ls_hopper_array &x, int64_t b, int64_t row, int64_t head,
                         int64_t e) {
    return ls_cuda_wide(x.data[b * x.batch + row * x.row + head * x.head + e]);
}

/* The query's share of the decay at column e for key row j. */
__device__ float share(const ls_hopper_attention &a, int64_t t, int64_t j, int64_t e) {
    if (!a.decays || e >= 2 * a.decay_pairs) return 1;
    const int64_t reference = (a.first + j) / a.decay_block * a.decay_block;
    const int64_t pair = a.decay_halves ? e % a.decay_pairs : e / 2;
    return exp2f(a.log_decay[pair] * (float)(a.start + t - reference));
}

__device__ float score(const ls_hopper_attention &a, int64_t b, int64_t h, int64_t t, int64_t j) {
    const int64_t n = a.start + t, m = a.first + j, g = h / (a.H / a.G);
    if (m > n || n - m > a.hi) return -INFINITY;
    if (a.block > 0 && n / a.block - m / a.block > 1) return -INFINITY;
    float sum = 0;
    for (int64_t e = 0; e < a.D; e++)
        sum += element(a.q, b, t, h, e) * share(a, t, j, e) * element(a.k, b, j, g, e);
    sum *= a.scale;
    return a.slopes == NULL ? sum : sum - a.slopes[h] * (float)(n - m);
}

__device__ float dot_values(const ls_hopper_attention &a, const ls_hopper_array &x,
                            const ls_hopper_array &y, int64_t b, int64_t h, int64_t t, int64_t hy,
                            int64_t ty) {
    float sum = 0;
    for (int64_t e = 0; e < a.D; e++) sum += element(x, b, t, h, e) * element(y, b, ty, hy, e);
    return sum;
}

/* weights: [B,H,T,N]; the scores, where lse is NULL */
__global__ void plain_weights(ls_hopper_attention a, const float *lse, float *weights) {
    const int64_t row = blockIdx.x, t = row % a.T, h = row / a.T % a.H, b = row / a.T / a.H;
    for (int64_t j = threadIdx.x; j < a.N; j += blockDim.x) {
        float s = score(a, b, h, t, j);
        weights[row * a.N + j] = lse == NULL ? s : s == -INFINITY ? 0 : expf(s - lse[row]);
    }
}

/* From scores to o [B,T,H,D] and lse, by one block per row. */
__global__ void plain_forward(ls_hopper_attention a, const float *scores, float *o, float *lse) {
    const int64_t row = blockIdx.x, t = row % a.T, h = row / a.T % a.H, b = row / a.T / a.H;
    const float *s = scores + row * a.N;
    float most = -INFINITY, sum = 0, value = 0;
    for (int64_t j = 0; j < a.N; j++) most = fmaxf(most, s[j]);
    for (int64_t j = 0; j < a.N; j++) {
        float p = most == -INFINITY ? 0 : expf(s[j] - most);
        sum += p;
        value += p * element(a.v, b, j, h / (a.H / a.G), threadIdx.x);
    }
    o[((b * a.T + t) * a.H + h) * a.D + threadIdx.x] = sum > 0 ? value / sum : 0;
    if (threadIdx.x == 0) lse[row] = sum > 0 ? most + logf(sum) : -INFINITY;
}

/* weights become the gradient of the scores in ds. */
__global__ void plain_score_gradient(ls_hopper_attention a, const float *weights, float *ds) {
    const int64_t row = blockIdx.x, t = row % a.T, h = row / a.T % a.H, b = row / a.T / a.H;
    const float dot = dot_values(a, a.o, a.d_o, b, h, t, h, t);
    for (int64_t j = threadIdx.x; j < a.N; j += blockDim.x)
        ds[row * a.N + j] =
            weights[row * a.N + j] * (dot_values(a, a.d_o, a.v, b, h, t, h / (a.H / a.G), j) - dot);
}

__global__ void plain_dq(ls_hopper_attention a, const float *ds, float *dq) {
    const int64_t row = blockIdx.x, t = row % a.T, h = row / a.T % a.H, b = row / a.T / a.H;
    float sum = 0;
    for (int64_t j = 0; j < a.N; j++)
        sum += ds[row * a.N + j] * share(a, t, j, threadIdx.x) *
               element(a.k, b, j, h / (a.H / a.G), threadIdx.x);
    dq[((b * a.T + t) * a.H + h) * a.D + threadIdx.x] = sum * a.scale;
}

__global__ void plain_dkv(ls_hopper_attention a, const float *weights, const float *ds, float *dk,
                          float *dv) {
    const int64_t row = blockIdx.x, j = row % a.N, g = row / a.N % a.G, b = row / a.N / a.G;
    const int64_t heads = a.H / a.G;
    float k = 0, v = 0;
    for (int64_t h = g * heads; h < (g + 1) * heads; h++)
        for (int64_t t = 0; t < a.T; t++) {
            const int64_t at = ((b * a.H + h) * a.T + t) * a.N + j;
            k += ds[at] * share(a, t, j, threadIdx.x) * element(a.q, b, t, h, threadIdx.x);
            v += weights[at] * element(a.d_o, b, t, h, threadIdx.x);
        }
    dk[((b * a.N + j) * a.G + g) * a.D + threadIdx.x] = k * a.scale;
    dv[((b * a.N + j) * a.G + g) * a.D + threadIdx.x] = v;
}

/* ---- comparing ---- */

__global__ void gather(ls_hopper_array x, int64_t rows, int64_t heads, int64_t D, int64_t count,
                       float *to) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        to[i] = element(x, i / D / heads / rows, i / D / heads % rows, i / D % heads, i % D);
}

static std::vector<float> fetch(const float *there, int64_t count) {
    std::vector<float> here((size_t)count);
    must(cudaMemcpy(here.data(), there, here.size() * sizeof(float), cudaMemcpyDeviceToHost),
         "copying back");
    return here;
}

static std::vector<float> fetch_array(const test_case *c, const ls_hopper_array &x, int64_t rows,
                                      int64_t heads) {
    const int64_t count = c->B * rows * heads * c->D;
    float *there = NULL;
    must(cudaMalloc((void **)&there, (size_t)count * sizeof(float)), "taking memory");
    gather<<<(unsigned)((count + 255) / 256), 256>>>(x, rows, heads, c->D, count, there);
    std::vector<float> here = fetch(there, count);
    must(cudaFree(there), "giving memory back");
    return here;
}

/* Products of bf16 weights, rounded to bf16: an element errs by some 2^-9 of itself and of the
 * typical size. A wrong tile or mask errs by the size itself. */
static bool agree(const char *name, const std::vector<float> &x, const std::vector<float> &right) {
    double errors = 0, sizes = 0, worst = 0;
    int64_t at = -1;
    for (size_t i = 0; i < x.size(); i++) {
        double error = fabs((double)x[i] - (double)right[i]);
        if (!(error <= worst)) {
            at = (int64_t)i;
            worst = error;
        }
        if (isnan(error)) break;
        errors += error * error;
        sizes += (double)right[i] * right[i];
    }
    /* gradients that cancel to nothing, as those of a single key, are held to the rounding of
     * single precision by the least size */
    const double size = std::max(sqrt(sizes / (double)x.size()), 1e-2);
    const double relative = sqrt(errors / (double)x.size()) / size;
    const bool good = relative <= 0.01 && (at < 0 || worst <= 0.05 * size + 0.02 * fabs(right[at]));
    printf(" %s %.1e", name, relative);
    if (!good)
        printf(" WRONG (at %ld of %zu: %g, should be %g)", (long)at, x.size(),
               at < 0 ? 0.0 : x[(size_t)at], at < 0 ? 0.0 : right[(size_t)at]);
    return good;
}

/* With decay the queries are rounded to bf16 once more. */
static bool agree_lse(const std::vector<float> &x, const std::vector<float> &right, bool decays) {
    const double most = decays ? 2e-2 : 1e-3;
    double worst = 0;
    for (size_t i = 0; i < x.size(); i++) {
        if (x[i] == right[i]) continue; /* infinite ones too */
        double error = fabs((double)x[i] - (double)right[i]);
        if (!(error <= worst)) worst = error;
        if (isnan(error)) break;
    }
    printf(" lse %.1e%s", worst, worst <= most ? "" : " WRONG");
    return worst <= most;
}

static bool check_case(ls_cuda *cuda, const test_case *c) {
    test_data data = {};
    make(&data, c);
    ls_hopper_attention *a = &data.a;
    describe(c);
    printf(":");
    if (!ls_hopper_attention_takes(cuda, a)) {
        printf(" WRONG (not taken)\n");
        drop(&data);
        return false;
    }
    const int64_t rows = c->B * c->H * c->T, keys = c->B * c->G * c->N;
    float *weights = (float *)take(&data, (size_t)(rows * c->N) * sizeof(float), 0);
    float *ds = (float *)take(&data, (size_t)(rows * c->N) * sizeof(float), 0);
    float *o = (float *)take(&data, (size_t)(rows * c->D) * sizeof(float), 0);
    float *lse = (float *)take(&data, (size_t)rows * sizeof(float), 0);
    float *dk = (float *)take(&data, (size_t)(keys * c->D) * sizeof(float), 0);
    float *dv = (float *)take(&data, (size_t)(keys * c->D) * sizeof(float), 0);
    const unsigned row_blocks = (unsigned)rows, width = (unsigned)c->D;

    ls_hopper_attention_forward(cuda, a);
    settle(cuda, "forward");
    plain_weights<<<row_blocks, 128>>>(*a, NULL, weights);
    plain_forward<<<row_blocks, width>>>(*a, weights, o, lse);
    bool good = agree("o", fetch_array(c, a->o, c->T, c->H), fetch(o, rows * c->D));
    good = agree_lse(fetch(a->lse, rows), fetch(lse, rows), c->decays) && good;
    fflush(stdout);

    /* o and lse are what backward is given: the plain kernels take the same */
    ls_hopper_attention_backward(cuda, a);
    settle(cuda, "backward");
    plain_weights<<<row_blocks, 128>>>(*a, a->lse, weights);
    plain_score_gradient<<<row_blocks, 128>>>(*a, weights, ds);
    plain_dq<<<row_blocks, width>>>(*a, ds, o);
    plain_dkv<<<(unsigned)keys, width>>>(*a, weights, ds, dk, dv);
    std::vector<float> dq_here = fetch_array(c, a->dq, c->T, c->H);
    std::vector<float> dk_here = fetch_array(c, a->dk, c->N, c->G);
    std::vector<float> dv_here = fetch_array(c, a->dv, c->N, c->G);
    good = agree("dq", dq_here, fetch(o, rows * c->D)) && good;
    good = agree("dk", dk_here, fetch(dk, keys * c->D)) && good;
    good = agree("dv", dv_here, fetch(dv, keys * c->D)) && good;
    ls_hopper_attention_backward(cuda, a);
    settle(cuda, "backward again");
    bool same = dq_here == fetch_array(c, a->dq, c->T, c->H) &&
                dk_here == fetch_array(c, a->dk, c->N, c->G) &&
                dv_here == fetch_array(c, a->dv, c->N, c->G);
    printf("%s%s\n", same ? "" : " WRONG (not the same bits again)", good ? "" : "  <-- FAILS");
    fflush(stdout);
    drop(&data);
    return good && same;
}

/* ---- the reach of slopes ---- */

__global__ void spoil(ls_hopper_array x, int64_t rows, int64_t heads) {
    const int64_t row = blockIdx.x % rows, head = blockIdx.x / rows % heads;
    x.data[blockIdx.x / rows / heads * x.batch + row * x.row + head * x.head + threadIdx.x] =
        ls_cuda_narrow<ls_cuda_bf16>(NAN);
}

typedef struct results {
    std::vector<float> o, lse, dq, dk, dv;
} results;

static results results_of(ls_cuda *cuda, const test_case *c, const ls_hopper_attention *a) {
    const unsigned rows = (unsigned)(c->B * c->H * c->T), keys = (unsigned)(c->B * c->G * c->N);
    const unsigned width = (unsigned)c->D;
    spoil<<<rows, width>>>(a->o, c->T, c->H);
    spoil<<<rows, width>>>(a->dq, c->T, c->H);
    spoil<<<keys, width>>>(a->dk, c->N, c->G);
    spoil<<<keys, width>>>(a->dv, c->N, c->G);
    ls_hopper_attention_forward(cuda, a);
    settle(cuda, "forward");
    ls_hopper_attention_backward(cuda, a);
    settle(cuda, "backward");
    return {fetch_array(c, a->o, c->T, c->H), fetch(a->lse, rows),
            fetch_array(c, a->dq, c->T, c->H), fetch_array(c, a->dk, c->N, c->G),
            fetch_array(c, a->dv, c->N, c->G)};
}

/* Elements that are not the same number; NaN never is. */
static bool equal(const char *name, const std::vector<float> &x, const std::vector<float> &right) {
    size_t others = 0, at = 0;
    for (size_t i = 0; i < x.size(); i++)
        if (!(x[i] == right[i])) {
            if (others == 0) at = i;
            others++;
        }
    if (others > 0)
        printf(" %s WRONG (%zu of %zu, the first at %zu: %g, should be %g)", name, others, x.size(),
               at, x[at], right[at]);
    return others == 0;
}

static double dot_rows(const float *x, const float *y, int64_t count) {
    double sum = 0;
    for (int64_t e = 0; e < count; e++) sum += (double)x[e] * y[e];
    return sum;
}

/* The reach that backward left at the beginning of the workspace is at least what the norms ask
 * for, and not much more; where that is further than any key, it is the furthest. */
static bool check_reach(const test_case *c, const ls_hopper_attention *a, int64_t *cut) {
    const std::vector<float> q = fetch_array(c, a->q, c->T, c->H);
    const std::vector<float> k = fetch_array(c, a->k, c->N, c->G);
    const std::vector<float> slopes = fetch(a->slopes, c->H);
    const std::vector<float> bits = fetch((const float *)a->workspace, c->B * c->H);
    const int64_t furthest = c->start + c->T;
    bool good = true;
    *cut = 0;
    for (int64_t at = 0; at < c->B * c->H; at++) {
        const int64_t b = at / c->H, h = at % c->H, g = h / (c->H / c->G);
        double most_q = 0, most_k = 0, own = INFINITY;
        for (int64_t j = 0; j < c->N; j++) {
            const float *key = &k[(size_t)(((b * c->N + j) * c->G + g) * c->D)];
            const int64_t t = c->first + j - c->start;
            most_k = std::max(most_k, dot_rows(key, key, c->D));
            if (t < 0 || t >= c->T) continue;
            const float *query = &q[(size_t)(((b * c->T + t) * c->H + h) * c->D)];
            most_q = std::max(most_q, dot_rows(query, query, c->D));
            own = std::min(own, dot_rows(query, key, c->D));
        }
        const double size = sqrt(most_q * most_k), unit = a->scale * 1.4426950408889634;
        const double slope = slopes[(size_t)h] * 1.4426950408889634;
        const double least = ((size - own) * unit + 126) / slope;
        int32_t reach;
        memcpy(&reach, &bits[(size_t)at], sizeof reach);
        const bool here = reach == furthest
                              ? !(least * 1.2 + 10 < (double)furthest)
                              : reach < furthest && reach >= least &&
                                    reach <= least + 0.03 * size * unit / slope + 5 / slope + 4;
        if (!here)
            printf(" WRONG (reach of batch %ld head %ld is %d, least %g, norms %g, own %g)",
                   (long)b, (long)h, reach, least, size, own);
        good = good && here;
        *cut += reach < furthest - 256;
    }
    return good;
}

/* With tiles out of reach left out, everything is the same as with every key. */
static bool check_cut(ls_cuda *cuda, const test_case *c) {
    test_data data = {};
    make(&data, c);
    describe(c);
    printf(", reach:");
    ls_hopper_attention all = data.a;
    all.every_key = true;
    const results right = results_of(cuda, c, &all), here = results_of(cuda, c, &data.a);
    int64_t cut = 0;
    bool good = check_reach(c, &data.a, &cut);
    good = equal("o", here.o, right.o) && good;
    good = equal("lse", here.lse, right.lse) && good;
    good = equal("dq", here.dq, right.dq) && good;
    good = equal("dk", here.dk, right.dk) && good;
    good = equal("dv", here.dv, right.dv) && good;
    printf(" %ld of %ld heads cut%s\n", (long)cut, (long)(c->B * c->H), good ? "" : "  <-- FAILS");
    if (cut == 0) printf("  <-- FAILS: no head is cut\n");
    fflush(stdout);
    drop(&data);
    return good && cut > 0;
}

/* A key that is not finite lets the heads that see it read every key, and no others. */
static bool check_cut_of_infinity(ls_cuda *cuda) {
    const test_case c = {2, 4200, 4200, 8, 4, 64, 0, 0, FAR, 0, true, APART};
    bool good = true;
    describe(&c);
    printf(", reach with a key that is not finite:");
    for (float odd : {INFINITY, (float)NAN}) {
        test_data data = {};
        make(&data, &c);
        const ls_hopper_array &k = data.a.k;
        const ls_cuda_bf16 value = {(uint16_t)(std::isinf(odd) ? 0x7f80 : 0x7fff)};
        must(cudaMemcpy(k.data + k.batch + 3001 * k.row + 37, &value, sizeof value,
                        cudaMemcpyHostToDevice),
             "putting a number"); /* sequence 1, heads 0 and 1 */
        ls_hopper_attention_backward(cuda, &data.a);
        settle(cuda, "backward");
        const std::vector<float> bits = fetch((const float *)data.a.workspace, c.B * c.H);
        for (int64_t at = 0; at < c.B * c.H; at++) {
            const int64_t h = at % c.H;
            if (h > 3) continue;                                   /* gentle slopes */
            const bool whole = h == 1 || (at / c.H == 1 && h < 2); /* head 1 has no slope */
            int32_t reach;
            memcpy(&reach, &bits[(size_t)at], sizeof reach);
            if ((reach == c.T) == whole) continue;
            printf(" WRONG (head %ld: %d)", (long)at, reach);
            good = false;
        }
        drop(&data);
    }
    printf("%s\n", good ? "" : "  <-- FAILS");
    fflush(stdout);
    return good;
}

static int check_all(ls_cuda *cuda) {
    std::vector<test_case> cases;
    const int64_t lengths[] = {1, 63, 64, 65, 128, 129, 200, 384, 1000};
    for (int64_t D = 64; D <= 128; D *= 2) {
        for (int64_t T : lengths)
            for (int sloped = 0; sloped < 2; sloped++)
                cases.push_back({2, T, T, 2, 2, D, 0, 0, FAR, 0, sloped != 0, APART});
        for (int64_t T : {65, 700})
            for (layout how : {FUSED, HEADS_FIRST})
                cases.push_back({2, T, T, 4, 2, D, 0, 0, FAR, 0, true, how});
        cases.push_back({1, 300, 300, 6, 1, D, 0, 0, FAR, 0, false, FUSED});
        /* queries at the end of more keys, in the middle of them, past a cut-off beginning */
        cases.push_back({2, 63, 1000, 2, 1, D, 937, 0, FAR, 0, true, APART});
        cases.push_back({1, 1, 777, 2, 2, D, 776, 0, FAR, 0, false, APART});
        cases.push_back({1, 200, 1000, 2, 2, D, 300, 0, FAR, 0, false, APART});
        cases.push_back({1, 200, 500, 2, 2, D, 5400, 5000, FAR, 0, true, APART});
        /* the first queries come before every key; the last keys after every query */
        cases.push_back({1, 400, 500, 2, 2, D, 0, 150, FAR, 0, true, APART});
        for (int sloped = 0; sloped < 2; sloped++) {
            cases.push_back({1, 1000, 1000, 2, 2, D, 0, 0, 100, 0, sloped != 0, APART});
            cases.push_back({1, 1000, 1000, 2, 1, D, 0, 0, 511, 0, sloped != 0, FUSED});
            cases.push_back({1, 1000, 1000, 2, 2, D, 0, 0, FAR, 64, sloped != 0, APART});
            cases.push_back({1, 2000, 2000, 2, 2, D, 0, 0, FAR, 512, sloped != 0, FUSED});
            cases.push_back({1, 300, 900, 2, 2, D, 617, 17, FAR, 64, sloped != 0, APART});
            cases.push_back({1, 900, 900, 2, 2, D, 0, 0, 70, 64, sloped != 0, APART});
        }
        cases.push_back({1, 500, 500, 1, 1, D, 0, 0, 0, 0, false, APART});
        /* later queries see no key at all */
        cases.push_back({1, 600, 200, 2, 2, D, 0, 0, 100, 0, false, APART});
        /* xPos, whose blocks of keys have 512 positions */
        cases.push_back({1, 300, 300, 2, 2, D, 0, 0, FAR, 0, false, APART, true});
        cases.push_back({2, 1300, 1300, 4, 2, D, 0, 0, FAR, 0, false, FUSED, true});
        cases.push_back({1, 3000, 3000, 2, 2, D, 0, 0, FAR, 0, false, HEADS_FIRST, true});
        cases.push_back({1, 100, 1500, 2, 2, D, 2040, 640, FAR, 0, false, APART, true});
        cases.push_back({1, 1500, 1500, 2, 2, D, 0, 0, FAR, 512, false, APART, true});
        /* many blocks at once: the order of the additions to dq */
        cases.push_back({2, 3000, 3000, 8, 4, D, 0, 0, FAR, 0, true, FUSED});
        cases.push_back({1, 4500, 4500, 8, 4, D, 0, 0, FAR, 0, true, FUSED});
        cases.push_back({4, 2500, 2500, 8, 8, D, 0, 0, FAR, 512, false, FUSED});
    }
    std::vector<test_case> cut;
    for (int64_t D = 64; D <= 128; D *= 2) {
        const norms spreads[] = {EVEN, SHORT, LONG, WILD, OPPOSED};
        for (norms spread : spreads) {
            cut.push_back({1, 4500, 4500, 8, 8, D, 0, 0, FAR, 0, true, APART, false, spread});
            cut.push_back({2, 4099, 4099, 8, 2, D, 0, 0, FAR, 0, true, FUSED, false, spread});
            cut.push_back({1, 8192, 8192, 4, 1, D, 0, 0, FAR, 0, true, HEADS_FIRST, false, spread});
            /* in the middle of keys, of which some come after every query */
            cut.push_back({1, 4100, 9000, 4, 2, D, 4800, 100, FAR, 0, true, APART, false, spread});
        }
        cut.push_back({1, 6001, 6001, 4, 4, D, 0, 0, 4500, 0, true, APART});
        cut.push_back({3, 2500, 2500, 6, 3, D, 0, 0, FAR, 0, true, FUSED}); /* backward alone */
    }
    int failed = 0;
    for (const test_case &c : cases)
        if (!check_case(cuda, &c)) failed++;
    for (const test_case &c : cut)
        if (!check_cut(cuda, &c)) failed++;
    if (!check_cut_of_infinity(cuda)) failed++;
    printf("%zu cases, %d failed\n", cases.size() + cut.size() + 1, failed);
    return failed;
}

/* ---- timing ---- */

template <typename run> static double median_ms(ls_cuda *cuda, run once) {
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "an event");
    must(cudaEventCreate(&end), "an event");
    std::vector<float> times;
    for (int i = 0; i < 23; i++) {
        float ms = 0;
        must(cudaEventRecord(begin, cuda->stream), "an event");
        once();
        must(cudaEventRecord(end, cuda->stream), "an event");
        settle(cuda, "timing");
        must(cudaEventElapsedTime(&ms, begin, end), "an event");
        if (i >= 3) times.push_back(ms);
    }
    must(cudaEventDestroy(begin), "an event");
    must(cudaEventDestroy(end), "an event");
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* Pairs of a query and a key it sees. */
static double pairs_of(const test_case *c) {
    double pairs = 0;
    for (int64_t n = 0; n < c->T; n++) {
        int64_t first = c->hi < n ? n - c->hi : 0;
        if (c->block > 0) first = std::max(first, (n / c->block - 1) * c->block);
        pairs += (double)(n - first + 1);
    }
    return pairs;
}

static void time_case(ls_cuda *cuda, const char *name, test_case c) {
    test_data data = {};
    make(&data, &c);
    const double flops = 4.0 * (double)(c.B * c.H * c.D) * pairs_of(&c);
    double forward = median_ms(cuda, [&] { ls_hopper_attention_forward(cuda, &data.a); });
    double backward = median_ms(cuda, [&] { ls_hopper_attention_backward(cuda, &data.a); });
    printf("%-28s D %3ld H %2ld: forward %7.3f ms %5.0f TFLOP/s, backward %7.3f ms %5.0f, both "
           "%7.3f ms %5.0f\n",
           name, (long)c.D, (long)c.H, forward, flops / forward * 1e-9, backward,
           2.5 * flops / backward * 1e-9, forward + backward,
           3.5 * flops / (forward + backward) * 1e-9);
    fflush(stdout);
    drop(&data);
}

static void time_all(ls_cuda *cuda) {
    const int64_t T = 16384, L = 65536;
    for (int64_t D = 64; D <= 128; D *= 2) {
        const int64_t H = 2048 / D;
        time_case(cuda, "causal 16k", {1, T, T, H, H, D, 0, 0, FAR, 0, false, APART});
        time_case(cuda, "causal 16k slopes", {1, T, T, H, H, D, 0, 0, FAR, 0, true, APART});
        time_case(cuda, "causal 16k slopes, all keys",
                  {1, T, T, H, H, D, 0, 0, FAR, 0, true, APART, false, EVEN, true});
        time_case(cuda, "causal 16k slopes, 16 heads",
                  {1, T, T, 16, 16, D, 0, 0, FAR, 0, true, APART, false, SHORT});
        time_case(cuda, "causal 16k xPos", {1, T, T, H, H, D, 0, 0, FAR, 0, false, APART, true});
        time_case(cuda, "causal 32 x 1k slopes",
                  {32, 1024, 1024, 768 / D, 768 / D, D, 0, 0, FAR, 0, true, FUSED});
    }
    time_case(cuda, "window 512, 64k", {1, L, L, 12, 12, 64, 0, 0, 512, 0, false, APART});
    time_case(cuda, "blockwise 512, 64k", {1, L, L, 12, 12, 64, 0, 0, FAR, 512, false, APART});
}

int main(int count, char **words) {
    cudaDeviceProp about;
    must(cudaGetDeviceProperties(&about, 0), "looking at the device");
    ls_cuda cuda = {};
    cuda.major = about.major;
    cuda.minor = about.minor;
    cuda.processors = about.multiProcessorCount;
    printf("%s, %d multiprocessors\n", about.name, about.multiProcessorCount);
    int failed = 0;
    if (count < 2 || strcmp(words[1], "check") == 0) failed = check_all(&cuda);
    if (count < 2 || strcmp(words[1], "time") == 0) time_all(&cuda);
    return failed > 0;
}
