#include "train/adapter.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

enum { NAME_BYTES = LS_SAFETENSORS_NAME_MAX + 1 };

/* ---- whose adapter it is ---- */

/* As f32, so that the type that is computed in does not matter. */
static ls_status hash_values(ls_ctx *ctx, const void *values, ls_dtype type, int64_t count,
                             uint64_t *out) {
    float *narrow = NULL;
    if (type != LS_F32) {
        narrow = ls_new_raw(ctx, (size_t)count, sizeof *narrow);
        if (narrow == NULL) return LS_ENOMEM;
        for (int64_t i = 0; i < count; i++) narrow[i] = (float)ls_element(values, type, i);
        values = narrow;
    }
    *out = ls_hash(values, (size_t)count * sizeof *narrow);
    ls_free(ctx, narrow);
    return LS_OK;
}

static ls_status hash_part(const ls_parameters *base, void *here, uint64_t *out) {
    ls_ctx *ctx = base->ctx;
    uint64_t *each = ls_new(ctx, base->count + 1, sizeof *each);
    ls_status status = each == NULL ? LS_ENOMEM : LS_OK;
    for (size_t i = 0; status == LS_OK && i < base->count; i++) {
        const ls_parameter *item = &base->items[i];
        const char *values =
            (const char *)here + (size_t)item->offset * ls_dtype_size(base->master_type);
        status = hash_values(ctx, values, base->master_type, item->count, &each[i]);
    }
    if (status == LS_OK) *out = ls_hash(each, base->count * sizeof *each);
    ls_free(ctx, each);
    return status;
}

ls_status ls_adapter_hash(const ls_parameters *store, uint64_t *out) {
    ls_parameters base;
    void *here = NULL;
    *out = 0;
    if (store->lean) return LS_FAIL(store->ctx, LS_EBUG, "rounded weights have no hash");
    LS_TRY(ls_parameters_part(store, LS_PART_BASE, &base));
    ls_status status = ls_parameters_fetch(store, store->master, &here);
    if (status == LS_OK) status = hash_part(&base, here, out);
    ls_parameters_release(store, store->master, here, false);
    ls_free(store->ctx, base.items);
    return status;
}

ls_status ls_adapter_check_base(ls_ctx *ctx, const ls_safetensors *file, const char *path,
                                const ls_adapter *adapter) {
    char has[17];
    const char *wanted = ls_safetensors_metadata(file, LS_ADAPTER_BASE);
    snprintf(has, sizeof has, "%016llx", (unsigned long long)adapter->base_hash);
    if (wanted != NULL && strcmp(wanted, has) == 0) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT,
                   "%s was trained on other weights than those of %s now (hash %s, there %s)", path,
                   adapter->base, wanted == NULL ? "not known" : wanted, has);
}

/* ---- adapter_config.json ---- */

ls_status ls_adapter_put_config(ls_ctx *ctx, const ls_adapter *adapter,
                                const ls_adapter_names *names, const char *path) {
    const bool saves = json_array_size(names->saved) > 0;
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:b, s:s, s:b, s:O, s:O, s:b}", "peft_type",
                  "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", adapter->base, "r",
                  (json_int_t)adapter->rank, "lora_alpha", adapter->alpha, "lora_dropout",
                  adapter->dropout, "use_rslora", adapter->rs, "bias", "none", "fan_in_fan_out",
                  names->transposed, "target_modules", names->targets, "modules_to_save",
                  saves ? names->saved : json_null(), "inference_mode", 1);
    if (json == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for %s", path);
    ls_status status = ls_json_write(ctx, path, json);
    json_decref(json);
    return status;
}

/* A module once, however many parameters it has. */
static void add_module(json_t *list, const char *name, size_t length) {
    size_t i;
    json_t *known;
    json_array_foreach(list, i,
                       known) if (json_string_length(known) == length &&
                                  strncmp(json_string_value(known), name, length) == 0) return;
    json_array_append_new(list, json_stringn(name, length));
}

ls_status ls_adapter_write_config(ls_ctx *ctx, const ls_parameters *trained, const char *path) {
    const ls_adapter_names names = {.targets = json_array(), .saved = json_array()};
    for (size_t i = 0; i < trained->count; i++) {
        const char *name = trained->items[i].name, *last = strrchr(name, '.');
        const bool adapts = ls_adapter_owns(name);
        const size_t tail = adapts ? strlen(".lora_A.weight") : last == NULL ? 0 : strlen(last);
        add_module(adapts ? names.targets : names.saved, name, strlen(name) - tail);
    }
    ls_status status = ls_adapter_put_config(ctx, &trained->adapter, &names, path);
    json_decref(names.targets);
    json_decref(names.saved);
    return status;
}

/* ---- merging ---- */

typedef struct merge {
    ls_ctx *ctx;
    const char *path;
    ls_safetensors file;
    size_t used; /* tensors of the file that had a place */
    double scale;
    int64_t rank;
} merge;

static const ls_safetensor *find(const merge *m, const char *stem, size_t length, const char *end) {
    char name[NAME_BYTES];
    if ((size_t)snprintf(name, sizeof name, LS_ADAPTER_PREFIX "%.*s%s", (int)length, stem, end) >=
        sizeof name)
        return NULL;
    return ls_safetensors_find(&m->file, name);
}

static bool is_matrix(const ls_safetensor *tensor, int64_t rows, int64_t columns) {
    return tensor->rank == 2 && tensor->dim[0] == rows && tensor->dim[1] == columns &&
           tensor->type <= LS_STORED_F16;
}

static ls_status refuse(const merge *m, const char *name) {
    return LS_FAIL(m->ctx, LS_EINPUT, "%s: the adapter of %s has another shape or type", m->path,
                   name);
}

/* Added up in double and rounded once. */
static ls_status add_product(merge *m, const ls_parameter *item, const ls_safetensor *a,
                             const ls_safetensor *b, void *weight, ls_dtype type) {
    const int64_t out = item->dim[0], in = item->dim[1], r = m->rank;
    double *A = ls_new_raw(m->ctx, (size_t)(r * in), sizeof *A);
    double *B = ls_new_raw(m->ctx, (size_t)(out * r), sizeof *B);
    double *row = ls_new_raw(m->ctx, (size_t)in, sizeof *row);
    ls_status status = A == NULL || B == NULL || row == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) {
        ls_safetensor_read(a, 0, r * in, LS_F64, A);
        ls_safetensor_read(b, 0, out * r, LS_F64, B);
    }
    for (int64_t o = 0; status == LS_OK && o < out; o++) {
        memset(row, 0, (size_t)in * sizeof *row);
        for (int64_t k = 0; k < r; k++) {
            const double factor = m->scale * B[o * r + k];
            for (int64_t i = 0; i < in; i++) row[i] += factor * A[k * in + i];
        }
        for (int64_t i = 0; i < in; i++) {
            const int64_t at = o * in + i;
            ls_element_set(weight, type, at, ls_element(weight, type, at) + row[i]);
        }
    }
    ls_free(m->ctx, A);
    ls_free(m->ctx, B);
    ls_free(m->ctx, row);
    return status;
}

static ls_status merge_one(merge *m, const ls_parameter *item, void *weight, ls_dtype type) {
    const size_t length = strlen(item->name), tail = strlen("weight");
    const ls_safetensor *whole = find(m, item->name, length, "");
    if (whole != NULL) {
        bool same = whole->rank == item->rank && whole->type <= LS_STORED_F16;
        for (int i = 0; same && i < item->rank; i++) same = whole->dim[i] == item->dim[i];
        if (!same) return refuse(m, item->name);
        ls_safetensor_read(whole, 0, item->count, type, weight);
        m->used++;
        return LS_OK;
    }
    if (length < tail || strcmp(item->name + length - tail, "weight") != 0) return LS_OK;
    const ls_safetensor *a = find(m, item->name, length - tail, "lora_A.weight");
    const ls_safetensor *b = find(m, item->name, length - tail, "lora_B.weight");
    if (a == NULL && b == NULL) return LS_OK;
    if (a == NULL || b == NULL || item->rank != 2 || !is_matrix(a, m->rank, item->dim[1]) ||
        !is_matrix(b, item->dim[0], m->rank))
        return refuse(m, item->name);
    m->used += 2;
    return add_product(m, item, a, b, weight, type);
}

static ls_status merge_all(merge *m, const ls_parameters *store, void *here) {
    for (size_t i = 0; i < store->count; i++) {
        const ls_parameter *item = &store->items[i];
        void *weight = (char *)here + (size_t)item->offset * ls_dtype_size(store->master_type);
        LS_TRY(merge_one(m, item, weight, store->master_type));
    }
    if (m->used == m->file.count) return LS_OK;
    return LS_FAIL(m->ctx, LS_EINPUT, "%s: %zu of its %zu tensors have no place in the model",
                   m->path, m->file.count - m->used, m->file.count);
}

ls_status ls_adapter_merge(ls_ctx *ctx, const char *path, const ls_adapter *adapter,
                           ls_parameters *store) {
    merge m = {.ctx = ctx, .path = path, .scale = ls_adapter_scale(adapter), .rank = adapter->rank};
    ls_adapter with = *adapter;
    void *here = NULL;
    LS_TRY(ls_adapter_hash(store, &with.base_hash));
    LS_TRY(ls_safetensors_open(ctx, path, &m.file));
    ls_status status = ls_adapter_check_base(ctx, &m.file, path, &with);
    if (status == LS_OK) status = ls_parameters_fetch(store, store->master, &here);
    if (status == LS_OK) {
        status = merge_all(&m, store, here);
        if (status == LS_OK) status = ls_safetensors_check(ctx, &m.file);
        ls_parameters_release(store, store->master, here, status == LS_OK);
    }
    if (status == LS_OK) ls_parameters_round(store);
    ls_safetensors_close(ctx, &m.file);
    return status;
}
