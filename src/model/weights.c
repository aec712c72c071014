#include "model/weights.h"

#include <math.h>
#include <string.h>

#include "tensor/engine/device.h"

enum { NAME_BYTES = LS_SAFETENSORS_NAME_MAX + 1 };

static ls_status full_name(ls_ctx *ctx, const char *prefix, const char *name, char *out) {
    if ((size_t)snprintf(out, NAME_BYTES, "%s%s", prefix, name) >= NAME_BYTES)
        return LS_FAIL(ctx, LS_EUSE, "the name %s%.64s... is too long", prefix, name);
    return LS_OK;
}

static char *place_of(const ls_parameters *store, const ls_parameter *parameter, void *buffer) {
    return (char *)buffer + (size_t)parameter->offset * ls_dtype_size(store->master_type);
}

/* The parts where the processor can reach them: see ls_parameters_fetch. */
static ls_status fetch(const ls_parameters *store, const ls_weights_part *parts, size_t count,
                       void **here) {
    ls_status status = LS_OK;
    for (size_t p = 0; p < count; p++) here[p] = NULL;
    for (size_t p = 0; status == LS_OK && p < count; p++)
        if (parts[p].buffer != NULL) status = ls_parameters_fetch(store, parts[p].buffer, &here[p]);
    return status;
}

static void release(const ls_parameters *store, const ls_weights_part *parts, size_t count,
                    void **here, bool put_back) {
    for (size_t p = 0; p < count; p++)
        ls_parameters_release(store, parts[p].buffer, here[p], put_back);
}

/* The parts of a call, for what is not here as a whole. */
typedef struct distant {
    const ls_parameters *store;
    const ls_weights_part *parts;
} distant;

static ls_status get_distant(void *user, size_t index, void *out) {
    const distant *from = user;
    const ls_parameter *parameter = &from->store->items[index % from->store->count];
    const ls_weights_part *part = &from->parts[index / from->store->count];
    return part->get(part->user, parameter->offset, parameter->count, out);
}

static ls_status put_distant(const ls_parameters *store, const ls_parameter *parameter,
                             const ls_safetensor *tensor, const ls_weights_part *part) {
    const size_t count = (size_t)ls_max(parameter->count, 1);
    void *values = ls_new_raw(store->ctx, count, ls_dtype_size(store->master_type));
    if (values == NULL) return LS_ENOMEM;
    ls_safetensor_read(tensor, 0, parameter->count, store->master_type, values);
    ls_status status = part->put(part->user, parameter->offset, parameter->count, values);
    ls_free(store->ctx, values);
    return status;
}

ls_status ls_weights_put(ls_ctx *ctx, FILE *file, const char *path, const ls_parameters *store,
                         const ls_weights_part *parts, size_t count, const ls_stored_text *metadata,
                         size_t metadata_count) {
    size_t all = count * store->count;
    ls_safetensor_source *sources = ls_new(ctx, all, sizeof *sources);
    char(*names)[NAME_BYTES] = ls_new(ctx, all, sizeof *names);
    void *here[LS_WEIGHTS_PARTS_MAX];
    ls_status status = fetch(store, parts, count, here);
    if (sources == NULL || names == NULL) status = LS_ENOMEM;
    for (size_t i = 0; status == LS_OK && i < all; i++) {
        const ls_parameter *parameter = &store->items[i % store->count];
        const ls_weights_part *part = &parts[i / store->count];
        void *whole = here[i / store->count];
        status = full_name(ctx, part->prefix, parameter->name, names[i]);
        sources[i] = (ls_safetensor_source){
            .name = names[i],
            .type = store->master_type == LS_F64 ? LS_STORED_F64 : LS_STORED_F32,
            .rank = parameter->rank,
            .dim = parameter->dim,
            .data = whole == NULL ? NULL : place_of(store, parameter, whole)};
    }
    distant from = {store, parts};
    if (status == LS_OK)
        status = ls_safetensors_put(ctx, file, path, sources, all, metadata, metadata_count,
                                    get_distant, &from);
    release(store, parts, count, here, false);
    ls_free(ctx, sources);
    ls_free(ctx, names);
    return status;
}

ls_status ls_weights_check(ls_ctx *ctx, const ls_safetensors *file, const char *path,
                           const ls_parameters *store, const ls_weights_part *parts, size_t count,
                           size_t *missing) {
    if (missing != NULL) *missing = 0;
    for (size_t p = 0; p < count; p++)
        for (size_t i = 0; i < store->count; i++) {
            const ls_parameter *parameter = &store->items[i];
            char name[NAME_BYTES];
            LS_TRY(full_name(ctx, parts[p].prefix, parameter->name, name));
            const ls_safetensor *tensor = ls_safetensors_find(file, name);
            if (tensor == NULL && missing != NULL) {
                ++*missing;
                continue;
            }
            if (tensor == NULL) return LS_FAIL(ctx, LS_EINPUT, "%s has no tensor %s", path, name);
            bool same = tensor->rank == parameter->rank && tensor->type <= LS_STORED_F16;
            for (int d = 0; same && d < parameter->rank; d++)
                same = tensor->dim[d] == parameter->dim[d];
            if (!same)
                return LS_FAIL(ctx, LS_EINPUT, "%s: tensor %s has another shape or type", path,
                               name);
        }
    return LS_OK;
}

ls_status ls_weights_fill(const ls_safetensors *file, const ls_parameters *store,
                          const ls_weights_part *parts, size_t count) {
    void *here[LS_WEIGHTS_PARTS_MAX];
    ls_status status = fetch(store, parts, count, here);
    for (size_t p = 0; status == LS_OK && p < count; p++)
        for (size_t i = 0; status == LS_OK && i < store->count; i++) {
            const ls_parameter *parameter = &store->items[i];
            char name[NAME_BYTES];
            snprintf(name, sizeof name, "%s%s", parts[p].prefix, parameter->name);
            const ls_safetensor *tensor = ls_safetensors_find(file, name);
            if (tensor == NULL) continue;
            status = ls_check_stop(store->ctx, "reading weights");
            if (status != LS_OK) break;
            if (here[p] == NULL) {
                status = put_distant(store, parameter, tensor, &parts[p]);
                continue;
            }
            ls_dtype type = store->master_type;
            void *to = here[p] == store->master ? ls_parameter_values(store, parameter, &type)
                                                : place_of(store, parameter, here[p]);
            ls_safetensor_read(tensor, 0, parameter->count, type, to);
        }
    if (status == LS_OK) status = ls_safetensors_check(store->ctx, file);
    release(store, parts, count, here, status == LS_OK);
    return status;
}

static bool all_finite(const void *values, ls_dtype type, int64_t count) {
    bool finite = true;
    for (int64_t i = 0; type == LS_F64 && i < count; i++)
        finite &= isfinite(((const double *)values)[i]) != 0;
    for (int64_t i = 0; type == LS_F32 && i < count; i++)
        finite &= isfinite(((const float *)values)[i]) != 0;
    for (int64_t i = 0; type == LS_BF16 && i < count; i++)
        finite &= isfinite(ls_bf16_to_f32(((const ls_bf16 *)values)[i])) != 0;
    return finite;
}

/* Piece by piece, so that a signal is heard in a parameter of many values. */
static ls_status look_at(const ls_parameters *store, const ls_parameter *parameter, bool *finite) {
    enum { PIECE = 1 << 22 };
    ls_ctx *ctx = store->ctx;
    ls_dtype type;
    const char *values = ls_parameter_values(store, parameter, &type);
    const size_t size = ls_dtype_size(type);
    void *here = NULL;
    ls_status status = LS_OK;
    *finite = true;
    if (ctx->device != NULL) {
        here = ls_new_raw(ctx, (size_t)ls_min(ls_max(parameter->count, 1), PIECE), size);
        status = here == NULL ? LS_ENOMEM : LS_OK;
    }
    for (int64_t at = 0; status == LS_OK && *finite && at < parameter->count; at += PIECE) {
        const int64_t count = ls_min(parameter->count - at, PIECE);
        const void *piece = values + (size_t)at * size;
        status = ls_check_stop(ctx, "checking weights");
        if (status == LS_OK && here != NULL)
            status = ls_device_get(ctx, here, piece, (size_t)count * size);
        if (status == LS_OK) *finite = all_finite(here == NULL ? piece : here, type, count);
    }
    ls_free(ctx, here);
    return status;
}

ls_status ls_weights_find_broken(const ls_parameters *store, const char **out) {
    *out = NULL;
    for (size_t p = 0; p < store->count && *out == NULL; p++) {
        bool finite;
        LS_TRY(look_at(store, &store->items[p], &finite));
        if (!finite) *out = store->items[p].name;
    }
    return LS_OK;
}

ls_status ls_weights_load(ls_ctx *ctx, const char *path, ls_parameters *store, size_t *missing) {
    ls_safetensors file;
    LS_TRY(ls_safetensors_open(ctx, path, &file));
    const ls_weights_part part = {.prefix = "", .buffer = store->master};
    ls_status status = ls_weights_check(ctx, &file, path, store, &part, 1, missing);
    if (status == LS_OK) status = ls_weights_fill(&file, store, &part, 1);
    if (status == LS_OK) ls_parameters_round(store);
    ls_safetensors_close(ctx, &file);
    return status;
}
