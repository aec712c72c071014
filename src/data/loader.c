#include "data/loader.h"

#include <string.h>

#include "base/random.h"

struct ls_loader {
    const ls_token_file *file;
    ls_loader_settings settings;
    int64_t documents, tokens;
    int64_t windows; /* of an epoch; of one row in a stream */
    int64_t *before; /* [documents + 1] windows before each document; borders only */
    uint32_t order_stream, offset_stream;
};

/* A stretch of one document or of several end to end: inputs [begin, begin + count), the first
 * `covered` targets of which another window scores. */
typedef struct window {
    int64_t begin, count, covered;
    bool fresh;
} window;

/* Windows per document. A document of one token has no target, hence no window. */
static ls_status count_windows(ls_ctx *ctx, ls_loader *loader) {
    loader->before = ls_new_raw(ctx, (size_t)loader->documents + 1, sizeof *loader->before);
    if (loader->before == NULL) return LS_ENOMEM;
    loader->before[0] = 0;
    for (int64_t d = 0; d < loader->documents; d++) {
        int64_t targets = ls_token_file_document(loader->file, d).count - 1;
        loader->before[d + 1] = loader->before[d] + targets / loader->settings.length +
                                (targets % loader->settings.length != 0);
    }
    return LS_OK;
}

ls_status ls_loader_new(ls_ctx *ctx, const ls_token_file *file, ls_loader_settings settings,
                        ls_loader **out) {
    *out = NULL;
    if (settings.batch < 1 || settings.length < 1)
        return LS_FAIL(ctx, LS_EUSE, "a batch of %lld rows of %lld tokens cannot be",
                       (long long)settings.batch, (long long)settings.length);
    ls_loader *loader = ls_new(ctx, 1, sizeof *loader);
    if (loader == NULL) return LS_ENOMEM;
    ls_status status;
    loader->file = file;
    loader->settings = settings;
    loader->documents = ls_token_file_documents(file);
    loader->tokens = ls_token_file_tokens(file);
    loader->order_stream = ls_stream_of("data.order");
    loader->offset_stream = ls_stream_of("data.offset");
    LS_TRY_GOTO(count_windows(ctx, loader));
    int64_t total = loader->before[loader->documents];
    if (total == 0) {
        status = LS_FAIL(ctx, LS_EINPUT, "the corpus is too short: no document has two tokens");
        goto fail;
    }
    if (settings.borders) {
        loader->windows = settings.kind == LS_LOADER_STREAM ? total / settings.batch : total;
    } else {
        ls_free(ctx, loader->before);
        loader->before = NULL;
        /* one window less than fit, so that the place of the first cut is free */
        int64_t stretch = loader->tokens;
        if (settings.kind == LS_LOADER_STREAM) stretch /= settings.batch;
        loader->windows = (stretch - settings.length) / settings.length;
    }
    loader->windows = ls_max(loader->windows, 1);
    *out = loader;
    return LS_OK;
fail:
    ls_loader_free(ctx, loader);
    return status;
}

void ls_loader_free(ls_ctx *ctx, ls_loader *loader) {
    if (loader == NULL) return;
    ls_free(ctx, loader->before);
    ls_free(ctx, loader);
}

static int64_t draw(const ls_loader *loader, int64_t epoch, int64_t index, int64_t bound) {
    ls_random key = {loader->settings.seed, loader->offset_stream, (uint32_t)epoch};
    return (int64_t)ls_random_below(key, (uint64_t)index, (uint64_t)bound);
}

/* The document that holds window number `index`. */
static int64_t document_of(const ls_loader *loader, int64_t index) {
    int64_t low = 0, high = loader->documents;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (loader->before[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static window shuffled_in_document(const ls_loader *loader, int64_t epoch, int64_t index) {
    int64_t d = document_of(loader, index), T = loader->settings.length;
    int64_t k = index - loader->before[d], last = loader->before[d + 1] - loader->before[d] - 1;
    ls_token_span span = ls_token_file_document(loader->file, d);
    int64_t targets = span.count - 1;
    if (targets <= T) return (window){span.begin, targets, 0, true};
    int64_t slack = (last + 1) * T - targets; /* what the windows could cover beyond the document */
    int64_t overlap = draw(loader, epoch, d, slack + 1);
    int64_t start = k == 0 ? 0 : ls_min(k * T - overlap, targets - T);
    int64_t ended = k == 0 ? 0 : ls_min(k * T - (k > 1 ? overlap : 0), targets);
    return (window){span.begin + start, T, ended - start, true};
}

static window stream_in_documents(const ls_loader *loader, int64_t step, int64_t row) {
    int64_t total = loader->before[loader->documents], T = loader->settings.length;
    int64_t epoch = step / loader->windows, k = step % loader->windows;
    /* what the rows leave over is another part each epoch */
    int64_t index = draw(loader, epoch, 0, total);
    index = (index + row % total * loader->windows + k) % total;
    int64_t d = document_of(loader, index), begin = (index - loader->before[d]) * T;
    ls_token_span span = ls_token_file_document(loader->file, d);
    return (window){span.begin + begin, ls_min(T, span.count - 1 - begin), 0, k == 0 || begin == 0};
}

/* Window k of `windows` in the tokens [first, first + stretch), cut from a place drawn by `row`. */
static window end_to_end(const ls_loader *loader, int64_t epoch, int64_t row, int64_t first,
                         int64_t stretch, int64_t k) {
    int64_t T = loader->settings.length;
    int64_t room = loader->tokens - 1 - first - loader->windows * T; /* targets to spare */
    if (room < 0) return (window){first, ls_max(loader->tokens - 1 - first, 0), 0, false};
    int64_t free_places = ls_min(room, ls_max(stretch - loader->windows * T, 0)) + 1;
    return (window){first + draw(loader, epoch, row, free_places) + k * T, T, 0, false};
}

static window find_window(const ls_loader *loader, int64_t step, int64_t row) {
    const ls_loader_settings *s = &loader->settings;
    if (s->kind == LS_LOADER_STREAM) {
        if (s->borders) return stream_in_documents(loader, step, row);
        int64_t stretch = ls_max(loader->tokens / s->batch, 1), k = step % loader->windows;
        int64_t first = row * stretch % loader->tokens;
        /* more rows than the corpus has room for: they start anywhere that has a whole window */
        if (loader->tokens - 1 - first < loader->windows * s->length)
            first = ls_max(loader->tokens - 1 - loader->windows * s->length, 0);
        window w = end_to_end(loader, step / loader->windows, row, first, stretch, k);
        w.fresh = k == 0;
        return w;
    }
    /* unsigned: a step beyond all reason wraps around */
    uint64_t position = (uint64_t)step * (uint64_t)s->batch + (uint64_t)row;
    uint64_t windows = (uint64_t)loader->windows;
    int64_t epoch = (int64_t)(position / windows);
    ls_random key = {s->seed, loader->order_stream, (uint32_t)epoch};
    int64_t index = (int64_t)ls_random_permute(key, position % windows, windows);
    if (s->borders) return shuffled_in_document(loader, epoch, index);
    window w = end_to_end(loader, epoch, 0, 0, loader->tokens, index);
    w.fresh = true;
    return w;
}

/* Unscores the targets that begin a document. */
static void unscore_borders(const ls_loader *loader, window w, int32_t *targets) {
    int64_t d = ls_token_file_document_at(loader->file, w.begin);
    for (d++; d < loader->documents; d++) {
        int64_t at = ls_token_file_document(loader->file, d).begin - w.begin - 1;
        if (at >= w.count) break;
        targets[at] = -1;
    }
}

void ls_loader_rows(const ls_loader *loader, int64_t step, int64_t row, int64_t rows,
                    int32_t *inputs, int32_t *targets, bool *fresh) {
    int64_t T = loader->settings.length;
    for (int64_t b = 0; b < rows; b++) {
        window w = find_window(loader, step, row + b);
        int32_t *x = inputs + b * T, *y = targets + b * T;
        ls_token_file_read(loader->file, w.begin, w.count, x);
        ls_token_file_read(loader->file, w.begin + 1, w.count, y);
        for (int64_t t = 0; t < w.covered; t++) y[t] = -1;
        for (int64_t t = w.count; t < T; t++) {
            x[t] = 0;
            y[t] = -1;
        }
        if (!loader->settings.borders) unscore_borders(loader, w, y);
        if (fresh != NULL) fresh[b] = w.fresh;
    }
}

ls_status ls_loader_status(ls_ctx *ctx, const ls_loader *loader) {
    return ls_token_file_status(ctx, loader->file);
}

bool ls_loader_resets(const ls_loader *loader) {
    return loader->settings.kind == LS_LOADER_STREAM && loader->settings.borders;
}

int64_t ls_loader_epoch_steps(const ls_loader *loader) {
    if (loader->settings.kind == LS_LOADER_STREAM) return loader->windows;
    return ls_ceil_div(loader->windows, loader->settings.batch);
}

uint64_t ls_loader_identity(const ls_loader *loader) {
    const ls_loader_settings *s = &loader->settings;
    uint64_t parts[6] = {ls_token_file_hash(loader->file),
                         (uint64_t)s->kind,
                         s->borders,
                         (uint64_t)s->batch,
                         (uint64_t)s->length,
                         s->seed};
    return ls_hash(parts, sizeof parts);
}
