/* Memformer (arXiv 2010.06891): segments with slots of memory between them. Every layer reads the
 * slots and the last one's rows write them. With model.memory_encoder the first layers are an
 * encoder that does so, and the others read what it made of the segment before. See memformer.md;
 * slots in the encoder of an encoder-decoder: encoder_decoder.c. */
#include "model/segments.h"
#include "model/slots.h"
#include "model/stack.h"

static bool serves(const ls_model_config *config) {
    const ls_model_settings *about = &config->model;
    return about->segment > 0 && about->memory_kind == LS_MEMORY_SLOTS &&
           config->encoder_layers == 0;
}

static ls_status check(ls_ctx *ctx, const ls_model_config *config) {
    const ls_model_settings *about = &config->model;
    const bool slots = about->memory_kind == LS_MEMORY_SLOTS;
    if (slots && about->width % about->memory_heads != 0)
        return LS_FAIL(ctx, LS_EUSE, "model.memory_heads=%lld does not divide a width of %lld",
                       (long long)about->memory_heads, (long long)about->width);
    if (about->memory_read_heads > 0 && about->width % about->memory_read_heads != 0)
        return LS_FAIL(ctx, LS_EUSE, "model.memory_read_heads=%lld does not divide a width of %lld",
                       (long long)about->memory_read_heads, (long long)about->width);
    if (about->memory_encoder >= config->layers)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.memory_encoder=%lld leaves none of %lld layers to predict",
                       (long long)about->memory_encoder, (long long)config->layers);
    return LS_OK;
}

static ls_tensor *alone(ls_program *p, const ls_model_config *config, ls_tensor *x,
                        ls_carried *now) {
    ls_stack layers = ls_stack_whole(config);
    layers.context = ls_slots_seen(p, &config->model, now->memory);
    ls_tensor *y = ls_stack_record(p, config, &layers, x, NULL);
    now->memory = ls_slots_write(p, &config->model, layers.context, y, NULL);
    return y;
}

static ls_tensor *with_encoder(ls_program *p, const ls_model_config *config, ls_tensor *x,
                               ls_carried *now) {
    const ls_model_settings *about = &config->model;
    ls_tensor *memory = ls_slots_seen(p, about, now->memory);
    ls_stack decoder = ls_stack_whole(config);
    decoder.first = about->memory_encoder;
    decoder.context = now->encoded;
    const ls_stack encoder = {
        .end = about->memory_encoder, .context = memory, .norm = "encoder_norm"};
    ls_tensor *y = ls_stack_record(p, config, &decoder, x, NULL);
    now->encoded = ls_stack_record(p, config, &encoder, x, NULL);
    now->memory = ls_slots_write(p, about, memory, now->encoded, NULL);
    return y;
}

static ls_tensor *encoded_before(ls_program *p, const ls_model_settings *about, int64_t batch) {
    const int64_t L = about->segment, D = about->width;
    ls_tensor *start = ls_param(p, "encoder_start", LS_DIMS(L, D), ls_init_normal(about->init));
    return ls_begin_with(p, ls_state_read(p, "encoded", ls_type(p), LS_DIMS(batch, L, D)), start);
}

/* Padding comes after all that counts, and no row is changed by what comes later: no validity is
 * needed. */
static ls_tensor *rows(ls_program *p, const ls_model_config *config, const ls_recording *how,
                       ls_tensor *tokens, ls_tensor *valid, ls_tensor **embedding) {
    (void)valid;
    const ls_model_settings *about = &config->model;
    ls_tensor *x = ls_embed_tokens(p, about, tokens, embedding);
    if (x == NULL) return NULL;
    ls_carried now = {.memory = ls_memory_before(p, about, x->dim[0])};
    if (about->memory_encoder > 0) now.encoded = encoded_before(p, about, x->dim[0]);
    return ls_in_segments(p, config, how, x, now, 0,
                          about->memory_encoder > 0 ? with_encoder : alone);
}

const ls_wrap_type ls_wrap_memformer = {
    .name = "memformer",
    .summary = "segments, with slots of memory that every layer reads",
    .paper = "arXiv 2010.06891",
    .serves = serves,
    .check = check,
    .rows = rows,
};
