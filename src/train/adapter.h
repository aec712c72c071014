/* Adapters in files, named as peft names them, and the way back into a model's weights.
 *
 * adapter_model.safetensors holds base_model.model.X.lora_A.weight, X.lora_B.weight, and what else
 * was trained whole; its metadata the hash of the weights that it stands beside. */
#ifndef LS_TRAIN_ADAPTER_H
#define LS_TRAIN_ADAPTER_H

#include "base/json.h"
#include "model/safetensors.h"
#include "tensor/engine/parameter.h"

#define LS_ADAPTER_WEIGHTS "adapter_model.safetensors"
#define LS_ADAPTER_CONFIG "adapter_config.json"
#define LS_ADAPTER_PREFIX "base_model.model."
#define LS_ADAPTER_BASE "base_hash" /* in the metadata */

/* Of the weights that a model has without its adapter: the same for any file they came from. */
ls_status ls_adapter_hash(const ls_parameters *store, uint64_t *out);
/* adapter_config.json for the names of a store's trained part, or for those of others. */
typedef struct ls_adapter_names {
    json_t *targets, *saved; /* arrays: modules that are adapted, and those that are stored whole */
    bool transposed;         /* the weights of the others are [in, out] */
} ls_adapter_names;
ls_status ls_adapter_put_config(ls_ctx *ctx, const ls_adapter *adapter,
                                const ls_adapter_names *names, const char *path);
ls_status ls_adapter_write_config(ls_ctx *ctx, const ls_parameters *trained, const char *path);
/* LS_EINPUT where the file is of an adapter of other weights than those that adapter->base_hash
 * names. */
ls_status ls_adapter_check_base(ls_ctx *ctx, const ls_safetensors *file, const char *path,
                                const ls_adapter *adapter);
/* W + s B A in place of W, in the master's type, and what was trained whole in place of what there
 * was, for a store of the plain model with the base's weights. LS_EINPUT where these are others
 * than the adapter was trained on, or the file does not fit. */
ls_status ls_adapter_merge(ls_ctx *ctx, const char *path, const ls_adapter *adapter,
                           ls_parameters *store);

#endif
