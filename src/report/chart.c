/* Lines. */
#include "report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/axis.h"

enum {
    WIDTH = LS_CHART_WIDTH,
    FILE_WIDTH = WIDTH + 30, /* fonts differ: names at the ends have room */
    LEFT = 50,
    RIGHT = 12,
    TOP = 22,
    BOTTOM = 42,
    /* names at the ends of the lines */
    ENDS_MAX = 64,
    END_RIGHT = 140,
    END_GAP = 14,
    END_STEP = 12,
    END_LETTERS = 19,      /* of a name beside a page's chart */
    END_LETTERS_FILE = 40, /* of a name in a file, which is as wide as they need */
    OWN = 16,              /* units: a tick across a line */
    FEW = 6,               /* lines: of more the bands would hide each other */
    LEAVE_MAX = 4,         /* lines that leave the frame */
    LEAVE_AT = 4
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

static int height_of(const ls_chart *chart) {
    return chart->height == 0 ? LS_CHART_HEIGHT : chart->height;
}

static int floor_of(const ls_chart *chart) {
    return height_of(chart) - BOTTOM;
}

/* Names that do not fit above one another would be no names. */
static bool has_ends(const ls_chart *chart) {
    const size_t fit = (size_t)(floor_of(chart) - TOP) / END_STEP - 1;
    return chart->ends && chart->count <= (fit < ENDS_MAX ? fit : ENDS_MAX);
}

static double right_of(const ls_chart *chart) {
    return WIDTH - (has_ends(chart) ? END_RIGHT : RIGHT);
}

/* The number of a line that is farthest from 0; 0: it has none. */
static double reach_of(const ls_chart_series *s, const ls_axis *x, const ls_axis *y) {
    double reach = 0;
    for (size_t i = 0; i < s->count; i++)
        if (ls_axis_takes(x, s->x[i]) && ls_axis_takes(y, s->y[i]) && fabs(s->y[i]) > fabs(reach))
            reach = s->y[i];
    return reach;
}

/* How far lines reach that stay in the frame: the fewer half of them, and LEAVE_MAX at most, leave
 * it where each reaches more than LEAVE_AT times as far as all others. */
static double frame_of(const ls_chart *chart, const ls_axis *x, const ls_axis *y) {
    double most[LEAVE_MAX + 1] = {0};
    size_t lines = 0, leave = LEAVE_MAX;
    if (!chart->y_most) return INFINITY;
    for (size_t s = 0; s < chart->count; s++) {
        const double reach = fabs(reach_of(&chart->series[s], x, y));
        size_t at = LEAVE_MAX + 1;
        for (; at > 0 && most[at - 1] < reach; at--)
            if (at <= LEAVE_MAX) most[at] = most[at - 1];
        if (at <= LEAVE_MAX) most[at] = reach;
        lines += reach > 0;
    }
    while (leave > 0 && (2 * leave >= lines || most[leave - 1] <= LEAVE_AT * most[leave])) leave--;
    return most[leave];
}

static void widen_by(const ls_chart_series *s, double frame, ls_axis *x, ls_axis *y) {
    const bool stays = fabs(reach_of(s, x, y)) <= frame;
    for (size_t i = 0; i < s->count; i++) {
        if (!ls_axis_takes(x, s->x[i]) || !ls_axis_takes(y, s->y[i])) continue;
        ls_axis_widen(x, s->x[i]);
        /* bands are cut at the edge: of two seeds they are very wide */
        if (stays) ls_axis_widen(y, s->y[i]);
    }
}

static bool has_point(const ls_chart *chart, const ls_axis *x, const ls_axis *y) {
    for (size_t s = 0; s < chart->count; s++)
        for (size_t i = 0; i < chart->series[s].count; i++)
            if (ls_axis_takes(x, chart->series[s].x[i]) && ls_axis_takes(y, chart->series[s].y[i]))
                return true;
    return false;
}

/* Axes that show nothing yet. */
static void begin_axes(const ls_chart *chart, ls_axis *x, ls_axis *y) {
    *x = (ls_axis){
        .log = !chart->x_even, .low = INFINITY, .high = 0, .from = LEFT, .to = right_of(chart)};
    *y = (ls_axis){.log = chart->y_log, .low = INFINITY, .high = -INFINITY};
    y->from = floor_of(chart);
    y->to = TOP;
}

ls_chart_extent ls_chart_extent_of(const ls_chart *chart, const ls_chart_series *series,
                                   size_t count) {
    ls_axis x, y;
    begin_axes(chart, &x, &y);
    for (size_t s = 0; s < count; s++) widen_by(&series[s], INFINITY, &x, &y);
    return (ls_chart_extent){x.low, x.high, y.low, y.high};
}

static bool make_axes(const ls_chart *chart, ls_axis *x, ls_axis *y) {
    begin_axes(chart, x, y);
    if (!has_point(chart, x, y)) return false;
    if (chart->share > 0) {
        x->low = chart->extent.x_low;
        x->high = chart->extent.x_high;
        y->low = chart->extent.y_low;
        y->high = chart->extent.y_high;
    } else {
        const double frame = frame_of(chart, x, y);
        for (size_t s = 0; s < chart->count; s++) widen_by(&chart->series[s], frame, x, y);
    }
    if (chart->y_high > chart->y_low) {
        ls_axis_widen(y, chart->y_low);
        ls_axis_widen(y, chart->y_high);
    }
    if (chart->x_even) {
        if (x->low == x->high) x->high = x->low + 1;
        ls_axis_even_ticks(x);
    } else {
        ls_axis_finish_lengths(x);
    }
    ls_axis_finish_values(y);
    return true;
}

static void draw_bound(ls_ctx *ctx, const ls_chart *chart, const ls_axis *x, const ls_axis *y,
                       ls_text *out) {
    if (!(fabs(chart->bound_y) > 0) || chart->bound_y <= y->low || chart->bound_y >= y->high)
        return;
    const double at = ls_axis_place(y, chart->bound_y);
    ls_text_printf(ctx, out,
                   "<g class=\"bound\" data-at=\"%.7g\"><path class=\"mark\" d=\"M%d %.1fH%.1f\"/>"
                   "<text class=\"tick\" x=\"%d\" y=\"%.1f\">",
                   chart->bound_y, LEFT, at, x->to, LEFT + 4, at - 4);
    ls_html(ctx, chart->bound_text, out);
    ls_text_printf(ctx, out, "</text></g>\n");
}

static void draw_mark(ls_ctx *ctx, const ls_chart *chart, const ls_axis *x, ls_text *out) {
    if (chart->mark_x <= x->low || chart->mark_x >= x->high) return;
    double at = ls_axis_place(x, chart->mark_x);
    bool right = at > 0.7 * x->to;
    ls_text_printf(ctx, out,
                   "<g class=\"trained\" data-at=\"%.10g\"><path class=\"mark\" d=\"M%.1f %dV%d\"/>"
                   "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">",
                   chart->mark_x, at, floor_of(chart), TOP, right ? at - 4 : at + 4, TOP + 10,
                   right ? "end" : "start");
    ls_html(ctx, chart->mark_text, out);
    ls_text_printf(ctx, out, "</text></g>\n");
}

static void draw_axes(ls_ctx *ctx, const ls_chart *chart, const ls_axis *x, const ls_axis *y,
                      ls_text *out) {
    char label[32];
    ls_text_printf(ctx, out, "<g class=\"axes\">\n");
    for (int i = 0; i < y->ticks; i++) {
        double at = ls_axis_place(y, y->tick[i]);
        const bool large = fabs(y->tick[i]) >= 1e5; /* six digits do not fit beside the axis */
        snprintf(label, sizeof label, large ? "%.6gk" : "%.6g", y->tick[i] / (large ? 1e3 : 1));
        ls_text_printf(ctx, out,
                       "<path class=\"grid\" d=\"M%d %.1fH%.1f\"/><text class=\"tick\" x=\"%d\" "
                       "y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                       LEFT, at, x->to, LEFT - 6, at + 4, label);
    }
    for (int i = 0; i < x->ticks; i++) {
        double at = ls_axis_place(x, x->tick[i]);
        ls_text_printf(ctx, out,
                       "<path class=\"grid\" d=\"M%.1f %dv5\"/><text class=\"tick\" x=\"%.1f\" "
                       "y=\"%d\" text-anchor=\"middle\">%.10g</text>\n",
                       at, floor_of(chart), at, floor_of(chart) + 18, x->tick[i]);
    }
    ls_text_printf(ctx, out, "<path class=\"axis\" d=\"M%d %dV%dH%.1f\"/></g>\n", LEFT, TOP,
                   floor_of(chart), x->to);
    ls_text_printf(ctx, out, "<text class=\"name\" x=\"%.1f\" y=\"%d\" text-anchor=\"end\">", x->to,
                   height_of(chart) - 6);
    ls_html(ctx, chart->x_label, out);
    ls_text_printf(ctx, out, "</text>\n<text class=\"name\" x=\"4\" y=\"12\">");
    ls_html(ctx, chart->y_label, out);
    ls_text_printf(ctx, out, "</text>\n");
    draw_bound(ctx, chart, x, y, out);
    draw_mark(ctx, chart, x, out);
}

/* ---- names at the ends ---- */

/* Where a line ends, and where its name stands: names of lines that end together are stacked. */
typedef struct line_end {
    double x, y, name_y;
    bool drawn;
} line_end;

static void find_ends(const ls_chart *chart, const ls_axis *x, const ls_axis *y,
                      line_end ends[ENDS_MAX]) {
    size_t order[ENDS_MAX], count = 0;
    for (size_t s = 0; s < chart->count; s++) {
        const ls_chart_series *series = &chart->series[s];
        ends[s] = (line_end){0};
        for (size_t i = 0; i < series->count; i++)
            if (ls_axis_takes(x, series->x[i]) && ls_axis_takes(y, series->y[i]))
                ends[s] =
                    (line_end){.x = ls_axis_place(x, series->x[i]),
                               .y = fmin(fmax(ls_axis_place(y, series->y[i]), y->to), y->from),
                               .drawn = true};
        if (!ends[s].drawn) continue;
        size_t at = count++;
        for (; at > 0 && ends[order[at - 1]].y > ends[s].y; at--) order[at] = order[at - 1];
        order[at] = s;
    }
    for (size_t i = 0; i < count; i++) {
        const double above = i == 0 ? TOP - END_STEP : ends[order[i - 1]].name_y;
        ends[order[i]].name_y = fmax(ends[order[i]].y, above + END_STEP);
    }
    double below = floor_of(chart) + END_STEP;
    for (size_t i = count; i-- > 0; below = ends[order[i]].name_y)
        ends[order[i]].name_y = fmin(ends[order[i]].name_y, below - END_STEP);
}

/* Behind so many letters. */
static const char *skip_letters(const char *text, size_t letters) {
    while (*text != '\0' && letters > 0) {
        do text++;
        while (((unsigned char)*text & 0xc0) == 0x80);
        letters--;
    }
    return text;
}

/* A long name loses its middle: those of a family often differ in their last letters. */
static void shorten(const char *label, size_t letters, char *out, size_t bytes) {
    const size_t kept_last = letters / 2 + 1;
    const char *middle = skip_letters(label, letters - kept_last - 1), *last = label;
    const bool fits = *skip_letters(label, letters) == '\0';
    for (const char *end = skip_letters(label, kept_last); *end != '\0'; end = skip_letters(end, 1))
        last = skip_letters(last, 1);
    if (fits)
        snprintf(out, bytes, "%s", label);
    else
        snprintf(out, bytes, "%.*s\342\200\246%s", (int)(middle - label), label, last);
}

static const char *end_name(const ls_chart_series *s) {
    return s->end[0] == '\0' ? s->label : s->end;
}

static void draw_end(ls_ctx *ctx, const char *label, size_t letters, const line_end *end,
                     double right, ls_text *out) {
    char name[4 * END_LETTERS_FILE + 8];
    shorten(label, letters, name, sizeof name);
    ls_text_printf(ctx, out,
                   "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1fH%.1f\"/>"
                   "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">",
                   end->x + 4, end->y, right + END_GAP - 6, end->name_y, right + END_GAP - 2,
                   right + END_GAP, end->name_y + 4);
    ls_html(ctx, name, out);
    ls_text_printf(ctx, out, "</text>");
}

/* ---- series ---- */

ls_chart_style ls_chart_style_of(int family, int member) {
    return (ls_chart_style){.colour = family % LS_CHART_COLOURS,
                            .marker = (family + member) % LS_CHART_MARKERS,
                            .tone = (family / LS_CHART_COLOURS + member) % LS_CHART_TONES};
}

static void draw_marker(ls_ctx *ctx, int marker, double x, double y, ls_text *out) {
    static const char *const shapes[LS_CHART_MARKERS] = {
        "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",         /* circle */
        "m-3.2 -3.2h6.4v6.4h-6.4z",                              /* square */
        "m0 -4.4l4.2 7.4h-8.4z",                                 /* triangle */
        "m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z",                   /* diamond */
        "m0 4.4l4.2 -7.4h-8.4z",                                 /* triangle on its tip */
        "m-1.5 -4.4h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9v-3h2.9z"}; /* cross */
    ls_text_printf(ctx, out, "M%.1f %.1f%s", x, y, shapes[marker % LS_CHART_MARKERS]);
}

/* Whether a band has an end here; it may lie far outside, and on a logarithmic axis where no number
 * is. */
static bool place_end(const ls_axis *y, double value, double *at) {
    enum { FAR = 9999 };
    if (!(fabs(value) < 1e30)) return false;
    *at = y->log && value <= 1e-30 ? FAR : fmax(-FAR, fmin(ls_axis_place(y, value), FAR));
    return true;
}

/* Within the plot alone: an svg of its own, with the same coordinates, is cut at its edges. */
static void open_plot(ls_ctx *ctx, const ls_chart *chart, const ls_axis *x, ls_text *out) {
    const double width = x->to - LEFT, height = floor_of(chart) - TOP;
    ls_text_printf(ctx, out,
                   "<svg x=\"%d\" y=\"%d\" width=\"%g\" height=\"%g\" viewBox=\"%d %d %g %g\">",
                   LEFT, TOP, width, height, LEFT, TOP, width, height);
}

static void draw_band(ls_ctx *ctx, const ls_chart *chart, const ls_chart_series *s,
                      const ls_axis *x, const ls_axis *y, ls_text *out) {
    size_t drawn = 0;
    double at;
    ls_text path = {0};
    for (size_t i = 0; i < s->count; i++)
        if (ls_axis_takes(x, s->x[i]) && place_end(y, s->high[i], &at))
            ls_text_printf(ctx, &path, "%c%.1f %.1f", drawn++ == 0 ? 'M' : 'L',
                           ls_axis_place(x, s->x[i]), at);
    for (size_t i = s->count; i-- > 0;)
        if (ls_axis_takes(x, s->x[i]) && place_end(y, s->low[i], &at))
            ls_text_printf(ctx, &path, "L%.1f %.1f", ls_axis_place(x, s->x[i]), at);
    if (drawn > 1) {
        open_plot(ctx, chart, x, out);
        ls_text_printf(ctx, out, "<path class=\"band%s\" d=\"%sz\"/></svg>",
                       chart->count > FEW ? " one-of-many" : "", path.bytes);
    }
    ls_text_clear(ctx, &path);
}

/* Across the line, also between two points of it. */
static void draw_own(ls_ctx *ctx, const ls_chart_series *s, const ls_axis *x, const ls_axis *y,
                     ls_text *out) {
    double before_x = NAN, before_y = NAN;
    if (!(s->own > 0) || !ls_axis_takes(x, s->own)) return;
    const double at = ls_axis_place(x, s->own);
    for (size_t i = 0; i < s->count; i++) {
        if (!ls_axis_takes(x, s->x[i]) || !ls_axis_takes(y, s->y[i])) continue;
        const double here_x = ls_axis_place(x, s->x[i]), here_y = ls_axis_place(y, s->y[i]);
        const double share = here_x > before_x ? (at - before_x) / (here_x - before_x) : 1;
        if (here_x >= at && (s->x[i] == s->own || before_x < at)) {
            const double middle =
                s->x[i] == s->own ? here_y : before_y + share * (here_y - before_y);
            ls_text_printf(ctx, out, "<path class=\"own\" d=\"M%.1f %.1fv%d\"/>", at,
                           middle - OWN / 2.0, OWN);
            return;
        }
        before_x = here_x;
        before_y = here_y;
    }
}

static void draw_point(ls_ctx *ctx, const ls_chart *chart, const ls_chart_series *s, size_t i,
                       const ls_axis *x, const ls_axis *y, ls_text *out) {
    char value[32], low[32], high[32];
    ls_chart_number(s->y[i], value, sizeof value);
    ls_text_printf(ctx, out, "<path class=\"point\" d=\"");
    draw_marker(ctx, s->style.marker, ls_axis_place(x, s->x[i]), ls_axis_place(y, s->y[i]), out);
    ls_text_printf(ctx, out, "\"><title>");
    ls_html(ctx, s->label, out);
    ls_text_printf(ctx, out, " at %.7g: %s", s->x[i], value);
    if (s->low != NULL && s->low[i] < s->high[i]) {
        ls_chart_number(s->low[i], low, sizeof low);
        ls_chart_number(s->high[i], high, sizeof high);
        ls_text_printf(ctx, out, " (%s: %s to %s)", chart->spread == NULL ? "95 %" : chart->spread,
                       low, high);
    }
    ls_text_printf(ctx, out, "</title></path>");
}

/* For the script: points that are not drawn as -. */
static void put_numbers(ls_ctx *ctx, const char *name, const double *values,
                        const ls_chart_series *s, const ls_axis *x, const ls_axis *y,
                        ls_text *out) {
    if (values == NULL) return;
    ls_text_printf(ctx, out, " data-%s=\"", name);
    for (size_t i = 0; i < s->count; i++)
        if (ls_axis_takes(x, s->x[i]) && ls_axis_takes(y, s->y[i]) && fabs(values[i]) < 1e30)
            ls_text_printf(ctx, out, "%s%.7g", i == 0 ? "" : " ", values[i]);
        else
            ls_text_printf(ctx, out, "%s-", i == 0 ? "" : " ");
    ls_text_printf(ctx, out, "\"");
}

static void open_series(ls_ctx *ctx, const ls_chart_series *s, const ls_axis *x, const ls_axis *y,
                        ls_text *out) {
    ls_text_printf(ctx, out, "<g class=\"series c%d d%d t%d\" data-arm=\"", s->style.colour,
                   s->style.dash, s->style.tone);
    ls_html(ctx, s->arm, out);
    ls_text_printf(ctx, out, "\"");
    put_numbers(ctx, "x", s->x, s, x, y, out);
    put_numbers(ctx, "y", s->y, s, x, y, out);
    put_numbers(ctx, "low", s->low, s, x, y, out);
    put_numbers(ctx, "high", s->high, s, x, y, out);
    put_numbers(ctx, "beside", s->beside, s, x, y, out);
    if (s->own > 0) ls_text_printf(ctx, out, " data-own=\"%.7g\"", s->own);
    ls_text_printf(ctx, out, ">");
}

static void draw_series(ls_ctx *ctx, const ls_chart *chart, const ls_chart_series *s,
                        const ls_axis *x, const ls_axis *y, const line_end *end, ls_text *out) {
    bool pen_down = false;
    open_series(ctx, s, x, y, out);
    if (s->low != NULL) draw_band(ctx, chart, s, x, y, out);
    if (chart->y_most) open_plot(ctx, chart, x, out);
    ls_text_printf(ctx, out, "<path class=\"line\" d=\"");
    for (size_t i = 0; i < s->count; i++) {
        bool known = ls_axis_takes(x, s->x[i]) && ls_axis_takes(y, s->y[i]);
        if (known)
            ls_text_printf(ctx, out, "%c%.1f %.1f", pen_down ? 'L' : 'M', ls_axis_place(x, s->x[i]),
                           ls_axis_place(y, s->y[i]));
        pen_down = known;
    }
    ls_text_printf(ctx, out, "\"/>");
    draw_own(ctx, s, x, y, out);
    if (chart->y_most) ls_text_printf(ctx, out, "</svg>");
    for (size_t i = 0; chart->markers && i < s->count; i++)
        if (ls_axis_takes(x, s->x[i]) && ls_axis_takes(y, s->y[i]))
            draw_point(ctx, chart, s, i, x, y, out);
    if (end != NULL && end->drawn)
        draw_end(ctx, end_name(s), chart->end_letters == 0 ? END_LETTERS : chart->end_letters, end,
                 x->to, out);
    ls_text_printf(ctx, out, "</g>\n");
}

void ls_chart_swatch(ls_ctx *ctx, ls_chart_style style, ls_text *out) {
    ls_text_printf(ctx, out,
                   "<svg class=\"swatch c%d d%d t%d\" viewBox=\"0 0 28 12\" aria-hidden=\"true\">"
                   "<path class=\"line\" d=\"M1 6H27\"/><path class=\"point\" d=\"",
                   style.colour, style.dash, style.tone);
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

static void open_chart(ls_ctx *ctx, const ls_chart *chart, const ls_axis *x, const ls_axis *y,
                       ls_text *out) {
    ls_text about = {0};
    ls_text_printf(ctx, &about,
                   " data-kind=\"lines\" data-share=\"%d\" data-scales=\"%s %s\" "
                   "data-box=\"%.1f %.1f %.1f %.1f\"",
                   chart->share, x->log ? "log" : "even", y->log ? "log" : "even", x->from, x->to,
                   y->from, y->to);
    if (chart->y_high > chart->y_low)
        ls_text_printf(ctx, &about, " data-shown=\"%.7g %.7g\"", chart->y_low, chart->y_high);
    if (chart->y_most) ls_text_printf(ctx, &about, " data-most=\"\"");
    if (chart->beside != NULL) {
        ls_text_printf(ctx, &about, " data-unit=\"");
        ls_html(ctx, chart->beside, &about);
        ls_text_printf(ctx, &about, "\"");
    }
    ls_figure_open(ctx, chart->title, height_of(chart), about.failed ? "" : about.bytes, out);
    out->failed |= about.failed;
    ls_text_clear(ctx, &about);
}

/* "ALiBi leaves the frame, to -85.0"; nothing where all stay. */
static void say_who_leaves(ls_ctx *ctx, const ls_chart *chart, const ls_axis *x, const ls_axis *y,
                           ls_text *out) {
    const double frame = frame_of(chart, x, y);
    const ls_chart_series *one = NULL;
    size_t leave = 0;
    double farthest = 0;
    for (size_t s = 0; s < chart->count; s++) {
        const double reach = reach_of(&chart->series[s], x, y);
        if (fabs(reach) <= frame) continue;
        one = &chart->series[s];
        leave++;
        if (fabs(reach) > fabs(farthest)) farthest = reach;
    }
    ls_text_printf(ctx, out, "<text class=\"tick leaving\" x=\"%d\" y=\"%d\">", LEFT,
                   height_of(chart) - 6);
    if (leave > 0) {
        char name[4 * END_LETTERS_FILE + 8], value[32];
        ls_chart_number(farthest, value, sizeof value);
        shorten(end_name(one), END_LETTERS, name, sizeof name);
        if (leave > 1) snprintf(name, sizeof name, "%zu lines", leave);
        ls_html(ctx, name, out);
        ls_text_printf(ctx, out, " leave%s the frame, to %s", leave > 1 ? "" : "s", value);
    }
    ls_text_printf(ctx, out, "</text>\n");
}

static void draw_lines(ls_ctx *ctx, const ls_chart *chart, const ls_axis *x, const ls_axis *y,
                       ls_text *out) {
    line_end ends[ENDS_MAX];
    draw_axes(ctx, chart, x, y, out);
    if (has_ends(chart)) find_ends(chart, x, y, ends);
    for (size_t i = 0; i < chart->count; i++)
        draw_series(ctx, chart, &chart->series[i], x, y, has_ends(chart) ? &ends[i] : NULL, out);
    if (chart->y_most) say_who_leaves(ctx, chart, x, y, out);
    ls_text_printf(ctx, out, "</svg>\n");
}

/* Of a drawing that stands alone; the page has its own (page.css). */
static const char file_style[] =
    "svg{--fg:#1c2127;--soft:#5b6570;--line:#d9dee3;--bg:#fff}\n"
    "text{fill:var(--fg);font:12.5px sans-serif}.tick{fill:var(--soft)}\n"
    ".grid{stroke:var(--line);fill:none}.axis{stroke:var(--soft);fill:none}\n"
    ".mark{stroke:var(--fg);stroke-dasharray:2 3;fill:none}\n"
    ".line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}\n"
    ".point{fill:currentColor;stroke:var(--bg);stroke-width:.8}.band{fill:currentColor;opacity:.16}\n"
    ".lead{fill:none;stroke:currentColor;stroke-width:.8;opacity:.6}\n"
    ".own{fill:none;stroke:currentColor;stroke-width:2.5}.casing{stroke:#fff;stroke-width:6}\n"
    ".end{fill:currentColor;font-size:11px}\n"
    ".d1 .line{stroke-dasharray:7 4}.d2 .line{stroke-dasharray:2 3}\n"
    ".d3 .line{stroke-dasharray:9 3 2 3}.d4 .line{stroke-dasharray:4 2}\n"
    ".d5 .line{stroke-dasharray:12 3}.d6 .line{stroke-dasharray:9 3 2 3 2 3}\n"
    ".c0{color:#0068b3}.c1{color:#c84e00}.c2{color:#00795a}.c3{color:#a02c86}\n"
    ".c4{color:#946d00}.c5{color:#3d444c}.c6{color:#8a4b3c}.c7{color:#7046c0}\n"
    ".t1{filter:brightness(.6)}.t2{filter:brightness(1.5)}\n";

static const char heat_style[] =
    ".h0{fill:#00224e}.h1{fill:#1a386f}.h2{fill:#404c6b}.h3{fill:#5b606e}.h4{fill:#757575}\n"
    ".h5{fill:#908b79}.h6{fill:#ad9f71}.h7{fill:#cab660}.h8{fill:#e7d04b}.h9{fill:#fee838}\n"
    ".heat text{fill:#fff;font-size:11.5px}\n"
    ".h5 text,.h6 text,.h7 text,.h8 text,.h9 text{fill:#000}\n";

static const char bars_style[] =
    ".b0{fill:#76b1d9}.whisker{stroke:var(--fg);stroke-width:1.2;opacity:.7}\n"
    ".value{font-size:10px;fill:var(--soft)}\n";

static void open_file(ls_ctx *ctx, const char *title, int width, int height, const char *more,
                      ls_text *out) {
    ls_text_printf(ctx, out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"%d\" "
                   "height=\"%d\" viewBox=\"0 0 %d %d\">\n<title>",
                   3 * width / 2, 3 * height / 2, width, height);
    ls_html(ctx, title, out);
    ls_text_printf(ctx, out, "</title>\n<style>\n%s%s</style>\n", file_style, more);
    ls_text_printf(ctx, out, "<rect width=\"%d\" height=\"%d\" fill=\"var(--bg)\"/>\n", width,
                   height);
}

/* So that the names at the ends of the lines are whole. */
static int file_width(const ls_chart *chart) {
    enum { LETTER = 7 };
    int width = FILE_WIDTH;
    for (size_t i = 0; has_ends(chart) && i < chart->count; i++) {
        const char *name = end_name(&chart->series[i]);
        int letters = 0;
        while (*name != '\0' && letters < END_LETTERS_FILE) {
            name = skip_letters(name, 1);
            letters++;
        }
        const int needed = WIDTH - END_RIGHT + END_GAP + letters * LETTER;
        if (needed > width) width = needed;
    }
    return width;
}

bool ls_chart_file(ls_ctx *ctx, const ls_chart *chart, ls_text *out) {
    ls_axis x, y;
    ls_chart whole = *chart;
    if (!make_axes(chart, &x, &y)) return false;
    whole.end_letters = END_LETTERS_FILE;
    open_file(ctx, chart->title, file_width(chart), height_of(chart), "", out);
    draw_lines(ctx, &whole, &x, &y, out);
    return true;
}

bool ls_chart_figure_file(ls_ctx *ctx, const char *title, const char *figure, ls_text *out) {
    int width, height;
    const char *drawing = strstr(figure, "<svg class=\"chart\" viewBox=\"0 0 ");
    const char *begin = drawing == NULL ? NULL : strchr(drawing, '\n');
    const char *end = begin == NULL ? NULL : strstr(begin, "</svg>");
    if (end == NULL ||
        sscanf(drawing, "<svg class=\"chart\" viewBox=\"0 0 %d %d", &width, &height) != 2)
        return false;
    const bool bars = strstr(drawing, "data-kind=\"bars\"") != NULL;
    open_file(ctx, title, width, height, bars ? bars_style : heat_style, out);
    ls_text_append(ctx, out, begin + 1, (size_t)(end - begin - 1));
    ls_text_printf(ctx, out, "</svg>\n");
    return true;
}

void ls_chart_lines(ls_ctx *ctx, const ls_chart *chart, ls_text *out) {
    ls_axis x, y;
    if (!make_axes(chart, &x, &y)) return;
    open_chart(ctx, chart, &x, &y, out);
    draw_lines(ctx, chart, &x, &y, out);
    draw_legend(ctx, chart, out);
    ls_text_printf(ctx, out, "</figure>\n");
}
