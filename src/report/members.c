#include "report/members.h"

#include <math.h>
#include <stdio.h>

static const double count_max = 9007199254740992; /* 2^53: whole numbers up to here are exact */

bool ls_member_is_text(const json_t *value) {
    return json_is_string(value) && json_string_length(value) <= LS_MEMBER_TEXT_MAX;
}

ls_status ls_member_refuse(ls_ctx *ctx, const char *path, const char *where, const char *key,
                           const char *must) {
    return LS_FAIL(ctx, LS_EINPUT, "%s: `%.60s` of %.200s must be %s", path, key, where, must);
}

bool ls_member_fits(const ls_member *m, const json_t *value) {
    const double number = json_number_value(value);
    switch (m->kind) {
    case LS_TEXT_MEMBER:
        return ls_member_is_text(value);
    case LS_FLAG_MEMBER:
        return json_is_boolean(value);
    case LS_COUNT_MEMBER:
        if (!json_is_integer(value) || fabs(number) > count_max) return false;
        break;
    case LS_REAL_MEMBER:
        break;
    }
    return json_is_number(value) && number >= m->low && number <= m->high;
}

ls_status ls_members_check(ls_ctx *ctx, const char *path, const char *where, const json_t *object,
                           const ls_member *members, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const ls_member *m = &members[i];
        const json_t *value = json_object_get(object, m->key);
        char must[96] = "a short text";
        if (value == NULL || ls_member_fits(m, value)) continue;
        if (m->kind == LS_FLAG_MEMBER) snprintf(must, sizeof must, "true or false");
        if (m->kind == LS_COUNT_MEMBER || m->kind == LS_REAL_MEMBER)
            snprintf(must, sizeof must, "a %snumber from %g to %g",
                     m->kind == LS_COUNT_MEMBER ? "whole " : "", m->low, m->high);
        return ls_member_refuse(ctx, path, where, m->key, must);
    }
    return LS_OK;
}
