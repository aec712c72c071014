#include "mixer/mixer.h"

#include <stdio.h>
#include <string.h>

const ls_mixer_type *ls_mixer_find(const char *name) {
    for (size_t i = 0; i < ls_mixer_count; i++)
        if (strcmp(ls_mixer_types[i]->name, name) == 0) return ls_mixer_types[i];
    return NULL;
}

const char *ls_mixer_option_at_test(const ls_mixer_type *type, const char *label, const char *key) {
    if (strncmp(key, "mixer.", 6) != 0) return NULL;
    key += 6;
    size_t name = strcspn(key, ".");
    if ((name == strlen(type->name) && strncmp(key, type->name, name) == 0) ||
        (name == strlen(label) && strncmp(key, label, name) == 0))
        key += name + (key[name] == '.');
    for (const char *const *at = type->at_test; at != NULL && *at != NULL; at++)
        if (strcmp(*at, key) == 0) return *at;
    return NULL;
}

ls_tensor *ls_norm_rows(ls_program *p, const ls_norm *norm, ls_tensor *x, ls_tensor *delta,
                        ls_tensor **sum) {
    if (norm->mean != NULL) {
        const ls_batch_norm batch = {.epsilon = norm->epsilon,
                                     .unbiased = norm->unbiased,
                                     .valid = norm->valid,
                                     .weight = norm->weight,
                                     .bias = norm->bias,
                                     .mean = norm->mean,
                                     .variance = norm->variance};
        if (delta != NULL) x = ls_plus(p, x, delta);
        if (sum != NULL) *sum = x;
        return ls_batch_norm_rows(p, &batch, x);
    }
    return ls_residual_norm(p, norm->kind, norm->epsilon, x, delta, norm->weight, norm->bias, sum);
}

ls_mixer_result ls_mixer_result_of(const ls_mixer *mixer) {
    if (mixer->type->result == NULL) return (ls_mixer_result){0};
    return mixer->type->result(mixer);
}

ls_status ls_mixer_check(ls_ctx *ctx, const ls_mixer *mixer) {
    const ls_mixer_type *type = mixer->type;
    if (mixer->causal && !(type->traits & LS_MIXER_CAUSAL))
        return LS_FAIL(ctx, LS_EUSE,
                       "mixer %s looks both ways: it cannot be causal (set model.causal=false)",
                       type->name);
    if (!mixer->causal && !(type->traits & LS_MIXER_BIDIRECTIONAL))
        return LS_FAIL(
            ctx, LS_EUSE,
            "mixer %s looks back alone: it cannot be in an encoder, or where model.causal is "
            "false",
            type->name);
    return type->check == NULL ? LS_OK : type->check(ctx, mixer);
}

/* What a new mixer gets wrong first: nothing comes out, or rows of another shape. An operation that
 * refused what it was given does not know for whom. */
static bool check_result(ls_program *p, const ls_mixer *mixer, const ls_tensor *x,
                         const ls_tensor *y) {
    const char *name = mixer->type->name;
    ls_error *error = &ls_program_ctx(p)->error;
    const size_t used = strlen(error->message);
    if (ls_failed(p) && error->code != LS_ENOMEM && strstr(error->message, name) == NULL)
        snprintf(error->message + used, sizeof error->message - used, " (mixer %s)", name);
    if (ls_failed(p)) return false;
    if (y == NULL)
        ls_refuse(p, LS_EBUG, "mixer %s: its forward returned nothing", name);
    else if (mixer->type->result == NULL &&
             (y->rank != x->rank || memcmp(y->dim, x->dim, (size_t)x->rank * sizeof *x->dim) != 0))
        ls_refuse(p, LS_EBUG, "mixer %s: its forward returned rows of another shape than it got",
                  name);
    return !ls_failed(p);
}

ls_tensor *ls_mixer_record(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (ls_program_about(p)->streaming) {
        if (!mixer->causal)
            ls_refuse(p, LS_EUSE,
                      "a model that sees later tokens cannot take a sequence in chunks (its %s is "
                      "not causal)",
                      mixer->type->name);
        else if (!(mixer->type->traits & LS_MIXER_STREAMING))
            ls_refuse(p, LS_EUSE, "mixer %s cannot take a sequence in chunks", mixer->type->name);
    }
    if (ls_failed(p)) return NULL;
    ls_tensor *y = mixer->type->forward(p, mixer, x);
    return check_result(p, mixer, x, y) ? y : NULL;
}
