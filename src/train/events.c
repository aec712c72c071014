#include "train/events.h"

#include <string.h>

/* A message under construction; large enough for the most scalars with the longest tags. */
typedef struct message {
    uint8_t bytes[2048];
    size_t length;
} message;

static void put_bytes(message *m, const void *bytes, size_t length) {
    if (length > sizeof m->bytes - m->length) length = sizeof m->bytes - m->length;
    memcpy(m->bytes + m->length, bytes, length);
    m->length += length;
}

static void put_little(message *m, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) put_bytes(m, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void put_varint(message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7) put_little(m, (value & 0x7f) | 0x80, 1);
    put_little(m, value, 1);
}

/* Field numbers and wire types of event.proto and summary.proto. */
static void put_varint_field(message *m, int field, uint64_t value) {
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, value);
}

static void put_double_field(message *m, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    put_varint(m, (uint64_t)field << 3 | 1);
    put_little(m, bits, 8);
}

static void put_float_field(message *m, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    put_varint(m, (uint64_t)field << 3 | 5);
    put_little(m, bits, 4);
}

static void put_bytes_field(message *m, int field, const void *bytes, size_t length) {
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, length);
    put_bytes(m, bytes, length);
}

uint32_t ls_crc32c(const void *bytes, size_t length) {
    const uint8_t *at = bytes;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < length; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

static uint32_t masked(const void *bytes, size_t length) {
    uint32_t crc = ls_crc32c(bytes, length);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static ls_status put_record(ls_ctx *ctx, FILE *file, const char *path, const message *event) {
    message head = {.length = 0}, tail = {.length = 0};
    put_little(&head, event->length, 8);
    put_little(&head, masked(head.bytes, 8), 4);
    put_little(&tail, masked(event->bytes, event->length), 4);
    LS_TRY(ls_file_put(ctx, file, path, head.bytes, head.length));
    LS_TRY(ls_file_put(ctx, file, path, event->bytes, event->length));
    return ls_file_put(ctx, file, path, tail.bytes, tail.length);
}

ls_status ls_events_begin(ls_ctx *ctx, FILE *file, const char *path, double wall_time) {
    static const char version[] = "brain.Event:2";
    message event = {.length = 0};
    put_double_field(&event, 1, wall_time);
    put_bytes_field(&event, 3, version, sizeof version - 1);
    return put_record(ctx, file, path, &event);
}

ls_status ls_events_restart(ls_ctx *ctx, FILE *file, const char *path, double wall_time,
                            int64_t step) {
    message event = {.length = 0}, session = {.length = 0};
    put_varint_field(&session, 1, 1); /* SessionLog.status = START */
    put_double_field(&event, 1, wall_time);
    put_varint_field(&event, 2, (uint64_t)step);
    put_bytes_field(&event, 7, session.bytes, session.length);
    return put_record(ctx, file, path, &event);
}

ls_status ls_events_add(ls_ctx *ctx, FILE *file, const char *path, double wall_time, int64_t step,
                        const ls_scalar *scalars, size_t count) {
    if (count > LS_EVENT_SCALARS_MAX) return LS_FAIL(ctx, LS_EBUG, "too many scalars at once");
    message event = {.length = 0}, summary = {.length = 0};
    for (size_t i = 0; i < count; i++) {
        message value = {.length = 0};
        put_bytes_field(&value, 1, scalars[i].tag, strnlen(scalars[i].tag, 64));
        put_float_field(&value, 2, (float)scalars[i].value);
        put_bytes_field(&summary, 1, value.bytes, value.length);
    }
    put_double_field(&event, 1, wall_time);
    put_varint_field(&event, 2, (uint64_t)step);
    put_bytes_field(&event, 5, summary.bytes, summary.length);
    return put_record(ctx, file, path, &event);
}
