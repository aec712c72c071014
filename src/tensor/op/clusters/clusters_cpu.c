/* A vocabulary in clusters; logits are wanted of few rows, so any type goes one way. */
#include "tensor/op/clusters/clusters.h"

#include <math.h>

#include "tensor/cpu/vector.h"

static void cluster_ids(const ls_run *run, const ls_node *node) {
    (void)run;
    const ls_cluster_attributes *about = node->attributes;
    const int64_t *first = about->clusters.first;
    const int32_t *ids = ls_data(node->in[0]);
    int32_t *out = ls_data(node->out[0]);
    for (int64_t i = 0; i < ls_count(node->in[0]); i++) {
        int cluster = 0;
        while (cluster + 1 < about->clusters.count && ids[i] >= first[cluster + 1]) cluster++;
        if (ids[i] < 0)
            out[i] = -1;
        else if (cluster == about->which)
            out[i] = (int32_t)(ids[i] - first[cluster]);
        else
            out[i] = about->columns ? (int32_t)(first[1] + cluster - 1) : -1;
    }
}

static void cluster_losses(const ls_run *run, const ls_node *node) {
    (void)run;
    for (int64_t i = 0; i < ls_count(node->out[0]); i++) {
        double sum = 0;
        for (int j = 0; j < node->in_count; j++) sum += ls_tensor_at(node->in[j], i);
        ls_tensor_set(node->out[0], i, sum);
    }
}

static double log_of_sum(const ls_tensor *logits, int64_t begin, int64_t count) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = begin; i < begin + count; i++) most = fmax(most, ls_tensor_at(logits, i));
    for (int64_t i = begin; i < begin + count; i++) sum += exp(ls_tensor_at(logits, i) - most);
    return most + log(sum);
}

static void cluster_logits(const ls_run *run, const ls_node *node) {
    (void)run;
    const ls_clusters *clusters = &((const ls_cluster_attributes *)node->attributes)->clusters;
    const ls_tensor *head = node->in[0], *out = node->out[0];
    const int64_t *first = clusters->first, all = first[clusters->count];
    const int64_t wide = first[1] + clusters->count - 1, rows = ls_count(out) / all;
    for (int64_t row = 0; row < rows; row++) {
        const double total = log_of_sum(head, row * wide, wide);
        for (int64_t i = 0; i < first[1]; i++)
            ls_tensor_set(out, row * all + i, ls_tensor_at(head, row * wide + i) - total);
        for (int c = 1; c < clusters->count; c++) {
            const int64_t size = first[c + 1] - first[c];
            const double own = ls_tensor_at(head, row * wide + first[1] + c - 1) - total -
                               log_of_sum(node->in[c], row * size, size);
            for (int64_t i = 0; i < size; i++)
                ls_tensor_set(out, row * all + first[c] + i,
                              own + ls_tensor_at(node->in[c], row * size + i));
        }
    }
}

extern const ls_kernel LS_CPU_TABLE(clusters)[];
const ls_kernel LS_CPU_TABLE(clusters)[] = {
    {"cluster_ids", {cluster_ids, cluster_ids, cluster_ids}, NULL},
    {"cluster_losses", {cluster_losses, cluster_losses, cluster_losses}, NULL},
    {"cluster_logits", {cluster_logits, cluster_logits, cluster_logits}, NULL},
    {0},
};
