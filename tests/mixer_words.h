/* A mixer chosen by key=value words, for tests. */
#ifndef LS_TESTS_MIXER_WORDS_H
#define LS_TESTS_MIXER_WORDS_H

#include "harness.h"
#include "mixer/mixer.h"

/* The next key of "key=value key=value"; NULL at the end. The words are cut up. */
static inline char *next_setting(char **words, char **value) {
    char *key = strtok_r(*words, " ", words);
    if (key == NULL) return NULL;
    *value = strchr(key, '=');
    if (*value == NULL) fail_msg("%s has no value", key);
    *(*value)++ = '\0';
    return key;
}

/* What ls_mixer_check says of it; release it with mixer_release. */
static inline ls_status mixer_choose(ls_ctx *ctx, const ls_mixer_type *type, const char *words,
                                     int64_t width, bool causal, ls_mixer *out) {
    char all[512], *rest = all, *value;
    void *options = calloc(1, type->options.size);
    expect(ctx, ls_options_default(ctx, &type->options, options));
    snprintf(all, sizeof all, "%s", words);
    for (char *key; (key = next_setting(&rest, &value)) != NULL;)
        expect(ctx, ls_options_set(ctx, &type->options, "", key, value, options));
    *out = (ls_mixer){.type = type, .options = options, .width = width, .causal = causal};
    return ls_mixer_check(ctx, out);
}

static inline void mixer_release(ls_mixer *mixer) {
    free((void *)(uintptr_t)mixer->options);
    *mixer = (ls_mixer){0};
}

#endif
