/* What the files that record, plan, run and stream programs share. */
#ifndef LS_TENSOR_PROGRAM_INTERNAL_H
#define LS_TENSOR_PROGRAM_INTERNAL_H

#include "tensor/engine/program.h"

typedef enum {
    LS_PORT_CACHE,
    LS_PORT_FIRST,
    LS_PORT_VALUE,
    LS_PORT_BEGINS, /* where sequences began: i32 [B] */
} ls_port_kind;

typedef struct ls_port {
    char *name;
    ls_port_kind kind;
    ls_tensor *tensor; /* [B, rows, ...] of caches, any shape of values */
    ls_retention keep;
    ls_row_rule rule; /* of a cache */
    bool appended;    /* by cache_append: `keep` says which rows stay */
    bool in_parts;    /* a cache with one part of its rows: see ls_parts */
    size_t bytes;
    ls_tensor *gradient; /* of its content, after the chunk and then before it; NULL: none passes */
} ls_port;

static const ls_row_rule ls_row_of_token = {.each = 1, .every = 1};

/* Attributes of cache_append. */
struct ls_append {
    ls_port_kind kind;
    ls_retention keep;
    int64_t part_first, part_end; /* of a cache in parts: positions of its rows; else both 0 */
};

typedef struct ls_named {
    char *name;
    ls_tensor *tensor;
    bool gradient; /* a wish: the tensor's gradient, to be kept under this name */
} ls_named;

typedef struct ls_block {
    struct ls_block *next;
    size_t used, size;
} ls_block;

typedef struct ls_apart_nodes { /* nodes first to end - 1 */
    size_t first, end;
} ls_apart_nodes;

typedef struct ls_constant_fill {
    ls_tensor *tensor;
    double *values; /* NULL: zeros */
} ls_constant_fill;

typedef struct ls_auxiliary_term {
    ls_tensor *value;
    double weight;
} ls_auxiliary_term;

typedef struct ls_list { /* of pointers */
    void **at;
    size_t count, capacity;
} ls_list;

/* What a graph of a stream's step was made with. */
typedef struct ls_stream_place {
    void *data;
    int64_t first; /* position of the first row */
} ls_stream_place;

struct ls_program {
    ls_ctx *ctx;
    ls_program_options options;
    ls_parameters *store;
    ls_status status;
    ls_block *blocks; /* everything small that lives as long as the program */
    ls_list nodes, writes, tensors, names, ports, constants;
    ls_list appends;     /* the nodes that append to caches, also where others stand for them */
    ls_list auxiliaries; /* of ls_auxiliary_term */
    char scope[256];
    size_t root;   /* bytes of the scope in which names that begin with / stand */
    bool backward; /* the nodes now recorded are gradients */
    bool finished;
    int64_t chunk_limit, unit;
    ls_tensor *begins; /* the port of sequences that begin anew each for itself, or NULL */
    bool apart;        /* between ls_apart and ls_apart_end */
    struct {
        bool streaming;
        int64_t length;
        size_t first; /* node */
    } around;         /* of the piece that stands apart: what holds outside it */
    ls_list pieces;   /* ls_apart_nodes: their nodes */
    uint8_t *arena;
    size_t arena_bytes, workspace_bytes;
    int threads; /* for which the workspace was planned */
    void *workspace;
    int64_t runs;
    void *graph; /* the device's, of kernels in order; NULL: not yet, or never */
    ls_watch watch;
    void **graphs; /* [watch.count]: of the kernels behind each watched place; `graph` ends there */
    const ls_program
        *rows_of;           /* the program in whose rows its tensors lie (ls_together), or NULL */
    ls_stream_place *place; /* streaming: of each port, after the last run */
    bool steady;            /* that run asked the device for nothing that the position decides */
    size_t prepared;        /* so many nodes come first and follow from the weights alone */
    uint64_t prepared_for;  /* *ls_parameters.version when they ran; 0: not yet */
    double *seconds;        /* per node, where profiling is on */
    bool profile;
    bool keeps;          /* the kernels of the present run go into graphs */
    uint8_t *merged;     /* what is merged: this part's, and another's behind it */
    size_t merged_bytes; /* of one of them; 0: nothing is */
};

/* What an append does in a run: of the rows in the cache the first `drop` go, `kept` stay (moved to
 * the front), and of the chunk `take` rows from `from` on follow them. */
typedef struct ls_append_plan {
    int64_t drop, kept, take, from;
} ls_append_plan;

struct ls_state {
    ls_ctx *ctx;
    int64_t batch;
    int64_t capacity;
    int64_t position; /* a multiple of `unit`: see ls_program_unit */
    int64_t unit;
    int64_t oldest;  /* the first position that belongs to any sequence of the batch */
    int32_t *begins; /* [batch]: where sequences began, as the port of them has it; NULL: at 0 */
    size_t ports;
    struct ls_state_port {
        uint64_t identity; /* hash of the port's name, kind and size */
        ls_port_kind kind;
        ls_retention keep; /* these four of a cache, as in ls_port */
        ls_row_rule rule;
        bool appended;
        int64_t rows;  /* that it has room for; 0: it has an extent alone */
        int64_t lines; /* in each of which it has them: its first axis */
        bool shared;   /* has no part of each sequence */
        size_t bytes;
        ls_extent extent;
        ls_append_plan last; /* of the last run */
        void *data;
    } port[];
};

void *ls__pool(ls_program *p, size_t count, size_t size);
bool ls__list_add(ls_program *p, ls_list *list, void *item);
char *ls__scoped_name(ls_program *p, const char *name);
ls_tensor *ls__tensor(ls_program *p, ls_dtype type, ls_role role, int rank, const int64_t *dim);
void ls__record_backward(ls_program *p);
void ls__place_over_inputs(ls_program *p);
bool ls__overlap(const ls_tensor *a, const ls_tensor *b); /* whether they share memory */
void ls__join_nodes(ls_program *p);
/* prepare.c: what follows from the weights is moved to the front of a stream's program, and is run
 * with its first chunk and after the weights changed. */
void ls__prepare_nodes(ls_program *p);
/* The first node that a run has to call. */
size_t ls__first_node(const ls_program *p);
void ls__recompute(ls_program *p, size_t forward_count); /* nodes before it are the forward part */
ls_status ls__plan(ls_program *p);
/* end[i], of each node: the node behind the passage that it lies in, 0 where it lies in none. A
 * passage begins where a cache is appended to and ends where it is last read: with one state for
 * several sequences each goes through it before the next begins. */
void ls__find_passages(const ls_program *p, size_t *end);
ls_status ls__bind_kernels(ls_program *p);
double ls__node_flops(const ls_node *node);
/* Whether neither position nor state enters a node, whatever the device. */
bool ls__node_anywhere(const ls_node *node);
/* How long a node takes, in floating-point operations of a product. */
double ls__node_work(const ls_node *node);
/* Advances the cache's extent. */
ls_append_plan ls__append_begin(const ls_run *run, const ls_node *node);
/* Whether an append finds room for its rows behind those of the cache. */
bool ls__appends_only(const ls_run *run, const ls_node *node);
/* Whether a run would find every port where the last one left it, at the same address, with room
 * for its rows behind those that are there. */
bool ls__state_goes_on(const ls_program *p, const ls_run *run);
/* After a run: remembers where the ports are. */
void ls__state_went_on(ls_program *p, const ls_state *state);
/* The caches' extents of a run whose kernels are not called one by one. */
void ls__append_all(const ls_program *p, const ls_run *run);
/* The first position that a query at `start` may still see; `all` where it sees everything. */
int64_t ls__lowest_seen(ls_retention keep, int64_t start, int64_t all);
int64_t ls__state_oldest(const ls_state *state);
/* What a port held at a mark of its state. */
ls_status ls__port_back(ls_state *state, const ls_state *mark, size_t port);
void ls__add_begins(ls_program *p);
ls_status ls__state_begin(ls_program *p, ls_state *state, ls_state *gradient);
/* Gradients that pass through the state: before the backward part is recorded, and behind it. */
void ls__state_seed(ls_program *p);
void ls__state_hand_back(ls_program *p);
/* parts.c: refuses nodes that would take a part of a cache for the whole; makes room to merge in;
 * and the merging itself, where nodes of it come up in a run. */
ls_status ls__check_parts(ls_program *p);
bool ls__merges(const ls_node *node);
ls_status ls__merge_node(ls_program *p, const ls_node *node);
/* watch.c: the device's graphs of a run, one behind the other, with what watches them
 * between two. A run that is kept ends one graph at a watched place and begins the next. */
void ls__graphs_next(ls_program *p, size_t place);
void ls__graphs_replay(ls_program *p);
void ls__graphs_forget(ls_program *p);
const ls_kernel *ls__kernel_find(const char *isa, const char *op);
/* The device of programs of a type: f64, the reference, is the processor's. */
struct ls_device *ls__device_of(const ls_ctx *ctx, ls_dtype type);
/* The kernel of an operation where the context computes. */
const ls_kernel *ls__kernel_of(const ls_ctx *ctx, ls_dtype type, const char *op);

#endif
