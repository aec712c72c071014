/* GPT-2: learned positions, matrices transposed. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    ls_family_read_hidden(r, 4 * sizes.width);
    ls_family_read_activation(r, "gelu_new", false);
    ls_family_read_epsilon(r, 1e-5);
    ls_family_set(r, "mixer.bias", "true");
    ls_family_set(r, "model.position", "learned");
    LS_FAMILY_INT(r, "position.length", sizes.length);
    ls_field_must_be(r, "scale_attn_weights", true, "attention without a scale");
    ls_field_must_be(r, "scale_attn_by_inverse_layer_idx", false,
                     "a scale of scores that depends on the layer");
    ls_field_must_be(r, "add_cross_attention", false, "attention to an encoder");
}

const ls_family_type ls_family_gpt2 = {
    .name = "gpt2",
    .names = "gpt2",
    .embedding = "wte.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "GPT2LMHeadModel",
    .fields = "n_embd n_layer n_positions vocab_size n_head n_inner activation_function "
              "layer_norm_epsilon",
    .prefix = "transformer.",
    .weights = "c_attn c_proj",
    .gguf = {.architecture = "gpt2"},
};
