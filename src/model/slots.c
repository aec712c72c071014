/* Every slot is a query of its own over its own content and the segment's rows, so slots never see
 * one another. Biased memory normalisation is applied where slots are read: what is carried is the
 * sum before it, whose first value is then the bias itself, and however a stream is cut the same is
 * computed. */
#include "model/slots.h"

#include <math.h>

#include "model/layers.h"

static ls_tensor *in_heads(ls_program *p, ls_tensor *x, int64_t H) {
    if (x == NULL) return NULL;
    return ls_reshape(p, x, LS_DIMS(x->dim[0], x->dim[1], H, x->dim[2] / H));
}

static ls_tensor *heads_of(ls_program *p, const ls_model_settings *about, ls_tensor *x) {
    return in_heads(p, x, about->memory_heads);
}

static ls_tensor *rows_of(ls_program *p, const ls_model_settings *about, ls_tensor *heads) {
    if (heads == NULL) return NULL;
    return ls_reshape(p, heads, LS_DIMS(heads->dim[0], heads->dim[1], about->width));
}

static double scale_of(const ls_model_settings *about, int64_t heads) {
    return 1 / sqrt((double)(about->width / heads));
}

ls_tensor *ls_slots_read(ls_program *p, const ls_model_settings *about, ls_tensor *x,
                         ls_tensor *context) {
    const int64_t D = about->width;
    const int64_t H = about->memory_read_heads > 0 ? about->memory_read_heads : about->memory_heads;
    ls_tensor *kv[2] = {NULL, NULL};
    ls_scope(p, "read");
    ls_tensor *q = ls_project(p, about, "q", x, D, about->bias);
    ls_tensor *joint = ls_project(p, about, "kv", context, 2 * D, about->bias);
    if (joint != NULL) ls_split(p, joint, 2, (const int64_t[]){D, D}, kv);
    const ls_key_set seen =
        ls_key_set_all(in_heads(p, q, H), in_heads(p, kv[0], H), in_heads(p, kv[1], H));
    ls_tensor *y =
        ls_attention(p, 1, &seen, (ls_attention_options){.scale = scale_of(about, H)}, NULL);
    y = ls_project(p, about, "out", rows_of(p, about, y), D, about->bias);
    ls_scope_end(p);
    return ls_dropout(p, y, about->dropout);
}

ls_tensor *ls_slots_start(ls_program *p, const ls_model_settings *about) {
    ls_init init = ls_init_normal(about->init);
    init.no_decay = true;
    return ls_param(p, "/memory.start", LS_DIMS(about->memory, about->width), init);
}

ls_tensor *ls_slots_seen(ls_program *p, const ls_model_settings *about, ls_tensor *carried) {
    const double nothing = 1e-30; /* a slot of zeros stays one */
    if (about->memory_update != LS_UPDATE_NORM) return carried;
    return ls_times(p, ls_residual_norm(p, LS_NORM_RMS, nothing, carried, NULL, NULL, NULL, NULL),
                    1 / sqrt((double)about->width));
}

static ls_tensor *write_once(ls_program *p, const ls_model_settings *about, ls_tensor *memory,
                             ls_tensor *rows, ls_tensor *valid) {
    const int64_t D = about->width;
    const bool gated = about->memory_update == LS_UPDATE_GRU;
    ls_scope(p, "memory");
    ls_tensor *q = heads_of(p, about, ls_project(p, about, "q", memory, D, about->bias));
    ls_tensor *own = heads_of(p, about, ls_project(p, about, "k", memory, D, about->bias));
    ls_tensor *k = heads_of(p, about, ls_project(p, about, "k", rows, D, about->bias));
    ls_tensor *v = heads_of(p, about, ls_project(p, about, "v", rows, D, about->bias));
    ls_tensor *content = gated ? ls_project(p, about, "v", memory, D, about->bias) : memory;
    ls_key_set seen[2] = {ls_key_set_all(q, own, heads_of(p, about, content)),
                          ls_key_set_all(q, k, v)};
    seen[0].lo = seen[0].hi = 0; /* slot i alone */
    seen[1].valid = valid;
    const ls_attention_options how = {.scale = scale_of(about, about->memory_heads) /
                                               about->memory_temperature};
    ls_tensor *written = rows_of(p, about, ls_attention(p, 2, seen, how, NULL));
    if (about->memory_update == LS_UPDATE_NORM)
        written = ls_plus_broadcast(p, written, ls_slots_start(p, about));
    if (gated) {
        written = ls_project(p, about, "out", written, D, about->bias);
        written = ls_gated_unit(p, about, "gru", "slot", written, memory);
        ls_tensor *inner = ls_layer_norm(p, about, "norm", written, NULL, NULL);
        written = ls_plus(p, written, ls_feed_forward(p, about, inner));
    }
    ls_scope_end(p);
    return written;
}

ls_tensor *ls_slots_write(ls_program *p, const ls_model_settings *about, ls_tensor *memory,
                          ls_tensor *rows, ls_tensor *valid) {
    ls_tensor *written = write_once(p, about, memory, rows, valid);
    for (int64_t i = 1; i < about->memory_updates; i++)
        written = write_once(p, about, ls_slots_seen(p, about, written), rows, valid);
    return written;
}
