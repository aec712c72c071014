/* The parameter store: all parameters of a model in flat buffers, in the order of their names.
 *
 * Master weights are f64 where the compute type is f64, else f32; with bf16 there is a rounded
 * shadow that products read. Gradients have the master's type. A parameter's place is padded to 64
 * elements, so that pieces of the buffers can be handled alone. */
#ifndef LS_TENSOR_PARAMETER_H
#define LS_TENSOR_PARAMETER_H

#include "base/memory.h"
#include "tensor/engine/adapter.h"
#include "tensor/engine/dtype.h"

typedef enum {
    LS_INIT_ZERO,
    LS_INIT_CONSTANT, /* a */
    LS_INIT_NORMAL,   /* standard deviation a */
    LS_INIT_UNIFORM,  /* in [-a, a] */
    LS_INIT_CUSTOM,   /* what `fill` makes of uniform draws from [0, 1) */
} ls_init_kind;

typedef struct ls_init {
    ls_init_kind kind;
    double a, b, c; /* b, c: CUSTOM alone */
    void (*fill)(const struct ls_init *init, double *values, int64_t count); /* CUSTOM */
    bool no_decay;     /* weight decay leaves it alone (norms, biases, position tables) */
    bool never_decays; /* not even where all that is trained does (train.decay=all) */
    bool own_rate;     /* of a state space (its A, P, steps) or CLEX: train.state_lr acts on it */
    bool own_decay;    /* its decay goes by that rate too */
    bool full;         /* kept in the master's type also where products run in bf16 */
    bool fixed;        /* never trained: no gradient; kept and stored like any other */
    double
        running; /* of a fixed one: operations leave what it is to follow where gradients are, and
                       an update moves it this share of the way to the mean of all leaves; 0: not */
} ls_init;

/* The usual ones: weights of products, biases (of products: always full), gains of norms. */
static inline ls_init ls_init_normal(double deviation) {
    return (ls_init){.kind = LS_INIT_NORMAL, .a = deviation};
}
static inline ls_init ls_init_bias(void) {
    return (ls_init){.kind = LS_INIT_ZERO, .no_decay = true, .full = true};
}
static inline ls_init ls_init_gain(void) {
    return (ls_init){.kind = LS_INIT_CONSTANT, .a = 1, .no_decay = true, .full = true};
}

typedef struct ls_parameter {
    char *name;
    int rank;
    int64_t dim[5];
    int64_t count, offset; /* elements; offset in the flat buffers, valid once sealed */
    int64_t full_offset;   /* in the store's `full`, of one that is there */
    ls_init init;
    bool frozen; /* the store's adapter does not train it: neither gradient nor moments */
    bool gated;  /* every operation that reads it leaves its gradient alone where it has none */
} ls_parameter;

typedef struct ls_parameters {
    ls_ctx *ctx;
    ls_dtype type, master_type; /* compute and master types */
    ls_parameter *items;
    size_t count, capacity;
    bool blank; /* set before sealing: values stay 0, for a model that is only planned */
    /* set before sealing a blank store that will not be trained: what products read in bf16 is kept
     * in bf16 alone, and the master holds the rest. Cleared where that cannot be: on a device, in
     * another type, with a gradient. */
    bool lean;
    bool sealed;
    uint64_t *version;  /* of the values, from 1 once sealed; parts of a store share it */
    ls_adapter adapter; /* set before anything is declared */
    int64_t total;      /* elements of the flat buffers, padding included */
    int64_t trained;    /* of those that come first: not frozen; gradients and moments have them */
    int64_t spill;      /* behind the gradient: where operations write what nobody wants */
    int64_t master_total; /* of the master: fewer in a lean store, whose full ones come first */
    void *master;         /* NULL where several processes share it out: see `full` */
    void *full;           /* then what programs read in the master's type; else NULL */
    ls_bf16 *shadow;      /* bf16 only */
    void *gradient;       /* NULL where no training happens */
} ls_parameters;

ls_status ls_parameters_new(ls_ctx *ctx, ls_dtype type, ls_parameters **out);
void ls_parameters_free(ls_parameters *store);
/* Sorts by name, lays the buffers out, and fills them from the seed. */
ls_status ls_parameters_seal(ls_parameters *store, uint64_t seed, bool with_gradient);
/* The gradient of a sealed store, all zeros, where it was sealed without one. */
ls_status ls_parameters_take_gradient(ls_parameters *store);
/* Declares or finds; LS_EBUG where a shape differs. *index is the place in items (stable only once
 * sealed: use names before). */
ls_status ls_parameters_declare(ls_parameters *store, const char *name, int rank,
                                const int64_t *dim, ls_init init, size_t *index);
ls_parameter *ls_parameters_find(const ls_parameters *store, const char *name);
/* The values that a key draws for a parameter by its init, in double. */
void ls_parameter_draw(const ls_parameter *parameter, uint64_t seed, uint32_t step, double *values);
int64_t ls_parameters_elements(const ls_parameters *store); /* without padding */
int64_t ls_parameters_trained(const ls_parameters *store);  /* those that are not frozen */
/* A store with some of the parameters of a sealed one, in the same buffers: those that are trained,
 * laid out as gradients and moments are, or those that the model has without its adapter. Free its
 * items alone. */
typedef enum { LS_PART_TRAINED, LS_PART_BASE } ls_parameters_kind;
ls_status ls_parameters_part(const ls_parameters *store, ls_parameters_kind kind,
                             ls_parameters *out);
/* While recording: an operation reads the parameter and does not touch its gradient unless its
 * tensor needs one. */
void ls_parameters_gate(ls_parameters *store, int64_t index);
/* Whoever changes values says so before a program runs again: streams keep what they computed from
 * weights alone (prepare.c). */
void ls_parameters_changed(ls_parameters *store);
/* After the master weights changed, of which it tells: makes the shadow agree. */
void ls_parameters_round(ls_parameters *store);
/* The same of some elements, wherever they come from. */
void ls_parameters_round_some(ls_parameters *store, const void *from, int64_t first, int64_t count);
/* Gives the master back, of which others keep what they need: programs that are recorded from now
 * on read the shadow, and `full`. In bf16, without an adapter. */
ls_status ls_parameters_give_master(ls_parameters *store);
/* A parameter's elements in `full`, and their padding; 0: it is not there. */
int64_t ls_parameter_full_count(const ls_parameter *parameter);
void ls_parameters_clear_gradient(ls_parameters *store);
void *ls_parameter_master(const ls_parameters *store, const ls_parameter *parameter);
/* Where a parameter's values are, and in which type: in the master, but for the bf16 of a store
 * that is lean or has none. */
void *ls_parameter_values(const ls_parameters *store, const ls_parameter *parameter,
                          ls_dtype *type);
void *ls_parameter_gradient(const ls_parameters *store, const ls_parameter *parameter);

/* A flat buffer of the store's layout (master, gradient, an optimiser's moments) where the
 * processor can reach it: itself, or a copy from the device. `put_back` writes what was changed
 * there; the copy is given back in any case. */
ls_status ls_parameters_fetch(const ls_parameters *store, void *buffer, void **here);
void ls_parameters_release(const ls_parameters *store, void *buffer, void *here, bool put_back);

#endif
