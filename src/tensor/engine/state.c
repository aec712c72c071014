/* Streaming state: ports are recorded with the program; buffers live outside it, so that programs
 * for chunks of different lengths continue one another. */
#include <string.h>

#include "base/far.h"
#include "base/file.h"
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

static void append_backward(ls_program *p, const ls_node *node);
static const ls_op append_op = {.name = "cache_append", .backward = append_backward};
static const ls_op append_grad_op = {.name = "cache_append_grad"};
static const ls_op write_op = {.name = "state_write"};
/* in: the gradient of a cache's rows, and the port's, which gets that of the rows before */
static const ls_op hand_op = {.name = "cache_hand_back"};
static const ls_op copy_op = {.name = "copy"};
static const ls_op clear_op = {.name = "clear"};

static bool is_real(ls_dtype type) {
    return type <= LS_BF16;
}

static ls_tensor *add_port(ls_program *p, const char *name, ls_port_kind kind, ls_dtype type,
                           int rank, const int64_t *dim, ls_retention keep, ls_row_rule rule) {
    ls_port *port = ls__pool(p, 1, sizeof *port);
    ls_tensor *tensor = ls__tensor(p, type, LS_ROLE_STATE, rank, dim);
    if (port == NULL || tensor == NULL) return NULL;
    *port = (ls_port){.name = ls__scoped_name(p, name),
                      .kind = kind,
                      .tensor = tensor,
                      .keep = keep,
                      .rule = rule,
                      .bytes = (size_t)ls_count(tensor) * ls_dtype_size(type)};
    tensor->port = (int)p->ports.count;
    if (p->options.through && !p->options.forward && is_real(type) && kind != LS_PORT_BEGINS) {
        port->gradient = ls__tensor(p, type, LS_ROLE_STATE, rank, dim);
        if (port->gradient == NULL) return NULL;
        port->gradient->port = tensor->port;
    }
    return port->name != NULL && ls__list_add(p, &p->ports, port) ? tensor : NULL;
}

int64_t ls_rows_due(ls_row_rule rule, int64_t position) {
    if (rule.every == 0) return 0;
    const int64_t tokens = position / rule.every * rule.every - rule.behind;
    return tokens > 0 ? tokens / rule.each : 0;
}

/* Rows from before the chunk that a query at the chunk's start may still need, at most. */
static int64_t retained_rows(ls_retention keep) {
    int64_t rows = keep.window > 0 ? keep.window - 1 : 0;
    return keep.block > 0 ? ls_max(rows, keep.block - 1 + keep.before) : rows;
}

int64_t ls_cache_rows(ls_retention keep, int64_t capacity, int64_t chunk_max) {
    if (keep.window == 0 && keep.block == 0) return capacity;
    /* twice what is kept, so that rows are moved down only rarely */
    return ls_min(capacity, (keep.exact ? 1 : 2) * retained_rows(keep) + chunk_max);
}

static ls_tensor *append(ls_program *p, const char *name, ls_port_kind kind, ls_tensor *x,
                         int64_t rows, ls_retention keep, bool in_parts) {
    int64_t dim[LS_RANK_MAX];
    const int64_t batch = p->options.batch;
    if (ls_begins_differ(p) && batch > 1 && (kind == LS_PORT_FIRST || x->dim[0] % batch != 0)) {
        ls_refuse_option(
            p, "resets",
            "rows of a stream's start (%s) cannot be kept where sequences begin anew each for "
            "itself",
            name);
        return NULL;
    }
    memcpy(dim, x->dim, sizeof dim);
    dim[1] = rows;
    ls_tensor *cache = add_port(p, name, kind, x->type, x->rank, dim, keep, ls_row_of_token);
    if (cache == NULL) return NULL;
    ls_port *port = p->ports.at[cache->port];
    struct ls_append how = {.kind = kind, .keep = keep};
    port->appended = true;
    if (in_parts) {
        port->in_parts = true;
        how.part_first = p->options.parts.own * rows;
        how.part_end = how.part_first + rows;
    }
    ls_node *node = ls_record(p, &append_op, &how, sizeof how, 1, &x, 1, &cache);
    return node != NULL && ls__list_add(p, &p->appends, node) ? cache : NULL;
}

/* A cache that fits a part is whole in each: there would be nothing to gain. */
ls_tensor *ls_cache_append(ls_program *p, const char *name, ls_tensor *x, ls_retention keep) {
    if (ls_failed(p) || x == NULL || !p->options.streaming) return x;
    int64_t rows = ls_cache_rows(keep, p->options.capacity, p->options.chunk_max);
    const int64_t part = ls_round_up(
        ls_ceil_div(p->options.capacity, ls_max(1, p->options.parts.count)), ls_max(1, keep.unit));
    const bool in_parts = !keep.whole && rows > part;
    return append(p, name, LS_PORT_CACHE, x, in_parts ? part : rows, keep, in_parts);
}

ls_tensor *ls_cache_first(ls_program *p, const char *name, ls_tensor *x, int64_t rows) {
    if (ls_failed(p) || x == NULL || !p->options.streaming) return x;
    return append(p, name, LS_PORT_FIRST, x, ls_max(rows, 1), (ls_retention){0}, false);
}

static void append_backward(ls_program *p, const ls_node *node) {
    ls_tensor *target = ls_grad_target(p, node->in[0]);
    ls_record(p, &append_grad_op, NULL, 0, 1, (ls_tensor *[]){ls_grad_of(node->out[0])}, 1,
              &target);
    ls_grad_add(p, node->in[0], target);
    const ls_port *port = p->ports.at[node->out[0]->port];
    if (port->gradient != NULL)
        ls_record(p, &hand_op, NULL, 0, 2,
                  (ls_tensor *[]){ls_grad_of(node->out[0]), port->gradient}, 0, NULL);
}

/* What follows a chunk tells the gradients of the rows and values that the chunk leaves. */
void ls__state_seed(ls_program *p) {
    const size_t forward_count = p->nodes.count;
    for (size_t i = 0; i < p->writes.count; i++) {
        const ls_node *node = p->writes.at[i];
        const ls_port *port = p->ports.at[node->in[1]->port];
        if (port->gradient != NULL) ls_grad_add(p, node->in[0], port->gradient);
    }
    for (size_t i = 0; i < forward_count; i++) {
        const ls_node *node = p->nodes.at[i];
        if (node->op != &append_op) continue;
        const ls_port *port = p->ports.at[node->out[0]->port];
        if (port->gradient != NULL) ls_grad_add(p, node->out[0], port->gradient);
    }
}

/* Caches do it where their appends go back. */
void ls__state_hand_back(ls_program *p) {
    for (size_t i = 0; i < p->ports.count; i++) {
        const ls_port *port = p->ports.at[i];
        ls_tensor *gradient = port->gradient;
        if (gradient == NULL || port->kind != LS_PORT_VALUE) continue;
        if (port->tensor->grad == NULL)
            ls_record(p, &clear_op, NULL, 0, 0, NULL, 1, &gradient);
        else
            ls_record(p, &copy_op, NULL, 0, 1, &port->tensor->grad, 1, &gradient);
    }
}

ls_tensor *ls_state_read(ls_program *p, const char *name, ls_dtype type, int rank,
                         const int64_t *dim) {
    if (ls_failed(p)) return NULL;
    if (!p->options.streaming) return ls_constant(p, type, rank, dim, NULL);
    ls_tensor *value =
        add_port(p, name, LS_PORT_VALUE, type, rank, dim, (ls_retention){0}, (ls_row_rule){0});
    if (value != NULL) value->needs_grad = p->options.through && is_real(type);
    return value;
}

void ls_state_write(ls_program *p, const char *name, ls_tensor *value) {
    if (ls_failed(p) || value == NULL || !p->options.streaming) return;
    const char *full = ls__scoped_name(p, name);
    if (full == NULL) return;
    for (size_t i = 0; i < p->ports.count; i++) {
        const ls_port *port = p->ports.at[i];
        if (strcmp(port->name, full) != 0) continue;
        ls_node *node =
            ls_record(p, &write_op, NULL, 0, 2, (ls_tensor *[]){value, port->tensor}, 0, NULL);
        if (node == NULL) return;
        p->nodes.count--; /* written when everything else is done */
        ls__list_add(p, &p->writes, node);
        return;
    }
    ls_refuse(p, LS_EBUG, "state %s is written but was never read", name);
}

ls_tensor *ls_extent_port(ls_program *p, const char *name, ls_row_rule rule) {
    if (ls_failed(p) || !p->options.streaming) return NULL;
    return add_port(p, name, LS_PORT_CACHE, LS_U8, LS_DIMS(1), (ls_retention){0}, rule);
}

ls_tensor *ls_rows_port(ls_program *p, const char *name, ls_dtype type, int rank,
                        const int64_t *dim, ls_row_rule rule) {
    if (ls_failed(p)) return NULL;
    if (p->options.through && is_real(type)) {
        ls_refuse_option(p, "through",
                         "rows that are made of several tokens (%s) pass no gradient to the part "
                         "of the sequence before",
                         name);
        return NULL;
    }
    return add_port(p, name, LS_PORT_CACHE, type, rank, dim, (ls_retention){0}, rule);
}

void ls__add_begins(ls_program *p) {
    p->begins = add_port(p, "begins", LS_PORT_BEGINS, LS_I32, LS_DIMS(p->options.batch),
                         (ls_retention){0}, (ls_row_rule){0});
}

void ls_far_done(const ls_run *run, const ls_tensor *cache) {
    if (cache->port < 0 || run->state->ctx->device != NULL) return;
    const struct ls_state_port *port = &run->state->port[cache->port];
    if (port->keep.far) ls_far_rest(port->data, port->bytes);
}

void ls_extent_set(const ls_run *run, const ls_tensor *tensor, int64_t first, int64_t count) {
    if (tensor->port >= 0) run->state->port[tensor->port].extent = (ls_extent){first, count};
}

ls_extent ls_cache_extent(const ls_run *run, const ls_tensor *tensor) {
    if (tensor->port >= 0) return run->state->port[tensor->port].extent;
    return (ls_extent){run->start, tensor->dim[1]};
}

int64_t ls__lowest_seen(ls_retention keep, int64_t start, int64_t all) {
    const int64_t window = start - keep.window + 1;
    if (keep.block == 0) return keep.window > 0 ? window : all;
    const int64_t block = start / keep.block * keep.block - keep.before;
    return keep.window > 0 ? ls_min(window, block) : block;
}

/* Of a part: those of the chunk's rows that lie in it. None is dropped: there is room for all. */
static ls_append_plan append_part(const ls_run *run, const struct ls_append *append, int64_t T,
                                  ls_extent *extent) {
    const int64_t first = ls_max(append->part_first, run->start);
    const int64_t end = ls_min(append->part_end, run->start + T);
    const ls_append_plan plan = {.kept = extent->count,
                                 .take = ls_max(0, end - first),
                                 .from = end > first ? first - run->start : 0};
    *extent = (ls_extent){append->part_first, extent->count + plan.take};
    return plan;
}

ls_append_plan ls__append_begin(const ls_run *run, const ls_node *node) {
    const struct ls_append *append = node->attributes;
    const ls_tensor *cache = node->out[0];
    ls_extent *extent = &run->state->port[cache->port].extent;
    int64_t T = node->in[0]->dim[1], capacity = cache->dim[1];
    if (append->part_end > 0) return append_part(run, append, T, extent);
    ls_append_plan plan = {.kept = extent->count, .take = T};
    if (append->kind == LS_PORT_FIRST) {
        plan.take = ls_max(0, ls_min(T, capacity - run->start));
    } else if (append->keep.exact || extent->count + T > capacity) {
        const int64_t lowest =
            ls_max(ls__lowest_seen(append->keep, run->start, extent->first), run->state->oldest);
        plan.drop = ls_max(0, ls_min(lowest - extent->first, extent->count));
        plan.kept -= plan.drop;
    }
    extent->first += plan.drop;
    if (plan.kept == 0) extent->first = append->kind == LS_PORT_FIRST ? 0 : run->start;
    extent->count = plan.kept + plan.take;
    run->state->port[cache->port].last = plan;
    return plan;
}

bool ls__appends_only(const ls_run *run, const ls_node *node) {
    const struct ls_append *append = node->attributes;
    const ls_extent extent = ls_cache_extent(run, node->out[0]);
    return append->kind == LS_PORT_CACHE && !append->keep.exact && append->part_end == 0 &&
           extent.count == run->start - extent.first &&
           extent.count + node->in[0]->dim[1] <= node->out[0]->dim[1];
}

bool ls__state_goes_on(const ls_program *p, const ls_run *run) {
    const ls_state *state = run->state;
    if (state->begins != NULL) return false; /* sequences begin anew each for itself */
    for (size_t i = 0; i < state->ports; i++)
        if (p->place[i].data != state->port[i].data ||
            p->place[i].first != state->port[i].extent.first)
            return false;
    for (size_t i = 0; i < p->appends.count; i++)
        if (!ls__appends_only(run, p->appends.at[i])) return false;
    return true;
}

void ls__state_went_on(ls_program *p, const ls_state *state) {
    for (size_t i = 0; i < state->ports; i++)
        p->place[i] = (ls_stream_place){state->port[i].data, state->port[i].extent.first};
}

void ls__append_all(const ls_program *p, const ls_run *run) {
    for (size_t i = 0; i < p->appends.count; i++) ls__append_begin(run, p->appends.at[i]);
}

/* ---- states ---- */

static uint64_t port_identity(const ls_port *port) {
    return ls_hash(port->name, strlen(port->name)) ^
           ((uint64_t)port->bytes * 4 + (uint64_t)port->kind);
}

ls_status ls_state_new(const ls_program *program, ls_state **out) {
    ls_ctx *ctx = program->ctx;
    size_t ports = program->ports.count;
    ls_state *state = ls_new(ctx, 1, sizeof *state + ports * sizeof state->port[0]);
    *out = state;
    if (state == NULL) return LS_ENOMEM;
    state->ctx = ctx;
    state->ports = ports;
    state->batch = program->options.batch;
    state->capacity = program->options.capacity;
    state->unit = program->unit;
    bool there = true;
    if (program->begins != NULL) {
        state->begins = ls_new(ctx, (size_t)state->batch, sizeof *state->begins);
        there = state->begins != NULL;
    }
    for (size_t i = 0; there && i < ports; i++) {
        const ls_port *port = program->ports.at[i];
        state->port[i].identity = port_identity(port);
        state->port[i].kind = port->kind;
        state->port[i].keep = port->keep;
        state->port[i].rule = port->rule;
        state->port[i].appended = port->appended;
        state->port[i].rows = port->tensor->rank > 1 ? port->tensor->dim[1] : 0;
        state->port[i].lines = port->tensor->dim[0];
        state->port[i].shared = port->tensor->dim[0] % state->batch != 0;
        state->port[i].bytes = port->bytes;
        state->port[i].data = port->keep.far ? ls_device_take_far(ctx, port->bytes)
                                             : ls_device_take_cleared(ctx, port->bytes, 1);
        there = state->port[i].data != NULL;
    }
    if (there) return LS_OK;
    ls_state_free(ctx, state);
    *out = NULL;
    return LS_ENOMEM;
}

/* Rows of a cache that nothing is ever dropped from: going on leaves them as they are. */
static bool only_grows(const ls_state *state, const struct ls_state_port *port) {
    return state->begins == NULL && port->kind == LS_PORT_CACHE && port->appended &&
           port->keep.window == 0 && port->keep.block == 0 && !port->keep.exact;
}

/* What is far lies where the processor reaches it, on any device. A rehearsal counts the bytes and
 * leaves them untouched: they may be far more than there are. */
static ls_status copy_port(ls_ctx *ctx, const struct ls_state_port *from,
                           struct ls_state_port *port) {
    if (!port->keep.far) {
        if ((port->data = ls_device_take(ctx, port->bytes, 1)) == NULL) return LS_ENOMEM;
        if (ctx->rehearsal) return LS_OK;
        return ls_device_copy(ctx, port->data, from->data, port->bytes);
    }
    if ((port->data = ls_device_take_far(ctx, port->bytes)) == NULL) return LS_ENOMEM;
    if (ctx->rehearsal) return LS_OK;
    LS_TRY(ls_device_settle(ctx));
    memcpy(port->data, from->data, port->bytes);
    return LS_OK;
}

static ls_status copy_state(const ls_state *from, bool whole, ls_state **out) {
    ls_ctx *ctx = from->ctx;
    const size_t head = sizeof *from + from->ports * sizeof from->port[0];
    ls_state *state = ls_new_raw(ctx, 1, head);
    ls_status status = LS_ENOMEM;
    *out = NULL;
    if (state == NULL) return LS_ENOMEM;
    memcpy(state, from, head);
    state->begins = NULL; /* from here on the pointers of `from` are none of ours */
    for (size_t i = 0; i < state->ports; i++) state->port[i].data = NULL;
    if (from->begins != NULL) {
        state->begins = ls_new_raw(ctx, (size_t)state->batch, sizeof *state->begins);
        if (state->begins == NULL) goto fail;
        memcpy(state->begins, from->begins, (size_t)state->batch * sizeof *state->begins);
    }
    for (size_t i = 0; i < state->ports; i++) {
        struct ls_state_port *port = &state->port[i];
        if (!whole && only_grows(from, port)) continue;
        LS_TRY_GOTO(copy_port(ctx, &from->port[i], port));
    }
    *out = state;
    return LS_OK;
fail:
    ls_state_free(ctx, state);
    return status;
}

ls_status ls_state_copy(const ls_state *from, ls_state **out) {
    return copy_state(from, true, out);
}

ls_status ls_state_mark(const ls_state *state, ls_state **mark) {
    return copy_state(state, false, mark);
}

ls_status ls_state_mark_again(const ls_state *state, ls_state *mark) {
    if (state->ports != mark->ports || state->begins != NULL)
        return LS_FAIL(state->ctx, LS_EBUG, "a mark is made again of the state it was made of");
    mark->position = state->position;
    mark->oldest = state->oldest;
    for (size_t i = 0; i < state->ports; i++) {
        mark->port[i].extent = state->port[i].extent;
        if (mark->port[i].data != NULL)
            LS_TRY(ls_device_copy(state->ctx, mark->port[i].data, state->port[i].data,
                                  mark->port[i].bytes));
    }
    return LS_OK;
}

void ls_state_clear_at(ls_state *gradient, const ls_state *state) {
    ls_state_stand_at(gradient, state);
    for (size_t i = 0; i < gradient->ports; i++)
        ls_device_fill(gradient->ctx, gradient->port[i].data, 0, gradient->port[i].bytes);
}

void ls_state_stand_at(ls_state *gradient, const ls_state *state) {
    gradient->position = state->position;
    for (size_t i = 0; i < gradient->ports; i++) gradient->port[i].extent = state->port[i].extent;
}

ls_status ls__port_back(ls_state *state, const ls_state *mark, size_t port) {
    state->port[port].extent = mark->port[port].extent;
    if (mark->port[port].data == NULL) return LS_OK;
    return ls_device_copy(state->ctx, state->port[port].data, mark->port[port].data,
                          mark->port[port].bytes);
}

ls_status ls_state_back(ls_state *state, const ls_state *mark) {
    if (state->ports != mark->ports || state->position < mark->position)
        return LS_FAIL(state->ctx, LS_EBUG, "a state goes back to a mark of its own");
    state->position = mark->position;
    state->oldest = mark->oldest;
    if (state->begins != NULL)
        memcpy(state->begins, mark->begins, (size_t)state->batch * sizeof *state->begins);
    for (size_t i = 0; i < state->ports; i++) LS_TRY(ls__port_back(state, mark, i));
    return LS_OK;
}

void ls_state_free(ls_ctx *ctx, ls_state *state) {
    if (state == NULL) return;
    for (size_t i = 0; i < state->ports; i++)
        if (state->port[i].keep.far)
            ls_device_give_far(ctx, state->port[i].data, state->port[i].bytes);
        else
            ls_device_give(ctx, state->port[i].data);
    ls_free(ctx, state->begins);
    ls_free(ctx, state);
}

void ls_state_reset(ls_state *state) {
    state->position = state->oldest = 0;
    for (int64_t b = 0; state->begins != NULL && b < state->batch; b++) state->begins[b] = 0;
    for (size_t i = 0; i < state->ports; i++) {
        state->port[i].extent = (ls_extent){0};
        if (state->port[i].kind == LS_PORT_VALUE || state->port[i].kind == LS_PORT_BEGINS)
            ls_device_fill(state->ctx, state->port[i].data, 0, state->port[i].bytes);
    }
}

int64_t ls__state_oldest(const ls_state *state) {
    int64_t oldest = state->begins == NULL ? 0 : state->begins[0];
    for (int64_t b = 1; state->begins != NULL && b < state->batch; b++)
        oldest = ls_min(oldest, state->begins[b]);
    return oldest;
}

/* Zeros in what a sequence has of a port: also of caches, whose zeros count where they are read
 * without asking whose they are. */
static void clear_row(ls_state *state, const struct ls_state_port *port, int64_t row) {
    const size_t each = port->bytes / (size_t)state->batch;
    if (!port->shared) ls_device_fill(state->ctx, (char *)port->data + (size_t)row * each, 0, each);
}

void ls_state_reset_rows(ls_state *state, const bool *rows) {
    int64_t count = 0;
    for (int64_t b = 0; b < state->batch; b++) count += rows[b];
    if (count == 0) return;
    if (count == state->batch) {
        ls_state_reset(state);
        return;
    }
    for (int64_t b = 0; b < state->batch; b++) {
        if (!rows[b]) continue;
        state->begins[b] = (int32_t)state->position;
        for (size_t i = 0; i < state->ports; i++) clear_row(state, &state->port[i], b);
    }
    state->oldest = ls__state_oldest(state);
    for (size_t i = 0; i < state->ports; i++)
        if (state->port[i].kind == LS_PORT_BEGINS)
            ls_device_put(state->ctx, state->port[i].data, state->begins, state->port[i].bytes);
}

int64_t ls_state_age(const ls_state *state, int64_t row) {
    return state->position - (state->begins == NULL ? 0 : state->begins[row]);
}

int64_t ls_state_position(const ls_state *state) {
    return state->position;
}

size_t ls_state_bytes(const ls_state *state) {
    size_t bytes = 0;
    for (size_t i = 0; i < state->ports; i++)
        if (!state->port[i].keep.far) bytes += state->port[i].bytes;
    return bytes;
}

static bool same_ports(const ls_state *a, const ls_state *b) {
    bool same = a->ports == b->ports && a->batch == b->batch;
    for (size_t i = 0; same && i < a->ports; i++) same = a->port[i].identity == b->port[i].identity;
    return same;
}

static ls_status bind_gradient(ls_program *p, const ls_state *state, ls_state *gradient) {
    const bool wanted = p->options.through && !p->options.forward;
    if (wanted != (gradient != NULL) || (wanted && !same_ports(state, gradient)))
        return LS_FAIL(p->ctx, LS_EBUG, "gradients pass through a state with one of its ports");
    for (size_t i = 0; gradient != NULL && i < gradient->ports; i++) {
        ls_port *port = p->ports.at[i];
        if (port->gradient != NULL) port->gradient->data = gradient->port[i].data;
    }
    return LS_OK;
}

ls_status ls__state_begin(ls_program *p, ls_state *state, ls_state *gradient) {
    if (p->options.streaming != (state != NULL))
        return LS_FAIL(p->ctx, LS_EBUG, "a streaming program needs a state, others take none");
    if (state == NULL) return LS_OK;
    if (state->ports != p->ports.count)
        return LS_FAIL(p->ctx, LS_EBUG, "the state belongs to another program");
    if (state->position - state->oldest + p->options.length > state->capacity)
        return LS_FAIL(p->ctx, LS_EUSE,
                       "the stream was made for %lld tokens and is at %lld: %lld more do not fit",
                       (long long)state->capacity, (long long)(state->position - state->oldest),
                       (long long)p->options.length);
    if (state->begins != NULL && state->position + p->options.length > INT32_MAX)
        return LS_FAIL(p->ctx, LS_EUSE, "the stream is at %lld: all sequences must begin anew",
                       (long long)state->position);
    for (size_t i = 0; i < state->ports; i++) {
        ls_port *port = p->ports.at[i];
        if (state->port[i].identity != port_identity(port))
            return LS_FAIL(p->ctx, LS_EBUG, "state port %s differs between programs", port->name);
        port->tensor->data = state->port[i].data;
    }
    return bind_gradient(p, state, gradient);
}
