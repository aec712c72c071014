/* llama.cpp (github.com/ggml-org/llama.cpp) beside our decoding: its llama-bench gets the same model
 * as a GGUF file, and prints as JSON how long so many tokens took behind so many. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "bench/bench_parts.h"
#include "train/export.h"

static const char model_file[] = "model.gguf";

/* In f32, of which the file has the bf16: what is computed in has no copy that can be written. */
static ls_status put_model(ls_bench *bench, const ls_model_config *config,
                           const ls_outside *outside) {
    ls_export_settings settings = {.to = LS_EXPORT_GGUF, .dtype = LS_EXPORT_BF16};
    ls_trained trained = {.ctx = bench->ctx, .config = *config};
    const char *family;
    LS_TRY(
        ls_path_join(bench->ctx, settings.out, sizeof settings.out, outside->folder, model_file));
    LS_TRY(ls_model_new(bench->ctx, config, LS_F32, 1, false, &trained.model));
    const ls_status status = ls_export(&trained, &settings, &family);
    ls_model_free(trained.model);
    return status;
}

/* The seconds of the one test that was asked for; 0: `why` is set. */
static double read_result(ls_bench *bench, ls_outside *outside, const ls_text *printed) {
    json_t *all = NULL;
    ls_turns samples = {0};
    bool right =
        ls_json_parse(bench->ctx, printed->bytes, printed->length, "llama-bench", &all) == LS_OK &&
        json_array_size(all) == 1;
    const json_t *test = json_array_get(all, 0), *times = json_object_get(test, "samples_ns");
    const char *commit = json_string_value(json_object_get(test, "build_commit"));
    bench->ctx->error = (ls_error){0};
    right = right && json_integer_value(json_object_get(test, "n_gen")) == outside->tokens &&
            json_integer_value(json_object_get(test, "n_depth")) == outside->depth &&
            json_integer_value(json_object_get(test, "n_prompt")) == 0;
    if (right && commit != NULL) {
        snprintf(outside->version, sizeof outside->version, "%s", commit);
        ls_plain(outside->version, false);
    }
    for (size_t i = 0; i < json_array_size(times); i++)
        ls_turns_add(&samples, 1e-9 * json_number_value(json_array_get(times, i)));
    const double seconds = right && samples.count > 0 ? ls_turns_median(&samples) : 0;
    json_decref(all);
    if (!right)
        snprintf(outside->why, sizeof outside->why,
                 "printed no result of %lld tokens at depth %lld", (long long)outside->tokens,
                 (long long)outside->depth);
    else if (!(seconds > 0) || seconds > outside->seconds)
        snprintf(outside->why, sizeof outside->why, "printed a time that cannot be");
    return outside->why[0] == '\0' ? seconds : 0;
}

static double measure(ls_bench *bench, ls_outside *outside) {
    char threads[16], tokens[24], depth[24];
    snprintf(threads, sizeof threads, "%d", bench->ctx->threads);
    snprintf(tokens, sizeof tokens, "%lld", (long long)outside->tokens);
    snprintf(depth, sizeof depth, "%lld", (long long)outside->depth);
    const char *const words[] = {"-m", model_file, "-p",   "0",
                                 "-n", tokens,     "-d",   depth,
                                 "-r", "1",        "-t",   threads,
                                 "-o", "json",     "-ngl", bench->ctx->device == NULL ? "0" : "99",
                                 NULL};
    ls_text printed = {0};
    double seconds = 0;
    if (ls_outside_run(bench, outside, words, NULL, &printed))
        seconds = read_result(bench, outside, &printed);
    ls_text_clear(bench->ctx, &printed);
    return seconds;
}

ls_status ls_bench_llama(ls_bench *bench, const ls_model_config *config, ls_outside *outside,
                         ls_peer *out) {
    if (bench->settings->llama_cpp[0] == '\0') return LS_OK;
    LS_TRY(ls_outside_begin(bench, "llama.cpp", bench->settings->llama_cpp, outside));
    outside->measure = measure;
    LS_TRY(put_model(bench, config, outside));
    *out = (ls_peer){.alive = true, .outside = outside};
    return LS_OK;
}
