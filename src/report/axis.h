/* The axes of charts: what they show, where it stands on the drawing, and their labels. The page's
 * script (page.js) chooses ranges and labels by the same rules when arms are hidden. */
#ifndef LS_REPORT_AXIS_H
#define LS_REPORT_AXIS_H

#include "report/html.h"

enum { LS_AXIS_TICKS_MAX = 16 };

typedef struct ls_axis {
    bool log;
    double low, high; /* of the data, with a little room */
    double from, to;  /* on the drawing */
    int ticks;
    double tick[LS_AXIS_TICKS_MAX];
} ls_axis;

double ls_axis_place(const ls_axis *a, double value);
/* What can be drawn: far outside of it there is nothing that a chart could show. */
bool ls_axis_takes(const ls_axis *a, double value);
void ls_axis_widen(ls_axis *a, double value);

/* Labels, and on an axis of values a little room at both ends. */
void ls_axis_even_ticks(ls_axis *a);
void ls_axis_finish_lengths(ls_axis *a); /* logarithmic: powers of two */
void ls_axis_finish_values(ls_axis *a);

#endif
