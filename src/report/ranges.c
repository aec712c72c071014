#include "report/ranges.h"

#include <float.h>

static const ls_range of_row[] = {{"length", 0, LS_COUNT_MAX},
                                  {"stride", 0, LS_COUNT_MAX},
                                  {"tokens", 0, LS_COUNT_MAX},
                                  {"documents", 0, LS_COUNT_MAX},
                                  {"n", 0, LS_COUNT_MAX},
                                  {"state_bytes", 0, LS_COUNT_MAX},
                                  {"accuracy", 0, 1},
                                  {"accuracy_min", 0, 1},
                                  {"accuracy_max", 0, 1},
                                  {"exact", 0, 1},
                                  {"chance", 0, 1},
                                  {"ppl", 0, DBL_MAX},
                                  {"ppl_min", 0, DBL_MAX},
                                  {"ppl_max", 0, DBL_MAX},
                                  {"loss", -DBL_MAX, DBL_MAX},
                                  {"excess", -DBL_MAX, DBL_MAX},
                                  {"R_head", -2, 2},
                                  {"R_layer", -2, 2},
                                  {"M_head", -1, 2},
                                  {"M_layer", -1, 2},
                                  {"O_head", 0, 2},
                                  {"O_layer", 0, 2},
                                  {"O_expected", 0, 2},
                                  {"tokens_per_second", 0, DBL_MAX},
                                  {"bytes", 0, LS_COUNT_MAX}};
static const ls_range of_cost[] = {{"seconds", 0, DBL_MAX}, {"peak_bytes", 0, LS_COUNT_MAX}};
static const ls_range of_suite[] = {
    {"trained_length", 0, LS_COUNT_MAX}, {"n", 0, LS_COUNT_MAX},       {"chance", 0, 1},
    {"seeds", 0, LS_COUNT_MAX},          {"score", -DBL_MAX, DBL_MAX}, {"low", -DBL_MAX, DBL_MAX},
    {"high", -DBL_MAX, DBL_MAX}};
static const ls_range of_cell[] = {
    {"length", 0, LS_COUNT_MAX},      {"depth", 0, 100},
    {"position", 0, LS_COUNT_MAX},    {"pairs", 0, LS_COUNT_MAX},
    {"documents", 0, LS_COUNT_MAX},   {"shots", 0, LS_COUNT_MAX},
    {"layer", 0, LS_COUNT_MAX},       {"head", 0, LS_COUNT_MAX},
    {"n", 0, LS_COUNT_MAX},           {"score", -DBL_MAX, DBL_MAX},
    {"low", -DBL_MAX, DBL_MAX},       {"high", -DBL_MAX, DBL_MAX},
    {"score_min", -DBL_MAX, DBL_MAX}, {"score_max", -DBL_MAX, DBL_MAX}};
#define TABLE(table)                                                                               \
    { table, sizeof(table) / sizeof *(table) }
const ls_ranges ls_ranges_row = TABLE(of_row), ls_ranges_suite = TABLE(of_suite),
                ls_ranges_cell = TABLE(of_cell), ls_ranges_cost = TABLE(of_cost);

ls_status ls_range_object(ls_ctx *ctx, const char *path, const char *what, const json_t *object,
                          ls_ranges ranges) {
    if (!json_is_object(object))
        return LS_FAIL(ctx, LS_EINPUT, "%s: %s must be an object", path, what);
    for (size_t i = 0; i < ranges.count; i++) {
        const ls_range *range = &ranges.at[i];
        const json_t *value = json_object_get(object, range->key);
        const double number = json_number_value(value);
        if (value == NULL || json_is_null(value)) continue;
        if (!json_is_number(value) || number < range->low || number > range->high)
            return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` of %s must be a number from %g to %g", path,
                           range->key, what, range->low, range->high);
    }
    return LS_OK;
}

ls_status ls_range_list(ls_ctx *ctx, const char *path, const json_t *object, const char *key,
                        size_t most, ls_ranges ranges) {
    const json_t *rows = json_object_get(object, key);
    if (rows == NULL || json_is_null(rows)) return LS_OK;
    if (!json_is_array(rows) || json_array_size(rows) > most)
        return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` must be a list of at most %zu rows", path, key,
                       most);
    for (size_t i = 0; i < json_array_size(rows); i++)
        LS_TRY(ls_range_object(ctx, path, key, json_array_get(rows, i), ranges));
    return LS_OK;
}

ls_status ls_range_columns(ls_ctx *ctx, const char *path, const json_t *list, ls_columns of) {
    const char *const *keys = of.keys, *what = of.what;
    const size_t count = json_array_size(json_object_get(list, keys[of.counts]));
    for (size_t k = 0; k < of.all; k++) {
        const json_t *values = json_object_get(list, keys[k]);
        if (values == NULL && (count == 0 || k >= of.needed)) continue;
        if (!json_is_array(values) || json_array_size(values) != count)
            return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` of %s must be a list as long as `%s`", path,
                           keys[k], what, keys[of.counts]);
        const bool unknown = k >= of.counts;
        for (size_t i = 0; i < count; i++) {
            const json_t *value = json_array_get(values, i);
            const double number = json_number_value(value), high = unknown ? DBL_MAX : LS_COUNT_MAX;
            if (unknown && json_is_null(value)) continue;
            if (!json_is_number(value) || number < (unknown ? -DBL_MAX : 0) || number > high)
                return LS_FAIL(ctx, LS_EINPUT, "%s: `%s` of %s must hold numbers", path, keys[k],
                               what);
        }
    }
    return LS_OK;
}

ls_status ls_range_suite(ls_ctx *ctx, const char *path, const json_t *suite) {
    static const char *const lists[] = {"cells", "curve", "references"};
    LS_TRY(ls_range_object(ctx, path, "the suite", suite, ls_ranges_suite));
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        LS_TRY(ls_range_list(ctx, path, suite, lists[i], LS_CELLS_MAX, ls_ranges_cell));
    return LS_OK;
}
