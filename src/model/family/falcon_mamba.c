/* Falcon-Mamba: Mamba with norms of its step sizes and maps. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_mamba(r, "mamba", 16, &sizes);
    ls_family_read_step_rank(r, &sizes);
    ls_family_set(r, "mixer.inner_norm", "true");
    ls_family_set_real(r, "mixer.inner_epsilon", ls_field_real(r, "mixer_rms_eps", 1e-6, 1e-12, 1));
    ls_field_any(r, "use_falcon_mambapy"); /* how transformers computes the same */
}

const ls_family_type ls_family_falcon_mamba = {
    .name = "falcon_mamba",
    .names = "mamba",
    .embedding = "embeddings.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
};
