/* From the settings of a recipe's `data` section to a tokenizer and opened token files.
 *
 * data.train, data.validation and data.test are taken whole. What is not given so is a share of
 * data.corpus; validation may also be a share of data.train. */
#ifndef LS_DATA_DATA_H
#define LS_DATA_DATA_H

#include "base/settings.h"
#include "data/loader.h"
#include "data/paths.h"

typedef struct ls_data_settings {
    char corpus[LS_OPTION_TEXT_BYTES];
    char train[LS_OPTION_TEXT_BYTES], validation[LS_OPTION_TEXT_BYTES]; /* see paths.h */
    char test[LS_OPTION_TEXT_BYTES];
    int format; /* ls_corpus_format */
    char text_key[LS_OPTION_TEXT_BYTES];
    bool text_key_asked; /* in these words: then one of the files must be JSONL */
    char tokenizer[LS_OPTION_TEXT_BYTES];
    int64_t vocabulary;
    double test_share, validation_share;
    int duplicates; /* keep, remove */
    int loader;     /* ls_loader_kind */
    bool borders;
    char mix[LS_OPTION_TEXT_BYTES]; /* read by train/mixture.h */
} ls_data_settings;

/* Keys without their `data.`. */
extern const ls_option_table ls_data_options;
/* Sets the fields of *into that the settings have. */
ls_status ls_data_read(ls_ctx *ctx, const ls_settings *settings, const ls_fact *facts,
                       ls_data_settings *into);

typedef struct ls_dataset {
    ls_tokenizer *tokenizer;
    char tokenizer_path[LS_OPTION_TEXT_BYTES]; /* from where it can be loaded; also one learnt */
    ls_token_file *train;                      /* the first of the parts; NULL: it was not opened */
    ls_token_file *parts[LS_DATA_PARTS_MAX];   /* of a mixture; else one */
    int64_t weights[LS_DATA_PARTS_MAX];        /* of a mixture */
    size_t part_count;
    ls_token_file *validation; /* NULL: there is none */
    ls_token_file *test;       /* may hold no document: see test_share */
} ls_dataset;

/* Where the test documents come from, as the settings have it. */
const char *ls_data_name(const ls_data_settings *settings);
/* Whether the settings name documents for validation. */
bool ls_data_validates(const ls_data_settings *settings);

/* Opens what the settings name. Token files, and the tokenizer that tokenizer=train makes, are kept
 * in the cache folder (made where it is missing; empty: longshot in the user's cache) under a name
 * that tells corpus, tokenizer and split; a damaged file there is made again. Paths are those of
 * `run`, the folder of a run whose settings these are, or NULL (ls_path_find). On failure *out is
 * empty. */
ls_status ls_data_open(ls_ctx *ctx, const ls_data_settings *settings, const char *cache_folder,
                       const char *run, ls_dataset *out);
/* The same without what only training reads: tokenizer and test documents alone. */
ls_status ls_data_open_test(ls_ctx *ctx, const ls_data_settings *settings, const char *cache_folder,
                            const char *run, ls_dataset *out);
void ls_data_close(ls_ctx *ctx, ls_dataset *data);
/* Tokens for training, of all parts. */
int64_t ls_data_tokens(const ls_dataset *data);
/* Of all ids that were opened, and of the tokenizer: the same wherever the corpus lies. */
uint64_t ls_data_hash(const ls_dataset *data);

/* The corpora behind a dataset, for who wants the text: that of data.train or data.corpus, split,
 * and of the others those that have paths of their own (else NULL). The caller frees them. */
typedef struct ls_data_corpora {
    ls_corpus *train[LS_DATA_PARTS_MAX];
    size_t count;
    ls_corpus *validation, *test;
} ls_data_corpora;
ls_status ls_data_corpora_open(ls_ctx *ctx, const ls_data_settings *settings, ls_data_corpora *out);
void ls_data_corpora_free(ls_ctx *ctx, ls_data_corpora *corpora);

/* A loader over the training documents as the settings say. */
ls_status ls_data_loader(ls_ctx *ctx, const ls_dataset *data, const ls_data_settings *settings,
                         int64_t batch, int64_t length, uint64_t seed, ls_loader **out);

#endif
