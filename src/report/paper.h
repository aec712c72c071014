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

/* Arms that a table must not be silent about: "BEGINS label more, label more." */
typedef struct ls_paper_note {
    ls_paper *paper;
    ls_text text;
} ls_paper_note;
void ls_paper_name_arm(ls_paper_note *note, const char *begins, const json_t *arm,
                       const char *more);
void ls_paper_end_note(ls_paper_note *note);

/* A number that results hold for a protocol and length, and how tables print it. */
typedef struct ls_paper_measure {
    const char *key, *name;
    int decimals;
    double scale;
    bool sign, high_is_good;
    const char *of_all; /* what is said of it in place of a spread: no seed differs; or NULL */
} ls_paper_measure;
const ls_paper_measure *ls_paper_measure_named(const char *name); /* NULL: there is none */
/* What a row has of it, as tables show it, and half of its interval; NAN: nothing. */
double ls_paper_mean(const ls_paper_measure *measure, const json_t *row);
double ls_paper_half(const ls_paper_measure *measure, const json_t *row);
/* Its table by length, of a list of the arms; false: there is none. */
bool ls_paper_lengths(ls_paper *paper, const ls_paper_measure *measure, const char *list,
                      const char *protocol);
/* "arm", "seeds" and so many columns with numbers as names; the first two cells of a row. */
size_t ls_paper_name_columns(const double *numbers, size_t count, char texts[][24],
                             const char **names);
void ls_paper_begin_row(ls_paper *paper, const json_t *arm, double seeds);
/* How numbers over seeds are given, for captions; shares: of right answers. */
const char *ls_paper_spread(const ls_page *page, bool shares);

/* A part by its words: "about", "ppl PROTOCOL" and the other measures, "resolution", "suite NAME",
 * "against ARM MEASURE PROTOCOL", "tau PROTOCOL LENGTH ARM ...", "positions PROTOCOL", "cost",
 * "runs ..." (runs.h), those of ls_paper_resolution_table. False: there is none of that name. */
bool ls_paper_part(ls_paper *paper, const char *words);
void ls_paper_all(ls_paper *paper);
/* The table of "PROTOCOL LENGTH ARM ARM ARM ..."; false: there is none. */
bool ls_paper_tau_table(ls_paper *paper, const char *words);

/* The loss by position of a protocol's longest windows, over ranges that double, and of "ARM
 * PROTOCOL FIRST" that of the range that begins there. */
bool ls_paper_positions_table(ls_paper *paper, const char *protocol);
double ls_paper_positions(const ls_page *page, const char *words);

/* The table of "resolution", "oscillation" or "expected-oscillation" by length, or at one length by
 * layer, "resolution layers LENGTH"; false: there is none. All by length that tables for a paper
 * have. */
bool ls_paper_resolution_table(ls_paper *paper, const char *words);
void ls_paper_resolution_all(ls_paper *paper);
/* Of "resolution ARM LENGTH [layer N]", "oscillation ...", "expected-oscillation ARM LENGTH", or
 * "scores ARM LENGTH DISTANCE" and "expected ARM LENGTH DISTANCE", at a distance that was kept. */
double ls_paper_resolution(const ls_page *page, const char *words);

/* A measure of one row less that of another, the seeds that both have each by itself: the mean over
 * these seeds and half of its 95 % interval. NAN where there are none, or other tokens were
 * scored. */
typedef struct ls_paper_difference {
    double mean, half;
    size_t seeds;
} ls_paper_difference;
ls_paper_difference ls_paper_between(const ls_paper_measure *measure, const json_t *row,
                                     const json_t *base);
/* The table of "ARM MEASURE PROTOCOL": all other arms against this one; false: there is none. */
bool ls_paper_against_table(ls_paper *paper, const char *words);
/* Of "BASE MEASURE ARM PROTOCOL LENGTH" the mean, or half of its interval. */
double ls_paper_against(const ls_page *page, const char *words, bool half);

/* Whether a list of names, separated by spaces, has this one; an empty list has all. */
bool ls_paper_chosen(const char *names, const char *name);
/* A chart by its words, "ppl PROTOCOL [ARM ...]", "positions ...", "suite NAME [ARM ...]", "scores LENGTH [ARM
 * ...]", "expected LENGTH [ARM ...]", "heat NAME ARM", "against ARM MEASURE PROTOCOL LENGTH [ARM
 * ...]" or "runs TABLE [ROW ...]", as an SVG file, and its title. False: there is none. */
bool ls_paper_chart(ls_page *page, const char *words, char *title, size_t bytes, ls_text *out);

const json_t *ls_paper_arm(const ls_page *page, const char *name); /* NULL: there is none */
/* A seed's own number of a list of {"seed", KEY}; seed 0: the mean over seeds. */
double ls_paper_of_seed(const json_t *row, const char *list, const char *key, double seed);
/* A number that the results hold, by its words (docs/studies.md): "excess ARM PROTOCOL LENGTH [seed
 * N]", "suite NAME ARM [LENGTH]", "against ...", "tau ...", "resolution ARM LENGTH", "parameters
 * ARM", "runs TABLE ROW COLUMN". In the units of the tables. NAN: there is none. */
double ls_paper_lookup(const ls_page *page, const char *words);
/* For words that nothing is found by: the first that is no measure, protocol, suite or arm of these
 * results, and in *nearest the one that it was perhaps meant to be, or NULL. Both lie in the memory
 * of the results or are constants but for the word, which is copied. False: all are known. */
bool ls_paper_unknown(const ls_page *page, const char *words, char *word, size_t bytes,
                      const char **nearest);
/* "SUITE PROTOCOL LENGTH ARM ARM ARM ..." or "SUITE/TASK ...": the tau of that table. */
double ls_paper_tau(const ls_page *page, const char *words);

#endif
