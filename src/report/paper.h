/* Tables in LaTeX (booktabs) or Markdown, cell by cell. */
#ifndef LS_REPORT_PAPER_H
#define LS_REPORT_PAPER_H

#include "report/page.h"

typedef struct ls_paper {
    const ls_page *page;
    bool latex;
    ls_text *out;
    size_t cells; /* of the row so far */
} ls_paper;

void ls_paper_put(const ls_paper *paper, const char *text);   /* as it is */
void ls_paper_plain(const ls_paper *paper, const char *text); /* in the table's language */
/* The same, in lines of at most 100 columns. */
void ls_paper_prose(const ls_paper *paper, const char *text);
/* Caption and head; the first column has text, the others numbers. */
void ls_paper_open(ls_paper *paper, const char *caption, const char *const *names, size_t count);
void ls_paper_cell(ls_paper *paper, const char *text);
/* "1.234 ± 0.005", bold; `half` and `value` may not be finite: nothing, -. */
typedef struct ls_paper_value {
    double value, half;
    int decimals;
    bool sign, bold;
} ls_paper_value;
void ls_paper_number(ls_paper *paper, ls_paper_value value);
void ls_paper_end_row(ls_paper *paper);
void ls_paper_close(ls_paper *paper);

/* A part by its words: "about", "ppl PROTOCOL" and the other measures, "resolution", "suite NAME",
 * "tau PROTOCOL LENGTH ARM ...", "cost". False: there is none of that name. */
bool ls_paper_part(ls_paper *paper, const char *words);
void ls_paper_all(ls_paper *paper);
/* The table of "PROTOCOL LENGTH ARM ARM ARM ..."; false: there is none. */
bool ls_paper_tau_table(ls_paper *paper, const char *words);

/* A chart by its words, "ppl PROTOCOL [ARM ...]", "suite NAME [ARM ...]" or "heat NAME ARM", as an
 * SVG file, and its title. False: there is none. */
bool ls_paper_chart(ls_page *page, const char *words, char *title, size_t bytes, ls_text *out);

const json_t *ls_paper_arm(const ls_page *page, const char *name); /* NULL: there is none */
/* A seed's own number of a list of {"seed", KEY}; seed 0: the mean over seeds. */
double ls_paper_of_seed(const json_t *row, const char *list, const char *key, double seed);
/* A number that the results hold, by its words (docs/studies.md): "excess ARM PROTOCOL LENGTH [seed N]",
 * "suite NAME ARM [LENGTH]", "tau ...", "resolution ARM LENGTH", "parameters ARM". In the units of
 * the tables. NAN: there is none. */
double ls_paper_lookup(const ls_page *page, const char *words);
/* "SUITE PROTOCOL LENGTH ARM ARM ARM ..." or "SUITE/TASK ...": the tau of that table. */
double ls_paper_tau(const ls_page *page, const char *words);

#endif
