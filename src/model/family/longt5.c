/* LongT5: T5 whose encoder has windows, with a token for each block of tokens where wished. */
#include <stdio.h>
#include <string.h>

#include "model/family.h"

static void write_encoder(ls_family_reader *r) {
    const bool local = ls_family_has(r, "encoder.mixer.global_block", "0", false);
    ls_field_write(r, "encoder_attention_type", json_string(local ? "local" : "transient-global"));
    ls_family_int(r, "local_radius", "encoder.mixer.radius", 127, 0, 1 << 30);
    if (!local) ls_family_int(r, "global_block_size", "encoder.mixer.global_block", 16, 1, 1 << 30);
}

/* Its encoder's layers have one of two names: with tokens for blocks, which have a norm, or
 * without.
 */
static void unused(const ls_model_config *model, char out[LS_FAMILY_UNUSED_BYTES]) {
    const ls_mixer mixer = ls_model_encoder_mixer(model, 0);
    const ls_option_table *table = &mixer.type->options;
    const ls_option *norm = ls_options_find(table, "eps");
    const bool global = norm != NULL && ls_option_has_effect(norm, table, mixer.options, NULL);
    snprintf(out, LS_FAMILY_UNUSED_BYTES, "encoder.block.{n}.layer.0.SelfAttention %s %s",
             global ? ".Local" : ".Transient", ls_family_is_gated(model) ? ".wi." : ".wi_");
}

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_t5(r, "relu", &sizes);
    if (r->made != NULL) {
        write_encoder(r);
        return;
    }
    const char *kind = ls_field_text(r, "encoder_attention_type", "local");
    const bool global = strcmp(kind, "transient-global") == 0;
    if (!global && strcmp(kind, "local") != 0)
        ls_field_refuse(r, "`encoder_attention_type` is %.64s, which is not known", kind);
    const int64_t block = ls_field_int(r, "global_block_size", 16, 1, 1 << 30);
    ls_family_set(r, "model.encoder_mixer", "longt5");
    LS_FAMILY_INT(r, "mixer.longt5.radius", ls_field_int(r, "local_radius", 127, 0, 1 << 30));
    LS_FAMILY_INT(r, "mixer.longt5.global_block", global ? block : 0);
    LS_FAMILY_INT(r, "mixer.longt5.buckets",
                  ls_field_int(r, "relative_attention_num_buckets", 32, 4, 4096));
    LS_FAMILY_INT(r, "mixer.longt5.max_distance",
                  ls_field_int(r, "relative_attention_max_distance", 128, 2, 1 << 20));
    if (global)
        ls_family_set_real(r, "mixer.longt5.eps",
                           ls_field_real(r, "layer_norm_epsilon", 1e-6, 1e-12, 1));
}

const ls_family_type ls_family_longt5 = {
    .name = "longt5",
    .names = "t5",
    .embedding = "shared.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "LongT5ForConditionalGeneration",
    .fields = "d_model num_layers num_decoder_layers n_positions vocab_size num_heads d_kv d_ff "
              "feed_forward_proj layer_norm_epsilon relative_attention_num_buckets "
              "relative_attention_max_distance decoder_start_token_id encoder_attention_type "
              "local_radius global_block_size",
    .prefix = "",
    .weights = "q k v o relative_attention_bias global_relative_attention_bias "
               "global_input_layer_norm",
    .unused = unused,
};
