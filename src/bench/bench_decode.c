/* Decoding one token at a time, always the most likely, with a 124M llama-shaped model, beside what
 * the bandwidth of memory allows: every weight and every cached key and value must be read once for
 * each token. */
#include "bench/bench_parts.h"
#include "model/model.h"
#include "tensor/engine/machine.h"

/* A turn decodes so many; on a device, which works ahead of the caller, more. */
enum { TOKENS = 16, TOKENS_DEVICE = 64, CHUNK = 512 };

static ls_status make_model(ls_ctx *ctx, ls_model_config *config, ls_model **out) {
    LS_TRY(
        ls_model_config_read_words(ctx, "model.preset=llama-124m model.vocabulary=50304", config));
    return ls_model_new(ctx, config, LS_BF16, 1, false, out);
}

ls_status ls_bench_decode_at(ls_bench *bench, ls_model *model, int64_t batch, int64_t depth,
                             ls_peer *peer, json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    const int64_t vocabulary = model->config->model.vocabulary, rounds = bench->settings->rounds;
    ls_bench_times times = {0};
    const int64_t stride = depth + 1, each = ctx->device == NULL ? TOKENS : TOKENS_DEVICE;
    const int64_t before = 4, steps = before + (rounds + 1) * each; /* in all */
    double *logits = ls_new(ctx, (size_t)(batch * vocabulary), sizeof *logits);
    int32_t *tokens = ls_new(ctx, (size_t)(batch * stride), sizeof *tokens);
    int32_t *chosen = ls_new(ctx, (size_t)(batch * each), sizeof *chosen);
    ls_stream *stream = NULL;
    ls_status status = LS_ENOMEM;
    if (logits == NULL || tokens == NULL || chosen == NULL) goto fail;
    for (int64_t i = 0; i < batch * stride; i++) tokens[i] = (int32_t)(i * 7919 % vocabulary);
    LS_TRY_GOTO(ls_bench_go_on(bench));
    LS_TRY_GOTO(ls_stream_new(model, batch, depth + steps + 1, CHUNK, &stream));
    double start = ls_bench_clock(bench);
    if (depth > 0) LS_TRY_GOTO(ls_stream_logits(stream, tokens, depth, stride, logits));
    double prefill = depth > 0 ? (double)(batch * depth) / (ls_bench_clock(bench) - start) : 0;
    for (int i = 0; i < before / 2; i++) /* a device keeps the second step */
        LS_TRY_GOTO(ls_stream_logits(stream, tokens, 1, stride, logits));
    LS_TRY_GOTO(ls_bench_go_on(bench));
    start = ls_bench_clock(bench);
    for (int64_t i = 0; i < each; i++)
        LS_TRY_GOTO(ls_stream_logits(stream, tokens, 1, stride, logits));
    const double with_logits = (double)(batch * each) / (ls_bench_clock(bench) - start);
    LS_TRY_GOTO(ls_stream_choose(stream, tokens, stride, 0, before / 2, chosen));
    if (peer->outside != NULL) peer->outside->depth = depth, peer->outside->tokens = each;
    for (int64_t round = 0; round < rounds; round++) {
        LS_TRY_GOTO(ls_bench_go_on(bench));
        start = ls_bench_clock(bench);
        LS_TRY_GOTO(ls_stream_choose(stream, tokens, stride, 0, each, chosen));
        ls_turns_add(&times.ours, ls_bench_clock(bench) - start);
        ls_peer_turn(bench, peer, &times);
    }
    ls_peer_finish(peer, &times);
    const double rate = (double)(batch * each) / ls_turns_median(&times.ours);
    const double spread = ls_turns_spread(&times.ours);
    /* as with all limits the highest that was seen counts */
    double bandwidth = 0;
    LS_TRY_GOTO(ls_machine_bandwidth(ctx, &bandwidth));
    if (bandwidth > bench->bandwidth) bench->bandwidth = bandwidth;
    double weights = 2.0 * (double)ls_parameters_elements(model->store);
    double cached =
        2.0 * 2.0 * (double)(model->config->layers * model->config->model.width) * (double)depth;
    double limit = bench->bandwidth * (double)batch / (weights + (double)batch * cached);
    ls_text_printf(ctx, &bench->text,
                   "  depth %6lld %8.1f tokens/s, spread %.0f%%; bandwidth allows %.1f: %.0f%%",
                   (long long)depth, rate, 100 * spread, limit, 100 * rate / limit);
    ls_text_printf(ctx, &bench->text, "; with logits to the caller %.1f", with_logits);
    if (batch > 1) ls_text_printf(ctx, &bench->text, "; %lld side by side", (long long)batch);
    if (prefill > 0) ls_text_printf(ctx, &bench->text, "; prefill %.0f tokens/s", prefill);
    ls_text_printf(ctx, &bench->text, "\n");
    json_t *row = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "depth", (json_int_t)depth,
                            "tokens_per_second", rate, "spread", spread, "bandwidth_limit", limit,
                            "share", rate / limit, "prefill_tokens_per_second", prefill,
                            "logits_tokens_per_second", with_logits);
    if (batch > 1) json_object_set_new(row, "streams", json_integer((json_int_t)batch));
    ls_bench_put_peer(bench, &times, "", (double)(batch * each), row);
    ls_bench_put_taken(row, &times);
    json_array_append_new(rows, row);
fail:
    ls_stream_free(stream);
    ls_free(ctx, logits);
    ls_free(ctx, tokens);
    ls_free(ctx, chosen);
    return status;
}

ls_status ls_bench_decode(ls_bench *bench) {
    ls_ctx *ctx = bench->ctx;
    ls_model_config config = {0};
    ls_model *model = NULL;
    json_t *rows = json_array();
    json_object_set_new(bench->json, "decode", rows);
    ls_text_printf(ctx, &bench->text, "decoding, llama shape of 124 million parameters, bf16\n");
    ls_outside llama = {0};
    ls_peer beside = {0}, alone = {0}; /* llama-bench decodes one sequence at a time */
    ls_status status = make_model(ctx, &config, &model);
    if (status == LS_OK) status = ls_bench_llama(bench, &config, &llama, &beside);
    const ls_ints *streams = &bench->settings->streams, *depths = &bench->settings->depths;
    for (int64_t i = 0; i < streams->count * depths->count && status == LS_OK; i++) {
        const int64_t batch = streams->at[i / depths->count];
        status = ls_bench_decode_at(bench, model, batch, depths->at[i % depths->count],
                                    batch == 1 ? &beside : &alone, rows);
    }
    ls_outside_end(bench, &llama);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        json_object_set_new(row, "model", json_string("124M llama shape"));
        json_object_set_new(row, "dtype", json_string("bf16"));
    }
    ls_model_free(model);
    ls_model_config_clear(ctx, &config);
    return status;
}
