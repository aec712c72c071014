/* Finishing a program: gradients, places in memory, kernels.
 *
 * Every tensor lives from the first node that touches it to the last; tensors whose lives do not
 * meet may share bytes. Places are given largest first at the lowest offset that is free, so the
 * arena's size (the peak) is known before the first run. */
#include <stdlib.h>
#include <string.h>

#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"
#include "tensor/engine/threads.h"

enum { ALIGNMENT = 64, GUARD = 64 };
static const uint8_t guard_byte = 0xA5;

static ls_tensor *owner_of(ls_tensor *tensor) {
    return tensor->base == NULL ? tensor : tensor->base;
}

static bool in_arena(const ls_tensor *tensor) {
    return tensor->base == NULL && tensor->first >= 0 &&
           (tensor->role == LS_ROLE_ACTIVATION || tensor->role == LS_ROLE_INPUT ||
            tensor->role == LS_ROLE_CONSTANT);
}

static size_t tensor_bytes(const ls_tensor *tensor) {
    return (size_t)ls_count(tensor) * ls_dtype_size(tensor->type);
}

static void touch(ls_tensor *tensor, int node) {
    if (tensor == NULL) return;
    ls_tensor *owner = owner_of(tensor);
    if (owner->first < 0) owner->first = node;
    owner->last = node;
}

static void find_lives(ls_program *p) {
    int end = (int)p->nodes.count;
    for (int i = 0; i < end; i++) {
        const ls_node *node = p->nodes.at[i];
        for (int j = 0; j < node->in_count; j++) touch(node->in[j], i);
        for (int j = 0; j < node->out_count; j++) touch(node->out[j], i);
    }
    for (size_t i = 0; i < p->tensors.count; i++) {
        ls_tensor *tensor = p->tensors.at[i];
        bool lasting = tensor->role == LS_ROLE_INPUT || tensor->role == LS_ROLE_CONSTANT;
        /* a guard band must not be another tensor's place before its own tensor's life begins */
        if (lasting || (tensor->kept && p->options.guarded)) tensor->first = 0;
        bool prepared = tensor->prepared && tensor->last >= (int)p->prepared;
        if (lasting || prepared || tensor->kept) tensor->last = end;
        /* with guard bands nothing is shared: a band must be nobody else's memory, ever */
        if (p->options.guarded && tensor->first >= 0) tensor->first = 0, tensor->last = end;
    }
}

/* Sequences go through a passage one after the other: what is needed anywhere in it is nobody
 * else's place as long as it lasts. */
static ls_status widen_lives(ls_program *p) {
    size_t *end = ls_new(p->ctx, p->nodes.count + 1, sizeof *end);
    if (end == NULL) return LS_ENOMEM;
    ls__find_passages(p, end);
    for (size_t i = 0; i < p->tensors.count; i++) {
        ls_tensor *tensor = p->tensors.at[i];
        if (tensor->first < 0) continue;
        const size_t passage = end[tensor->first], last = (size_t)tensor->last;
        while (passage > 0 && tensor->first > 0 && end[tensor->first - 1] == passage)
            tensor->first--;
        if (last < p->nodes.count && end[last] > 0) tensor->last = (int)end[last] - 1;
    }
    ls_free(p->ctx, end);
    return LS_OK;
}

typedef struct placed {
    ls_tensor *tensor;
    size_t offset, bytes;
} placed;

static int larger_first(const void *a, const void *b) {
    const placed *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->tensor->first - y->tensor->first;
}

static int lower_first(const void *a, const void *b) {
    const placed *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static ls_status place_tensors(ls_program *p) {
    size_t count = 0;
    placed *all = ls_new(p->ctx, p->tensors.count + 1, sizeof *all);
    placed *meeting = ls_new(p->ctx, p->tensors.count + 1, sizeof *meeting);
    if (all == NULL || meeting == NULL) {
        ls_free(p->ctx, all);
        ls_free(p->ctx, meeting);
        return LS_ENOMEM;
    }
    for (size_t i = 0; i < p->tensors.count; i++) {
        ls_tensor *tensor = p->tensors.at[i];
        if (!in_arena(tensor)) continue;
        size_t bytes = tensor_bytes(tensor) + (p->options.guarded ? GUARD : 0);
        all[count++] = (placed){tensor, 0, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT};
    }
    qsort(all, count, sizeof *all, larger_first);
    for (size_t i = 0; i < count; i++) {
        size_t neighbours = 0;
        for (size_t j = 0; j < i; j++)
            if (all[j].tensor->first <= all[i].tensor->last &&
                all[i].tensor->first <= all[j].tensor->last)
                meeting[neighbours++] = all[j];
        qsort(meeting, neighbours, sizeof *meeting, lower_first);
        size_t offset = 0;
        for (size_t j = 0; j < neighbours; j++) {
            if (offset + all[i].bytes <= meeting[j].offset) break;
            size_t past = meeting[j].offset + meeting[j].bytes;
            if (past > offset) offset = past;
        }
        all[i].offset = offset;
        if (offset + all[i].bytes > p->arena_bytes) p->arena_bytes = offset + all[i].bytes;
    }
    p->arena = ls_device_take(p->ctx, p->arena_bytes + 1, 1);
    if (p->arena != NULL)
        for (size_t i = 0; i < count; i++) all[i].tensor->data = p->arena + all[i].offset;
    ls_free(p->ctx, all);
    ls_free(p->ctx, meeting);
    return p->arena == NULL ? LS_ENOMEM : LS_OK;
}

static void convert(const double *values, int64_t count, ls_dtype type, void *data) {
    for (int64_t j = 0; j < count; j++) {
        double value = values[j];
        switch (type) {
        case LS_F64:
            ((double *)data)[j] = value;
            break;
        case LS_F32:
            ((float *)data)[j] = (float)value;
            break;
        case LS_BF16:
            ((ls_bf16 *)data)[j] = ls_bf16_from_f32((float)value);
            break;
        case LS_I32:
            ((int32_t *)data)[j] = (int32_t)value;
            break;
        case LS_U8:
            ((uint8_t *)data)[j] = (uint8_t)value;
            break;
        default: /* no constant is fp8 */
            break;
        }
    }
}

/* In pieces: a constant may be large, and it may live on a device. */
static void fill_constants(ls_program *p) {
    enum { PIECE = 512 };
    double piece[PIECE]; /* of any type: none is wider */
    for (size_t i = 0; i < p->constants.count; i++) {
        const ls_constant_fill *fill = p->constants.at[i];
        size_t size = ls_dtype_size(fill->tensor->type);
        int64_t all = ls_count(fill->tensor);
        if (fill->values == NULL) {
            ls_device_fill(p->ctx, fill->tensor->data, 0, (size_t)all * size);
            continue;
        }
        for (int64_t first = 0; first < all; first += PIECE) {
            int64_t count = ls_min(PIECE, all - first);
            convert(fill->values + first, count, fill->tensor->type, piece);
            ls_device_put(p->ctx, (char *)fill->tensor->data + (size_t)first * size, piece,
                          (size_t)count * size);
        }
    }
}

static void fill_guards(ls_program *p) {
    for (size_t i = 0; p->options.guarded && i < p->tensors.count; i++) {
        ls_tensor *tensor = p->tensors.at[i];
        if (in_arena(tensor))
            ls_device_fill(p->ctx, (uint8_t *)tensor->data + tensor_bytes(tensor), guard_byte,
                           GUARD);
    }
}

bool ls_program_guards_intact(const ls_program *program) {
    for (size_t i = 0; program->options.guarded && i < program->tensors.count; i++) {
        const ls_tensor *tensor = program->tensors.at[i];
        if (!in_arena(tensor)) continue;
        uint8_t guard[GUARD];
        if (ls_device_get(program->ctx, guard, (const uint8_t *)tensor->data + tensor_bytes(tensor),
                          GUARD) != LS_OK)
            return false;
        for (int j = 0; j < GUARD; j++)
            if (guard[j] != guard_byte) return false;
    }
    return true;
}

void ls_program_poison(ls_program *program) {
    ls_ctx *ctx = program->ctx; /* all ones is a NaN in every real type */
    ls_device_fill(ctx, program->arena, 0xFF, program->arena_bytes);
    if (program->workspace != NULL)
        ls_device_fill(ctx, program->workspace, 0xFF, program->workspace_bytes);
    fill_constants(program);
    fill_guards(program);
    program->prepared_for = 0;
}

ls_status ls__bind_kernels(ls_program *p) {
    for (size_t i = 0; i < p->nodes.count; i++) {
        ls_node *node = p->nodes.at[i];
        if (node->op->name == NULL || ls__merges(node)) continue; /* a view: there is no kernel */
        const ls_kernel *kernel = ls__kernel_of(p->ctx, p->options.type, node->op->name);
        if (kernel == NULL || kernel->by_type[p->options.type] == NULL)
            return LS_FAIL(p->ctx, p->ctx->device == NULL ? LS_EBUG : LS_EUSE,
                           "operation %s has no %s kernel on device %s", node->op->name,
                           ls_dtype_name(p->options.type),
                           p->ctx->device == NULL ? "cpu" : p->ctx->device->name);
        node->call = kernel->by_type[p->options.type];
        node->small = ls__node_work(node) < (double)p->ctx->team_work;
        if (kernel->workspace != NULL) node->workspace = kernel->workspace(node, p->threads);
        if (node->workspace > p->workspace_bytes) p->workspace_bytes = node->workspace;
    }
    return LS_OK;
}

ls_status ls__plan(ls_program *p) {
    if (!p->ctx->rehearsal) LS_TRY(ls_threads_check(p->ctx));
    p->threads = p->ctx->threads;
    find_lives(p);
    if (p->options.forks) LS_TRY(widen_lives(p));
    LS_TRY(ls__bind_kernels(p));
    LS_TRY(place_tensors(p));
    if (p->workspace_bytes > 0) {
        p->workspace = ls_device_take(p->ctx, p->workspace_bytes, 1);
        if (p->workspace == NULL) return LS_ENOMEM;
    }
    fill_constants(p);
    fill_guards(p);
    return LS_OK;
}

/* The forward part alone is for its state: what leads to no port of it, as the head, is left out. A
 * tensor that is wanted has a `last` of 0 until lives are found. */
static void keep_what_states_need(ls_program *p) {
    size_t count = 0;
    for (size_t i = 0; i < p->tensors.count; i++) ((ls_tensor *)p->tensors.at[i])->last = -1;
    for (size_t i = 0; i < p->writes.count; i++)
        owner_of(((const ls_node *)p->writes.at[i])->in[0])->last = 0;
    for (size_t i = p->nodes.count; i > 0; i--) {
        ls_node *node = p->nodes.at[i - 1];
        bool wanted = node->out_count == 0;
        for (int j = 0; j < node->out_count; j++)
            wanted |= node->out[j] != NULL &&
                      (node->out[j]->port >= 0 || owner_of(node->out[j])->last == 0);
        for (int j = 0; wanted && j < node->in_count; j++)
            if (node->in[j] != NULL) owner_of(node->in[j])->last = 0;
        if (!wanted) p->nodes.at[i - 1] = NULL;
    }
    for (size_t i = 0; i < p->nodes.count; i++)
        if (p->nodes.at[i] != NULL) p->nodes.at[count++] = p->nodes.at[i];
    p->nodes.count = count;
}

ls_status ls_program_finish(ls_program *program) {
    LS_TRY(program->status);
    if (!program->store->sealed)
        return LS_FAIL(program->ctx, LS_EBUG, "the parameter store must be sealed first");
    if (program->options.grad && program->store->gradient == NULL)
        return LS_FAIL(program->ctx, LS_EBUG, "the parameter store has no room for gradients");
    if (program->options.forward) keep_what_states_need(program);
    if (program->options.grad && !program->options.forward) ls__record_backward(program);
    /* new states are written last: the backward part still reads the old ones */
    for (size_t i = 0; i < program->writes.count; i++)
        ls__list_add(program, &program->nodes, program->writes.at[i]);
    ls__prepare_nodes(program);
    ls__place_over_inputs(program);
    ls__join_nodes(program);
    program->seconds = ls__pool(program, program->nodes.count + 1, sizeof *program->seconds);
    program->place = ls__pool(program, program->ports.count + 1, sizeof *program->place);
    LS_TRY(program->status);
    program->status = ls__check_parts(program);
    if (program->status == LS_OK) program->status = ls__plan(program);
    program->finished = program->status == LS_OK;
    return program->status;
}
