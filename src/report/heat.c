/* Heat maps: scores by length and depth; values by layer and head. */
#include <math.h>
#include <stdio.h>

#include "report/chart.h"

enum { LEFT = 50, RIGHT = 12, TOP = 26, BOTTOM = 62, ROW = 26, SHADES = 10, NARROW = 26 };

static int shade_of(double value) {
    return (int)fmin(SHADES - 1, fmax(0, floor(value * SHADES + 1e-9)));
}

static double column_width(const ls_heat *heat) {
    return (double)(LS_CHART_WIDTH - LEFT - RIGHT) / (double)heat->columns;
}

static void draw_cell(ls_ctx *ctx, const ls_heat *heat, size_t row, size_t column, ls_text *out) {
    const size_t i = row * heat->columns + column;
    const double wide = column_width(heat), x = LEFT + wide * (double)column;
    const int y = TOP + ROW * (int)row;
    char length[32];
    if (!isfinite(heat->value[i])) return;
    const int shade = shade_of(heat->value[i]);
    ls_chart_count(heat->x[column], length, sizeof length);
    ls_text_printf(ctx, out,
                   "<g class=\"heat h%d\"><rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>",
                   shade, x + 1, y + 1, wide - 2, ROW - 2);
    if (wide >= NARROW)
        ls_text_printf(ctx, out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>",
                       x + wide / 2, y + ROW / 2 + 4, 100 * heat->value[i]);
    ls_text_printf(ctx, out, "<title>%s tokens, depth %.0f %%: %.0f %% of %.0f right", length,
                   heat->y[row], 100 * heat->value[i], heat->count[i]);
    if (isfinite(heat->low[i]) && isfinite(heat->high[i]))
        ls_text_printf(ctx, out, " (95 %%: %.0f to %.0f)", 100 * heat->low[i], 100 * heat->high[i]);
    ls_text_printf(ctx, out, "</title></g>\n");
}

static void draw_labels(ls_ctx *ctx, const ls_heat *heat, ls_text *out) {
    const int bottom = TOP + ROW * (int)heat->rows;
    const double wide = column_width(heat);
    for (size_t r = 0; r < heat->rows; r++)
        ls_text_printf(
            ctx, out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%.0f %%</text>\n",
            LEFT - 6, TOP + ROW * (int)r + ROW / 2 + 4, heat->y[r]);
    for (size_t c = 0; c < heat->columns; c++)
        ls_text_printf(
            ctx, out,
            "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.10g</text>\n",
            LEFT + wide * ((double)c + 0.5), bottom + 16, heat->x[c]);
    ls_text_printf(ctx, out, "<text class=\"name\" x=\"4\" y=\"12\">");
    ls_html(ctx, heat->y_label, out);
    ls_text_printf(ctx, out, "</text>\n<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"end\">",
                   LS_CHART_WIDTH - RIGHT, bottom + 34);
    ls_html(ctx, heat->x_label, out);
    ls_text_printf(ctx, out, "</text>\n");
}

/* Between the columns up to the trained length and those beyond it. */
static void draw_mark(ls_ctx *ctx, const ls_heat *heat, ls_text *out) {
    size_t within = 0;
    while (within < heat->columns && heat->x[within] <= heat->mark_x) within++;
    if (heat->mark_x <= 0) return;
    const double at = LEFT + column_width(heat) * (double)within;
    const bool right = at > 0.6 * LS_CHART_WIDTH;
    ls_text_printf(ctx, out,
                   "<path class=\"mark\" stroke-width=\"2\" d=\"M%.1f %dV%d\"/>"
                   "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">",
                   at, TOP - 18, TOP + ROW * (int)heat->rows, right ? at - 4 : at + 4, TOP - 10,
                   right ? "end" : "start");
    ls_html(ctx, heat->mark_text, out);
    ls_text_printf(ctx, out, "</text>\n");
}

static void draw_scale(ls_ctx *ctx, const ls_heat *heat, ls_text *out) {
    const int y = TOP + ROW * (int)heat->rows + 44;
    enum { STEP = 18 };
    for (int s = 0; s < SHADES; s++)
        ls_text_printf(ctx, out,
                       "<rect class=\"heat h%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\"/>", s,
                       LEFT + STEP * s, y, STEP);
    ls_text_printf(ctx, out,
                   "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">0</text>"
                   "<text class=\"tick\" x=\"%d\" y=\"%d\">100 %% right",
                   LEFT - 6, y + 11, LEFT + STEP * SHADES + 6, y + 11);
    if (isfinite(heat->chance)) ls_text_printf(ctx, out, "; chance: %.0f", 100 * heat->chance);
    ls_text_printf(ctx, out, "</text>\n");
}

void ls_chart_heat(ls_ctx *ctx, const ls_heat *heat, ls_text *out) {
    if (heat->columns == 0 || heat->rows == 0) return;
    ls_figure_open(ctx, heat->title, TOP + ROW * (int)heat->rows + BOTTOM, out);
    for (size_t r = 0; r < heat->rows; r++)
        for (size_t c = 0; c < heat->columns; c++) draw_cell(ctx, heat, r, c, out);
    draw_labels(ctx, heat, out);
    draw_mark(ctx, heat, out);
    draw_scale(ctx, heat, out);
    ls_text_printf(ctx, out, "</svg></figure>\n");
}

/* ---- heads ---- */

enum { BOTH_SHADES = 9, MAP_BOTTOM = 66 };

/* Many layers have low rows, so that a map fits a screen. */
static int row_height(const ls_head_map *map) {
    return map->layers <= 12 ? 22 : map->layers <= 40 ? 14 : 8;
}

static double head_width(const ls_head_map *map) {
    return (double)(LS_CHART_WIDTH - LEFT - RIGHT) / (double)map->heads;
}

static void map_shade(const ls_head_map *map, double value, char *out, size_t bytes) {
    const double share = value / map->most;
    if (!map->both_ways)
        snprintf(out, bytes, "h%d", shade_of(share));
    else
        snprintf(out, bytes, "v%d",
                 (int)fmin(BOTH_SHADES - 1, fmax(0, floor((share + 1) / 2 * BOTH_SHADES))));
}

static void draw_head(ls_ctx *ctx, const ls_head_map *map, size_t row, size_t column,
                      ls_text *out) {
    const double value = map->value[row * map->heads + column], wide = head_width(map);
    const int high = row_height(map);
    char shade[16];
    if (!isfinite(value)) return;
    map_shade(map, value, shade, sizeof shade);
    ls_text_printf(ctx, out,
                   "<rect class=\"heat %s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\">"
                   "<title>layer %.0f, head %.0f: %.4g</title></rect>\n",
                   shade, LEFT + wide * (double)column, TOP + high * (int)row,
                   fmax(1, wide - (wide > 8)), high - (high > 8), map->layer[row],
                   map->head[column], value);
}

/* Numbers of layers and heads, as many as have room. */
static void label_map(ls_ctx *ctx, const ls_head_map *map, ls_text *out) {
    const int high = row_height(map), bottom = TOP + high * (int)map->layers;
    const double wide = head_width(map);
    const size_t rows = high >= 14 ? 1 : 4, columns = wide >= 20 ? 1 : wide >= 10 ? 2 : 8;
    for (size_t r = 0; r < map->layers; r += rows)
        ls_text_printf(ctx, out,
                       "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%.0f</text>\n",
                       LEFT - 6, TOP + high * (int)r + high / 2 + 4, map->layer[r]);
    for (size_t c = 0; c < map->heads; c += columns)
        ls_text_printf(
            ctx, out,
            "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
            LEFT + wide * ((double)c + 0.5), bottom + 14, map->head[c]);
    ls_text_printf(ctx, out,
                   "<text class=\"name\" x=\"4\" y=\"12\">layer</text>\n"
                   "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"end\">head</text>\n",
                   LS_CHART_WIDTH - RIGHT, bottom + 30);
}

static void draw_map_scale(ls_ctx *ctx, const ls_head_map *map, ls_text *out) {
    enum { STEP = 18 };
    const int y = TOP + row_height(map) * (int)map->layers + 44;
    const int shades = map->both_ways ? BOTH_SHADES : SHADES;
    char most[32];
    for (int s = 0; s < shades; s++)
        ls_text_printf(ctx, out,
                       "<rect class=\"heat %s%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\"/>",
                       map->both_ways ? "v" : "h", s, LEFT + STEP * s, y, STEP);
    ls_chart_number(map->most, most, sizeof most);
    ls_text_printf(ctx, out,
                   "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s%s</text>"
                   "<text class=\"tick\" x=\"%d\" y=\"%d\">%s</text>\n",
                   LEFT - 6, y + 11, map->both_ways ? "-" : "", map->both_ways ? most : "0",
                   LEFT + STEP * shades + 6, y + 11, most);
}

void ls_chart_head_map(ls_ctx *ctx, const ls_head_map *map, ls_text *out) {
    if (map->heads == 0 || map->layers == 0) return;
    ls_figure_open(ctx, map->title, TOP + row_height(map) * (int)map->layers + MAP_BOTTOM, out);
    for (size_t r = 0; r < map->layers; r++)
        for (size_t c = 0; c < map->heads; c++) draw_head(ctx, map, r, c, out);
    label_map(ctx, map, out);
    draw_map_scale(ctx, map, out);
    ls_text_printf(ctx, out, "</svg></figure>\n");
}
