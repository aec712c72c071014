#include "data/data.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/temporary.h"
#include "data/overlap.h"

enum { PATH_BYTES = 4096, LAYOUT = 1 }; /* LAYOUT: changes whenever the same text gives other ids */

#define FIELD(name) ls_data_settings, name
static const ls_option options[] = {
    LS_TEXT("corpus", FIELD(corpus), "default",
            "Text file, folder of text files, or JSONL file, each may be .zst; `default`: Perl's "
            "manual. Shares of it are kept for validation and test.",
            .needs = "no train"),
    LS_TEXT("train", FIELD(train), "",
            "In place of the corpus: paths of training documents, taken whole; with shares a "
            "mixture (`0.7*a.txt,0.3*folder`)."),
    LS_TEXT("validation", FIELD(validation), "",
            "Paths of validation documents, taken whole (train.validate_every)."),
    LS_TEXT("test", FIELD(test), "", "Paths of test documents, taken whole."),
    LS_CHOICE("format", FIELD(format), "auto", "auto|text|folder|jsonl",
              "Format of the corpus; auto: by its name."),
    LS_TEXT("text_key", FIELD(text_key), "text", "Key of the text in each line of JSONL.",
            .needs = "format!=text"),
    LS_TEXT(
        "tokenizer", FIELD(tokenizer), "byte",
        "Tokenizer: `byte`, `train` (byte pairs learnt from the corpus), or a tokenizer's folder "
        "or file: docs/tokenizers.md."),
    LS_INT("vocabulary", FIELD(vocabulary), "8192", 257, 1 << 20,
           "Ids of the tokenizer that is learnt.", .needs = "tokenizer=train"),
    LS_REAL("test_share", FIELD(test_share), "0.1", 0, 0.5,
            "Share of the documents, long and short alike, that is kept for testing.",
            .needs = "no train and no test"),
    LS_REAL("validation_share", FIELD(validation_share), "0", 0, 0.5,
            "Share of the training documents that is kept for validation, likewise.",
            .needs = "no validation"),
    LS_CHOICE(
        "duplicates", FIELD(duplicates), "keep", "keep|remove",
        "What becomes of held-out documents of the corpus of which training has half or more: "
        "they stay (`longshot data` names them), or are left out.",
        .needs = "no train and no test"),
    LS_CHOICE("loader", FIELD(loader), "shuffled", "shuffled|stream",
              "Windows in random order, or rows that walk through the text in order.",
              .needs = "training"),
    LS_BOOL("borders", FIELD(borders), "false",
            "Whether windows end where documents do, and carried state begins anew with each; "
            "false: documents follow each other.",
            .needs = "training"),
    LS_TEXT("mix", FIELD(mix), "",
            "Tasks whose samples stand among the windows of the corpus, with their shares: "
            "text_needle:0.2,text_pairs:0.2; task.NAME.KEY sets the options of one.",
            .needs = "training"),
};
const ls_option_table ls_data_options = LS_OPTIONS(options, ls_data_settings);

ls_status ls_data_read(ls_ctx *ctx, const ls_settings *settings, const ls_fact *facts,
                       ls_data_settings *into) {
    LS_TRY(ls_settings_apply(ctx, settings, "data", &ls_data_options, facts, into));
    const char *usual = ls_options_find(&ls_data_options, "text_key")->fallback;
    into->text_key_asked = false;
    for (size_t i = 0; i < settings->count; i++) {
        const ls_setting *item = &settings->items[i];
        if (strcmp(item->key, "data.text_key") != 0 || item->optional) continue;
        /* a run's own file, read as a recipe, has it whatever the corpus is */
        into->text_key_asked = !item->below || strcmp(item->value, usual) != 0;
    }
    return LS_OK;
}

/* One corpus: listed, split when that is first needed. */
typedef struct origin {
    const char *name; /* as the settings have it */
    ls_corpus *corpus;
    ls_corpus_shares shares;
    bool split;
} origin;

typedef struct opener {
    ls_ctx *ctx;
    const ls_data_settings *settings;
    char cache[PATH_BYTES];
    const char *run; /* that the settings are of, or NULL */
    origin train[LS_DATA_PARTS_MAX];
    size_t count;
    origin validation, test; /* of paths of their own; else without a corpus */
    ls_dataset *out;
} opener;

/* Whether held-out documents that training has too are left out. */
static bool removes(const opener *o, const origin *from) {
    return o->settings->duplicates != 0 && (from->shares.test > 0 || from->shares.validation > 0);
}

/* Files of one corpus and split: those of its sides are told apart by their names. */
static uint64_t origin_key(const opener *o, const origin *from) {
    int64_t parts[6] = {(int64_t)ls_corpus_key(from->corpus),   o->settings->format,
                        llround(from->shares.test * 1e9),       LAYOUT,
                        llround(from->shares.validation * 1e9), removes(o, from)};
    return ls_hash(parts, (parts[5] != 0 ? 6 : parts[4] != 0 ? 5 : 4) * sizeof parts[0]);
}

static ls_status remove_duplicates(ls_ctx *ctx, const origin *from) {
    const ls_data_corpora corpora = {.train = {from->corpus}, .count = 1};
    ls_overlap overlap;
    ls_status status = ls_overlap_among(ctx, &corpora, 0, &overlap);
    for (size_t i = 0; i < overlap.count && status == LS_OK; i++)
        ls_corpus_leave_out(from->corpus, overlap.at[i].index);
    if (status == LS_OK && overlap.count > 0)
        ls_say(ctx, "left out %zu held-out documents that training has too", overlap.count);
    ls_overlap_clear(ctx, &overlap);
    ls_corpus_rewind(ctx, from->corpus);
    return status;
}

static ls_status split_once(const opener *o, origin *from) {
    if (from->split) return LS_OK;
    ls_say(o->ctx, "reading the corpus %s", from->name);
    LS_TRY(ls_corpus_split(o->ctx, from->corpus, from->shares));
    if (removes(o, from)) LS_TRY(remove_duplicates(o->ctx, from));
    from->split = true;
    return LS_OK;
}

static ls_status learn_from(ls_ctx *ctx, ls_corpus *corpus, ls_bpe_trainer *trainer) {
    ls_document document;
    ls_corpus_rewind(ctx, corpus);
    for (;;) {
        LS_TRY(ls_corpus_next(ctx, corpus, &document));
        if (document.text == NULL) return LS_OK;
        if (ls_token_side_of(&document) == LS_SPLIT_TRAIN)
            LS_TRY(ls_bpe_trainer_add(ctx, trainer, document.text, document.length));
    }
}

static ls_status train_tokenizer(const opener *o, ls_tokenizer **out) {
    ls_bpe_trainer *trainer;
    ls_status status;
    LS_TRY(ls_bpe_trainer_new(o->ctx, &trainer));
    for (size_t i = 0; i < o->count; i++)
        LS_TRY_GOTO(learn_from(o->ctx, o->train[i].corpus, trainer));
    LS_TRY_GOTO(ls_bpe_trainer_finish(o->ctx, trainer, o->settings->vocabulary, out));
fail:
    ls_bpe_trainer_free(o->ctx, trainer);
    return status;
}

/* Saves into a folder of its own and renames that, so that nobody finds half a tokenizer. */
static ls_status keep_tokenizer(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder) {
    char temporary[PATH_BYTES];
    int lock;
    LS_TRY(ls_temporary_folder(ctx, folder, temporary, sizeof temporary, &lock));
    ls_status status = ls_tokenizer_save(ctx, tokenizer, temporary);
    if (status == LS_OK && rename(temporary, folder) != 0 && errno != ENOTEMPTY && errno != EEXIST)
        status = LS_FAIL(ctx, LS_EIO, "renaming %s: %s", temporary, strerror(errno));
    ls_status removed =
        ls_folder_remove(ctx, temporary); /* left only where another run was first */
    close(lock);
    return status != LS_OK ? status : removed;
}

/* A cached thing that cannot be read is made again; want of memory and an end are passed on. */
static bool usable(ls_ctx *ctx, ls_status status) {
    if (status == LS_OK) return true;
    if (status == LS_ENOMEM || status == LS_ESTOP) return false;
    ls_say(ctx, "%s; making it again", ctx->error.message);
    ctx->error = (ls_error){0};
    return false;
}

/* Of all training documents. */
static uint64_t tokenizer_key(const opener *o) {
    uint64_t key = origin_key(o, &o->train[0]);
    for (size_t i = 1; i < o->count; i++) {
        const uint64_t both[2] = {key, origin_key(o, &o->train[i])};
        key = ls_hash(both, sizeof both);
    }
    return key;
}

/* A path of a run's settings may lead from another folder than the present one; `word` is none. */
static ls_status find_path(const opener *o, const char *given, const char *word, char *out,
                           size_t bytes) {
    const char *run = strcmp(given, word) == 0 ? NULL : o->run;
    LS_TRY(ls_path_find(o->ctx, given, run, out, bytes));
    if (strcmp(given, out) != 0) ls_say(o->ctx, "%s of the run is %s", given, out);
    return LS_OK;
}

static ls_status open_tokenizer(opener *o) {
    ls_ctx *ctx = o->ctx;
    ls_tokenizer **out = &o->out->tokenizer;
    char *folder = o->out->tokenizer_path;
    const size_t room = sizeof o->out->tokenizer_path;
    if (strcmp(o->settings->tokenizer, "train") != 0) {
        LS_TRY(find_path(o, o->settings->tokenizer, "byte", folder, room));
        return ls_tokenizer_load(ctx, folder, out);
    }
    if ((size_t)snprintf(folder, room, "%s/bpe-%016" PRIx64 "-%" PRId64, o->cache, tokenizer_key(o),
                         o->settings->vocabulary) >= room)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", o->cache);
    if (ls_path_exists(folder)) {
        ls_status status = ls_tokenizer_load(ctx, folder, out);
        if (usable(ctx, status)) return LS_OK;
        if (status == LS_ENOMEM || status == LS_ESTOP) return status;
        LS_TRY(ls_folder_remove(ctx, folder));
    }
    for (size_t i = 0; i < o->count; i++) LS_TRY(split_once(o, &o->train[i]));
    ls_say(ctx, "learning a tokenizer of %" PRId64 " ids", o->settings->vocabulary);
    LS_TRY(train_tokenizer(o, out));
    return keep_tokenizer(ctx, *out, folder);
}

static ls_status open_side(opener *o, origin *from, ls_token_side side, ls_token_file **out) {
    static const char *const names[] = {"train", "validation", "test", "all"};
    ls_ctx *ctx = o->ctx;
    const ls_tokenizer *tokenizer = o->out->tokenizer;
    char path[PATH_BYTES];
    uint64_t parts[2] = {origin_key(o, from), ls_tokenizer_hash(tokenizer)};
    uint64_t key = ls_hash(parts, sizeof parts);
    if ((size_t)snprintf(path, sizeof path, "%s/%016" PRIx64 "-%s.tokens", o->cache, key,
                         names[side]) >= sizeof path)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", o->cache);
    if (ls_path_exists(path)) {
        ls_status status = ls_token_file_open(ctx, path, out);
        if (usable(ctx, status)) {
            if (ls_token_file_key(*out) == key) return LS_OK;
            ls_token_file_close(ctx, *out);
            *out = NULL;
        }
        if (status == LS_ENOMEM || status == LS_ESTOP) return status;
    }
    LS_TRY(split_once(o, from));
    if (side == LS_SPLIT_ALL)
        ls_say(ctx, "tokenising the documents of %s", from->name);
    else
        ls_say(ctx, "tokenising the %s documents", names[side]);
    LS_TRY(ls_token_file_build(ctx, from->corpus, tokenizer, side, key, path));
    return ls_token_file_open(ctx, path, out);
}

/* The cache folder that is meant: the one given, else longshot in the user's. */
static ls_status find_cache(ls_ctx *ctx, const char *given, char *out) {
    const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
    int length;
    if (given[0] != '\0')
        length = snprintf(out, PATH_BYTES, "%s", given);
    else if (cache != NULL && cache[0] != '\0')
        length = snprintf(out, PATH_BYTES, "%s/longshot", cache);
    else if (home != NULL && home[0] != '\0')
        length = snprintf(out, PATH_BYTES, "%s/.cache/longshot", home);
    else
        return LS_FAIL(ctx, LS_EUSE, "neither HOME nor XDG_CACHE_HOME is set: give cache=");
    if (length < 0 || length >= PATH_BYTES)
        return LS_FAIL(ctx, LS_EUSE, "the path of the cache folder is too long");
    return LS_OK;
}

/* Temporary files and folders of a cache, as token files and tokenizers are named. */
static bool is_of_cache(const char *name) {
    return strstr(name, ".tokens.") != NULL || strncmp(name, "bpe-", 4) == 0;
}

/* ---- the corpora that are meant ---- */

/* One more path of a corpus. */
static ls_status open_corpus(const opener *o, const char *given, ls_corpus **out) {
    char path[PATH_BYTES];
    const ls_corpus_format format = (ls_corpus_format)o->settings->format;
    LS_TRY(find_path(o, given, "default", path, sizeof path));
    return *out == NULL ? ls_corpus_open(o->ctx, path, format, o->settings->text_key, out)
                        : ls_corpus_add(o->ctx, *out, path, format);
}

/* Paths [first, end) of a list as one corpus. */
static ls_status open_paths(const opener *o, const ls_data_paths *paths, size_t first, size_t end,
                            origin *out) {
    for (size_t i = first; i < end; i++) LS_TRY(open_corpus(o, paths->at[i].path, &out->corpus));
    return LS_OK;
}

/* data.validation or data.test. */
static ls_status open_held_out(const opener *o, const char *key, const char *text, origin *out) {
    ls_data_paths paths;
    if (text[0] == '\0') return LS_OK;
    LS_TRY(ls_data_paths_read(o->ctx, key, text, &paths));
    if (paths.mixed)
        return LS_FAIL(o->ctx, LS_EUSE, "%s is scored whole: shares are for data.train", key);
    out->name = text;
    return open_paths(o, &paths, 0, paths.count, out);
}

static ls_status open_mixture(opener *o, const ls_data_paths *paths) {
    if (o->settings->validation_share > 0 && o->settings->validation[0] == '\0')
        return LS_FAIL(o->ctx, LS_EUSE,
                       "data.validation_share is of one corpus: give a mixture data.validation");
    for (; o->count < paths->count; o->count++) {
        origin *part = &o->train[o->count];
        LS_TRY(open_paths(o, paths, o->count, o->count + 1, part));
        part->name = o->settings->train;
        o->out->weights[o->count] = paths->at[o->count].weight;
    }
    return LS_OK;
}

static ls_status open_training(opener *o) {
    const ls_data_settings *s = o->settings;
    ls_data_paths paths;
    origin *whole = &o->train[0];
    if (s->train[0] != '\0') {
        LS_TRY(ls_data_paths_read(o->ctx, "data.train", s->train, &paths));
        if (paths.mixed) return open_mixture(o, &paths);
        LS_TRY(open_paths(o, &paths, 0, paths.count, whole));
    } else {
        LS_TRY(open_corpus(o, s->corpus, &whole->corpus));
        if (s->test[0] == '\0') whole->shares.test = s->test_share;
    }
    if (s->validation[0] == '\0') whole->shares.validation = s->validation_share;
    whole->name = s->train[0] == '\0' ? s->corpus : s->train;
    o->count = 1;
    return LS_OK;
}

/* Whether data.text_key has an effect is known when the files are. */
static ls_status check_text_key(const opener *o) {
    const ls_corpus *const others[] = {o->validation.corpus, o->test.corpus};
    bool jsonl = !o->settings->text_key_asked;
    for (size_t i = 0; i < o->count; i++) jsonl |= ls_corpus_has_jsonl(o->train[i].corpus);
    for (size_t i = 0; i < 2; i++) jsonl |= others[i] != NULL && ls_corpus_has_jsonl(others[i]);
    if (jsonl) return LS_OK;
    return LS_FAIL(o->ctx, LS_EUSE, "data.text_key has no effect here: no file is JSONL");
}

/* With `training` false those behind the test documents alone. */
static ls_status open_corpora(opener *o, bool training) {
    const ls_data_settings *s = o->settings;
    if (training || s->test[0] == '\0' || strcmp(s->tokenizer, "train") == 0)
        LS_TRY(open_training(o));
    if (training) LS_TRY(open_held_out(o, "data.validation", s->validation, &o->validation));
    LS_TRY(open_held_out(o, "data.test", s->test, &o->test));
    return check_text_key(o);
}

static void close_corpora(opener *o) {
    for (size_t i = 0; i < LS_DATA_PARTS_MAX; i++) ls_corpus_free(o->ctx, o->train[i].corpus);
    ls_corpus_free(o->ctx, o->validation.corpus);
    ls_corpus_free(o->ctx, o->test.corpus);
}

ls_status ls_data_corpora_open(ls_ctx *ctx, const ls_data_settings *settings,
                               ls_data_corpora *out) {
    ls_dataset unused = {0};
    opener o = {.ctx = ctx, .settings = settings, .out = &unused};
    *out = (ls_data_corpora){0};
    ls_status status = open_corpora(&o, true);
    for (size_t i = 0; status == LS_OK && i < o.count; i++) status = split_once(&o, &o.train[i]);
    if (status != LS_OK) {
        close_corpora(&o);
        return status;
    }
    for (; out->count < o.count; out->count++) out->train[out->count] = o.train[out->count].corpus;
    out->validation = o.validation.corpus;
    out->test = o.test.corpus;
    return LS_OK;
}

void ls_data_corpora_free(ls_ctx *ctx, ls_data_corpora *corpora) {
    for (size_t i = 0; i < corpora->count; i++) ls_corpus_free(ctx, corpora->train[i]);
    ls_corpus_free(ctx, corpora->validation);
    ls_corpus_free(ctx, corpora->test);
    *corpora = (ls_data_corpora){0};
}

/* ---- the whole ---- */

const char *ls_data_name(const ls_data_settings *settings) {
    return settings->test[0] != '\0' ? settings->test : settings->corpus;
}

bool ls_data_validates(const ls_data_settings *settings) {
    return settings->validation[0] != '\0' || settings->validation_share > 0;
}

static ls_status open_parts(opener *o) {
    ls_dataset *out = o->out;
    for (; out->part_count < o->count; out->part_count++)
        LS_TRY(
            open_side(o, &o->train[out->part_count], LS_SPLIT_TRAIN, &out->parts[out->part_count]));
    out->train = out->parts[0];
    if (o->validation.corpus != NULL)
        return open_side(o, &o->validation, LS_SPLIT_ALL, &out->validation);
    if (!ls_data_validates(o->settings)) return LS_OK;
    return open_side(o, &o->train[0], LS_SPLIT_VALIDATION, &out->validation);
}

static ls_status open_all(opener *o, const char *cache_folder, bool training) {
    LS_TRY(open_corpora(o, training));
    LS_TRY(find_cache(o->ctx, cache_folder, o->cache));
    LS_TRY(ls_folder_make(o->ctx, o->cache));
    LS_TRY(ls_temporaries_sweep(o->ctx, o->cache, is_of_cache));
    LS_TRY(open_tokenizer(o));
    if (training) LS_TRY(open_parts(o));
    if (o->test.corpus != NULL) return open_side(o, &o->test, LS_SPLIT_ALL, &o->out->test);
    return open_side(o, &o->train[0], LS_SPLIT_TEST, &o->out->test);
}

static ls_status open_dataset(ls_ctx *ctx, const ls_data_settings *settings,
                              const char *cache_folder, const char *run, bool training,
                              ls_dataset *out) {
    opener o = {.ctx = ctx, .settings = settings, .run = run, .out = out};
    *out = (ls_dataset){0};
    ls_status status = open_all(&o, cache_folder, training);
    close_corpora(&o);
    if (status != LS_OK) ls_data_close(ctx, out);
    return status;
}

ls_status ls_data_open(ls_ctx *ctx, const ls_data_settings *settings, const char *cache_folder,
                       const char *run, ls_dataset *out) {
    return open_dataset(ctx, settings, cache_folder, run, true, out);
}

ls_status ls_data_open_test(ls_ctx *ctx, const ls_data_settings *settings, const char *cache_folder,
                            const char *run, ls_dataset *out) {
    return open_dataset(ctx, settings, cache_folder, run, false, out);
}

void ls_data_close(ls_ctx *ctx, ls_dataset *data) {
    ls_tokenizer_free(ctx, data->tokenizer);
    for (size_t i = 0; i < LS_DATA_PARTS_MAX; i++) ls_token_file_close(ctx, data->parts[i]);
    ls_token_file_close(ctx, data->validation);
    ls_token_file_close(ctx, data->test);
    *data = (ls_dataset){0};
}

int64_t ls_data_tokens(const ls_dataset *data) {
    int64_t tokens = 0;
    for (size_t i = 0; i < data->part_count; i++) tokens += ls_token_file_tokens(data->parts[i]);
    return tokens;
}

uint64_t ls_data_hash(const ls_dataset *data) {
    uint64_t parts[LS_DATA_PARTS_MAX + 3] = {ls_tokenizer_hash(data->tokenizer)};
    size_t count = 1;
    for (size_t i = 0; i < data->part_count; i++)
        parts[count++] = ls_token_file_hash(data->parts[i]);
    parts[count++] = ls_token_file_hash(data->test);
    if (data->validation != NULL) parts[count++] = ls_token_file_hash(data->validation);
    return ls_hash(parts, count * sizeof parts[0]);
}

ls_status ls_data_loader(ls_ctx *ctx, const ls_dataset *data, const ls_data_settings *settings,
                         int64_t batch, int64_t length, uint64_t seed, ls_loader **out) {
    ls_loader_settings wanted = {.kind = (ls_loader_kind)settings->loader,
                                 .borders = settings->borders,
                                 .batch = batch,
                                 .length = length,
                                 .seed = seed};
    if (data->part_count == 1) return ls_loader_new(ctx, data->train, wanted, out);
    return ls_loader_new_mixed(ctx, data->parts, data->weights, data->part_count, wanted, out);
}
