/* SmolLM3: Llama with some layers that have no positions. */
#include "model/family.h"

/* no_rope_layers has 1 for layers WITH a rotation. */
static void mark_unplaced(ls_family_reader *r, const ls_family_sizes *sizes, uint8_t *marks) {
    const json_t *list = ls_field_any(r, "no_rope_layers");
    const int64_t every = ls_field_int(r, "no_rope_layer_interval", 4, 1, LS_LAYERS_MAX);
    if (list != NULL && (!json_is_array(list) || (int64_t)json_array_size(list) != sizes->layers)) {
        ls_field_refuse(r, "`no_rope_layers` must list %lld layers", (long long)sizes->layers);
        return;
    }
    for (int64_t i = 0; i < sizes->layers; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        bool rotated = (i + 1) % every != 0;
        if (list != NULL && !json_is_integer(item) && !json_is_boolean(item))
            ls_field_refuse(r, "`no_rope_layers` has more than 0 and 1");
        if (list != NULL) rotated = json_is_true(item) || json_integer_value(item) != 0;
        marks[i] = rotated ? 0 : LS_LAYER_UNPLACED;
    }
}

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    uint8_t marks[LS_LAYERS_MAX] = {0};
    const ls_family_usual usual = {.kv_heads = 4, .epsilon = 1e-6, .activation = "silu"};
    ls_family_read_body(r, &usual, &sizes);
    ls_family_read_rotation(r, &sizes, 1, 2000000);
    LS_FAMILY_BOOL(r, "mixer.bias", ls_field_bool(r, "attention_bias", false));
    mark_unplaced(r, &sizes, marks);
    const int64_t window = ls_field_int(r, "sliding_window", 0, 1, 1 << 30);
    const bool windows = ls_field_bool(r, "use_sliding_window", false) && window > 0;
    for (int64_t i = 0; windows && i < sizes.layers; i++)
        if (marks[i] & LS_LAYER_UNPLACED) marks[i] |= LS_LAYER_NEAR;
    ls_family_read_layer_types(r, &sizes, marks);
    ls_family_set_layers(r, &sizes, marks, window);
    ls_field_any(r, "max_window_layers"); /* layers say so themselves */
}

const ls_family_type ls_family_smollm3 = {
    .name = "smollm3",
    .names = "llama",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .gguf = {.architecture = "smollm3", .rules = LS_GGUF_PAIRED},
};
