/* Tables for a paper: LaTeX (booktabs) and Markdown. One table for each protocol and measure, a row
 * per arm, a column per length; the best of a column is bold. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

typedef struct measure {
    const char *key, *name;
    int decimals;
    double scale;
    bool high_is_good;
} measure;

static const measure of_text[] = {
    {"ppl", "Perplexity", 2, 1, false},
    {"loss", "Loss in nats per token", 3, 1, false},
    {"bits_per_byte", "Bits per byte", 3, 1, false},
    {"excess", "Excess over the flat tail in nats per token", 3, 1, false}};
static const measure of_task[] = {
    {"accuracy", "Right answers in percent", 1, 100, true},
    {"exact", "Samples with no wrong answer in percent", 1, 100, true}};

typedef struct paper {
    const ls_page *page;
    bool latex;
    ls_text *out;
} paper;

static void put(const paper *p, const char *text) {
    ls_text_printf(p->page->ctx, p->out, "%s", text);
}

/* Text of the study in the language of the table. */
static void put_plain(const paper *p, const char *text) {
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
        if ((unsigned char)*text < ' ')
            put(p, " ");
        else if (p->latex && found != NULL)
            put(p, found);
        else
            ls_text_printf(p->page->ctx, p->out, "%s%c",
                           strchr(p->latex ? "{}$&#_%" : "\\|<>*_`[]", *text) != NULL ? "\\" : "",
                           *text);
    }
}

static double value_at(const paper *p, const measure *m, const char *protocol, size_t arm,
                       double length) {
    const json_t *row =
        ls_page_row(json_array_get(p->page->arms, arm), "results", protocol, length);
    const double value = m->scale * ls_member_real(row, m->key);
    return fabs(value) < 1e15 ? value : NAN;
}

/* As it is printed, so that equal ones are all best. */
static double best_of(const paper *p, const measure *m, const char *protocol, double length) {
    double best = NAN;
    for (size_t a = 0; a < p->page->count; a++) {
        const double value = value_at(p, m, protocol, a, length);
        best = m->high_is_good ? fmax(best, value) : fmin(best, value);
    }
    return best;
}

static void put_value(const paper *p, const measure *m, const char *protocol, size_t arm,
                      double length, double best) {
    const json_t *row =
        ls_page_row(json_array_get(p->page->arms, arm), "results", protocol, length);
    const double value = value_at(p, m, protocol, arm, length);
    char key[64], text[64], bold[64], half[64] = "";
    if (!isfinite(value)) {
        put(p, p->latex ? "--" : "-");
        return;
    }
    snprintf(key, sizeof key, "%s_max", m->key);
    double range = m->scale * ls_member_real(row, key);
    snprintf(key, sizeof key, "%s_min", m->key);
    range = (range - m->scale * ls_member_real(row, key)) / 2;
    snprintf(text, sizeof text, "%.*f", m->decimals, value);
    snprintf(bold, sizeof bold, "%.*f", m->decimals, best);
    if (ls_member_real(row, "n") > 1 && fabs(range) < 1e15)
        snprintf(half, sizeof half, "%.*f", m->decimals, range);
    const bool is_best = strcmp(text, bold) == 0;
    if (p->latex)
        ls_text_printf(p->page->ctx, p->out, "$%s%s%s%s%s$", is_best ? "\\mathbf{" : "", text,
                       is_best ? "}" : "", half[0] == '\0' ? "" : " \\pm ", half);
    else
        ls_text_printf(p->page->ctx, p->out, "%s%s%s%s%s", is_best ? "**" : "", text,
                       is_best ? "**" : "", half[0] == '\0' ? "" : " \302\261 ", half);
}

static void open_table(const paper *p, const measure *m, const char *protocol,
                       const double *lengths, size_t count) {
    ls_ctx *ctx = p->page->ctx;
    put(p, p->latex ? "\\begin{table}\n\\centering\n\\caption{" : "**");
    put_plain(p, m->name);
    put(p, " (");
    put_plain(p, protocol);
    put(p, p->latex ? "), by tokens of a window: mean over seeds $\\pm$ half their range.}\n"
                    : ")**, by tokens of a window: mean over seeds \302\261 half their range.\n\n");
    if (p->latex) {
        put(p, "\\begin{tabular}{l");
        for (size_t l = 0; l < count; l++) put(p, "r");
        put(p, "}\n\\toprule\n");
    } else {
        put(p, "| ");
    }
    put(p, "arm");
    for (size_t l = 0; l < count; l++)
        ls_text_printf(ctx, p->out, p->latex ? " & %.0f" : " | %.0f", lengths[l]);
    put(p, p->latex ? " \\\\\n\\midrule\n" : " |\n|---");
    for (size_t l = 0; !p->latex && l < count; l++) put(p, "|---:");
    if (!p->latex) put(p, "|\n");
}

static void put_table(const paper *p, const measure *m, const char *protocol) {
    double lengths[LS_PAGE_LENGTHS_MAX], best[LS_PAGE_LENGTHS_MAX];
    const size_t count = ls_page_lengths(p->page, "results", protocol, lengths);
    bool any = false;
    for (size_t l = 0; l < count; l++) {
        best[l] = best_of(p, m, protocol, lengths[l]);
        any |= isfinite(best[l]);
    }
    if (!any) return;
    open_table(p, m, protocol, lengths, count);
    for (size_t a = 0; a < p->page->count; a++) {
        put(p, p->latex ? "" : "| ");
        put_plain(p, ls_member_text(json_array_get(p->page->arms, a), "label"));
        for (size_t l = 0; l < count; l++) {
            put(p, p->latex ? " & " : " | ");
            put_value(p, m, protocol, a, lengths[l], best[l]);
        }
        put(p, p->latex ? " \\\\\n" : " |\n");
    }
    put(p, p->latex ? "\\bottomrule\n\\end{tabular}\n\\end{table}\n\n" : "\n");
}

void ls_paper_write(ls_ctx *ctx, const ls_study_files *files, bool latex, ls_text *out) {
    const ls_page page = {.ctx = ctx,
                          .results = files->results,
                          .arms = json_object_get(files->results, "arms"),
                          .count = json_array_size(json_object_get(files->results, "arms"))};
    const paper p = {&page, latex, out};
    const ls_page_protocols list = ls_page_list_protocols(&page);
    if (latex) put(&p, "% needs \\usepackage{booktabs}\n");
    for (size_t i = 0; i < list.count; i++) {
        const bool judged = ls_page_judged(&page, list.name[i]);
        const measure *measures = judged ? of_task : of_text;
        const size_t count =
            judged ? sizeof of_task / sizeof *of_task : sizeof of_text / sizeof *of_text;
        for (size_t m = 0; m < count; m++) put_table(&p, &measures[m], list.name[i]);
    }
}
