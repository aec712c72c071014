#include "eval/resolution.h"

#include <math.h>

#include "base/clock.h"
#include "eval/score.h"
#include "model/observe.h"

/* ---- the measure itself ---- */

ls_resolution_value ls_resolution_of(const double *s, int64_t K) {
    double most = -INFINITY, sum = 0;
    ls_resolution_value out = {0};
    for (int64_t k = 0; k < K; k++) most = fmax(most, s[k]);
    for (int64_t k = 0; k < K; k++) sum += exp(s[k] - most);
    for (int64_t k = 0; k + 1 < K; k++) {
        double p = exp(s[k] - most) / sum, next = exp(s[k + 1] - most) / sum;
        out.R += p * (p - next);
        if (s[k] > s[k + 1]) out.M += p;
    }
    return out;
}

int64_t ls_resolution_curve(const double *sum, const double *count, int64_t heads,
                            int64_t distances, double least, double *s) {
    int64_t K = 0;
    for (int64_t n = 0; n < distances; n++) {
        double mean = 0;
        bool enough = true;
        for (int64_t h = 0; h < heads; h++) {
            double pairs = count[h * distances + n];
            enough &= pairs >= least;
            if (enough) mean += sum[h * distances + n] / pairs;
        }
        if (enough) s[K++] = mean / (double)heads;
    }
    return K;
}

/* ---- profiling a model ---- */

/* What one layer keeps, added up over all windows. */
typedef struct layer_profile {
    const char *name; /* in the first program */
    int64_t heads, distances;
    double *sum, *count; /* [heads][distances]; one allocation */
} layer_profile;

typedef struct profiler {
    ls_ctx *ctx;
    ls_observer observer;
    int32_t *tokens;
    double *values; /* what a layer keeps of one run */
    layer_profile *layer;
    int64_t layers;
} profiler;

static void profiler_clear(profiler *p) {
    for (int64_t i = 0; i < p->layers; i++) ls_free(p->ctx, p->layer[i].sum);
    ls_free(p->ctx, p->layer);
    ls_free(p->ctx, p->tokens);
    ls_free(p->ctx, p->values);
    ls_observer_clear(&p->observer);
}

static ls_status make_layers(profiler *p) {
    const char *name;
    int64_t found = 0, most = 0;
    for (size_t at = 0; ls_observed_name(&p->observer, "scores", &at) != NULL;) found++;
    if (found == 0)
        return LS_FAIL(p->ctx, LS_EUSE,
                       "this model has no attention whose resolution could be "
                       "measured");
    p->layer = ls_new(p->ctx, (size_t)found, sizeof *p->layer);
    if (p->layer == NULL) return LS_ENOMEM;
    for (size_t at = 0; (name = ls_observed_name(&p->observer, "scores", &at)) != NULL;) {
        const ls_tensor *kept = ls_program_find(p->observer.program[0], name);
        layer_profile *layer = &p->layer[p->layers++];
        *layer = (layer_profile){.name = name, .heads = kept->dim[1], .distances = kept->dim[2]};
        layer->sum = ls_new(p->ctx, (size_t)ls_count(kept), sizeof *layer->sum);
        if (layer->sum == NULL) return LS_ENOMEM;
        layer->count = layer->sum + layer->heads * layer->distances;
        if (layer->heads != p->layer[0].heads)
            return LS_FAIL(p->ctx, LS_EUSE, "layers of this model have different numbers of heads");
        most = ls_max(most, ls_count(kept));
    }
    p->values = ls_new(p->ctx, (size_t)most, sizeof *p->values);
    return p->values == NULL ? LS_ENOMEM : LS_OK;
}

static ls_status profiler_init(ls_model *model, const ls_resolution_request *request, profiler *p) {
    *p = (profiler){.ctx = model->ctx};
    LS_TRY(ls_observer_open(model, LS_MODEL_LOGITS, (ls_program_options){.profile_scores = true},
                            request->length, request->chunk, &p->observer));
    p->tokens = ls_new(p->ctx, (size_t)p->observer.chunk, sizeof *p->tokens);
    if (p->tokens == NULL) return LS_ENOMEM;
    return make_layers(p);
}

static ls_status add_run(profiler *p, const ls_program *program) {
    for (int64_t i = 0; i < p->layers; i++) {
        const ls_tensor *kept = ls_program_find(program, p->layer[i].name);
        LS_TRY(ls_tensor_get(program, kept, p->values));
        for (int64_t n = 0; n < ls_count(kept); n++) p->layer[i].sum[n] += p->values[n];
    }
    return LS_OK;
}

static ls_status profile_window(const ls_token_file *file, profiler *p, const ls_window *window,
                                const ls_resolution_request *request) {
    const int64_t length = p->observer.length, chunk = p->observer.chunk;
    ls_observer_begin(&p->observer);
    for (int64_t first = 0; first < length; first += chunk) {
        const int64_t count = ls_min(chunk, length - first);
        const ls_program *ran;
        LS_TRY(ls_eval_check_stop(p->ctx, request->stop, request->length));
        ls_token_file_read(file, window->begin + first, count, p->tokens);
        LS_TRY(ls_token_file_status(p->ctx, file));
        LS_TRY(ls_observer_feed(&p->observer, p->tokens, NULL, count, &ran));
        LS_TRY(add_run(p, ran));
    }
    return LS_OK;
}

/* R and M of every head and of every layer. */
static ls_status evaluate(const profiler *p, ls_resolution *out) {
    int64_t heads = p->layer[0].heads, most = 0;
    for (int64_t i = 0; i < p->layers; i++) most = ls_max(most, p->layer[i].distances);
    out->layers = p->layers;
    out->heads = heads;
    out->layer = ls_new(p->ctx, (size_t)p->layers, sizeof *out->layer);
    out->head = ls_new(p->ctx, (size_t)(p->layers * heads), sizeof *out->head);
    double *s = ls_new(p->ctx, (size_t)most, sizeof *s);
    if (out->layer == NULL || out->head == NULL || s == NULL) {
        ls_free(p->ctx, s);
        return LS_ENOMEM;
    }
    for (int64_t i = 0; i < p->layers; i++) {
        const layer_profile *layer = &p->layer[i];
        const double least = LS_RESOLUTION_PAIRS_LEAST;
        int64_t D = layer->distances;
        for (int64_t h = 0; h < heads; h++) {
            int64_t K =
                ls_resolution_curve(layer->sum + h * D, layer->count + h * D, 1, D, least, s);
            out->distances = ls_max(out->distances, K);
            ls_resolution_value value = ls_resolution_of(s, K);
            out->head[i * heads + h] = value;
            out->R_head += value.R / (double)(p->layers * heads);
            out->M_head += value.M / (double)(p->layers * heads);
        }
        int64_t K = ls_resolution_curve(layer->sum, layer->count, heads, D, least, s);
        out->layer[i] = ls_resolution_of(s, K);
        out->R_layer += out->layer[i].R / (double)p->layers;
        out->M_layer += out->layer[i].M / (double)p->layers;
    }
    ls_free(p->ctx, s);
    return LS_OK;
}

ls_status ls_resolution_measure(ls_model *model, const ls_token_file *file,
                                const ls_selection *selection, const ls_resolution_request *request,
                                ls_resolution *out) {
    ls_ctx *ctx = model->ctx;
    ls_protocol_choice pieces;
    ls_windows windows;
    profiler p = {.ctx = ctx};
    const double start = ls_clock();
    *out = (ls_resolution){.length = request->length};
    LS_TRY(ls_protocol_find(ctx, "nonoverlap", &pieces));
    LS_TRY(
        ls_windows_cut(ctx, file, pieces, selection, request->length, request->length, &windows));
    /* whole windows come first */
    int64_t whole = 0;
    while (whole < (int64_t)windows.count && windows.at[whole].length == request->length) whole++;
    const int64_t wanted = ls_min(whole, ls_ceil_div(request->tokens, request->length));
    ls_status status;
    LS_TRY_GOTO(profiler_init(model, request, &p));
    for (int64_t i = 0; i < wanted; i++)
        LS_TRY_GOTO(profile_window(file, &p, &windows.at[i * whole / wanted], request));
    out->tokens = wanted * request->length;
    LS_TRY_GOTO(evaluate(&p, out));
    out->seconds = ls_clock() - start;
fail:
    profiler_clear(&p);
    ls_free(ctx, windows.at);
    return status;
}

void ls_resolution_clear(ls_ctx *ctx, ls_resolution *resolution) {
    ls_free(ctx, resolution->head);
    ls_free(ctx, resolution->layer);
    *resolution = (ls_resolution){0};
}
