/* Values by layer and head. */
#include <math.h>
#include <stdio.h>

#include "report/chart.h"

enum { LEFT = 50, RIGHT = 12, TOP = 26, BOTTOM = 66, SHADES = 10, BOTH_SHADES = 9 };

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
        snprintf(out, bytes, "h%d", (int)fmin(SHADES - 1, fmax(0, floor(share * SHADES + 1e-9))));
    else
        snprintf(out, bytes, "v%d",
                 (int)fmin(BOTH_SHADES - 1, fmax(0, floor((share + 1) / 2 * BOTH_SHADES))));
}

static void draw_head(ls_ctx *ctx, const ls_head_map *map, size_t index, ls_text *out) {
    const double value = map->value[index], wide = head_width(map);
    const size_t row = map->place[index].row, column = map->place[index].column;
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
    ls_figure_open(ctx, map->title, TOP + row_height(map) * (int)map->layers + BOTTOM, "", out);
    for (size_t i = 0; i < map->count; i++) draw_head(ctx, map, i, out);
    label_map(ctx, map, out);
    draw_map_scale(ctx, map, out);
    ls_text_printf(ctx, out, "</svg></figure>\n");
}
