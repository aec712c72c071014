/* Phi-3 and Phi-4-mini: Llama with fused projections and LongRoPE. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_llama(r, 0, &sizes);
    ls_family_set_windows(r, &sizes, ls_field_int(r, "sliding_window", 0, 1, 1 << 30), 0);
}

const ls_family_type ls_family_phi3 = {
    .name = "phi3",
    .names = "llama",
    .rules = "w.*layers.{n}.mlp.gate_up_proj.* = layers.{n}.ffn.up.*\n",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .gguf = {.architecture = "phi3"},
};
