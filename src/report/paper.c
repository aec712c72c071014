/* Tables for a paper: LaTeX (booktabs) and Markdown. */
#include "report/paper.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void ls_paper_put(const ls_paper *p, const char *text) {
    ls_text_printf(p->page->ctx, p->out, "%s", text);
}

void ls_paper_plain(const ls_paper *p, const char *text) {
    static const struct {
        char c;
        const char *latex;
    } escapes[] = {{'\\', "\\textbackslash{}"},  {'~', "\\textasciitilde{}"},
                   {'^', "\\textasciicircum{}"}, {'<', "\\textless{}"},
                   {'>', "\\textgreater{}"},     {'|', "\\textbar{}"}};
    for (; *text != '\0'; text++) {
        const char *found = NULL;
        for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++)
            if (escapes[i].c == *text) found = escapes[i].latex;
        const bool second = text[0] == '\302' && (unsigned char)text[1] >= 0x80 &&
                            (unsigned char)text[1] < 0xA0; /* U+0080 to U+009F control a terminal */
        if ((unsigned char)*text < ' ' || *text == 0x7F || second) {
            ls_paper_put(p, " ");
            text += second;
        } else if (p->latex && strncmp(text, "\302\261", 2) == 0) {
            ls_paper_put(p, "$\\pm$"); /* no sign that a document's encoding must know */
            text++;
        } else if (p->latex && found != NULL) {
            ls_paper_put(p, found);
        } else {
            ls_text_printf(p->page->ctx, p->out, "%s%c",
                           strchr(p->latex ? "{}$&#_%" : "\\|<>*_`[]!", *text) != NULL ? "\\" : "",
                           *text);
        }
    }
}

void ls_paper_prose(const ls_paper *p, const char *text) {
    enum { COLUMNS = 100 };
    ls_text plain = {0};
    ls_paper inner = {.page = p->page, .latex = p->latex, .out = &plain};
    size_t column = 0;
    ls_paper_plain(&inner, text);
    p->out->failed |= plain.failed;
    for (const char *at = plain.bytes; !plain.failed && at != NULL && *at != '\0';) {
        const size_t length = strcspn(at, " ");
        const bool fits = column + 1 + length <= COLUMNS;
        if (column > 0) ls_paper_put(p, fits ? " " : "\n");
        column = (column > 0 && fits ? column + 1 : 0) + length;
        ls_text_append(p->page->ctx, p->out, at, length);
        at += length + strspn(at + length, " ");
    }
    ls_text_clear(p->page->ctx, &plain);
}

void ls_paper_open(ls_paper *p, const char *caption, const char *const *names, size_t count) {
    ls_paper_put(p, p->latex ? "\\begin{table}\n\\centering\n\\caption{" : "");
    ls_paper_prose(p, caption);
    ls_paper_put(p, p->latex ? "}\n\\begin{tabular}{l" : "\n\n");
    for (size_t i = 1; p->latex && i < count; i++) ls_paper_put(p, "r");
    ls_paper_put(p, p->latex ? "}\n\\toprule\n" : "");
    p->cells = 0;
    for (size_t i = 0; i < count; i++) ls_paper_cell(p, names[i]);
    ls_paper_end_row(p);
    ls_paper_put(p, p->latex ? "\\midrule\n" : "|---");
    for (size_t i = 1; !p->latex && i < count; i++) ls_paper_put(p, "|---:");
    ls_paper_put(p, p->latex ? "" : "|\n");
}

static void begin_cell(ls_paper *p) {
    static const char *const between[2][2] = {{"| ", " | "}, {"", " & "}};
    ls_paper_put(p, between[p->latex][p->cells > 0]);
    p->cells++;
}

void ls_paper_cell(ls_paper *p, const char *text) {
    begin_cell(p);
    ls_paper_plain(p, text);
}

void ls_paper_number(ls_paper *p, ls_paper_value v) {
    char half[64] = "";
    begin_cell(p);
    if (!(fabs(v.value) < 1e15)) {
        ls_paper_put(p, p->latex ? "--" : "-");
        return;
    }
    if (fabs(v.half) < 1e15)
        snprintf(half, sizeof half, p->latex ? " \\pm %.*f" : " \302\261 %.*f", v.decimals, v.half);
    const char *open = p->latex ? (v.bold ? "$\\mathbf{" : "$") : v.bold ? "**" : "";
    const char *close = v.bold ? (p->latex ? "}" : "**") : "";
    ls_text_printf(p->page->ctx, p->out, v.sign ? "%s%+.*f%s%s%s" : "%s%.*f%s%s%s", open,
                   v.decimals, v.value, close, half, p->latex ? "$" : "");
}

void ls_paper_end_row(ls_paper *p) {
    ls_paper_put(p, p->latex ? " \\\\\n" : " |\n");
    p->cells = 0;
}

void ls_paper_close(ls_paper *p) {
    ls_paper_put(p, p->latex ? "\\bottomrule\n\\end{tabular}\n\\end{table}\n\n" : "\n");
}

void ls_paper_name_arm(ls_paper_note *n, const char *begins, const json_t *arm, const char *more) {
    ls_text_printf(n->paper->page->ctx, &n->text, "%s%s%s", n->text.length > 0 ? ", " : begins,
                   ls_member_text(arm, "label"), more);
}

void ls_paper_end_note(ls_paper_note *n) {
    ls_ctx *ctx = n->paper->page->ctx;
    if (n->text.length > 0) ls_text_printf(ctx, &n->text, ".");
    n->paper->out->failed |= n->text.failed;
    if (n->text.length > 0 && !n->text.failed) {
        ls_paper_prose(n->paper, n->text.bytes);
        ls_paper_put(n->paper, "\n\n");
    }
    ls_text_clear(ctx, &n->text);
}

void ls_paper_write(ls_ctx *ctx, const ls_study_files *files, bool latex, ls_text *out) {
    ls_page page = ls_page_of(ctx, files);
    ls_paper paper = {.page = &page, .latex = latex, .out = out};
    if (latex) ls_paper_put(&paper, "% needs \\usepackage{booktabs}\n");
    ls_paper_all(&paper);
}
