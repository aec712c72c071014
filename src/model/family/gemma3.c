/* Gemma 3 with images: its text part alone. */
#include "model/family.h"

extern const ls_family_type ls_family_gemma3_text;

static void read(ls_family_reader *r) {
    /* what images become, which no text has */
    static const char *const inert[] = {
        "vision_config",   "mm_tokens_per_image", "image_token_index", "image_token_id",
        "boi_token_index", "boi_token_id",        "eoi_token_index",   "eoi_token_id",
    };
    ls_family_read_within(r, "text_config", &ls_family_gemma3_text);
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++) ls_field_any(r, inert[i]);
}

const ls_family_type ls_family_gemma3 = {
    .name = "gemma3",
    .rules = "w.*vision_tower.* = -\n"
             "w.*multi_modal_projector.* = -\n" LS_FAMILY_SANDWICH_RULES LS_FAMILY_GEMMA_RULES,
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .stands_for = "gemma3_text",
};
