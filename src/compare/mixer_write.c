/* What a mixer computed, into a file. */
#include <stdio.h>
#include <string.h>

#include "compare/mixer_trial.h"

ls_status ls_mixer_trial_write(ls_mixer_trial *a) {
    const struct {
        const char *name;
        double *values;
        int64_t T, D;
    } outputs[3] = {
        {"y", a->y, a->out_T, a->out_D},
        {"grad.x", a->cot == NULL ? NULL : a->grad_x, a->T, a->D},
        {"grad.z", a->cot == NULL ? NULL : a->grad_z, a->latents, a->latent_width},
    };
    const int64_t state_dim[1] = {(int64_t)a->state.length};
    int64_t dim[3][3];
    bool turn = a->keys->layout == LS_LAYOUT_TBD;
    ls_ctx *ctx = a->ctx;
    int64_t cells = 1;
    size_t count = 0;
    for (int i = 0; i < 3; i++) cells = ls_max(cells, a->B * outputs[i].T * outputs[i].D);
    ls_stored_type gradient_type = a->store->master_type == LS_F64 ? LS_STORED_F64 : LS_STORED_F32;
    ls_safetensor_source *sources = ls_new(ctx, a->store->count + 4, sizeof *sources);
    char(*names)[300] = ls_new(ctx, a->store->count + 1, sizeof *names);
    double *scratch = ls_new(ctx, (size_t)cells, sizeof *scratch);
    ls_status status = LS_ENOMEM;
    if (sources == NULL || names == NULL || scratch == NULL) goto fail;
    for (int i = 0; i < 3; i++) {
        const int64_t B = a->B, T = outputs[i].T, D = outputs[i].D;
        if (outputs[i].values == NULL) continue;
        if (turn) {
            ls_exchange_axes(outputs[i].values, B, T, D, scratch);
            memcpy(outputs[i].values, scratch, (size_t)(B * T * D) * sizeof *scratch);
        }
        dim[i][0] = turn ? T : B, dim[i][1] = turn ? B : T, dim[i][2] = D;
        sources[count++] =
            (ls_safetensor_source){outputs[i].name, LS_STORED_F64, 3, dim[i], outputs[i].values};
    }
    for (size_t i = 0; a->cot != NULL && i < a->store->count; i++) {
        const ls_parameter *parameter = &a->store->items[i];
        snprintf(names[i], sizeof names[i], "grad.%s", parameter->name);
        sources[count++] =
            (ls_safetensor_source){names[i], gradient_type, parameter->rank, parameter->dim,
                                   ls_parameter_gradient(a->store, parameter)};
    }
    if (a->state.length > 0)
        sources[count++] =
            (ls_safetensor_source){"state", LS_STORED_U8, 1, state_dim, a->state.bytes};
    status = ls_safetensors_write(ctx, a->keys->output, sources, count, NULL, 0);
fail:
    ls_free(ctx, sources);
    ls_free(ctx, names);
    ls_free(ctx, scratch);
    return status;
}
