/* CLEX (arXiv 2310.16450): frequencies as a function of a scale t that is learnt, through a
 * differential equation (src/tensor/op/clex). In training a scale is drawn for each batch, and
 * positions spread over so many times the trained length; at test the scale is that of the length.
 * One small network serves all layers; it begins as NTK scaling by 2t - 1. */
#include <math.h>

#include "position/position.h"

typedef struct clex_options {
    int64_t max_factor, steps, length, scale;
    double hidden;
    int act, dyn;
    bool log_scale;
} clex_options;

#define FIELD(name) clex_options, name
static const ls_option options[] = {
    LS_INT("max_factor", FIELD(max_factor), "16", 1, 1024,
           "Largest scale t; longer texts are read with it."),
    LS_INT("steps", FIELD(steps), "8", 1, 1000, "Steps of the solver from one t to the next."),
    LS_REAL("hidden", FIELD(hidden), "1", 0.01, 64,
            "Width of the network over the rotated width of a head."),
    LS_CHOICE("act", FIELD(act), "silu", "silu|tanh", "Its activation."),
    LS_INT("scale", FIELD(scale), "0", 0, 1024,
           "Scale t, whatever the length; 0: drawn in training, and ceil(length / trained_length) "
           "at test."),
    LS_CHOICE("dyn", FIELD(dyn), "fixed", "fixed|call|row",
              "Length that decides at test: the planned one, that of each call, or of each token.",
              .needs = "scale=0"),
    LS_INT("length", FIELD(length), "0", 0, 1e15,
           "Planned length; 0: what the program has room for.", .needs = "dyn=fixed"),
    LS_BOOL("log_scale", FIELD(log_scale), "false",
            "Queries times ln(length) / ln(trained_length) at test, also where that is below 1."),
};

static int64_t planned(const clex_options *o, const ls_attend *attend) {
    return o->length > 0 ? o->length : attend->planned_length;
}

/* The factor of queries, of the length that decides. */
static ls_status scale_queries(ls_ctx *ctx, const clex_options *o, ls_attend *attend,
                               int64_t trained) {
    if (!o->log_scale || attend->training) return LS_OK;
    if (trained < 2)
        return LS_FAIL(ctx, LS_EUSE, "clex: log_scale needs a trained_length of 2 or more");
    if (o->dyn == 0) {
        attend->scale *= log((double)ls_max(planned(o, attend), 1)) / log((double)trained);
        return LS_OK;
    }
    attend->growth.length = (double)trained;
    attend->growth.whole = true;
    return LS_OK;
}

/* Steps between places are so many to a position. */
static int64_t parts_of(int64_t length, int64_t trained) {
    return ls_max(1, length / trained);
}

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const clex_options *o = chosen;
    int64_t trained;
    LS_TRY(ls_attend_length(ctx, "clex", attend, 0, &trained));
    LS_TRY(ls_attend_uncut(ctx, "clex", attend));
    if (attend->rotates && attend->rotary.pairs < 2)
        return LS_FAIL(ctx, LS_EUSE, "clex needs heads with 2 rotated pairs or more");
    if (attend->rotary.dynamic != NULL)
        return LS_FAIL(ctx, LS_EUSE, "clex follows the length, as the extension before it does");
    if (o->scale > o->max_factor)
        return LS_FAIL(ctx, LS_EUSE, "clex: scale=%lld exceeds max_factor=%lld",
                       (long long)o->scale, (long long)o->max_factor);
    attend->rotary.trained_length = trained;
    attend->raw_keys = o->scale == 0 && o->dyn > 0;
    if (o->dyn == LS_DYNAMIC_ROW) attend->chunk_max = 1;
    LS_TRY(scale_queries(ctx, o, attend, trained));
    if (!attend->training || attend->places == NULL) return LS_OK;
    const int64_t parts = parts_of(attend->planned_length, trained);
    if (parts > 1)
        attend->set[0].query_at = attend->set[0].key_at =
            (ls_position_map){LS_MAP_SCALE, 1 / (double)parts, 0};
    return LS_OK;
}

/* The scale that is known beforehand; 0: it is not. */
static int64_t known_scale(const clex_options *o, const ls_attend *attend, int64_t trained) {
    if (o->scale > 0) return o->scale;
    if ((attend->training && attend->places != NULL) || o->dyn > 0) return 0;
    return ls_max(1, ls_min(o->max_factor, ls_ceil_div(planned(o, attend), trained)));
}

/* The first layer makes the frequencies, the others find them. */
static void prepare(ls_program *p, const void *chosen, ls_attend *attend) {
    const clex_options *o = chosen;
    ls_rotary *rotary = &attend->rotary;
    rotary->learned = ls_program_find(p, "position.clex");
    if (rotary->learned != NULL || ls_failed(p)) return;
    const int64_t pairs = rotary->pairs;
    const int64_t hidden = ls_max(1, (int64_t)llrint(o->hidden * 2 * (double)pairs));
    ls_clex about = {.pairs = pairs,
                     .hidden = hidden,
                     .tanh = o->act == 1,
                     .steps = o->steps,
                     .most = o->max_factor,
                     .trained = attend->trained_length,
                     .scale = known_scale(o, attend, attend->trained_length)};
    memcpy(about.frequency, rotary->frequency, sizeof about.frequency);
    ls_init begin = {
        .kind = LS_INIT_UNIFORM, .a = 1 / sqrt((double)hidden), .own_rate = true, .full = true};
    ls_tensor *up = ls_shared_param(p, "clex.up", LS_DIMS(pairs, hidden), begin);
    begin.kind = LS_INIT_ZERO;
    ls_tensor *down = ls_shared_param(p, "clex.down", LS_DIMS(hidden, pairs), begin);
    ls_tensor *scale = NULL;
    if (attend->training && attend->places != NULL && o->scale == 0)
        scale = ls_input(p, "/scale", LS_I32, LS_DIMS(1), false);
    rotary->learned = ls_clex_frequencies(p, &about, up, down, scale);
    ls_keep(p, "/position.clex", rotary->learned);
}

void ls_clex_places(int64_t length, int64_t scale, int32_t *places) {
    for (int64_t t = length - 2; t > 0; t--) places[t] = places[t - 1] + 1;
    if (length > 1) places[length - 1] = (int32_t)(length * scale - 1);
    places[0] = 0;
}

static ls_status draw(ls_ctx *ctx, const void *chosen, const ls_place_draw *about,
                      ls_places_drawn *out) {
    const clex_options *o = chosen;
    const ls_random key = {about->seed, ls_stream_of("clex"), (uint32_t)about->batch};
    const int64_t T = about->length;
    if (T * o->max_factor >= INT32_MAX)
        return LS_FAIL(ctx, LS_EUSE, "clex: max_factor=%lld is too large for %lld tokens",
                       (long long)o->max_factor, (long long)T);
    const int64_t scale =
        o->scale > 0 ? o->scale
                     : 1 + (int64_t)ls_random_below(key, UINT64_MAX / 2, (uint64_t)o->max_factor);
    out->scale = o->scale > 0 ? 0 : scale;
    if (out->places == NULL) return LS_OK;
    if (T > 2) ls_rising_places(key, T - 2, T * scale - 2, out->places);
    ls_clex_places(T, scale, out->places);
    return LS_OK;
}

const ls_extension_type ls_extension_clex = {
    .name = "clex",
    .summary = "frequencies that a small network learns as a function of the length",
    .paper = "arXiv 2310.16450",
    .options = LS_OPTIONS(options, clex_options),
    .needs = LS_POSITION_ROTARY | LS_POSITION_PURE,
    .causal = true,
    .extend = extend,
    .prepare = prepare,
    .draw = draw,
};
