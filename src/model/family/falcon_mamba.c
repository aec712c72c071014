/* Falcon-Mamba: Mamba with norms of its step sizes and maps. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_mamba(r, "mamba", 16, &sizes);
    ls_family_read_step_rank(r, &sizes);
    ls_family_set(r, "mixer.inner_norm", "true");
    ls_family_real(r, "mixer_rms_eps", "mixer.inner_epsilon", 1e-6, 1e-12, 1);
    ls_field_any(r, "use_falcon_mambapy"); /* how transformers computes the same */
}

/* llama.cpp has one epsilon for all norms. */
static void translate(ls_family_gguf_reader *r) {
    const int64_t width = ls_family_gguf_int(r, "hidden_size");
    if (width > 0)
        ls_family_gguf_set(r, "expand",
                           json_integer(ls_family_gguf_int(r, "intermediate_size") / width));
    ls_family_gguf_set(r, "mixer_rms_eps", json_incref(json_object_get(r->config, "rms_norm_eps")));
    ls_family_gguf_set(r, "mamba.ssm.dt_b_c_rms", NULL);
}

const ls_family_type ls_family_falcon_mamba = {
    .name = "falcon_mamba",
    .names = "mamba",
    .embedding = "embeddings.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "FalconMambaForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "layer_norm_epsilon expand state_size conv_kernel use_bias use_conv_bias "
              "time_step_rank mixer_rms_eps",
    .prefix = "backbone.",
    .mixer = "mamba",
    .gguf = {.architecture = "mamba", .only = "ssm.dt_b_c_rms", .translate = translate},
};
