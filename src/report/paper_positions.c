/* Loss by position in pages and tables: over ranges that double, of the longest windows. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_series.h"
#include "report/paper.h"

enum { NAME_BYTES = 128, CAPTION_BYTES = 256, RANGES_MAX = LS_PAGE_LENGTHS_MAX, FIRST_RANGE = 16 };

static const json_t *arm_at(const ls_page *page, size_t index) {
    return json_array_get(page->arms, index);
}

static double at(const json_t *row, const char *column, size_t index) {
    const json_t *value = json_array_get(json_object_get(row, column), index);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The mean over the positions whose bucket begins from `from` to below `to`; NAN: there are none. */
static double mean_between(const json_t *row, double from, double to) {
    double sum = 0, width = 0;
    for (size_t i = 0; i < json_array_size(json_object_get(row, "first")); i++) {
        const double first = at(row, "first", i), own = at(row, "end", i) - first;
        if (!(first >= from && first < to)) continue;
        sum += own * at(row, "loss", i);
        width += own;
    }
    return sum / width;
}

static double end_of(double start) {
    return start == 0 ? FIRST_RANGE : 2 * start;
}

/* 0, 16, 32, 64 and so on, as far as a window goes. */
static size_t ranges_of(double length, double starts[RANGES_MAX]) {
    size_t count = 0;
    for (double start = 0; start < length && count < RANGES_MAX; start = end_of(start))
        starts[count++] = start;
    return count;
}

bool ls_paper_positions_table(ls_paper *p, const char *protocol) {
    char texts[RANGES_MAX][24], caption[CAPTION_BYTES];
    const char *names[RANGES_MAX + 2];
    double starts[RANGES_MAX], longest = 0;
    for (size_t a = 0; a < p->page->count; a++) {
        const json_t *row = ls_series_positions(arm_at(p->page, a), protocol);
        if (row != NULL) longest = fmax(longest, ls_member_real(row, "length"));
    }
    const size_t count = ranges_of(longest, starts);
    if (count == 0) return false;
    snprintf(caption, sizeof caption,
             "Loss in nats per token by position in windows of up to %.0f tokens (%.60s): means "
             "from a column's position to below the next one's, and over seeds, without their "
             "spread.",
             longest, protocol);
    ls_paper_open(p, caption, names, ls_paper_name_columns(starts, count, texts, names));
    for (size_t a = 0; a < p->page->count; a++) {
        const json_t *arm = arm_at(p->page, a), *row = ls_series_positions(arm, protocol);
        ls_paper_begin_row(p, arm, ls_member_real(arm, "seeds"));
        for (size_t i = 0; i < count; i++)
            ls_paper_number(
                p, (ls_paper_value){.value = mean_between(row, starts[i], end_of(starts[i])),
                                    .half = NAN,
                                    .decimals = 3});
        ls_paper_end_row(p);
    }
    ls_paper_close(p);
    return true;
}

double ls_paper_positions(const ls_page *page, const char *words) {
    char arm[NAME_BYTES], protocol[NAME_BYTES], rest[NAME_BYTES];
    double start;
    if (sscanf(words, "%127s %127s %lf %1s", arm, protocol, &start, rest) != 3) return NAN;
    const json_t *row = ls_series_positions(ls_paper_arm(page, arm), protocol);
    double starts[RANGES_MAX];
    const size_t count = ranges_of(row == NULL ? 0 : ls_member_real(row, "length"), starts);
    for (size_t i = 0; i < count; i++)
        if (starts[i] == start) return mean_between(row, start, end_of(start));
    return NAN;
}
