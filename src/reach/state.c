/* reach.json as it is read: a plan that this program could have made, and jobs whose numbers lie
 * where their measurements can. */
#include <float.h>
#include <string.h>

#include "reach/reach.h"
#include "report/ranges.h"

enum { JOBS_MAX = 4096, VARIANTS_MAX = 64, NAME_MAX_BYTES = 100 };

/* Whole numbers: of the plan, `room` beside them. */
typedef struct whole {
    const char *key;
    int64_t low, high;
    bool old; /* may be missing, in plans of earlier versions */
} whole;
static const whole of_plan[] = {
    {"tokens", 1, 2000000000, false}, {"needle_tokens", 1, 1000, false},
    {"chunk", 1, 4096, false},        {"batch", 1, 4096, false},
    {"depths", 1, 100, false},        {"candidates", 2, 256, false},
    {"rounds", 1, 100, false},        {"times", 1, 64, true},
    {"first", 0, INT32_MAX, true},    {"lambada_passages", 0, 1 << 20, true}};
static const ls_range of_speed[] = {{"tokens_per_second", 0, LS_COUNT_MAX}};
static const ls_range of_state[] = {{"spent_seconds", 0, 1e12}, {"budget_seconds", 0, 1e12}};
/* Beside what a row of an evaluation has. */
static const ls_range of_job[] = {{"took", 0, 1e12},
                                  {"token_loss", -DBL_MAX, DBL_MAX},
                                  {"flat", -DBL_MAX, DBL_MAX},
                                  {"score", -DBL_MAX, DBL_MAX},
                                  {"low", -DBL_MAX, DBL_MAX},
                                  {"high", -DBL_MAX, DBL_MAX},
                                  {"accuracy_last_token", 0, 1},
                                  {"perplexity", 0, DBL_MAX}};
/* Questions and samples, which are added up over rounds. */
static const ls_range of_round[] = {{"n", 0, INT32_MAX}};

static ls_status check_plan(ls_ctx *ctx, const char *path, const json_t *plan, int64_t trained) {
    const char *text;
    int64_t value;
    LS_TRY(ls_json_int(ctx, plan, "room", path, 1, 64 * trained, &value));
    for (size_t i = 0; i < sizeof of_plan / sizeof of_plan[0]; i++)
        if (!of_plan[i].old || json_object_get(plan, of_plan[i].key) != NULL)
            LS_TRY(ls_json_int(ctx, plan, of_plan[i].key, path, of_plan[i].low, of_plan[i].high,
                               &value));
    LS_TRY(ls_range_object(ctx, path, "the plan", plan, LS_RANGES(of_speed)));
    return ls_json_text(ctx, plan, "protocol", path, &text);
}

static ls_status check_variants(ls_ctx *ctx, const char *path, const json_t *variants) {
    const json_t *variant;
    size_t index;
    if (json_array_size(variants) < 1 || json_array_size(variants) > VARIANTS_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: `variants` must be 1 to %d", path, VARIANTS_MAX);
    json_array_foreach((json_t *)variants, index, variant) {
        const char *key, *name;
        json_t *setting;
        LS_TRY(ls_json_text(ctx, variant, "name", path, &name));
        if (strlen(name) > NAME_MAX_BYTES)
            return LS_FAIL(ctx, LS_EINPUT, "%s: a variant's name is too long", path);
        json_object_foreach(json_object_get(variant, "settings"), key, setting) {
            if (strncmp(key, "extend", 6) == 0 && json_is_string(setting)) continue;
            return LS_FAIL(ctx, LS_EINPUT, "%s: a variant has settings that are none", path);
        }
    }
    return LS_OK;
}

/* The loss by position. */
static ls_status check_positions(ls_ctx *ctx, const char *path, const json_t *job) {
    static const char *const keys[] = {"first", "end", "tokens", "loss"};
    const json_t *positions = json_object_get(job, "positions");
    if (positions == NULL || json_is_null(positions)) return LS_OK;
    LS_TRY(ls_range_object(ctx, path, "positions", positions, (ls_ranges){0}));
    return ls_range_columns(ctx, path, positions, (ls_columns){"positions", keys, 3, 4, 4});
}

static ls_status check_job(ls_ctx *ctx, const char *path, const json_t *job) {
    static const char *const lists[] = {"cells", "model_scores"};
    int64_t value;
    LS_TRY(ls_check_stop(ctx, "reading what was measured before"));
    LS_TRY(ls_range_object(ctx, path, "a job", job, ls_ranges_row));
    LS_TRY(ls_range_object(ctx, path, "a job", job, LS_RANGES(of_job)));
    LS_TRY(ls_json_int(ctx, job, "kind", path, 0, LS_REACH_LAMBADA, &value));
    LS_TRY(ls_json_int(ctx, job, "size", path, 0, (int64_t)LS_COUNT_MAX, &value));
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        LS_TRY(ls_range_list(ctx, path, job, lists[i], LS_CELLS_MAX, ls_ranges_cell));
        LS_TRY(ls_range_list(ctx, path, job, lists[i], LS_CELLS_MAX, LS_RANGES(of_round)));
    }
    return check_positions(ctx, path, job);
}

ls_status ls_reach_check(ls_ctx *ctx, const char *path, const json_t *state, int64_t trained) {
    json_t *jobs = json_object_get(state, "jobs"), *job;
    const char *key;
    int64_t length;
    LS_TRY(ls_json_int(ctx, state, "trained_length", path, trained, trained, &length));
    LS_TRY(ls_range_object(ctx, path, "the reach", state, LS_RANGES(of_state)));
    LS_TRY(check_plan(ctx, path, json_object_get(state, "plan"), trained));
    LS_TRY(check_variants(ctx, path, json_object_get(state, "variants")));
    if (!json_is_object(jobs) || json_object_size(jobs) > JOBS_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: `jobs` must be at most %d", path, JOBS_MAX);
    json_object_foreach(jobs, key, job) LS_TRY(check_job(ctx, path, job));
    return LS_OK;
}
