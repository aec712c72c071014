/* Choosing position methods and extensions, and the one place where an ls_attend becomes
 * operations. */
#include "position/position.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- choosing ---- */

static const char *position_name(const void *list, size_t index) {
    (void)list;
    return index < ls_position_count ? ls_position_types[index]->name : NULL;
}

static const char *extension_name(const void *list, size_t index) {
    (void)list;
    return index < ls_extension_count ? ls_extension_types[index]->name : NULL;
}

static ls_status new_options(ls_ctx *ctx, const ls_option_table *table, void **out) {
    *out = ls_new(ctx, 1, table->size > 0 ? table->size : 1);
    if (*out == NULL) return LS_ENOMEM;
    return ls_options_default(ctx, table, *out);
}

ls_status ls_position_choose(ls_ctx *ctx, const char *name, ls_position *out) {
    size_t index = 0;
    *out = (ls_position){0};
    LS_TRY(ls_name_find(ctx, "position method", name, position_name, NULL, &index));
    out->type = ls_position_types[index];
    return new_options(ctx, &out->type->options, &out->options);
}

ls_status ls_position_extend(ls_ctx *ctx, ls_position *position, const char *name) {
    size_t index = 0;
    LS_TRY(ls_name_find(ctx, "extension", name, extension_name, NULL, &index));
    const ls_extension_type *type = ls_extension_types[index];
    if ((position->type->traits & type->needs) != type->needs)
        return LS_FAIL(ctx, LS_EUSE, "extension %s changes %s, which position method %s lacks",
                       name,
                       (type->needs & LS_POSITION_PURE) ? "the places of a rotation without a decay"
                       : (type->needs & LS_POSITION_ROTARY) ? "rotary frequencies"
                                                            : "what it does not have",
                       position->type->name);
    if (position->extensions == LS_EXTENSIONS_MAX)
        return LS_FAIL(ctx, LS_EUSE, "at most %d extensions act together", LS_EXTENSIONS_MAX);
    int at = position->extensions++;
    position->extension[at].type = type;
    return new_options(ctx, &type->options, &position->extension[at].options);
}

void ls_position_clear(ls_ctx *ctx, ls_position *position) {
    ls_free(ctx, position->options);
    for (int i = 0; i < position->extensions; i++) ls_free(ctx, position->extension[i].options);
    *position = (ls_position){0};
}

/* The extension that draws, or NULL. */
static const ls_extension_type *drawing(const ls_position *position, const void **options) {
    for (int i = 0; position != NULL && i < position->extensions; i++) {
        *options = position->extension[i].options;
        if (position->extension[i].type->draw != NULL) return position->extension[i].type;
    }
    return NULL;
}

bool ls_position_draws(const ls_position *position) {
    const void *options;
    return drawing(position, &options) != NULL;
}

ls_status ls_position_draw(ls_ctx *ctx, const ls_position *position, const ls_place_draw *about,
                           ls_places_drawn *out) {
    ls_place_draw drawn = *about;
    out->first = out->scale = 0;
    for (int i = 0; i < position->extensions; i++) {
        const ls_extension_type *type = position->extension[i].type;
        const int64_t own = position->extension[i].trained_length;
        if (type->draw == NULL) continue;
        drawn.trained = own > 0 ? own : position->trained_length;
        return type->draw(ctx, position->extension[i].options, &drawn, out);
    }
    return LS_OK;
}

int64_t ls_position_text(const ls_position *position) {
    const void *options;
    const ls_extension_type *type = drawing(position, &options);
    return type == NULL || type->text == NULL ? 1 : type->text(options);
}

int64_t ls_position_marks(const ls_position *position) {
    for (int i = 0; position != NULL && i < position->extensions; i++)
        if (position->extension[i].type->marks != NULL)
            return position->extension[i].type->marks(position->extension[i].options);
    return 0;
}

/* Found out by trying, so that no extension has to say it: two models that differ in the length
 * alone. */
bool ls_extension_measures(const ls_ctx *ctx, const ls_position *position, int index) {
    enum { PAIRS = 32, WIDTH = 64, LENGTH = 1 << 20 };
    const ls_extension_type *type = position->extension[index].type;
    ls_ctx quiet = *ctx; /* what does not fit these is no error of the model */
    ls_attend tried[2];
    memset(tried, 0, sizeof tried);
    tried[0] = ls_attend_start(WIDTH, 1, 1, WIDTH, WIDTH, true);
    tried[0].rotates = true;
    tried[0].rotary.pairs = PAIRS;
    tried[0].rotary.factor = 1;
    tried[0].rotary_base = 1e4;
    tried[0].planned_length = LENGTH;
    for (int i = 0; i < PAIRS; i++) tried[0].rotary.frequency[i] = pow(1e4, -(double)i / PAIRS);
    memcpy(&tried[1], &tried[0], sizeof tried[0]);
    for (int i = 0; i < 2; i++) {
        tried[i].trained_length = LENGTH / 64 * (i + 1);
        if (type->extend(&quiet, position->extension[index].options, &tried[i]) != LS_OK)
            return true;
        tried[i].trained_length = 0;
    }
    return memcmp(&tried[0], &tried[1], sizeof tried[0]) != 0;
}

ls_status ls_position_fits(ls_ctx *ctx, const ls_position *position, int64_t width, int64_t heads,
                           bool causal) {
    if (position == NULL) return LS_OK;
    const ls_position_type *type = position->type;
    if ((type->traits & LS_POSITION_CAUSAL) && !causal)
        return LS_FAIL(ctx, LS_EUSE, "position method %s is for causal models only", type->name);
    if (type->check == NULL) return LS_OK;
    return type->check(ctx, position->options, width, heads);
}

/* The method fills in its attend while a program is recorded: one is begun for it. */
ls_status ls_position_expected(ls_ctx *ctx, const ls_position *position, int64_t width,
                               const double *distance, size_t count, double *expected) {
    const ls_program_options options = {.type = LS_F64, .batch = 1, .length = 1};
    ls_attend attend = ls_attend_start(width, 1, 1, width, width, true);
    ls_parameters *store;
    ls_program *p = NULL;
    if (!(position->type->traits & LS_POSITION_ROTARY))
        return LS_FAIL(ctx, LS_EUSE, "position method %s does not rotate", position->type->name);
    LS_TRY(ls_parameters_new(ctx, LS_F64, &store));
    ls_status status = ls_program_new(ctx, &options, store, &p);
    if (status == LS_OK) {
        position->type->attend(p, position->options, &attend);
        if (ls_failed(p)) status = ctx->error.code;
    }
    for (size_t i = 0; i < count && status == LS_OK; i++)
        expected[i] = ls_rotary_expected(&attend.rotary, width, distance[i]);
    ls_program_free(p);
    ls_parameters_free(store);
    return status;
}

ls_tensor *ls_shared_param(ls_program *p, const char *name, int rank, const int64_t *dim,
                           ls_init init) {
    char full[128];
    snprintf(full, sizeof full, "/position.%s", name);
    return ls_param(p, full, rank, dim, init);
}

/* ---- for extensions ---- */

ls_status ls_attend_length(ls_ctx *ctx, const char *name, const ls_attend *attend, int64_t given,
                           int64_t *out) {
    *out = given > 0 ? given : attend->trained_length;
    if (*out > 0) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "extension %s needs the length the model was trained at: set "
                   "trained_length or the extension's own length",
                   name);
}

ls_status ls_attend_follow_length(ls_ctx *ctx, const char *name, ls_attend *attend,
                                  ls_dynamic_mode mode, int64_t planned,
                                  ls_frequency_fn frequencies, const void *options) {
    ls_rotary *rotary = &attend->rotary;
    if (rotary->dynamic != NULL)
        return LS_FAIL(ctx, LS_EUSE, "extension %s follows the length, as the one before it does",
                       name);
    LS_TRY(ls_attend_length(ctx, name, attend, 0, &rotary->trained_length));
    rotary->dynamic_user = options;
    if (mode == LS_DYNAMIC_FIXED) {
        ls_rotary base = *rotary;
        frequencies(&base, planned > 0 ? planned : attend->planned_length, rotary->frequency,
                    &rotary->factor);
        return LS_OK;
    }
    rotary->dynamic = frequencies;
    if (mode == LS_DYNAMIC_ROW) attend->chunk_max = 1;
    return LS_OK;
}

ls_status ls_attend_uncut(ls_ctx *ctx, const char *name, const ls_attend *attend) {
    const ls_key_set *whole = &attend->set[0];
    if (attend->sets == 1 && whole->hi >= LS_FAR && whole->block == 0 && attend->dilation == NULL)
        return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "extension %s cuts the keys itself: it takes no other window, "
                   "block or dilation",
                   name);
}

ls_status ls_attend_cut(ls_ctx *ctx, const char *name, ls_attend *attend, int64_t window,
                        ls_key_set **far) {
    LS_TRY(ls_attend_uncut(ctx, name, attend));
    attend->sets = 2;
    attend->set[1] = attend->set[0];
    attend->set[0].hi = window - 1;
    attend->set[1].lo = window;
    *far = &attend->set[1];
    return LS_OK;
}

/* ---- lowering ---- */

ls_attend ls_attend_start(int64_t width, int64_t heads, int64_t groups, int64_t key_width,
                          int64_t value_width, bool causal) {
    return (ls_attend){
        .width = width,
        .heads = heads,
        .groups = groups,
        .key_width = key_width,
        .value_width = value_width,
        .causal = causal,
        .scale = 1 / sqrt((double)key_width),
        .sets = 1,
        .set = {{.lo = causal ? 0 : -LS_FAR, .hi = LS_FAR, .key_end = LS_FAR}},
    };
}

ls_status ls_attend_extend(ls_ctx *ctx, const ls_position *position, ls_attend *attend) {
    if (position == NULL) return LS_OK;
    attend->trained_length = position->trained_length;
    for (int i = 0; i < position->extensions; i++) {
        const ls_extension_type *type = position->extension[i].type;
        const int64_t own = position->extension[i].trained_length;
        attend->trained_length = own > 0 ? own : position->trained_length;
        if (type->training && !attend->training) continue;
        if (type->causal && !attend->causal)
            return LS_FAIL(ctx, LS_EUSE, "extension %s is for causal models only", type->name);
        LS_TRY(type->extend(ctx, position->extension[i].options, attend));
    }
    return LS_OK;
}

ls_retention ls_key_set_retention(const ls_attend *attend, const ls_key_set *set) {
    if (attend->landmark > 0) /* without what is looked up the past is of no use */
        return attend->retrieved > 0
                   ? (ls_retention){.far = attend->offload, .unit = attend->landmark}
                   : (ls_retention){.block = attend->local};
    if (set->block > 0)
        return (ls_retention){.block = set->block, .before = set->alone ? 0 : set->block};
    if (set->hi >= LS_FAR) return (ls_retention){0};
    int64_t step = 1;
    for (int64_t h = 0; attend->dilation != NULL && h < attend->heads; h++)
        step = ls_max(step, attend->dilation[h]);
    return (ls_retention){.window = set->hi * step + 1};
}

static bool keeps_all(const ls_attend *attend, const ls_key_set *set) {
    const ls_retention keep = ls_key_set_retention(attend, set);
    return keep.window == 0 && keep.block == 0 && set->key_end >= LS_FAR;
}

/* The set whose cache a set reads: one that keeps everything and has its keys at the same places,
 * or its own. */
static int cached_with(const ls_attend *attend, int number) {
    const ls_position_map at = attend->set[number].key_at;
    for (int i = 0; i < attend->sets; i++) {
        const ls_position_map other = attend->set[i].key_at;
        const bool same = other.kind == at.kind && other.a == at.a && other.b == at.b;
        if (same && keeps_all(attend, &attend->set[i])) return i;
    }
    return number;
}

/* Landmarks: a key for each block, and a byte for where they begin. The blocks themselves are not
 * in memory, unless they are few. */
static int64_t landmark_bytes(const ls_attend *attend, int64_t T, int64_t size) {
    const ls_retention keep = ls_key_set_retention(attend, &attend->set[0]);
    const int64_t rows = keep.far ? 0 : ls_cache_rows(keep, T, 1);
    return 1 + attend->groups * size *
                   ((T / attend->landmark + 1) * attend->key_width +
                    rows * (attend->key_width + attend->value_width));
}

int64_t ls_attend_state_bytes(const ls_attend *attend, int64_t T, int64_t size) {
    if (attend->landmark > 0) return landmark_bytes(attend, T, size);
    int64_t rows = 0;
    for (int i = 0; i < attend->sets; i++) {
        const ls_key_set *set = &attend->set[i];
        if (cached_with(attend, i) != i) continue;
        rows += set->key_end < LS_FAR ? set->key_end
                                      : ls_cache_rows(ls_key_set_retention(attend, set), T, 1);
    }
    return rows * attend->groups * (attend->key_width + attend->value_width) * size;
}

/* Keys of one set that query n of T sees at distances that are multiples of `step`. */
static int64_t keys_seen(const ls_key_set *set, int64_t n, int64_t T, int64_t step) {
    int64_t last = ls_min(T, set->key_end) - 1, first = set->key_first;
    const ls_tile_rule rule = {.block = set->block, .alone = set->alone, .span = set->span};
    const ls_span span = ls_rule_span(&rule);
    if (span.block > 0) {
        first = ls_max(first, n / span.block * span.step + span.from);
        last = ls_min(last, n / span.block * span.step + span.to - 1);
    }
    if (set->lo > -LS_FAR) last = ls_min(last, n - set->lo * step);
    if (set->hi < LS_FAR) first = ls_max(first, n - set->hi * step);
    int64_t count = 0;
    if (first > last) return 0;
    if (step == 1) return last - first + 1;
    for (int64_t m = first; m <= last; m++) count += (n - m) % step == 0;
    return count;
}

/* Rows that are seen, and half of one for each landmark, which is scored alone. */
static double landmark_pairs(const ls_attend *attend, int64_t T) {
    double pairs = 0;
    for (int64_t n = 0; n < T; n++) {
        const ls_retrieve_place at =
            ls_retrieve_place_of(attend->landmark, attend->retrieved, attend->local, n);
        pairs += (double)((at.chosen + at.local) * attend->landmark + at.row + 1) +
                 (double)at.before / 2;
    }
    return pairs * (double)attend->heads;
}

double ls_attend_pairs(const ls_attend *attend, int64_t T) {
    if (attend->landmark > 0) return landmark_pairs(attend, T);
    double pairs = 0;
    for (int i = 0; i < attend->sets; i++)
        for (int64_t n = 0; n < T; n++)
            for (int64_t h = 0; h < attend->heads; h++)
                pairs += (double)keys_seen(&attend->set[i], n, T,
                                           attend->dilation ? attend->dilation[h] : 1);
    return pairs;
}

/* The rows of x that the set may see. Sinks fill a cache of their own once. */
static ls_tensor *cache(ls_program *p, const ls_attend *attend, int number, const char *what,
                        ls_tensor *x) {
    const ls_key_set *set = &attend->set[number];
    char name[32];
    snprintf(name, sizeof name, "%s.%d", what, number);
    if (set->key_end < LS_FAR) return ls_cache_first(p, name, x, set->key_end);
    return ls_cache_append(p, name, x, ls_key_set_retention(attend, set));
}

static ls_tensor *set_keys(ls_program *p, const ls_attend *attend, int number, ls_tensor *k) {
    const ls_rotary *rotary = &attend->rotary;
    ls_position_map at = attend->set[number].key_at;
    if (!attend->rotates) return cache(p, attend, number, "key", k);
    if (rotary->dynamic != NULL || attend->raw_keys) /* what is stored must not depend on them */
        return ls_rotate(p, cache(p, attend, number, "key", k), rotary, at, LS_ROTATE_KEY);
    return cache(p, attend, number, "key",
                 ls_rotate_at(p, k, rotary, at, LS_ROTATE_KEY, attend->places));
}

/* Keys and values of all sets as they are cached. */
static void complete_keys(ls_program *p, ls_attend *attend, ls_tensor *k, ls_tensor *v) {
    for (int i = 0; i < attend->sets; i++) {
        const int from = cached_with(attend, i);
        ls_key_set *set = &attend->set[i], *kept = &attend->set[from];
        if (kept->k == NULL) {
            kept->k = set_keys(p, attend, from, k);
            kept->v = cache(p, attend, from, "value", v);
        }
        set->k = kept->k;
        set->v = kept->v;
    }
}

/* A set with its operands: queries as they are scored, and the method's bias. */
static ls_key_set complete_set(ls_program *p, const ls_attend *attend, int number, ls_tensor *q) {
    ls_key_set set = attend->set[number];
    set.q = q;
    if (attend->content_bias != NULL) set.q = ls_plus_broadcast(p, q, attend->content_bias);
    if (attend->rotates)
        set.q = ls_rotate_at(p, set.q, &attend->rotary, set.query_at,
                             attend->one_block ? LS_ROTATE_QUERY : LS_ROTATE_ALONE, attend->places);
    set.dilation = attend->dilation;
    set.valid = attend->valid;
    set.slopes = attend->slopes;
    set.table = attend->table;
    set.table_zero = attend->table_zero;
    if (attend->relative != NULL) {
        set.relative = attend->relative;
        set.relative_q =
            attend->distance_bias == NULL ? q : ls_plus_broadcast(p, q, attend->distance_bias);
    }
    if (attend->rotates && !attend->one_block) set.xpos = attend->rotary.xpos;
    return set;
}

/* xPos over a sequence that is whole and not too long: all factors can be referred to its start
 * without leaving the range of any type, and the kernel has nothing to rescale. */
static void refer_to_start(ls_attend *attend, bool streaming) {
    const double most = 40; /* e^40 is far from what a bf16 or f32 can hold */
    if (!attend->rotates || attend->rotary.xpos.pairs == 0 || streaming || !attend->causal) return;
    for (int i = 0; i < attend->sets; i++)
        if (attend->set[i].query_at.kind != LS_MAP_IDENTITY ||
            attend->set[i].key_at.kind != LS_MAP_IDENTITY)
            return;
    for (int64_t i = 0; i < attend->rotary.pairs; i++)
        if (fabs(attend->rotary.xpos.log_decay[i]) * (double)attend->planned_length > most) return;
    attend->one_block = true;
    attend->rotary.xpos.block = attend->planned_length;
}

/* Whether rotated scores follow the true distance by a table that is known before the run. */
static bool has_expectation(const ls_attend *attend) {
    if (!attend->rotates || attend->rotary.dynamic != NULL || attend->rotary.learned != NULL ||
        attend->growth.length > 0)
        return false;
    for (int i = 0; i < attend->sets; i++)
        if (attend->set[i].query_at.kind != LS_MAP_IDENTITY ||
            attend->set[i].key_at.kind != LS_MAP_IDENTITY)
            return false;
    return true;
}

/* Keeps ls_rotary_expected at the distances of "scores" under the scoped name "expected". */
static void keep_expected(ls_program *p, const ls_attend *attend, int64_t distances) {
    double *expected = ls_new(ls_program_ctx(p), (size_t)distances, sizeof *expected);
    if (expected == NULL) {
        ls_refuse(p, LS_ENOMEM, "no memory for the expectation of scores");
        return;
    }
    for (int64_t n = 0; n < distances; n++)
        expected[n] = ls_rotary_expected(&attend->rotary, attend->key_width, (double)n);
    ls_keep(p, "expected", ls_constant(p, LS_F64, LS_DIMS(distances), expected));
    ls_free(ls_program_ctx(p), expected);
}

/* Keeps the scores by distance under the scoped name "scores", and what a rotation lets expect. */
static void profile(ls_program *p, const ls_attend *attend, const ls_key_set *set,
                    ls_attention_options options) {
    int64_t reach = 1;
    for (int i = 0; i < attend->sets; i++) {
        ls_retention keep = ls_key_set_retention(attend, &attend->set[i]);
        int64_t bounded = ls_max(keep.window, 2 * keep.block);
        reach = ls_max(reach, bounded > 0 ? bounded : attend->planned_length);
    }
    reach = ls_min(reach, attend->planned_length);
    ls_keep(p, "scores", ls_score_profile(p, attend->sets, set, options, reach));
    if (has_expectation(attend)) keep_expected(p, attend, reach);
}

ls_tensor *ls_attention_seen(ls_program *p, int sets, const ls_key_set *set,
                             ls_attention_options options) {
    const ls_pattern_view *view = &ls_program_about(p)->patterns;
    ls_tensor *lse, *y = ls_attention(p, sets, set, options, &lse);
    if (view->first_keys > 0 && y != NULL)
        ls_keep(p, "pattern", ls_attention_pattern(p, sets, set, options, lse, view));
    return y;
}

/* Heads [half * heads / 2, ...) of x [B,T,heads,width]; all of them where there is one. */
static ls_tensor *half_of_heads(ls_program *p, ls_tensor *x, int half) {
    if (x == NULL || x->dim[2] == 1) return x;
    const int64_t B = x->dim[0], T = x->dim[1], heads = x->dim[2] / 2, width = x->dim[3];
    ls_tensor *parts[2];
    ls_split(p, ls_reshape(p, x, LS_DIMS(B, T, 2 * heads * width)), 2,
             (const int64_t[]){heads * width, heads * width}, parts);
    return ls_failed(p) ? NULL : ls_reshape(p, parts[half], LS_DIMS(B, T, heads, width));
}

/* Values are parts of a product, whose rows do not lie together; a rotation of no pairs is a copy
 * of heads. */
static ls_tensor *together(ls_program *p, ls_tensor *x) {
    static const ls_rotary still = {.factor = 1};
    return ls_rotate(p, x, &still, (ls_position_map){LS_MAP_IDENTITY, 0, 0}, LS_ROTATE_ALONE);
}

/* Attention within groups, the halves of the heads apart: what is joined along the second axis are
 * heads here. */
static ls_tensor *in_groups(ls_program *p, const ls_attend *attend, const ls_key_set *whole,
                            ls_attention_options options) {
    ls_tensor *part[2], *v = together(p, whole->v);
    for (int half = 0; half < 2; half++) {
        ls_key_set set = *whole;
        set.q = half_of_heads(p, whole->q, half);
        set.k = half_of_heads(p, whole->k, half);
        set.v = half_of_heads(p, v, half);
        set.block = attend->group;
        set.alone = true;
        set.shift = half == 0 ? 0 : attend->group_shift;
        ls_tensor *y = ls_attention(p, 1, &set, options, NULL);
        if (y == NULL) return NULL;
        part[half] = ls_reshape(p, y, LS_DIMS(y->dim[0] * y->dim[1], y->dim[2], y->dim[3]));
    }
    const int64_t B = whole->q->dim[0], T = whole->q->dim[1];
    return ls_reshape(p, ls_join_rows(p, 2, part),
                      LS_DIMS(B, T, attend->heads, attend->value_width));
}

/* Landmark attention: all blocks in training, or wherever there are gradients; else those that are
 * looked up, whose keys stand at their places within their blocks. */
static ls_tensor *with_landmarks(ls_program *p, const ls_attend *attend, ls_tensor *q, ls_tensor *k,
                                 ls_tensor *v) {
    const ls_program_options *about = ls_program_about(p);
    const ls_position_map whole = attend->set[0].key_at;
    const ls_position_map inside = {LS_MAP_BLOCK, (double)attend->landmark, 0};
    if (about->profile_scores || about->patterns.first_keys > 0)
        ls_refuse(p, LS_EUSE, "what landmark attention gives its keys cannot be looked at");
    if (attend->training || about->grad) {
        if (about->streaming)
            ls_refuse(p, LS_EUSE, "landmark is trained on whole texts: train.carry must be false");
        q = ls_rotate(p, q, &attend->rotary, whole, LS_ROTATE_ALONE);
        k = ls_rotate(p, k, &attend->rotary, whole, LS_ROTATE_ALONE);
        return ls_landmark_attention(p, q, k, v, attend->landmark, attend->scale);
    }
    if (ls_begins_differ(p))
        ls_refuse(p, LS_EUSE, "landmark reads a text whole: documents cannot begin within it");
    const ls_retrieval how = {.block = attend->landmark,
                              .top = attend->retrieved,
                              .local = attend->local,
                              .scale = attend->scale,
                              .rotary = attend->rotary};
    const ls_retention keep = ls_key_set_retention(attend, &attend->set[0]);
    k = ls_rotate(p, k, &attend->rotary, inside, LS_ROTATE_ALONE);
    ls_tensor *landmarks = ls_landmark_rows(p, "landmark", k, attend->landmark);
    return ls_landmark_retrieve(p, q, ls_cache_append(p, "key", k, keep),
                                ls_cache_append(p, "value", v, keep), landmarks, &how);
}

ls_tensor *ls_attend_record(ls_program *p, const ls_position *position, ls_attend attend,
                            ls_tensor *q, ls_tensor *k, ls_tensor *v) {
    const ls_program_options *about = ls_program_about(p);
    if (q == NULL || k == NULL || v == NULL) return NULL;
    attend.planned_length = about->streaming ? about->capacity : about->length;
    attend.training = about->train;
    if (position != NULL) {
        const ls_position_type *type = position->type;
        if ((type->traits & LS_POSITION_CAUSAL) && !attend.causal)
            ls_refuse(p, LS_EUSE, "position method %s is for causal models only", type->name);
        if (type->attend != NULL) type->attend(p, position->options, &attend);
    }
    if (ls_failed(p)) return NULL;
    ls_ctx *ctx = ls_program_ctx(p);
    ls_status status = ls_attend_extend(ctx, position, &attend);
    if (status != LS_OK) {
        ls_refuse(p, status, "%s", ctx->error.message);
        return NULL;
    }
    for (int i = 0; position != NULL && i < position->extensions; i++)
        if (position->extension[i].type->prepare != NULL)
            position->extension[i].type->prepare(p, position->extension[i].options, &attend);
    if (ls_failed(p)) return NULL;
    if (attend.chunk_max > 0) ls_program_limit_chunk(p, attend.chunk_max);
    if (attend.landmark > 0) return with_landmarks(p, &attend, q, k, v);
    refer_to_start(&attend, about->streaming);
    ls_key_set set[LS_KEY_SETS_MAX];
    if (attend.growth.length > 0) q = ls_row_growth(p, q, attend.growth);
    complete_keys(p, &attend, k, v);
    for (int i = 0; i < attend.sets; i++) set[i] = complete_set(p, &attend, i, q);
    ls_attention_options options = {
        .scale = attend.scale, .off_by_one = attend.off_by_one, .cap = attend.cap};
    if (about->profile_scores) profile(p, &attend, set, options);
    if (attend.group > 0) return in_groups(p, &attend, &set[0], options);
    return ls_attention_seen(p, attend.sets, set, options);
}
