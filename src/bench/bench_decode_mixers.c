/* Decoding one token at a time, always the most likely, with every causal mixer in the small byte
 * model that what=mixers trains: what a token costs, and what is kept of the past, by how much of
 * it there is. Weights and states of this model lie in caches near the processor, so no limit is
 * said. */
#include "bench/bench_parts.h"

/* A turn decodes so many: a token takes some 0.1 ms. */
enum { TOKENS = 64, WORDS_BYTES = 512 };

static ls_status make_model(ls_bench *bench, const ls_bench_mixer *what, ls_dtype type,
                            int64_t length, ls_model_config *config, ls_model **out) {
    char words[WORDS_BYTES], all[WORDS_BYTES + 64];
    ls_bench_mixer_words(what, length, words, sizeof words);
    snprintf(all, sizeof all, "%s model.vocabulary=%d", words, LS_BENCH_MIXER_VOCABULARY);
    LS_TRY(ls_model_config_read_words(bench->ctx, all, config));
    return ls_model_new(bench->ctx, config, type, 1, false, out);
}

/* What a sequence keeps after so many tokens and the one that follows, read one at a time: without
 * the room that reading in chunks takes. */
static ls_status state_bytes(ls_model *model, int64_t depth, size_t *out) {
    ls_stream *stream;
    LS_TRY(ls_stream_new(model, 1, depth + 1, 1, &stream));
    *out = ls_stream_state_bytes(stream);
    ls_stream_free(stream);
    return LS_OK;
}

static ls_status measure(ls_bench *bench, const ls_bench_mixer *what, ls_model *model,
                         int64_t batch, int64_t depth, json_t *rows) {
    ls_peer none = {0};
    ls_decoded decoded;
    size_t bytes;
    LS_TRY(state_bytes(model, depth, &bytes));
    LS_TRY(ls_bench_decode_turns(bench, model, batch, depth, TOKENS, &none, &decoded));
    ls_text_printf(bench->ctx, &bench->text,
                   "  %-5s %-20s depth %6lld %8.1f tokens/s, spread %.0f%%; state %.1f kB",
                   ls_dtype_name(model->type), what->name, (long long)depth, decoded.rate,
                   100 * ls_turns_spread(&decoded.times.ours), 1e-3 * (double)bytes);
    ls_bench_decode_row(bench, rows, ls_bench_mixer_row(what, model->type, bytes), batch, depth,
                        &decoded);
    return LS_OK;
}

/* One that this device, or this model, cannot have is left out with its reason. */
static ls_status measure_at(ls_bench *bench, const ls_bench_mixer *what, ls_dtype type,
                            int64_t batch, int64_t depth, json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    ls_model_config config = {0};
    ls_model *model = NULL;
    ls_status status =
        make_model(bench, what, type, ls_bench_decode_room(bench, depth, TOKENS), &config, &model);
    if (status == LS_OK) status = measure(bench, what, model, batch, depth, rows);
    if (status == LS_EUSE) {
        ls_text_printf(ctx, &bench->text, "  %-5s %-20s depth %6lld left out: %s\n",
                       ls_dtype_name(type), what->name, (long long)depth, ctx->error.message);
        ctx->error = (ls_error){0};
        status = LS_OK;
    }
    ls_model_free(model);
    ls_model_config_clear(ctx, &config);
    return status;
}

static ls_status measure_all(ls_bench *bench, const ls_bench_mixer *what, void *rows) {
    const ls_ints *streams = &bench->settings->streams, *depths = &bench->settings->depths;
    for (int t = 0; t < bench->type_count; t++) {
        if (!ls_bench_mixer_type(bench, bench->types[t])) continue;
        for (int64_t i = 0; i < streams->count * depths->count; i++)
            LS_TRY(measure_at(bench, what, bench->types[t], streams->at[i / depths->count],
                              depths->at[i % depths->count], rows));
    }
    return LS_OK;
}

ls_status ls_bench_decode_mixers(ls_bench *bench) {
    json_t *rows = json_array();
    json_object_set_new(bench->json, "decode_mixers", rows);
    ls_text_printf(bench->ctx, &bench->text, "decoding with " LS_BENCH_MIXER_MODEL "\n");
    return ls_bench_each_mixer(bench, measure_all, rows);
}
