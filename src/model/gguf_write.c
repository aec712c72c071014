#include "model/gguf_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/temporary.h"
#include "model/blocks.h"

enum { PIECE = 8192 }; /* values that are packed at a time: whole blocks of every type */

typedef struct declared {
    char name[LS_GGUF_NAME_MAX + 1];
    const ls_gguf_type *type;
    int rank;
    int64_t dim[LS_GGUF_RANK_MAX], count;
    int64_t bytes;
} declared;

struct ls_gguf_writer {
    ls_ctx *ctx;
    char *path;
    ls_replacement out; /* its file is NULL before the first value, and after the end */
    ls_text keys, key_names;
    uint64_t key_count;
    declared *tensors;
    size_t tensor_count, tensor_room;
    size_t current; /* the tensor whose values come, and how many came */
    int64_t given;
    float kept[32]; /* of a block that is not whole yet */
    int64_t kept_count;
    uint8_t packed[PIECE * 4];
    ls_status status;
};

static void fail(ls_gguf_writer *w, ls_status status) {
    if (w->status == LS_OK) w->status = status;
}

ls_status ls_gguf_writer_new(ls_ctx *ctx, const char *path, ls_gguf_writer **out) {
    ls_gguf_writer *w = *out = ls_new(ctx, 1, sizeof *w);
    if (w == NULL) return LS_ENOMEM;
    w->ctx = ctx;
    w->path = ls_copy_text(ctx, path);
    if (w->path != NULL) return LS_OK;
    ls_gguf_abandon(w);
    *out = NULL;
    return LS_ENOMEM;
}

/* ---- keys ---- */

static void put_number(ls_gguf_writer *w, ls_text *out, uint64_t value, int bytes) {
    uint8_t at[8];
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> 8 * i);
    ls_text_append(w->ctx, out, at, (size_t)bytes);
}

static void put_text(ls_gguf_writer *w, ls_text *out, const char *at, size_t length) {
    put_number(w, out, length, 8);
    ls_text_append(w->ctx, out, at, length);
}

static bool listed(const ls_gguf_writer *w, const char *key) {
    const size_t length = strlen(key);
    const char *at = w->key_names.bytes == NULL ? NULL : strstr(w->key_names.bytes, key);
    for (; at != NULL; at = strstr(at + 1, key))
        if ((at == w->key_names.bytes || at[-1] == '\n') && at[length] == '\n') return true;
    return false;
}

/* Before the value, or the values of a list. */
static void start(ls_gguf_writer *w, const char *key, ls_gguf_kind kind) {
    const size_t length = strlen(key);
    if (length == 0 || length > LS_GGUF_NAME_MAX) {
        fail(w, LS_FAIL(w->ctx, LS_EUSE, "`%.64s` cannot be the name of a key", key));
        return;
    }
    if (listed(w, key)) fail(w, LS_FAIL(w->ctx, LS_EUSE, "the key %s would stand twice", key));
    ls_text_printf(w->ctx, &w->key_names, "%s\n", key);
    put_text(w, &w->keys, key, length);
    put_number(w, &w->keys, kind, 4);
    w->key_count++;
}

static void start_list(ls_gguf_writer *w, const char *key, ls_gguf_kind kind, size_t count) {
    start(w, key, LS_GGUF_ARRAY);
    put_number(w, &w->keys, kind, 4);
    put_number(w, &w->keys, count, 8);
}

void ls_gguf_put_text(ls_gguf_writer *w, const char *key, const char *value) {
    start(w, key, LS_GGUF_TEXT);
    put_text(w, &w->keys, value, strlen(value));
}

void ls_gguf_put_u32(ls_gguf_writer *w, const char *key, uint32_t value) {
    start(w, key, LS_GGUF_U32);
    put_number(w, &w->keys, value, 4);
}

void ls_gguf_put_f32(ls_gguf_writer *w, const char *key, float value) {
    start(w, key, LS_GGUF_F32);
    ls_text_append(w->ctx, &w->keys, &value, sizeof value);
}

void ls_gguf_put_bool(ls_gguf_writer *w, const char *key, bool value) {
    start(w, key, LS_GGUF_BOOL);
    put_number(w, &w->keys, value, 1);
}

void ls_gguf_put_texts(ls_gguf_writer *w, const char *key, const ls_gguf_text *values,
                       size_t count) {
    start_list(w, key, LS_GGUF_TEXT, count);
    for (size_t i = 0; i < count; i++) put_text(w, &w->keys, values[i].at, values[i].length);
}

void ls_gguf_put_f32s(ls_gguf_writer *w, const char *key, const float *values, size_t count) {
    start_list(w, key, LS_GGUF_F32, count);
    ls_text_append(w->ctx, &w->keys, values, count * sizeof *values);
}

void ls_gguf_put_i32s(ls_gguf_writer *w, const char *key, const int32_t *values, size_t count) {
    start_list(w, key, LS_GGUF_I32, count);
    ls_text_append(w->ctx, &w->keys, values, count * sizeof *values);
}

void ls_gguf_put_bytes(ls_gguf_writer *w, const char *key, const uint8_t *values, size_t count) {
    start_list(w, key, LS_GGUF_U8, count);
    ls_text_append(w->ctx, &w->keys, values, count);
}

void ls_gguf_put_bools(ls_gguf_writer *w, const char *key, const bool *values, size_t count) {
    start_list(w, key, LS_GGUF_BOOL, count);
    for (size_t i = 0; i < count; i++) put_number(w, &w->keys, values[i], 1);
}

void ls_gguf_put_key(ls_gguf_writer *w, const ls_gguf_key *key) {
    if (key->kind == LS_GGUF_ARRAY)
        start_list(w, key->name, key->element, key->count);
    else
        start(w, key->name, key->kind);
    ls_text_append(w->ctx, &w->keys, key->value.at, key->value.left);
}

/* ---- tensors ---- */

bool ls_gguf_writes(uint32_t type, int64_t width) {
    const bool known =
        type == LS_GGML_F32 || type == LS_GGML_F16 || type == LS_GGML_BF16 || type == LS_GGML_Q8_0;
    return known && width > 0 && width % ls_gguf_type_of(type)->values == 0;
}

void ls_gguf_declare(ls_gguf_writer *w, const char *name, uint32_t type, int rank,
                     const int64_t *dim) {
    const bool fits = strlen(name) > 0 && strlen(name) <= LS_GGUF_NAME_MAX && rank > 0 &&
                      rank <= LS_GGUF_RANK_MAX && ls_gguf_writes(type, dim[rank - 1]);
    if (!fits) {
        fail(w, LS_FAIL(w->ctx, LS_EUSE, "tensor %.64s cannot be written: its name, shape or type",
                        name));
        return;
    }
    if (!ls_array_reserve(w->ctx, &w->tensors, &w->tensor_room, w->tensor_count + 1,
                          sizeof *w->tensors)) {
        fail(w, LS_ENOMEM);
        return;
    }
    declared *tensor = &w->tensors[w->tensor_count++];
    *tensor = (declared){.type = ls_gguf_type_of(type), .rank = rank, .count = 1};
    memcpy(tensor->name, name, strlen(name) + 1);
    bool small = true;
    for (int i = 0; i < rank; i++) {
        tensor->dim[i] = dim[i];
        small = small && dim[i] > 0 && ls_mul(tensor->count, dim[i], &tensor->count);
    }
    if (!small ||
        !ls_mul(tensor->count / tensor->type->values, tensor->type->bytes, &tensor->bytes))
        fail(w, LS_FAIL(w->ctx, LS_EUSE, "tensor %s has an impossible shape", name));
}

static int by_place(const void *a, const void *b) {
    return strcmp((*(const declared *const *)a)->name, (*(const declared *const *)b)->name);
}

static ls_status check_names(ls_gguf_writer *w) {
    const declared **sorted = ls_new(w->ctx, w->tensor_count + 1, sizeof *sorted);
    if (sorted == NULL) return LS_ENOMEM;
    ls_status status = LS_OK;
    for (size_t i = 0; i < w->tensor_count; i++) sorted[i] = &w->tensors[i];
    qsort(sorted, w->tensor_count, sizeof *sorted, by_place);
    for (size_t i = 1; status == LS_OK && i < w->tensor_count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = LS_FAIL(w->ctx, LS_EUSE, "tensor %s would stand twice", sorted[i]->name);
    ls_free(w->ctx, sorted);
    return status;
}

/* Everything before the data. */
static ls_status put_head(ls_gguf_writer *w) {
    ls_text head = {0};
    int64_t offset = 0;
    ls_text_append(w->ctx, &head, "GGUF", 4);
    put_number(w, &head, 3, 4);
    put_number(w, &head, w->tensor_count, 8);
    put_number(w, &head, w->key_count, 8);
    ls_text_append(w->ctx, &head, w->keys.bytes, w->keys.length);
    for (size_t i = 0; i < w->tensor_count; i++) {
        const declared *tensor = &w->tensors[i];
        put_text(w, &head, tensor->name, strlen(tensor->name));
        put_number(w, &head, (uint64_t)tensor->rank, 4);
        for (int d = tensor->rank - 1; d >= 0; d--)
            put_number(w, &head, (uint64_t)tensor->dim[d], 8);
        put_number(w, &head, tensor->type->id, 4);
        put_number(w, &head, (uint64_t)offset, 8);
        offset += ls_round_up(tensor->bytes, LS_GGUF_ALIGNMENT);
    }
    while (!head.failed && head.length % LS_GGUF_ALIGNMENT != 0)
        ls_text_append(w->ctx, &head, "", 1);
    ls_status status = ls_text_status(&head);
    if (status == LS_OK)
        status = ls_file_put(w->ctx, w->out.file, w->out.name, head.bytes, head.length);
    ls_text_clear(w->ctx, &head);
    return status;
}

static ls_status open_file(ls_gguf_writer *w) {
    LS_TRY(w->status);
    if (w->out.file != NULL) return LS_OK;
    LS_TRY(ls_text_status(&w->keys));
    LS_TRY(check_names(w));
    LS_TRY(ls_replacement_begin(w->ctx, w->path, &w->out));
    return put_head(w);
}

/* ---- values ---- */

static ls_status check_values(ls_gguf_writer *w, const float *values, int64_t count) {
    const declared *tensor = &w->tensors[w->current];
    const bool narrow = tensor->type->id == LS_GGML_F16 || tensor->type->id == LS_GGML_Q8_0;
    const float most = tensor->type->id == LS_GGML_Q8_0 ? 127 * 65504.0f : 65504.0f;
    for (int64_t i = 0; narrow && i < count; i++)
        if (!(fabsf(values[i]) <= most))
            return LS_FAIL(w->ctx, LS_EUSE, "%s has the value %g, which %s cannot hold",
                           tensor->name, (double)values[i], tensor->type->name);
    return LS_OK;
}

static ls_status pack(ls_gguf_writer *w, const float *values, int64_t blocks) {
    const ls_gguf_type *type = w->tensors[w->current].type;
    while (blocks > 0) {
        const int64_t now = ls_min(blocks, PIECE / type->values);
        const size_t bytes = ls_blocks_pack(type->id, values, now, w->packed);
        LS_TRY(ls_file_put(w->ctx, w->out.file, w->out.name, w->packed, bytes));
        values += now * type->values;
        blocks -= now;
    }
    return LS_OK;
}

static ls_status end_tensor(ls_gguf_writer *w) {
    static const uint8_t zeros[LS_GGUF_ALIGNMENT];
    const int64_t bytes = w->tensors[w->current].bytes;
    LS_TRY(ls_file_put(w->ctx, w->out.file, w->out.name, zeros,
                       (size_t)(ls_round_up(bytes, LS_GGUF_ALIGNMENT) - bytes)));
    w->current++;
    w->given = 0;
    return LS_OK;
}

static ls_status append(ls_gguf_writer *w, const float *values, int64_t count) {
    LS_TRY(open_file(w));
    if (w->current == w->tensor_count || count > w->tensors[w->current].count - w->given)
        return LS_FAIL(w->ctx, LS_EBUG, "more values than %s was to have", w->path);
    LS_TRY(check_values(w, values, count));
    const int64_t unit = w->tensors[w->current].type->values;
    w->given += count;
    if (w->kept_count > 0) { /* fills the block that was begun */
        const int64_t more = ls_min(count, unit - w->kept_count);
        memcpy(w->kept + w->kept_count, values, (size_t)more * sizeof *values);
        w->kept_count += more;
        values += more;
        count -= more;
        if (w->kept_count == unit) LS_TRY(pack(w, w->kept, 1));
        w->kept_count %= unit;
    }
    LS_TRY(pack(w, values, count / unit));
    if (count % unit > 0) {
        w->kept_count = count % unit;
        memcpy(w->kept, values + (count - w->kept_count), (size_t)w->kept_count * sizeof *values);
    }
    return w->given == w->tensors[w->current].count ? end_tensor(w) : LS_OK;
}

ls_status ls_gguf_append(ls_gguf_writer *w, const float *values, int64_t count) {
    fail(w, append(w, values, count));
    return w->status;
}

/* ---- the end ---- */

static ls_status finish(ls_gguf_writer *w) {
    LS_TRY(open_file(w));
    if (w->current != w->tensor_count)
        return LS_FAIL(w->ctx, LS_EBUG, "the values of %s are missing",
                       w->tensors[w->current].name);
    return ls_replacement_end(w->ctx, w->path, &w->out, LS_OK);
}

ls_status ls_gguf_finish(ls_gguf_writer *w) {
    const ls_status status = finish(w);
    ls_gguf_abandon(w);
    return status;
}

void ls_gguf_abandon(ls_gguf_writer *w) {
    if (w == NULL) return;
    if (w->out.file != NULL) ls_replacement_end(w->ctx, w->path, &w->out, LS_ESTOP);
    ls_free(w->ctx, w->path);
    ls_free(w->ctx, w->tensors);
    ls_text_clear(w->ctx, &w->keys);
    ls_text_clear(w->ctx, &w->key_names);
    ls_free(w->ctx, w);
}
