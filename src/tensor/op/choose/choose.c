/* The most likely token, where the model is: steps can follow one another without the caller. */
#include "tensor/op/choose/choose.h"

static const ls_op choose_op = {.name = "choose"};

ls_tensor *ls_choose(ls_program *p, ls_tensor *logits, int64_t columns, ls_tensor *tokens) {
    if (ls_failed(p) || logits == NULL || tokens == NULL) return NULL;
    const int64_t B = logits->dim[0];
    if (logits->rank != 2 || columns < 1 || columns > logits->dim[1] || columns > INT32_MAX ||
        tokens->type != LS_I32 || ls_count(tokens) != B) {
        ls_refuse(p, LS_EBUG, "choose: %lld columns do not fit", (long long)columns);
        return NULL;
    }
    ls_tensor *choices = ls_constant(p, LS_I32, LS_DIMS(B, LS_CHOICES), NULL);
    const ls_choose_attributes attributes = {columns};
    ls_record(p, &choose_op, &attributes, sizeof attributes, 3,
              (ls_tensor *[]){logits, tokens, choices}, 0, NULL);
    return choices;
}
