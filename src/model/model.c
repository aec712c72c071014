/* Embedding, blocks, head: see model.h. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/adaptive.h"
#include "model/cross.h"
#include "model/layers.h"
#include "model/slots.h"
#include "model/weights.h"

static ls_tensor *mix(ls_program *p, const ls_model_config *config, ls_mixer mixer, ls_tensor *x,
                      ls_tensor *valid) {
    mixer.valid = valid;
    ls_scope(p, "mixer");
    ls_tensor *y = ls_mixer_record(p, &mixer, x);
    ls_scope_end(p);
    return ls_dropout(p, y, config->model.dropout);
}

static bool is_whole(const ls_mixer *mixer) {
    return mixer->type->whole != NULL && mixer->type->whole(mixer);
}

static bool has_other_rows(const ls_mixer *mixer) {
    return mixer->type->other_rows != NULL && mixer->type->other_rows(mixer);
}

/* A layer whose norm comes first. *x: what the sum of x and delta is; a mixer that remembers its
 * input does so before the norm. */
static ls_tensor *mix_normed(ls_program *p, const ls_model_config *config, ls_mixer mixer,
                             ls_tensor **x, ls_tensor *delta, ls_tensor *valid) {
    const ls_program_options *options = ls_program_about(p);
    ls_tensor *normed = ls_layer_norm(p, &config->model, "norm1", *x, delta, x);
    if (mixer.type->remembers != NULL && options->streaming && options->grad && !ls_failed(p)) {
        ls_tensor *rows = ls_cache_append(p, "mixer.memory", *x, mixer.type->remembers(&mixer));
        mixer.remembered = ls_layer_norm(p, &config->model, "norm1", rows, NULL, NULL);
    }
    return mix(p, config, mixer, normed, valid);
}

/* A layer that has its norms and sums itself. Rows of its own are all there: none is padding. */
static ls_tensor *mix_whole(ls_program *p, const ls_model_config *config, ls_mixer mixer,
                            ls_tensor *x, ls_tensor **valid) {
    ls_tensor *y = mix(p, config, mixer, x, *valid);
    if (has_other_rows(&mixer)) *valid = NULL;
    if (y == NULL || y->dim[2] == config->model.width) return y;
    ls_refuse(p, LS_EUSE, "mixer %s leaves rows of %lld where the model's width is %lld",
              mixer.type->name, (long long)y->dim[2], (long long)config->model.width);
    return NULL;
}

static ls_tensor *look_at(ls_program *p, const ls_model_settings *about, ls_tensor *x,
                          const ls_source *source) {
    return ls_dropout(p, ls_cross_attention(p, about, x, source), about->dropout);
}

/* What a layer made, `delta`, as the next norm takes it: to be added to *x, or where a gate joined
 * the two (in *x) NULL. */
static ls_tensor *joined(ls_program *p, const ls_model_settings *about, const char *name,
                         ls_tensor **x, ls_tensor *delta) {
    if (about->residual == LS_RESIDUAL_SUM) return delta;
    *x = ls_gated_unit(p, about, name, "own", delta, *x);
    return NULL;
}

/* Layers [first, end), which read the rows of `context` too, or attend to a source (NULL: there are
 * none). */
typedef struct stack {
    int64_t first, end;
    ls_tensor *context;
    const char *norm; /* name of the last norm, where norms come first */
    bool encodes;     /* a source: the encoder's layers, not the model's own */
    const ls_source *source;
} stack;

static stack all_layers(const ls_model_config *config, ls_tensor *context) {
    return (stack){.end = config->layers, .context = context, .norm = "norm"};
}

/* Rows [B,T,D] through the layers. valid: see ls_mixer. */
static ls_tensor *blocks(ls_program *p, const ls_model_config *config, stack layers, ls_tensor *x,
                         ls_tensor *valid) {
    const ls_model_settings *about = &config->model;
    const ls_position_type *position = config->position.type;
    const bool pre = about->norm_place == LS_PLACE_PRE;
    ls_tensor *delta = NULL;
    if (position->embed != NULL) x = position->embed(p, config->position.options, x);
    x = ls_dropout(p, x, about->dropout);
    for (int64_t layer = layers.first; layer < layers.end && !ls_failed(p); layer++) {
        const ls_mixer mixer =
            layers.encodes ? ls_model_encoder_mixer(config, layer) : ls_model_mixer(config, layer);
        ls_scope(p, "layers.%d", (int)layer);
        if (is_whole(&mixer)) {
            x = mix_whole(p, config, mixer, delta == NULL ? x : ls_plus(p, x, delta), &valid);
            delta = NULL;
        } else if (pre) {
            delta = mix_normed(p, config, mixer, &x, delta, valid);
            delta = joined(p, about, "gate1", &x, delta);
        } else {
            x = ls_layer_norm(p, about, "norm1", x, mix(p, config, mixer, x, valid), NULL);
        }
        if (layers.context != NULL && pre) {
            delta = ls_slots_read(p, about, ls_layer_norm(p, about, "read.norm", x, delta, &x),
                                  layers.context);
            delta = joined(p, about, "read.gate", &x, delta);
        } else if (layers.context != NULL)
            x = ls_layer_norm(p, about, "read.norm", x, ls_slots_read(p, about, x, layers.context),
                              NULL);
        if (layers.source != NULL && pre) {
            delta = look_at(p, about, ls_layer_norm(p, about, "norm_cross", x, delta, &x),
                            layers.source);
            delta = joined(p, about, "gate_cross", &x, delta);
        } else if (layers.source != NULL)
            x = ls_layer_norm(p, about, "norm_cross", x, look_at(p, about, x, layers.source), NULL);
        if (about->feed_forward && pre) {
            delta = ls_feed_forward(p, about, ls_layer_norm(p, about, "norm2", x, delta, &x));
            delta = joined(p, about, "gate2", &x, delta);
        } else if (about->feed_forward)
            x = ls_layer_norm(p, about, "norm2", x, ls_feed_forward(p, about, x), NULL);
        ls_scope_end(p);
    }
    if (!pre) return x;
    if (about->last_norm) return ls_layer_norm(p, about, layers.norm, x, delta, NULL);
    return delta == NULL ? x : ls_plus(p, x, delta);
}

/* Keeps a tensor under a name, and with gradients lets them begin there. */
static void observe(ls_program *p, const char *name, ls_tensor *tensor) {
    char cotangent[64];
    if (tensor == NULL) return;
    ls_keep(p, name, tensor);
    if (!ls_program_about(p)->grad) return;
    snprintf(cotangent, sizeof cotangent, "cot.%s", name);
    ls_seed_gradient(p, tensor,
                     ls_input(p, cotangent, tensor->type, tensor->rank, tensor->dim, false));
}

/* What a segment leaves, in a program that keeps such. */
static void observe_segment(ls_program *p, const char *name, int64_t number, ls_tensor *tensor) {
    char full[32];
    if (!ls_program_about(p)->observed) return;
    snprintf(full, sizeof full, "%s.%lld", name, (long long)number);
    observe(p, full, tensor);
}

/* ---- segments ---- */

/* What a segment leaves for the next. */
typedef struct carried {
    ls_tensor *memory;
    ls_tensor *encoded; /* rows of the segment before, where the model has an encoder */
} carried;

/* Recurrent Memory Transformer (arXiv 2207.06881): rows of memory are read before a segment's own
 * and written after them, and what comes out of the latter is the next segment's memory. */
static ls_tensor *with_rows(ls_program *p, const ls_model_config *config, ls_tensor *x,
                            carried *now) {
    const int64_t m = config->model.memory;
    ls_tensor *part[3], *rows = ls_join_rows(p, 3, (ls_tensor *[]){now->memory, x, now->memory});
    if (rows == NULL) return NULL;
    ls_cut_rows(p, blocks(p, config, all_layers(config, NULL), rows, NULL), 3,
                (int64_t[]){m, x->dim[1], m}, part);
    now->memory = part[2];
    return part[1];
}

/* Memformer: every layer reads the slots and the last one's rows write them. With an encoder it is
 * the encoder that does so, and the other layers read what it made of the segment before. */
static ls_tensor *with_slots(ls_program *p, const ls_model_config *config, ls_tensor *x,
                             carried *now) {
    const ls_model_settings *about = &config->model;
    ls_tensor *memory = ls_slots_seen(p, about, now->memory), *y;
    if (about->memory_encoder == 0) {
        y = blocks(p, config, all_layers(config, memory), x, NULL);
        now->memory = ls_slots_write(p, about, memory, y, NULL);
        return y;
    }
    const stack encoder = {.end = about->memory_encoder, .context = memory, .norm = "encoder_norm"};
    const stack decoder = {
        about->memory_encoder, config->layers, now->encoded, "norm", false, NULL};
    y = blocks(p, config, decoder, x, NULL);
    now->encoded = blocks(p, config, encoder, x, NULL);
    now->memory = ls_slots_write(p, about, memory, now->encoded, NULL);
    return y;
}

/* What this run begins with: what the one before left, and parameters at a sequence's start. */
static carried carried_before(ls_program *p, const ls_model_settings *about, int64_t batch) {
    const int64_t m = about->memory, L = about->segment, D = about->width;
    carried now = {0};
    if (m == 0) return now;
    now.memory = ls_begin_with(p, ls_state_read(p, "memory", ls_type(p), LS_DIMS(batch, m, D)),
                               ls_slots_start(p, about));
    if (about->memory_encoder > 0)
        now.encoded =
            ls_begin_with(p, ls_state_read(p, "encoded", ls_type(p), LS_DIMS(batch, L, D)),
                          ls_param(p, "encoder_start", LS_DIMS(L, D), ls_init_normal(about->init)));
    return now;
}

enum { SEGMENTS_MAX = 4096 };

/* The lengths that the program was given. */
static int64_t given_segments(ls_program *p, int64_t T, int64_t each,
                              int64_t length[SEGMENTS_MAX]) {
    const ls_program_options *options = ls_program_about(p);
    const int64_t count = options->segment_count;
    int64_t sum = 0;
    for (int64_t i = 0; i < ls_min(count, SEGMENTS_MAX); i++) {
        length[i] = ls_min(each, options->segments[i]);
        sum += length[i];
    }
    if (sum == T) return count;
    ls_refuse(p, LS_EUSE, "%lld segments of at most model.segment=%lld tokens are not %lld tokens",
              (long long)count, (long long)each, (long long)T);
    return 0;
}

/* How many segments of `each` tokens T tokens are, and their lengths; 0: too many. */
static int64_t segments_of(ls_program *p, int64_t T, int64_t each, int64_t length[SEGMENTS_MAX]) {
    const int64_t count = (T + each - 1) / each;
    if (count > SEGMENTS_MAX) {
        ls_refuse(p, LS_EUSE, "%lld tokens at once are more than %d segments of %lld", (long long)T,
                  SEGMENTS_MAX, (long long)each);
        return 0;
    }
    for (int64_t i = 0; i < count; i++) length[i] = ls_min(each, T - i * each);
    return count;
}

/* The layers segment by segment. A segment that is not whole leaves nothing: see ls_program_unit.
 * Padding comes after all that counts, and no row is changed by what comes later: no validity is
 * needed. */
static ls_tensor *in_segments(ls_program *p, const ls_model_config *config, ls_tensor *x) {
    const ls_model_settings *about = &config->model;
    const int64_t m = about->memory, each = about->segment;
    if (x == NULL) return NULL;
    ls_tensor *segment[SEGMENTS_MAX];
    int64_t length[SEGMENTS_MAX];
    const int64_t count = ls_program_about(p)->segments != NULL
                              ? given_segments(p, x->dim[1], each, length)
                              : segments_of(p, x->dim[1], each, length);
    if (count == 0) return NULL;
    ls_cut_rows(p, x, (int)count, length, segment);
    carried now = carried_before(p, about, x->dim[0]), kept = {0};
    const bool slots = about->memory_kind == LS_MEMORY_SLOTS;
    for (int64_t i = 0; i < count && !ls_failed(p); i++) {
        ls_apart(p, slots ? length[i] : 2 * m + length[i]);
        if (m == 0)
            segment[i] = blocks(p, config, all_layers(config, NULL), segment[i], NULL);
        else
            segment[i] = slots ? with_slots(p, config, segment[i], &now)
                               : with_rows(p, config, segment[i], &now);
        ls_apart_end(p);
        observe_segment(p, "memory", i, now.memory);
        observe_segment(p, "encoded", i, now.encoded);
        if (length[i] == each) kept = now;
    }
    ls_state_write(p, "memory", kept.memory);
    ls_state_write(p, "encoded", kept.encoded);
    ls_program_set_unit(p, each);
    return ls_join_rows(p, (int)count, segment);
}

static ls_tensor *embed(ls_program *p, const ls_model_settings *about, ls_tensor *tokens,
                        ls_tensor **embedding) {
    *embedding = NULL;
    if (!ls_adaptive(about))
        *embedding = ls_param(p, "embed.weight", LS_DIMS(about->vocabulary, about->width),
                              ls_init_normal(about->init));
    ls_tensor *x =
        ls_adaptive(about) ? ls_adaptive_rows(p, about, tokens) : ls_embed(p, tokens, *embedding);
    return about->scale_embedding ? ls_times(p, x, sqrt((double)about->width)) : x;
}

ls_tensor *ls_model_rows(ls_program *p, const ls_model_config *config, ls_tensor *tokens,
                         ls_tensor *valid, ls_tensor **embedding) {
    ls_tensor *x = embed(p, &config->model, tokens, embedding);
    if (config->encoder_layers > 0)
        ls_refuse(p, LS_EUSE, "rows of a model with an encoder depend on a source");
    return config->model.segment > 0 ? in_segments(p, config, x)
                                     : blocks(p, config, all_layers(config, NULL), x, valid);
}

/* ---- encoder and decoder ---- */

/* What slots are before a text's first source. */
static ls_tensor *first_slots(ls_program *p, const ls_model_settings *about, int64_t batch) {
    ls_tensor *none = ls_constant(p, ls_type(p), LS_DIMS(batch, about->memory, about->width), NULL);
    return ls_begin_with(p, none, ls_slots_start(p, about));
}

/* One segment of a source: tokens [B,S] -> rows [B,S,D]. It stands apart: its positions are its
 * own, and it is read whole. `memory`: slots before and after it; NULL before the first. */
static ls_tensor *encode_segment(ls_program *p, const ls_model_config *config, ls_tensor *tokens,
                                 ls_tensor *valid, ls_tensor **memory) {
    const ls_model_settings *about = &config->model;
    const bool slots = about->memory > 0;
    stack encoder = {.end = config->encoder_layers, .norm = "norm", .encodes = true};
    ls_tensor *x = NULL, *embedding;
    if (tokens == NULL) return NULL;
    if (!about->encoder_embedding) x = embed(p, about, tokens, &embedding);
    ls_scope_root(p, "encoder");
    if (about->encoder_embedding) x = embed(p, about, tokens, &embedding);
    if (slots && *memory == NULL) *memory = first_slots(p, about, tokens->dim[0]);
    ls_apart(p, tokens->dim[1]);
    if (slots) encoder.context = ls_slots_seen(p, about, *memory);
    x = blocks(p, config, encoder, x, valid);
    if (slots) *memory = ls_slots_write(p, about, encoder.context, x, valid);
    ls_apart_end(p);
    ls_scope_root_end(p);
    return x;
}

/* What passes from source to source in a program that has several. */
typedef struct reading {
    ls_tensor *memory;
    int64_t segments; /* read so far */
} reading;

static ls_source encode(ls_program *p, const ls_model_config *config, ls_tensor *tokens,
                        reading *now) {
    ls_tensor *part[SEGMENTS_MAX] = {tokens}, *rows[SEGMENTS_MAX] = {NULL};
    int64_t length[SEGMENTS_MAX];
    const int64_t S = ls_program_about(p)->source, each = config->model.segment;
    ls_source source = {.length = S, .valid = ls_valid_rows(p, tokens)};
    if (ls_failed(p)) return source;
    const int64_t count = segments_of(p, S, each > 0 ? each : S, length);
    if (count > 1) ls_cut_rows(p, tokens, (int)count, length, part);
    for (int64_t i = 0; i < count && !ls_failed(p); i++) {
        ls_tensor *valid = count == 1 ? source.valid : ls_valid_rows(p, part[i]);
        rows[i] = encode_segment(p, config, part[i], valid, &now->memory);
        observe_segment(p, "memory", now->segments, now->memory);
        observe_segment(p, "encoded", now->segments++, rows[i]);
    }
    source.rows = count == 1 ? rows[0] : ls_join_rows(p, (int)count, rows);
    return source;
}

/* tokens [B,S+T], a source and what follows it, or [B,T] where the state has the source -> what the
 * head reads, [B,T,D]. Padding of what follows comes after all that counts, so the decoder needs no
 * validity. */
static ls_tensor *decoded_rows(ls_program *p, const ls_model_config *config, ls_tensor *tokens,
                               reading *now, ls_tensor **embedding) {
    const ls_program_options *options = ls_program_about(p);
    const int64_t B = options->batch, S = options->source, T = options->length;
    ls_source source = {.length = S};
    ls_tensor *part[2] = {NULL, tokens};
    if (!options->source_read) {
        ls_cut_rows(p, tokens, 2, (int64_t[]){S, T}, part);
        source = encode(p, config, part[0], now);
    }
    source.valid = ls_source_kept(p, "source", source.valid, LS_U8, LS_DIMS(B, S));
    ls_tensor *x = embed(p, &config->model, part[1], embedding);
    stack decoder = all_layers(config, NULL);
    decoder.source = &source;
    return blocks(p, config, decoder, x, NULL);
}

/* Several sources one after the other, each with its share of what follows, which stands apart. */
static ls_tensor *decoded_pieces(ls_program *p, const ls_model_config *config, ls_tensor *tokens,
                                 int64_t pieces, ls_tensor **embedding) {
    const ls_program_options *options = ls_program_about(p);
    const int64_t S = options->source, T = options->length / pieces;
    ls_tensor *part[SEGMENTS_MAX];
    int64_t length[SEGMENTS_MAX];
    reading now = {0};
    if (segments_of(p, pieces * (S + T), S + T, length) == 0) return NULL;
    ls_cut_rows(p, tokens, (int)pieces, length, part);
    for (int64_t i = 0; i < pieces && !ls_failed(p); i++) {
        ls_tensor *two[2];
        ls_cut_rows(p, part[i], 2, (int64_t[]){S, T}, two);
        const ls_source source = encode(p, config, two[0], &now);
        ls_tensor *x = embed(p, &config->model, two[1], embedding);
        stack decoder = all_layers(config, NULL);
        decoder.source = &source;
        ls_apart(p, T);
        part[i] = blocks(p, config, decoder, x, NULL);
        ls_apart_end(p);
    }
    return ls_join_rows(p, (int)pieces, part);
}

/* ---- heads ---- */

/* The last product: logits = x weight^T + bias. */
typedef struct output {
    ls_tensor *x, *weight, *bias;
} output;

/* Rows a, b of each pair -> two hidden layers over [a, b, a * b, a - b] (Long Range Arena, arXiv
 * 2011.04006); the first layer's weight is kept in those four parts. */
static ls_tensor *compare(ls_program *p, const ls_model_settings *about, ls_tensor *rows) {
    const int64_t D = about->width, F = ls_hidden_width(about), half = ls_max(F / 2, 1);
    ls_tensor *pair[2] = {NULL, NULL};
    if (rows == NULL) return NULL;
    ls_split(p, ls_reshape(p, rows, LS_DIMS(rows->dim[0] / 2, 2 * D)), 2, (const int64_t[]){D, D},
             pair);
    ls_tensor *product = ls_gate(p, LS_ACT_NONE, pair[0], pair[1]);
    ls_tensor *difference = ls_plus(p, pair[0], ls_times(p, pair[1], -1));
    ls_tensor *x = ls_plus(p, ls_project(p, about, "first", pair[0], F, true),
                           ls_project(p, about, "second", pair[1], F, false));
    x = ls_plus(p, x, ls_project(p, about, "product", product, F, false));
    x = ls_plus(p, x, ls_project(p, about, "difference", difference, F, false));
    x = ls_project(p, about, "narrow", ls_activate(p, LS_ACT_RELU, false, x), half, true);
    return ls_activate(p, LS_ACT_RELU, false, x);
}

static output lm_head(ls_program *p, const ls_model_settings *about, ls_tensor *x,
                      ls_tensor *embedding) {
    ls_tensor *bias = NULL;
    if (about->head_bias)
        bias = ls_param(p, "head.bias", LS_DIMS(about->vocabulary), ls_init_bias());
    if (about->tied) return (output){x, embedding, bias};
    return (output){x,
                    ls_param(p, "head.weight", LS_DIMS(about->vocabulary, about->width),
                             ls_init_normal(about->init)),
                    bias};
}

static output class_head(ls_program *p, const ls_model_settings *about, ls_tensor *x,
                         ls_tensor *valid) {
    x = ls_pool_rows(p, (ls_pool_kind)about->pool, x, valid);
    if (about->head == LS_HEAD_MATCH) {
        ls_scope(p, "match");
        x = compare(p, about, x);
        ls_scope_end(p);
    }
    if (x == NULL) return (output){0};
    return (output){
        x,
        ls_param(p, "head.weight", LS_DIMS(about->classes, x->dim[1]), ls_init_normal(about->init)),
        ls_param(p, "head.bias", LS_DIMS(about->classes), ls_init_bias())};
}

static int64_t source_of(ls_program *p) {
    const ls_program_options *about = ls_program_about(p);
    if (about->source < 1)
        ls_refuse(p, LS_EUSE,
                  "a model with an encoder reads a source and answers: it needs a task, whose "
                  "samples have both");
    return about->source;
}

/* picked: rows of each sequence whose logits are wanted; 0: the last. */
static void record(ls_program *p, const ls_model_config *config, ls_model_use use, int64_t picked) {
    const ls_model_settings *about = &config->model;
    const int64_t rows = ls_program_about(p)->batch, T = ls_program_about(p)->length;
    const ls_model_example example = ls_model_example_of(config, T);
    const int64_t B = rows / example.sequences;
    const bool lm = about->head == LS_HEAD_LM;
    if (!lm && about->causal && ls_program_about(p)->streaming) /* others: their mixers refuse */
        ls_refuse(p, LS_EUSE, "a classifier reads whole sequences: it cannot take them in chunks");
    const bool decodes = config->encoder_layers > 0;
    const int64_t before = decodes && !ls_program_about(p)->source_read ? source_of(p) : 0;
    ls_tensor *tokens = ls_input(p, "tokens", LS_I32, LS_DIMS(rows, before + T), false), *embedding;
    ls_tensor *valid = example.padded && !decodes ? ls_valid_rows(p, tokens) : NULL;
    ls_tensor *x = decodes ? decoded_rows(p, config, tokens, &(reading){0}, &embedding)
                           : ls_model_rows(p, config, tokens, valid, &embedding);
    if (lm && use == LS_MODEL_LOGITS)
        x = picked == 0 ? ls_last_row(p, x)
                        : ls_pick_rows(p, x, ls_input(p, "at", LS_I32, LS_DIMS(B, picked), false));
    for (int64_t layer = 0; layer < config->layers; layer++) {
        const ls_mixer mixer = ls_model_mixer(config, layer);
        if (has_other_rows(&mixer)) valid = NULL;
    }
    const bool adaptive = ls_adaptive(about);
    output out = {x, NULL, NULL};
    if (!adaptive) out = lm ? lm_head(p, about, x, embedding) : class_head(p, about, x, valid);
    if (use == LS_MODEL_LOGITS) {
        ls_keep(p, "logits",
                adaptive ? ls_adaptive_logits(p, about, x)
                         : ls_linear(p, out.x, out.weight, out.bias));
        return;
    }
    ls_tensor *targets = ls_input(p, "targets", LS_I32, LS_DIMS(B, example.targets), false);
    ls_tensor *weights = NULL;
    if (use == LS_MODEL_TRAIN)
        weights = ls_input(p, "weights", ls_wide_type(p), LS_DIMS(B, example.targets), false);
    ls_keep(p, "loss",
            adaptive ? ls_adaptive_loss(p, about, x, targets, weights)
                     : ls_linear_cross_entropy(p, out.x, out.weight, out.bias, targets, weights));
}

static void record_observed(ls_program *p, const ls_model_config *config, int64_t pieces) {
    const ls_model_settings *about = &config->model;
    const ls_program_options *options = ls_program_about(p);
    const int64_t B = options->batch, T = options->length;
    const bool decodes = config->encoder_layers > 0;
    if (about->head != LS_HEAD_LM)
        ls_refuse(p, LS_EUSE,
                  "model.head must be lm here: a classifier has neither rows nor logits "
                  "of its tokens");
    if (pieces < 1 || T % pieces != 0 || (!decodes && pieces != 1))
        ls_refuse(p, LS_EBUG, "%lld pieces of %lld tokens", (long long)pieces, (long long)T);
    const int64_t read = decodes ? pieces * source_of(p) : 0;
    ls_tensor *tokens = ls_input(p, "tokens", LS_I32, LS_DIMS(B, read + T), false), *x, *embedding;
    if (ls_failed(p)) return;
    if (decodes)
        x = pieces > 1 ? decoded_pieces(p, config, tokens, pieces, &embedding)
                       : decoded_rows(p, config, tokens, &(reading){0}, &embedding);
    else
        x = ls_model_rows(p, config, tokens, NULL, &embedding);
    ls_tensor *targets = ls_input(p, "targets", LS_I32, LS_DIMS(B, T), false);
    ls_tensor *weights = ls_input(p, "weights", ls_wide_type(p), LS_DIMS(B, T), false);
    if (!options->grad) weights = NULL;
    observe(p, "rows", x);
    if (ls_adaptive(about)) {
        ls_keep(p, "logits", ls_adaptive_logits(p, about, x)); /* they have no gradient */
        ls_keep(p, "loss", ls_adaptive_loss(p, about, x, targets, weights));
        return;
    }
    const output out = lm_head(p, about, x, embedding);
    observe(p, "logits", ls_linear(p, out.x, out.weight, out.bias));
    ls_keep(p, "loss", ls_linear_cross_entropy(p, out.x, out.weight, out.bias, targets, weights));
}

ls_model_example ls_model_example_of(const ls_model_config *config, int64_t T) {
    const ls_model_settings *about = &config->model;
    const bool lm = about->head == LS_HEAD_LM;
    const int64_t sequences = about->head == LS_HEAD_MATCH ? 2 : 1;
    const ls_mixer first = ls_model_mixer(config, 0);
    const int64_t rows = first.type->trained_rows == NULL ? 0 : first.type->trained_rows(&first);
    return (ls_model_example){.sequences = sequences,
                              .inputs = sequences * T,
                              .targets = lm ? T : 1,
                              .trained = lm && rows > 0 ? ls_min(rows, T)
                                         : lm           ? T
                                                        : 1,
                              .answers = lm ? about->vocabulary : about->classes,
                              .padded = !lm || config->encoder_layers > 0};
}

/* seed NULL: a blank model. */
static ls_status make(ls_ctx *ctx, const ls_model_config *config, ls_dtype type,
                      const uint64_t *seed, bool with_gradient, ls_model **out) {
    *out = NULL;
    if (config->model.vocabulary < 1)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.vocabulary must be set (a tokenizer sets it by itself)");
    LS_TRY(ls_adaptive_check(ctx, &config->model));
    if (config->model.head != LS_HEAD_LM && config->model.classes < 2)
        return LS_FAIL(ctx, LS_EUSE, "model.classes must be at least 2 (a task sets it by itself)");
    ls_model *model = ls_new(ctx, 1, sizeof *model);
    if (model == NULL) return LS_ENOMEM;
    *model = (ls_model){.ctx = ctx, .config = config, .type = type};
    /* recording once, for a single token, declares the parameters */
    ls_program *program = NULL;
    ls_program_options options = {.type = type,
                                  .batch = ls_model_example_of(config, 1).sequences,
                                  .length = 1,
                                  .source = config->encoder_layers > 0 ? 1 : 0};
    ls_status status = ls_parameters_new(ctx, type, &model->store);
    if (status == LS_OK) status = ls_program_new(ctx, &options, model->store, &program);
    if (status == LS_OK) {
        record(program, config, LS_MODEL_LOSS, 0);
        if (ls_failed(program)) status = ctx->error.code;
    }
    ls_program_free(program);
    if (status == LS_OK) {
        model->store->blank = seed == NULL;
        status = ls_parameters_seal(model->store, seed == NULL ? 0 : *seed, with_gradient);
    }
    if (status != LS_OK) {
        ls_model_free(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

ls_status ls_model_new(ls_ctx *ctx, const ls_model_config *config, ls_dtype type, uint64_t seed,
                       bool with_gradient, ls_model **out) {
    return make(ctx, config, type, &seed, with_gradient, out);
}

ls_status ls_model_plan(ls_ctx *ctx, const ls_model_config *config, ls_dtype type,
                        bool with_gradient, ls_model **out) {
    return make(ctx, config, type, NULL, with_gradient, out);
}

void ls_model_free(ls_model *model) {
    if (model == NULL) return;
    ls_parameters_free(model->store);
    ls_free(model->ctx, model);
}

ls_status ls_model_load(ls_model *model, const char *path, size_t *missing) {
    return ls_weights_load(model->ctx, path, model->store, missing);
}

static ls_status make_program(ls_model *model, ls_model_use use, int64_t picked,
                              ls_program_options options, ls_program **out) {
    options.type = model->type;
    options.grad = options.train = use == LS_MODEL_TRAIN;
    options.batch *= ls_model_example_of(model->config, options.length).sequences;
    LS_TRY(ls_program_new(model->ctx, &options, model->store, out));
    record(*out, model->config, use, picked);
    ls_status status = ls_program_finish(*out);
    if (status != LS_OK) {
        ls_program_free(*out);
        *out = NULL;
    }
    return status;
}

ls_status ls_model_program(ls_model *model, ls_model_use use, ls_program_options options,
                           ls_program **out) {
    return make_program(model, use, 0, options, out);
}

ls_status ls_model_program_at(ls_model *model, int64_t picked, ls_program_options options,
                              ls_program **out) {
    return make_program(model, LS_MODEL_LOGITS, picked, options, out);
}

ls_status ls_model_program_observed(ls_model *model, int64_t pieces, ls_program_options options,
                                    ls_program **out) {
    options.type = model->type;
    options.observed = true;
    LS_TRY(ls_program_new(model->ctx, &options, model->store, out));
    record_observed(*out, model->config, pieces);
    ls_status status = ls_program_finish(*out);
    if (status == LS_OK) return LS_OK;
    ls_program_free(*out);
    *out = NULL;
    return status;
}

ls_status ls_model_put_tokens(const ls_model *model, ls_program *program, const char *input,
                              const int32_t *tokens) {
    ls_tensor *tensor = ls_program_find(program, input);
    if (tensor == NULL || tensor->type != LS_I32)
        return LS_FAIL(model->ctx, LS_EBUG, "the program has no token input %s", input);
    const int64_t T = tensor->dim[1];
    const ls_model_example example = ls_model_example_of(model->config, T);
    const int64_t border = T - ls_program_about(program)->length; /* behind a source; or 0 */
    const bool wanted = strcmp(input, "targets") == 0;
    const int32_t lowest = wanted || example.padded ? -1 : 0;
    const int64_t end = wanted ? example.answers : model->config->model.vocabulary;
    const bool classes = wanted && model->config->model.head != LS_HEAD_LM;
    for (int64_t i = 0; i < ls_count(tensor); i++) {
        if (tokens[i] < lowest || tokens[i] >= end)
            return LS_FAIL(model->ctx, LS_EINPUT, "%s %d is outside the %s of %lld",
                           classes ? "class" : "token", tokens[i],
                           classes ? "classes" : "vocabulary", (long long)end);
        const bool begins = i % T == 0 || i % T == border;
        if (!wanted && !begins && tokens[i] >= 0 && tokens[i - 1] < 0)
            return LS_FAIL(model->ctx, LS_EINPUT,
                           "padding stands before a token of sequence %lld: it must come last",
                           (long long)(i / T));
    }
    ls_tensor_put(program, tensor, tokens);
    return LS_OK;
}
