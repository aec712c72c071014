/* Sweeps: arms made from lists of values.
 *
 * sweep.KEY has the values of a key. Every arm of the study file, or where it has none one arm
 * without settings of its own, becomes one for each combination; arms that test another's weights
 * do so for each of its. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "study/study_parts.h"

enum { KEYS_MAX = 16, ARMS_MAX = 4096 };

/* One swept key: its values, one behind the other, each ended by a zero. */
typedef struct axis {
    const char *key;
    ls_text values;
    size_t count;
    bool taken; /* some arm has it */
} axis;

typedef struct sweep {
    ls_study *study;
    axis axes[KEYS_MAX];
    size_t count, combinations;
} sweep;

static const char *value_of(const axis *a, size_t index) {
    const char *at = a->values.bytes;
    for (; index > 0; index--) at += strlen(at) + 1;
    return at;
}

/* The values stand between commas; between semicolons where values have commas of their own. */
static ls_status read_axis(ls_ctx *ctx, const ls_setting *setting, axis *out) {
    const char *between = strchr(setting->value, ';') != NULL ? ";" : ",";
    out->key = setting->key;
    for (const char *at = setting->value;; at++) {
        const char *end = at + strcspn(at, between), *from = at, *to = end;
        while (from < to && *from == ' ') from++;
        while (to > from && to[-1] == ' ') to--;
        if (from == to)
            return LS_FAIL(ctx, LS_EUSE, "sweep.%s: a value is missing in `%s`", setting->key,
                           setting->value);
        ls_text_append(ctx, &out->values, from, (size_t)(to - from));
        ls_text_append(ctx, &out->values, "", 1);
        LS_TRY(ls_text_status(&out->values));
        out->count++;
        for (size_t i = 0; i + 1 < out->count; i++)
            if (strcmp(value_of(out, i), value_of(out, out->count - 1)) == 0)
                return LS_FAIL(ctx, LS_EUSE, "sweep.%s: %s is listed twice", setting->key,
                               value_of(out, i));
        if (out->count > ARMS_MAX)
            return LS_FAIL(ctx, LS_EUSE, "sweep.%s: more than %d values", setting->key, ARMS_MAX);
        if (*end == '\0') return LS_OK;
        at = end;
    }
}

static ls_status read_axes(sweep *s) {
    const ls_study *study = s->study;
    ls_ctx *ctx = study->ctx;
    const bool zip = study->keys.sweep_by == LS_SWEEP_ZIP;
    s->combinations = 1;
    for (size_t i = 0; i < study->sweep.count; i++) {
        if (s->count == KEYS_MAX)
            return LS_FAIL(ctx, LS_EUSE, "a sweep has at most %d keys", KEYS_MAX);
        axis *a = &s->axes[s->count++];
        LS_TRY(read_axis(ctx, &study->sweep.items[i], a));
        if (zip && a->count != s->axes[0].count)
            return LS_FAIL(ctx, LS_EUSE, "sweep_by=zip: sweep.%s has %zu values, sweep.%s has %zu",
                           a->key, a->count, s->axes[0].key, s->axes[0].count);
        s->combinations = zip ? a->count : s->combinations * a->count; /* at most 4096^2 */
        if (s->combinations > ARMS_MAX)
            return LS_FAIL(ctx, LS_EUSE, "the sweep has more than %d combinations", ARMS_MAX);
    }
    return LS_OK;
}

/* The value of an axis in a combination; the last key varies fastest. */
static const char *choice(const sweep *s, size_t axis_index, size_t combination) {
    if (s->study->keys.sweep_by == LS_SWEEP_ZIP) return value_of(&s->axes[axis_index], combination);
    for (size_t i = s->count; i-- > axis_index + 1;) combination /= s->axes[i].count;
    return value_of(&s->axes[axis_index], combination % s->axes[axis_index].count);
}

/* ---- names ---- */

/* "lr", of train.lr, where the value alone would say nothing: numbers and yes or no. */
static const char *named_key(const axis *a, const char *value) {
    const char *dot = strrchr(a->key, '.');
    double number;
    const bool says =
        !ls_parse_real(value, &number) && strcmp(value, "true") != 0 && strcmp(value, "false") != 0;
    return says ? "" : dot == NULL ? a->key : dot + 1;
}

/* "lr1e-3-mamba", of letters that the name of an arm may have. */
static ls_status name_arm(const sweep *s, const char *base, size_t combination, char *out) {
    ls_ctx *ctx = s->study->ctx;
    ls_text name = {0};
    ls_text_printf(ctx, &name, "%s", base);
    for (size_t i = 0; i < s->count; i++) {
        const char *value = choice(s, i, combination);
        ls_text_printf(ctx, &name, "%s%s%s", name.length == 0 ? "" : "-",
                       named_key(&s->axes[i], value), value);
    }
    LS_TRY(ls_text_status(&name));
    for (char *c = name.bytes; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
        if (strchr("abcdefghijklmnopqrstuvwxyz0123456789_-", *c) == NULL) *c = '_';
    }
    if (name.bytes[0] == '-') name.bytes[0] = '_'; /* a name is not taken for a flag */
    if (name.length < LS_STUDY_NAME_BYTES)
        snprintf(out, LS_STUDY_NAME_BYTES, "%s", name.bytes);
    else
        snprintf(out, LS_STUDY_NAME_BYTES, "%.48s-%zu", name.bytes, combination + 1);
    ls_text_clear(ctx, &name);
    return LS_OK;
}

/* "RoPE, lr 1e-3, mamba". The trained length is marked by whoever shows arms that differ in it, and
 * arms that have all else in common are one row of its maps. */
static ls_status put_label(const sweep *s, const char *base, size_t combination,
                           ls_settings *given) {
    ls_ctx *ctx = s->study->ctx;
    ls_text label = {0};
    ls_text_printf(ctx, &label, "%s", base);
    for (size_t i = 0; i < s->count; i++) {
        const char *value = choice(s, i, combination), *key = named_key(&s->axes[i], value);
        if (base[0] != '\0' && strcmp(s->axes[i].key, "train.length") == 0) continue;
        ls_text_printf(ctx, &label, "%s%s%s%s", label.length == 0 ? "" : ", ", key,
                       key[0] == '\0' ? "" : " ", value);
    }
    ls_status status = ls_text_status(&label);
    if (status == LS_OK) status = ls_settings_put(ctx, given, "label", label.bytes);
    ls_text_clear(ctx, &label);
    return status;
}

/* ---- arms ---- */

/* Whether an arm of the study file tests the weights of another. */
static bool is_dependent(const ls_study_arm *arm, const ls_study_arm *arms, size_t count) {
    const char *from = ls_settings_get(&arm->given, "from");
    for (size_t i = 0; from != NULL && i < count; i++)
        if (strcmp(arms[i].name, from) == 0) return true;
    return false;
}

/* The arm of a combination: what the file says of `base`, and the values. */
static ls_status fill_arm(sweep *s, const ls_study_arm *base, bool dependent, size_t combination,
                          ls_study_arm *out) {
    ls_ctx *ctx = s->study->ctx;
    char from[LS_STUDY_NAME_BYTES];
    const char *label = ls_settings_get(&base->given, "label");
    for (size_t i = 0; i < base->given.count; i++)
        LS_TRY(ls_settings_copy(ctx, &out->given, &base->given.items[i]));
    LS_TRY(put_label(s, label != NULL ? label : base->name, combination, &out->given));
    if (s->study->keys.sweep_keep == LS_SWEEP_BEST && !dependent)
        LS_TRY(ls_settings_put(ctx, &out->given, "one_of",
                               base->name[0] == '\0' ? "sweep" : base->name));
    if (dependent) {
        LS_TRY(name_arm(s, ls_settings_get(&base->given, "from"), combination, from));
        LS_TRY(ls_settings_put(ctx, &out->given, "from", from));
    }
    for (size_t i = 0; i < s->count; i++) {
        axis *a = &s->axes[i];
        const bool tests = ls__study_is_extension(a->key);
        if (dependent ? ls__study_is_training(a->key) : tests) continue;
        if (ls_settings_has(&base->given, a->key))
            return LS_FAIL(ctx, LS_EUSE, "arm %s sets %s, which is swept", base->name, a->key);
        a->taken = true;
        LS_TRY(ls_settings_put(ctx, &out->given, a->key, choice(s, i, combination)));
    }
    return LS_OK;
}

static ls_status make_arms(sweep *s, ls_study_arm *bases, size_t count) {
    for (size_t b = 0; b < count; b++) {
        const bool dependent = is_dependent(&bases[b], bases, count);
        for (size_t c = 0; c < s->combinations; c++) {
            char name[LS_STUDY_NAME_BYTES];
            ls_study_arm *arm;
            const size_t before = s->study->count;
            LS_TRY(name_arm(s, bases[b].name, c, name));
            LS_TRY(ls__study_arm(s->study, name, &arm));
            if (s->study->count == before)
                return LS_FAIL(
                    s->study->ctx, LS_EUSE,
                    "the sweep gives two arms the name %s: values that differ in letters "
                    "and digits would not",
                    name);
            LS_TRY(fill_arm(s, &bases[b], dependent, c, arm));
        }
    }
    for (size_t i = 0; i < s->count; i++)
        if (!s->axes[i].taken)
            return LS_FAIL(s->study->ctx, LS_EUSE,
                           "sweep.%s acts at test time, on arms with from: there is none",
                           s->axes[i].key);
    return LS_OK;
}

bool ls_study_sweep_name(const ls_settings *settings, char *out, size_t bytes) {
    size_t used = (size_t)snprintf(out, bytes, "sweep");
    bool found = false;
    for (size_t i = 0; i < settings->count; i++) {
        const char *key = settings->items[i].key;
        if (strncmp(key, "sweep.", 6) != 0) continue;
        found = true;
        if (used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, "-%s", strrchr(key, '.') + 1);
    }
    return found;
}

ls_status ls__study_sweep(ls_study *study) {
    sweep s = {.study = study};
    ls_study_arm alone = {.parent = -1}, *bases = study->arms;
    const size_t count = study->count;
    if (study->sweep.count == 0)
        return study->keys.sweep_by == LS_SWEEP_PRODUCT && study->keys.sweep_keep == LS_SWEEP_ALL
                   ? LS_OK
                   : LS_FAIL(study->ctx, LS_EUSE, "%s has no effect without sweep",
                             study->keys.sweep_keep == LS_SWEEP_ALL ? "sweep_by" : "sweep_keep");
    study->arms = NULL;
    study->count = study->capacity = 0;
    ls_status status = read_axes(&s);
    if (status == LS_OK)
        status = make_arms(&s, count == 0 ? &alone : bases, count == 0 ? 1 : count);
    for (size_t i = 0; i < count; i++) ls_settings_clear(study->ctx, &bases[i].given);
    for (size_t i = 0; i < s.count; i++) ls_text_clear(study->ctx, &s.axes[i].values);
    ls_free(study->ctx, bases);
    return status;
}
