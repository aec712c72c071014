/* From the settings of a recipe's `data` section to a tokenizer and two opened token files. */
#ifndef LS_DATA_DATA_H
#define LS_DATA_DATA_H

#include "base/option.h"
#include "data/loader.h"

typedef struct ls_data_settings {
    char corpus[LS_OPTION_TEXT_BYTES];
    int format; /* ls_corpus_format */
    char text_key[LS_OPTION_TEXT_BYTES];
    char tokenizer[LS_OPTION_TEXT_BYTES];
    int64_t vocabulary;
    double test_share;
    int loader; /* ls_loader_kind */
    bool borders;
    char mix[LS_OPTION_TEXT_BYTES]; /* read by train/mixture.h */
} ls_data_settings;

/* Keys without their `data.`. */
extern const ls_option_table ls_data_options;

typedef struct ls_dataset {
    ls_tokenizer *tokenizer;
    char tokenizer_path[LS_OPTION_TEXT_BYTES]; /* from where it can be loaded; also one learnt */
    ls_token_file *train;
    ls_token_file *test; /* may hold no document: see test_share */
} ls_dataset;

/* Opens what the settings name. Token files, and the tokenizer that tokenizer=train makes, are kept
 * in the cache folder (made where it is missing; empty: longshot in the user's cache) under a name
 * that tells corpus, tokenizer and split; a damaged file there is made again. On failure *out is
 * empty. */
ls_status ls_data_open(ls_ctx *ctx, const ls_data_settings *settings, const char *cache_folder,
                       ls_dataset *out);
void ls_data_close(ls_ctx *ctx, ls_dataset *data);
/* Of all ids of both sides, and of the tokenizer: the same wherever the corpus lies. */
uint64_t ls_data_hash(const ls_dataset *data);

/* A loader over data->train as the settings say. */
ls_status ls_data_loader(ls_ctx *ctx, const ls_dataset *data, const ls_data_settings *settings,
                         int64_t batch, int64_t length, uint64_t seed, ls_loader **out);

#endif
