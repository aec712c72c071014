#include "report/page_series.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool ls_column_wants(const ls_column *from, const json_t *row) {
    const char *key = json_object_get(row, "group") != NULL ? "group" : "protocol";
    return from->protocol == NULL || strcmp(ls_member_text(row, key), from->protocol) == 0;
}

ls_chart_series ls_series_empty(const ls_page *page, size_t arm, size_t room) {
    double *values = ls_new(page->ctx, 5 * (room + 1), sizeof *values);
    if (values == NULL) page->out->failed = true;
    ls_chart_series s = {.arm = ls_member_text(json_array_get(page->arms, arm), "name"),
                         .label = ls_member_text(json_array_get(page->arms, arm), "label"),
                         .style = page->styles[arm],
                         .own = ls_page_own_length(page, arm),
                         .x = values};
    ls_page_end(page, json_array_get(page->arms, arm), s.end);
    return s;
}

ls_chart_series ls_series_of_rows(const ls_page *page, size_t arm, const ls_column *from) {
    size_t room = json_array_size(from->rows);
    ls_chart_series s = ls_series_empty(page, arm, room);
    if (s.x == NULL) return s;
    s.y = s.x + room;
    const bool spread = from->low != NULL || from->band != NULL;
    s.low = spread ? s.y + room : NULL;
    s.high = spread ? s.low + room : NULL;
    s.beside = from->beside == NULL ? NULL : s.y + 3 * room;
    for (size_t i = 0; i < room; i++) {
        const json_t *row = json_array_get(from->rows, i);
        if (!ls_column_wants(from, row)) continue;
        s.x[s.count] = ls_member_real(row, from->x);
        s.y[s.count] = from->scale * ls_member_real(row, from->y);
        if (spread) {
            const ls_band band = from->band != NULL ? ls_band_of(row, from->band)
                                                    : (ls_band){ls_member_real(row, from->low),
                                                                ls_member_real(row, from->high)};
            s.low[s.count] = from->scale * band.low;
            s.high[s.count] = from->scale * band.high;
        }
        if (s.beside != NULL) s.beside[s.count] = ls_member_real(row, from->beside);
        s.count++;
    }
    return s;
}

static double number_at(const json_t *list, size_t index) {
    const json_t *value = json_array_get(list, index);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

ls_chart_series ls_series_of_columns(const ls_page *page, size_t arm, const json_t *row,
                                     const ls_column *from) {
    char name[64];
    const json_t *object = json_object_get(row, from->object);
    const json_t *x = json_object_get(object, from->x), *y = json_object_get(object, from->y);
    snprintf(name, sizeof name, "%s_sd", from->y);
    const json_t *deviation = json_object_get(object, name);
    const size_t room = json_array_size(y);
    ls_chart_series s = ls_series_empty(page, arm, room);
    if (s.x == NULL) return s;
    s.y = s.x + room;
    s.low = deviation == NULL ? NULL : s.y + room;
    s.high = deviation == NULL ? NULL : s.low + room;
    for (; s.count < room; s.count++) {
        const size_t i = s.count;
        s.x[i] = number_at(x, i);
        s.y[i] = from->scale * number_at(y, i);
        if (deviation == NULL) continue;
        ls_mean_interval(s.y[i], from->scale * number_at(deviation, i), ls_member_real(row, "n"),
                         &s.low[i], &s.high[i]);
    }
    return s;
}

const json_t *ls_series_positions(const json_t *arm, const char *protocol) {
    const json_t *lists = json_object_get(arm, "positions");
    const ls_column from = {.protocol = protocol};
    for (size_t i = 0; i < json_array_size(lists); i++)
        if (ls_column_wants(&from, json_array_get(lists, i))) return json_array_get(lists, i);
    return NULL;
}

ls_chart_series ls_series_of_positions(const ls_page *page, size_t arm, const char *protocol) {
    const double quarter = 1.189207115002721; /* 2^(1/4) */
    const json_t *found = ls_series_positions(json_array_get(page->arms, arm), protocol);
    const json_t *first = json_object_get(found, "first"), *end = json_object_get(found, "end");
    const json_t *loss = json_object_get(found, "loss");
    size_t room = json_array_size(loss);
    ls_chart_series s = ls_series_empty(page, arm, room);
    if (s.x == NULL) return s;
    s.y = s.x + room;
    double begins = 0, sum = 0, width = 0;
    for (size_t i = 0; i < room; i++) {
        const json_t *value = json_array_get(loss, i);
        double from = json_number_value(json_array_get(first, i)) + 1;
        double to = fmax(json_number_value(json_array_get(end, i)) + 1, from + 1);
        if (width == 0) begins = from;
        sum += (to - from) * (json_is_number(value) ? json_number_value(value) : NAN);
        width += to - from;
        if (to < quarter * begins && i + 1 < room) continue;
        s.x[s.count] = sqrt(begins * (to - 1));
        s.y[s.count++] = sum / width;
        sum = width = 0;
    }
    return s;
}
