/* Attributes of the operations on a vocabulary in clusters, for their kernels. */
#ifndef LS_TENSOR_CLUSTERS_H
#define LS_TENSOR_CLUSTERS_H

#include "tensor/ops.h"

typedef struct ls_cluster_attributes {
    ls_clusters clusters;
    int which; /* cluster_ids */
    bool columns;
} ls_cluster_attributes;

#endif
