/* StarCoder2: Llama's names with LayerNorms, biases and feed-forward layers without a gate. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 2, &sizes);
    ls_family_read_hidden(r, LS_FIELD_NEEDED);
    ls_family_read_activation(r, "gelu_pytorch_tanh", false);
    ls_family_read_epsilon(r, 1e-5);
    ls_family_bool(r, "use_bias", "mixer.bias", true);
    ls_family_bool(r, "use_bias", "model.bias", true);
    ls_family_set(r, "model.norm_bias", "yes");
    ls_family_read_rope(r, &sizes, 1);
    ls_family_set_windows(r, &sizes, ls_family_read_window(r, 0), 0);
    ls_field_text(r, "mlp_type", NULL); /* of the converter: it is this one */
    ls_field_text(r, "norm_type", NULL);
}

static void translate(ls_family_gguf_reader *r) {
    ls_family_gguf_set(r, "use_bias", json_boolean(ls_family_gguf_has(r, "blk.0.attn_q.bias")));
}

const ls_family_type ls_family_starcoder2 = {
    .name = "starcoder2",
    .names = "llama",
    .rules = "w.*layers.{n}.mlp.c_fc.* = layers.{n}.ffn.up.*\n"
             "w.*layers.{n}.mlp.c_proj.* = layers.{n}.ffn.down.*\n",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "Starcoder2ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "norm_epsilon use_bias rope_theta rope_scaling sliding_window",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj",
    .gguf = {.architecture = "starcoder2", .translate = translate},
};
