/* Readers and writers at the limits of a machine: disks that are full, memory that ends at each
 * allocation in turn, a signal in the midst of a long text. Nothing is lost in silence. */
#include "reader_edges.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/json.h"
#include "data/tokenizer.h"
#include "failing_allocator.h"
#include "failing_json.h"
#include "mixer/mixer.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "position/position.h"
#include "report/figures.h"
#include "report/report.h"
#include "study/study.h"
#include "train/metrics.h"

/* ---- metrics ---- */

static ls_status open_metrics(ls_ctx *ctx, const char *name, int64_t step, ls_metrics **out) {
    return ls_metrics_open(ctx, in_folder(name), step, 1, true, out);
}

static ls_status add_row(ls_ctx *ctx, ls_metrics *metrics, int64_t step) {
    const ls_metrics_row row = {.step = step,
                                .loss = NAN,
                                .tokens_per_second = 2e6,
                                .shared = true,
                                .communication = 0.25,
                                .validated = true,
                                .validation = 1.5};
    char line[200];
    ls_metrics_line(&row, 9, -1, line, sizeof line);
    assert_non_null(strstr(line, "2.00M tokens/s"));
    assert_non_null(strstr(line, "25% communication"));
    return ls_metrics_add(ctx, metrics, &row);
}

static void test_metrics_have_places(void **state) {
    (void)state;
    static const char *const files[] = {"metrics.jsonl", "metrics.csv"};
    ls_ctx ctx = ls_ctx_default();
    ls_metrics *metrics;
    char name[16], path[64], far[4200];
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "rows%zu", i);
        snprintf(path, sizeof path, "%s/%s", name, files[i]);
        expect("a run", ls_folder_make(&ctx, in_folder(name)), &ctx, NULL);
        expect("a folder", ls_folder_make(&ctx, in_folder(path)), &ctx, NULL);
        expect("a folder for rows", open_metrics(&ctx, name, 0, &metrics), &ctx, files[i]);
        assert_null(metrics);
    }
    for (size_t i = 0; i < 2; i++) { /* room for the folder, not for the name of a file in it */
        memset(far, 'n', sizeof far);
        far[4096 - strlen(files[i]) - 1] = '\0';
        expect("a long path", ls_metrics_open(&ctx, far, 0, 1, false, &metrics), &ctx, "");
    }
    expect("no folder", open_metrics(&ctx, "nowhere", 0, &metrics), &ctx, "metrics.jsonl");
}

/* Bytes that a file may have from here on; -1: as many as it likes. */
static void limit_files(int64_t bytes) {
    static struct rlimit before;
    if (before.rlim_max == 0) assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit now = {bytes < 0 ? before.rlim_cur : (rlim_t)bytes, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
}

static void test_rows_on_a_full_disk(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_metrics *metrics;
    expect("a run", ls_folder_make(&ctx, in_folder("full")), &ctx, NULL);
    expect("rows", open_metrics(&ctx, "full", 0, &metrics), &ctx, NULL);
    for (int64_t step = 1; step < 4; step++)
        expect("a row", add_row(&ctx, metrics, step), &ctx, NULL);
    expect("back", ls_metrics_rewind(&ctx, metrics, 2), &ctx, NULL);
    limit_files(8);
    ls_status status = add_row(&ctx, metrics, 3);
    limit_files(-1);
    assert_int_equal(status, LS_EIO);
    expect("a row", status, &ctx, "writing ");
    ls_metrics_close(&ctx, metrics);
    /* the rows before it are there, and the run goes on behind them */
    ctx.error = (ls_error){0};
    expect("again", open_metrics(&ctx, "full", 2, &metrics), &ctx, NULL);
    expect("a row", add_row(&ctx, metrics, 3), &ctx, NULL);
    expect("an end", ls_metrics_close(&ctx, metrics), &ctx, NULL);
}

static ls_status go_through_metrics(ls_ctx *ctx, void *user) {
    (void)user;
    ls_metrics *metrics;
    LS_TRY(open_metrics(ctx, "starved", 2, &metrics));
    ls_status status = add_row(ctx, metrics, 3);
    if (status == LS_OK) status = ls_metrics_rewind(ctx, metrics, 2);
    const ls_status closed = ls_metrics_close(ctx, metrics);
    return status == LS_OK ? closed : status;
}

static void test_rows_without_memory(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    expect("a run", ls_folder_make(&ctx, in_folder("starved")), &ctx, NULL);
    fail_each_allocation(go_through_metrics, NULL);
}

/* ---- safetensors ---- */

/* As many tensors as a file may have are read, down to their names; one more is refused. */
static void test_many_tensors(void **state) {
    (void)state;
    static const char tensor[] = "\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    static const char *const sentences[] = {"tensor  stands twice", "too many tensors"};
    for (int more = 0; more < 2; more++) {
        ls_ctx ctx = ls_ctx_default();
        ls_text bytes = {0};
        ls_safetensors file;
        ls_text_append(&ctx, &bytes, "12345678{", 9);
        for (int i = 0; i < LS_SAFETENSORS_COUNT_MAX + more; i++) {
            ls_text_append(&ctx, &bytes, ",", i > 0);
            ls_text_append(&ctx, &bytes, tensor, sizeof tensor - 1);
        }
        ls_text_append(&ctx, &bytes, "}", 1);
        const uint64_t length = bytes.length - 8;
        memcpy(bytes.bytes, &length, 8);
        expect("tensors", ls_safetensors_view(&ctx, bytes.bytes, bytes.length, "many", &file), &ctx,
               sentences[more]);
        ls_safetensors_close(&ctx, &file);
        ls_text_clear(&ctx, &bytes);
    }
    ls_ctx ctx = ls_ctx_default();
    ls_safetensor_source *sources = calloc(LS_SAFETENSORS_COUNT_MAX + 1, sizeof *sources);
    assert_non_null(sources);
    expect("to write",
           ls_safetensors_write(&ctx, in_folder("many"), sources, LS_SAFETENSORS_COUNT_MAX + 1,
                                NULL, 0),
           &ctx, "1000001 tensors are more than one file takes");
    free(sources);
}

/* ---- tokenizers ---- */

static const char *const kinds[] = {
    "bert",   "gemma", "gpt2",    "llama2", "llama2/tokenizer.model",
    "llama3", "qwen2", "roberta", "t5",     "unigram-nmt_nfkc"};

static ls_status load_kind(ls_ctx *ctx, const char *kind, ls_tokenizer **out) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/tokenizers/%s", LS_TEST_SOURCE, kind);
    return ls_tokenizer_load(ctx, path, out);
}

/* Words that are in no vocabulary, so that each is merged; marks, blanks and a token that ends a
 * text. */
static void write_long_text(ls_ctx *ctx, ls_text *out) {
    for (int i = 0; i < 40; i++)
        ls_text_printf(ctx, out, "%*squ%dzx%dkw\xC3\xA9\xE4\xBD\xA0 don't</s><|endoftext|>\n\n",
                       i % 5, "", i * 7919, i);
    for (int i = 0; i < 400; i++) ls_text_printf(ctx, out, "%c", 'a' + i * i % 26);
}

typedef struct task {
    const ls_tokenizer *tokenizer;
    const ls_text *text;
} task;

static ls_status encode(ls_ctx *ctx, void *user) {
    const task *t = user;
    ls_ids ids = {0};
    const ls_status status = ls_tokenizer_encode(ctx, t->tokenizer, t->text->bytes, t->text->length,
                                                 LS_ENCODE_SPECIAL | LS_ENCODE_TEMPLATE, &ids);
    ls_ids_clear(ctx, &ids);
    return status;
}

static void test_texts_without_memory_or_time(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_text text = {0};
    size_t stopped = 0, seen = 0;
    volatile sig_atomic_t stop = 1;
    write_long_text(&ctx, &text);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        ls_tokenizer *tokenizer;
        if (load_kind(&ctx, kinds[i], &tokenizer) != LS_OK) {
            ctx.error = (ls_error){0};
            continue;
        }
        seen++;
        task t = {tokenizer, &text};
        fail_each_allocation(encode, &t);
        ls_ctx asked = ctx;
        asked.stop = &stop;
        const ls_status status = encode(&asked, &t);
        assert_true(status == LS_OK || status == LS_ESTOP);
        if (status == LS_ESTOP) assert_non_null(strstr(asked.error.message, "tokenising"));
        stopped += status == LS_ESTOP;
        ls_tokenizer_free(&ctx, tokenizer);
    }
    assert_true(seen >= 8);
    assert_int_equal(stopped, seen);
    ls_text_clear(&ctx, &text);
}

/* ---- studies ---- */

static const char study_text[] =
    "seeds: [1]\n"
    "model: {layers: 1, width: 8, length: 16, vocabulary: 300}\n"
    "mixer: {heads: 1}\n"
    "data: {corpus: text.txt, tokenizer: byte}\n"
    "train: {steps: 2, batch: 1}\n"
    "eval: {lengths: [16, 32], tokens: 64}\n"
    "suites: [needle]\n"
    "suite: {lengths: [64], samples: 1}\n"
    "arms:\n"
    "  rope: {model.position: rope, label: with a label}\n"
    "  more: {from: rope, train.steps: 3, model.length: 32, suite.samples: 2}\n"
    "  pi: {from: rope, extend: interpolation, eval.tokens: 32, suites: \"\"}\n"
    "  window: {from: more, extend: window}\n";

/* Arms that begin with a checkpoint, and tasks. */
#define OPENED LS_TEST_SOURCE "/tests/golden/checkpoints/gguf-llama"
static const char opening_text[] = "model: {layers: 1, width: 8, length: 16}\n"
                                   "mixer: {heads: 1}\n"
                                   "train: {steps: 2, batch: 1}\n"
                                   "arms:\n"
                                   "  opened: {from: " OPENED ", extend: ntk}\n"
                                   "  more: {from: " OPENED ", train.steps: 1}\n"
                                   "  again: {from: opened, eval.lengths: 32}\n"
                                   "  copy: {task: copy}\n"
                                   "  farther: {from: copy, task.symbols: 3}\n";

/* A study, and what is done with it when it was read. */
typedef struct reading {
    const char *text;
    ls_status (*use)(ls_study *study, void *user);
    void *user;
} reading;

static ls_status read_study(ls_ctx *ctx, void *user) {
    const reading *r = user;
    ls_settings settings = {0};
    ls_study_keys keys;
    ls_study study = {.ctx = ctx};
    ls_status status = ls_settings_parse(ctx, &settings, r->text, strlen(r->text), "study.yaml");
    if (status == LS_OK) status = ls_options_default(ctx, &ls_study_options, &keys);
    if (status == LS_OK)
        status = ls_settings_apply(ctx, &settings, "", &ls_study_options, NULL, &keys);
    const ls_study_request request = {.settings = &settings,
                                      .keys = &keys,
                                      .file = "study.yaml",
                                      .command = "longshot study",
                                      .program = "longshot",
                                      .device = "cpu",
                                      .cache = ""};
    if (status == LS_OK) {
        snprintf(keys.out, sizeof keys.out, "%s", in_folder("study"));
        status = ls_study_read(ctx, &request, &study);
    }
    if (status == LS_OK) status = r->use(&study, r->user);
    ls_study_clear(&study);
    ls_settings_clear(ctx, &settings);
    return status;
}

static ls_status print_study(ls_study *study, void *unused) {
    ls_text out = {0};
    (void)unused;
    ls_study_print(study, &out);
    const ls_status status = ls_text_status(&out);
    ls_text_clear(study->ctx, &out);
    return status;
}

/* What each job is to have measured. */
static ls_status store_results(ls_study *study, void *result) {
    for (size_t i = 0; i < study->count; i++) {
        char path[LS_STUDY_PATH_BYTES];
        const int64_t seed = study->arms[i].seeds.at[0];
        LS_TRY(ls_study_folder(study, i, seed, path, sizeof path));
        LS_TRY(ls_folder_make(study->ctx, path));
        LS_TRY(ls_study_store(study, i, seed, LS_STUDY_EVAL, result));
        if (study->arms[i].trains) LS_TRY(ls_study_store(study, i, seed, LS_STUDY_TRAIN, result));
    }
    return LS_OK;
}

/* The files that a study publishes are those of `wanted`, where it has them already. */
static ls_status publish(ls_study *study, void *wanted) {
    static const char *const files[] = {"results.json", "timing.json", "results.csv",
                                        "report.html"};
    ls_text *known = wanted;
    LS_TRY(ls_study_publish(study, true));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[64];
        ls_ctx ctx = ls_ctx_default();
        ls_text said = {0};
        snprintf(path, sizeof path, "study/%s", files[i]);
        expect(path, ls_file_read(&ctx, in_folder(path), 1 << 24, &said), &ctx, NULL);
        if (known[i].length == 0)
            ls_text_append(&ctx, &known[i], said.bytes, said.length);
        else if (said.length != known[i].length || strcmp(said.bytes, known[i].bytes) != 0)
            fail_msg("%s is another one", path);
        ls_text_clear(&ctx, &said);
    }
    return LS_OK;
}

static void test_studies_without_memory(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    reading r = {study_text, print_study, NULL};
    expect("a study", read_study(&ctx, &r), &ctx, NULL);
    fail_each_allocation(read_study, &r);
    r.text = opening_text;
    expect("a study", read_study(&ctx, &r), &ctx, NULL);
    fail_each_allocation(read_study, &r);
    /* a study with results: a seed of the fuzz targets, what was measured behind a NUL */
    ls_text both = {0}, published[4] = {{0}};
    json_t *result;
    expect("a seed",
           ls_file_read(&ctx, LS_TEST_SOURCE "/tests/fuzz/seeds/fuzz_study/result", 1 << 20, &both),
           &ctx, NULL);
    const char *measured = both.bytes + strlen(both.bytes) + 1;
    expect("a result", ls_json_parse(&ctx, measured, strlen(measured), "result", &result), &ctx,
           NULL);
    expect("stored", read_study(&ctx, &(reading){both.bytes, store_results, result}), &ctx, NULL);
    /* and the rows of its training, which became a curve only where there was memory for them */
    static const char rows[] = "{\"step\":1,\"loss\":5.5}\n{\"step\":2,\"loss\":5.25}\n";
    expect("rows",
           ls_file_write(&ctx, in_folder("study/arms/rope/seed-1/metrics.jsonl"), rows,
                         sizeof rows - 1),
           &ctx, NULL);
    r = (reading){both.bytes, publish, published};
    expect("published", read_study(&ctx, &r), &ctx, NULL);
    fail_each_allocation(read_study, &r);
    fail_each_json(read_study, &r);
    json_decref(result);
    for (size_t i = 0; i < 4; i++) ls_text_clear(&ctx, &published[i]);
    ls_text_clear(&ctx, &both);
}

/* ---- streams ---- */

/* Each number of a saved stream in turn is another one: refused, or as good as any. */
static ls_status save_and_load(ls_ctx *ctx, ls_stream *stream) {
    ls_text saved = {0};
    ls_status status = ls_stream_save(stream, &saved);
    for (size_t at = 8; status == LS_OK && at + 8 <= saved.length; at += 8)
        for (int change = -1; change <= 1 && status == LS_OK; change += 2) {
            int64_t number;
            memcpy(&number, saved.bytes + at, sizeof number);
            const int64_t forged = (int64_t)((uint64_t)number + (uint64_t)change);
            memcpy(saved.bytes + at, &forged, sizeof forged);
            status = ls_stream_load(stream, saved.bytes, saved.length);
            memcpy(saved.bytes + at, &number, sizeof number);
            if (status != LS_EINPUT) continue;
            status = LS_OK;
            ctx->error = (ls_error){0};
        }
    if (status == LS_OK) status = ls_stream_load(stream, saved.bytes, saved.length);
    ls_text_clear(ctx, &saved);
    return status;
}

static ls_status open_stream(ls_ctx *ctx, void *user) {
    char words[200];
    ls_model_config config = {0};
    ls_model *model = NULL;
    ls_stream *stream = NULL;
    snprintf(words, sizeof words, "model.layers=1 model.width=8 model.vocabulary=7 %s",
             (const char *)user);
    ls_status status = ls_model_config_read_words(ctx, words, &config);
    if (status == LS_OK) status = ls_model_new(ctx, &config, LS_F32, 3, false, &model);
    if (status == LS_OK)
        status = config.encoder_layers > 0 ? ls_stream_new_reading(model, 1, 6, 16, 4, &stream)
                                           : ls_stream_new(model, 1, 16, 4, &stream);
    if (status == LS_OK && config.encoder_layers > 0)
        status = ls_stream_read(stream, (const int32_t[]){1, 2, 3, 4, 5, 6}, 6);
    if (status == LS_OK) status = save_and_load(ctx, stream);
    ls_stream_free(stream);
    ls_model_free(model);
    ls_model_config_clear(ctx, &config);
    return status;
}

/* Whether there is a stream of such a model; then it does without each allocation, or says so. */
static size_t starve(const char *words) {
    ls_ctx ctx = ls_ctx_default();
    if (open_stream(&ctx, (void *)(uintptr_t)words) != LS_OK) return 0;
    fail_each_allocation(open_stream, (void *)(uintptr_t)words);
    return 1;
}

static void test_streams_without_memory(void **state) {
    (void)state;
    static const char *const models[] = {
        "model.mixer=hyena mixer.beyond=cut mixer.l_max=8",
        "mixer.heads=1 model.position=t5 model.encoder_layers=1",
        "mixer.heads=1 model.position=none model.segment=5 model.memory=1",
    };
    char words[128];
    size_t mixers = 0, positions = 0, extensions = 0;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        assert_int_equal(starve(models[i]), 1);
    for (size_t i = 0; i < ls_mixer_count; i++) {
        snprintf(words, sizeof words, "model.mixer=%s", ls_mixer_types[i]->name);
        mixers += starve(words);
    }
    for (size_t i = 0; i < ls_position_count; i++) {
        snprintf(words, sizeof words, "mixer.heads=1 model.position=%s",
                 ls_position_types[i]->name);
        positions += starve(words);
    }
    for (size_t i = 0; i < ls_extension_count; i++) {
        snprintf(words, sizeof words, "mixer.heads=1 model.position=rope extend=%s",
                 ls_extension_types[i]->name);
        extensions += starve(words);
    }
    print_message("%zu mixers, %zu positions, %zu extensions\n", mixers, positions, extensions);
    assert_true(mixers >= 10 && positions >= 5 && extensions >= 5);
}

/* ---- results of any length ---- */

static json_t *many(size_t count, const char *each) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_loads(each, JSON_DECODE_ANY, NULL));
    return list;
}

/* A page is made of so many arms and rows at most. */
static void test_results_have_limits(void **state) {
    (void)state;
    static const struct {
        const char *file, *sentence;
        size_t arms, rows;
    } cases[] = {
        {"results.json", "`arms` must be a list of at most 10000", 10001, 0},
        {"results.json", "`results` must be a list of at most 4096 rows", 1, 4097},
        {"timing.json", "is not the timing of a study", 10001, 0},
    };
    ls_ctx ctx = ls_ctx_default();
    expect("a folder", ls_folder_make(&ctx, in_folder("limits")), &ctx, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[64];
        json_t *arms = many(cases[i].arms, "{\"name\": \"a\"}");
        if (cases[i].rows > 0)
            json_object_set_new(json_array_get(arms, 0), "results", many(cases[i].rows, "{}"));
        json_t *sound = json_pack("{s:s, s:[]}", "format", "longshot-study-1", "arms");
        json_t *json = json_pack("{s:s, s:o}", "format", "longshot-study-1", "arms", arms);
        expect("sound", ls_json_write(&ctx, in_folder("limits/results.json"), sound), &ctx, NULL);
        snprintf(path, sizeof path, "limits/%s", cases[i].file);
        expect("file", ls_json_write(&ctx, in_folder(path), json), &ctx, NULL);
        expect(cases[i].sentence, ls_report_write(&ctx, in_folder("limits"), NULL), &ctx,
               cases[i].sentence);
        json_decref(sound);
        json_decref(json);
    }
}

/* Members of a row of figures, by what its texts and names may be. */
static void test_figures_have_limits(void **state) {
    (void)state;
    static const char peer[] = "{\"seconds\": 1.0, \"spread\": 0.0, \"ratio\": 1.0}";
    ls_ctx ctx = ls_ctx_default();
    char letters[600];
    memset(letters, 'n', sizeof letters);
    letters[sizeof letters - 1] = '\0';
    for (int which = 0; which < 5; which++) {
        static const char *const sentences[] = {
            "`kind` of mixers, row 1, must be a short text",
            "`peers` of mixers, row 1, must be an object with few members",
            "`peers` of mixers, row 1, must be objects of short names",
            "`missing` of mixers, row 1, must be an object with few members",
            "`missing` of mixers, row 1, must be short texts"};
        json_t *row = json_pack("{s:f, s:f}", "seconds", 1.0, "spread", 0.0);
        json_t *peers = json_object(), *missing = json_object();
        for (int i = 0; i < 17; i++) {
            char name[8];
            snprintf(name, sizeof name, "p%d", i);
            if (which == 1) json_object_set_new(peers, name, json_loads(peer, 0, NULL));
            if (which == 3) json_object_set_new(missing, name, json_string("no"));
        }
        if (which == 0) json_object_set_new(row, "kind", json_string(letters));
        if (which == 2) json_object_set_new(peers, letters, json_loads(peer, 0, NULL));
        if (which == 4) json_object_set_new(missing, letters, json_string("no"));
        json_object_set_new(row, "peers", peers);
        json_object_set_new(row, "missing", missing);
        json_t *figures = json_pack("{s:{s:s}, s:[o]}", "machine", "name", "A", "mixers", row);
        expect(sentences[which], ls_figures_check(&ctx, figures, "f.json"), &ctx, sentences[which]);
        json_decref(figures);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics_have_places),
        cmocka_unit_test(test_results_have_limits),
        cmocka_unit_test(test_figures_have_limits),
        cmocka_unit_test(test_rows_on_a_full_disk),
        cmocka_unit_test(test_rows_without_memory),
        cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_texts_without_memory_or_time),
        cmocka_unit_test(test_studies_without_memory),
        cmocka_unit_test(test_streams_without_memory),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
