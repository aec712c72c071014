/* Snakes grow dash by dash: each starts where the one before ended, a margin away, in a direction
 * drawn by how little it turns and by what is free there. What is taken stands in a mask of 0 to
 * 255, in which a dash has a soft rim; the newest dash of a snake enters it one step late, so that
 * the next one may touch it. Dashes are drawn twice as fine and shrunk with Lanczos' filter. */
#include "task/lib/snakes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define PI 3.14159265358979323846

static const ls_snakes_kind kinds[] = {
    {.side = 32,
     .dash = 2,
     .width = 1,
     .margin_low = 1,
     .margin = 1,
     .seed_distance = 7,
     .padding = 1,
     .distractor_dashes = 20,
     .dot = 1.5,
     .continuity = 1.0,
     .target = 1.5,
     .distractor = 2.0},
    {.side = 64,
     .dash = 5,
     .width = 2,
     .margin_low = 1,
     .margin = 1,
     .seed_distance = 12,
     .padding = 1,
     .distractor_dashes = 22,
     .dot = 2.5,
     .continuity = 1.8,
     .target = 0.8,
     .distractor = 0.8},
    {.side = 128,
     .dash = 5,
     .width = 3,
     .margin_low = 2,
     .margin = 3,
     .seed_distance = 20,
     .padding = 1,
     .distractor_dashes = 35,
     .dot = 3.0,
     .continuity = 1.8,
     .target = 0.9,
     .distractor = 0.9},
};

const ls_snakes_kind *ls_snakes_kind_of(int64_t side) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].side == side) return &kinds[i];
    return NULL;
}

enum {
    TAPS = 13,  /* of the filter */
    FINE = 2,   /* times */
    REACH = 10, /* of a patch from its middle, at most */
    PATCH = 2 * REACH + 1,
    CANVAS = 2 * REACH * FINE + 1,
    DRAWS = 3,       /* of a direction, before a snake is given up */
    SNAKE_TRIES = 5, /* of a distractor, before it is left out */
    FULL = 255,
    PARTS = 1 << 22,                /* of a weight: the filter counts in whole numbers */
    FREE_BELOW = FULL * 3 / 10 + 1, /* less than this in the mask counts as free */
    PLACES = 64,                    /* at which a dash may begin: pixels of a circle */
    CORNERS = 4,                    /* of a line of several fine pixels */
};

typedef ls_snakes_point point;

/* A dash of a direction seen from its start, and one in its place. */
typedef struct stencil {
    bool made;
    uint8_t at[PATCH][PATCH];
} stencil;
typedef struct patch {
    point middle;
    const stencil *stencil;
} patch;

typedef struct weights {
    int first;
    int32_t at[TAPS]; /* in parts */
} weights;

/* Where a dash begins, seen from the pivot, and the dash back from there with its margin. */
typedef struct place {
    point offset;
    double angle;
    stencil back;
} place;

typedef struct drawing {
    const ls_snakes_kind *kind;
    ls_random key;
    uint64_t next;     /* number of the key's next draw */
    int margin, reach; /* of the patches */
    weights filter[PATCH];
    stencil straight[360]; /* first dashes with their margin, by degrees */
    place places[PLACES];
    int place_count;
    uint8_t mask[LS_SNAKES_SIDE * LS_SNAKES_SIDE];
} drawing;

/* A snake that grows. */
typedef struct growing {
    ls_snakes_snake *snake;
    point pivot;
    double angle;
    patch newest; /* not in the mask yet */
} growing;

static int below(drawing *d, int bound) {
    return (int)ls_random_below(d->key, d->next++, (uint64_t)bound);
}

static double degrees(int count) {
    return count * PI / 180;
}

static double opposite(double angle) {
    return angle < 0 ? angle + PI : angle - PI;
}

static point moved(point from, double angle, int distance) {
    return (point){(int)ceil(from.row + distance * sin(angle)),
                   (int)ceil(from.column + distance * cos(angle))};
}

static bool inside(const drawing *d, point p) {
    return p.row >= 0 && p.column >= 0 && p.row < d->kind->side && p.column < d->kind->side;
}

/* ---- drawing ---- */

static double lanczos(double x) {
    if (x == 0) return 1;
    if (fabs(x) >= 3) return 0;
    return 3 * sin(PI * x) * sin(PI * x / 3) / (PI * PI * x * x);
}

/* The fine pixels of `count` that pixel `at` of `shrunk` is made of. */
static weights weights_of(int at, int shrunk, int count) {
    const double scale = (double)count / shrunk, middle = (at + 0.5) * scale;
    weights out = {.first =
                       (int)ls_max(0, ls_min((int)ceil(middle - TAPS / 2.0 - 0.5), count - TAPS))};
    double each[TAPS], sum = 0;
    for (int i = 0; i < TAPS; i++) sum += each[i] = lanczos((out.first + i + 0.5 - middle) / scale);
    for (int i = 0; i < TAPS; i++) out.at[i] = (int32_t)round(each[i] / sum * PARTS);
    return out;
}

/* A sum of weighted pixels, rounded and clipped. */
static uint8_t as_byte(int64_t sum) {
    return (uint8_t)(ls_min(ls_max(sum + PARTS / 2, 0) / PARTS, FULL));
}

/* The pixels of the circle of a radius, each once. */
static void list_places(drawing *d, int radius) {
    const double step = 1.0 / radius; /* a pixel of the circle */
    for (int i = 0; i * step < 2 * PI && d->place_count < PLACES; i++) {
        const point p = {(int)floor(radius * sin(i * step)), (int)floor(radius * cos(i * step))};
        bool listed = false;
        for (int j = 0; j < d->place_count; j++)
            listed |= d->places[j].offset.row == p.row && d->places[j].offset.column == p.column;
        if (listed) continue;
        d->places[d->place_count].offset = p;
        d->places[d->place_count++].angle = atan2(p.row, p.column);
    }
}

static void choose_margin(drawing *d) {
    const ls_snakes_kind *kind = d->kind;
    d->margin = kind->margin_low + below(d, kind->margin - kind->margin_low + 1);
    list_places(d, kind->dash + d->margin);
    d->reach = kind->dash + (kind->width + FINE - 1) / FINE + d->margin;
    for (int i = 0; i <= 2 * d->reach; i++)
        d->filter[i] = weights_of(i, 2 * d->reach + 1, 2 * d->reach * FINE + 1);
}

typedef uint8_t canvas[CANVAS][CANVAS];

static void stamp(canvas out, int side, int row, int column, int radius) {
    for (int r = -radius; r <= radius; r++)
        for (int c = -radius; c <= radius; c++)
            if (r * r + c * c <= radius * radius && row + r >= 0 && row + r < side &&
                column + c >= 0 && column + c < side)
                out[row + r][column + c] = 1;
}

/* A line one fine pixel across: where it passes between two of them, the farther one. */
static void draw_thin(point from, point to, canvas out) {
    const int rows = abs(to.row - from.row), columns = abs(to.column - from.column);
    const int down = to.row < from.row ? -1 : 1, right = to.column < from.column ? -1 : 1;
    const int most = (int)ls_max(rows, columns), least = (int)ls_min(rows, columns);
    int behind = 2 * least - most;
    for (int i = 0; i <= most; i++) {
        out[from.row][from.column] = 1;
        const bool aside = behind >= 0;
        behind += 2 * least - (aside ? 2 * most : 0);
        if (rows >= columns || aside) from.row += down;
        if (rows < columns || aside) from.column += right;
    }
}

/* To the nearest; of two, to the one nearer to zero. */
static int nearest(double value) {
    return (int)copysign(ceil(fabs(value) - 0.5), value);
}

/* The column at which a side of a wide line has a row. */
static float column_of(point from, point to, int row) {
    const float slope = (float)(to.column - from.column) / (float)(to.row - from.row);
    return (float)(row - from.row) * slope + (float)from.column;
}

/* The columns of a wide line in a row. */
typedef struct extent {
    float low, high;
} extent;

static extent extent_of(const point *corners, int row) {
    extent out = {INFINITY, -INFINITY};
    for (int i = 0; i < CORNERS; i++) {
        const point from = corners[i], to = corners[(i + 1) % CORNERS];
        if (from.row == to.row || row < ls_min(from.row, to.row) || row > ls_max(from.row, to.row))
            continue;
        const float column = column_of(from, to, row);
        out.low = fminf(out.low, column);
        out.high = fmaxf(out.high, column);
    }
    return out;
}

/* A line of several fine pixels: the rectangle between corners in whole ones, row by row. A tip
 * that the next row does not touch reaches as far as that. */
static void draw_wide(point from, point to, int width, canvas out) {
    const int rows = to.row - from.row, columns = to.column - from.column;
    const double length = hypot(rows, columns);
    const int less = (width - 1) / 2, more = width / 2; /* to either side of the line */
    const int left = nearest(less * rows / length), right = nearest(more * rows / length);
    const int up = nearest(less * columns / length), down = nearest(more * columns / length);
    const point corners[CORNERS] = {{from.row + down, from.column - left},
                                    {to.row + down, to.column - left},
                                    {to.row - up, to.column + right},
                                    {from.row - up, from.column + right}};
    int top = corners[0].row, bottom = top;
    for (int i = 1; i < CORNERS; i++) {
        top = (int)ls_min(top, corners[i].row);
        bottom = (int)ls_max(bottom, corners[i].row);
    }
    for (int row = top; row <= bottom; row++) {
        extent e = extent_of(corners, row);
        if (e.low == e.high && (row == top || row == bottom)) {
            const extent next = extent_of(corners, row == top ? row + 1 : row - 1);
            if (next.high < e.low - 1) e.low = roundf(next.high) + 1;
            if (next.low > e.high + 1) e.high = roundf(next.low) - 1;
        }
        for (int column = (int)floorf(e.low + 0.5f); column <= nearest(e.high); column++)
            out[row][column] = 1;
    }
}

/* The line with `rim` fine pixels around it. */
static void draw_line(const drawing *d, double angle, int rim, canvas out) {
    const int middle = d->reach * FINE, side = 2 * middle + 1;
    const point from = {middle, middle}, to = moved(from, angle, d->kind->dash * FINE);
    canvas bare = {{0}};
    if (d->kind->width == 1)
        draw_thin(from, to, bare);
    else
        draw_wide(from, to, d->kind->width, bare);
    memset(out, 0, sizeof(canvas));
    for (int r = 0; r < side; r++)
        for (int c = 0; c < side; c++)
            if (bare[r][c]) stamp(out, side, r, c, rim);
}

static void shrink(const drawing *d, canvas from, stencil *out) {
    const int shrunk = 2 * d->reach + 1, side = 2 * d->reach * FINE + 1;
    uint8_t rows[CANVAS][PATCH]; /* pixels are bytes in between, too */
    bool empty[CANVAS];          /* most rows: nothing is summed over them */
    for (int r = 0; r < side; r++) {
        empty[r] = memchr(from[r], 1, (size_t)side) == NULL;
        for (int c = 0; c < shrunk && !empty[r]; c++) {
            int32_t sum = 0; /* weights sum to PARTS: FULL times that has 30 bits */
            for (int i = 0; i < TAPS; i++)
                sum += d->filter[c].at[i] * FULL * from[r][d->filter[c].first + i];
            rows[r][c] = as_byte(sum);
        }
    }
    for (int r = 0; r < shrunk; r++) {
        int32_t sums[PATCH] = {0};
        for (int i = 0; i < TAPS; i++)
            for (int c = 0; c < shrunk && !empty[d->filter[r].first + i]; c++)
                sums[c] += d->filter[r].at[i] * rows[d->filter[r].first + i][c];
        for (int c = 0; c < shrunk; c++) out->at[r][c] = as_byte(sums[c]);
    }
}

static void draw_stencil(const drawing *d, double angle, int rim, stencil *out) {
    canvas fine;
    draw_line(d, angle, rim * FINE, fine);
    shrink(d, fine, out);
    out->made = true;
}

/* The same, drawn once for an image. */
static const stencil *known(const drawing *d, stencil *of, double angle) {
    if (!of->made) draw_stencil(d, angle, d->margin, of);
    return of;
}

/* The part of a patch that is in the image, as rows and columns of the patch. */
typedef struct window {
    int first_row, last_row, first_column, last_column;
} window;
static window clip(const drawing *d, const patch *p) {
    const int last = d->kind->side - 1, top = p->middle.row - d->reach;
    const int left = p->middle.column - d->reach;
    return (window){(int)ls_max(0, -top), (int)ls_min(2 * d->reach, last - top),
                    (int)ls_max(0, -left), (int)ls_min(2 * d->reach, last - left)};
}

/* image = max(image, patch) */
static void paint(const drawing *d, const patch *p, uint8_t *image) {
    const window w = clip(d, p);
    for (int r = w.first_row; r <= w.last_row; r++) {
        uint8_t *row =
            image + (p->middle.row - d->reach + r) * d->kind->side + (p->middle.column - d->reach);
        for (int c = w.first_column; c <= w.last_column; c++)
            if (p->stencil->at[r][c] > row[c]) row[c] = p->stencil->at[r][c];
    }
}

/* Whether a dash and what is in the mask are too much for one pixel: 1.8 of 1 and more. Where they
 * are 1.8 but for rounding, that of the source decides: of float32 numbers added as float64. */
static bool too_full(int mask, int dash) {
    if (5 * (mask + dash) != 9 * FULL) return 5 * (mask + dash) > 9 * FULL;
    return (double)(float)(mask / (double)FULL) + (double)(float)(dash / (double)FULL) >= 1.8;
}

static bool crosses(const drawing *d, const patch *p) {
    const window w = clip(d, p);
    for (int r = w.first_row; r <= w.last_row; r++) {
        const uint8_t *row = d->mask + (p->middle.row - d->reach + r) * d->kind->side +
                             (p->middle.column - d->reach);
        for (int c = w.first_column; c <= w.last_column; c++)
            if (too_full(row[c], p->stencil->at[r][c])) return true;
    }
    return false;
}

/* ---- seeds ---- */

/* What a dash would cover, as pixels from its start: full ones alone, a pixel off as in the
 * original, and no farther than dash and margin. */
typedef struct shape {
    point at[PATCH * PATCH];
    int count;
    point low, high;
} shape;

static void shape_of(const drawing *d, const stencil *dash, shape *out) {
    const int most = d->kind->dash + d->margin;
    out->count = 0;
    out->low = out->high = (point){0, 0};
    for (int r = 0; r <= 2 * d->reach; r++)
        for (int c = 0; c <= 2 * d->reach; c++) {
            const point at = {r - d->reach + 1, c - d->reach + 1};
            if (dash->at[r][c] < FULL || abs(at.row) > most || abs(at.column) > most) continue;
            if (out->count == 0) out->low = out->high = at;
            out->at[out->count++] = at;
            out->low.column = (int)ls_min(out->low.column, at.column);
            out->high.column = (int)ls_max(out->high.column, at.column);
            out->high.row = at.row; /* rows come in order */
        }
}

/* A place whose shape stays out of a frame so wide; false where there is none. The mask is empty
 * within it. */
static bool place_in_middle(drawing *d, const shape *s, int frame, point *out) {
    const int rows = d->kind->side - 2 * frame - (s->high.row - s->low.row);
    const int columns = d->kind->side - 2 * frame - (s->high.column - s->low.column);
    if (rows <= 0 || columns <= 0) return false;
    out->row = frame - s->low.row + below(d, rows);
    out->column = frame - s->low.column + below(d, columns);
    return true;
}

/* Whether a part of the shape is in the image wherever it is put. Of one that is not, the source
 * takes all places for taken: its dilation has nothing to choose from at a corner. */
static bool reaches_corners(const shape *s) {
    bool reached[2][2] = {{false}}; /* above or below, left or right of the start, or level */
    for (int i = 0; i < s->count; i++)
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < 2; c++)
                reached[r][c] |= (r == 0 ? s->at[i].row <= 0 : s->at[i].row >= 0) &&
                                 (c == 0 ? s->at[i].column <= 0 : s->at[i].column >= 0);
    return reached[0][0] && reached[0][1] && reached[1][0] && reached[1][1];
}

static bool shape_is_free(const drawing *d, const shape *s, int row, int column) {
    const int side = d->kind->side;
    for (int i = 0; i < s->count; i++) {
        const int r = row + s->at[i].row, c = column + s->at[i].column;
        if (r < 0 || c < 0 || r >= side || c >= side) continue;
        if (r == 0 || c == 0 || r == side - 1 || c == side - 1) return false;
        if (d->mask[r * side + c] >= FREE_BELOW) return false;
    }
    return true;
}

/* A place whose shape touches nothing; false where there is none, or where less than a hundredth of
 * the image is free. */
static bool place_anywhere(drawing *d, const shape *s, point *out) {
    const int side = d->kind->side;
    uint16_t found[LS_SNAKES_SIDE * LS_SNAKES_SIDE];
    int count = 0, empty = 0;
    for (int i = 0; i < side * side; i++) empty += d->mask[i] < FREE_BELOW;
    if (100 * empty < side * side) return false;
    for (int i = 0; i < side * side; i++)
        if (shape_is_free(d, s, i / side, i % side)) found[count++] = (uint16_t)i;
    if (count == 0) return false;
    const int chosen = found[below(d, count)];
    *out = (point){chosen / side, chosen % side};
    return true;
}

/* Begins a snake in a direction of so many degrees; false where its ends are not in the image. */
static bool begin(drawing *d, point tail, int direction, growing *g) {
    const double angle = degrees(direction);
    const point head = moved(tail, angle, d->kind->dash);
    g->pivot = moved(head, opposite(angle), d->kind->dash + d->margin);
    g->angle = angle;
    if (!inside(d, head) || !inside(d, g->pivot)) return false;
    g->newest = (patch){tail, known(d, &d->straight[direction + 180], angle)};
    g->snake->dashes[0] = (ls_snakes_dash){tail, angle};
    g->snake->count = 1;
    return true;
}

/* frame > 0: outside of it with nothing in the mask yet; 0: wherever it is free. */
static bool seed(drawing *d, int frame, growing *g) {
    for (int draw = 0; draw < DRAWS; draw++) {
        const int direction = below(d, 360) - 180;
        shape s;
        point tail;
        shape_of(d, known(d, &d->straight[direction + 180], degrees(direction)), &s);
        if (!reaches_corners(&s)) return false;
        if (frame > 0 ? !place_in_middle(d, &s, frame, &tail) : !place_anywhere(d, &s, &tail))
            return false;
        if (begin(d, tail, direction, g)) return true;
    }
    return false;
}

/* The second target, at the distance of the seeds from the first. */
static bool seed_beside(drawing *d, point first, growing *g) {
    for (int draw = 0; draw < DRAWS; draw++) {
        const int direction = below(d, 360) - 180, distance = d->kind->seed_distance;
        const double around = degrees(below(d, 360));
        const point tail = {(int)rint(first.row + distance * sin(around)),
                            (int)rint(first.column + distance * cos(around))};
        if (begin(d, tail, direction, g)) return true;
    }
    return false;
}

/* ---- growing ---- */

/* How full the mask is at most within the margin of a pixel. */
static int crowded(const drawing *d, point p) {
    int most = 0;
    for (int r = -d->margin; r <= d->margin; r++)
        for (int c = -d->margin; c <= d->margin; c++) {
            const point at = {p.row + r, p.column + c};
            if (r * r + c * c > d->margin * d->margin || !inside(d, at)) continue;
            most = (int)ls_max(most, d->mask[at.row * d->kind->side + at.column]);
        }
    return most;
}

/* How little a dash turns: 1 to 0. */
static double straightness(const drawing *d, double angle, double before) {
    const double apart = fabs(angle - before);
    const double turn = fmin(apart, 2 * PI - apart) * d->kind->continuity;
    return turn < PI / 2 ? cos(turn) * cos(turn) : 0;
}

/* Weights of the places of the circle around the pivot at which a dash may begin, summed up; all
 * of them together. */
static double sum_weights(const drawing *d, point pivot, double before, double *sums) {
    double sum = 0;
    for (int i = 0; i < d->place_count; i++) {
        const point p = {pivot.row + d->places[i].offset.row,
                         pivot.column + d->places[i].offset.column};
        const double straight = inside(d, p) ? straightness(d, d->places[i].angle, before) : 0;
        if (straight > 0) sum += straight * (1 - crowded(d, p) / (double)FULL);
        sums[i] = sum;
    }
    return sum;
}

static int choose_place(drawing *d, const double *sums) {
    const double drawn = ls_random_unit(d->key, d->next++) * sums[d->place_count - 1];
    int i = 0;
    while (i < d->place_count - 1 && sums[i] <= drawn) i++;
    return i;
}

static bool extend(drawing *d, growing *g) {
    const point pivot = moved(g->pivot, g->angle, d->kind->dash + 2 * d->margin);
    double sums[PLACES];
    if (sum_weights(d, pivot, g->angle, sums) < 1e-4) return false;
    for (int draw = 0; draw < DRAWS; draw++) {
        place *chosen = &d->places[choose_place(d, sums)];
        const ls_snakes_dash dash = {
            {pivot.row + chosen->offset.row, pivot.column + chosen->offset.column},
            opposite(chosen->angle)};
        const patch next = {dash.start, known(d, &chosen->back, dash.angle)};
        if (crosses(d, &next)) continue;
        paint(d, &g->newest, d->mask);
        g->newest = next;
        g->pivot = pivot;
        g->angle = chosen->angle;
        g->snake->dashes[g->snake->count++] = dash;
        return true;
    }
    return false;
}

static void clear_mask(drawing *d) {
    const int side = d->kind->side, padding = d->kind->padding;
    memset(d->mask, FULL, (size_t)(side * side));
    for (int r = padding; r < side - padding; r++)
        memset(d->mask + r * side + padding, 0, (size_t)(side - 2 * padding));
}

static bool draw_targets(drawing *d, int dashes, ls_snakes *out) {
    growing g[2] = {{.snake = &out->targets[0]}, {.snake = &out->targets[1]}};
    clear_mask(d);
    if (!seed(d, 2 * d->kind->seed_distance, &g[0])) return false;
    if (!seed_beside(d, out->targets[0].dashes[0].start, &g[1])) return false;
    for (int i = 1; i < dashes; i++)
        for (int s = 0; s < 2; s++)
            if (!extend(d, &g[s])) return false;
    paint(d, &g[1].newest, d->mask); /* of the second alone, as in the original */
    return true;
}

static bool draw_distractor(drawing *d, int dashes, ls_snakes_snake *out) {
    uint8_t kept[sizeof d->mask];
    growing g = {.snake = out};
    const size_t bytes = (size_t)(d->kind->side * d->kind->side);
    memcpy(kept, d->mask, bytes);
    bool done = seed(d, 0, &g);
    for (int i = 1; i < dashes && done; i++) done = extend(d, &g);
    if (done)
        paint(d, &g.newest, d->mask);
    else
        memcpy(d->mask, kept, bytes);
    return done;
}

static void draw_distractors(drawing *d, int dashes, ls_snakes *out) {
    const int wanted = (int)ls_min(d->kind->distractor_dashes / dashes, LS_SNAKES_MANY);
    out->distractor_count = 0;
    for (int i = 0; i < wanted; i++)
        for (int tried = 0; tried < SNAKE_TRIES; tried++)
            if (draw_distractor(d, dashes, &out->distractors[out->distractor_count])) {
                out->distractor_count++;
                break;
            }
}

/* ---- the image ---- */

static void brighten(double *pixel, double value) {
    if (*pixel < value) *pixel = value;
}

static void show_snake(const drawing *d, const ls_snakes_snake *snake, double bright,
                       double *image) {
    for (int i = 0; i < snake->count; i++) {
        stencil bare;
        draw_stencil(d, snake->dashes[i].angle, 0, &bare);
        const patch p = {snake->dashes[i].start, &bare};
        const window w = clip(d, &p);
        for (int r = w.first_row; r <= w.last_row; r++)
            for (int c = w.first_column; c <= w.last_column; c++)
                brighten(&image[(p.middle.row - d->reach + r) * d->kind->side + p.middle.column -
                                d->reach + c],
                         (float)(bare.at[r][c] / (double)FULL * bright)); /* as in the source */
    }
}

static bool in_dot(const drawing *d, int rows, int columns) {
    const double radius = d->kind->dot * FINE;
    return rows * rows + columns * columns <= radius * radius;
}

/* A disk, drawn fine and shrunk: along the rows, then along the columns. */
static void show_dot(const drawing *d, point middle, double *image) {
    const int side = d->kind->side, far = (int)ceil(d->kind->dot) + 3;
    const int top = (int)ls_max(0, middle.row - far),
              bottom = (int)ls_min(side, middle.row + far + 1);
    const int left = (int)ls_max(0, middle.column - far);
    const int right = (int)ls_min(side, middle.column + far + 1);
    for (int c = left; c < right; c++) {
        const weights columns = weights_of(c, side, side * FINE);
        uint8_t shrunk[LS_SNAKES_SIDE * FINE];
        for (int y = 0; y < side * FINE; y++) {
            int64_t sum = 0;
            for (int x = 0; x < TAPS; x++)
                if (in_dot(d, y - FINE * middle.row, columns.first + x - FINE * middle.column))
                    sum += columns.at[x] * FULL;
            shrunk[y] = as_byte(sum);
        }
        for (int r = top; r < bottom; r++) {
            const weights rows = weights_of(r, side, side * FINE);
            int64_t sum = 0;
            for (int y = 0; y < TAPS; y++) sum += rows.at[y] * shrunk[rows.first + y];
            brighten(&image[r * side + c], as_byte(sum) / (double)FULL);
        }
    }
}

static void show(const drawing *d, bool equal, ls_snakes *out) {
    double image[LS_SNAKES_SIDE * LS_SNAKES_SIDE] = {0}, most = 0;
    for (int s = 0; s < 2; s++) show_snake(d, &out->targets[s], equal ? 1 : d->kind->target, image);
    for (int s = 0; s < out->distractor_count; s++)
        show_snake(d, &out->distractors[s], equal ? 1 : d->kind->distractor, image);
    const ls_snakes_snake *first = &out->targets[out->dotted[0]];
    const ls_snakes_snake *last = &out->targets[out->dotted[1]];
    show_dot(d, first->dashes[0].start, image);
    show_dot(d, last->dashes[last->count - 1].start, image);
    const int pixels = d->kind->side * d->kind->side;
    for (int i = 0; i < pixels; i++) most = fmax(most, image[i]);
    for (int i = 0; i < pixels; i++) out->pixels[i] = (uint8_t)(image[i] * (FULL / most) + 0.5);
}

void ls_snakes_draw(const ls_snakes_kind *kind, int dashes, bool equal, ls_random key,
                    ls_snakes *out) {
    drawing d = {.kind = kind, .key = key};
    const int label = below(&d, 2);
    choose_margin(&d);
    out->margin = d.margin;
    /* one pair in some fifty to some hundreds comes out */
    while (!draw_targets(&d, dashes, out)) continue;
    draw_distractors(&d, (int)ls_max(1, dashes / 3), out);
    out->dotted[0] = below(&d, 2);
    out->dotted[1] = label == 1 ? out->dotted[0] : 1 - out->dotted[0];
    show(&d, equal, out);
}

bool ls_snakes_connected(const ls_snakes *snakes) {
    return snakes->dotted[0] == snakes->dotted[1];
}
