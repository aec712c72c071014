/* OPT: learned positions behind two rows, relu; 350M has norms behind sums and a narrower
 * embedding. */
#include "model/family.h"

/* The embedding's width, where it is another than the model's. */
static void read_inner(ls_family_reader *r, int64_t width) {
    const char *has = ls_family_form(r, "model.embedding_width");
    int64_t inner = 0;
    if (r->made == NULL) inner = ls_field_int(r, "word_embed_proj_dim", width, 1, 65536);
    if (r->made == NULL && inner != width) LS_FAMILY_INT(r, "model.embedding_width", inner);
    if (has != NULL) ls_parse_int(has, &inner);
    if (r->made != NULL)
        ls_field_write(r, "word_embed_proj_dim", json_integer(inner > 0 ? inner : width));
}

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    ls_family_read_hidden(r, LS_FIELD_NEEDED);
    ls_family_read_activation(r, "relu", false);
    ls_family_set(r, "model.epsilon", "1e-5");
    ls_family_bool(r, "enable_bias", "mixer.bias", true);
    ls_family_bool(r, "enable_bias", "model.bias", true);
    if (ls_family_bool(r, "layer_norm_elementwise_affine", "model.norm_weight", true))
        ls_family_set(r, "model.norm_bias", "yes");
    const bool before =
        ls_family_either(r, "do_layer_norm_before", "model.norm_place", "pre", "post", true);
    if (before)
        ls_family_either(r, "_remove_final_layer_norm", "model.last_norm", "false", "true", false);
    ls_field_any(r, "_remove_final_layer_norm"); /* nothing there where norms are behind */
    read_inner(r, sizes.width);
    ls_family_set(r, "model.position", "learned");
    LS_FAMILY_INT(r, "position.length", sizes.length);
    ls_family_set(r, "position.offset", "2");
    /* of training */
    static const char *const inert[] = {"dropout", "layerdrop", "init_std"};
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++) ls_field_any(r, inert[i]);
}

const ls_family_type ls_family_opt = {
    .name = "opt",
    .rules = "w.*embed_tokens.weight = embed.weight\n"
             "w.*embed_positions.weight = position.embedding\n"
             "w.*lm_head.weight = head.weight\n"
             "w.*project_in.weight = embed.project.weight\n"
             "w.*project_out.weight = head.project.weight\n"
             "w.*layers.{n}.self_attn_layer_norm.* = layers.{n}.norm1.*\n"
             "w.*layers.{n}.final_layer_norm.* = layers.{n}.norm2.*\n"
             "w.*layers.{n}.self_attn.* = layers.{n}.mixer.*\n"
             "w.*layers.{n}.fc1.* = layers.{n}.ffn.up.*\n"
             "w.*layers.{n}.fc2.* = layers.{n}.ffn.down.*\n"
             "w.*final_layer_norm.* = norm.*\n",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "OPTForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads ffn_dim activation_function enable_bias "
              "layer_norm_elementwise_affine do_layer_norm_before _remove_final_layer_norm "
              "word_embed_proj_dim",
    .prefix = "model.decoder.",
    .weights = "q_proj k_proj v_proj out_proj",
};
