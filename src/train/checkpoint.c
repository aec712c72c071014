#include "train/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/weights.h"
#include "train/adapter.h"
#include "train/checkpoint_parts.h"

enum { PATH_BYTES = 4096, VERSION = 1, MANIFEST_MAX = 1 << 20, STATE_MAX = 64 << 20 };
enum { CONFIG_MAX = 1 << 20 };

static const char prefix[] = "step-", temporary[] = ".tmp";
static const char model_file[] = "model.safetensors", optimizer_file[] = "optimizer.safetensors";
static const char state_file[] = "state.json", memory_file[] = "memory.bin";
static const char manifest_file[] = "manifest.json";
static const char *const files[] = {model_file, optimizer_file, state_file, memory_file,
                                    LS_ADAPTER_CONFIG};
enum { FILES = sizeof files / sizeof files[0], REQUIRED_FILES = 3, WEIGHTS_ALONE = 1 };
enum { MODEL_FILE = 0, MEMORY_FILE = 3, ADAPTER_FILE = 4 };

/* What a file is called in a checkpoint; NULL where it has none. The weights of an adapter are
 * stored alone, under the names that peft gives them. */
static const char *file_of(int which, const ls_parameters *store, const ls_checkpoint *checkpoint) {
    const bool adapts = store->adapter.rank > 0;
    if (which == MODEL_FILE && adapts) return LS_ADAPTER_WEIGHTS;
    if (which == MEMORY_FILE && checkpoint->put_memory == NULL) return NULL;
    if (which == ADAPTER_FILE && !adapts) return NULL;
    return files[which];
}

static const char *prefix_of(const ls_parameters *store) {
    return store->adapter.rank > 0 ? LS_ADAPTER_PREFIX : "";
}

void ls_checkpoint_clear(ls_checkpoint *checkpoint) {
    json_decref(checkpoint->state);
    ls_whole_free(&checkpoint->memory);
    *checkpoint = (ls_checkpoint){0};
}

int64_t ls__checkpoint_step(const char *name, const char *start) {
    char written[48];
    if (strncmp(name, start, strlen(start)) != 0) return -1;
    int64_t step = 0;
    for (const char *digit = name + strlen(start); *digit >= '0' && *digit <= '9'; digit++)
        if (!ls_mul(step, 10, &step) || !ls_add(step, *digit - '0', &step)) return -1;
    snprintf(written, sizeof written, "%s%08lld", start, (long long)step);
    return strcmp(name, written) == 0 ? step : -1;
}

/* The step of a folder's name; -1 where it is none of ours. */
static int64_t step_of(const char *name) {
    return ls__checkpoint_step(name, prefix);
}

static ls_status step_path(ls_ctx *ctx, const char *folder, int64_t step, const char *end,
                           char *out) {
    if ((size_t)snprintf(out, PATH_BYTES, "%s/%s%08lld%s", folder, prefix, (long long)step, end) >=
        PATH_BYTES)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", folder);
    return LS_OK;
}

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The steps that have a checkpoint, newest first; free the array. */
static ls_status list_steps(ls_ctx *ctx, const char *folder, int64_t **steps, size_t *count) {
    char **names;
    size_t all;
    *steps = NULL;
    *count = 0;
    if (!ls_path_is_folder(folder)) return LS_OK;
    LS_TRY(ls_folder_list(ctx, folder, &names, &all));
    *steps = ls_new(ctx, all + 1, sizeof **steps);
    if (*steps != NULL) {
        for (size_t i = 0; i < all; i++)
            if (step_of(names[i]) >= 0) (*steps)[(*count)++] = step_of(names[i]);
        qsort(*steps, *count, sizeof **steps, newest_first);
    }
    ls_names_free(ctx, names, all);
    return *steps == NULL ? LS_ENOMEM : LS_OK;
}

/* ---- writing ---- */

static void print_hash(uint64_t hash, char out[17]) {
    snprintf(out, 17, "%016llx", (unsigned long long)hash);
}

static ls_status finish(ls_ctx *ctx, FILE *file, const char *path, ls_status status) {
    if (status == LS_OK) return ls_file_finish(ctx, file, path);
    fclose(file);
    return status;
}

static ls_status write_tensors(ls_ctx *ctx, const char *path, const ls_parameters *store,
                               const ls_weights_part *parts, size_t count, int64_t step) {
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)step);
    /* "pt" is what other readers of such files look for */
    char hash[17];
    print_hash(store->adapter.base_hash, hash);
    const ls_stored_text texts[] = {
        {"format", "pt"}, {"producer", "longshot"}, {"step", number}, {LS_ADAPTER_BASE, hash}};
    FILE *file;
    LS_TRY(ls_file_create(ctx, path, false, &file));
    return finish(ctx, file, path,
                  ls_weights_put(ctx, file, path, store, parts, count, texts,
                                 store->adapter.rank > 0 ? 4 : 3));
}

static ls_status write_memory(ls_ctx *ctx, const char *path, const ls_checkpoint *checkpoint) {
    FILE *file;
    LS_TRY(ls_file_create(ctx, path, false, &file));
    return finish(ctx, file, path, checkpoint->put_memory(checkpoint->user, file, path));
}

/* The moments as parts of a file; `users` are for those that are cut over ranks. */
static void moments_of(ls_optimizer *optimizer, ls_moment users[2], ls_weights_part parts[2]) {
    static const char *const prefixes[] = {"m.", "v."};
    for (int i = 0; i < 2; i++) {
        users[i] = (ls_moment){optimizer, i == 0 ? LS_MOMENT_MEAN : LS_MOMENT_SQUARE};
        parts[i] = (ls_weights_part){
            .prefix = prefixes[i], .get = ls_moment_get, .put = ls_moment_put, .user = &users[i]};
        if (optimizer->ranks == NULL)
            parts[i].buffer = i == 0 ? optimizer->mean : optimizer->square;
    }
}

/* The weights likewise; `user` is for masters that are cut. */
static ls_weights_part weights_of(ls_optimizer *optimizer, ls_moment *user) {
    const ls_parameters *store = &optimizer->part;
    *user = (ls_moment){optimizer, LS_MOMENT_WEIGHTS};
    return (ls_weights_part){.prefix = prefix_of(store),
                             .buffer = store->master,
                             .get = ls_moment_get,
                             .put = ls_moment_put,
                             .user = user};
}

static ls_status write_file(ls_ctx *ctx, const char *name, const char *path,
                            const ls_checkpoint *checkpoint, ls_optimizer *optimizer) {
    const ls_parameters *store = &optimizer->part;
    ls_moment user;
    const ls_weights_part weights = weights_of(optimizer, &user);
    if (name == model_file) return write_tensors(ctx, path, store, &weights, 1, checkpoint->step);
    if (name == files[ADAPTER_FILE]) return ls_adapter_write_config(ctx, store, path);
    if (name == optimizer_file) {
        ls_moment users[2];
        ls_weights_part parts[2];
        moments_of(optimizer, users, parts);
        return write_tensors(ctx, path, store, parts, 2, checkpoint->step);
    }
    if (name == state_file) return ls_json_write(ctx, path, checkpoint->state);
    return write_memory(ctx, path, checkpoint);
}

/* The hash of a manifest's own content, so that a flipped bit in it is noticed too. */
static ls_status seal_of(ls_ctx *ctx, const json_t *manifest, char out[17]) {
    char *text = ls_json_dump(manifest, JSON_COMPACT);
    if (text == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for a manifest");
    print_hash(ls_hash(text, strlen(text)), out);
    free(text);
    return LS_OK;
}

static ls_status write_manifest(ls_ctx *ctx, const char *folder, json_t *list,
                                const ls_checkpoint *checkpoint) {
    char hash[17], rest[17], seal[17] = "", path[PATH_BYTES];
    print_hash(checkpoint->config_hash, hash);
    print_hash(checkpoint->rest_hash, rest);
    json_t *manifest =
        json_pack("{s:i,s:I,s:s,s:s,s:O}", "version", VERSION, "step", (json_int_t)checkpoint->step,
                  "config", hash, "config_but_steps", rest, "files", list);
    ls_status status = LS_OK;
    if (manifest == NULL) status = LS_FAIL(ctx, LS_ENOMEM, "no memory for a manifest");
    if (status == LS_OK) status = seal_of(ctx, manifest, seal);
    if (status == LS_OK && json_object_set_new(manifest, "seal", json_string(seal)) != 0)
        status = LS_FAIL(ctx, LS_ENOMEM, "no memory for a manifest");
    if (status == LS_OK) status = ls_path_join(ctx, path, sizeof path, folder, manifest_file);
    if (status == LS_OK) status = ls_json_write(ctx, path, manifest);
    json_decref(manifest);
    return status;
}

ls_status ls__checkpoint_write(ls_ctx *ctx, const char *folder, const ls_checkpoint *checkpoint,
                               ls_optimizer *optimizer) {
    LS_TRY(ls_folder_remove(ctx, folder));
    LS_TRY(ls_folder_make(ctx, folder));
    json_t *list = json_array();
    ls_status status = list == NULL ? LS_FAIL(ctx, LS_ENOMEM, "no memory for a manifest") : LS_OK;
    for (int i = 0; status == LS_OK && i < FILES; i++) {
        char path[PATH_BYTES], hash[17];
        size_t length = 0;
        uint64_t value = 0;
        const char *name = file_of(i, optimizer->store, checkpoint);
        if (name == NULL) continue;
        LS_TRY_GOTO(ls_path_join(ctx, path, sizeof path, folder, name));
        LS_TRY_GOTO(write_file(ctx, files[i], path, checkpoint, optimizer));
        LS_TRY_GOTO(ls_file_hash(ctx, path, false, &length, &value));
        print_hash(value, hash);
        if (json_array_append_new(list, json_pack("{s:s,s:I,s:s}", "name", name, "bytes",
                                                  (json_int_t)length, "xxh3", hash)) != 0)
            status = LS_FAIL(ctx, LS_ENOMEM, "no memory for a manifest");
    }
    /* the last of them, and durable: its rename syncs the folder with the names of all */
    if (status == LS_OK) status = write_manifest(ctx, folder, list, checkpoint);
fail:
    json_decref(list);
    return status;
}

/* A folder disappears at once, too: what a crash leaves of it is swept away later. */
static ls_status remove_step(ls_ctx *ctx, const char *folder, int64_t step) {
    char path[PATH_BYTES], doomed[PATH_BYTES];
    LS_TRY(step_path(ctx, folder, step, "", path));
    LS_TRY(step_path(ctx, folder, step, temporary, doomed));
    LS_TRY(ls_folder_remove(ctx, doomed));
    if (rename(path, doomed) != 0)
        return LS_FAIL(ctx, LS_EIO, "renaming %s: %s", path, strerror(errno));
    return ls_folder_remove(ctx, doomed);
}

static bool is_scheduled(int64_t step, int64_t every) {
    return every == 0 || step % every == 0;
}

ls_status ls_checkpoint_prune(ls_ctx *ctx, const char *folder, int64_t newest, int64_t every,
                              int64_t keep) {
    int64_t *steps;
    size_t count;
    LS_TRY(list_steps(ctx, folder, &steps, &count));
    ls_status status = LS_OK;
    int64_t kept = 0;
    /* newer ones are from a future that was rejected on reading: they do not count as good ones,
     * and are replaced when the run gets there */
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        if (steps[i] > newest) continue;
        const bool goes =
            is_scheduled(steps[i], every) ? ++kept > ls_max(keep, 2) : steps[i] < newest;
        if (goes) status = remove_step(ctx, folder, steps[i]);
    }
    ls_free(ctx, steps);
    return status;
}

ls_status ls_checkpoint_save(ls_ctx *ctx, const char *folder, const ls_checkpoint *checkpoint,
                             ls_optimizer *optimizer, int64_t keep) {
    char path[PATH_BYTES], unfinished[PATH_BYTES];
    const char *broken;
    LS_TRY(ls_weights_find_broken(&optimizer->part, &broken));
    if (broken != NULL)
        return LS_FAIL(
            ctx, LS_EINPUT,
            "the weights at step %lld are not finite (%s): no checkpoint is made of them",
            (long long)checkpoint->step, broken);
    LS_TRY(step_path(ctx, folder, checkpoint->step, "", path));
    LS_TRY(step_path(ctx, folder, checkpoint->step, temporary, unfinished));
    LS_TRY(ls_folder_make(ctx, folder));
    ls_status status = ls__checkpoint_write(ctx, unfinished, checkpoint, optimizer);
    if (status == LS_OK) status = ls_folder_remove(ctx, path);
    if (status == LS_OK) status = ls_path_rename(ctx, unfinished, path);
    if (status != LS_OK) {
        const ls_error first = ctx->error;
        ls_folder_remove(ctx, unfinished);
        ctx->error = first;
        return status;
    }
    return ls_checkpoint_prune(ctx, folder, checkpoint->step, checkpoint->every, keep);
}

/* ---- reading ---- */

/* The manifest's entry of a file against the file itself, which is read where it is one of the
 * first `needed`. */
static ls_status verify_file(ls_ctx *ctx, const char *folder, const json_t *entry, int needed,
                             bool seen[]) {
    const char *name, *wanted;
    int64_t bytes;
    char path[PATH_BYTES], hash[17];
    size_t length = 0;
    uint64_t value = 0;
    LS_TRY(ls_json_text(ctx, entry, "name", folder, &name));
    LS_TRY(ls_json_int(ctx, entry, "bytes", folder, 0, INT64_MAX, &bytes));
    LS_TRY(ls_json_text(ctx, entry, "xxh3", folder, &wanted));
    int which = 0;
    while (which < FILES && strcmp(files[which], name) != 0) which++;
    if (strcmp(name, LS_ADAPTER_WEIGHTS) == 0) which = MODEL_FILE;
    if (which == FILES || seen[which])
        return LS_FAIL(ctx, LS_EINPUT, "%s: the manifest names a strange file", folder);
    seen[which] = true;
    if (which >= needed) return LS_OK;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, name));
    LS_TRY(ls_file_hash(ctx, path, true, &length, &value));
    if ((uint64_t)bytes != length)
        return LS_FAIL(ctx, LS_EINPUT, "%s has %zu bytes, not %lld", path, length,
                       (long long)bytes);
    print_hash(value, hash);
    if (strcmp(hash, wanted) != 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s is damaged: its checksum is wrong", path);
    return LS_OK;
}

static ls_status verify_manifest(ls_ctx *ctx, const char *folder, json_t *manifest, int64_t step,
                                 int needed, ls_checkpoint *out, bool *has_memory) {
    int64_t version;
    const char *config, *seal;
    char wanted[17], computed[17];
    LS_TRY(ls_json_text(ctx, manifest, "seal", folder, &seal));
    snprintf(wanted, sizeof wanted, "%s", seal);
    json_object_del(manifest, "seal");
    LS_TRY(seal_of(ctx, manifest, computed));
    if (strcmp(wanted, computed) != 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the manifest is damaged", folder);
    LS_TRY(ls_json_int(ctx, manifest, "version", folder, 0, INT64_MAX, &version));
    if (version != VERSION)
        return LS_FAIL(ctx, LS_EINPUT, "%s is of version %lld; this program reads %d", folder,
                       (long long)version, VERSION);
    LS_TRY(ls_json_int(ctx, manifest, "step", folder, 0, INT64_MAX, &out->step));
    if (out->step != step)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the manifest is that of another step", folder);
    LS_TRY(ls_json_text(ctx, manifest, "config", folder, &config));
    out->config_hash = strtoull(config, NULL, 16); /* the seal vouches for its form */
    const char *rest = json_string_value(json_object_get(manifest, "config_but_steps"));
    out->rest_hash = rest == NULL ? 0 : strtoull(rest, NULL, 16); /* older versions had none */
    const json_t *list = json_object_get(manifest, "files");
    bool seen[FILES] = {false};
    for (size_t i = 0; i < json_array_size(list); i++)
        LS_TRY(verify_file(ctx, folder, json_array_get(list, i), needed, seen));
    for (int i = 0; i < REQUIRED_FILES; i++)
        if (!seen[i]) return LS_FAIL(ctx, LS_EINPUT, "%s: the manifest lacks %s", folder, files[i]);
    *has_memory = seen[MEMORY_FILE];
    return LS_OK;
}

static ls_status verify(ls_ctx *ctx, const char *folder, int64_t step, int needed,
                        ls_checkpoint *out, bool *has_memory) {
    char path[PATH_BYTES];
    json_t *manifest;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, manifest_file));
    LS_TRY(ls_json_read(ctx, path, MANIFEST_MAX, &manifest));
    ls_status status = verify_manifest(ctx, folder, manifest, step, needed, out, has_memory);
    json_decref(manifest);
    return status;
}

static ls_status read_tensors(ls_ctx *ctx, const char *folder, ls_optimizer *optimizer) {
    char model_path[PATH_BYTES], optimizer_path[PATH_BYTES];
    ls_parameters *store = &optimizer->part;
    const bool adapts = store->adapter.rank > 0;
    ls_moment user, users[2];
    const ls_weights_part weights = weights_of(optimizer, &user);
    ls_weights_part moments[2];
    ls_safetensors model, rest;
    moments_of(optimizer, users, moments);
    LS_TRY(ls_path_join(ctx, model_path, PATH_BYTES, folder,
                        adapts ? LS_ADAPTER_WEIGHTS : model_file));
    LS_TRY(ls_path_join(ctx, optimizer_path, PATH_BYTES, folder, optimizer_file));
    LS_TRY(ls_safetensors_open(ctx, model_path, &model));
    ls_status status = ls_safetensors_open(ctx, optimizer_path, &rest);
    if (status == LS_OK) {
        status = ls_weights_check(ctx, &model, model_path, store, &weights, 1, NULL);
        if (status == LS_OK && adapts)
            status = ls_adapter_check_base(ctx, &model, model_path, &store->adapter);
        if (status == LS_OK)
            status = ls_weights_check(ctx, &rest, optimizer_path, store, moments, 2, NULL);
        /* from here on only want of memory for a device's copy, and a file that changes just now,
         * leave weights that are no checkpoint's */
        if (status == LS_OK) status = ls_weights_fill(&model, store, &weights, 1);
        if (status == LS_OK) status = ls_weights_fill(&rest, store, moments, 2);
        if (status == LS_OK) ls_parameters_round(store);
        ls_safetensors_close(ctx, &rest);
    }
    ls_safetensors_close(ctx, &model);
    return status;
}

/* One checkpoint, of which the first `needed` files are whole; with `optimizer` NULL it is only
 * verified. */
static ls_status read_step(ls_ctx *ctx, const char *folder, int64_t step, int needed,
                           ls_optimizer *optimizer, ls_checkpoint *out) {
    char here[PATH_BYTES], path[PATH_BYTES];
    bool has_memory = false;
    *out = (ls_checkpoint){0};
    ls_status status = step_path(ctx, folder, step, "", here);
    if (status == LS_OK) status = verify(ctx, here, step, needed, out, &has_memory);
    if (status != LS_OK || optimizer == NULL) return status;
    LS_TRY_GOTO(ls_path_join(ctx, path, sizeof path, here, state_file));
    LS_TRY_GOTO(ls_json_read(ctx, path, STATE_MAX, &out->state));
    if (!json_is_object(out->state)) {
        status = LS_FAIL(ctx, LS_EINPUT, "%s holds no object", path);
        goto fail;
    }
    if (has_memory) {
        LS_TRY_GOTO(ls_path_join(ctx, path, sizeof path, here, memory_file));
        LS_TRY_GOTO(ls_whole_read(ctx, path, true, &out->memory));
    }
    LS_TRY_GOTO(read_tensors(ctx, here, optimizer));
    return LS_OK;
fail:
    ls_checkpoint_clear(out);
    return status;
}

static ls_status read_newest(ls_ctx *ctx, const char *folder, int64_t every, int needed,
                             ls_optimizer *optimizer, ls_checkpoint *out, bool *found) {
    int64_t *steps;
    size_t count;
    *found = false;
    *out = (ls_checkpoint){0};
    LS_TRY(list_steps(ctx, folder, &steps, &count));
    size_t fitting = 0;
    for (size_t i = 0; i < count; i++)
        if (is_scheduled(steps[i], every)) steps[fitting++] = steps[i];
    count = fitting;
    ls_status status = LS_OK;
    char reason[sizeof ctx->error.message] = "";
    for (size_t i = 0; i < count && !*found; i++) {
        status = read_step(ctx, folder, steps[i], needed, optimizer, out);
        *found = status == LS_OK;
        if (*found || status == LS_ENOMEM || status == LS_ESTOP) break;
        /* weights that are only looked at are the newest or none: one that cannot be read now may
         * be whole; a run goes on from an older one, and comes to the same end */
        if (status == LS_EIO && optimizer == NULL) break;
        if (i == 0) memcpy(reason, ctx->error.message, sizeof reason);
        ls_say(ctx, "checkpoint of step %lld rejected: %s", (long long)steps[i],
               ctx->error.message);
        ctx->error = (ls_error){0};
    }
    ls_free(ctx, steps);
    if (*found || status == LS_ENOMEM || status == LS_ESTOP || count == 0) return status;
    if (status == LS_EIO && optimizer == NULL) return status;
    return LS_FAIL(ctx, LS_EINPUT, "none of the %zu checkpoints in %s is whole: %s", count, folder,
                   reason);
}

ls_status ls_checkpoint_load(ls_ctx *ctx, const char *folder, ls_optimizer *optimizer,
                             ls_checkpoint *out, bool *found) {
    return read_newest(ctx, folder, 0, FILES, optimizer, out, found);
}

ls_status ls_checkpoint_load_scheduled(ls_ctx *ctx, const char *folder, int64_t every,
                                       ls_optimizer *optimizer, ls_checkpoint *out, bool *found) {
    return read_newest(ctx, folder, every, FILES, optimizer, out, found);
}

ls_status ls_checkpoint_find(ls_ctx *ctx, const char *folder, char *path, size_t bytes,
                             int64_t *step) {
    ls_checkpoint about;
    bool found;
    char name[48];
    LS_TRY(read_newest(ctx, folder, 0, WEIGHTS_ALONE, NULL, &about, &found));
    if (!found) return LS_FAIL(ctx, LS_EINPUT, "%s has no checkpoint", folder);
    *step = about.step;
    snprintf(name, sizeof name, "%s%08lld", prefix, (long long)about.step);
    return ls_path_join(ctx, path, bytes, folder, name);
}

void ls_checkpoint_steps_line(const char *config, size_t length, const char **line,
                              const char **end) {
    static const char section[] = "\ntrain:\n", key[] = "  steps: ";
    const char *all = config + length;
    const char *at = memmem(config, length, section, sizeof section - 1), *next = all;
    if (at != NULL) at = memmem(at, (size_t)(all - at), key, sizeof key - 1);
    if (at != NULL) next = memchr(at, '\n', (size_t)(all - at));
    *line = at == NULL ? all : at;
    *end = next == NULL ? all : next;
}

uint64_t ls_checkpoint_rest_hash(const char *config, size_t length) {
    const char *line, *end;
    ls_checkpoint_steps_line(config, length, &line, &end);
    const uint64_t parts[2] = {ls_hash(config, (size_t)(line - config)),
                               ls_hash(end, (size_t)(config + length - end))};
    return ls_hash(parts, sizeof parts);
}

ls_status ls_checkpoint_edited(ls_ctx *ctx, const char *checkpoint, const char *config,
                               bool *edited) {
    char path[PATH_BYTES], hash[17], rest[17];
    const char *stored;
    json_t *manifest;
    ls_text text = {0};
    *edited = false;
    LS_TRY(ls_path_join(ctx, path, sizeof path, checkpoint, manifest_file));
    if (!ls_path_exists(path)) return LS_OK;
    LS_TRY(ls_json_read(ctx, path, MANIFEST_MAX, &manifest));
    ls_status status = ls_json_text(ctx, manifest, "config", path, &stored);
    if (status == LS_OK) status = ls_file_read(ctx, config, CONFIG_MAX, &text);
    if (status == LS_OK) {
        const char *but_steps = json_string_value(json_object_get(manifest, "config_but_steps"));
        print_hash(ls_hash(text.bytes, text.length), hash);
        print_hash(ls_checkpoint_rest_hash(text.bytes, text.length), rest);
        *edited = strcmp(hash, stored) != 0 && (but_steps == NULL || strcmp(rest, but_steps) != 0);
    }
    ls_text_clear(ctx, &text);
    json_decref(manifest);
    return status;
}

ls_status ls_checkpoint_refuse_edited(ls_ctx *ctx, const char *folder) {
    return LS_FAIL(ctx, LS_EINPUT,
                   "%s/config.yaml was changed after the training: its checksum is not the one in "
                   "the checkpoint's manifest. Undo the change; what an evaluation may differ in "
                   "goes on the command line (data.corpus=, extend=), and other settings take "
                   "these weights by train.from=%s",
                   folder, folder);
}

ls_status ls_checkpoint_verify(ls_ctx *ctx, const char *folder, int64_t step) {
    ls_checkpoint about;
    return read_step(ctx, folder, step, FILES, NULL, &about);
}

ls_status ls__checkpoint_verify_weights(ls_ctx *ctx, const char *folder, int64_t step) {
    ls_checkpoint about = {0};
    bool has_memory;
    return verify(ctx, folder, step, WEIGHTS_ALONE, &about, &has_memory);
}

ls_status ls_checkpoint_sweep(ls_ctx *ctx, const char *folder) {
    char **names;
    size_t count;
    if (!ls_path_is_folder(folder)) return LS_OK;
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        size_t length = strlen(names[i]), end = sizeof temporary - 1;
        char path[PATH_BYTES];
        if (length <= end || strcmp(names[i] + length - end, temporary) != 0 ||
            (strncmp(names[i], prefix, sizeof prefix - 1) != 0 &&
             strncmp(names[i], LS_CHECKPOINT_BEST, sizeof LS_CHECKPOINT_BEST - 1) != 0))
            continue;
        status = ls_path_join(ctx, path, sizeof path, folder, names[i]);
        if (status == LS_OK) status = ls_folder_remove(ctx, path);
    }
    ls_names_free(ctx, names, count);
    return status;
}
