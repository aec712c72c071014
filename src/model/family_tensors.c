/* The tensors of a model as the files of a family have them: the rules that read a name, the other
 * way.
 *
 * A parameter is looked for among the targets of the rules, from the last one on: what a family
 * adds goes before what it shares. Below a mixer the family says which of the mixer's public names
 * it uses. Where several tensors share a parameter, each has the rows up to where the next one
 * begins. */
#include <stdio.h>
#include <string.h>

#include "model/family_write.h"

enum { TENSORS_PER_PARAMETER = 8 };

/* Tensors of one parameter. */
typedef struct pieces {
    const ls_parameter *parameter;
    size_t count;
    struct piece {
        char name[LS_SAFETENSORS_NAME_MAX];
        int flags;     /* LS_ALIAS_* */
        int64_t first; /* row of the parameter */
    } at[TENSORS_PER_PARAMETER];
} pieces;

static void add_piece(pieces *out, const char *name, int flags, int64_t first) {
    if (out->count == TENSORS_PER_PARAMETER) return;
    struct piece *piece = &out->at[out->count++];
    snprintf(piece->name, sizeof piece->name, "%s", name);
    piece->flags = flags;
    piece->first = first;
}

/* Whether a family uses one of a mixer's public names: one of its words is that, or its beginning
 * up to a dot. */
static bool uses(const char *words, const char *name) {
    while (words != NULL && *words != '\0') {
        const size_t length = strcspn(words, " ");
        if (strncmp(words, name, length) == 0 && (name[length] == '.' || name[length] == '\0'))
            return true;
        words += length + strspn(words + length, " ");
    }
    return words == NULL;
}

/* The words of a target behind the parameter. */
static bool has_word(const char *target, const char *word) {
    const char *at = strstr(target, word);
    return at != NULL && at[-1] == ' ';
}

/* Whether a family does not use a rule: a word of what it leaves out is in its pattern. */
static bool is_left_out(const ls_family_layout *layout, const char *public) {
    char copy[LS_FAMILY_UNUSED_BYTES], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", layout->unused);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (strstr(public, word) != NULL) return true;
    return false;
}

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* One rule, the other way; false: it is not about this name of ours, or of a mixer. The head's name
 * is not the embedding's, though some files have the one for the other. */
static bool reverse(const ls_family_layout *layout, const ls_naming_rule *rule, const char *ours,
                    char out[LS_SAFETENSORS_NAME_MAX]) {
    char target[256], pattern[256];
    const char *public = ls_name_after(rule->pattern, "w.");
    const size_t length = strcspn(rule->target, " ");
    if (public == NULL || length >= sizeof target || strstr(rule->target, " + ") != NULL ||
        is_left_out(layout, public) ||
        (ends_with(public, layout->head) && ls_name_after(rule->target, "head.") == NULL))
        return false;
    const bool open = public[0] == '*';
    const bool is_head = strncmp(public + open, layout->head, strcspn(layout->head, ".") + 1) == 0;
    snprintf(target, sizeof target, "%.*s", (int)length, rule->target);
    snprintf(pattern, sizeof pattern, "%s%s", open && !is_head ? layout->prefix : "",
             public + open);
    return ls_name_fits(target, ours, pattern, out, LS_SAFETENSORS_NAME_MAX);
}

/* Adds what the last rule makes of a name. One that has the last rows alone leaves the first to
 * another rule. */
static void add_named(const ls_family_layout *layout, const ls_naming *naming, const char *ours,
                      int flags, int64_t first, pieces *out) {
    char name[LS_SAFETENSORS_NAME_MAX];
    for (size_t i = naming->rules; i-- > 0;) {
        const ls_naming_rule *rule = &naming->rule[i];
        if (!reverse(layout, rule, ours, name)) continue;
        const bool last = has_word(rule->target, "last") && !layout->whole;
        add_piece(out, name,
                  flags | (has_word(rule->target, "transposed") ? LS_ALIAS_TRANSPOSED : 0),
                  last ? out->parameter->dim[0] / 2 : first);
        if (!last) return;
    }
}

/* The public names that a mixer has for what it calls `ours`, below `place` in the model. */
static bool add_of_mixer(const ls_family_layout *layout, const ls_public_scope *scope,
                         const ls_mixer *mixer, const char *place, const char *ours, pieces *out) {
    char official[LS_SAFETENSORS_NAME_MAX], name[2 * LS_SAFETENSORS_NAME_MAX];
    bool known = false;
    for (const ls_alias *alias = mixer->type->aliases; alias && alias->official; alias++) {
        const char *public = alias->official + (alias->official[0] == '*');
        if (!ls_name_fits(alias->ours, ours, public, official, sizeof official) ||
            !uses(layout->weights, official))
            continue;
        const int order = alias->layout & ~LS_ALIAS_FLAGS;
        snprintf(name, sizeof name, "%s%s", place, official);
        add_named(layout, scope->naming, name, alias->layout & LS_ALIAS_FLAGS,
                  mixer->type->row == NULL ? 0 : mixer->type->row(mixer, order, 0), out);
        known = true;
    }
    return known;
}

/* All tensors of a parameter: under its own name, or under those public ones that its mixer knows
 * and that are used. What layers share is the first one's. */
static void find_pieces(const ls_family_layout *layout, const ls_public_scope *scope, pieces *out) {
    const char *ours = out->parameter->name, *within = ls_name_after(ours, "encoder."), *rest;
    const ls_mixer *mixers =
        scope->mixers + (within != NULL && scope->config != NULL ? scope->config->layers : 0);
    char place[64], shared[LS_SAFETENSORS_NAME_MAX];
    int64_t number[26];
    if (within == NULL) within = ours;
    if (ls_name_parts("layers.{n}.mixer.*", within, number, &rest)) {
        snprintf(place, sizeof place, "%.*s", (int)(rest - ours), ours);
        if (add_of_mixer(layout, scope, &mixers[number['n' - 'a']], place, rest, out)) return;
    } else {
        snprintf(place, sizeof place, "%.*slayers.0.mixer.", (int)(within - ours), ours);
        snprintf(shared, sizeof shared, "/%s", within);
        if (add_of_mixer(layout, scope, &mixers[0], place, shared, out)) return;
    }
    add_named(layout, scope->naming, ours, 0, 0, out);
}

/* The shape of a piece, which ends where the next one begins. */
static void shape_of(const pieces *all, size_t which, bool squeezed, ls_family_tensor *out) {
    const ls_parameter *parameter = all->parameter;
    const struct piece *piece = &all->at[which];
    int64_t end = parameter->dim[0], *dim = out->shape.dim;
    for (size_t i = 0; i < all->count; i++)
        if (all->at[i].first > piece->first) end = ls_min(end, all->at[i].first);
    snprintf(out->name, sizeof out->name, "%s", piece->name);
    out->shape.rank = 0;
    for (int d = 0; d < parameter->rank; d++) {
        if (d == 1 && !squeezed && (piece->flags & LS_ALIAS_DEPTHWISE)) dim[out->shape.rank++] = 1;
        dim[out->shape.rank++] = d == 0 ? end - piece->first : parameter->dim[d];
    }
    if (!squeezed && (piece->flags & LS_ALIAS_COLUMN)) dim[out->shape.rank++] = 1;
    if (piece->flags & LS_ALIAS_TRANSPOSED) {
        const int64_t rows = dim[0];
        dim[0] = dim[1];
        dim[1] = rows;
    }
    out->shape.count = 1;
    for (int d = 0; d < out->shape.rank; d++) out->shape.count *= dim[d];
}

/* It must lead back: the rules read this name as these rows. */
static ls_status check(ls_ctx *ctx, const ls_family_layout *layout, const ls_public_scope *scope,
                       ls_family_tensor *tensor, int64_t *set) {
    ls_weight weight;
    tensor->shape.name = tensor->name;
    LS_TRY(ls_public_weight(ctx, scope, tensor->name, &weight));
    if (weight.parts == 0 || ls_weight_misfit(scope->store, &weight, &tensor->shape, set) != 0)
        return LS_FAIL(ctx, LS_EUSE, "%s: %s is not what its rules read", layout->name,
                       tensor->name);
    return LS_OK;
}

ls_status ls_family_tensors(ls_ctx *ctx, const ls_family_layout *layout,
                            const ls_public_scope *scope, ls_family_tensor **out, size_t *count) {
    const ls_parameters *store = scope->store;
    pieces *all = ls_new(ctx, 1, sizeof *all);
    int64_t *set = ls_new(ctx, store->count + 1, sizeof *set);
    ls_status status = LS_ENOMEM;
    *count = 0;
    *out = ls_new(ctx, store->count * TENSORS_PER_PARAMETER + 1, sizeof **out);
    if (*out == NULL || all == NULL || set == NULL) goto fail;
    for (size_t i = 0; i < store->count; i++) {
        *all = (pieces){.parameter = &store->items[i]};
        find_pieces(layout, scope, all);
        for (size_t j = 0; j < all->count; j++) {
            shape_of(all, j, layout->squeezed, &(*out)[*count]);
            LS_TRY_GOTO(check(ctx, layout, scope, &(*out)[*count], set));
            ++*count;
        }
        if (set[i] != store->items[i].count) {
            status =
                LS_FAIL(ctx, LS_EUSE, "%s has no place for %s", layout->name, store->items[i].name);
            goto fail;
        }
    }
    status = LS_OK;
fail:
    if (status != LS_OK) {
        ls_free(ctx, *out);
        *out = NULL;
    }
    ls_free(ctx, all);
    ls_free(ctx, set);
    return status;
}
