/* Programs of a mixer: recorded, fed and read. */
#include "compare/mixer_trial.h"

static ls_status record(ls_mixer_trial *a, ls_program_options options, bool finish,
                        ls_program **out) {
    options.type = a->type;
    options.train = a->keys->training;
    LS_TRY(ls_program_new(a->ctx, &options, a->store, out));
    ls_program *p = *out;
    const int64_t B = options.batch, T = options.length;
    ls_tensor *x = ls_input(p, "x", a->type, LS_DIMS(B, T, a->D), options.grad);
    ls_mixer mixer = a->mixer;
    if (a->places != NULL) mixer.places = ls_input(p, "places", LS_I32, LS_DIMS(B, T), false);
    if (a->mask != NULL) mixer.valid = ls_input(p, "valid", LS_U8, LS_DIMS(B, T), false);
    if (a->z != NULL)
        mixer.second =
            ls_input(p, "z", a->type, LS_DIMS(B, a->latents, a->latent_width), options.grad);
    ls_tensor *y = ls_mixer_record(p, &mixer, x);
    ls_keep(p, "y", y);
    if (y != NULL && a->out_T == 0) a->out_T = y->dim[1], a->out_D = y->dim[2];
    if (y != NULL && options.grad) {
        ls_seed_gradient(p, y, ls_input(p, "cot", a->type, y->rank, y->dim, false));
        ls_keep_gradient(p, "x", x);
        if (a->z != NULL) ls_keep_gradient(p, "z", mixer.second);
    }
    ls_status status = LS_OK;
    if (ls_failed(p))
        status = a->ctx->error.code;
    else if (finish)
        status = ls_program_finish(p);
    if (status == LS_OK) return LS_OK;
    ls_program_free(p);
    *out = NULL;
    return status;
}

/* Rows from `first` on of the program's sequences, from sequence `lead` on, of `from`, [B,T,..],
 * into a program's input: as many as it has. */
static void put_rows(ls_program *p, const char *name, const double *from, int64_t lead, int64_t T,
                     int64_t first) {
    const ls_tensor *tensor = ls_program_find(p, name);
    const int64_t count = tensor->dim[1], width = tensor->dim[2];
    for (int64_t b = 0; b < tensor->dim[0]; b++)
        for (int64_t i = 0; i < count * width; i++)
            ls_element_set(ls_data(tensor), tensor->type, b * count * width + i,
                           from[((lead + b) * T + first) * width + i]);
}

static void take_rows(ls_program *p, const char *name, double *to, int64_t lead, int64_t T,
                      int64_t first) {
    const ls_tensor *tensor = ls_program_find(p, name);
    const int64_t width = tensor->dim[2];
    for (int64_t b = 0; b < tensor->dim[0]; b++)
        for (int64_t t = 0; t < tensor->dim[1]; t++)
            for (int64_t d = 0; d < width; d++)
                to[((lead + b) * T + first + t) * width + d] =
                    ls_element(ls_data(tensor), tensor->type,
                               b * tensor->stride[0] + t * tensor->stride[1] + d);
}

/* Tells the mixer which tokens of a sequence are global. */
static ls_status choose_globals(ls_mixer_trial *a, int64_t sequence) {
    ls_text list = {0};
    for (int64_t t = 0; t < a->T; t++)
        if (a->mask[sequence * a->T + t] > 1)
            ls_text_printf(a->ctx, &list, "%s%lld", list.length > 0 ? "," : "", (long long)t);
    ls_status status = ls_options_set(a->ctx, &a->mixer.type->options, "", "global_at",
                                      list.length > 0 ? list.bytes : "", a->mixer_options);
    ls_text_clear(a->ctx, &list);
    return status == LS_OK ? ls_mixer_check(a->ctx, &a->mixer) : status;
}

ls_status ls_mixer_trial_choose_globals(ls_mixer_trial *a) {
    for (int64_t i = 0; a->global && i < a->B * a->T; i++)
        if (a->mask[i] > 1) return choose_globals(a, i / a->T);
    return LS_OK;
}

ls_status ls_mixer_trial_declare(ls_mixer_trial *a) {
    ls_program *program;
    LS_TRY(ls_parameters_new(a->ctx, a->type, &a->store));
    LS_TRY(record(a, (ls_program_options){.batch = a->B, .length = a->T}, false, &program));
    ls_program_free(program);
    return ls_parameters_seal(a->store, 0, true);
}

/* `count` sequences from `lead` on; gradients of weights are added up. */
static ls_status run_sequences(ls_mixer_trial *a, int64_t lead, int64_t count) {
    ls_program *program;
    bool grad = a->cot != NULL;
    LS_TRY(record(a, (ls_program_options){.batch = count, .length = a->T, .grad = grad}, true,
                  &program));
    put_rows(program, "x", a->x, lead, a->T, 0);
    if (a->z != NULL) put_rows(program, "z", a->z, lead, a->latents, 0);
    if (grad) put_rows(program, "cot", a->cot, lead, a->out_T, 0);
    if (a->mask != NULL) {
        uint8_t *valid = ls_data(ls_program_find(program, "valid"));
        for (int64_t i = 0; i < count * a->T; i++) valid[i] = a->mask[lead * a->T + i] != 0;
    }
    if (a->places != NULL)
        ls_tensor_put(program, ls_program_find(program, "places"), a->places + lead * a->T);
    ls_status status = ls_program_run(program, NULL, 0, 0);
    if (status == LS_OK) {
        take_rows(program, "y", a->y, lead, a->out_T, 0);
        if (grad) take_rows(program, "grad.x", a->grad_x, lead, a->T, 0);
        if (grad && a->z != NULL) take_rows(program, "grad.z", a->grad_z, lead, a->latents, 0);
    }
    ls_program_free(program);
    return status;
}

ls_status ls_mixer_trial_run_whole(ls_mixer_trial *a) {
    if (!a->global) return run_sequences(a, 0, a->B);
    for (int64_t b = 0; b < a->B; b++) {
        LS_TRY(choose_globals(a, b));
        LS_TRY(run_sequences(a, b, 1));
    }
    return LS_OK;
}

/* The state that a file gives. */
static ls_status load_state(ls_ctx *ctx, ls_safetensor tensor, ls_state *state) {
    void *held;
    LS_TRY(ls_safetensor_hold(ctx, &tensor, &held));
    ls_status status = tensor.from == NULL ? LS_OK : ls_source_check(ctx, tensor.from);
    if (status == LS_OK) status = ls_state_load(ctx, state, tensor.data, tensor.bytes);
    ls_free(ctx, held);
    return status;
}

ls_status ls_mixer_trial_run_cut(ls_mixer_trial *a, const int64_t *cuts, int64_t count, double *y) {
    enum { KEPT = 8 };
    ls_program *kept[KEPT] = {0}, *program = NULL;
    ls_state *state = NULL;
    int64_t longest = 1, chunk;
    ls_status status = LS_OK;
    for (int64_t i = 0; i < count; i++) longest = ls_max(longest, ls_min(cuts[i], a->T));
    for (int64_t first = 0, i = 0; first < a->T; first += chunk, i++) {
        chunk = ls_min(cuts[ls_min(i, count - 1)], a->T - first);
        program = NULL;
        int slot = (int)(chunk % KEPT);
        if (kept[slot] != NULL && ls_program_about(kept[slot])->length == chunk) {
            program = kept[slot];
        } else {
            const ls_program_options options = {.batch = a->B,
                                                .length = chunk,
                                                .streaming = true,
                                                .capacity = ls_max(a->T, a->keys->capacity),
                                                .chunk_max = longest};
            LS_TRY_GOTO(record(a, options, true, &program));
            ls_program_free(kept[slot]);
            kept[slot] = program;
            if (chunk > ls_program_chunk_limit(program)) {
                status = LS_FAIL(a->ctx, LS_EUSE, "this method takes at most %lld tokens at once",
                                 (long long)ls_program_chunk_limit(program));
                goto fail;
            }
        }
        if (state == NULL) {
            LS_TRY_GOTO(ls_state_new(program, &state));
            const ls_safetensor *before = ls_mixer_trial_find(a, LS_GIVEN_STATE, NULL);
            if (before != NULL) LS_TRY_GOTO(load_state(a->ctx, *before, state));
        }
        put_rows(program, "x", a->x, 0, a->T, first);
        LS_TRY_GOTO(ls_program_run(program, state, 0, 0));
        take_rows(program, "y", y, 0, a->out_T, first);
    }
    ls_text_clear(a->ctx, &a->state);
    status = ls_state_save(a->ctx, state, &a->state);
fail:
    for (int i = 0; i < KEPT; i++) ls_program_free(kept[i]);
    ls_state_free(a->ctx, state);
    return status;
}
