/* The elements of a stored tensor, whatever their type, as numbers to compute with. */
#include <string.h>

#include "model/blocks.h"
#include "model/safetensors.h"
#include "tensor/engine/dtype.h"

const char *ls_safetensor_type_name(const ls_safetensor *tensor) {
    return tensor->block == 0 ? ls_stored_name(tensor->type) : ls_gguf_type_of(tensor->block)->name;
}

void ls_safetensor_bytes(const ls_safetensor *tensor, size_t first, size_t count, void *out) {
    if (tensor->data != NULL)
        memcpy(out, tensor->data + first, count);
    else if (count > 0)
        ls_source_read(tensor->from, tensor->at + first, count, out);
}

/* Some bytes of a tensor at a time, where they are, or in `room` when they are in a file. */
enum { PIECE = 1 << 15, BLOCK_MOST = 256 };
static const uint8_t *piece_of(const ls_safetensor *tensor, int64_t first, int64_t count,
                               uint8_t room[PIECE]) {
    if (tensor->data != NULL) return tensor->data + first;
    ls_safetensor_bytes(tensor, (size_t)first, (size_t)count, room);
    return room;
}

/* The rest of a block from element `first` on, at most `count`; gives how many. */
static int64_t part_of_block(const ls_safetensor *tensor, int64_t first, int64_t count,
                             float *out) {
    const ls_gguf_type *about = ls_gguf_type_of(tensor->block);
    uint8_t room[PIECE];
    float values[BLOCK_MOST];
    const int64_t from = first % about->values, here = ls_min(count, about->values - from);
    ls_blocks_f32(tensor->block,
                  piece_of(tensor, first / about->values * about->bytes, about->bytes, room), 1,
                  values);
    memcpy(out, values + from, (size_t)here * sizeof *out);
    return here;
}

static void blocks_f32(const ls_safetensor *tensor, int64_t first, int64_t count, float *out) {
    const ls_gguf_type *about = ls_gguf_type_of(tensor->block);
    uint8_t room[PIECE];
    int64_t done = first % about->values == 0 ? 0 : part_of_block(tensor, first, count, out);
    while (count - done >= about->values) {
        const int64_t blocks =
            ls_min((count - done) / about->values, (int64_t)PIECE / about->bytes);
        const int64_t place = (first + done) / about->values * about->bytes;
        ls_blocks_f32(tensor->block, piece_of(tensor, place, blocks * about->bytes, room), blocks,
                      out + done);
        done += blocks * about->values;
    }
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
    switch (type) {                                                                                \
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
#define CASE(stored, c_type, out_type, value)                                                      \
    case LS_STORED_##stored:                                                                       \
        for (int64_t i = 0; i < count; i++) {                                                      \
            c_type x;                                                                              \
            memcpy(&x, at + (size_t)i * sizeof x, sizeof x);                                       \
            out[i] = value;                                                                        \
        }                                                                                          \
        break;

static void convert_f64(ls_stored_type type, const uint8_t *at, int64_t count, double *out) {
    CONVERT(double)
}

static void convert_f32(ls_stored_type type, const uint8_t *at, int64_t count, float *out) {
    CONVERT(float)
}

void ls_safetensor_f64(const ls_safetensor *tensor, int64_t first, int64_t count, double *out) {
    const int64_t size = (int64_t)ls_stored_size(tensor->type), most = PIECE / size;
    uint8_t room[PIECE];
    if (tensor->block != 0) {
        blocks_f64(tensor, first, count, out);
        return;
    }
    for (int64_t done = 0, here; done < count; done += here) {
        here = ls_min(count - done, most);
        const uint8_t *at = piece_of(tensor, (first + done) * size, here * size, room);
        convert_f64(tensor->type, at, here, out + done);
    }
}

void ls_safetensor_f32(const ls_safetensor *tensor, int64_t first, int64_t count, float *out) {
    const int64_t size = (int64_t)ls_stored_size(tensor->type), most = PIECE / size;
    uint8_t room[PIECE];
    if (tensor->block != 0) {
        blocks_f32(tensor, first, count, out);
        return;
    }
    if (tensor->type == LS_STORED_F32) { /* as it is */
        ls_safetensor_bytes(tensor, (size_t)(first * size), (size_t)(count * size), out);
        return;
    }
    for (int64_t done = 0, here; done < count; done += here) {
        here = ls_min(count - done, most);
        const uint8_t *at = piece_of(tensor, (first + done) * size, here * size, room);
        convert_f32(tensor->type, at, here, out + done);
    }
}

static void read_bf16(const ls_safetensor *tensor, int64_t first, int64_t count, ls_bf16 *out) {
    enum { FEW = PIECE / 4 };
    float values[FEW];
    if (tensor->type == LS_STORED_BF16) {
        ls_safetensor_bytes(tensor, (size_t)first * sizeof *out, (size_t)count * sizeof *out, out);
        return;
    }
    for (int64_t done = 0; done < count; done += FEW) {
        const int64_t now = ls_min(count - done, FEW);
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

static ls_status check(ls_ctx *ctx, const ls_safetensor *tensor) {
    return tensor->from == NULL ? LS_OK : ls_source_check(ctx, tensor->from);
}

ls_status ls_safetensor_hold(ls_ctx *ctx, ls_safetensor *tensor, void **out) {
    *out = NULL;
    if (tensor->data != NULL) return LS_OK;
    *out = ls_new_raw(ctx, tensor->bytes + 1, 1);
    if (*out == NULL) return LS_ENOMEM;
    ls_safetensor_bytes(tensor, 0, tensor->bytes, *out);
    tensor->data = *out;
    return LS_OK;
}

ls_status ls_safetensor_i32(ls_ctx *ctx, const ls_safetensor *tensor, int64_t first, int64_t count,
                            int32_t *out) {
    if (tensor->type <= LS_STORED_F16)
        return LS_FAIL(ctx, LS_EINPUT, "tensor %s holds %s, not whole numbers", tensor->name,
                       ls_stored_name(tensor->type));
    for (int64_t i = 0; i < count; i++) {
        double values[BLOCK_MOST];
        const int64_t at = i % BLOCK_MOST;
        if (at == 0) ls_safetensor_f64(tensor, first + i, ls_min(count - i, BLOCK_MOST), values);
        if (values[at] < INT32_MIN || values[at] > INT32_MAX)
            return LS_FAIL(ctx, LS_EINPUT, "tensor %s: element %lld does not fit 32 bits",
                           tensor->name, (long long)(first + i));
        out[i] = (int32_t)values[at];
    }
    return check(ctx, tensor);
}

ls_status ls_safetensor_values(ls_ctx *ctx, const ls_safetensor *tensor, double **out) {
    *out = ls_new(ctx, (size_t)ls_max(tensor->count, 1), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    ls_safetensor_f64(tensor, 0, tensor->count, *out);
    const ls_status status = check(ctx, tensor);
    if (status != LS_OK) {
        ls_free(ctx, *out);
        *out = NULL;
    }
    return status;
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
