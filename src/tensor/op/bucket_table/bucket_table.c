/* A bias table over distances from one learned row per bucket (T5,
 * arXiv 1910.10683 section 2.1). */
#include "tensor/op/bucket_table/bucket_table.h"

static const ls_op bucket_table_grad = {.name = "bucket_table_grad"};

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]);
    if (dy == NULL || !node->in[0]->needs_grad) return;
    ls_tensor *dweight = ls_grad_target(p, node->in[0]);
    if (dweight == NULL) return;
    ls_record(p, &bucket_table_grad, NULL, 0, 2, (ls_tensor *[]){dy, node->in[1]}, 1, &dweight);
    ls_grad_add(p, node->in[0], dweight);
}

static const ls_op bucket_table = {.name = "bucket_table", .pure = true, .backward = backward};

ls_tensor *ls_bucket_table(ls_program *p, ls_tensor *weight, int64_t R, const int32_t *bucket) {
    if (weight == NULL) return NULL;
    if (weight->rank != 2) {
        ls_refuse(p, LS_EBUG, "bucket_table: weight must be [buckets, heads]");
        return NULL;
    }
    double *wide = ls_new(ls_program_ctx(p), (size_t)R, sizeof *wide);
    if (wide == NULL) {
        ls_refuse(p, LS_ENOMEM, "no memory for the buckets of %lld distances", (long long)R);
        return NULL;
    }
    for (int64_t r = 0; r < R; r++) {
        wide[r] = bucket[r];
        if (bucket[r] < 0 || bucket[r] >= weight->dim[0])
            ls_refuse(p, LS_EBUG, "bucket_table: bucket %d of distance %lld does not exist",
                      (int)bucket[r], (long long)r);
    }
    ls_tensor *buckets = ls_constant(p, LS_I32, LS_DIMS(R), wide);
    ls_free(ls_program_ctx(p), wide);
    ls_tensor *table = ls_activation(p, ls_wide_type(p), LS_DIMS(weight->dim[1], R));
    if (buckets == NULL || table == NULL) return NULL;
    ls_record(p, &bucket_table, NULL, 0, 2, (ls_tensor *[]){weight, buckets}, 1, &table);
    return table;
}
