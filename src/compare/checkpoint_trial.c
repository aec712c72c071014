/* A public checkpoint against the values that its own code gave: logits of several cases, the loss
 * of the first and its gradients, and what follows greedily.
 *
 * The file has for each case X: X.input_ids [B,T], X.attention_mask (1: a token; absent: all are)
 * and X.logits64 or X.logits; beside them labels (-100: not counted), loss and grad.NAME of case a,
 * and greedy [1,n], whose first tokens are those of case a; and row0.NAME, the first values of a
 * tensor, to be equal. Every row is computed by itself, without its padding. */
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* A case that is being computed. */
typedef struct trial_case {
    char name[32];
    int64_t B, T;
    int32_t *tokens, *mask, *labels; /* [B,T]; labels NULL where nothing is trained */
    int64_t counted;                 /* labels that count */
    double *logits;                  /* [B,T,V], 0 where the mask is */
} trial_case;

/* ---- reading ---- */

static bool is_known(const char *name) {
    static const char *const whole[] = {"labels", "loss", "greedy"};
    static const char *const parts[] = {"input_ids", "attention_mask", "position_ids",
                                        "logits64",  "logits32",       "logits"};
    const char *dot = strchr(name, '.');
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        if (strcmp(name, whole[i]) == 0) return true;
    if (ls_name_after(name, "grad.") != NULL || ls_name_after(name, "row0.") != NULL) return true;
    for (size_t i = 0; dot != NULL && i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(dot + 1, parts[i]) == 0) return true;
    return false;
}

static ls_status read(ls_comparer *comparer) {
    checkpoint_trial *trial = comparer->own;
    *trial = (checkpoint_trial){.ctx = comparer->ctx, .keys = comparer->keys};
    LS_TRY(ls_compare_needs_golden(comparer));
    LS_TRY(ls_family_open(trial->ctx, trial->keys->from, &trial->family));
    LS_TRY(ls_safetensors_open(trial->ctx, trial->keys->golden, &trial->file));
    trial->file_open = true;
    for (size_t i = 0; i < trial->file.count; i++)
        if (!is_known(trial->file.items[i].name))
            return LS_FAIL(trial->ctx, LS_EINPUT, "%s: it is not known what %s is",
                           trial->keys->golden, trial->file.items[i].name);
    return ls_model_config_read(trial->ctx, &trial->family.settings, &trial->config);
}

/* A tensor [B,T] of whole numbers; *out stays NULL where there is none and it may be missing. */
static ls_status read_numbers(const checkpoint_trial *trial, const char *scope, const char *name,
                              int64_t B, int64_t T, int32_t **out) {
    char full[64];
    *out = NULL;
    snprintf(full, sizeof full, "%s%s", scope, name);
    const ls_safetensor *tensor = ls_safetensors_find(&trial->file, full);
    if (tensor == NULL) return LS_OK;
    if (tensor->rank != 2 || tensor->dim[0] != B || tensor->dim[1] != T)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s is not of the shape of %sinput_ids",
                       trial->keys->golden, full, scope);
    *out = ls_new(trial->ctx, (size_t)ls_max(tensor->count, 1), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    return ls_safetensor_i32(trial->ctx, tensor, 0, tensor->count, *out);
}

/* Positions other than 0, 1, 2 ... of a row's tokens are nothing that is computed here. */
static ls_status check_positions(const checkpoint_trial *trial, const trial_case *about,
                                 const int32_t *positions) {
    for (int64_t b = 0; positions != NULL && b < about->B; b++)
        for (int64_t t = 0, at = 0; t < about->T; t++) {
            const int64_t i = b * about->T + t;
            if (about->mask[i] != 0 && positions[i] != at++)
                return LS_FAIL(trial->ctx, LS_EINPUT,
                               "%s: %sposition_ids do not count the tokens of a row",
                               trial->keys->golden, about->name);
        }
    return LS_OK;
}

static ls_status read_case(const checkpoint_trial *trial, const ls_safetensor *ids,
                           trial_case *out) {
    ls_ctx *ctx = trial->ctx;
    int32_t *positions = NULL;
    const int length = (int)(strchr(ids->name, '.') - ids->name + 1);
    *out = (trial_case){0};
    if (ids->rank != 2 || ids->dim[0] < 1 || ids->dim[1] < 1 || length >= (int)sizeof out->name)
        return LS_FAIL(ctx, LS_EINPUT, "%s: %.64s must be [rows, tokens]", trial->keys->golden,
                       ids->name);
    snprintf(out->name, sizeof out->name, "%.*s", length, ids->name);
    out->B = ids->dim[0];
    out->T = ids->dim[1];
    LS_TRY(read_numbers(trial, out->name, "input_ids", out->B, out->T, &out->tokens));
    LS_TRY(read_numbers(trial, out->name, "attention_mask", out->B, out->T, &out->mask));
    if (strcmp(out->name, "a.") == 0)
        LS_TRY(read_numbers(trial, "", "labels", out->B, out->T, &out->labels));
    if (out->mask == NULL) {
        out->mask = ls_new(ctx, (size_t)ids->count, sizeof *out->mask);
        if (out->mask == NULL) return LS_ENOMEM;
        for (int64_t i = 0; i < ids->count; i++) out->mask[i] = 1;
    }
    for (int64_t i = 0; out->labels != NULL && i < ids->count; i++)
        out->counted += i % out->T > 0 && out->labels[i] >= 0;
    out->logits =
        ls_new(ctx, (size_t)(ids->count * trial->config.model.vocabulary), sizeof *out->logits);
    if (out->logits == NULL) return LS_ENOMEM;
    LS_TRY(read_numbers(trial, out->name, "position_ids", out->B, out->T, &positions));
    ls_status status = check_positions(trial, out, positions);
    ls_free(ctx, positions);
    return status;
}

static void clear_case(ls_ctx *ctx, trial_case *about) {
    ls_free(ctx, about->tokens);
    ls_free(ctx, about->mask);
    ls_free(ctx, about->labels);
    ls_free(ctx, about->logits);
}

/* ---- computing ---- */

/* The tokens of a row without its padding, what should follow each (-1: not counted), and where in
 * the row they stand. */
typedef struct trial_row {
    int64_t count;
    int32_t *tokens, *targets, *at;
} trial_row;

static void take_row(const trial_case *about, int64_t b, trial_row *out) {
    out->count = 0;
    for (int64_t t = 0; t < about->T; t++) {
        const int64_t i = b * about->T + t;
        if (about->mask[i] == 0) continue;
        const bool counts = about->labels != NULL && t + 1 < about->T && about->labels[i + 1] >= 0;
        out->tokens[out->count] = about->tokens[i];
        out->targets[out->count] = counts ? about->labels[i + 1] : -1;
        out->at[out->count++] = (int32_t)t;
    }
}

static ls_status put_weights(const checkpoint_trial *trial, ls_program *program,
                             const trial_row *row, int64_t counted) {
    const ls_tensor *tensor = ls_program_find(program, "weights");
    if (tensor == NULL) return LS_FAIL(trial->ctx, LS_EBUG, "the program has no input weights");
    void *values = ls_new(trial->ctx, (size_t)row->count, ls_dtype_size(tensor->type));
    if (values == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < row->count; i++)
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

static ls_status run_row(checkpoint_trial *trial, trial_case *about, int64_t b,
                         const trial_row *row) {
    const int64_t V = trial->config.model.vocabulary;
    const ls_program_options options = {
        .batch = 1, .length = row->count, .grad = about->counted > 0};
    const ls_recording how = {.use = LS_MODEL_OBSERVED, .pieces = 1};
    ls_program *program = NULL;
    double *logits = ls_new(trial->ctx, (size_t)(row->count * (V + 1)), sizeof *logits);
    ls_status status = logits == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) status = ls_model_record(trial->model, &how, options, &program);
    LS_TRY_GOTO(status);
    LS_TRY_GOTO(ls_model_put_tokens(trial->model, program, "tokens", row->tokens));
    LS_TRY_GOTO(ls_model_put_tokens(trial->model, program, "targets", row->targets));
    if (about->counted > 0) {
        LS_TRY_GOTO(put_weights(trial, program, row, about->counted));
        LS_TRY_GOTO(clear_cotangents(trial, program));
    }
    LS_TRY_GOTO(ls_program_run(program, NULL, 0, 0));
    LS_TRY_GOTO(ls_model_read(program, "logits", logits));
    for (int64_t i = 0; i < row->count; i++)
        memcpy(about->logits + (b * about->T + row->at[i]) * V, logits + i * V,
               (size_t)V * sizeof *logits);
    LS_TRY_GOTO(ls_model_read(program, "loss", logits));
    for (int64_t i = 0; i < row->count; i++)
        if (row->targets[i] >= 0) trial->loss += logits[i] / (double)about->counted;
fail:
    ls_program_free(program);
    ls_free(trial->ctx, logits);
    return status;
}

static ls_status run_rows(checkpoint_trial *trial, trial_case *about) {
    ls_ctx *ctx = trial->ctx;
    int32_t *room = ls_new(ctx, (size_t)(3 * about->T), sizeof *room);
    trial_row row = {.tokens = room, .targets = room + about->T, .at = room + 2 * about->T};
    ls_status status = room == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) ls_parameters_clear_gradient(trial->model->store);
    for (int64_t b = 0; status == LS_OK && b < about->B; b++) {
        take_row(about, b, &row);
        if (row.count > 0) status = run_row(trial, about, b, &row);
    }
    ls_free(ctx, room);
    return status;
}

/* ---- comparing ---- */

/* Logits of tokens alone: both sides are 0 where there is padding. */
static ls_status compare_logits(checkpoint_trial *trial, const trial_case *about,
                                ls_comparison *out) {
    const int64_t V = trial->config.model.vocabulary;
    char name[64];
    snprintf(name, sizeof name, "%slogits64", about->name);
    const ls_safetensor *tensor = ls_safetensors_find(&trial->file, name);
    if (tensor == NULL) {
        snprintf(name, sizeof name, "%slogits", about->name);
        tensor = ls_safetensors_find(&trial->file, name);
    }
    if (tensor == NULL) return LS_OK;
    if (tensor->rank != 3 || tensor->dim[0] != about->B || tensor->dim[1] != about->T ||
        tensor->dim[2] != V)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s is not [%lld, %lld, %lld]",
                       trial->keys->golden, name, (long long)about->B, (long long)about->T,
                       (long long)V);
    for (int64_t i = 0; i < about->B * about->T; i++)
        if (about->mask[i] == 0) ls_safetensor_f64(tensor, i * V, V, about->logits + i * V);
    return ls_compare(trial->ctx, out, name, about->logits, tensor, trial->keys->tol);
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
    trial_case about;
    const ls_safetensor *loss = ls_safetensors_find(&trial->file, "loss");
    ls_status status = read_case(trial, ids, &about);
    if (status == LS_OK) status = run_rows(trial, &about);
    if (status == LS_OK) status = compare_logits(trial, &about, out);
    if (status == LS_OK && about.counted > 0) {
        if (loss != NULL && loss->count == 1)
            status = ls_compare(trial->ctx, out, "loss", &trial->loss, loss, trial->keys->tol);
        if (status == LS_OK) status = compare_gradients(trial, out);
    }
    clear_case(trial->ctx, &about);
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
    if (greedy == NULL) return LS_OK;
    if (greedy->rank != 2 || greedy->dim[0] != 1 || greedy->dim[1] <= GREEDY_PROMPT)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: greedy must be [1, more than %d]",
                       trial->keys->golden, GREEDY_PROMPT);
    const int64_t count = greedy->dim[1];
    const ls_sampling how = {.temperature = 0, .top_p = 1};
    ls_stream *stream = NULL;
    double *logits = ls_new(trial->ctx, (size_t)(3 * V + count), sizeof *logits);
    int32_t *tokens = ls_new(trial->ctx, (size_t)count, sizeof *tokens);
    ls_status status = logits == NULL || tokens == NULL ? LS_ENOMEM : LS_OK;
    LS_TRY_GOTO(status);
    LS_TRY_GOTO(ls_safetensor_i32(trial->ctx, greedy, 0, GREEDY_PROMPT, tokens));
    LS_TRY_GOTO(ls_stream_new(trial->model, 1, count, GREEDY_PROMPT, &stream));
    LS_TRY_GOTO(ls_stream_logits(stream, tokens, GREEDY_PROMPT, GREEDY_PROMPT, logits));
    for (int64_t i = GREEDY_PROMPT; i < count; i++) {
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
        if (dot != NULL && strcmp(dot, ".input_ids") == 0)
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
    .keys = " from golden dtype tol grad_tol ",
    .size = sizeof(checkpoint_trial),
    .read = read,
    .run = run,
    .clear = clear,
};
