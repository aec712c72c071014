/* GPT-J: one norm for both parts of a block, neighbours rotated as pairs. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    ls_family_read_hidden(r, 4 * sizes.width);
    ls_family_read_activation(r, "gelu_new", false);
    ls_family_read_epsilon(r, 1e-5);
    ls_family_set(r, "model.parallel", "one_norm");
    ls_family_set(r, "model.head_bias", "true");
    ls_family_set(r, "model.position", "rope");
    ls_family_set(r, "position.layout", "interleaved");
    ls_family_int(r, "rotary_dim", "position.rotary_dim", sizes.head_width, 2, sizes.head_width);
    ls_field_any(r, "rotary"); /* it always rotates */
    ls_field_must_be(r, "scale_attn_weights", true, "attention without a scale");
}

const ls_family_type ls_family_gptj = {
    .name = "gptj",
    .rules = "w.*wte.weight = embed.weight\n"
             "w.*lm_head.* = head.*\n"
             "w.*h.{n}.ln_1.* = layers.{n}.norm1.*\n"
             "w.*h.{n}.attn.bias = -\n"
             "w.*h.{n}.attn.masked_bias = -\n"
             "w.*h.{n}.attn.embed_positions = -\n"
             "w.*h.{n}.attn.* = layers.{n}.mixer.*\n"
             "w.*h.{n}.mlp.fc_in.* = layers.{n}.ffn.up.*\n"
             "w.*h.{n}.mlp.fc_out.* = layers.{n}.ffn.down.*\n"
             "w.*ln_f.* = norm.*\n",
    .embedding = "wte.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "GPTJForCausalLM",
    .fields = "n_embd n_layer n_positions vocab_size n_head n_inner activation_function "
              "layer_norm_epsilon rotary_dim",
    .prefix = "transformer.",
    .weights = "q_proj k_proj v_proj out_proj",
};
