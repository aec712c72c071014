/* Programs: recorded once, planned once, replayed every step.
 *
 * A model is an ordinary C function that calls operations (ops.h). While it runs nothing is
 * computed: each call checks shapes and appends a node. ls_program_finish then makes the backward
 * part from the operations' own rules, gives every tensor its place in one arena and looks the
 * kernels up; ls_program_run replays the nodes without allocating.
 *
 * Errors are sticky: after the first one every recording call does nothing and returns NULL, so a
 * mixer needs no error handling; ls_program_finish returns the first error. */
#ifndef LS_TENSOR_PROGRAM_H
#define LS_TENSOR_PROGRAM_H

#include "base/memory.h"
#include "base/random.h"
#include "tensor/engine/kernel.h"
#include "tensor/engine/parameter.h"

enum { LS_RANK_MAX = 5 };
/* A distance or position beyond all others: no bound. */
#define LS_FAR ((int64_t)1 << 60)

typedef enum {
    LS_ROLE_ACTIVATION, /* lives from the node that writes it to the last that reads it */
    LS_ROLE_INPUT,      /* written by the caller before a run; lives throughout */
    LS_ROLE_CONSTANT,   /* filled when recorded; lives throughout */
    LS_ROLE_PARAMETER,  /* in the parameter store */
    LS_ROLE_STATE,      /* in the ls_state given to the run */
} ls_role;

/* A tensor of a program. Row-major with free strides (elements); the last axis is contiguous.
 * A view shares the storage of its base. Owned by the program. */
typedef struct ls_tensor {
    ls_dtype type;
    ls_role role;
    int rank;
    int64_t dim[LS_RANK_MAX], stride[LS_RANK_MAX];
    struct ls_tensor *base; /* storage owner of a view, or NULL */
    int64_t offset;         /* elements from the base's start */
    void *data;             /* of an owner: valid once the program is finished */
    bool needs_grad;        /* a parameter or an input that was asked for lies before it */
    bool kept;              /* an output: stays readable after the run */
    bool prepared;          /* follows from the weights, and keeps its place between runs */
    /* while recording: */
    struct ls_tensor *grad;       /* the gradient so far */
    struct ls_tensor **assembled; /* of a view: the gradient that it and its sisters are parts of */
    bool taken;                   /* a view's views write straight into its gradient's place */
    struct ls_tensor *waiting;    /* what else came while the place was taken */
    struct ls_tensor *source;     /* of a view: the tensor it was made from */
    int port;        /* state port whose rows these are, also after a row-wise operation; or -1 */
    int first, last; /* nodes between which it must live */
    int piece;       /* the piece apart whose nodes make it and alone read it, from 1; 0: none */
    struct ls_tensor *again; /* where the backward part computes it once more */
    int64_t parameter;       /* of PARAMETER: its index in the store; else -1 */
} ls_tensor;

typedef struct ls_program ls_program;
typedef struct ls_state ls_state;

/* What an operation is, on any device. */
typedef struct ls_op {
    const char *name; /* kernels bear it */
    /* Records the nodes that take the gradients of the outputs to gradients of the inputs; NULL for
     * an operation without gradient (its inputs must not need one). */
    void (*backward)(ls_program *program, const ls_node *node);
    /* Records the node's first result once more, with the same bits, from what the backward part
     * keeps anyway: for operations that are cheap beside what their result takes to keep; NULL for
     * others. */
    ls_tensor *(*again)(ls_program *program, const ls_node *node);
    bool in_place; /* its one result may lie over its first input: same shape, element by element */
    bool parts;    /* what it makes of a part of a cache's rows is merged: see ls_parts */
    /* A sequence's results have the same bits in a batch of up to LS_TOGETHER_MOST (ls_run says
     * rows_alone), and neither its position nor its state enters: see ls_together. */
    bool any_batch;
    /* Results follow from the operands and attributes alone, as with any_batch: where these are the
     * weights, a stream computes them once. */
    bool pure;
    /* Floating-point operations of one run (position dependent ones count the recorded capacity);
     * NULL means one per output element. */
    double (*flops)(const ls_node *node);
} ls_op;

struct ls_node {
    const ls_op *op;
    ls_kernel_fn call; /* NULL for views */
    const void *attributes;
    int in_count, out_count;
    ls_tensor **in; /* entries may be NULL: optional operands */
    ls_tensor **out;
    size_t workspace;
    bool apart; /* recorded between ls_apart and ls_apart_end */
    bool small; /* one thread does it sooner than a team: ls_run says 1 */
    /* of nodes that a device computes in one step (join.c): each as it was, with its place among
     * the operands and results here */
    const ls_node *parts;
    int part_count;
};

/* What holds while a program runs. */
struct ls_run {
    int threads;
    int64_t team_work;        /* less is done by one thread: ls_ctx */
    struct ls_device *device; /* NULL: the processor */
    void *workspace;
    ls_state *state; /* NULL: every sequence starts here */
    int64_t start;   /* position of the chunk's first token */
    uint64_t seed;   /* of dropout */
    uint32_t step;
    bool rows_alone; /* products give every row the bits that it has alone: see ls_together */
    bool tf32;       /* of the options */
    const ls_parameters *parameters;
    /* or NULL: a node of a stream sets it where it asks the device for the same work at every
     * position, as long as caches only grow; what differs is read there */
    bool *steady;
};

/* What is to be kept of the weights that each query's softmax gives its keys: see
 * ls_attention_pattern. first_keys 0: nothing. */
enum { LS_PATTERN_DISTANCES_MAX = 8 };
typedef struct ls_pattern_view {
    int64_t distances, first_keys;
    int64_t distance[LS_PATTERN_DISTANCES_MAX];
} ls_pattern_view;
static inline int64_t ls_pattern_columns(const ls_pattern_view *view) {
    return view->distances + view->first_keys + 2;
}

/* A stream that several programs share, each with a part of its rows: number `own` of `count`, a
 * power of two; 0 or 1: there are no parts. Caches with more rows than a part has of the sequence
 * hold this part's alone. All run the same chunks at the same time; an operation that reads such a
 * cache computes its part of a sum or of a softmax, and merges it with the others'. */
typedef struct ls_parts {
    int64_t count, own;
    /* Sends to the one that has another part, and receives as much from it. */
    ls_status (*exchange)(void *user, int64_t with, const void *send, void *receive, size_t bytes);
    void *user;
} ls_parts;

typedef struct ls_program_options {
    ls_dtype type;         /* compute type: f64, f32 or bf16 */
    int64_t batch, length; /* B sequences, T tokens of each in a chunk */
    bool grad;             /* record the backward part */
    bool train;            /* dropout acts */
    int64_t runs;          /* train: runs of one training step, each with a step of its own. 0: 1 */
    int64_t shares; /* grad: so many programs share a batch: auxiliary losses count for as much
                              less in each. 0: 1 */
    bool recompute; /* grad: cheap results are computed twice, not kept */
    /* matrix products in f32 may round their operands to tf32 (10 bits behind the point), where a
     * device has units for that */
    bool tf32;
    /* grad, in bf16: linear layers whose widths and rows are multiples of 16 multiply in fp8 */
    bool fp8;
    /* grad, streaming: gradients pass through the state, from what follows the chunk to what was
     * before it: see ls_program_run_through */
    bool through;
    bool forward;      /* grad: the forward part alone, as a program with gradients has it */
    bool streaming;    /* state enters and leaves through ports */
    int64_t capacity;  /* streaming: most tokens a sequence will ever have */
    int64_t chunk_max; /* streaming: longest chunk of any program that shares the state */
    ls_parts parts;    /* streaming */
    /* streaming: sequences begin anew each for itself (ls_state_reset_rows); chunks of all programs
     * that share the state have one length */
    bool resets;
    bool profile_scores;      /* attention keeps "scores" by distance: see ls_score_profile */
    ls_pattern_view patterns; /* attention keeps "pattern" */
    bool guarded;             /* tests: a guard band behind every tensor in the arena */
    bool forks; /* streaming: its sequences are continuations of one state: see ls_together_try */
} ls_program_options;

/* A program to record into. The store is borrowed: unless it is sealed, parameters that are not in
 * it yet are declared there. */
ls_status ls_program_new(ls_ctx *ctx, const ls_program_options *options, ls_parameters *store,
                         ls_program **out);
void ls_program_free(ls_program *program);

/* Ends recording. With `grad`, nodes for all gradients are appended first. */
ls_status ls_program_finish(ls_program *program);
/* Replays. `state` must come from ls_state_new of a program with the same ports (NULL where the
 * program does not stream). The chunk starts at the state's position, which then advances. */
ls_status ls_program_run(ls_program *program, ls_state *state, uint64_t seed, uint32_t step);

/* The same with options.through. `gradient`, a state of the same ports, has on entry the gradient
 * of the state that the chunk leaves, and afterwards that of the state it began with. A sequence
 * that is cut in parts has the gradients of one that is not: its parts run forward in their order
 * (options.forward will do), then back, each with the state that it began with. */
ls_status ls_program_run_through(ls_program *program, ls_state *state, ls_state *gradient,
                                 uint64_t seed, uint32_t step);

/* Watching runs: reached(user, i) is called in each once the kernels of its first at[i] nodes were
 * called, or asked of the device. The numbers ascend and lie below that of all nodes; they are
 * borrowed. NULL: nobody watches any more. */
typedef struct ls_watch {
    size_t count;
    const size_t *at;
    void (*reached)(void *user, size_t i);
    void *user;
} ls_watch;
ls_status ls_program_watch(ls_program *program, const ls_watch *watch);
/* after[i]: so many nodes have run when nothing more is added to the i-th parameter's gradient. */
void ls_program_gradients_end(const ls_program *program, size_t *after);
size_t ls_program_nodes(const ls_program *program);
/* Nodes of an operation, also where a device computes them together with the next. */
size_t ls_program_count(const ls_program *program, const char *op);

const ls_program_options *ls_program_about(const ls_program *program);
ls_ctx *ls_program_ctx(const ls_program *program);
/* Arena, workspace and what parts are merged in: known before any run. */
size_t ls_program_bytes(const ls_program *program);
double ls_program_flops(const ls_program *program); /* of one run, forward and backward */
/* The longest chunk this model can take at once (methods whose rows must go one by one say 1). */
int64_t ls_program_chunk_limit(const ls_program *program);
void ls_program_limit_chunk(ls_program *program, int64_t most);
/* A model whose sequences are cut at multiples of `unit` tokens: a chunk begins at one, and what it
 * has beyond the last one leaves no trace, neither in the state nor in its position. */
int64_t ls_program_unit(const ls_program *program);
void ls_program_set_unit(ls_program *program, int64_t unit);
/* Seconds spent per operation name since the last call, sorted; for `bench`. */
typedef struct ls_op_time {
    const char *name;
    double seconds, flops;
    int64_t calls;
} ls_op_time;
void ls_program_profile(ls_program *program, bool on);
size_t ls_program_times(const ls_program *program, ls_op_time *out, size_t most);
/* Tests: fills the arena with NaN; tells whether every guard band is intact. */
void ls_program_poison(ls_program *program);
bool ls_program_guards_intact(const ls_program *program);

/* ---- recording ---- */

/* Names are dotted: inside ls_scope(p, "layers.%d", 3) the parameter "norm.weight" is
 * layers.3.norm.weight; ports likewise. A name that begins with / stands outside all scopes. */
void ls_scope(ls_program *program, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls_scope_end(ls_program *program);
/* A scope, outside all others, in which names that begin with / stand: a part of a model that has
 * what its layers share for itself. Scopes inside it are ended before. */
void ls_scope_root(ls_program *program, const char *name);
void ls_scope_root_end(ls_program *program);
/* Between these a piece of `length` tokens stands apart from what is around it: its positions count
 * from 0, it is not streamed, and ports are the plain tensors or zeros. With options.recompute its
 * activations are not kept for the backward part but computed once more there, so that memory does
 * not grow with the number of pieces. */
void ls_apart(ls_program *program, int64_t length);
void ls_apart_end(ls_program *program);
/* The message is LS_FAIL's; for shape errors and refusals inside recorded functions. */
void ls_refuse(ls_program *program, ls_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with LS_EUSE, where an option of the program is why: see ls_error. */
void ls_refuse_option(ls_program *program, const char *option, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool ls_failed(const ls_program *program);

#define LS_DIMS(...)                                                                               \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {           \
        __VA_ARGS__                                                                                \
    }

/* A parameter of the current scope, e.g. ls_param(p, "weight", LS_DIMS(out, in), init). */
ls_tensor *ls_param(ls_program *p, const char *name, int rank, const int64_t *dim, ls_init init);
/* A parameter that stands beside another and is of its kind: its name has another last word. */
ls_tensor *ls_param_beside(ls_program *p, const ls_tensor *weight, const char *end, int rank,
                           const int64_t *dim, ls_init init);
const char *ls_param_name(const ls_program *p, const ls_tensor *parameter); /* the whole */
const ls_adapter *ls_adapter_of(const ls_program *p);
/* An operation that reads a parameter and makes no gradient of it where its tensor needs none says
 * so: a large one that is frozen then has no memory for one. */
void ls_param_gated(ls_program *p, const ls_tensor *parameter);
/* The caller writes it before each run, with ls_tensor_put. */
ls_tensor *ls_input(ls_program *p, const char *name, ls_dtype type, int rank, const int64_t *dim,
                    bool needs_grad);
/* A copy of `values` (f64, converted to `type`); NULL: zeros. */
ls_tensor *ls_constant(ls_program *p, ls_dtype type, int rank, const int64_t *dim,
                       const double *values);
/* Keeps a tensor readable after the run under a name (scoped). */
void ls_keep(ls_program *p, const char *name, ls_tensor *tensor);
/* An input or kept tensor by its full name; NULL where there is none. */
ls_tensor *ls_program_find(const ls_program *program, const char *name);
/* The names of inputs and kept tensors one after the other; NULL after the last. */
const char *ls_program_name_at(const ls_program *program, size_t index);
/* Sets the gradient from which backward starts: d objective / d tensor. */
void ls_seed_gradient(ls_program *p, ls_tensor *tensor, ls_tensor *gradient);
/* Adds weight * value, value wide [1], to what is minimised, and keeps the value under a (scoped)
 * name. Without gradients it is only kept. */
void ls_auxiliary(ls_program *p, const char *name, ls_tensor *value, double weight);
/* The sum of weight * value of all such terms of the last run. */
ls_status ls_program_auxiliary(const ls_program *program, double *sum);
/* After backward was recorded by ls_program_finish there is no way in; ask for the gradient of an
 * input or activation beforehand: it is kept under "grad.<name>". */
void ls_keep_gradient(ls_program *p, const char *name, ls_tensor *tensor);

/* The program's compute type; and that of statistics and tables: f64 in f64, else f32. */
ls_dtype ls_type(const ls_program *p);
ls_dtype ls_wide_type(const ls_program *p);
/* Whether there is a kernel of that name where the program computes. */
bool ls_has_kernel(const ls_program *p, const char *op);

/* ---- for operations ---- */

/* A new activation, and a node. `attributes` are copied. */
ls_tensor *ls_activation(ls_program *p, ls_dtype type, int rank, const int64_t *dim);
ls_node *ls_record(ls_program *p, const ls_op *op, const void *attributes, size_t bytes,
                   int in_count, ls_tensor *const *in, int out_count, ls_tensor *const *out);
/* A view of the same storage; it is recorded, so that its gradient finds its way back. */
ls_tensor *ls_reshape(ls_program *p, ls_tensor *tensor, int rank, const int64_t *dim);
/* Cuts the last axis into `count` parts of the given widths (their sum is the axis). */
void ls_split(ls_program *p, ls_tensor *tensor, int count, const int64_t *widths,
              ls_tensor **parts);

/* Cuts x [B,T,...] along time into `count` parts of the given lengths (their sum is T), and joins
 * such parts. These are copies: rows of every part lie at one stride. */
void ls_cut_rows(ls_program *p, ls_tensor *tensor, int count, const int64_t *lengths,
                 ls_tensor **parts);
ls_tensor *ls_join_rows(ls_program *p, int count, ls_tensor *const *parts);
/* The same values as a constant: no gradient goes back through it. Also of a parameter. */
ls_tensor *ls_detach(ls_program *p, ls_tensor *tensor);

/* Inside a backward rule: the gradient of an output (NULL where none flows), a tensor to write an
 * input's gradient into, and the handing over of a finished gradient. ls_grad_add accepts any
 * tensor, also one that belongs to another tensor's gradient (it is never written again). */
ls_tensor *ls_grad_of(const ls_tensor *output);
ls_tensor *ls_grad_target(ls_program *p, ls_tensor *input);
void ls_grad_add(ls_program *p, ls_tensor *input, ls_tensor *gradient);

/* Between the caller's memory and a tensor, in the tensor's own type and row-major order; after a
 * run only inputs, constants and kept tensors have a meaning. Reading waits for the run. */
void ls_tensor_put(const ls_program *program, const ls_tensor *tensor, const void *values);
ls_status ls_tensor_get(const ls_program *program, const ls_tensor *tensor, void *values);

/* The address of a tensor, on the program's device, while the program runs. */
void *ls_data(const ls_tensor *tensor);
static inline void *ls_data_or_null(const ls_tensor *tensor) {
    return tensor == NULL ? NULL : ls_data(tensor);
}
/* Element i of a real tensor's memory, in any of its types: for kernels whose time is no matter. */
static inline double ls_tensor_at(const ls_tensor *tensor, int64_t i) {
    return ls_element(ls_data(tensor), tensor->type, i);
}
static inline void ls_tensor_set(const ls_tensor *tensor, int64_t i, double value) {
    ls_element_set(ls_data(tensor), tensor->type, i, value);
}
/* The gradient of a parameter in the store (f64 or f32): backward kernels add to it. */
void *ls_param_gradient(const ls_run *run, const ls_tensor *parameter);
int64_t ls_count(const ls_tensor *tensor);
/* A tensor as rows of its last axis: true where all rows lie at one stride. */
bool ls_rows(const ls_tensor *tensor, int64_t *rows, int64_t *width, int64_t *stride);

/* ---- state ---- */

/* Which of the past rows a cache must keep for queries from position n on: all m >=
 * lowest(n), where lowest = n - window + 1, or n / block * block - before, the lower of the
 * two that are set. */
typedef struct ls_retention {
    int64_t window; /* 0: unbounded, everything stays */
    int64_t block,
        before; /* for queries that see `before` rows before their block; block 0: none */
    bool
        exact; /* what no query needs goes at once: the cache is small, and rows move at each run */
    bool far;  /* everything stays, but few rows are read at a time: outside memory, see
                  ls_device_take_far */
    bool whole;   /* never in parts: any of them may be read at any place */
    int64_t unit; /* rows that are read together: parts begin at multiples of it; 0: 1 */
} ls_retention;

/* Appends the chunk x [B,T,...] to a cache and returns the cache [B,capacity,...]; its run-time
 * extent is ls_cache_extent(run, tensor). Without streaming: x itself, rows 0..T-1. */
ls_tensor *ls_cache_append(ls_program *p, const char *name, ls_tensor *x, ls_retention keep);
/* A kernel has read what it wanted of a cache for now: rows that are kept far leave memory. */
void ls_far_done(const ls_run *run, const ls_tensor *cache);
/* Rows that such a cache has room for. */
int64_t ls_cache_rows(ls_retention keep, int64_t capacity, int64_t chunk_max);
/* The first `rows` rows of the sequence, kept for ever (sinks): a cache that fills once. Without
 * streaming: x itself (the caller restricts the keys). */
ls_tensor *ls_cache_first(ls_program *p, const char *name, ls_tensor *x, int64_t rows);
/* Whether a tensor's rows are those of a cache that holds one part of them. */
bool ls_in_parts(const ls_program *p, const ls_tensor *tensor);
/* What the operation just recorded made of its part becomes what all parts make together: *out is
 * the sum, or with *lse [B,H,T] the softmax's mean of *out [B,T,H,V]. */
void ls_merge_parts(ls_program *p, ls_tensor **out, ls_tensor **lse);
/* Whether any cache of a program is in parts. */
bool ls_program_in_parts(const ls_program *program);
/* A recurrent state: its value from before (zeros at first), and its new value. */
ls_tensor *ls_state_read(ls_program *p, const char *name, ls_dtype type, int rank,
                         const int64_t *dim);
void ls_state_write(ls_program *p, const char *name, ls_tensor *value);

/* Which rows there are when the sequence is at a position: one for `each` tokens, of all tokens but
 * the last `behind` before the last multiple of `every`. With every = 0 they are not the
 * sequence's: all are there from its first run on. */
typedef struct ls_row_rule {
    int64_t each, every, behind;
} ls_row_rule;
int64_t ls_rows_due(ls_row_rule rule, int64_t position);

/* A port without content that only has an extent, for tensors whose rows are counted otherwise than
 * the sequence's; NULL without streaming. Its operation sets the extent at each run. */
ls_tensor *ls_extent_port(ls_program *p, const char *name, ls_row_rule rule);
void ls_extent_set(const ls_run *run, const ls_tensor *tensor, int64_t first, int64_t count);
/* A cache whose rows an operation appends itself, moving its extent on. */
ls_tensor *ls_rows_port(ls_program *p, const char *name, ls_dtype type, int rank,
                        const int64_t *dim, ls_row_rule rule);

/* Positions of the rows that a cache (or, without streaming, a plain tensor) holds now: row j is
 * position first + j, for j < count. */
typedef struct ls_extent {
    int64_t first, count;
} ls_extent;
ls_extent ls_cache_extent(const ls_run *run, const ls_tensor *tensor);

/* ---- sequences that begin anew each for itself (options.resets) ----
 *
 * The position is common to a batch and goes on; a sequence begins where it stands, always at a
 * multiple of the chunk's length. What it had before is zeros in every port; caches have one extent
 * for all, so attention is told which of their rows are the sequence's own. Whoever counts from the
 * start of a sequence asks where that was. */

/* Whether the program is recorded for that: not in a piece that stands apart. */
bool ls_begins_differ(const ls_program *p);
/* i32 [B]: the position at which each sequence began; NULL where all did at 0. */
ls_tensor *ls_begins(ls_program *p);
/* u8 [B,N]: which rows of a cache [B,N,...] are the sequence's own; NULL where all are. */
ls_tensor *ls_own_rows(ls_program *p, const ls_tensor *cache);
/* i32 [B,T]: places in their own sequences of the chunk's tokens, those beyond `last` being `last`.
 * Only where sequences begin anew. */
ls_tensor *ls_own_places(ls_program *p, int64_t T, int64_t last);
/* Refuses what is cut at multiples of `period` positions (0: it is not cut) where a sequence could
 * begin elsewhere. */
void ls_begins_fit(ls_program *p, int64_t period);
/* Where positions of a stream end at the latest. */
int64_t ls_positions_end(const ls_program *p);

/* Streaming state of a model: one buffer per port, and the position. */
ls_status ls_state_new(const ls_program *program, ls_state **out);
/* A second state with the same content, for the same programs: both go on alike, each for itself.
 */
ls_status ls_state_copy(const ls_state *from, ls_state **out);
/* Where a state stands, to go back to with ls_state_back after it went on. Rows that a cache keeps
 * for ever stay in the state, which only adds to them: a mark holds the rest. Freed as a state. */
ls_status ls_state_mark(const ls_state *state, ls_state **mark);
ls_status ls_state_back(ls_state *state, const ls_state *mark);
/* Makes a mark of the same state anew, without taking memory. */
ls_status ls_state_mark_again(const ls_state *state, ls_state *mark);
/* Of a gradient that passes through states (ls_program_run_through): it becomes zeros, of the state
 * that stands there; and it is now that of the state that stood at a mark. */
void ls_state_clear_at(ls_state *gradient, const ls_state *state);
void ls_state_stand_at(ls_state *gradient, const ls_state *state);
void ls_state_free(ls_ctx *ctx, ls_state *state);
void ls_state_reset(ls_state *state);
/* The marked sequences of the batch begin anew, the others go on. All of them: ls_state_reset. Only
 * for programs with options.resets. */
void ls_state_reset_rows(ls_state *state, const bool *rows);
/* Tokens that a sequence of the batch has had. */
int64_t ls_state_age(const ls_state *state, int64_t row);
int64_t ls_state_position(const ls_state *state);
size_t ls_state_bytes(const ls_state *state);
/* Whether a program carries something under a name. */
bool ls_state_has(const ls_program *program, const char *name);
/* What a port holds, by its full name, as doubles [B, rows, ...]: of a cache the last
 * `rows` that it has. LS_EINPUT where there is no such port, or it has fewer rows or
 * others than `width` wide. */
ls_status ls_state_values(const ls_program *program, const ls_state *state, const char *name,
                          int64_t rows, int64_t width, double *out);

/* ---- sequences at places of their own, a chunk further together ----
 *
 * Each has a state of its own, of one sequence. What does not depend on the place (products, norms,
 * activations: ls_op.any_batch) is computed for all of them at once, the rest for one after the
 * other. The results have the bits that each alone would have. */
typedef struct ls_together ls_together;
enum {
    LS_TOGETHER_MOST = 16, /* sequences, and tokens of all: products of more rows go another way */
    LS_TOGETHER_MANY = 8, /* tokens of each: so many go that way also alone, and MOST is no limit */
    LS_TOGETHER_LENGTH = 4, /* of each sequence that a server moves on */
    LS_GROUPS_MOST = 16,    /* that run side by side */
};
/* Takes over `many`, a streaming program of `count` sequences. `one` [count], each the same for one
 * sequence, are borrowed: groups of different sizes that do not run at the same time may share
 * them. *out is NULL where they do not fit together (a model that orders its tensors otherwise):
 * then `many` is freed, and sequences go one by one. */
ls_status ls_together_new(ls_program *many, ls_program *const *one, int64_t count,
                          ls_together **out);
void ls_together_free(ls_together *together); /* NULL is fine */
/* The program whose inputs are to be put, and whose results are there after a run. */
ls_program *ls_together_program(const ls_together *together);
/* states [count of all groups]: those of the first group, then of the next. Several groups run side
 * by side on the processor, each on one thread. Where it fails nothing has moved. */
ls_status ls_together_run(ls_together *const *groups, int64_t count, ls_state *const *states);
/* All sequences go on from one state, which stands at the mark and is there again afterwards: what
 * they add to its caches is overwritten by the next, and new values are not kept. The program has
 * options.forks. */
ls_status ls_together_try(ls_together *together, ls_state *state, const ls_state *mark);

/* Whole content as bytes (position, extents, buffers), and back; loading checks every size. */
ls_status ls_state_save(ls_ctx *ctx, const ls_state *state, ls_text *out);
/* The same bytes piece by piece, without a copy of all of them; ls_state_length of them. */
typedef ls_status (*ls_state_sink)(void *user, const void *bytes, size_t length);
ls_status ls_state_put(ls_ctx *ctx, const ls_state *state, ls_state_sink put, void *user);
size_t ls_state_length(const ls_state *state);
ls_status ls_state_load(ls_ctx *ctx, ls_state *state, const void *bytes, size_t length);
/* The same with the rows alone that caches hold now, for another rank. */
ls_status ls_state_put_rows(ls_ctx *ctx, const ls_state *state, ls_state_sink put, void *user);
size_t ls_state_rows_length(const ls_state *state);
ls_status ls_state_load_rows(ls_ctx *ctx, ls_state *state, const void *bytes, size_t length);

#endif
