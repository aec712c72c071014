/* An encoder reads a source, both ways; the model's own layers are a decoder, which attends to its
 * rows (arXiv 1706.03762). With slots of memory the source is read in segments, see memformer.md.
 */
#include "model/segments.h"
#include "model/slots.h"
#include "model/stack.h"

static bool serves(const ls_model_config *config) {
    return config->encoder_layers > 0;
}

static ls_status check_mixers(ls_ctx *ctx, const ls_model_config *config) {
    for (int64_t layer = 0; layer < config->encoder_layers; layer++) {
        const ls_mixer mixer = ls_model_encoder_mixer(config, layer);
        LS_TRY(ls_mixer_check(ctx, &mixer));
        if (ls_mixer_result_of(&mixer).other_rows)
            return LS_FAIL(ctx, LS_EUSE,
                           "mixer %s leaves another number of rows: it cannot be in an encoder",
                           mixer.type->name);
    }
    return LS_OK;
}

static ls_status check(ls_ctx *ctx, const ls_model_config *config) {
    const ls_model_settings *about = &config->model;
    if (!serves(config)) return LS_OK;
    if (about->head != LS_HEAD_LM)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.encoder_layers is for model.head=lm: a classifier is an encoder by "
                       "itself (set model.causal=false and leave it out)");
    if (about->segment > 0 && about->memory_kind != LS_MEMORY_SLOTS)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.segment with model.encoder_layers is for slots of memory, which the "
                       "encoder reads and writes: set model.memory_kind=slots and model.memory");
    if (about->memory_encoder > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.memory_encoder takes some of a language model's layers as encoder: "
                       "it does not go with model.encoder_layers, an encoder of its own");
    if (about->adaptive_cutoffs.count > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.adaptive_cutoffs does not go with model.encoder_layers: a source may "
                       "have padding");
    if (about->cross_key_width == 0 && about->width % about->cross_heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.cross_heads=%lld does not divide a width of %lld (set "
                       "model.cross_key_width, or another number of heads)",
                       (long long)about->cross_heads, (long long)about->width);
    return check_mixers(ctx, config);
}

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
    ls_stack encoder = {.end = config->encoder_layers, .norm = "norm", .encodes = true};
    ls_tensor *x = NULL, *embedding;
    if (tokens == NULL) return NULL;
    if (!about->encoder_embedding) x = ls_embed_tokens(p, about, tokens, &embedding);
    ls_scope_root(p, "encoder");
    if (about->encoder_embedding) x = ls_embed_tokens(p, about, tokens, &embedding);
    if (slots && *memory == NULL) *memory = first_slots(p, about, tokens->dim[0]);
    ls_apart(p, tokens->dim[1]);
    if (slots) encoder.context = ls_slots_seen(p, about, *memory);
    x = ls_stack_record(p, config, &encoder, x, valid);
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

static ls_source encode(ls_program *p, const ls_model_config *config, const ls_recording *how,
                        ls_tensor *tokens, reading *now) {
    ls_tensor *part[LS_SEGMENTS_MAX] = {tokens}, *encoded[LS_SEGMENTS_MAX] = {NULL};
    int64_t length[LS_SEGMENTS_MAX];
    const int64_t S = how->source, each = config->model.segment;
    ls_source source = {.length = S, .valid = ls_valid_rows(p, tokens)};
    if (ls_failed(p)) return source;
    const int64_t count = ls_segments_of(p, S, each > 0 ? each : S, length);
    if (count > 1) ls_cut_rows(p, tokens, (int)count, length, part);
    for (int64_t i = 0; i < count && !ls_failed(p); i++) {
        ls_tensor *valid = count == 1 ? source.valid : ls_valid_rows(p, part[i]);
        encoded[i] = encode_segment(p, config, part[i], valid, &now->memory);
        ls_observe_segment(p, how, "memory", now->segments, now->memory);
        ls_observe_segment(p, how, "encoded", now->segments++, encoded[i]);
    }
    source.rows = count == 1 ? encoded[0] : ls_join_rows(p, (int)count, encoded);
    return source;
}

/* Padding of what follows a source comes after all that counts: the decoder needs no validity. */
static ls_tensor *decode(ls_program *p, const ls_model_config *config, const ls_source *source,
                         ls_tensor *x) {
    ls_stack decoder = ls_stack_whole(config);
    decoder.source = source;
    return ls_stack_record(p, config, &decoder, x, NULL);
}

/* Several sources one after the other, each with its share of what follows, which stands apart. */
static ls_tensor *pieces(ls_program *p, const ls_model_config *config, const ls_recording *how,
                         ls_tensor *tokens, ls_tensor **embedding) {
    const int64_t S = how->source, T = ls_program_about(p)->length / how->pieces;
    ls_tensor *part[LS_SEGMENTS_MAX];
    int64_t length[LS_SEGMENTS_MAX];
    reading now = {0};
    if (ls_segments_of(p, how->pieces * (S + T), S + T, length) == 0) return NULL;
    ls_cut_rows(p, tokens, (int)how->pieces, length, part);
    for (int64_t i = 0; i < how->pieces && !ls_failed(p); i++) {
        ls_tensor *two[2];
        ls_cut_rows(p, part[i], 2, (int64_t[]){S, T}, two);
        const ls_source source = encode(p, config, how, two[0], &now);
        ls_tensor *x = ls_embed_tokens(p, &config->model, two[1], embedding);
        ls_apart(p, T);
        part[i] = decode(p, config, &source, x);
        ls_apart_end(p);
    }
    return ls_join_rows(p, (int)how->pieces, part);
}

/* tokens [B,S+T], a source and what follows it, or [B,T] where the state has the source. */
static ls_tensor *rows(ls_program *p, const ls_model_config *config, const ls_recording *how,
                       ls_tensor *tokens, ls_tensor *valid, ls_tensor **embedding) {
    (void)valid;
    const ls_program_options *options = ls_program_about(p);
    const int64_t B = options->batch, S = how->source, T = options->length;
    if (how->pieces > 1) return pieces(p, config, how, tokens, embedding);
    ls_source source = {.length = S};
    ls_tensor *part[2] = {NULL, tokens};
    if (!how->source_read) {
        ls_cut_rows(p, tokens, 2, (int64_t[]){S, T}, part);
        source = encode(p, config, how, part[0], &(reading){0});
    }
    source.valid = ls_source_kept(p, "source", source.valid, LS_U8, LS_DIMS(B, S));
    return decode(p, config, &source, ls_embed_tokens(p, &config->model, part[1], embedding));
}

const ls_wrap_type ls_wrap_encoder_decoder = {
    .name = "encoder_decoder",
    .summary = "an encoder reads a source, the layers attend to its rows",
    .paper = "arXiv 1706.03762",
    .reads_source = true,
    .serves = serves,
    .check = check,
    .rows = rows,
};
