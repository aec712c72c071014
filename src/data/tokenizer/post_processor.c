#include "data/tokenizer/post_processor.h"

#include <string.h>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/vocabulary.h"

void ls__post_processor_clear(ls_ctx *ctx, ls_post_processor *post) {
    ls_ids_clear(ctx, &post->before);
    ls_ids_clear(ctx, &post->after);
}

static ls_status take_id(ls_ctx *ctx, const json_t *json, const char *what, int32_t *out) {
    json_int_t id = json_is_integer(json) ? json_integer_value(json) : -1;
    if (id < 0 || id >= LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: a special token of the post-processor has no id", what);
    *out = (int32_t)id;
    return LS_OK;
}

/* Puts ids around what is there: the text that an earlier processor has dressed. */
static ls_status wrap(ls_ctx *ctx, ls_post_processor *post, const ls_ids *before,
                      const ls_ids *after) {
    ls_ids joined = {0};
    ls_status status = ls_ids_append(ctx, &joined, before->at, before->count);
    if (status == LS_OK) status = ls_ids_append(ctx, &joined, post->before.at, post->before.count);
    if (status == LS_OK) status = ls_ids_append(ctx, &post->after, after->at, after->count);
    if (status != LS_OK) {
        ls_ids_clear(ctx, &joined);
        return status;
    }
    ls_ids_clear(ctx, &post->before);
    post->before = joined;
    return LS_OK;
}

static ls_status read_template(ls_ctx *ctx, const json_t *json, const char *what, ls_ids *before,
                               ls_ids *after) {
    const json_t *special = json_object_get(json, "special_tokens");
    const json_t *single = json_object_get(json, "single"), *member, *number;
    size_t index, inner;
    int texts = 0;
    LS_TRY(ls__fields_known(ctx, json, "single|pair|special_tokens", what));
    json_array_foreach(single, index, member) {
        const char *name =
            json_string_value(json_object_get(json_object_get(member, "SpecialToken"), "id"));
        if (json_object_get(member, "Sequence") != NULL) texts++;
        if (name == NULL) continue;
        const json_t *ids = json_object_get(json_object_get(special, name), "ids");
        if (!json_is_array(ids))
            return LS_FAIL(ctx, LS_EINPUT, "%s: the template's token \"%.60s\" has no ids", what,
                           name);
        json_array_foreach(ids, inner, number) {
            int32_t id;
            LS_TRY(take_id(ctx, number, what, &id));
            LS_TRY(ls_ids_append(ctx, texts == 0 ? before : after, &id, 1));
        }
    }
    if (texts != 1)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the template must hold the text once", what);
    return LS_OK;
}

/* cls TEXT sep */
static ls_status read_pair(ls_ctx *ctx, const json_t *json, const char *what, ls_ids *before,
                           ls_ids *after) {
    int32_t cls, sep;
    LS_TRY(ls__fields_known(ctx, json, "sep|cls|trim_offsets|add_prefix_space", what));
    LS_TRY(take_id(ctx, json_array_get(json_object_get(json, "cls"), 1), what, &cls));
    LS_TRY(take_id(ctx, json_array_get(json_object_get(json, "sep"), 1), what, &sep));
    LS_TRY(ls_ids_append(ctx, before, &cls, 1));
    return ls_ids_append(ctx, after, &sep, 1);
}

static ls_status add(ls_ctx *ctx, void *user, const json_t *json, const char *type,
                     const char *what) {
    ls_ids before = {0}, after = {0};
    ls_status status = LS_OK;
    if (strcmp(type, "ByteLevel") == 0) /* moves offsets, which are not kept */
        status = ls__fields_known(ctx, json, "add_prefix_space|trim_offsets|use_regex", what);
    else if (strcmp(type, "TemplateProcessing") == 0)
        status = read_template(ctx, json, what, &before, &after);
    else if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        status = read_pair(ctx, json, what, &before, &after);
    else
        status =
            LS_FAIL(ctx, LS_EINPUT, "%s: the post-processor %.60s is not understood", what, type);
    if (status == LS_OK) status = wrap(ctx, user, &before, &after);
    ls_ids_clear(ctx, &before);
    ls_ids_clear(ctx, &after);
    return status;
}

ls_status ls__post_processor_read(ls_ctx *ctx, const json_t *json, const char *what,
                                  ls_post_processor *out) {
    return ls__field_sequence(ctx, json, "post_processor", "processors", what, add, out);
}
