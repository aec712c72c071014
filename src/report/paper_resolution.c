/* Attention resolution and oscillation in pages and tables: by length, by layer, by distance. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/paper.h"

enum { NAME_BYTES = 128, CAPTION_BYTES = 512, LAYERS_MAX = LS_PAGE_LENGTHS_MAX };

/* What rows of the resolution hold, by the word that asks for it. */
typedef struct kind {
    const char *word, *of_layer; /* the column of layers, or NULL */
    bool always;                 /* among the tables for a paper */
    ls_paper_measure measure;
} kind;
static const kind kinds[] = {
    {"resolution",
     "R",
     true,
     {"R_head", "100 R, the attention resolution by head", 2, 100, false, true, NULL}},
    {"oscillation",
     "O",
     true,
     {"O_layer", "O, the oscillation of scores by layer", 3, 1, false, false, NULL}},
    {"expected-oscillation",
     NULL,
     false,
     {"O_expected", "O of the expected scores", 3, 1, false, false, "by the rotation alone"}}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const kind *kind_named(const char *word) {
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].word, word) == 0) return &kinds[i];
    return NULL;
}

static const json_t *row_at(const json_t *arm, double length) {
    return ls_page_row(arm, "resolution", "", length);
}

/* The number of a column at the place where another one has a value; NAN: there is none. */
static double column_at(const json_t *object, const char *where, double value, const char *column) {
    const json_t *places = json_object_get(object, where);
    for (size_t i = 0; i < json_array_size(places); i++) {
        const json_t *found = json_array_get(json_object_get(object, column), i);
        if (json_number_value(json_array_get(places, i)) == value && json_is_number(found))
            return json_number_value(found);
    }
    return NAN;
}

/* ---- tables ---- */

/* A layer's mean over seeds, and half of its interval. */
static ls_paper_value of_layer(const kind *k, const json_t *row, double layer) {
    char deviation[16];
    double low, high;
    const json_t *layers = json_object_get(row, "by_layer");
    const double scale = k->measure.scale;
    snprintf(deviation, sizeof deviation, "%s_sd", k->of_layer);
    const double mean = column_at(layers, "layer", layer, k->of_layer);
    ls_mean_interval(mean, column_at(layers, "layer", layer, deviation), ls_member_real(row, "n"),
                     &low, &high);
    return (ls_paper_value){
        .value = scale * mean, .half = scale * (high - low) / 2, .decimals = k->measure.decimals};
}

static bool put_layers(ls_paper *p, const kind *k, double length) {
    char texts[LAYERS_MAX][24], caption[CAPTION_BYTES];
    const char *names[LAYERS_MAX + 2];
    double layers[LAYERS_MAX];
    size_t count = 0;
    for (size_t a = 0; a < p->page->count; a++) {
        const json_t *row = row_at(json_array_get(p->page->arms, a), length);
        const json_t *numbers = json_object_get(json_object_get(row, "by_layer"), k->of_layer);
        const size_t own = json_array_size(numbers);
        if (own > count) count = own < LAYERS_MAX ? own : LAYERS_MAX;
    }
    if (count == 0) return false;
    for (size_t i = 0; i < count; i++) layers[i] = (double)i + 1;
    snprintf(caption, sizeof caption,
             "%s%s of each layer's head-averaged scores in windows of %.0f: %s.",
             k->measure.scale == 100 ? "100 " : "", k->of_layer, length,
             ls_paper_spread(p->page, false));
    ls_paper_open(p, caption, names, ls_paper_name_columns(layers, count, texts, names));
    for (size_t a = 0; a < p->page->count; a++) {
        const json_t *arm = json_array_get(p->page->arms, a);
        ls_paper_begin_row(p, arm, ls_member_real(arm, "seeds"));
        for (size_t i = 0; i < count; i++)
            ls_paper_number(p, of_layer(k, row_at(arm, length), layers[i]));
        ls_paper_end_row(p);
    }
    ls_paper_close(p);
    return true;
}

bool ls_paper_resolution_table(ls_paper *p, const char *words) {
    char word[NAME_BYTES] = "", layers[NAME_BYTES] = "", rest[NAME_BYTES];
    double length;
    const int found = sscanf(words, "%127s %127s %lf %1s", word, layers, &length, rest);
    const kind *k = kind_named(word);
    if (k == NULL) return false;
    if (found == 1) return ls_paper_lengths(p, &k->measure, "resolution", "");
    return found == 3 && strcmp(layers, "layers") == 0 && k->of_layer != NULL &&
           put_layers(p, k, length);
}

void ls_paper_resolution_all(ls_paper *p) {
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].always) ls_paper_lengths(p, &kinds[i].measure, "resolution", "");
}

/* ---- numbers of sentences ---- */

double ls_paper_resolution(const ls_page *page, const char *words) {
    char word[NAME_BYTES] = "", arm[NAME_BYTES] = "", rest[NAME_BYTES];
    double length = NAN, at = NAN;
    if (sscanf(words, "%127s %127s %lf", word, arm, &length) != 3) return NAN;
    const json_t *row = row_at(ls_paper_arm(page, arm), length),
                 *scores = json_object_get(row, "scores");
    const bool score = strcmp(word, "scores") == 0;
    if (score || strcmp(word, "expected") == 0) {
        if (sscanf(words, "%*s %*s %*f %lf %1s", &at, rest) != 1) return NAN;
        return column_at(scores, "distance", at, score ? "score" : "expected");
    }
    const int half = strncmp(word, "band-", 5) == 0 ? 5 : 0;
    const kind *k = kind_named(word + half);
    if (k == NULL) return NAN;
    if (sscanf(words, "%*s %*s %*f layer %lf %1s", &at, rest) == 1 && k->of_layer != NULL) {
        const ls_paper_value value = of_layer(k, row, at);
        return half > 0 ? value.half : value.value;
    }
    if (sscanf(words, "%*s %*s %*f %1s", rest) == 1) return NAN;
    return half > 0 ? ls_paper_half(&k->measure, row) : ls_paper_mean(&k->measure, row);
}
