/* Recording and running: see program.h. */
#include "tensor/engine/program.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

const char *ls_dtype_name(ls_dtype type) {
    static const char *const names[] = {"f64", "f32", "bf16", "i32", "u8", "e4m3", "e5m2"};
    return names[type];
}

/* ---- small memory ---- */

void *ls__pool(ls_program *p, size_t count, size_t size) {
    enum { BLOCK = 1 << 16, HEAD = 64 };
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX / 2;
    bytes = (bytes + 15) & ~(size_t)15;
    if (p->blocks == NULL || p->blocks->size - p->blocks->used < bytes) {
        size_t whole = bytes + HEAD > BLOCK ? bytes + HEAD : BLOCK;
        ls_block *block = ls_new(p->ctx, whole, 1);
        if (block == NULL) {
            p->status = LS_ENOMEM;
            return NULL;
        }
        *block = (ls_block){.next = p->blocks, .used = HEAD, .size = whole};
        p->blocks = block;
    }
    void *pointer = (char *)p->blocks + p->blocks->used;
    p->blocks->used += bytes;
    return pointer;
}

bool ls__list_add(ls_program *p, ls_list *list, void *item) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        void **grown = ls__pool(p, capacity, sizeof *grown);
        if (grown == NULL) return false;
        if (list->count > 0) memcpy(grown, list->at, list->count * sizeof *grown);
        list->at = grown;
        list->capacity = capacity;
    }
    list->at[list->count++] = item;
    return true;
}

/* ---- life ---- */

ls_status ls_program_new(ls_ctx *ctx, const ls_program_options *options, ls_parameters *store,
                         ls_program **out) {
    *out = NULL;
    if (options->batch < 1 || options->length < 1)
        return LS_FAIL(ctx, LS_EUSE, "a program needs at least one sequence of one token");
    if (options->streaming &&
        (options->capacity < options->length || options->chunk_max < options->length))
        return LS_FAIL(ctx, LS_EUSE, "a chunk of %lld tokens does not fit a capacity of %lld",
                       (long long)options->length, (long long)options->capacity);
    if (options->through && (!options->streaming || !options->grad || options->resets))
        return LS_FAIL(ctx, LS_EBUG, "gradients pass through the state of a stream that has some");
    if (options->fp8 && ctx->device != NULL && !ctx->device->fp8)
        return LS_FAIL(ctx, LS_EUSE,
                       "fp8 needs a device of compute capability 8.9 or above, with units for it");
    ls_program *program = ls_new(ctx, 1, sizeof *program);
    if (program == NULL) return LS_ENOMEM;
    program->ctx = ctx;
    program->options = *options;
    program->store = store;
    program->chunk_limit = LS_FAR;
    program->unit = 1;
    if (options->streaming && options->resets) ls__add_begins(program);
    *out = program;
    return LS_OK;
}

void ls_program_free(ls_program *program) {
    if (program == NULL) return;
    ls_ctx *ctx = program->ctx;
    ls__graphs_forget(program);
    ls_device_give(ctx, program->arena);
    ls_device_give(ctx, program->workspace);
    ls_free(ctx, program->merged);
    for (ls_block *block = program->blocks; block != NULL;) {
        ls_block *next = block->next;
        ls_free(ctx, block);
        block = next;
    }
    ls_free(ctx, program);
}

const ls_program_options *ls_program_about(const ls_program *program) {
    return &program->options;
}
ls_ctx *ls_program_ctx(const ls_program *program) {
    return program->ctx;
}
int64_t ls_program_chunk_limit(const ls_program *program) {
    return program->chunk_limit;
}
void ls_program_limit_chunk(ls_program *program, int64_t most) {
    if (most < program->chunk_limit) program->chunk_limit = most;
}

int64_t ls_program_unit(const ls_program *program) {
    return program->unit;
}
void ls_program_set_unit(ls_program *program, int64_t unit) {
    program->unit = unit;
}

void ls_apart(ls_program *program, int64_t length) {
    if (program->apart) {
        ls_refuse(program, LS_EBUG, "a piece that stands apart cannot hold another");
        return;
    }
    program->apart = true;
    program->around.streaming = program->options.streaming;
    program->around.length = program->options.length;
    program->around.first = program->nodes.count;
    program->options.streaming = false;
    program->options.length = length;
}

void ls_apart_end(ls_program *program) {
    if (!program->apart) return;
    program->apart = false;
    program->options.streaming = program->around.streaming;
    program->options.length = program->around.length;
    ls_apart_nodes *piece = ls__pool(program, 1, sizeof *piece);
    if (piece == NULL) return;
    *piece = (ls_apart_nodes){program->around.first, program->nodes.count};
    ls__list_add(program, &program->pieces, piece);
}

/* ---- names and errors ---- */

static void refuse(ls_program *program, ls_status code, const char *format, va_list arguments) {
    char text[400];
    vsnprintf(text, sizeof text, format, arguments);
    program->status = LS_FAIL(program->ctx, code, "%s", text);
}

void ls_refuse(ls_program *program, ls_status code, const char *format, ...) {
    if (program->status != LS_OK) return;
    va_list arguments;
    va_start(arguments, format);
    refuse(program, code, format, arguments);
    va_end(arguments);
}

void ls_refuse_option(ls_program *program, const char *option, const char *format, ...) {
    if (program->status != LS_OK) return;
    program->ctx->error.option = option;
    va_list arguments;
    va_start(arguments, format);
    refuse(program, LS_EUSE, format, arguments);
    va_end(arguments);
}

bool ls_failed(const ls_program *program) {
    return program->status != LS_OK;
}

void ls_scope(ls_program *program, const char *format, ...) {
    size_t used = strlen(program->scope);
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(program->scope + used, sizeof program->scope - used, format, arguments);
    va_end(arguments);
    if (more < 0 || used + (size_t)more + 2 > sizeof program->scope)
        ls_refuse(program, LS_EBUG, "scope names are nested too deep: %s", program->scope);
    else
        strcat(program->scope, "/");
}

/* The scope is kept as a/b/ so that a part may itself hold dots; names show dots throughout. */
void ls_scope_end(ls_program *program) {
    size_t used = strlen(program->scope);
    if (used == 0) return;
    program->scope[used - 1] = '\0';
    char *slash = strrchr(program->scope, '/');
    if (slash != NULL)
        slash[1] = '\0';
    else
        program->scope[0] = '\0';
}

void ls_scope_root(ls_program *program, const char *name) {
    if (program->scope[0] != '\0') ls_refuse(program, LS_EBUG, "%s is inside a scope", name);
    ls_scope(program, "%s", name);
    program->root = strlen(program->scope);
}

void ls_scope_root_end(ls_program *program) {
    program->root = 0;
    ls_scope_end(program);
}

char *ls__scoped_name(ls_program *p, const char *name) {
    size_t scope = strlen(p->scope);
    if (*name == '/') scope = p->root, name++;
    size_t bytes = scope + strlen(name) + 1;
    char *full = ls__pool(p, bytes, 1);
    if (full == NULL) return NULL;
    snprintf(full, bytes, "%.*s%s", (int)scope, p->scope, name);
    for (char *c = full; *c != '\0'; c++)
        if (*c == '/') *c = '.';
    return full;
}

/* ---- tensors ---- */

ls_dtype ls_type(const ls_program *p) {
    return p->options.type;
}
ls_dtype ls_wide_type(const ls_program *p) {
    return p->options.type == LS_F64 ? LS_F64 : LS_F32;
}
bool ls_has_kernel(const ls_program *p, const char *op) {
    const ls_kernel *kernel = ls__kernel_of(p->ctx, p->options.type, op);
    return kernel != NULL && kernel->by_type[p->options.type] != NULL;
}

ls_tensor *ls__tensor(ls_program *p, ls_dtype type, ls_role role, int rank, const int64_t *dim) {
    if (ls_failed(p)) return NULL;
    if (rank < 0 || rank > LS_RANK_MAX) {
        ls_refuse(p, LS_EBUG, "a tensor of rank %d", rank);
        return NULL;
    }
    ls_tensor *tensor = ls__pool(p, 1, sizeof *tensor);
    if (tensor == NULL) return NULL;
    *tensor = (ls_tensor){
        .type = type, .role = role, .rank = rank, .port = -1, .parameter = -1, .first = -1};
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        tensor->dim[i] = dim[i];
        tensor->stride[i] = stride;
        if (dim[i] < 1 || !ls_mul(stride, dim[i], &stride) || stride > (int64_t)1 << 48) {
            ls_refuse(p, LS_EUSE, "a tensor with an axis of %lld is empty or too large",
                      (long long)dim[i]);
            return NULL;
        }
    }
    return ls__list_add(p, &p->tensors, tensor) ? tensor : NULL;
}

ls_tensor *ls_activation(ls_program *p, ls_dtype type, int rank, const int64_t *dim) {
    return ls__tensor(p, type, LS_ROLE_ACTIVATION, rank, dim);
}

/* By its name outside all scopes. */
static ls_tensor *parameter_of(ls_program *p, const char *full, int rank, const int64_t *dim,
                               ls_init init) {
    size_t index;
    if ((p->status = ls_parameters_declare(p->store, full, rank, dim, init, &index)) != LS_OK)
        return NULL;
    bool rounded = p->options.type == LS_BF16 && !init.full;
    ls_tensor *tensor =
        ls__tensor(p, rounded ? LS_BF16 : p->store->master_type, LS_ROLE_PARAMETER, rank, dim);
    if (tensor == NULL) return NULL;
    tensor->parameter = (int64_t)index;
    tensor->needs_grad = p->options.grad && !init.fixed && !p->store->items[index].frozen;
    if (p->store->sealed) {
        const ls_parameter *parameter = &p->store->items[index];
        tensor->data = rounded ? (void *)(p->store->shadow + parameter->offset)
                               : ls_parameter_master(p->store, parameter);
    }
    return tensor;
}

ls_tensor *ls_param(ls_program *p, const char *name, int rank, const int64_t *dim, ls_init init) {
    if (ls_failed(p)) return NULL;
    const char *full = ls__scoped_name(p, name);
    return full == NULL ? NULL : parameter_of(p, full, rank, dim, init);
}

ls_tensor *ls_param_beside(ls_program *p, const ls_tensor *weight, const char *end, int rank,
                           const int64_t *dim, ls_init init) {
    if (ls_failed(p) || weight == NULL) return NULL;
    const char *name = ls_param_name(p, weight), *last = strrchr(name, '.');
    const int stem = last == NULL ? 0 : (int)(last + 1 - name);
    const size_t bytes = (size_t)stem + strlen(end) + 1;
    char *full = ls__pool(p, bytes, 1);
    if (full == NULL) return NULL;
    snprintf(full, bytes, "%.*s%s", stem, name, end);
    init.full = p->store->items[weight->parameter].init.full;
    return parameter_of(p, full, rank, dim, init);
}

const char *ls_param_name(const ls_program *p, const ls_tensor *parameter) {
    return p->store->items[parameter->parameter].name;
}

void ls_param_gated(ls_program *p, const ls_tensor *parameter) {
    if (!ls_failed(p) && parameter != NULL && parameter->role == LS_ROLE_PARAMETER)
        ls_parameters_gate(p->store, parameter->parameter);
}

const ls_adapter *ls_adapter_of(const ls_program *p) {
    return &p->store->adapter;
}

static void add_name(ls_program *p, const char *name, ls_tensor *tensor, bool gradient) {
    if (ls_failed(p) || tensor == NULL) return;
    ls_named *named = ls__pool(p, 1, sizeof *named);
    char *full = ls__scoped_name(p, name);
    if (named == NULL || full == NULL) return;
    *named = (ls_named){.name = full, .tensor = tensor, .gradient = gradient};
    ls__list_add(p, &p->names, named);
}

ls_tensor *ls_input(ls_program *p, const char *name, ls_dtype type, int rank, const int64_t *dim,
                    bool needs_grad) {
    ls_tensor *tensor = ls__tensor(p, type, LS_ROLE_INPUT, rank, dim);
    if (tensor == NULL) return NULL;
    tensor->needs_grad = needs_grad && p->options.grad;
    add_name(p, name, tensor, false);
    return tensor;
}

ls_tensor *ls_constant(ls_program *p, ls_dtype type, int rank, const int64_t *dim,
                       const double *values) {
    ls_tensor *tensor = ls__tensor(p, type, LS_ROLE_CONSTANT, rank, dim);
    if (tensor == NULL) return NULL;
    ls_constant_fill *fill = ls__pool(p, 1, sizeof *fill);
    if (fill == NULL) return NULL;
    double *copy = NULL; /* NULL: zeros */
    if (values != NULL) {
        copy = ls__pool(p, (size_t)ls_count(tensor), sizeof *copy);
        if (copy == NULL) return NULL;
        memcpy(copy, values, (size_t)ls_count(tensor) * sizeof *copy);
    }
    *fill = (ls_constant_fill){tensor, copy};
    return ls__list_add(p, &p->constants, fill) ? tensor : NULL;
}

void ls_keep(ls_program *p, const char *name, ls_tensor *tensor) {
    if (ls_failed(p) || tensor == NULL) return;
    (tensor->base == NULL ? tensor : tensor->base)->kept = true;
    add_name(p, name, tensor, false);
}

void ls_keep_gradient(ls_program *p, const char *name, ls_tensor *tensor) {
    char full[256];
    snprintf(full, sizeof full, "grad.%s", name);
    add_name(p, full, tensor, true);
}

ls_tensor *ls_program_find(const ls_program *program, const char *name) {
    for (size_t i = 0; i < program->names.count; i++) {
        const ls_named *named = program->names.at[i];
        if (strcmp(named->name, name) == 0) return named->tensor;
    }
    return NULL;
}
const char *ls_program_name_at(const ls_program *program, size_t index) {
    if (index >= program->names.count) return NULL;
    return ((const ls_named *)program->names.at[index])->name;
}

int64_t ls_count(const ls_tensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= tensor->dim[i];
    return count;
}

void *ls_data(const ls_tensor *tensor) {
    const ls_tensor *owner = tensor->base == NULL ? tensor : tensor->base;
    if (owner->data == NULL) return NULL; /* not planned yet: kernels ask for sizes alone */
    return (char *)owner->data + (size_t)tensor->offset * ls_dtype_size(tensor->type);
}

/* Rows of the last axis that lie at one stride are one copy where they touch. */
static ls_status move_rows(const ls_program *p, const ls_tensor *tensor, char *values, bool out) {
    int64_t width = tensor->rank == 0 ? 1 : tensor->dim[tensor->rank - 1];
    int64_t count = ls_count(tensor), rows, unused, stride;
    if (ls_rows(tensor, &rows, &unused, &stride) && stride == width) width = count;
    size_t size = ls_dtype_size(tensor->type), bytes = (size_t)width * size;
    for (int64_t first = 0; first < count; first += width) {
        int64_t place = 0, left = first;
        for (int axis = tensor->rank - 1; width < count && axis >= 0; axis--) {
            place += left % tensor->dim[axis] * tensor->stride[axis];
            left /= tensor->dim[axis];
        }
        char *there = (char *)ls_data(tensor) + (size_t)place * size;
        char *here = values + (size_t)first * size;
        if (out)
            LS_TRY(ls_device_get(p->ctx, here, there, bytes));
        else
            ls_device_put(p->ctx, there, here, bytes);
    }
    return LS_OK;
}

void ls_tensor_put(const ls_program *program, const ls_tensor *tensor, const void *values) {
    char *here;
    memcpy(&here, &values, sizeof here); /* it is only read */
    move_rows(program, tensor, here, false);
}

ls_status ls_tensor_get(const ls_program *program, const ls_tensor *tensor, void *values) {
    return move_rows(program, tensor, values, true);
}

bool ls_rows(const ls_tensor *tensor, int64_t *rows, int64_t *width, int64_t *stride) {
    int last = tensor->rank - 1;
    if (last < 0) return *rows = *width = *stride = 1, true;
    *width = tensor->dim[last];
    *rows = 1;
    *stride = last == 0 ? *width : tensor->stride[last - 1];
    for (int i = last - 1; i >= 0; i--) {
        if (tensor->dim[i] > 1 && tensor->stride[i] != *stride * *rows) return false;
        *rows *= tensor->dim[i];
    }
    return true;
}

void *ls_param_gradient(const ls_run *run, const ls_tensor *parameter) {
    return ls_parameter_gradient(run->parameters, &run->parameters->items[parameter->parameter]);
}

/* ---- nodes ---- */

ls_node *ls_record(ls_program *p, const ls_op *op, const void *attributes, size_t bytes,
                   int in_count, ls_tensor *const *in, int out_count, ls_tensor *const *out) {
    if (ls_failed(p)) return NULL;
    ls_node *node = ls__pool(p, 1, sizeof *node);
    ls_tensor **tensors = ls__pool(p, (size_t)(in_count + out_count) + 1, sizeof *tensors);
    void *copy = ls__pool(p, bytes + 1, 1);
    if (node == NULL || tensors == NULL || copy == NULL) return NULL;
    if (bytes > 0) memcpy(copy, attributes, bytes);
    *node = (ls_node){.op = op,
                      .attributes = copy,
                      .in_count = in_count,
                      .out_count = out_count,
                      .apart = p->apart,
                      .in = tensors,
                      .out = tensors + in_count};
    bool needs_grad = false;
    for (int i = 0; i < in_count; i++) {
        node->in[i] = in[i];
        needs_grad |= in[i] != NULL && in[i]->needs_grad;
    }
    for (int i = 0; i < out_count; i++) {
        node->out[i] = out[i];
        if (out[i] != NULL && !p->backward) out[i]->needs_grad |= needs_grad;
    }
    return ls__list_add(p, &p->nodes, node) ? node : NULL;
}

double ls__node_flops(const ls_node *node) {
    if (node->op->flops != NULL) return node->op->flops(node);
    const bool makes = node->call != NULL && node->out_count > 0 && node->out[0] != NULL;
    return makes ? (double)ls_count(node->out[0]) : 0;
}

double ls_program_flops(const ls_program *program) {
    double flops = 0;
    for (size_t i = 0; i < program->nodes.count; i++) flops += ls__node_flops(program->nodes.at[i]);
    return flops;
}

/* What is read and written counts too: an element takes as long as eight operations of a product,
 * or longer. */
double ls__node_work(const ls_node *node) {
    enum { ELEMENT = 8 };
    double elements = 0;
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] != NULL) elements += (double)ls_count(node->out[i]);
    const double flops = ls__node_flops(node);
    return flops > ELEMENT * elements ? flops : ELEMENT * elements;
}

size_t ls_program_bytes(const ls_program *program) {
    return program->arena_bytes + program->workspace_bytes + 2 * program->merged_bytes;
}

/* ---- running ---- */

static void advance(const ls_program *program, ls_state *state) {
    state->position += program->options.length / program->unit * program->unit;
}

bool ls__node_anywhere(const ls_node *node) {
    bool anywhere = node->op->any_batch;
    for (int i = 0; i < node->in_count + node->out_count && !node->apart; i++) {
        const ls_tensor *x = i < node->in_count ? node->in[i] : node->out[i - node->in_count];
        anywhere = anywhere && (x == NULL || (x->port < 0 && x->role != LS_ROLE_STATE));
    }
    return anywhere || node->apart;
}

static void pass(ls_program *program, size_t place) {
    if (program->keeps)
        ls__graphs_next(program, place);
    else
        program->watch.reached(program->watch.user, place);
}

static ls_status call_kernels(ls_program *program, const ls_run *given) {
    bool steady;
    ls_run whole = *given, apart;
    whole.steady = &steady;
    apart = whole;
    apart.state = NULL;
    apart.start = 0;
    program->steady = true;
    size_t place = 0; /* the next that is watched */
    for (size_t i = ls__first_node(program); i < program->nodes.count; i++) {
        const ls_node *node = program->nodes.at[i];
        for (; place < program->watch.count && program->watch.at[place] == i; place++)
            pass(program, place);
        if (ls__merges(node)) LS_TRY(ls__merge_node(program, node));
        if (node->call == NULL) continue;
        double before = program->profile ? ls_clock() : 0;
        steady = ls__node_anywhere(node);
        whole.threads = apart.threads = node->small ? 1 : given->threads;
        node->call(node->apart ? &apart : &whole, node);
        program->steady = program->steady && steady;
        if (!program->profile) continue;
        LS_TRY(ls_device_settle(program->ctx));
        program->seconds[i] += ls_clock() - before;
    }
    program->prepared_for = *program->store->version;
    return LS_OK;
}

/* As one thing that the device does again. */
static ls_status keep_kernels(ls_program *program, const ls_run *run) {
    ls_device *device = run->device;
    program->keeps = true;
    device->capture(device);
    ls_status status = call_kernels(program, run);
    ls__graphs_next(program, program->watch.count);
    program->keeps = false;
    LS_TRY(status);
    ls__graphs_replay(program);
    return ls_device_settle(program->ctx);
}

/* The first run settles everything that is found out only once (plans of libraries, the fastest
 * products); the second is kept. */
static ls_status run_whole(ls_program *program, const ls_run *run) {
    ls_device *device = run->device;
    if (device == NULL || program->profile) return call_kernels(program, run);
    if (program->graph == NULL && program->runs++ == 1) return keep_kernels(program, run);
    if (program->graph == NULL) return call_kernels(program, run);
    ls__graphs_replay(program);
    return LS_OK;
}

/* A step of a stream is kept likewise where its kernels read the position on the device. What was
 * kept holds for caches that lie where they did and only grow. */
static ls_status run_stream(ls_program *program, const ls_run *run) {
    ls_device *device = run->device;
    if (device == NULL || program->profile || program->options.through || program->merged_bytes > 0)
        return call_kernels(program, run);
    const bool goes_on = ls__state_goes_on(program, run);
    ls_status status = LS_OK;
    if (!goes_on) ls__graphs_forget(program);
    if (program->graph != NULL) {
        ls__append_all(program, run);
        ls__graphs_replay(program);
    } else if (goes_on && program->steady) {
        status = keep_kernels(program, run);
    } else {
        status = call_kernels(program, run);
    }
    ls__state_went_on(program, run->state);
    return status;
}

ls_status ls_program_run(ls_program *program, ls_state *state, uint64_t seed, uint32_t step) {
    return ls_program_run_through(program, state, NULL, seed, step);
}

ls_status ls_program_run_through(ls_program *program, ls_state *state, ls_state *gradient,
                                 uint64_t seed, uint32_t step) {
    if (!program->finished)
        return LS_FAIL(program->ctx, LS_EBUG, "an unfinished program cannot run");
    LS_TRY(ls__state_begin(program, state, gradient));
    if (program->ctx->rehearsal) {
        if (state != NULL) advance(program, state);
        return LS_OK;
    }
    ls_device *device = ls__device_of(program->ctx, program->options.type);
    ls_run run = {.threads = program->threads,
                  .team_work = program->ctx->team_work,
                  .device = device,
                  .workspace = program->workspace,
                  .state = state,
                  .start = state == NULL ? 0 : state->position,
                  .seed = seed,
                  .step = step,
                  .tf32 = program->options.tf32,
                  .parameters = program->store};
    if (device != NULL) device->begin(device, &run);
    LS_TRY(state == NULL ? run_whole(program, &run) : run_stream(program, &run));
    if (device != NULL && device->shared) LS_TRY(ls_device_settle(program->ctx));
    if (state != NULL) advance(program, state);
    return LS_OK;
}

void ls_program_profile(ls_program *program, bool on) {
    program->profile = on;
    memset(program->seconds, 0, program->nodes.count * sizeof *program->seconds);
}

size_t ls_program_times(const ls_program *program, ls_op_time *out, size_t most) {
    size_t count = 0;
    for (size_t i = 0; i < program->nodes.count; i++) {
        const ls_node *node = program->nodes.at[i];
        if (node->call == NULL) continue;
        size_t at = 0;
        while (at < count && strcmp(out[at].name, node->op->name) != 0) at++;
        if (at == most) continue;
        if (at == count) out[count++] = (ls_op_time){.name = node->op->name};
        out[at].seconds += program->seconds[i];
        out[at].flops += node->op->flops == NULL ? 0 : node->op->flops(node);
        out[at].calls++;
    }
    for (size_t i = 1; i < count; i++) /* few entries: insertion sort by time */
        for (size_t j = i; j > 0 && out[j].seconds > out[j - 1].seconds; j--) {
            ls_op_time swap = out[j];
            out[j] = out[j - 1];
            out[j - 1] = swap;
        }
    return count;
}
