#include "tensor/engine/adapter.h"

#include <math.h>
#include <string.h>

/* Whether `part`, `length` bytes long, is words of a dotted name. */
static bool has_words(const char *name, const char *part, size_t length) {
    for (const char *at = name; (at = strchr(at, part[0])) != NULL; at++)
        if (strncmp(at, part, length) == 0 && (at == name || at[-1] == '.') &&
            (at[length] == '.' || at[length] == '\0'))
            return true;
    return false;
}

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* Tables of tokens, types and positions. */
static bool is_embedding(const char *name) {
    return strncmp(name, "embed.", 6) == 0 || strstr(name, ".embed.") != NULL ||
           strncmp(name, "position.", 9) == 0;
}

double ls_adapter_scale(const ls_adapter *adapter) {
    const double rank = (double)adapter->rank;
    return adapter->alpha / (adapter->rs ? sqrt(rank) : rank);
}

bool ls_adapter_owns(const char *name) {
    return ends_with(name, ".lora_A.weight") || ends_with(name, ".lora_B.weight");
}

bool ls_adapter_targets(const ls_adapter *adapter, const char *name) {
    if (adapter->rank == 0 || !ends_with(name, ".weight")) return false;
    if (is_embedding(name) || strncmp(name, "head.", 5) == 0) return false;
    for (const char *at = adapter->targets; *at != '\0';) {
        const size_t length = strcspn(at, ",");
        if (length > 0 && (has_words(name, at, length) || (length == 3 && !strncmp(at, "all", 3))))
            return true;
        at += length + (at[length] == ',');
    }
    return false;
}

bool ls_adapter_trains(const ls_adapter *adapter, const char *name) {
    if (adapter->rank == 0 || ls_adapter_owns(name)) return true;
    if (adapter->norms && strstr(name, "norm") != NULL) return true;
    return adapter->embeddings && is_embedding(name);
}
