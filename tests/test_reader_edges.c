/* Readers at their edges: paths that cannot be opened, GGUF files that contradict themselves, parts
 * of results that are of another type, and what the writers refuse.
 * Tier: memory. */
#include "reader_edges.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/gguf.h"
#include "base/settings.h"
#include "model/safetensors.h"
#include "report/report.h"
#include "train/guard.h"

/* ---- paths ---- */

static void test_paths(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char name[5000], joined[8];
    ls_text text = {0};
    ls_whole whole;
    FILE *file;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(symlink("loop", in_folder("loop")), 0);
    assert_int_equal(ls_file_write(&ctx, in_folder("plain"), "0123", 4), LS_OK);
    assert_int_equal(ls_file_write(&ctx, in_folder("empty"), "", 0), LS_OK);
    expect("a file as a folder", ls_file_read(&ctx, in_folder("plain/x"), 9, &text), &ctx, "plain");
    expect("a loop", ls_file_read(&ctx, in_folder("loop"), 9, &text), &ctx, "loop");
    expect("a long name", ls_file_read(&ctx, name + 4600, 9, &text), &ctx, "too long");
    expect("a large file", ls_file_read(&ctx, in_folder("plain"), 3, &text), &ctx, "at most 3");
    expect("a device", ls_file_read(&ctx, "/dev/null", 9, &text), &ctx, "not a plain file");
    expect("a device to write", ls_file_create(&ctx, "/dev/null", false, &file), &ctx, "/dev/null");
    expect("a long folder", ls_folder_make(&ctx, name), &ctx, "");
    expect("a file as folder", ls_folder_make(&ctx, in_folder("plain")), &ctx, "is a file");
    expect("what stays", ls_folder_remove(&ctx, "/proc/version"), &ctx, "removing");
    expect("a folder without sync", ls_folder_sync(&ctx, "/proc"), &ctx, NULL);
    expect("a long join", ls_path_join(&ctx, joined, sizeof joined, "/tmp", "name"), &ctx, "");
    expect("an empty file", ls_whole_read(&ctx, in_folder("empty"), false, &whole), &ctx, NULL);
    assert_int_equal(whole.length, 0);
    assert_non_null(whole.bytes); /* whoever adds to it may */
    ls_whole_free(&whole);
    assert_null(whole.bytes);
    ls_text_clear(&ctx, &text);
}

/* What is there and cannot be opened, read or replaced, and links that are replaced. */
static void test_strange_files(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char name[300];
    ls_text text = {0};
    ls_whole whole;
    struct stat about;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    expect("a folder", ls_folder_make(&ctx, in_folder("strange/inner")), &ctx, NULL);
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    snprintf(place.sun_path, sizeof place.sun_path, "%s/socket", folder);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&place, sizeof place), 0);
    assert_int_equal(ls_file_read(&ctx, place.sun_path, 9, &text), LS_EINPUT);
    expect("a socket", LS_EINPUT, &ctx, "socket: ");
    close(listener);
    /* files of the system say that they are empty */
    expect("more than it said", ls_file_read(&ctx, "/proc/self/status", 10, &text), &ctx,
           "is larger than 10 bytes");
    assert_int_equal(ls_file_read(&ctx, "/proc/self/mem", 10, &text), LS_EIO);
    expect("no bytes", LS_EIO, &ctx, "reading /proc/self/mem: ");
    assert_int_equal(ls_file_write(&ctx, in_folder("large"), "", 0), LS_OK);
    assert_int_equal(truncate(in_folder("large"), ((off_t)4 << 30) + 1), 0);
    expect("a large file", ls_whole_read(&ctx, in_folder("large"), false, &whole), &ctx,
           "has 4294967297 bytes; at most 4294967296 are read");
    assert_null(whole.bytes);
    assert_int_equal(unlink(in_folder("large")), 0);
    expect("a folder", ls_file_write(&ctx, in_folder("strange"), "", 0), &ctx, "renaming ");
    expect("a name that is too long", ls_folder_remove(&ctx, name), &ctx, "removing ");
    assert_true(ls_path_exists(name)); /* perhaps */
    expect("a file", ls_folder_sync(&ctx, in_folder("plain")), &ctx, "Not a directory");
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    fputs("x", full);
    assert_int_equal(ls_file_finish(&ctx, full, "full"), LS_EIO);
    expect("a full disk", LS_EIO, &ctx, "writing full: No space left");
    /* a link that leads nowhere, or to a file, is replaced; what it led to stays */
    static const char *const targets[] = {"plain", "/nowhere/at/all"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(symlink(targets[i], in_folder("link")), 0);
        expect("a link", ls_file_write(&ctx, in_folder("link"), "x", 1), &ctx, NULL);
        assert_int_equal(lstat(in_folder("link"), &about), 0);
        assert_true(S_ISREG(about.st_mode));
        assert_int_equal(unlink(in_folder("link")), 0);
    }
    assert_int_equal(stat(in_folder("plain"), &about), 0);
    assert_int_equal(about.st_size, 4);
    /* no more descriptors: the file may be whole */
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const ls_status status = ls_file_read(&ctx, in_folder("plain"), 9, &text);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, LS_EIO);
    expect("descriptors", status, &ctx, "Too many open files");
    expect("an absolute path", ls_fail_path(&ctx, "it", "/a", ENOENT), &ctx, "it /a: No such file");
    expect("another reason", ls_fail_path(&ctx, "it", "a", ENOTDIR), &ctx, "it a: Not a directory");
    expect("here", ls_fail_path(&ctx, "it", "a", ENOENT), &ctx, "No such file or directory in /");
    ls_text_clear(&ctx, &text);
}

/* A relative path is that of the present folder, or of one above the run. */
static void test_found_paths(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char out[512], run[512], far[5000];
    snprintf(run, sizeof run, "%s", in_folder("strange/inner"));
    static const struct {
        const char *given;
        bool run, above;
    } rows[] = {{"plain", true, true}, {"plain", false, false}, {"nowhere", true, false},
                {"/tmp", true, false}, {".", true, false},      {"strange/inner", true, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect(rows[i].given,
               ls_path_find(&ctx, rows[i].given, rows[i].run ? run : NULL, out, sizeof out), &ctx,
               NULL);
        assert_int_equal(strcmp(out, rows[i].given) != 0, rows[i].above);
        if (rows[i].above) assert_true(ls_path_exists(out));
    }
    expect("no run", ls_path_find(&ctx, "nowhere", "", out, sizeof out), &ctx, NULL);
    assert_string_equal(out, "nowhere");
    expect("no room", ls_path_find(&ctx, "nowhere", run, out, 12), &ctx, "is too long");
    expect("no room", ls_path_find(&ctx, "nowhere", NULL, out, 5), &ctx, "is too long");
    memset(far, 'n', sizeof far - 1);
    far[sizeof far - 1] = '\0';
    expect("a run far away", ls_path_find(&ctx, "nowhere", far, out, sizeof out), &ctx, NULL);
    assert_string_equal(out, "nowhere");
}

/* ---- settings ---- */

typedef struct words {
    ls_option_text name;
} words;
#define WORDS(name) words, name

static void test_settings(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    char word[600];
    expect("no key", ls_settings_put_word(&ctx, &settings, "=1"), &ctx, "=1");
    expect("no value", ls_settings_put_word(&ctx, &settings, "key"), &ctx, "key");
    memset(word, 'k', sizeof word);
    snprintf(word + sizeof word - 3, 3, "=1");
    expect("a long key", ls_settings_put_word(&ctx, &settings, word), &ctx, "");
    expect("no words", ls_settings_put_words(&ctx, &settings, "  "), &ctx, NULL);
    assert_int_equal(settings.count, 0);
    expect("a bad word", ls_settings_put_words(&ctx, &settings, "a.b=1 c"), &ctx, "`c`");
    ls_settings_clear(&ctx, &settings);
    /* words are as many as there are: the last of them counts as the first */
    ls_text many = {0};
    for (int i = 0; i < 200; i++) ls_text_printf(&ctx, &many, " some.key%d=%d", i, i);
    expect("many words", ls_settings_put_words(&ctx, &settings, many.bytes), &ctx, NULL);
    assert_int_equal(settings.count, 200);
    assert_string_equal(ls_settings_get(&settings, "some.key199"), "199");
    ls_text_clear(&ctx, &many);
    ls_settings_clear(&ctx, &settings);
    expect("a key", ls_settings_put(&ctx, &settings, "train.steps", "1"), &ctx, NULL);
    expect("again", ls_settings_put(&ctx, &settings, "train.steps", "1"), &ctx, NULL);
    assert_false(ls_settings_is_used(&settings, "train.steps"));
    assert_false(ls_settings_is_used(&settings, "train.length"));
    /* a copy over another value, and one over the same */
    const ls_setting others[] = {{.key = settings.items[0].key, .value = (char[]){"2"}},
                                 {.key = settings.items[0].key, .value = (char[]){"2"}}};
    for (size_t i = 0; i < 2; i++) {
        expect("a copy", ls_settings_copy(&ctx, &settings, &others[i]), &ctx, NULL);
        assert_string_equal(ls_settings_get(&settings, "train.steps"), "2");
        assert_int_equal(settings.items[0].over, i == 0);
    }
    /* quotes in what config.yaml is made of come back */
    static const ls_option option[] = {LS_TEXT("name", WORDS(name), "", "A name.")};
    const ls_option_table table = {option, 1, sizeof(words)};
    const words given = {"it's 'so'"};
    words back = {""};
    ls_text yaml = {0};
    ls_settings again = {0};
    ls_settings_print(&ctx, "part", &table, NULL, &given, &yaml);
    expect("quotes", ls_settings_parse(&ctx, &again, yaml.bytes, yaml.length, "yaml"), &ctx, NULL);
    expect("use", ls_settings_apply(&ctx, &again, "part", &table, NULL, &back), &ctx, NULL);
    assert_string_equal(back.name, given.name);
    ls_settings_clear(&ctx, &again);
    ls_text_clear(&ctx, &yaml);
    ls_text deep = {0};
    for (int i = 0; i < 200; i++) ls_text_printf(&ctx, &deep, "%*sk:\n", i, "");
    expect("nested keys", ls_settings_parse(&ctx, &settings, deep.bytes, deep.length, "deep"), &ctx,
           "nested");
    deep.length = 0;
    memset(word, 'k', sizeof word);
    for (int i = 0; i < 3; i++) ls_text_printf(&ctx, &deep, "%*s%.200s:\n", i, "", word);
    ls_text_printf(&ctx, &deep, "   k: 1\n");
    expect("long keys", ls_settings_parse(&ctx, &settings, deep.bytes, deep.length, "long"), &ctx,
           "long");
    ls_text_clear(&ctx, &deep);
    ls_settings_clear(&ctx, &settings);
}

/* ---- GGUF by hand ---- */

typedef struct forge {
    uint8_t bytes[1024];
    size_t length;
} forge;

static void put(forge *f, const void *bytes, size_t length) {
    assert_true(f->length + length <= sizeof f->bytes);
    memcpy(f->bytes + f->length, bytes, length);
    f->length += length;
}
static void put_u32(forge *f, uint32_t value) {
    put(f, &value, 4);
}
static void put_u64(forge *f, uint64_t value) {
    put(f, &value, 8);
}
static void put_text(forge *f, const char *text) {
    put_u64(f, strlen(text));
    put(f, text, strlen(text));
}
static void start(forge *f, uint32_t version, uint64_t tensors, uint64_t keys) {
    f->length = 0;
    put(f, "GGUF", 4);
    put_u32(f, version);
    put_u64(f, tensors);
    put_u64(f, keys);
}
static void put_tensor(forge *f, const char *name, uint64_t offset) {
    put_text(f, name);
    put_u32(f, 1);
    put_u64(f, 4);
    put_u32(f, LS_GGML_F32);
    put_u64(f, offset);
}
static void finish(forge *f, size_t data) {
    while (f->length % 32 != 0) put(f, "", 1);
    for (size_t i = 0; i < data; i++) put(f, "", 1);
}

static void view(const forge *f, const char *about, const char *sentence) {
    ls_ctx ctx = ls_ctx_default();
    ls_gguf file;
    expect(about, ls_gguf_view(&ctx, f->bytes, f->length, "forged", &file), &ctx, sentence);
    ls_gguf_close(&ctx, &file);
}

static void test_gguf_files(void **state) {
    (void)state;
    static const struct {
        const char *names[2];
        uint64_t offset[2];
        size_t data;
        const char *sentence;
    } tensors[] = {{{"a", "b"}, {0, 32}, 64, NULL},
                   {{"b", "a"}, {32, 0}, 64, NULL},
                   {{"a", "a"}, {0, 32}, 64, "twice"},
                   {{"a", "b"}, {0, 0}, 64, "share bytes"},
                   {{"a", "b"}, {0, 64}, 64, "leaves"},
                   {{"a", "b"}, {0, 8}, 64, "not aligned"},
                   {{"a", "\x7f"}, {0, 32}, 64, "characters"},
                   {{"a", "b"}, {0, 0}, 0, "leaves"}};
    forge f;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        start(&f, 2 + i % 2, 2, 0);
        for (int k = 0; k < 2; k++) put_tensor(&f, tensors[i].names[k], tensors[i].offset[k]);
        finish(&f, tensors[i].data);
        view(&f, "tensors", tensors[i].sentence);
    }
    start(&f, 3, 0, 1);
    put_text(&f, "general.alignment");
    put_u32(&f, LS_GGUF_TEXT);
    put_text(&f, "32");
    view(&f, "alignment of text", "no number");
    start(&f, 3, 0, 1);
    put_text(&f, "general.alignment");
    put_u32(&f, LS_GGUF_ARRAY);
    put_u32(&f, LS_GGUF_U32);
    put_u64(&f, 1);
    put_u32(&f, 32);
    view(&f, "a list of alignments", "no number");
    start(&f, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_text(&f, "key");
        put_u32(&f, LS_GGUF_U32);
        put_u32(&f, 1);
    }
    view(&f, "a key twice", "twice");
    start(&f, 1, 0, 0);
    view(&f, "version 1", "version 1");
    start(&f, 3, 0, 0);
    f.bytes[0] = 'X';
    view(&f, "another magic", "no GGUF");
    f.length = 2;
    view(&f, "two bytes", "no GGUF");
    assert_false(ls_gguf_is_file(folder));
    assert_int_equal(mkdir(in_folder("folder.gguf"), 0700), 0);
    assert_false(ls_gguf_is_file(in_folder("folder.gguf")));
}

/* ---- safetensors: what is not written ---- */

static void test_safetensors_writer(void **state) {
    (void)state;
    static char name[LS_SAFETENSORS_NAME_MAX + 2];
    static const float one = 1;
    static const int64_t shape[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, huge[] = {INT64_MAX, 1};
    memset(name, 'n', sizeof name - 1);
    const ls_safetensor_source wrong[] = {{name, LS_STORED_F32, 1, shape, &one},
                                          {"a", LS_STORED_F32, -1, shape, &one},
                                          {"a", LS_STORED_F32, 12, shape, &one},
                                          {"__metadata__", LS_STORED_F32, 1, shape, &one},
                                          {"\xc3\x28", LS_STORED_F32, 1, shape, &one},
                                          {"\xed\xa0\x80", LS_STORED_F32, 1, shape, &one},
                                          {"\xf4\x90\x80\x80", LS_STORED_F32, 1, shape, &one},
                                          {"a", LS_STORED_F32, 2, huge, &one}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect("a source", ls_safetensors_write(&ctx, in_folder("w"), &wrong[i], 1, NULL, 0), &ctx,
               "");
    const ls_safetensor_source large[] = {{"a", LS_STORED_U8, 1, huge, &one},
                                          {"b", LS_STORED_U8, 1, huge, &one}};
    expect("two of them", ls_safetensors_write(&ctx, in_folder("w"), large, 2, NULL, 0), &ctx,
           "too much data for one file");
    expect("a name twice",
           ls_safetensors_write(&ctx, in_folder("w"), (ls_safetensor_source[]){large[0], large[0]},
                                2, NULL, 0),
           &ctx, "tensor a would stand twice");
    assert_false(ls_path_exists(in_folder("w")));
}

static ls_status fill_nothing(void *user, size_t index, void *out) {
    ls_ctx *ctx = user;
    (void)index, (void)out;
    return LS_FAIL(ctx, LS_EIO, "nothing to fill it with");
}

static void test_safetensors_values(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const int64_t wide[] = {(int64_t)1 << 40, -((int64_t)1 << 40)}, shape[] = {2};
    const ls_safetensor_source source = {"a", LS_STORED_I64, 1, shape, wide};
    ls_safetensors file;
    int32_t numbers[2];
    assert_int_equal(ls_safetensors_write(&ctx, in_folder("wide"), &source, 1, NULL, 0), LS_OK);
    assert_int_equal(ls_safetensors_open(&ctx, in_folder("wide"), &file), LS_OK);
    for (int64_t i = 0; i < 2; i++)
        expect("wide numbers",
               ls_safetensor_i32(&ctx, ls_safetensors_find(&file, "a"), i, 1, numbers), &ctx, "");
    ls_safetensors_close(&ctx, &file);
    expect("nothing at all", ls_safetensors_write(&ctx, in_folder("none"), NULL, 0, NULL, 0), &ctx,
           NULL);
    assert_int_equal(ls_safetensors_open(&ctx, in_folder("none"), &file), LS_OK);
    assert_null(ls_safetensors_find(&file, "a"));
    ls_safetensors_close(&ctx, &file);
    const ls_stored_text note = {"key", "value"};
    expect("a note alone", ls_safetensors_write(&ctx, in_folder("none"), NULL, 0, &note, 1), &ctx,
           NULL);
    assert_int_equal(ls_safetensors_open(&ctx, in_folder("none"), &file), LS_OK);
    assert_string_equal(ls_safetensors_metadata(&file, "key"), "value");
    ls_safetensors_close(&ctx, &file);
    const ls_safetensor_source unfilled = {"a", LS_STORED_I64, 1, shape, NULL};
    expect(
        "a source that fails",
        ls_safetensors_make(&ctx, in_folder("unfilled"), &unfilled, 1, NULL, 0, fill_nothing, &ctx),
        &ctx, "nothing to fill");
    assert_false(ls_path_exists(in_folder("unfilled")));
}

static void view_header(const char *header, const char *sentence) {
    ls_ctx ctx = ls_ctx_default();
    ls_safetensors file;
    uint8_t bytes[4096];
    const uint64_t length = strlen(header);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    expect(header, ls_safetensors_view(&ctx, bytes, 8 + length, "forged", &file), &ctx, sentence);
    if (sentence == NULL) assert_null(ls_safetensors_metadata(&file, "no such key"));
    ls_safetensors_close(&ctx, &file);
}

static void test_safetensors_headers(void **state) {
    (void)state;
    char many[4000] = "{\"__metadata__\":{";
    for (int i = 0; i < 40; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "%s\"k%d\":\"v\"", i ? "," : "",
                 i);
    strcat(many, "}}");
    view_header(many, NULL); /* more than the first room for them */
    view_header("{}", NULL);
    view_header("{\"__metadata__\":{\"k\":\"\\ud83d\\ude00\"}}", NULL);
    view_header("{\"__metadata__\":{\"k\":\"\\udc00\"}}", "");
    view_header("{\"__metadata__\":{\"k\":\"\\ud83d\\u0041\"}}", "");
    view_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]}}",
                "");
    view_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[1", "");
    view_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[0]", "");
    view_header("{ ", "");
}

/* ---- tables of a report ---- */

/* Numbers where objects are wanted and objects where numbers are: every part is looked at. */
static void test_report_files(void **state) {
    (void)state;
#define ARM(part) "[{\"name\":\"a\"," part "}]"
    static const char *const results[] = {"7",
                                          ARM("\"parameters\":{}"),
                                          ARM("\"results\":7"),
                                          ARM("\"resolution\":[7]"),
                                          ARM("\"resolution\":[{\"scores\":7}]"),
                                          ARM("\"resolution\":[{\"scores\":{\"score\":[1]}}]"),
                                          ARM("\"resolution\":[{\"by_layer\":{\"R\":[1]}}]"),
                                          ARM("\"positions\":7"),
                                          ARM("\"positions\":[{\"first\":[1],\"end\":[2,3]}]"),
                                          ARM("\"suites\":7"),
                                          ARM("\"suites\":[{\"cells\":7}]"),
                                          ARM("\"suites\":[{\"curve\":[7]}]"),
                                          ARM("\"suites\":[{\"references\":[{\"score\":\"x\"}]}]"),
                                          ARM("\"training\":7"),
                                          ARM("\"training\":{\"step\":7}"),
                                          ARM("\"validation\":{\"step\":[1],\"loss\":[{}]}"),
                                          "[{\"name\":\"\"}]",
                                          "[{\"name\":\"a\"},{\"name\":\"a\"}]"};
    static const char *const timing[] = {
        "7",
        "{\"arms\":7}",
        "{\"arms\":[7]}",
        "{\"arms\":[{\"training\":7}]}",
        "{\"arms\":[{\"evaluation\":{\"seconds\":{}},\"results\":7}]}",
        "{\"arms\":[{\"training\":null,\"results\":[7]}]}"};
    static const char *const suites[] = {"{\"suite\":{},\"cells\":7}",
                                         "{\"suite\":{},\"references\":7}",
                                         "{\"suite\":{},\"score\":\"x\"}", "[7]"};
    ls_ctx ctx = ls_ctx_default();
    ls_text out = {0}, text = {0};
    const size_t counts[] = {sizeof results / sizeof results[0], sizeof timing / sizeof timing[0],
                             sizeof suites / sizeof suites[0]};
    assert_int_equal(ls_folder_make(&ctx, in_folder("report")), LS_OK);
    for (size_t i = 0; i < counts[0] + counts[1] + counts[2]; i++) {
        const bool first = i < counts[0], second = !first && i < counts[0] + counts[1];
        text.length = 0;
        if (first || second)
            ls_text_printf(&ctx, &text, "{\"format\":\"longshot-study-1\",\"arms\":%s}",
                           first ? results[i] : "[]");
        else
            ls_text_printf(&ctx, &text, "%s", suites[i - counts[0] - counts[1]]);
        assert_int_equal(
            ls_file_write(&ctx, in_folder("report/results.json"), text.bytes, text.length), LS_OK);
        const char *times = second ? timing[i - counts[0]] : "{\"arms\":[]}";
        assert_int_equal(ls_file_write(&ctx, in_folder("report/timing.json"), times, strlen(times)),
                         LS_OK);
        expect(second ? times : text.bytes, ls_report_tables(&ctx, in_folder("report"), true, &out),
               &ctx, "");
    }
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    expect("a long folder", ls_report_tables(&ctx, name, true, &out), &ctx, "");
    ls_text_clear(&ctx, &out);
    ls_text_clear(&ctx, &text);
}

static void test_report_tables(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_text out = {0};
    expect("no folder", ls_report_tables(&ctx, in_folder("no"), true, &out), &ctx, "");
    assert_int_equal(ls_file_write(&ctx, in_folder("results.json"), "{\"suite\": {}}", 13), LS_OK);
    expect("a suite", ls_report_tables(&ctx, folder, true, &out), &ctx, "");
    assert_int_equal(ls_file_write(&ctx, in_folder("results.json"), "{}", 2), LS_OK);
    expect("nothing", ls_report_tables(&ctx, folder, false, &out), &ctx, "");
    expect("a file", ls_report_tables(&ctx, in_folder("results.json"), false, &out), &ctx,
           "results.json is a file: name the folder of a study");
    /* an arm that was not chosen has no rows, with its costs or without any */
    static const char *const costs[] = {"{\"arms\":[{\"name\":\"a\"},{\"name\":\"b\"}]}",
                                        "{\"arms\":[]}"};
#define ROWS "\"results\":[{\"protocol\":\"nonoverlap\",\"length\":16,\"ppl\":2}]"
    static const char chosen[] = "{\"format\":\"longshot-study-1\",\"arms\":["
                                 "{\"name\":\"a\",\"label\":\"A\",\"chosen\":false," ROWS "},"
                                 "{\"name\":\"b\",\"label\":\"B\",\"chosen\":true," ROWS "}]}";
    expect("chosen", ls_file_write(&ctx, in_folder("results.json"), chosen, sizeof chosen - 1),
           &ctx, NULL);
    for (size_t i = 0; i < 2; i++) {
        out.length = 0;
        expect("costs", ls_file_write(&ctx, in_folder("timing.json"), costs[i], strlen(costs[i])),
               &ctx, NULL);
        expect("chosen", ls_report_tables(&ctx, folder, false, &out), &ctx, NULL);
        assert_null(strstr(out.bytes, "| A |"));
        assert_non_null(strstr(out.bytes, "| B |"));
    }
    assert_int_equal(unlink(in_folder("timing.json")), 0);
    ls_text_clear(&ctx, &out);
}

/* ---- the guard's state ---- */

static void test_guard(void **state) {
    (void)state;
    static const struct {
        const char *json, *sentence;
    } rows[] = {
        {"{\"rejected\":2,\"in_a_row\":1,\"rate_factor\":1,\"loss\":[1,2],\"norm\":[]}", NULL},
        {"{\"rejected\":2,\"in_a_row\":3,\"rate_factor\":1,\"loss\":[],\"norm\":[]}", "in_a_row"},
        {"{\"rejected\":-1,\"in_a_row\":0,\"rate_factor\":1,\"loss\":[],\"norm\":[]}", "rejected"},
        {"{\"rejected\":2,\"in_a_row\":1,\"rate_factor\":2,\"loss\":[],\"norm\":[]}",
         "rate_factor"},
        {"{\"rejected\":2,\"in_a_row\":1,\"rate_factor\":1,\"loss\":[\"1\"],\"norm\":[]}",
         "numbers"},
        {"{\"rejected\":2,\"in_a_row\":1,\"rate_factor\":1,\"loss\":[],\"norm\":7}", "window"}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_guard guard = {.settings = {.window = 4, .rejections = 2}};
        json_t *json = json_loads(rows[i].json, 0, NULL);
        assert_non_null(json);
        assert_false(ls_guard_exhausted(&guard));
        expect(rows[i].json, ls_guard_load(&ctx, json, "state.json", &guard), &ctx,
               rows[i].sentence);
        json_decref(json);
    }
    for (int verdict = LS_GUARD_ACCEPTED; verdict <= LS_GUARD_NORM_SPIKE + 1; verdict++)
        assert_non_null(ls_guard_reason((ls_guard_verdict)verdict));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_paths),
                                       cmocka_unit_test(test_strange_files),
                                       cmocka_unit_test(test_found_paths),
                                       cmocka_unit_test(test_settings),
                                       cmocka_unit_test(test_gguf_files),
                                       cmocka_unit_test(test_safetensors_writer),
                                       cmocka_unit_test(test_safetensors_values),
                                       cmocka_unit_test(test_safetensors_headers),
                                       cmocka_unit_test(test_report_files),
                                       cmocka_unit_test(test_report_tables),
                                       cmocka_unit_test(test_guard)};
    return cmocka_run_group_tests(tests, begin, end);
}
