#include "data/loader.h"

#include <string.h>

#include "base/random.h"

__extension__ typedef unsigned __int128 wide;

struct ls_loader {
    const ls_token_file *file;
    ls_loader_settings settings;
    int64_t documents, tokens;
    int64_t windows; /* of an epoch; of one row in a stream */
    int64_t *before; /* [documents + 1] windows before each document; borders only */
    uint32_t order_stream, offset_stream;
    /* of several files: a loader of each, with a batch of one row where windows are dealt */
    ls_loader **parts;            /* NULL: there is one file */
    int64_t *weights, *first_row; /* [count], [count + 1]: rows of a stream */
    size_t count;
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

/* Rows of a stream by the weights, rounded down, and what is left to the first files. */
static ls_status share_rows(ls_ctx *ctx, ls_loader *loader) {
    int64_t sum = 0, given = 0;
    for (size_t i = 0; i < loader->count; i++) sum += loader->weights[i];
    for (size_t i = 0; i < loader->count; i++) {
        const int64_t rows =
            (int64_t)((wide)loader->settings.batch * (wide)loader->weights[i] / (wide)sum);
        if (rows == 0)
            return LS_FAIL(
                ctx, LS_EUSE,
                "a batch of %lld rows has none for a share of %.3g: data.loader=shuffled, "
                "or a larger train.batch",
                (long long)loader->settings.batch, (double)loader->weights[i] / (double)sum);
        loader->first_row[i + 1] = rows;
        given += rows;
    }
    for (size_t i = 0; given < loader->settings.batch; i++, given++) loader->first_row[i + 1]++;
    for (size_t i = 0; i < loader->count; i++) loader->first_row[i + 1] += loader->first_row[i];
    return LS_OK;
}

ls_status ls_loader_new_mixed(ls_ctx *ctx, ls_token_file *const *files, const int64_t *weights,
                              size_t count, ls_loader_settings settings, ls_loader **out) {
    const bool stream = settings.kind == LS_LOADER_STREAM;
    *out = NULL;
    ls_loader *loader = ls_new(ctx, 1, sizeof *loader);
    if (loader == NULL) return LS_ENOMEM;
    ls_status status = LS_ENOMEM;
    loader->settings = settings;
    loader->count = count;
    loader->parts = ls_new(ctx, count, sizeof(ls_loader *));
    loader->weights = ls_new(ctx, count, sizeof *loader->weights);
    loader->first_row = ls_new(ctx, count + 1, sizeof *loader->first_row);
    if (loader->parts == NULL || loader->weights == NULL || loader->first_row == NULL) goto fail;
    memcpy(loader->weights, weights, count * sizeof *weights);
    if (stream) LS_TRY_GOTO(share_rows(ctx, loader));
    for (size_t i = 0; i < count; i++) {
        ls_loader_settings own = settings;
        own.batch = stream ? loader->first_row[i + 1] - loader->first_row[i] : 1;
        LS_TRY_GOTO(ls_loader_new(ctx, files[i], own, &loader->parts[i]));
    }
    *out = loader;
    return LS_OK;
fail:
    ls_loader_free(ctx, loader);
    return status;
}

void ls_loader_free(ls_ctx *ctx, ls_loader *loader) {
    if (loader == NULL) return;
    for (size_t i = 0; loader->parts != NULL && i < loader->count; i++)
        ls_loader_free(ctx, loader->parts[i]);
    ls_free(ctx, loader->parts);
    ls_free(ctx, loader->weights);
    ls_free(ctx, loader->first_row);
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

/* Which file has the window at a place of the endless sequence of all, and the how manyth of that
 * file's it is: the first file takes its share evenly, the next its share of what is left, ... */
static const ls_loader *deal(const ls_loader *loader, uint64_t place, int64_t *nth) {
    int64_t left = 0;
    size_t i = 0;
    for (size_t j = 0; j < loader->count; j++) left += loader->weights[j];
    for (; i + 1 < loader->count; i++) {
        const wide weight = (wide)loader->weights[i], all = (wide)left;
        const uint64_t before = (uint64_t)(weight * place / all);
        *nth = (int64_t)before;
        if ((uint64_t)(weight * ((wide)place + 1) / all) > before) return loader->parts[i];
        place -= before;
        left -= loader->weights[i];
    }
    *nth = (int64_t)place;
    return loader->parts[i];
}

static void mixed_row(const ls_loader *loader, int64_t step, int64_t row, int32_t *inputs,
                      int32_t *targets, bool *fresh) {
    const ls_loader_settings *s = &loader->settings;
    int64_t nth;
    if (s->kind == LS_LOADER_SHUFFLED) { /* unsigned, as in find_window */
        const uint64_t place = (uint64_t)step * (uint64_t)s->batch + (uint64_t)row;
        const ls_loader *part = deal(loader, place, &nth);
        ls_loader_rows(part, nth, 0, 1, inputs, targets, fresh);
        return;
    }
    size_t i = 0;
    while (row >= loader->first_row[i + 1]) i++;
    ls_loader_rows(loader->parts[i], step, row - loader->first_row[i], 1, inputs, targets, fresh);
}

void ls_loader_rows(const ls_loader *loader, int64_t step, int64_t row, int64_t rows,
                    int32_t *inputs, int32_t *targets, bool *fresh) {
    int64_t T = loader->settings.length;
    for (int64_t b = 0; loader->parts != NULL && b < rows; b++)
        mixed_row(loader, step, row + b, inputs + b * T, targets + b * T,
                  fresh == NULL ? NULL : fresh + b);
    for (int64_t b = 0; loader->parts == NULL && b < rows; b++) {
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
    if (loader->parts == NULL) return ls_token_file_status(ctx, loader->file);
    for (size_t i = 0; i < loader->count; i++) LS_TRY(ls_loader_status(ctx, loader->parts[i]));
    return LS_OK;
}

bool ls_loader_resets(const ls_loader *loader) {
    /* epochs of different files end at different steps */
    return loader->settings.kind == LS_LOADER_STREAM &&
           (loader->settings.borders || loader->parts != NULL);
}

/* Windows of a mixture after which file i has shown all of its own. */
static int64_t mixed_windows(const ls_loader *loader, size_t i) {
    int64_t sum = 0;
    for (size_t j = 0; j < loader->count; j++) sum += loader->weights[j];
    const wide windows = (wide)loader->parts[i]->windows * (wide)sum / (wide)loader->weights[i];
    return windows > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)windows;
}

int64_t ls_loader_epoch_steps(const ls_loader *loader) {
    const bool stream = loader->settings.kind == LS_LOADER_STREAM;
    int64_t most = loader->windows;
    for (size_t i = 0; i < loader->count; i++)
        most = ls_max(most, stream ? loader->parts[i]->windows : mixed_windows(loader, i));
    return stream ? most : ls_ceil_div(most, loader->settings.batch);
}

int64_t ls_loader_windows(const ls_loader *loader) {
    return loader->windows;
}

static uint64_t mixed_identity(const ls_loader *loader) {
    uint64_t identity = (uint64_t)loader->settings.batch;
    for (size_t i = 0; i < loader->count; i++) {
        const uint64_t parts[3] = {identity, ls_loader_identity(loader->parts[i]),
                                   (uint64_t)loader->weights[i]};
        identity = ls_hash(parts, sizeof parts);
    }
    return identity;
}

uint64_t ls_loader_identity(const ls_loader *loader) {
    const ls_loader_settings *s = &loader->settings;
    if (loader->parts != NULL) return mixed_identity(loader);
    uint64_t parts[6] = {ls_token_file_hash(loader->file),
                         (uint64_t)s->kind,
                         s->borders,
                         (uint64_t)s->batch,
                         (uint64_t)s->length,
                         s->seed};
    return ls_hash(parts, sizeof parts);
}
