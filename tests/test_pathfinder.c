/* Images of Pathfinder are distributed as those of the public generator, of which
 * tests/golden/pathfinder.txt has means with their standard errors
 * (tests/golden/make/pathfinder.py). */
#include <errno.h>

#include "harness.h"
#include "task/lib/snakes.h"

enum { NAMES_MAX = 64, NAME_BYTES = 32, LINE_BYTES = 256, DASHES = 14 };
/* Standard errors of a difference that chance alone hardly passes: once in 16,000 means. */
static const double FAR = 4;

/* Of the values that the images have by a name: their number, sum and sum of squares. */
typedef struct moments {
    char name[NAME_BYTES];
    double count, sum, squares;
} moments;
typedef struct sample {
    int side, names;
    moments of[NAMES_MAX];
} sample;

static moments *named(sample *s, const char *name) {
    for (int i = 0; i < s->names; i++)
        if (strcmp(s->of[i].name, name) == 0) return &s->of[i];
    return NULL;
}

static void note(sample *s, double value, const char *format, ...) {
    char name[NAME_BYTES];
    va_list rest;
    va_start(rest, format);
    assert_in_range(vsnprintf(name, sizeof name, format, rest), 1, NAME_BYTES - 1);
    va_end(rest);
    moments *m = named(s, name);
    if (m == NULL) {
        assert_true(s->names < NAMES_MAX);
        m = &s->of[s->names++];
        snprintf(m->name, sizeof m->name, "%s", name);
    }
    m->count++;
    m->sum += value;
    m->squares += value * value;
}

/* ---- statistics of an image: tests/golden/make/pathfinder.py has the same ---- */

typedef struct region {
    int first_row, last_row, first_column, last_column;
} region;

/* Mean of the products of pixels so far apart, or of the pixels themselves. */
static double mean_of(const ls_snakes *s, int side, region in, int down, int right) {
    double sum = 0;
    for (int r = in.first_row; r < in.last_row - down; r++)
        for (int c = in.first_column; c < in.last_column - right; c++)
            sum += s->pixels[r * side + c] * (double)s->pixels[(r + down) * side + c + right];
    return sum / ((in.last_row - in.first_row - down) * (in.last_column - in.first_column - right));
}

static double tone_of(const ls_snakes *s, int side, region in) {
    double sum = 0;
    for (int r = in.first_row; r < in.last_row; r++)
        for (int c = in.first_column; c < in.last_column; c++) sum += s->pixels[r * side + c];
    return sum / ((in.last_row - in.first_row) * (in.last_column - in.first_column));
}

static double share_from(const ls_snakes *s, int side, int least) {
    int count = 0;
    for (int i = 0; i < side * side; i++) count += s->pixels[i] >= least;
    return count / (double)(side * side);
}

/* Mean tone at a distance of i to i + 1 eighths of the side from the middle. */
static double ring_of(const ls_snakes *s, int side, int i) {
    double sum = 0, count = 0;
    for (int p = 0; p < side * side; p++) {
        const double radius = hypot(p / side - (side - 1) / 2.0, p % side - (side - 1) / 2.0);
        if (radius < i * side / 8.0 || radius >= (i + 1) * side / 8.0) continue;
        sum += s->pixels[p];
        count++;
    }
    return sum / count;
}

/* Groups of pixels from tone 64 on that touch, at their corners too. */
static int components_of(const ls_snakes *s, int side) {
    static int open[LS_SNAKES_SIDE * LS_SNAKES_SIDE];
    bool left[LS_SNAKES_SIDE * LS_SNAKES_SIDE];
    int components = 0;
    for (int i = 0; i < side * side; i++) left[i] = s->pixels[i] >= 64;
    for (int i = 0; i < side * side; i++) {
        if (!left[i]) continue;
        int count = 0;
        open[count++] = i;
        left[i] = false;
        components++;
        while (count > 0) {
            const int at = open[--count];
            for (int r = at / side - 1; r <= at / side + 1; r++)
                for (int c = at % side - 1; c <= at % side + 1; c++) {
                    if (r < 0 || c < 0 || r >= side || c >= side || !left[r * side + c]) continue;
                    left[r * side + c] = false;
                    open[count++] = r * side + c;
                }
        }
    }
    return components;
}

static void note_dots(sample *m, const ls_snakes *s, double tone) {
    const ls_snakes_point dots[] = {s->targets[s->dotted[0]].dashes[0].start,
                                    s->targets[s->dotted[1]].dashes[DASHES - 1].start};
    const bool connected = ls_snakes_connected(s);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "first" : "last";
        note(m, dots[i].row, "%s_dot_row", name);
        note(m, dots[i].column, "%s_dot_column", name);
        note(m, s->pixels[dots[i].row * m->side + dots[i].column], "%s_dot_tone", name);
    }
    const double apart = hypot(dots[0].row - dots[1].row, dots[0].column - dots[1].column);
    note(m, apart, "dots_apart");
    note(m, connected ? apart : 0, "dots_apart_connected");
    note(m, connected, "connected");
    note(m, connected ? tone : 0, "tone_connected");
}

static void note_image(sample *m, const ls_snakes *s) {
    static const int tones[] = {32, 64, 96, 128, 160, 192, 224, 255}, lags[] = {1, 2, 3, 4, 6};
    const int side = m->side;
    const region all = {0, side, 0, side};
    note(m, s->distractor_count, "distractors");
    note(m, s->distractor_count == 0, "without_distractors");
    note(m, share_from(s, side, 1), "lit");
    note(m, tone_of(s, side, all), "tone");
    note(m, mean_of(s, side, all, 0, 0), "tone_squared");
    for (size_t i = 0; i < sizeof tones / sizeof tones[0]; i++)
        note(m, share_from(s, side, tones[i]), "tone_from_%d", tones[i]);
    for (int i = 0; i < 4; i++) {
        const int from = i * side / 4, to = (i + 1) * side / 4;
        note(m, ring_of(s, side, i), "ring_%d", i);
        note(m, tone_of(s, side, (region){from, to, 0, side}), "rows_%d", i);
        note(m, tone_of(s, side, (region){0, side, from, to}), "columns_%d", i);
    }
    for (size_t i = 0; i < sizeof lags / sizeof lags[0]; i++) {
        note(m, mean_of(s, side, all, lags[i], 0), "down_%d", lags[i]);
        note(m, mean_of(s, side, all, 0, lags[i]), "right_%d", lags[i]);
    }
    note(m, components_of(s, side), "components");
    note_dots(m, s, tone_of(s, side, all));
}

static void draw_sample(sample *m, int side) {
    static ls_snakes s;
    const int images = side == 32 ? 1500 : 40;
    *m = (sample){.side = side};
    assert_non_null(ls_snakes_kind_of(side));
    for (int i = 0; i < images; i++) {
        const ls_random key = {.seed = 5, .step = (uint32_t)i};
        ls_snakes_draw(ls_snakes_kind_of(side), DASHES, false, key, &s);
        note_image(m, &s);
    }
}

/* ---- comparison ---- */

/* How many standard errors our mean is from theirs. */
static double errors_apart(const moments *ours, double mean, double error) {
    const double own = ours->sum / ours->count;
    const double variance = (ours->squares - ours->sum * own) / (ours->count - 1);
    if (own == mean) return 0; /* such as a share of nothing */
    return fabs(own - mean) / sqrt(fmax(variance, 0) / ours->count + error * error);
}

static void test_distributions(void **state) {
    (void)state;
    FILE *file = fopen(LS_TEST_SOURCE "/tests/golden/pathfinder.txt", "r");
    if (file == NULL) fail_msg("tests/golden/pathfinder.txt: %s", strerror(errno));
    static sample ours;
    char text[LINE_BYTES], name[NAME_BYTES];
    int side, images, sides = 0, means = 0, far = 0;
    double mean, error;
    while (fgets(text, sizeof text, file) != NULL) {
        if (text[0] == '#') continue;
        if (sscanf(text, "images %d | %d", &side, &images) == 2) {
            if (sides++ > 0) assert_int_equal(means, ours.names);
            draw_sample(&ours, side);
            means = 0;
            continue;
        }
        assert_int_equal(sscanf(text, "mean %d | %31s | %lf | %lf", &side, name, &mean, &error), 4);
        const moments *m = named(&ours, name);
        if (m == NULL || side != ours.side) fail_msg("%s of %d pixels", name, side);
        means++;
        if (errors_apart(m, mean, error) <= FAR) continue;
        far++;
        print_error("%d pixels a side, %s: %g of %g images, of the public ones %g +- %g: %.1f "
                    "standard errors apart\n",
                    side, name, m->sum / m->count, m->count, mean, error,
                    errors_apart(m, mean, error));
    }
    fclose(file);
    assert_int_equal(means, ours.names);
    assert_int_equal(sides, 3);
    assert_int_equal(far, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distributions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
