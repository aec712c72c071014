/* report.html: one file that needs nothing beside it. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

enum { PROTOCOLS_MAX = 16, LENGTHS_MAX = 64 };

/* The protocols of the study, in order of appearance. */
typedef struct protocols {
    const char *name[PROTOCOLS_MAX];
    size_t count;
} protocols;

static protocols list_protocols(const ls_page *page) {
    protocols list = {0};
    for (size_t a = 0; a < page->count; a++) {
        const json_t *rows = json_object_get(json_array_get(page->arms, a), "results");
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const char *name = ls_member_text(json_array_get(rows, i), "protocol");
            bool known = list.count == PROTOCOLS_MAX;
            for (size_t p = 0; p < list.count; p++) known |= strcmp(list.name[p], name) == 0;
            if (!known) list.name[list.count++] = name;
        }
    }
    return list;
}

/* An arm has one look everywhere: those that train differ in colour and are solid; those that test
 * its weights take the next colours, dashed. */
static void choose_styles(ls_page *page) {
    int trained = 0;
    for (size_t i = 0; i < page->count; i++)
        if (ls_member_text(json_array_get(page->arms, i), "from")[0] == '\0') {
            page->styles[i] = (ls_chart_style){trained % LS_CHART_COLOURS,
                                               3 * (trained >= LS_CHART_COLOURS), trained % 6};
            trained++;
        }
    const char *title;
    size_t count;
    for (size_t g = 1; (count = ls_page_group(page, g, &title)) > 0; g++)
        for (size_t k = 1; k < count; k++) {
            int step = (int)k, base = page->styles[page->group[0]].colour;
            page->styles[page->group[k]] = (ls_chart_style){(base + step) % LS_CHART_COLOURS,
                                                            1 + (step - 1) % 2, (base + step) % 6};
        }
}

/* ---- tables ---- */

static size_t list_lengths(const ls_page *page, const char *list, const char *protocol,
                           double *lengths) {
    size_t count = 0;
    for (size_t a = 0; a < page->count; a++) {
        const json_t *rows = json_object_get(json_array_get(page->arms, a), list);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            double length = ls_member_real(row, "length");
            bool known = count == LENGTHS_MAX || isnan(length) ||
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

void ls_page_row(ls_page *page, const json_t *arm) {
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

static const json_t *find_row(const json_t *arm, const char *list, const char *protocol,
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

/* "5.23 ±0.04" and below it the excess. */
static void perplexity_cell(ls_page *page, const json_t *row) {
    char value[32], half[32], text[128];
    double ppl = ls_member_real(row, "ppl"), excess = ls_member_real(row, "excess");
    double range = (ls_member_real(row, "ppl_max") - ls_member_real(row, "ppl_min")) / 2;
    ls_chart_number(ppl, value, sizeof value);
    /* as many decimals as the value has */
    const char *point = strchr(value, '.');
    snprintf(half, sizeof half, "%.*f", point == NULL ? 0 : (int)strspn(point + 1, "0123456789"),
             range);
    snprintf(text, sizeof text, "%s", value);
    if (ls_member_real(row, "n") > 1 && isfinite(range))
        add(text, sizeof text, " &plusmn;%s", half);
    if (fabs(excess) < 1e9) add(text, sizeof text, "<small>%+.3f</small>", excess);
    number_cell(page, ppl, text);
}

/* "99.6" and below it the share of samples that are wholly right; both in percent. */
static void accuracy_cell(ls_page *page, const json_t *row) {
    char text[128];
    double right = 100 * ls_member_real(row, "accuracy"), range;
    range = 50 * (ls_member_real(row, "accuracy_max") - ls_member_real(row, "accuracy_min"));
    snprintf(text, sizeof text, "%.1f", right);
    if (ls_member_real(row, "n") > 1 && isfinite(range))
        add(text, sizeof text, " &plusmn;%.1f", range);
    add(text, sizeof text, "<small>%.1f</small>", 100 * ls_member_real(row, "exact"));
    number_cell(page, right, text);
}

/* One row per arm, one column per length. */
static void lengths_table(ls_page *page, const char *title, const char *protocol,
                          void (*cell)(ls_page *, const json_t *)) {
    double lengths[LENGTHS_MAX];
    char text[64];
    size_t count = list_lengths(page, "results", protocol, lengths);
    ls_text_printf(page->ctx, page->out, "<h3>%s: ", title);
    ls_html(page->ctx, protocol, page->out);
    ls_text_printf(page->ctx, page->out, "</h3>\n");
    const char *const names[] = {"arm", "parameters"};
    open_table(page, names, 2);
    for (size_t l = 0; l < count; l++) {
        snprintf(text, sizeof text, "%.0f", lengths[l]);
        header_cell(page, text);
    }
    ls_table_body(page->ctx, page->out);
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a);
        ls_page_row(page, arm);
        ls_chart_count(ls_member_real(arm, "parameters"), text, sizeof text);
        number_cell(page, ls_member_real(arm, "parameters"), text);
        for (size_t l = 0; l < count; l++)
            cell(page, find_row(arm, "results", protocol, lengths[l]));
        ls_text_printf(page->ctx, page->out, "</tr>\n");
    }
    ls_table_close(page->ctx, page->out);
}

/* A task's rows have answers that are right or wrong, others a loss alone. */
static bool is_judged(const ls_page *page, const char *protocol) {
    for (size_t a = 0; a < page->count; a++) {
        const json_t *rows = json_object_get(json_array_get(page->arms, a), "results");
        for (size_t i = 0; i < json_array_size(rows); i++)
            if (strcmp(ls_member_text(json_array_get(rows, i), "protocol"), protocol) == 0)
                return json_object_get(json_array_get(rows, i), "accuracy") != NULL;
    }
    return false;
}

static void put_protocol(ls_page *page, const char *protocol) {
    if (is_judged(page, protocol)) {
        ls_page_accuracy(page, protocol);
        lengths_table(page, "Right answers and, below it, samples with no wrong one, in percent",
                      protocol, accuracy_cell);
        return;
    }
    ls_page_perplexity(page, protocol);
    lengths_table(page, "Perplexity and, below it, excess in nats per token", protocol,
                  perplexity_cell);
}

static void resolution_table(ls_page *page) {
    double lengths[LENGTHS_MAX];
    char text[160];
    size_t count = list_lengths(page, "resolution", "", lengths);
    if (count == 0) return;
    ls_text_printf(page->ctx, page->out,
                   "<h3>100 R by head and, below it, 100 R by layer and M by head</h3>\n");
    const char *const names[] = {"arm"};
    open_table(page, names, 1);
    for (size_t l = 0; l < count; l++) {
        snprintf(text, sizeof text, "%.0f", lengths[l]);
        header_cell(page, text);
    }
    ls_table_body(page->ctx, page->out);
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a);
        ls_page_row(page, arm);
        for (size_t l = 0; l < count; l++) {
            const json_t *row = find_row(arm, "resolution", "", lengths[l]);
            char head[32], layer[32], fall[32];
            ls_chart_number(100 * ls_member_real(row, "R_head"), head, sizeof head);
            ls_chart_number(100 * ls_member_real(row, "R_layer"), layer, sizeof layer);
            ls_chart_number(ls_member_real(row, "M_head"), fall, sizeof fall);
            snprintf(text, sizeof text, "%s<small>%s, %s</small>", head, layer, fall);
            number_cell(page, ls_member_real(row, "R_head"), text);
        }
        ls_text_printf(page->ctx, page->out, "</tr>\n");
    }
    ls_table_close(page->ctx, page->out);
}

static void training_table(ls_page *page) {
    static const char *const names[] = {"arm",         "parameters",     "tokens trained", "seeds",
                                        "training, s", "its memory, MB", "testing, s"};
    ls_text_printf(page->ctx, page->out, "<h2>Arms and what they cost</h2>\n");
    open_table(page, names, sizeof names / sizeof names[0]);
    ls_text_printf(page->ctx, page->out,
                   "<th scope=\"col\" class=\"text\">settings</th></tr></thead>\n<tbody>\n");
    const json_t *costs = json_object_get(page->timing, "arms");
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a), *cost = json_array_get(costs, a);
        const json_t *training = json_object_get(cost, "training");
        char text[64];
        ls_page_row(page, arm);
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

/* ---- text ---- */

/* Suites that seeds of an arm were not asked yet. */
static size_t suites_missing(const json_t *arm, double absent) {
    const json_t *suites = json_object_get(arm, "suites");
    const double all = ls_member_real(arm, "seeds") + absent;
    double missing = 0;
    for (size_t i = 0; i < json_array_size(suites); i++)
        missing += fmax(0, all - ls_member_real(json_array_get(suites, i), "seeds"));
    return missing < 1e9 ? (size_t)missing : 0;
}

static void open_page(ls_page *page) {
    ls_text *out = page->out;
    ls_ctx *ctx = page->ctx;
    bool finished = json_is_true(json_object_get(page->results, "finished"));
    ls_html_open(ctx, ls_member_text(page->results, "title"), !finished, out);
    if (ls_member_text(page->results, "about")[0] != '\0') {
        ls_text_printf(ctx, out, "<p>");
        ls_html(ctx, ls_member_text(page->results, "about"), out);
        ls_text_printf(ctx, out, "</p>\n");
    }
    size_t trained = 0, opened = 0, missing = 0;
    double seeds = 0;
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a);
        trained += ls_member_text(arm, "from")[0] == '\0';
        opened += ls_member_text(arm, "checkpoint")[0] != '\0';
        const size_t absent = json_array_size(json_object_get(arm, "missing_seeds"));
        missing += absent + suites_missing(arm, (double)absent);
        seeds = fmax(seeds, ls_member_real(arm, "seeds"));
    }
    char lengths[64];
    snprintf(lengths, sizeof lengths,
             page->trained_length == page->trained_most ? "%.0f" : "%.0f to %.0f",
             page->trained_length, page->trained_most);
    ls_text_printf(ctx, out, "<p class=\"soft\">");
    if (opened > 0)
        ls_text_printf(ctx, out, "%zu arms from checkpoints%s", opened,
                       trained > opened ? ", " : "");
    if (trained > opened) ls_text_printf(ctx, out, "%zu arms trained", trained - opened);
    ls_text_printf(ctx, out,
                   " at %s tokens, %zu more that test their weights under another method; "
                   "seeds: %.0f.</p>\n",
                   lengths, page->count - trained, seeds);
    if (!finished)
        ls_text_printf(ctx, out,
                       "<p class=\"running\">This study is running: %zu results are still to come. "
                       "The page reloads itself.</p>\n",
                       missing);
    else if (missing > 0)
        ls_text_printf(ctx, out, "<p class=\"running\">%zu results are missing: jobs failed.</p>\n",
                       missing);
}

static void term(ls_page *page, const char *name, const char *text) {
    ls_html_term(page->ctx, name, text, page->out);
}

static void put_object(ls_page *page, const char *name) {
    const char *key;
    json_t *value, *object = json_object_get(page->results, name);
    ls_text_printf(page->ctx, page->out, "<dl>\n");
    json_object_foreach(object, key, value) {
        char text[64];
        if (json_is_integer(value))
            snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        else
            snprintf(text, sizeof text, "%s", json_is_true(value) ? "yes" : "no");
        term(page, key, json_is_string(value) ? json_string_value(value) : text);
    }
    ls_text_printf(page->ctx, page->out, "</dl>\n");
}

static void put_definitions(ls_page *page, const protocols *list) {
    static const struct {
        const char *name, *text;
    } known[] = {
        {"nonoverlap", "Documents are cut into windows that do not overlap; every token is scored "
                       "once, from nothing but the tokens before it in its window."},
        {"slide", "Windows move by a stride and score only the tokens that are new, so each has "
                  "much context; the first window scores all of its tokens."},
        {"lex",
         "The first tokens of each document, the same at every length, cut into windows that "
         "are scored alone: a longer window only means more context and fewer starts."},
        {"prefix", "One window per document: its first tokens, all scored."},
        {"winmean",
         "Windows move by a stride and score all their tokens, also those scored before."},
        {"stream", "Each document as one stream from its first token to its last."},
        {"task",
         "Samples that the program makes, none of them seen in training. An answer is right "
         "where the most likely token is the one that the task demands."}};
    ls_text_printf(page->ctx, page->out, "<h2>What the numbers mean</h2>\n<dl>\n");
    term(page, "loss", "Mean of -ln p(token) over the scored tokens, in nats per token.");
    term(
        page, "perplexity",
        "exp(loss). Over several seeds: of the mean loss; the range is that of the seeds, and what "
        "follows \302\261 is half of it.");
    term(
        page, "flat tail",
        "What the loss would be if every position up to the training length kept its own loss, and "
        "every later one had the mean loss of the second half of the training length.");
    term(page, "excess",
         "Loss above the flat tail: positive where the method suffers from length, near 0 where it "
         "merely holds, negative where text beyond the training length is of use.");
    term(page, "resolution R",
         "With p the softmax over distances of the mean score at each distance: the sum of p(k) "
         "(p(k) - p(k+1)). By head: of every head's own scores, then averaged; by layer: of the "
         "scores averaged over heads.");
    term(page, "monotonicity M", "The share of p at distances where the mean score falls.");
    for (size_t p = 0; p < list->count; p++)
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            size_t length = strlen(known[i].name);
            const char *rest = list->name[p] + length;
            if (strncmp(list->name[p], known[i].name, length) == 0 &&
                (*rest == '\0' || strchr("-(", *rest) != NULL))
                term(page, list->name[p], known[i].text);
        }
    ls_text_printf(page->ctx, page->out, "</dl>\n");
}

static void close_page(ls_page *page, const protocols *list) {
    ls_text *out = page->out;
    put_definitions(page, list);
    ls_text_printf(page->ctx, out, "<h2>How it was made</h2>\n<pre>");
    ls_html(page->ctx, ls_member_text(page->results, "command"), out);
    ls_text_printf(page->ctx, out, "</pre>\n<p class=\"soft\">longshot ");
    ls_html(page->ctx, ls_member_text(page->results, "longshot"), out);
    ls_text_printf(page->ctx, out,
                   "; every number is in results.json and results.csv beside this page.</p>\n"
                   "<h3>Settings of all arms</h3>\n");
    put_object(page, "settings");
    ls_text_printf(page->ctx, out, "<h3>Machine</h3>\n");
    put_object(page, "machine");
    ls_html_close(page->ctx, out);
}

/* What the arms were trained at; files of older versions know one length for all. */
static void find_lengths(ls_page *page) {
    const double common = ls_member_real(page->results, "trained_length");
    page->trained_length = page->trained_most = common;
    for (size_t a = 0; a < page->count; a++) {
        const double own = ls_member_real(json_array_get(page->arms, a), "trained_length");
        page->trained_length = fmin(page->trained_length, own); /* not a number: left out */
        page->trained_most = fmax(page->trained_most, own);
    }
}

void ls_page_write(ls_ctx *ctx, const ls_study_files *files, ls_text *out) {
    ls_page page = {.ctx = ctx,
                    .results = files->results,
                    .timing = files->timing,
                    .arms = json_object_get(files->results, "arms"),
                    .out = out};
    page.count = json_array_size(page.arms);
    find_lengths(&page);
    page.styles = ls_new(ctx, page.count + 1, sizeof *page.styles);
    if (page.styles == NULL || !ls_page_find_groups(&page)) {
        out->failed = true;
    } else {
        choose_styles(&page);
        const protocols list = list_protocols(&page);
        open_page(&page);
        for (size_t p = 0; p < list.count; p++) put_protocol(&page, list.name[p]);
        ls_page_suites(&page);
        for (size_t p = 0; p < list.count; p++) ls_page_positions(&page, list.name[p]);
        ls_page_resolution(&page);
        resolution_table(&page);
        ls_page_cost(&page);
        training_table(&page);
        close_page(&page, &list);
    }
    ls_free(ctx, page.styles);
    ls_free(ctx, page.members);
    ls_free(ctx, page.begins);
}
