#include "task/task.h"

#include <string.h>

#include "base/file.h"

enum { PATH_BYTES = 4096 };

#define FIELD(name) ls_task_settings, name
static const ls_option options[] = {
    LS_CHOICE("loss", FIELD(loss), "answers", "answers|all",
              "Tokens that training scores: the answers, or every next token too; tests score "
              "answers alone.",
              .needs = "training"),
    LS_INT("samples", FIELD(samples), "0", 0, 1e15,
           "Training samples, used again and again in new orders; 0: each is used once.",
           .needs = "training"),
};
const ls_option_table ls_task_options = LS_OPTIONS(options, ls_task_settings);

/* ---- choosing ---- */

static const char *task_name(const void *list, size_t index) {
    (void)list;
    return index < ls_task_count ? ls_task_types[index]->name : NULL;
}

static ls_status check_effects(ls_ctx *ctx, const ls_settings *settings, const char *section,
                               const ls_task_type *type, const ls_fact *facts,
                               const ls_task *task) {
    for (size_t i = 0; i < settings->count; i++) {
        ls_setting *setting = &settings->items[i];
        if (strncmp(setting->key, section, strlen(section)) != 0) continue;
        const char *key = setting->key + strlen(section);
        const bool common = ls_options_find(&ls_task_options, key) != NULL;
        const ls_option_table *table = common ? &ls_task_options : &type->options;
        LS_TRY(ls_setting_check_effect(ctx, settings, setting, ls_options_find(table, key), table,
                                       common ? (const void *)&task->settings : task->options,
                                       facts));
    }
    return LS_OK;
}

ls_status ls_task_read(ls_ctx *ctx, const ls_settings *settings, const ls_fact *facts,
                       ls_task *out) {
    const char *name = ls_settings_get(settings, "task");
    *out = (ls_task){0};
    LS_TRY(ls_options_default(ctx, &ls_task_options, &out->settings));
    if (name == NULL || name[0] == '\0') return LS_OK;
    return ls_task_read_named(ctx, settings, facts, name, "task.", out);
}

ls_status ls_task_read_named(ls_ctx *ctx, const ls_settings *settings, const ls_fact *facts,
                             const char *name, const char *section, ls_task *out) {
    const size_t prefix = strlen(section);
    size_t index;
    *out = (ls_task){0};
    LS_TRY(ls_options_default(ctx, &ls_task_options, &out->settings));
    LS_TRY(ls_name_find(ctx, "task", name, task_name, NULL, &index));
    const ls_task_type *type = ls_task_types[index];
    out->options = ls_new(ctx, 1, type->options.size + 1); /* a task may have no options */
    if (out->options == NULL) return LS_ENOMEM;
    LS_TRY(ls_options_default(ctx, &type->options, out->options));
    for (size_t i = 0; i < settings->count; i++) {
        ls_setting *setting = &settings->items[i];
        if (strncmp(setting->key, section, prefix) != 0) continue;
        const char *key = setting->key + prefix;
        bool common = ls_options_find(&ls_task_options, key) != NULL;
        LS_TRY(ls_options_set(ctx, common ? &ls_task_options : &type->options, section, key,
                              setting->value, common ? (void *)&out->settings : out->options));
        setting->used = true;
    }
    LS_TRY(check_effects(ctx, settings, section, type, facts, out));
    if (type->classes > 0 && out->settings.loss != 0)
        return LS_FAIL(ctx, LS_EUSE, "task %s asks for a class: task.loss=all has no meaning",
                       type->name);
    out->type = type;
    return LS_OK;
}

void ls_task_clear(ls_ctx *ctx, ls_task *task) {
    ls_records_free(ctx, task->records);
    ls_free(ctx, task->options);
    *task = (ls_task){0};
}

static void print_table(ls_ctx *ctx, const char *section, const ls_option_table *table,
                        const void *from, ls_text *out) {
    for (size_t i = 0; i < table->count; i++) {
        if (!ls_option_has_effect(&table->options[i], table, from, ls_training_facts)) continue;
        ls_text_printf(ctx, out, "%s%s: ", section, table->options[i].key);
        ls_option_print(ctx, &table->options[i], from, out);
        ls_text_append(ctx, out, "\n", 1);
    }
}

void ls_task_print(ls_ctx *ctx, const ls_task *task, ls_text *out) {
    ls_text_printf(ctx, out, "task: %s\n", task->type->name);
    ls_task_print_options(ctx, task, "task.", out);
}

void ls_task_print_options(ls_ctx *ctx, const ls_task *task, const char *section, ls_text *out) {
    print_table(ctx, section, &ls_task_options, &task->settings, out);
    print_table(ctx, section, &task->type->options, task->options, out);
}

ls_status ls_task_check(ls_ctx *ctx, const ls_task *task, int64_t length) {
    return task->type->check(ctx, task->options, length);
}

int64_t ls_task_vocabulary(const ls_task *task) {
    return task->type->vocabulary(task->options);
}

int64_t ls_task_inputs(const ls_task *task, int64_t length) {
    return task->type->pairs ? 2 * length : length;
}

int64_t ls_task_targets(const ls_task *task, int64_t length) {
    return task->type->classes > 0 ? 1 : length;
}

/* ---- files ---- */

static const ls_records_part *part_of(const ls_task *task, ls_task_set set) {
    const ls_records_settings *settings = task->options;
    return &task->records->parts[set == LS_TASK_TRAIN ? LS_RECORDS_TRAIN : settings->split];
}

ls_status ls_task_open(ls_ctx *ctx, ls_task *task, ls_task_set set, const char *run) {
    char path[PATH_BYTES];
    const ls_records_settings *settings = task->options;
    if (task->type->load == NULL) return LS_OK;
    if (settings->path[0] == '\0')
        return LS_FAIL(ctx, LS_EUSE,
                       "task %s reads files: say where they are with task.path=FOLDER",
                       task->type->name);
    LS_TRY(ls_path_find(ctx, settings->path, run, path, sizeof path));
    if (!ls_path_is_folder(path))
        return LS_FAIL(ctx, LS_EINPUT, "task.path: %s is not a folder", path);
    task->records = ls_new(ctx, 1, sizeof *task->records);
    if (task->records == NULL) return LS_ENOMEM;
    LS_TRY(task->type->load(ctx, path, task->records));
    LS_TRY(ls_records_hold_out(ctx, settings->holdout, task->records));
    const ls_records_part *part = part_of(task, set);
    if (part->count > 0) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "task %s finds no samples of the %s set in %s", task->type->name,
                   ls_records_part_name((int)(part - task->records->parts)), path);
}

int64_t ls_task_stored(const ls_task *task, ls_task_set set) {
    return task->records == NULL ? 0 : (int64_t)part_of(task, set)->count;
}

ls_status ls_task_hash(ls_ctx *ctx, const ls_task *task, ls_task_set set, uint64_t *out) {
    *out = 0;
    return task->records == NULL ? LS_OK : ls_records_hash(ctx, part_of(task, set), out);
}

static void encode_record(const ls_task *task, const ls_labelled *record, int64_t length,
                          int32_t *inputs, int32_t *targets) {
    for (int s = 0; s < (task->type->pairs ? 2 : 1); s++) {
        int32_t *out = inputs + s * length;
        for (int64_t t = task->type->encode(record->text[s], length, out); t < length; t++)
            out[t] = -1;
    }
    targets[0] = record->label;
}

/* Tests take the records in an order of the seed's, so that some of them are a fair sample. */
static void stored_sample(const ls_task *task, ls_task_set set, uint64_t seed, int64_t number,
                          int64_t length, int32_t *inputs, int32_t *targets) {
    const ls_records_part *part = part_of(task, set);
    uint64_t at = (uint64_t)number % part->count;
    if (set == LS_TASK_TEST)
        at = ls_random_permute((ls_random){.seed = seed, .stream = ls_stream_of("task test order")},
                               at, part->count);
    encode_record(task, &part->at[at], length, inputs, targets);
}

/* ---- samples ---- */

void ls_task_sample(const ls_task *task, ls_task_set set, uint64_t seed, int64_t number,
                    int64_t length, int32_t *inputs, int32_t *targets) {
    static const char *const names[] = {"task train", "task test"};
    if (task->records != NULL) {
        stored_sample(task, set, seed, number, length, inputs, targets);
        return;
    }
    uint32_t words[4];
    ls_random_block((ls_random){.seed = seed, .stream = ls_stream_of(names[set])}, (uint64_t)number,
                    words);
    /* 96 bits of the block are the sample's own key */
    const ls_random key = {.seed = (uint64_t)words[0] << 32 | words[1], .step = words[2]};
    for (int64_t t = 0; t < ls_task_targets(task, length); t++) targets[t] = -1;
    task->type->fill(task->options, key, length, inputs, targets);
    if (task->settings.loss == 0 || set != LS_TASK_TRAIN) return;
    for (int64_t t = 0; t + 1 < length; t++)
        if (targets[t] < 0) targets[t] = inputs[t + 1];
}

int64_t ls_task_training_samples(const ls_task *task) {
    const int64_t stored = ls_task_stored(task, LS_TASK_TRAIN), samples = task->settings.samples;
    return stored > 0 && (samples == 0 || samples > stored) ? stored : samples;
}

int64_t ls_task_training_number(const ls_task *task, uint64_t seed, int64_t place) {
    const int64_t samples = ls_task_training_samples(task);
    if (samples == 0) return place;
    const ls_random order = {
        .seed = seed, .stream = ls_stream_of("task order"), .step = (uint32_t)(place / samples)};
    return (int64_t)ls_random_permute(order, (uint64_t)(place % samples), (uint64_t)samples);
}

void ls_task_training_sample(const ls_task *task, uint64_t seed, int64_t place, int64_t length,
                             int32_t *inputs, int32_t *targets) {
    ls_task_sample(task, LS_TASK_TRAIN, seed, ls_task_training_number(task, seed, place), length,
                   inputs, targets);
}

/* ---- in two parts ---- */

ls_task_parts ls_task_parts_of(const ls_task *task, int64_t length) {
    if (task->type->first_answer == NULL) return (ls_task_parts){length, length};
    const int64_t source = task->type->first_answer(task->options, length);
    return (ls_task_parts){ls_max(source, 1), length - source}; /* a source may be all padding */
}

ls_status ls_task_parts_check(ls_ctx *ctx, const ls_task *task) {
    if (task->type->classes > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "task %s asks for a class: a model with an encoder answers with tokens",
                       task->type->name);
    if (task->settings.loss != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "task.loss=all scores what is read: a model with an encoder does not "
                       "predict its source");
    return LS_OK;
}

void ls_task_cut(ls_task_parts parts, int64_t length, const int32_t *inputs, const int32_t *targets,
                 int32_t *cut, int32_t *scored) {
    int64_t first = 0;
    while (first < length && targets[first] < 0) first++;
    for (int64_t t = 0; t < parts.source; t++) cut[t] = t < first ? inputs[t] : -1;
    for (int64_t t = 0; t < parts.rest; t++) {
        const bool there = first + t < length;
        cut[parts.source + t] = there ? inputs[first + t] : -1;
        scored[t] = there ? targets[first + t] : -1;
    }
}

/* ---- for tasks ---- */

ls_random ls_task_stream(ls_random key, const char *purpose) {
    key.stream = ls_stream_of(purpose);
    return key;
}

void ls_task_tokens(ls_random key, int64_t bound, int64_t count, int32_t *tokens) {
    uint32_t words[4] = {0};
    for (int64_t t = 0; t < count; t++) {
        if (t % 4 == 0) ls_random_block(key, (uint64_t)t / 4, words);
        tokens[t] = (int32_t)((uint64_t)words[t % 4] * (uint64_t)bound >> 32);
    }
}
