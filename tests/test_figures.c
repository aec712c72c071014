/* Files of figures: every number of a table is the one of its row, later rows replace earlier ones,
 * and what cannot be a result of the benchmark is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "report/document.h"
#include "report/figures.h"

#define MACHINE                                                                                    \
    "\"machine\": {\"name\": \"A | B\", \"threads\": 2, \"bandwidth\": 2e10, \"peak_f32\": 5e10}"
#define TAKEN                                                                                      \
    "\"taken\": {\"date\": \"2026-01-02\", \"longshot\": \"0.2.0\", \"turns\": 3, \"seconds\": "   \
    "0.5, \"torch\": \"2.11\"}"
#define FORWARD                                                                                    \
    "{\"dtype\": \"bf16\", \"kind\": \"causal\", \"batch\": 32, \"heads\": 12, \"width\": 64, "    \
    "\"length\": 1024, \"backward\": false, \"seconds\": 0.002, \"spread\": 0.013, "               \
    "\"peak_share\": 0.25, \"peers\": {\"flash\": {\"seconds\": 0.003, \"spread\": 0.5, "          \
    "\"ratio\": 1.5}, \"cuDNN\": {\"seconds\": 0.001, \"spread\": 0.1, \"ratio\": 0.5}}, " TAKEN   \
    "}"
#define BACKWARD                                                                                   \
    "{\"dtype\": \"bf16\", \"kind\": \"causal\", \"batch\": 32, \"heads\": 12, \"width\": 64, "    \
    "\"length\": 1024, \"backward\": true, \"seconds\": 1.5, \"spread\": 0.25, \"peers\": "        \
    "{\"flash\": {\"seconds\": 6.0, \"spread\": 0.5, \"ratio\": 4.0}}, \"missing\": {\"cuDNN\": "  \
    "\"no <b> memory\"}, " TAKEN "}"

static void expect(ls_ctx *ctx, ls_status status) {
    if (status != LS_OK) fail_msg("%s: %s", ls_status_name(status), ctx->error.message);
}

static json_t *parse(ls_ctx *ctx, const char *text) {
    json_t *out;
    expect(ctx, ls_json_parse(ctx, text, strlen(text), "figures", &out));
    return out;
}

/* The part of these figures, or all of them, in Markdown; free it. */
static char *print(const char *text, const char *part) {
    ls_ctx ctx = ls_ctx_default();
    ls_text out = {0};
    const ls_page page = {.ctx = &ctx};
    ls_paper paper = {.page = &page, .out = &out};
    json_t *figures = parse(&ctx, text);
    expect(&ctx, ls_figures_check(&ctx, figures, "FILE"));
    assert_true(ls_figures_part(&paper, figures, part));
    expect(&ctx, ls_text_status(&out));
    char *copy = strdup(out.bytes);
    ls_text_clear(&ctx, &out);
    json_decref(figures);
    return copy;
}

static void prints(const char *text, const char *part, const char *wanted) {
    char *out = print(text, part);
    assert_string_equal(out, wanted);
    free(out);
}

static void kernels(void **state) {
    (void)state;
    prints("{" MACHINE ", \"attention\": [" FORWARD ", " BACKWARD "]}", "attention",
           "Attention alone, on batch x tokens.\n\n"
           "| case | ms | spread | peer | ratio | of matrix peak | with backward, ms | spread | "
           "peer | ratio |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
           "| causal, bf16, 32 x 1,024, 12 heads of 64 | 2.00 | 1.3% | flash 3.00, cuDNN 1.00 | "
           "1.50, 0.50 | 25% | 1,500 | 25% | flash 6,000, cuDNN: none | 4.00 |\n\n"
           "No figure of cuDNN for causal, bf16, 32 x 1,024, 12 heads of 64, with backward: no "
           "\\<b\\> memory.\n\n"
           "Taken 2026-01-02 with longshot 0.2.0 beside PyTorch 2.11, 3 turns of 0.5 s.\n\n");
}

static void training(void **state) {
    (void)state;
    prints("{" MACHINE ", \"train\": [{\"model\": \"6 x 384\", \"dtype\": \"f32\", \"batch\": 16, "
           "\"length\": 256, \"tokens_per_second\": 30000.0, \"spread\": 0.001, \"peak_share\": "
           "0.62, \"bytes\": 1250000000, \"peer_tokens_per_second\": 12000.4, \"peer_spread\": "
           "0.1, \"peer_mode\": \"compiled\", \"ratio\": 2.4999166694443}, {\"model\": "
           "\"6 x 384\", \"dtype\": \"bf16\", \"recompute\": true, \"batch\": 16, \"length\": 256, "
           "\"tokens_per_second\": 99.5, \"spread\": 0.0}]}",
           "train",
           "Training: forward, backward and update of a step.\n\n"
           "| case | tokens/s | spread | peer | ratio | of matrix peak | GB |\n"
           "|---|---:|---:|---:|---:|---:|---:|\n"
           "| 6 x 384, f32, 16 x 256 | 30,000 | 0.1% | compiled 12,000 | 2.50 | 62% | 1.25 |\n"
           "| 6 x 384, bf16, 16 x 256, recompute | 99.5 | 0.0% |  |  |  |  |\n\n"
           "Taken before files said when and how.\n\n");
}

static void others(void **state) {
    (void)state;
    prints("{" MACHINE ", \"sparse\": [{\"dtype\": \"f32\", \"kind\": \"all pairs\", \"length\": "
           "64, \"backward\": true, \"seconds\": 0.25, \"spread\": 0.0, \"share_of_pairs\": 0.125, "
           "\"times_as_fast\": 4.5}], \"decode\": [{\"depth\": 8192, \"streams\": 32, "
           "\"tokens_per_second\": 2500.0, \"spread\": 0.02, \"bandwidth_limit\": 10000.0, "
           "\"share\": 0.25, \"prefill_tokens_per_second\": 0.0, \"logits_tokens_per_second\": "
           "2400.0}], \"scan\": []}",
           "",
           "Machine: A \\| B; 2 threads; memory at 20.0 GB/s; matrix products in GFLOP/s: f32 "
           "50.0.\n\nSparse attention beside all pairs, on batch x tokens.\n\n"
           "| case | with backward, ms | spread | pairs computed | times as fast as all pairs |\n"
           "|---|---:|---:|---:|---:|\n| all pairs, f32, 64 tokens | 250 | 0.0% | 12% | 4.50 |\n\n"
           "Taken before files said when and how.\n\nDecoding, greedy, after so many tokens.\n\n"
           "| case | tokens/s | spread | bandwidth allows | of that | with logits to the caller "
           "|\n|---|---:|---:|---:|---:|---:|\n"
           "| depth 8,192, 32 sequences | 2,500 | 2.0% | 10,000 | 25% | 2,400 |\n\n"
           "Taken before files said when and how.\n\n");
}

/* ---- rows by length ---- */

#define STEP(kind, more, batch, length, seconds, bytes)                                            \
    "{\"kind\": \"" kind "\", \"model\": \"m\", \"dtype\": \"f32\"," more " \"batch\": " #batch    \
    ", \"length\": " #length ", \"seconds\": " #seconds ", \"spread\": 0.0" #batch                 \
    ", \"bytes\": " #bytes "}"
#define STEPS                                                                                      \
    "{" MACHINE                                                                                    \
    ", \"mixers\": [" /* rising lengths in any order; at one of them nothing was taken */          \
        STEP("a", "", 2, 4096, 4.0, 3000000) ", " STEP("a", "", 8, 1024, 2.0, 12345678) ", " STEP( \
            "a, near", "\"settings\": \"w=2\",", 8, 1024, 1.0,                                     \
            500000) ", " STEP("b", "", 2, 4096, 0.5, 0) ", " STEP("b", "", 8, 1024, 0.25,          \
                                                                  1000000) "]}"

static void by_length(void **state) {
    (void)state;
    prints(STEPS, "mixers",
           "Training with every causal mixer, m, f32, 8,192 tokens a step: tokens/s, by length. "
           "Behind them: how\nmany times as long a token takes at 4,096 as at 1,024, the largest "
           "spread of the line, and settings\nother than the defaults.\n\n"
           "| mixer | 1,024 | 4,096 | 4,096/1,024 | spread | settings |\n"
           "|---|---:|---:|---:|---:|---:|\n"
           "| a | 4,096 | 2,048 | 2.00 | 8.0% |  |\n"
           "| a, near | 8,192 |  |  | 8.0% | w=2 |\n"
           "| b | 32,768 | 16,384 | 2.00 | 8.0% |  |\n\n"
           "Training with every causal mixer, m, f32, 8,192 tokens a step: memory in MB (arena, "
           "scratch,\nweights, gradients, moments), by length.\n\n"
           "| mixer | 1,024 | 4,096 |\n|---|---:|---:|\n"
           "| a | 12.3 | 3.0 |\n| a, near | 0.5 |  |\n| b | 1.0 | 0 |\n\n"
           "Taken before files said when and how.\n\n");
    /* steps of other sizes are another table */
    char *out = print("{" MACHINE ", \"mixers\": [" STEP("a", "", 2, 64, 1.0,
                                                         1) ", " STEP("a", "", 4, 64, 1.0, 1) "]}",
                      "mixers");
    assert_non_null(strstr(out, "128 tokens a step: tokens/s, by length.\n\n"));
    assert_non_null(strstr(out, "\n| a | 128 | 2.0% |  |\n"));
    assert_non_null(strstr(out, "256 tokens a step: tokens/s"));
    assert_non_null(strstr(out, "\n| a | 256 | 4.0% |  |\n"));
    free(out);
}

/* Tokens before it in place of a length; the state in kB. */
#define DECODED(kind, more, depth, rate, bytes)                                                    \
    "{\"kind\": \"" kind "\", \"model\": \"m\", \"dtype\": \"f32\"," more " \"depth\": " #depth    \
    ", \"tokens_per_second\": " #rate ", \"spread\": 0.05, \"bytes\": " #bytes "}"

static void by_depth(void **state) {
    (void)state;
    prints(
        "{" MACHINE ", \"decode_mixers\": [" DECODED("a", "", 0, 4000.0, 2048) ", " DECODED(
            "a", "", 8192, 1000.0, 8192000) ", " DECODED("b", "\"settings\": \"w=2\",", 8192,
                                                         2500.0, 4096) ", " //
        DECODED("b", "\"streams\": 4,", 0, 9000.0, 4096) "]}",
        "decode_mixers",
        "Decoding with every causal mixer, m, f32: tokens/s, by tokens before it. Behind them: "
        "how many times\nas long a token takes at 8,192 as at 0, the largest spread of the line, "
        "and settings other than the\ndefaults.\n\n"
        "| mixer | 0 | 8,192 | 8,192/0 | spread | settings |\n|---|---:|---:|---:|---:|---:|\n"
        "| a | 4,000 | 1,000 | 4.00 | 5.0% |  |\n| b |  | 2,500 |  | 5.0% | w=2 |\n\n"
        "Decoding with every causal mixer, m, f32: state of a sequence in kB, by tokens before "
        "it.\n\n| mixer | 0 | 8,192 |\n|---|---:|---:|\n| a | 2.0 | 8,192 |\n| b |  | 4.1 |\n\n"
        "Decoding with every causal mixer, m, f32, 4 sequences: tokens/s, by tokens before "
        "it.\n\n| mixer | 0 | spread | settings |\n|---|---:|---:|---:|\n"
        "| b | 9,000 | 5.0% |  |\n\n"
        "Decoding with every causal mixer, m, f32, 4 sequences: state of a sequence in kB, by "
        "tokens before\nit.\n\n| mixer | 0 |\n|---|---:|\n| b | 4.1 |\n\n"
        "Taken before files said when and how.\n\n");
}

/* One table of a run: a line for each peer, none of more than 100 columns. */
static void summary(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_text out = {0};
    json_t *figures = parse(
        &ctx, "{" MACHINE ", \"ranks\": {\"rows\": [{}]}, \"scan\": [], \"attention\": [" FORWARD
              ", " BACKWARD "], \"decode\": [{\"model\": \"m\", \"depth\": 8192, "
              "\"tokens_per_second\": 2500.0, \"spread\": 0.02, \"peer_tokens_per_second\": "
              "1000.0, \"peer_mode\": \"llama.cpp\", \"ratio\": 2.5}]}");
    ls_figures_summary(&ctx, figures, &out);
    expect(&ctx, ls_text_status(&out));
    assert_string_equal(
        out.bytes,
        "attention, ms                                            ours  spread  peer            "
        " theirs ratio\n"
        "  causal, bf16, 32 x 1,024, 12 heads of 64               2.00    1.3%  flash           "
        "   3.00  1.50\n"
        "                                                                       cuDNN           "
        "   1.00  0.50\n"
        "  causal, bf16, 32 x 1,024, 12 heads of 64, with        1,500     25%  flash           "
        "  6,000  4.00\n"
        "    backward                                                           cuDNN           "
        "   none\n"
        "decode, tokens/s                                         ours  spread  peer            "
        " theirs ratio\n"
        "  m, depth 8,192                                        2,500    2.0%  llama.cpp       "
        "  1,000  2.50\n");
    for (const char *at = out.bytes; *at != '\0'; at += strcspn(at, "\n") + 1)
        assert_true(strcspn(at, "\n") <= 100);
    ls_text_clear(&ctx, &out);
    json_decref(figures);
    /* without peers names have the room, and no more than they need; "kind, model" */
    figures = parse(&ctx, STEPS);
    ls_figures_summary(&ctx, figures, &out);
    assert_non_null(strstr(out.bytes, "mixers, ms                         ours  spread\n"));
    assert_non_null(strstr(out.bytes, "\n  a, near, m, f32, 8 x 1,024      1,000    8.0%\n"));
    ls_text_clear(&ctx, &out);
    json_decref(figures);
}

static void lookups(void **state) {
    (void)state;
    static const struct {
        const char *words;
        double value; /* NAN: there is none, or more than one */
    } cases[] = {
        {"mixers tokens_per_second kind=a length=4096", 2048},
        {"mixers tokens_per_second kind=a, near length=1024", 8192},
        {"mixers ms settings=w=2", 1000},
        {"mixers MB length=1024 kind=a", 12.345678},
        {"mixers GB length=4096 kind=a", 0.003},
        {"mixers kB length=4096 kind=a", 3000},
        {"mixers spread kind=b length=4096", 2},
        {"mixers batch kind=b length=4096", 2},
        {"mixers ms kind=a", NAN},
        {"mixers ms kind=a, near length=4096", NAN},
        {"mixers ms kind=c", NAN},
        {"mixers ms a", NAN},
        {"mixers", NAN},
        {"train ms", NAN},
        {"mixers nothing kind=b length=4096", NAN},
    };
    ls_ctx ctx = ls_ctx_default();
    json_t *figures = parse(&ctx, STEPS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double value = ls_figures_lookup(figures, cases[i].words), wanted = cases[i].value;
        if (isnan(wanted) ? !isnan(value) : !(fabs(value - wanted) < 1e-9))
            fail_msg("%s: %g, not %g", cases[i].words, value, wanted);
    }
    json_decref(figures);
}

/* Seconds for a million tokens: a's step of 2 s has 8,192. */
static void charts(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char title[128];
    ls_text out = {0};
    json_t *figures = parse(&ctx, STEPS);
    assert_true(ls_figures_chart(&ctx, figures, "mixers", title, sizeof title, &out));
    assert_string_equal(title, "Time of training by length: m, f32");
    assert_non_null(strstr(out.bytes, "<g class=\"series c0 d0 t0\" data-arm=\"a\" "
                                      "data-x=\"1024 4096\" data-y=\"244.1406 488.2812\">"));
    assert_non_null(strstr(out.bytes, "<g class=\"series c0 d0 t1\" data-arm=\"a, near\" "
                                      "data-x=\"1024\" data-y=\"122.0703\">"));
    assert_non_null(strstr(out.bytes, "<g class=\"series c1 d0 t0\" data-arm=\"b\" "));
    assert_non_null(strstr(out.bytes, ">a, near</text>"));
    ls_text_clear(&ctx, &out);
    assert_true(ls_figures_chart(&ctx, figures, "mixers kind=b", title, sizeof title, &out));
    assert_null(strstr(out.bytes, "data-arm=\"a\""));
    ls_text_clear(&ctx, &out);
    assert_false(ls_figures_chart(&ctx, figures, "mixers kind=c", title, sizeof title, &out));
    assert_false(ls_figures_chart(&ctx, figures, "train", title, sizeof title, &out));
    json_array_append_new(json_object_get(figures, "mixers"),
                          parse(&ctx, STEP("a", "", 1, 64, 1.0, 1)));
    assert_false(ls_figures_chart(&ctx, figures, "mixers", title, sizeof title, &out)); /* of two */
    ls_text_clear(&ctx, &out);
    json_decref(figures);
}

/* Forty names stand above one another in a drawing that is as high as they need. */
static void chart_of_many(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char title[128], kind[16];
    ls_text out = {0};
    json_t *figures = json_pack("{s:[]}", "mixers");
    for (int i = 0; i < 40; i++) {
        json_t *row = parse(&ctx, STEP("a", "", 1, 64, 1.0, 1));
        snprintf(kind, sizeof kind, "kind%02d", i);
        json_object_set_new(row, "kind", json_string(kind));
        json_array_append_new(json_object_get(figures, "mixers"), row);
    }
    assert_true(ls_figures_chart(&ctx, figures, "mixers", title, sizeof title, &out));
    int names = 0;
    for (const char *at = out.bytes; (at = strstr(at, "<text class=\"end\"")) != NULL; at++)
        names++;
    assert_int_equal(names, 40);
    ls_text_clear(&ctx, &out);
    json_decref(figures);
}

/* As many lines as there may be, each of its own length: that takes no longer than it must. */
static void many_lengths(void **state) {
    (void)state;
    enum { TOKENS = 720720 * 17 * 19 }; /* has more divisors than there may be rows */
    ls_ctx ctx = ls_ctx_default();
    json_t *figures = parse(&ctx, "{" MACHINE ", \"mixers\": [], \"train\": []}");
    const json_t *rows = json_object_get(figures, "mixers");
    char kind[16], title[128];
    for (int length = 1; json_array_size(rows) < 512; length++) {
        if (TOKENS % length != 0) continue;
        snprintf(kind, sizeof kind, "k%d", length);
        json_t *row =
            json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:i}", "kind", kind, "model", "m", "batch",
                      TOKENS / length, "length", length, "seconds", 1.0, "spread", 0.0, "bytes", 1);
        json_array_append_new(json_object_get(figures, "mixers"), row);
        json_array_append(json_object_get(figures, "train"), row);
    }
    char *text = json_dumps(figures, 0);
    ls_text drawing = {0};
    alarm(40);
    char *out = print(text, "");
    assert_true(ls_figures_chart(&ctx, figures, "mixers", title, sizeof title, &drawing));
    alarm(0);
    int lines = 0;
    for (const char *at = out; (at = strstr(at, "\n| k")) != NULL; at++) lines++;
    assert_int_equal(lines, 3 * 512); /* rates, memory, training */
    ls_text_clear(&ctx, &drawing);
    free(out);
    free(text);
    json_decref(figures);
}

/* A name from a file is neither a cell nor the end of a part, and controls no terminal. */
static void names(void **state) {
    (void)state;
    char *out = print("{" MACHINE ", \"conv\": [{\"kind\": \"a|b <!-- end -->\\n`c`\\u007f[1m"
                      "\\u009b2m\\u00a9\", \"seconds\": 1.0, \"spread\": 0.0}]}",
                      "conv");
    assert_non_null(strstr(out, "\n| a\\|b \\<\\!-- end --\\> \\`c\\` \\[1m 2m\302\251 | 1,000 | "
                                "0.0% |\n"));
    assert_null(strstr(out, "<!-- "));
    free(out);
}

/* ---- several files ---- */

static json_t *merge(ls_ctx *ctx, const char *a, const char *b, ls_status wanted) {
    json_t *first = parse(ctx, a), *second = parse(ctx, b), *both;
    assert_int_equal(ls_figures_merge(ctx, first, second, &both), wanted);
    json_decref(first);
    json_decref(second);
    return both;
}

static void merging(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    json_t *both =
        merge(&ctx,
              "{\"machine\": {\"name\": \"m\", \"threads\": 2, \"bandwidth\": 5.0, \"peak_f32\": "
              "1.0}, \"scan\": [{\"dtype\": \"f32\", \"length\": 8, \"seconds\": 1.0, \"taken\": "
              "{\"turns\": 3}}, {\"dtype\": \"f32\", \"length\": 9, \"seconds\": 2.0}], "
              "\"peak_bytes\": 7, \"compared\": {\"rows\": 1}}",
              "{\"machine\": {\"name\": \"m\", \"threads\": 2, \"bandwidth\": 4.0, \"peak_f32\": "
              "3.0}, \"scan\": [{\"dtype\": \"bf16\", \"length\": 8, \"seconds\": 3.0}, "
              "{\"length\": 8, \"dtype\": \"f32\", \"seconds\": 4.0, \"taken\": {\"turns\": 5}}], "
              "\"conv\": [{\"seconds\": 5.0}], \"peak_bytes\": 6}",
              LS_OK);
    json_t *want = parse(
        &ctx, "{\"machine\": {\"name\": \"m\", \"threads\": 2, \"bandwidth\": 5.0, \"peak_f32\": "
              "3.0}, \"scan\": [{\"length\": 8, \"dtype\": \"f32\", \"seconds\": 4.0, \"taken\": "
              "{\"turns\": 5}}, {\"dtype\": \"f32\", \"length\": 9, \"seconds\": 2.0}, {\"dtype\": "
              "\"bf16\", \"length\": 8, \"seconds\": 3.0}], \"peak_bytes\": 7, \"conv\": "
              "[{\"seconds\": 5.0}]}");
    assert_true(json_equal(both, want));
    json_decref(both);
    json_decref(want);
    assert_null(merge(&ctx, "{\"machine\": {\"name\": \"m\", \"threads\": 2}}",
                      "{\"machine\": {\"name\": \"n\", \"threads\": 2}}", LS_EINPUT));
    assert_non_null(strstr(ctx.error.message, "figures of two machines (m, n)"));
    assert_null(merge(&ctx, "{\"machine\": {\"name\": \"m\", \"threads\": 2}}",
                      "{\"machine\": {\"name\": \"m\", \"threads\": 4}}", LS_EINPUT));
    ctx.error = (ls_error){0};
    assert_null(merge(&ctx, "{\"machine\": {\"name\": \"m\"}}",
                      "{\"machine\": {\"name\": \"m\", \"threads\": 4}}", LS_EINPUT));
    ctx.error = (ls_error){0};
    json_decref(
        merge(&ctx, "{\"machine\": {\"name\": \"m\"}}", "{\"machine\": {\"name\": \"m\"}}", LS_OK));
    /* a device is the same beside other threads */
    json_decref(merge(&ctx, "{\"machine\": {\"name\": \"m\", \"threads\": 2}}",
                      "{\"machine\": {\"name\": \"m\", \"threads\": 4, \"processor\": \"p\"}}",
                      LS_OK));
}

/* ---- files that are no result ---- */

static void damaged(void **state) {
    (void)state;
#define ROW(members) "{" MACHINE ", \"scan\": [{" members "}]}"
#define GOOD "\"seconds\": 1.0, \"spread\": 0.0"
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "names its machine"},
        {"{\"machine\": {\"name\": 3}}", "names its machine"},
        {"{\"machine\": {\"name\": \"m\", \"threads\": 0}}", "`threads` of the machine"},
        {"{\"machine\": {\"name\": \"m\", \"bandwidth\": \"x\"}}", "`bandwidth`"},
        {"{" MACHINE ", \"peak_bytes\": -1}", "`peak_bytes`"},
        {"{" MACHINE ", \"scan\": [1]}", "`a row` of scan, row 1, must be an object"},
        {ROW("\"spread\": 0.0"), "`seconds`"},
        {ROW("\"seconds\": 1.0"), "`spread` of scan, row 1, must be there"},
        {ROW("\"seconds\": 1.0, \"spread\": 0.0, \"tokens_per_second\": 1.0"), "not both"},
        {ROW("\"seconds\": 0.0, \"spread\": 0.0"), "`seconds`"},
        {ROW("\"seconds\": -1.0, \"spread\": 0.0"), "`seconds`"},
        {ROW("\"seconds\": 1e300, \"spread\": 0.0"), "`seconds`"},
        {ROW("\"seconds\": 1.0, \"spread\": -0.1"), "`spread`"},
        {ROW(GOOD ", \"length\": 1.5"), "`length` of scan, row 1, must be a whole number"},
        {ROW(GOOD ", \"length\": 9223372036854775807"), "`length`"},
        {ROW(GOOD ", \"batch\": 0"), "`batch`"},
        {ROW(GOOD ", \"dtype\": 7"), "`dtype` of scan, row 1, must be a short text"},
        {ROW(GOOD ", \"backward\": 1"), "`backward` of scan, row 1, must be true or false"},
        {ROW(GOOD ", \"peak_share\": 1e9"), "`peak_share`"},
        {ROW(GOOD ", \"peers\": [1]"), "`peers`"},
        {ROW(GOOD ", \"peers\": {\"a\": {\"seconds\": 1.0, \"spread\": 0.0}}"), "`ratio`"},
        {ROW(GOOD ", \"peers\": {\"a\": {\"seconds\": 2.0, \"spread\": 0.0, \"ratio\": 0.5}}"),
         "`ratio` of scan, row 1, must be that of its figures"},
        {ROW(GOOD ", \"missing\": {\"a\": 1}"), "`missing`"},
        {ROW(GOOD ", \"taken\": 3"), "`taken`"},
        {ROW(GOOD ", \"taken\": {\"turns\": 0}"), "`turns`"},
        {ROW("\"tokens_per_second\": 2.0, \"spread\": 0.0, \"peer_tokens_per_second\": 4.0, "
             "\"ratio\": 2.0"),
         "that of its figures"},
        {ROW("\"tokens_per_second\": 2.0, \"spread\": 0.0, \"ratio\": 2.0"),
         "`peer_tokens_per_second`"},
    };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *figures = parse(&ctx, cases[i].text);
        ctx.error = (ls_error){0};
        assert_int_equal(ls_figures_check(&ctx, figures, "FILE"), LS_EINPUT);
        if (strstr(ctx.error.message, cases[i].says) == NULL ||
            strncmp(ctx.error.message, "FILE", 4) != 0)
            fail_msg("%s: %s, not %s", cases[i].text, ctx.error.message, cases[i].says);
        json_decref(figures);
    }
    json_t *wide = parse(&ctx, ROW(GOOD));
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%d", i);
        json_object_set_new(json_array_get(json_object_get(wide, "scan"), 0), key, json_integer(i));
    }
    assert_int_equal(ls_figures_check(&ctx, wide, "FILE"), LS_EINPUT);
    json_decref(wide);
    ctx.error = (ls_error){0};
    json_t *rows = json_array(), *good = parse(&ctx, ROW(GOOD));
    for (int i = 0; i < 1000; i++)
        json_array_append(rows, json_array_get(json_object_get(good, "scan"), 0));
    expect(&ctx, ls_figures_check(&ctx, good, "FILE"));
    json_object_set_new(good, "scan", rows);
    assert_int_equal(ls_figures_check(&ctx, good, "FILE"), LS_EINPUT);
    json_decref(good);
}

/* ---- a page ---- */

static const char page_before[] = "# P\n\n3 of something\n\n<!-- begin figures a -->\nold\n"
                                  "<!-- end -->\n<!-- begin figures ab -->\nkept\n<!-- end -->\n"
                                  "<!-- begin figures a machine --><!-- end -->";

static void pages(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char path[] = "/tmp/longshot-figures-XXXXXX";
    const int fd = mkstemp(path);
    ls_text text = {0};
    assert_true(fd >= 0);
    close(fd);
    json_t *figures = parse(&ctx, "{" MACHINE "}");
    expect(&ctx, ls_file_write(&ctx, path, page_before, strlen(page_before) - 17));
    assert_int_equal(ls_document_figures(&ctx, figures, "a", path, true), LS_EINPUT); /* no end */
    ctx.error = (ls_error){0};
    const char *second = strstr(page_before, "<!-- begin figures a machine");
    expect(&ctx, ls_file_write(&ctx, path, page_before, (size_t)(second - page_before)));
    assert_int_equal(ls_document_figures(&ctx, figures, "a", path, true), LS_EBAR);
    assert_non_null(strstr(ctx.error.message, ":6: this is not what the figures give"));
    ctx.error = (ls_error){0};
    expect(&ctx, ls_document_figures(&ctx, figures, "a", path, false));
    expect(&ctx, ls_document_figures(&ctx, figures, "a", path, true));
    expect(&ctx, ls_file_read(&ctx, path, 1 << 20, &text));
    assert_string_equal(text.bytes,
                        "# P\n\n3 of something\n\n<!-- begin figures a -->\n\nMachine: A \\| B; 2 "
                        "threads; memory at 20.0 GB/s; matrix products in GFLOP/s: f32 50.0.\n\n"
                        "<!-- end -->\n<!-- begin figures ab -->\nkept\n<!-- end -->\n");
    assert_int_equal(ls_document_figures(&ctx, figures, "b", path, true), LS_EINPUT);
    assert_non_null(strstr(ctx.error.message, "has no part"));
    unlink(path);
    ls_text_clear(&ctx, &text);
    json_decref(figures);
}

/* Names from the file stand in a chart's title as they do in a table. */
static void chart_title(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char folder[] = "/tmp/longshot-figures-XXXXXX", path[64];
    ls_text text = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/page.md", folder);
    static const char page[] = "# P\n\n<!-- begin chart c.svg figures a mixers -->\n<!-- end -->\n";
    json_t *figures = parse(&ctx, STEPS);
    json_object_set_new(json_array_get(json_object_get(figures, "mixers"), 0), "model",
                        json_string("](x)\n<!-- begin by hand -->"));
    for (size_t i = json_array_size(json_object_get(figures, "mixers")); i-- > 1;)
        json_array_remove(json_object_get(figures, "mixers"), i);
    expect(&ctx, ls_file_write(&ctx, path, page, strlen(page)));
    expect(&ctx, ls_document_figures(&ctx, figures, "a", path, false));
    expect(&ctx, ls_document_figures(&ctx, figures, "a", path, true));
    expect(&ctx, ls_file_read(&ctx, path, 1 << 20, &text));
    assert_non_null(
        strstr(text.bytes, "by length: \\](x) \\<\\!-- begin by hand --\\>, f32](c.svg)"));
    ls_text_clear(&ctx, &text);
    expect(&ctx, ls_folder_remove(&ctx, folder));
    json_decref(figures);
}

/* A sentence that the figures of `a` say otherwise is refused; those of others are left alone. */
static void sentences(void **state) {
    (void)state;
    static const struct {
        const char *text, *says; /* says: NULL, it is right */
    } cases[] = {
        {"2,048<!-- figures a mixers tokens_per_second kind=a length=4096 --> tokens", NULL},
        {"2,049<!-- figures a mixers tokens_per_second kind=a length=4096 --> tokens",
         ":3: it says 2049, the figures 2048 (figures a mixers"},
        {"2.0<!-- figures a\nmixers ms kind=a length=4096 / mixers ms kind=a length=1024 --> times",
         NULL},
        {"2.1<!-- figures a mixers ms kind=a length=4096 / mixers ms kind=a length=1024 --> times",
         "it says 2.1, the figures 2.0"},
        {"+2000<!-- figures a mixers ms kind=a length=4096 - mixers ms kind=a length=1024 --> ms",
         NULL},
        {"1<!-- figures a mixers ms kind=c --> ms",
         "the figures have nothing for `figures a mixers"},
        {"1.5<!-- figures ab mixers ms kind=c --> ms, 1.5<!-- published -->", NULL},
        {"1.5 times", ":3: nothing says where 1.5 comes from"},
        {"1.5<!-- ppl rope slide 64 -->", "the figures have nothing for `ppl rope slide 64`"},
        {"1.5<!-- ppl rope slide 64 -->\n\n<!-- begin about -->\n<!-- end -->", NULL},
        {"<!-- begin by hand -->\n1.5 times\n<!-- end -->", NULL},
        {"<!-- begin chart a.svg figures a train -->\n<!-- end -->",
         "the figures have nothing for `a.svg figures a train`"},
        {"<!-- begin chart a.svg figures ab mixers -->\n<!-- end -->", NULL},
    };
    ls_ctx ctx = ls_ctx_default();
    char path[] = "/tmp/longshot-figures-XXXXXX", page[512];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    json_t *figures = parse(&ctx, STEPS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *says = cases[i].says;
        snprintf(page, sizeof page, "# P\n\n%s\n\n<!-- begin figures a machine -->\n<!-- end -->\n",
                 cases[i].text);
        ctx.error = (ls_error){0};
        expect(&ctx, ls_file_write(&ctx, path, page, strlen(page)));
        const ls_status status = ls_document_figures(&ctx, figures, "a", path, false);
        if ((status == LS_OK) != (says == NULL) ||
            (says != NULL && strstr(ctx.error.message, says) == NULL))
            fail_msg("%s: %s, not %s", cases[i].text, ctx.error.message, says);
    }
    unlink(path);
    json_decref(figures);
}

/* A chart beside the page is compared with what the figures give. */
static void page_with_chart(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char folder[] = "/tmp/longshot-figures-XXXXXX", path[64], drawing[64];
    static const char page[] = "<!-- begin chart c.svg figures a mixers -->\n<!-- end -->\n";
    ls_text text = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/p.md", folder);
    snprintf(drawing, sizeof drawing, "%s/c.svg", folder);
    json_t *figures = parse(&ctx, STEPS);
    expect(&ctx, ls_file_write(&ctx, path, page, strlen(page)));
    expect(&ctx, ls_document_figures(&ctx, figures, "a", path, false));
    expect(&ctx, ls_document_figures(&ctx, figures, "a", path, true));
    expect(&ctx, ls_file_read(&ctx, path, 1 << 20, &text));
    assert_string_equal(text.bytes, "<!-- begin chart c.svg figures a mixers -->\n\n![Time of "
                                    "training by length: m, f32](c.svg)\n\n<!-- end -->\n");
    ls_text_clear(&ctx, &text);
    expect(&ctx, ls_file_write(&ctx, drawing, "<svg/>", 6));
    assert_int_equal(ls_document_figures(&ctx, figures, "a", path, true), LS_EBAR);
    assert_non_null(strstr(ctx.error.message, "c.svg is not what the figures give"));
    json_decref(figures);
    ctx.error = (ls_error){0};
    expect(&ctx, ls_folder_remove(&ctx, folder));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels),       cmocka_unit_test(training),
        cmocka_unit_test(others),        cmocka_unit_test(many_lengths),
        cmocka_unit_test(names),         cmocka_unit_test(merging),
        cmocka_unit_test(damaged),       cmocka_unit_test(pages),
        cmocka_unit_test(by_length),     cmocka_unit_test(by_depth),
        cmocka_unit_test(lookups),       cmocka_unit_test(charts),
        cmocka_unit_test(chart_of_many), cmocka_unit_test(chart_title),
        cmocka_unit_test(sentences),     cmocka_unit_test(page_with_chart),
        cmocka_unit_test(summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
