/* What a corpus holds: documents and tokens of the sides of the split. */
#ifndef LS_DATA_STATS_H
#define LS_DATA_STATS_H

#include <jansson.h>

#include "data/data.h"

typedef struct ls_token_stats {
    int64_t documents, tokens, text_bytes;
    int64_t shortest, quarter, median, three_quarters, nine_tenths, longest; /* tokens */
    int64_t over_1k, over_4k, over_16k, over_64k; /* documents of at least 1024 tokens, ... */
} ls_token_stats;
ls_status ls_token_stats_take(ls_ctx *ctx, const ls_token_file *file, ls_token_stats *out);
json_t *ls_token_stats_json(const ls_token_stats *stats); /* a new reference */

typedef struct ls_data_stats {
    const char *corpus, *tokenizer; /* its name; the tokenizer's kind; borrowed */
    int64_t vocabulary;
    ls_token_stats train[LS_DATA_PARTS_MAX]; /* of each part of a mixture */
    size_t part_count;
    ls_token_stats validation, test;
    bool validates;
} ls_data_stats;
ls_status ls_data_stats_take(ls_ctx *ctx, const ls_dataset *data, const ls_data_settings *settings,
                             ls_data_stats *out);
json_t *ls_data_stats_json(const ls_data_stats *stats); /* a new reference, or NULL */
void ls_data_stats_print(ls_ctx *ctx, const ls_data_stats *stats, ls_text *out);

#endif
