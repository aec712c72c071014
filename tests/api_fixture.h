/* What the tests of the installed interface share: a folder, a corpus, and a small run trained
 * through the interface itself. Only the installed header is seen. */
#ifndef LS_TESTS_API_FIXTURE_H
#define LS_TESTS_API_FIXTURE_H

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <longshot/longshot.h>

static char fixture_folder[64];

static inline void fixture_path(char *out, size_t bytes, const char *name) {
    snprintf(out, bytes, "%s/%s", fixture_folder, name);
}

static inline void fixture_expect(longshot_engine *engine, int code, const char *what) {
    if (code != LONGSHOT_OK) fail_msg("%s: %d, %s", what, code, longshot_error(engine));
}
#define OK(engine, expression)                                                                     \
    do {                                                                                           \
        const int ok_code_ = (expression); /* before the engine is looked at: it may open it */    \
        fixture_expect((engine), ok_code_, #expression);                                           \
    } while (0)

/* A wrong call: its code, and a word that the sentence has. */
static inline void fixture_refused(longshot_engine *engine, int code, int wanted,
                                   const char *word) {
    if (code != wanted || strstr(longshot_error(engine), word) == NULL)
        fail_msg("%d, not %d with `%s`: %s", code, wanted, word, longshot_error(engine));
}

static inline longshot_engine *fixture_engine(void) {
    static char cache[96];
    fixture_path(cache, sizeof cache, "cache");
    longshot_engine *engine;
    const longshot_engine_options options = {.size = sizeof options, .threads = 1, .cache = cache};
    OK(engine, longshot_engine_open(&options, &engine));
    return engine;
}

/* Trains a small model of these words into RUN; a callback may watch. */
static inline int fixture_train(longshot_engine *engine, const char *run, const char *const *more,
                                longshot_step_fn on_step, void *user,
                                longshot_train_result *result) {
    char out[128], corpus[128];
    const char *words[32] = {"model.layers=1", "model.width=16",   "model.length=16",
                             "train.batch=2",  "train.steps=6",    "train.lr=1e-3",
                             "train.warmup=1", "train.log_every=2"};
    int count = 8;
    snprintf(out, sizeof out, "out=%s/%s", fixture_folder, run);
    snprintf(corpus, sizeof corpus, "data.corpus=%s/text.txt", fixture_folder);
    words[count++] = out;
    words[count++] = corpus;
    for (; more != NULL && *more != NULL; more++) words[count++] = *more;
    const longshot_train_options options = {
        .size = sizeof options, .settings = words, .on_step = on_step, .user = user};
    return longshot_train(engine, &options, result);
}

static inline int fixture_open(void **unused) {
    (void)unused;
    char path[128];
    snprintf(fixture_folder, sizeof fixture_folder, "/tmp/longshot-api-XXXXXX");
    if (mkdtemp(fixture_folder) == NULL) return 1;
    fixture_path(path, sizeof path, "text.txt");
    FILE *file = fopen(path, "w");
    if (file == NULL) return 1;
    for (int i = 0; i < 300; i++)
        fprintf(file, "document 1, line %d: what follows is much like what came before\n", i);
    return fclose(file);
}

static inline int fixture_close(void **unused) {
    (void)unused;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", fixture_folder);
    return system(command);
}

#endif
