/* Every pre-tokeniser is made of four steps: a space in front, the metaspace, a split, and the
 * letters of the byte alphabet. A step hands each piece to the next one at once, so no list of
 * pieces is ever kept. */
#include "data/tokenizer/pretokenizer.h"

#include <string.h>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/kind.h"
#include "data/tokenizer/unicode.h"

typedef enum { ISOLATED, REMOVED, CONTIGUOUS, WITH_PREVIOUS, WITH_NEXT } behavior;
typedef enum { PREFIX, META, SPLIT, LETTERS } step_kind;
typedef enum { ALWAYS, FIRST, NEVER } scheme;

struct ls_pretokenizer_step {
    step_kind kind;
    ls_pattern *pattern;              /* SPLIT: by this, or */
    bool (*character)(int32_t point); /* by single characters */
    behavior behavior;
    bool invert;
    char *mark; /* META: what stands for a space */
    scheme scheme;
};

/* A split while it runs: a piece may have to wait for the next one. */
typedef struct splitting {
    const ls_pretokenizer_step *step;
    const uint8_t *text;
    bool start;
    size_t number;       /* of the next step */
    size_t begin, end;   /* what waits */
    bool waits, matched; /* ... and whether the last piece was a match */
} splitting;

static ls_status run(ls_ctx *ctx, ls_pretokenizing *p, size_t number, const uint8_t *text,
                     size_t length, bool start);

static ls_status emit(ls_ctx *ctx, ls_pretokenizing *p, const splitting *s, size_t begin,
                      size_t end) {
    return run(ctx, p, s->number, s->text + begin, end - begin, s->start && begin == 0);
}

static ls_status flush(ls_ctx *ctx, ls_pretokenizing *p, splitting *s) {
    if (!s->waits) return LS_OK;
    s->waits = false;
    return emit(ctx, p, s, s->begin, s->end);
}

/* The next stretch of text, a match or what lies between two. */
static ls_status stretch(ls_ctx *ctx, ls_pretokenizing *p, splitting *s, size_t begin, size_t end,
                         bool match) {
    match = match != s->step->invert;
    bool join = false;
    switch (s->step->behavior) {
    case ISOLATED:
        return emit(ctx, p, s, begin, end);
    case REMOVED:
        return match ? LS_OK : emit(ctx, p, s, begin, end);
    case CONTIGUOUS:
        join = s->waits && match == s->matched;
        break;
    case WITH_PREVIOUS:
        join = s->waits && match && !s->matched;
        break;
    default: /* WITH_NEXT */
        join = s->waits && !match && s->matched;
        break;
    }
    if (!join) {
        LS_TRY(flush(ctx, p, s));
        s->begin = begin;
    }
    s->waits = true;
    s->matched = match;
    s->end = end;
    return LS_OK;
}

static ls_status split_pattern(ls_ctx *ctx, ls_pretokenizing *p, splitting *s, size_t length) {
    size_t done = 0;
    ls_match match = {0};
    for (;;) {
        LS_TRY(ls__pattern_next(ctx, s->step->pattern, p->matcher, s->text, length, &match));
        if (match.begin > length) break;
        if (match.begin > done) LS_TRY(stretch(ctx, p, s, done, match.begin, false));
        /* an empty one gives no piece, but parts those beside it */
        LS_TRY(stretch(ctx, p, s, match.begin, match.end, true));
        done = match.end;
    }
    if (done < length) LS_TRY(stretch(ctx, p, s, done, length, false));
    return flush(ctx, p, s);
}

static ls_status split_characters(ls_ctx *ctx, ls_pretokenizing *p, splitting *s, size_t length) {
    size_t done = 0;
    for (size_t at = 0, used; at < length; at += used) {
        int32_t point;
        used = ls__utf8_take(s->text + at, length - at, &point);
        if (used == 0) return LS_FAIL(ctx, LS_EBUG, "text to split is not UTF-8");
        if (!s->step->character(point)) continue;
        if (at > done) LS_TRY(stretch(ctx, p, s, done, at, false));
        LS_TRY(stretch(ctx, p, s, at, at + used, true));
        done = at + used;
    }
    if (done < length) LS_TRY(stretch(ctx, p, s, done, length, false));
    return flush(ctx, p, s);
}

static void put_letters(ls_ctx *ctx, const uint8_t *text, size_t length, ls_text *out) {
    for (size_t i = 0; i < length; i++) {
        uint8_t letter[4];
        ls_text_append(ctx, out, letter, ls__utf8_put(ls__byte_letter(text[i]), letter));
    }
}

static void put_meta(ls_ctx *ctx, const ls_pretokenizer_step *step, const uint8_t *text,
                     size_t length, bool start, ls_text *out) {
    size_t mark = strlen(step->mark), done = 0;
    bool marked = *text == ' ' || (length >= mark && memcmp(text, step->mark, mark) == 0);
    bool wanted = step->scheme == ALWAYS || (step->scheme == FIRST && start);
    if (wanted && !marked) ls_text_append(ctx, out, step->mark, mark);
    for (const uint8_t *space; (space = memchr(text + done, ' ', length - done)) != NULL;) {
        ls_text_append(ctx, out, text + done, (size_t)(space - text) - done);
        ls_text_append(ctx, out, step->mark, mark);
        done = (size_t)(space - text) + 1;
    }
    ls_text_append(ctx, out, text + done, length - done);
}

/* The bytes behind letters, where steps came after LETTERS. */
static ls_status take_spelled(ls_ctx *ctx, ls_pretokenizing *p, const uint8_t *text,
                              size_t length) {
    ls_text *bytes = &p->texts[p->pretokenizer->count];
    size_t used;
    bytes->length = 0;
    ls_text_append(ctx, bytes, text, length); /* for room: spelling never lengthens */
    LS_TRY(ls_text_status(bytes));
    if (!ls__byte_letters_read((const char *)text, length, (uint8_t *)bytes->bytes, &used))
        return LS_FAIL(ctx, LS_EBUG, "a letter is not of the byte alphabet");
    return p->take(ctx, p->user, (const uint8_t *)bytes->bytes, used);
}

static ls_status run(ls_ctx *ctx, ls_pretokenizing *p, size_t number, const uint8_t *text,
                     size_t length, bool start) {
    const ls_pretokenizer *all = p->pretokenizer;
    if (length == 0) return LS_OK;
    if (number == all->count) {
        bool letters = all->bytes && all->steps[all->count - 1].kind != LETTERS;
        return letters ? take_spelled(ctx, p, text, length) : p->take(ctx, p->user, text, length);
    }
    const ls_pretokenizer_step *step = &all->steps[number];
    if (step->kind == SPLIT) {
        splitting s = {.step = step, .text = text, .start = start, .number = number + 1};
        return step->pattern != NULL ? split_pattern(ctx, p, &s, length)
                                     : split_characters(ctx, p, &s, length);
    }
    /* at the end the letters would only be read back as bytes */
    if (step->kind == LETTERS && number + 1 == all->count)
        return p->take(ctx, p->user, text, length);
    if (step->kind == PREFIX && *text == ' ') return run(ctx, p, number + 1, text, length, start);
    ls_text *into = &p->texts[number];
    into->length = 0;
    if (step->kind == PREFIX) {
        ls_text_append(ctx, into, " ", 1);
        ls_text_append(ctx, into, text, length);
    } else if (step->kind == META) {
        put_meta(ctx, step, text, length, start, into);
    } else {
        put_letters(ctx, text, length, into);
    }
    LS_TRY(ls_text_status(into));
    return run(ctx, p, number + 1, (const uint8_t *)into->bytes, into->length, start);
}

ls_status ls__pretokenize(ls_ctx *ctx, ls_pretokenizing *p, const uint8_t *text, size_t length,
                          bool start) {
    return run(ctx, p, 0, text, length, start);
}

ls_status ls__pretokenizing_init(ls_ctx *ctx, ls_pretokenizing *p) {
    p->texts = ls_new(ctx, p->pretokenizer->count + 1, sizeof *p->texts);
    return p->texts == NULL ? LS_ENOMEM : LS_OK;
}

void ls__pretokenizing_clear(ls_ctx *ctx, ls_pretokenizing *p) {
    if (p->texts != NULL)
        for (size_t i = 0; i <= p->pretokenizer->count; i++) ls_text_clear(ctx, &p->texts[i]);
    ls_free(ctx, p->texts);
    p->texts = NULL;
}

static ls_status add(ls_ctx *ctx, ls_pretokenizer *p, ls_pretokenizer_step step,
                     ls_pretokenizer_step **out) {
    if (!ls_array_reserve(ctx, &p->steps, &p->capacity, p->count + 1, sizeof *p->steps))
        return LS_ENOMEM;
    *out = &p->steps[p->count++];
    **out = step;
    return LS_OK;
}

static ls_status read_byte_level(ls_ctx *ctx, ls_pretokenizer *p, const json_t *json,
                                 const char *what) {
    bool prefix, words;
    ls_pretokenizer_step *step;
    LS_TRY(ls__fields_known(ctx, json, "add_prefix_space|trim_offsets|use_regex", what));
    LS_TRY(ls__field_bool(ctx, json, "add_prefix_space", true, what, &prefix));
    LS_TRY(ls__field_bool(ctx, json, "use_regex", true, what, &words));
    if (p->bytes) return LS_FAIL(ctx, LS_EINPUT, "%s has ByteLevel twice", what);
    if (p->prefix >= 0) prefix = p->prefix;
    if (prefix) LS_TRY(add(ctx, p, (ls_pretokenizer_step){.kind = PREFIX}, &step));
    if (words) {
        LS_TRY(add(ctx, p, (ls_pretokenizer_step){.kind = SPLIT}, &step));
        LS_TRY(ls__pattern_regex(ctx, ls__gpt2_pattern, what, &step->pattern));
    }
    p->bytes = true;
    return add(ctx, p, (ls_pretokenizer_step){.kind = LETTERS}, &step);
}

static ls_status read_behavior(ls_ctx *ctx, const json_t *json, const char *what, behavior *out) {
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    const char *name = json_string_value(json_object_get(json, "behavior"));
    for (int i = 0; name != NULL && i < 5; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (behavior)i;
            return LS_OK;
        }
    return LS_FAIL(ctx, LS_EINPUT, "%s: the behavior %.40s of a split is not understood", what,
                   name == NULL ? "(none)" : name);
}

static ls_status read_split(ls_ctx *ctx, ls_pretokenizer *p, const json_t *json, const char *what) {
    ls_pretokenizer_step *step;
    LS_TRY(add(ctx, p, (ls_pretokenizer_step){.kind = SPLIT}, &step));
    LS_TRY(ls__fields_known(ctx, json, "pattern|behavior|invert", what));
    LS_TRY(ls__field_bool(ctx, json, "invert", false, what, &step->invert));
    LS_TRY(read_behavior(ctx, json, what, &step->behavior));
    return ls__field_pattern(ctx, json, "pattern", what, &step->pattern);
}

static ls_status read_meta(ls_ctx *ctx, ls_pretokenizer *p, const json_t *json, const char *what) {
    bool old, split;
    ls_pretokenizer_step *step;
    LS_TRY(ls__fields_known(ctx, json, "replacement|prepend_scheme|add_prefix_space|split|str_rep",
                            what));
    LS_TRY(ls__field_bool(ctx, json, "split", true, what, &split));
    LS_TRY(ls__field_bool(ctx, json, "add_prefix_space", true, what, &old));
    const char *mark = json_string_value(json_object_get(json, "replacement"));
    const char *name = json_string_value(json_object_get(json, "prepend_scheme"));
    if (mark == NULL || *mark == '\0')
        return LS_FAIL(ctx, LS_EINPUT, "%s: Metaspace needs a `replacement`", what);
    LS_TRY(add(ctx, p, (ls_pretokenizer_step){.kind = META}, &step));
    step->mark = ls_copy_text(ctx, mark);
    if (step->mark == NULL) return LS_ENOMEM;
    if (name == NULL)
        step->scheme = old ? ALWAYS : NEVER;
    else if (strcmp(name, "always") == 0)
        step->scheme = ALWAYS;
    else if (strcmp(name, "first") == 0)
        step->scheme = FIRST;
    else if (strcmp(name, "never") == 0)
        step->scheme = NEVER;
    else
        return LS_FAIL(ctx, LS_EINPUT, "%s: the prepend_scheme %.40s is not understood", what,
                       name);
    if (!split) return LS_OK;
    LS_TRY(add(ctx, p, (ls_pretokenizer_step){.kind = SPLIT, .behavior = WITH_NEXT}, &step));
    return ls__pattern_string(ctx, mark, strlen(mark), &step->pattern);
}

/* The steps that split by characters or by a pattern of their own. */
static ls_status read_other(ls_ctx *ctx, ls_pretokenizer *p, const json_t *json, const char *type,
                            const char *what) {
    ls_pretokenizer_step *step, white = {.kind = SPLIT, .behavior = REMOVED};
    white.character = ls__is_white;
    if (strcmp(type, "WhitespaceSplit") == 0) {
        LS_TRY(ls__fields_known(ctx, json, "", what));
        return add(ctx, p, white, &step);
    }
    if (strcmp(type, "Whitespace") == 0) {
        LS_TRY(ls__fields_known(ctx, json, "", what));
        white.character = NULL;
        white.invert = true;
        LS_TRY(add(ctx, p, white, &step));
        /* the library's \w here has the joiners, U+200C and U+200D; that of Split has not */
        return ls__pattern_regex(
            ctx, "[\\w\xe2\x80\x8c\xe2\x80\x8d]+|[^\\w\xe2\x80\x8c\xe2\x80\x8d\\s]+", what,
            &step->pattern);
    }
    if (strcmp(type, "BertPreTokenizer") == 0) {
        LS_TRY(ls__fields_known(ctx, json, "", what));
        LS_TRY(add(ctx, p, white, &step));
        LS_TRY(add(ctx, p, (ls_pretokenizer_step){.kind = SPLIT}, &step));
        step->character = ls__is_punctuation;
        return LS_OK;
    }
    if (strcmp(type, "Punctuation") == 0) {
        LS_TRY(ls__fields_known(ctx, json, "behavior", what));
        LS_TRY(add(ctx, p, (ls_pretokenizer_step){.kind = SPLIT}, &step));
        step->character = ls__is_punctuation;
        return json_object_get(json, "behavior") == NULL
                   ? LS_OK
                   : read_behavior(ctx, json, what, &step->behavior);
    }
    if (strcmp(type, "Digits") == 0) {
        bool single;
        LS_TRY(ls__fields_known(ctx, json, "individual_digits", what));
        LS_TRY(ls__field_bool(ctx, json, "individual_digits", false, what, &single));
        LS_TRY(add(ctx, p, (ls_pretokenizer_step){.kind = SPLIT}, &step));
        step->character = ls__is_numeric;
        step->behavior = single ? ISOLATED : CONTIGUOUS;
        return LS_OK;
    }
    return LS_FAIL(ctx, LS_EINPUT, "%s: the pre-tokeniser %.60s is not understood", what, type);
}

static ls_status add_step(ls_ctx *ctx, void *user, const json_t *json, const char *type,
                          const char *what) {
    ls_pretokenizer *p = user;
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(ctx, p, json, what);
    if (strcmp(type, "Split") == 0) return read_split(ctx, p, json, what);
    if (strcmp(type, "Metaspace") == 0) {
        if (p->bytes)
            return LS_FAIL(ctx, LS_EINPUT, "%s: Metaspace after ByteLevel is not understood", what);
        return read_meta(ctx, p, json, what);
    }
    return read_other(ctx, p, json, type, what);
}

ls_status ls__pretokenizer_read(ls_ctx *ctx, const json_t *json, const char *what,
                                ls_pretokenizer *out) {
    return ls__field_sequence(ctx, json, "pre_tokenizer", "pretokenizers", what, add_step, out);
}

void ls__pretokenizer_clear(ls_ctx *ctx, ls_pretokenizer *p) {
    for (size_t i = 0; i < p->count; i++) {
        ls__pattern_free(ctx, p->steps[i].pattern);
        ls_free(ctx, p->steps[i].mark);
    }
    ls_free(ctx, p->steps);
    *p = (ls_pretokenizer){0};
}
