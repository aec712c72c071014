#include "train/training.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/lock.h"
#include "base/meter.h"
#include "base/temporary.h"
#include "tensor/engine/machine.h"
#include "train/adapter.h"
#include "train/leaves.h"
#include "train/lengths.h"
#include "train/link.h"
#include "train/objective.h"
#include "train/task_keys.h"
#include "train/trained.h"

/* ---- settings ---- */

static ls_status put_number(ls_training *t, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return ls_settings_put(t->ctx, t->given, key, text);
}

/* Keys of the model that are given though the checkpoint has none of these names. */
static void say_beside(const ls_training *t, const ls_settings *theirs, const char *from) {
    static const char *const sections[] = {"model.", "mixer.", "position."};
    for (size_t i = 0; i < t->given->count; i++)
        for (size_t j = 0; j < sizeof sections / sizeof sections[0]; j++) {
            const ls_setting *given = &t->given->items[i];
            if (strncmp(given->key, sections[j], strlen(sections[j])) != 0 ||
                ls_settings_has(theirs, given->key))
                continue;
            ls_say(t->ctx, "%s=%s is given beside what %s says", given->key, given->value, from);
        }
}

static bool is_extension(const char *key) {
    return strcmp(key, "extend") == 0 || strncmp(key, "extend.", 7) == 0;
}

static bool describes(const char *key) {
    static const char *const sections[] = {"model.", "mixer.", "position."};
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strncmp(key, sections[i], strlen(sections[i])) == 0) return true;
    return strcmp(key, "data.tokenizer") == 0;
}

/* A key that is given goes before what the checkpoint says. */
static ls_status take_key(ls_training *t, const ls_setting *item, const char *from) {
    const char *ours = ls_settings_get(t->given, item->key);
    if (ours != NULL) {
        if (strcmp(ours, item->value) != 0)
            ls_say(t->ctx, "%s=%s goes before the %s of %s", item->key, ours, item->value, from);
        return LS_OK;
    }
    LS_TRY(ls_settings_put(t->ctx, t->given, item->key, item->value));
    t->given->items[t->given->count - 1].optional = true;
    return LS_OK;
}

/* What the model that training goes on from does to its positions, with what is asked for. */
static ls_status take_extensions(ls_training *t, ls_trained *other) {
    ls_model_config theirs;
    const bool scaled = ls_settings_has(&other->settings, "extend");
    if (!scaled && !ls_settings_has(t->given, "extend")) return LS_OK;
    LS_TRY(ls_model_config_read(t->ctx, &other->settings, &theirs));
    t->extended_from = scaled ? theirs.model.length : theirs.trained_length;
    ls_model_config_clear(t->ctx, &theirs);
    LS_TRY(ls_trained_extend(other, t->given));
    ls_settings_remove(t->ctx, t->given, "extend");
    for (size_t i = 0; i < other->settings.count; i++) {
        const ls_setting *item = &other->settings.items[i];
        if (!is_extension(item->key)) continue;
        LS_TRY(ls_settings_copy(t->ctx, t->given, item));
    }
    return LS_OK;
}

/* A public checkpoint describes the model; so does a run whose positions are extended or whose
 * weights are adapted. Its tokenizer is used. Any run says what length its weights were made for,
 * which a length that is only trained on leaves as it is. */
static ls_status take_model(ls_training *t, ls_trained *other, const char *from) {
    const ls_settings *theirs = &other->settings;
    const bool public = other->family.type != NULL;
    const bool described = public || ls_settings_has(t->given, "extend") ||
                           ls_settings_has(theirs, "extend") ||
                           ls_settings_has(t->given, "train.lora.rank");
    if (public) say_beside(t, theirs, from);
    const bool longer =
        ls_settings_has(t->given, "train.length") && !ls_settings_has(t->given, "model.length");
    for (size_t i = 0; i < theirs->count; i++) {
        const char *key = theirs->items[i].key;
        if ((described && !is_extension(key) && (public || describes(key))) ||
            (longer && strcmp(key, "model.length") == 0))
            LS_TRY(take_key(t, &theirs->items[i], from));
    }
    return take_extensions(t, other);
}

/* Paths lead from above the run's folder too, where there is one. */
static const char *run_of(const ls_training *t) {
    return t->paths != NULL ? t->paths : t->folder;
}

/* train.from with a public checkpoint, or a run. */
static ls_status take_from(ls_training *t, bool rough) {
    const char *given = ls_settings_get(t->given, "train.from");
    char from[LS_TRAINED_PATH];
    ls_trained other = {0};
    if (given == NULL || given[0] == '\0') return LS_OK;
    LS_TRY(ls_path_find(t->ctx, given, run_of(t), from, sizeof from));
    if (!ls_path_exists(from) && (rough || !ls_settings_has(t->given, "extend")))
        return LS_OK; /* said where weights are needed */
    ls_status status = ls_trained_find(t->ctx, from, &other);
    if (status == LS_OK) status = take_model(t, &other, from);
    if (status == LS_OK && other.family.note[0] != '\0')
        ls_say(t->ctx, "%s: %s", from, other.family.note);
    ls_trained_clear(&other);
    return status;
}

ls_status ls_training_check_extensions(ls_ctx *ctx, const ls_settings *given,
                                       const ls_position *position) {
    const char *from = ls_settings_get(given, "train.from");
    if (from != NULL && from[0] != '\0') return LS_OK;
    for (int i = 0; i < position->extensions; i++) {
        const ls_extension_type *type = position->extension[i].type;
        if (type->training || type->draw != NULL || type->prepare != NULL || type->marks != NULL)
            continue;
        return LS_FAIL(
            ctx, LS_EUSE,
            "extend=%s extends a trained model: name one by train.from=PATH, or use it at "
            "test, longshot eval RUN extend=%s",
            type->name, type->name);
    }
    return LS_OK;
}

/* runs/MIXER-POSITION, with all mixers of a hybrid and after the task. */
static void name_folder(ls_training *t) {
    const ls_model_config *model = &t->settings.model;
    const ls_task_type *task = t->settings.task.type;
    char *out = t->folder;
    size_t used = (size_t)snprintf(out, sizeof t->folder, "runs/%s%s",
                                   task == NULL ? "" : task->name, task == NULL ? "" : "-");
    for (int i = 0; i < model->mixers && used < 400; i++)
        used += (size_t)snprintf(out + used, sizeof t->folder - used, "%s%.24s", i == 0 ? "" : "+",
                                 model->mixer[i].name);
    snprintf(out + used, sizeof t->folder - used, "-%.64s", model->position.type->name);
}

/* What acts on positions in training is measured by the length the model had before, and what is
 * put behind it at test by the model's own. */
static ls_status read_model(ls_training *t) {
    ls_model_config *model = &t->settings.model;
    ls_position *position = &model->position;
    LS_TRY(ls_model_config_read(t->ctx, t->given, model));
    LS_TRY(ls_training_check_extensions(t->ctx, t->given, position));
    if (position->extensions > 0) position->trained_length = model->model.length;
    for (int i = 0; i < position->extensions; i++)
        if (position->extension[i].trained_length == 0 && t->extended_from != model->model.length)
            position->extension[i].trained_length = t->extended_from;
    return LS_OK;
}

static ls_status read_section(ls_training *t, const char *section, const ls_option_table *table,
                              void *into) {
    LS_TRY(ls_options_default(t->ctx, table, into));
    return ls_settings_apply(t->ctx, t->given, section, table, ls_training_facts, into);
}

/* Documents for validation and steps to look at them belong together. */
static ls_status check_validation(const ls_training *t) {
    const ls_train_settings *train = &t->settings.train;
    const bool task = t->settings.task.type != NULL, has = ls_data_validates(&t->settings.data);
    if (train->validate_every == 0)
        return task || !has ? LS_OK
                            : LS_FAIL(t->ctx, LS_EUSE,
                                      "data.validation has no effect without train.validate_every");
    if (!task && !has)
        return LS_FAIL(t->ctx, LS_EUSE,
                       "train.validate_every needs documents: data.validation=PATH, or a "
                       "data.validation_share such as 0.05");
    if (train->validate_every > train->steps)
        return LS_FAIL(t->ctx, LS_EUSE,
                       "train.validate_every=%" PRId64 " is never reached in %" PRId64 " steps",
                       train->validate_every, train->steps);
    return LS_OK;
}

/* A state is carried where rows go on in a text, and as far as a second batch. */
static ls_status check_carry(const ls_training *t) {
    const ls_train_settings *train = &t->settings.train;
    if (train->carry == 0) return LS_OK;
    if (t->settings.task.type != NULL)
        return LS_FAIL(t->ctx, LS_EUSE,
                       "train.carry has no effect: every sample of task %s begins anew",
                       t->settings.task.type->name);
    if (t->settings.data.loader != LS_LOADER_STREAM)
        return LS_FAIL(t->ctx, LS_EUSE,
                       "train.carry has no effect here: it needs data.loader=stream");
    if (train->carry / 2 < train->length)
        return LS_FAIL(t->ctx, LS_EUSE,
                       "train.carry=%" PRId64 " has no effect: state is carried from batch to "
                       "batch, so it takes two train.length of %" PRId64 " at least",
                       train->carry, train->length);
    return LS_OK;
}

static bool is_first(const ls_training *t) {
    return t->ranks == NULL || t->ranks->rank == 0;
}

/* Leaves of a run that goes on, as its folder says; 0: it says nothing. */
static ls_status kept_shards(ls_training *t, int64_t *out) {
    char path[LS_OPTION_TEXT_BYTES + 16];
    ls_train_settings train;
    ls_settings kept = {0};
    *out = 0;
    snprintf(path, sizeof path, "%s/config.yaml", t->folder);
    if (!ls_path_exists(path)) return LS_OK;
    ls_status status = ls_settings_read(t->ctx, &kept, path);
    if (status == LS_OK) status = ls_options_default(t->ctx, &ls_train_options, &train);
    if (status == LS_OK)
        status = ls_settings_apply(t->ctx, &kept, "train", &ls_train_options, NULL, &train);
    if (status == LS_OK) *out = train.shards;
    ls_settings_clear(t->ctx, &kept);
    if (status == LS_ENOMEM) return status;
    t->ctx->error = (ls_error){0}; /* what cannot be read is another run's: training will say so */
    return LS_OK;
}

/* Where train.shards is not given: as the run began, or as ranks begin one. Rank 0 decides, and
 * says so in any case: another may have been given it alone, and recipes are compared later. */
static ls_status settle_shards(ls_training *t) {
    enum { USUAL = 8 };
    ls_train_settings *train = &t->settings.train;
    const bool launched = t->ranks != NULL && (t->ranks->launched || t->ranks->size > 1);
    const bool given = ls_settings_get(t->given, "train.shards") != NULL;
    int64_t shards = given ? train->shards : 0;
    if (!given && is_first(t)) LS_TRY(kept_shards(t, &shards));
    if (shards == 0 && launched)
        for (shards = ls_max(1, USUAL / train->context);
             train->batch % (shards * train->accumulate) != 0 && shards > 1;)
            shards /= 2;
    if (t->ranks != NULL && t->ranks->transport != NULL)
        LS_TRY(ls_ranks_broadcast(t->ctx, t->ranks, &shards, sizeof shards));
    if (shards > 0 && !given) train->shards = shards;
    return ls_leaves_check(t->ctx, train->shards, train->context, t->ranks);
}

ls_status ls_training_read(ls_ctx *ctx, const ls_training_request *request, ls_training *out) {
    ls_run_settings *settings = &out->settings;
    *out =
        (ls_training){.ctx = ctx, .given = request->settings, .cache = request->cache, .lock = -1};
    out->ranks = request->ranks;
    out->resolved = request->resolved;
    out->paths = request->paths;
    if (strlen(request->folder) >= sizeof out->folder)
        return LS_FAIL(ctx, LS_EUSE, "the path %.40s... is too long", request->folder);
    snprintf(out->folder, sizeof out->folder, "%s", request->folder);
    /* what a run has settled holds what it took from the checkpoint it went on from */
    if (!request->resolved) LS_TRY(take_from(out, ctx->rehearsal || request->rough));
    LS_TRY(ls_task_read(ctx, out->given, ls_training_facts, &settings->task));
    if (settings->task.type != NULL) LS_TRY(ls_task_settle(ctx, &settings->task, out->given));
    LS_TRY(ls_lengths_settle(ctx, &settings->task, out->given));
    LS_TRY(ls_options_default(ctx, &ls_data_options, &settings->data));
    LS_TRY(ls_data_read(ctx, out->given, ls_training_facts, &settings->data));
    LS_TRY(ls_mixture_read(ctx, out->given, settings->data.mix, &settings->mixture));
    LS_TRY(read_model(out));
    if (!request->resolved) LS_TRY(ls_lengths_check(ctx, out->given, &settings->model));
    if (ls_settings_get(out->given, "train.length") == NULL)
        LS_TRY(put_number(out, "train.length", settings->model.model.length));
    if (ls_settings_get(out->given, "train.seed") == NULL)
        LS_TRY(put_number(out, "train.seed", request->seed));
    LS_TRY(read_section(out, "train", &ls_train_options, &settings->train));
    LS_TRY(check_validation(out));
    if (!request->resolved) LS_TRY(check_carry(out));
    if (request->folder[0] == '\0') name_folder(out);
    return settle_shards(out);
}

/* ---- data ---- */

/* Samples that neither training nor tests draw. */
static ls_status open_task_validation(ls_training *t, ls_train_job *job) {
    const ls_train_settings *train = &t->settings.train;
    if (train->validate_every == 0) return LS_OK;
    if (ls_task_stored(&t->settings.task, LS_TASK_TEST) > 0 || t->settings.task.type->load != NULL)
        return LS_FAIL(t->ctx, LS_EUSE,
                       "train.validate_every: the samples of task %s are read from files, of which "
                       "none are for validation",
                       t->settings.task.type->name);
    if (train->validate_tokens == 0)
        return LS_FAIL(t->ctx, LS_EUSE,
                       "train.validate_tokens=0: a task has no last sample; say how many tokens");
    t->held_out = t->batches;
    t->held_out.kept = NULL;
    t->held_out.held_out = true;
    t->held_out.batch = train->batch / ls_train_parts(train);
    t->held_out.seed = ls_hash("validation", strlen("validation"));
    job->validation_rows = ls_ceil_div(train->validate_tokens, train->length);
    return ls_train_source_of_task(t->ctx, &t->held_out, t->settings.model.model.vocabulary,
                                   &job->validation_source);
}

static ls_status open_task(ls_training *t, ls_train_job *job) {
    const ls_train_settings *train = &t->settings.train;
    LS_TRY(ls_task_open(t->ctx, &t->settings.task, LS_TASK_TRAIN, run_of(t)));
    t->batches = (ls_task_batches){.task = &t->settings.task,
                                   .batch = train->batch,
                                   .length = train->length,
                                   .threads = t->ctx->threads,
                                   .seed = (uint64_t)train->seed};
    if (t->settings.model.encoder_layers > 0) {
        const size_t room = (size_t)(2 * train->batch * train->length);
        t->batches.whole = ls_new(t->ctx, room, sizeof *t->batches.whole);
        if (t->batches.whole == NULL) return LS_ENOMEM;
    }
    const size_t kept = ls_task_kept_bytes(&t->batches);
    if (kept > 0) {
        t->batches.kept = ls_new(t->ctx, kept, 1);
        if (t->batches.kept == NULL) return LS_ENOMEM;
    }
    LS_TRY(ls_train_source_of_task(t->ctx, &t->batches, t->settings.model.model.vocabulary,
                                   &job->source));
    return open_task_validation(t, job);
}

/* Which token masks others is the tokenizer's to say, where the settings do not. */
static ls_status settle_mask(ls_training *t) {
    ls_model_settings *model = &t->settings.model.model;
    int32_t mask;
    if (model->head != LS_HEAD_MASKED || model->mask_token >= 0) return LS_OK;
    LS_TRY(ls_objective_mask_of(t->ctx, t->data.tokenizer, &mask));
    model->mask_token = mask;
    return LS_OK;
}

/* Windows as in training, but each on its own. */
static ls_status open_validation(ls_training *t) {
    const ls_train_settings *train = &t->settings.train;
    const ls_loader_settings windows = {.kind = LS_LOADER_SHUFFLED,
                                        .borders = t->settings.data.borders,
                                        .batch = ls_max(1, train->batch / ls_train_parts(train)),
                                        .length = train->length};
    if (train->validate_every == 0) return LS_OK;
    if (ls_token_file_documents(t->data.validation) == 0)
        return LS_FAIL(t->ctx, LS_EINPUT,
                       "the corpus is too small for a data.validation_share: give data.validation");
    return ls_loader_new(t->ctx, t->data.validation, windows, &t->validation);
}

/* The tokenizer decides the vocabulary, so the model is described again once it is known. */
static ls_status open_corpus(ls_training *t) {
    ls_ctx *ctx = t->ctx;
    ls_model_config *model = &t->settings.model;
    const ls_train_settings *train = &t->settings.train;
    LS_TRY(ls_data_open(ctx, &t->settings.data, t->cache, run_of(t), &t->data));
    int64_t has = ls_tokenizer_vocabulary(t->data.tokenizer);
    if (model->model.vocabulary != 0 && model->model.vocabulary < has)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.vocabulary=%" PRId64 " is too small: the tokenizer has %" PRId64
                       " ids",
                       model->model.vocabulary, has);
    if (model->model.vocabulary == 0) {
        ls_model_config_clear(ctx, model);
        LS_TRY(put_number(t, "model.vocabulary", has));
        LS_TRY(read_model(t));
    }
    LS_TRY(settle_mask(t));
    for (size_t i = 0; i < t->data.part_count; i++) {
        const ls_data_settings *data = &t->settings.data;
        const int64_t tokens = ls_token_file_tokens(t->data.parts[i]);
        if (tokens < train->length)
            return LS_FAIL(
                ctx, LS_EINPUT,
                "the training text of %s has %" PRId64 " tokens: too few for one sequence "
                "of train.length=%" PRId64,
                data->train[0] != '\0' ? data->train : data->corpus, tokens, train->length);
    }
    LS_TRY(open_validation(t));
    return ls_data_loader(ctx, &t->data, &t->settings.data, train->batch,
                          train->length * ls_position_text(&model->position), (uint64_t)train->seed,
                          &t->loader);
}

/* Samples of tasks are whole: they begin anew, and are read from left to right. */
static ls_status mix(ls_training *t, ls_train_source *out) {
    const ls_model_settings *model = &t->settings.model.model;
    const ls_train_settings *train = &t->settings.train;
    if (model->head != LS_HEAD_LM || t->settings.model.encoder_layers > 0)
        return LS_FAIL(t->ctx, LS_EUSE, "data.mix is for language models without an encoder");
    if (train->carry > 0 || t->settings.data.loader != LS_LOADER_SHUFFLED)
        return LS_FAIL(t->ctx, LS_EUSE,
                       "data.mix needs data.loader=shuffled and no train.carry: samples of tasks "
                       "do not go on where others ended");
    const ls_train_source corpus = ls_train_source_of(t->loader, model->vocabulary);
    return ls_mixture_open(t->ctx, &t->settings.mixture, &corpus, t->data.tokenizer, train, out);
}

/* ---- the run ---- */

/* The run or public checkpoint that weights are of. */
static ls_status find_weights(const ls_training *t, const char *given, ls_trained *out) {
    char path[LS_TRAINED_PATH];
    *out = (ls_trained){0};
    LS_TRY(ls_path_find(t->ctx, given, run_of(t), path, sizeof path));
    return ls_trained_find(t->ctx, path, out);
}

/* An adapter stands beside the weights of train.from, also when its training goes on. */
static ls_status begin_with_base(ls_training *t) {
    ls_ctx *ctx = t->ctx;
    ls_adapter *adapter = &t->model->store->adapter;
    ls_parameters part;
    ls_trained other;
    if (t->settings.train.from_part)
        return LS_FAIL(ctx, LS_EUSE, "train.from_part: an adapter needs all weights of train.from");
    LS_TRY(ls_parameters_part(t->model->store, LS_PART_BASE, &part));
    ls_model base = *t->model;
    base.store = &part;
    ls_status status = find_weights(t, adapter->base, &other);
    if (status == LS_OK) status = ls_trained_load(&other, &base, NULL);
    ls_trained_clear(&other);
    if (status == LS_OK) status = ls_adapter_hash(t->model->store, &adapter->base_hash);
    ls_free(ctx, part.items);
    return status;
}

static ls_status make_model(ls_training *t) {
    const ls_train_settings *train = &t->settings.train;
    const ls_adapter adapter = ls_train_adapter(train);
    const uint64_t seed = (uint64_t)train->seed;
    const ls_dtype type = ls_train_dtype(train);
    if (adapter.rank == 0)
        return ls_model_new(t->ctx, &t->settings.model, type, seed, false, &t->model);
    return ls_model_adapt(t->ctx, &t->settings.model, type, seed, &adapter, &t->model);
}

/* train.from: another run's weights, or public ones, unless this one has a checkpoint of its
 * own. */
static ls_status begin_with_weights(ls_training *t) {
    ls_ctx *ctx = t->ctx;
    const ls_train_settings *train = &t->settings.train;
    ls_trained other;
    if (train->lora_rank > 0) return begin_with_base(t);
    if (train->from[0] == '\0' || ls_run_folder_begun(ctx, t->folder)) return LS_OK;
    ls_status status = find_weights(t, train->from, &other);
    size_t missing = 0, all = t->model->store->count;
    if (status == LS_OK)
        status = ls_trained_load(&other, t->model, train->from_part ? &missing : NULL);
    ls_trained_clear(&other);
    if (status == LS_OK && missing == all)
        return LS_FAIL(ctx, LS_EUSE, "%s has none of this model's weights", train->from);
    if (status == LS_OK && missing > 0)
        ls_say(ctx, "%zu of %zu tensors are not in %s: they are drawn", missing, all, train->from);
    return status;
}

static ls_status make_folder(ls_training *t) {
    if (t->data.train != NULL)
        ls_say(t->ctx, "%s: %" PRId64 " training tokens", t->folder, ls_data_tokens(&t->data));
    LS_TRY(ls_folder_make(t->ctx, t->folder));
    LS_TRY(ls_lock_take(t->ctx, t->folder, false, &t->lock));
    LS_TRY(ls_temporaries_sweep(t->ctx, t->folder, ls_is_temporary));
    if (t->data.tokenizer != NULL)
        LS_TRY(ls_run_folder_tokenizer(t->ctx, t->folder, t->data.tokenizer));
    return ls_run_folder_environment(t->ctx, t->folder);
}

/* The machine's peak, for the share of it that metrics show. Measuring takes some 1e11 operations:
 * a run that is smaller goes without. It is rehearsed as well: a small model takes less than it. */
static ls_status find_peak(const ls_training *t, double *out) {
    const ls_train_settings *train = &t->settings.train;
    const double tokens = (double)train->steps * (double)train->batch * (double)train->length;
    *out = 0;
    if (6 * tokens * (double)ls_parameters_elements(t->model->store) < 1e11) return LS_OK;
    return ls_machine_peak(t->ctx, ls_train_dtype(train), out);
}

static ls_status check_matmul(const ls_training *t) {
    if (t->settings.train.matmul != LS_TRAIN_MATMUL_TF32 || t->ctx->device != NULL) return LS_OK;
    return LS_FAIL(t->ctx, LS_EUSE,
                   "train.matmul=tf32 is for device=cuda: the processor's products in f32 are "
                   "exact");
}

/* What each rank was told to do, before any of them begins. */
static ls_status compare_recipes(ls_training *t) {
    ls_text text = {0};
    if (t->ranks == NULL || t->ranks->transport == NULL) return LS_OK;
    ls_status status = ls_run_folder_print(t->ctx, &t->settings, &text);
    const uint64_t hash = status == LS_OK ? ls_hash(text.bytes, text.length) : 0;
    ls_text_clear(t->ctx, &text);
    return status == LS_OK ? ls_ranks_compare(t->ctx, t->ranks, hash, "another recipe") : status;
}

/* Rank 0 first: what it makes of a corpus in a cache that they share is there for the others. */
static ls_status open_data(ls_training *t, ls_train_job *job) {
    const bool corpus = t->settings.task.type == NULL;
    const bool several = t->ranks != NULL && t->ranks->transport != NULL;
    uint8_t opened = 1;
    if (several && !is_first(t)) LS_TRY(ls_ranks_broadcast(t->ctx, t->ranks, &opened, 1));
    LS_TRY(corpus ? open_corpus(t) : open_task(t, job));
    return several && is_first(t) ? ls_ranks_broadcast(t->ctx, t->ranks, &opened, 1) : LS_OK;
}

static ls_status train(ls_training *t, const ls_training_hooks *hooks, ls_train_result *result) {
    ls_ctx *ctx = t->ctx;
    const ls_train_settings *train = &t->settings.train;
    const bool corpus = t->settings.task.type == NULL, mixed = t->settings.mixture.count > 0;
    ls_train_job job = {.folder = t->folder,
                        .settings = train,
                        .ranks = t->ranks,
                        .stop = hooks->stop,
                        .trial = hooks->trial,
                        .step = hooks->step,
                        .progress = hooks->progress,
                        .user = hooks->user};
    LS_TRY(open_data(t, &job));
    if (mixed) LS_TRY(mix(t, &job.source));
    job.validation_loader = t->validation;
    LS_TRY(is_first(t) ? ls_run_folder_config(ctx, t->folder, &t->settings, &t->config)
                       : ls_run_folder_print(ctx, &t->settings, &t->config));
    LS_TRY(make_model(t));
    const bool runs = !ctx->rehearsal && !hooks->trial;
    if (runs && is_first(t)) {
        LS_TRY(begin_with_weights(t));
        LS_TRY(make_folder(t));
    }
    job.peak = hooks->peak;
    if (job.peak == 0 && !hooks->trial && is_first(t)) LS_TRY(find_peak(t, &job.peak));
    job.config = t->config.bytes;
    return corpus ? ls_train_model(ctx, t->model, t->loader, &job, result)
                  : ls_train_model_on(ctx, t->model, &job, result);
}

ls_status ls_training_run(ls_training *t, const ls_training_hooks *hooks, ls_train_result *result) {
    *result = (ls_train_result){0};
    LS_TRY(check_matmul(t));
    LS_TRY(compare_recipes(t));
    const bool runs = !t->ctx->rehearsal && !hooks->trial;
    ls_status status = runs ? ls_link_open(t->ctx, t->ranks) : LS_OK;
    if (status == LS_OK) status = train(t, hooks, result);
    ls_link_close(t->ctx, t->ranks, status);
    return status;
}

json_t *ls_training_json(const ls_training *t, const ls_train_result *result) {
    json_t *json = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "folder", t->folder,
                             "parameters", (json_int_t)ls_parameters_elements(t->model->store),
                             "resumed", (json_int_t)result->resumed, "step",
                             (json_int_t)result->step, "tokens", (json_int_t)result->tokens,
                             "rejected", (json_int_t)result->rejected, "loss", result->loss);
    if (result->best_step > 0)
        json_object_set_new(json, "validation",
                            json_pack("{s:I, s:f, s:b}", "step", (json_int_t)result->best_step,
                                      "loss", result->best_loss, "ended_early",
                                      (int)result->ended_early));
    return json;
}

void ls_training_clear(ls_training *t) {
    ls_lock_give(t->lock);
    ls_loader_free(t->ctx, t->loader);
    ls_loader_free(t->ctx, t->validation);
    ls_model_free(t->model);
    ls_mixture_clear(t->ctx, &t->settings.mixture); /* borrows the tokenizer */
    ls_data_close(t->ctx, &t->data);
    ls_free(t->ctx, t->batches.whole);
    ls_free(t->ctx, t->batches.kept);
    ls_text_clear(t->ctx, &t->config);
    ls_run_settings_clear(t->ctx, &t->settings);
    *t = (ls_training){.ctx = t->ctx, .lock = -1};
}

static ls_status rehearse(ls_ctx *ctx, const ls_training_request *request, ls_training *training,
                          ls_training_cost *out) {
    const ls_training_hooks hooks = {0};
    ls_train_result result;
    LS_TRY(ls_training_read(ctx, request, training));
    LS_TRY(ls_training_run(training, &hooks, &result));
    const ls_train_settings *train = &training->settings.train;
    *out = (ls_training_cost){.parameters = ls_parameters_elements(training->model->store),
                              .trained = ls_parameters_trained(training->model->store),
                              .tokens = train->steps * train->batch * train->length,
                              .layers_fp8 = result.layers_fp8,
                              .layers = result.layers,
                              .leaves = train->shards * train->context};
    return LS_OK;
}

ls_status ls_training_rehearse(ls_ctx *ctx, const ls_training_request *request,
                               ls_training_cost *out) {
    ls_meter meter;
    ls_ctx metered = ls_meter_of(ctx, true, &meter);
    ls_training training = {0};
    ls_settings copy = {0}; /* what they leave open is put into them, with the metered memory */
    ls_training_request same = *request;
    ls_status status = LS_OK;
    metered.log = NULL;
    same.settings = &copy;
    for (size_t i = 0; status == LS_OK && i < request->settings->count; i++)
        status = ls_settings_copy(&metered, &copy, &request->settings->items[i]);
    if (status == LS_OK) status = rehearse(&metered, &same, &training, out);
    for (size_t i = 0; i < request->settings->count && i < copy.count; i++)
        if (ls_settings_is_used(&copy, request->settings->items[i].key))
            request->settings->items[i].used = true;
    if (training.ctx != NULL) ls_training_clear(&training);
    ls_settings_clear(&metered, &copy);
    if (status != LS_OK && ctx->error.code == LS_OK) ctx->error = metered.error;
    out->bytes = meter.peak;
    return status;
}

ls_status ls_training_foresee(ls_ctx *ctx, const ls_training_request *request,
                              ls_training_forecast *out) {
    ls_training_request same = *request;
    ls_ranks ranks = ls_ranks_alone();
    *out = (ls_training_forecast){0};
    ranks.launched = request->ranks->launched; /* which decides the number of leaves */
    same.ranks = &ranks;
    LS_TRY(ls_training_rehearse(ctx, &same, &out->alone));
    for (int size = 2; size <= out->alone.leaves && out->counts < LS_RANKS_SAID; size *= 2) {
        ls_training_cost cost;
        ranks = ls_ranks_imagined(0, size);
        LS_TRY(ls_training_rehearse(ctx, &same, &cost));
        out->sent[out->counts] = ranks.bytes;
        out->bytes[out->counts++] = cost.bytes;
    }
    return LS_OK;
}
