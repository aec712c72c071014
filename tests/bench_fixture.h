/* A benchmark on a clock of the test's own, which counts what lies between two looks at it, with a
 * script in the peer's place that prints numbers. */
#ifndef LS_TESTS_BENCH_FIXTURE_H
#define LS_TESTS_BENCH_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "bench/bench_parts.h"
#include "report/figures.h"

static inline void expect(ls_ctx *ctx, ls_status status) {
    if (status != LS_OK) fail_msg("%s: %s", ls_status_name(status), ctx->error.message);
}

static inline void close_to(double value, double wanted) {
    if (!(fabs(value - wanted) <= 1e-9 * fabs(wanted))) fail_msg("%.12g, not %.12g", value, wanted);
}

/* Every look at the clock is followed by the next of these steps, over and over. */
static double now, steps[64];
static size_t step_count, looks;

static inline double clock_of_test(void) {
    now += steps[looks++ % step_count];
    return now;
}

static inline void set_clock(size_t count, const double *seconds) {
    memcpy(steps, seconds, count * sizeof *seconds);
    step_count = count;
    looks = 0;
    now = 0;
}

typedef struct rig {
    ls_ctx ctx;
    ls_bench_settings settings;
    ls_bench_hooks hooks;
    ls_bench bench;
    char folder[64];
} rig;

/* The peer's script is this shell script: `answers` are its lines, one for each "go". */
static inline void rig_open(rig *r, const char *script, const char *answers) {
    *r = (rig){.ctx = ls_ctx_default(), .folder = "/tmp/longshot-bench-XXXXXX"};
    r->ctx.threads = 1;
    expect(&r->ctx, ls_options_default(&r->ctx, &ls_bench_options, &r->settings));
    r->settings.rounds = 3;
    r->settings.seconds = 0;
    r->hooks.clock = clock_of_test;
    r->bench = (ls_bench){.ctx = &r->ctx,
                          .settings = &r->settings,
                          .hooks = &r->hooks,
                          .types = {LS_F32},
                          .type_count = 1,
                          .json = json_object()};
    assert_non_null(mkdtemp(r->folder));
    if (script == NULL) return;
    char path[128], text[1024];
    snprintf(path, sizeof path, "%s/%s", r->folder, script);
    int length = snprintf(text, sizeof text,
                          "echo '{\"left_out\": \"slow\", \"reason\": \"no compiler\"}'\n"
                          "echo '{\"ready\": true, \"torch\": \"9.8\"}'\n"
                          "while read -r word; do case $word in go) read -r line <&3; "
                          "echo \"$line\";; esac; done 3<<'E'\n%sE\n",
                          answers);
    expect(&r->ctx, ls_file_write(&r->ctx, path, text, (size_t)length));
    snprintf(r->bench.python, sizeof r->bench.python, "/bin/sh");
    snprintf(r->bench.scripts, sizeof r->bench.scripts, "%s", r->folder);
}

static inline void rig_close(rig *r) {
    json_decref(r->bench.json);
    ls_text_clear(&r->ctx, &r->bench.text);
    expect(&r->ctx, ls_folder_remove(&r->ctx, r->folder));
}

static inline double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number `%s`", key);
    return json_number_value(value);
}

/* A row as it is written can be read again, and printed. */
static inline void can_be_kept(rig *r, const char *part, json_t *rows, const char *printed) {
    json_t *all = json_pack("{s:{s:s}, s:O}", "machine", "name", "m", part, rows);
    const ls_page page = {.ctx = &r->ctx};
    ls_text out = {0};
    ls_paper paper = {.page = &page, .out = &out};
    expect(&r->ctx, ls_figures_check(&r->ctx, all, "FILE"));
    assert_true(ls_figures_part(&paper, all, part));
    if (strstr(out.bytes, printed) == NULL) fail_msg("%s, not %s", out.bytes, printed);
    ls_text_clear(&r->ctx, &out);
    json_decref(all);
}

#endif
