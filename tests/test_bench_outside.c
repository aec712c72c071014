/* `longshot bench` beside programs of others, llm.c and llama.cpp: what they print is taken or
 * refused, and their runs end. Scripts take their places.
 * Tier: unsanitized. */
#include "bench_fixture.h"

#include <sys/stat.h>

/* A script that is run in place of a program, at the path that goes to `key`; the rest as usual. */
static void rig_program(rig *r, char key[LS_OPTION_TEXT_BYTES], const char *script) {
    char text[2048];
    const int length = snprintf(text, sizeof text, "#!/bin/sh\n%s", script);
    snprintf(key, LS_OPTION_TEXT_BYTES, "%s/program", r->folder);
    expect(&r->ctx, ls_file_write(&r->ctx, key, text, (size_t)length));
    assert_int_equal(chmod(key, 0700), 0);
    setenv("TMPDIR", r->folder, 1);
    r->settings.patience = 20;
}

/* Nothing is left of the folders in which they ran. */
static void rig_program_close(rig *r) {
    char **names;
    size_t count;
    expect(&r->ctx, ls_folder_list(&r->ctx, r->folder, &names, &count));
    for (size_t i = 0; i < count; i++) assert_null(strstr(names[i], "longshot-bench"));
    ls_names_free(&r->ctx, names, count);
    unsetenv("TMPDIR");
    rig_close(r);
}

static const ls_train_shape tiny_gpt2 = {
    "tiny", "model.layers=1 model.width=16 mixer.heads=2 model.position=learned model.length=8",
    3,      8,
    32,     false,
    "1",    "16",
    "2",    "learned",
    true};

/* What train_gpt2.c prints, with its files read as it reads them: the length of the header and of
 * weights of GPT-2's shape, in the order of their sizes; tokens below the vocabulary. */
#define LLM_C_FILES                                                                                \
    "[ $(wc -c <gpt2_124M.bin) = $((1024 + 4 * (32 * 16 + 8 * 16 + 12 * 256 + 13 * 16 + 32))) ]"   \
    " && [ \"$(od -A n -t d4 -N 32 gpt2_124M.bin | tr -s ' \\n' ' ')\" ="                          \
    " ' 20240326 3 8 32 1 2 16 32 ' ] &&"                                                          \
    " [ \"$(od -A n -t d4 -N 12 dev/data/tinyshakespeare/tiny_shakespeare_val.bin |"               \
    " tr -s ' ' ' ')\" = ' 20240520 1 1537' ] &&"                                                  \
    " [ $(wc -c <dev/data/tinyshakespeare/tiny_shakespeare_train.bin) = 4098 ] &&"                 \
    " [ $(wc -c <gpt2_tokenizer.bin) = 1088 ] && [ $# = 0 ] && [ $OMP_NUM_THREADS = 1 ] ||"        \
    " { echo 'these are not the files' >&2; exit 9; }\n"

static void beside_llm_c(void **state) {
    (void)state;
    rig r;
    rig_open(&r, NULL, NULL);
    rig_program(&r, r.settings.llm_c,
                LLM_C_FILES "echo '[GPT-2]'; echo 'max_seq_len: 8'; echo 'val loss 3.465736'\n"
                            "echo 'step 0: train loss 5.356082 (took 900000.000000 ms)'\n"
                            "for ms in 0.010000 0.020000 0.040000 0.050000 0.030000; do\n"
                            "echo \"step 1: train loss 4.300639 (took $ms ms)\"; done\n"
                            "sleep 60\n"); /* it has printed enough, and is ended */
    set_clock(1, (double[]){0.25});
    json_t *rows = json_array();
    const double began = ls_clock();
    expect(&r.ctx, ls_bench_train_shape(&r.bench, &tiny_gpt2, rows));
    assert_true(ls_clock() - began < 15);
    const json_t *row = json_array_get(rows, 0);
    close_to(number(row, "tokens_per_second"), 96);
    close_to(number(row, "peer_tokens_per_second"), 24 / 3e-5);
    assert_true(number(row, "peer_spread") == 0);
    close_to(number(row, "ratio"), 96 * 3e-5 / 24);
    assert_string_equal(json_string_value(json_object_get(row, "peer_mode")), "llm.c");
    assert_null(json_object_get(row, "missing"));
    assert_non_null(strstr(r.bench.text.bytes, "  800000 tokens/s llm.c, spread 0%; ratio 0.00\n"));
    can_be_kept(&r, "train", rows, "\n| tiny, f32, 3 x 8 | 96.0 | 0.0% | llm.c 800,000 | 0.00 |");
    json_decref(rows);
    rig_program_close(&r);
}

/* Its trainer for devices is told all, and prints otherwise. */
static void beside_llm_c_on_a_device(void **state) {
    (void)state;
    rig r;
    ls_peer peer = {0};
    ls_outside outside = {0};
    ls_train_shape shape = tiny_gpt2;
    shape.device = true;
    rig_open(&r, NULL, NULL);
    rig_program(
        &r, r.settings.llm_c,
        "[ \"$*\" = '-i dev/data/tinyshakespeare/tiny_shakespeare_train.bin -j "
        "dev/data/tinyshakespeare/tiny_shakespeare_val.bin -e d1 -b 3 -t 8 -d 24 -x 1000000 "
        "-v 1000000 -m 1 -s 0 -l 0.0001 -r 0' ] || exit 9\n"
        "echo '| step count            | 1                                                  |'\n"
        "for ms in 9000.00 0.02 0.01 0.03 0.02 0.02; do\n"
        "echo \"step    1/1000000 | loss 11.009 (+nanz)| norm 20.1 (+nanz)| lr 1.00e-04 | $ms ms | "
        "36.1% bf16 MFU | 514000 tok/s\"; done\n");
    expect(&r.ctx, ls_bench_llm_c(&r.bench, &shape, &outside, &peer));
    json_t *line = ls_peer_go(&r.bench, &peer);
    close_to(number(json_object_get(line, "seconds"), "llm.c"), 2e-5);
    json_decref(line);
    ls_outside_end(&r.bench, &outside);
    rig_program_close(&r);
}

/* Where a program does not do what it should, its row says so and has no ratio. Those that stay
 * would stay for STAY seconds; what is said takes less than half of that, however busy the machine
 * is with other work. */
#define STAY "400"
static void programs_that_fail(void **state) {
    (void)state;
#define STEPS(ms)                                                                                  \
    "for i in 0 1 2 3 4 5; do echo \"step $i: train loss 1.0 (took " ms " ms)\"; done\n"
    static const struct {
        const char *script, *why;
        double patience;
    } cases[] = {
        {"echo one >&2; printf 'Bad\\033[31m file\\n' >&2; exit 3",
         "ended with exit code 3: Bad [31m file", 150},
        {"kill -9 $$", "was ended by signal 9", 150},
        {"sleep " STAY, "took longer than 0.3 s (patience=)", 0.3},
        {"exec >&-; sleep " STAY, "took longer than 0.3 s (patience=)", 0.3},
        {"sleep " STAY " & exit 0",
         "printed times of 0 steps behind the first, where 5 are the least", 150},
        {"while :; do echo 0123456789012345678901234567890123456789; done",
         "printed more than 1 MiB", 150},
        {"echo 'step 0: train loss 1.0 (took 1.0 ms)'", "printed times of 0 steps behind", 150},
        {STEPS("0.01") "exit 1", "ended with exit code 1", 150},
        {STEPS("1e3"), "printed a time that cannot be", 150},
        {STEPS("-1"), "printed a time that cannot be", 150},
        {STEPS("nan"), "printed a time that cannot be", 150},
        {STEPS("0.0"), "printed a time that cannot be", 150},
        {STEPS("60000.0"), "printed a time that cannot be", 150}, /* longer than the run */
        {"echo 'step by step'", "printed a time that cannot be", 150},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig r;
        rig_open(&r, NULL, NULL);
        rig_program(&r, r.settings.llm_c, cases[i].script);
        r.settings.patience = cases[i].patience;
        r.settings.rounds = 1;
        r.settings.seconds = strstr(cases[i].script, "exit 1") != NULL ? 9 : 0;
        set_clock(1, (double[]){1});
        json_t *rows = json_array();
        const double began = ls_clock();
        expect(&r.ctx, ls_bench_train_shape(&r.bench, &tiny_gpt2, rows));
        assert_true(ls_clock() - began < 200);
        const json_t *row = json_array_get(rows, 0);
        const char *why =
            json_string_value(json_object_get(json_object_get(row, "missing"), "llm.c"));
        if (why == NULL || strncmp(why, cases[i].why, strlen(cases[i].why)) != 0)
            fail_msg("%s: %s, not %s", cases[i].script, why, cases[i].why);
        assert_null(json_object_get(row, "ratio"));
        assert_null(json_object_get(row, "peer_tokens_per_second"));
        assert_non_null(strstr(r.bench.text.bytes, "        no figure of llm.c: "));
        can_be_kept(&r, "train", rows, "| llm.c: none |");
        json_decref(rows);
        rig_program_close(&r);
    }
}

/* What llama-bench prints: one test, as JSON. */
#define LLAMA(tokens, depth, nanoseconds)                                                          \
    "echo '[\n  {\n    \"build_commit\": \"b21e4de7\",\n    \"build_number\": 6800,\n"             \
    "    \"model_filename\": \"model.gguf\",\n    \"n_threads\": 1,\n    \"n_prompt\": 0,\n"       \
    "    \"n_gen\": " tokens ",\n    \"n_depth\": " depth ",\n    \"avg_ns\": 5,\n"                \
    "    \"samples_ns\": [ " nanoseconds " ],\n    \"samples_ts\": [ 1.0 ]\n  }\n]'\n"

static void beside_llama_cpp(void **state) {
    (void)state;
    static const struct {
        const char *script, *why; /* NULL: 50 us */
    } cases[] = {
        {"[ \"$(head -c 4 model.gguf)\" = GGUF ] && [ \"$*\" = '-m model.gguf -p 0 -n 16 -d 32 -r 1 "
         "-t 1 -o json -ngl 0' ] || exit 9\n" LLAMA("16", "32", "50000"),
         NULL},
        {LLAMA("16", "0", "50000"), "printed no result of 16 tokens at depth 32"},
        {LLAMA("128", "32", "50000"), "printed no result of 16 tokens"},
        {LLAMA("\"16\"", "32", "50000"), "printed no result of 16 tokens"},
        {LLAMA("16", "32", ""), "printed a time that cannot be"},
        {LLAMA("16", "32", "-5"), "printed a time that cannot be"},
        {LLAMA("16", "32", "\"5\""), "printed a time that cannot be"},
        {LLAMA("16", "32", "90000000000"), "printed a time that cannot be"},
        {"echo []", "printed no result of 16 tokens"},
        {"echo '| model | t/s |'", "printed no result of 16 tokens"},
        {":", "printed no result of 16 tokens"},
        {"echo 'error: invalid parameter for argument: -d' >&2; exit 1",
         "ended with exit code 1: error: invalid parameter for argument: -d"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig r;
        ls_model_config config = {0};
        ls_model *model;
        ls_peer peer = {0};
        ls_outside outside = {0};
        rig_open(&r, NULL, NULL);
        rig_program(&r, r.settings.llama_cpp, cases[i].script);
        expect(&r.ctx, ls_model_config_read_words(
                           &r.ctx,
                           "model.preset=llama-124m model.layers=1 model.width=32 mixer.heads=2 "
                           "model.vocabulary=64",
                           &config));
        expect(&r.ctx, ls_model_new(&r.ctx, &config, LS_BF16, 1, false, &model));
        expect(&r.ctx, ls_bench_llama(&r.bench, &config, &outside, &peer));
        set_clock(1, (double[]){1});
        json_t *rows = json_array();
        expect(&r.ctx, ls_bench_decode_at(&r.bench, model, 1, 32, &peer, rows));
        const json_t *row = json_array_get(rows, 0), *taken = json_object_get(row, "taken");
        const char *why =
            json_string_value(json_object_get(json_object_get(row, "missing"), "llama.cpp"));
        if (r.ctx.device != NULL) { /* more tokens a turn, and other words */
            assert_non_null(why);
        } else if (cases[i].why != NULL) {
            if (why == NULL || strncmp(why, cases[i].why, strlen(cases[i].why)) != 0)
                fail_msg("%s: %s, not %s", cases[i].script, why, cases[i].why);
            assert_null(json_object_get(row, "ratio"));
        } else {
            close_to(number(row, "peer_tokens_per_second"), 16 / 5e-5);
            close_to(number(row, "ratio"), 5e-5);
            assert_string_equal(json_string_value(json_object_get(row, "peer_mode")), "llama.cpp");
            assert_string_equal(json_string_value(json_object_get(taken, "llama_cpp")), "b21e4de7");
            assert_non_null(
                strstr(r.bench.text.bytes, "  320000 tokens/s llama.cpp, spread 0%; ratio 0.00\n"));
            can_be_kept(&r, "decode", rows, "| llama.cpp 320,000 | 0.00 |");
            can_be_kept(&r, "decode", rows, " beside llama.cpp b21e4de7, 3 turns.");
        }
        json_decref(rows);
        ls_outside_end(&r.bench, &outside);
        ls_model_free(model);
        ls_model_config_clear(&r.ctx, &config);
        rig_program_close(&r);
    }
}

/* A signal ends a run at once, and is no fault of the program's. */
static void a_stopped_program(void **state) {
    (void)state;
    rig r;
    ls_peer peer = {0};
    ls_outside outside = {0};
    volatile sig_atomic_t stop = 0;
    rig_open(&r, NULL, NULL);
    rig_program(&r, r.settings.llm_c, "sleep 30\n");
    expect(&r.ctx, ls_bench_llm_c(&r.bench, &tiny_gpt2, &outside, &peer));
    stop = 1;
    r.hooks.stop = &stop;
    const double began = ls_clock();
    assert_null(ls_peer_go(&r.bench, &peer));
    assert_true(ls_clock() - began < 10);
    assert_int_equal(peer.missing.count, 0);
    ls_outside_end(&r.bench, &outside);
    rig_program_close(&r);
}

/* Only what can be run is taken. */
static void no_programs(void **state) {
    (void)state;
    rig r;
    char path[128];
    rig_open(&r, NULL, NULL);
    expect(&r.ctx, ls_outside_check(&r.ctx, "llm_c", ""));
    expect(&r.ctx, ls_outside_check(&r.ctx, "llm_c", "/bin/sh"));
    snprintf(path, sizeof path, "%s/text", r.folder);
    expect(&r.ctx, ls_file_write(&r.ctx, path, "x", 1));
    const char *const wrong[] = {path, r.folder, "sh", "/dev/null"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ls_outside_check(&r.ctx, "llm_c", wrong[i]), LS_EUSE);
        assert_non_null(strstr(r.ctx.error.message, "is no program that can be run"));
    }
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_llm_c),       cmocka_unit_test(beside_llm_c_on_a_device),
        cmocka_unit_test(programs_that_fail), cmocka_unit_test(beside_llama_cpp),
        cmocka_unit_test(a_stopped_program),  cmocka_unit_test(no_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
