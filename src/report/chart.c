#include "report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = LS_CHART_WIDTH,
    HEIGHT = 320,
    LEFT = 50,
    RIGHT = 12,
    TOP = 22,
    BOTTOM = 42,
    TICKS_MAX = 16
};

void ls_chart_number(double value, char *out, size_t bytes) {
    double size = fabs(value);
    if (!isfinite(value))
        snprintf(out, bytes, "-");
    else if (size >= 1e5 || (size > 0 && size < 1e-4))
        snprintf(out, bytes, "%.1e", value);
    else if (size >= 100)
        snprintf(out, bytes, "%.0f", value);
    else if (size >= 10)
        snprintf(out, bytes, "%.1f", value);
    else if (size >= 1 || size == 0)
        snprintf(out, bytes, "%.2f", value);
    else
        snprintf(out, bytes, "%.3g", value);
}

void ls_chart_count(double value, char *out, size_t bytes) {
    char digits[32];
    if (!(fabs(value) < 1e18)) {
        ls_chart_number(value, out, bytes);
        return;
    }
    int length = snprintf(digits, sizeof digits, "%.0f", fabs(value));
    size_t used = 0;
    for (int i = 0; i < length && used + 2 < bytes; i++) {
        if (i > 0 && (length - i) % 3 == 0) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
}

/* ---- axes ---- */

typedef struct axis {
    bool log;
    double low, high; /* of the data, with a little room */
    double from, to;  /* on the drawing */
    int ticks;
    double tick[TICKS_MAX];
} axis;

static double place(const axis *a, double value) {
    double share = a->log ? log(value / a->low) / log(a->high / a->low)
                          : (value - a->low) / (a->high - a->low);
    return a->from + share * (a->to - a->from);
}

/* What can be drawn: far outside of it there is nothing that a chart could show. */
static bool drawable(const axis *a, double value) {
    return fabs(value) < 1e30 && (!a->log || value > 1e-30);
}

static void widen(axis *a, double value) {
    if (!drawable(a, value)) return;
    a->low = fmin(a->low, value);
    a->high = fmax(a->high, value);
}

static void even_ticks(axis *a) {
    double rough = (a->high - a->low) / 6, power = pow(10, floor(log10(rough)));
    double step = power * (rough / power > 5   ? 10
                           : rough / power > 2 ? 5
                           : rough / power > 1 ? 2
                                               : 1);
    a->ticks = 0;
    for (double v = ceil(a->low / step); v * step <= a->high && a->ticks < TICKS_MAX; v++)
        a->tick[a->ticks++] = v * step == 0 ? 0 : v * step;
}

/* The finest of the usual ladders of a logarithmic scale that does not crowd; a narrow range is
 * better served by even steps. */
static void log_ticks(axis *a) {
    static const double ladders[][4] = {{1, 2, 5, 0}, {1, 3, 0, 0}, {1, 0, 0, 0}};
    for (size_t l = 0; l < sizeof ladders / sizeof ladders[0]; l++) {
        a->ticks = 0;
        int found = 0;
        double decades = floor(log10(a->high / a->low)), jump = pow(10, floor(decades / 8) + 1);
        if (ladders[l][1] > 0) jump = 10; /* only whole powers may be left out */
        for (double power = pow(10, floor(log10(a->low))); power <= a->high; power *= jump)
            for (int i = 0; i < 4 && ladders[l][i] > 0; i++) {
                double v = power * ladders[l][i];
                if (v < a->low || v > a->high) continue;
                if (found++ < TICKS_MAX) a->tick[a->ticks++] = v;
            }
        if (found < 3) break;
        if (found <= 8) return;
    }
    if (a->high / a->low < 20) even_ticks(a);
}

/* Lengths: powers of two. */
static void length_ticks(axis *a) {
    int first = (int)ceil(log2(a->low) - 1e-9), last = (int)floor(log2(a->high) + 1e-9);
    int step = (last - first) / 8 + 1;
    a->ticks = 0;
    for (int e = first; e <= last && a->ticks < TICKS_MAX; e += step) a->tick[a->ticks++] = exp2(e);
}

static bool make_axes(const ls_chart *chart, axis *x, axis *y) {
    *x = (axis){
        .log = !chart->x_even, .low = INFINITY, .high = 0, .from = LEFT, .to = WIDTH - RIGHT};
    *y = (axis){.log = chart->y_log, .low = INFINITY, .high = -INFINITY};
    y->from = HEIGHT - BOTTOM;
    y->to = TOP;
    for (size_t s = 0; s < chart->count; s++)
        for (size_t i = 0; i < chart->series[s].count; i++) {
            if (!drawable(x, chart->series[s].x[i]) || !drawable(y, chart->series[s].y[i]))
                continue;
            widen(x, chart->series[s].x[i]);
            widen(y, chart->series[s].y[i]);
            if (chart->series[s].low == NULL) continue;
            widen(y, chart->series[s].low[i]);
            widen(y, chart->series[s].high[i]);
        }
    if (!isfinite(y->low) || !isfinite(y->high) || !isfinite(x->low)) return false;
    if (chart->y_high > chart->y_low) {
        widen(y, chart->y_low);
        widen(y, chart->y_high);
    }
    double room = chart->x_even ? 0 : pow(x->high / x->low, 0.03);
    if (chart->x_even) {
        if (x->low == x->high) x->high = x->low + 1;
        even_ticks(x);
    } else {
        length_ticks(x);
        if (x->low == x->high) room = 2;
        x->low /= room;
        x->high *= room;
    }
    if (y->log) {
        room = fmax(pow(y->high / y->low, 0.06), 1.02);
        y->low /= room;
        y->high *= room;
        log_ticks(y);
    } else {
        room = fmax(0.06 * (y->high - y->low), 1e-3 * fmax(fabs(y->high), 1e-9));
        y->low -= room;
        y->high += room;
        even_ticks(y);
    }
    return true;
}

static void draw_bound(ls_ctx *ctx, const ls_chart *chart, const axis *y, ls_text *out) {
    if (!(fabs(chart->bound_y) > 0) || chart->bound_y <= y->low || chart->bound_y >= y->high)
        return;
    const double at = place(y, chart->bound_y);
    ls_text_printf(ctx, out,
                   "<path class=\"mark\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" "
                   "y=\"%.1f\">",
                   LEFT, at, WIDTH - RIGHT, LEFT + 4, at - 4);
    ls_html(ctx, chart->bound_text, out);
    ls_text_printf(ctx, out, "</text>\n");
}

static void draw_axes(ls_ctx *ctx, const ls_chart *chart, const axis *x, const axis *y,
                      ls_text *out) {
    char label[32];
    for (int i = 0; i < y->ticks; i++) {
        double at = place(y, y->tick[i]);
        const bool large = fabs(y->tick[i]) >= 1e5; /* six digits do not fit beside the axis */
        snprintf(label, sizeof label, large ? "%.6gk" : "%.6g", y->tick[i] / (large ? 1e3 : 1));
        ls_text_printf(ctx, out,
                       "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" "
                       "y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                       LEFT, at, WIDTH - RIGHT, LEFT - 6, at + 4, label);
    }
    for (int i = 0; i < x->ticks; i++) {
        double at = place(x, x->tick[i]);
        ls_text_printf(ctx, out,
                       "<path class=\"grid\" d=\"M%.1f %dv5\"/><text class=\"tick\" x=\"%.1f\" "
                       "y=\"%d\" text-anchor=\"middle\">%.10g</text>\n",
                       at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 18, x->tick[i]);
    }
    ls_text_printf(ctx, out, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP,
                   HEIGHT - BOTTOM, WIDTH - RIGHT);
    ls_text_printf(ctx, out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"end\">",
                   WIDTH - RIGHT, HEIGHT - 6);
    ls_html(ctx, chart->x_label, out);
    ls_text_printf(ctx, out, "</text>\n<text class=\"name\" x=\"4\" y=\"12\">");
    ls_html(ctx, chart->y_label, out);
    ls_text_printf(ctx, out, "</text>\n");
    draw_bound(ctx, chart, y, out);
    if (chart->mark_x <= x->low || chart->mark_x >= x->high) return;
    double at = place(x, chart->mark_x);
    bool right = at > 0.7 * WIDTH;
    ls_text_printf(ctx, out,
                   "<path class=\"mark\" d=\"M%.1f %dV%d\"/><text class=\"tick\" x=\"%.1f\" "
                   "y=\"%d\" text-anchor=\"%s\">",
                   at, HEIGHT - BOTTOM, TOP, right ? at - 4 : at + 4, TOP + 10,
                   right ? "end" : "start");
    ls_html(ctx, chart->mark_text, out);
    ls_text_printf(ctx, out, "</text>\n");
}

/* ---- series ---- */

static void draw_marker(ls_ctx *ctx, int marker, double x, double y, ls_text *out) {
    static const char *const shapes[] = {
        "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",         /* circle */
        "m-3.2 -3.2h6.4v6.4h-6.4z",                              /* square */
        "m0 -4.4l4.2 7.4h-8.4z",                                 /* triangle */
        "m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z",                   /* diamond */
        "m0 4.4l4.2 -7.4h-8.4z",                                 /* triangle on its tip */
        "m-1.5 -4.4h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9v-3h2.9z"}; /* cross */
    ls_text_printf(ctx, out, "M%.1f %.1f%s", x, y, shapes[marker % 6]);
}

static void draw_band(ls_ctx *ctx, const ls_chart_series *s, const axis *x, const axis *y,
                      ls_text *out) {
    size_t drawn = 0;
    ls_text path = {0};
    for (size_t i = 0; i < s->count; i++)
        if (drawable(x, s->x[i]) && drawable(y, s->high[i]))
            ls_text_printf(ctx, &path, "%c%.1f %.1f", drawn++ == 0 ? 'M' : 'L', place(x, s->x[i]),
                           place(y, s->high[i]));
    for (size_t i = s->count; i-- > 0;)
        if (drawable(x, s->x[i]) && drawable(y, s->low[i]))
            ls_text_printf(ctx, &path, "L%.1f %.1f", place(x, s->x[i]), place(y, s->low[i]));
    if (drawn > 1) ls_text_printf(ctx, out, "<path class=\"band\" d=\"%sz\"/>", path.bytes);
    ls_text_clear(ctx, &path);
}

static void draw_point(ls_ctx *ctx, const ls_chart *chart, const ls_chart_series *s, size_t i,
                       const axis *x, const axis *y, ls_text *out) {
    char value[32], low[32], high[32];
    ls_chart_number(s->y[i], value, sizeof value);
    ls_text_printf(ctx, out, "<path class=\"point\" d=\"");
    draw_marker(ctx, s->style.marker, place(x, s->x[i]), place(y, s->y[i]), out);
    ls_text_printf(ctx, out, "\"><title>");
    ls_html(ctx, s->label, out);
    ls_text_printf(ctx, out, " at %.7g: %s", s->x[i], value);
    if (s->low != NULL && s->low[i] < s->high[i]) {
        ls_chart_number(s->low[i], low, sizeof low);
        ls_chart_number(s->high[i], high, sizeof high);
        ls_text_printf(ctx, out, " (%s: %s to %s)", chart->spread == NULL ? "seeds" : chart->spread,
                       low, high);
    }
    ls_text_printf(ctx, out, "</title></path>");
}

static void open_series(ls_ctx *ctx, const char *tag, const char *arm, ls_chart_style style,
                        ls_text *out) {
    ls_text_printf(ctx, out, "<%s class=\"series c%d d%d\" data-arm=\"", tag, style.colour,
                   style.dash);
    ls_html(ctx, arm, out);
    ls_text_printf(ctx, out, "\">");
}

static void draw_series(ls_ctx *ctx, const ls_chart *chart, const ls_chart_series *s, const axis *x,
                        const axis *y, ls_text *out) {
    bool pen_down = false;
    open_series(ctx, "g", s->arm, s->style, out);
    if (s->low != NULL) draw_band(ctx, s, x, y, out);
    ls_text_printf(ctx, out, "<path class=\"line\" d=\"");
    for (size_t i = 0; i < s->count; i++) {
        bool known = drawable(x, s->x[i]) && drawable(y, s->y[i]);
        if (known)
            ls_text_printf(ctx, out, "%c%.1f %.1f", pen_down ? 'L' : 'M', place(x, s->x[i]),
                           place(y, s->y[i]));
        pen_down = known;
    }
    ls_text_printf(ctx, out, "\"/>");
    for (size_t i = 0; chart->markers && i < s->count; i++)
        if (drawable(x, s->x[i]) && drawable(y, s->y[i])) draw_point(ctx, chart, s, i, x, y, out);
    ls_text_printf(ctx, out, "</g>\n");
}

void ls_chart_swatch(ls_ctx *ctx, ls_chart_style style, ls_text *out) {
    ls_text_printf(ctx, out,
                   "<svg class=\"swatch c%d d%d\" viewBox=\"0 0 28 12\" aria-hidden=\"true\">"
                   "<path class=\"line\" d=\"M1 6H27\"/><path class=\"point\" d=\"",
                   style.colour, style.dash);
    draw_marker(ctx, style.marker, 14, 6, out);
    ls_text_printf(ctx, out, "\"/></svg>");
}

static void draw_legend(ls_ctx *ctx, const ls_chart *chart, ls_text *out) {
    ls_text_printf(ctx, out, "<div class=\"legend\">");
    for (size_t i = 0; i < chart->count; i++) {
        ls_text_printf(ctx, out, "<button type=\"button\" aria-pressed=\"true\" data-arm=\"");
        ls_html(ctx, chart->series[i].arm, out);
        ls_text_printf(ctx, out, "\">");
        ls_chart_swatch(ctx, chart->series[i].style, out);
        ls_html(ctx, chart->series[i].label, out);
        ls_text_printf(ctx, out, "</button>");
    }
    ls_text_printf(ctx, out, "</div>\n");
}

void ls_chart_lines(ls_ctx *ctx, const ls_chart *chart, ls_text *out) {
    axis x, y;
    if (!make_axes(chart, &x, &y)) return;
    ls_figure_open(ctx, chart->title, HEIGHT, out);
    draw_axes(ctx, chart, &x, &y, out);
    for (size_t i = 0; i < chart->count; i++)
        draw_series(ctx, chart, &chart->series[i], &x, &y, out);
    ls_text_printf(ctx, out, "</svg>\n");
    draw_legend(ctx, chart, out);
    ls_text_printf(ctx, out, "</figure>\n");
}

/* ---- bars ---- */

enum {
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

static void draw_bar(ls_ctx *ctx, const ls_bars *bars, size_t group, size_t bar, const axis *x,
                     double top, ls_text *out) {
    size_t i = group * bars->bars + bar;
    double value = bars->value[i];
    if (!drawable(x, value)) return;
    char label[32];
    double zero = place(x, 0), end = place(x, value);
    ls_text_printf(ctx, out,
                   "<rect class=\"bar b%zu\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>",
                   bar % 6, fmin(zero, end), top, fmax(fabs(end - zero), 0.8), BAR_STEP - 2);
    double edge = end;
    if (drawable(x, bars->low[i]) && drawable(x, bars->high[i]) && bars->low[i] < bars->high[i]) {
        double low = place(x, bars->low[i]), high = place(x, bars->high[i]);
        edge = fmax(end, high);
        ls_text_printf(ctx, out, "<path class=\"whisker\" d=\"M%.1f %.1fH%.1f\"/>", low,
                       top + (BAR_STEP - 2) / 2.0, high);
    }
    snprintf(label, sizeof label, "%+.3f", value);
    ls_text_printf(ctx, out, "<text class=\"value\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                   fmax(edge, zero) + 4, top + BAR_STEP - 3, label);
}

static void draw_bar_axis(ls_ctx *ctx, const ls_bars *bars, const axis *x, int height,
                          ls_text *out) {
    for (int i = 0; i < x->ticks; i++)
        ls_text_printf(ctx, out,
                       "<path class=\"%s\" d=\"M%.1f %dV%d\"/><text class=\"tick\" x=\"%.1f\" "
                       "y=\"%d\" text-anchor=\"middle\">%.6g</text>\n",
                       x->tick[i] == 0 ? "axis" : "grid", place(x, x->tick[i]), BAR_TOP,
                       height - BAR_BOTTOM, place(x, x->tick[i]), height - BAR_BOTTOM + 16,
                       x->tick[i]);
    ls_text_printf(ctx, out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"end\">",
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
    axis x = {.low = 0, .high = 0, .from = left, .to = WIDTH - BAR_RIGHT};
    bool any = false;
    for (size_t i = 0; i < bars->groups * bars->bars; i++) {
        any |= drawable(&x, bars->value[i]);
        widen(&x, bars->value[i]);
        widen(&x, bars->low[i]);
        widen(&x, bars->high[i]);
    }
    if (!any) return;
    if (x.low == x.high) x.high = 1;
    even_ticks(&x);
    double step = (double)bars->bars * BAR_STEP + GROUP_GAP;
    int height = BAR_TOP + (int)(step * (double)bars->groups) + BAR_BOTTOM;
    ls_figure_open(ctx, bars->title, height, out);
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
