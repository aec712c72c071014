/* The sentence that a page begins with: made from the numbers, by rules that hold for any study.
 *
 * Of text: the arm that loses most beyond its trained length, the best that is done about it at
 * test time, and the arm that loses least as trained. Of each task: its best and its worst arm.
 * Each arm at the longest length that it was tested at, told as a multiple of its trained one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

static const double held = 0.005; /* nats per token: less is nothing lost */

static const json_t *arm_at(const ls_page *page, size_t index) {
    return json_array_get(page->arms, index);
}

/* The row of an arm at its longest length that has a number under `key`. */
static const json_t *longest_row(const json_t *arm, const char *protocol, const char *key) {
    const json_t *rows = json_object_get(arm, "results"), *found = NULL;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(ls_member_text(row, "protocol"), protocol) == 0 &&
            isfinite(ls_member_real(row, key)) && ls_member_real(row, "length") > 0 &&
            (found == NULL || ls_member_real(row, "length") > ls_member_real(found, "length")))
            found = row;
    }
    return found;
}

/* An arm, and its row that is spoken of. */
typedef struct finding {
    const json_t *arm, *row;
} finding;

/* How many times its trained length an arm was tested at; 0: that is not known. */
static double multiple_of(ls_page *page, const json_t *arm, const json_t *row) {
    const double trained = ls_page_trained(page, arm);
    return trained > 0 ? ls_member_real(row, "length") / trained : 0;
}

/* What is lost beyond the trained length is not told by an arm that never went there, as one with
 * learnt positions. */
static bool stays_within(ls_page *page, const json_t *arm, const json_t *row) {
    const double multiple = row == NULL ? 0 : multiple_of(page, arm, row);
    return multiple > 0 && multiple <= 1;
}

/* The arm as trained with the largest (sign 1) or the smallest (-1) excess. `with_methods`: only
 * one whose weights others test. */
static finding extreme(ls_page *page, const char *protocol, int sign, bool with_methods) {
    finding best = {0};
    const char *title;
    size_t count;
    for (size_t g = 0; (count = ls_page_group(page, g, &title)) > 0; g++)
        for (size_t i = 0; (g == 0) == !with_methods && i < (with_methods ? 1 : count); i++) {
            const json_t *arm = arm_at(page, page->group[i]);
            const json_t *row = longest_row(arm, protocol, "excess");
            if (stays_within(page, arm, row)) continue;
            if (row != NULL && (best.row == NULL || sign * ls_member_real(row, "excess") >
                                                        sign * ls_member_real(best.row, "excess")))
                best = (finding){arm, row};
        }
    return best;
}

/* Of the arms that test the weights of one, at that one's length: which has the lowest loss. One
 * that reads badly at every length has no excess either. */
static finding best_method(ls_page *page, const char *protocol, const finding *of) {
    finding best = {0};
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = arm_at(page, a);
        if (ls_page_trains(arm) ||
            strcmp(ls_member_text(arm, "from"), ls_member_text(of->arm, "name")) != 0)
            continue;
        const json_t *row =
            ls_page_row(arm, "results", protocol, ls_member_real(of->row, "length"));
        if (isfinite(ls_member_real(row, "excess")) &&
            (best.row == NULL || ls_member_real(row, "loss") < ls_member_real(best.row, "loss")))
            best = (finding){arm, row};
    }
    return best;
}

/* ---- words ---- */

/* "RoPE + BCA" of "RoPE": BCA; else the label as it is. */
static const char *method_name(const json_t *arm, const json_t *parent) {
    const char *label = ls_member_text(arm, "label"), *base = ls_member_text(parent, "label");
    const size_t length = strlen(base);
    if (length == 0 || strncmp(label, base, length) != 0) return label;
    const char *rest = label + length + strspn(label + length, " ");
    if (strchr("+,:", *rest) == NULL || *rest == '\0') return label;
    rest += 1 + strspn(rest + 1, " ");
    return *rest == '\0' ? label : rest;
}

static void put_nats(ls_page *page, double value) {
    ls_text_printf(page->ctx, page->out, fabs(value) >= 0.0995 ? "%.2f" : "%.3f", fabs(value));
}

static void put_label(ls_page *page, const json_t *arm) {
    ls_text_printf(page->ctx, page->out, "<b>");
    ls_html(page->ctx, ls_member_text(arm, "label"), page->out);
    ls_text_printf(page->ctx, page->out, "</b>");
}

static void put_multiple(ls_page *page, const finding *of) {
    const double multiple = multiple_of(page, of->arm, of->row);
    char tokens[32];
    ls_chart_count(ls_member_real(of->row, "length"), tokens, sizeof tokens);
    if (multiple > 0)
        ls_text_printf(page->ctx, page->out, "at %.3gx its trained length", multiple);
    else
        ls_text_printf(page->ctx, page->out, "at %s tokens", tokens);
}

/* Seeds of one reach into the range of the other's. */
static const char *overlap(const finding *high, const finding *low, const char *key) {
    char least[32], most[32];
    snprintf(least, sizeof least, "%s_min", key);
    snprintf(most, sizeof most, "%s_max", key);
    const bool several = ls_member_real(high->row, "n") > 1 || ls_member_real(low->row, "n") > 1;
    return several && ls_member_real(low->row, most) >= ls_member_real(high->row, least)
               ? " (seeds overlap)"
               : "";
}

/* ---- sentences ---- */

static void put_others(ls_page *page, const char *protocol, const finding *worst) {
    const finding method = best_method(page, protocol, worst);
    const finding least = extreme(page, protocol, -1, false);
    if (method.row != NULL) {
        const double excess = ls_member_real(method.row, "excess");
        ls_text_printf(page->ctx, page->out, "; with ");
        ls_html(page->ctx, method_name(method.arm, worst->arm), page->out);
        ls_text_printf(page->ctx, page->out, excess < 0 ? " it gains " : " ");
        put_nats(page, excess);
        ls_text_printf(page->ctx, page->out, "%s", overlap(worst, &method, "excess"));
    }
    if (least.row == NULL || least.arm == worst->arm) return;
    const double excess = ls_member_real(least.row, "excess");
    ls_text_printf(page->ctx, page->out, "; ");
    put_label(page, least.arm);
    ls_text_printf(page->ctx, page->out, "%s%s", page->groups > 1 ? ", as trained," : "",
                   excess < 0 ? " gains " : " ");
    put_nats(page, excess);
    const double multiple = multiple_of(page, least.arm, least.row);
    if (fabs(multiple - multiple_of(page, worst->arm, worst->row)) > 1e-9 * multiple)
        ls_text_printf(page->ctx, page->out, " at %.3gx", multiple);
    ls_text_printf(page->ctx, page->out, "%s", overlap(worst, &least, "excess"));
}

static void put_loss(ls_page *page, const char *protocol) {
    finding worst = extreme(page, protocol, 1, true);
    if (worst.row == NULL || ls_member_real(worst.row, "excess") < held)
        worst = extreme(page, protocol, 1, false);
    if (worst.row == NULL) return;
    if (ls_member_real(worst.row, "excess") < held) {
        ls_text_printf(page->ctx, page->out,
                       "No arm loses %.3f nats per token or more beyond its trained length. ",
                       held);
        return;
    }
    put_label(page, worst.arm);
    ls_text_printf(page->ctx, page->out, " loses ");
    put_nats(page, ls_member_real(worst.row, "excess"));
    ls_text_printf(page->ctx, page->out, " nats per token ");
    put_multiple(page, &worst);
    put_others(page, protocol, &worst);
    ls_text_printf(page->ctx, page->out, ". ");
}

/* The lowest perplexity at the longest length of all. */
static void put_best(ls_page *page, const char *protocol) {
    finding best = {0};
    double longest = 0;
    for (size_t a = 0; a < page->count; a++)
        longest = fmax(longest, ls_member_real(longest_row(arm_at(page, a), protocol, "ppl"),
                                               "length")); /* not a number: left out */
    for (size_t a = 0; a < page->count; a++) {
        const json_t *row = ls_page_row(arm_at(page, a), "results", protocol, longest);
        if (isfinite(ls_member_real(row, "ppl")) &&
            (best.row == NULL || ls_member_real(row, "ppl") < ls_member_real(best.row, "ppl")))
            best = (finding){arm_at(page, a), row};
    }
    if (best.row == NULL) return;
    char tokens[32], ppl[32];
    ls_chart_count(longest, tokens, sizeof tokens);
    ls_chart_number(ls_member_real(best.row, "ppl"), ppl, sizeof ppl);
    ls_text_printf(page->ctx, page->out, "Lowest perplexity at %s tokens: ", tokens);
    put_label(page, best.arm);
    ls_text_printf(page->ctx, page->out, ", %s", ppl);
    const double loss = ls_member_real(best.row, "loss"),
                 bits = ls_member_real(best.row, "bits_per_byte");
    if (fabs(loss) < 1e6 && fabs(bits) < 1e6)
        ls_text_printf(page->ctx, page->out, " (%.3f nats per token, %.3f bits per byte)", loss,
                       bits);
    ls_text_printf(page->ctx, page->out, ".");
}

/* The best and the worst arm as trained of those that were asked the same. */
static void put_answers(ls_page *page, const char *protocol, const size_t *task, size_t number) {
    const char *title, *key = "accuracy";
    finding best = {0}, worst = {0};
    const size_t count = ls_page_group(page, 0, &title);
    for (size_t i = 0; i < count; i++) {
        if (task[page->group[i]] != number) continue;
        const json_t *arm = arm_at(page, page->group[i]);
        const finding one = {arm, longest_row(arm, protocol, key)};
        if (one.row == NULL) continue;
        const double right = ls_member_real(one.row, key);
        if (best.row == NULL || right > ls_member_real(best.row, key)) best = one;
        if (worst.row == NULL || right < ls_member_real(worst.row, key)) worst = one;
    }
    if (best.row == NULL) return;
    ls_text_printf(page->ctx, page->out, number > 0 ? " " : "");
    put_label(page, best.arm);
    ls_text_printf(page->ctx, page->out, " has %.1f %% of answers right ",
                   100 * ls_member_real(best.row, key));
    put_multiple(page, &best);
    if (worst.arm != best.arm) {
        ls_text_printf(page->ctx, page->out, "; ");
        put_label(page, worst.arm);
        ls_text_printf(page->ctx, page->out, " %.1f %%%s", 100 * ls_member_real(worst.row, key),
                       overlap(&best, &worst, key));
    }
    const double chance = ls_member_real(best.row, "chance");
    if (isfinite(chance)) ls_text_printf(page->ctx, page->out, "; chance %.1f %%", 100 * chance);
    ls_text_printf(page->ctx, page->out, ".");
}

/* What is best of one task says nothing of another: a sentence for each. */
static void put_tasks(ls_page *page, const char *protocol) {
    size_t *task = ls_new(page->ctx, page->count + 1, sizeof *task);
    const size_t tasks = task == NULL ? 0 : ls_page_find_tasks(page, task);
    page->out->failed |= tasks == 0;
    for (size_t i = 0; i < tasks; i++) put_answers(page, protocol, task, i);
    ls_free(page->ctx, task);
}

void ls_page_finding(ls_page *page, const char *protocol) {
    const bool judged = ls_page_judged(page, protocol);
    bool any = false;
    for (size_t a = 0; a < page->count; a++)
        any |= longest_row(arm_at(page, a), protocol, judged ? "accuracy" : "ppl") != NULL;
    if (!any) return;
    ls_text_printf(page->ctx, page->out, "<p class=\"finding\">%s",
                   json_is_true(json_object_get(page->results, "finished")) ? "" : "So far: ");
    if (judged) {
        put_tasks(page, protocol);
    } else {
        put_loss(page, protocol);
        put_best(page, protocol);
    }
    ls_text_printf(page->ctx, page->out, "</p>\n");
}
