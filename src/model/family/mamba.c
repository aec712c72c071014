/* Mamba. */
#include <string.h>

#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_mamba(r, "mamba", 16, &sizes);
    const int64_t wide = ls_ceil_div(sizes.width, 16);
    const json_t *rank = ls_field_any(r, "time_step_rank");
    const bool automatic = json_is_string(rank) && strcmp(json_string_value(rank), "auto") == 0;
    LS_FAMILY_INT(r, "mixer.dt_rank",
                  automatic ? wide : ls_field_int(r, "time_step_rank", wide, 1, 65536));
}

static void translate(ls_family_gguf_reader *r) {
    const int64_t width = ls_family_gguf_int(r, "hidden_size");
    if (width > 0)
        ls_family_gguf_set(r, "expand",
                           json_integer(ls_family_gguf_int(r, "intermediate_size") / width));
    /* Falcon-Mamba's norms: it is no Mamba without them */
    if (json_is_false(json_object_get(r->config, "mamba.ssm.dt_b_c_rms")))
        ls_family_gguf_set(r, "mamba.ssm.dt_b_c_rms", NULL);
}

const ls_family_type ls_family_mamba = {
    .name = "mamba",
    .names = "mamba",
    .embedding = "embeddings.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .gguf = {.architecture = "mamba", .translate = translate},
};
