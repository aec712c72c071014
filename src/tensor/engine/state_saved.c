/* The content of a state as bytes, and back: whole, for files, or with the rows alone that caches
 * hold now, for another rank. */
#include <string.h>

#include "base/file.h"
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

/* Bytes of a row of a cache, in every one of its lines. */
static size_t row_bytes(const struct ls_state_port *port) {
    return port->bytes / (size_t)(port->lines * port->rows);
}

/* Whether the content of a port is the rows that it has now. */
static bool has_rows(const struct ls_state_port *port) {
    return (port->kind == LS_PORT_CACHE || port->kind == LS_PORT_FIRST) && port->rows > 0;
}

static size_t content_bytes(const struct ls_state_port *port, ls_extent extent, bool rows) {
    if (!rows || !has_rows(port)) return port->bytes;
    return (size_t)(port->lines * extent.count) * row_bytes(port);
}

/* One piece of a port's content. */
static ls_status put_piece(ls_ctx *ctx, const struct ls_state_port *port, size_t first,
                           size_t bytes, ls_state_sink put, void *user) {
    const char *there = (const char *)port->data + first;
    if (bytes == 0) return LS_OK;
    if (port->keep.far) LS_TRY(ls_device_settle(ctx));
    if (ctx->device == NULL || port->keep.far) return put(user, there, bytes);
    void *here = ls_new_raw(ctx, bytes, 1);
    if (here == NULL) return LS_ENOMEM;
    ls_status status = ls_device_get(ctx, here, there, bytes);
    if (status == LS_OK) status = put(user, here, bytes);
    ls_free(ctx, here);
    return status;
}

static ls_status put_content(ls_ctx *ctx, const struct ls_state_port *port, bool rows,
                             ls_state_sink put, void *user) {
    if (!rows || !has_rows(port)) return put_piece(ctx, port, 0, port->bytes, put, user);
    const size_t line = port->bytes / (size_t)port->lines;
    const size_t held = (size_t)port->extent.count * row_bytes(port);
    for (int64_t i = 0; i < port->lines; i++)
        LS_TRY(put_piece(ctx, port, (size_t)i * line, held, put, user));
    return LS_OK;
}

/* Layout: "LSSTATE1", ports, batch, position; per port identity, bytes, first, count, content.
 * "LSROWS01" where the content of caches is the rows that they have. */
enum { MAGIC_BYTES = 8 };
static const char magics[2][MAGIC_BYTES + 1] = {"LSSTATE1", "LSROWS01"};

static ls_status put_state(ls_ctx *ctx, const ls_state *state, bool rows, ls_state_sink put,
                           void *user) {
    const int64_t head[3] = {(int64_t)state->ports, state->batch, state->position};
    LS_TRY(put(user, magics[rows], MAGIC_BYTES));
    LS_TRY(put(user, head, sizeof head));
    for (size_t i = 0; i < state->ports; i++) {
        const struct ls_state_port *port = &state->port[i];
        const int64_t about[4] = {(int64_t)port->identity,
                                  (int64_t)content_bytes(port, port->extent, rows),
                                  port->extent.first, port->extent.count};
        LS_TRY(put(user, about, sizeof about));
        LS_TRY(put_content(ctx, port, rows, put, user));
    }
    return LS_OK;
}

ls_status ls_state_put(ls_ctx *ctx, const ls_state *state, ls_state_sink put, void *user) {
    return put_state(ctx, state, false, put, user);
}

ls_status ls_state_put_rows(ls_ctx *ctx, const ls_state *state, ls_state_sink put, void *user) {
    return put_state(ctx, state, true, put, user);
}

static size_t length_of(const ls_state *state, bool rows) {
    size_t length = MAGIC_BYTES + 3 * sizeof(int64_t);
    for (size_t i = 0; i < state->ports; i++)
        length += 4 * sizeof(int64_t) + content_bytes(&state->port[i], state->port[i].extent, rows);
    return length;
}

size_t ls_state_length(const ls_state *state) {
    return length_of(state, false);
}

size_t ls_state_rows_length(const ls_state *state) {
    return length_of(state, true);
}

typedef struct text_sink {
    ls_ctx *ctx;
    ls_text *out;
} text_sink;

static ls_status append_text(void *user, const void *bytes, size_t length) {
    const text_sink *sink = user;
    ls_text_append(sink->ctx, sink->out, bytes, length);
    return ls_text_status(sink->out);
}

ls_status ls_state_save(ls_ctx *ctx, const ls_state *state, ls_text *out) {
    return ls_state_put(ctx, state, append_text, &(text_sink){ctx, out});
}

/* The number of the port of this name, or of none: that behind the last. */
static size_t port_named(const ls_program *program, const char *name) {
    size_t at = 0;
    while (at < program->ports.count &&
           strcmp(((const ls_port *)program->ports.at[at])->name, name) != 0)
        at++;
    return at;
}

bool ls_state_has(const ls_program *program, const char *name) {
    return port_named(program, name) < program->ports.count;
}

ls_status ls_state_values(const ls_program *program, const ls_state *state, const char *name,
                          int64_t rows, int64_t width, double *out) {
    ls_ctx *ctx = program->ctx;
    const size_t at = port_named(program, name);
    if (at == program->ports.count)
        return LS_FAIL(ctx, LS_EINPUT, "the model has no state %s", name);
    const ls_tensor *tensor = ((const ls_port *)program->ports.at[at])->tensor;
    const struct ls_state_port *port = &state->port[at];
    const int64_t B = tensor->dim[0], room = tensor->rank > 1 ? tensor->dim[1] : 1;
    const int64_t held = port->kind == LS_PORT_VALUE ? room : port->extent.count;
    if (rows > held || ls_count(tensor) != B * room * width || tensor->type > LS_BF16)
        return LS_FAIL(ctx, LS_EINPUT, "the state %s has %lld rows of %lld, not %lld of %lld", name,
                       (long long)held, (long long)(ls_count(tensor) / (B * room)), (long long)rows,
                       (long long)width);
    ls_text content = {0};
    ls_status status = put_content(ctx, port, false, append_text, &(text_sink){ctx, &content});
    for (int64_t b = 0; b < B && status == LS_OK; b++)
        for (int64_t i = 0; i < rows * width; i++)
            out[b * rows * width + i] =
                ls_element(content.bytes, tensor->type, (b * room + held - rows) * width + i);
    ls_text_clear(ctx, &content);
    return status;
}

static bool take_numbers(ls_reader *reader, int64_t *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        if (!ls_reader_u64(reader, &word)) return false;
        numbers[i] = (int64_t)word;
    }
    return true;
}

/* Where sequences began, out of a saved state at a position: the first of these goes to *oldest. */
static bool begins_fit(const ls_state *state, const uint8_t *content, int64_t position,
                       int64_t *oldest) {
    *oldest = position;
    for (int64_t b = 0; b < state->batch; b++) {
        int32_t at;
        memcpy(&at, content + (size_t)b * sizeof at, sizeof at);
        if (at < 0 || at > position) return false;
        *oldest = ls_min(*oldest, at);
    }
    return true;
}

/* Whether a port's buffer has room for the rows of an extent, which bounds every size made of
 * it. */
static bool has_room(const struct ls_state_port *port, ls_extent extent) {
    return extent.first >= 0 && extent.count >= 0 &&
           (port->rows == 0 || extent.count <= port->rows);
}

/* Whether a port may have this extent, for which it has room, at a position: its rows end where the
 * sequence is, and none that a later query may see is missing. Kernels rely on both. */
static bool extent_fits(const struct ls_state_port *port, ls_extent extent, int64_t position,
                        int64_t oldest) {
    if (port->kind == LS_PORT_VALUE || port->kind == LS_PORT_BEGINS)
        return extent.first == 0 && extent.count == 0;
    const int64_t due = ls_rows_due(port->rule, position);
    if (port->rows == 0) return extent.first <= due && extent.count <= due - extent.first;
    if (port->rule.every == 0)
        return extent.first == 0 && extent.count == (position > 0 ? port->rows : 0);
    if (port->kind == LS_PORT_FIRST)
        return extent.first == 0 && extent.count == ls_min(position, port->rows);
    if (extent.first > due || extent.count != due - extent.first) return false;
    return !port->appended ||
           extent.first <= ls_max(0, ls_max(ls__lowest_seen(port->keep, position, 0), oldest));
}

static void take_content(ls_ctx *ctx, struct ls_state_port *port, bool rows,
                         const uint8_t *content) {
    const bool parts = rows && has_rows(port);
    const size_t lines = parts ? (size_t)port->lines : 1, line = port->bytes / lines;
    const size_t held = parts ? (size_t)port->extent.count * row_bytes(port) : port->bytes;
    for (size_t i = 0; i < lines; i++) {
        void *there = (char *)port->data + i * line;
        if (port->keep.far && held > 0)
            memcpy(there, content + i * held, held);
        else
            ls_device_put(ctx, there, content + i * held, held);
    }
}

/* One port of a saved state, which moves into the state unless it is only looked at. */
static ls_status load_port(ls_ctx *ctx, ls_state *state, struct ls_state_port *port,
                           ls_reader *reader, int64_t position, int64_t *oldest, bool rows,
                           bool move) {
    const uint8_t *content;
    int64_t about[4] = {0};
    const bool there = take_numbers(reader, about, 4) && (uint64_t)about[0] == port->identity;
    const ls_extent extent = {about[2], about[3]};
    if (!there || !has_room(port, extent) ||
        (uint64_t)about[1] != content_bytes(port, extent, rows) ||
        !ls_reader_take(reader, (size_t)about[1], &content) ||
        (port->kind == LS_PORT_BEGINS && !begins_fit(state, content, position, oldest)) ||
        !extent_fits(port, extent, position, *oldest))
        return LS_FAIL(ctx, LS_EINPUT, "the saved state is damaged or of another model");
    if (!move) return LS_OK;
    port->extent = extent;
    if (port->keep.far) LS_TRY(ls_device_settle(ctx));
    take_content(ctx, port, rows, content);
    if (port->kind == LS_PORT_BEGINS) memcpy(state->begins, content, port->bytes);
    return LS_OK;
}

static ls_status load(ls_ctx *ctx, ls_state *state, bool rows, const void *bytes, size_t length) {
    int64_t head[3];
    /* checked whole before anything is changed */
    for (int pass = 0; pass < 2; pass++) {
        ls_reader reader = {bytes, length};
        const uint8_t *magic;
        if (!ls_reader_take(&reader, MAGIC_BYTES, &magic) ||
            memcmp(magic, magics[rows], MAGIC_BYTES) != 0 || !take_numbers(&reader, head, 3))
            return LS_FAIL(ctx, LS_EINPUT, "these bytes are not a saved state");
        const int64_t end = state->begins == NULL ? state->capacity : INT32_MAX;
        if (head[0] != (int64_t)state->ports || head[1] != state->batch || head[2] < 0 ||
            head[2] > end || head[2] % state->unit != 0)
            return LS_FAIL(ctx, LS_EINPUT, "the saved state belongs to another model or batch");
        int64_t oldest = 0; /* the port of beginnings is the first */
        for (size_t i = 0; i < state->ports; i++)
            LS_TRY(
                load_port(ctx, state, &state->port[i], &reader, head[2], &oldest, rows, pass == 1));
        if (reader.left != 0)
            return LS_FAIL(ctx, LS_EINPUT, "the saved state has %zu bytes too many", reader.left);
    }
    state->position = head[2];
    state->oldest = ls__state_oldest(state);
    return LS_OK;
}

ls_status ls_state_load(ls_ctx *ctx, ls_state *state, const void *bytes, size_t length) {
    return load(ctx, state, false, bytes, length);
}

ls_status ls_state_load_rows(ls_ctx *ctx, ls_state *state, const void *bytes, size_t length) {
    return load(ctx, state, true, bytes, length);
}
