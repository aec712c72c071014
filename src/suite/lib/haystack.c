#include "suite/lib/haystack.h"

#include <stdio.h>
#include <string.h>

#include "suite/lib/lines.h"
#include "task/lib/writing.h"

ls_status ls_hay_open(ls_suite *suite, ls_hay *out) {
    char hash[20];
    *out = (ls_hay){.text = ls_noise_sentence, .length = strlen(ls_noise_sentence)};
    json_object_set_new(suite->notes, "haystack", json_string("noise"));
    if (suite->settings.path[0] == '\0') return LS_OK;
    LS_TRY(ls_whole_read(suite->ctx, suite->settings.path, true, &out->whole));
    out->text = (const char *)out->whole.bytes;
    out->length = out->whole.length;
    if (out->length == 0)
        return LS_FAIL(suite->ctx, LS_EINPUT, "%s has no text", suite->settings.path);
    LS_TRY(ls_lines_check(suite->ctx, suite->settings.path, &out->whole));
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)ls_hash(out->text, out->length));
    json_object_set_new(suite->notes, "haystack", json_string(hash));
    return LS_OK;
}

void ls_hay_close(ls_hay *hay) {
    ls_whole_free(&hay->whole);
}

ls_status ls_hay_tokens(const ls_suite *suite, const ls_hay *hay, int64_t example, int64_t tokens,
                        ls_ids *out) {
    enum { BYTES_EACH = 8 }; /* of a token, more than most have */
    const ls_random random = ls_suite_random(suite, "suite haystack", example);
    size_t start = hay->whole.bytes == NULL ? 0 : ls_random_below(random, 0, hay->length);
    while (start > 0 && start < hay->length && hay->text[start - 1] != '\n') start++;
    if (start >= hay->length) start = 0;
    size_t before = out->count; /* tokens at the last begin of the text */
    bool whole = start == 0;    /* it was gone through since then */
    while ((int64_t)out->count < tokens) {
        LS_TRY(ls_check_stop(suite->ctx, "making a prompt"));
        const size_t wanted = ((size_t)tokens - out->count) * BYTES_EACH + 64;
        size_t end = hay->length - start < wanted ? hay->length : start + wanted;
        while (end < hay->length && ((uint8_t)hay->text[end] & 0xC0) == 0x80) end++;
        LS_TRY(
            ls_encoder_encode(suite->ctx, suite->encoder, hay->text + start, end - start, 0, out));
        if (end == hay->length && (int64_t)out->count < tokens)
            LS_TRY(ls_encoder_encode(suite->ctx, suite->encoder, "\n", 1, 0, out));
        start = end == hay->length ? 0 : end;
        if (start > 0) continue;
        if (whole && out->count == before) /* blanks, which a tokenizer may leave out */
            return LS_FAIL(suite->ctx, LS_EINPUT, "the text of suite.path has no tokens");
        before = out->count;
        whole = true;
    }
    out->count = (size_t)tokens;
    return LS_OK;
}

ls_status ls_suite_lengths(const ls_suite *suite, int64_t lengths[LS_OPTION_LIST_MAX],
                           int64_t *count) {
    const ls_ints *asked = &suite->settings.lengths;
    const int64_t trained = suite->model->config->trained_length;
    *count = 0;
    for (int64_t i = 0; i < asked->count; i++) {
        char what[64];
        snprintf(what, sizeof what, "a context of suite.lengths=%lld", (long long)asked->at[i]);
        LS_TRY(ls_suite_check_window(suite, what, asked->at[i]));
        lengths[(*count)++] = asked->at[i];
    }
    if (*count > 0) return LS_OK;
    for (int64_t quarter = 1; quarter <= 16; quarter *= 2) {
        const int64_t length = ls_max(16, trained * quarter / 4);
        if (suite->window == 0 || length <= suite->window) lengths[(*count)++] = length;
    }
    return LS_OK;
}

double ls_suite_depth(int64_t index, int64_t count) {
    return count == 1 ? 50 : 100.0 * (double)index / (double)(count - 1);
}

void ls_suite_key(const ls_suite *suite, int64_t example, int64_t index, char *out, size_t bytes) {
    const ls_random random = ls_suite_random(suite, "suite keys", example);
    ls_word_pair(ls_random_permute(random, (uint64_t)index % LS_WORD_PAIRS, LS_WORD_PAIRS), out,
                 bytes);
}

void ls_suite_digits(const ls_suite *suite, const char *purpose, int64_t example, int64_t index,
                     int digits, bool hex, char *out) {
    ls_write_digits(ls_suite_random(suite, purpose, example), (uint64_t)index, digits, hex, out);
}

int64_t ls_suite_slot(const ls_suite *suite, int64_t example, int64_t index, int64_t count) {
    const ls_random random = ls_suite_random(suite, "suite slots", index / count);
    (void)example;
    return (int64_t)ls_random_permute(random, (uint64_t)(index % count), (uint64_t)count);
}

ls_status ls_suite_candidates(const ls_suite *suite, ls_suite_group *group, ls_suite_item *item,
                              const char *const *texts, int64_t count, int64_t truth) {
    item->candidates = ls_pool_take(&group->pool, (size_t)count, sizeof *item->candidates);
    item->names = ls_pool_take(&group->pool, (size_t)count, sizeof *item->names);
    LS_TRY(ls_pool_status(&group->pool));
    item->candidate_count = count;
    item->truth = truth;
    for (int64_t c = 0; c < count; c++) {
        item->names[c] = ls_pool_copy(&group->pool, texts[c], strlen(texts[c]));
        LS_TRY(ls_suite_encode(suite, &group->pool, texts[c], strlen(texts[c]), 0,
                               &item->candidates[c]));
        if (item->candidates[c].count == 0)
            return LS_FAIL(suite->ctx, LS_EINPUT, "a candidate answer is an empty text");
    }
    return ls_pool_status(&group->pool);
}
