/* Reads a case of tests/golden: tensors of a safetensors file as doubles. */
#ifndef LS_TESTS_GOLDEN_FILE_H
#define LS_TESTS_GOLDEN_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

typedef struct golden {
    ls_whole whole;
    json_t *header;
    const uint8_t *data;
} golden;

static inline void golden_open(golden *g, const char *name) {
    char path[512];
    uint64_t length;
    ls_ctx ctx = ls_ctx_default();
    snprintf(path, sizeof path, "%s/tests/golden/%s", LS_TEST_SOURCE, name);
    assert_int_equal(ls_whole_read(&ctx, path, false, &g->whole), LS_OK);
    memcpy(&length, g->whole.bytes, 8);
    assert_true(length < g->whole.length);
    assert_int_equal(
        ls_json_parse(&ctx, (const char *)g->whole.bytes + 8, (size_t)length, path, &g->header),
        LS_OK);
    g->data = g->whole.bytes + 8 + length;
}

static inline void golden_close(golden *g) {
    json_decref(g->header);
    ls_whole_free(&g->whole);
}

/* NULL where the file has no such tensor; free() it. */
static inline double *golden_tensor(const golden *g, const char *name, int64_t dim[5],
                                    size_t *count) {
    *count = 0;
    const json_t *entry = json_object_get(g->header, name);
    if (entry == NULL) return NULL;
    const json_t *shape = json_object_get(entry, "shape");
    size_t at =
        (size_t)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    *count = 1;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        dim[i] = json_integer_value(json_array_get(shape, i));
        *count *= (size_t)dim[i];
    }
    double *values = malloc(*count * sizeof *values);
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    for (size_t i = 0; i < *count; i++) {
        int32_t number;
        int64_t long_number;
        if (strcmp(type, "I32") == 0) {
            memcpy(&number, g->data + at + 4 * i, 4);
            values[i] = number;
        } else if (strcmp(type, "I64") == 0) {
            memcpy(&long_number, g->data + at + 8 * i, 8);
            values[i] = (double)long_number;
        } else {
            memcpy(&values[i], g->data + at + 8 * i, 8);
        }
    }
    return values;
}

#endif
