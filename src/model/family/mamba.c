/* Mamba. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_mamba(r, "mamba", 16, &sizes);
    ls_family_read_step_rank(r, &sizes);
}

const ls_family_type ls_family_mamba = {
    .name = "mamba",
    .names = "mamba",
    .embedding = "embeddings.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
};
