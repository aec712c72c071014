/* Attributes of the operations on a vocabulary in clusters, for their kernels. */
#ifndef LS_TENSOR_OP_CLUSTERS_H
#define LS_TENSOR_OP_CLUSTERS_H

#include "tensor/engine/program.h"

/* Cluster 0 of a vocabulary has the ids below first[1], cluster i those from first[i] on;
 * first[count] is their number. A softmax over cluster 0 and one column for each other cluster says
 * which, and one over its members says what (arXiv 1609.04309). */
enum { LS_CLUSTERS_MAX = 16 };
typedef struct ls_clusters {
    int count;
    int64_t first[LS_CLUSTERS_MAX + 1];
} ls_clusters;
/* ids [..] as numbers within cluster `which`; -1 for others. With `columns`, for cluster 0, others
 * are the number of their cluster's column, first[1] + cluster - 1. No gradient. */
ls_tensor *ls_cluster_ids(ls_program *p, const ls_clusters *clusters, ls_tensor *ids, int which,
                          bool columns);
/* The sum of losses of one shape, which is not a gradient's way. */
ls_tensor *ls_cluster_losses(ls_program *p, int count, ls_tensor *const *losses);
/* Logarithms of all ids' probabilities, [.., V], from the clusters' logits: [.., first[1] + count -
 * 1], and [.., size] of each other one. No gradient. */
ls_tensor *ls_cluster_logits(ls_program *p, const ls_clusters *clusters, ls_tensor *const *logits);

/* ---- for the kernels ---- */

typedef struct ls_cluster_attributes {
    ls_clusters clusters;
    int which; /* cluster_ids */
    bool columns;
} ls_cluster_attributes;

#endif
