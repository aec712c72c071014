#include "serve/request.h"

#include <math.h>
#include <string.h>

/* ---- members ---- */

static ls_status parse(ls_ctx *ctx, const char *body, size_t length, json_t **out) {
    LS_TRY(ls_json_parse_line(ctx, body, length, "the request", 1, out));
    if (json_is_object(*out)) return LS_OK;
    json_decref(*out);
    *out = NULL;
    return LS_FAIL(ctx, LS_EUSE, "the request must be a JSON object");
}

/* A member, or NULL where it is absent or null, which is as good. */
static const json_t *member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static ls_status get_int(ls_ctx *ctx, const json_t *object, const char *key, int64_t low,
                         int64_t high, int64_t *inout) {
    const json_t *value = member(object, key);
    if (value == NULL) return LS_OK;
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high)
        return LS_FAIL(ctx, LS_EUSE, "%s must be a whole number from %lld to %lld", key,
                       (long long)low, (long long)high);
    *inout = json_integer_value(value);
    return LS_OK;
}

static ls_status get_real(ls_ctx *ctx, const json_t *object, const char *key, double low,
                          double high, double *inout) {
    const json_t *value = member(object, key);
    if (value == NULL) return LS_OK;
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= low && number <= high))
        return LS_FAIL(ctx, LS_EUSE, "%s must be a number from %g to %g", key, low, high);
    *inout = number;
    return LS_OK;
}

static ls_status get_bool(ls_ctx *ctx, const json_t *object, const char *key, bool *inout) {
    const json_t *value = member(object, key);
    if (value == NULL) return LS_OK;
    if (!json_is_boolean(value)) return LS_FAIL(ctx, LS_EUSE, "%s must be true or false", key);
    *inout = json_is_true(value);
    return LS_OK;
}

/* What clients send that has no effect here: only as it changes nothing. */
static ls_status check_neutral(ls_ctx *ctx, const json_t *object, const ls_request *request) {
    double penalty = 0;
    int64_t best = request->n;
    LS_TRY(get_real(ctx, object, "presence_penalty", 0, 0, &penalty));
    LS_TRY(get_real(ctx, object, "frequency_penalty", 0, 0, &penalty));
    LS_TRY(get_int(ctx, object, "best_of", request->n, request->n, &best));
    const json_t *bias = member(object, "logit_bias"), *suffix = member(object, "suffix");
    const json_t *tools = member(object, "tools"), *format = member(object, "response_format");
    if (bias != NULL && (!json_is_object(bias) || json_object_size(bias) > 0))
        return LS_FAIL(ctx, LS_EUSE, "logit_bias is not supported");
    if (suffix != NULL) return LS_FAIL(ctx, LS_EUSE, "suffix is not supported");
    if (tools != NULL && (!json_is_array(tools) || json_array_size(tools) > 0))
        return LS_FAIL(ctx, LS_EUSE, "tools are not supported");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format != NULL && (type == NULL || strcmp(type, "text") != 0))
        return LS_FAIL(ctx, LS_EUSE, "response_format must be {\"type\": \"text\"}");
    const json_t *user = member(object, "user");
    if (user != NULL && !json_is_string(user)) return LS_FAIL(ctx, LS_EUSE, "user must be a text");
    return LS_OK;
}

static ls_status check_known(ls_ctx *ctx, const json_t *object, const char *const *known) {
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0) i++;
        if (known[i] == NULL && !json_is_null(value))
            return LS_FAIL(ctx, LS_EUSE, "the request has a member \"%.60s\", which is not known",
                           key);
    }
    return LS_OK;
}

static ls_status check_model(ls_ctx *ctx, const ls_serving *serving, const json_t *object) {
    const json_t *model = member(object, "model");
    if (model == NULL) return LS_OK;
    const char *name = json_string_value(model);
    if (name != NULL && strcmp(name, serving->model) == 0) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "there is no model \"%.100s\" here: this is \"%s\"",
                   name == NULL ? "?" : name, serving->model);
}

static ls_status add_stop(ls_ctx *ctx, const json_t *text, ls_request *out) {
    const size_t length = json_string_length(text);
    if (!json_is_string(text) || length < 1 || length > LS_REQUEST_STOP_BYTES)
        return LS_FAIL(ctx, LS_EUSE, "a stop must be a text of 1 to %d bytes",
                       (int)LS_REQUEST_STOP_BYTES);
    if (out->stops == LS_REQUEST_STOPS)
        return LS_FAIL(ctx, LS_EUSE, "there may be %d stops at most", (int)LS_REQUEST_STOPS);
    memcpy(out->stop[out->stops].bytes, json_string_value(text), length);
    out->stop[out->stops++].length = length;
    return LS_OK;
}

static ls_status read_stops(ls_ctx *ctx, const json_t *object, ls_request *out) {
    const json_t *stop = member(object, "stop");
    if (stop == NULL) return LS_OK;
    if (!json_is_array(stop)) return add_stop(ctx, stop, out);
    for (size_t i = 0; i < json_array_size(stop); i++)
        LS_TRY(add_stop(ctx, json_array_get(stop, i), out));
    return LS_OK;
}

static ls_status read_stream(ls_ctx *ctx, const json_t *object, ls_request *out) {
    static const char *const known[] = {"include_usage", NULL};
    LS_TRY(get_bool(ctx, object, "stream", &out->stream));
    const json_t *options = member(object, "stream_options");
    if (options == NULL) return LS_OK;
    if (!json_is_object(options) || !out->stream)
        return LS_FAIL(ctx, LS_EUSE, "stream_options is an object, and needs \"stream\": true");
    LS_TRY(check_known(ctx, options, known));
    return get_bool(ctx, options, "include_usage", &out->usage);
}

/* What completions and chats have in common. */
static ls_status read_common(ls_ctx *ctx, const ls_serving *serving, const json_t *object,
                             ls_request *out) {
    int64_t seed = 0;
    LS_TRY(check_model(ctx, serving, object));
    LS_TRY(get_int(ctx, object, "n", 1, LS_REQUEST_CHOICES, &out->n));
    LS_TRY(get_real(ctx, object, "temperature", 0, 100, &out->how.temperature));
    LS_TRY(get_real(ctx, object, "top_p", 0, 1, &out->how.top_p));
    LS_TRY(get_int(ctx, object, "top_k", -1, 1 << 24, &out->how.top_k));
    LS_TRY(get_int(ctx, object, "seed", INT64_MIN, INT64_MAX, &seed));
    out->how.top_k = ls_max(out->how.top_k, 0); /* -1: all, as some clients say */
    out->how.seed = (uint64_t)seed;
    LS_TRY(read_stops(ctx, object, out));
    LS_TRY(read_stream(ctx, object, out));
    return check_neutral(ctx, object, out);
}

/* ---- prompts ---- */

/* A text that could not fit in any way is refused before it is cut into tokens. */
static ls_status encode(ls_ctx *ctx, const ls_serving *serving, const char *text, size_t length,
                        unsigned flags, ls_ids *out) {
    enum { TOKEN_BYTES = 256 };
    if (length / TOKEN_BYTES > (size_t)serving->context)
        return LS_FAIL(ctx, LS_EUSE, "a text of %zu bytes does not fit into %lld tokens", length,
                       (long long)serving->context);
    LS_TRY(ls_tokenizer_encode(ctx, serving->tokenizer, text, length, flags, out));
    for (size_t i = 0; i < out->count; i++)
        if (out->at[i] < 0 || out->at[i] >= serving->vocabulary)
            return LS_FAIL(ctx, LS_EUSE, "the text has a token that the model does not know");
    return LS_OK;
}

static ls_status encode_prompt(ls_ctx *ctx, const ls_serving *serving, const json_t *text,
                               ls_ids *out) {
    LS_TRY(encode(ctx, serving, json_string_value(text), json_string_length(text),
                  serving->text_flags | LS_ENCODE_SPECIAL, out));
    if (out->count > 0) return LS_OK;
    const ls_special_ids special = ls_tokenizer_special(serving->tokenizer);
    const int32_t start = special.bos >= 0 ? special.bos : special.eos;
    if (start < 0)
        return LS_FAIL(ctx, LS_EUSE, "an empty prompt needs a tokenizer that marks a text's start");
    return ls_ids_append(ctx, out, &start, 1);
}

static ls_status copy_ids(ls_ctx *ctx, const ls_serving *serving, const json_t *list, ls_ids *out) {
    const size_t count = json_array_size(list);
    if (count < 1 || count > (size_t)serving->context)
        return LS_FAIL(ctx, LS_EUSE, "a prompt of %zu tokens: 1 to %lld fit", count,
                       (long long)serving->context);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id >= serving->vocabulary)
            return LS_FAIL(ctx, LS_EUSE, "token ids are whole numbers from 0 to %lld",
                           (long long)serving->vocabulary - 1);
        LS_TRY(ls_ids_append(ctx, out, &(int32_t){(int32_t)id}, 1));
    }
    return LS_OK;
}

static ls_status make_prompts(ls_ctx *ctx, size_t count, ls_request *out) {
    if (count < 1 || count > LS_REQUEST_CHOICES || (int64_t)count > LS_REQUEST_CHOICES / out->n)
        return LS_FAIL(ctx, LS_EUSE, "a request has 1 to %d choices: prompts times n",
                       (int)LS_REQUEST_CHOICES);
    out->prompt = ls_new(ctx, count, sizeof *out->prompt);
    if (out->prompt == NULL) return LS_ENOMEM;
    out->prompts = count;
    return LS_OK;
}

/* A text, a list of ids, or a list of either. */
static ls_status read_prompts(ls_ctx *ctx, const ls_serving *serving, const json_t *object,
                              ls_request *out) {
    const json_t *prompt = member(object, "prompt");
    const bool list = json_is_array(prompt) && !json_is_integer(json_array_get(prompt, 0));
    if (!json_is_string(prompt) && !json_is_array(prompt))
        return LS_FAIL(ctx, LS_EUSE, "prompt must be a text, token ids, or a list of either");
    LS_TRY(make_prompts(ctx, list ? json_array_size(prompt) : 1, out));
    for (size_t i = 0; i < out->prompts; i++) {
        const json_t *one = list ? json_array_get(prompt, i) : prompt;
        if (json_is_string(one))
            LS_TRY(encode_prompt(ctx, serving, one, &out->prompt[i]));
        else if (json_is_array(one))
            LS_TRY(copy_ids(ctx, serving, one, &out->prompt[i]));
        else
            return LS_FAIL(ctx, LS_EUSE, "a list of prompts holds texts or lists of token ids");
    }
    return LS_OK;
}

/* Prompts and what is to follow must fit; max_tokens -1: as much as does. */
static ls_status check_lengths(ls_ctx *ctx, const ls_serving *serving, ls_request *out) {
    for (size_t i = 0; i < out->prompts; i++) {
        const int64_t count = (int64_t)out->prompt[i].count, wanted = ls_max(out->max_tokens, 0);
        /* the last token is made and not read */
        if (count > serving->context || wanted - 1 > serving->context - count)
            return LS_FAIL(ctx, LS_EUSE,
                           "a prompt of %lld tokens and %lld to follow: %lld fit together",
                           (long long)count, (long long)wanted, (long long)serving->context);
    }
    if (out->max_tokens < 0) out->max_tokens = serving->context - (int64_t)out->prompt[0].count;
    return LS_OK;
}

static ls_status read_completion(ls_ctx *ctx, const ls_serving *serving, const json_t *object,
                                 ls_request *out) {
    static const char *const known[] = {"model",
                                        "prompt",
                                        "max_tokens",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "n",
                                        "stream",
                                        "logprobs",
                                        "echo",
                                        "stop",
                                        "seed",
                                        "user",
                                        "suffix",
                                        "best_of",
                                        "logit_bias",
                                        "stream_options",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        NULL};
    LS_TRY(check_known(ctx, object, known));
    LS_TRY(read_common(ctx, serving, object, out));
    out->max_tokens = 16;
    LS_TRY(get_int(ctx, object, "max_tokens", 0, 1 << 30, &out->max_tokens));
    LS_TRY(get_int(ctx, object, "logprobs", 0, LS_TOP_MAX, &out->tops));
    LS_TRY(get_bool(ctx, object, "echo", &out->echo));
    LS_TRY(read_prompts(ctx, serving, object, out));
    return check_lengths(ctx, serving, out);
}

/* ---- chats ---- */

/* Contents may come as a list of parts of text. */
static ls_status plain_content(ls_ctx *ctx, json_t *message) {
    const json_t *content = json_object_get(message, "content");
    if (json_is_string(content)) return LS_OK;
    ls_text whole = {0};
    ls_status status = LS_OK;
    for (size_t i = 0; json_is_array(content) && i < json_array_size(content); i++) {
        const json_t *text = json_object_get(json_array_get(content, i), "text");
        if (!json_is_string(text)) {
            ls_text_clear(ctx, &whole);
            return LS_FAIL(ctx, LS_EUSE, "parts of a message must be texts");
        }
        ls_text_append(ctx, &whole, json_string_value(text), json_string_length(text));
    }
    if (!json_is_array(content))
        status = LS_FAIL(ctx, LS_EUSE, "a message needs a content, which is a text");
    else if (ls_text_status(&whole) != LS_OK ||
             json_object_set_new(
                 message, "content",
                 json_stringn(whole.bytes == NULL ? "" : whole.bytes, whole.length)) != 0)
        status = LS_ENOMEM;
    ls_text_clear(ctx, &whole);
    return status;
}

static ls_status check_messages(ls_ctx *ctx, json_t *messages) {
    static const char *const known[] = {"role", "content", "name", NULL};
    if (!json_is_array(messages) || json_array_size(messages) < 1 ||
        json_array_size(messages) > 4096)
        return LS_FAIL(ctx, LS_EUSE, "messages must be a list of 1 to 4096 messages");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (!json_is_object(message) || !json_is_string(json_object_get(message, "role")))
            return LS_FAIL(ctx, LS_EUSE, "a message is an object with a role and a content");
        LS_TRY(check_known(ctx, message, known));
        LS_TRY(plain_content(ctx, message));
    }
    return LS_OK;
}

static ls_status read_messages(ls_ctx *ctx, const ls_serving *serving, const json_t *object,
                               ls_request *out) {
    json_t *messages = json_object_get(object, "messages");
    if (serving->chat == NULL) return LS_FAIL(ctx, LS_EUSE, "%s", serving->chat_missing);
    LS_TRY(check_messages(ctx, messages));
    LS_TRY(make_prompts(ctx, 1, out));
    ls_text text = {0};
    ls_status status = ls_template_render(ctx, serving->chat, messages, true, &text);
    /* the template writes what stands around a text itself */
    if (status == LS_OK)
        status = encode(ctx, serving, text.bytes == NULL ? "" : text.bytes, text.length,
                        LS_ENCODE_SPECIAL, &out->prompt[0]);
    if (status == LS_OK && out->prompt[0].count == 0)
        status = LS_FAIL(ctx, LS_EUSE, "the messages are an empty prompt");
    ls_text_clear(ctx, &text);
    return status;
}

static ls_status read_chat(ls_ctx *ctx, const ls_serving *serving, const json_t *object,
                           ls_request *out) {
    static const char *const known[] = {"model",
                                        "messages",
                                        "max_tokens",
                                        "max_completion_tokens",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "n",
                                        "stream",
                                        "logprobs",
                                        "top_logprobs",
                                        "stop",
                                        "seed",
                                        "user",
                                        "tools",
                                        "logit_bias",
                                        "best_of",
                                        "response_format",
                                        "stream_options",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        NULL};
    bool logprobs = false;
    int64_t tops = 0;
    LS_TRY(check_known(ctx, object, known));
    LS_TRY(read_common(ctx, serving, object, out));
    out->max_tokens = -1;
    LS_TRY(get_int(ctx, object, "max_tokens", 1, 1 << 30, &out->max_tokens));
    LS_TRY(get_int(ctx, object, "max_completion_tokens", 1, 1 << 30, &out->max_tokens));
    LS_TRY(get_bool(ctx, object, "logprobs", &logprobs));
    LS_TRY(get_int(ctx, object, "top_logprobs", 0, LS_TOP_MAX, &tops));
    if (!logprobs && member(object, "top_logprobs") != NULL && tops > 0)
        return LS_FAIL(ctx, LS_EUSE, "top_logprobs needs \"logprobs\": true");
    if (logprobs) out->tops = tops;
    LS_TRY(read_messages(ctx, serving, object, out));
    return check_lengths(ctx, serving, out);
}

ls_status ls_request_read(ls_ctx *ctx, const ls_serving *serving, ls_asks kind, const char *body,
                          size_t length, ls_request *out) {
    *out = (ls_request){.kind = kind, .n = 1, .tops = -1, .how = {.temperature = 1, .top_p = 1}};
    json_t *object;
    LS_TRY(parse(ctx, body, length, &object));
    ls_status status = kind == LS_ASKS_CHAT ? read_chat(ctx, serving, object, out)
                                            : read_completion(ctx, serving, object, out);
    json_decref(object);
    return status;
}

void ls_request_clear(ls_ctx *ctx, ls_request *request) {
    for (size_t i = 0; i < request->prompts; i++) ls_ids_clear(ctx, &request->prompt[i]);
    ls_free(ctx, request->prompt);
    request->prompt = NULL;
    request->prompts = 0;
}

/* ---- tokens ---- */

static ls_status read_text(ls_ctx *ctx, const ls_serving *serving, const json_t *object,
                           ls_ids *out, bool *with_pieces) {
    static const char *const known[] = {
        "model",       "prompt",      "content",           "add_special_tokens",
        "add_special", "with_pieces", "return_token_strs", NULL};
    bool special = true;
    LS_TRY(check_known(ctx, object, known));
    LS_TRY(check_model(ctx, serving, object));
    LS_TRY(get_bool(ctx, object, "add_special", &special));
    LS_TRY(get_bool(ctx, object, "add_special_tokens", &special));
    LS_TRY(get_bool(ctx, object, "with_pieces", with_pieces));
    LS_TRY(get_bool(ctx, object, "return_token_strs", with_pieces));
    const json_t *text = member(object, "prompt");
    if (text == NULL) text = member(object, "content");
    if (!json_is_string(text))
        return LS_FAIL(ctx, LS_EUSE, "a text is needed, as \"prompt\" or as \"content\"");
    return ls_tokenizer_encode(ctx, serving->tokenizer, json_string_value(text),
                               json_string_length(text),
                               LS_ENCODE_SPECIAL | (special ? LS_ENCODE_TEMPLATE : 0), out);
}

ls_status ls_request_tokenize(ls_ctx *ctx, const ls_serving *serving, const char *body,
                              size_t length, ls_ids *out, bool *with_pieces) {
    json_t *object;
    *with_pieces = false;
    LS_TRY(parse(ctx, body, length, &object));
    ls_status status = read_text(ctx, serving, object, out, with_pieces);
    json_decref(object);
    return status;
}

static ls_status read_tokens(ls_ctx *ctx, const ls_serving *serving, const json_t *object,
                             ls_ids *out) {
    static const char *const known[] = {"model", "tokens", NULL};
    const int64_t end = ls_tokenizer_vocabulary(serving->tokenizer);
    LS_TRY(check_known(ctx, object, known));
    LS_TRY(check_model(ctx, serving, object));
    const json_t *tokens = member(object, "tokens");
    if (!json_is_array(tokens)) return LS_FAIL(ctx, LS_EUSE, "tokens must be a list of ids");
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *value = json_array_get(tokens, i);
        const json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id >= end)
            return LS_FAIL(ctx, LS_EUSE, "token ids are whole numbers from 0 to %lld",
                           (long long)end - 1);
        LS_TRY(ls_ids_append(ctx, out, &(int32_t){(int32_t)id}, 1));
    }
    return LS_OK;
}

ls_status ls_request_detokenize(ls_ctx *ctx, const ls_serving *serving, const char *body,
                                size_t length, ls_ids *out) {
    json_t *object;
    LS_TRY(parse(ctx, body, length, &object));
    ls_status status = read_tokens(ctx, serving, object, out);
    json_decref(object);
    return status;
}
