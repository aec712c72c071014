/* LongT5: T5 whose encoder has windows, with a token for each block of tokens where wished. */
#include <string.h>

#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_t5(r, "relu", &sizes);
    const char *kind = ls_field_text(r, "encoder_attention_type", "local");
    const bool global = strcmp(kind, "transient-global") == 0;
    if (!global && strcmp(kind, "local") != 0)
        ls_field_refuse(r, "`encoder_attention_type` is %.64s, which is not known", kind);
    const int64_t block = ls_field_int(r, "global_block_size", 16, 1, 1 << 30);
    ls_family_set(r, "model.encoder_mixer", "longt5");
    LS_FAMILY_INT(r, "mixer.longt5.radius", ls_field_int(r, "local_radius", 127, 0, 1 << 30));
    LS_FAMILY_INT(r, "mixer.longt5.global_block", global ? block : 0);
    LS_FAMILY_INT(r, "mixer.longt5.buckets",
                  ls_field_int(r, "relative_attention_num_buckets", 32, 4, 4096));
    LS_FAMILY_INT(r, "mixer.longt5.max_distance",
                  ls_field_int(r, "relative_attention_max_distance", 128, 2, 1 << 20));
    if (global)
        ls_family_set_real(r, "mixer.longt5.eps",
                           ls_field_real(r, "layer_norm_epsilon", 1e-6, 1e-12, 1));
}

const ls_family_type ls_family_longt5 = {
    .name = "longt5",
    .names = "t5",
    .embedding = "shared.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
};
