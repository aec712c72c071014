/* The table of a position method: sinusoids, slopes, buckets, frequencies. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/comparer.h"
#include "compare/comparison.h"
#include "model/naming.h"
#include "position/position.h"

typedef struct position_trial {
    ls_position position;
    ls_safetensors golden;
    bool golden_open;
    double *distances, *values;
    int64_t rows, columns;
} position_trial;

static ls_status read(ls_comparer *comparer) {
    position_trial *a = comparer->own;
    LS_TRY(ls_position_choose(comparer->ctx, comparer->keys->position, &a->position));
    return ls_settings_apply(comparer->ctx, comparer->settings, "position",
                             &a->position.type->options, NULL, a->position.options);
}

/* Of outputs one is chosen; anything else in the file must be known. */
static ls_status check_names(const ls_comparer *comparer, const ls_safetensors *file) {
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->items[i].name;
        if (ls_name_after(name, "out.") == NULL && strcmp(name, "in.rel") != 0)
            return LS_FAIL(comparer->ctx, LS_EINPUT, "%s: a position method has nothing that %s is",
                           comparer->keys->golden, name);
    }
    return LS_OK;
}

enum { DISTANCE_MAX = 1 << 30 };

static ls_status open_golden(ls_comparer *comparer, ls_table_request *request) {
    position_trial *a = comparer->own;
    if (comparer->keys->golden[0] == '\0') return LS_OK;
    LS_TRY(ls_safetensors_open(comparer->ctx, comparer->keys->golden, &a->golden));
    a->golden_open = true;
    LS_TRY(check_names(comparer, &a->golden));
    const ls_safetensor *relative = ls_safetensors_find(&a->golden, "in.rel");
    if (relative == NULL) return LS_OK;
    LS_TRY(ls_safetensor_values(comparer->ctx, relative, &a->distances));
    for (int64_t i = 0; i < relative->count; i++)
        if (!(fabs(a->distances[i]) <= DISTANCE_MAX) || a->distances[i] != rint(a->distances[i]))
            return LS_FAIL(comparer->ctx, LS_EINPUT, "%s: in.rel holds %g, which is no distance",
                           comparer->keys->golden, a->distances[i]);
    request->distances = a->distances;
    request->distance_count = relative->count;
    return LS_OK;
}

static ls_status compare_table(const ls_comparer *comparer, ls_comparison *out) {
    const position_trial *a = comparer->own;
    const ls_compare_keys *keys = comparer->keys;
    const int64_t count = a->rows * a->columns;
    char name[LS_OPTION_TEXT_BYTES + 8];
    snprintf(name, sizeof name, "out.%s", keys->tensor);
    const ls_safetensor *reference = ls_safetensors_find(&a->golden, name);
    if (reference == NULL)
        return LS_FAIL(comparer->ctx, LS_EINPUT, "%s has no tensor %s", keys->golden, name);
    if (reference->count != count)
        return LS_FAIL(comparer->ctx, LS_EUSE,
                       "%s of %s has %lld values, the table with these options %lld", name,
                       keys->golden, (long long)reference->count, (long long)count);
    return ls_compare(comparer->ctx, out, name, a->values, reference, keys->tol);
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    position_trial *a = comparer->own;
    const ls_compare_keys *keys = comparer->keys;
    const ls_position_type *type = a->position.type;
    ls_table_request request = {
        .width = keys->width, .heads = keys->heads, .length = keys->length, .causal = keys->causal};
    if (type->table == NULL)
        return LS_FAIL(comparer->ctx, LS_EUSE, "position method %s has no table", type->name);
    LS_TRY(open_golden(comparer, &request));
    LS_TRY(type->table(comparer->ctx, a->position.options, &request, &a->values, &a->rows,
                       &a->columns));
    if (a->golden_open) return compare_table(comparer, out);
    if (keys->output[0] != '\0') {
        const int64_t dim[2] = {a->rows, a->columns};
        const ls_safetensor_source source = {"table", LS_STORED_F64, 2, dim, a->values};
        return ls_safetensors_write(comparer->ctx, keys->output, &source, 1, NULL, 0);
    }
    out->table = a->values;
    out->lines = a->rows;
    out->columns = a->columns;
    a->values = NULL;
    return LS_OK;
}

static void clear(ls_comparer *comparer) {
    position_trial *a = comparer->own;
    if (a->golden_open) ls_safetensors_close(comparer->ctx, &a->golden);
    ls_position_clear(comparer->ctx, &a->position);
    ls_free(comparer->ctx, a->values);
    ls_free(comparer->ctx, a->distances);
}

const ls_comparer_type ls_position_comparer = {
    .name = "position",
    .size = sizeof(position_trial),
    .read = read,
    .run = run,
    .clear = clear,
};
