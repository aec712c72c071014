/* ListOps of the Long Range Arena from the files of its release: tables of a list and its value.
 * Round brackets say nothing and are left out. */
#include <string.h>

#include "task/lib/listops.h"
#include "task/task.h"

static int64_t vocabulary(const void *given) {
    (void)given;
    return LS_LISTOPS_TOKENS;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    (void)given;
    return ls_bytes_check(ctx, "listops_file", length);
}

/* Takes a word off; false at the end. */
static bool take_word(ls_bytes *text, ls_bytes *out) {
    while (text->count > 0 && text->at[0] == ' ') text->at++, text->count--;
    out->at = text->at;
    out->count = 0;
    while (text->count > 0 && text->at[0] != ' ') text->at++, text->count--, out->count++;
    return out->count > 0;
}

enum { NOTHING = -1, UNKNOWN = -2 };

static int32_t token_of(ls_bytes word) {
    static const struct {
        const char *word;
        int32_t token;
    } known[] = {{"(", NOTHING},           {")", NOTHING},           {"[MIN", LS_LISTOPS_MIN},
                 {"[MAX", LS_LISTOPS_MAX}, {"[MED", LS_LISTOPS_MED}, {"[SM", LS_LISTOPS_SUM},
                 {"]", LS_LISTOPS_CLOSE}};
    int32_t digit;
    if (word.count == 1 && ls_label_read(word, LS_LISTOPS_DIGITS, &digit)) return digit;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i].word) == word.count && memcmp(known[i].word, word.at, word.count) == 0)
            return known[i].token;
    return UNKNOWN;
}

static int64_t encode(ls_bytes text, int64_t room, int32_t *tokens) {
    ls_bytes word;
    int64_t count = 0;
    while (count < room && take_word(&text, &word)) {
        const int32_t token = token_of(word);
        if (token >= 0) tokens[count++] = token;
    }
    return count;
}

static const char *record_of(const ls_bytes *fields, ls_labelled *out) {
    ls_bytes left = fields[0], word;
    bool any = false;
    if (!ls_label_read(fields[1], LS_LISTOPS_DIGITS, &out->label))
        return "the value must be 0 to 9";
    while (take_word(&left, &word)) {
        const int32_t token = token_of(word);
        if (token == UNKNOWN) return "the list has a word that is none of ListOps";
        any |= token >= 0;
    }
    if (!any) return "the list is empty";
    out->text[0] = fields[0];
    return NULL;
}

static ls_status load(ls_ctx *ctx, const char *folder, ls_records *out) {
    static const ls_table table = {2, "Source\tTarget", record_of};
    return ls_records_add_tables(ctx, out, folder, &table);
}

const ls_task_type ls_task_listops_file = {
    .name = "listops_file",
    .summary = "the value of a nested list, from the user's ListOps files",
    .paper = "Tay et al. 2020 (Long Range Arena); Nangia & Bowman 2018",
    .options = LS_RECORDS_OPTIONS,
    .length = 2000,
    .classes = LS_LISTOPS_DIGITS,
    .one_length = true,
    .vocabulary = vocabulary,
    .check = check,
    .load = load,
    .encode = encode,
};
