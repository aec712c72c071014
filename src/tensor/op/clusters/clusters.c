/* A vocabulary in clusters: see ops.h. */
#include "tensor/op/clusters/clusters.h"

static const ls_op ids_op = {.name = "cluster_ids"};
static const ls_op logits_op = {.name = "cluster_logits"};

/* The losses have sent their gradients off themselves. */
static void losses_backward(ls_program *p, const ls_node *node) {
    (void)p, (void)node;
}
static const ls_op losses_op = {.name = "cluster_losses", .backward = losses_backward};

ls_tensor *ls_cluster_ids(ls_program *p, const ls_clusters *clusters, ls_tensor *ids, int which,
                          bool columns) {
    if (ls_failed(p) || ids == NULL) return NULL;
    if (ids->type != LS_I32 || which < 0 || which >= clusters->count) {
        ls_refuse(p, LS_EBUG, "cluster_ids: token numbers and a cluster are needed");
        return NULL;
    }
    const ls_cluster_attributes attributes = {*clusters, which, columns};
    ls_tensor *out = ls_activation(p, LS_I32, ids->rank, ids->dim);
    ls_record(p, &ids_op, &attributes, sizeof attributes, 1, &ids, 1, &out);
    return out;
}

ls_tensor *ls_cluster_losses(ls_program *p, int count, ls_tensor *const *losses) {
    for (int i = 0; i < count; i++)
        if (ls_failed(p) || losses[i] == NULL) return NULL;
    for (int i = 0; i < count; i++)
        if (losses[i]->type != ls_wide_type(p) || ls_count(losses[i]) != ls_count(losses[0])) {
            ls_refuse(p, LS_EBUG, "cluster_losses: the losses have different shapes");
            return NULL;
        }
    ls_tensor *sum = ls_activation(p, ls_wide_type(p), losses[0]->rank, losses[0]->dim);
    ls_record(p, &losses_op, NULL, 0, count, losses, 1, &sum);
    return sum;
}

ls_tensor *ls_cluster_logits(ls_program *p, const ls_clusters *clusters, ls_tensor *const *logits) {
    const ls_cluster_attributes attributes = {.clusters = *clusters};
    for (int i = 0; i < clusters->count; i++) {
        int64_t rows, width, stride, size = clusters->first[i + 1] - clusters->first[i];
        if (ls_failed(p) || logits[i] == NULL) return NULL;
        if (i == 0) size += clusters->count - 1;
        if (!ls_rows(logits[i], &rows, &width, &stride) || width != size || stride != width ||
            logits[i]->type != ls_type(p)) {
            ls_refuse(p, LS_EBUG, "cluster_logits: logits of cluster %d do not fit", i);
            return NULL;
        }
    }
    int64_t dim[LS_RANK_MAX];
    memcpy(dim, logits[0]->dim, sizeof dim);
    dim[logits[0]->rank - 1] = clusters->first[clusters->count];
    ls_tensor *out = ls_activation(p, ls_type(p), logits[0]->rank, dim);
    ls_record(p, &logits_op, &attributes, sizeof attributes, clusters->count, logits, 1, &out);
    return out;
}
