/* Pages whose numbers come from figures, row by row: what is right, and the sentence for what is
 * not. Pages, tables and figures where memory ends: the same, or none.
 * Tier: memory. */
#include "reader_edges.h"

#include <stdlib.h>

#include "failing_allocator.h"
#include "failing_json.h"
#include "report/document.h"
#include "report/report.h"

#define STEP(batch, length, seconds)                                                               \
    "{\"kind\": \"m\", \"model\": \"m\", \"dtype\": \"f32\", \"batch\": " #batch                   \
    ", \"length\": " #length ", \"seconds\": " #seconds ", \"spread\": 0.0, \"bytes\": 1}"
static const char figures_text[] =
    "{\"machine\": {\"name\": \"A\", \"threads\": 1}, \"mixers\": [" STEP(2, 1024, 1.5) ", " STEP(
        1, 2048, 4.25) "]}";
#define AT(length) "figures f mixers ms length=" length
#define PART "<!-- begin figures f machine -->\n\nMachine: A; 1 thread.\n\n<!-- end -->\n"
/* Of so many letters. */
#define LETTERS_10 "abcdefghij"
#define LETTERS_100                                                                                \
    LETTERS_10 LETTERS_10 LETTERS_10 LETTERS_10 LETTERS_10 LETTERS_10 LETTERS_10 LETTERS_10        \
        LETTERS_10 LETTERS_10
#define LETTERS_600 LETTERS_100 LETTERS_100 LETTERS_100 LETTERS_100 LETTERS_100 LETTERS_100
#define DIGITS_70 "1111111111222222222233333333334444444444555555555566666666667777777777"

typedef struct row {
    const char *page;
    ls_status status;
    const char *sentence;
} row;

static void try_pages(const row *rows, size_t count) {
    ls_ctx ctx = ls_ctx_default();
    json_t *figures;
    expect("figures", ls_json_parse(&ctx, figures_text, strlen(figures_text), "f", &figures), &ctx,
           NULL);
    for (size_t i = 0; i < count; i++) {
        const char *path = in_folder("page.md");
        expect("page", ls_file_write(&ctx, path, rows[i].page, strlen(rows[i].page)), &ctx, NULL);
        const ls_status status = ls_document_figures(&ctx, figures, "f", path, true);
        expect(rows[i].page, status, &ctx, rows[i].sentence);
        assert_int_equal(status, rows[i].status);
    }
    json_decref(figures);
}
#define TRY_PAGES(rows) try_pages(rows, sizeof(rows) / sizeof(rows)[0])

static void test_numbers(void **state) {
    (void)state;
    static const row rows[] = {
        {"# P\n\n1,500<!-- " AT("1024") " --> ms\n" PART, LS_OK, NULL},
        {"1500<!-- " AT("1024") " --> at the very beginning\n" PART, LS_OK, NULL},
        {"1501<!-- " AT("1024") " --> at the very beginning\n" PART, LS_EBAR,
         ":1: it says 1501, the figures 1500"},
        {"+2750<!-- " AT("2048") " - mixers ms length=1024 --> more\n" PART, LS_OK, NULL},
        {"-2750<!-- " AT("1024") " - mixers ms length=2048 --> less\n" PART, LS_OK, NULL},
        {"(-2,751<!-- " AT("1024") " - mixers ms length=2048 --> less)\n" PART, LS_EBAR,
         "it says -2751, the figures -2750"},
        /* a hyphen between words is no sign */
        {"P-1500<!-- " AT("1024") " --> ms\n" PART, LS_OK, NULL},
        {"1500<!--\n  figures f\n  mixers  ms length=1024\n  --> ms\n" PART, LS_OK, NULL},
        /* versions and identifiers are not measured */
        {"Version 0.2.0 of 2212.10554.\n" PART, LS_OK, NULL},
        {"Version 0.2 of it.\n" PART, LS_EBAR, "nothing says where 0.2 comes from"},
        {"A factor of 2.5, of x2.5, of _2.5 .\n" PART, LS_EBAR, "nothing says where 2.5 comes"},
        {"Of x2.5, of _2 and 7.\n" PART, LS_OK, NULL},
        {"2.5<!-- published --> and 3<!-- by hand -->.\n" PART, LS_OK, NULL},
        {"3<!-- --> things.\n" PART, LS_EINPUT, "the figures have nothing for ``"},
        {"3<!----> things.\n" PART, LS_EINPUT, "the figures have nothing for ``"},
        {DIGITS_70 " things.\n" PART, LS_OK, NULL},
        {DIGITS_70 "<!-- " AT("1024") " --> things.\n" PART, LS_OK, NULL},
        {"3<!-- " LETTERS_600 " --> things.\n" PART, LS_EINPUT, ":1: a comment does not end"},
        {PART "3<!-- " AT("1024"), LS_EINPUT, ":6: a comment does not end"},
        {PART "In `code 2.5` and\n```\n2.5\n```\n and [a](b-2.5.md), <!-- 2.5 --> no.\n", LS_OK,
         NULL},
        {PART "Code that does not end: ` 2.5", LS_OK, NULL},
        {PART "A fence that does not end:\n```\n2.5", LS_OK, NULL},
    };
    TRY_PAGES(rows);
}

static void test_parts(void **state) {
    (void)state;
    static const row rows[] = {
        {PART, LS_OK, NULL},
        {"<!-- begin figures f machine -->\n<!-- end -->\n", LS_EBAR,
         ":2: this is not what the figures give"},
        {"<!-- begin figures f machine -->\n\nMachine: A; 1 thread.\n\nMore.\n<!-- end -->\n",
         LS_EBAR, ":5: this is not what the figures give"},
        {"<!-- begin figures f nothing -->\n<!-- end -->\n", LS_EINPUT,
         ":1: the figures of f have nothing for `nothing`"},
        {"<!-- begin figures fg machine -->\nof others\n<!-- end -->\n" PART, LS_OK, NULL},
        {"# P\n", LS_EINPUT, "has no part that begins with `<!-- begin figures f`"},
        {PART "<!-- begin by hand -->\n2.5\n<!-- end -->\n", LS_OK, NULL},
        {PART "<!-- begin about -->\n", LS_EINPUT, ":6: a part that begins does not end"},
        {PART "<!-- begin about", LS_EINPUT, ":6: a part that begins does not end"},
        {PART "<!-- begin about --> x\n<!-- end -->\n", LS_EINPUT, ":6: a part that begins does"},
        {PART "<!-- begin a <!-- end -->\n", LS_EINPUT, ":6: a part that begins does not end"},
        {PART "<!-- begin a -->\n<!-- begin b -->\n<!-- end -->\n", LS_EINPUT,
         ":6: a part that begins does not end"},
        {PART "<!-- begin " LETTERS_600 " -->\n<!-- end -->\n", LS_EINPUT,
         ":6: a part that begins does not end"},
        /* words of a study are others' where a part is of a study, and nobody's elsewhere */
        {PART "1.5<!-- ppl a b 1 -->\n<!-- begin about -->\n<!-- end -->\n", LS_OK, NULL},
        {PART "1.5<!-- ppl a b 1 -->\n", LS_EINPUT, "the figures have nothing for `ppl a b 1`"},
    };
    TRY_PAGES(rows);
}

#define CHART(words) "<!-- begin chart " words " -->\n<!-- end -->\n"

static void test_charts(void **state) {
    (void)state;
    static const row rows[] = {
        {PART CHART("c.svg"), LS_OK, NULL}, /* of a study */
        {CHART(".svg figures f mixers"), LS_EINPUT, ":1: a chart is `chart FILE.svg ppl PROTOCOL`"},
        {CHART("c.png figures f mixers"), LS_EINPUT, ":1: a chart is `chart FILE.svg ppl"},
        {CHART("../c.svg figures f mixers"), LS_EINPUT, ":1: a chart is `chart FILE.svg ppl"},
        {CHART("c.svg figures f nothing"), LS_EINPUT, "nothing for `c.svg figures f nothing`"},
        {CHART("c.svg figures f mixers"), LS_EINPUT, "c.svg"}, /* there is none to compare */
    };
    TRY_PAGES(rows);
}

static void test_files(void **state) {
    (void)state;
    static const char with_nul[] = "# P\n\0" PART;
    ls_ctx ctx = ls_ctx_default();
    json_t *figures;
    expect("figures", ls_json_parse(&ctx, figures_text, strlen(figures_text), "f", &figures), &ctx,
           NULL);
    expect("no page", ls_document_figures(&ctx, figures, "f", in_folder("none"), true), &ctx,
           "none");
    expect("empty", ls_file_write(&ctx, in_folder("p"), "", 0), &ctx, NULL);
    expect("empty", ls_document_figures(&ctx, figures, "f", in_folder("p"), true), &ctx,
           "is empty, or not a text");
    expect("NUL", ls_file_write(&ctx, in_folder("p"), with_nul, sizeof with_nul - 1), &ctx, NULL);
    expect("NUL", ls_document_figures(&ctx, figures, "f", in_folder("p"), true), &ctx,
           "is empty, or not a text");
    /* a drawing is put beside the page, or nowhere */
    static const char page[] = CHART("c.svg figures f mixers");
    char path[2048];
    size_t used = (size_t)snprintf(path, sizeof path, "%s", folder);
    while (used < 1040) used += (size_t)snprintf(path + used, sizeof path - used, "/.");
    snprintf(path + used, sizeof path - used, "/p");
    expect("a long path", ls_file_write(&ctx, in_folder("p"), page, sizeof page - 1), &ctx, NULL);
    expect("a long path", ls_document_figures(&ctx, figures, "f", path, false), &ctx,
           "is too long");
    assert_false(ls_path_exists(in_folder("c.svg")));
    expect("beside it", ls_document_figures(&ctx, figures, "f", in_folder("p"), false), &ctx, NULL);
    assert_true(ls_path_exists(in_folder("c.svg")));
    json_decref(figures);
}

/* ---- without memory ---- */

/* A page or table, and what it must be; empty: not known yet. */
typedef struct making {
    ls_status (*make)(ls_ctx *ctx, const void *from);
    const void *from;
    const char *file; /* in the folder */
    ls_text wanted;
} making;

static ls_status make_once(ls_ctx *ctx, void *user) {
    making *m = user;
    ls_ctx reader = ls_ctx_default();
    ls_text said = {0};
    const ls_status status = m->make(ctx, m->from);
    if (status != LS_OK) return status;
    expect(m->file, ls_file_read(&reader, in_folder(m->file), 1 << 20, &said), &reader, NULL);
    if (m->wanted.length == 0) ls_text_printf(&reader, &m->wanted, "%s", said.bytes);
    size_t at = 0;
    while (said.bytes[at] != '\0' && said.bytes[at] == m->wanted.bytes[at]) at++;
    if (said.bytes[at] != m->wanted.bytes[at])
        fail_msg("%s has %.80s in place of %.80s", m->file, said.bytes + at, m->wanted.bytes + at);
    ls_text_clear(&reader, &said);
    return LS_OK;
}

static void make_without_memory(ls_status (*make)(ls_ctx *ctx, const void *from), const void *from,
                                const char *file) {
    ls_ctx ctx = ls_ctx_default();
    making m = {make, from, file, {0}};
    expect(file, make_once(&ctx, &m), &ctx, NULL);
    assert_true(m.wanted.length > 0);
    fail_each_allocation(make_once, &m);
    fail_each_json(make_once, &m);
    ls_text_clear(&ctx, &m.wanted);
}

static void put_page(const char *page) {
    ls_ctx ctx = ls_ctx_default();
    expect("page", ls_file_write(&ctx, in_folder("page.md"), page, strlen(page)), &ctx, NULL);
}

static ls_status make_document(ls_ctx *ctx, const void *figures) {
    static const char page[] =
        "1,500<!-- " AT("1024") " --> ms\n" PART "<!-- begin figures f mixers -->\n<!-- end -->\n"
                                "<!-- begin chart c.svg figures f mixers -->\n<!-- end -->\n"
                                "<!-- begin by hand -->\n2.5\n<!-- end -->\n";
    put_page(page);
    return ls_document_figures(ctx, figures, "f", in_folder("page.md"), false);
}

static ls_status make_report(ls_ctx *ctx, const void *unused) {
    (void)unused;
    return ls_report_write(ctx, folder, NULL);
}

static ls_status make_tables(ls_ctx *ctx, const void *latex) {
    ls_text out = {0};
    ls_status status = ls_report_tables(ctx, folder, latex != NULL, &out);
    if (status == LS_OK) status = ls_file_write(ctx, in_folder("tables"), out.bytes, out.length);
    ls_text_clear(ctx, &out);
    return status;
}

/* A seed of the fuzz targets: one file, or two with a NUL between them. */
static void put_seed(const char *name) {
    char path[256];
    ls_ctx ctx = ls_ctx_default();
    ls_text both = {0};
    snprintf(path, sizeof path, LS_TEST_SOURCE "/tests/fuzz/seeds/%s", name);
    expect(name, ls_file_read(&ctx, path, 1 << 20, &both), &ctx, NULL);
    const size_t first = strlen(both.bytes);
    expect(name, ls_file_write(&ctx, in_folder("results.json"), both.bytes, first), &ctx, NULL);
    unlink(in_folder("timing.json"));
    if (first < both.length)
        expect(name,
               ls_file_write(&ctx, in_folder("timing.json"), both.bytes + first + 1,
                             both.length - first - 1),
               &ctx, NULL);
    ls_text_clear(&ctx, &both);
}

/* A page of a study and of figures, which each leave the other's parts as they are. */
static ls_status make_page(ls_ctx *ctx, const void *unused) {
    (void)unused;
    put_page("254.4<!-- ppl rope nonoverlap 16 --> and 0.1<!-- ppl rope nonoverlap 32 - ppl rope "
             "nonoverlap 16 -->, 1.0<!-- ppl rope nonoverlap 32 / ppl rope nonoverlap 16 -->\n"
             "<!-- begin ppl nonoverlap -->\n<!-- end -->\n"
             "<!-- begin chart c.svg ppl nonoverlap -->\n<!-- end -->\n" PART);
    return ls_report_document(ctx, folder, in_folder("page.md"), false);
}

static ls_status make_figures_page(ls_ctx *ctx, const void *unused) {
    char path[512];
    const char *const paths[] = {path};
    (void)unused;
    snprintf(path, sizeof path, "%s", in_folder("f.json"));
    put_page("1,500<!-- " AT("1024") " --> ms\n" PART
                                     "<!-- begin ppl nonoverlap -->\nof others\n<!-- end -->\n");
    return ls_report_figures_page(ctx, paths, 1, in_folder("page.md"), false);
}

/* What a page asks of a study that has it not. */
static void test_studies(void **state) {
    (void)state;
    static const struct {
        const char *page, *sentence;
    } rows[] = {
        {"254.4<!-- ppl rope nonoverlap 16 -->\n", NULL},
        {"254.5<!-- ppl rope nonoverlap 16 -->\n", "it says 254.5, the results 254.4"},
        {"254.4<!-- ppl ropes nonoverlap 16 -->\n", "for ropes, did you mean rope?"},
        {"254.4<!-- ppl xyz nonoverlap 16 -->\n", "; there is no xyz"},
        {"254.4<!-- ppl rope nonoverlap 17 -->\n", "the results have nothing for"},
        {"<!-- begin ppl overlapping -->\n<!-- end -->\n",
         "the results have nothing for `ppl over"},
        {CHART("c.svg ppl overlapping"), "nothing for `c.svg ppl overlapping`"},
        {CHART("c.svg"), "the results have nothing for `c.svg`"},
    };
    ls_ctx ctx = ls_ctx_default();
    put_seed("fuzz_report/study");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_page(rows[i].page);
        expect(rows[i].page, ls_report_document(&ctx, folder, in_folder("page.md"), true), &ctx,
               rows[i].sentence);
    }
    expect("no study", ls_report_document(&ctx, in_folder("none"), in_folder("page.md"), true),
           &ctx, "there is no folder");
}

static ls_status make_figures(ls_ctx *ctx, const void *latex) {
    const char *const paths[] = {in_folder("results.json"), in_folder("timing.json")};
    ls_text out = {0};
    ls_status status = ls_report_figures(ctx, paths, 2, latex != NULL, &out);
    if (status == LS_OK) status = ls_file_write(ctx, in_folder("tables"), out.bytes, out.length);
    ls_text_clear(ctx, &out);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    static const char *const studies[] = {"fuzz_report/study", "fuzz_report/scores"};
    ls_ctx ctx = ls_ctx_default();
    json_t *figures;
    expect("figures", ls_json_parse(&ctx, figures_text, strlen(figures_text), "f", &figures), &ctx,
           NULL);
    make_without_memory(make_document, figures, "page.md");
    json_decref(figures);
    for (size_t i = 0; i < sizeof studies / sizeof studies[0]; i++) {
        put_seed(studies[i]);
        make_without_memory(make_report, NULL, "report.html");
        make_without_memory(make_report, NULL, "results.csv");
        make_without_memory(make_tables, NULL, "tables");
        make_without_memory(make_tables, "latex", "tables");
    }
    put_seed("fuzz_report/study");
    make_without_memory(make_page, NULL, "page.md");
    expect("f.json",
           ls_file_write(&ctx, in_folder("f.json"), figures_text, sizeof figures_text - 1), &ctx,
           NULL);
    make_without_memory(make_figures_page, NULL, "page.md");
    put_seed("fuzz_figures/two");
    make_without_memory(make_figures, NULL, "tables");
    make_without_memory(make_figures, "latex", "tables");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_charts),  cmocka_unit_test(test_files),
        cmocka_unit_test(test_studies), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
