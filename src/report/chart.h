/* Charts as inline SVG: complete without a script, no fonts, no files beside the page. Colours are
 * CSS variables (--c0 .. --c7), so that light, dark and paper each have their own; a series belongs
 * to an arm (data-arm), by which the page's script hides it. What is drawn stands beside the
 * drawing as numbers (data-x, data-y, ...), from which the script reads values out and draws again
 * when arms are hidden. */
#ifndef LS_REPORT_CHART_H
#define LS_REPORT_CHART_H

#include "report/html.h"

enum {
    LS_CHART_COLOURS = 8,
    LS_CHART_TONES = 3,
    LS_CHART_DASHES = 7,
    LS_CHART_MARKERS = 6,
    LS_CHART_WIDTH = 480,
    LS_CHART_HEIGHT = 320,
    LS_CHART_END_BYTES = 48
};

typedef struct ls_chart_style {
    int colour; /* 0 .. LS_CHART_COLOURS - 1 */
    int dash;   /* 0 solid .. LS_CHART_DASHES - 1 */
    int marker; /* 0 .. LS_CHART_MARKERS - 1 */
    int tone;   /* 0 the colour itself .. LS_CHART_TONES - 1 */
} ls_chart_style;
/* The look of a line by its family, and by its number among the family's: one colour, a tone and a
 * marker of its own. Both from 0. */
ls_chart_style ls_chart_style_of(int family, int member);

/* Values that are not finite are left out. */
typedef struct ls_chart_series {
    const char *arm, *label;
    char end[LS_CHART_END_BYTES]; /* its name at the end of the line; "": the label */
    ls_chart_style style;
    size_t count;
    double *x, *y;
    double *low, *high; /* of the spread; or NULL */
    double *beside;     /* y in another unit, for those who read a value; or NULL */
    double own;         /* a tick across the line at this x; 0: none */
} ls_chart_series;

/* The least and the most of what axes must show. */
typedef struct ls_chart_extent {
    double x_low, x_high, y_low, y_high;
} ls_chart_extent;

typedef struct ls_chart {
    const char *title, *x_label, *y_label;
    bool y_log;
    bool x_even;          /* x is not logarithmic: shares, positions */
    bool y_most;          /* a line that reaches far beyond the others leaves the frame; own axes */
    bool markers;         /* one at every point, with its value */
    int height;           /* of the drawing; 0: LS_CHART_HEIGHT */
    bool ends;            /* names at the ends of the lines, where all fit in the height */
    size_t end_letters;   /* of these names; 0: what a page has room for */
    double y_low, y_high; /* shown in any case; both 0: what the series have */
    double mark_x;        /* a vertical line; 0: none */
    const char *mark_text;
    double bound_y; /* a horizontal line; 0 or not finite: none */
    const char *bound_text;
    const char *spread; /* what low and high are; NULL: the 95 % interval */
    const char *beside; /* the unit of the series' `beside`; NULL: none */
    const ls_chart_series *series;
    size_t count;
    /* Small multiples: charts of a page with the same number have the axes that all their series
     * need together; 0: its own. */
    int share;
    ls_chart_extent extent; /* with `share`: of all their series */
} ls_chart;
/* Of `count` series on axes such as the chart's. */
ls_chart_extent ls_chart_extent_of(const ls_chart *chart, const ls_chart_series *series,
                                   size_t count);
/* A figure with title, drawing and legend; nothing where no series has a point. */
void ls_chart_lines(ls_ctx *ctx, const ls_chart *chart, ls_text *out);
/* The drawing as a file of its own; false where no series has a point. */
bool ls_chart_file(ls_ctx *ctx, const ls_chart *chart, ls_text *out);

/* Horizontal bars: a group per arm, in it one bar per entry of `names`. */
typedef struct ls_bars {
    const char *title, *x_label;
    const char *const *names; /* [bars] */
    size_t groups, bars;
    const char *const *arms, *const *labels; /* [groups] */
    const double *value, *low, *high;        /* [groups][bars] */
    int share;                               /* as that of ls_chart */
    double low_most, high_most;              /* with `share`: the ends of all */
} ls_bars;
void ls_chart_bars(ls_ctx *ctx, const ls_bars *bars, ls_text *out);

/* A small drawing of a style, for legends. */
void ls_chart_swatch(ls_ctx *ctx, ls_chart_style style, ls_text *out);
/* Few digits, for people: 5.23, 118, 2.1e+06. */
void ls_chart_number(double value, char *out, size_t bytes);
/* 1234567 as 1,234,567; what has too many digits as 1.2e+20. */
void ls_chart_count(double value, char *out, size_t bytes);

/* Values by two things, each a cell of a shade. Without names, columns are lengths and rows depths
 * in percent; without a scale, values are shares of right answers from 0 to 1. */
typedef struct ls_heat {
    const char *title, *x_label, *y_label, *mark_text;
    double mark_x;       /* a line after the last column that is not beyond it; 0: none */
    const double *marks; /* [rows]: such a line in every row; or NULL */
    double chance;       /* NAN: not known */
    size_t columns, rows;
    const double *x, *y;                                /* [columns], [rows]: rising */
    const char *const *column_names, *const *row_names; /* in their place; or NULL */
    const double *value, *low, *high; /* [rows][columns]; not finite: no cell, no range */
    const double *count;              /* questions of each; or NULL */
    double dark, bright;              /* what the ends of the scale stand for; equal: 0 and 1 */
    const char *unit, *spread;        /* with a scale of its own: of values; what low, high are */
} ls_heat;
void ls_chart_heat(ls_ctx *ctx, const ls_heat *heat, ls_text *out);
/* What ls_chart_heat or ls_chart_bars has drawn, as a file of its own, without a legend; false: it
 * is not such a figure. */
bool ls_chart_figure_file(ls_ctx *ctx, const char *title, const char *figure, ls_text *out);

/* A value for each head of each layer: columns are heads, rows layers. Layers may have other heads,
 * and as many rectangles are drawn as there are heads in all. */
typedef struct ls_head_place {
    size_t row, column;
} ls_head_place;
typedef struct ls_head_map {
    const char *title;
    const double *head, *layer; /* [heads], [layers]: their numbers */
    size_t heads, layers;
    const ls_head_place *place; /* [count] */
    const double *value;        /* [count]; not finite: no cell */
    size_t count;
    double most;    /* colours go from 0 to it, > 0 */
    bool both_ways; /* from -most, with a pale middle */
} ls_head_map;
void ls_chart_head_map(ls_ctx *ctx, const ls_head_map *map, ls_text *out);

#endif
