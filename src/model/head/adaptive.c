#include "model/head/adaptive.h"

#include <stdio.h>

static ls_clusters clusters_of(const ls_model_settings *about) {
    ls_clusters clusters = {.count = (int)about->adaptive_cutoffs.count + 1};
    for (int i = 1; i < clusters.count; i++) clusters.first[i] = about->adaptive_cutoffs.at[i - 1];
    clusters.first[clusters.count] = about->vocabulary;
    return clusters;
}

static bool serves(const ls_model_settings *about) {
    return about->head == LS_HEAD_LM && about->adaptive_cutoffs.count > 0;
}

/* Refuses cutoffs that do not rise, or do not lie within the vocabulary (0: not known yet). */
static ls_status check(ls_ctx *ctx, const ls_model_settings *about) {
    const ls_ints *cutoffs = &about->adaptive_cutoffs;
    if (cutoffs->count >= LS_CLUSTERS_MAX)
        return LS_FAIL(ctx, LS_EUSE, "model.adaptive_cutoffs: at most %d fit", LS_CLUSTERS_MAX - 1);
    for (int64_t i = 0; i < cutoffs->count; i++) {
        const int64_t here = cutoffs->at[i], before = i == 0 ? 0 : cutoffs->at[i - 1];
        if (here <= before || (about->vocabulary > 0 && here >= about->vocabulary))
            return LS_FAIL(ctx, LS_EUSE,
                           "model.adaptive_cutoffs: %lld is not above %lld and below the "
                           "vocabulary of %lld",
                           (long long)here, (long long)before, (long long)about->vocabulary);
    }
    return LS_OK;
}

static int64_t width_of(const ls_model_settings *about, int cluster) {
    int64_t width = about->width;
    for (int i = 0; i < cluster; i++) width /= about->adaptive_divisor;
    return ls_max(width, 1);
}

/* The table of a cluster, for reading or for the head. In the head the first one ends with a row
 * for each other cluster. */
static ls_tensor *table_of(ls_program *p, const ls_model_settings *about,
                           const ls_clusters *clusters, int cluster, bool head) {
    int64_t rows = clusters->first[cluster + 1] - clusters->first[cluster];
    char name[32];
    if (cluster == 0 && (head || about->tied)) rows += clusters->count - 1;
    snprintf(name, sizeof name, "%s.%d.weight", head && !about->tied ? "head" : "embed", cluster);
    return ls_param(p, name, LS_DIMS(rows, width_of(about, cluster)), ls_init_normal(about->init));
}

/* [D, width of the cluster]: from its rows to the model's; NULL where all are of one width. A
 * cluster's logits may have another one than its rows: as published, the first's do. */
static ls_tensor *projection(ls_program *p, const ls_model_settings *about, int cluster,
                             bool head) {
    char name[32];
    if (about->adaptive_divisor == 1) return NULL;
    const bool own = about->adaptive_projections == LS_PROJECTIONS_ALL ||
                     (about->adaptive_projections == LS_PROJECTIONS_FIRST && cluster == 0);
    snprintf(name, sizeof name, "%s.%d.project", head && own ? "head" : "embed", cluster);
    return ls_param(p, name, LS_DIMS(about->width, width_of(about, cluster)),
                    ls_init_normal(about->init));
}

ls_tensor *ls_adaptive_rows(ls_program *p, const ls_model_settings *about, ls_tensor *tokens) {
    const ls_clusters clusters = clusters_of(about);
    ls_tensor *sum = NULL;
    for (int i = 0; i < clusters.count && !ls_failed(p); i++) {
        ls_tensor *ids = ls_cluster_ids(p, &clusters, tokens, i, false);
        ls_tensor *rows = ls_embed(p, ids, table_of(p, about, &clusters, i, false));
        ls_tensor *weight = projection(p, about, i, false);
        if (weight != NULL) rows = ls_linear(p, rows, weight, NULL);
        sum = sum == NULL ? rows : ls_plus(p, sum, rows);
    }
    return sum;
}

/* What a cluster's softmax is made of: rows of its width, table and bias. */
typedef struct cluster_head {
    ls_tensor *x, *weight, *bias;
} cluster_head;

static cluster_head head_of(ls_program *p, const ls_model_settings *about,
                            const ls_clusters *clusters, int cluster, ls_tensor *x) {
    char name[32];
    ls_tensor *turn = projection(p, about, cluster, true);
    if (turn != NULL) x = ls_linear_transposed(p, x, turn);
    ls_tensor *weight = table_of(p, about, clusters, cluster, true);
    snprintf(name, sizeof name, "head.%d.bias", cluster);
    const int64_t rows = weight == NULL ? 1 : weight->dim[0];
    return (cluster_head){x, weight, ls_param(p, name, LS_DIMS(rows), ls_init_bias())};
}

ls_tensor *ls_adaptive_loss(ls_program *p, const ls_model_settings *about, ls_tensor *x,
                            ls_tensor *targets, ls_tensor *weights, double smoothing) {
    const ls_clusters clusters = clusters_of(about);
    ls_tensor *losses[LS_CLUSTERS_MAX] = {NULL};
    if (smoothing > 0)
        ls_refuse(p, LS_EUSE,
                  "train.label_smoothing cannot spread a target over a vocabulary in clusters "
                  "(model.adaptive_cutoffs)");
    for (int i = 0; i < clusters.count && !ls_failed(p); i++) {
        const cluster_head head = head_of(p, about, &clusters, i, x);
        ls_tensor *ids = ls_cluster_ids(p, &clusters, targets, i, i == 0);
        losses[i] = ls_linear_cross_entropy(p, head.x, head.weight, head.bias, ids, weights, 0, 0);
    }
    return ls_cluster_losses(p, clusters.count, losses);
}

ls_tensor *ls_adaptive_logits(ls_program *p, const ls_model_settings *about, ls_tensor *x) {
    const ls_clusters clusters = clusters_of(about);
    ls_tensor *logits[LS_CLUSTERS_MAX] = {NULL};
    for (int i = 0; i < clusters.count && !ls_failed(p); i++) {
        const cluster_head head = head_of(p, about, &clusters, i, x);
        logits[i] = ls_linear(p, head.x, head.weight, head.bias);
    }
    return ls_cluster_logits(p, &clusters, logits);
}

static ls_output output(ls_program *p, const ls_model_settings *about, const ls_head_input *in) {
    (void)p;
    (void)about;
    return (ls_output){.x = in->x};
}

static ls_tensor *logits_of(ls_program *p, const ls_model_settings *about, ls_output out) {
    return ls_adaptive_logits(p, about, out.x);
}

static ls_tensor *loss_of(ls_program *p, const ls_model_settings *about, ls_output out,
                          ls_tensor *targets, ls_tensor *weights, double smoothing) {
    return ls_adaptive_loss(p, about, out.x, targets, weights, smoothing);
}

const ls_head_type ls_head_adaptive = {
    .name = "adaptive",
    .summary = "the next token of each token, by clusters of a vocabulary",
    .paper = "arXiv 1609.04309, 1809.10853",
    .sequences = 1,
    .serves = serves,
    .check = check,
    .complete = check,
    .embed = ls_adaptive_rows,
    .output = output,
    .logits = logits_of,
    .loss = loss_of,
};
