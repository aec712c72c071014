/* OPT: learned positions behind two rows, relu; 350M has norms behind sums and a narrower
 * embedding. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    ls_family_read_hidden(r, LS_FIELD_NEEDED);
    ls_family_read_activation(r, "relu", false);
    ls_family_set(r, "model.epsilon", "1e-5");
    const bool bias = ls_field_bool(r, "enable_bias", true);
    const bool before = ls_field_bool(r, "do_layer_norm_before", true);
    const bool no_last = ls_field_bool(r, "_remove_final_layer_norm", false);
    const int64_t inner = ls_field_int(r, "word_embed_proj_dim", sizes.width, 1, 65536);
    LS_FAMILY_BOOL(r, "mixer.bias", bias);
    LS_FAMILY_BOOL(r, "model.bias", bias);
    if (ls_field_bool(r, "layer_norm_elementwise_affine", true))
        ls_family_set(r, "model.norm_bias", "yes");
    else
        ls_family_set(r, "model.norm_weight", "false");
    ls_family_set(r, "model.norm_place", before ? "pre" : "post");
    if (before) LS_FAMILY_BOOL(r, "model.last_norm", !no_last);
    if (inner != sizes.width) LS_FAMILY_INT(r, "model.embedding_width", inner);
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
};
