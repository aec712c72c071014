/* Segments, and with model.memory a Recurrent Memory Transformer (arXiv 2207.06881): rows of memory
 * are read before a segment's own and written after them, and what comes out of the latter is the
 * next segment's memory. */
#include "model/segments.h"
#include "model/stack.h"

static bool serves(const ls_model_config *config) {
    const ls_model_settings *about = &config->model;
    return about->segment > 0 && about->memory_kind == LS_MEMORY_ROWS &&
           config->encoder_layers == 0;
}

static ls_status check(ls_ctx *ctx, const ls_model_config *config) {
    const ls_model_settings *about = &config->model;
    if (about->memory > 0 && about->segment == 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.memory passes from segment to segment: set model.segment to their "
                       "length");
    if (about->segment > 0 && !about->causal)
        return LS_FAIL(ctx, LS_EUSE, "model.segment goes forward in time: it needs model.causal");
    return LS_OK;
}

static ls_tensor *alone(ls_program *p, const ls_model_config *config, ls_tensor *x,
                        ls_carried *now) {
    (void)now;
    const ls_stack layers = ls_stack_whole(config);
    return ls_stack_record(p, config, &layers, x, NULL);
}

static ls_tensor *with_memory(ls_program *p, const ls_model_config *config, ls_tensor *x,
                              ls_carried *now) {
    const int64_t m = config->model.memory;
    const ls_stack layers = ls_stack_whole(config);
    ls_tensor *part[3], *all = ls_join_rows(p, 3, (ls_tensor *[]){now->memory, x, now->memory});
    if (all == NULL) return NULL;
    ls_cut_rows(p, ls_stack_record(p, config, &layers, all, NULL), 3, (int64_t[]){m, x->dim[1], m},
                part);
    now->memory = part[2];
    return part[1];
}

/* Padding comes after all that counts, and no row is changed by what comes later: no validity is
 * needed. */
static ls_tensor *rows(ls_program *p, const ls_model_config *config, const ls_recording *how,
                       ls_tensor *tokens, ls_tensor *valid, ls_tensor **embedding) {
    (void)valid;
    const ls_model_settings *about = &config->model;
    ls_tensor *x = ls_embed_tokens(p, about, tokens, embedding);
    if (x == NULL) return NULL;
    ls_carried now = {0};
    if (about->memory > 0) now.memory = ls_memory_before(p, about, x->dim[0]);
    return ls_in_segments(p, config, how, x, now, 2 * about->memory,
                          about->memory > 0 ? with_memory : alone);
}

const ls_wrap_type ls_wrap_rmt = {
    .name = "rmt",
    .summary = "segments, with rows of memory that pass from one to the next",
    .paper = "arXiv 2207.06881",
    .serves = serves,
    .check = check,
    .rows = rows,
};
