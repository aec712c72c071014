/* One mixer alone: its weights by any of their names, forward whole and in chunks, gradients. */
#include <stdio.h>
#include <string.h>

#include "cli/apply.h"
#include "cli/apply_compare.h"
#include "cli/apply_heads.h"
#include "cli/apply_naming.h"
#include "mixer/mixer.h"
#include "model/model.h"

typedef struct applied {
    ls_cli *cli;
    ls_ctx *ctx;
    const ls_apply_keys *keys;
    ls_dtype type;
    ls_mixer mixer;
    void *mixer_options;
    ls_position position;
    ls_parameters *store;
    int64_t B, T, D;
    int64_t out_T, out_D;          /* of y; those of x where the mixer leaves the rows there are */
    int64_t latents, latent_width; /* of z, where the file gives latents to begin with; else 0 */
    ls_bare_heads heads;           /* of queries, keys and values in place of x */
    ls_safetensors input, weights; /* both are the golden file where there is one */
    bool input_open, weights_open, golden;
    double *x, *z, *cot; /* [B,T,D], [B,latents,latent_width], [B,out_T,out_D] */
    double *mask;        /* [B,T]: 0 padding, 1 a token, 2 a global one; NULL: all are tokens */
    bool global;         /* some are */
    double *y, *grad_x, *grad_z;
    int64_t *set; /* per parameter: elements that the file has given */
    ls_text state;
} applied;

/* ---- values ---- */

/* A tensor of the input file as [B,T,D]; sets the sizes where they are not known yet (0). */
static ls_status read_rows(applied *a, const char *name, int64_t *T, int64_t *D, double **out) {
    const ls_safetensor *tensor = ls_safetensors_find(&a->input, name);
    const char *path = a->golden ? a->keys->golden : a->keys->input;
    bool turned = a->keys->layout == LS_LAYOUT_TBD;
    if (tensor == NULL || tensor->rank != 3 || tensor->count < 1)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: there is no tensor %s of three axes", path, name);
    int64_t B = tensor->dim[turned ? 1 : 0], rows = tensor->dim[turned ? 0 : 1];
    if (a->B == 0) a->B = B;
    if (*T == 0) *T = rows, *D = tensor->dim[2];
    if (B != a->B || rows != *T || tensor->dim[2] != *D)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %s is not [%lld,%lld,%lld], as it must be", path,
                       name, (long long)a->B, (long long)*T, (long long)*D);
    return ls_stored_rows(a->ctx, tensor, (ls_rows_shape){B, rows, *D, turned}, out);
}

/* Queries, keys and values side by side as x. */
static ls_status read_heads(applied *a, const char *prefix) {
    static const char *const letters[] = {"q", "k", "v"};
    a->B = a->heads.B, a->T = a->heads.T, a->D = 3 * a->heads.H * a->heads.W;
    a->x = ls_new(a->ctx, (size_t)(a->B * a->T * a->D), sizeof *a->x);
    if (a->x == NULL) return LS_ENOMEM;
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s%s", prefix, letters[i]);
        LS_TRY(
            ls_bare_heads_read(a->ctx, &a->heads, ls_safetensors_find(&a->input, name), i, a->x));
    }
    return LS_OK;
}

static ls_status read_mask(applied *a, const char *name) {
    const ls_safetensor *tensor = ls_safetensors_find(&a->input, name);
    if (tensor == NULL) return LS_OK;
    if (tensor->rank != 2 || tensor->dim[0] != a->B || tensor->dim[1] != a->T)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s is not [%lld,%lld], as it must be", name,
                       (long long)a->B, (long long)a->T);
    if (a->keys->cut.count > 0)
        return LS_FAIL(a->ctx, LS_EUSE, "cut: sequences with padding (%s) are run whole", name);
    LS_TRY(ls_stored_values(a->ctx, tensor, &a->mask));
    for (int64_t i = 0; i < a->B * a->T; i++) a->global |= a->mask[i] > 1;
    if (a->global && ls_options_find(&a->mixer.type->options, "global_at") == NULL)
        return LS_FAIL(a->ctx, LS_EUSE, "%s has global tokens (2), which mixer %s does not have",
                       name, a->mixer.type->name);
    return LS_OK;
}

/* Whether row t of sequence b is padding for which the file says nothing: outputs of 0. */
static bool is_void(const applied *a, const double *y, int64_t row) {
    if (a->mask == NULL || a->mask[row] != 0) return false;
    for (int64_t d = 0; d < a->out_D; d++)
        if (y[row * a->out_D + d] != 0) return false;
    return true;
}

/* Reads a tensor of the shape of y, which may be bare heads. */
static ls_status read_outputs(applied *a, const char *name, double **out) {
    if (a->heads.H == 0) return read_rows(a, name, &a->out_T, &a->out_D, out);
    *out = ls_new(a->ctx, (size_t)(a->B * a->out_T * a->out_D), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    return ls_bare_heads_read(a->ctx, &a->heads, ls_safetensors_find(&a->input, name), 0, *out);
}

/* Clears rows of `values`, like y, that are padding for which the file says nothing. */
static ls_status clear_void(applied *a, double *values) {
    double *y = NULL;
    if (a->mask == NULL || !a->golden || ls_safetensors_find(&a->input, "out.y") == NULL ||
        a->out_T != a->T)
        return LS_OK;
    ls_status status = read_outputs(a, "out.y", &y);
    for (int64_t row = 0; status == LS_OK && row < a->B * a->T; row++)
        if (is_void(a, y, row))
            memset(values + row * a->out_D, 0, (size_t)a->out_D * sizeof *values);
    ls_free(a->ctx, y);
    return status;
}

/* ---- weights ---- */

/* A weight under one of our names, or the official one. */
static ls_status resolve(const applied *a, const char *name, ls_weight *out) {
    const ls_parameter *parameter = ls_parameters_find(a->store, name);
    *out = (ls_weight){.name = name, .parts = 1, .part = {{.parameter = parameter}}};
    if (parameter != NULL) return LS_OK;
    return ls_weight_of_mixer(a->ctx, a->store, &a->mixer, "", "", name, out);
}

static ls_status load_weight(applied *a, const ls_safetensor *tensor, const char *name) {
    ls_weight weight;
    LS_TRY(resolve(a, name, &weight));
    return ls_weight_load(a->ctx, a->store, &weight, tensor, a->set);
}

/* The name of a weight in the file, or NULL where the tensor is none. */
static const char *weight_name(const applied *a, const char *name) {
    const char *behind = ls_name_after(name, "w.");
    return behind != NULL || a->golden ? behind : name;
}

static bool is_missing(const applied *a, const ls_parameter *parameter) {
    return parameter != NULL && a->set[parameter - a->store->items] == 0;
}

/* A projection that a file of less than a layer lacks lets everything through. */
static void load_identity(applied *a, const char *weight_name, const char *bias_name) {
    const ls_parameter *weight = ls_parameters_find(a->store, weight_name);
    const ls_parameter *bias = ls_parameters_find(a->store, bias_name);
    if (!is_missing(a, weight) || weight->rank != 2) return;
    if (a->heads.H == 0 && weight->dim[0] != weight->dim[1]) return;
    for (int64_t i = 0; i < weight->count; i++)
        ls_element_set(ls_parameter_master(a->store, weight), a->store->master_type, i,
                       i / weight->dim[1] == i % weight->dim[1]);
    a->set[weight - a->store->items] = weight->count;
    if (!is_missing(a, bias)) return;
    for (int64_t i = 0; i < bias->count; i++)
        ls_element_set(ls_parameter_master(a->store, bias), a->store->master_type, i, 0);
    a->set[bias - a->store->items] = bias->count;
}

static ls_status load_weights(applied *a) {
    const ls_safetensors *file = a->golden ? &a->input : &a->weights;
    a->set = ls_new(a->ctx, a->store->count + 1, sizeof *a->set);
    if (a->set == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < file->count; i++) {
        const char *name = weight_name(a, file->items[i].name);
        if (name != NULL) LS_TRY(load_weight(a, &file->items[i], name));
    }
    if (a->heads.H > 0) load_identity(a, "qkv.weight", "qkv.bias");
    if (a->golden) load_identity(a, "out.weight", "out.bias");
    LS_TRY(ls_weights_complete(a->ctx, a->store, a->set));
    ls_parameters_round(a->store);
    return LS_OK;
}

/* ---- programs ---- */

static ls_status record(applied *a, ls_program_options options, bool finish, ls_program **out) {
    options.type = a->type;
    LS_TRY(ls_program_new(a->ctx, &options, a->store, out));
    ls_program *p = *out;
    const int64_t B = options.batch, T = options.length;
    ls_tensor *x = ls_input(p, "x", a->type, LS_DIMS(B, T, a->D), options.grad);
    ls_mixer mixer = a->mixer;
    if (a->mask != NULL) mixer.valid = ls_input(p, "valid", LS_U8, LS_DIMS(B, T), false);
    if (a->z != NULL)
        mixer.latents =
            ls_input(p, "z", a->type, LS_DIMS(B, a->latents, a->latent_width), options.grad);
    ls_tensor *y = ls_mixer_record(p, &mixer, x);
    ls_keep(p, "y", y);
    if (y != NULL && a->out_T == 0) a->out_T = y->dim[1], a->out_D = y->dim[2];
    if (y != NULL && options.grad) {
        ls_seed_gradient(p, y, ls_input(p, "cot", a->type, y->rank, y->dim, false));
        ls_keep_gradient(p, "x", x);
        if (a->z != NULL) ls_keep_gradient(p, "z", mixer.latents);
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
static ls_status choose_globals(applied *a, int64_t sequence) {
    ls_text list = {0};
    for (int64_t t = 0; t < a->T; t++)
        if (a->mask[sequence * a->T + t] > 1)
            ls_text_printf(a->ctx, &list, "%s%lld", list.length > 0 ? "," : "", (long long)t);
    ls_status status = ls_options_set(a->ctx, &a->mixer.type->options, "", "global_at",
                                      list.length > 0 ? list.bytes : "", a->mixer_options);
    ls_text_clear(a->ctx, &list);
    return status == LS_OK ? ls_mixer_check(a->ctx, &a->mixer) : status;
}

/* Parameters are those of a sequence with global tokens, where one has. */
static ls_status declare(applied *a) {
    ls_program *program;
    for (int64_t i = 0; a->global && i < a->B * a->T; i++)
        if (a->mask[i] > 1) {
            LS_TRY(choose_globals(a, i / a->T));
            break;
        }
    LS_TRY(ls_parameters_new(a->ctx, a->type, &a->store));
    LS_TRY(record(a, (ls_program_options){.batch = a->B, .length = a->T}, false, &program));
    ls_program_free(program);
    return ls_parameters_seal(a->store, 0, true);
}

/* `count` sequences from `lead` on; gradients of weights are added up. */
static ls_status run_sequences(applied *a, int64_t lead, int64_t count) {
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
    ls_status status = ls_program_run(program, NULL, 0, 0);
    if (status == LS_OK) {
        take_rows(program, "y", a->y, lead, a->out_T, 0);
        if (grad) take_rows(program, "grad.x", a->grad_x, lead, a->T, 0);
        if (grad && a->z != NULL) take_rows(program, "grad.z", a->grad_z, lead, a->latents, 0);
    }
    ls_program_free(program);
    return status;
}

/* All sequences at once; each alone where they differ in what is global. */
static ls_status run_whole(applied *a) {
    if (!a->global) return run_sequences(a, 0, a->B);
    for (int64_t b = 0; b < a->B; b++) {
        LS_TRY(choose_globals(a, b));
        LS_TRY(run_sequences(a, b, 1));
    }
    return LS_OK;
}

/* Chunks of the given lengths, the last of them repeated; the state passes from one to the next. */
static ls_status run_cut(applied *a, const int64_t *cuts, int64_t count, double *y) {
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
                                                .chunk_most = longest};
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
            const ls_safetensor *before = ls_safetensors_find(&a->input, "state");
            if (before != NULL)
                LS_TRY_GOTO(ls_state_load(a->ctx, state, before->data, before->bytes));
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

/* ---- against reference values ---- */

/* Compares [B,T,D] values with a tensor of the file. */
static ls_status compare_rows(applied *a, ls_comparison *comparison, const char *shown,
                              const char *name, const double *rows, int64_t T, int64_t D,
                              double tolerance) {
    const ls_safetensor *reference = ls_safetensors_find(&a->input, name);
    if (reference == NULL || reference->count != a->B * T * D)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %s is missing or has another shape than ours",
                       a->keys->golden, name);
    const ls_rows_shape shape = {a->B, T, D, a->keys->layout == LS_LAYOUT_TBD};
    return ls_compare_rows(a->ctx, comparison, shown, rows, shape, reference, tolerance);
}

/* Part 0, 1 or 2 of rows [B,T,3 H W] with a tensor [B,H,T,W] of the file. */
static ls_status compare_heads(applied *a, ls_comparison *comparison, const char *shown,
                               const char *name, const double *rows, int part, double tolerance) {
    const ls_safetensor *reference = ls_safetensors_find(&a->input, name);
    double *values;
    if (reference == NULL || reference->count != a->B * a->T * a->D / 3)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %s is missing or has another shape than ours",
                       a->keys->golden, name);
    LS_TRY(ls_bare_heads_take(a->ctx, &a->heads, rows, part, &values));
    ls_status status = ls_compare(a->ctx, comparison, shown, values, reference, tolerance);
    ls_free(a->ctx, values);
    return status;
}

static ls_status compare_outputs(applied *a, ls_comparison *comparison, const char *shown,
                                 const char *name) {
    LS_TRY(clear_void(a, a->y));
    if (a->heads.H > 0) return compare_heads(a, comparison, shown, name, a->y, 0, a->keys->tol);
    return compare_rows(a, comparison, shown, name, a->y, a->out_T, a->out_D, a->keys->tol);
}

static ls_status compare_inputs(applied *a, ls_comparison *comparison) {
    static const char *const parts[] = {"grad.in.q", "grad.in.k", "grad.in.v"};
    const double tolerance = a->keys->grad_tol;
    for (int i = 0; a->heads.H > 0 && i < 3; i++)
        if (ls_safetensors_find(&a->input, parts[i]) != NULL)
            LS_TRY(compare_heads(a, comparison, parts[i], parts[i], a->grad_x, i, tolerance));
    if (a->heads.H == 0 && ls_safetensors_find(&a->input, "grad.in.x") != NULL)
        LS_TRY(compare_rows(a, comparison, "grad.in.x", "grad.in.x", a->grad_x, a->T, a->D,
                            tolerance));
    if (a->z == NULL) return LS_OK;
    return compare_rows(a, comparison, "grad.in.z", "grad.in.z", a->grad_z, a->latents,
                        a->latent_width, tolerance);
}

static ls_status compare_gradients(applied *a, ls_comparison *comparison) {
    for (size_t i = 0; i < a->input.count; i++) {
        const char *name = ls_name_after(a->input.items[i].name, "grad.w.");
        ls_weight weight;
        if (name == NULL) continue;
        LS_TRY(resolve(a, name, &weight));
        LS_TRY(ls_compare_gradient(a->ctx, comparison, a->store, &weight, &a->input.items[i],
                                   a->keys->grad_tol));
    }
    return LS_OK;
}

static ls_status compare_all(applied *a, ls_comparison *comparison) {
    const ls_apply_keys *keys = a->keys;
    int64_t cuts[LS_OPTION_REALS_MOST];
    LS_TRY(ls_comparison_scale(a->ctx, &a->input, comparison));
    LS_TRY(compare_outputs(a, comparison, "out.y", "out.y"));
    /* one token at a time */
    static const char *const stepwise[] = {"out.stream", "out.step", "out.step_dense",
                                           "out.step_linear"};
    for (int i = 0; i < 4; i++) {
        if (ls_safetensors_find(&a->input, stepwise[i]) == NULL) continue;
        LS_TRY(run_cut(a, &(int64_t){1}, 1, a->y));
        LS_TRY(compare_outputs(a, comparison, stepwise[i], stepwise[i]));
    }
    if (keys->cut.count > 0) {
        LS_TRY(ls_apply_cuts(a->ctx, "cut", &keys->cut, cuts));
        LS_TRY(run_cut(a, cuts, keys->cut.count, a->y));
        LS_TRY(compare_outputs(a, comparison, "out.y (cut)", "out.y"));
    }
    if (a->cot == NULL) return LS_OK;
    LS_TRY(compare_inputs(a, comparison));
    return compare_gradients(a, comparison);
}

/* ---- into a file ---- */

static ls_status write_output(applied *a) {
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

/* ---- the whole ---- */

/* The mixer's options, by their names alone or as mixer.NAME. Without golden=, `input` and `output`
 * are files, also where a mixer has options of these names. */
static ls_status read_options(applied *a, const ls_option_table *table) {
    const ls_settings *settings = &a->cli->settings;
    LS_TRY(ls_options_default(a->ctx, table, a->mixer_options));
    for (size_t i = 0; i < table->count; i++) {
        const char *key = table->options[i].key;
        const bool file =
            a->keys->golden[0] == '\0' && (strcmp(key, "input") == 0 || strcmp(key, "output") == 0);
        const char *value = file ? NULL : ls_settings_get(settings, key);
        if (value == NULL) continue;
        LS_TRY(ls_options_set(a->ctx, table, "", key, value, a->mixer_options));
    }
    return ls_settings_apply(a->ctx, settings, "mixer", table, a->mixer_options);
}

static ls_status choose(applied *a) {
    ls_settings *settings = &a->cli->settings;
    a->mixer.type = ls_mixer_find(a->keys->mixer);
    if (a->mixer.type == NULL)
        return LS_FAIL(a->ctx, LS_EUSE, "there is no mixer %s: see `longshot inspect mixers`",
                       a->keys->mixer);
    const ls_option_table *table = &a->mixer.type->options;
    a->mixer_options = ls_new(a->ctx, 1, table->size > 0 ? table->size : 1);
    if (a->mixer_options == NULL) return LS_ENOMEM;
    LS_TRY(read_options(a, table));
    a->mixer.options = a->mixer_options;
    a->mixer.causal = a->keys->causal;
    bool takes = (a->mixer.type->traits & LS_MIXER_POSITIONS) != 0;
    if (!takes && a->keys->position[0] != '\0')
        return LS_FAIL(a->ctx, LS_EUSE, "mixer %s takes no position method", a->mixer.type->name);
    if (takes) {
        const char *name = a->keys->position[0] == '\0' ? "none" : a->keys->position;
        LS_TRY(ls_position_choose(a->ctx, name, &a->position));
        a->position.trained_length = a->keys->trained_length;
        LS_TRY(ls_settings_apply(a->ctx, settings, "position", &a->position.type->options,
                                 a->position.options));
        LS_TRY(ls_position_extensions_read(a->ctx, settings, &a->position));
        a->mixer.position = &a->position;
    }
    return ls_cli_finish_settings(a->cli);
}

/* Heads of a file have no projections, and are as wide as they are. */
static ls_status fit_heads(applied *a) {
    const ls_option_table *table = &a->mixer.type->options;
    char width[32];
    if (a->heads.H == 0) return LS_OK;
    if (ls_options_find(table, "head_width") == NULL)
        return LS_FAIL(a->ctx, LS_EUSE, "mixer %s cannot be given queries, keys and values",
                       a->mixer.type->name);
    snprintf(width, sizeof width, "%lld", (long long)a->heads.W);
    LS_TRY(ls_options_set(a->ctx, table, "", "head_width", width, a->mixer_options));
    LS_TRY(ls_options_set(a->ctx, table, "", "bias", "false", a->mixer_options));
    snprintf(width, sizeof width, "%lld", (long long)a->heads.H);
    LS_TRY(ls_options_set(a->ctx, table, "", "heads", width, a->mixer_options));
    return ls_options_set(a->ctx, table, "", "out_bias", "false", a->mixer_options);
}

/* Whether a weight of public code is the mixer's parameter of this name. */
static bool is_called(const ls_mixer_type *type, const char *name, const char *ours) {
    char found[LS_SAFETENSORS_NAME_MOST];
    bool called = strcmp(name, ours) == 0;
    for (const ls_alias *alias = type->aliases; alias && alias->official && !called; alias++)
        called = alias->ours != NULL && strcmp(alias->ours, ours) == 0 &&
                 ls_name_fits(alias->official, name, ours, found, sizeof found);
    return called;
}

/* A low rank is that of the file. */
static ls_status fit_rank(applied *a) {
    const ls_safetensors *file = a->golden ? &a->input : &a->weights;
    const ls_option_table *table = &a->mixer.type->options;
    char rank[32];
    if (ls_options_find(table, "rank") == NULL) return LS_OK;
    for (size_t i = 0; i < file->count; i++) {
        const ls_safetensor *tensor = &file->items[i];
        const char *name = weight_name(a, tensor->name);
        if (name == NULL || tensor->rank != 4 || !is_called(a->mixer.type, name, "P")) continue;
        snprintf(rank, sizeof rank, "%lld", (long long)tensor->dim[0]);
        return ls_options_set(a->ctx, table, "", "rank", rank, a->mixer_options);
    }
    return LS_OK;
}

static ls_status open_files(applied *a) {
    const ls_apply_keys *keys = a->keys;
    a->golden = keys->golden[0] != '\0';
    if (!a->golden &&
        (keys->weights[0] == '\0' || keys->input[0] == '\0' || keys->output[0] == '\0'))
        return LS_FAIL(a->ctx, LS_EUSE, "give weights=, input= and output=, or golden=");
    LS_TRY(ls_safetensors_open(a->ctx, a->golden ? keys->golden : keys->input, &a->input));
    a->input_open = true;
    if (!a->golden) LS_TRY(ls_safetensors_open(a->ctx, keys->weights, &a->weights));
    a->weights_open = !a->golden;
    const char *z = a->golden ? "in.z" : "z";
    if (a->golden) LS_TRY(ls_bare_heads_find(a->ctx, &a->input, "in.", &a->heads));
    if (a->heads.H > 0)
        LS_TRY(read_heads(a, "in."));
    else
        LS_TRY(read_rows(a, a->golden ? "in.x" : "x", &a->T, &a->D, &a->x));
    LS_TRY(read_mask(a, a->golden ? "in.mask" : "mask"));
    if (ls_safetensors_find(&a->input, z) == NULL) return LS_OK;
    if (!(a->mixer.type->traits & LS_MIXER_LATENTS))
        return LS_FAIL(a->ctx, LS_EUSE, "the file gives latents %s, which mixer %s does not take",
                       z, a->mixer.type->name);
    return read_rows(a, z, &a->latents, &a->latent_width, &a->z);
}

/* Once the shape of y is known. */
static ls_status make_room(applied *a) {
    const bool has_cot = ls_safetensors_find(&a->input, "cot") != NULL;
    if (a->keys->grad || (a->golden && has_cot)) LS_TRY(read_outputs(a, "cot", &a->cot));
    if (a->cot != NULL) LS_TRY(clear_void(a, a->cot));
    a->y = ls_new(a->ctx, (size_t)(a->B * a->out_T * a->out_D), sizeof *a->y);
    a->grad_x = ls_new(a->ctx, (size_t)(a->B * a->T * a->D), sizeof *a->grad_x);
    if (a->z != NULL)
        a->grad_z =
            ls_new(a->ctx, (size_t)(a->B * a->latents * a->latent_width), sizeof *a->grad_z);
    const bool lacks = a->y == NULL || a->grad_x == NULL || (a->z != NULL && a->grad_z == NULL);
    return lacks ? LS_ENOMEM : LS_OK;
}

static ls_status apply(applied *a) {
    int64_t cuts[LS_OPTION_REALS_MOST] = {a->keys->cut.count == 0 ? INT64_MAX : 0};
    LS_TRY(choose(a));
    LS_TRY(open_files(a));
    LS_TRY(fit_heads(a));
    LS_TRY(fit_rank(a));
    a->mixer.width = a->D;
    LS_TRY(ls_mixer_check(a->ctx, &a->mixer));
    LS_TRY(declare(a));
    LS_TRY(make_room(a));
    LS_TRY(load_weights(a));
    LS_TRY(run_whole(a));
    if (a->golden) {
        ls_comparison comparison = {0};
        ls_status status = compare_all(a, &comparison);
        if (status == LS_OK) return ls_comparison_print(a->cli, &comparison);
        json_decref(comparison.rows);
        return status;
    }
    LS_TRY(ls_apply_cuts(a->ctx, "cut", &a->keys->cut, cuts));
    if (a->keys->cut.count > 0 || ls_safetensors_find(&a->input, "state") != NULL)
        LS_TRY(run_cut(a, cuts, ls_max(a->keys->cut.count, 1), a->y));
    return write_output(a);
}

ls_status ls_apply_mixer(ls_cli *cli, const ls_apply_keys *keys) {
    applied a = {.cli = cli, .ctx = &cli->ctx, .keys = keys, .type = ls_cli_dtype(keys->dtype)};
    ls_status status = apply(&a);
    if (a.input_open) ls_safetensors_close(a.ctx, &a.input);
    if (a.weights_open) ls_safetensors_close(a.ctx, &a.weights);
    ls_parameters_free(a.store);
    ls_position_clear(a.ctx, &a.position);
    ls_free(a.ctx, a.mixer_options);
    ls_free(a.ctx, a.x);
    ls_free(a.ctx, a.z);
    ls_free(a.ctx, a.mask);
    ls_free(a.ctx, a.cot);
    ls_free(a.ctx, a.y);
    ls_free(a.ctx, a.grad_x);
    ls_free(a.ctx, a.grad_z);
    ls_free(a.ctx, a.set);
    ls_text_clear(a.ctx, &a.state);
    return status;
}
