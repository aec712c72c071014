/* Perceiver (arXiv 2103.03206), Perceiver IO (arXiv 2107.14795) and, where the model is causal,
 * Perceiver AR (arXiv 2202.07765): a few latent rows read a text by attention, a stack of layers
 * works on the latents alone, and queries read the result. See perceiver.md. */
#include <math.h>

#include "mixer/perceiver/layer.h"

typedef struct perceiver_options {
    int64_t latents, latent_width, heads, cross_heads, decoder_heads;
    int64_t qk_width, v_width, decoder_qk_width, decoder_v_width, query_width;
    int64_t widening, cross_widening, decoder_widening, cross_attends, blocks, layers;
    int64_t bands, length;
    int share_cross, share_blocks, cross_shape, activation, features, beyond, queries, output, loss,
        dropped;
    bool residual, decoder_residual, project, whole;
    double epsilon, resolution, rotary, max_wavelength, drop, drop_latents;
    ls_ints grid;
} perceiver_options;

enum { SHARE_NONE, SHARE_LATER, SHARE_ALL };
enum { SHAPE_KV, SHAPE_Q };
enum { FEATURES_NONE, FEATURES_FOURIER };
enum { BEYOND_STRETCH, BEYOND_CONTINUE };
enum { QUERIES_INPUT, QUERIES_LEARNED, QUERIES_FOURIER };
enum { OUTPUT_ROWS, OUTPUT_LATENTS };
enum { LOSS_ALL, LOSS_LAST };
enum { DROPPED_PREFIX, DROPPED_ALL };

static const ls_act_kind activations[] = {LS_ACT_GELU, LS_ACT_GELU_TANH, LS_ACT_SILU, LS_ACT_RELU,
                                          LS_ACT_RELU2};

#define FIELD(name) perceiver_options, name
static const ls_option options[] = {
    LS_INT("latents", FIELD(latents), "64", 1, 1 << 24,
           "Latent rows; causal: positions of a block, whose rows are its latents."),
    LS_INT("latent_width", FIELD(latent_width), "0", 0, 65536,
           "Width of the latents; 0: the model's."),
    LS_INT("heads", FIELD(heads), "4", 1, 4096, "Heads of the self-attention of latents."),
    LS_INT("cross_heads", FIELD(cross_heads), "0", 0, 4096,
           "Heads of the cross-attention that reads the text; 0: as heads."),
    LS_INT("decoder_heads", FIELD(decoder_heads), "0", 0, 4096,
           "Heads of the cross-attention that reads the latents; 0: as cross_heads.",
           .needs = "model.causal=false and output=rows"),
    LS_INT("qk_width", FIELD(qk_width), "0", 0, 65536,
           "Width of queries and keys of all heads of the encoder; 0: the latents' in "
           "self-attention, as cross_shape says in cross-attention."),
    LS_INT("v_width", FIELD(v_width), "0", 0, 65536,
           "Width of values of all heads of the encoder; 0: as queries and keys."),
    LS_CHOICE("cross_shape", FIELD(cross_shape), "kv", "kv|q",
              "Width of queries and keys of a cross-attention that has none: that of what it "
              "reads, or of its queries."),
    LS_INT("decoder_qk_width", FIELD(decoder_qk_width), "0", 0, 65536,
           "Width of queries and keys of all heads of the decoder; 0: as cross_shape says.",
           .needs = "model.causal=false and output=rows"),
    LS_INT("decoder_v_width", FIELD(decoder_v_width), "0", 0, 65536,
           "Width of values of all heads of the decoder; 0: as queries and keys.",
           .needs = "model.causal=false and output=rows"),
    LS_INT("cross_attends", FIELD(cross_attends), "1", 1, 1024,
           "Times that the latents read the text."),
    LS_INT("blocks", FIELD(blocks), "1", 1, 1024,
           "Blocks of self-attention layers after each cross-attention."),
    LS_INT("layers", FIELD(layers), "1", 0, 1024, "Layers of a block."),
    LS_CHOICE("share_cross", FIELD(share_cross), "later", "none|later|all",
              "Cross-attentions that share one set of weights: none, all but the first, or all.",
              .needs = "cross_attends!=1"),
    LS_CHOICE("share_blocks", FIELD(share_blocks), "all", "none|later|all",
              "Blocks that share one set of weights: none, all but the first, or all.",
              .needs = "blocks!=1 or cross_attends!=1"),
    LS_INT("widening", FIELD(widening), "1", 1, 64,
           "Hidden width of a layer's feed-forward part, in widths of its rows."),
    LS_INT("cross_widening", FIELD(cross_widening), "1", 1, 64,
           "Hidden width of a cross-attention's feed-forward part, in widths of its rows."),
    LS_INT("decoder_widening", FIELD(decoder_widening), "0", 0, 64,
           "Hidden width of the decoder's feed-forward part, in widths of its rows; 0: as "
           "cross_widening.",
           .needs = "model.causal=false and output=rows"),
    LS_CHOICE("activation", FIELD(activation), "gelu", "gelu|gelu_tanh|silu|relu|relu2",
              "Activation of the feed-forward parts."),
    LS_BOOL("residual", FIELD(residual), "true",
            "Whether a cross-attention's result is added to the latents that asked."),
    LS_BOOL("decoder_residual", FIELD(decoder_residual), "false",
            "Whether the decoder's result is added to its queries.",
            .needs = "model.causal=false and output=rows"),
    LS_REAL("epsilon", FIELD(epsilon), "1e-5", 1e-12, 1, "Added in the norms."),
    LS_CHOICE("features", FIELD(features), "none", "none|fourier",
              "Position features beside each row of the text."),
    LS_INT("bands", FIELD(bands), "64", 1, 4096, "Frequencies of an axis of the Fourier features.",
           .needs = "features=fourier or queries=fourier"),
    LS_REAL("resolution", FIELD(resolution), "0", 0, 1e12,
            "Fourier features: twice the highest frequency; 0: the length of the axis.",
            .needs = "features=fourier or queries=fourier"),
    LS_INTS("grid", FIELD(grid), "", 1, 1e9,
            "Lengths of the axes of the Fourier features, the last runs fastest; empty: one "
            "axis.",
            .needs = "features=fourier or queries=fourier"),
    LS_INT("length", FIELD(length), "0", 0, 1 << 30,
           "Rows of learned queries, and the length that spans [-1,1] where there is no grid; 0: "
           "the training length.",
           .needs =
               "queries=learned or features=fourier and no grid or queries=fourier and no grid"),
    LS_CHOICE("beyond", FIELD(beyond), "stretch", "stretch|continue",
              "Fourier features of a longer text: it spans [-1,1] all the same, or leaves it.",
              .needs = "features=fourier and no grid or queries=fourier and no grid"),
    LS_CHOICE("queries", FIELD(queries), "input", "input|learned|fourier",
              "Queries that read the latents for each row: the row itself, a learned row, or its "
              "Fourier features."),
    LS_INT("query_width", FIELD(query_width), "0", 0, 65536,
           "Width of learned queries; 0: the model's.", .needs = "queries=learned and output=rows"),
    LS_CHOICE("output", FIELD(output), "rows", "rows|latents",
              "Output: a row for each of the text's, or the latents."),
    LS_BOOL("project", FIELD(project), "true",
            "Whether latents begin as a projection of their rows; false: as the rows.",
            .needs = "model.causal=true"),
    LS_REAL("rotary", FIELD(rotary), "0.5", 0, 1,
            "Share of each head that is rotated by its position.", .needs = "model.causal=true"),
    LS_REAL("max_wavelength", FIELD(max_wavelength), "10000", 1, 1e12,
            "Ratio of the slowest wavelength to the first.", .needs = "model.causal=true"),
    LS_CHOICE("loss", FIELD(loss), "all", "all|last",
              "Positions that are trained: those of every block, or as published the last "
              "`latents` alone.",
              .needs = "model.causal=true"),
    LS_REAL("drop", FIELD(drop), "0", 0, 0.95,
            "Share of the text that cross-attention does not see in training, drawn for each "
            "step.",
            .needs = "model.causal=true"),
    LS_CHOICE("dropped", FIELD(dropped), "prefix", "prefix|all",
              "Rows that drop may leave out: those before the latents' block, or any.",
              .needs = "model.causal=true and drop"),
    LS_REAL("drop_latents", FIELD(drop_latents), "0", 0, 0.95,
            "Share of the latents that others do not see in self-attention in training.",
            .needs = "model.causal=true"),
    LS_BOOL("whole", FIELD(whole), "false",
            "Whether the output takes the rows' place, without the model's norm before and sum "
            "after."),
};

/* ---- shapes ---- */

static int64_t latent_width(const ls_mixer *mixer) {
    const perceiver_options *o = mixer->options;
    return o->latent_width > 0 ? o->latent_width : mixer->width;
}

/* The grid; T is the length of an axis that nothing else says. */
static ls_fourier fourier_of(const ls_mixer *mixer, int64_t T) {
    const perceiver_options *o = mixer->options;
    ls_fourier fourier = {.bands = o->bands};
    while (fourier.axes < o->grid.count && fourier.axes < LS_FOURIER_AXES_MAX) {
        fourier.size[fourier.axes] = o->grid.at[fourier.axes];
        fourier.axes++;
    }
    if (o->grid.count == 0) {
        const int64_t known = o->length > 0 ? o->length : mixer->trained_length;
        fourier.size[fourier.axes++] = known > 0 ? known : T;
        fourier.stretch = o->beyond == BEYOND_STRETCH;
    }
    for (int i = 0; i < fourier.axes; i++)
        fourier.fastest[i] = o->resolution > 0 ? o->resolution : (double)fourier.size[i];
    return fourier;
}

static int64_t input_width(const ls_mixer *mixer) {
    const perceiver_options *o = mixer->options;
    const ls_fourier fourier = fourier_of(mixer, 1);
    return mixer->width + (o->features == FEATURES_FOURIER ? ls_fourier_width(&fourier) : 0);
}

static int64_t query_width(const ls_mixer *mixer) {
    const perceiver_options *o = mixer->options;
    const ls_fourier fourier = fourier_of(mixer, 1);
    if (o->queries == QUERIES_FOURIER) return ls_fourier_width(&fourier);
    return o->queries == QUERIES_LEARNED && o->query_width > 0 ? o->query_width : mixer->width;
}

/* Fills in what an option leaves open, and what all layers have in common. */
static ls_latent_layer filled(const perceiver_options *o, ls_latent_layer s, int cross_shape) {
    s.activation = activations[o->activation];
    s.epsilon = o->epsilon;
    s.rotary = o->rotary;
    s.max_wavelength = o->max_wavelength;
    if (s.qk == 0) s.qk = cross_shape == SHAPE_KV ? s.kv_width : s.q_width;
    if (s.v == 0) s.v = s.qk;
    return s;
}

static int64_t cross_heads(const perceiver_options *o) {
    return o->cross_heads > 0 ? o->cross_heads : o->heads;
}

static ls_latent_layer cross_of(const ls_mixer *mixer) {
    const perceiver_options *o = mixer->options;
    return filled(o,
                  (ls_latent_layer){.q_width = latent_width(mixer),
                                    .kv_width = input_width(mixer),
                                    .heads = cross_heads(o),
                                    .qk = o->qk_width,
                                    .v = o->v_width,
                                    .widening = o->cross_widening,
                                    .residual = o->residual},
                  o->cross_shape);
}

static ls_latent_layer layer_of(const ls_mixer *mixer) {
    const perceiver_options *o = mixer->options;
    const int64_t L = latent_width(mixer);
    return filled(o,
                  (ls_latent_layer){.q_width = L,
                                    .kv_width = L,
                                    .heads = o->heads,
                                    .qk = o->qk_width,
                                    .v = o->v_width,
                                    .widening = o->widening,
                                    .residual = true},
                  SHAPE_Q);
}

static ls_latent_layer decoder_of(const ls_mixer *mixer) {
    const perceiver_options *o = mixer->options;
    const int64_t heads = o->decoder_heads > 0 ? o->decoder_heads : cross_heads(o);
    return filled(o,
                  (ls_latent_layer){.q_width = query_width(mixer),
                                    .kv_width = latent_width(mixer),
                                    .heads = heads,
                                    .qk = o->decoder_qk_width,
                                    .v = o->decoder_v_width,
                                    .widening = o->decoder_widening > 0 ? o->decoder_widening
                                                                        : o->cross_widening,
                                    .residual = o->decoder_residual},
                  o->cross_shape);
}

static bool decodes(const ls_mixer *mixer) {
    const perceiver_options *o = mixer->options;
    return !mixer->causal && o->output == OUTPUT_ROWS;
}

static ls_status check_heads(ls_ctx *ctx, const ls_mixer *mixer, const char *what,
                             ls_latent_layer s) {
    if (s.qk % s.heads != 0 || s.v % s.heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "perceiver: %lld heads of %s do not divide %lld wide queries and %lld wide "
                       "values (set cross_shape=q, the widths, or another number of heads)",
                       (long long)s.heads, what, (long long)s.qk, (long long)s.v);
    if (mixer->causal && ls_latent_pairs(&s) > LS_PAIRS_MAX)
        return LS_FAIL(ctx, LS_EUSE, "perceiver: at most %d pairs of a head can be rotated",
                       LS_PAIRS_MAX);
    return LS_OK;
}

static ls_status check_causal(ls_ctx *ctx, const perceiver_options *o) {
    if (o->output == OUTPUT_LATENTS)
        return LS_FAIL(ctx, LS_EUSE,
                       "perceiver: output=latents mixes all positions of a text, so it cannot be "
                       "causal (set model.causal=false)");
    if (o->queries != QUERIES_INPUT)
        return LS_FAIL(ctx, LS_EUSE,
                       "perceiver: output queries read latents that have seen the whole text: they "
                       "cannot be causal (set model.causal=false)");
    if (o->features == FEATURES_FOURIER)
        return LS_FAIL(ctx, LS_EUSE,
                       "perceiver: Fourier features place a row between the text's two ends, which "
                       "a causal model does not know (set rotary or model.position)");
    return LS_OK;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const perceiver_options *o = mixer->options;
    if (o->grid.count > LS_FOURIER_AXES_MAX)
        return LS_FAIL(ctx, LS_EUSE, "perceiver: a grid has at most %d axes", LS_FOURIER_AXES_MAX);
    double places = 1;
    for (int64_t i = 0; i < o->grid.count; i++) places *= (double)o->grid.at[i];
    if (places > 1e15)
        return LS_FAIL(ctx, LS_EUSE, "perceiver: a grid of %g places is too large", places);
    if (mixer->causal) LS_TRY(check_causal(ctx, o));
    if (!mixer->causal && o->loss == LOSS_LAST)
        return LS_FAIL(ctx, LS_EUSE, "perceiver: loss=last is for a causal model");
    if (!mixer->causal && (o->drop > 0 || o->drop_latents > 0))
        return LS_FAIL(
            ctx, LS_EUSE,
            "perceiver: drop and drop_latents are for a causal model (set model.dropout)");
    LS_TRY(check_heads(ctx, mixer, "cross-attends", cross_of(mixer)));
    if (o->layers > 0) LS_TRY(check_heads(ctx, mixer, "layers", layer_of(mixer)));
    return decodes(mixer) ? check_heads(ctx, mixer, "the decoder", decoder_of(mixer)) : LS_OK;
}

/* Which set of weights the i-th of several has. */
static int weights_of(int share, int64_t i) {
    if (share == SHARE_NONE) return (int)i;
    return share == SHARE_LATER && i > 0 ? 1 : 0;
}

/* The latents z read x and are worked on, as often as there are cross-attends. */
static void encode(ls_program *p, const ls_mixer *mixer, const ls_latent_sight *across,
                   const ls_latent_sight *within, ls_latent_rows *z, ls_tensor *x) {
    const perceiver_options *o = mixer->options;
    const ls_latent_layer cross = cross_of(mixer), inner = layer_of(mixer);
    int use = 0;
    for (int64_t i = 0; i < o->cross_attends; i++) {
        ls_latent_sight sees = *across;
        sees.use = use++;
        ls_scope(p, "cross.%d", weights_of(o->share_cross, i));
        ls_latent_record(p, &cross, &sees, z, x);
        ls_scope_end(p);
        for (int64_t block = i * o->blocks; block < (i + 1) * o->blocks; block++)
            for (int64_t j = 0; j < o->layers && !ls_failed(p); j++) {
                sees = *within;
                sees.use = use++;
                ls_scope(p, "blocks.%d.%d", weights_of(o->share_blocks, block), (int)j);
                ls_latent_record(p, &inner, &sees, z, NULL);
                ls_scope_end(p);
            }
    }
}

/* ---- the text read both ways ---- */

/* Fourier features [B,T,..] of texts. */
static ls_tensor *features(ls_program *p, const ls_mixer *mixer, int64_t B, int64_t T) {
    const perceiver_options *o = mixer->options;
    const ls_fourier fourier = fourier_of(mixer, T);
    int64_t places = 1;
    for (int i = 0; i < fourier.axes; i++) places *= fourier.size[i];
    if (o->grid.count > 0 && T > places) {
        ls_refuse(p, LS_EUSE, "perceiver: a text of %lld rows has no place in a grid of %lld",
                  (long long)T, (long long)places);
        return NULL;
    }
    if (mixer->valid != NULL && o->grid.count == 0 && o->length == 0 &&
        mixer->trained_length == 0) {
        ls_refuse(p, LS_EUSE, "perceiver: set length, for that of texts with padding is not known");
        return NULL;
    }
    return ls_fourier_rows(p, &fourier, B, T, mixer->valid);
}

/* a [B,T,..] and b [B,T,..] side by side. */
static ls_tensor *beside(ls_program *p, ls_tensor *a, ls_tensor *b) {
    if (a == NULL || b == NULL) return NULL;
    const int64_t all = a->dim[0] * a->dim[1], A = a->dim[2], F = b->dim[2];
    ls_tensor *parts[2] = {ls_reshape(p, a, LS_DIMS(all, A, 1)),
                           ls_reshape(p, b, LS_DIMS(all, F, 1))};
    return ls_reshape(p, ls_join_rows(p, 2, parts), LS_DIMS(a->dim[0], a->dim[1], A + F));
}

static ls_tensor *first_latents(ls_program *p, const ls_mixer *mixer, int64_t B) {
    const perceiver_options *o = mixer->options;
    const int64_t L = latent_width(mixer);
    ls_tensor *given = mixer->second;
    if (given == NULL) return ls_latent_repeat(p, ls_latent_table(p, "latents", o->latents, L), B);
    if (given->rank == 3 && given->dim[0] == B && given->dim[1] == o->latents && given->dim[2] == L)
        return given;
    ls_refuse(p, LS_EUSE, "perceiver: the latents given are not %lld rows of %lld",
              (long long)o->latents, (long long)L);
    return NULL;
}

static ls_tensor *first_queries(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const perceiver_options *o = mixer->options;
    const int64_t B = x->dim[0], T = x->dim[1];
    if (o->queries == QUERIES_INPUT) return x;
    if (o->queries == QUERIES_FOURIER) return features(p, mixer, B, T);
    const int64_t known = o->length > 0 ? o->length : mixer->trained_length;
    if (T > known && known > 0) {
        ls_refuse(p, LS_EUSE,
                  "perceiver: a text of %lld tokens has more rows than there are learned queries, "
                  "%lld (set mixer.length before training)",
                  (long long)T, (long long)known);
        return NULL;
    }
    ls_tensor *learned = ls_latent_table(p, "queries", known > 0 ? known : T, query_width(mixer));
    return ls_latent_repeat(p, ls_position_rows(p, learned, T, 0), B);
}

static ls_tensor *read_both_ways(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const perceiver_options *o = mixer->options;
    const int64_t B = x->dim[0], T = x->dim[1];
    const ls_latent_sight across = {.valid = mixer->valid}, within = {0};
    ls_latent_rows z = {first_latents(p, mixer, B), NULL};
    ls_tensor *text = x;
    if (o->features == FEATURES_FOURIER) text = beside(p, x, features(p, mixer, B, T));
    encode(p, mixer, &across, &within, &z, text);
    ls_tensor *latents = ls_latent_sum(p, z);
    if (o->output == OUTPUT_LATENTS) return latents;
    const ls_latent_layer decoder = decoder_of(mixer);
    ls_latent_rows y = {first_queries(p, mixer, x), NULL};
    ls_scope(p, "decoder");
    ls_latent_record(p, &decoder, &within, &y, latents);
    ls_scope_end(p);
    ls_tensor *decoded = ls_latent_sum(p, y);
    return decoder.q_width == mixer->width ? decoded
                                           : ls_latent_linear(p, "last", decoded, mixer->width);
}

/* ---- Perceiver AR ---- */

/* Draws what this step of training does not see: one draw for all cross-attends, another for all
 * layers. `before` rows of x are no latents. */
static void drop(ls_program *p, const perceiver_options *o, const ls_tensor *x, int64_t before,
                 ls_latent_sight *across, ls_latent_sight *within) {
    const ls_program_options *about = ls_program_about(p);
    const int64_t B = x->dim[0], T = x->dim[1];
    const bool prefix = o->dropped == DROPPED_PREFIX;
    if ((o->drop > 0 || o->drop_latents > 0) && about->train && about->streaming)
        ls_refuse(p, LS_EUSE,
                  "perceiver: drop and drop_latents need texts that are trained on whole (set "
                  "train.carry=false)");
    across->kept = ls_drop_rows(p, B, T, prefix && before > 0 ? before : T, o->drop);
    across->drop = prefix && before == 0 ? LS_DROP_PREFIX : LS_DROP_ALL;
    across->drop_block = o->latents;
    within->kept = ls_drop_rows(p, B, T - before, T - before, o->drop_latents);
    within->drop = LS_DROP_OTHERS;
}

/* Latents are rows of the text: every one of its block of positions, or in training the last ones
 * alone. */
static ls_tensor *read_back(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const perceiver_options *o = mixer->options;
    const ls_program_options *about = ls_program_about(p);
    const int64_t B = x->dim[0], T = x->dim[1], L = latent_width(mixer);
    const bool last = o->loss == LOSS_LAST && about->train && !about->streaming && T > o->latents;
    const int64_t before = last ? T - o->latents : 0;
    if (mixer->second != NULL) {
        ls_refuse(p, LS_EUSE, "perceiver: the latents of a causal model are its rows, not given");
        return NULL;
    }
    ls_tensor *part[2] = {NULL, x};
    if (last) ls_cut_rows(p, x, 2, (const int64_t[]){before, o->latents}, part);
    ls_latent_rows z = {o->project || L != mixer->width ? ls_latent_linear(p, "latents", part[1], L)
                                                        : part[1],
                        NULL};
    ls_latent_sight across = {.causal = true, .behind = before};
    ls_latent_sight within = {
        .causal = true, .behind = before, .key_first = before, .block = last ? 0 : o->latents};
    drop(p, o, x, before, &across, &within);
    encode(p, mixer, &across, &within, &z, x);
    ls_tensor *y = ls_latent_sum(p, z);
    if (L != mixer->width) y = ls_latent_linear(p, "last", y, mixer->width);
    if (!last) return y;
    ls_tensor *none = ls_constant(p, ls_type(p), LS_DIMS(B, before, mixer->width), NULL);
    return ls_join_rows(p, 2, (ls_tensor *[]){none, y});
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    return mixer->causal ? read_back(p, mixer, x) : read_both_ways(p, mixer, x);
}

/* ---- what it takes ---- */

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    const perceiver_options *o = mixer->options;
    const ls_latent_layer cross = cross_of(mixer), inner = layer_of(mixer);
    const int64_t kept = ls_cache_rows((ls_retention){.block = o->latents}, T, 1);
    return o->cross_attends * size *
           (T * (cross.qk + cross.v) + o->blocks * o->layers * kept * (inner.qk + inner.v));
}

static double flops(const ls_mixer *mixer, int64_t T) {
    const perceiver_options *o = mixer->options;
    const double n = (double)T, D = (double)mixer->width, L = (double)latent_width(mixer);
    const double M = (double)o->latents, stacks = (double)(o->blocks * o->layers);
    const ls_latent_layer cross = cross_of(mixer), inner = layer_of(mixer),
                          decoder = decoder_of(mixer);
    if (mixer->causal) {
        const double whole = floor(n / M), rest = n - whole * M;
        const double near = whole * M * (M + 1) / 2 + rest * (rest + 1) / 2;
        return (o->project || L != D ? 2 * n * D * L : 0) + (L != D ? 2 * n * D * L : 0) +
               (double)o->cross_attends * (ls_latent_flops(cross, n, n, n * (n + 1) / 2) +
                                           stacks * ls_latent_flops(inner, n, n, near));
    }
    double sum = (double)o->cross_attends * (ls_latent_flops(cross, M, n, M * n) +
                                             stacks * ls_latent_flops(inner, M, M, M * M));
    if (!decodes(mixer)) return sum;
    sum += ls_latent_flops(decoder, n, M, n * M);
    return sum + (decoder.q_width == mixer->width ? 0 : 2 * n * D * (double)decoder.q_width);
}

/* ---- in its place ---- */

static ls_mixer_result result(const ls_mixer *mixer) {
    const perceiver_options *o = mixer->options;
    const bool latents = !mixer->causal && !decodes(mixer);
    return (ls_mixer_result){.whole = o->whole || latents,
                             .other_rows = latents,
                             .trained = o->loss == LOSS_LAST ? o->latents : 0};
}

/* Layers of transformers: one cross-attend alone, and those of a model. */
enum { ROWS_SAME, ROWS_CROSS_VALUES, ROWS_LAYER_VALUES, ROWS_DECODER_VALUES };

static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    if (layout == ROWS_CROSS_VALUES) return cross_of(mixer).qk + r;
    if (layout == ROWS_LAYER_VALUES) return layer_of(mixer).qk + r;
    return layout == ROWS_DECODER_VALUES ? decoder_of(mixer).qk + r : r;
}

#define LAYER(official, ours, values)                                                              \
    {official "attention.self.layernorm1.*", ours "norm_q.*", ROWS_SAME},                          \
        {official "attention.self.layernorm2.*", ours "norm_kv.*", ROWS_SAME},                     \
        {official "attention.self.query.*", ours "q.*", ROWS_SAME},                                \
        {official "attention.self.key.*", ours "kv.*", ROWS_SAME},                                 \
        {official "attention.self.value.*", ours "kv.*", values},                                  \
        {official "attention.output.dense.*", ours "out.*", ROWS_SAME},                            \
        {official "layernorm.*", ours "norm.*", ROWS_SAME},                                        \
        {official "mlp.dense1.*", ours "up.*", ROWS_SAME}, {                                       \
        official "mlp.dense2.*", ours "down.*", ROWS_SAME                                          \
    }
static const ls_alias aliases[] = {
    LAYER("", "cross.0.", ROWS_CROSS_VALUES),
    LAYER("*cross_attention.", "cross.0.", ROWS_CROSS_VALUES),
    LAYER("*self_attends.{n}.", "blocks.0.{n}.", ROWS_LAYER_VALUES),
    LAYER("*decoding_cross_attention.", "decoder.", ROWS_DECODER_VALUES),
    {"*embeddings.latents", "latents", ROWS_SAME},
    {"*output_position_encodings.position_embeddings", "queries", ROWS_SAME},
    {"*final_layer.*", "last.*", ROWS_SAME},
    {0},
};

static const char *const at_test[] = {"beyond", "loss", NULL};

const ls_mixer_type ls_mixer_perceiver = {
    .name = "perceiver",
    .summary =
        "latents read the text, layers work on them, queries read the result; causal: blocks "
        "of latents that read all before them",
    .paper = "arXiv 2103.03206, 2107.14795, 2202.07765",
    .options = LS_OPTIONS(options, perceiver_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_BIDIRECTIONAL | LS_MIXER_STREAMING | LS_MIXER_SECOND_INPUT,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .row = row,
    .at_test = at_test,
    .result = result,
};
