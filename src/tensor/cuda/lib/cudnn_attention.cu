/* Attention as cuDNN's graph interface sees it: every step of the computation is an operation on
 * tensors of which most are virtual, and cuDNN recognises the whole as one fused kernel. What it
 * recognises is a fixed set of patterns, so the order of the steps, the types of virtual tensors
 * and the way masks are spelt are not free. See cudnn_attention.h. */
#include "tensor/cuda/lib/cudnn_attention.h"

#if __has_include(<cudnn_graph.h>)

#include <dlfcn.h>
#include <stdarg.h>

#include <cudnn_graph.h>

/* ---- the library, opened at run time ---- */

#define CUDNN_CALLS(each)                                                                          \
    each(cudnnGetVersion) each(cudnnGetErrorString) each(cudnnGetLastErrorString)                  \
        each(cudnnCreate) each(cudnnDestroy) each(cudnnSetStream)                                  \
            each(cudnnBackendCreateDescriptor) each(cudnnBackendDestroyDescriptor)                 \
                each(cudnnBackendSetAttribute) each(cudnnBackendGetAttribute)                      \
                    each(cudnnBackendFinalize) each(cudnnBackendExecute)

/* Up to 9.15 backward takes key rows in multiples of 128 alone. */
enum { LEAST_VERSION = 91600, ROWS_MULTIPLE = 64, OPERATIONS_MOST = 48, DESCRIPTORS_MOST = 192 };
enum { CONFIGURATIONS_MOST = 32 };

typedef struct plan plan;

typedef struct ls_cudnn {
    void *library; /* NULL: not there */
#define CALL_MEMBER(name) decltype(&::name) name;
    CUDNN_CALLS(CALL_MEMBER)
#undef CALL_MEMBER
    cudnnHandle_t handle; /* NULL: cuDNN cannot be used */
    size_t memory_most;   /* for one plan */
    plan *plans;
    char missing[512];
} ls_cudnn;

static bool calls_found(ls_cudnn *cudnn) {
#define CALL_FIND(name)                                                                            \
    *(void **)&cudnn->name = dlsym(cudnn->library, #name);                                         \
    if (cudnn->name == NULL) return false;
    CUDNN_CALLS(CALL_FIND)
#undef CALL_FIND
    return true;
}

static bool library_opened(ls_cudnn *cudnn) {
    static const char *const places[] = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
                                         "/usr/local/cuda/lib/libcudnn.so.9",
                                         "/opt/cuda/lib64/libcudnn.so.9"};
    for (size_t i = 0; i < sizeof places / sizeof places[0] && cudnn->library == NULL; i++)
        cudnn->library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    if (cudnn->library == NULL) {
        snprintf(cudnn->missing, sizeof cudnn->missing, "libcudnn.so.9 is not installed");
        return false;
    }
    if (!calls_found(cudnn) || cudnn->cudnnGetVersion() < LEAST_VERSION) {
        snprintf(cudnn->missing, sizeof cudnn->missing, "libcudnn.so.9 is older than 9.16");
        return false;
    }
    return true;
}

static void handle_made(ls_cudnn *cudnn, ls_cuda *cuda) {
    size_t unused = 0, all = 0;
    cudnnStatus_t status = cudnn->cudnnCreate(&cudnn->handle);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnn->cudnnSetStream(cudnn->handle, cuda->stream);
    if (status != CUDNN_STATUS_SUCCESS) {
        snprintf(cudnn->missing, sizeof cudnn->missing, "cuDNN does not start: %s",
                 cudnn->cudnnGetErrorString(status));
        if (cudnn->handle != NULL) cudnn->cudnnDestroy(cudnn->handle);
        cudnn->handle = NULL;
    }
    /* of all memory, not of what is free: the choice of a kernel must not change from run to run */
    if (cudaMemGetInfo(&unused, &all) == cudaSuccess) cudnn->memory_most = all / 8;
}

static ls_cudnn *cudnn_of(ls_cuda *cuda) {
    if (cuda->cudnn != NULL) return (ls_cudnn *)cuda->cudnn;
    ls_cudnn *cudnn = (ls_cudnn *)calloc(1, sizeof *cudnn);
    cuda->cudnn = cudnn;
    if (cudnn != NULL && library_opened(cudnn)) handle_made(cudnn, cuda);
    return cudnn;
}

/* ---- one case ---- */

/* The tensors that have an address; all others are virtual. */
typedef enum {
    AT_Q = 1,
    AT_K,
    AT_V,
    AT_O,
    AT_LSE,
    AT_SLOPES,
    AT_DO,
    AT_DQ,
    AT_DK,
    AT_DV,
    AT_ROW_SUMS, /* of dO * O */
    AT_DQ_SUMS,  /* dQ while it is added up */
    AT_SCALE,    /* from here on numbers of the host */
    AT_MASKED,
    AT_ONE,
    AT_LEFT,
    AT_ROWS,
    AT_KEYS,
    AT_COUNT,
} address;

typedef cudnnBackendDescriptor_t descriptor;

struct plan {
    plan *next;
    ls_cudnn *cudnn;
    ls_cudnn_shape shape;
    bool backward, usable;
    bool failed;           /* while it is built */
    const char *step;      /* what is built */
    const char *kind;      /* of descriptor */
    int64_t virtual_count; /* tensors without an address so far */
    descriptor made[DESCRIPTORS_MOST];
    int made_count;
    descriptor operations[OPERATIONS_MOST];
    int operation_count;
    descriptor graph, chosen;
    bool has[AT_COUNT];
    float scale, masked, one, left; /* what AT_SCALE.. point to */
    int32_t rows, keys;
    char *memory;
    size_t workspace, row_sums, dq_sums; /* bytes of each in memory */
    char about[2048];
};

__attribute__((format(printf, 2, 3))) static void say(plan *p, const char *format, ...) {
    size_t length = strlen(p->about);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->about + length, sizeof p->about - length, format, arguments);
    va_end(arguments);
}

/* Whether a call went well; the first that did not is told. */
static bool well(plan *p, cudnnStatus_t status, const char *call, int attribute) {
    if (status == CUDNN_STATUS_SUCCESS || p->failed) return !p->failed;
    char words[512] = "";
    p->cudnn->cudnnGetLastErrorString(words, sizeof words);
    say(p, "%s: %s %s", p->step, call, p->kind);
    if (attribute >= 0) say(p, " attribute %d", attribute);
    say(p, ": %s: %s; ", p->cudnn->cudnnGetErrorString(status), words);
    p->failed = true;
    return false;
}

static descriptor make(plan *p, cudnnBackendDescriptorType_t type, const char *kind) {
    descriptor made = NULL;
    if (p->failed) return NULL;
    p->kind = kind;
    if (p->made_count == DESCRIPTORS_MOST) {
        say(p, "%s: too many descriptors; ", p->step);
        p->failed = true;
        return NULL;
    }
    if (!well(p, p->cudnn->cudnnBackendCreateDescriptor(type, &made), "making", -1)) return NULL;
    p->made[p->made_count++] = made;
    return made;
}

static void set(plan *p, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (!p->failed)
        well(p, p->cudnn->cudnnBackendSetAttribute(d, name, type, count, values), "setting", name);
}

static void set_descriptor(plan *p, descriptor d, cudnnBackendAttributeName_t name,
                           descriptor value) {
    set(p, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish(plan *p, descriptor d) {
    if (!p->failed) well(p, p->cudnn->cudnnBackendFinalize(d), "finishing", -1);
}

static void give_descriptors(plan *p, int from) {
    while (p->made_count > from) p->cudnn->cudnnBackendDestroyDescriptor(p->made[--p->made_count]);
}

/* ---- tensors: extents and strides of batch, head, row, column ---- */

typedef struct layout {
    int64_t extent[4], stride[4];
} layout;

static layout packed(int64_t batches, int64_t heads, int64_t rows, int64_t columns) {
    return {{batches, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}

static layout strided(int64_t batches, int64_t heads, int64_t rows, int64_t columns,
                      const int64_t stride[3]) {
    return {{batches, heads, rows, columns}, {stride[0], stride[2], stride[1], 1}};
}

static layout transposed(layout l) {
    return {{l.extent[0], l.extent[1], l.extent[3], l.extent[2]},
            {l.stride[0], l.stride[1], l.stride[3], l.stride[2]}};
}

static descriptor tensor(plan *p, int64_t id, cudnnDataType_t type, layout l) {
    const int64_t alignment = 16;
    const bool yes = true;
    descriptor d = make(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    set(p, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(p, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, l.extent);
    set(p, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, l.stride);
    set(p, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(p, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (id >= AT_COUNT) set(p, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (id >= AT_SCALE && id < AT_COUNT)
        set(p, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finish(p, d);
    return d;
}

static descriptor real(plan *p, address at, cudnnDataType_t type, layout l) {
    p->has[at] = true;
    return tensor(p, at, type, l);
}

static descriptor number(plan *p, address at, cudnnDataType_t type) {
    return real(p, at, type, packed(1, 1, 1, 1));
}

static descriptor between(plan *p, cudnnDataType_t type, layout l) {
    return tensor(p, AT_COUNT + p->virtual_count++, type, l);
}

static layout scores_layout(const plan *p) {
    return packed(p->shape.B, p->shape.H, p->shape.T, p->shape.N);
}

static layout rows_layout(const plan *p) {
    return packed(p->shape.B, p->shape.H, p->shape.T, 1);
}

static layout query_layout(const plan *p, const int64_t stride[3]) {
    return strided(p->shape.B, p->shape.H, p->shape.T, p->shape.D, stride);
}

static layout key_layout(const plan *p, const int64_t stride[3]) {
    return strided(p->shape.B, p->shape.G, p->shape.N, p->shape.D, stride);
}

/* ---- operations; each gives its result ---- */

static void add_operation(plan *p, descriptor operation) {
    finish(p, operation);
    if (p->failed) return;
    if (p->operation_count == OPERATIONS_MOST) {
        say(p, "%s: too many operations; ", p->step);
        p->failed = true;
        return;
    }
    p->operations[p->operation_count++] = operation;
}

static descriptor product(plan *p, const char *step, descriptor a, descriptor b, descriptor c) {
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    p->step = step;
    descriptor about = make(p, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "product description");
    set(p, about, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finish(p, about);
    descriptor d = make(p, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "product");
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, about);
    add_operation(p, d);
    return c;
}

typedef struct pointwise {
    const char *step;
    cudnnPointwiseMode_t mode;
    cudnnDataType_t precision;
    int64_t axis; /* of an index */
} pointwise;

/* b and t are NULL where the mode has no such operand. */
static descriptor apply(plan *p, pointwise how, descriptor x, descriptor b, descriptor t,
                        descriptor y) {
    p->step = how.step;
    descriptor about = make(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise description");
    set(p, about, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &how.mode);
    set(p, about, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &how.precision);
    if (how.mode == CUDNN_POINTWISE_GEN_INDEX)
        set(p, about, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &how.axis);
    finish(p, about);
    descriptor d = make(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise");
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, about);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != NULL) set_descriptor(p, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t != NULL) set_descriptor(p, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(p, d);
    return y;
}

/* In f32, with a result like the scores. */
static descriptor on_scores(plan *p, const char *step, cudnnPointwiseMode_t mode, descriptor x,
                            descriptor b) {
    descriptor y = between(p, CUDNN_DATA_FLOAT, scores_layout(p));
    return apply(p, {step, mode, CUDNN_DATA_FLOAT, 0}, x, b, NULL, y);
}

/* In f32, with one result for each query row. */
static descriptor on_rows(plan *p, const char *step, cudnnPointwiseMode_t mode, descriptor x,
                          descriptor b) {
    descriptor y = between(p, CUDNN_DATA_FLOAT, rows_layout(p));
    return apply(p, {step, mode, CUDNN_DATA_FLOAT, 0}, x, b, NULL, y);
}

static descriptor reduce(plan *p, const char *step, cudnnReduceTensorOp_t mode, descriptor x,
                         descriptor y) {
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    p->step = step;
    descriptor about = make(p, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction description");
    set(p, about, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(p, about, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finish(p, about);
    descriptor d = make(p, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction");
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, about);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(p, d);
    return y;
}

static descriptor reshape(plan *p, const char *step, descriptor x, descriptor y) {
    p->step = step;
    descriptor d = make(p, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "reshape");
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(p, d);
    return y;
}

/* ---- bias and masks ---- */

enum { AXIS_ROW = 2, AXIS_COLUMN = 3 };

static descriptor place(plan *p, const char *step, descriptor scores, int64_t axis,
                        cudnnDataType_t precision) {
    descriptor y = between(p, CUDNN_DATA_INT32, scores_layout(p));
    return apply(p, {step, CUDNN_POINTWISE_GEN_INDEX, precision, axis}, scores, NULL, NULL, y);
}

static descriptor with_alibi(plan *p, descriptor scores) {
    const int64_t H = p->shape.H;
    descriptor row = place(p, "alibi row", scores, AXIS_ROW, CUDNN_DATA_INT32);
    descriptor column = place(p, "alibi column", scores, AXIS_COLUMN, CUDNN_DATA_INT32);
    descriptor far = apply(p, {"alibi distance", CUDNN_POINTWISE_SUB, CUDNN_DATA_INT32, 0}, column,
                           row, NULL, between(p, CUDNN_DATA_INT32, scores_layout(p)));
    descriptor slopes = real(p, AT_SLOPES, CUDNN_DATA_FLOAT, packed(1, H, 1, 1));
    descriptor bias = on_scores(p, "alibi slope", CUDNN_POINTWISE_MUL, far, slopes);
    return on_scores(p, "alibi", CUDNN_POINTWISE_ADD, scores, bias);
}

/* The scores where left > right or left >= right, elsewhere minus infinity. */
static descriptor where(plan *p, descriptor scores, cudnnPointwiseMode_t compare, descriptor left,
                        descriptor right, descriptor masked) {
    descriptor seen = apply(p, {"mask comparison", compare, CUDNN_DATA_BOOLEAN, 0}, left, right,
                            NULL, between(p, CUDNN_DATA_BOOLEAN, scores_layout(p)));
    return apply(p, {"mask", CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0}, scores, masked,
                 seen, between(p, CUDNN_DATA_FLOAT, scores_layout(p)));
}

static descriptor shifted(plan *p, const char *step, cudnnPointwiseMode_t mode, descriptor x,
                          descriptor by, cudnnDataType_t type) {
    return apply(p, {step, mode, type, 0}, x, by, NULL, between(p, type, scores_layout(p)));
}

static descriptor with_causal(plan *p, descriptor scores, descriptor masked) {
    descriptor row = place(p, "causal row", scores, AXIS_ROW, CUDNN_DATA_FLOAT);
    descriptor column = place(p, "causal column", scores, AXIS_COLUMN, CUDNN_DATA_FLOAT);
    if (p->shape.N != p->shape.T) {
        descriptor keys = number(p, AT_KEYS, CUDNN_DATA_INT32);
        descriptor rows = number(p, AT_ROWS, CUDNN_DATA_INT32);
        row = shifted(p, "row + N", CUDNN_POINTWISE_ADD, row, keys, CUDNN_DATA_INT32);
        row = shifted(p, "row + N - T", CUDNN_POINTWISE_SUB, row, rows, CUDNN_DATA_INT32);
    }
    return where(p, scores, CUDNN_POINTWISE_CMP_GE, row, column, masked);
}

/* column + (window - (N - T)) > row; the pattern wants the bound as a float. */
static descriptor with_window(plan *p, descriptor scores, descriptor masked) {
    descriptor row = place(p, "window row", scores, AXIS_ROW, CUDNN_DATA_FLOAT);
    descriptor column = place(p, "window column", scores, AXIS_COLUMN, CUDNN_DATA_FLOAT);
    descriptor left = number(p, AT_LEFT, CUDNN_DATA_FLOAT);
    column = shifted(p, "window bound", CUDNN_POINTWISE_ADD, column, left, CUDNN_DATA_FLOAT);
    return where(p, scores, CUDNN_POINTWISE_CMP_GT, column, row, masked);
}

static descriptor with_masks(plan *p, descriptor scores) {
    if (!p->shape.causal && p->shape.window == 0) return scores;
    descriptor masked = number(p, AT_MASKED, CUDNN_DATA_FLOAT);
    scores = with_causal(p, scores, masked);
    return p->shape.window > 0 ? with_window(p, scores, masked) : scores;
}

/* ---- the two graphs ---- */

static descriptor scaled_scores(plan *p, descriptor q, descriptor k, descriptor scale) {
    descriptor scores = product(p, "scores", q, k, between(p, CUDNN_DATA_FLOAT, scores_layout(p)));
    scores = on_scores(p, "scaled scores", CUDNN_POINTWISE_MUL, scores, scale);
    return p->shape.alibi ? with_alibi(p, scores) : scores;
}

static void describe_forward(plan *p) {
    const ls_cudnn_shape *s = &p->shape;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT, bf16 = CUDNN_DATA_BFLOAT16;
    descriptor q = real(p, AT_Q, bf16, query_layout(p, s->q_stride));
    descriptor k = real(p, AT_K, bf16, transposed(key_layout(p, s->k_stride)));
    descriptor v = real(p, AT_V, bf16, key_layout(p, s->v_stride));
    descriptor o = real(p, AT_O, bf16, query_layout(p, s->o_stride));
    descriptor lse = real(p, AT_LSE, f32, rows_layout(p));
    descriptor scale = number(p, AT_SCALE, f32);
    descriptor scores = with_masks(p, scaled_scores(p, q, k, scale));

    descriptor most = reduce(p, "largest score", CUDNN_REDUCE_TENSOR_MAX, scores,
                             between(p, f32, rows_layout(p)));
    descriptor less = on_scores(p, "score - largest", CUDNN_POINTWISE_SUB, scores, most);
    descriptor power = on_scores(p, "exponential", CUDNN_POINTWISE_EXP, less, NULL);
    descriptor sum = reduce(p, "sum of exponentials", CUDNN_REDUCE_TENSOR_ADD, power,
                            between(p, f32, rows_layout(p)));
    descriptor log = on_rows(p, "logarithm", CUDNN_POINTWISE_LOG, sum, NULL);
    apply(p, {"lse", CUDNN_POINTWISE_ADD, f32, 0}, most, log, NULL, lse);
    descriptor weights = apply(p, {"weights", CUDNN_POINTWISE_DIV, f32, 0}, power, sum, NULL,
                               between(p, bf16, scores_layout(p)));
    product(p, "output", weights, v, o);
}

/* dK or dV: the transposed scores-like tensor times the rows of the queries' side. Where query
 * heads share a key head, the gradients of all query heads are added up. */
static void key_gradient(plan *p, const char *step, descriptor scores, descriptor rows, address at,
                         const int64_t stride[3]) {
    const ls_cudnn_shape *s = &p->shape;
    const cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16;
    descriptor turned = reshape(p, step, scores, between(p, bf16, transposed(scores_layout(p))));
    descriptor gradient = real(p, at, bf16, key_layout(p, stride));
    if (s->H == s->G) {
        product(p, step, turned, rows, gradient);
        return;
    }
    descriptor each =
        product(p, step, turned, rows, between(p, bf16, packed(s->B, s->H, s->N, s->D)));
    reduce(p, step, CUDNN_REDUCE_TENSOR_ADD, each, gradient);
}

/* Written as it comes out of the product, dQ makes the engine keep all of dS in bf16 (B * H * T *
 * N, N rounded up to 128) and add up in a fixed order; by way of sums in f32 (B * H * T * D) it
 * adds blocks as they come. */
static void query_gradient(plan *p, descriptor ds, descriptor k) {
    const ls_cudnn_shape *s = &p->shape;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    descriptor keys = reshape(p, "keys", k, between(p, f32, key_layout(p, s->k_stride)));
    descriptor dq = real(p, AT_DQ, CUDNN_DATA_BFLOAT16, query_layout(p, s->dq_stride));
    if (!s->allow_nondeterministic) {
        product(p, "dQ", ds, keys, dq);
        return;
    }
    descriptor sums = real(p, AT_DQ_SUMS, f32, packed(s->B, s->H, s->T, s->D));
    product(p, "dQ sums", ds, keys, sums);
    apply(p, {"dQ", CUDNN_POINTWISE_IDENTITY, f32, 0}, sums, NULL, NULL, dq);
    p->dq_sums = (size_t)(s->B * s->H * s->T * s->D) * sizeof(float);
}

/* The sums over each row of dO * O. */
static descriptor row_sums(plan *p, descriptor d_o, descriptor o) {
    const ls_cudnn_shape *s = &p->shape;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    descriptor both = apply(p, {"dO * O", CUDNN_POINTWISE_MUL, f32, 0}, d_o, o, NULL,
                            between(p, f32, packed(s->B, s->H, s->T, s->D)));
    descriptor sums =
        reduce(p, "sum of dO * O", CUDNN_REDUCE_TENSOR_ADD, both, between(p, f32, rows_layout(p)));
    p->row_sums = (size_t)(s->B * s->H * s->T) * sizeof(float);
    /* the factor is that of dropout, and part of the pattern */
    return apply(p, {"row sums", CUDNN_POINTWISE_MUL, f32, 0}, sums, number(p, AT_ONE, f32), NULL,
                 real(p, AT_ROW_SUMS, f32, rows_layout(p)));
}

static void describe_backward(plan *p) {
    const ls_cudnn_shape *s = &p->shape;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT, bf16 = CUDNN_DATA_BFLOAT16;
    descriptor q = real(p, AT_Q, bf16, query_layout(p, s->q_stride));
    descriptor k = real(p, AT_K, bf16, transposed(key_layout(p, s->k_stride)));
    descriptor v = real(p, AT_V, bf16, transposed(key_layout(p, s->v_stride)));
    descriptor o = real(p, AT_O, bf16, query_layout(p, s->o_stride));
    descriptor d_o = real(p, AT_DO, bf16, query_layout(p, s->do_stride));
    descriptor lse = real(p, AT_LSE, f32, rows_layout(p));
    descriptor scale = number(p, AT_SCALE, f32);
    descriptor sums = row_sums(p, d_o, o);

    descriptor scores = scaled_scores(p, q, k, scale);
    scores = on_scores(p, "score - lse", CUDNN_POINTWISE_SUB, scores, lse);
    descriptor weights = on_scores(p, "weights", CUDNN_POINTWISE_EXP, with_masks(p, scores), NULL);
    key_gradient(p, "dV", weights, d_o, AT_DV, s->dv_stride);

    descriptor dp = product(p, "dP", d_o, v, between(p, f32, scores_layout(p)));
    descriptor ds = on_scores(p, "dP - row sum", CUDNN_POINTWISE_SUB, dp, sums);
    ds = on_scores(p, "dS", CUDNN_POINTWISE_MUL, ds, weights);
    ds = on_scores(p, "scaled dS", CUDNN_POINTWISE_MUL, ds, scale);
    key_gradient(p, "dK", ds, q, AT_DK, s->dk_stride);
    query_gradient(p, ds, k);
}

static void describe_graph(plan *p) {
    if (p->backward)
        describe_backward(p);
    else
        describe_forward(p);
    p->step = "graph";
    p->graph = make(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
    set(p, p->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        p->operation_count, p->operations);
    set(p, p->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->cudnn->handle);
    finish(p, p->graph);
}

/* ---- the choice of an engine ---- */

static void get(plan *p, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *values) {
    if (!p->failed)
        well(p, p->cudnn->cudnnBackendGetAttribute(d, name, type, most, count, values), "reading",
             name);
}

/* Whether the engine adds up in a fixed order, as far as it says: flash engines say nothing, with
 * them it is the graph that decides (see query_gradient). */
static bool order_fixed(plan *p, descriptor engine) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    get(p, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes);
    for (int64_t i = 0; i < count && !p->failed; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    return true;
}

/* Before the plan is built, which may mean that kernels are compiled. */
static bool configuration_allowed(plan *p, descriptor configuration) {
    int64_t index = -1, bytes = 0, count = 0;
    p->step = "engine";
    descriptor engine = make(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    get(p, configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
        &engine);
    get(p, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index);
    get(p, configuration, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
    bool fixed = order_fixed(p, engine);
    if (p->failed) return false;
    say(p, "engine %lld with %lld bytes; ", (long long)index, (long long)bytes);
    if (!fixed && !p->shape.allow_nondeterministic) {
        say(p, "it adds up in any order; ");
        return false;
    }
    if ((size_t)bytes + p->row_sums + p->dq_sums <= p->cudnn->memory_most) return true;
    say(p, "this is more than an eighth of the device; ");
    return false;
}

static bool configuration_taken(plan *p, descriptor configuration) {
    int64_t bytes = 0, count = 0;
    if (!configuration_allowed(p, configuration)) return false;
    p->step = "plan";
    descriptor d = make(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "execution plan");
    set_descriptor(p, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    set(p, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->cudnn->handle);
    finish(p, d);
    get(p, d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
    p->workspace = (size_t)bytes;
    p->chosen = d;
    return !p->failed;
}

/* The configurations a heuristic proposes, best first; how many. */
static int64_t proposed(plan *p, cudnnBackendHeurMode_t mode,
                        descriptor configurations[CONFIGURATIONS_MOST]) {
    int64_t count = 0;
    p->step = "heuristic";
    descriptor d = make(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "engine heuristic");
    set_descriptor(p, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, p->graph);
    set(p, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(p, d);
    for (int i = 0; i < CONFIGURATIONS_MOST; i++)
        configurations[i] = make(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine configuration");
    get(p, d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGURATIONS_MOST,
        &count, configurations);
    const int64_t most = CONFIGURATIONS_MOST; /* there may be more than fit */
    return p->failed ? 0 : count < most ? count : most;
}

static bool engine_chosen(plan *p) {
    static const struct {
        cudnnBackendHeurMode_t mode;
        const char *name;
    } modes[] = {{CUDNN_HEUR_MODE_A, "A"}, {CUDNN_HEUR_MODE_FALLBACK, "fallback"}};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        descriptor configurations[CONFIGURATIONS_MOST];
        int before = p->made_count;
        p->failed = false;
        int64_t count = proposed(p, modes[i].mode, configurations);
        say(p, "heuristic %s proposes %lld: ", modes[i].name, (long long)count);
        for (int64_t j = 0; j < count; j++) {
            int tried = p->made_count;
            p->failed = false;
            if (configuration_taken(p, configurations[j])) return true;
            give_descriptors(p, tried);
        }
        give_descriptors(p, before);
    }
    return false;
}

/* ---- building and finding ---- */

static size_t rounded(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

static bool memory_taken(plan *p) {
    size_t bytes = rounded(p->workspace) + rounded(p->row_sums) + rounded(p->dq_sums);
    if (bytes == 0 || cudaMalloc((void **)&p->memory, bytes) == cudaSuccess) return true;
    cudaGetLastError(); /* the own kernels do without */
    p->memory = NULL;
    say(p, "%zu bytes are not free; ", bytes);
    return false;
}

static bool strides_fit(const int64_t stride[3]) {
    return stride[0] % 8 == 0 && stride[1] % 8 == 0 && stride[2] % 8 == 0;
}

/* What cuDNN's patterns leave out, in one sentence; NULL where it may be asked. */
static const char *refusal(const ls_cudnn_shape *s, bool backward) {
    if (s->D != 64 && s->D != 128) return "heads are not 64 or 128 wide";
    if (s->G < 1 || s->H % s->G != 0) return "query heads do not share key heads evenly";
    if (s->T % ROWS_MULTIPLE != 0 || s->N % ROWS_MULTIPLE != 0)
        return "lengths are no multiples of 64";
    bool masked = s->causal || s->window > 0;
    if (masked && s->T > s->N) return "there are queries without a key";
    if (s->window > 0 && !s->causal) return "a window looks back only";
    if (s->alibi && (!s->causal || s->T != s->N)) return "alibi needs causal and as many keys";
    bool fit = strides_fit(s->q_stride) && strides_fit(s->k_stride) && strides_fit(s->v_stride) &&
               strides_fit(s->o_stride);
    if (backward)
        fit = fit && strides_fit(s->do_stride) && strides_fit(s->dq_stride) &&
              strides_fit(s->dk_stride) && strides_fit(s->dv_stride);
    return fit ? NULL : "strides are no multiples of 16 bytes";
}

static void build(plan *p) {
    const ls_cudnn_shape *s = &p->shape;
    const char *refused = refusal(s, p->backward);
    if (refused != NULL) {
        say(p, "%s", refused);
        return;
    }
    p->scale = (float)s->scale;
    p->masked = -INFINITY;
    p->one = 1;
    p->left = (float)(s->window - s->N + s->T);
    p->rows = (int32_t)s->T;
    p->keys = (int32_t)s->N;
    describe_graph(p);
    p->usable = !p->failed && engine_chosen(p) && memory_taken(p);
    if (!p->usable) give_descriptors(p, 0);
}

/* The part of a shape that tells cases apart, with cleared gaps so that bytes can be compared. */
static void write_key(ls_cudnn_shape *key, const ls_cudnn_shape *s, bool backward) {
    memset(key, 0, sizeof *key);
    key->B = s->B, key->T = s->T, key->N = s->N, key->H = s->H, key->G = s->G, key->D = s->D;
    key->scale = s->scale;
    key->causal = s->causal;
    key->window = s->window;
    key->alibi = s->alibi;
    memcpy(key->q_stride, s->q_stride, sizeof key->q_stride);
    memcpy(key->k_stride, s->k_stride, sizeof key->k_stride);
    memcpy(key->v_stride, s->v_stride, sizeof key->v_stride);
    memcpy(key->o_stride, s->o_stride, sizeof key->o_stride);
    if (!backward) return;
    key->allow_nondeterministic = s->allow_nondeterministic;
    memcpy(key->do_stride, s->do_stride, sizeof key->do_stride);
    memcpy(key->dq_stride, s->dq_stride, sizeof key->dq_stride);
    memcpy(key->dk_stride, s->dk_stride, sizeof key->dk_stride);
    memcpy(key->dv_stride, s->dv_stride, sizeof key->dv_stride);
}

/* NULL where the case was never asked for. */
static plan *found(const ls_cudnn *cudnn, const ls_cudnn_shape *shape, bool backward) {
    ls_cudnn_shape key;
    write_key(&key, shape, backward);
    for (plan *p = cudnn == NULL ? NULL : cudnn->plans; p != NULL; p = p->next)
        if (p->backward == backward && memcmp(&p->shape, &key, sizeof key) == 0) return p;
    return NULL;
}

static plan *planned(ls_cudnn *cudnn, const ls_cudnn_shape *shape, bool backward) {
    plan *p = found(cudnn, shape, backward);
    if (p != NULL) return p;
    p = (plan *)calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->cudnn = cudnn;
    write_key(&p->shape, shape, backward);
    p->backward = backward;
    p->next = cudnn->plans;
    cudnn->plans = p;
    build(p);
    return p;
}

bool ls_cudnn_attention_ready(ls_cuda *cuda, const ls_cudnn_shape *shape, bool backward) {
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(cuda->stream, &capturing) != cudaSuccess) return false;
    const plan *p;
    if (capturing == cudaStreamCaptureStatusNone) {
        ls_cudnn *cudnn = cudnn_of(cuda);
        p = cudnn == NULL || cudnn->handle == NULL ? NULL : planned(cudnn, shape, backward);
    } else {
        p = found((const ls_cudnn *)cuda->cudnn, shape, backward);
    }
    return p != NULL && p->usable;
}

const char *ls_cudnn_attention_about(ls_cuda *cuda, const ls_cudnn_shape *shape, bool backward) {
    const ls_cudnn *cudnn = (const ls_cudnn *)cuda->cudnn;
    if (cudnn != NULL && cudnn->missing[0] != 0) return cudnn->missing;
    const plan *p = found(cudnn, shape, backward);
    return p == NULL ? "cuDNN was not asked" : p->about;
}

/* ---- running ---- */

static void run(ls_cuda *cuda, plan *p, void *at[AT_COUNT]) {
    int64_t ids[AT_COUNT], count = 0;
    void *addresses[AT_COUNT], *workspace = p->workspace == 0 ? NULL : p->memory;
    at[AT_ROW_SUMS] = p->memory + rounded(p->workspace);
    at[AT_DQ_SUMS] = p->memory + rounded(p->workspace) + rounded(p->row_sums);
    at[AT_SCALE] = &p->scale, at[AT_MASKED] = &p->masked, at[AT_ONE] = &p->one;
    at[AT_LEFT] = &p->left, at[AT_ROWS] = &p->rows, at[AT_KEYS] = &p->keys;
    for (int i = 0; i < AT_COUNT; i++)
        if (p->has[i]) {
            ids[count] = i;
            addresses[count++] = at[i];
        }
    int before = p->made_count;
    p->failed = false;
    p->step = "run";
    size_t told = strlen(p->about);
    descriptor d = make(p, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack");
    set(p, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    set(p, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses);
    set(p, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finish(p, d);
    if (!p->failed)
        well(p, p->cudnn->cudnnBackendExecute(p->cudnn->handle, p->chosen, d), "executing", -1);
    if (p->failed) ls_cuda_note_text(cuda, "attention by cuDNN", p->about + told);
    p->about[told] = 0;
    give_descriptors(p, before);
}

static plan *usable_plan(ls_cuda *cuda, const ls_cudnn_shape *shape, bool backward) {
    plan *p = found((const ls_cudnn *)cuda->cudnn, shape, backward);
    if (p != NULL && p->usable) return p;
    ls_cuda_note_text(cuda, "attention by cuDNN", "the case was not made ready");
    return NULL;
}

void ls_cudnn_attention_forward(ls_cuda *cuda, const ls_cudnn_shape *shape, const void *q,
                                const void *k, const void *v, void *o, float *lse,
                                const float *slopes) {
    plan *p = usable_plan(cuda, shape, false);
    if (p == NULL) return;
    void *at[AT_COUNT] = {};
    at[AT_Q] = (void *)q, at[AT_K] = (void *)k, at[AT_V] = (void *)v, at[AT_O] = o;
    at[AT_LSE] = lse, at[AT_SLOPES] = (void *)slopes;
    run(cuda, p, at);
}

void ls_cudnn_attention_backward(ls_cuda *cuda, const ls_cudnn_shape *shape, const void *q,
                                 const void *k, const void *v, const void *o, const float *lse,
                                 const void *d_o, void *dq, void *dk, void *dv,
                                 const float *slopes) {
    plan *p = usable_plan(cuda, shape, true);
    if (p == NULL) return;
    void *at[AT_COUNT] = {};
    at[AT_Q] = (void *)q, at[AT_K] = (void *)k, at[AT_V] = (void *)v, at[AT_O] = (void *)o;
    at[AT_LSE] = (void *)lse, at[AT_SLOPES] = (void *)slopes;
    at[AT_DO] = (void *)d_o, at[AT_DQ] = dq, at[AT_DK] = dk, at[AT_DV] = dv;
    run(cuda, p, at);
}

void ls_cudnn_close(ls_cuda *cuda) {
    ls_cudnn *cudnn = (ls_cudnn *)cuda->cudnn;
    if (cudnn == NULL) return;
    while (cudnn->plans != NULL) {
        plan *p = cudnn->plans;
        cudnn->plans = p->next;
        give_descriptors(p, 0);
        cudaFree(p->memory);
        free(p);
    }
    if (cudnn->handle != NULL) cudnn->cudnnDestroy(cudnn->handle);
    /* the library stays: unloading it while the driver knows its kernels is not safe */
    free(cudnn);
    cuda->cudnn = NULL;
}

#else /* built without cuDNN's headers */

bool ls_cudnn_attention_ready(ls_cuda *cuda, const ls_cudnn_shape *shape, bool backward) {
    return false;
}

const char *ls_cudnn_attention_about(ls_cuda *cuda, const ls_cudnn_shape *shape, bool backward) {
    return "built without cuDNN";
}

void ls_cudnn_attention_forward(ls_cuda *cuda, const ls_cudnn_shape *shape, const void *q,
                                const void *k, const void *v, void *o, float *lse,
                                const float *slopes) {}

void ls_cudnn_attention_backward(ls_cuda *cuda, const ls_cudnn_shape *shape, const void *q,
                                 const void *k, const void *v, const void *o, const float *lse,
                                 const void *d_o, void *dq, void *dk, void *dv,
                                 const float *slopes) {}

void ls_cudnn_close(ls_cuda *cuda) {}

#endif
