/* The Long Range Arena: the test split of the task that a run was trained on.
 *
 * Six tasks, one class for each sample. A run knows one of them; its own task makes or reads the
 * samples (src/task), so training and test share their readers. ListOps, Pathfinder and Path-X are
 * made by the program, text, retrieval and image are read from the user's files. The last samples,
 * which LRA's own trainer drops where they fill no batch, are asked too. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/suite.h"
#include "task/task.h"

typedef struct arena {
    const char *task, *name;
    int64_t length;  /* of the arena; 0: any */
    int64_t samples; /* of its test split */
} arena;
static const arena arenas[] = {
    {"listops", "ListOps", 0, 2000},
    {"listops_file", "ListOps", 0, 2000},
    {"text", "Text", 0, 25000},
    {"documents", "Retrieval", 0, 17437},
    {"cifar", "Image", 0, 10000},
    {"pathfinder", "Pathfinder", 1024, 20000},
    {"pathfinder", "Path-X", 16384, 20000},
    {"pathfinder", "Pathfinder", 0, 20000},
};

typedef struct lra {
    ls_task task;
    const arena *what;
    int64_t length, batch;
    ls_program *program; /* of `batch` samples */
    int32_t *inputs;     /* [batch][inputs of a sample] */
    double *logits;      /* [batch][classes] */
} lra;

/* ---- opening ---- */

static ls_status find_arena(ls_suite *suite) {
    lra *own = suite->own;
    for (size_t i = 0; i < sizeof arenas / sizeof arenas[0]; i++)
        if (strcmp(arenas[i].task, own->task.type->name) == 0 &&
            (arenas[i].length == 0 || arenas[i].length == own->length)) {
            own->what = &arenas[i];
            return LS_OK;
        }
    return LS_FAIL(suite->ctx, LS_EUSE,
                   "the run was trained on task %s, which is none of the Long Range Arena's: "
                   "listops, listops_file, text, documents, cifar, pathfinder",
                   own->task.type->name);
}

static ls_status set_option(ls_suite *suite, const char *key, const char *value) {
    const ls_task *task = &((lra *)suite->own)->task;
    return ls_options_set(suite->ctx, &task->type->options, "task.", key, value, task->options);
}

/* The run's task, on the test split; suite.path in place of the files it was trained on. */
static ls_status read_task(ls_suite *suite) {
    lra *own = suite->own;
    ls_settings settings = {0};
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < suite->run->count; i++) {
        const ls_setting *item = &suite->run->items[i];
        if (strcmp(item->key, "task") == 0 || strncmp(item->key, "task.", 5) == 0)
            status = ls_settings_put(suite->ctx, &settings, item->key, item->value);
    }
    ls_settings_mark_optional(&settings);
    if (status == LS_OK) status = ls_task_read(suite->ctx, &settings, NULL, &own->task);
    ls_settings_clear(suite->ctx, &settings);
    LS_TRY(status);
    const bool path = suite->settings.path[0] != '\0', files = own->task.type->load != NULL;
    if (path && !files)
        return LS_FAIL(suite->ctx, LS_EUSE, "task %s is made by the program: leave suite.path out",
                       own->task.type->name);
    if (path) LS_TRY(set_option(suite, "path", suite->settings.path));
    return files ? set_option(suite, "split", "test") : LS_OK;
}

static ls_status open_suite(ls_suite *suite) {
    lra *own = suite->own;
    LS_TRY(read_task(suite));
    own->length = suite->model->config->trained_length;
    LS_TRY(find_arena(suite));
    LS_TRY(ls_task_check(suite->ctx, &own->task, own->length));
    LS_TRY(ls_task_open(suite->ctx, &own->task, LS_TASK_TEST, NULL));
    const int64_t stored = ls_task_stored(&own->task, LS_TASK_TEST);
    const int64_t all = stored > 0 ? stored : own->what->samples;
    suite->groups = suite->settings.samples > 0 ? suite->settings.samples : all;
    if (stored > 0) suite->groups = ls_min(suite->groups, stored);
    suite->lengths = ls_new(suite->ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t g = 0; g < suite->groups; g++) suite->lengths[g] = own->length;
    suite->chance = 1.0 / (double)own->task.type->classes;
    suite->measure = "the likeliest class is the right one";
    json_object_set_new(suite->notes, "task", json_string(own->task.type->name));
    json_object_set_new(suite->notes, "length", json_integer(own->length));
    json_object_set_new(suite->notes, "of the test split", json_integer(all));
    return LS_OK;
}

/* ---- asking ---- */

static ls_status make_program(ls_suite *suite, int64_t batch) {
    lra *own = suite->own;
    const ls_program_options options = {.batch = batch, .length = own->length};
    const size_t inputs = (size_t)(batch * ls_task_inputs(&own->task, own->length));
    if (own->program != NULL && own->batch == batch) return LS_OK;
    ls_program_free(own->program);
    ls_free(suite->ctx, own->inputs);
    ls_free(suite->ctx, own->logits);
    own->program = NULL;
    own->batch = batch;
    own->inputs = ls_new(suite->ctx, inputs, sizeof *own->inputs);
    own->logits =
        ls_new(suite->ctx, (size_t)(batch * own->task.type->classes), sizeof *own->logits);
    if (own->inputs == NULL || own->logits == NULL) return LS_ENOMEM;
    return ls_model_program(suite->model, LS_MODEL_LOGITS, options, &own->program);
}

static int64_t best_class(const double *logits, int64_t count) {
    int64_t best = 0;
    for (int64_t c = 1; c < count; c++)
        if (logits[c] > logits[best]) best = c;
    return best;
}

static json_t *record_of(const lra *own, int64_t number, int64_t row, int32_t label) {
    const int64_t classes = own->task.type->classes;
    const int64_t each = ls_task_inputs(&own->task, own->length);
    const int32_t *inputs = own->inputs + row * each;
    const int64_t said = best_class(own->logits + row * classes, classes);
    int64_t tokens = 0;
    char id[32], hash[20];
    for (int64_t t = 0; t < each; t++) tokens += inputs[t] >= 0;
    snprintf(id, sizeof id, "%lld", (long long)number);
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)ls_hash(inputs, (size_t)each * sizeof *inputs));
    return json_pack("{s:s, s:I, s:i, s:{s:s}, s:s, s:I, s:I, s:[i], s:{s:f}}", "id", id, "group",
                     (json_int_t)number, "of", 1, "cell", "task", own->what->name, "prompt", hash,
                     "tokens", (json_int_t)tokens, "prediction", (json_int_t)said, "references",
                     (int)label, "metrics", "score", (double)(said == label));
}

/* All samples of a batch; a shorter one repeats its last, so that one program serves. */
static ls_status answer(ls_suite *suite, const int64_t *numbers, int64_t count, int64_t batch,
                        json_t **records) {
    lra *own = suite->own;
    int32_t labels[LS_SUITE_BATCH_MAX];
    LS_TRY(make_program(suite, batch));
    const int64_t each = ls_task_inputs(&own->task, own->length);
#pragma omp parallel for schedule(dynamic) num_threads(suite->ctx->threads)
    for (int64_t row = 0; row < batch; row++)
        ls_task_sample(&own->task, LS_TASK_TEST, suite->seed, numbers[ls_min(row, count - 1)],
                       own->length, own->inputs + row * each, &labels[row]);
    LS_TRY(ls_model_put_tokens(suite->model, own->program, "tokens", own->inputs));
    LS_TRY(ls_program_run(own->program, NULL, 0, 0));
    LS_TRY(ls_model_read(own->program, "logits", own->logits));
    for (int64_t row = 0; row < count; row++) {
        records[row] = record_of(own, numbers[row], row, labels[row]);
        if (records[row] == NULL)
            return LS_FAIL(suite->ctx, LS_ENOMEM, "no memory for the samples");
    }
    return LS_OK;
}

static void clear(ls_suite *suite) {
    lra *own = suite->own;
    ls_program_free(own->program);
    ls_free(suite->ctx, own->inputs);
    ls_free(suite->ctx, own->logits);
    ls_task_clear(suite->ctx, &own->task);
}

const ls_suite_type ls_suite_lra = {
    .name = "lra",
    .summary = "the Long Range Arena's test split of the task that a run was trained on",
    .paper = "Tay et al. 2021 (Long Range Arena)",
    .likelihood = true,
    .batched = true,
    .size = sizeof(lra),
    .open = open_suite,
    .answer = answer,
    .clear = clear,
};
