/* T5's relative bias (arXiv 1910.10683 section 2.1): a learned number per bucket of distances and
 * head, in one table shared by all layers. Half the buckets hold one distance each, the others grow
 * as logarithms up to max_distance, which the last bucket holds with all beyond. */
#include <math.h>
#include <stdlib.h>

#include "position/position.h"

typedef struct t5_options {
    int64_t buckets, max_distance;
    bool scaled, exchanged, each_layer;
} t5_options;

#define FIELD(name) t5_options, name
static const ls_option options[] = {
    LS_INT("buckets", FIELD(buckets), "32", 4, 4096,
           "Rows of the bias table (half for each direction where the model is not causal)."),
    LS_INT("max_distance", FIELD(max_distance), "128", 2, 1 << 20,
           "Distance from which on all share the last bucket."),
    LS_BOOL("scaled", FIELD(scaled), "true",
            "Whether scores are divided by sqrt(d); T5's are not."),
    LS_BOOL("exchanged", FIELD(exchanged), "false",
            "Whether buckets are for both directions where the model is causal, and for the past "
            "alone where it is not (all of the future is then at distance 0), as "
            "lucidrains/memformer has them."),
    LS_BOOL("each_layer", FIELD(each_layer), "false",
            "A table for each layer, not one that all share (UMT5)."),
};

ls_status ls_t5_fits(ls_ctx *ctx, int64_t buckets, int64_t max_distance) {
    if (buckets % 4 == 0 && max_distance > buckets / 2) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "t5: %lld buckets do not fit a largest distance of %lld: use a "
                   "multiple of 4 below twice the distance",
                   (long long)buckets, (long long)max_distance);
}

static ls_status check(ls_ctx *ctx, const void *chosen, int64_t width, int64_t heads) {
    (void)width, (void)heads;
    const t5_options *o = chosen;
    return ls_t5_fits(ctx, o->buckets, o->max_distance);
}

/* The bucket of distance n - m. */
static int32_t bucket_of(int64_t buckets, int64_t max_distance, bool causal, int64_t distance) {
    int64_t side = causal ? buckets : buckets / 2, exact = side / 2;
    int64_t first = !causal && distance < 0 ? side : 0;
    int64_t far = causal ? ls_max(distance, 0) : llabs(distance);
    if (far < exact) return (int32_t)(first + far);
    double growth = log((double)far / (double)exact) / log((double)max_distance / (double)exact);
    int64_t bucket = exact + (int64_t)(growth * (double)(side - exact));
    return (int32_t)(first + ls_min(bucket, side - 1));
}

ls_tensor *ls_t5_table(ls_program *p, const char *name, int64_t buckets, int64_t max_distance,
                       int64_t heads, bool causal, bool own, int64_t *zero) {
    ls_ctx *ctx = ls_program_ctx(p);
    ls_status status = ls_t5_fits(ctx, buckets, max_distance);
    *zero = causal ? 0 : max_distance;
    int64_t columns = *zero + max_distance + 1;
    int32_t *bucket = status == LS_OK ? ls_new(ctx, (size_t)columns, sizeof *bucket) : NULL;
    if (bucket == NULL) {
        ls_refuse(p, ctx->error.code, "%s", ctx->error.message);
        return NULL;
    }
    for (int64_t r = 0; r < columns; r++)
        bucket[r] = bucket_of(buckets, max_distance, causal, r - *zero);
    ls_init init = {.kind = LS_INIT_NORMAL, .a = 0.02, .no_decay = true, .full = true};
    ls_tensor *weight = own ? ls_param(p, name, LS_DIMS(buckets, heads), init)
                            : ls_shared_param(p, name, LS_DIMS(buckets, heads), init);
    ls_tensor *table = ls_bucket_table(p, weight, columns, bucket);
    ls_free(ctx, bucket);
    return table;
}

static void attend_t5(ls_program *p, const void *chosen, ls_attend *attend) {
    const t5_options *o = chosen;
    attend->table = ls_t5_table(p, o->each_layer ? "position_bias" : "bias", o->buckets,
                                o->max_distance, attend->heads, attend->causal != o->exchanged,
                                o->each_layer, &attend->table_zero);
    if (!o->scaled) attend->scale = 1;
}

/* The buckets of the asked distances, one row. */
static ls_status table(ls_ctx *ctx, const void *chosen, const ls_table_request *request,
                       double **values, int64_t *rows, int64_t *columns) {
    const t5_options *o = chosen;
    LS_TRY(check(ctx, chosen, request->width, request->heads));
    *rows = 1;
    *columns = request->distances != NULL ? request->distance_count : request->length;
    *values = ls_new(ctx, (size_t)*columns, sizeof **values);
    if (*values == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < *columns; i++) {
        int64_t distance = request->distances != NULL ? -(int64_t)request->distances[i] : i;
        (*values)[i] =
            bucket_of(o->buckets, o->max_distance, request->causal != o->exchanged, distance);
    }
    return LS_OK;
}

const ls_position_type ls_position_t5 = {
    .name = "t5",
    .summary = "a learned bias per bucket of distances and head",
    .paper = "arXiv 1910.10683",
    .options = LS_OPTIONS(options, t5_options),
    .traits = LS_POSITION_RELATIVE | LS_POSITION_LEARNED,
    .check = check,
    .attend = attend_t5,
    .table = table,
};
