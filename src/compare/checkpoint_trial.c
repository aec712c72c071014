/* A public checkpoint against the values that its own code gave: logits of several cases, the loss
 * of the first and its gradients, and what follows greedily.
 *
 * The file has for each case X: X.input_ids [B,T], X.attention_mask (1: a token; absent: all are)
 * and X.logits64 or X.logits, or X.hidden64 or X.hidden of a model without a head; of a model with
 * an encoder X.decoder_input_ids too; of others X.token_type_ids and X.global_attention_mask where
 * they have such. Beside them labels (-100: not counted), loss and grad.NAME of case a, and greedy
 * [1,n], whose first tokens are those of case a, or of a decoder its first; and row0.NAME, the
 * first values of a tensor, to be equal. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/checkpoint_case.h"
#include "compare/comparer.h"
#include "compare/comparison.h"
#include "model/family.h"

enum { GREEDY_PROMPT = 6 };

typedef struct checkpoint_trial {
    ls_ctx *ctx;
    const ls_compare_keys *keys;
    ls_safetensors file;
    bool file_open;
    ls_family family;
    ls_model_config config;
    ls_model *model;
    double loss; /* mean of case a */
} checkpoint_trial;

/* ---- reading ---- */

static ls_status read(ls_comparer *comparer) {
    checkpoint_trial *trial = comparer->own;
    *trial = (checkpoint_trial){.ctx = comparer->ctx, .keys = comparer->keys};
    LS_TRY(ls_compare_needs_golden(comparer));
    LS_TRY(ls_family_open(trial->ctx, trial->keys->from, &trial->family));
    if (trial->family.note[0] != '\0')
        ls_say(trial->ctx, "%s: %s", trial->keys->from, trial->family.note);
    LS_TRY(ls_safetensors_open(trial->ctx, trial->keys->golden, &trial->file));
    trial->file_open = true;
    for (size_t i = 0; i < trial->file.count; i++)
        if (!ls_checkpoint_case_knows(trial->file.items[i].name))
            return LS_FAIL(trial->ctx, LS_EINPUT, "%s: it is not known what %s is",
                           trial->keys->golden, trial->file.items[i].name);
    return ls_model_config_read(trial->ctx, &trial->family.settings, &trial->config);
}

/* ---- computing ---- */

static ls_status put_weights(const checkpoint_trial *trial, ls_program *program,
                             const ls_checkpoint_run *row, int64_t counted) {
    const ls_tensor *tensor = ls_program_find(program, "weights");
    if (tensor == NULL) return LS_FAIL(trial->ctx, LS_EBUG, "the program has no input weights");
    const int64_t cells = row->rows * row->count;
    void *values = ls_new(trial->ctx, (size_t)cells, ls_dtype_size(tensor->type));
    if (values == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < cells; i++)
        ls_element_set(values, tensor->type, i, row->targets[i] < 0 ? 0 : 1 / (double)counted);
    ls_tensor_put(program, tensor, values);
    ls_free(trial->ctx, values);
    return LS_OK;
}

/* Gradients begin nowhere but at the loss. */
static ls_status clear_cotangents(const checkpoint_trial *trial, ls_program *program) {
    const char *name;
    for (size_t i = 0; (name = ls_program_name_at(program, i)) != NULL; i++) {
        if (ls_name_after(name, "cot.") == NULL) continue;
        const ls_tensor *tensor = ls_program_find(program, name);
        void *zeros = ls_new(trial->ctx, (size_t)ls_count(tensor), ls_dtype_size(tensor->type));
        if (zeros == NULL) return LS_ENOMEM;
        ls_tensor_put(program, tensor, zeros);
        ls_free(trial->ctx, zeros);
    }
    return LS_OK;
}

/* What a kept tensor has for each token, to the token's place in the case. */
static ls_status read_rows(const ls_program *program, const char *name,
                           const ls_checkpoint_run *run, int64_t width, double *scratch,
                           double *out) {
    if (ls_program_find(program, name) == NULL) return LS_OK; /* a model without a head */
    LS_TRY(ls_model_read(program, name, scratch));
    for (int64_t i = 0; i < run->rows * run->count; i++)
        if (run->at[i] >= 0)
            memcpy(out + run->at[i] * width, scratch + i * width, (size_t)width * sizeof *scratch);
    return LS_OK;
}

static ls_status put_inputs(const checkpoint_trial *trial, const ls_checkpoint_case *about,
                            const ls_checkpoint_run *run, ls_program *program) {
    LS_TRY(ls_model_put_tokens(trial->model, program, "tokens", run->tokens));
    if (trial->config.model.head != LS_HEAD_NONE)
        LS_TRY(ls_model_put_tokens(trial->model, program, "targets", run->targets));
    if (about->types != NULL) ls_tensor_put(program, ls_program_find(program, "types"), run->types);
    if (about->counted == 0) return LS_OK;
    LS_TRY(put_weights(trial, program, run, about->counted));
    return clear_cotangents(trial, program);
}

static ls_status run_some(checkpoint_trial *trial, ls_checkpoint_case *about,
                          const ls_checkpoint_run *run) {
    const ls_model_settings *model = &trial->config.model;
    const int64_t V = model->vocabulary, D = model->width, cells = run->rows * run->count;
    const ls_program_options options = {
        .batch = run->rows, .length = run->count, .grad = about->counted > 0};
    const ls_recording how = {.use = LS_MODEL_OBSERVED,
                              .pieces = 1,
                              .source = run->source,
                              .types = about->types != NULL};
    ls_program *program = NULL;
    double *scratch = ls_new(trial->ctx, (size_t)(cells * (ls_max(V, D) + 1)), sizeof *scratch);
    ls_status status = scratch == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) status = ls_model_record(trial->model, &how, options, &program);
    LS_TRY_GOTO(status);
    LS_TRY_GOTO(put_inputs(trial, about, run, program));
    LS_TRY_GOTO(ls_program_run(program, NULL, 0, 0));
    LS_TRY_GOTO(read_rows(program, "rows", run, D, scratch, about->rows));
    LS_TRY_GOTO(read_rows(program, "logits", run, V, scratch, about->logits));
    if (about->counted > 0) LS_TRY_GOTO(ls_model_read(program, "loss", scratch));
    for (int64_t i = 0; about->counted > 0 && i < cells; i++)
        if (run->targets[i] >= 0) trial->loss += scratch[i] / (double)about->counted;
fail:
    ls_program_free(program);
    ls_free(trial->ctx, scratch);
    return status;
}

/* The global tokens of a row, as mixers are told of them. */
static ls_status choose_globals(checkpoint_trial *trial, const ls_checkpoint_case *about,
                                int64_t b) {
    bool known = false;
    ls_text list = {0};
    for (int64_t t = 0, at = 0; t < about->T; t++) {
        const int64_t i = b * about->T + t;
        if (about->mask[i] == 0) continue;
        if (about->globals[i] != 0)
            ls_text_printf(trial->ctx, &list, "%s%lld", list.length == 0 ? "" : ",", (long long)at);
        at++;
    }
    ls_status status = ls_text_status(&list);
    for (int i = 0; status == LS_OK && i < trial->config.mixers; i++) {
        const ls_option_table *table = &trial->config.mixer[i].type->options;
        if (ls_options_find(table, "global_at") == NULL) continue;
        known = true;
        status =
            ls_options_set(trial->ctx, table, "mixer.", "global_at",
                           list.bytes == NULL ? "" : list.bytes, trial->config.mixer[i].options);
    }
    ls_text_clear(trial->ctx, &list);
    if (status == LS_OK && !known)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: no mixer of this model has global tokens",
                       trial->keys->golden);
    return status;
}

static ls_status run_rows(checkpoint_trial *trial, ls_checkpoint_case *about) {
    const bool together = ls_checkpoint_case_together(about, &trial->config);
    const int64_t runs = together ? 1 : about->B;
    ls_status status = LS_OK;
    ls_parameters_clear_gradient(trial->model->store);
    for (int64_t b = 0; status == LS_OK && b < runs; b++) {
        ls_checkpoint_run run;
        if (about->globals != NULL) LS_TRY(choose_globals(trial, about, b));
        status = ls_checkpoint_run_take(trial->ctx, about, together ? -1 : b, &run);
        if (status == LS_OK && run.count > 0) status = run_some(trial, about, &run);
        ls_checkpoint_run_clear(trial->ctx, &run);
    }
    return status;
}

/* ---- comparing ---- */

/* What each token has, under one of two names: both sides are 0 where there is padding. */
static ls_status compare_rows(checkpoint_trial *trial, const ls_checkpoint_case *about,
                              const char *const names[2], int64_t width, double *computed,
                              ls_comparison *out) {
    const ls_safetensor *tensor = NULL;
    char name[64];
    for (int i = 0; i < 2 && tensor == NULL; i++) {
        snprintf(name, sizeof name, "%s%s", about->name, names[i]);
        tensor = ls_safetensors_find(&trial->file, name);
    }
    if (tensor == NULL) return LS_OK;
    if (tensor->rank != 3 || tensor->dim[0] != about->B || tensor->dim[1] != about->T ||
        tensor->dim[2] != width)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s is not [%lld, %lld, %lld]",
                       trial->keys->golden, name, (long long)about->B, (long long)about->T,
                       (long long)width);
    for (int64_t i = 0; i < about->B * about->T; i++)
        if (about->mask[i] == 0) ls_safetensor_f64(tensor, i * width, width, computed + i * width);
    return ls_compare(trial->ctx, out, name, computed, tensor, trial->keys->tol);
}

static ls_status compare_outputs(checkpoint_trial *trial, const ls_checkpoint_case *about,
                                 ls_comparison *out) {
    static const char *const logits[] = {"logits64", "logits"}, *const rows[] = {"hidden64",
                                                                                 "hidden"};
    const ls_model_settings *model = &trial->config.model;
    LS_TRY(compare_rows(trial, about, rows, model->width, about->rows, out));
    return compare_rows(trial, about, logits, model->vocabulary, about->logits, out);
}

/* A tensor in a file under the name that the weight has in the folder. */
static ls_status compare_gradients(checkpoint_trial *trial, ls_comparison *out) {
    ls_mixer *mixers = ls_public_mixers(trial->ctx, &trial->config);
    if (mixers == NULL) return LS_ENOMEM;
    const ls_public_scope scope = {trial->model->store, &trial->family.naming, &trial->config,
                                   mixers};
    ls_status status = ls_comparison_scale(trial->ctx, &trial->file, out);
    for (size_t i = 0; status == LS_OK && i < trial->file.count; i++) {
        const ls_safetensor *tensor = &trial->file.items[i];
        const char *name = ls_name_after(tensor->name, "grad.");
        ls_weight weight;
        if (name == NULL) continue;
        status = ls_public_weight(trial->ctx, &scope, name, &weight);
        if (status == LS_OK)
            status = ls_compare_gradient(trial->ctx, out, trial->model->store, &weight, tensor,
                                         trial->keys->grad_tol);
    }
    ls_free(trial->ctx, mixers);
    return status;
}

static ls_status compare_case(checkpoint_trial *trial, const ls_safetensor *ids,
                              ls_comparison *out) {
    ls_checkpoint_case about;
    const ls_safetensor *loss = ls_safetensors_find(&trial->file, "loss");
    ls_status status = ls_checkpoint_case_read(trial->ctx, &trial->file, trial->keys->golden, ids,
                                               &trial->config, &about);
    if (status == LS_OK) status = run_rows(trial, &about);
    if (status == LS_OK) status = compare_outputs(trial, &about, out);
    if (status == LS_OK && about.counted > 0) {
        if (loss != NULL && loss->count == 1)
            status = ls_compare(trial->ctx, out, "loss", &trial->loss, loss, trial->keys->tol);
        if (status == LS_OK) status = compare_gradients(trial, out);
    }
    ls_checkpoint_case_clear(trial->ctx, &about);
    return status;
}

/* ---- greedy ---- */

/* A stream before the first token; that of a decoder reads row 0 of case a. */
static ls_status open_stream(checkpoint_trial *trial, int64_t count, int64_t prompt,
                             ls_stream **out) {
    const ls_safetensor *ids = ls_safetensors_find(&trial->file, "a.input_ids");
    ls_checkpoint_case about = {0};
    ls_checkpoint_run run = {0};
    if (trial->config.encoder_layers == 0)
        return ls_stream_new(trial->model, 1, count, prompt, out);
    if (ids == NULL)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: greedy needs a.input_ids, which are read first",
                       trial->keys->golden);
    ls_status status = ls_checkpoint_case_read(trial->ctx, &trial->file, trial->keys->golden, ids,
                                               &trial->config, &about);
    if (status == LS_OK) status = ls_checkpoint_run_take(trial->ctx, &about, 0, &run);
    if (status == LS_OK)
        status = ls_stream_new_reading(trial->model, 1, run.source, count, prompt, out);
    if (status == LS_OK) status = ls_stream_read(*out, run.tokens, run.source);
    ls_checkpoint_run_clear(trial->ctx, &run);
    ls_checkpoint_case_clear(trial->ctx, &about);
    return status;
}

/* The first values of tensors, as they are read. */
static ls_status compare_stored(checkpoint_trial *trial, ls_comparison *out) {
    for (size_t i = 0; i < trial->file.count; i++) {
        const ls_safetensor *golden = &trial->file.items[i];
        const char *name = ls_name_after(golden->name, "row0.");
        if (name == NULL) continue;
        const ls_safetensor *tensor = ls_safetensors_find(&trial->family.file, name);
        if (tensor == NULL || tensor->count < golden->count)
            return LS_FAIL(trial->ctx, LS_EINPUT, "%s has no tensor %s of %lld values",
                           trial->keys->from, name, (long long)golden->count);
        double *values = ls_new(trial->ctx, (size_t)ls_max(golden->count, 1), sizeof *values);
        if (values == NULL) return LS_ENOMEM;
        ls_safetensor_f64(tensor, 0, golden->count, values);
        ls_status status = ls_compare(trial->ctx, out, golden->name, values, golden, 0);
        ls_free(trial->ctx, values);
        LS_TRY(status);
    }
    return LS_OK;
}

/* Token by token through a stream, as text is written. */
static ls_status compare_greedy(checkpoint_trial *trial, ls_comparison *out) {
    const ls_safetensor *greedy = ls_safetensors_find(&trial->file, "greedy");
    const int64_t V = trial->config.model.vocabulary;
    const int64_t prompt = trial->config.encoder_layers > 0 ? 1 : GREEDY_PROMPT;
    if (greedy == NULL) return LS_OK;
    if (greedy->rank != 2 || greedy->dim[0] != 1 || greedy->dim[1] <= prompt)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: greedy must be [1, more than %lld]",
                       trial->keys->golden, (long long)prompt);
    const int64_t count = greedy->dim[1];
    const ls_sampling how = {.temperature = 0, .top_p = 1};
    ls_stream *stream = NULL;
    double *logits = ls_new(trial->ctx, (size_t)(3 * V + count), sizeof *logits);
    int32_t *tokens = ls_new(trial->ctx, (size_t)count, sizeof *tokens);
    ls_status status = logits == NULL || tokens == NULL ? LS_ENOMEM : LS_OK;
    LS_TRY_GOTO(status);
    LS_TRY_GOTO(ls_safetensor_i32(trial->ctx, greedy, 0, prompt, tokens));
    LS_TRY_GOTO(open_stream(trial, count, prompt, &stream));
    LS_TRY_GOTO(ls_stream_logits(stream, tokens, prompt, prompt, logits));
    for (int64_t i = prompt; i < count; i++) {
        tokens[i] = ls_sample(&how, logits, V, (uint64_t)i, logits + V);
        if (i + 1 < count) LS_TRY_GOTO(ls_stream_logits(stream, &tokens[i], 1, 1, logits));
    }
    for (int64_t i = 0; i < count; i++) logits[3 * V + i] = tokens[i];
    status = ls_compare(trial->ctx, out, "greedy", logits + 3 * V, greedy, 0);
fail:
    ls_stream_free(stream);
    ls_free(trial->ctx, logits);
    ls_free(trial->ctx, tokens);
    return status;
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    checkpoint_trial *trial = comparer->own;
    LS_TRY(ls_model_plan(trial->ctx, &trial->config, comparer->dtype, true, &trial->model));
    LS_TRY(ls_family_load(&trial->family, trial->model));
    LS_TRY(compare_stored(trial, out));
    for (size_t i = 0; i < trial->file.count; i++) {
        const char *dot = strchr(trial->file.items[i].name, '.');
        if (dot != NULL && (strcmp(dot, ".input_ids") == 0 || strcmp(dot, ".inputs") == 0))
            LS_TRY(compare_case(trial, &trial->file.items[i], out));
    }
    return compare_greedy(trial, out);
}

static void clear(ls_comparer *comparer) {
    checkpoint_trial *trial = comparer->own;
    if (trial->file_open) ls_safetensors_close(trial->ctx, &trial->file);
    ls_model_free(trial->model);
    ls_model_config_clear(comparer->ctx, &trial->config);
    ls_family_close(comparer->ctx, &trial->family);
}

const ls_comparer_type ls_checkpoint_comparer = {
    .name = "model",
    .size = sizeof(checkpoint_trial),
    .read = read,
    .run = run,
    .clear = clear,
};
