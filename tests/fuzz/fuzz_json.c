/* JSON of hostile origin, as a whole file and as one line of JSONL. */
#include <stdlib.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ls_ctx ctx = ls_ctx_default();
    json_t *json;
    int64_t whole;
    double real;
    const char *text;
    if (ls_json_parse(&ctx, (const char *)data, size, "fuzz", &json) == LS_OK) {
        (void)ls_json_int(&ctx, json, "int", "fuzz", -5, 5, &whole);
        (void)ls_json_real(&ctx, json, "real", "fuzz", 0, 1, &real);
        (void)ls_json_text(&ctx, json, "text", "fuzz", &text);
        json_decref(json);
        ctx.error = (ls_error){0};
        /* a line may hold what a file may, and NUL besides */
        if (ls_json_parse_line(&ctx, (const char *)data, size, "fuzz", 1, &json) != LS_OK) abort();
    } else {
        ctx.error = (ls_error){0};
        (void)ls_json_parse_line(&ctx, (const char *)data, size, "fuzz", 1, &json);
    }
    json_decref(json);
    return 0;
}
