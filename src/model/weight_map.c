#include "model/weight_map.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/naming.h"

/* The entry of a mixer's table of buffers, by a name with its kind. */
static const ls_buffer *find_buffer(const ls_mixer *mixer, const char *name) {
    char full[LS_SAFETENSORS_NAME_MAX + 8], unused[LS_SAFETENSORS_NAME_MAX + 8];
    snprintf(full, sizeof full, "w.%s", name);
    for (const ls_buffer *buffer = mixer->type->buffers; buffer && buffer->official; buffer++)
        if (ls_name_fits(buffer->official, full, "", unused, sizeof unused)) return buffer;
    return NULL;
}

ls_status ls_weight_of_mixer(ls_ctx *ctx, const ls_parameters *store, const ls_mixer *mixer,
                             const char *scope, const char *root, const char *name,
                             ls_weight *out) {
    bool known = false;
    *out = (ls_weight){.name = name};
    for (const ls_alias *alias = mixer->type->aliases; alias && alias->official; alias++) {
        char full[LS_SAFETENSORS_NAME_MAX + 64], ours[LS_SAFETENSORS_NAME_MAX];
        if (!ls_name_fits(alias->official, name, alias->ours, ours, sizeof ours)) continue;
        known = true;
        const bool shared = ours[0] == '/';
        snprintf(full, sizeof full, "%s%s", shared ? root : scope, ours + shared);
        const ls_parameter *parameter = ls_parameters_find(store, full);
        if (parameter == NULL || out->parts == LS_WEIGHT_PARTS_MAX) continue;
        out->flags = alias->layout & LS_ALIAS_FLAGS;
        out->part[out->parts++] =
            (struct ls_weight_part){parameter, mixer, alias->layout & ~LS_ALIAS_FLAGS, 0};
        if ((alias->layout & (LS_ALIAS_PART | LS_ALIAS_SIDE)) == 0) return LS_OK;
    }
    if (out->parts > 0) return LS_OK;
    out->buffer = find_buffer(mixer, name);
    out->buffer_mixer = mixer;
    if (out->buffer != NULL) return LS_OK;
    if (known)
        return LS_FAIL(ctx, LS_EUSE,
                       "the file gives %s, which mixer %s does not have with these options", name,
                       mixer->type->name);
    return LS_FAIL(ctx, LS_EINPUT, "mixer %s does not know the weight %s", mixer->type->name, name);
}

/* ---- rows ---- */

/* A tensor of a file as rows: of re and im, or with axes exchanged. */
typedef struct rows {
    const ls_safetensor *tensor;
    int flags;
    int64_t count, width;
} rows;

/* Whether two shapes are the same but for axes of 1. */
static bool same_axes(const ls_safetensor *tensor, const ls_parameter *parameter) {
    int i = 0, j = 0;
    for (;; i++, j++) {
        while (i < tensor->rank && tensor->dim[i] == 1) i++;
        while (j < parameter->rank && parameter->dim[j] == 1) j++;
        if (i == tensor->rank || j == parameter->rank) break;
        if (tensor->dim[i] != parameter->dim[j]) return false;
    }
    return i == tensor->rank && j == parameter->rank;
}

/* False: it has nothing, or too few axes for what it is. */
static bool rows_of(const ls_weight *weight, const ls_safetensor *tensor, rows *out) {
    const int flags = weight->flags;
    const bool transposed = (flags & LS_ALIAS_TRANSPOSED) != 0;
    const bool last = (flags & LS_ALIAS_LAST_TRANSPOSED) != 0;
    *out = (rows){.tensor = tensor, .flags = flags, .count = 1};
    if (tensor->count < 1 || tensor->rank < (transposed || last ? 2 : 0)) return false;
    if (tensor->rank > 0) out->count = tensor->dim[transposed ? 1 : 0];
    if (last && tensor->rank == 2) out->count = tensor->dim[1];
    if (flags & LS_ALIAS_PAIRS) out->count *= 2;
    out->width = tensor->count / out->count;
    if (out->width * out->count != tensor->count) return false;
    const ls_parameter *only = weight->parts == 1 && flags == 0 ? weight->part[0].parameter : NULL;
    const bool flat = only != NULL && only->rank == 1 && only->count == tensor->count;
    if (only != NULL && (flat || same_axes(tensor, only))) {
        out->count = only->dim[0];
        out->width = tensor->count / out->count;
    }
    return true;
}

/* The element of the tensor that is column c of row r. */
static int64_t element_of(const rows *all, int64_t r, int64_t c) {
    const int64_t *dim = all->tensor->dim, width = all->width;
    const int rank = all->tensor->rank;
    if (all->flags & LS_ALIAS_PAIRS) return (r / 2 * width + c) * 2 + r % 2;
    if (all->flags & LS_ALIAS_TRANSPOSED || (all->flags & LS_ALIAS_LAST_TRANSPOSED && rank == 2)) {
        const int64_t rest = width / dim[0];
        return (c / rest * dim[1] + r) * rest + c % rest;
    }
    if (all->flags & LS_ALIAS_LAST_TRANSPOSED) {
        const int64_t a = dim[rank - 2], b = dim[rank - 1], outer = c / (a * b);
        return r * width + outer * a * b + c % a * b + c / a % b;
    }
    return r * width + c;
}

/* The part that row r belongs to, and the row there; -1: none. */
static int part_of(const ls_weight *weight, const rows *all, int64_t r, int64_t *row) {
    int64_t before = 0;
    if (weight->reversed) r = all->count - 1 - r;
    for (int i = 0; i < weight->parts; i++) {
        const struct ls_weight_part *part = &weight->part[i];
        const int64_t here = part->rows > 0 ? part->rows : part->parameter->dim[0];
        *row = r - before;
        if (weight->last) *row = here - all->count + r;
        if (part->mixer != NULL && part->mixer->type->row != NULL)
            *row = part->mixer->type->row(part->mixer, part->layout, r);
        if (*row >= 0 && *row < here) return i;
        if (part->mixer == NULL) before += here;
    }
    return -1;
}

/* What becomes of a value of the file, of ours on the way back, and of a gradient. */
static double value_in(const ls_weight *weight, double value) {
    return weight->log_negated ? log(-value) : weight->plus_one ? value + 1 : value;
}

static double value_out(const ls_weight *weight, double value) {
    return weight->log_negated ? -exp(value) : weight->plus_one ? value - 1 : value;
}

static double slope_out(const ls_weight *weight, double value) {
    return weight->log_negated ? -exp(-value) : 1;
}

/* Where row r stands; *row < 0: nowhere, which is as it should be. */
static ls_status place_row(ls_ctx *ctx, const ls_weight *weight, const rows *all, int64_t r,
                           const ls_parameter **parameter, int64_t *row) {
    const int at = part_of(weight, all, r, row);
    const char *name = all->tensor->name;
    if (at < 0) *row = -1;
    if (at < 0 && weight->flags & LS_ALIAS_MOVES) return LS_OK;
    if (at < 0)
        return LS_FAIL(ctx, LS_EUSE, "%s has more rows than %s with these options", name,
                       weight->part[0].parameter->name);
    *parameter = weight->part[at].parameter;
    const int64_t width = (*parameter)->count / (*parameter)->dim[0];
    if (width == all->width) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "%s has rows of %lld values, %s with these options of %lld", name,
                   (long long)all->width, (*parameter)->name, (long long)width);
}

/* Whether the parameters' rows lie side by side in the tensor as its rows are wide. */
static ls_status check_columns(ls_ctx *ctx, const ls_weight *weight, const rows *all) {
    int64_t first = 0;
    for (int i = 0; i < weight->parts; i++) {
        const ls_parameter *parameter = weight->part[i].parameter;
        const int64_t width = parameter->count / parameter->dim[0];
        if (parameter->dim[0] != all->count || first + width > all->width)
            return LS_FAIL(ctx, LS_EUSE, "%s does not hold %s of these options beside others",
                           all->tensor->name, parameter->name);
        first += width;
    }
    if (first == all->width) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "%s has wider rows than %s and its like with these options",
                   all->tensor->name, weight->part[0].parameter->name);
}

static ls_status find_rows(ls_ctx *ctx, const ls_weight *weight, const ls_safetensor *tensor,
                           rows *out) {
    if (!rows_of(weight, tensor, out))
        return LS_FAIL(ctx, LS_EINPUT, "%s is empty, or has too few axes for what it is",
                       tensor->name);
    return out->flags & LS_ALIAS_SIDE ? check_columns(ctx, weight, out) : LS_OK;
}

/* ---- outwards ---- */

/* Adds what the parameters or their gradients hold to `out`, in the tensor's order. */
typedef struct giver {
    const ls_parameters *store;
    const ls_weight *weight;
    bool gradient;
    double *out;
} giver;

static void give(const giver *to, const ls_parameter *parameter, int64_t here, int64_t there) {
    const ls_parameters *store = to->store;
    ls_dtype type;
    const void *values = ls_parameter_values(store, parameter, &type);
    const double value = ls_element(values, type, here);
    to->out[there] += !to->gradient ? value_out(to->weight, value)
                                    : slope_out(to->weight, value) *
                                          ls_element(ls_parameter_gradient(store, parameter),
                                                     store->master_type, here);
}

static void give_columns(const giver *to, const rows *all) {
    int64_t first = 0;
    for (int i = 0; i < to->weight->parts; i++) {
        const ls_parameter *parameter = to->weight->part[i].parameter;
        const int64_t width = parameter->count / parameter->dim[0];
        for (int64_t at = 0; at < parameter->count; at++)
            give(to, parameter, at, at / width * all->width + first + at % width);
        first += width;
    }
}

static ls_status give_all(ls_ctx *ctx, const giver *to, const ls_safetensor *tensor) {
    const ls_parameter *parameter = NULL;
    rows all;
    LS_TRY(find_rows(ctx, to->weight, tensor, &all));
    if (all.flags & LS_ALIAS_SIDE) {
        give_columns(to, &all);
        return LS_OK;
    }
    for (int64_t r = 0; r < all.count; r++) {
        int64_t row;
        LS_TRY(place_row(ctx, to->weight, &all, r, &parameter, &row));
        for (int64_t c = 0; row >= 0 && c < all.width; c++)
            give(to, parameter, row * all.width + c, element_of(&all, r, c));
    }
    return LS_OK;
}

/* The same without moving anything: columns that do not fit. */
static int misfit_columns(const ls_parameters *store, const ls_weight *weight, const rows *all,
                          int64_t *set) {
    int64_t width = 0;
    int wrong = 0;
    for (int i = 0; i < weight->parts; i++) {
        const ls_parameter *parameter = weight->part[i].parameter;
        wrong += parameter->dim[0] != all->count;
        width += parameter->count / parameter->dim[0];
        set[parameter - store->items] += parameter->count;
    }
    return wrong + (width != all->width);
}

int ls_weight_misfit(const ls_parameters *store, const ls_weight *weight,
                     const ls_safetensor *tensor, int64_t *set) {
    enum { NOTHING_FITS = 4 };
    bool lost = false, wide = false;
    rows all;
    if (weight->parts == 0) return 0;
    if (!rows_of(weight, tensor, &all)) return NOTHING_FITS;
    if (all.flags & LS_ALIAS_SIDE) return misfit_columns(store, weight, &all, set);
    const bool moves = (weight->flags & LS_ALIAS_MOVES) != 0;
    for (int i = 0; moves && i < weight->parts; i++)
        set[weight->part[i].parameter - store->items] = weight->part[i].parameter->count;
    for (int64_t r = 0; r < all.count; r++) {
        int64_t row;
        const int at = part_of(weight, &all, r, &row);
        const ls_parameter *parameter = weight->part[at < 0 ? 0 : at].parameter;
        const int64_t width = parameter->count / parameter->dim[0];
        lost |= at < 0 && !moves;
        wide |= width != all.width;
        if (at >= 0 && !moves) set[parameter - store->items] += width;
    }
    return lost + wide;
}

/* What moves is given whole in any case: rows that are nowhere now are 0. */
static void clear_moving(const ls_parameters *store, const ls_weight *weight, int64_t *set) {
    if ((weight->flags & LS_ALIAS_MOVES) == 0) return;
    for (int i = 0; i < weight->parts; i++) {
        const ls_parameter *parameter = weight->part[i].parameter;
        ls_dtype type;
        void *values = ls_parameter_values(store, parameter, &type);
        memset(values, 0, (size_t)parameter->count * ls_dtype_size(type));
        set[parameter - store->items] = parameter->count;
    }
}

/* Elements of the tensor at `to`, in a type of ours. */
static void read_span(const ls_weight *weight, const ls_safetensor *tensor, int64_t first,
                      int64_t count, ls_dtype type, void *to) {
    ls_safetensor_read(tensor, first, count, type, to);
    if (weight->log_negated || weight->plus_one)
        for (int64_t i = 0; i < count; i++)
            ls_element_set(to, type, i, value_in(weight, ls_element(to, type, i)));
}

/* Whether a tensor's rows stand in it as they are. */
static bool is_plain(int flags) {
    return (flags &
            (LS_ALIAS_PAIRS | LS_ALIAS_TRANSPOSED | LS_ALIAS_LAST_TRANSPOSED | LS_ALIAS_SIDE)) == 0;
}

/* Rows r .. r + count - 1 of the tensor at place[0] ...; of a transposed one a few columns of the
 * file at a time, so that no line of memory is read twice. */
enum { TILE = 64 };
static void read_tile(const ls_weight *weight, const rows *all, int64_t r, int64_t count,
                      ls_dtype type, char *const *place) {
    const size_t size = ls_dtype_size(type);
    const bool plain = is_plain(all->flags);
    const bool transposed = all->flags & LS_ALIAS_TRANSPOSED && all->tensor->rank == 2;
    double span[TILE];
    for (int64_t i = 0, next; plain && i < count; i = next) {
        next = i + 1; /* the first that does not lie behind the others on both sides */
        while (place[i] != NULL && next < count &&
               place[next] == place[i] + (size_t)((next - i) * all->width) * size)
            next++;
        if (place[i] != NULL)
            read_span(weight, all->tensor, (r + i) * all->width, (next - i) * all->width, type,
                      place[i]);
    }
    for (int64_t c = 0; transposed && c < all->width; c++) {
        read_span(weight, all->tensor, element_of(all, r, c), count, type, span);
        for (int64_t i = 0; i < count; i++)
            if (place[i] != NULL)
                memcpy(place[i] + (size_t)c * size, (char *)span + (size_t)i * size, size);
    }
    for (int64_t i = 0; !plain && !transposed && i < count; i++)
        for (int64_t c = 0; place[i] != NULL && c < all->width; c++)
            read_span(weight, all->tensor, element_of(all, r + i, c), 1, type,
                      place[i] + (size_t)c * size);
}

static void read_columns(const ls_parameters *store, const ls_weight *weight, const rows *all,
                         int64_t *set) {
    int64_t first = 0;
    for (int i = 0; i < weight->parts; i++) {
        const ls_parameter *parameter = weight->part[i].parameter;
        const int64_t width = parameter->count / parameter->dim[0];
        ls_dtype type;
        char *to = ls_parameter_values(store, parameter, &type);
        for (int64_t r = 0; r < all->count; r++)
            read_span(weight, all->tensor, r * all->width + first, width, type,
                      to + (size_t)(r * width) * ls_dtype_size(type));
        if (set != NULL) set[parameter - store->items] += parameter->count;
        first += width;
    }
}

/* Where the rows go, and in which type; `set` counts. */
static ls_status place_rows(ls_ctx *ctx, const ls_parameters *store, const ls_weight *weight,
                            const rows *all, char **place, ls_dtype *type, int64_t *set) {
    const ls_parameter *parameter = NULL;
    ls_parameter_values(store, weight->part[0].parameter, type);
    for (int64_t r = 0; r < all->count; r++) {
        int64_t row;
        ls_dtype here;
        LS_TRY(place_row(ctx, weight, all, r, &parameter, &row));
        if (row < 0) continue;
        char *values = ls_parameter_values(store, parameter, &here);
        if (here != *type)
            return LS_FAIL(ctx, LS_EBUG, "the parts of %s are of two types", all->tensor->name);
        place[r] = values + (size_t)(row * all->width) * ls_dtype_size(here);
        if (set != NULL) set[parameter - store->items] += all->width;
    }
    return LS_OK;
}

static ls_status read_rows(ls_ctx *ctx, const ls_parameters *store, const ls_weight *weight,
                           const ls_safetensor *tensor, int64_t *set) {
    rows all;
    LS_TRY(find_rows(ctx, weight, tensor, &all));
    if (all.flags & LS_ALIAS_SIDE) {
        read_columns(store, weight, &all, set);
        return LS_OK;
    }
    char **place = ls_new(ctx, (size_t)all.count, sizeof *place);
    if (place == NULL) return LS_ENOMEM;
    ls_dtype type;
    ls_status status = place_rows(ctx, store, weight, &all, place, &type, set);
    if (status == LS_OK) {
#pragma omp parallel for schedule(dynamic) num_threads(ctx->threads) if (tensor->bytes > 1 << 16)
        for (int64_t r = 0; r < all.count; r += TILE)
            read_tile(weight, &all, r, ls_min(TILE, all.count - r), type, place + r);
    }
    ls_free(ctx, place);
    return status;
}

ls_status ls_weight_load(ls_ctx *ctx, ls_parameters *store, const ls_weight *weight,
                         const ls_safetensor *tensor, int64_t *set) {
    if (weight->parts == 0) return LS_OK;
    if (tensor->type > LS_STORED_F16)
        return LS_FAIL(ctx, LS_EINPUT, "%s is a weight, but has elements of type %s", tensor->name,
                       ls_stored_name(tensor->type));
    clear_moving(store, weight, set);
    const bool moves = (weight->flags & LS_ALIAS_MOVES) != 0;
    ls_safetensor here = *tensor;
    void *held = NULL;
    if (!is_plain(weight->flags)) LS_TRY(ls_safetensor_hold(ctx, &here, &held));
    ls_status status = read_rows(ctx, store, weight, &here, moves ? NULL : set);
    ls_free(ctx, held);
    return status;
}

ls_status ls_weight_values(ls_ctx *ctx, const ls_parameters *store, const ls_weight *weight,
                           const ls_safetensor *shape, double *out) {
    memset(out, 0, (size_t)shape->count * sizeof *out);
    return give_all(ctx, &(giver){store, weight, false, out}, shape);
}

ls_status ls_weight_gradient(ls_ctx *ctx, const ls_parameters *store, const ls_weight *weight,
                             const ls_safetensor *tensor, double *out) {
    return give_all(ctx, &(giver){store, weight, true, out}, tensor);
}
