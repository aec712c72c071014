/* mT5: T5 1.1 with another vocabulary. Its head reads the decoder's rows as they are. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_t5(r, "gated-gelu", &sizes);
    ls_family_set(r, "model.scale_head", "false");
}

const ls_family_type ls_family_mt5 = {
    .name = "mt5",
    .names = "t5",
    .embedding = "shared.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
};
