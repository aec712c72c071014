/* A decoding loop of one's own: the prompt is read once, several continuations fork from there,
 * each with draws of its own, and the most likely one is printed.
 *
 *   custom_loop RUN PROMPT TOKENS CONTINUATIONS */
#include <longshot/longshot.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_TOKENS = 4096 };

/* What the loop works with. */
typedef struct loop {
    longshot_engine *engine;
    longshot_model *model;
    longshot_tokenizer *tokenizer;
    int64_t vocabulary, tokens;
    float *logits;                /* [vocabulary] */
    float *after_prompt;          /* likewise */
    int32_t *continuation, *best; /* [tokens] */
} loop;

static double log_probability(const float *logits, int64_t count, int32_t token) {
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, (double)logits[i]);
    for (int64_t i = 0; i < count; i++) sum += exp((double)logits[i] - largest);
    return (double)logits[token] - largest - log(sum);
}

/* One continuation from a stream at the prompt's end; its log-probability per token. */
static int continue_from(loop *l, longshot_stream *prompt, uint64_t seed, double *score) {
    const longshot_sampling how = {.size = sizeof how, .temperature = 1, .seed = seed};
    longshot_stream *stream;
    double sum = 0;
    int code = longshot_stream_fork(prompt, &stream);
    memcpy(l->logits, l->after_prompt, (size_t)l->vocabulary * sizeof *l->logits);
    for (int64_t i = 0; code == LONGSHOT_OK && i < l->tokens; i++) {
        int32_t *token = &l->continuation[i];
        code = longshot_sample(l->engine, l->logits, l->vocabulary, &how, (uint64_t)i, token);
        if (code != LONGSHOT_OK) break;
        sum += log_probability(l->logits, l->vocabulary, *token);
        if (i + 1 < l->tokens) code = longshot_stream_feed(stream, token, 1, l->logits);
    }
    longshot_stream_close(stream);
    *score = sum / (double)l->tokens;
    return code;
}

static int run(loop *l, const char *text, int64_t continuations) {
    int32_t prompt[PROMPT_TOKENS];
    size_t count;
    double best = -INFINITY, score;
    longshot_stream *stream;
    int code = longshot_encode(l->tokenizer, text, strlen(text), 0, prompt, PROMPT_TOKENS, &count);
    if (code != LONGSHOT_OK) return code;
    const longshot_stream_options options = {.size = sizeof options,
                                             .capacity = (int64_t)count + l->tokens};
    code = longshot_stream_open(l->model, &options, &stream);
    if (code != LONGSHOT_OK) return code;
    code = longshot_stream_feed(stream, prompt, (int64_t)count, l->after_prompt); /* prefill */
    for (int64_t i = 0; code == LONGSHOT_OK && i < continuations; i++) {
        code = continue_from(l, stream, (uint64_t)i, &score);
        if (code != LONGSHOT_OK || score <= best) continue;
        best = score;
        memcpy(l->best, l->continuation, (size_t)l->tokens * sizeof *l->best);
    }
    longshot_stream_close(stream);
    printf("%s", text);
    for (int64_t i = 0; code == LONGSHOT_OK && i < l->tokens; i++) {
        char bytes[256];
        size_t length;
        code = longshot_decode(l->tokenizer, l->best + i, 1, bytes, sizeof bytes, &length);
        if (code == LONGSHOT_OK) fwrite(bytes, 1, length, stdout);
    }
    printf("\n%.4f nats per token\n", -best);
    return code;
}

int main(int argc, char **argv) {
    loop l = {0};
    if (argc != 5 || (l.tokens = strtoll(argv[3], NULL, 10)) < 1) {
        fprintf(stderr, "usage: custom_loop RUN PROMPT TOKENS CONTINUATIONS\n");
        return 2;
    }
    int code = longshot_engine_open(NULL, &l.engine);
    if (code == LONGSHOT_OK) code = longshot_model_open(l.engine, argv[1], NULL, &l.model);
    if (code == LONGSHOT_OK && (l.tokenizer = longshot_model_tokenizer(l.model)) == NULL) {
        fprintf(stderr, "custom_loop: this model knows no text\n");
        code = LONGSHOT_EUSE;
    } else if (code == LONGSHOT_OK) {
        l.vocabulary = longshot_model_vocabulary(l.model);
        l.logits = calloc(2 * (size_t)l.vocabulary, sizeof *l.logits);
        l.continuation = calloc(2 * (size_t)l.tokens, sizeof *l.continuation);
        l.after_prompt = l.logits + l.vocabulary;
        l.best = l.continuation + l.tokens;
        code = l.logits == NULL || l.continuation == NULL
                   ? LONGSHOT_ENOMEM
                   : run(&l, argv[2], strtoll(argv[4], NULL, 10));
    }
    if (code != LONGSHOT_OK) fprintf(stderr, "custom_loop: %s\n", longshot_error(l.engine));
    free(l.logits);
    free(l.continuation);
    longshot_model_close(l.model);
    longshot_engine_close(l.engine);
    return code != LONGSHOT_OK;
}
