/* Learned absolute positions (arXiv 1705.03122): row p of a table is added to the
 * embedding. The table ends somewhere; beyond its end a position is refused, or repeats the
 * last row if so wished. */
#include "position/position.h"

typedef struct learned_options {
    int64_t length, offset;
    int beyond;
} learned_options;
enum { BEYOND_REFUSE, BEYOND_CLAMP };

#define FIELD(name) learned_options, name
static const ls_option options[] = {
    LS_INT("length", FIELD(length), "1024", 1, 1 << 24, "Positions in the table."),
    LS_INT("offset", FIELD(offset), "0", 0, 1 << 20,
           "Rows of the table before that of the first position, which nothing reads (OPT: 2)."),
    LS_CHOICE("beyond", FIELD(beyond), "refuse", "refuse|clamp",
              "Positions past the end of the table: refused, or its last row again."),
};

static ls_tensor *embed(ls_program *p, const void *chosen, ls_tensor *x) {
    const learned_options *o = chosen;
    const ls_program_options *about = ls_program_about(p);
    int64_t most = about->streaming ? about->capacity : about->length;
    if (x == NULL) return NULL;
    if (most > o->length && o->beyond == BEYOND_REFUSE) {
        ls_refuse(
            p, LS_EUSE,
            "learned positions end at %lld and cannot reach %lld tokens: use fewer (a model that "
            "is trained with position.beyond=clamp repeats the last one)",
            (long long)o->length, (long long)most);
        return NULL;
    }
    ls_init init = {.kind = LS_INIT_NORMAL, .a = 0.02, .no_decay = true};
    ls_tensor *table =
        ls_shared_param(p, "embedding", LS_DIMS(o->offset + o->length, x->dim[2]), init);
    if (ls_begins_differ(p) && o->offset > 0) {
        ls_refuse_option(p, "resets",
                         "position.offset does not go with sequences that begin anew each for "
                         "itself");
        return NULL;
    }
    if (ls_begins_differ(p))
        return ls_plus(p, x, ls_embed(p, ls_own_places(p, x->dim[1], o->length - 1), table));
    return ls_plus_broadcast(p, x, ls_position_rows(p, table, x->dim[1], o->offset));
}

const ls_position_type ls_position_learned = {
    .name = "learned",
    .summary = "a learned vector per position added to the embedding",
    .paper = "arXiv 1705.03122",
    .options = LS_OPTIONS(options, learned_options),
    .traits = LS_POSITION_ABSOLUTE | LS_POSITION_BOUNDED | LS_POSITION_LEARNED,
    .embed = embed,
};
