#include "suite/lib/prompts.h"

#include <math.h>
#include <string.h>

#include "suite/lib/points.h"
#include "task/lib/writing.h"

static void put(ls_ctx *ctx, ls_text *out, const char *text) {
    ls_text_append(ctx, out, text, strlen(text));
}

void ls_fill(ls_ctx *ctx, const char *template, const ls_filling *fillings, ls_text *out) {
    const char *at = template;
    for (const char *open; (open = strchr(at, '{')) != NULL;) {
        const ls_filling *f = fillings;
        size_t length = 0;
        for (; f->name != NULL; f++) {
            length = strlen(f->name);
            if (strncmp(open + 1, f->name, length) == 0 && open[1 + length] == '}') break;
        }
        const char *end = f->name == NULL ? open + 1 : open;
        ls_text_append(ctx, out, at, (size_t)(end - at));
        at = end;
        if (f->name == NULL) continue;
        ls_text_append(ctx, out, f->text, f->length);
        at = open + length + 2;
    }
    put(ctx, out, at);
}

/* ---- LongBench ---- */

/* The ten replacements of transformers' clean_up_tokenization, one after the other. */
static ls_status clean_up(ls_ctx *ctx, ls_text *text) {
    static const char *const pairs[][2] = {
        {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
        {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        const size_t from = strlen(pairs[p][0]), to = strlen(pairs[p][1]);
        size_t used = 0; /* what is put in is never longer */
        for (size_t at = 0; at < text->length;) {
            if (text->length - at >= from && memcmp(text->bytes + at, pairs[p][0], from) == 0) {
                memmove(text->bytes + used, pairs[p][1], to);
                used += to;
                at += from;
            } else {
                text->bytes[used++] = text->bytes[at++];
            }
        }
        text->length = used;
        if (text->bytes != NULL) text->bytes[used] = '\0';
    }
    (void)ctx;
    return LS_OK;
}

static ls_status decode_half(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                             size_t count, bool cleanup, ls_text *out) {
    ls_text half = {0};
    ls_status status = ls_tokenizer_decode_text(ctx, tokenizer, ids, count,
                                                LS_DECODE_SKIP_SPECIAL | LS_DECODE_UTF8, &half);
    if (status == LS_OK && cleanup) status = clean_up(ctx, &half);
    if (status == LS_OK) ls_text_append(ctx, out, half.bytes, half.length);
    ls_text_clear(ctx, &half);
    return status;
}

ls_status ls_longbench_cut(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_text *text,
                           int64_t max_length, bool cleanup, int64_t *tokens) {
    ls_ids ids = {0};
    ls_text cut = {0};
    ls_status status =
        ls_tokenizer_encode(ctx, tokenizer, text->bytes, text->length, LS_ENCODE_SPECIAL, &ids);
    *tokens = (int64_t)ids.count;
    if (status == LS_OK && *tokens > max_length) {
        const size_t half = (size_t)max_length / 2;
        status = decode_half(ctx, tokenizer, ids.at, half, cleanup, &cut);
        if (status == LS_OK)
            status = decode_half(ctx, tokenizer, ids.at + ids.count - half, half, cleanup, &cut);
        if (status == LS_OK) status = ls_text_status(&cut);
        if (status == LS_OK) {
            ls_text_clear(ctx, text);
            *text = cut;
            cut = (ls_text){0};
        }
    }
    ls_text_clear(ctx, &cut);
    ls_ids_clear(ctx, &ids);
    return status;
}

/* ---- Lost in the Middle ---- */

#define QA_TASK                                                                                    \
    "Write a high-quality answer for the given question using only the provided search results "   \
    "(some of which might be irrelevant)."
void ls_middle_qa(ls_ctx *ctx, ls_qa_kind kind, const ls_document *documents, size_t count,
                  const char *question, ls_text *out) {
    if (count > 0) {
        put(ctx, out, QA_TASK);
        if (kind == LS_QA_RANDOM_ORDER) put(ctx, out, " The search results are ordered randomly.");
        put(ctx, out, "\n\n");
        if (kind == LS_QA_QUERY_FIRST) {
            put(ctx, out, "Question: ");
            put(ctx, out, question);
            put(ctx, out, "\n\n");
        }
        for (size_t i = 0; i < count; i++) {
            ls_text_printf(ctx, out, "%sDocument [%zu](Title: ", i == 0 ? "" : "\n", i + 1);
            put(ctx, out, documents[i].title);
            put(ctx, out, ") ");
            put(ctx, out, documents[i].text);
        }
        put(ctx, out, "\n\n");
    }
    put(ctx, out, "Question: ");
    put(ctx, out, question);
    put(ctx, out, "\nAnswer:");
}

void ls_middle_pairs(ls_ctx *ctx, bool query_first, const ls_pair *pairs, size_t count,
                     const char *key, ls_text *out) {
    put(ctx, out, ls_pairs_task);
    if (query_first) ls_text_printf(ctx, out, "Key: \"%s\"\n\n", key);
    put(ctx, out, "JSON data:\n");
    for (size_t i = 0; i < count; i++)
        ls_text_printf(ctx, out, "%s\"%s\": \"%s\"%s", i == 0 ? "{" : " ", pairs[i].key,
                       pairs[i].value, i + 1 < count ? ",\n" : "}");
    ls_text_printf(ctx, out, "\n\nKey: \"%s\"\nCorresponding value:", key);
}

/* ---- passkey and needle ---- */

const char ls_needle_text[] = "\nThe best thing to do in San Francisco is eat a sandwich and sit "
                              "in Dolores Park on a sunny day.\n";
const char ls_needle_question[] = "What is the best thing to do in San Francisco?";
const char ls_needle_lceg[] =
    "<|im_start|> This is a very long story book: <book> {context} </book>.\n"
    " Based on the content of the book, Question: {question}\nAnswer:";

/* The first characters of the noise, again and again with blanks between. */
static void put_filler(ls_ctx *ctx, int64_t characters, ls_text *out) {
    const int64_t period = (int64_t)strlen(ls_noise_sentence) + 1; /* with a blank */
    while (characters > 0) {
        const int64_t now = ls_min(characters, period);
        ls_text_append(ctx, out, ls_noise_sentence, (size_t)ls_min(now, period - 1));
        if (now == period) ls_text_append(ctx, out, " ", 1);
        characters -= now;
    }
}

void ls_passkey_prompt(ls_ctx *ctx, int64_t filler, int64_t before, const char *key, ls_text *out) {
    put(ctx, out,
        "There is an important info hidden inside a lot of irrelevant text. Find it and "
        "memorize them. I will quiz you about the important information there.\n");
    put_filler(ctx, before, out);
    if (key != NULL)
        ls_text_printf(ctx, out, "\nThe pass key is %s. Remember it. %s is the pass key.", key,
                       key);
    put(ctx, out, "\n");
    put_filler(ctx, filler - before, out);
    put(ctx, out, "\nWhat is the pass key? The pass key is");
}

static bool is_stop(const ls_haystack *hay, int32_t id) {
    for (size_t i = 0; i < hay->stop_count; i++)
        if (hay->stops[i] == id) return true;
    return false;
}

size_t ls_needle_place(const ls_haystack *hay, size_t length, double depth) {
    if (depth == 100) return length;
    size_t at = (size_t)((double)length * (depth / 100));
    while (at > 0 && !is_stop(hay, hay->ids.at[at - 1])) at--;
    return at;
}

ls_status ls_needle_put(ls_ctx *ctx, ls_haystack *hay, const int32_t *needle, size_t count,
                        size_t index) {
    const size_t before = hay->ids.count;
    if (count == 0) return LS_OK;
    LS_TRY(ls_ids_append(ctx, &hay->ids, needle, count)); /* room, then each in its place */
    memmove(hay->ids.at + index + count, hay->ids.at + index, (before - index) * sizeof *needle);
    memcpy(hay->ids.at + index, needle, count * sizeof *needle);
    return LS_OK;
}

ls_status ls_needle_insert(ls_ctx *ctx, ls_haystack *hay, const int32_t *needle, size_t count,
                           double depth, size_t *index) {
    *index = ls_needle_place(hay, hay->ids.count, depth);
    return ls_needle_put(ctx, hay, needle, count, *index);
}

void ls_needle_grid(double least, double most, int64_t count, bool sigmoid, bool backwards,
                    double *out) {
    for (int64_t i = 0; i < count; i++) {
        const double step = count == 1 ? 0 : (most - least) / (double)(count - 1);
        const double value = i + 1 == count && count > 1 ? most : least + step * (double)i;
        if (!sigmoid) {
            out[i] = rint(value);
        } else if (value == 0 || value == 100) {
            out[i] = value;
        } else {
            const double x = (backwards ? 0.1 : -0.1) * (value - 50);
            out[i] = rint(100 / (1 + exp(x)) * 1000) / 1000;
        }
    }
}

/* ---- BABILong ---- */

void ls_babilong_fill(ls_ctx *ctx, const ls_babilong_prompt *prompt, const char *context,
                      size_t length, const char *question, ls_text *out) {
    ls_text text = {0};
    size_t start = 0;
    length = ls_utf8_strip_end(context, length);
    while (start < length && strchr(" \t\n\r\f\v", context[start]) != NULL) start++;
    put(ctx, &text, prompt->instruction);
    put(ctx, &text, "\n\n");
    put(ctx, &text, prompt->examples);
    put(ctx, &text, "\n\n");
    put(ctx, &text, prompt->post_prompt);
    put(ctx, &text, "\n\n<context>\n");
    ls_text_append(ctx, &text, context + start, length - start);
    put(ctx, &text, "\n</context>\n\nQuestion: ");
    put(ctx, &text, question);
    if (ls_text_status(&text) == LS_OK)
        ls_text_append(ctx, out, text.bytes, ls_utf8_strip_end(text.bytes, text.length));
    else
        out->failed = true;
    ls_text_clear(ctx, &text);
}
