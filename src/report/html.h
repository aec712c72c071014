/* What all pages share: the frame with style and script, tables that can be sorted, figures. */
#ifndef LS_REPORT_HTML_H
#define LS_REPORT_HTML_H

#include "base/memory.h"

/* LS_OK where memory was short for nothing of a page, drawing or table, nor for what it is made of:
 * such parts are left out of it. */
ls_status ls_html_status(ls_ctx *ctx, const ls_text *out);

/* Text between tags or in a quoted attribute. */
void ls_html(ls_ctx *ctx, const char *text, ls_text *out);

/* From the doctype to the title as a heading; `live`: reloads itself. */
void ls_html_open(ls_ctx *ctx, const char *title, bool live, ls_text *out);
void ls_html_close(ls_ctx *ctx, ls_text *out);
/* A term of a list of definitions (<dl>). */
void ls_html_term(ls_ctx *ctx, const char *name, const char *text, ls_text *out);

/* A table: open, heads, body, then rows of one label and cells, close. A cell is sorted by its
 * value and shows `text`, which may hold tags; a value that is not finite shows "-". */
void ls_table_open(ls_ctx *ctx, ls_text *out);
void ls_table_head(ls_ctx *ctx, const char *text, ls_text *out);
void ls_table_body(ls_ctx *ctx, ls_text *out);
void ls_table_row(ls_ctx *ctx, const char *label, ls_text *out);
void ls_table_cell(ls_ctx *ctx, double value, const char *text, ls_text *out);
void ls_table_close(ls_ctx *ctx, ls_text *out);

/* A figure with a drawing 480 wide, whose tag has further attributes (" a=\"b\"", or ""); close it
 * after </svg> and what follows that. */
void ls_figure_open(ls_ctx *ctx, const char *title, int height, const char *attributes,
                    ls_text *out);

#endif
