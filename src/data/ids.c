/* Ids that were written down: 1,2,3 or JSON. */
#include <string.h>

#include "base/json.h"
#include "base/option.h"
#include "data/tokenizer.h"

/* [1, 2, 3], or an object that has that as its ids. */
static ls_status read_json(ls_ctx *ctx, const char *text, ls_ids *out) {
    json_t *json;
    LS_TRY(ls_json_parse(ctx, text, strlen(text), "ids", &json));
    const json_t *list = json_is_object(json) ? json_object_get(json, "ids") : json;
    ls_status status = LS_OK;
    if (!json_is_array(list))
        status = LS_FAIL(ctx, LS_EINPUT, "ids: the JSON is neither a list nor has it one as ids");
    for (size_t i = 0; i < json_array_size(list) && status == LS_OK; i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t value = json_is_integer(item) ? json_integer_value(item) : -1;
        const int32_t id = (int32_t)value;
        if (value < 0 || value > INT32_MAX)
            status = LS_FAIL(ctx, LS_EINPUT, "ids: item %zu of the list is no id", i);
        else
            status = ls_ids_append(ctx, out, &id, 1);
    }
    json_decref(json);
    return status;
}

ls_status ls_ids_parse(ls_ctx *ctx, const char *text, size_t length, ls_ids *out) {
    static const char between[] = ", \t\r\n";
    char word[24];
    if (memchr(text, '\0', length) != NULL)
        return LS_FAIL(ctx, LS_EINPUT, "ids: there is a zero byte among them");
    text += strspn(text, between);
    if (*text == '[' || *text == '{') return read_json(ctx, text, out);
    for (; *text != '\0'; text += strspn(text, between)) {
        length = strcspn(text, between);
        int64_t value = -1;
        if (length < sizeof word) {
            memcpy(word, text, length);
            word[length] = '\0';
            if (!ls_parse_int(word, &value)) value = -1;
        }
        if (value < 0 || value > INT32_MAX)
            return LS_FAIL(ctx, LS_EUSE, "ids: `%.*s` is no id", (int)(length < 40 ? length : 40),
                           text);
        int32_t id = (int32_t)value;
        LS_TRY(ls_ids_append(ctx, out, &id, 1));
        text += length;
    }
    return LS_OK;
}
