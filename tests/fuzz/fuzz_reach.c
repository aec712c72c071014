/* reach.json of hostile origin: it is the reach of a model trained at 64 tokens, and becomes its
 * sentence and its page, or an error. */
#include "base/json.h"
#include "reach/reach.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    json_t *state = NULL;
    ls_text page = {0};
    if (ls_json_parse(&ctx, (const char *)bytes, length, "reach.json", &state) == LS_OK &&
        ls_reach_check(&ctx, "reach.json", state, 64) == LS_OK) {
        json_object_del(state, "left_out"); /* of this call alone */
        if (ls_reach_find(&ctx, state) == LS_OK) ls_reach_page(&ctx, state, &page);
    }
    ls_text_clear(&ctx, &page);
    json_decref(state);
    return 0;
}
