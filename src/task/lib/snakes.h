/* Images of the Pathfinder challenge: two target snakes of dashes, shorter ones that distract, and
 * two dots on the ends of the same target or of both. */
#ifndef LS_TASK_LIB_SNAKES_H
#define LS_TASK_LIB_SNAKES_H

#include "base/random.h"
#include "base/status.h"

/* What belongs to a size of the images. */
typedef struct ls_snakes_kind {
    int side;                  /* pixels */
    int dash, width;           /* pixels along, half pixels across */
    int margin_low, margin;    /* pixels kept free around a dash: uniform between the two */
    int seed_distance;         /* between the starts of the two targets */
    int padding;               /* pixels at the border that nothing enters */
    int distractor_dashes;     /* of all distractors together */
    double dot;                /* radius */
    double continuity;         /* the larger, the straighter */
    double target, distractor; /* brightness, where that of a dot is 1 */
} ls_snakes_kind;
/* The kind of a side, NULL where there is none. */
const ls_snakes_kind *ls_snakes_kind_of(int64_t side);

enum { LS_SNAKES_SIDE = 128, LS_SNAKES_DASHES = 14, LS_SNAKES_MANY = 20 };

typedef struct ls_snakes_point {
    int row, column;
} ls_snakes_point;

/* A dash goes from `start`, at the outer end of its snake, towards `angle`: rows by the sine,
 * columns by the cosine. */
typedef struct ls_snakes_dash {
    ls_snakes_point start;
    double angle;
} ls_snakes_dash;

typedef struct ls_snakes_snake {
    ls_snakes_dash dashes[LS_SNAKES_DASHES]; /* the first points onward, the others back */
    int count;
} ls_snakes_snake;

/* An image as it was made. */
typedef struct ls_snakes {
    int margin;
    ls_snakes_snake targets[2], distractors[LS_SNAKES_MANY];
    int distractor_count;
    int dotted[2]; /* the targets whose first and whose last dash has a dot */
    uint8_t pixels[LS_SNAKES_SIDE * LS_SNAKES_SIDE]; /* row by row; the brightest is 255 */
} ls_snakes;

/* Draws from `key` alone. Targets have `dashes` dashes (2 to LS_SNAKES_DASHES), distractors a third
 * of them, one at least. With `equal` all are as bright as a dot. */
void ls_snakes_draw(const ls_snakes_kind *kind, int dashes, bool equal, ls_random key,
                    ls_snakes *out);
/* Whether the dots are on the same snake. */
bool ls_snakes_connected(const ls_snakes *snakes);

#endif
