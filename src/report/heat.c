/* A heat map: values by two things. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/chart.h"

enum {
    LEFT = 50, /* at least: long names take more */
    LEFT_MAX = 200,
    LETTER = 7,
    RIGHT = 12,
    TOP = 26,
    BOTTOM = 62,
    ROW = 26,
    SHADES = 10,
    NARROW = 26
};

/* Shares of right answers, or values with a scale of their own. */
static bool has_scale(const ls_heat *heat) {
    return heat->dark < heat->bright || heat->dark > heat->bright;
}

static int shade_of(const ls_heat *heat, double value) {
    const double span = has_scale(heat) ? heat->bright - heat->dark : 1;
    const double share = (value - (has_scale(heat) ? heat->dark : 0)) / span;
    return (int)fmin(SHADES - 1, fmax(0, floor(share * SHADES + 1e-9)));
}

static int left_of(const ls_heat *heat) {
    size_t longest = 0;
    for (size_t r = 0; heat->row_names != NULL && r < heat->rows; r++)
        longest = strlen(heat->row_names[r]) > longest ? strlen(heat->row_names[r]) : longest;
    return (int)fmin(LEFT_MAX, fmax(LEFT, (double)longest * LETTER + 12));
}

static double column_width(const ls_heat *heat) {
    return (double)(LS_CHART_WIDTH - left_of(heat) - RIGHT) / (double)heat->columns;
}

static void put_value(const ls_heat *heat, double value, char *out, size_t bytes) {
    if (has_scale(heat))
        ls_chart_number(value, out, bytes);
    else
        snprintf(out, bytes, "%.0f", 100 * value);
}

static void put_title(ls_ctx *ctx, const ls_heat *heat, size_t row, size_t column, ls_text *out) {
    const size_t i = row * heat->columns + column;
    char value[32], low[32], high[32], length[32];
    put_value(heat, heat->value[i], value, sizeof value);
    ls_chart_count(heat->column_names == NULL ? heat->x[column] : NAN, length, sizeof length);
    ls_text_printf(ctx, out, "<title>");
    ls_html(ctx, heat->column_names == NULL ? length : heat->column_names[column], out);
    ls_text_printf(ctx, out, heat->column_names == NULL ? " tokens, " : ", ");
    if (heat->row_names == NULL)
        ls_text_printf(ctx, out, "depth %.0f %%", heat->y[row]);
    else
        ls_html(ctx, heat->row_names[row], out);
    ls_text_printf(ctx, out, ": %s %s", value, has_scale(heat) ? heat->unit : "%");
    if (heat->count != NULL) ls_text_printf(ctx, out, " of %.0f right", heat->count[i]);
    if (isfinite(heat->low[i]) && isfinite(heat->high[i])) {
        put_value(heat, heat->low[i], low, sizeof low);
        put_value(heat, heat->high[i], high, sizeof high);
        ls_text_printf(ctx, out, " (%s: %s to %s)", heat->spread == NULL ? "95 %" : heat->spread,
                       low, high);
    }
    ls_text_printf(ctx, out, "</title>");
}

static void draw_cell(ls_ctx *ctx, const ls_heat *heat, size_t row, size_t column, ls_text *out) {
    const size_t i = row * heat->columns + column;
    const double wide = column_width(heat), x = left_of(heat) + wide * (double)column;
    const int y = TOP + ROW * (int)row;
    char value[32];
    if (!isfinite(heat->value[i])) return;
    put_value(heat, heat->value[i], value, sizeof value);
    ls_text_printf(ctx, out,
                   "<g class=\"heat h%d\"><rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>",
                   shade_of(heat, heat->value[i]), x + 1, y + 1, wide - 2, ROW - 2);
    if (wide >= fmax(NARROW, (double)strlen(value) * LETTER))
        ls_text_printf(ctx, out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                       x + wide / 2, y + ROW / 2 + 4, value);
    put_title(ctx, heat, row, column, out);
    ls_text_printf(ctx, out, "</g>\n");
}

static void draw_labels(ls_ctx *ctx, const ls_heat *heat, ls_text *out) {
    const int bottom = TOP + ROW * (int)heat->rows, left = left_of(heat);
    const double wide = column_width(heat);
    for (size_t r = 0; r < heat->rows; r++) {
        char depth[32] = "";
        if (heat->row_names == NULL) snprintf(depth, sizeof depth, "%.0f %%", heat->y[r]);
        ls_text_printf(ctx, out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">",
                       left - 6, TOP + ROW * (int)r + ROW / 2 + 4);
        ls_html(ctx, heat->row_names == NULL ? depth : heat->row_names[r], out);
        ls_text_printf(ctx, out, "</text>\n");
    }
    for (size_t c = 0; c < heat->columns; c++) {
        char length[32] = "";
        if (heat->column_names == NULL) snprintf(length, sizeof length, "%.10g", heat->x[c]);
        ls_text_printf(ctx, out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                       left + wide * ((double)c + 0.5), bottom + 16);
        ls_html(ctx, heat->column_names == NULL ? length : heat->column_names[c], out);
        ls_text_printf(ctx, out, "</text>\n");
    }
    ls_text_printf(ctx, out, "<text class=\"name\" x=\"4\" y=\"12\">");
    ls_html(ctx, heat->y_label, out);
    ls_text_printf(ctx, out, "</text>\n<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"end\">",
                   LS_CHART_WIDTH - RIGHT, bottom + 34);
    ls_html(ctx, heat->x_label, out);
    ls_text_printf(ctx, out, "</text>\n");
}

/* Where the columns up to a length end. */
static double end_of(const ls_heat *heat, double length) {
    size_t within = 0;
    while (within < heat->columns && heat->x[within] <= length) within++;
    return left_of(heat) + column_width(heat) * (double)within;
}

/* Between the columns up to the trained length and those beyond it. */
static void draw_mark(ls_ctx *ctx, const ls_heat *heat, ls_text *out) {
    if (heat->mark_x <= 0) return;
    const double at = end_of(heat, heat->mark_x);
    const bool right = at > 0.6 * LS_CHART_WIDTH;
    ls_text_printf(ctx, out,
                   "<path class=\"mark\" stroke-width=\"2\" d=\"M%.1f %dV%d\"/>"
                   "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">",
                   at, TOP - 18, TOP + ROW * (int)heat->rows, right ? at - 4 : at + 4, TOP - 10,
                   right ? "end" : "start");
    ls_html(ctx, heat->mark_text, out);
    ls_text_printf(ctx, out, "</text>\n");
}

static void draw_marks(ls_ctx *ctx, const ls_heat *heat, ls_text *out) {
    for (size_t r = 0; heat->marks != NULL && r < heat->rows; r++)
        ls_text_printf(ctx, out,
                       "<path class=\"casing\" d=\"M%.1f %dv%d\"/><path class=\"border\" "
                       "d=\"M%.1f %dv%d\"/>\n",
                       end_of(heat, heat->marks[r]), TOP + ROW * (int)r, ROW,
                       end_of(heat, heat->marks[r]), TOP + ROW * (int)r, ROW);
}

static void draw_scale(ls_ctx *ctx, const ls_heat *heat, ls_text *out) {
    const int y = TOP + ROW * (int)heat->rows + 44, left = left_of(heat);
    char dark[32] = "0", bright[32] = "100";
    enum { STEP = 18 };
    for (int s = 0; s < SHADES; s++)
        ls_text_printf(ctx, out,
                       "<rect class=\"heat h%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\"/>", s,
                       left + STEP * s, y, STEP);
    if (has_scale(heat)) {
        put_value(heat, heat->dark, dark, sizeof dark);
        put_value(heat, heat->bright, bright, sizeof bright);
    }
    ls_text_printf(ctx, out,
                   "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>"
                   "<text class=\"tick\" x=\"%d\" y=\"%d\">%s ",
                   left - 6, y + 11, dark, left + STEP * SHADES + 6, y + 11, bright);
    ls_html(ctx, has_scale(heat) ? heat->unit : "% right", out);
    if (isfinite(heat->chance)) ls_text_printf(ctx, out, "; chance: %.0f", 100 * heat->chance);
    ls_text_printf(ctx, out, "</text>\n");
}

void ls_chart_heat(ls_ctx *ctx, const ls_heat *heat, ls_text *out) {
    if (heat->columns == 0 || heat->rows == 0) return;
    ls_figure_open(ctx, heat->title, TOP + ROW * (int)heat->rows + BOTTOM, "", out);
    for (size_t r = 0; r < heat->rows; r++)
        for (size_t c = 0; c < heat->columns; c++) draw_cell(ctx, heat, r, c, out);
    draw_labels(ctx, heat, out);
    draw_mark(ctx, heat, out);
    draw_marks(ctx, heat, out);
    draw_scale(ctx, heat, out);
    ls_text_printf(ctx, out, "</svg></figure>\n");
}
