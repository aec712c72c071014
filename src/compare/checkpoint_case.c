#include "compare/checkpoint_case.h"

#include <stdio.h>
#include <string.h>

#include "model/naming.h"

/* A file of expected values that is being read. */
typedef struct reading {
    ls_ctx *ctx;
    const ls_safetensors *file;
    const char *what;
} reading;

bool ls_checkpoint_case_knows(const char *name) {
    static const char *const whole[] = {"labels", "loss", "greedy"};
    static const char *const parts[] = {"input_ids",
                                        "inputs",
                                        "attention_mask",
                                        "position_ids",
                                        "decoder_input_ids",
                                        "token_type_ids",
                                        "labels",
                                        "global_attention_mask",
                                        "logits64",
                                        "logits32",
                                        "decoder_attention_mask",
                                        "logits",
                                        "hidden64",
                                        "hidden"};
    const char *dot = strchr(name, '.');
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        if (strcmp(name, whole[i]) == 0) return true;
    if (ls_name_after(name, "grad.") != NULL || ls_name_after(name, "row0.") != NULL) return true;
    for (size_t i = 0; dot != NULL && i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(dot + 1, parts[i]) == 0) return true;
    return false;
}

static const ls_safetensor *find(const reading *r, const char *scope, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "%s%s", scope, name);
    return ls_safetensors_find(r->file, full);
}

/* A tensor [B,T] of whole numbers; *out stays NULL where there is none. */
static ls_status read_numbers(const reading *r, const char *scope, const char *name, int64_t B,
                              int64_t T, int32_t **out) {
    const ls_safetensor *tensor = find(r, scope, name);
    *out = NULL;
    if (tensor == NULL) return LS_OK;
    if (tensor->rank != 2 || tensor->dim[0] != B || tensor->dim[1] != T)
        return LS_FAIL(r->ctx, LS_EINPUT, "%s: %s is not [%lld, %lld]", r->what, tensor->name,
                       (long long)B, (long long)T);
    *out = ls_new(r->ctx, (size_t)ls_max(tensor->count, 1), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    return ls_safetensor_i32(r->ctx, tensor, 0, tensor->count, *out);
}

/* The same; ones where there is none. */
static ls_status read_mask(const reading *r, const char *scope, const char *name, int64_t B,
                           int64_t T, int32_t **out) {
    LS_TRY(read_numbers(r, scope, name, B, T, out));
    if (*out != NULL) return LS_OK;
    *out = ls_new(r->ctx, (size_t)ls_max(B * T, 1), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < B * T; i++) (*out)[i] = 1;
    return LS_OK;
}

/* Positions other than 0, 1, 2 ... of a row's tokens are nothing that is computed here. */
static ls_status check_positions(const reading *r, const ls_checkpoint_case *about) {
    int32_t *positions;
    ls_status status = read_numbers(r, about->name, "position_ids", about->B, about->T, &positions);
    for (int64_t i = 0, at = 0; status == LS_OK && positions != NULL && i < about->B * about->T;
         i++) {
        if (i % about->T == 0) at = 0;
        if (about->mask[i] != 0 && positions[i] != at++)
            status =
                LS_FAIL(r->ctx, LS_EINPUT, "%s: %sposition_ids do not count the tokens of a row",
                        r->what, about->name);
    }
    ls_free(r->ctx, positions);
    return status;
}

/* Token types that the model has. */
static ls_status check_types(const reading *r, const ls_checkpoint_case *about, int64_t types) {
    for (int64_t i = 0; about->types != NULL && i < about->B * about->T; i++)
        if (about->types[i] < 0 || about->types[i] >= types)
            return LS_FAIL(r->ctx, LS_EINPUT, "%s: token type %d of %s is none of the model's %lld",
                           r->what, about->types[i], about->name, (long long)types);
    return LS_OK;
}

/* What an encoder reads, and behind it what the decoder does. */
static ls_status read_source(const reading *r, const ls_safetensor *ids, ls_checkpoint_case *out) {
    const ls_safetensor *decoded = find(r, out->name, "decoder_input_ids");
    if (decoded == NULL || decoded->rank != 2)
        return LS_FAIL(r->ctx, LS_EINPUT,
                       "%s: %sdecoder_input_ids is missing: the model has a "
                       "decoder",
                       r->what, out->name);
    out->S = ids->dim[1];
    out->T = decoded->dim[1];
    if (out->T < 1) return LS_FAIL(r->ctx, LS_EINPUT, "%s: %s is empty", r->what, decoded->name);
    LS_TRY(read_numbers(r, "", ids->name, out->B, out->S, &out->source));
    LS_TRY(read_mask(r, out->name, "attention_mask", out->B, out->S, &out->source_mask));
    LS_TRY(read_numbers(r, out->name, "decoder_input_ids", out->B, out->T, &out->tokens));
    return read_mask(r, out->name, "decoder_attention_mask", out->B, out->T, &out->mask);
}

static ls_status read_text(const reading *r, const ls_safetensor *ids,
                           const ls_model_config *config, ls_checkpoint_case *out) {
    out->T = ids->dim[1];
    LS_TRY(read_numbers(r, "", ids->name, out->B, out->T, &out->tokens));
    LS_TRY(read_mask(r, out->name, "attention_mask", out->B, out->T, &out->mask));
    LS_TRY(read_numbers(r, out->name, "token_type_ids", out->B, out->T, &out->types));
    LS_TRY(read_numbers(r, out->name, "global_attention_mask", out->B, out->T, &out->globals));
    LS_TRY(check_types(r, out, config->model.token_types));
    return check_positions(r, out);
}

ls_status ls_checkpoint_case_read(ls_ctx *ctx, const ls_safetensors *file, const char *what,
                                  const ls_safetensor *ids, const ls_model_config *config,
                                  ls_checkpoint_case *out) {
    const reading r = {ctx, file, what};
    const int length = (int)(strchr(ids->name, '.') - ids->name + 1);
    *out = (ls_checkpoint_case){.shifted = config->model.head == LS_HEAD_LM &&
                                           config->encoder_layers == 0};
    if (ids->rank != 2 || ids->dim[0] < 1 || ids->dim[1] < 1 || length >= (int)sizeof out->name)
        return LS_FAIL(ctx, LS_EINPUT, "%s: %.64s must be [rows, tokens]", what, ids->name);
    snprintf(out->name, sizeof out->name, "%.*s", length, ids->name);
    out->B = ids->dim[0];
    LS_TRY(config->encoder_layers > 0 ? read_source(&r, ids, out)
                                      : read_text(&r, ids, config, out));
    if (strcmp(out->name, "a.") == 0 && config->model.head != LS_HEAD_NONE)
        LS_TRY(read_numbers(&r, "", "labels", out->B, out->T, &out->labels));
    for (int64_t i = 0; out->labels != NULL && i < out->B * out->T; i++)
        out->counted += (!out->shifted || i % out->T > 0) && out->labels[i] >= 0;
    const size_t cells = (size_t)(out->B * out->T);
    out->logits = ls_new(ctx, cells * (size_t)config->model.vocabulary, sizeof *out->logits);
    out->rows = ls_new(ctx, cells * (size_t)config->model.width, sizeof *out->rows);
    return out->logits == NULL || out->rows == NULL ? LS_ENOMEM : LS_OK;
}

void ls_checkpoint_case_clear(ls_ctx *ctx, ls_checkpoint_case *about) {
    ls_free(ctx, about->tokens);
    ls_free(ctx, about->mask);
    ls_free(ctx, about->source);
    ls_free(ctx, about->source_mask);
    ls_free(ctx, about->types);
    ls_free(ctx, about->globals);
    ls_free(ctx, about->labels);
    ls_free(ctx, about->logits);
    ls_free(ctx, about->rows);
}

/* ---- runs ---- */

bool ls_checkpoint_case_together(const ls_checkpoint_case *about, const ls_model_config *config) {
    const ls_model_example example = ls_model_example_of(config, about->T);
    if (!example.padded || about->source != NULL || about->globals != NULL) return false;
    for (int64_t i = 0; i < about->B * about->T; i++)
        if (i % about->T > 0 && about->mask[i] != 0 && about->mask[i - 1] == 0) return false;
    return true;
}

/* What should be found at a token of a row; -1: not counted. */
static int32_t target_of(const ls_checkpoint_case *about, int64_t b, int64_t t) {
    const int64_t at = t + about->shifted;
    if (about->labels == NULL || at >= about->T) return -1;
    const int32_t label = about->labels[b * about->T + at];
    return label < 0 ? -1 : label;
}

static void take_row(const ls_checkpoint_case *about, int64_t b, bool padded, int64_t row,
                     ls_checkpoint_run *out) {
    int32_t *tokens = out->tokens + row * (out->source + about->T);
    int64_t count = 0, source = 0;
    for (int64_t s = 0; s < about->S; s++)
        if (about->source_mask[b * about->S + s] != 0)
            tokens[source++] = about->source[b * about->S + s];
    for (int64_t t = 0; t < about->T; t++) {
        const int64_t i = b * about->T + t, to = row * about->T + count;
        const bool there = about->mask[i] != 0;
        if (!there && !padded) continue;
        tokens[source + count++] = there ? about->tokens[i] : -1;
        out->targets[to] = there ? target_of(about, b, t) : -1;
        out->types[to] = there && about->types != NULL ? about->types[i] : 0;
        out->at[to] = there ? i : -1;
    }
    out->source = source;
    out->count = count;
}

ls_status ls_checkpoint_run_take(ls_ctx *ctx, const ls_checkpoint_case *about, int64_t b,
                                 ls_checkpoint_run *out) {
    const int64_t rows = b < 0 ? about->B : 1, cells = rows * about->T;
    *out = (ls_checkpoint_run){.rows = rows};
    out->room = ls_new(ctx, (size_t)(3 * cells + rows * about->S), sizeof *out->room);
    out->at = ls_new(ctx, (size_t)cells, sizeof *out->at);
    if (out->room == NULL || out->at == NULL) return LS_ENOMEM;
    out->targets = out->room;
    out->types = out->room + cells;
    out->tokens = out->room + 2 * cells;
    for (int64_t i = 0; i < rows; i++) take_row(about, b < 0 ? i : b, b < 0, i, out);
    return LS_OK;
}

void ls_checkpoint_run_clear(ls_ctx *ctx, ls_checkpoint_run *run) {
    ls_free(ctx, run->room);
    ls_free(ctx, run->at);
}
