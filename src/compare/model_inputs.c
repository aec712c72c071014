/* Tokens of the file, and the pieces into which they are cut. */
#include "compare/model_trial.h"

#include <string.h>

static ls_status read_tokens(ls_trial *trial, const ls_safetensor *tensor, int64_t *length,
                             int32_t **out) {
    const bool transposed = trial->keys->layout == LS_LAYOUT_TBD;
    if (tensor->rank != 2 || tensor->count < 1 || *out != NULL)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s must be tokens of two axes, given once",
                       trial->keys->golden, tensor->name);
    const int64_t B = tensor->dim[transposed ? 1 : 0], T = tensor->dim[transposed ? 0 : 1];
    if (trial->B > 0 && trial->B != B)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s has %lld sequences, not %lld",
                       trial->keys->golden, tensor->name, (long long)B, (long long)trial->B);
    trial->B = B;
    *length = T;
    *out = ls_new(trial->ctx, (size_t)tensor->count, sizeof **out);
    int32_t *stored = ls_new(trial->ctx, (size_t)tensor->count, sizeof *stored);
    ls_status status = *out == NULL || stored == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) status = ls_safetensor_i32(trial->ctx, tensor, 0, tensor->count, stored);
    for (int64_t i = 0; i < tensor->count && status == LS_OK; i++)
        (*out)[i] = transposed ? stored[i % T * B + i / T] : stored[i];
    ls_free(trial->ctx, stored);
    return status;
}

/* Rows that a model without an embedding is given. */
static ls_status read_rows(ls_trial *trial, const ls_safetensor *tensor) {
    const bool transposed = trial->keys->layout == LS_LAYOUT_TBD;
    const int64_t D = trial->config.model.width;
    if (tensor->rank != 3 || tensor->count < 1 || tensor->dim[2] != D || trial->x != NULL)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s must be rows of %lld, given once",
                       trial->keys->golden, tensor->name, (long long)D);
    trial->B = tensor->dim[transposed ? 1 : 0];
    trial->T = tensor->dim[transposed ? 0 : 1];
    const size_t room = (size_t)tensor->count;
    trial->x_grad = ls_new(trial->ctx, room, sizeof *trial->x_grad);
    trial->tokens = ls_new(trial->ctx, (size_t)(trial->B * trial->T), sizeof *trial->tokens);
    if (trial->x_grad == NULL || trial->tokens == NULL) return LS_ENOMEM;
    const ls_rows_shape shape = {trial->B, trial->T, D, transposed};
    return ls_stored_rows(trial->ctx, tensor, shape, &trial->x);
}

/* Masks and types are of the shape of the tokens that they are of; padding comes last. */
static ls_status check_beside(const ls_trial *trial, const int32_t *beside, int64_t has,
                              int64_t tokens, const char *what, bool mask) {
    if (beside == NULL) return LS_OK;
    if (has != tokens)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: the %s has %lld columns, not %lld",
                       trial->keys->golden, what, (long long)has, (long long)tokens);
    for (int64_t i = 0; mask && i < trial->B * tokens; i++)
        if (i % tokens > 0 && beside[i] != 0 && beside[i - 1] == 0)
            return LS_FAIL(trial->ctx, LS_EINPUT,
                           "%s: the %s has padding before a token: it must come last",
                           trial->keys->golden, what);
    return LS_OK;
}

static ls_status check_types(const ls_trial *trial) {
    const int64_t types = trial->config.model.token_types;
    for (int64_t i = 0; trial->types != NULL && i < trial->B * trial->T; i++)
        if (trial->types[i] < 0 || trial->types[i] >= types)
            return LS_FAIL(trial->ctx, LS_EINPUT, "%s: token type %d is none of the model's %lld",
                           trial->keys->golden, trial->types[i], (long long)types);
    return LS_OK;
}

ls_status ls_trial_read_inputs(ls_trial *trial) {
    int64_t masked = 0, source_masked = 0, typed = 0;
    for (size_t i = 0; i < trial->file.count; i++) {
        const ls_safetensor *tensor = &trial->file.items[i];
        char target[64];
        int64_t piece;
        if (ls_name_after(tensor->name, "in.") == NULL) continue;
        size_t from = 0;
        if (!ls_naming_find(&trial->naming, tensor->name, &from, target, sizeof target, &piece))
            return LS_FAIL(trial->ctx, LS_EINPUT, "%s: no name is known for %s (set names=)",
                           trial->keys->golden, tensor->name);
        if (strcmp(target, "tokens") == 0)
            LS_TRY(read_tokens(trial, tensor, &trial->T, &trial->tokens));
        else if (strcmp(target, "source") == 0)
            LS_TRY(read_tokens(trial, tensor, &trial->S, &trial->source));
        else if (strcmp(target, "mask") == 0)
            LS_TRY(read_tokens(trial, tensor, &masked, &trial->mask));
        else if (strcmp(target, "source_mask") == 0)
            LS_TRY(read_tokens(trial, tensor, &source_masked, &trial->source_mask));
        else if (strcmp(target, "types") == 0)
            LS_TRY(read_tokens(trial, tensor, &typed, &trial->types));
        else if (strcmp(target, "rows") == 0)
            LS_TRY(read_rows(trial, tensor));
        else if (strcmp(target, "-") != 0)
            return LS_FAIL(trial->ctx, LS_EUSE, "names: %s = %s is no input of a model",
                           tensor->name, target);
    }
    if (trial->tokens == NULL)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s has no tokens: in.tokens, or what names= says",
                       trial->keys->golden);
    if ((trial->source != NULL) != (trial->config.encoder_layers > 0))
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: a source and model.encoder_layers go together",
                       trial->keys->golden);
    LS_TRY(check_beside(trial, trial->mask, masked, trial->T, "mask", true));
    LS_TRY(check_beside(trial, trial->source_mask, source_masked, trial->S, "source mask", true));
    LS_TRY(check_beside(trial, trial->types, typed, trial->T, "list of types", false));
    return check_types(trial);
}

/* ---- pieces ---- */

/* Fills first and length from the given lengths, the last of which is repeated. */
static void cut_into(ls_trial *trial, const int64_t *each, int64_t count) {
    for (int64_t at = 0; at < trial->T; at += trial->length[trial->pieces++]) {
        trial->first[trial->pieces] = at;
        trial->length[trial->pieces] =
            ls_min(each[ls_min(trial->pieces, count - 1)], trial->T - at);
    }
}

/* Pieces behind the last that the file says something of are left out: a last token, say, that is
 * only there to be predicted. */
static ls_status leave_out_rest(ls_trial *trial) {
    int64_t most = 0;
    for (size_t i = 0; i < trial->file.count; i++) {
        const char *name = ls_name_after(trial->file.items[i].name, "out.");
        ls_trial_output out;
        if (name == NULL) continue;
        LS_TRY(ls_trial_output_of(trial, name, &out));
        if (out.kind == LS_OUTPUT_NONE) continue;
        if (out.piece >= trial->pieces)
            return LS_FAIL(trial->ctx, LS_EINPUT,
                           "%s: %s is of a piece that %lld tokens do not have", trial->keys->golden,
                           trial->file.items[i].name, (long long)trial->T);
        most = ls_max(most, out.piece < 0 ? trial->pieces : out.piece + 1);
    }
    if (most == 0)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s has no outputs to compare with",
                       trial->keys->golden);
    trial->pieces = most;
    trial->T = trial->first[most - 1] + trial->length[most - 1];
    return LS_OK;
}

/* Sources are as many as pieces, and all of one length, as the pieces are. */
static ls_status check_sources(ls_trial *trial) {
    const ls_ints *cut = &trial->keys->source_cut;
    const int64_t each = cut->count > 0 ? cut->at[0] : trial->S;
    if (cut->count > 1 || trial->S != trial->pieces * each ||
        trial->T != trial->pieces * trial->length[0])
        return LS_FAIL(trial->ctx, LS_EUSE,
                       "%lld tokens of sources and %lld behind them are not cut into %lld equal "
                       "pieces: see source_cut and cut",
                       (long long)trial->S, (long long)trial->T, (long long)trial->pieces);
    trial->S = each;
    return LS_OK;
}

ls_status ls_trial_cut_pieces(ls_trial *trial) {
    const ls_ints *cut = &trial->keys->cut;
    const int64_t all = trial->T;
    const int64_t segment = trial->config.model.segment;
    const bool decodes = trial->config.encoder_layers > 0;
    const int64_t one = !decodes && segment > 0 ? segment : trial->T;
    trial->first = ls_new(trial->ctx, (size_t)all + 1, sizeof *trial->first);
    trial->length = ls_new(trial->ctx, (size_t)all + 1, sizeof *trial->length);
    if (trial->first == NULL || trial->length == NULL) return LS_ENOMEM;
    cut_into(trial, cut->count > 0 ? cut->at : &one, ls_max(cut->count, 1));
    LS_TRY(leave_out_rest(trial));
    trial->streams = cut->count > 0 && !decodes && segment == 0;
    return decodes ? check_sources(trial) : LS_OK;
}
