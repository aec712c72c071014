#include "model/naming.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* ---- reading ---- */

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) *--end = '\0';
    return text;
}

/* Cuts the text into rules, in place. */
static ls_status parse(ls_ctx *ctx, const char *choice, ls_naming *naming) {
    size_t lines = 1, number = 0;
    for (size_t i = 0; i < naming->text.length; i++) lines += naming->text.bytes[i] == '\n';
    naming->rule = ls_new(ctx, lines, sizeof *naming->rule);
    if (naming->rule == NULL) return LS_ENOMEM;
    for (char *line = naming->text.bytes, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        number++;
        line = trimmed(line);
        if (*line == '\0' || *line == '#') continue;
        char *equals = strchr(line, '=');
        if (equals == NULL)
            return LS_FAIL(ctx, LS_EINPUT, "%s, line %zu: `%.60s` is not PATTERN = TARGET", choice,
                           number, line);
        *equals = '\0';
        const ls_naming_rule rule = {trimmed(line), trimmed(equals + 1)};
        if (*rule.pattern == '\0' || *rule.target == '\0')
            return LS_FAIL(ctx, LS_EINPUT, "%s, line %zu: a pattern and a target are needed",
                           choice, number);
        naming->rule[naming->rules++] = rule;
    }
    return LS_OK;
}

const char *ls_public_rules(const char *name) {
    for (const ls_public_names *known = ls_public_names_known; known->name != NULL; known++)
        if (strcmp(known->name, name) == 0) return known->rules;
    return "";
}

/* The rules of public code, or those of a file. */
static ls_status load(ls_ctx *ctx, const char *choice, ls_text *out) {
    enum { NAMING_BYTES_MAX = 1 << 20 };
    ls_text names = {0};
    if (choice[0] == '\0') return LS_OK;
    for (const ls_public_names *known = ls_public_names_known; known->name != NULL; known++) {
        if (strcmp(known->name, choice) != 0) continue;
        ls_text_append(ctx, out, known->rules, strlen(known->rules));
        return ls_text_status(out);
    }
    if (ls_path_exists(choice)) {
        LS_TRY(ls_file_read(ctx, choice, NAMING_BYTES_MAX, out));
        if (memchr(out->bytes == NULL ? "" : out->bytes, '\0', out->length) != NULL)
            return LS_FAIL(ctx, LS_EINPUT, "%s is no text", choice);
        ls_text_append(ctx, out, "\n", 1);
        return ls_text_status(out);
    }
    for (const ls_public_names *known = ls_public_names_known; known->name != NULL; known++)
        ls_text_printf(ctx, &names, "%s%s", names.length == 0 ? "" : ", ", known->name);
    LS_FAIL(ctx, LS_EUSE, "names=%s is neither a file nor one of %s", choice,
            names.failed ? "" : names.bytes);
    ls_text_clear(ctx, &names);
    return LS_EUSE;
}

ls_status ls_naming_read(ls_ctx *ctx, const char *choice, const char *more, ls_naming *out) {
    *out = (ls_naming){0};
    ls_status status = load(ctx, choice, &out->text);
    ls_text_append(ctx, &out->text, more, strlen(more));
    if (status == LS_OK) status = ls_text_status(&out->text);
    if (status == LS_OK) status = parse(ctx, choice, out);
    if (status != LS_OK) ls_naming_clear(ctx, out);
    return status;
}

ls_status ls_naming_parse(ls_ctx *ctx, const char *what, const char *rules, ls_naming *out) {
    *out = (ls_naming){0};
    ls_text_append(ctx, &out->text, rules, strlen(rules));
    ls_status status = ls_text_status(&out->text);
    if (status == LS_OK) status = parse(ctx, what, out);
    if (status != LS_OK) ls_naming_clear(ctx, out);
    return status;
}

void ls_naming_clear(ls_ctx *ctx, ls_naming *naming) {
    ls_free(ctx, naming->rule);
    ls_text_clear(ctx, &naming->text);
    *naming = (ls_naming){0};
}

/* ---- finding ---- */

/* What a pattern found: the number under each letter, and the ending. */
typedef struct found {
    int64_t number[26]; /* -1: none */
    const char *rest;   /* NULL: none */
} found;

/* {x} at a place of a pattern or target: the letter's number, else -1. */
static int letter_at(const char *text) {
    return text[0] == '{' && text[1] >= 'a' && text[1] <= 'z' && text[2] == '}' ? text[1] - 'a'
                                                                                : -1;
}

static bool fits_here(const char *pattern, const char *name, found *out) {
    memset(out->number, -1, sizeof out->number);
    out->rest = NULL;
    while (*pattern != '\0') {
        const int letter = letter_at(pattern);
        if (letter >= 0) {
            const size_t digits = strspn(name, "0123456789");
            if (digits == 0 || digits > 9) return false;
            out->number[letter] = strtoll(name, NULL, 10);
            name += digits;
            pattern += 3;
        } else if (pattern[0] == '*' && pattern[1] == '\0') {
            out->rest = name;
            return true;
        } else if (*pattern++ != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

/* A star may stand behind the kind, as in w.*wte.weight. */
static bool fits(const char *pattern, const char *name, found *out) {
    const char *star = strchr(pattern, '*');
    if (star == NULL || star[1] == '\0') return fits_here(pattern, name, out);
    const size_t before = (size_t)(star - pattern);
    if (strncmp(pattern, name, before) != 0) return false;
    for (name += before;; name++) {
        if (fits_here(star + 1, name, out)) return true;
        name = strchr(name, '.');
        if (name == NULL) return false;
    }
}

bool ls_name_parts(const char *pattern, const char *name, int64_t number[26], const char **rest) {
    found by;
    if (!fits(pattern, name, &by)) return false;
    memcpy(number, by.number, sizeof by.number);
    *rest = by.rest;
    return true;
}

static bool expand(const char *target, const found *by, char *out, size_t bytes) {
    size_t used = 0;
    while (*target != '\0') {
        const int letter = letter_at(target);
        int more;
        if (letter >= 0 && by->number[letter] >= 0) {
            more = snprintf(out + used, bytes - used, "%lld", (long long)by->number[letter]);
            target += 3;
        } else if (*target == '*' && by->rest != NULL) {
            more = snprintf(out + used, bytes - used, "%s", by->rest);
            target++;
        } else {
            more = snprintf(out + used, bytes - used, "%c", *target++);
        }
        if (more < 0 || (used += (size_t)more) >= bytes) return false;
    }
    out[used] = '\0';
    return true;
}

bool ls_naming_find(const ls_naming *naming, const char *name, size_t *from, char *out,
                    size_t bytes, int64_t *piece) {
    found by;
    while (*from < naming->rules) {
        const ls_naming_rule *rule = &naming->rule[(*from)++];
        if (!fits(rule->pattern, name, &by)) continue;
        *piece = by.number['s' - 'a'];
        return expand(rule->target, &by, out, bytes);
    }
    return false;
}

bool ls_name_fits(const char *pattern, const char *name, const char *target, char *out,
                  size_t bytes) {
    found by;
    return fits(pattern, name, &by) && expand(target, &by, out, bytes);
}

const char *ls_name_after(const char *name, const char *prefix) {
    const size_t bytes = strlen(prefix);
    return strncmp(name, prefix, bytes) == 0 ? name + bytes : NULL;
}
