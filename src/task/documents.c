/* Document retrieval of the Long Range Arena: whether one of two papers cites the other, byte by
 * byte. The tables are those of its release: label, two names, two texts. */
#include "task/task.h"

enum { CLASSES = 2 };

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    (void)given;
    return ls_bytes_check(ctx, "documents", length);
}

static const char *record_of(const ls_bytes *fields, ls_labelled *out) {
    if (!ls_label_read(fields[0], CLASSES, &out->label)) return "the label must be 0 or 1";
    if (fields[3].count == 0 || fields[4].count == 0) return "a text is empty";
    out->text[0] = fields[3];
    out->text[1] = fields[4];
    return NULL;
}

static ls_status load(ls_ctx *ctx, const char *folder, ls_records *out) {
    static const ls_table table = {.columns = 5, .record = record_of};
    return ls_records_add_tables(ctx, out, folder, &table);
}

const ls_task_type ls_task_documents = {
    .name = "documents",
    .summary = "whether two documents belong together, byte by byte, from the user's files",
    .paper = "Tay et al. 2020 (Long Range Arena); Radev et al. 2013",
    .options = LS_RECORDS_OPTIONS,
    .length = 4000,
    .classes = CLASSES,
    .one_length = true,
    .pairs = true,
    .vocabulary = ls_bytes_vocabulary,
    .check = check,
    .load = load,
    .encode = ls_bytes_encode,
};
