/* How much heads copy, from weights alone: what attending to a token adds to its own logit. The
 * path is the direct one, from the embedding through values and output to the logits, without
 * norms. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/lib/heads.h"
#include "suite/lib/looker.h"

/* Weights where the processor can read them. */
typedef struct weights {
    const ls_parameters *store;
    void *here; /* the master, or a copy of it */
} weights;

typedef struct matrix {
    const void *at; /* NULL: there is none of that shape */
    ls_dtype type;
    int64_t columns;
} matrix;

static matrix matrix_of(const weights *w, const char *name, int64_t rows_least, int64_t columns) {
    const ls_parameter *parameter = ls_parameters_find(w->store, name);
    matrix m = {.type = w->store->master_type, .columns = columns};
    if (parameter == NULL || parameter->rank != 2 || parameter->dim[0] < rows_least ||
        parameter->dim[1] != columns)
        return m;
    m.at = w->here == w->store->master
               ? ls_parameter_values(w->store, parameter, &m.type)
               : (char *)w->here + (size_t)parameter->offset * ls_dtype_size(m.type);
    return m;
}

static double value(const matrix *m, int64_t row, int64_t column) {
    const int64_t i = row * m->columns + column;
    if (m->type == LS_F64) return ((const double *)m->at)[i];
    if (m->type == LS_F32) return (double)((const float *)m->at)[i];
    return (double)ls_bf16_to_f32(((const ls_bf16 *)m->at)[i]);
}

typedef struct circuit {
    matrix embedding, unembedding, in, out;
    ls_value_rows rows;
    int64_t heads, width;
} circuit;

/* What head h adds to the logit of every token of the sample where it attends to token a. */
static void logits_of(const circuit *c, int64_t h, const int32_t *tokens, int64_t count, int64_t a,
                      double *inner, double *logits) {
    const int64_t W = c->rows.width, D = c->width;
    const int64_t first = c->rows.first + h / (c->heads / c->rows.groups) * W;
    for (int64_t k = 0; k < W; k++) {
        inner[k] = 0;
        for (int64_t d = 0; d < D; d++)
            inner[k] += value(&c->embedding, tokens[a], d) * value(&c->in, first + k, d);
    }
    for (int64_t s = 0; s < count; s++) logits[s] = 0;
    for (int64_t d = 0; d < D; d++) {
        double row = 0;
        for (int64_t k = 0; k < W; k++) row += inner[k] * value(&c->out, d, h * W + k);
        for (int64_t s = 0; s < count; s++) logits[s] += row * value(&c->unembedding, tokens[s], d);
    }
}

/* false: values of this layer do not go straight from embedding to logits. */
static bool find_circuit(const ls_looker *l, const weights *w, int64_t layer, circuit *out) {
    const ls_model_config *config = l->observer.model->config;
    const ls_mixer mixer = ls_model_mixer(config, l->layer[layer].number);
    const int64_t V = config->model.vocabulary, D = mixer.width;
    const char *name = l->layer[layer].name;
    const int scope = (int)(strlen(name) - strlen("pattern"));
    char key[256];
    if (mixer.type->value_rows == NULL) return false;
    *out = (circuit){.rows = mixer.type->value_rows(&mixer), .heads = l->heads, .width = D};
    if (out->rows.width == 0 || l->heads % out->rows.groups != 0) return false;
    const int64_t rows = out->rows.first + out->rows.groups * out->rows.width;
    snprintf(key, sizeof key, "%.*s%s", scope, name, out->rows.in);
    out->in = matrix_of(w, key, rows, D);
    snprintf(key, sizeof key, "%.*s%s", scope, name, out->rows.out);
    out->out = matrix_of(w, key, D, l->heads * out->rows.width);
    out->embedding = matrix_of(w, "embed.weight", V, D);
    out->unembedding = config->model.tied ? out->embedding : matrix_of(w, "head.weight", V, D);
    return out->in.at != NULL && out->out.at != NULL && out->embedding.at != NULL &&
           out->unembedding.at != NULL;
}

ls_status ls_looker_copying(const ls_looker *l, const int32_t *tokens, int64_t count,
                            double *scores) {
    const ls_parameters *store = l->observer.model->store;
    ls_ctx *ctx = l->observer.model->ctx;
    weights w = {.store = store};
    ls_status status = LS_OK;
    LS_TRY(ls_parameters_fetch(store, store->master, &w.here));
    for (int64_t layer = 0; layer < l->layers && status == LS_OK; layer++) {
        double *to = scores + layer * l->heads, *room = NULL;
        circuit c;
        for (int64_t h = 0; h < l->heads; h++) to[h] = NAN;
        if (!find_circuit(l, &w, layer, &c)) continue;
        room = ls_new(ctx, (size_t)(count * count + c.rows.width), sizeof *room);
        if (room == NULL) status = LS_ENOMEM;
        for (int64_t h = 0; status == LS_OK && h < l->heads; h++) {
            for (int64_t a = 0; a < count; a++)
                logits_of(&c, h, tokens, count, a, room + count * count, room + a * count);
            to[h] = ls_head_copying(room, count);
        }
        ls_free(ctx, room);
    }
    ls_parameters_release(store, store->master, w.here, false);
    return status;
}
