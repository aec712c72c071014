/* UMT5: T5 with a table of biases in every layer. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_t5(r, "gated-gelu", &sizes);
    ls_family_set(r, "position.each_layer", "true");
}

const ls_family_type ls_family_umt5 = {
    .name = "umt5",
    .names = "t5",
    .embedding = "shared.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "UMT5ForConditionalGeneration",
    .fields = "d_model num_layers num_decoder_layers n_positions vocab_size num_heads d_kv d_ff "
              "feed_forward_proj layer_norm_epsilon relative_attention_num_buckets "
              "relative_attention_max_distance decoder_start_token_id",
    .prefix = "",
    .weights = "q k v o relative_attention_bias",
    .unused = ls_family_unused_t5,
};
