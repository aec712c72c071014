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
        return LS_FAIL(
            ctx, LS_EUSE, "extension %s changes %s, which position method %s lacks", name,
            (type->needs & LS_POSITION_ROTARY) ? "rotary frequencies" : "what it does not have",
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

ls_status ls_position_fits(ls_ctx *ctx, const ls_position *position, int64_t width, int64_t heads,
                           bool causal) {
    if (position == NULL) return LS_OK;
    const ls_position_type *type = position->type;
    if ((type->traits & LS_POSITION_CAUSAL) && !causal)
        return LS_FAIL(ctx, LS_EUSE, "position method %s is for causal models only", type->name);
    if (type->check == NULL) return LS_OK;
    return type->check(ctx, position->options, width, heads);
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

ls_status ls_attend_cut(ls_ctx *ctx, const char *name, ls_attend *attend, int64_t window,
                        ls_key_set **far) {
    const ls_key_set *whole = &attend->set[0];
    if (attend->sets != 1 || whole->hi < LS_FAR || whole->block > 0 || attend->dilation != NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "extension %s cuts the keys itself: it takes no other window, "
                       "block or dilation",
                       name);
    attend->sets = 2;
    attend->set[1] = *whole;
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
        if (type->causal && !attend->causal)
            return LS_FAIL(ctx, LS_EUSE, "extension %s is for causal models only", type->name);
        LS_TRY(type->extend(ctx, position->extension[i].options, attend));
    }
    return LS_OK;
}

ls_retention ls_key_set_retention(const ls_attend *attend, const ls_key_set *set) {
    if (set->block > 0) return (ls_retention){.block = set->block, .before = set->block};
    if (set->hi >= LS_FAR) return (ls_retention){0};
    int64_t step = 1;
    for (int64_t h = 0; attend->dilation != NULL && h < attend->heads; h++)
        step = ls_max(step, attend->dilation[h]);
    return (ls_retention){.window = set->hi * step + 1};
}

int64_t ls_attend_state_bytes(const ls_attend *attend, int64_t T, int64_t size) {
    int64_t rows = 0;
    for (int i = 0; i < attend->sets; i++) {
        const ls_key_set *set = &attend->set[i];
        rows += set->key_end < LS_FAR ? set->key_end
                                      : ls_cache_rows(ls_key_set_retention(attend, set), T, 1);
    }
    return rows * attend->groups * (attend->key_width + attend->value_width) * size;
}

/* Keys of one set that query n of T sees at distances that are multiples of `step`. */
static int64_t keys_seen(const ls_key_set *set, int64_t n, int64_t T, int64_t step) {
    int64_t last = ls_min(T, set->key_end) - 1, first = set->key_first;
    if (set->block > 0) first = ls_max(first, (n / set->block - 1) * set->block);
    if (set->lo > -LS_FAR) last = ls_min(last, n - set->lo * step);
    if (set->hi < LS_FAR) first = ls_max(first, n - set->hi * step);
    int64_t count = 0;
    if (first > last) return 0;
    if (step == 1) return last - first + 1;
    for (int64_t m = first; m <= last; m++) count += (n - m) % step == 0;
    return count;
}

double ls_attend_pairs(const ls_attend *attend, int64_t T) {
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
    if (rotary->dynamic != NULL) /* frequencies change: what is stored must not depend on them */
        return ls_rotate(p, cache(p, attend, number, "key", k), rotary, at, LS_ROTATE_KEY);
    return cache(p, attend, number, "key", ls_rotate(p, k, rotary, at, LS_ROTATE_KEY));
}

/* A set with its operands: queries and keys as they are scored, values, and the method's bias. */
static ls_key_set complete_set(ls_program *p, const ls_attend *attend, int number, ls_tensor *q,
                               ls_tensor *k, ls_tensor *v) {
    ls_key_set set = attend->set[number];
    set.q = q;
    if (attend->content_bias != NULL) set.q = ls_plus_broadcast(p, q, attend->content_bias);
    if (attend->rotates)
        set.q = ls_rotate(p, set.q, &attend->rotary, set.query_at,
                          attend->one_block ? LS_ROTATE_QUERY : LS_ROTATE_ALONE);
    set.k = set_keys(p, attend, number, k);
    set.v = cache(p, attend, number, "value", v);
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

/* Keeps the scores by distance under the scoped name "scores". */
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
}

ls_tensor *ls_attention_seen(ls_program *p, int sets, const ls_key_set *set,
                             ls_attention_options options) {
    const ls_pattern_view *view = &ls_program_about(p)->patterns;
    ls_tensor *lse, *y = ls_attention(p, sets, set, options, &lse);
    if (view->first_keys > 0 && y != NULL)
        ls_keep(p, "pattern", ls_attention_pattern(p, sets, set, options, lse, view));
    return y;
}

ls_tensor *ls_attend_record(ls_program *p, const ls_position *position, ls_attend attend,
                            ls_tensor *q, ls_tensor *k, ls_tensor *v) {
    const ls_program_options *about = ls_program_about(p);
    if (q == NULL || k == NULL || v == NULL) return NULL;
    attend.planned_length = about->streaming ? about->capacity : about->length;
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
    if (attend.chunk_max > 0) ls_program_limit_chunk(p, attend.chunk_max);
    refer_to_start(&attend, about->streaming);
    ls_key_set set[LS_KEY_SETS_MAX];
    for (int i = 0; i < attend.sets; i++) set[i] = complete_set(p, &attend, i, q, k, v);
    ls_attention_options options = {
        .scale = attend.scale, .off_by_one = attend.off_by_one, .cap = attend.cap};
    if (about->profile_scores) profile(p, &attend, set, options);
    return ls_attention_seen(p, attend.sets, set, options);
}
