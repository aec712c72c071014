/* UMT5: T5 with a table of biases in every layer. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_t5(r, "gated-gelu", &sizes);
    ls_family_set(r, "position.each_layer", "true");
}

const ls_family_type ls_family_umt5 = {
    .name = "umt5",
    .names = "t5",
    .embedding = "shared.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
};
