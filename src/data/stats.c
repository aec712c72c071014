#include "data/stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int compare_lengths(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

ls_status ls_token_stats_take(ls_ctx *ctx, const ls_token_file *file, ls_token_stats *out) {
    int64_t count = ls_token_file_documents(file);
    *out = (ls_token_stats){.documents = count,
                            .tokens = ls_token_file_tokens(file),
                            .text_bytes = ls_token_file_text_bytes(file)};
    if (count == 0) return LS_OK;
    int64_t *lengths = ls_new_raw(ctx, (size_t)count, sizeof *lengths);
    if (lengths == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        int64_t length = ls_token_file_document(file, i).count;
        lengths[i] = length;
        out->over_1k += length >= 1 << 10;
        out->over_4k += length >= 1 << 12;
        out->over_16k += length >= 1 << 14;
        out->over_64k += length >= 1 << 16;
    }
    qsort(lengths, (size_t)count, sizeof *lengths, compare_lengths);
    out->shortest = lengths[0];
    out->quarter = lengths[(count - 1) / 4];
    out->median = lengths[(count - 1) / 2];
    out->three_quarters = lengths[count - 1 - (count - 1) / 4];
    out->nine_tenths = lengths[count - 1 - (count - 1) / 10];
    out->longest = lengths[count - 1];
    ls_free(ctx, lengths);
    return LS_OK;
}

/* One table yields both forms. */
enum { ROWS = 13 };
typedef struct stats_row {
    const char *name, *words;
    int64_t value;
} stats_row;

static void rows_of(const ls_token_stats *stats, stats_row rows[ROWS]) {
    const stats_row all[ROWS] = {{"documents", "documents", stats->documents},
                                 {"text_bytes", "bytes of text", stats->text_bytes},
                                 {"tokens", "tokens", stats->tokens},
                                 {"shortest", "shortest document, tokens", stats->shortest},
                                 {"quarter", "25% have at most", stats->quarter},
                                 {"median", "half have at most", stats->median},
                                 {"three_quarters", "75% have at most", stats->three_quarters},
                                 {"nine_tenths", "90% have at most", stats->nine_tenths},
                                 {"longest", "longest document, tokens", stats->longest},
                                 {"over_1k", "documents of 1,024 tokens or more", stats->over_1k},
                                 {"over_4k", "documents of 4,096 or more", stats->over_4k},
                                 {"over_16k", "documents of 16,384 or more", stats->over_16k},
                                 {"over_64k", "documents of 65,536 or more", stats->over_64k}};
    for (int i = 0; i < ROWS; i++) rows[i] = all[i];
}

json_t *ls_token_stats_json(const ls_token_stats *stats) {
    stats_row rows[ROWS];
    json_t *json = json_object();
    rows_of(stats, rows);
    for (int i = 0; i < ROWS; i++)
        json_object_set_new(json, rows[i].name, json_integer((json_int_t)rows[i].value));
    return json;
}

static void print_side(ls_ctx *ctx, const char *name, const ls_token_stats *stats, ls_text *out) {
    stats_row rows[ROWS];
    rows_of(stats, rows);
    ls_text_printf(ctx, out, "%s\n", name);
    for (int i = 0; i < ROWS; i++)
        ls_text_printf(ctx, out, "%-34s %12" PRId64 "\n", rows[i].words, rows[i].value);
}

ls_status ls_data_stats_take(ls_ctx *ctx, const ls_dataset *data, const ls_data_settings *settings,
                             ls_data_stats *out) {
    *out =
        (ls_data_stats){.corpus = settings->train[0] != '\0' ? settings->train : settings->corpus,
                        .tokenizer = ls_tokenizer_kind(data->tokenizer),
                        .vocabulary = ls_tokenizer_vocabulary(data->tokenizer),
                        .part_count = data->part_count,
                        .validates = data->validation != NULL};
    for (size_t i = 0; i < data->part_count; i++)
        LS_TRY(ls_token_stats_take(ctx, data->parts[i], &out->train[i]));
    if (out->validates) LS_TRY(ls_token_stats_take(ctx, data->validation, &out->validation));
    return ls_token_stats_take(ctx, data->test, &out->test);
}

json_t *ls_data_stats_json(const ls_data_stats *stats) {
    json_t *train = ls_token_stats_json(&stats->train[0]), *parts = json_array();
    for (size_t i = 0; i < stats->part_count; i++)
        json_array_append_new(parts, ls_token_stats_json(&stats->train[i]));
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:O, s:o}", "corpus", stats->corpus, "tokenizer",
                  stats->tokenizer, "vocabulary", (json_int_t)stats->vocabulary, "train",
                  stats->part_count > 1 ? parts : train, "test", ls_token_stats_json(&stats->test));
    if (stats->validates)
        json_object_set_new(json, "validation", ls_token_stats_json(&stats->validation));
    json_decref(train);
    json_decref(parts);
    return json;
}

void ls_data_stats_print(ls_ctx *ctx, const ls_data_stats *stats, ls_text *out) {
    ls_text_printf(ctx, out, "corpus %s, tokenizer %s of %" PRId64 " ids\n", stats->corpus,
                   stats->tokenizer, stats->vocabulary);
    for (size_t i = 0; i < stats->part_count; i++) {
        char name[32] = "train";
        if (stats->part_count > 1) snprintf(name, sizeof name, "train, part %zu", i + 1);
        print_side(ctx, name, &stats->train[i], out);
    }
    if (stats->validates) print_side(ctx, "validation", &stats->validation, out);
    print_side(ctx, "test", &stats->test, out);
}
