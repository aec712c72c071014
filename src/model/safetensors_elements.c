/* The elements of a stored tensor, whatever their type, as numbers to compute with. */
#include <string.h>

#include "model/blocks.h"
#include "model/safetensors.h"
#include "tensor/engine/dtype.h"

const char *ls_safetensor_type_name(const ls_safetensor *tensor) {
    return tensor->block == 0 ? ls_stored_name(tensor->type) : ls_gguf_type_of(tensor->block)->name;
}

enum { BLOCK_MOST = 256 };

/* The rest of a block from element `first` on, at most `count`; gives how many. */
static int64_t part_of_block(const ls_safetensor *tensor, int64_t first, int64_t count,
                             float *out) {
    const ls_gguf_type *about = ls_gguf_type_of(tensor->block);
    float values[BLOCK_MOST];
    const int64_t from = first % about->values, here = ls_min(count, about->values - from);
    ls_blocks_f32(tensor->block, tensor->data + first / about->values * about->bytes, 1, values);
    memcpy(out, values + from, (size_t)here * sizeof *out);
    return here;
}

static void blocks_f32(const ls_safetensor *tensor, int64_t first, int64_t count, float *out) {
    const ls_gguf_type *about = ls_gguf_type_of(tensor->block);
    int64_t done = first % about->values == 0 ? 0 : part_of_block(tensor, first, count, out);
    const int64_t whole = (count - done) / about->values;
    ls_blocks_f32(tensor->block, tensor->data + (first + done) / about->values * about->bytes,
                  whole, out + done);
    done += whole * about->values;
    if (done < count) part_of_block(tensor, first + done, count - done, out + done);
}

static void blocks_f64(const ls_safetensor *tensor, int64_t first, int64_t count, double *out) {
    float values[BLOCK_MOST];
    for (int64_t done = 0; done < count;) {
        const int64_t here = part_of_block(tensor, first + done, count - done, values);
        for (int64_t i = 0; i < here; i++) out[done + i] = values[i];
        done += here;
    }
}

/* Reads element by element through memcpy, since a file's data may lie at any address. */
#define CONVERT(out_type)                                                                          \
    const uint8_t *at = tensor->data + (size_t)first * ls_stored_size(tensor->type);               \
    switch (tensor->type) {                                                                        \
        CASE(F64, double, out_type, (out_type)x)                                                   \
        CASE(F32, float, out_type, (out_type)x)                                                    \
        CASE(BF16, uint16_t, out_type, (out_type)ls_bf16_to_f32(x))                                \
        CASE(F16, uint16_t, out_type, (out_type)ls_f16_value(x))                                   \
        CASE(I64, int64_t, out_type, (out_type)x)                                                  \
        CASE(I32, int32_t, out_type, (out_type)x)                                                  \
        CASE(I16, int16_t, out_type, (out_type)x)                                                  \
        CASE(I8, int8_t, out_type, (out_type)x)                                                    \
        CASE(U64, uint64_t, out_type, (out_type)x)                                                 \
        CASE(U32, uint32_t, out_type, (out_type)x)                                                 \
        CASE(U16, uint16_t, out_type, (out_type)x)                                                 \
        CASE(U8, uint8_t, out_type, (out_type)x)                                                   \
        CASE(BOOL, uint8_t, out_type, (out_type)(x != 0))                                          \
    }
#define CASE(type, c_type, out_type, value)                                                        \
    case LS_STORED_##type:                                                                         \
        for (int64_t i = 0; i < count; i++) {                                                      \
            c_type x;                                                                              \
            memcpy(&x, at + (size_t)i * sizeof x, sizeof x);                                       \
            out[i] = value;                                                                        \
        }                                                                                          \
        break;

void ls_safetensor_f64(const ls_safetensor *tensor, int64_t first, int64_t count, double *out) {
    if (tensor->block != 0) {
        blocks_f64(tensor, first, count, out);
        return;
    }
    CONVERT(double)
}

void ls_safetensor_f32(const ls_safetensor *tensor, int64_t first, int64_t count, float *out) {
    if (tensor->block != 0) {
        blocks_f32(tensor, first, count, out);
        return;
    }
    CONVERT(float)
}

static void read_bf16(const ls_safetensor *tensor, int64_t first, int64_t count, ls_bf16 *out) {
    float values[BLOCK_MOST];
    if (tensor->type == LS_STORED_BF16) {
        memcpy(out, tensor->data + (size_t)first * sizeof *out, (size_t)count * sizeof *out);
        return;
    }
    for (int64_t done = 0; done < count; done += BLOCK_MOST) {
        const int64_t now = ls_min(count - done, BLOCK_MOST);
        ls_safetensor_f32(tensor, first + done, now, values);
        for (int64_t i = 0; i < now; i++) out[done + i] = ls_bf16_from_f32(values[i]);
    }
}

void ls_safetensor_read(const ls_safetensor *tensor, int64_t first, int64_t count, ls_dtype type,
                        void *out) {
    if (type == LS_F64)
        ls_safetensor_f64(tensor, first, count, out);
    else if (type == LS_BF16)
        read_bf16(tensor, first, count, out);
    else
        ls_safetensor_f32(tensor, first, count, out);
}

ls_status ls_safetensor_i32(ls_ctx *ctx, const ls_safetensor *tensor, int64_t first, int64_t count,
                            int32_t *out) {
    if (tensor->type <= LS_STORED_F16)
        return LS_FAIL(ctx, LS_EINPUT, "tensor %s holds %s, not whole numbers", tensor->name,
                       ls_stored_name(tensor->type));
    for (int64_t i = 0; i < count; i++) {
        double value = 0;
        ls_safetensor_f64(tensor, first + i, 1, &value);
        if (value < INT32_MIN || value > INT32_MAX)
            return LS_FAIL(ctx, LS_EINPUT, "tensor %s: element %lld does not fit 32 bits",
                           tensor->name, (long long)(first + i));
        out[i] = (int32_t)value;
    }
    return LS_OK;
}

ls_status ls_safetensor_values(ls_ctx *ctx, const ls_safetensor *tensor, double **out) {
    *out = ls_new(ctx, (size_t)ls_max(tensor->count, 1), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    ls_safetensor_f64(tensor, 0, tensor->count, *out);
    return LS_OK;
}

void ls_stored_round(const double *values, int64_t count, ls_stored_type type, void *out) {
    for (int64_t i = 0; i < count; i++) {
        if (type == LS_STORED_F64)
            ((double *)out)[i] = values[i];
        else if (type == LS_STORED_BF16)
            ((ls_bf16 *)out)[i] = ls_bf16_from_f32((float)values[i]);
        else if (type == LS_STORED_F16)
            ((uint16_t *)out)[i] = ls_f16_bits((float)values[i]);
        else
            ((float *)out)[i] = (float)values[i];
    }
}
