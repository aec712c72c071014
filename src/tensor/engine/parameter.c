#include "tensor/engine/parameter.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"
#include "tensor/engine/threads.h"

ls_status ls_parameters_new(ls_ctx *ctx, ls_dtype type, ls_parameters **out) {
    ls_parameters *store = ls_new(ctx, 1, sizeof *store);
    uint64_t *version = ls_new(ctx, 1, sizeof *version);
    *out = store;
    if (store == NULL || version == NULL) {
        ls_free(ctx, store);
        ls_free(ctx, version);
        *out = NULL;
        return LS_ENOMEM;
    }
    store->version = version;
    store->ctx = ctx;
    store->type = type;
    store->master_type = type == LS_F64 ? LS_F64 : LS_F32;
    return LS_OK;
}

void ls_parameters_free(ls_parameters *store) {
    if (store == NULL) return;
    ls_ctx *ctx = store->ctx;
    for (size_t i = 0; i < store->count; i++) ls_free(ctx, store->items[i].name);
    ls_free(ctx, store->items);
    ls_free(ctx, store->version);
    ls_device_give(ctx, store->master);
    ls_device_give(ctx, store->full);
    ls_device_give(ctx, store->shadow);
    ls_device_give(ctx, store->gradient);
    ls_free(ctx, store);
}

ls_parameter *ls_parameters_find(const ls_parameters *store, const char *name) {
    for (size_t i = 0; i < store->count; i++)
        if (strcmp(store->items[i].name, name) == 0) return &store->items[i];
    return NULL;
}

ls_status ls_parameters_declare(ls_parameters *store, const char *name, int rank,
                                const int64_t *dim, ls_init init, size_t *index) {
    ls_ctx *ctx = store->ctx;
    ls_parameter *known = ls_parameters_find(store, name);
    if (known != NULL) {
        bool same = known->rank == rank;
        for (int i = 0; same && i < rank; i++) same = known->dim[i] == dim[i];
        if (!same) return LS_FAIL(ctx, LS_EBUG, "parameter %s is declared with two shapes", name);
        *index = (size_t)(known - store->items);
        return LS_OK;
    }
    if (store->sealed)
        return LS_FAIL(ctx, LS_EBUG, "parameter %s was not declared before the store was sealed",
                       name);
    if (store->count == store->capacity) {
        size_t capacity = store->capacity == 0 ? 64 : 2 * store->capacity;
        ls_parameter *grown = ls_grow(ctx, store->items, store->capacity, capacity, sizeof *grown);
        if (grown == NULL) return LS_ENOMEM;
        store->items = grown;
        store->capacity = capacity;
    }
    ls_parameter parameter = {.rank = rank,
                              .init = init,
                              .count = 1,
                              .frozen = !ls_adapter_trains(&store->adapter, name)};
    for (int i = 0; i < rank; i++) {
        parameter.dim[i] = dim[i];
        if (dim[i] < 1 || !ls_mul(parameter.count, dim[i], &parameter.count) ||
            parameter.count > (int64_t)1 << 40)
            return LS_FAIL(ctx, LS_EUSE, "parameter %s is empty or too large", name);
    }
    parameter.name = ls_copy_text(ctx, name);
    if (parameter.name == NULL) return LS_ENOMEM;
    *index = store->count;
    store->items[store->count++] = parameter;
    return LS_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const ls_parameter *)a)->name, ((const ls_parameter *)b)->name);
}

void ls_parameter_draw(const ls_parameter *parameter, uint64_t seed, uint32_t step,
                       double *values) {
    ls_random key = {.seed = seed, .stream = ls_stream_of(parameter->name), .step = step};
    const ls_init *init = &parameter->init;
    for (int64_t i = 0; i < parameter->count; i++) {
        switch (init->kind) {
        case LS_INIT_ZERO:
            values[i] = 0;
            break;
        case LS_INIT_CONSTANT:
            values[i] = init->a;
            break;
        case LS_INIT_NORMAL:
            values[i] = init->a * ls_random_normal(key, (uint64_t)i);
            break;
        case LS_INIT_UNIFORM:
            values[i] = init->a * (2 * ls_random_unit(key, (uint64_t)i) - 1);
            break;
        case LS_INIT_CUSTOM:
            values[i] = ls_random_unit(key, (uint64_t)i);
            break;
        }
    }
    if (init->kind == LS_INIT_CUSTOM) init->fill(init, values, parameter->count);
}

static void fill(ls_parameters *store, const ls_parameter *parameter, uint64_t seed,
                 double *values) {
    ls_parameter_draw(parameter, seed, 0, values);
    size_t count = (size_t)parameter->count;
    if (store->master_type != LS_F64) /* narrowed in place: a float never reaches the next double */
        for (size_t i = 0; i < count; i++) {
            float narrow = (float)values[i];
            memcpy((char *)values + i * sizeof narrow, &narrow, sizeof narrow);
        }
    ls_device_put(store->ctx, ls_parameter_master(store, parameter), values,
                  count * ls_dtype_size(store->master_type));
}

enum { PAD = 64 };

/* Gives the parameters their places; of a lean store those with `full` as it is, of one with an
 * adapter those that are frozen or not. */
static void lay_out(ls_parameters *store, bool full, bool frozen) {
    for (size_t i = 0; i < store->count; i++) {
        ls_parameter *parameter = &store->items[i];
        if ((store->lean && parameter->init.full != full) || parameter->frozen != frozen) continue;
        parameter->offset = store->total;
        store->total += ls_round_up(parameter->count, PAD);
    }
}

/* Operations that make several gradients at once make those of frozen parameters too, if these are
 * small: there is room for the largest. */
static int64_t spill_of(const ls_parameters *store) {
    int64_t most = 0;
    for (size_t i = 0; i < store->count; i++)
        if (store->items[i].frozen && !store->items[i].gated)
            most = ls_max(most, ls_round_up(store->items[i].count, PAD));
    return most;
}

ls_status ls_parameters_take_gradient(ls_parameters *store) {
    const size_t size = ls_dtype_size(store->master_type);
    if (store->gradient == NULL)
        store->gradient =
            ls_device_take_cleared(store->ctx, (size_t)(store->trained + store->spill), size);
    return store->gradient == NULL ? LS_ENOMEM : LS_OK;
}

ls_status ls_parameters_seal(ls_parameters *store, uint64_t seed, bool with_gradient) {
    ls_ctx *ctx = store->ctx;
    if (store->sealed) return LS_FAIL(ctx, LS_EBUG, "a parameter store is sealed once");
    if (!ctx->rehearsal) LS_TRY(ls_threads_check(ctx));
    if (store->count > 0) qsort(store->items, store->count, sizeof *store->items, by_name);
    int64_t most = 1;
    for (size_t i = 0; !store->blank && i < store->count; i++)
        most = ls_max(most, store->items[i].count);
    store->lean = store->lean && store->blank && store->type == LS_BF16 && !with_gradient &&
                  ctx->device == NULL && store->adapter.rank == 0;
    lay_out(store, true, false);
    store->trained = store->total;
    store->spill = spill_of(store);
    lay_out(store, true, true);
    store->master_total = store->total;
    if (store->lean) lay_out(store, false, false);
    if (store->lean) store->trained = store->total;
    size_t total = (size_t)store->total, size = ls_dtype_size(store->master_type);
    store->master = ls_device_take_cleared(ctx, (size_t)ls_max(store->master_total, 1), size);
    if (store->type == LS_BF16)
        store->shadow = ls_device_take_cleared(ctx, total, sizeof *store->shadow);
    const bool lacks = with_gradient && ls_parameters_take_gradient(store) != LS_OK;
    const bool blank = store->blank || ctx->rehearsal;
    double *values = blank ? NULL : ls_new(ctx, (size_t)most, sizeof *values);
    bool failed = store->master == NULL || (values == NULL && !blank) ||
                  (store->type == LS_BF16 && store->shadow == NULL) || lacks;
    for (size_t i = 0; !failed && !blank && i < store->count; i++)
        fill(store, &store->items[i], seed, values);
    ls_free(ctx, values);
    if (failed) return LS_ENOMEM;
    store->sealed = true;
    ls_parameters_changed(store);
    if (!blank) ls_parameters_round(store); /* zeros are rounded zeros */
    return LS_OK;
}

int64_t ls_parameters_elements(const ls_parameters *store) {
    int64_t elements = 0;
    for (size_t i = 0; i < store->count; i++) elements += store->items[i].count;
    return elements;
}

int64_t ls_parameters_trained(const ls_parameters *store) {
    int64_t elements = 0;
    for (size_t i = 0; i < store->count; i++)
        if (!store->items[i].frozen) elements += store->items[i].count;
    return elements;
}

ls_status ls_parameters_part(const ls_parameters *store, ls_parameters_kind kind,
                             ls_parameters *out) {
    *out = *store;
    out->count = 0;
    out->items = ls_new(store->ctx, store->count + 1, sizeof *out->items);
    if (out->items == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < store->count; i++) {
        const ls_parameter *item = &store->items[i];
        if (kind == LS_PART_TRAINED ? !item->frozen : !ls_adapter_owns(item->name))
            out->items[out->count++] = *item;
    }
    if (kind == LS_PART_TRAINED) out->total = store->trained;
    return LS_OK;
}

void ls_parameters_gate(ls_parameters *store, int64_t index) {
    if (!store->sealed) store->items[index].gated = true;
}

void ls_parameters_round_some(ls_parameters *store, const void *from, int64_t first,
                              int64_t count) {
    ls_bf16 *to = store->shadow + first;
    if (store->ctx->device == NULL) {
        const float *weights = from;
        for (int64_t i = 0; i < count; i++) to[i] = ls_bf16_from_f32(weights[i]);
        return;
    }
    enum { ROW = 64 };
    if (count == 0) return;
    ls_run run = {.threads = store->ctx->threads, .device = store->ctx->device};
    ls_tensor master = {.type = LS_F32, .rank = 2, .dim = {count / ROW, ROW}, .stride = {ROW, 1}};
    ls_tensor shadow = master;
    memcpy(&master.data, &from, sizeof from); /* only read */
    shadow.type = LS_BF16;
    shadow.data = to;
    ls_node node = {.in_count = 1,
                    .out_count = 1,
                    .in = (ls_tensor *[]){&master},
                    .out = (ls_tensor *[]){&shadow}};
    ls__kernel_of(store->ctx, LS_BF16, "copy")->by_type[LS_BF16](&run, &node);
}

void ls_parameters_changed(ls_parameters *store) {
    ++*store->version;
}

void ls_parameters_round(ls_parameters *store) {
    ls_parameters_changed(store);
    if (store->shadow == NULL || store->lean || store->master == NULL) return;
    ls_parameters_round_some(store, store->master, 0, store->total);
}

int64_t ls_parameter_full_count(const ls_parameter *parameter) {
    return parameter->init.full ? ls_round_up(parameter->count, PAD) : 0;
}

ls_status ls_parameters_give_master(ls_parameters *store) {
    ls_ctx *ctx = store->ctx;
    const size_t size = ls_dtype_size(store->master_type);
    int64_t total = 0;
    for (size_t i = 0; i < store->count; i++) {
        store->items[i].full_offset = total;
        total += ls_parameter_full_count(&store->items[i]);
    }
    char *full = ls_device_take_cleared(ctx, (size_t)ls_max(total, 1), size);
    if (full == NULL) return LS_ENOMEM;
    for (size_t i = 0; !ctx->rehearsal && i < store->count; i++) {
        const ls_parameter *parameter = &store->items[i];
        const ls_status status =
            !parameter->init.full
                ? LS_OK
                : ls_device_copy(ctx, full + (size_t)parameter->full_offset * size,
                                 ls_parameter_master(store, parameter),
                                 (size_t)parameter->count * size);
        if (status == LS_OK) continue;
        ls_device_give(ctx, full);
        return status;
    }
    ls_device_give(ctx, store->master);
    store->master = NULL;
    store->full = full;
    return LS_OK;
}

void ls_parameters_clear_gradient(ls_parameters *store) {
    if (store->gradient != NULL)
        ls_device_fill(store->ctx, store->gradient, 0,
                       (size_t)store->trained * ls_dtype_size(store->master_type));
}

ls_status ls_parameters_fetch(const ls_parameters *store, void *buffer, void **here) {
    ls_ctx *ctx = store->ctx;
    *here = buffer;
    if (buffer == NULL) return LS_FAIL(ctx, LS_EBUG, "these weights are shared out over ranks");
    if (ctx->device == NULL) return LS_OK;
    size_t total = (size_t)store->total, size = ls_dtype_size(store->master_type);
    *here = ls_new_raw(ctx, total, size);
    if (*here == NULL) return LS_ENOMEM;
    return ls_device_get(ctx, *here, buffer, total * size);
}

void ls_parameters_release(const ls_parameters *store, void *buffer, void *here, bool put_back) {
    ls_ctx *ctx = store->ctx;
    if (here == buffer || here == NULL) return;
    size_t bytes = (size_t)store->total * ls_dtype_size(store->master_type);
    if (put_back) ls_device_put(ctx, buffer, here, bytes);
    ls_free(ctx, here);
}

void *ls_parameter_master(const ls_parameters *store, const ls_parameter *parameter) {
    const size_t size = ls_dtype_size(store->master_type);
    if (store->full == NULL) return (char *)store->master + (size_t)parameter->offset * size;
    return parameter->init.full ? (char *)store->full + (size_t)parameter->full_offset * size
                                : NULL;
}

void *ls_parameter_values(const ls_parameters *store, const ls_parameter *parameter,
                          ls_dtype *type) {
    const bool rounded = (store->lean || store->full != NULL) && !parameter->init.full;
    *type = rounded ? LS_BF16 : store->master_type;
    return rounded ? (void *)(store->shadow + parameter->offset)
                   : ls_parameter_master(store, parameter);
}

void *ls_parameter_gradient(const ls_parameters *store, const ls_parameter *parameter) {
    const int64_t at = parameter->frozen ? store->trained : parameter->offset;
    if (parameter->frozen && parameter->count > store->spill) return NULL; /* it is gated */
    return (char *)store->gradient + (size_t)at * ls_dtype_size(store->master_type);
}
