/* llm.c (github.com/karpathy/llm.c) beside our training: its trainers read a model and tokens from
 * files, which are made for it, of the shape that ours has; and print what each step took. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/random.h"
#include "bench/bench_parts.h"

/* train_gpt2.c has 4 x 64 tokens and reads files by these names; train_gpt2.cu is told. */
static const char model_file[] = "gpt2_124M.bin", tokenizer_file[] = "gpt2_tokenizer.bin";
static const char tokens_folder[] = "dev/data/tinyshakespeare";
static const char *const token_files[] = {"dev/data/tinyshakespeare/tiny_shakespeare_train.bin",
                                          "dev/data/tinyshakespeare/tiny_shakespeare_val.bin"};
enum { HEADER = 256, STEPS_LEAST = 5, STEPS_MAX = 1024, BATCHES = 64 };
enum { MODEL_MAGIC = 20240326, TOKENS_MAGIC = 20240520, TOKENIZER_MAGIC = 20240328 };

/* ---- files ---- */

static ls_status create(ls_bench *bench, const ls_outside *outside, const char *name,
                        const int32_t *header, char path[PATH_MAX], FILE **out) {
    LS_TRY(ls_path_join(bench->ctx, path, PATH_MAX, outside->folder, name));
    LS_TRY(ls_file_create(bench->ctx, path, false, out));
    const ls_status status = ls_file_put(bench->ctx, *out, path, header, HEADER * sizeof *header);
    if (status != LS_OK) fclose(*out);
    return status;
}

/* Weights as GPT-2 begins: gains 1, biases 0, the rest normal. */
static ls_status put_weights(ls_bench *bench, const ls_train_shape *shape, FILE *file,
                             const char *path) {
    const int64_t C = atoi(shape->width), L = atoi(shape->layers);
    const int64_t counts[] = {shape->vocabulary * C,
                              shape->length * C,
                              L * C,
                              L * C,
                              L * 3 * C * C,
                              L * 3 * C,
                              L * C * C,
                              L * C,
                              L * C,
                              L * C,
                              L * 4 * C * C,
                              L * 4 * C,
                              L * 4 * C * C,
                              L * C,
                              C,
                              C};
    static const char kinds[] = "nn10n0n010n0n010"; /* normal, 1, 0 */
    enum { CHUNK = 4096 };
    const ls_random key = {.seed = 1, .stream = ls_stream_of("llm.c")};
    float values[CHUNK];
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int64_t at = 0; at < counts[i]; at += CHUNK) {
            const int64_t count = ls_min(CHUNK, counts[i] - at);
            for (int64_t j = 0; j < count; j++)
                values[j] = kinds[i] == 'n'
                                ? (float)(0.02 * ls_random_normal(key, (uint64_t)(at + j)))
                                : (float)(kinds[i] - '0');
            LS_TRY(ls_bench_go_on(bench));
            LS_TRY(ls_file_put(bench->ctx, file, path, values, (size_t)count * sizeof *values));
        }
    return LS_OK;
}

static ls_status put_model(ls_bench *bench, const ls_outside *outside) {
    const ls_train_shape *shape = outside->shape;
    const int32_t V = (int32_t)shape->vocabulary;
    const int32_t header[HEADER] = {
        MODEL_MAGIC,        3, (int32_t)shape->length, V, atoi(shape->layers), atoi(shape->heads),
        atoi(shape->width), V};
    char path[PATH_MAX];
    FILE *file;
    LS_TRY(create(bench, outside, model_file, header, path, &file));
    ls_status status = put_weights(bench, shape, file, path);
    if (fclose(file) != 0 && status == LS_OK)
        status = LS_FAIL(bench->ctx, LS_EIO, "%s could not be written", path);
    return status;
}

static ls_status put_tokens(ls_bench *bench, const ls_outside *outside, const char *name) {
    const ls_train_shape *shape = outside->shape;
    const int64_t count = BATCHES * shape->batch * shape->length + 1;
    const int32_t header[HEADER] = {TOKENS_MAGIC, 1, (int32_t)count};
    const ls_random key = {.seed = 2, .stream = ls_stream_of("llm.c")};
    char path[PATH_MAX];
    FILE *file;
    uint16_t *tokens = ls_new(bench->ctx, (size_t)count, sizeof *tokens);
    if (tokens == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < count; i++)
        tokens[i] =
            (uint16_t)ls_random_below(key, (uint64_t)i, (uint64_t)ls_min(shape->vocabulary, 50257));
    ls_status status = create(bench, outside, name, header, path, &file);
    if (status == LS_OK) {
        status = ls_file_put(bench->ctx, file, path, tokens, (size_t)count * sizeof *tokens);
        if (fclose(file) != 0 && status == LS_OK)
            status = LS_FAIL(bench->ctx, LS_EIO, "%s could not be written", path);
    }
    ls_free(bench->ctx, tokens);
    return status;
}

/* A letter for each token: it prints some that it draws. */
static ls_status put_tokenizer(ls_bench *bench, const ls_outside *outside) {
    const int32_t header[HEADER] = {TOKENIZER_MAGIC, 2, (int32_t)outside->shape->vocabulary, 0};
    char path[PATH_MAX];
    FILE *file;
    LS_TRY(create(bench, outside, tokenizer_file, header, path, &file));
    ls_status status = LS_OK;
    for (int64_t i = 0; i < outside->shape->vocabulary && status == LS_OK; i++)
        status = ls_file_put(bench->ctx, file, path, "\1x", 2);
    if (fclose(file) != 0 && status == LS_OK)
        status = LS_FAIL(bench->ctx, LS_EIO, "%s could not be written", path);
    return status;
}

static ls_status put_files(ls_bench *bench, const ls_outside *outside) {
    char path[PATH_MAX];
    LS_TRY(ls_path_join(bench->ctx, path, sizeof path, outside->folder, tokens_folder));
    LS_TRY(ls_folder_make(bench->ctx, path));
    for (int i = 0; i < 2; i++) LS_TRY(put_tokens(bench, outside, token_files[i]));
    if (outside->shape->device) return LS_OK; /* that trainer draws its model itself */
    LS_TRY(put_model(bench, outside));
    return put_tokenizer(bench, outside);
}

/* ---- what it prints ---- */

/* "step 3: train loss 5.01 (took 41.2 ms)", "step 3/9 | loss 5.01 (+nanz)| ... | 41.20 ms | ...".
 * The seconds of the line's step; 0: it is no such line; NaN: one whose time cannot be. */
static double step_of(const char *line, size_t length) {
    static const char end[] = " ms";
    if (length < 6 || strncmp(line, "step ", 5) != 0) return 0;
    size_t at = length - 2;
    while (at > 5 && strncmp(line + at, end, strlen(end)) != 0) at--;
    size_t first = at;
    while (first > 5 && strchr("0123456789.", line[first - 1]) != NULL) first--;
    char *stop;
    const double milliseconds = strtod(line + first, &stop);
    if (stop != line + at || line[first - 1] != ' ' || !(milliseconds > 0) || !(milliseconds < 1e9))
        return NAN;
    return 1e-3 * milliseconds;
}

/* Steps of whole lines but the first, which warms it up; -1: one's time cannot be. */
static int read_steps(const char *printed, double seconds[STEPS_MAX]) {
    int count = -1;
    for (const char *end; (end = strchr(printed, '\n')) != NULL; printed = end + 1) {
        const double step = step_of(printed, (size_t)(end - printed));
        if (isnan(step)) return -1;
        if (step > 0 && ++count > 0 && count <= STEPS_MAX) seconds[count - 1] = step;
    }
    return (int)ls_max(0, ls_min(count, STEPS_MAX));
}

static bool enough(const ls_bench *bench, const char *printed) {
    double seconds[STEPS_MAX], sum = 0;
    const int count = read_steps(printed, seconds);
    for (int i = 0; i < count; i++) sum += seconds[i];
    return count < 0 || count == STEPS_MAX ||
           (count >= STEPS_LEAST && sum >= bench->settings->seconds);
}

static double measure(ls_bench *bench, ls_outside *outside) {
    const ls_train_shape *shape = outside->shape;
    char batch[16], length[16], total[24], descriptor[16];
    snprintf(batch, sizeof batch, "%lld", (long long)shape->batch);
    snprintf(length, sizeof length, "%lld", (long long)shape->length);
    snprintf(total, sizeof total, "%lld", (long long)(shape->batch * shape->length));
    snprintf(descriptor, sizeof descriptor, "d%s", shape->layers);
    /* one batch of validation, since it divides by -v; no text, no checkpoint; nothing computed
     * twice, which it does by itself to save memory */
    const char *const told[] = {"-i", token_files[0],
                                "-j", token_files[1],
                                "-e", descriptor,
                                "-b", batch,
                                "-t", length,
                                "-d", total,
                                "-x", "1000000",
                                "-v", "1000000",
                                "-m", "1",
                                "-s", "0",
                                "-l", "0.0001",
                                "-r", "0",
                                NULL};
    static const char *const nothing[] = {NULL};
    double seconds[STEPS_MAX], sum = 0;
    ls_text printed = {0};
    int count = 0;
    if (ls_outside_run(bench, outside, shape->device ? told : nothing, enough, &printed)) {
        count = printed.bytes == NULL ? 0 : read_steps(printed.bytes, seconds);
        for (int i = 0; i < count; i++) sum += seconds[i];
        if (count < 0 || sum > outside->seconds)
            snprintf(outside->why, sizeof outside->why, "printed a time that cannot be");
        else if (count < STEPS_LEAST)
            snprintf(outside->why, sizeof outside->why,
                     "printed times of %d steps behind the first, where %d are the least", count,
                     STEPS_LEAST);
    }
    ls_text_clear(bench->ctx, &printed);
    return outside->why[0] == '\0' && count >= STEPS_LEAST ? ls_median(seconds, (size_t)count) : 0;
}

ls_status ls_bench_llm_c(ls_bench *bench, const ls_train_shape *shape, ls_outside *outside,
                         ls_peer *out) {
    LS_TRY(ls_outside_begin(bench, "llm.c", bench->settings->llm_c, outside));
    outside->shape = shape;
    outside->measure = measure;
    LS_TRY(put_files(bench, outside));
    *out = (ls_peer){.alive = true, .outside = outside};
    return LS_OK;
}
