/* report.html: one file that needs nothing beside it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

static void put_protocol(ls_page *page, const char *protocol) {
    if (ls_page_judged(page, protocol))
        ls_page_accuracy(page, protocol);
    else
        ls_page_perplexity(page, protocol);
    ls_page_lengths_table(page, protocol);
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

static void open_page(ls_page *page, const char *protocol) {
    ls_text *out = page->out;
    ls_ctx *ctx = page->ctx;
    bool finished = json_is_true(json_object_get(page->results, "finished"));
    ls_html_open(ctx, ls_member_text(page->results, "title"), !finished, out);
    ls_page_finding(page, protocol);
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
        ls_text_printf(ctx, out, "%zu arm%s from checkpoints%s", opened, opened == 1 ? "" : "s",
                       trained > opened ? ", " : "");
    if (trained > opened)
        ls_text_printf(ctx, out, "%zu arm%s trained", trained - opened,
                       trained - opened == 1 ? "" : "s");
    ls_text_printf(ctx, out, " at %s tokens", lengths);
    if (page->count > trained)
        ls_text_printf(ctx, out, ", %zu more that test%s their weights under another method",
                       page->count - trained, page->count - trained == 1 ? "s" : "");
    ls_text_printf(ctx, out, "; seeds: %.0f.</p>\n", seeds);
    const size_t aside = json_array_size(json_object_get(page->results, "not_chosen"));
    if (aside > 0)
        ls_text_printf(ctx, out,
                       "<p class=\"soft\">%zu more arms were trained with one seed and not chosen: "
                       "another of the same had a lower validation loss. They are in "
                       "results.json.</p>\n",
                       aside);
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

static void put_definitions(ls_page *page, const ls_page_protocols *list) {
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
    ls_page_heading(page, "What the numbers mean");
    ls_text_printf(page->ctx, page->out, "<dl>\n");
    term(page, "loss", "Mean of -ln p(token) over the scored tokens, in nats per token.");
    term(
        page, "perplexity",
        "exp(loss). Over several seeds: of the mean loss. What follows \302\261 is half of the 95 % "
        "interval of the mean: the standard error times Student's t for that many seeds, wide "
        "where they are few. One seed has none. That of a share of right answers is no narrower "
        "than Wilson's over all of them.");
    term(
        page, "flat tail",
        "What the loss would be if every position up to the training length kept its own loss, and "
        "every later one had the mean loss of the second half of the training length.");
    term(
        page, "excess",
        "Loss above the flat tail: positive where the method suffers from length, near 0 where it "
        "merely holds, negative where text beyond the training length is of use. Up to the training "
        "length it is 0 by this definition.");
    term(page, "bits per byte",
         "The loss in bits, divided by the bytes of text that the tokens stand for: the same for "
         "every tokenizer, where nats per token are not.");
    term(page, "chance",
         "The share that is right where every question gets the answer that is most frequent: "
         "found in one half of the test samples and counted in the other.");
    term(page, "resolution R",
         "With p the softmax over distances of the mean score at each distance: the sum of p(k) "
         "(p(k) - p(k+1)). By head: of every head's own scores, then averaged; by layer: of the "
         "scores averaged over heads.");
    term(page, "monotonicity M", "The share of p at distances where the mean score falls.");
    term(
        page, "oscillation O",
        "The share of the variance of the mean scores by distance that is left by the best monotone "
        "curve, all weighted by pairs of tokens: 0 where scores only fall or only rise.");
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

const char *ls_page_dtype(const ls_page *page) {
    const char *first = "";
    for (size_t a = 0; a < page->count; a++) {
        const char *own = ls_member_text(json_array_get(page->arms, a), "dtype");
        if (own[0] == '\0') continue;
        if (first[0] != '\0' && strcmp(first, own) != 0) return "";
        first = own;
    }
    return first;
}

static void close_page(ls_page *page, const ls_page_protocols *list) {
    ls_text *out = page->out;
    const char *type = ls_page_dtype(page);
    put_definitions(page, list);
    ls_page_heading(page, "How it was made");
    ls_text_printf(page->ctx, out, "<pre>");
    ls_html(page->ctx, ls_member_text(page->results, "command"), out);
    ls_text_printf(page->ctx, out, "</pre>\n<p class=\"soft\">longshot ");
    ls_html(page->ctx, ls_member_text(page->results, "longshot"), out);
    ls_text_printf(page->ctx, out,
                   "; every number is in results.json and results.csv beside this page.");
    if (type[0] != '\0') {
        ls_text_printf(page->ctx, out, " Evaluated in ");
        ls_html(page->ctx, type, out);
        ls_text_printf(page->ctx, out, ".");
    }
    ls_text_printf(page->ctx, out, "</p>\n<h3>Settings of all arms</h3>\n");
    put_object(page, "settings");
    ls_text_printf(page->ctx, out, "<h3>Machine</h3>\n");
    put_object(page, "machine");
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

void ls_page_heading(ls_page *page, const char *title) {
    page->sections++;
    ls_text_printf(page->ctx, page->out, "<h2 id=\"s%d\">", page->sections);
    ls_html(page->ctx, title, page->out);
    ls_text_printf(page->ctx, page->out, "</h2>\n");
    ls_text_printf(page->ctx, &page->contents, "<li><a href=\"#s%d\">", page->sections);
    ls_html(page->ctx, title, &page->contents);
    ls_text_printf(page->ctx, &page->contents, "</a></li>\n");
}

static void put_sections(ls_page *page, const ls_page_protocols *list) {
    for (size_t p = 0; p < list->count; p++) put_protocol(page, list->name[p]);
    for (size_t p = 0; p < list->count; p++) ls_page_trained_tested(page, list->name[p]);
    ls_page_suites(page);
    for (size_t p = 0; p < list->count; p++) ls_page_positions(page, list->name[p]);
    ls_page_resolution(page);
    ls_page_resolution_table(page);
    ls_page_scores(page);
    ls_page_learning(page);
    ls_page_cost(page);
    ls_page_cost_table(page);
    close_page(page, list);
}

/* The sections are written first: they tell what the contents list. */
static void put_page(ls_page *page, ls_text *out) {
    const ls_page_protocols list = ls_page_list_protocols(page);
    ls_text body = {0};
    page->out = &body;
    put_sections(page, &list);
    page->out = out;
    open_page(page, list.count == 0 ? "" : list.name[0]);
    if (!page->contents.failed && !body.failed)
        ls_text_printf(page->ctx, out, "<nav aria-label=\"Contents\"><ul>\n%s</ul></nav>\n%s",
                       page->contents.bytes, body.bytes);
    else
        out->failed = true;
    ls_html_close(page->ctx, out);
    ls_text_clear(page->ctx, &page->contents);
    ls_text_clear(page->ctx, &body);
}

ls_page ls_page_of(ls_ctx *ctx, const ls_study_files *files) {
    ls_page page = {.ctx = ctx,
                    .results = files->results,
                    .timing = files->timing,
                    .hash = files->hash,
                    .runs = files->runs,
                    .runs_hash = files->runs_hash,
                    .arms = json_object_get(files->results, "arms")};
    page.count = json_array_size(page.arms);
    find_lengths(&page);
    return page;
}

void ls_page_write(ls_ctx *ctx, const ls_study_files *files, ls_text *out) {
    ls_page page = ls_page_of(ctx, files);
    page.out = out;
    page.styles = ls_new(ctx, page.count + 1, sizeof *page.styles);
    if (page.styles == NULL || !ls_page_find_groups(&page) || !ls_page_choose_styles(&page))
        out->failed = true;
    else
        put_page(&page, out);
    ls_free(ctx, page.styles);
    ls_free(ctx, page.members);
    ls_free(ctx, page.begins);
}
