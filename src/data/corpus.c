#include "data/corpus.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/corpus_files.h"
#include "data/source.h"

enum { READ_BYTES = 1 << 16, CLASSES = 32, NAME_BYTES = 4160 };
/* What a document is for, in the order of a lone document's parts. */
enum { FOR_TRAINING, FOR_VALIDATION, FOR_TEST, USES, FOR_NOTHING = USES };
static const size_t document_max = (size_t)1 << 31, line_max = (size_t)1 << 28;

struct ls_corpus {
    ls_corpus_files files;
    char *text_key;
    uint64_t key;
    /* where the walk stands */
    size_t file;
    ls_source *source; /* of an open JSONL file */
    int64_t line, index;
    size_t line_begin; /* in buffer */
    bool source_ended;
    ls_text buffer; /* a whole text, or the piece of a JSONL file being cut into lines */
    json_t *record;
    char name[NAME_BYTES];
    /* the split */
    uint8_t *use; /* [documents] */
    int64_t documents;
    size_t cut[USES]; /* where a lone document's part for each use begins; 0: it has none */
    size_t cut_at;    /* the rest of it is still to be handed out from here, or 0 */
};

static uint64_t files_key(const ls_corpus *corpus) {
    uint64_t key = ls_hash(corpus->text_key, strlen(corpus->text_key));
    for (size_t i = 0; i < corpus->files.count; i++) {
        const ls_corpus_file *file = &corpus->files.at[i];
        int64_t parts[7] = {(int64_t)key,
                            (int64_t)ls_hash(file->path, strlen(file->path)),
                            (int64_t)ls_hash(file->name, strlen(file->name)),
                            file->size,
                            file->seconds,
                            file->nanoseconds,
                            file->jsonl};
        key = ls_hash(parts, sizeof parts);
    }
    return key;
}

ls_status ls_corpus_open(ls_ctx *ctx, const char *path, ls_corpus_format format,
                         const char *text_key, ls_corpus **out) {
    *out = NULL;
    ls_corpus *corpus = ls_new(ctx, 1, sizeof *corpus);
    if (corpus == NULL) return LS_ENOMEM;
    ls_status status = LS_ENOMEM;
    corpus->text_key = ls_copy_text(ctx, text_key);
    if (corpus->text_key == NULL) goto fail;
    LS_TRY_GOTO(ls__corpus_files_find(ctx, path, format, &corpus->files));
    corpus->key = files_key(corpus);
    *out = corpus;
    return LS_OK;
fail:
    ls_corpus_free(ctx, corpus);
    return status;
}

ls_status ls_corpus_add(ls_ctx *ctx, ls_corpus *corpus, const char *path, ls_corpus_format format) {
    size_t first = corpus->files.count;
    LS_TRY(ls__corpus_files_find(ctx, path, format, &corpus->files));
    for (; first < corpus->files.count; first++) {
        ls_corpus_file *file = &corpus->files.at[first];
        char *name = ls_copy_text(ctx, file->path);
        if (name == NULL) return LS_ENOMEM;
        ls_free(ctx, file->name);
        file->name = name;
    }
    corpus->key = files_key(corpus);
    return LS_OK;
}

void ls_corpus_free(ls_ctx *ctx, ls_corpus *corpus) {
    if (corpus == NULL) return;
    ls_corpus_rewind(ctx, corpus);
    ls_text_clear(ctx, &corpus->buffer);
    ls__corpus_files_clear(ctx, &corpus->files);
    ls_free(ctx, corpus->text_key);
    ls_free(ctx, corpus->use);
    ls_free(ctx, corpus);
}

uint64_t ls_corpus_key(const ls_corpus *corpus) {
    return corpus->key;
}

void ls_corpus_rewind(ls_ctx *ctx, ls_corpus *corpus) {
    ls__source_close(ctx, corpus->source);
    json_decref(corpus->record);
    corpus->source = NULL;
    corpus->record = NULL;
    corpus->file = 0;
    corpus->line = corpus->index = 0;
    corpus->line_begin = corpus->cut_at = 0;
    corpus->source_ended = false;
    corpus->buffer.length = 0;
    corpus->buffer.failed = false;
}

/* Appends what comes next to the buffer. */
static ls_status read_more(ls_ctx *ctx, ls_corpus *corpus, ls_source *source, size_t most) {
    char block[READ_BYTES];
    size_t got;
    const char *path = corpus->files.at[corpus->file].path;
    LS_TRY(ls_check_stop(ctx, "reading the corpus"));
    LS_TRY(ls__source_read(ctx, source, block, sizeof block, &got));
    corpus->source_ended = got == 0;
    if (corpus->buffer.length + got > most)
        return LS_FAIL(ctx, LS_EINPUT, "%s: a document or line of more than %zu bytes", path, most);
    ls_text_append(ctx, &corpus->buffer, block, got);
    return ls_text_status(&corpus->buffer);
}

/* The whole of a text file into the buffer. */
static ls_status read_text(ls_ctx *ctx, ls_corpus *corpus) {
    const ls_corpus_file *file = &corpus->files.at[corpus->file];
    ls_source *source;
    corpus->buffer.length = 0;
    corpus->source_ended = false;
    LS_TRY(ls__source_open(ctx, file->path, &source));
    ls_status status = LS_OK;
    while (status == LS_OK && !corpus->source_ended)
        status = read_more(ctx, corpus, source, document_max);
    ls__source_close(ctx, source);
    snprintf(corpus->name, sizeof corpus->name, "%s", file->name);
    corpus->file++;
    return status;
}

/* The next line of a JSONL file, as a stretch of the buffer; *line NULL after the last. */
static ls_status read_line(ls_ctx *ctx, ls_corpus *corpus, const char **line, size_t *length) {
    ls_text *buffer = &corpus->buffer;
    size_t searched = corpus->line_begin;
    for (;;) {
        const char *end = NULL;
        if (buffer->length > searched)
            end = memchr(buffer->bytes + searched, '\n', buffer->length - searched);
        if (end != NULL || (corpus->source_ended && buffer->length > corpus->line_begin)) {
            size_t stop = end == NULL ? buffer->length : (size_t)(end - buffer->bytes);
            *line = buffer->bytes + corpus->line_begin;
            *length = stop - corpus->line_begin;
            corpus->line_begin = stop + (end != NULL);
            corpus->line++;
            return LS_OK;
        }
        if (corpus->source_ended) {
            *line = NULL;
            return LS_OK;
        }
        if (corpus->line_begin > 0) {
            buffer->length -= corpus->line_begin;
            memmove(buffer->bytes, buffer->bytes + corpus->line_begin, buffer->length);
            corpus->line_begin = 0;
        }
        searched = buffer->length;
        LS_TRY(read_more(ctx, corpus, corpus->source, line_max));
    }
}

/* The next record of the open JSONL file; *text NULL after the last. */
static ls_status read_record(ls_ctx *ctx, ls_corpus *corpus, const char **text, size_t *length) {
    const ls_corpus_file *file = &corpus->files.at[corpus->file];
    const char *line;
    size_t bytes;
    *text = NULL;
    json_decref(corpus->record);
    corpus->record = NULL;
    do {
        LS_TRY(read_line(ctx, corpus, &line, &bytes));
        if (line == NULL) return LS_OK;
        while (bytes > 0 && strchr(" \t\r", line[bytes - 1]) != NULL && line[bytes - 1] != '\0')
            bytes--;
    } while (bytes == 0);
    LS_TRY(ls_json_parse_line(ctx, line, bytes, file->path, corpus->line, &corpus->record));
    const json_t *value = json_object_get(corpus->record, corpus->text_key);
    if (!json_is_string(value))
        return LS_FAIL(ctx, LS_EINPUT, "%s, line %lld: no text under the key `%s`", file->path,
                       (long long)corpus->line, corpus->text_key);
    *text = json_string_value(value);
    *length = json_string_length(value);
    snprintf(corpus->name, sizeof corpus->name, "%s:%lld", file->name, (long long)corpus->line);
    return LS_OK;
}

/* Opens the current JSONL file or goes on in it. */
static ls_status next_record(ls_ctx *ctx, ls_corpus *corpus, const char **text, size_t *length) {
    if (corpus->source == NULL) {
        LS_TRY(ls__source_open(ctx, corpus->files.at[corpus->file].path, &corpus->source));
        corpus->buffer.length = corpus->line_begin = 0;
        corpus->line = 0;
        corpus->source_ended = false;
    }
    LS_TRY(read_record(ctx, corpus, text, length));
    if (*text == NULL) {
        ls__source_close(ctx, corpus->source);
        corpus->source = NULL;
        corpus->file++;
        *length = 0;
    }
    return LS_OK;
}

/* The next part of a lone document that is cut, from `begin` to where the one behind it begins. */
static void take_part(ls_corpus *corpus, const char *text, size_t length, size_t begin,
                      ls_document *out) {
    size_t end = length;
    for (int use = USES - 1; use > FOR_TRAINING; use--)
        if (corpus->cut[use] > begin && corpus->cut[use] < length) end = corpus->cut[use];
    out->text = text + begin;
    out->length = end - begin;
    out->index = corpus->index++;
    out->test = begin > 0 && begin == corpus->cut[FOR_TEST];
    out->validation = begin > 0 && begin == corpus->cut[FOR_VALIDATION];
    corpus->cut_at = end < length ? end : 0;
}

bool ls_corpus_has_jsonl(const ls_corpus *corpus) {
    for (size_t i = 0; i < corpus->files.count; i++)
        if (corpus->files.at[i].jsonl) return true;
    return false;
}

ls_status ls_corpus_next(ls_ctx *ctx, ls_corpus *corpus, ls_document *out) {
    *out = (ls_document){.name = corpus->name};
    if (corpus->cut_at > 0) {
        take_part(corpus, corpus->buffer.bytes, corpus->buffer.length, corpus->cut_at, out);
        return LS_OK;
    }
    while (corpus->file < corpus->files.count && out->length == 0) {
        if (corpus->files.at[corpus->file].jsonl) {
            LS_TRY(next_record(ctx, corpus, &out->text, &out->length));
        } else {
            LS_TRY(read_text(ctx, corpus));
            out->text = corpus->buffer.bytes;
            out->length = corpus->buffer.length;
        }
    }
    if (out->length == 0) {
        out->text = NULL;
        return LS_OK;
    }
    if (corpus->cut[FOR_VALIDATION] > 0 || corpus->cut[FOR_TEST] > 0) {
        /* the rest has to outlive the record or file it came from */
        if (out->text != corpus->buffer.bytes) {
            corpus->buffer.length = 0;
            corpus->line_begin = 0;
            ls_text_append(ctx, &corpus->buffer, out->text, out->length);
            LS_TRY(ls_text_status(&corpus->buffer));
            corpus->line_begin = corpus->buffer.length;
        }
        take_part(corpus, corpus->buffer.bytes, out->length, 0, out);
        return LS_OK;
    }
    out->index = corpus->index++;
    if (corpus->use != NULL && out->index < corpus->documents) {
        out->test = corpus->use[out->index] == FOR_TEST;
        out->validation = corpus->use[out->index] == FOR_VALIDATION;
        out->left_out = corpus->use[out->index] == FOR_NOTHING;
    }
    return LS_OK;
}

typedef struct ranked {
    int class;
    uint64_t hash;
    int64_t index;
} ranked;

static int compare_ranked(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->class != y->class) return x->class < y->class ? -1 : 1;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int class_of(size_t length) {
    int class = 0;
    for (size_t bytes = length >> 10; bytes > 0 && class < CLASSES; bytes >>= 2) class ++;
    return class;
}

/* How many of the `count` documents of a class are wanted: at least one of two or more. */
static int64_t wanted_of(double share, int64_t count, int64_t most) {
    if (share == 0) return 0;
    return ls_min(ls_max((int64_t)llround(share * (double)count), 1), most);
}

/* The document in the middle of those that are still for training. */
static void mark_one(const ranked *documents, int64_t count, uint8_t value, uint8_t *use) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t index = documents[(count / 2 + i) % count].index;
        if (use[index] != FOR_TRAINING) continue;
        use[index] = value;
        return;
    }
}

/* Marks the first of each class of the sorted documents; where no class is large enough, one
 * document all the same. Training keeps at least half of every class. */
static void mark(const ranked *documents, int64_t count, ls_corpus_shares shares, uint8_t *use) {
    int64_t marked[USES] = {0};
    for (int64_t begin = 0, end; begin < count; begin = end) {
        for (end = begin; end < count && documents[end].class == documents[begin].class;) end++;
        const int64_t all = end - begin, test = wanted_of(shares.test, all, all / 2);
        const int64_t validation = wanted_of(shares.validation, all, all / 2 - test);
        for (int64_t i = 0; i < test + validation; i++)
            use[documents[begin + i].index] = i < test ? FOR_TEST : FOR_VALIDATION;
        marked[FOR_TEST] += test;
        marked[FOR_VALIDATION] += validation;
    }
    if (shares.test > 0 && marked[FOR_TEST] == 0) mark_one(documents, count, FOR_TEST, use);
    if (shares.validation > 0 && marked[FOR_VALIDATION] == 0 && count > 2)
        mark_one(documents, count, FOR_VALIDATION, use);
}

/* Where the last share of a lone document begins: at the next line, or else letter, from there. */
static size_t cut_place(const char *text, size_t length, double share) {
    size_t at = length - (size_t)((double)length * share);
    if (at == 0 || at >= length) return 0;
    const char *line = memchr(text + at, '\n', length - at);
    if (line != NULL && (size_t)(line + 1 - text) < length) return (size_t)(line + 1 - text);
    while (at < length && ((uint8_t)text[at] & 0xC0) == 0x80) at++;
    return at < length ? at : 0;
}

static ls_status check_share(ls_ctx *ctx, const char *what, double share) {
    if (share >= 0 && share <= 0.5) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "a %s share lies between 0 and 0.5, not at %g", what, share);
}

ls_status ls_corpus_split(ls_ctx *ctx, ls_corpus *corpus, ls_corpus_shares shares) {
    ranked *documents = NULL;
    size_t count = 0, capacity = 0, cut[USES] = {0};
    ls_document document;
    ls_status status;
    LS_TRY(check_share(ctx, "test", shares.test));
    LS_TRY(check_share(ctx, "validation", shares.validation));
    ls_corpus_rewind(ctx, corpus);
    ls_free(ctx, corpus->use);
    corpus->use = NULL;
    corpus->documents = 0;
    memset(corpus->cut, 0, sizeof corpus->cut);
    for (;;) {
        LS_TRY_GOTO(ls_corpus_next(ctx, corpus, &document));
        if (document.text == NULL) break;
        status = LS_ENOMEM;
        if (!ls_array_reserve(ctx, &documents, &capacity, count + 1, sizeof *documents)) goto fail;
        uint64_t hash = ls_hash(document.name, strlen(document.name));
        documents[count++] = (ranked){class_of(document.length), hash, document.index};
        if (count > 1) continue;
        cut[FOR_TEST] = cut_place(document.text, document.length, shares.test);
        if (shares.validation > 0)
            cut[FOR_VALIDATION] =
                cut_place(document.text, cut[FOR_TEST] > 0 ? cut[FOR_TEST] : document.length,
                          shares.validation);
    }
    if (count == 0) {
        status = LS_FAIL(ctx, LS_EINPUT, "the corpus %s holds no text",
                         corpus->files.count == 1 ? corpus->files.at[0].path : "folder");
        goto fail;
    }
    status = LS_ENOMEM;
    corpus->use = ls_new(ctx, count, sizeof *corpus->use);
    if (corpus->use == NULL) goto fail;
    corpus->documents = (int64_t)count;
    if (count == 1) {
        memcpy(corpus->cut, cut, sizeof cut);
    } else {
        qsort(documents, count, sizeof *documents, compare_ranked);
        mark(documents, (int64_t)count, shares, corpus->use);
    }
    status = LS_OK;
fail:
    ls_free(ctx, documents);
    ls_corpus_rewind(ctx, corpus);
    return status;
}

void ls_corpus_leave_out(ls_corpus *corpus, int64_t index) {
    if (corpus->use != NULL && index >= 0 && index < corpus->documents)
        corpus->use[index] = FOR_NOTHING;
}
