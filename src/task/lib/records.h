/* Samples with classes that come from files: a label and one text, or two. Files are never trusted:
 * every record is checked when they are read. */
#ifndef LS_TASK_LIB_RECORDS_H
#define LS_TASK_LIB_RECORDS_H

#include "base/file.h"
#include "base/option.h"

typedef struct ls_bytes {
    const uint8_t *at;
    size_t count;
} ls_bytes;

typedef struct ls_labelled {
    ls_bytes text[2]; /* the second is that of a pair */
    int32_t label;
} ls_labelled;

enum { LS_RECORDS_TRAIN, LS_RECORDS_VALIDATION, LS_RECORDS_TEST, LS_RECORDS_PARTS };
typedef struct ls_records_part {
    ls_labelled *at;
    size_t count, capacity;
} ls_records_part;

typedef struct ls_records {
    ls_records_part parts[LS_RECORDS_PARTS];
    /* what the records point into */
    ls_whole *files;
    size_t file_count, file_capacity;
    ls_text *texts;
    size_t text_count, text_capacity;
} ls_records;

/* Options of every task that reads files. */
typedef struct ls_records_settings {
    char path[LS_OPTION_TEXT_BYTES];
    int split; /* the part that tests are of: the choices are the parts */
    double holdout;
} ls_records_settings;
extern const ls_option ls_records_options[3];
#define LS_RECORDS_OPTIONS LS_OPTIONS(ls_records_options, ls_records_settings)

void ls_records_free(ls_ctx *ctx, ls_records *records); /* NULL is fine */
const char *ls_records_part_name(int part);
ls_status ls_records_add(ls_ctx *ctx, ls_records *records, int part, ls_labelled record);
/* The bytes of a file, there as long as the records are. */
ls_status ls_records_read(ls_ctx *ctx, ls_records *records, const char *path, ls_bytes *out);
/* One record of this label for each .txt file of a folder, in the order of their names. */
ls_status ls_records_add_texts(ls_ctx *ctx, ls_records *records, int part, const char *folder,
                               int32_t label);
/* Of all records of a part, in their order. */
ls_status ls_records_hash(ls_ctx *ctx, const ls_records_part *part, uint64_t *out);
/* Moves a share of the training part to the validation part, unless that has records: always the
 * same ones. */
ls_status ls_records_hold_out(ls_ctx *ctx, double share, ls_records *records);

/* ---- tables: a record on each line, fields between tabs; the last may have tabs in it ---- */

enum { LS_TABLE_COLUMNS = 5 };
typedef struct ls_table {
    int columns;
    const char *header; /* a first line that is left out where it is there; may be NULL */
    /* Makes a record of the fields; NULL, or what is wrong with them. */
    const char *(*record)(const ls_bytes *fields, ls_labelled *out);
} ls_table;
/* All tables of a folder: NAME.tsv, where NAME has train, val or test in it. */
ls_status ls_records_add_tables(ls_ctx *ctx, ls_records *records, const char *folder,
                                const ls_table *table);
/* The lines of one table, for messages of the name `path`. */
ls_status ls_records_add_lines(ls_ctx *ctx, ls_records *records, int part, const ls_table *table,
                               const char *path, ls_bytes lines);
/* A label of 0 to classes - 1 (10 at most), also written as 1.0; false otherwise. */
bool ls_label_read(ls_bytes field, int classes, int32_t *out);

/* ---- encoding ---- */

/* Each byte is a token of 256. */
int64_t ls_bytes_encode(ls_bytes text, int64_t room, int32_t *tokens);
int64_t ls_bytes_vocabulary(const void *options);
/* LS_EUSE for lengths below 2. */
ls_status ls_bytes_check(ls_ctx *ctx, const char *task, int64_t length);

#endif
