#include "train/mixture.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* ---- settings ---- */

static void section_of(const ls_task_type *type, char *out, size_t bytes) {
    snprintf(out, bytes, "task.%s.", type->name);
}

/* NAME:SHARE */
static ls_status read_one(ls_ctx *ctx, const ls_settings *settings, const char *text, size_t length,
                          ls_mixture *out) {
    char name[64], share[64], section[96];
    const char *colon = memchr(text, ':', length);
    const size_t before = colon == NULL ? length : (size_t)(colon - text);
    double value = -1;
    if (colon == NULL || before >= sizeof name || length - before > sizeof share)
        return LS_FAIL(ctx, LS_EUSE, "data.mix: `%.*s` must be TASK:SHARE, as text_needle:0.2",
                       (int)ls_min((int64_t)length, 100), text);
    snprintf(name, sizeof name, "%.*s", (int)before, text);
    snprintf(share, sizeof share, "%.*s", (int)(length - before - 1), colon + 1);
    if (!ls_parse_real(share, &value) || !(value > 0 && value <= 1))
        return LS_FAIL(ctx, LS_EUSE, "data.mix: the share of %s must be a number above 0, to 1",
                       name);
    ls_task *task = &out->tasks[out->count];
    snprintf(section, sizeof section, "task.%s.", name);
    LS_TRY(ls_task_read_named(ctx, settings, ls_training_facts, name, section, task));
    if (task->type->classes > 0)
        return LS_FAIL(ctx, LS_EUSE, "data.mix: task %s asks for a class, not for tokens", name);
    for (int64_t i = 0; i < out->count; i++)
        if (out->tasks[i].type == task->type)
            return LS_FAIL(ctx, LS_EUSE, "data.mix: %s is there twice", name);
    out->upto[out->count] = value + (out->count == 0 ? 0 : out->upto[out->count - 1]);
    out->count++;
    return LS_OK;
}

ls_status ls_mixture_read(ls_ctx *ctx, const ls_settings *settings, const char *mix,
                          ls_mixture *out) {
    *out = (ls_mixture){0};
    while (*mix != '\0') {
        const size_t length = strcspn(mix, ",");
        if (out->count == LS_MIXTURE_MAX)
            return LS_FAIL(ctx, LS_EUSE, "data.mix: more than %d tasks", LS_MIXTURE_MAX);
        LS_TRY(read_one(ctx, settings, mix, length, out));
        mix += length + (mix[length] == ',');
    }
    if (out->count > 0 && out->upto[out->count - 1] > 1 + 1e-9)
        return LS_FAIL(ctx, LS_EUSE, "data.mix: the shares are %g together, more than 1",
                       out->upto[out->count - 1]);
    return LS_OK;
}

void ls_mixture_print(ls_ctx *ctx, const ls_mixture *m, ls_text *out) {
    char section[96];
    for (int64_t i = 0; i < m->count; i++) {
        section_of(m->tasks[i].type, section, sizeof section);
        ls_task_print_options(ctx, &m->tasks[i], section, out);
    }
}

/* ---- rows ---- */

enum { BYTES_EACH = 4, TRIES = 16 }; /* of a token, to begin with; until a text fits */

typedef struct ls_mixing {
    ls_ctx *ctx;
    const ls_mixture *mixture;
    ls_train_source corpus;
    ls_encoder *encoder;
    ls_ids ids;
    int32_t *inputs, *targets; /* [BYTES_EACH * length]: a text before it is encoded */
    char *text;
    bool *scored; /* [room]: of the ids */
    size_t room;
    int64_t batch, length;
    uint64_t seed;
    ls_status status; /* of the encoder */
} mixing;

static void mixing_free(ls_ctx *ctx, mixing *m) {
    if (m == NULL) return;
    ls_encoder_free(ctx, m->encoder);
    ls_ids_clear(ctx, &m->ids);
    ls_free(ctx, m->inputs);
    ls_free(ctx, m->targets);
    ls_free(ctx, m->text);
    ls_free(ctx, m->scored);
    ls_free(ctx, m);
}

void ls_mixture_clear(ls_ctx *ctx, ls_mixture *m) {
    mixing_free(ctx, m->mixing);
    for (int64_t i = 0; i < LS_MIXTURE_MAX; i++) ls_task_clear(ctx, &m->tasks[i]);
    *m = (ls_mixture){0};
}

/* The task of a row; -1: the corpus. */
static int64_t whose(const mixing *m, int64_t place) {
    const ls_random key = {.seed = m->seed, .stream = ls_stream_of("mixture")};
    const double share = ls_random_unit(key, (uint64_t)place);
    for (int64_t i = 0; i < m->mixture->count; i++)
        if (share < m->mixture->upto[i]) return i;
    return -1;
}

/* Encodes a stretch of a text whose bytes are all scored, or all not. */
static ls_status encode_part(mixing *m, int64_t from, int64_t to, bool scored) {
    const size_t before = m->ids.count;
    LS_TRY(ls_encoder_encode(m->ctx, m->encoder, m->text + from, (size_t)(to - from), 0, &m->ids));
    if (m->ids.count > m->room) {
        bool *more = ls_new_raw(m->ctx, 2 * m->ids.count, sizeof *more);
        if (more == NULL) return LS_ENOMEM;
        memcpy(more, m->scored, before * sizeof *more);
        ls_free(m->ctx, m->scored);
        m->scored = more;
        m->room = 2 * m->ids.count;
    }
    for (size_t i = before; i < m->ids.count; i++) m->scored[i] = scored;
    return LS_OK;
}

/* A sample of `bytes` bytes as ids. What is asked and what is answered are encoded each by itself,
 * as suites do it. */
static ls_status encode_sample(mixing *m, const ls_task *task, int64_t place, int64_t bytes) {
    ls_task_training_sample(task, m->seed, place, bytes, m->inputs, m->targets);
    const int64_t last = m->targets[bytes - 1];
    const int64_t count = bytes + (last >= 0);
    for (int64_t i = 0; i < bytes; i++) m->text[i] = (char)m->inputs[i];
    if (last >= 0) m->text[bytes] = (char)last;
    m->ids.count = 0;
    for (int64_t from = 0, to; from < count; from = to) {
        const bool scored = from > 0 && m->targets[from - 1] >= 0;
        for (to = from + 1; to < count && (m->targets[to - 1] >= 0) == scored; to++) continue;
        LS_TRY(encode_part(m, from, to, scored));
    }
    return LS_OK;
}

/* The longest text that fits, about: it is made anew with fewer bytes where it has too many ids. */
static ls_status text_row(mixing *m, const ls_task *task, int64_t place, int32_t *inputs,
                          int32_t *targets) {
    const int64_t L = m->length;
    int64_t bytes = L;
    LS_TRY(encode_sample(m, task, place, bytes));
    if ((int64_t)m->ids.count < L) { /* several bytes a token */
        bytes = BYTES_EACH * L;
        LS_TRY(encode_sample(m, task, place, bytes));
    }
    for (int tries = 0; (int64_t)m->ids.count > L + 1 && tries < TRIES && bytes > L; tries++) {
        bytes = ls_max(L, bytes * L / (int64_t)m->ids.count - 1);
        LS_TRY(encode_sample(m, task, place, bytes));
    }
    for (int64_t t = 0; t < L; t++) {
        const bool next = t + 1 < (int64_t)m->ids.count;
        inputs[t] = t < (int64_t)m->ids.count ? m->ids.at[t] : 0;
        targets[t] = next && m->scored[t + 1] ? m->ids.at[t + 1] : -1;
    }
    return LS_OK;
}

static void mixed_rows(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                       int32_t *targets, bool *fresh) {
    mixing *m = (mixing *)user;
    const int64_t L = m->length;
    m->corpus.rows(m->corpus.user, batch, row, rows, inputs, targets, fresh);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t place = batch * m->batch + row + i, which = whose(m, place);
        if (which < 0) continue;
        const ls_task *task = &m->mixture->tasks[which];
        fresh[i] = true;
        if (!task->type->bytes)
            ls_task_training_sample(task, m->seed, place, L, inputs + i * L, targets + i * L);
        else if (m->status == LS_OK)
            m->status = text_row(m, task, place, inputs + i * L, targets + i * L);
    }
}

static ls_status mixed_status(ls_ctx *ctx, const void *user) {
    const mixing *m = user;
    if (m->status != LS_OK) return m->status;
    return m->corpus.status == NULL ? LS_OK : m->corpus.status(ctx, m->corpus.user);
}

static ls_status check_tasks(ls_ctx *ctx, const ls_mixture *mixture, int64_t vocabulary,
                             int64_t length) {
    for (int64_t i = 0; i < mixture->count; i++) {
        const ls_task *task = &mixture->tasks[i];
        LS_TRY(ls_task_check(ctx, task, length));
        if (!task->type->bytes && ls_task_vocabulary(task) > vocabulary)
            return LS_FAIL(ctx, LS_EUSE, "data.mix: task %s has %lld tokens, the model has %lld",
                           task->type->name, (long long)ls_task_vocabulary(task),
                           (long long)vocabulary);
    }
    return LS_OK;
}

ls_status ls_mixture_open(ls_ctx *ctx, ls_mixture *mixture, const ls_train_source *corpus,
                          const ls_tokenizer *tokenizer, const ls_train_settings *settings,
                          ls_train_source *out) {
    const size_t room = (size_t)(BYTES_EACH * settings->length) + 1;
    LS_TRY(check_tasks(ctx, mixture, corpus->vocabulary, settings->length));
    mixing *m = mixture->mixing = ls_new(ctx, 1, sizeof *m);
    if (m == NULL) return LS_ENOMEM;
    *m = (mixing){.ctx = ctx,
                  .mixture = mixture,
                  .corpus = *corpus,
                  .inputs = ls_new(ctx, room, sizeof *m->inputs),
                  .targets = ls_new(ctx, room, sizeof *m->targets),
                  .text = ls_new(ctx, room, 1),
                  .scored = ls_new(ctx, room, sizeof *m->scored),
                  .room = room,
                  .batch = settings->batch,
                  .length = settings->length,
                  .seed = (uint64_t)settings->seed};
    if (m->inputs == NULL || m->targets == NULL || m->text == NULL || m->scored == NULL)
        return LS_ENOMEM;
    LS_TRY(ls_encoder_new(ctx, tokenizer, &m->encoder));
    *out = *corpus;
    out->user = m;
    out->rows = mixed_rows;
    out->status = mixed_status;
    /* settings are compared as such; that they still mean the same is told by a sample of each */
    for (int64_t i = 0; i < mixture->count; i++) {
        ls_task_training_sample(&mixture->tasks[i], m->seed, 0, m->length, m->inputs, m->targets);
        const uint64_t parts[3] = {out->identity,
                                   ls_hash(m->inputs, (size_t)m->length * sizeof *m->inputs),
                                   ls_hash(m->targets, (size_t)m->length * sizeof *m->targets)};
        out->identity = ls_hash(parts, sizeof parts);
    }
    return LS_OK;
}
