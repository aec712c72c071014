/* Goes on from a prompt, printing tokens as they come.
 *
 *   generate_text RUN PROMPT TOKENS SEED */
#include <longshot/longshot.h>
#include <stdio.h>
#include <stdlib.h>

static int print(void *user, int32_t token, const char *bytes, size_t length) {
    (void)user, (void)token;
    /* not 0 stops: nobody reads any more */
    return fwrite(bytes, 1, length, stdout) != length || fflush(stdout) != 0;
}

int main(int argc, char **argv) {
    longshot_engine *engine;
    longshot_model *model = NULL;
    if (argc != 5) {
        fprintf(stderr, "usage: generate_text RUN PROMPT TOKENS SEED\n");
        return 2;
    }
    const longshot_sampling how = {
        .size = sizeof how, .temperature = 0.8, .top_p = 0.95, .seed = strtoull(argv[4], NULL, 10)};
    int code = longshot_engine_open(NULL, &engine);
    if (code == LONGSHOT_OK) code = longshot_model_open(engine, argv[1], NULL, &model);
    if (code == LONGSHOT_OK)
        code = longshot_generate(model, argv[2], strtoll(argv[3], NULL, 10), &how, print, NULL);
    if (code == LONGSHOT_OK)
        putchar('\n');
    else
        fprintf(stderr, "generate_text: %s\n", longshot_error(engine));
    longshot_model_close(model);
    longshot_engine_close(engine);
    return code != LONGSHOT_OK;
}
