/* BLOOM: ALiBi, and a norm of the embeddings. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    static const char *const inert[] = {
        "offset_alibi",        "masked_softmax_fusion", "attention_softmax_in_fp32",
        "bias_dropout_fusion", "skip_bias_add",         "skip_bias_add_qkv"};
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    LS_FAMILY_INT(r, "model.hidden", 4 * sizes.width);
    ls_family_set(r, "model.activation", "gelu_tanh");
    ls_family_read_epsilon(r, 1e-5);
    ls_family_set(r, "mixer.bias", "true");
    ls_family_set(r, "model.norm_embedding", "true");
    ls_family_set(r, "model.position", "alibi");
    ls_family_either(r, "apply_residual_connection_post_layernorm", "model.residual", "normed",
                     "sum", false);
    /* how the model was trained and how its kernels were joined */
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++) ls_field_any(r, inert[i]);
}

/* The feed-forward layers are four times as wide as the model. */
static void translate(ls_family_gguf_reader *r) {
    if (ls_family_gguf_int(r, "intermediate_size") == 4 * ls_family_gguf_int(r, "hidden_size"))
        ls_family_gguf_set(r, "intermediate_size", NULL);
}

const ls_family_type ls_family_bloom = {
    .name = "bloom",
    .rules = "w.*word_embeddings.weight = embed.weight\n"
             "w.*word_embeddings_layernorm.* = norm_embedding.*\n"
             "w.*lm_head.weight = head.weight\n"
             "w.*h.{n}.input_layernorm.* = layers.{n}.norm1.*\n"
             "w.*h.{n}.post_attention_layernorm.* = layers.{n}.norm2.*\n"
             "w.*h.{n}.self_attention.* = layers.{n}.mixer.*\n"
             "w.*h.{n}.mlp.dense_h_to_4h.* = layers.{n}.ffn.up.*\n"
             "w.*h.{n}.mlp.dense_4h_to_h.* = layers.{n}.ffn.down.*\n"
             "w.*ln_f.* = norm.*\n",
    .embedding = "word_embeddings.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "BloomForCausalLM",
    .fields = "hidden_size n_layer seq_length vocab_size n_head layer_norm_epsilon "
              "apply_residual_connection_post_layernorm",
    .prefix = "transformer.",
    .weights = "query_key_value dense",
    .gguf = {.architecture = "bloom", .translate = translate},
};
