#include "report/html.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "report/page.h"

ls_status ls_html_status(ls_ctx *ctx, const ls_text *out) {
    if (ls_json_starved()) return LS_FAIL(ctx, LS_ENOMEM, "no memory for a page");
    LS_TRY(ls_text_status(out));
    return ctx->error.code;
}

void ls_html(ls_ctx *ctx, const char *text, ls_text *out) {
    static const struct {
        char c;
        const char *entity;
    } escapes[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    for (; *text != '\0'; text++) {
        const char *entity = NULL;
        for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++)
            if (*text == escapes[i].c) entity = escapes[i].entity;
        if (entity != NULL)
            ls_text_append(ctx, out, entity, strlen(entity));
        else if ((unsigned char)*text >= ' ' || *text == '\n' || *text == '\t')
            ls_text_append(ctx, out, text, 1);
    }
}

/* ---- the frame ---- */

void ls_html_open(ls_ctx *ctx, const char *title, bool live, ls_text *out) {
    ls_text_printf(ctx, out,
                   "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n%s"
                   "<link rel=\"icon\" href=\"data:,\">\n<title>",
                   live ? "<meta http-equiv=\"refresh\" content=\"5\">\n" : "");
    ls_html(ctx, title, out);
    ls_text_printf(ctx, out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>",
                   ls_page_style);
    ls_html(ctx, title, out);
    ls_text_printf(ctx, out, "</h1>\n");
}

void ls_html_close(ls_ctx *ctx, ls_text *out) {
    ls_text_printf(ctx, out, "</main>\n<script>\n%s</script>\n</body>\n</html>\n", ls_page_script);
}

void ls_html_term(ls_ctx *ctx, const char *name, const char *text, ls_text *out) {
    ls_text_printf(ctx, out, "<dt>");
    ls_html(ctx, name, out);
    ls_text_printf(ctx, out, "</dt><dd>");
    ls_html(ctx, text, out);
    ls_text_printf(ctx, out, "</dd>\n");
}

/* ---- tables ---- */

void ls_table_open(ls_ctx *ctx, ls_text *out) {
    ls_text_printf(ctx, out, "<div class=\"scroll\"><table>\n<thead><tr>");
}

void ls_table_head(ls_ctx *ctx, const char *text, ls_text *out) {
    ls_text_printf(ctx, out, "<th scope=\"col\"><button type=\"button\">");
    ls_html(ctx, text, out);
    ls_text_printf(ctx, out, "</button></th>");
}

void ls_table_body(ls_ctx *ctx, ls_text *out) {
    ls_text_printf(ctx, out, "</tr></thead>\n<tbody>\n");
}

void ls_table_row(ls_ctx *ctx, const char *label, ls_text *out) {
    ls_text_printf(ctx, out, "<tr><td data-value=\"");
    ls_html(ctx, label, out);
    ls_text_printf(ctx, out, "\">");
    ls_html(ctx, label, out);
    ls_text_printf(ctx, out, "</td>");
}

void ls_table_cell(ls_ctx *ctx, double value, const char *text, ls_text *out) {
    if (isfinite(value))
        ls_text_printf(ctx, out, "<td data-value=\"%.9g\">%s</td>", value, text);
    else
        ls_text_printf(ctx, out, "<td data-value=\"\">-</td>");
}

void ls_table_close(ls_ctx *ctx, ls_text *out) {
    ls_text_printf(ctx, out, "</tbody></table></div>\n");
}

/* ---- figures ---- */

void ls_figure_open(ls_ctx *ctx, const char *title, int height, const char *attributes,
                    ls_text *out) {
    ls_text_printf(ctx, out, "<figure><figcaption>");
    ls_html(ctx, title, out);
    ls_text_printf(ctx, out,
                   "</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 %d %d\"%s "
                   "role=\"img\" aria-label=\"",
                   LS_CHART_WIDTH, height, attributes);
    ls_html(ctx, title, out);
    ls_text_printf(ctx, out, "\">\n");
}
