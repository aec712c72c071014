/* Attention: which way to compute it. See attention_job.cuh. */
#include "tensor/op/attention/attention_job.cuh"
#include "tensor/op/attention/hopper_attention.cuh"

static ls_dtype type_of(const ls_node *node) {
    return node->in[LS_ATTENTION_Q]->type;
}

static ls_hopper_array hopper_array(const ls_cuda_rows *x) {
    ls_hopper_array array = {(ls_cuda_bf16 *)x->data, x->batch, x->row, x->head};
    return array;
}

/* The sizes alone, which decide the workspace. */
static ls_hopper_attention hopper_shape(int64_t B, int64_t T, int64_t N, int64_t H, int64_t G,
                                        int64_t D) {
    ls_hopper_attention a = {};
    a.B = B;
    a.T = T;
    a.N = N;
    a.H = H;
    a.G = G;
    a.D = D;
    return a;
}

/* A job in the terms of the Hopper kernels; false where it has what they do not know. */
static bool hopper_takes(const ls_run *run, const ls_cuda_attention *job, ls_dtype type,
                         ls_hopper_attention *a) {
    const ls_cuda_key_set *s = &job->set[0];
    const bool backward = job->dout.data != NULL;
    if (type != LS_BF16 || job->sets != 1 || job->K != job->V || job->off_by_one || job->cap > 0)
        return false;
    if (s->lo != 0 || s->key_first > s->key_position || s->key_end < s->key_position + s->keys ||
        s->alone || s->shift > 0 || s->valid != NULL || s->dilation != NULL || s->table != NULL ||
        s->relative.data != NULL || s->query_at.kind != LS_MAP_IDENTITY ||
        s->key_at.kind != LS_MAP_IDENTITY || job->splits > 1 || s->group > 0 ||
        (s->span.block > 0 && s->block == 0) || s->query_plan.pieces != NULL ||
        s->query_max != NULL)
        return false;
    if (backward &&
        (s->dq.data == NULL || s->dk.data == NULL || s->dv.data == NULL || s->keys != s->key_rows))
        return false;
    *a = hopper_shape(job->B, job->T, s->keys, job->H, job->G, job->K);
    a->start = job->start;
    a->first = s->key_position;
    a->scale = job->scale;
    a->hi = s->hi;
    a->block = s->block;
    a->slopes = s->slopes;
    a->decays = s->log_decay != NULL;
    a->log_decay = s->log_decay;
    a->decay_block = s->decay_block;
    a->decay_pairs = s->decay_pairs;
    a->decay_halves = s->decay_halves;
    a->q = hopper_array(&s->q);
    a->k = hopper_array(&s->k);
    a->v = hopper_array(&s->v);
    a->o = hopper_array(&job->out);
    a->d_o = hopper_array(&job->dout);
    a->dq = hopper_array(&s->dq);
    a->dk = hopper_array(&s->dk);
    a->dv = hopper_array(&s->dv);
    a->lse = job->lse;
    a->workspace = (char *)run->workspace + job->workspace_bytes; /* behind the tables */
    return ls_hopper_attention_takes(ls_cuda_of(run), a);
}

static void forward(const ls_run *run, const ls_node *node) {
    ls_cuda_attention job;
    ls_hopper_attention hopper;
    ls_cuda_attention_begin(run, node, false, &job);
    if (ls_cuda_attention_decode_fits(run, node, &job)) {
        ls_cuda_attention_decode(run, &job, type_of(node), NULL);
        return;
    }
    if (hopper_takes(run, &job, type_of(node), &hopper)) {
        ls_hopper_attention_forward(ls_cuda_of(run), &hopper);
        return;
    }
    if (ls_cuda_attention_tiles_fit(&job, type_of(node)))
        ls_cuda_attention_tiles(run, &job);
    else if (ls_cuda_attention_relative_fits(&job, type_of(node)))
        ls_cuda_attention_relative(run, &job);
    else
        ls_cuda_attention_plain(run, &job, type_of(node));
    if (job.splits > 1) ls_cuda_attention_merge(run, &job, type_of(node));
}

/* ---- one token, in a chain with what goes before: see engine/join.c ---- */

static bool chain_fits(const ls_cuda_decode_chain *chain, ls_dtype type) {
    return ls_cuda_attention_fresh_fits(chain->key, type) &&
           ls_cuda_attention_fresh_fits(chain->value, type) &&
           (chain->rotates_key == NULL ||
            (ls_cuda_attention_turns_fit(chain->rotates_key, chain->rotates_query, type) &&
             ls_cuda_attention_fresh_fits(chain->rotates_query->in[0], type)));
}

static void chained(const ls_run *run, const ls_node *node) {
    const bool rotates = node->part_count == 5;
    const ls_node *keys = &node->parts[rotates], *values = &node->parts[rotates + 1];
    const ls_node *attention = &node->parts[node->part_count - 1];
    const ls_dtype type = attention->in[0]->type;
    ls_cuda_decode_chain chain = {keys->in[0], values->in[0], NULL, NULL};
    if (rotates) {
        chain.rotates_key = &node->parts[0];
        chain.rotates_query = &node->parts[3];
        chain.key = chain.rotates_key->in[0];
    }
    const ls_extent key_rows = ls_cache_extent(run, keys->out[0]);
    const ls_extent value_rows = ls_cache_extent(run, values->out[0]);
    if (ls__appends_only(run, keys) && ls__appends_only(run, values) && chain_fits(&chain, type)) {
        ls_cuda_attention job;
        ls__append_begin(run, keys);
        ls__append_begin(run, values);
        ls_cuda_attention_begin(run, attention, false, &job);
        if (ls_cuda_attention_decode_fits(run, attention, &job)) {
            ls_cuda_attention_decode(run, &job, type, &chain);
            return;
        }
        ls_extent_set(run, keys->out[0], key_rows.first, key_rows.count);
        ls_extent_set(run, values->out[0], value_rows.first, value_rows.count);
    }
    ls_cuda_chain_apart(run, node);
}

/* By the general kernels. */
static void backward_any(const ls_run *run, const ls_node *node, ls_cuda_attention &job) {
    ls_cuda_attention_statistics(run, &job, type_of(node));
    if (ls_cuda_attention_relative_fits(&job, type_of(node))) {
        ls_cuda_attention_relative(run, &job);
        return;
    }
    if (ls_cuda_attention_tiles_fit(&job, type_of(node)))
        ls_cuda_attention_tiles_grad(run, &job);
    else
        ls_cuda_attention_plain_grad(run, &job, type_of(node));
    ls_cuda_attention_distance_grad(run, &job, type_of(node));
}

static void backward(const ls_run *run, const ls_node *node) {
    ls_cuda_attention job;
    ls_hopper_attention hopper;
    ls_cuda_attention_begin(run, node, true, &job);
    if (hopper_takes(run, &job, type_of(node), &hopper))
        ls_hopper_attention_backward(ls_cuda_of(run), &hopper);
    else
        backward_any(run, node, job);
}

/* ---- gradients of queries and keys that were rotated: see engine/join.c ---- */

enum { TURNED_WIDTH = 64 };

static ls_hopper_array array_of(const ls_tensor *x) {
    return {(ls_cuda_bf16 *)ls_data(x), x->stride[0], x->stride[1], x->stride[2]};
}

/* The Hopper kernels rotate what they write; else each is done by itself. */
static void backward_turned(const ls_run *run, const ls_node *node) {
    const ls_node *grad = &node->parts[0], *dq = &node->parts[1], *dk = &node->parts[2];
    ls_cuda_attention job;
    ls_hopper_attention hopper = {};
    ls_cuda_attention_begin(run, grad, true, &job);
    const bool takes = hopper_takes(run, &job, type_of(grad), &hopper);
    ls_hopper_attention turned = hopper;
    turned.dq = array_of(dq->out[0]);
    turned.dk = array_of(dk->out[0]);
    if (takes && ls_cuda_turns_fit(dq, TURNED_WIDTH) && ls_cuda_turns_fit(dk, TURNED_WIDTH) &&
        ls_hopper_attention_takes(ls_cuda_of(run), &turned)) {
        const ls_hopper_attention shape =
            hopper_shape(turned.B, turned.T, turned.N, turned.H, turned.G, turned.D);
        char *tables = (char *)turned.workspace + ls_hopper_attention_workspace(&shape, true);
        turned.dq_turns = ls_cuda_turns_fill(run, dq, tables);
        turned.dk_turns = ls_cuda_turns_same(dq, dk)
                              ? turned.dq_turns
                              : ls_cuda_turns_fill(run, dk, tables + ls_cuda_turns_bytes(dq));
        ls_hopper_attention_backward(ls_cuda_of(run), &turned);
        return;
    }
    if (takes)
        ls_hopper_attention_backward(ls_cuda_of(run), &hopper);
    else
        backward_any(run, grad, job);
    const ls_kernel *rotate = ls_cuda_of(run)->device.kernel(&ls_cuda_of(run)->device, "rotate");
    rotate->by_type[LS_BF16](run, dq);
    rotate->by_type[LS_BF16](run, dk);
}

static size_t workspace(const ls_node *node, bool backward) {
    const int64_t *q = node->in[LS_ATTENTION_Q]->dim, *k = node->in[LS_ATTENTION_K]->dim;
    const ls_hopper_attention hopper = hopper_shape(q[0], q[1], k[1], q[2], k[2], q[3]);
    return ls_cuda_attention_workspace(node, backward) +
           ls_hopper_attention_workspace(&hopper, backward);
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace(node, false);
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace(node, true);
}

static size_t turned_workspace(const ls_node *node, int threads) {
    return (size_t)ls_round_up((int64_t)backward_workspace(&node->parts[0], threads), 256) +
           ls_cuda_turns_bytes(&node->parts[1]) + ls_cuda_turns_bytes(&node->parts[2]);
}

LS_CUDA_DECLARE_TABLE(attention);
const ls_kernel LS_CUDA_TABLE(attention)[] = {
    {"attention", {NULL, forward, forward}, forward_workspace},
    {"attention_grad", {NULL, backward, backward}, backward_workspace},
    {"attention_grad+rotate+rotate", {NULL, NULL, backward_turned}, turned_workspace},
    {"listed_attention", {NULL, forward, forward}, forward_workspace},
    {"listed_attention_grad", {NULL, backward, backward}, backward_workspace},
    {"span_attention", {NULL, forward, forward}, forward_workspace},
    {"span_attention_grad", {NULL, backward, backward}, backward_workspace},
    {"rotate+cache_append+attention", {NULL, chained, chained}, ls_cuda_chain_workspace},
    {"cache_append+attention", {NULL, chained, chained}, ls_cuda_chain_workspace},
    {0},
};
