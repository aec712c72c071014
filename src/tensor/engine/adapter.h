/* Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685): a product y = W x + b becomes
 * y = W x + b + s B A drop(x), where A [r, in] and B [out, r] are trained and all that was there
 * before is not. ls_linear does it for every weight that a store's adapter names, so no mixer knows
 * of it. A and B are parameters beside the weight: X.weight has X.lora_A.weight and
 * X.lora_B.weight. */
#ifndef LS_TENSOR_ADAPTER_H
#define LS_TENSOR_ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_ADAPTER_TEXT = 512 };

typedef struct ls_adapter {
    int64_t rank; /* r; 0: there is none, and everything is trained */
    double alpha; /* s = alpha / r, with `rs` alpha / sqrt(r) (rsLoRA, arXiv 2312.03732) */
    bool rs;
    double dropout; /* of the adapter's input */
    /* Names with commas between them: a weight is adapted where one of them is a part of its name,
     * of whole words between dots ("mixer", "mixer.out"); "all": every weight. Never those of the
     * embedding and of the output. */
    char targets[LS_ADAPTER_TEXT];
    bool embeddings, norms; /* are trained as well */
    /* The weights it stands beside: where they were, and their hash. For its files. */
    char base[LS_ADAPTER_TEXT];
    uint64_t base_hash;
} ls_adapter;

double ls_adapter_scale(const ls_adapter *adapter); /* s */

/* Whether the weight of a product is adapted. */
bool ls_adapter_targets(const ls_adapter *adapter, const char *name);
/* Whether a name is that of an A or a B. */
bool ls_adapter_owns(const char *name);
/* Whether a parameter is trained: A, B, and what the adapter says. */
bool ls_adapter_trains(const ls_adapter *adapter, const char *name);

#endif
