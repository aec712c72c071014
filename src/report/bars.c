/* Horizontal bars: a group per arm. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/axis.h"
#include "report/chart.h"

enum {
    WIDTH = LS_CHART_WIDTH,
    BAR_LEFT = 128, /* at least: long names take more */
    BAR_LEFT_MAX = 240,
    LETTER = 7, /* widest that a letter of a name is on average */
    NAME_GAP = 12,
    BAR_RIGHT = 56,
    BAR_TOP = 22,
    BAR_BOTTOM = 40,
    BAR_STEP = 12,
    GROUP_GAP = 10
};

static void draw_bar(ls_ctx *ctx, const ls_bars *bars, size_t group, size_t bar, const ls_axis *x,
                     double top, ls_text *out) {
    size_t i = group * bars->bars + bar;
    double value = bars->value[i];
    if (!ls_axis_takes(x, value)) return;
    char label[32];
    double zero = ls_axis_place(x, 0), end = ls_axis_place(x, value);
    ls_text_printf(ctx, out,
                   "<rect class=\"bar b%zu\" data-value=\"%.7g\" x=\"%.1f\" y=\"%.1f\" "
                   "width=\"%.1f\" height=\"%d\"/>",
                   bar % 6, value, fmin(zero, end), top, fmax(fabs(end - zero), 0.8), BAR_STEP - 2);
    double edge = end;
    if (ls_axis_takes(x, bars->low[i]) && ls_axis_takes(x, bars->high[i]) &&
        bars->low[i] < bars->high[i]) {
        double low = ls_axis_place(x, bars->low[i]), high = ls_axis_place(x, bars->high[i]);
        edge = fmax(end, high);
        ls_text_printf(ctx, out,
                       "<path class=\"whisker\" data-low=\"%.7g\" data-high=\"%.7g\" "
                       "d=\"M%.1f %.1fH%.1f\"/>",
                       bars->low[i], bars->high[i], low, top + (BAR_STEP - 2) / 2.0, high);
    }
    snprintf(label, sizeof label, "%+.3f", value);
    ls_text_printf(ctx, out, "<text class=\"value\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                   fmax(edge, zero) + 4, top + BAR_STEP - 3, label);
}

static void draw_bar_axis(ls_ctx *ctx, const ls_bars *bars, const ls_axis *x, int height,
                          ls_text *out) {
    ls_text_printf(ctx, out, "<g class=\"axes\">\n");
    for (int i = 0; i < x->ticks; i++)
        ls_text_printf(ctx, out,
                       "<path class=\"%s\" d=\"M%.1f %dV%d\"/><text class=\"tick\" x=\"%.1f\" "
                       "y=\"%d\" text-anchor=\"middle\">%.6g</text>\n",
                       x->tick[i] == 0 ? "axis" : "grid", ls_axis_place(x, x->tick[i]), BAR_TOP,
                       height - BAR_BOTTOM, ls_axis_place(x, x->tick[i]), height - BAR_BOTTOM + 16,
                       x->tick[i]);
    ls_text_printf(ctx, out, "</g>\n<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"end\">",
                   WIDTH - 4, height - 6);
    ls_html(ctx, bars->x_label, out);
    ls_text_printf(ctx, out, "</text>\n");
}

static int64_t name_width(const char *name) {
    return (int64_t)strlen(name) * LETTER;
}

/* Room for the longest name. */
static int bar_left(const ls_bars *bars) {
    int64_t longest = 0;
    for (size_t g = 0; g < bars->groups; g++)
        longest = ls_max(longest, name_width(bars->labels[g]));
    return (int)ls_min(ls_max(longest + NAME_GAP, BAR_LEFT), BAR_LEFT_MAX);
}

/* Names that are longer than any room there is are squeezed into it. */
static void draw_bar_name(ls_ctx *ctx, const char *name, int left, double y, ls_text *out) {
    ls_text_printf(ctx, out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\"",
                   left - 8, y);
    if (name_width(name) > left - NAME_GAP)
        ls_text_printf(ctx, out, " textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\"",
                       left - NAME_GAP);
    ls_text_printf(ctx, out, ">");
    ls_html(ctx, name, out);
    ls_text_printf(ctx, out, "</text>\n");
}

void ls_chart_bars(ls_ctx *ctx, const ls_bars *bars, ls_text *out) {
    const int left = bar_left(bars);
    ls_axis x = {.low = 0, .high = 0, .from = left, .to = WIDTH - BAR_RIGHT};
    bool any = false;
    for (size_t i = 0; i < bars->groups * bars->bars; i++) {
        any |= ls_axis_takes(&x, bars->value[i]);
        ls_axis_widen(&x, bars->value[i]);
        ls_axis_widen(&x, bars->low[i]);
        ls_axis_widen(&x, bars->high[i]);
    }
    if (!any) return;
    if (bars->share > 0) {
        ls_axis_widen(&x, bars->low_most);
        ls_axis_widen(&x, bars->high_most);
    }
    if (x.low == x.high) x.high = 1;
    ls_axis_even_ticks(&x);
    double step = (double)bars->bars * BAR_STEP + GROUP_GAP;
    int height = BAR_TOP + (int)(step * (double)bars->groups) + BAR_BOTTOM;
    char about[160];
    snprintf(
        about, sizeof about,
        " data-kind=\"bars\" data-share=\"%d\" data-box=\"%.1f %.1f %d %d\" data-step=\"%.1f\"",
        bars->share, x.from, x.to, BAR_TOP, BAR_BOTTOM, step);
    ls_figure_open(ctx, bars->title, height, about, out);
    draw_bar_axis(ctx, bars, &x, height, out);
    for (size_t g = 0; g < bars->groups; g++) {
        double top = BAR_TOP + step * (double)g + GROUP_GAP / 2.0;
        ls_text_printf(ctx, out, "<g class=\"series\" data-arm=\"");
        ls_html(ctx, bars->arms[g], out);
        ls_text_printf(ctx, out, "\">");
        draw_bar_name(ctx, bars->labels[g], left, top + (step - GROUP_GAP) / 2 + 4, out);
        for (size_t b = 0; b < bars->bars; b++)
            draw_bar(ctx, bars, g, b, &x, top + (double)b * BAR_STEP, out);
        ls_text_printf(ctx, out, "</g>\n");
    }
    ls_text_printf(ctx, out, "</svg>\n<div class=\"legend\">");
    for (size_t b = 0; b < bars->bars; b++) {
        ls_text_printf(ctx, out,
                       "<span><svg class=\"swatch\" viewBox=\"0 0 28 12\" aria-hidden=\"true\">"
                       "<rect class=\"bar b%zu\" x=\"4\" width=\"20\" height=\"12\"/></svg>",
                       b % 6);
        ls_html(ctx, bars->names[b], out);
        ls_text_printf(ctx, out, "</span>");
    }
    ls_text_printf(ctx, out, "</div></figure>\n");
}
