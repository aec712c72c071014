/* An adapter under the names that its base has in the files of others.
 *
 * How rows and columns of our weights lie in a public tensor is found by asking for tensors whose
 * elements are their own row and column: what leads a weight there leads the rows of B and the
 * columns of A. */
#include <stdio.h>
#include <string.h>

#include "model/family_write.h"
#include "train/adapter.h"
#include "train/export.h"
#include "train/train.h"

enum { PATH_BYTES = 4096, NAME_BYTES = LS_SAFETENSORS_NAME_MAX };

/* A tensor of the adapter that is written. */
typedef struct piece {
    char name[NAME_BYTES];
    int64_t dim[LS_SAFETENSORS_RANK_MAX];
    int rank;
    float *values; /* owned */
} piece;

typedef struct peft {
    ls_ctx *ctx;
    ls_adapter adapter;
    ls_adapter_names names;
    ls_safetensors file; /* the run's own */
    ls_public_scope scope;
    ls_parameters here, probe; /* the model, and one whose elements name themselves */
    piece *pieces;
    size_t count, capacity;
} peft;

static ls_status add_piece(peft *all, const char *module, int length, const char *end, int rank,
                           const int64_t *dim, piece **out) {
    int64_t count = 1;
    if (!ls_array_reserve(all->ctx, &all->pieces, &all->capacity, all->count + 1,
                          sizeof *all->pieces))
        return LS_ENOMEM;
    piece *made = *out = &all->pieces[all->count++];
    *made = (piece){.rank = rank};
    for (int i = 0; i < rank; i++) count *= made->dim[i] = dim[i];
    if ((size_t)snprintf(made->name, sizeof made->name, LS_ADAPTER_PREFIX "%.*s%s", length, module,
                         end) >= sizeof made->name)
        return LS_FAIL(all->ctx, LS_EUSE, "the name %.64s... is too long", module);
    made->values = ls_new_raw(all->ctx, (size_t)count, sizeof *made->values);
    return made->values == NULL ? LS_ENOMEM : LS_OK;
}

enum { APART = 16 }; /* so that what is stored less 1 still tells its parameter */
typedef enum { PROBE_PARAMETER, PROBE_ROW, PROBE_COLUMN } probe_kind;

static void fill_probe(peft *all, probe_kind kind) {
    float *values = all->probe.master;
    for (size_t i = 0; i < all->probe.count; i++) {
        const ls_parameter *item = &all->probe.items[i];
        const int64_t width = item->rank == 2 ? item->dim[1] : 1;
        for (int64_t j = 0; j < item->count; j++)
            values[item->offset + j] = kind == PROBE_PARAMETER ? (float)(APART * i)
                                       : kind == PROBE_ROW     ? (float)(j / width)
                                                               : (float)(j % width);
    }
}

static ls_status ask_probe(peft *all, probe_kind kind, const ls_family_tensor *tensor,
                           double *out) {
    ls_public_scope scope = all->scope;
    scope.store = &all->probe;
    fill_probe(all, kind);
    return ls_public_values(all->ctx, &scope, &tensor->shape, out);
}

static void add_name(json_t *list, const char *name, int length) {
    size_t i;
    json_t *known;
    json_array_foreach(
        list, i, known) if (json_string_length(known) == (size_t)length &&
                            strncmp(json_string_value(known), name, (size_t)length) == 0) return;
    json_array_append_new(list, json_stringn(name, (size_t)length));
}

static const ls_safetensor *own_tensor(const peft *all, const char *name, int length,
                                       const char *end) {
    char full[NAME_BYTES];
    snprintf(full, sizeof full, LS_ADAPTER_PREFIX "%.*s%s", length, name, end);
    return ls_safetensors_find(&all->file, full);
}

/* A and B of a weight whose rows and columns were asked for. */
static ls_status put_adapter(peft *all, const ls_family_tensor *tensor, const ls_safetensor *a,
                             const ls_safetensor *b, const double *row, const double *column) {
    const int64_t *dim = tensor->shape.dim, r = all->adapter.rank;
    const bool transposed = dim[1] > 1 && row[0] != row[1];
    const int64_t out = dim[transposed], in = dim[!transposed];
    const int64_t step_out = transposed ? 1 : dim[1], step_in = transposed ? dim[1] : 1;
    const int length = (int)(strlen(tensor->name) - strlen(".weight"));
    piece *made_a, *made_b;
    float *A = ls_new_raw(all->ctx, (size_t)a->count, sizeof *A);
    float *B = ls_new_raw(all->ctx, (size_t)b->count, sizeof *B);
    ls_status status = A == NULL || B == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK)
        status = add_piece(all, tensor->name, length, ".lora_A.weight", 2, (const int64_t[]){r, in},
                           &made_a);
    if (status == LS_OK)
        status = add_piece(all, tensor->name, length, ".lora_B.weight", 2,
                           (const int64_t[]){out, r}, &made_b);
    if (status == LS_OK) {
        made_a = made_b - 1; /* the list may have moved */
        ls_safetensor_read(a, 0, a->count, LS_F32, A);
        ls_safetensor_read(b, 0, b->count, LS_F32, B);
        for (int64_t k = 0; k < r; k++)
            for (int64_t i = 0; i < in; i++)
                made_a->values[k * in + i] = A[k * a->dim[1] + (int64_t)column[i * step_in]];
        for (int64_t o = 0; o < out; o++)
            memcpy(&made_b->values[o * r], &B[(int64_t)row[o * step_out] * r],
                   (size_t)r * sizeof *B);
        all->names.transposed |= transposed;
        add_name(all->names.targets, tensor->name, length);
    }
    ls_free(all->ctx, A);
    ls_free(all->ctx, B);
    return status;
}

/* What was trained whole, under a name. */
static ls_status put_whole(peft *all, const ls_family_tensor *tensor, const char *name) {
    double *values = ls_new_raw(all->ctx, (size_t)tensor->shape.count, sizeof *values);
    piece *made;
    ls_status status = values == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) status = ls_public_values(all->ctx, &all->scope, &tensor->shape, values);
    if (status == LS_OK)
        status = add_piece(all, name, (int)strlen(name), "", tensor->shape.rank, tensor->shape.dim,
                           &made);
    for (int64_t i = 0; status == LS_OK && i < tensor->shape.count; i++)
        made->values[i] = (float)values[i];
    if (status == LS_OK) add_name(all->names.saved, name, (int)(strrchr(name, '.') - name));
    ls_free(all->ctx, values);
    return status;
}

/* A head that is the embedding is one more module to peft. */
static ls_status put_saved(peft *all, const ls_family_tensor *tensor, const ls_parameter *item,
                           const char *head) {
    if (strrchr(tensor->name, '.') == NULL)
        return LS_FAIL(all->ctx, LS_EUSE, "peft has no name for %s", tensor->name);
    LS_TRY(put_whole(all, tensor, tensor->name));
    if (strcmp(item->name, "embed.weight") != 0 || !all->scope.config->model.tied) return LS_OK;
    return put_whole(all, tensor, head);
}

static ls_status put_tensor(peft *all, const ls_family_tensor *tensor, const char *head) {
    const int64_t count = tensor->shape.count;
    double *asked = ls_new_raw(all->ctx, (size_t)count, 3 * sizeof *asked);
    ls_status status = asked == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) status = ask_probe(all, PROBE_PARAMETER, tensor, asked);
    if (status == LS_OK) {
        const int64_t which = (int64_t)(asked[0] + APART / 2) / APART;
        const ls_parameter *item = &all->probe.items[ls_min(which, (int64_t)all->probe.count - 1)];
        const int length = (int)strlen(item->name), stem = length - (int)strlen(".weight");
        const ls_safetensor *a = NULL, *b = NULL;
        if (item->rank == 2 && tensor->shape.rank == 2 && stem > 0) {
            a = own_tensor(all, item->name, stem, ".lora_A.weight");
            b = own_tensor(all, item->name, stem, ".lora_B.weight");
        }
        if (a != NULL && b != NULL) {
            status = ask_probe(all, PROBE_ROW, tensor, asked + count);
            if (status == LS_OK) status = ask_probe(all, PROBE_COLUMN, tensor, asked + 2 * count);
            if (status == LS_OK)
                status = put_adapter(all, tensor, a, b, asked + count, asked + 2 * count);
        } else if (own_tensor(all, item->name, length, "") != NULL) {
            status = put_saved(all, tensor, item, head);
        }
    }
    ls_free(all->ctx, asked);
    return status;
}

static ls_status write_pieces(peft *all, const char *folder) {
    static const ls_stored_text format = {"format", "pt"};
    char path[PATH_BYTES];
    FILE *file;
    ls_safetensor_source *sources = ls_new(all->ctx, all->count + 1, sizeof *sources);
    if (sources == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < all->count; i++)
        sources[i] = (ls_safetensor_source){.name = all->pieces[i].name,
                                            .type = LS_STORED_F32,
                                            .rank = all->pieces[i].rank,
                                            .dim = all->pieces[i].dim,
                                            .data = all->pieces[i].values};
    ls_status status = ls_path_join(all->ctx, path, sizeof path, folder, LS_ADAPTER_WEIGHTS);
    if (status == LS_OK) status = ls_file_create(all->ctx, path, false, &file);
    if (status == LS_OK) {
        status =
            ls_safetensors_put(all->ctx, file, path, sources, all->count, &format, 1, NULL, NULL);
        if (status == LS_OK)
            status = ls_file_finish(all->ctx, file, path);
        else
            fclose(file);
    }
    ls_free(all->ctx, sources);
    if (status == LS_OK)
        status = ls_path_join(all->ctx, path, sizeof path, folder, LS_ADAPTER_CONFIG);
    return status == LS_OK ? ls_adapter_put_config(all->ctx, &all->adapter, &all->names, path)
                           : status;
}

static ls_status put_all(peft *all, const ls_family_layout *layout, const char *folder) {
    ls_family_tensor *tensors = NULL;
    size_t count = 0;
    ls_status status = ls_family_tensors(all->ctx, layout, &all->scope, &tensors, &count);
    for (size_t i = 0; status == LS_OK && i < count; i++)
        status = put_tensor(all, &tensors[i], layout->head);
    ls_free(all->ctx, tensors);
    return status == LS_OK ? write_pieces(all, folder) : status;
}

static ls_status read_adapter(const ls_trained *trained, ls_adapter *out) {
    ls_train_settings train;
    if (!trained->adapter)
        return LS_FAIL(trained->ctx, LS_EUSE,
                       "%s has no adapter: to=peft is for a run that was trained with "
                       "train.lora.rank",
                       trained->folder);
    LS_TRY(ls_options_default(trained->ctx, &ls_train_options, &train));
    LS_TRY(ls_settings_apply(trained->ctx, &trained->settings, "train", &ls_train_options, NULL,
                             &train));
    *out = ls_train_adapter(&train);
    return LS_OK;
}

ls_status ls__export_peft(const ls_trained *trained, const ls_family_type *type,
                          const char *folder) {
    ls_ctx *ctx = trained->ctx;
    const ls_parameters *store = trained->model->store;
    const ls_family_layout layout = ls_family_layout_of(type, &trained->config);
    peft all = {.ctx = ctx, .here = *store, .probe = *store};
    ls_naming naming;
    ls_status status;
    LS_TRY(read_adapter(trained, &all.adapter));
    LS_TRY(ls_naming_read(ctx, type->names == NULL ? "" : type->names,
                          type->rules == NULL ? "" : type->rules, &naming));
    ls_mixer *mixers = ls_public_mixers(ctx, &trained->config);
    all.scope = (ls_public_scope){&all.here, &naming, &trained->config, mixers};
    all.names = (ls_adapter_names){.targets = json_array(), .saved = json_array()};
    all.here.master = NULL;
    all.probe.master = ls_new(ctx, (size_t)store->total, sizeof(float));
    status = mixers == NULL || all.probe.master == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) status = ls_parameters_fetch(store, store->master, &all.here.master);
    if (status == LS_OK) status = ls_safetensors_open(ctx, trained->weights, &all.file);
    if (status == LS_OK) {
        status = put_all(&all, &layout, folder);
        if (status == LS_OK) status = ls_safetensors_check(ctx, &all.file);
        ls_safetensors_close(ctx, &all.file);
    }
    for (size_t i = 0; i < all.count; i++) ls_free(ctx, all.pieces[i].values);
    ls_free(ctx, all.pieces);
    json_decref(all.names.targets);
    json_decref(all.names.saved);
    ls_parameters_release(store, store->master, all.here.master, false);
    ls_free(ctx, all.probe.master);
    ls_free(ctx, mixers);
    ls_naming_clear(ctx, &naming);
    return status;
}
