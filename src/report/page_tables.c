/* The page's tables. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

double ls_page_trained(const ls_page *page, const json_t *arm) {
    const double own = ls_member_real(arm, "trained_length");
    return isfinite(own) ? own : page->trained_length;
}

double ls_page_own_length(const ls_page *page, size_t arm) {
    if (page->trained_length == page->trained_most) return 0;
    const double own = ls_page_trained(page, json_array_get(page->arms, arm));
    return isfinite(own) ? own : 0;
}

ls_page_protocols ls_page_list_protocols(const ls_page *page) {
    ls_page_protocols list = {0};
    for (size_t a = 0; a < page->count; a++) {
        const json_t *rows = json_object_get(json_array_get(page->arms, a), "results");
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const char *name = ls_member_text(json_array_get(rows, i), "protocol");
            bool known = list.count == LS_PAGE_PROTOCOLS_MAX;
            for (size_t p = 0; p < list.count; p++) known |= strcmp(list.name[p], name) == 0;
            if (!known) list.name[list.count++] = name;
        }
    }
    return list;
}

bool ls_page_judged(const ls_page *page, const char *protocol) {
    for (size_t a = 0; a < page->count; a++) {
        const json_t *rows = json_object_get(json_array_get(page->arms, a), "results");
        for (size_t i = 0; i < json_array_size(rows); i++)
            if (strcmp(ls_member_text(json_array_get(rows, i), "protocol"), protocol) == 0)
                return json_object_get(json_array_get(rows, i), "accuracy") != NULL;
    }
    return false;
}

size_t ls_page_lengths(const ls_page *page, const char *list, const char *protocol,
                       double lengths[LS_PAGE_LENGTHS_MAX]) {
    size_t count = 0;
    for (size_t a = 0; a < page->count; a++) {
        const json_t *rows = json_object_get(json_array_get(page->arms, a), list);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            double length = ls_member_real(row, "length");
            bool known = count == LS_PAGE_LENGTHS_MAX || isnan(length) ||
                         strcmp(ls_member_text(row, "protocol"), protocol) != 0;
            for (size_t l = 0; l < count; l++) known |= lengths[l] == length;
            if (!known) lengths[count++] = length;
        }
    }
    return count;
}

static void header_cell(ls_page *page, const char *text) {
    ls_table_head(page->ctx, text, page->out);
}

static void open_table(ls_page *page, const char *const *names, size_t count) {
    ls_table_open(page->ctx, page->out);
    for (size_t i = 0; i < count; i++) header_cell(page, names[i]);
}

void ls_page_open_row(ls_page *page, const json_t *arm) {
    ls_text_printf(page->ctx, page->out, "<tr%s data-arm=\"",
                   ls_member_text(arm, "from")[0] == '\0' ? " class=\"own\"" : "");
    ls_html(page->ctx, ls_member_text(arm, "name"), page->out);
    ls_text_printf(page->ctx, page->out, "\"><td data-value=\"");
    ls_html(page->ctx, ls_member_text(arm, "label"), page->out);
    ls_text_printf(page->ctx, page->out, "\">");
    ls_html(page->ctx, ls_member_text(arm, "label"), page->out);
    ls_text_printf(page->ctx, page->out, "</td>");
}

static void number_cell(ls_page *page, double value, const char *text) {
    ls_table_cell(page->ctx, value, text, page->out);
}

const json_t *ls_page_row(const json_t *arm, const char *list, const char *protocol,
                          double length) {
    const json_t *rows = json_object_get(arm, list);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (ls_member_real(row, "length") == length &&
            strcmp(ls_member_text(row, "protocol"), protocol) == 0)
            return row;
    }
    return NULL;
}

/* Appends to the text in `out`, as far as there is room. */
__attribute__((format(printf, 3, 4))) static void add(char *out, size_t bytes, const char *format,
                                                      ...) {
    const size_t used = strlen(out);
    va_list list;
    va_start(list, format);
    vsnprintf(out + used, bytes - used, format, list);
    va_end(list);
}

/* "5.23 ±0.04" and below it the excess and the bits per byte. */
static void perplexity_cell(ls_page *page, const json_t *row) {
    char value[32], text[128];
    double ppl = ls_member_real(row, "ppl"), excess = ls_member_real(row, "excess");
    const ls_band band = ls_band_of(row, "ppl");
    double bits = ls_member_real(row, "bits_per_byte");
    ls_chart_number(ppl, value, sizeof value);
    /* as many decimals as the value has */
    const char *point = strchr(value, '.');
    const int decimals = point == NULL ? 0 : (int)strspn(point + 1, "0123456789");
    snprintf(text, sizeof text, "%s", value);
    if (isfinite(band.high) && band.high < 1e15)
        add(text, sizeof text, " &plusmn;%.*f", decimals, (band.high - band.low) / 2);
    if (fabs(excess) < 1e9) add(text, sizeof text, "<small>%+.3f</small>", excess);
    if (fabs(bits) < 1e9) add(text, sizeof text, "<small>%.3f bpb</small>", bits);
    number_cell(page, ppl, text);
}

/* "99.6" and below it the share of samples that are wholly right; both in percent. */
static void accuracy_cell(ls_page *page, const json_t *row) {
    char text[128];
    const double right = 100 * ls_member_real(row, "accuracy");
    const ls_band band = ls_band_of(row, "accuracy");
    snprintf(text, sizeof text, "%.1f", right);
    if (isfinite(band.low)) add(text, sizeof text, " &plusmn;%.1f", 50 * (band.high - band.low));
    add(text, sizeof text, "<small>%.1f%s</small>", 100 * ls_member_real(row, "exact"),
        ls_at_chance(row) ? ", at chance" : "");
    number_cell(page, right, text);
}

void ls_page_seeds(ls_page *page, const json_t *of) {
    char text[32];
    ls_chart_count(ls_member_real(of, "seeds"), text, sizeof text);
    number_cell(page, ls_member_real(of, "seeds"), text);
}

/* Arms that learnt nothing are named as that. */
static void put_failures(ls_page *page, const char *protocol) {
    size_t count = 0;
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a);
        if (!ls_at_chance(ls_row_as_trained(page, arm, protocol))) continue;
        ls_text_printf(page->ctx, page->out, "%s",
                       count++ == 0 ? "<p>Failures, at chance at the trained length: " : ", ");
        ls_html(page->ctx, ls_member_text(arm, "label"), page->out);
    }
    if (count > 0) ls_text_printf(page->ctx, page->out, ".</p>\n");
}

/* One row per arm, one column per length. */
void ls_page_lengths_table(ls_page *page, const char *protocol) {
    const bool judged = ls_page_judged(page, protocol);
    const char *title = judged
                            ? "Right answers and, below it, samples with no wrong one, in percent"
                            : "Perplexity and, below it, excess in nats per token and bits per "
                              "byte (bpb)";
    void (*cell)(ls_page *, const json_t *) = judged ? accuracy_cell : perplexity_cell;
    double lengths[LS_PAGE_LENGTHS_MAX];
    char text[64];
    size_t count = ls_page_lengths(page, "results", protocol, lengths);
    ls_text_printf(page->ctx, page->out, "<h3>%s: ", title);
    ls_html(page->ctx, protocol, page->out);
    ls_text_printf(page->ctx, page->out, "</h3>\n");
    const char *const names[] = {"arm", "parameters", "seeds"};
    open_table(page, names, 3);
    for (size_t l = 0; l < count; l++) {
        snprintf(text, sizeof text, "%.0f", lengths[l]);
        header_cell(page, text);
    }
    ls_table_body(page->ctx, page->out);
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a);
        ls_page_open_row(page, arm);
        ls_chart_count(ls_member_real(arm, "parameters"), text, sizeof text);
        number_cell(page, ls_member_real(arm, "parameters"), text);
        ls_page_seeds(page, arm);
        for (size_t l = 0; l < count; l++)
            cell(page, ls_page_row(arm, "results", protocol, lengths[l]));
        ls_text_printf(page->ctx, page->out, "</tr>\n");
    }
    ls_table_close(page->ctx, page->out);
    put_failures(page, protocol);
    ls_text_printf(page->ctx, page->out,
                   "<p class=\"soft\">For a paper: <code>longshot report FOLDER to=latex</code> "
                   "(or <code>to=markdown</code>).</p>\n");
}

void ls_page_resolution_table(ls_page *page) {
    double lengths[LS_PAGE_LENGTHS_MAX];
    char text[160];
    size_t count = ls_page_lengths(page, "resolution", "", lengths);
    if (count == 0) return;
    ls_text_printf(page->ctx, page->out,
                   "<h3>100 R by head and, below it, 100 R by layer, M by head and O by "
                   "layer</h3>\n");
    const char *const names[] = {"arm", "seeds"};
    open_table(page, names, 2);
    for (size_t l = 0; l < count; l++) {
        snprintf(text, sizeof text, "%.0f", lengths[l]);
        header_cell(page, text);
    }
    ls_table_body(page->ctx, page->out);
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a);
        ls_page_open_row(page, arm);
        ls_page_seeds(page, arm);
        for (size_t l = 0; l < count; l++) {
            const json_t *row = ls_page_row(arm, "resolution", "", lengths[l]);
            char head[32], layer[32], fall[32], wave[32] = "";
            const double O = ls_member_real(row, "O_layer"); /* older files have none */
            ls_chart_number(100 * ls_member_real(row, "R_head"), head, sizeof head);
            ls_chart_number(100 * ls_member_real(row, "R_layer"), layer, sizeof layer);
            ls_chart_number(ls_member_real(row, "M_head"), fall, sizeof fall);
            if (isfinite(O)) ls_chart_number(O, wave, sizeof wave);
            snprintf(text, sizeof text, "%s<small>%s, %s%s%s</small>", head, layer, fall,
                     wave[0] == '\0' ? "" : ", ", wave);
            number_cell(page, ls_member_real(row, "R_head"), text);
        }
        ls_text_printf(page->ctx, page->out, "</tr>\n");
    }
    ls_table_close(page->ctx, page->out);
}

void ls_page_cost_table(ls_page *page) {
    static const char *const names[] = {"arm",         "parameters",     "tokens trained", "seeds",
                                        "training, s", "its memory, MB", "testing, s"};
    ls_page_heading(page, "Arms and what they cost");
    open_table(page, names, sizeof names / sizeof names[0]);
    ls_text_printf(page->ctx, page->out,
                   "<th scope=\"col\" class=\"text\">settings</th></tr></thead>\n<tbody>\n");
    const json_t *costs = json_object_get(page->timing, "arms");
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a), *cost = json_array_get(costs, a);
        const json_t *training = json_object_get(cost, "training");
        char text[64];
        ls_page_open_row(page, arm);
        static const char *const keys[] = {"parameters", "tokens_trained", "seeds"};
        for (size_t k = 0; k < 3; k++) {
            ls_chart_count(ls_member_real(arm, keys[k]), text, sizeof text);
            number_cell(page, ls_member_real(arm, keys[k]), text);
        }
        const double values[] = {ls_member_real(training, "seconds"),
                                 1e-6 * ls_member_real(training, "peak_bytes"),
                                 ls_member_real(json_object_get(cost, "evaluation"), "seconds")};
        for (size_t k = 0; k < 3; k++) {
            ls_chart_number(values[k], text, sizeof text);
            number_cell(page, values[k], text);
        }
        ls_text_printf(page->ctx, page->out, "<td class=\"text\" data-value=\"\"><code>");
        const char *key;
        json_t *value, *settings = json_object_get(arm, "settings");
        json_object_foreach(settings, key, value) {
            if (strcmp(key, "label") == 0) continue;
            ls_html(page->ctx, key, page->out);
            ls_text_append(page->ctx, page->out, "=", 1);
            ls_html(page->ctx, json_is_string(value) ? json_string_value(value) : "", page->out);
            ls_text_append(page->ctx, page->out, " ", 1);
        }
        ls_text_printf(page->ctx, page->out, "</code></td></tr>\n");
    }
    ls_table_close(page->ctx, page->out);
}
