/* Scores a text: the loss of every token after those before it, and the perplexity of all.
 *
 *   score_text RUN TEXT */
#include <longshot/longshot.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int score(longshot_engine *engine, longshot_model *model, const char *text) {
    longshot_tokenizer *tokenizer = longshot_model_tokenizer(model);
    if (tokenizer == NULL) {
        fprintf(stderr, "this model was trained on a task and knows no text\n");
        return 1;
    }
    const size_t room = strlen(text) + 16;
    size_t count = 0;
    int32_t *tokens = malloc(room * sizeof *tokens);
    float *loss = malloc(room * sizeof *loss);
    int code = LONGSHOT_ENOMEM;
    if (tokens != NULL && loss != NULL)
        code = longshot_encode(tokenizer, text, strlen(text), 0, tokens, room, &count);
    if (code == LONGSHOT_OK) code = longshot_model_loss(model, tokens, 1, (int64_t)count, loss);
    double sum = 0;
    for (size_t i = 1; code == LONGSHOT_OK && i < count; i++) {
        char bytes[256];
        size_t length = 0;
        code = longshot_decode(tokenizer, tokens + i, 1, bytes, sizeof bytes, &length);
        if (code != LONGSHOT_OK) break;
        printf("%8.4f  %.*s\n", (double)loss[i - 1], (int)length, bytes);
        sum += (double)loss[i - 1];
    }
    if (code == LONGSHOT_OK)
        printf("%zu tokens, perplexity %.4f\n", count - 1, exp(sum / (double)(count - 1)));
    else
        fprintf(stderr, "score_text: %s\n", longshot_error(engine));
    free(tokens);
    free(loss);
    return code != LONGSHOT_OK;
}

int main(int argc, char **argv) {
    longshot_engine *engine;
    longshot_model *model = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: score_text RUN TEXT\n");
        return 2;
    }
    int failed = 1;
    if (longshot_engine_open(NULL, &engine) != LONGSHOT_OK ||
        longshot_model_open(engine, argv[1], NULL, &model) != LONGSHOT_OK)
        fprintf(stderr, "score_text: %s\n", longshot_error(engine));
    else
        failed = score(engine, model, argv[2]);
    longshot_model_close(model);
    longshot_engine_close(engine);
    return failed;
}
