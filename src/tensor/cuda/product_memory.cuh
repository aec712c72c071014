/* What was found fastest, from run to run: a small text file of lines "key value" (neither has
 * blanks), longshot/cuda-products.txt in $XDG_CACHE_HOME or ~/.cache. Without such a folder, or
 * where it cannot be written, nothing is remembered; a line that is not understood is no line. */
#ifndef LS_TENSOR_CUDA_PRODUCT_MEMORY_H
#define LS_TENSOR_CUDA_PRODUCT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

enum { LS_PRODUCT_PATH_BYTES = 4000 };
enum { LS_PRODUCT_VALUE_BYTES = 160 }; /* of the longest value, and its zero */

typedef struct ls_product_memory {
    char path[LS_PRODUCT_PATH_BYTES];
    char *text; /* the file as it was read last, or NULL */
} ls_product_memory;

void ls_product_memory_open(ls_product_memory *memory);
void ls_product_memory_close(ls_product_memory *memory);
/* The value in the last line with this key; false where there is none that fits. */
bool ls_product_memory_find(const ls_product_memory *memory, const char *key, char *value,
                            size_t bytes);
/* Adds a line, unless another process added one with this key meanwhile: find then tells its
 * value. `instead_of` is a value that was found and is of no use, or NULL. */
void ls_product_memory_keep(ls_product_memory *memory, const char *key, const char *value,
                            const char *instead_of);

#endif
