/* The blocks that GGUF files keep values in, one after the other: a scale or several and small
 * whole numbers. Values come out exactly as ggml makes them. */
#ifndef LS_MODEL_BLOCKS_H
#define LS_MODEL_BLOCKS_H

#include "base/gguf.h"
#include "model/safetensors.h"

/* A tensor of a GGUF file as the rest of the program has them; stays borrowed. */
ls_safetensor ls_blocks_tensor(const ls_gguf_tensor *tensor);

/* Whether the type is one of blocks: `count` of them, as floats. */
bool ls_blocks_known(uint32_t type);
void ls_blocks_f32(uint32_t type, const uint8_t *blocks, int64_t count, float *out);

/* The other way, for the types that are written: whole blocks of F32, F16, BF16 or Q8_0; gives the
 * bytes that were made. */
size_t ls_blocks_pack(uint32_t type, const float *values, int64_t count, uint8_t *out);

float ls_f16_value(uint16_t bits);
uint16_t ls_f16_bits(float value); /* to the nearest, halves to even */

#endif
