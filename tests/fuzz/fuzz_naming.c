/* Rules of a naming: any bytes are rules or an error, and whatever they make of a name is one of a
 * mixer's parameters, one of its tables, or an error. The first line is the name. */
#include <stdlib.h>
#include <string.h>

#include "model/public_weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static const struct {
        const char *name;
        int rank;
        int64_t dim[2];
    } parameters[] = {{"out.weight", 2, {8, 8}}, {"qkv.bias", 1, {24}}, {"qkv.weight", 2, {24, 8}}};
    ls_ctx ctx = ls_ctx_default();
    ls_naming naming = {0};
    ls_parameters *store = NULL;
    ls_mixer mixer = {.type = ls_mixer_find("attention"), .width = 8, .causal = true};
    ls_text text = {0};
    void *options = ls_new(&ctx, 1, mixer.type->options.size);
    ls_text_append(&ctx, &text, bytes, length);
    if (options == NULL || text.bytes == NULL || memchr(text.bytes, '\0', text.length) != NULL)
        goto done;
    char *rules = strchr(text.bytes, '\n');
    if (rules == NULL || rules - text.bytes > LS_SAFETENSORS_NAME_MAX) goto done;
    *rules++ = '\0';
    ls_options_default(&ctx, &mixer.type->options, options);
    mixer.options = options;
    if (ls_parameters_new(&ctx, LS_F64, &store) != LS_OK) goto done;
    for (int i = 0; i < 3; i++) {
        size_t index;
        ls_parameters_declare(store, parameters[i].name, parameters[i].rank, parameters[i].dim,
                              (ls_init){0}, &index);
    }
    if (ls_naming_parse(&ctx, "rules", rules, &naming) == LS_OK) {
        const ls_public_scope scope = {store, &naming, NULL, &mixer};
        const ls_safetensor tensor = {.name = text.bytes, .rank = 2, .dim = {8, 8}, .count = 64};
        int64_t set[3] = {0};
        ls_weight weight;
        if (ls_public_weight(&ctx, &scope, text.bytes, &weight) == LS_OK) {
            if (weight.parts < 0 || weight.parts > LS_WEIGHT_PARTS_MAX) abort();
            ls_weight_misfit(store, &weight, &tensor, set);
        }
    }
done:
    ls_naming_clear(&ctx, &naming);
    ls_parameters_free(store);
    ls_text_clear(&ctx, &text);
    ls_free(&ctx, options);
    return 0;
}
