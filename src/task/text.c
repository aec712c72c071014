/* Text classification of the Long Range Arena: the class of a text, byte by byte. Files are those
 * of the IMDb reviews (train/pos/NAME.txt, train/neg, test/pos, test/neg) or tables of label and
 * text. */
#include "task/task.h"

enum { CLASSES = 2 };

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    (void)given;
    return ls_bytes_check(ctx, "text", length);
}

static const char *record_of(const ls_bytes *fields, ls_labelled *out) {
    if (!ls_label_read(fields[0], CLASSES, &out->label)) return "the label must be 0 or 1";
    if (fields[1].count == 0) return "the text is empty";
    out->text[0] = fields[1];
    return NULL;
}

static ls_status load_folders(ls_ctx *ctx, const char *folder, const char *part_name, int part,
                              ls_records *out) {
    static const char *const names[CLASSES] = {"neg", "pos"};
    char inner[LS_OPTION_TEXT_BYTES + 64], path[LS_OPTION_TEXT_BYTES + 64];
    LS_TRY(ls_path_join(ctx, inner, sizeof inner, folder, part_name));
    if (!ls_path_is_folder(inner)) return LS_OK;
    for (int32_t label = 0; label < CLASSES; label++) {
        LS_TRY(ls_path_join(ctx, path, sizeof path, inner, names[label]));
        LS_TRY(ls_records_add_texts(ctx, out, part, path, label));
    }
    return LS_OK;
}

static ls_status load(ls_ctx *ctx, const char *folder, ls_records *out) {
    static const ls_table table = {.columns = 2, .record = record_of};
    LS_TRY(load_folders(ctx, folder, "train", LS_RECORDS_TRAIN, out));
    LS_TRY(load_folders(ctx, folder, "test", LS_RECORDS_TEST, out));
    if (out->parts[LS_RECORDS_TRAIN].count + out->parts[LS_RECORDS_TEST].count > 0) return LS_OK;
    return ls_records_add_tables(ctx, out, folder, &table);
}

const ls_task_type ls_task_text = {
    .name = "text",
    .summary = "the class of a text read byte by byte, from the user's files",
    .paper = "Tay et al. 2020 (Long Range Arena); Maas et al. 2011",
    .options = LS_RECORDS_OPTIONS,
    .length = 4000,
    .classes = CLASSES,
    .one_length = true,
    .vocabulary = ls_bytes_vocabulary,
    .check = check,
    .load = load,
    .encode = ls_bytes_encode,
};
