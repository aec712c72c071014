/* Namings: what public code calls the weights, inputs and outputs of a model.
 *
 * One rule a line, PATTERN = TARGET; the first pattern that fits a name counts (of weights the
 * first whose parameters the model has). In a pattern {x}, x any small letter, stands for a number,
 * a star at its end for any ending, and one before that for nothing or anything up to a dot; in the
 * target {x} and * stand for the numbers and the ending that were found. A line that begins with #
 * is a remark. Patterns are names in the file:
 *
 *   w.NAME    parameters of ours: one, or several joined by rows (A + B); `transposed` where the
 *             file's first two axes are exchanged, `last` where its rows are the last ones of ours,
 *             `reversed` where they come in the opposite order, `plus_one` where ours are the
 *             file's plus 1, `log_negated` where ours are the logarithms of its values, which are
 *             negative, - for what is no parameter. Below layers.N.mixer. a mixer's own names of
 *             public code count too. Weights without a rule bear our names.
 *
 *   in.NAME   tokens, or source
 *
 *   out.NAME  rows, logits, loss (of every token), mean_loss, auxiliary; state PORT, what a stream
 *             carries ({x} without a number: of all layers); segment memory, segment encoded: what
 *             the segments of a model leave; - for what is not compared. {s} is the number of the
 *             piece (see cut=); without it the whole text is meant.
 */
#ifndef LS_MODEL_NAMING_H
#define LS_MODEL_NAMING_H

#include "base/memory.h"

typedef struct ls_naming_rule {
    const char *pattern, *target;
} ls_naming_rule;

typedef struct ls_naming {
    ls_text text;
    ls_naming_rule *rule;
    size_t rules;
} ls_naming;

/* What follows a prefix of a name; NULL: the name does not begin with it. */
const char *ls_name_after(const char *name, const char *prefix);

/* Whether a name fits a pattern; `out` is then the target for it. */
bool ls_name_fits(const char *pattern, const char *name, const char *target, char *out,
                  size_t bytes);

/* Whether a name fits a pattern, then the numbers under its letters (-1: none) and the ending
 * (NULL: none). */
bool ls_name_parts(const char *pattern, const char *name, int64_t number[26], const char **rest);

/* Rules of public codes. */
typedef struct ls_public_names {
    const char *name, *rules;
} ls_public_names;
extern const ls_public_names ls_public_names_known[]; /* ends with {0} */
const char *ls_public_rules(const char *name);        /* "" where there are none of this name */
/* Our own names of a model's inputs and outputs, and what wraps a model of any kind. */
extern const char ls_public_names_own[];

/* A naming by the name of public code, or from a file; "": none. The rules `more` follow. */
ls_status ls_naming_read(ls_ctx *ctx, const char *choice, const char *more, ls_naming *out);
/* The same from a text; `what` names it in messages. */
ls_status ls_naming_parse(ls_ctx *ctx, const char *what, const char *rules, ls_naming *out);
void ls_naming_clear(ls_ctx *ctx, ls_naming *naming);
/* The target for a name, from rule *from on, which then is the one behind it; false: no pattern
 * fits, or the target is too long. *piece: {s}, or -1. */
bool ls_naming_find(const ls_naming *naming, const char *name, size_t *from, char *out,
                    size_t bytes, int64_t *piece);

#endif
