/* Requests, row by row: what is made of a body, and the sentence that refuses it.
 * Tier: memory. */
#include "reader_edges.h"

#include <stdlib.h>

#include "serve/request.h"

enum { CONTEXT = 64 };

static ls_tokenizer *bytes_of_text, *marked;
static ls_template *chat, *silent;

/* Tokens of a vocabulary that knows where a text begins. */
static const ls_gguf_text tokens[] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4}, {"a", 1}, {"b", 1}};
static const int32_t types[] = {2, 3, 3, 1, 1};

static int begin_with_tokenizers(void **state) {
    static const char each[] =
        "{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{% endfor %}";
    ls_ctx ctx = ls_ctx_default();
    ls_gguf_vocabulary v = ls_gguf_vocabulary_empty;
    v.model = "gpt2", v.tokens = tokens, v.token_count = 5, v.types = types;
    v.bos = 1, v.eos = 2;
    return begin(state) != 0 || ls_tokenizer_new_byte(&ctx, &bytes_of_text) != LS_OK ||
           ls_tokenizer_new_gguf(&ctx, &v, "file", &marked) != LS_OK ||
           ls_template_new(&ctx, each, sizeof each - 1, "", "", &chat) != LS_OK ||
           ls_template_new(&ctx, "", 0, "", "", &silent) != LS_OK;
}

static int end_with_tokenizers(void **state) {
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer_free(&ctx, bytes_of_text);
    ls_tokenizer_free(&ctx, marked);
    ls_template_free(&ctx, chat);
    ls_template_free(&ctx, silent);
    return end(state);
}

static ls_serving usual(void) {
    return (ls_serving){.tokenizer = bytes_of_text,
                        .model = "m",
                        .vocabulary = 256,
                        .context = CONTEXT,
                        .chat = chat};
}

typedef struct row {
    const char *body, *sentence; /* NULL: it is accepted */
    size_t prompts, first;       /* tokens of the first prompt */
    int64_t most;                /* tokens to follow */
} row;

static void try_row(const ls_serving *serving, ls_asks kind, const row *r) {
    ls_ctx ctx = ls_ctx_default();
    ls_request request;
    const ls_status status =
        ls_request_read(&ctx, serving, kind, r->body, strlen(r->body), &request);
    expect(r->body, status, &ctx, r->sentence);
    if (status == LS_OK && (request.prompts != r->prompts || request.prompt[0].count != r->first ||
                            request.max_tokens != r->most))
        fail_msg("%s: %zu prompts, %zu tokens, %lld to follow", r->body, request.prompts,
                 request.prompt[0].count, (long long)request.max_tokens);
    ls_request_clear(&ctx, &request);
}

static void try_rows(ls_asks kind, const row *rows, size_t count) {
    const ls_serving serving = usual();
    for (size_t i = 0; i < count; i++) try_row(&serving, kind, &rows[i]);
}

/* A prompt of two tokens with more members. */
#define ASK(more) "{\"prompt\": \"ab\"" more "}"

static void test_completions(void **state) {
    (void)state;
    static const row rows[] = {
        {ASK(""), NULL, 1, 2, 16},
        {"[]", "must be a JSON object", 0, 0, 0},
        {"{", "the request, line 1", 0, 0, 0},
        {ASK(", \"unheard\": 3"), "\"unheard\", which is not known", 0, 0, 0},
        {ASK(", \"unheard\": null"), NULL, 1, 2, 16},
        {ASK(", \"model\": \"m\""), NULL, 1, 2, 16},
        {ASK(", \"model\": \"n\""), "no model \"n\" here: this is \"m\"", 0, 0, 0},
        {ASK(", \"model\": 3"), "no model \"?\" here", 0, 0, 0},
        {ASK(", \"max_tokens\": 0"), NULL, 1, 2, 0},
        {ASK(", \"max_tokens\": 63"), NULL, 1, 2, 63}, /* the last one is not read */
        {ASK(", \"max_tokens\": 64"), "2 tokens and 64 to follow: 64 fit together", 0, 0, 0},
        {ASK(", \"max_tokens\": -1"), "max_tokens must be a whole number from 0", 0, 0, 0},
        {ASK(", \"max_tokens\": 1.5"), "max_tokens must be a whole number", 0, 0, 0},
        {ASK(", \"temperature\": \"hot\""), "temperature must be a number from 0 to 100", 0, 0, 0},
        {ASK(", \"temperature\": 100.5"), "temperature must be a number", 0, 0, 0},
        {ASK(", \"echo\": 1"), "echo must be true or false", 0, 0, 0},
        {ASK(", \"n\": 129"), "n must be a whole number from 1 to 128", 0, 0, 0},
        {"{\"prompt\": [\"a\", \"b\"], \"n\": 65}", "1 to 128 choices: prompts times n", 0, 0, 0},
        {"{\"prompt\": [\"abc\", \"b\"], \"n\": 64}", NULL, 2, 3, 16},
        {"{\"prompt\": []}", "1 to 128 choices", 0, 0, 0},
        /* what clients send that has no effect here */
        {ASK(", \"presence_penalty\": 0, \"frequency_penalty\": 0.0, \"best_of\": 1"), NULL, 1, 2,
         16},
        {ASK(", \"presence_penalty\": 0.5"), "presence_penalty must be", 0, 0, 0},
        {ASK(", \"frequency_penalty\": 1"), "frequency_penalty must be", 0, 0, 0},
        {ASK(", \"best_of\": 2"), "best_of must be", 0, 0, 0},
        {ASK(", \"best_of\": 2, \"n\": 2"), NULL, 1, 2, 16},
        {ASK(", \"logit_bias\": {}, \"suffix\": null, \"user\": \"u\""), NULL, 1, 2, 16},
        {ASK(", \"logit_bias\": {\"5\": 1}"), "logit_bias is not supported", 0, 0, 0},
        {ASK(", \"logit_bias\": []"), "logit_bias is not supported", 0, 0, 0},
        {ASK(", \"suffix\": \"\""), "suffix is not supported", 0, 0, 0},
        {ASK(", \"user\": 3"), "user must be a text", 0, 0, 0},
        /* stops, and streams */
        {ASK(", \"stop\": \"x\""), NULL, 1, 2, 16},
        {ASK(", \"stop\": [\"x\", \"y\"]"), NULL, 1, 2, 16},
        {ASK(", \"stop\": \"\""), "a stop must be a text of 1 to 256 bytes", 0, 0, 0},
        {ASK(", \"stop\": [3]"), "a stop must be a text", 0, 0, 0},
        {ASK(", \"stop\": [\"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\", \"8\", \"9\", \"a\", "
             "\"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\"]"),
         "there may be 16 stops at most", 0, 0, 0},
        {ASK(", \"stream\": true, \"stream_options\": {\"include_usage\": true}"), NULL, 1, 2, 16},
        {ASK(", \"stream_options\": {}"), "needs \"stream\": true", 0, 0, 0},
        {ASK(", \"stream\": true, \"stream_options\": 3"), "stream_options is an object", 0, 0, 0},
        {ASK(", \"stream\": true, \"stream_options\": {\"x\": 1}"), "\"x\", which is not", 0, 0, 0},
    };
    try_rows(LS_ASKS_COMPLETION, rows, sizeof rows / sizeof rows[0]);
}

static void test_prompts(void **state) {
    (void)state;
    static const row rows[] = {
        {"{}", "prompt must be a text, token ids, or a list of either", 0, 0, 0},
        {"{\"prompt\": 3}", "prompt must be a text", 0, 0, 0},
        {"{\"prompt\": [1, 2, 255]}", NULL, 1, 3, 16},
        {"{\"prompt\": [[1, 2], \"a\"]}", NULL, 2, 2, 16},
        {"{\"prompt\": [[1, 2], 3]}", "a list of prompts holds texts or lists", 0, 0, 0},
        {"{\"prompt\": [[]]}", "a prompt of 0 tokens: 1 to 64 fit", 0, 0, 0},
        {"{\"prompt\": [1, 256]}", "token ids are whole numbers from 0 to 255", 0, 0, 0},
        {"{\"prompt\": [1, -1]}", "token ids are whole numbers", 0, 0, 0},
        {"{\"prompt\": [1, \"a\"]}", "token ids are whole numbers", 0, 0, 0},
        {"{\"prompt\": \"\"}", "an empty prompt needs a tokenizer that marks", 0, 0, 0},
    };
    try_rows(LS_ASKS_COMPLETION, rows, sizeof rows / sizeof rows[0]);
    /* an empty text begins with the token that marks it, or with that which ends one */
    ls_serving serving = usual();
    serving.tokenizer = marked;
    serving.vocabulary = 5;
    try_row(&serving, LS_ASKS_COMPLETION, &(row){"{\"prompt\": \"\"}", NULL, 1, 1, 16});
    serving.vocabulary = 3; /* a model that knows fewer tokens than its tokenizer */
    try_row(&serving, LS_ASKS_COMPLETION,
            &(row){"{\"prompt\": \"a\"}", "a token that the model does not know", 0, 0, 0});
    /* one id more than there is room for, and a text that could not fit in any way */
    char body[20000] = "{\"prompt\": [1";
    for (int i = 0; i < CONTEXT; i++) strcat(body, ", 1");
    strcat(body, "]}");
    try_rows(LS_ASKS_COMPLETION, &(row){body, "a prompt of 65 tokens: 1 to 64 fit", 0, 0, 0}, 1);
    memset(body, 'a', sizeof body);
    memcpy(body, "{\"prompt\": \"", 12);
    memcpy(body + sizeof body - 3, "\"}", 3);
    try_rows(LS_ASKS_COMPLETION, &(row){body, "does not fit into 64 tokens", 0, 0, 0}, 1);
    strcpy(body + 12 + 65, "\"}");
    try_rows(LS_ASKS_COMPLETION, &(row){body, "a prompt of 65 tokens and 16 to follow", 0, 0, 0},
             1);
}

#define SAY(more) "{\"messages\": [{\"role\": \"u\", \"content\": \"a\"}]" more "}"

static void test_chats(void **state) {
    (void)state;
    static const row rows[] = {
        {SAY(""), NULL, 1, 4, CONTEXT - 4},
        {SAY(", \"max_tokens\": 5"), NULL, 1, 4, 5},
        {SAY(", \"max_completion_tokens\": 6"), NULL, 1, 4, 6},
        {SAY(", \"max_tokens\": 0"), "max_tokens must be a whole number from 1", 0, 0, 0},
        {SAY(", \"prompt\": \"a\""), "\"prompt\", which is not known", 0, 0, 0},
        {SAY(", \"tools\": []"), NULL, 1, 4, CONTEXT - 4},
        {SAY(", \"tools\": [{}]"), "tools are not supported", 0, 0, 0},
        {SAY(", \"tools\": {\"type\": \"function\"}"), "tools are not supported", 0, 0, 0},
        {SAY(", \"response_format\": {\"type\": \"text\"}"), NULL, 1, 4, CONTEXT - 4},
        {SAY(", \"response_format\": {\"type\": \"json_object\"}"), "response_format must", 0, 0,
         0},
        {SAY(", \"response_format\": {}"), "response_format must be", 0, 0, 0},
        {SAY(", \"response_format\": \"text\""), "response_format must be", 0, 0, 0},
        {SAY(", \"logprobs\": true, \"top_logprobs\": 3"), NULL, 1, 4, CONTEXT - 4},
        {SAY(", \"top_logprobs\": 3"), "top_logprobs needs \"logprobs\": true", 0, 0, 0},
        {SAY(", \"top_logprobs\": 0"), NULL, 1, 4, CONTEXT - 4},
        {"{}", "messages must be a list of 1 to 4096", 0, 0, 0},
        {"{\"messages\": []}", "messages must be a list of 1 to 4096", 0, 0, 0},
        {"{\"messages\": [3]}", "a message is an object with a role", 0, 0, 0},
        {"{\"messages\": [{\"content\": \"a\"}]}", "a message is an object with a role", 0, 0, 0},
        {"{\"messages\": [{\"role\": \"u\"}]}", "a message needs a content", 0, 0, 0},
        {"{\"messages\": [{\"role\": \"u\", \"content\": 3}]}", "a message needs a content", 0, 0,
         0},
        {"{\"messages\": [{\"role\": \"u\", \"content\": \"a\", \"tool_calls\": []}]}",
         "\"tool_calls\", which is not known", 0, 0, 0},
        {"{\"messages\": [{\"role\": \"u\", \"content\": []}]}", NULL, 1, 3, CONTEXT - 3},
        {"{\"messages\": [{\"role\": \"u\", \"content\": [{\"text\": \"a\"}, {\"text\": "
         "\"bc\"}]}]}",
         NULL, 1, 6, CONTEXT - 6},
        {"{\"messages\": [{\"role\": \"u\", \"content\": [{\"text\": \"a\"}, {\"url\": \"b\"}]}]}",
         "parts of a message must be texts", 0, 0, 0},
    };
    try_rows(LS_ASKS_CHAT, rows, sizeof rows / sizeof rows[0]);
    ls_serving serving = usual();
    serving.chat = silent;
    try_row(&serving, LS_ASKS_CHAT, &(row){SAY(""), "the messages are an empty prompt", 0, 0, 0});
    serving.chat = NULL;
    serving.chat_missing = "there is no template";
    try_row(&serving, LS_ASKS_CHAT, &(row){SAY(""), "there is no template", 0, 0, 0});
    ls_text many = {0};
    ls_ctx ctx = ls_ctx_default();
    ls_text_printf(&ctx, &many, "{\"messages\": [");
    for (int i = 0; i < 4097; i++) ls_text_printf(&ctx, &many, "%s{}", i == 0 ? "" : ",");
    ls_text_printf(&ctx, &many, "]}");
    try_rows(LS_ASKS_CHAT, &(row){many.bytes, "a list of 1 to 4096 messages", 0, 0, 0}, 1);
    ls_text_clear(&ctx, &many);
}

static void test_tokens(void **state) {
    (void)state;
    static const struct {
        const char *body, *sentence;
        bool back; /* ids, to be a text */
        size_t count;
    } rows[] = {
        {"{\"prompt\": \"abc\"}", NULL, false, 3},
        {"{\"content\": \"ab\", \"add_special\": false}", NULL, false, 2},
        {"{\"prompt\": null, \"content\": \"ab\"}", NULL, false, 2},
        {"{\"prompt\": 3}", "a text is needed", false, 0},
        {"{}", "a text is needed", false, 0},
        {"{\"prompt\": \"a\", \"with_pieces\": 1}", "with_pieces must be true", false, 0},
        {"{\"prompt\": \"a\", \"return_token_strs\": 1}", "return_token_strs must", false, 0},
        {"{\"prompt\": \"a\", \"add_special\": 1}", "add_special must be true", false, 0},
        {"{\"prompt\": \"a\", \"add_special_tokens\": 1}", "add_special_tokens must", false, 0},
        {"{\"prompt\": \"a\", \"model\": \"n\"}", "no model \"n\" here", false, 0},
        {"{\"prompt\": \"a\", \"n\": 1}", "\"n\", which is not known", false, 0},
        {"[]", "must be a JSON object", false, 0},
        {"{\"tokens\": [0, 255]}", NULL, true, 2},
        {"{\"tokens\": []}", NULL, true, 0},
        {"{}", "tokens must be a list of ids", true, 0},
        {"{\"tokens\": [256]}", "token ids are whole numbers from 0 to 255", true, 0},
        {"{\"tokens\": [-1]}", "token ids are whole numbers", true, 0},
        {"{\"tokens\": [1.0]}", "token ids are whole numbers", true, 0},
        {"{\"tokens\": [1], \"model\": 3}", "no model \"?\" here", true, 0},
        {"{\"tokens\": [1], \"x\": 3}", "\"x\", which is not known", true, 0},
        {"[]", "must be a JSON object", true, 0},
    };
    const ls_serving serving = usual();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_ids ids = {0};
        bool pieces;
        const char *body = rows[i].body;
        const ls_status status =
            rows[i].back ? ls_request_detokenize(&ctx, &serving, body, strlen(body), &ids)
                         : ls_request_tokenize(&ctx, &serving, body, strlen(body), &ids, &pieces);
        expect(body, status, &ctx, rows[i].sentence);
        if (status == LS_OK) assert_int_equal(ids.count, rows[i].count);
        ls_ids_clear(&ctx, &ids);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completions),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_chats),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, begin_with_tokenizers, end_with_tokenizers);
}
