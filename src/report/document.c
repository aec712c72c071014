/* Documents whose numbers come from results, or from figures of the benchmark.
 *
 * Tables and charts stand between `<!-- begin WORDS -->` and `<!-- end -->`, and are written here.
 * A number of the text around them has a comment right behind it, which names where the results
 * hold it: `+0.02<!-- excess alibi nonoverlap 1024 -->`. It is compared, never rewritten: who
 * changes it reads its sentence. A fraction without such a comment is refused.
 *
 * Words of figures begin with "figures NAME". A page may have several sources: each is asked for
 * what is its own, and the page is made once for each. */
#include "report/document.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "report/figures.h"
#include "report/html.h"

enum { PAGE_BYTES_MAX = 1 << 22, WORDS_BYTES = 512, PATH_BYTES = 1024 };
static const char begin_mark[] = "<!-- begin ", end_mark[] = "<!-- end -->", close_mark[] = "-->";

typedef struct document {
    ls_ctx *ctx;
    const char *path, *text; /* the page */
    const ls_study_files *files;
    const json_t *figures; /* or NULL: the page is a study's */
    const char *name;      /* of the figures */
    size_t parts;          /* of that name so far */
    bool studied;          /* the page has parts of a study too */
    bool write;
    ls_text out;
} document;

static int line_of(const document *d, const char *at) {
    int line = 1;
    for (const char *c = d->text; c < at; c++) line += *c == '\n';
    return line;
}

/* Words between two places, spaces and line ends as one space; false where they are too many. */
static bool copy_words(const char *from, const char *to, char out[WORDS_BYTES]) {
    size_t used = 0;
    for (; from < to; from++) {
        const char c = isspace((unsigned char)*from) ? ' ' : *from;
        if (c == ' ' && (used == 0 || out[used - 1] == ' ')) continue;
        if (used + 1 >= WORDS_BYTES) return false;
        out[used++] = c;
    }
    while (used > 0 && out[used - 1] == ' ') used--;
    out[used] = '\0';
    return true;
}

/* ---- parts that are written ---- */

static const char *source_of(const document *d) {
    return d->figures != NULL ? "figures" : "results";
}

/* `sought`: of the words those that name what is to be found. */
static ls_status fail_nothing(const document *d, int line, const char *words, const char *sought) {
    char word[WORDS_BYTES], hint[2 * WORDS_BYTES] = "";
    const char *nearest;
    LS_TRY(ls_html_status(d->ctx, &d->out));
    if (d->figures == NULL) {
        const ls_page page = ls_page_of(d->ctx, d->files);
        if (ls_paper_unknown(&page, sought, word, sizeof word, &nearest))
            snprintf(hint, sizeof hint,
                     nearest == NULL ? "; there is no %s%s" : "; for %s, did you mean %s?", word,
                     nearest == NULL ? "" : nearest);
    }
    return LS_FAIL(d->ctx, LS_EINPUT, "%s:%d: the %s have nothing for `%s`%s", d->path, line,
                   source_of(d), words, hint);
}

static const char figures_word[] = "figures ";

/* What stands behind the word where a part, a chart of a file or a number is of figures; or
 * NULL. */
static const char *behind_figures(const char *words) {
    if (strncmp(words, "chart ", 6) == 0) {
        words += 6 + strcspn(words + 6, " ");
        if (*words == ' ') words++;
    }
    const size_t length = strlen(figures_word);
    return strncmp(words, figures_word, length) == 0 ? words + length : NULL;
}

/* Whether the words are those of this page's figures; *part: what follows the name. */
static bool names_figures(const document *d, const char *words, const char **part) {
    const char *at = d->figures == NULL ? NULL : behind_figures(words);
    const size_t length = at == NULL ? 0 : strlen(d->name);
    if (at == NULL || strncmp(at, d->name, length) != 0) return false;
    *part = at + length;
    if (**part == '\0') return true;
    return *(*part)++ == ' ';
}

static bool draw_chart(document *d, const char *words, char *title, size_t bytes, ls_text *out) {
    const char *part;
    if (names_figures(d, words, &part)) {
        d->parts++;
        return ls_figures_chart(d->ctx, d->figures, part, title, bytes, out);
    }
    ls_page page = ls_page_of(d->ctx, d->files);
    return ls_paper_chart(&page, words, title, bytes, out);
}

static ls_status put_chart(document *d, const char *at, const char *words) {
    char file[128] = "", title[256] = "", path[PATH_BYTES];
    int used = 0;
    const char *slash = strrchr(d->path, '/');
    const int folder = slash == NULL ? 0 : (int)(slash - d->path) + 1;
    ls_text drawing = {0}, old = {0};
    if (sscanf(words, "%127s %n", file, &used) < 1 || strchr(file, '/') != NULL ||
        strlen(file) < 5 || strcmp(file + strlen(file) - 4, ".svg") != 0)
        return LS_FAIL(d->ctx, LS_EINPUT, "%s:%d: a chart is `chart FILE.svg ppl PROTOCOL`",
                       d->path, line_of(d, at));
    if ((size_t)snprintf(path, sizeof path, "%.*s%s", folder, d->path, file) >= sizeof path)
        return LS_FAIL(d->ctx, LS_EUSE, "the path of %s is too long", file);
    ls_status status = LS_OK;
    if (!draw_chart(d, words + used, title, sizeof title, &drawing))
        status = fail_nothing(d, line_of(d, at), words, words + used);
    if (status == LS_OK) status = ls_html_status(d->ctx, &drawing);
    if (status == LS_OK && d->write)
        status = ls_file_write(d->ctx, path, drawing.bytes, drawing.length);
    if (status == LS_OK && !d->write) {
        status = ls_file_read(d->ctx, path, PAGE_BYTES_MAX, &old);
        if (status == LS_OK &&
            (old.length != drawing.length || memcmp(old.bytes, drawing.bytes, old.length) != 0))
            status = LS_FAIL(d->ctx, LS_EBAR, "%s is not what the %s give", path, source_of(d));
    }
    if (status == LS_OK) {
        const ls_page page = {.ctx = d->ctx};
        const ls_paper paper = {.page = &page, .out = &d->out};
        ls_paper_put(&paper, "![");
        ls_paper_plain(&paper, title); /* it has names from the file in it */
        ls_text_printf(d->ctx, &d->out, "](%s)\n\n", file);
    }
    ls_text_clear(d->ctx, &drawing);
    ls_text_clear(d->ctx, &old);
    return status;
}

static ls_status put_figures(document *d, const char *at, const char *part) {
    const ls_page page = {.ctx = d->ctx};
    ls_paper paper = {.page = &page, .out = &d->out};
    d->parts++;
    if (ls_figures_part(&paper, d->figures, part)) return LS_OK;
    return LS_FAIL(d->ctx, LS_EINPUT, "%s:%d: the figures of %s have nothing for `%s`", d->path,
                   line_of(d, at), d->name, part);
}

static ls_status put_part(document *d, const char *at, const char *words) {
    const char *part;
    if (strncmp(words, "chart ", 6) == 0) return put_chart(d, at, words + 6);
    if (names_figures(d, words, &part)) return put_figures(d, at, part);
    const ls_page page = ls_page_of(d->ctx, d->files);
    ls_paper paper = {.page = &page, .out = &d->out};
    return ls_paper_part(&paper, words) ? LS_OK : fail_nothing(d, line_of(d, at), words, words);
}

/* ---- numbers in sentences ---- */

/* Parts and numbers that other data or people write. */
static bool is_others(const document *d, const char *words) {
    const char *part;
    if (strcmp(words, "by hand") == 0) return true;
    if (behind_figures(words) != NULL) return !names_figures(d, words, &part);
    return d->figures != NULL && d->studied;
}

static double lookup(const document *d, const char *words) {
    if (d->figures != NULL) return ls_figures_lookup(d->figures, words);
    const ls_page page = ls_page_of(d->ctx, d->files);
    return ls_paper_lookup(&page, words);
}

/* "A", "A / B" or "A - B". */
static double value_of(const document *d, const char *words) {
    char first[WORDS_BYTES];
    const char *over = strstr(words, " / "), *less = strstr(words, " - ");
    const char *at = over != NULL ? over : less;
    if (at == NULL) return lookup(d, words);
    snprintf(first, sizeof first, "%.*s", (int)(at - words), words);
    const double a = lookup(d, first), b = lookup(d, at + 3);
    return over != NULL ? a / b : a - b;
}

/* A number of the text: [sign]digits[.digits], without the commas of thousands. */
typedef struct number {
    const char *begin, *end;
    char text[64];
    int decimals;
    bool sign, identifier; /* 2212.10554, 0.2.0: not a measurement */
} number;

static number read_number(const char *text, const char *at) {
    number n = {.begin = at, .end = at};
    size_t used = 0;
    int groups = 0;
    if (at > text && (at[-1] == '+' || at[-1] == '-') &&
        (at - 1 == text || strchr(" (|*\n", at[-2]) != NULL)) {
        n.sign = at[-1] == '+';
        n.text[used++] = at[-1];
    }
    for (; used + 1 < sizeof n.text; n.end++) {
        if (isdigit((unsigned char)*n.end)) {
            n.text[used++] = *n.end;
            n.decimals += groups > 0;
        } else if (*n.end == '.' && isdigit((unsigned char)n.end[1])) {
            groups++;
            n.text[used++] = '.';
        } else if (*n.end == ',' && groups == 0 && isdigit((unsigned char)n.end[1]) &&
                   isdigit((unsigned char)n.end[2]) && isdigit((unsigned char)n.end[3])) {
            continue;
        } else {
            break;
        }
    }
    n.text[used] = '\0';
    const char *point = strchr(n.text, '.');
    n.identifier = groups > 1 || (point == n.text + 4 && n.decimals >= 4);
    return n;
}

static ls_status check_number(const document *d, const number *n) {
    char words[WORDS_BYTES], wanted[64];
    if (strncmp(n->end, "<!--", 4) != 0) {
        if (n->decimals == 0 || n->identifier) return LS_OK;
        return LS_FAIL(d->ctx, LS_EBAR,
                       "%s:%d: nothing says where %s comes from: <!-- WORDS --> right behind it, "
                       "or <!-- published -->",
                       d->path, line_of(d, n->begin), n->text);
    }
    const char *end = strstr(n->end, close_mark);
    if (end == NULL || !copy_words(n->end + 4, end, words))
        return LS_FAIL(d->ctx, LS_EINPUT, "%s:%d: a comment does not end", d->path,
                       line_of(d, n->begin));
    const char *place = words;
    if (strcmp(words, "published") == 0 || is_others(d, words)) return LS_OK;
    names_figures(d, words, &place);
    const double value = value_of(d, place);
    if (!isfinite(value)) return fail_nothing(d, line_of(d, n->begin), words, words);
    snprintf(wanted, sizeof wanted, n->sign ? "%+.*f" : "%.*f", n->decimals, value);
    if (strcmp(wanted, n->text) != 0)
        return LS_FAIL(d->ctx, LS_EBAR, "%s:%d: it says %s, the %s %s (%s)", d->path,
                       line_of(d, n->begin), n->text, source_of(d), wanted, words);
    return LS_OK;
}

/* Where what begins here and is no sentence ends: code, links, comments. NULL: it is a sentence. */
static const char *skip(const char *at) {
    const char *end = NULL;
    size_t behind = 1;
    if (strncmp(at, "```", 3) == 0) {
        end = strstr(at + 3, "\n```");
        behind = 4;
    } else if (*at == '`') {
        end = strchr(at + 1, '`');
    } else if (strncmp(at, "](", 2) == 0) {
        end = strchr(at, ')');
    } else if (strncmp(at, "<!--", 4) == 0) {
        end = strstr(at, close_mark);
        behind = 3;
    } else {
        return NULL;
    }
    return end == NULL ? at + strlen(at) : end + behind;
}

static ls_status check_sentences(document *d, const char *from, const char *to) {
    for (const char *at = from; at < to;) {
        const char *behind = skip(at);
        if (behind != NULL) {
            at = behind;
        } else if (isdigit((unsigned char)*at) &&
                   (at == d->text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_'))) {
            const number n = read_number(d->text, at);
            LS_TRY(check_number(d, &n));
            at = n.end;
        } else {
            at++;
        }
    }
    return LS_OK;
}

/* ---- the whole ---- */

/* Whether a part of the page is a study's: on a page that has none, nobody else asks for words that
 * are not of figures. */
static bool has_study(const document *d) {
    char words[WORDS_BYTES];
    for (const char *at = d->text; (at = strstr(at, begin_mark)) != NULL;) {
        const char *end = strstr(at += strlen(begin_mark), close_mark);
        if (end == NULL) return false;
        if (copy_words(at, end, words) && strcmp(words, "by hand") != 0 &&
            behind_figures(words) == NULL)
            return true;
    }
    return false;
}

static ls_status put_document(document *d) {
    const char *at = d->text, *begin;
    while ((begin = strstr(at, begin_mark)) != NULL) {
        char words[WORDS_BYTES];
        const char *behind = strstr(begin, close_mark), *end = strstr(begin, end_mark);
        const char *next = strstr(begin + 1, begin_mark);
        if (behind == NULL || end == NULL || end < behind || (next != NULL && next < end) ||
            behind[3] != '\n' || !copy_words(begin + strlen(begin_mark), behind, words))
            return LS_FAIL(d->ctx, LS_EINPUT, "%s:%d: a part that begins does not end", d->path,
                           line_of(d, begin));
        LS_TRY(check_sentences(d, at, begin));
        ls_text_append(d->ctx, &d->out, at, (size_t)(behind + 4 - at));
        if (is_others(d, words)) {
            ls_text_append(d->ctx, &d->out, behind + 4, (size_t)(end - behind - 4));
        } else {
            ls_text_printf(d->ctx, &d->out, "\n");
            LS_TRY(put_part(d, begin, words));
        }
        ls_text_append(d->ctx, &d->out, end_mark, strlen(end_mark));
        at = end + strlen(end_mark);
    }
    LS_TRY(check_sentences(d, at, at + strlen(at)));
    ls_text_append(d->ctx, &d->out, at, strlen(at));
    return ls_html_status(d->ctx, &d->out);
}

static ls_status compare(const document *d) {
    size_t same = 0;
    while (d->text[same] != '\0' && same < d->out.length && d->text[same] == d->out.bytes[same])
        same++;
    if (d->text[same] == '\0' && same == d->out.length) return LS_OK;
    return LS_FAIL(d->ctx, LS_EBAR, "%s:%d: this is not what the %s give", d->path,
                   line_of(d, d->text + same), source_of(d));
}

static ls_status make(document *d) {
    ls_ctx *ctx = d->ctx;
    ls_text text = {0};
    ls_status status = ls_file_read(ctx, d->path, PAGE_BYTES_MAX, &text);
    if (status == LS_OK && (text.length == 0 || strlen(text.bytes) != text.length))
        status = LS_FAIL(ctx, LS_EINPUT, "%s is empty, or not a text", d->path);
    if (status == LS_OK) {
        d->text = text.bytes;
        d->studied = has_study(d);
        status = put_document(d);
    }
    if (status == LS_OK && d->figures != NULL && d->parts == 0)
        status = LS_FAIL(ctx, LS_EINPUT, "%s has no part that begins with `<!-- begin figures %s`",
                         d->path, d->name);
    if (status == LS_OK && !d->write) status = compare(d);
    if (status == LS_OK && d->write)
        status = ls_file_write(ctx, d->path, d->out.bytes, d->out.length);
    ls_text_clear(ctx, &d->out);
    ls_text_clear(ctx, &text);
    return status;
}

ls_status ls_document_make(ls_ctx *ctx, const ls_study_files *files, const char *path, bool check) {
    document d = {.ctx = ctx, .path = path, .files = files, .write = !check};
    return make(&d);
}

ls_status ls_document_figures(ls_ctx *ctx, const json_t *figures, const char *name,
                              const char *path, bool check) {
    document d = {.ctx = ctx, .path = path, .figures = figures, .name = name, .write = !check};
    return make(&d);
}
