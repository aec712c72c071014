/* Where a tensor of a public checkpoint stands among our parameters, and in which order: values go
 * either way, gradients outwards. */
#ifndef LS_MODEL_WEIGHT_MAP_H
#define LS_MODEL_WEIGHT_MAP_H

#include "mixer/mixer.h"
#include "model/safetensors.h"
#include "tensor/engine/parameter.h"
#include "tensor/ops.h"

enum { LS_WEIGHT_PARTS_MAX = LS_CLUSTERS_MAX };

/* Where a tensor's rows stand. Those that the first part does not take go to the next. */
typedef struct ls_weight {
    const char *name; /* in the file, for messages */
    int parts;        /* 0: no parameter */
    struct ls_weight_part {
        const ls_parameter *parameter;
        const ls_mixer *mixer; /* whose `row` orders the rows; NULL: as they are */
        int layout;            /* the mixer's number */
        int64_t rows;          /* the first so many of the parameter are meant; 0: all */
    } part[LS_WEIGHT_PARTS_MAX];
    int flags;        /* LS_ALIAS_* */
    bool last;        /* the rows are the last ones of the parameter */
    bool reversed;    /* and come in the opposite order */
    bool plus_one;    /* ours are the file's plus 1 */
    bool log_negated; /* ours are the logarithms of the file's, which are negative */
    /* where there are no parts: what the mixer has in its place, or NULL: the naming says that it
     * is nothing */
    const ls_buffer *buffer;
    const ls_mixer *buffer_mixer;
} ls_weight;

/* What a mixer makes of the name of a weight below it. Its parameters are in the scope `scope`
 * ("layers.0.mixer." or ""), those that layers share in `root`. LS_EINPUT where it knows none. The
 * mixer stays borrowed. */
ls_status ls_weight_of_mixer(ls_ctx *ctx, const ls_parameters *store, const ls_mixer *mixer,
                             const char *scope, const char *root, const char *name, ls_weight *out);
/* How many axes of the tensor are not what the options make of the parameters (0: it fits), for
 * who looks for options; adds to `set`, per parameter, the elements that it would give. */
int ls_weight_misfit(const ls_parameters *store, const ls_weight *weight,
                     const ls_safetensor *tensor, int64_t *set);
/* Sets the parameters from the tensor and adds to `set`, per parameter, how many elements. What
 * moves and is not given becomes 0. LS_EUSE where the options make other shapes. */
ls_status ls_weight_load(ls_ctx *ctx, ls_parameters *store, const ls_weight *weight,
                         const ls_safetensor *tensor, int64_t *set);
/* The other way: the parameters' values in the order of a tensor of this shape, whose data is not
 * read. */
ls_status ls_weight_values(ls_ctx *ctx, const ls_parameters *store, const ls_weight *weight,
                           const ls_safetensor *shape, double *out);
/* Adds the parameters' gradients to `out` in the order of the tensor. */
ls_status ls_weight_gradient(ls_ctx *ctx, const ls_parameters *store, const ls_weight *weight,
                             const ls_safetensor *tensor, double *out);

#endif
