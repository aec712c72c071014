/* Sequences of a batch that begin anew each for itself: which rows of what all have together are
 * their own, and where they are. */
#include "tensor/engine/program_internal.h"

/* in: begins; out: u8 [B,N], with the extent of the cache it is about */
static const ls_op own_rows_op = {.name = "own_rows"};
/* in: begins; out: i32 [B,T] */
static const ls_op own_places_op = {.name = "own_places"};

bool ls_begins_differ(const ls_program *p) {
    return p->options.streaming && p->options.resets;
}

ls_tensor *ls_begins(ls_program *p) {
    return ls_begins_differ(p) ? p->begins : NULL;
}

ls_tensor *ls_own_rows(ls_program *p, const ls_tensor *cache) {
    if (ls_failed(p) || cache == NULL || cache->port < 0 || !ls_begins_differ(p)) return NULL;
    const ls_port *port = p->ports.at[cache->port];
    ls_tensor *own = ls_activation(p, LS_U8, LS_DIMS(cache->dim[0], cache->dim[1]));
    if (own == NULL) return NULL;
    own->port = cache->port;
    ls_record(p, &own_rows_op, &port->rule.each, sizeof port->rule.each, 1, &p->begins, 1, &own);
    return own;
}

ls_tensor *ls_own_places(ls_program *p, int64_t T, int64_t last) {
    if (ls_failed(p)) return NULL;
    ls_tensor *places = ls_activation(p, LS_I32, LS_DIMS(p->options.batch, T));
    ls_record(p, &own_places_op, &last, sizeof last, 1, &p->begins, 1, &places);
    return places;
}

void ls_begins_fit(ls_program *p, int64_t period) {
    if (period < 1 || !ls_begins_differ(p) || p->options.length % period == 0) return;
    ls_refuse_option(
        p, "resets",
        "where sequences begin anew each for itself a chunk of %lld tokens must be a multiple of "
        "the %lld in which the model cuts a sequence",
        (long long)p->options.length, (long long)period);
}

int64_t ls_positions_end(const ls_program *p) {
    return ls_begins_differ(p) ? LS_FAR : p->options.capacity;
}
