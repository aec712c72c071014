/* Which tensors the files of a folder give, and whether the head is one of them. */
#include <stdlib.h>
#include <string.h>

#include "model/family.h"

enum { PATH_BYTES = 4096, INDEX_BYTES_MAX = 256 << 20 };

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const ls_safetensor *)a)->name, ((const ls_safetensor *)b)->name);
}

/* Adds what an index says of a shard (NULL: all of it) to the tensors that count. */
static ls_status add_tensors(ls_ctx *ctx, ls_family *family, const ls_safetensors *shard,
                             const json_t *index, const char *name) {
    ls_safetensor *items = ls_grow(ctx, family->file.items, family->file.count,
                                   family->file.count + shard->count + 1, sizeof *items);
    if (items == NULL) return LS_ENOMEM;
    family->file.items = items;
    for (size_t i = 0; i < shard->count; i++) {
        const char *place = json_string_value(json_object_get(index, shard->items[i].name));
        if (index != NULL && (place == NULL || strcmp(place, name) != 0)) continue;
        items[family->file.count++] = shard->items[i];
    }
    return LS_OK;
}

static ls_status open_shard(ls_ctx *ctx, ls_family *family, const char *folder, const json_t *index,
                            const char *name) {
    char path[PATH_BYTES];
    ls_safetensors *shards =
        ls_grow(ctx, family->shard, family->shards, family->shards + 1, sizeof *shards);
    if (shards == NULL) return LS_ENOMEM;
    family->shard = shards;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, name));
    LS_TRY(ls_safetensors_open(ctx, path, &shards[family->shards]));
    return add_tensors(ctx, family, &shards[family->shards++], index, name);
}

/* Every tensor of the index must be in the shard that it names. */
static ls_status open_index(ls_ctx *ctx, ls_family *family, const char *folder, const char *path,
                            const json_t *json) {
    const json_t *index = json_object_get(json, "weight_map");
    json_t *opened = json_object(), *place;
    const char *tensor;
    ls_status status =
        opened == NULL ? LS_FAIL(ctx, LS_ENOMEM, "no memory to read %s", path) : LS_OK;
    if (status == LS_OK && json_object_size(index) == 0)
        status = LS_FAIL(ctx, LS_EINPUT, "%s: `weight_map` must be an object of one tensor or more",
                         path);
    if (status == LS_OK) json_object_foreach((json_t *)index, tensor, place) {
            const char *name = json_string_value(place);
            if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL ||
                strstr(name, "..") != NULL) {
                status = LS_FAIL(ctx, LS_EINPUT, "%s: `%.64s` stands in no file of this folder",
                                 path, tensor);
                break;
            }
            if (json_object_get(opened, name) != NULL) continue;
            status = open_shard(ctx, family, folder, index, name);
            if (status == LS_OK && json_object_set_new(opened, name, json_true()) != 0)
                status = LS_FAIL(ctx, LS_ENOMEM, "no memory to read %s", path);
            if (status != LS_OK) break;
        }
    if (status == LS_OK && family->file.count != json_object_size(index))
        status = LS_FAIL(ctx, LS_EINPUT, "%s names %zu tensors, of which the files hold %zu", path,
                         json_object_size(index), family->file.count);
    json_decref(opened);
    return status;
}

ls_status ls__family_open_shards(ls_ctx *ctx, ls_family *family, const char *folder) {
    char path[PATH_BYTES];
    json_t *json;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "model.safetensors"));
    if (ls_path_exists(path)) return open_shard(ctx, family, folder, NULL, "model.safetensors");
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "model.safetensors.index.json"));
    if (ls_path_exists(path)) {
        LS_TRY(ls_json_read(ctx, path, INDEX_BYTES_MAX, &json));
        ls_status status = open_index(ctx, family, folder, path, json);
        json_decref(json);
        return status;
    }
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "pytorch_model.bin"));
    if (ls_path_exists(path))
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s can run code when it is opened: convert it to model.safetensors (save "
                       "the model again with transformers)",
                       path);
    return LS_FAIL(ctx, LS_EINPUT,
                   "%s holds neither model.safetensors nor model.safetensors.index.json", folder);
}

/* The tensor whose name is `end`, alone or behind a dot. */
static size_t find_ending(const ls_safetensors *file, const char *end) {
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->items[i].name;
        const size_t before = strlen(name) - strlen(end);
        if (ends_with(name, end) && (before == 0 || name[before - 1] == '.')) return i;
    }
    return file->count;
}

/* Whether two tensors hold the same. */
static ls_status compare(ls_ctx *ctx, const ls_safetensor *a, const ls_safetensor *b, bool *same) {
    enum { PIECE = 1 << 15 };
    uint8_t mine[PIECE], theirs[PIECE];
    *same = a->type == b->type && a->block == b->block && a->bytes == b->bytes;
    for (size_t at = 0; *same && at < a->bytes; at += PIECE) {
        const size_t here = (size_t)ls_min(PIECE, (int64_t)(a->bytes - at));
        LS_TRY(ls_check_stop(ctx, "reading weights"));
        ls_safetensor_bytes(a, at, here, mine);
        ls_safetensor_bytes(b, at, here, theirs);
        *same = memcmp(mine, theirs, here) == 0;
    }
    return LS_OK;
}

static void drop(ls_safetensors *file, size_t item) {
    file->items[item] = file->items[--file->count];
}

/* A masked head's bias stands in the file twice: the product's own counts where it is not tied. */
static void settle_head_bias(ls_family *family, bool tied) {
    ls_safetensors *file = &family->file;
    if (family->type->head_biases[0] == NULL) return;
    const size_t shared = find_ending(file, family->type->head_biases[0]),
                 own = find_ending(file, family->type->head_biases[1]);
    if (shared < file->count && own < file->count) drop(file, tied ? own : shared);
}

/* Whether the head is the embedding. The file decides before the flag: two matrices that differ are
 * both used; a copy is redundant. Only a head, where it is tied, is the embedding too. */
ls_status ls__family_settle_head(ls_ctx *ctx, ls_family *family, const char *what,
                                 const char *embedding, const char *head, bool tied) {
    ls_safetensors *file = &family->file;
    const size_t first = find_ending(file, embedding), last = find_ending(file, head);
    const bool has_embedding = first < file->count, has_head = last < file->count;
    if (!has_head && !tied)
        return LS_FAIL(ctx, LS_EINPUT, "%s: %s is missing, and the head is not tied", what, head);
    if (has_embedding && has_head) {
        if (tied) LS_TRY(compare(ctx, &file->items[first], &file->items[last], &tied));
        LS_TRY(ls_safetensors_check(ctx, file));
        if (tied) drop(file, last);
    } else if (has_head && tied) {
        file->items[last].name = embedding;
    }
    settle_head_bias(family, tied);
    qsort(file->items, file->count, sizeof *file->items, by_name);
    return ls_settings_put(ctx, &family->settings, "model.tied", tied ? "true" : "false");
}

/* A folder of an encoder may hold no head: its rows are all there is then. */
ls_status ls__family_settle_folder(ls_ctx *ctx, ls_family *family, const char *folder, bool tied) {
    const ls_family_type *type = family->type;
    ls_safetensors *file = &family->file;
    if (type->head_layer == NULL || find_ending(file, type->head_layer) < file->count)
        return ls__family_settle_head(ctx, family, folder, type->embedding, type->head, tied);
    qsort(file->items, file->count, sizeof *file->items, by_name);
    return ls_settings_put(ctx, &family->settings, "model.head", "none");
}
