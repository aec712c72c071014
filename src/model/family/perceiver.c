/* Perceiver IO as a masked language model: latents read the text, a query for each place reads
 * them. */
#include <string.h>

#include "model/family.h"

/* Of the decoder, which config.json does not describe. */
enum { DECODER_HEADS = 8, DECODER_QK_WIDTH = 256 };

static void read_mixer(ls_family_reader *r, int64_t width, int64_t length) {
    static const char *const inert[] = {
        /* of other inputs than text */
        "image_size", "train_size", "num_frames", "audio_samples_per_frame", "samples_per_patch",
        "output_shape", "output_num_channels", "_label_trainable_num_channels",
        /* norms have 1e-5 whatever it says */
        "layer_norm_eps"};
    const char *has = ls_family_form(r, "mixer.cross_shape");
    const char *shape = ls_field_text(r, "cross_attention_shape_for_attention", "kv");
    if (has != NULL) ls_field_write(r, "cross_attention_shape_for_attention", json_string(has));
    if (strcmp(shape, "kv") != 0 && strcmp(shape, "q") != 0)
        ls_field_refuse(r, "`cross_attention_shape_for_attention` is %.64s, not kv or q", shape);
    ls_family_set(r, "model.mixer", "perceiver");
    ls_family_set(r, "mixer.whole", "true");
    ls_family_int(r, "num_latents", "mixer.latents", 256, 1, 1 << 24);
    ls_family_int(r, "d_latents", "mixer.latent_width", 1280, 1, 65536);
    ls_family_int(r, "num_self_attention_heads", "mixer.heads", 8, 1, 4096);
    ls_family_int(r, "num_cross_attention_heads", "mixer.cross_heads", 8, 1, 4096);
    ls_family_int(r, "qk_channels", "mixer.qk_width", 0, 1, 65536);
    ls_family_int(r, "v_channels", "mixer.v_width", 0, 1, 65536);
    ls_family_set(r, "mixer.cross_shape", "%s", shape);
    ls_family_int(r, "num_blocks", "mixer.blocks", 1, 1, 1024);
    ls_family_int(r, "num_self_attends_per_block", "mixer.layers", 26, 1, 1024);
    ls_family_int(r, "self_attention_widening_factor", "mixer.widening", 1, 1, 64);
    ls_family_int(r, "cross_attention_widening_factor", "mixer.cross_widening", 1, 1, 64);
    LS_FAMILY_INT(r, "mixer.decoder_widening", 1);
    ls_family_bool(r, "use_query_residual", "mixer.residual", true);
    ls_family_set(r, "mixer.queries", "learned");
    LS_FAMILY_INT(r, "mixer.length", length);
    LS_FAMILY_INT(r, "mixer.query_width", width);
    LS_FAMILY_INT(r, "mixer.decoder_heads", DECODER_HEADS);
    LS_FAMILY_INT(r, "mixer.decoder_qk_width", DECODER_QK_WIDTH);
    LS_FAMILY_INT(r, "mixer.decoder_v_width", width);
    ls_family_read_activation(r, "gelu", false);
    const char *activation = r->made != NULL ? NULL : ls_settings_get(r->out, "model.activation");
    if (activation != NULL) ls_family_set(r, "mixer.activation", "%s", activation);
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++) ls_field_any(r, inert[i]);
}

static void read(ls_family_reader *r) {
    const int64_t width = ls_family_int(r, "d_model", "model.width", 768, 1, 65536);
    const int64_t length =
        ls_family_int(r, "max_position_embeddings", "model.length", 2048, 1, 1 << 24);
    LS_FAMILY_INT(r, "model.layers", 1);
    ls_family_int(r, "vocab_size", "model.vocabulary", 262, 1, 16777216);
    ls_family_set(r, "model.feed_forward", "false");
    ls_family_set(r, "model.last_norm", "false");
    ls_family_set(r, "model.causal", "false");
    ls_family_set(r, "model.head", "masked");
    ls_family_set(r, "model.head_activation", "none");
    ls_family_set(r, "model.head_bias", "true");
    ls_family_set(r, "model.position", "learned");
    LS_FAMILY_INT(r, "position.length", length);
    read_mixer(r, width, length);
}

const ls_family_type ls_family_perceiver = {
    .name = "perceiver",
    .rules = "w.perceiver.input_preprocessor.embeddings.weight = embed.weight\n"
             "w.perceiver.input_preprocessor.position_embeddings.weight = position.embedding\n"
             "w.perceiver.decoder.* = layers.0.mixer.*\n"
             "w.perceiver.embeddings.latents = layers.0.mixer.embeddings.latents\n"
             "w.perceiver.encoder.cross_attention.* = layers.0.mixer.cross_attention.*\n"
             "w.perceiver.encoder.self_attends.* = layers.0.mixer.self_attends.*\n"
             "w.embedding_decoder.bias = head.bias\n",
    .embedding = "input_preprocessor.embeddings.weight",
    .head = "embedding_decoder.weight",
    .head_layer = "embedding_decoder.bias",
    .tied = true,
    .read = read,
    .architecture = "PerceiverForMaskedLM",
    .fields = "d_model max_position_embeddings vocab_size num_latents d_latents "
              "num_self_attention_heads num_cross_attention_heads qk_channels v_channels "
              "cross_attention_shape_for_attention num_blocks num_self_attends_per_block "
              "self_attention_widening_factor cross_attention_widening_factor use_query_residual "
              "hidden_act",
    .prefix = "",
    .mixer = "perceiver",
    .weights = "cross_attention self_attends decoding_cross_attention embeddings "
               "output_position_encodings",
};
