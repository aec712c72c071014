/* Single runs kept as data: what their file may hold, the tables and numbers that pages have of
 * them, and the sentence for what is wrong. */
#include "reader_edges.h"

#include <math.h>

#include "base/interval.h"
#include "report/report.h"

#define FILE_OF(tables)                                                                            \
    "{\"format\": \"longshot-runs-1\", \"origin\": \"O.\", \"tables\": [" tables "]}"
#define HEAD "\"name\": \"t\", \"caption\": \"C\""
#define COLUMNS                                                                                    \
    "\"columns\": [{\"name\": \"64\", \"samples\": 50}, {\"name\": \"ms\", \"unit\": \"ms\", "     \
    "\"decimals\": 1, \"sign\": true}, {\"name\": \"note\"}]"
#define ROW(more, values) "{\"name\": \"a\", \"label\": \"A\"" more ", \"values\": [" values "]}"
#define TABLE(more, columns, rows) "{" HEAD more ", " columns ", \"rows\": [" rows "]}"
#define OF_ROW(more, values) FILE_OF(TABLE("", COLUMNS, ROW(more, values)))
#define OF_TABLE(more) FILE_OF(TABLE(more, COLUMNS, ROW("", "1, 2, null")))
#define OF_COLUMN(column) FILE_OF(TABLE("", "\"columns\": [" column "]", ROW("", "null")))

static void put(const char *name, const char *text) {
    ls_ctx ctx = ls_ctx_default();
    expect(name, ls_file_write(&ctx, in_folder(name), text, strlen(text)), &ctx, NULL);
}

static void test_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence; /* NULL: it is good */
    } rows[] = {
        {OF_ROW("", "1, 2, \"x\""), NULL},
        {OF_ROW(", \"seed\": 0, \"planned\": 5, \"steps\": 5", "0, -0.5, null"), NULL},
        {OF_ROW(", \"samples\": [7, null, null]", "100, null, null"), NULL},
        {OF_TABLE(", \"chance\": 5, \"judge\": \"64\""), NULL},
        {"[]", "holds no single runs (format longshot-runs-1)"},
        {"{\"format\": \"longshot-runs-2\"}", "holds no single runs"},
        {"{\"format\": \"longshot-runs-1\", \"tables\": []}", "`origin` of the file must be"},
        {"{\"format\": \"longshot-runs-1\", \"origin\": 1}",
         "`origin` of the file must be a short"},
        {FILE_OF(""), "`tables` of the file must be a list of 1 to 64"},
        {FILE_OF("1"), "`name` of table 1 must be made of letters"},
        {FILE_OF("{\"name\": \"a b\"}"), "`name` of table 1 must be made of letters"},
        {FILE_OF("{\"name\": \"t\"}"), "`caption` of table 1 must be a short text"},
        {FILE_OF("{" HEAD "}"), "`rows` of table 1 must be a list of 1 to 256"},
        {FILE_OF("{" HEAD ", \"rows\": [1]}"), "`columns` of table 1 must be a list of 1 to 32"},
        {FILE_OF(TABLE("", COLUMNS, "1")), "t, row 1, must be an object"},
        {OF_TABLE(", \"raws\": 1"), "`raws` of table 1 must be left out: nothing reads it"},
        {OF_TABLE(", \"steps\": 1.5"), "`steps` of table 1 must be a whole number from 1 to 1e+12"},
        {OF_TABLE(", \"chance\": 101"), "`chance` of table 1 must be a number from 0 to 100"},
        {OF_TABLE(", \"chance\": 5"), "`judge` of t must be the column of shares that `chance`"},
        {OF_TABLE(", \"chance\": 5, \"judge\": \"ms\""), "`judge` of t must be the column"},
        {OF_TABLE(", \"judge\": \"64\""), "`judge` of t must be the column"},
        {OF_TABLE("") " x", "runs.json"},
        {OF_COLUMN("{\"name\": \"n\", \"samples\": 0}"),
         "`samples` of t, column 1, must be a whole number from 1"},
        {OF_COLUMN("{\"name\": \"n\", \"decimals\": 7}"), "`decimals` of t, column 1, must be a"},
        {OF_COLUMN("{\"name\": \"n\", \"sign\": 1}"), "`sign` of t, column 1, must be true or"},
        {OF_COLUMN("{\"name\": \"n\"}, {\"name\": \"n\"}"), "`name` of t, column 2, must be its"},
        {OF_ROW("", "1, 2"),
         "`values` of t, row 1, must be a list of as many as there are columns"},
        {OF_ROW("", "100.5, 2, null"), "`64` of t, row 1, must be null or a number from 0 to 100"},
        {OF_ROW("", "-1, 2, null"), "`64` of t, row 1, must be null or a number from 0 to 100"},
        {OF_ROW("", "\"1\", 2, null"), "`64` of t, row 1, must be null or a number from 0 to 100"},
        {OF_ROW("", "1, 1e15, null"), "`ms` of t, row 1, must be null or a number below 1e15"},
        {OF_ROW("", "1, 2, 3"), "`note` of t, row 1, must be null or a short text"},
        {OF_ROW(", \"samples\": [1]", "1, 2, null"), "`samples` of t, row 1, must be a list of as"},
        {OF_ROW(", \"samples\": [0, null, null]", "1, 2, null"), "`samples` of t, row 1, must be"},
        {OF_ROW(", \"samples\": [1, 1, null]", "1, 2, null"),
         "`samples` of t, row 1, must be null, or a whole number from 1 where a share is"},
        {OF_ROW(", \"steps\": 5", "1, 2, null"), "`steps` of t, row 1, must be no more than were"},
        {OF_ROW(", \"steps\": 6, \"planned\": 5", "1, 2, null"), "`steps` of t, row 1, must be no"},
        {FILE_OF(TABLE("", COLUMNS, ROW("", "1, 2, null") ", " ROW("", "1, 2, null"))),
         "`name` of t, row 2, must be its own"},
        {FILE_OF(TABLE("", COLUMNS, ROW("", "1, 2, null")) ", " TABLE("", COLUMNS, "1")),
         "`name` of table 2 must be its own"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_text out = {0};
        put("runs.json", rows[i].text);
        expect(rows[i].text, ls_report_tables(&ctx, folder, false, &out), &ctx, rows[i].sentence);
        ls_text_clear(&ctx, &out);
    }
}

/* A table with all that a row may say. */
static const char whole[] = FILE_OF(
    "{\"name\": \"t\", \"caption\": \"Right\", \"head\": \"mixer\", \"steps\": 2000, \"chance\": 20, "
    "\"judge\": \"64\", \"columns\": [{\"name\": \"64\", \"samples\": 50}, {\"name\": \"1024\", "
    "\"label\": \"1,024\", \"samples\": 40}, {\"name\": \"excess\", \"unit\": \"nats\", "
    "\"decimals\": 2, \"sign\": true}, {\"name\": \"step\", \"decimals\": 0}, {\"name\": \"note\"}], \"rows\": ["
    "{\"name\": \"a\", \"label\": \"A\", \"values\": [100, 62.5, 0.125, 1550, null]}, "
    "{\"name\": \"b\", \"label\": \"B|\", \"seed\": 2, \"steps\": 1500, \"samples\": [10, null, null, "
    "null, null], \"values\": [20, null, -1, -1550, \"x\"]}, "
    "{\"name\": \"c\", \"label\": \"C\", \"planned\": 300, \"values\": [0, 12.25, null, null, null]}, "
    "{\"name\": \"p\", \"label\": \"P\", \"published\": true, \"values\": [10, 99.8, null, null, null]}]}");

static void expect_line(const char *text, const char *line) {
    if (strstr(text, line) == NULL) fail_msg("no line \"%s\" in\n%s", line, text);
}

static void test_tables(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_text out = {0};
    double low, high;
    char line[128];
    put("runs.json", whole);
    expect("tables", ls_report_tables(&ctx, folder, false, &out), &ctx, NULL);
    expect_line(out.bytes, "mean over seeds. Intervals are those of the samples asked");
    expect_line(out.bytes, "Right. 2,000 steps, unless a row says else.");
    expect_line(out.bytes, "Chance is 20.");
    expect_line(out.bytes, "| mixer | 64 | 1,024 | excess, nats | step | note |\n|---|---:|");
    /* intervals are of the samples asked: 50, 10 and 40; the published row has none */
    ls_share_interval(1, 50, &low, &high);
    snprintf(line, sizeof line, "| A | 100.0 (%.1f to 100.0) | 62.5 (", 100 * low);
    expect_line(out.bytes, line);
    expect_line(out.bytes, " | +0.125 | 1,550 |  |\n");
    ls_share_interval(0.2, 10, &low, &high);
    snprintf(line, sizeof line, "| B\\|, seed 2 (1,500 of 2,000 steps) | 20.0 (%.1f to %.1f) |  | ",
             100 * low, 100 * high);
    expect_line(out.bytes, line);
    expect_line(out.bytes, " | -1.00 | -1550 | x |\n");
    ls_share_interval(0.1225, 40, &low, &high);
    snprintf(line, sizeof line, "| 12.25 (%.2f to %.2f) |", 100 * low, 100 * high);
    expect_line(out.bytes, line);
    expect_line(out.bytes, "| C (300 steps) | 0.0 (0.0 to ");
    expect_line(out.bytes, "| P | 10.0 | 99.8 |  |  |  |\n");
    expect_line(out.bytes,
                "| samples: A, C | 50 | 40 |  |  |  |\n| samples: B\\| | 10 | 40 |  |  |  |\n");
    expect_line(out.bytes, "Failures, at chance (64): B\\|, C.\n");
    ls_text_clear(&ctx, &out);
    /* without shares there are no intervals to speak of, nor samples */
    put("runs.json", OF_COLUMN("{\"name\": \"n\"}"));
    expect("no shares", ls_report_tables(&ctx, folder, false, &out), &ctx, NULL);
    expect_line(out.bytes, "mean over seeds. O. (XXH3 of runs.json: ");
    expect_line(out.bytes, "C.\n\n|  | n |\n|---|---:|\n| A |  |\n\n");
    ls_text_clear(&ctx, &out);
}

static void test_pages(void **state) {
    (void)state;
#define CHART "<!-- begin chart c.svg runs t a b -->\n<!-- end -->\n"
    static const struct {
        const char *page;
        ls_status status;
        const char *sentence;
    } rows[] = {
        {"62.5<!-- runs t a 1024 --> and +0.12<!-- runs t a excess -->\n", LS_OK, NULL},
        {"1.60<!-- runs t a 64 / runs t a 1024 -->, 90<!-- runs t p 1024 - runs t p 64 -->\n",
         LS_OK, NULL},
        {"62.4<!-- runs t a 1024 -->\n", LS_EBAR, "it says 62.4, the results 62.5 (runs t a 1024)"},
        {"62.5\n", LS_EBAR, "nothing says where 62.5 comes from"},
        {"1<!-- runs t a note -->\n", LS_EINPUT, "nothing for `runs t a note`"},
        {"1<!-- runs t a 64 2 -->\n", LS_EINPUT, "nothing for `runs t a 64 2`"},
        {"1<!-- runs t a exces -->\n", LS_EINPUT, "for exces, did you mean excess?"},
        {"1<!-- ppl a b 64 -->\n", LS_EINPUT, "nothing for `ppl a b 64`"},
        {"<!-- begin runs u -->\n<!-- end -->\n", LS_EINPUT, "nothing for `runs u`"},
        {"<!-- begin runs t -->\n<!-- end -->\n", LS_EBAR, ":2: this is not what the results give"},
        {"<!-- begin chart c.svg runs u -->\n<!-- end -->\n", LS_EINPUT, "nothing for `c.svg runs"},
        {"<!-- begin chart c.svg runs t u -->\n<!-- end -->\n", LS_EINPUT,
         "nothing for `c.svg runs"},
        {CHART, LS_EINPUT, "c.svg"}, /* there is none to compare */
    };
    put("runs.json", whole);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        put("page.md", rows[i].page);
        const ls_status status = ls_report_document(&ctx, folder, in_folder("page.md"), true);
        expect(rows[i].page, status, &ctx, rows[i].sentence);
        assert_int_equal(status, rows[i].status);
    }
    ls_ctx ctx = ls_ctx_default();
    put("page.md", CHART "<!-- begin runs about -->\n<!-- end -->\n");
    expect("written", ls_report_document(&ctx, folder, in_folder("page.md"), false), &ctx, NULL);
    expect("compared", ls_report_document(&ctx, folder, in_folder("page.md"), true), &ctx, NULL);
    ls_text drawing = {0};
    expect("drawing", ls_file_read(&ctx, in_folder("c.svg"), 1 << 20, &drawing), &ctx, NULL);
    expect_line(drawing.bytes, "trained at 64");
    expect_line(drawing.bytes, "data-low=");
    ls_text_clear(&ctx, &drawing);
    put("runs.json", OF_TABLE("")); /* another file: the page names what it was made of */
    expect("another", ls_report_document(&ctx, folder, in_folder("page.md"), true), &ctx, "c.svg");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
