/* Many-shot learning: how well labels are told from examples in the context, by their number.
 *
 * The file has lines of label, tab, text. In each prompt the labels are renamed to random letters,
 * so that nothing but the examples tells them; the layout is "Question: TEXT\nType: LETTER". An own
 * form: LCEG's many-shot TREC, whose files are not public, names the classes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/lib/haystack.h"
#include "suite/lib/lines.h"

enum { LABELS_MAX = 26, LABEL = 64, SHOTS = 15 };

/* Numbers of examples that LCEG takes. */
static const int64_t usual_shots[SHOTS] = {1,   5,   10,  25,  50,  75,  100, 200,
                                           300, 400, 500, 625, 750, 875, 1000};

typedef struct manyshot {
    ls_lines lines;
    char labels[LABELS_MAX][LABEL];
    int64_t label_count, *label_of; /* [lines] */
    int64_t shots[SHOTS], shot_count, samples;
} manyshot;

static ls_status read_label(ls_suite *suite, int64_t line) {
    manyshot *own = suite->own;
    const char *at = own->lines.at[line];
    const char *tab = memchr(at, '\t', own->lines.length[line]);
    const size_t length = tab == NULL ? 0 : (size_t)(tab - at);
    if (length == 0 || length >= LABEL)
        return LS_FAIL(suite->ctx, LS_EINPUT, "%s: line %lld is not label, tab, text",
                       own->lines.path, (long long)own->lines.number[line]);
    int64_t l = 0;
    while (l < own->label_count &&
           (strncmp(own->labels[l], at, length) != 0 || own->labels[l][length] != '\0'))
        l++;
    if (l == LABELS_MAX)
        return LS_FAIL(suite->ctx, LS_EINPUT, "%s has more than %d labels", own->lines.path,
                       LABELS_MAX);
    if (l == own->label_count)
        snprintf(own->labels[own->label_count++], LABEL, "%.*s", (int)length, at);
    own->label_of[line] = l;
    return LS_OK;
}

static ls_status open_file(ls_suite *suite) {
    manyshot *own = suite->own;
    LS_TRY(ls_lines_open(suite, suite->settings.path, &own->lines));
    const int64_t lines = own->lines.count;
    own->label_of = ls_new(suite->ctx, (size_t)lines, sizeof *own->label_of);
    if (own->label_of == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < lines; i++) LS_TRY(read_label(suite, i));
    if (own->label_count < 2)
        return LS_FAIL(suite->ctx, LS_EINPUT, "%s has one label alone", own->lines.path);
    for (int s = 0; s < SHOTS; s++)
        if (usual_shots[s] < lines) own->shots[own->shot_count++] = usual_shots[s];
    own->samples = suite->settings.samples > 0 ? suite->settings.samples : 20;
    suite->groups = own->shot_count * own->samples;
    suite->lengths = ls_new(suite->ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t g = 0; g < suite->groups; g++)
        suite->lengths[g] =
            own->shots[g / own->samples] * ((int64_t)own->lines.whole.length / lines + 18);
    suite->chance = 1.0 / (double)own->label_count;
    suite->measure = "the likeliest letter is the label's";
    return LS_OK;
}

static void put_example(const ls_suite *suite, int64_t line, ls_text *out) {
    const manyshot *own = suite->own;
    const size_t before = strlen(own->labels[own->label_of[line]]) + 1;
    ls_text_printf(suite->ctx, out, "Question: ");
    ls_text_append(suite->ctx, out, own->lines.at[line] + before, own->lines.length[line] - before);
    ls_text_printf(suite->ctx, out, "\nType:");
}

static ls_status make(ls_suite *suite, int64_t number, ls_suite_group *out) {
    const manyshot *own = suite->own;
    const int64_t shots = own->shots[number / own->samples];
    const ls_random random = ls_suite_random(suite, "manyshot examples", number);
    const ls_random naming = ls_suite_random(suite, "manyshot letters", number);
    char names[LABELS_MAX][4], id[64];
    const char *list[LABELS_MAX];
    ls_text text = {0};
    LS_TRY(ls_group_room(out, 1, 1));
    ls_suite_item *item = &out->items[0];
    for (int64_t l = 0; l < own->label_count; l++) {
        snprintf(names[l], sizeof names[l], " %c",
                 (char)('A' + (char)ls_random_permute(naming, (uint64_t)l, LABELS_MAX)));
        list[l] = names[l];
    }
    int64_t line = 0;
    for (int64_t i = 0; i <= shots; i++) {
        line = (int64_t)ls_random_permute(random, (uint64_t)i, (uint64_t)own->lines.count);
        put_example(suite, line, &text);
        if (i < shots) ls_text_printf(suite->ctx, &text, "%s\n\n", names[own->label_of[line]]);
    }
    ls_status status = ls_text_status(&text);
    if (status == LS_OK)
        status = ls_suite_encode(suite, &out->pool, text.bytes, text.length, 0, &out->contexts[0]);
    ls_text_clear(suite->ctx, &text);
    LS_TRY(status);
    LS_TRY(ls_suite_check_window(suite, "a prompt with its examples", out->contexts[0].count + 2));
    snprintf(id, sizeof id, "%lld", (long long)number);
    item->id = ls_pool_copy(&out->pool, id, strlen(id));
    item->cell = ls_group_keep(out, json_pack("{s:I}", "shots", (json_int_t)shots));
    item->references = ls_group_keep(out, json_pack("[s]", own->labels[own->label_of[line]]));
    return ls_suite_candidates(suite, out, item, list, own->label_count, own->label_of[line]);
}

static void clear(ls_suite *suite) {
    manyshot *own = suite->own;
    ls_lines_close(suite->ctx, &own->lines);
    ls_free(suite->ctx, own->label_of);
}

const ls_suite_type ls_suite_manyshot = {
    .name = "manyshot",
    .summary = "labels told from examples in the context, by their number",
    .paper = "Lu et al. 2024 (LCEG)",
    .likelihood = true,
    .needs_path = true,
    .size = sizeof(manyshot),
    .open = open_file,
    .make = make,
    .clear = clear,
};
