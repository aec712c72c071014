/* Decoding one token at a time, always the most likely, with a 124M llama-shaped model, beside what
 * the bandwidth of memory allows: every weight and every cached key and value must be read once for
 * each token. */
#include "bench/bench_parts.h"
#include "model/model.h"
#include "tensor/engine/machine.h"

/* A turn decodes so many; on a device, which works ahead of the caller, more. */
enum { TOKENS = 16, TOKENS_DEVICE = 64, CHUNK = 512 };
enum { BEFORE = 4 }; /* steps before those that are timed */

static ls_status make_model(ls_ctx *ctx, ls_model_config *config, ls_model **out) {
    LS_TRY(
        ls_model_config_read_words(ctx, "model.preset=llama-124m model.vocabulary=50304", config));
    return ls_model_new(ctx, config, LS_BF16, 1, false, out);
}

int64_t ls_bench_decode_room(const ls_bench *bench, int64_t depth, int64_t each) {
    return depth + BEFORE + (bench->settings->rounds + 1) * each + 1;
}

ls_status ls_bench_decode_turns(ls_bench *bench, ls_model *model, int64_t batch, int64_t depth,
                                int64_t each, ls_peer *peer, ls_decoded *out) {
    ls_ctx *ctx = bench->ctx;
    const int64_t vocabulary = model->config->model.vocabulary, stride = depth + 1;
    double *logits = ls_new(ctx, (size_t)(batch * vocabulary), sizeof *logits);
    int32_t *tokens = ls_new(ctx, (size_t)(batch * stride), sizeof *tokens);
    int32_t *chosen = ls_new(ctx, (size_t)(batch * each), sizeof *chosen);
    ls_stream *stream = NULL;
    ls_status status = LS_ENOMEM;
    *out = (ls_decoded){.tokens = (double)(batch * each)};
    if (logits == NULL || tokens == NULL || chosen == NULL) goto fail;
    for (int64_t i = 0; i < batch * stride; i++) tokens[i] = (int32_t)(i * 7919 % vocabulary);
    LS_TRY_GOTO(ls_bench_go_on(bench));
    LS_TRY_GOTO(
        ls_stream_new(model, batch, ls_bench_decode_room(bench, depth, each), CHUNK, &stream));
    double start = ls_bench_clock(bench);
    if (depth > 0) LS_TRY_GOTO(ls_stream_logits(stream, tokens, depth, stride, logits));
    out->prefill = depth > 0 ? (double)(batch * depth) / (ls_bench_clock(bench) - start) : 0;
    for (int i = 0; i < BEFORE / 2; i++) /* a device keeps the second step */
        LS_TRY_GOTO(ls_stream_logits(stream, tokens, 1, stride, logits));
    LS_TRY_GOTO(ls_bench_go_on(bench));
    start = ls_bench_clock(bench);
    for (int64_t i = 0; i < each; i++)
        LS_TRY_GOTO(ls_stream_logits(stream, tokens, 1, stride, logits));
    out->with_logits = out->tokens / (ls_bench_clock(bench) - start);
    LS_TRY_GOTO(ls_stream_choose(stream, tokens, stride, 0, BEFORE / 2, chosen));
    if (peer->outside != NULL) peer->outside->depth = depth, peer->outside->tokens = each;
    for (int64_t round = 0; round < bench->settings->rounds; round++) {
        LS_TRY_GOTO(ls_bench_go_on(bench));
        start = ls_bench_clock(bench);
        LS_TRY_GOTO(ls_stream_choose(stream, tokens, stride, 0, each, chosen));
        ls_turns_add(&out->times.ours, ls_bench_clock(bench) - start);
        ls_peer_turn(bench, peer, &out->times);
    }
    ls_peer_finish(peer, &out->times);
    out->rate = out->tokens / ls_turns_median(&out->times.ours);
fail:
    ls_stream_free(stream);
    ls_free(ctx, logits);
    ls_free(ctx, tokens);
    ls_free(ctx, chosen);
    return status;
}

void ls_bench_decode_row(ls_bench *bench, json_t *rows, json_t *row, int64_t batch, int64_t depth,
                         const ls_decoded *decoded) {
    ls_ctx *ctx = bench->ctx;
    ls_text_printf(ctx, &bench->text, "; with logits to the caller %.1f", decoded->with_logits);
    if (batch > 1) ls_text_printf(ctx, &bench->text, "; %lld side by side", (long long)batch);
    if (decoded->prefill > 0)
        ls_text_printf(ctx, &bench->text, "; prefill %.0f tokens/s", decoded->prefill);
    ls_text_printf(ctx, &bench->text, "\n");
    json_object_set_new(row, "depth", json_integer((json_int_t)depth));
    json_object_set_new(row, "tokens_per_second", json_real(decoded->rate));
    json_object_set_new(row, "spread", json_real(ls_turns_spread(&decoded->times.ours)));
    json_object_set_new(row, "prefill_tokens_per_second", json_real(decoded->prefill));
    json_object_set_new(row, "logits_tokens_per_second", json_real(decoded->with_logits));
    if (batch > 1) json_object_set_new(row, "streams", json_integer((json_int_t)batch));
    ls_bench_put_peer(bench, &decoded->times, "", decoded->tokens, row);
    ls_bench_put_taken(row, &decoded->times);
    json_array_append_new(rows, row);
}

ls_status ls_bench_decode_at(ls_bench *bench, ls_model *model, int64_t batch, int64_t depth,
                             ls_peer *peer, json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    const int64_t each = ctx->device == NULL ? TOKENS : TOKENS_DEVICE;
    ls_decoded decoded;
    LS_TRY(ls_bench_decode_turns(bench, model, batch, depth, each, peer, &decoded));
    /* as with all limits the highest that was seen counts */
    double bandwidth = 0;
    LS_TRY(ls_machine_bandwidth(ctx, &bandwidth));
    if (bandwidth > bench->bandwidth) bench->bandwidth = bandwidth;
    double weights = 2.0 * (double)ls_parameters_elements(model->store);
    double cached =
        2.0 * 2.0 * (double)(model->config->layers * model->config->model.width) * (double)depth;
    double limit = bench->bandwidth * (double)batch / (weights + (double)batch * cached);
    ls_text_printf(ctx, &bench->text,
                   "  depth %6lld %8.1f tokens/s, spread %.0f%%; bandwidth allows %.1f: %.0f%%",
                   (long long)depth, decoded.rate, 100 * ls_turns_spread(&decoded.times.ours),
                   limit, 100 * decoded.rate / limit);
    json_t *row = json_pack("{s:f, s:f}", "bandwidth_limit", limit, "share", decoded.rate / limit);
    ls_bench_decode_row(bench, rows, row, batch, depth, &decoded);
    return LS_OK;
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
