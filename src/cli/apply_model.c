/* A whole model against reference values: weights under the names of public code, pieces of a text
 * one after the other with what is carried between them, outputs, losses, states and gradients. */
#include <stdio.h>
#include <string.h>

#include "cli/apply.h"
#include "cli/apply_naming.h"
#include "cli/apply_weights.h"
#include "model/model.h"

/* What a tensor out.NAME is of ours. */
typedef enum { OUT_ROWS, OUT_LOGITS, OUT_LOSS } series_kind;
enum { SERIES = 3, OUT_MEAN_LOSS = SERIES, OUT_AUXILIARY, OUT_STATE, OUT_SEGMENT, OUT_NOT };
typedef struct output {
    int kind;
    int64_t piece;                            /* -1: the whole text */
    char name[LS_SAFETENSORS_NAME_MOST + 64]; /* of a state, or of what segments leave */
} output;

enum { TARGET_BYTES = 1024 }; /* of what a rule says a weight is */
static const char *const series_names[SERIES] = {"rows", "logits", "loss"};

/* A value for every token, [B,T,width]. */
typedef struct series {
    int64_t width;
    double *value, *cot;
} series;

typedef struct held {
    ls_cli *cli;
    ls_ctx *ctx;
    const ls_apply_keys *keys;
    ls_dtype type;
    ls_model_config config;
    ls_model *model;
    ls_mixer *mixers; /* of the layers, then of the encoder's */
    ls_naming naming;
    ls_safetensors file;
    bool file_open;
    int64_t B, T, S; /* sequences; tokens of each that are fed, and of a source */
    int64_t given;   /* tokens that the file has: those behind T are targets alone */
    int32_t *tokens, *source;
    int64_t pieces, *first, *length; /* into which the tokens are cut */
    bool runs;                       /* a piece is a run of a stream; else all are one program, and
                                        pieces are its segments or sources */
    series series[SERIES];
    int64_t *set;    /* per parameter: elements that the file has given */
    double **moving; /* per tensor of the file: gradients of what moves, over all runs so far */
    ls_comparison comparison;
} held;

/* ---- names ---- */

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* name: without "out." */
static ls_status output_of(const held *h, const char *name, output *out) {
    static const char *const kinds[] = {"rows", "logits", "loss", "mean_loss", "auxiliary"};
    char full[LS_SAFETENSORS_NAME_MOST + 8], target[sizeof out->name];
    snprintf(full, sizeof full, "out.%s", name);
    *out = (output){.kind = OUT_NOT};
    size_t from = 0;
    if (!ls_naming_find(&h->naming, full, &from, target, sizeof target, &out->piece))
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: no name is known for %s (set names=)",
                       h->keys->golden, full);
    for (int i = 0; i < 5; i++)
        if (strcmp(target, kinds[i]) == 0) out->kind = i;
    if (begins(target, "state ")) out->kind = OUT_STATE;
    if (begins(target, "segment ")) out->kind = OUT_SEGMENT;
    if (out->kind == OUT_NOT && strcmp(target, "-") != 0)
        return LS_FAIL(h->ctx, LS_EUSE, "names: %s = %.200s is no output of a model", full, target);
    if (out->kind == OUT_STATE || out->kind == OUT_SEGMENT)
        snprintf(out->name, sizeof out->name, "%s", strchr(target, ' ') + 1);
    return LS_OK;
}

/* The mixer whose scope a name begins with, or NULL; *root: where its model's shared ones are. */
static const ls_mixer *mixer_of(const held *h, const char *name, size_t *root, size_t *scope) {
    const bool encodes = begins(name, "encoder.");
    const int64_t layers = encodes ? h->config.encoder_layers : h->config.layers;
    int layer = -1, used = 0;
    *root = encodes ? strlen("encoder.") : 0;
    if (sscanf(name + *root, "layers.%9d.mixer.%n", &layer, &used) != 1 || used == 0) return NULL;
    if (layer < 0 || layer >= layers) return NULL;
    *scope = *root + (size_t)used;
    return &h->mixers[encodes ? h->config.layers + layer : layer];
}

/* Adds the parameter of one of our names, or what a mixer has under a name of public code. */
static ls_status add_part(const held *h, const char *ours, ls_weight *out) {
    const ls_parameter *parameter = ls_parameters_find(h->model->store, ours);
    char root[16], scope[64];
    size_t root_bytes, scope_bytes;
    if (parameter != NULL && out->parts < LS_WEIGHT_PARTS_MOST) {
        out->part[out->parts++] = (struct ls_weight_part){.parameter = parameter};
        return LS_OK;
    }
    const ls_mixer *mixer = mixer_of(h, ours, &root_bytes, &scope_bytes);
    if (parameter != NULL || mixer == NULL || out->parts > 0)
        return LS_FAIL(h->ctx, LS_EUSE,
                       "the file gives %s, but the model has no parameter %.200s with these "
                       "options",
                       out->name, ours);
    snprintf(root, sizeof root, "%.*s", (int)root_bytes, ours);
    snprintf(scope, sizeof scope, "%.*s", (int)scope_bytes, ours);
    const char *name = out->name;
    const int flags = out->flags;
    LS_TRY(
        ls_weight_of_mixer(h->ctx, h->model->store, mixer, scope, root, ours + scope_bytes, out));
    out->name = name;
    out->flags |= flags;
    return LS_OK;
}

/* How a target says that rows stand. */
static bool read_modifier(const char *word, ls_weight *out) {
    if (strcmp(word, "turned") == 0) out->flags |= LS_ALIAS_TURNED;
    if (strcmp(word, "last") == 0) out->last = true;
    if (strcmp(word, "reversed") == 0) out->reversed = true;
    return strcmp(word, "turned") == 0 || strcmp(word, "last") == 0 ||
           strcmp(word, "reversed") == 0 || strcmp(word, "-") == 0 || strcmp(word, "+") == 0;
}

/* Whether the model has what a target names. */
static bool has_all(const held *h, const char *target) {
    char words[TARGET_BYTES], *rest = NULL;
    ls_weight unused = {0};
    size_t root, scope;
    snprintf(words, sizeof words, "%s", target);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (!read_modifier(word, &unused) && ls_parameters_find(h->model->store, word) == NULL &&
            mixer_of(h, word, &root, &scope) == NULL)
            return false;
    return true;
}

/* The target of the first rule whose parameters the model has, or else of the first; a name without
 * a rule is ours. */
static ls_status target_of(const held *h, const char *name, char out[TARGET_BYTES]) {
    char full[LS_SAFETENSORS_NAME_MOST + 8], next[TARGET_BYTES];
    size_t from = 0;
    int64_t piece;
    snprintf(full, sizeof full, "w.%s", name);
    out[0] = '\0';
    while (ls_naming_find(&h->naming, full, &from, next, sizeof next, &piece)) {
        const bool has = has_all(h, next);
        if (has || out[0] == '\0') memcpy(out, next, sizeof next);
        if (has) return LS_OK;
    }
    if (out[0] != '\0') return LS_OK; /* who looks for its parameters will say what is missing */
    snprintf(out, TARGET_BYTES, "%s", name);
    if (has_all(h, out)) return LS_OK;
    return LS_FAIL(h->ctx, LS_EINPUT, "%s: no name is known for %s (set names=)", h->keys->golden,
                   full);
}

/* name: without "w." */
static ls_status weight_of(const held *h, const char *name, ls_weight *out) {
    char target[TARGET_BYTES], *rest = NULL;
    *out = (ls_weight){.name = name};
    LS_TRY(target_of(h, name, target));
    for (char *word = strtok_r(target, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (!read_modifier(word, out)) LS_TRY(add_part(h, word, out));
    return LS_OK;
}

/* ---- weights ---- */

/* What is given once, or (moving) what stands elsewhere for each run. */
static ls_status load_weights(held *h, bool moving) {
    for (size_t i = 0; i < h->file.count; i++) {
        const ls_safetensor *tensor = &h->file.items[i];
        ls_weight weight;
        if (!begins(tensor->name, "w.")) continue;
        LS_TRY(weight_of(h, tensor->name + 2, &weight));
        if (moving && (weight.flags & LS_ALIAS_MOVES) == 0) continue;
        LS_TRY(ls_weight_load(h->ctx, h->model->store, &weight, tensor, h->set));
    }
    if (!moving) LS_TRY(ls_weights_complete(h->ctx, h->model->store, h->set));
    ls_parameters_round(h->model->store);
    return LS_OK;
}

/* After a run: gradients of what moves are put where they belong in the file, and begin anew. */
static ls_status gather_moving(held *h, const char *prefix) {
    ls_parameters *store = h->model->store;
    for (int clears = 0; clears < 2; clears++)
        for (size_t i = 0; i < h->file.count; i++) {
            const ls_safetensor *tensor = &h->file.items[i];
            ls_weight weight;
            if (!begins(tensor->name, prefix)) continue;
            LS_TRY(weight_of(h, tensor->name + strlen(prefix), &weight));
            if ((weight.flags & LS_ALIAS_MOVES) == 0) continue;
            if (h->moving[i] == NULL)
                h->moving[i] = ls_new(h->ctx, (size_t)tensor->count + 1, sizeof(double));
            if (h->moving[i] == NULL) return LS_ENOMEM;
            if (!clears) {
                LS_TRY(ls_weight_gradient(h->ctx, store, &weight, tensor, h->moving[i]));
                continue;
            }
            for (int part = 0; part < weight.parts; part++) {
                const ls_parameter *parameter = weight.part[part].parameter;
                memset(ls_parameter_gradient(store, parameter), 0,
                       (size_t)parameter->count * ls_dtype_size(store->master_type));
            }
        }
    return LS_OK;
}

/* ---- inputs ---- */

static ls_status read_tokens(held *h, const ls_safetensor *tensor, int64_t *length, int32_t **out) {
    const bool turned = h->keys->layout == LS_LAYOUT_TBD;
    if (tensor->rank != 2 || tensor->count < 1 || *out != NULL)
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: %s must be tokens of two axes, given once",
                       h->keys->golden, tensor->name);
    const int64_t B = tensor->dim[turned ? 1 : 0], T = tensor->dim[turned ? 0 : 1];
    if (h->B > 0 && h->B != B)
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: %s has %lld sequences, not %lld", h->keys->golden,
                       tensor->name, (long long)B, (long long)h->B);
    h->B = B;
    *length = T;
    *out = ls_new(h->ctx, (size_t)tensor->count, sizeof **out);
    int32_t *stored = ls_new(h->ctx, (size_t)tensor->count, sizeof *stored);
    ls_status status = *out == NULL || stored == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) status = ls_safetensor_i32(h->ctx, tensor, 0, tensor->count, stored);
    for (int64_t i = 0; i < tensor->count && status == LS_OK; i++)
        (*out)[i] = turned ? stored[i % T * B + i / T] : stored[i];
    ls_free(h->ctx, stored);
    return status;
}

/* Nothing in the file is passed over. */
static ls_status check_names(const held *h) {
    static const char *const kinds[] = {"w.", "in.", "out.", "cot.", "grad.w.", "grad.aux."};
    for (size_t i = 0; i < h->file.count; i++) {
        const char *name = h->file.items[i].name;
        bool known = strcmp(name, "cot") == 0;
        for (size_t j = 0; j < sizeof kinds / sizeof kinds[0]; j++) known |= begins(name, kinds[j]);
        if (!known)
            return LS_FAIL(h->ctx, LS_EINPUT,
                           "%s: %s is neither a weight, an input or an output nor a gradient of "
                           "a model",
                           h->keys->golden, name);
    }
    return LS_OK;
}

static ls_status read_inputs(held *h) {
    for (size_t i = 0; i < h->file.count; i++) {
        const ls_safetensor *tensor = &h->file.items[i];
        char target[64];
        int64_t piece;
        if (!begins(tensor->name, "in.")) continue;
        size_t from = 0;
        if (!ls_naming_find(&h->naming, tensor->name, &from, target, sizeof target, &piece))
            return LS_FAIL(h->ctx, LS_EINPUT, "%s: no name is known for %s (set names=)",
                           h->keys->golden, tensor->name);
        if (strcmp(target, "tokens") == 0)
            LS_TRY(read_tokens(h, tensor, &h->T, &h->tokens));
        else if (strcmp(target, "source") == 0)
            LS_TRY(read_tokens(h, tensor, &h->S, &h->source));
        else if (strcmp(target, "-") != 0)
            return LS_FAIL(h->ctx, LS_EUSE, "names: %s = %s is no input of a model", tensor->name,
                           target);
    }
    if (h->tokens == NULL)
        return LS_FAIL(h->ctx, LS_EINPUT, "%s has no tokens: in.tokens, or what names= says",
                       h->keys->golden);
    if ((h->source != NULL) != (h->config.encoder_layers > 0))
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: a source and model.encoder_layers go together",
                       h->keys->golden);
    return LS_OK;
}

/* ---- pieces ---- */

/* Fills first and length from the given lengths, the last of which is repeated. */
static void cut_into(held *h, const int64_t *each, int64_t count) {
    for (int64_t at = 0; at < h->T; at += h->length[h->pieces++]) {
        h->first[h->pieces] = at;
        h->length[h->pieces] = ls_min(each[ls_min(h->pieces, count - 1)], h->T - at);
    }
}

/* Pieces behind the last that the file says something of are left out: a last token, say, that is
 * only there to be predicted. */
static ls_status leave_out_rest(held *h) {
    int64_t most = 0;
    for (size_t i = 0; i < h->file.count; i++) {
        output out;
        if (!begins(h->file.items[i].name, "out.")) continue;
        LS_TRY(output_of(h, h->file.items[i].name + strlen("out."), &out));
        if (out.kind == OUT_NOT) continue;
        if (out.piece >= h->pieces)
            return LS_FAIL(h->ctx, LS_EINPUT, "%s: %s is of a piece that %lld tokens do not have",
                           h->keys->golden, h->file.items[i].name, (long long)h->T);
        most = ls_max(most, out.piece < 0 ? h->pieces : out.piece + 1);
    }
    if (most == 0)
        return LS_FAIL(h->ctx, LS_EINPUT, "%s has no outputs to compare with", h->keys->golden);
    h->pieces = most;
    h->T = h->first[most - 1] + h->length[most - 1];
    return LS_OK;
}

/* Sources are as many as pieces, and all of one length, as the pieces are. */
static ls_status check_sources(held *h) {
    int64_t cuts[LS_OPTION_REALS_MOST];
    LS_TRY(ls_apply_cuts(h->ctx, "source_cut", &h->keys->source_cut, cuts));
    const int64_t each = h->keys->source_cut.count > 0 ? cuts[0] : h->S;
    if (h->keys->source_cut.count > 1 || h->S != h->pieces * each ||
        h->T != h->pieces * h->length[0])
        return LS_FAIL(h->ctx, LS_EUSE,
                       "%lld tokens of sources and %lld behind them are not cut into %lld equal "
                       "pieces: see source_cut and cut",
                       (long long)h->S, (long long)h->T, (long long)h->pieces);
    h->S = each;
    return LS_OK;
}

static ls_status cut_pieces(held *h) {
    const int64_t given = h->keys->cut.count, segment = h->config.model.segment, all = h->T;
    const bool decodes = h->config.encoder_layers > 0;
    int64_t cuts[LS_OPTION_REALS_MOST] = {h->T};
    LS_TRY(ls_apply_cuts(h->ctx, "cut", &h->keys->cut, cuts));
    if (given == 0 && !decodes && segment > 0) cuts[0] = segment;
    h->first = ls_new(h->ctx, (size_t)all + 1, sizeof *h->first);
    h->length = ls_new(h->ctx, (size_t)all + 1, sizeof *h->length);
    if (h->first == NULL || h->length == NULL) return LS_ENOMEM;
    cut_into(h, cuts, ls_max(given, 1));
    LS_TRY(leave_out_rest(h));
    h->runs = given > 0 && !decodes && segment == 0;
    return decodes ? check_sources(h) : LS_OK;
}

/* ---- cotangents ---- */

/* A tensor [B,rows,width] of the file (turned where its layout says so), checked; ls_free it. */
static ls_status read_rows(const held *h, const ls_safetensor *tensor, int64_t rows, int64_t width,
                           double **out) {
    const bool turned = h->keys->layout == LS_LAYOUT_TBD;
    const int64_t dims[2] = {turned ? rows : h->B, turned ? h->B : rows};
    if (tensor->rank < 2 || tensor->dim[0] != dims[0] || tensor->dim[1] != dims[1] ||
        tensor->count != h->B * rows * width)
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: %s is not [%lld,%lld,%lld], as it must be",
                       h->keys->golden, tensor->name, (long long)dims[0], (long long)dims[1],
                       (long long)width);
    LS_TRY(ls_stored_values(h->ctx, tensor, out));
    if (!turned) return LS_OK;
    double *values = ls_new(h->ctx, (size_t)ls_max(tensor->count, 1), sizeof *values);
    if (values != NULL) ls_exchange_axes(*out, rows, h->B, width, values);
    ls_free(h->ctx, *out);
    *out = values;
    return values == NULL ? LS_ENOMEM : LS_OK;
}

static const char *cotangent_name(const char *name) {
    if (strcmp(name, "cot") == 0) return "y";
    return begins(name, "cot.") ? name + strlen("cot.") : NULL;
}

/* The tokens of an output: a piece, or all. */
static void span_of(const held *h, const output *out, int64_t *first, int64_t *count) {
    *first = out->piece < 0 ? 0 : h->first[out->piece];
    *count = out->piece < 0 ? h->T : h->length[out->piece];
}

static ls_status read_cotangent(held *h, const ls_safetensor *tensor, const char *name) {
    output out;
    int64_t first, count;
    double *values;
    LS_TRY(output_of(h, name, &out));
    if (out.kind == OUT_SEGMENT || out.kind == OUT_NOT) return LS_OK; /* put at its run */
    const bool adaptive = h->config.model.adaptive_cutoffs.count > 0;
    if (out.kind >= SERIES || out.piece >= h->pieces || (out.kind == OUT_LOGITS && adaptive))
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: gradients cannot begin at %s", h->keys->golden,
                       tensor->name);
    series *s = &h->series[out.kind];
    span_of(h, &out, &first, &count);
    LS_TRY(read_rows(h, tensor, count, s->width, &values));
    for (int64_t b = 0; b < h->B; b++)
        for (int64_t i = 0; i < count * s->width; i++)
            s->cot[(b * h->T + first) * s->width + i] += values[b * count * s->width + i];
    ls_free(h->ctx, values);
    return LS_OK;
}

static ls_status make_series(held *h) {
    const int64_t widths[SERIES] = {h->config.model.width, h->config.model.vocabulary, 1};
    for (int i = 0; i < SERIES; i++) {
        series *s = &h->series[i];
        s->width = widths[i];
        s->value = ls_new(h->ctx, (size_t)(h->B * h->T * s->width), sizeof *s->value);
        s->cot = ls_new(h->ctx, (size_t)(h->B * h->T * s->width), sizeof *s->cot);
        if (s->value == NULL || s->cot == NULL) return LS_ENOMEM;
    }
    for (size_t i = 0; i < h->file.count; i++) {
        const char *name = cotangent_name(h->file.items[i].name);
        if (name != NULL) LS_TRY(read_cotangent(h, &h->file.items[i], name));
    }
    return LS_OK;
}

/* ---- one run ---- */

/* What a run is of: a piece of a stream, or all pieces at once. */
typedef struct run {
    ls_program *program;
    ls_state *state; /* NULL without a stream */
    int64_t piece;   /* -1: all of them */
    int64_t first, count;
    bool trains; /* the second time: gradients of the auxiliary losses alone */
} run;

static ls_status put_values(const held *h, const run *r, const char *name, const double *values) {
    const ls_tensor *tensor = ls_program_find(r->program, name);
    if (tensor == NULL) return LS_FAIL(h->ctx, LS_EBUG, "the program has no input %s", name);
    const int64_t count = ls_count(tensor);
    void *here = ls_new(h->ctx, (size_t)count, ls_dtype_size(tensor->type));
    if (here == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < count && values != NULL; i++)
        ls_element_set(here, tensor->type, i, values[i]);
    ls_tensor_put(r->program, tensor, here);
    ls_free(h->ctx, here);
    return LS_OK;
}

/* The run's rows of a series' cotangents; zeros where it trains. */
static ls_status put_series(const held *h, const run *r, const char *name, const series *s) {
    const int64_t each = r->count * s->width;
    double *values = r->trains ? NULL : ls_new(h->ctx, (size_t)(h->B * each), sizeof *values);
    if (!r->trains && values == NULL) return LS_ENOMEM;
    for (int64_t b = 0; b < h->B && !r->trains; b++)
        memcpy(values + b * each, s->cot + (b * h->T + r->first) * s->width,
               (size_t)each * sizeof *values);
    ls_status status = put_values(h, r, name, values);
    ls_free(h->ctx, values);
    return status;
}

/* Gradients that begin at what segments leave. */
static ls_status put_segments(const held *h, const run *r) {
    for (size_t i = 0; i < h->file.count && !r->trains; i++) {
        const char *name = cotangent_name(h->file.items[i].name);
        char full[sizeof(output) + 32];
        double *values;
        output out;
        if (name == NULL) continue;
        LS_TRY(output_of(h, name, &out));
        if (out.kind != OUT_SEGMENT) continue;
        snprintf(full, sizeof full, "cot.%s.%lld", out.name, (long long)out.piece);
        const ls_tensor *tensor = ls_program_find(r->program, full);
        if (tensor == NULL)
            return LS_FAIL(h->ctx, LS_EINPUT, "%s: gradients cannot begin at %s with this model",
                           h->keys->golden, h->file.items[i].name);
        LS_TRY(read_rows(h, &h->file.items[i], tensor->dim[1], tensor->dim[2], &values));
        ls_status status = put_values(h, r, full, values);
        ls_free(h->ctx, values);
        if (status != LS_OK) return status;
    }
    return LS_OK;
}

/* Sources before what follows them, piece by piece; targets are the tokens behind. */
static ls_status put_tokens(const held *h, const run *r) {
    const int64_t pieces = h->S > 0 ? h->pieces : 1, T = r->count / pieces, row = h->S + T;
    const int64_t all = pieces * row;
    int32_t *tokens = ls_new(h->ctx, (size_t)(h->B * all), sizeof *tokens);
    int32_t *targets = ls_new(h->ctx, (size_t)(h->B * r->count), sizeof *targets);
    ls_status status = tokens == NULL || targets == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t i = 0; i < h->B * all && status == LS_OK; i++) {
        const int64_t b = i / all, piece = i % all / row, at = i % row;
        tokens[i] = at < h->S ? h->source[(b * pieces + piece) * h->S + at]
                              : h->tokens[b * h->given + r->first + piece * T + at - h->S];
    }
    for (int64_t i = 0; i < h->B * r->count && status == LS_OK; i++) {
        const int64_t b = i / r->count, next = r->first + i % r->count + 1;
        targets[i] = next < h->given ? h->tokens[b * h->given + next] : -1;
    }
    if (status == LS_OK) status = ls_model_put_tokens(h->model, r->program, "tokens", tokens);
    if (status == LS_OK) status = ls_model_put_tokens(h->model, r->program, "targets", targets);
    ls_free(h->ctx, tokens);
    ls_free(h->ctx, targets);
    return status;
}

static ls_status put_inputs(const held *h, const run *r) {
    LS_TRY(put_tokens(h, r));
    const char *name;
    for (size_t i = 0; (name = ls_program_name_at(r->program, i)) != NULL; i++)
        if (begins(name, "cot.")) LS_TRY(put_values(h, r, name, NULL));
    LS_TRY(put_series(h, r, "cot.rows", &h->series[OUT_ROWS]));
    if (ls_program_find(r->program, "cot.logits") != NULL)
        LS_TRY(put_series(h, r, "cot.logits", &h->series[OUT_LOGITS]));
    LS_TRY(put_series(h, r, "weights", &h->series[OUT_LOSS]));
    return put_segments(h, r);
}

static ls_status take_series(const held *h, const run *r) {
    for (int i = 0; i < SERIES; i++) {
        const series *s = &h->series[i];
        const int64_t each = r->count * s->width;
        double *values = ls_new(h->ctx, (size_t)(h->B * each), sizeof *values);
        if (values == NULL) return LS_ENOMEM;
        ls_status status = ls_model_read(r->program, series_names[i], values);
        for (int64_t b = 0; b < h->B && status == LS_OK; b++)
            memcpy(s->value + (b * h->T + r->first) * s->width, values + b * each,
                   (size_t)each * sizeof *values);
        ls_free(h->ctx, values);
        if (status != LS_OK) return status;
    }
    return LS_OK;
}

/* ---- comparisons ---- */

/* Values [B,rows,width] in the file's layout against a tensor of it. */
static ls_status compare_rows(held *h, const ls_safetensor *tensor, const double *values,
                              int64_t rows, int64_t width) {
    const bool turned = h->keys->layout == LS_LAYOUT_TBD;
    double *wanted, *ours = NULL;
    LS_TRY(read_rows(h, tensor, rows, width, &wanted)); /* for its shape */
    ls_free(h->ctx, wanted);
    if (turned) {
        ours = ls_new(h->ctx, (size_t)ls_max(tensor->count, 1), sizeof *ours);
        if (ours == NULL) return LS_ENOMEM;
        ls_exchange_axes(values, h->B, rows, width, ours);
    }
    ls_status status = ls_compare(h->ctx, &h->comparison, tensor->name, turned ? ours : values,
                                  tensor, h->keys->tol);
    ls_free(h->ctx, ours);
    return status;
}

/* The rows that a layer carries on, of as many as the file has. A name with a {x} in it means all
 * layers: the file's first axis. */
static ls_status compare_state(held *h, const run *r, const ls_safetensor *tensor,
                               const char *name) {
    const char *open = strchr(name, '{');
    const int64_t layers = open == NULL ? 1 : tensor->dim[0];
    const int at = open == NULL ? 0 : 1;
    if (r->state == NULL)
        return LS_FAIL(h->ctx, LS_EUSE, "%s is what a stream carries: set cut=", tensor->name);
    if (tensor->rank < at + 2 || tensor->rank > at + 4)
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: %s has %d axes: it cannot be a state",
                       h->keys->golden, tensor->name, tensor->rank);
    if (tensor->count == 0) return LS_OK;
    const bool turned = h->keys->layout == LS_LAYOUT_TBD;
    const int64_t rows = tensor->dim[at + (turned ? 0 : 1)], B = tensor->dim[at + (turned ? 1 : 0)];
    const int64_t width = tensor->count / (layers * rows * B), each = rows * B * width;
    if (B != h->B)
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: %s is not of %lld sequences", h->keys->golden,
                       tensor->name, (long long)h->B);
    double *values = ls_new(h->ctx, (size_t)tensor->count, sizeof *values);
    double *layer = ls_new(h->ctx, (size_t)each, sizeof *layer);
    ls_status status = values == NULL || layer == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t i = 0; i < layers && status == LS_OK; i++) {
        char full[LS_SAFETENSORS_NAME_MOST + 96];
        snprintf(full, sizeof full, "%s", name);
        if (open != NULL)
            snprintf(full, sizeof full, "%.*s%lld%s", (int)(open - name), name, (long long)i,
                     open + strcspn(open, "}") + 1);
        status = ls_state_values(r->program, r->state, full, rows, width, layer);
        if (turned)
            ls_exchange_axes(layer, B, rows, width, values + i * each);
        else
            memcpy(values + i * each, layer, (size_t)each * sizeof *values);
    }
    if (status == LS_OK)
        status = ls_compare(h->ctx, &h->comparison, tensor->name, values, tensor, h->keys->tol);
    ls_free(h->ctx, values);
    ls_free(h->ctx, layer);
    return status;
}

static ls_status compare_segment(held *h, const run *r, const ls_safetensor *tensor,
                                 const output *out) {
    char full[sizeof(output) + 32];
    snprintf(full, sizeof full, "%s.%lld", out->name, (long long)out->piece);
    const ls_tensor *kept = ls_program_find(r->program, full);
    if (kept == NULL)
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: the model leaves nothing that could be %s",
                       h->keys->golden, tensor->name);
    double *values = ls_new(h->ctx, (size_t)ls_count(kept), sizeof *values);
    if (values == NULL) return LS_ENOMEM;
    ls_status status = ls_model_read(r->program, full, values);
    if (status == LS_OK) status = compare_rows(h, tensor, values, kept->dim[1], kept->dim[2]);
    ls_free(h->ctx, values);
    return status;
}

static ls_status compare_number(held *h, const ls_safetensor *tensor, double value) {
    if (tensor->count != 1)
        return LS_FAIL(h->ctx, LS_EINPUT, "%s: %s is not one number", h->keys->golden,
                       tensor->name);
    return ls_compare(h->ctx, &h->comparison, tensor->name, &value, tensor, h->keys->tol);
}

/* What can only be seen right after its run. */
static ls_status compare_run(held *h, const run *r) {
    for (size_t i = 0; i < h->file.count; i++) {
        const ls_safetensor *tensor = &h->file.items[i];
        output out;
        if (!begins(tensor->name, "out.")) continue;
        LS_TRY(output_of(h, tensor->name + strlen("out."), &out));
        const bool here =
            r->piece < 0 || out.piece == r->piece || (out.piece < 0 && r->piece == h->pieces - 1);
        if (!here) continue;
        if (out.kind == OUT_AUXILIARY && r->trains) {
            double sum;
            LS_TRY(ls_program_auxiliary(r->program, &sum));
            LS_TRY(compare_number(h, tensor, sum));
        }
        if (out.kind == OUT_STATE && !r->trains) LS_TRY(compare_state(h, r, tensor, out.name));
        if (out.kind == OUT_SEGMENT && !r->trains) LS_TRY(compare_segment(h, r, tensor, &out));
    }
    return LS_OK;
}

static ls_status compare_series(held *h, const ls_safetensor *tensor, const output *out) {
    const series *s = &h->series[out->kind];
    int64_t first, count;
    span_of(h, out, &first, &count);
    double *values = ls_new(h->ctx, (size_t)(h->B * count * s->width), sizeof *values);
    if (values == NULL) return LS_ENOMEM;
    for (int64_t b = 0; b < h->B; b++)
        memcpy(values + b * count * s->width, s->value + (b * h->T + first) * s->width,
               (size_t)(count * s->width) * sizeof *values);
    ls_status status = compare_rows(h, tensor, values, count, s->width);
    ls_free(h->ctx, values);
    return status;
}

/* Over all tokens of a piece that have one behind them. */
static double mean_loss(const held *h, const output *out) {
    int64_t first, count, counted = 0;
    double sum = 0;
    span_of(h, out, &first, &count);
    for (int64_t b = 0; b < h->B; b++)
        for (int64_t t = first; t < first + count; t++)
            if (t + 1 < h->given) sum += h->series[OUT_LOSS].value[b * h->T + t], counted++;
    return sum / (double)ls_max(counted, 1);
}

static ls_status compare_outputs(held *h) {
    for (size_t i = 0; i < h->file.count; i++) {
        const ls_safetensor *tensor = &h->file.items[i];
        output out;
        if (!begins(tensor->name, "out.")) continue;
        LS_TRY(output_of(h, tensor->name + strlen("out."), &out));
        if (out.kind < SERIES) LS_TRY(compare_series(h, tensor, &out));
        if (out.kind == OUT_MEAN_LOSS) LS_TRY(compare_number(h, tensor, mean_loss(h, &out)));
    }
    return LS_OK;
}

/* A gradient is of a weight that the file has, and of its shape. */
static ls_status check_gradient(const held *h, const ls_safetensor *tensor, const char *name) {
    char full[LS_SAFETENSORS_NAME_MOST + 8];
    snprintf(full, sizeof full, "w.%s", name);
    const ls_safetensor *weight = ls_safetensors_find(&h->file, full);
    bool same = weight != NULL && weight->rank == tensor->rank;
    for (int i = 0; same && i < tensor->rank; i++) same = weight->dim[i] == tensor->dim[i];
    if (same) return LS_OK;
    return LS_FAIL(h->ctx, LS_EINPUT, "%s: %s has not the shape of %s, or there is none",
                   h->keys->golden, tensor->name, full);
}

static ls_status compare_gradients(held *h, const char *prefix) {
    for (size_t i = 0; i < h->file.count; i++) {
        const ls_safetensor *tensor = &h->file.items[i];
        ls_weight weight;
        if (!begins(tensor->name, prefix)) continue;
        LS_TRY(check_gradient(h, tensor, tensor->name + strlen(prefix)));
        LS_TRY(weight_of(h, tensor->name + strlen(prefix), &weight));
        if (weight.parts == 0) continue;
        double *ours = ls_new(h->ctx, (size_t)ls_max(tensor->count, 1), sizeof *ours);
        if (ours == NULL) return LS_ENOMEM;
        const bool moves = (weight.flags & LS_ALIAS_MOVES) != 0;
        ls_status status = LS_OK;
        if (!moves) status = ls_weight_gradient(h->ctx, h->model->store, &weight, tensor, ours);
        if (status == LS_OK)
            status = ls_compare(h->ctx, &h->comparison, tensor->name, moves ? h->moving[i] : ours,
                                tensor, h->keys->grad_tol);
        ls_free(h->ctx, ours);
        if (status != LS_OK) return status;
    }
    return LS_OK;
}

/* ---- the whole ---- */

static ls_status record(const held *h, run *r) {
    const bool decodes = h->S > 0;
    ls_program_options options = {.batch = h->B,
                                  .length = r->count,
                                  .grad = true,
                                  .train = r->trains,
                                  .source = decodes ? h->S : 0};
    if (!decodes && h->config.model.segment > 0) {
        options.segments = h->length;
        options.segment_count = h->pieces;
    }
    if (h->runs) {
        options.streaming = true;
        options.capacity = ls_max(h->T, h->keys->capacity);
        for (int64_t i = 0; i < h->pieces; i++)
            options.chunk_most = ls_max(options.chunk_most, h->length[i]);
    }
    LS_TRY(ls_model_program_observed(h->model, decodes ? h->pieces : 1, options, &r->program));
    if (r->count <= ls_program_chunk_limit(r->program)) return LS_OK;
    return LS_FAIL(h->ctx, LS_EUSE, "this model takes at most %lld tokens at once: see cut",
                   (long long)ls_program_chunk_limit(r->program));
}

static ls_status run_piece(held *h, run *r, const char *prefix) {
    for (int64_t i = 0; i < h->config.layers; i++) h->mixers[i].start = r->first;
    LS_TRY(load_weights(h, true));
    LS_TRY(put_inputs(h, r));
    LS_TRY(ls_program_run(r->program, r->state, 0, 0));
    if (!r->trains) LS_TRY(take_series(h, r));
    LS_TRY(compare_run(h, r));
    return gather_moving(h, prefix);
}

/* All pieces. `trains`: as in training, for the auxiliary losses and their gradients. */
static ls_status run_all(held *h, bool trains) {
    const char *prefix = trains ? "grad.aux." : "grad.w.";
    run r = {.piece = h->runs ? 0 : -1, .count = h->runs ? h->length[0] : h->T, .trains = trains};
    ls_status status = LS_OK;
    ls_parameters_clear_gradient(h->model->store);
    LS_TRY_GOTO(record(h, &r));
    if (h->runs) LS_TRY_GOTO(ls_state_new(r.program, &r.state));
    for (;;) {
        LS_TRY_GOTO(run_piece(h, &r, prefix));
        if (!h->runs || r.piece + 1 == h->pieces) break;
        r.piece++;
        r.first = h->first[r.piece];
        if (h->length[r.piece] == r.count) continue;
        r.count = h->length[r.piece];
        ls_program_free(r.program);
        r.program = NULL;
        LS_TRY_GOTO(record(h, &r));
    }
    if (!trains) LS_TRY_GOTO(compare_outputs(h));
    status = compare_gradients(h, prefix);
fail:
    ls_program_free(r.program);
    ls_state_free(h->ctx, r.state);
    return status;
}

static ls_status make_model(held *h) {
    const ls_model_config *config = &h->config;
    LS_TRY(ls_model_config_read(h->ctx, &h->cli->settings, &h->config));
    LS_TRY(ls_cli_finish_settings(h->cli));
    LS_TRY(ls_model_plan(h->ctx, config, h->type, true, &h->model));
    h->mixers =
        ls_new(h->ctx, (size_t)(config->layers + config->encoder_layers), sizeof *h->mixers);
    h->set = ls_new(h->ctx, h->model->store->count + 1, sizeof *h->set);
    h->moving = ls_new(h->ctx, h->file.count + 1, sizeof *h->moving);
    if (h->mixers == NULL || h->set == NULL || h->moving == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < config->layers; i++) h->mixers[i] = ls_model_mixer(config, i);
    for (int64_t i = 0; i < config->encoder_layers; i++)
        h->mixers[config->layers + i] = ls_model_encoder_mixer(config, i);
    return LS_OK;
}

static bool has_auxiliary(const held *h) {
    for (size_t i = 0; i < h->file.count; i++) {
        const char *name = h->file.items[i].name;
        output out;
        if (begins(name, "grad.aux.")) return true;
        if (begins(name, "out.") && output_of(h, name + strlen("out."), &out) == LS_OK &&
            out.kind == OUT_AUXILIARY)
            return true;
    }
    return false;
}

static ls_status apply(held *h) {
    const ls_apply_keys *keys = h->keys;
    if (keys->golden[0] == '\0')
        return LS_FAIL(h->ctx, LS_EUSE, "apply model compares with reference values: give golden=");
    if (keys->mixer[0] != '\0' || keys->position[0] != '\0')
        return LS_FAIL(h->ctx, LS_EUSE, "a model's are model.mixer= and model.position=");
    LS_TRY(ls_naming_read(h->ctx, keys->names, &h->naming));
    LS_TRY(ls_safetensors_open(h->ctx, keys->golden, &h->file));
    h->file_open = true;
    LS_TRY(check_names(h));
    LS_TRY(make_model(h));
    LS_TRY(read_inputs(h));
    h->given = h->T;
    LS_TRY(cut_pieces(h));
    LS_TRY(load_weights(h, false));
    LS_TRY(make_series(h));
    LS_TRY(ls_comparison_scale(h->ctx, &h->file, &h->comparison));
    LS_TRY(run_all(h, false));
    if (has_auxiliary(h)) LS_TRY(run_all(h, true));
    return ls_comparison_print(h->cli, &h->comparison);
}

ls_status ls_apply_model(ls_cli *cli, const ls_apply_keys *keys) {
    static const ls_dtype types[] = {LS_F64, LS_F32, LS_BF16};
    held h = {.cli = cli, .ctx = &cli->ctx, .keys = keys, .type = types[keys->dtype]};
    ls_status status = apply(&h);
    for (size_t i = 0; h.moving != NULL && i < h.file.count; i++) ls_free(h.ctx, h.moving[i]);
    for (int i = 0; i < SERIES; i++) {
        ls_free(h.ctx, h.series[i].value);
        ls_free(h.ctx, h.series[i].cot);
    }
    json_decref(h.comparison.rows);
    ls_free(h.ctx, h.moving);
    ls_free(h.ctx, h.set);
    ls_free(h.ctx, h.mixers);
    ls_free(h.ctx, h.tokens);
    ls_free(h.ctx, h.source);
    ls_free(h.ctx, h.first);
    ls_free(h.ctx, h.length);
    ls_naming_clear(h.ctx, &h.naming);
    if (h.file_open) ls_safetensors_close(h.ctx, &h.file);
    ls_model_free(h.model);
    ls_model_config_clear(h.ctx, &h.config);
    return status;
}
