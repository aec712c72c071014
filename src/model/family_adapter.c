/* Folders that peft writes: adapter_config.json and adapter_model.safetensors beside a public
 * checkpoint, which adapter_config.json names. Its tensors take the place of the checkpoint's
 * before anything is loaded: W + s B A in place of W, in f32, and what was trained whole in place
 * of what there was. A field that is not understood is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"

#define PREFIX "base_model.model."
#define LORA_A ".lora_A.weight"
#define LORA_B ".lora_B.weight"

enum { PATH_BYTES = 4096, CONFIG_BYTES_MAX = 1 << 20, RANK_MAX = 65536 };

/* Fields that change nothing of a trained adapter, or are read below. */
static const char known[] =
    "alpha_pattern auto_mapping base_model_name_or_path bias exclude_modules fan_in_fan_out "
    "inference_mode init_lora_weights layers_pattern layers_to_transform lora_alpha lora_dropout "
    "megatron_core modules_to_save peft_type peft_version qalora_group_size r rank_pattern revision "
    "runtime_config target_modules task_type use_rslora";

typedef struct lora {
    ls_ctx *ctx;
    const char *path; /* of adapter_config.json */
    json_t *config;
    ls_family *family;
    const ls_safetensors *file;
} lora;

static bool join(char *out, const char *folder, const char *name) {
    return (size_t)snprintf(out, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES;
}

/* A checkpoint of a run holds an adapter too, but has a manifest. */
bool ls__family_adapter_at(const char *folder) {
    static const char *const others[] = {"config.json", "config.yaml", "manifest.json"};
    char path[PATH_BYTES];
    for (int i = 0; i < 3; i++)
        if (!join(path, folder, others[i]) || ls_path_exists(path)) return false;
    return join(path, folder, "adapter_config.json") && ls_path_exists(path);
}

/* ---- adapter_config.json ---- */

static bool is_nothing(const json_t *value) {
    return json_is_null(value) || json_is_false(value) ||
           ((json_is_object(value) || json_is_array(value)) &&
            json_object_size(value) + json_array_size(value) == 0);
}

static ls_status refuse_field(const lora *l, const char *key) {
    return LS_FAIL(l->ctx, LS_EINPUT, "%s: `%.64s` has a value that is not understood here",
                   l->path, key);
}

static bool is_text(const json_t *value, const char *text) {
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static ls_status check_fields(const lora *l) {
    const char *key;
    json_t *value;
    const json_t *bias = json_object_get(l->config, "bias");
    const json_t *init = json_object_get(l->config, "init_lora_weights");
    static const char *const flags[] = {"fan_in_fan_out", "use_rslora"};
    if (!is_text(json_object_get(l->config, "peft_type"), "LORA"))
        return refuse_field(l, "peft_type");
    if (bias != NULL && !is_text(bias, "none")) return refuse_field(l, "bias");
    /* other beginnings change the base's weights */
    if (init != NULL && !json_is_boolean(init) && !json_is_null(init) && !is_text(init, "gaussian"))
        return refuse_field(l, "init_lora_weights");
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        value = json_object_get(l->config, flags[i]);
        if (value != NULL && !json_is_boolean(value) && !json_is_null(value))
            return refuse_field(l, flags[i]);
    }
    json_object_foreach(l->config, key, value) {
        if (!ls_word_in(known, key) && !is_nothing(value)) return refuse_field(l, key);
    }
    return LS_OK;
}

/* The number that a pattern gives a module, or that of all. Patterns are names' ends. */
static ls_status number_of(const lora *l, const char *all, const char *patterns, const char *module,
                           double *out) {
    const json_t *map = json_object_get(l->config, patterns), *found = NULL;
    const size_t length = strlen(module);
    const char *key;
    json_t *value;
    if (map != NULL && !json_is_object(map) && !json_is_null(map)) return refuse_field(l, patterns);
    json_object_foreach((json_t *)map, key, value) {
        const size_t end = strlen(key);
        if (strpbrk(key, "^$*+?()[]{}|\\") != NULL) return refuse_field(l, patterns);
        if (found == NULL && end <= length && strcmp(module + length - end, key) == 0 &&
            (end == length || module[length - end - 1] == '.'))
            found = value;
    }
    if (found == NULL) found = json_object_get(l->config, all);
    *out = json_number_value(found);
    return json_is_number(found) && isfinite(*out) ? LS_OK : refuse_field(l, all);
}

static ls_status scale_of(const lora *l, const char *module, int64_t *rank, double *scale) {
    double r = 0, alpha = 0;
    LS_TRY(number_of(l, "r", "rank_pattern", module, &r));
    LS_TRY(number_of(l, "lora_alpha", "alpha_pattern", module, &alpha));
    if (!(r >= 1 && r <= RANK_MAX) || r != floor(r)) return refuse_field(l, "r");
    *rank = (int64_t)r;
    const bool by_root = json_is_true(json_object_get(l->config, "use_rslora"));
    *scale = alpha / (by_root ? sqrt(r) : r);
    return LS_OK;
}

/* ---- tensors ---- */

static ls_status refuse_tensor(const lora *l, const char *name) {
    return LS_FAIL(l->ctx, LS_EINPUT,
                   "the adapter's tensor %.300s does not fit the checkpoint that `%s` names", name,
                   "base_model_name_or_path");
}

static ls_safetensor *item_of(const lora *l, const char *name, size_t length, const char *end) {
    for (size_t i = 0; i < l->family->file.count; i++) {
        ls_safetensor *item = &l->family->file.items[i];
        if (strncmp(item->name, name, length) == 0 && strcmp(item->name + length, end) == 0)
            return item;
    }
    return NULL;
}

static bool is_real(const ls_safetensor *tensor) {
    return tensor->type <= LS_STORED_F16 && tensor->block == 0;
}

static bool is_matrix(const ls_safetensor *tensor, int64_t rows, int64_t columns) {
    return tensor != NULL && is_real(tensor) && tensor->rank == 2 && tensor->dim[0] == rows &&
           tensor->dim[1] == columns;
}

/* Room for a tensor's new values, which the family owns. */
static void *room(const lora *l, size_t bytes) {
    ls_family *family = l->family;
    void **merged = ls_grow(l->ctx, family->merged, family->merged_count, family->merged_count + 1,
                            sizeof *merged);
    if (merged == NULL) return NULL;
    family->merged = merged;
    void *values = ls_new_raw(l->ctx, bytes, 1);
    if (values != NULL) merged[family->merged_count++] = values;
    return values;
}

/* W + s B A, [out,in], or with `transposed` [in,out]; there is room for a row of W. */
static void add_product(const ls_safetensor *w, const double *a, const double *b, int64_t rank,
                        double scale, bool transposed, ls_stored_type type, double *row,
                        void *out) {
    const int64_t rows = w->dim[0], columns = w->dim[1], in = transposed ? rows : columns;
    for (int64_t r = 0; r < rows; r++) {
        ls_safetensor_f64(w, r * columns, columns, row);
        for (int64_t c = 0; c < columns; c++) {
            const int64_t o = transposed ? c : r, i = transposed ? r : c, at = r * columns + c;
            double sum = 0;
            for (int64_t k = 0; k < rank; k++) sum += b[o * rank + k] * a[k * in + i];
            const double value = row[c] + scale * sum;
            if (type == LS_STORED_F64)
                ((double *)out)[at] = value;
            else
                ((float *)out)[at] = (float)value;
        }
    }
}

/* `length` bytes of `name` are the module's name. */
static ls_status merge_pair(const lora *l, const ls_safetensor *a, const char *name,
                            size_t length) {
    char full[LS_SAFETENSORS_NAME_MAX + 16], module[LS_SAFETENSORS_NAME_MAX + 1];
    ls_safetensor *w = item_of(l, name, length, ".weight");
    const bool transposed = json_is_true(json_object_get(l->config, "fan_in_fan_out"));
    snprintf(full, sizeof full, PREFIX "%.*s" LORA_B, (int)length, name);
    snprintf(module, sizeof module, "%.*s", (int)length, name);
    const ls_safetensor *b = ls_safetensors_find(l->file, full);
    int64_t rank = 0;
    double scale = 0, *values[2] = {NULL, NULL}, *row = NULL;
    LS_TRY(scale_of(l, module, &rank, &scale));
    if (w == NULL || !is_real(w) || w->rank != 2) return refuse_tensor(l, a->name);
    if (!is_matrix(a, rank, w->dim[transposed ? 0 : 1]) ||
        !is_matrix(b, w->dim[transposed ? 1 : 0], rank))
        return refuse_tensor(l, a->name);
    const ls_stored_type type = w->type == LS_STORED_F64 ? LS_STORED_F64 : LS_STORED_F32;
    void *merged = room(l, (size_t)w->count * ls_stored_size(type));
    ls_status status = merged == NULL ? LS_ENOMEM : ls_safetensor_values(l->ctx, a, &values[0]);
    if (status == LS_OK) status = ls_safetensor_values(l->ctx, b, &values[1]);
    if (status == LS_OK && (row = ls_new(l->ctx, (size_t)w->dim[1] + 1, sizeof *row)) == NULL)
        status = LS_ENOMEM;
    if (status == LS_OK) {
        add_product(w, values[0], values[1], rank, scale, transposed, type, row, merged);
        if (w->from != NULL) status = ls_source_check(l->ctx, w->from);
        w->type = type;
        w->data = merged;
        w->bytes = (size_t)w->count * ls_stored_size(type);
    }
    ls_free(l->ctx, values[0]);
    ls_free(l->ctx, values[1]);
    ls_free(l->ctx, row);
    return status;
}

/* A tensor that was trained whole; a head that was tied before may be new. */
static ls_status take_whole(const lora *l, const ls_safetensor *tensor, const char *name) {
    ls_safetensors *all = &l->family->file;
    ls_safetensor *item = item_of(l, name, strlen(name), ""), given = *tensor;
    given.name = name;
    if (item != NULL) {
        bool fits = is_real(tensor) && tensor->rank == item->rank;
        for (int i = 0; fits && i < item->rank; i++) fits = item->dim[i] == tensor->dim[i];
        if (!fits) return refuse_tensor(l, tensor->name);
        *item = given;
        return LS_OK;
    }
    ls_safetensor *items = ls_grow(l->ctx, all->items, all->count, all->count + 1, sizeof *items);
    if (items == NULL) return LS_ENOMEM;
    all->items = items;
    items[all->count++] = given;
    return LS_OK;
}

static ls_status take_tensor(const lora *l, const ls_safetensor *tensor) {
    const size_t prefix = strlen(PREFIX), length = strlen(tensor->name), end = strlen(LORA_A);
    const char *name = tensor->name + prefix;
    char other[LS_SAFETENSORS_NAME_MAX + 16];
    if (strncmp(tensor->name, PREFIX, prefix) != 0) return refuse_tensor(l, tensor->name);
    const char *tail = length > prefix + end ? tensor->name + length - end : "";
    if (strcmp(tail, LORA_A) == 0) return merge_pair(l, tensor, name, length - prefix - end);
    if (strcmp(tail, LORA_B) == 0) { /* read with its other half */
        snprintf(other, sizeof other, "%.*s" LORA_A, (int)(length - end), tensor->name);
        return ls_safetensors_find(l->file, other) != NULL ? LS_OK : refuse_tensor(l, tensor->name);
    }
    if (strstr(name, "lora_") != NULL)
        return LS_FAIL(l->ctx, LS_EINPUT,
                       "the adapter's tensor %.300s is none of a linear layer: such adapters are "
                       "not understood here",
                       tensor->name);
    return take_whole(l, tensor, name);
}

/* ---- folders ---- */

ls_status ls__family_adapter_base(ls_ctx *ctx, const char *folder, char *base) {
    char path[PATH_BYTES];
    json_t *config;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "adapter_config.json"));
    LS_TRY(ls_json_read(ctx, path, CONFIG_BYTES_MAX, &config));
    const char *named = json_string_value(json_object_get(config, "base_model_name_or_path"));
    const bool fits = named != NULL && (size_t)snprintf(base, PATH_BYTES, "%s", named) < PATH_BYTES;
    ls_status status = LS_OK;
    if (!fits || !ls_family_is_at(base) || ls__family_adapter_at(base))
        status = LS_FAIL(ctx, LS_EINPUT,
                         "%s: `base_model_name_or_path` is %.200s, which is no folder of a public "
                         "checkpoint here: write the path of the base there",
                         path, named == NULL ? "missing" : named);
    json_decref(config);
    return status;
}

ls_status ls__family_adapt(ls_ctx *ctx, ls_family *family, const char *folder) {
    char path[PATH_BYTES], weights[PATH_BYTES];
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "adapter_config.json"));
    LS_TRY(ls_path_join(ctx, weights, sizeof weights, folder, "adapter_model.safetensors"));
    ls_safetensors *shards =
        ls_grow(ctx, family->shard, family->shards, family->shards + 1, sizeof *shards);
    if (shards == NULL) return LS_ENOMEM;
    family->shard = shards;
    LS_TRY(ls_safetensors_open(ctx, weights, &shards[family->shards]));
    lora l = {.ctx = ctx, .path = path, .family = family, .file = &shards[family->shards++]};
    LS_TRY(ls_json_read(ctx, path, CONFIG_BYTES_MAX, &l.config));
    ls_status status = json_is_object(l.config) ? check_fields(&l) : refuse_field(&l, "");
    for (size_t i = 0; status == LS_OK && i < l.file->count; i++) {
        status = ls_check_stop(ctx, "reading an adapter");
        if (status == LS_OK) status = take_tensor(&l, &l.file->items[i]);
    }
    json_decref(l.config);
    return status;
}
