/* Mistral: Llama with a window on every layer. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    const bool given = json_object_get(r->json, "sliding_window") != NULL;
    ls_family_read_llama(r, 8, &sizes);
    /* null: none; a file that does not say has the default of transformers */
    const int64_t window = ls_field_int(r, "sliding_window", given ? 0 : 4096, 1, 1 << 30);
    ls_family_set_windows(r, &sizes, window, 0);
}

const ls_family_type ls_family_mistral = {
    .name = "mistral",
    .names = "llama",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
};
