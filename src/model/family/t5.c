/* T5 1.0 and 1.1: an encoder and a decoder, biases by distance that all layers share. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_t5(r, "relu", &sizes);
}

const ls_family_type ls_family_t5 = {
    .name = "t5",
    .names = "t5",
    .embedding = "shared.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
};
