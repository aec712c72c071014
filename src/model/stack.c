#include "model/stack.h"

#include "model/block.h"
#include "model/slots.h"

/* ---- sublayers ---- */

static ls_tensor *mix(ls_program *p, const ls_model_settings *about, const void *what,
                      const ls_sublayer_input *in) {
    ls_mixer mixer = *(const ls_mixer *)what;
    if (in->stream != NULL) {
        mixer.stream = in->stream;
        mixer.norm = &in->norm;
    }
    ls_scope(p, "mixer");
    ls_tensor *y = ls_mixer_record(p, &mixer, in->x);
    ls_scope_end(p);
    return ls_dropout(p, y, about->dropout);
}

static ls_tensor *read_context(ls_program *p, const ls_model_settings *about, const void *what,
                               const ls_sublayer_input *in) {
    return ls_slots_read(p, about, in->x, (ls_tensor *)what);
}

static ls_tensor *read_source(ls_program *p, const ls_model_settings *about, const void *what,
                              const ls_sublayer_input *in) {
    return ls_dropout(p, ls_cross_attention(p, about, in->x, what), about->dropout);
}

static ls_tensor *feed_forward(ls_program *p, const ls_model_settings *about, const void *what,
                               const ls_sublayer_input *in) {
    (void)what;
    return ls_feed_forward(p, about, in->x);
}

/* A mixer that has its norms and sums itself: what comes out takes the rows' place. */
static void mix_whole(ls_program *p, const ls_model_settings *about, const ls_mixer *mixer,
                      ls_residual *rows) {
    const ls_sublayer_input in = {.x = ls_residual_sum(p, rows)};
    rows->x = mix(p, about, mixer, &in);
    if (rows->x == NULL || rows->x->dim[2] == about->width) return;
    ls_refuse(p, LS_EUSE, "mixer %s leaves rows of %lld where the model's width is %lld",
              mixer->type->name, (long long)rows->x->dim[2], (long long)about->width);
}

/* ---- layers ---- */

static void record_layer(ls_program *p, const ls_model_settings *about, const ls_stack *layers,
                         const ls_mixer *mixer, ls_residual *rows) {
    const ls_sublayer mixing = {"", "1", mix, mixer};
    const ls_sublayer reading = {"read.", "", read_context, layers->context};
    const ls_sublayer crossing = {"", "_cross", read_source, layers->source};
    const ls_sublayer feeding = {"", "2", feed_forward, NULL};
    ls_block_begin(rows);
    if (about->mixing && ls_mixer_result_of(mixer).whole)
        mix_whole(p, about, mixer, rows);
    else if (about->mixing)
        ls_block_add(p, about, &mixing, rows);
    if (layers->context != NULL) ls_block_add(p, about, &reading, rows);
    if (layers->source != NULL) ls_block_add(p, about, &crossing, rows);
    if (about->feed_forward) ls_block_add(p, about, &feeding, rows);
}

ls_tensor *ls_stack_record(ls_program *p, const ls_model_config *config, const ls_stack *layers,
                           ls_tensor *x, ls_tensor *valid) {
    const ls_model_settings *about = &config->model;
    const ls_position_type *position = config->position.type;
    if (position->embed != NULL) x = position->embed(p, config->position.options, x);
    if (about->norm_embedding) x = ls_layer_norm(p, about, "norm_embedding", x, NULL, valid);
    ls_residual rows = {.x = ls_dropout(p, x, about->dropout), .valid = valid};
    for (int64_t layer = layers->first; layer < layers->end && !ls_failed(p); layer++) {
        ls_mixer mixer =
            layers->encodes ? ls_model_encoder_mixer(config, layer) : ls_model_mixer(config, layer);
        mixer.valid = valid;
        mixer.places = layers->places;
        ls_scope(p, "layers.%d", (int)layer);
        record_layer(p, about, layers, &mixer, &rows);
        ls_scope_end(p);
        if (ls_mixer_result_of(&mixer).other_rows)
            valid = rows.valid = NULL; /* those are all there */
    }
    return ls_block_last(p, about, layers->norm, &rows);
}

ls_stack ls_stack_whole(const ls_model_config *config) {
    return (ls_stack){.end = config->layers, .norm = "norm"};
}

bool ls_stack_other_rows(const ls_model_config *config) {
    for (int64_t layer = 0; layer < config->layers; layer++) {
        const ls_mixer mixer = ls_model_mixer(config, layer);
        if (ls_mixer_result_of(&mixer).other_rows) return true;
    }
    return false;
}
