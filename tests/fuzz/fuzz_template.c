/* Chat templates of hostile origin, and what they make of a conversation. */
#include <stdlib.h>

#include "serve/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ls_ctx ctx = ls_ctx_default();
    ls_template *chat;
    if (ls_template_new(&ctx, (const char *)data, size, "<s>", "</s>", &chat) != LS_OK) {
        if (ctx.error.message[0] == '\0') abort();
        return 0;
    }
    json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", " Hi ",
                                 "role", "assistant", "content", "x y");
    ls_text text = {0};
    const ls_status status = ls_template_render(&ctx, chat, messages, true, &text);
    if (status != LS_OK && ctx.error.message[0] == '\0') abort();
    ls_text_clear(&ctx, &text);
    json_decref(messages);
    ls_template_free(&ctx, chat);
    return 0;
}
