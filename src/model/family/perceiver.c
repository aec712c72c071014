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
    const char *shape = ls_field_text(r, "cross_attention_shape_for_attention", "kv");
    if (strcmp(shape, "kv") != 0 && strcmp(shape, "q") != 0)
        ls_field_refuse(r, "`cross_attention_shape_for_attention` is %.64s, not kv or q", shape);
    ls_family_set(r, "model.mixer", "perceiver");
    ls_family_set(r, "mixer.whole", "true");
    LS_FAMILY_INT(r, "mixer.latents", ls_field_int(r, "num_latents", 256, 1, 1 << 24));
    LS_FAMILY_INT(r, "mixer.latent_width", ls_field_int(r, "d_latents", 1280, 1, 65536));
    LS_FAMILY_INT(r, "mixer.heads", ls_field_int(r, "num_self_attention_heads", 8, 1, 4096));
    LS_FAMILY_INT(r, "mixer.cross_heads", ls_field_int(r, "num_cross_attention_heads", 8, 1, 4096));
    LS_FAMILY_INT(r, "mixer.qk_width", ls_field_int(r, "qk_channels", 0, 1, 65536));
    LS_FAMILY_INT(r, "mixer.v_width", ls_field_int(r, "v_channels", 0, 1, 65536));
    ls_family_set(r, "mixer.cross_shape", "%s", shape);
    LS_FAMILY_INT(r, "mixer.blocks", ls_field_int(r, "num_blocks", 1, 1, 1024));
    LS_FAMILY_INT(r, "mixer.layers", ls_field_int(r, "num_self_attends_per_block", 26, 1, 1024));
    LS_FAMILY_INT(r, "mixer.widening", ls_field_int(r, "self_attention_widening_factor", 1, 1, 64));
    LS_FAMILY_INT(r, "mixer.cross_widening",
                  ls_field_int(r, "cross_attention_widening_factor", 1, 1, 64));
    LS_FAMILY_INT(r, "mixer.decoder_widening", 1);
    LS_FAMILY_BOOL(r, "mixer.residual", ls_field_bool(r, "use_query_residual", true));
    ls_family_set(r, "mixer.queries", "learned");
    LS_FAMILY_INT(r, "mixer.length", length);
    LS_FAMILY_INT(r, "mixer.query_width", width);
    LS_FAMILY_INT(r, "mixer.decoder_heads", DECODER_HEADS);
    LS_FAMILY_INT(r, "mixer.decoder_qk_width", DECODER_QK_WIDTH);
    LS_FAMILY_INT(r, "mixer.decoder_v_width", width);
    ls_family_read_activation(r, "gelu", false);
    const char *activation = ls_settings_get(r->out, "model.activation");
    if (activation != NULL) ls_family_set(r, "mixer.activation", "%s", activation);
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++) ls_field_any(r, inert[i]);
}

static void read(ls_family_reader *r) {
    const int64_t width = ls_field_int(r, "d_model", 768, 1, 65536);
    const int64_t length = ls_field_int(r, "max_position_embeddings", 2048, 1, 1 << 24);
    LS_FAMILY_INT(r, "model.width", width);
    LS_FAMILY_INT(r, "model.layers", 1);
    LS_FAMILY_INT(r, "model.length", length);
    LS_FAMILY_INT(r, "model.vocabulary", ls_field_int(r, "vocab_size", 262, 1, 16777216));
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
             "w.perceiver.embeddings.latents = layers.0.mixer.embeddings.latents\n"
             "w.perceiver.encoder.* = layers.0.mixer.*\n"
             "w.perceiver.decoder.* = layers.0.mixer.*\n"
             "w.embedding_decoder.bias = head.bias\n",
    .embedding = "input_preprocessor.embeddings.weight",
    .head = "embedding_decoder.weight",
    .head_layer = "embedding_decoder.bias",
    .tied = true,
    .read = read,
};
