/* Trains from a recipe, watching every step, and evaluates what came out. Stopped with Ctrl-C it
 * leaves a checkpoint; the same call goes on.
 *
 *   train_recipe RECIPE.yaml OUT [key=value ...] */
#include <longshot/longshot.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static longshot_engine *engine;

static void interrupted(int number) {
    (void)number;
    longshot_stop(engine);
}

static int watch(void *user, const longshot_step *step) {
    double *best = user;
    if (step->loss < *best) *best = step->loss;
    if (step->step % 10 == 0 || step->step == step->steps)
        printf("step %lld of %lld: loss %.4f, gradient norm %.3f%s\n", (long long)step->step,
               (long long)step->steps, step->loss, step->gradient_norm,
               step->accepted ? "" : ", rejected");
    return 0; /* not 0 would end the run after a checkpoint */
}

static int show_row(void *user, const longshot_eval_row *row) {
    (void)user;
    printf("%s at %lld tokens: loss %.4f\n", row->protocol, (long long)row->length, row->loss);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: train_recipe RECIPE.yaml OUT [key=value ...]\n");
        return 2;
    }
    char out[4096];
    double best = 1e30;
    const char **words = calloc((size_t)argc, sizeof *words); /* NULL-ended */
    if (words == NULL || snprintf(out, sizeof out, "out=%s", argv[2]) >= (int)sizeof out) return 2;
    words[0] = out;
    for (int i = 3; i < argc; i++) words[i - 2] = argv[i];
    const longshot_train_options options = {.size = sizeof options,
                                            .recipe = argv[1],
                                            .settings = words,
                                            .on_step = watch,
                                            .user = &best};
    longshot_train_result result = {.size = sizeof result};
    int code = longshot_engine_open(NULL, &engine);
    if (code == LONGSHOT_OK) {
        signal(SIGINT, interrupted);
        code = longshot_train(engine, &options, &result);
        signal(SIGINT, SIG_DFL);
    }
    if (code == LONGSHOT_OK) {
        printf("%s: %lld parameters, %lld steps, best loss %.4f\n", result.folder,
               (long long)result.parameters, (long long)result.step, best);
        const char *const measure[] = {"eval.tokens=2048", "eval.resolution=false", NULL};
        const longshot_eval_options eval = {
            .size = sizeof eval, .settings = measure, .on_row = show_row};
        code = longshot_eval(engine, result.folder, &eval, NULL);
    }
    if (code != LONGSHOT_OK) fprintf(stderr, "train_recipe: %s\n", longshot_error(engine));
    longshot_engine_close(engine);
    free(words);
    return code != LONGSHOT_OK;
}
