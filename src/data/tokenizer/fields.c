#include "data/tokenizer/fields.h"

#include <string.h>

#include "data/tokenizer/pattern.h"

ls_status ls__field_type(ls_ctx *ctx, const json_t *object, const char *part, const char *what,
                         const char **out) {
    *out = json_string_value(json_object_get(object, "type"));
    if (*out != NULL) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "%s: the %s has no type", what, part);
}

/* Whether `word` is one of "a|b|c". */
static bool among(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, '|')) {
        if (*at == '|') at++;
        if (strncmp(at, word, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return true;
    }
    return false;
}

ls_status ls__fields_known(ls_ctx *ctx, const json_t *object, const char *known, const char *what) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        (void)value;
        if (strcmp(key, "type") != 0 && !among(known, key))
            return LS_FAIL(ctx, LS_EINPUT, "%s: the member `%.60s` of %s is not understood", what,
                           key, json_string_value(json_object_get(object, "type")));
    }
    return LS_OK;
}

ls_status ls__field_bool(ls_ctx *ctx, const json_t *object, const char *key, bool absent,
                         const char *what, bool *out) {
    const json_t *value = json_object_get(object, key);
    *out = absent;
    if (value == NULL || json_is_null(value)) return LS_OK;
    if (!json_is_boolean(value))
        return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` must be true or false", what, key);
    *out = json_is_true(value);
    return LS_OK;
}

ls_status ls__field_pattern(ls_ctx *ctx, const json_t *object, const char *key, const char *what,
                            ls_pattern **out) {
    const json_t *value = json_object_get(object, key);
    const json_t *string = json_object_get(value, "String");
    const json_t *regex = json_object_get(value, "Regex");
    *out = NULL;
    if (json_is_string(string))
        return ls__pattern_string(ctx, json_string_value(string), json_string_length(string), out);
    if (json_is_string(regex)) return ls__pattern_regex(ctx, json_string_value(regex), what, out);
    return LS_FAIL(ctx, LS_EINPUT, "%s: a `%s` must be {\"String\": ...} or {\"Regex\": ...}", what,
                   key);
}

ls_status ls__field_sequence(ls_ctx *ctx, const json_t *object, const char *part, const char *list,
                             const char *what, ls_field_each each, void *user) {
    const char *type;
    if (object == NULL || json_is_null(object)) return LS_OK;
    LS_TRY(ls__field_type(ctx, object, part, what, &type));
    if (strcmp(type, "Sequence") != 0) return each(ctx, user, object, type, what);
    const json_t *members = json_object_get(object, list), *member;
    size_t index;
    if (!json_is_array(members))
        return LS_FAIL(ctx, LS_EINPUT, "%s: a Sequence of the %s needs the list `%s`", what, part,
                       list);
    json_array_foreach(members, index, member)
        LS_TRY(ls__field_sequence(ctx, member, part, list, what, each, user));
    return LS_OK;
}
