/* Pathfinder of the Long Range Arena, and Path-X at 128 pixels a side: whether two dots are on the
 * ends of the same dashed line, pixel by pixel. The length says how large the image is. */
#include "task/task.h"

#include "task/lib/snakes.h"

typedef struct pathfinder_options {
    int64_t dashes;
    bool equal_contrast;
} pathfinder_options;
#define FIELD(name) pathfinder_options, name
static const ls_option options[] = {
    LS_INT("dashes", FIELD(dashes), "14", 2, LS_SNAKES_DASHES,
           "Dashes of each of the two lines: 14 is hard, 9 medium, 6 easy."),
    LS_BOOL("equal_contrast", FIELD(equal_contrast), "false",
            "Whether all lines are equally bright; at 32 pixels a side the source's distractors "
            "are brighter."),
};

enum { TONES = 256 };

static int64_t vocabulary(const void *given) {
    (void)given;
    return TONES;
}

static const ls_snakes_kind *kind_of(int64_t length) {
    int64_t side = 1;
    while (side * side < length && side < LS_SNAKES_SIDE) side *= 2;
    return side * side == length ? ls_snakes_kind_of(side) : NULL;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    (void)given;
    if (kind_of(length) == NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "task pathfinder has images of 1024, 4096 or 16384 pixels: the length is "
                       "one of these, not %lld",
                       (long long)length);
    return LS_OK;
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const pathfinder_options *o = given;
    ls_snakes snakes;
    ls_snakes_draw(kind_of(length), (int)o->dashes, o->equal_contrast,
                   ls_task_stream(key, "snakes"), &snakes);
    for (int64_t i = 0; i < length; i++) inputs[i] = snakes.pixels[i];
    targets[0] = ls_snakes_connected(&snakes);
}

const ls_task_type ls_task_pathfinder = {
    .name = "pathfinder",
    .summary = "whether two dots are on the ends of the same dashed line, pixel by pixel",
    .paper = "Tay et al. 2020 (Long Range Arena); Linsley et al. 2018",
    .options = LS_OPTIONS(options, pathfinder_options),
    .length = 1024,
    .classes = 2,
    .one_length = true,
    .costly = true,
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
};
