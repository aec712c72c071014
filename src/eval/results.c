/* Results as JSON and as a table. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/eval.h"
#include "model/safetensors.h"

/* ---- JSON ---- */

static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *buckets_json(const ls_position_buckets *buckets) {
    json_t *first = json_array(), *end = json_array(), *tokens = json_array(), *loss = json_array();
    for (size_t i = 0; i < buckets->count; i++) {
        const ls_position_bucket *bucket = &buckets->at[i];
        json_array_append_new(first, json_integer(bucket->first));
        json_array_append_new(end, json_integer(bucket->end));
        json_array_append_new(tokens, json_integer(bucket->tokens));
        json_array_append_new(loss, number(bucket->loss));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "first", first, "end", end, "tokens", tokens, "loss",
                     loss);
}

static json_t *row_json(const ls_eval_row *row) {
    json_t *json = json_pack(
        "{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:f, s:f, s:I}", "protocol",
        row->protocol, "length", (json_int_t)row->length, "stride", (json_int_t)row->stride, "loss",
        number(row->loss), "ppl", number(row->perplexity), "token_loss", number(row->token_loss),
        "bits_per_byte", number(row->bits_per_byte), "flat", number(row->flat), "excess",
        number(row->excess), "tokens", (json_int_t)row->tokens, "windows", (json_int_t)row->windows,
        "documents", (json_int_t)row->documents, "seconds", row->seconds, "tokens_per_second",
        row->tokens_per_second, "bytes", (json_int_t)row->bytes);
    if (json != NULL && row->state_bytes > 0)
        json_object_set_new(json, "state_bytes", json_integer((json_int_t)row->state_bytes));
    if (json != NULL && row->judged) {
        json_object_set_new(json, "accuracy", number(row->accuracy));
        json_object_set_new(json, "exact", number(row->exact));
        json_object_set_new(json, "chance", number(row->chance));
    }
    if (json != NULL && row->positions.count > 0)
        json_object_set_new(json, "positions", buckets_json(&row->positions));
    return json;
}

static json_t *numbers(const double *values, int64_t count) {
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) json_array_append_new(list, number(values[i]));
    return list;
}

/* Columns: scores less that at the first distance. */
static json_t *scores_json(const ls_resolution *r) {
    json_t *distance = json_array(), *by_layer = json_array();
    for (int64_t i = 0; i < r->points; i++)
        json_array_append_new(distance, json_integer(r->distance[i]));
    for (int64_t layer = 0; layer < r->layers; layer++)
        json_array_append_new(by_layer, numbers(r->layer_score + layer * r->points, r->points));
    json_t *scores = json_pack("{s:o, s:o, s:o}", "distance", distance, "score",
                               numbers(r->score, r->points), "by_layer", by_layer);
    if (isfinite(r->O_expected))
        json_object_set_new(scores, "expected", numbers(r->expected, r->points));
    return scores;
}

static json_t *resolution_json(const ls_resolution *r) {
    json_t *by_layer = json_array(), *by_head = json_array(), *O_by_layer = json_array();
    for (int64_t layer = 0; layer < r->layers; layer++) {
        json_t *heads = json_array();
        for (int64_t h = 0; h < r->heads; h++)
            json_array_append_new(heads, number(r->head[layer * r->heads + h].R));
        json_array_append_new(by_head, heads);
        json_array_append_new(by_layer, number(r->layer[layer].R));
        json_array_append_new(O_by_layer, number(r->layer[layer].O));
    }
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:f, s:o, s:o, s:o, s:o}",
                     "length", (json_int_t)r->length, "R_head", number(r->R_head), "R_layer",
                     number(r->R_layer), "M_head", number(r->M_head), "M_layer", number(r->M_layer),
                     "O_head", number(r->O_head), "O_layer", number(r->O_layer), "O_expected",
                     number(r->O_expected), "tokens", (json_int_t)r->tokens, "distances",
                     (json_int_t)r->distances, "seconds", r->seconds, "by_layer", by_layer,
                     "O_by_layer", O_by_layer, "by_head", by_head, "scores", scores_json(r));
}

json_t *ls_eval_results_json(const ls_eval_results *results) {
    json_t *rows = json_array();
    for (size_t i = 0; i < results->count; i++)
        json_array_append_new(rows, row_json(&results->rows[i]));
    json_t *json = json_pack("{s:I, s:o}", "trained_length", (json_int_t)results->trained_length,
                             "results", rows);
    if (json == NULL || results->resolution_count == 0) return json;
    json_t *resolutions = json_array();
    for (size_t i = 0; i < results->resolution_count; i++)
        json_array_append_new(resolutions, resolution_json(&results->resolutions[i]));
    json_object_set_new(json, "resolution", resolutions);
    return json;
}

/* ---- table ---- */

static void print_bits(ls_ctx *ctx, double bits, ls_text *out) {
    if (isfinite(bits))
        ls_text_printf(ctx, out, " %10.4f", bits);
    else
        ls_text_printf(ctx, out, " %10s", "-");
}

static void print_judged(ls_ctx *ctx, const ls_eval_results *results, ls_text *out) {
    ls_text_printf(ctx, out, "%8s %8s %10s %11s %9s %11s %10s %8s\n", "length", "samples",
                   "answers", "right, %", "whole, %", "nats/answer", "tokens/s", "MB");
    for (size_t i = 0; i < results->count; i++) {
        const ls_eval_row *row = &results->rows[i];
        ls_text_printf(
            ctx, out, "%8" PRId64 " %8" PRId64 " %10" PRId64 " %11.2f %9.2f %11.4f %10.0f %8.1f\n",
            row->length, row->windows, row->tokens, 100 * row->accuracy, 100 * row->exact,
            row->loss, row->tokens_per_second, 1e-6 * (double)row->bytes);
    }
    ls_text_printf(ctx, out,
                   "trained at %" PRId64 " tokens; whole: samples with every answer right\n",
                   results->trained_length);
}

void ls_eval_results_print(ls_ctx *ctx, const ls_eval_results *results, ls_text *out) {
    if (results->count > 0 && results->rows[0].judged) {
        print_judged(ctx, results, out);
        return;
    }
    ls_text_printf(ctx, out, "%-11s %7s %7s %10s %10s %10s %8s %8s %5s %8s %6s\n", "protocol",
                   "length", "stride", "perplexity", "nats/token", "bits/byte", "excess", "tokens",
                   "docs", "tokens/s", "MB");
    for (size_t i = 0; i < results->count; i++) {
        const ls_eval_row *row = &results->rows[i];
        ls_text_printf(ctx, out, "%-11s %7" PRId64 " %7" PRId64 " %10.4f %10.4f", row->protocol,
                       row->length, row->stride, row->perplexity, row->loss);
        print_bits(ctx, row->bits_per_byte, out);
        ls_text_printf(ctx, out, " %+8.4f %8" PRId64 " %5" PRId64 " %8.0f %6.1f\n", row->excess,
                       row->tokens, row->documents, row->tokens_per_second,
                       1e-6 * (double)row->bytes);
    }
    ls_text_printf(ctx, out,
                   "trained at %" PRId64 " tokens; excess: nats/token above a loss that stays flat "
                   "past them\n",
                   results->trained_length);
    if (results->resolution_count == 0) return;
    ls_text_printf(ctx, out, "\n%8s %12s %12s %10s %10s %10s %10s %10s\n", "length", "100 R head",
                   "100 R layer", "M head", "M layer", "O head", "O layer", "distances");
    for (size_t i = 0; i < results->resolution_count; i++) {
        const ls_resolution *r = &results->resolutions[i];
        ls_text_printf(ctx, out,
                       "%8" PRId64 " %12.6f %12.6f %10.4f %10.4f %10.4f %10.4f %10" PRId64 "\n",
                       r->length, 100 * r->R_head, 100 * r->R_layer, r->M_head, r->M_layer,
                       r->O_head, r->O_layer, r->distances);
    }
}

ls_status ls_eval_losses_write(ls_ctx *ctx, const ls_eval_results *results, const char *path) {
    enum { NAME = LS_PROTOCOL_NAME_BYTES + 32 };
    ls_safetensor_source *sources = ls_new(ctx, 2 * results->count, sizeof *sources);
    char(*names)[NAME] = ls_new(ctx, 2 * results->count, sizeof *names);
    size_t count = 0;
    ls_status status = sources == NULL || names == NULL ? LS_ENOMEM : LS_OK;
    for (size_t i = 0; i < results->count && status == LS_OK; i++) {
        const ls_eval_row *row = &results->rows[i];
        if (row->losses == NULL) continue;
        for (int at = 0; at < 2; at++) {
            snprintf(names[count], NAME, "%s-%" PRId64 "%s", row->protocol, row->length,
                     at ? ".at" : "");
            sources[count] = (ls_safetensor_source){
                names[count], at ? LS_STORED_I64 : LS_STORED_F64, 1, &row->tokens,
                at ? (const void *)row->scored_at : (const void *)row->losses};
            count++;
        }
    }
    if (status == LS_OK) status = ls_safetensors_write(ctx, path, sources, count, NULL, 0);
    ls_free(ctx, sources);
    ls_free(ctx, names);
    return status;
}

void ls_eval_name(const ls_eval_settings *settings, char *out, size_t bytes) {
    char stride[32] = "";
    bool strided = strstr(settings->protocol, "slide") || strstr(settings->protocol, "winmean");
    if (strided && settings->stride > 0)
        snprintf(stride, sizeof stride, "-stride%" PRId64, settings->stride);
    snprintf(out, bytes, "%s%s%s", settings->protocol, stride,
             settings->documents == LS_EVAL_DOCUMENTS_ALL ? "-all" : "");
}
