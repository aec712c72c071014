/* Weights of public checkpoints in a model: which parameters a tensor is by the rules of a naming,
 * loading all of a file, and what is left over or missing then. Families of checkpoints are namings
 * on top of this. */
#ifndef LS_MODEL_PUBLIC_WEIGHTS_H
#define LS_MODEL_PUBLIC_WEIGHTS_H

#include "model/model.h"
#include "model/naming.h"
#include "model/weight_map.h"

/* Where public names lead; everything is borrowed. */
typedef struct ls_public_scope {
    const ls_parameters *store; /* declared; sealed where values move */
    const ls_naming *naming;
    const ls_model_config *config; /* NULL: `mixers` is one mixer, which is all there is */
    const ls_mixer *mixers;        /* of the layers, then of the encoder's */
} ls_public_scope;

/* The mixers of a model in the order of ls_public_scope (free with ls_free), or NULL. */
ls_mixer *ls_public_mixers(ls_ctx *ctx, const ls_model_config *config);

/* What a tensor of this name is: by the first rule "w.NAME" whose parameters there are, else by our
 * own names, or by those that a mixer alone has. A rule for a model serves a mixer alone too, which
 * then is the mixer of any layer. LS_EINPUT where no name is known; LS_EUSE where the options leave
 * out what it is. */
ls_status ls_public_weight(ls_ctx *ctx, const ls_public_scope *scope, const char *name,
                           ls_weight *out);

/* What a file and a model do not have in common: names with ", " between them. */
typedef struct ls_public_report {
    size_t loaded, buffers;       /* tensors that were read, and known ones that are no parameter */
    size_t left_over, incomplete; /* tensors of unknown names; parameters not given whole */
    ls_text left_over_names, incomplete_names;
} ls_public_report;
void ls_public_report_clear(ls_ctx *ctx, ls_public_report *report);

/* Loads all tensors of a file whose names begin with `prefix` ("": all), and rounds the store.
 * Without a report the first that is left over or incomplete is an error. */
ls_status ls_public_load(ls_ctx *ctx, const ls_public_scope *scope, const ls_safetensors *file,
                         const char *prefix, ls_parameters *store, ls_public_report *report);
/* The same into a model, by a naming. */
ls_status ls_model_load_public(ls_model *model, const ls_naming *naming, const ls_safetensors *file,
                               const char *prefix, ls_public_report *report);
/* The other way: the values of a tensor of this name and shape (the rest of `shape` is not read),
 * in `out`, which has room for shape->count. LS_EUSE where it is no parameter here. */
ls_status ls_public_values(ls_ctx *ctx, const ls_public_scope *scope, const ls_safetensor *shape,
                           double *out);
/* LS_EINPUT where a parameter has not been given whole; `set`: elements given, per parameter. */
ls_status ls_public_complete(ls_ctx *ctx, const ls_parameters *store, const int64_t *set);

#endif
