/* Metrics: rows, their cutting back, the line of progress, and event files read by a second,
 * independent reader. */
#include "train/events.h"
#include "train_fixture.h"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/longshot-metrics-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    return ls_folder_remove(&ctx, folder) != LS_OK;
}

static void read_file(ls_ctx *ctx, const char *name, ls_text *out) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    out->length = 0;
    assert_int_equal(ls_file_read(ctx, path, 1 << 20, out), LS_OK);
}

static void add_rows(ls_ctx *ctx, ls_metrics *metrics, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; step++) {
        ls_metrics_row row = {.step = step,
                              .loss = step == 3 ? NAN : 1.0 / (double)step,
                              .rate = 1e-4,
                              .norm = step == 3 ? INFINITY : 2,
                              .tokens = step * 100};
        assert_int_equal(ls_metrics_add(ctx, metrics, &row), LS_OK);
    }
}

static void rows_are_cut_back(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_metrics *metrics;
    ls_text whole_jsonl = {0}, whole_csv = {0}, text = {0};
    assert_int_equal(ls_metrics_open(&ctx, folder, 0, 0, false, &metrics), LS_OK);
    int64_t before = ctx.allocations;
    add_rows(&ctx, metrics, 1, 12);
    assert_int_equal(ctx.allocations, before);
    assert_int_equal(ls_metrics_close(&ctx, metrics), LS_OK);
    read_file(&ctx, "metrics.jsonl", &whole_jsonl);
    read_file(&ctx, "metrics.csv", &whole_csv);
    assert_non_null(strstr(whole_csv.bytes, "step,loss,lr,grad_norm"));
    assert_non_null(strstr(whole_jsonl.bytes, "{\"step\":3,\"loss\":null,"));

    /* every line is JSON by itself, whatever happened */
    for (char *line = whole_jsonl.bytes; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        json_t *row;
        assert_int_equal(ls_json_parse(&ctx, line, length, "row", &row), LS_OK);
        json_decref(row);
        line += length + 1;
    }

    /* torn at any byte and resumed at step 7, the files end the same */
    for (size_t cut = 0; cut < whole_csv.length; cut += 7) {
        char path[256];
        snprintf(path, sizeof path, "%s/metrics.csv", folder);
        size_t keep = whole_csv.length - cut;
        if (keep < (size_t)(strstr(whole_csv.bytes, "\n8,") - whole_csv.bytes)) break;
        assert_int_equal(ls_file_write(&ctx, path, whole_csv.bytes, keep), LS_OK);
        assert_int_equal(ls_metrics_open(&ctx, folder, 7, 0, false, &metrics), LS_OK);
        add_rows(&ctx, metrics, 8, 12);
        assert_int_equal(ls_metrics_close(&ctx, metrics), LS_OK);
        read_file(&ctx, "metrics.csv", &text);
        assert_string_equal(text.bytes, whole_csv.bytes);
        read_file(&ctx, "metrics.jsonl", &text);
        assert_string_equal(text.bytes, whole_jsonl.bytes);
    }

    /* back to 5 while it runs, and from the start: nothing of the old remains */
    assert_int_equal(ls_metrics_open(&ctx, folder, 12, 0, false, &metrics), LS_OK);
    assert_int_equal(ls_metrics_rewind(&ctx, metrics, 5), LS_OK);
    add_rows(&ctx, metrics, 6, 12);
    assert_int_equal(ls_metrics_close(&ctx, metrics), LS_OK);
    read_file(&ctx, "metrics.csv", &text);
    assert_string_equal(text.bytes, whole_csv.bytes);
    assert_int_equal(ls_metrics_open(&ctx, folder, 0, 0, false, &metrics), LS_OK);
    assert_int_equal(ls_metrics_close(&ctx, metrics), LS_OK);
    read_file(&ctx, "metrics.csv", &text);
    assert_int_equal(strcspn(text.bytes, "\n") + 1, text.length);
    read_file(&ctx, "metrics.jsonl", &text);
    assert_int_equal(text.length, 0);
    ls_text_clear(&ctx, &whole_jsonl);
    ls_text_clear(&ctx, &whole_csv);
    ls_text_clear(&ctx, &text);
}

/* ---- a reader of event files that shares nothing with the writer ---- */

/* CRC-32C by polynomial division over the reflected message, one bit after another. */
static uint32_t division_crc(const uint8_t *bytes, size_t length) {
    uint32_t remainder = ~0u;
    for (size_t i = 0; i < 8 * length; i++) {
        uint32_t bit = bytes[i / 8] >> i % 8 & 1;
        uint32_t carry = remainder >> 31;
        remainder = remainder << 1 ^ (carry ^ bit ? 0x1edc6f41u : 0);
    }
    uint32_t reflected = 0;
    for (int i = 0; i < 32; i++) reflected |= (remainder >> i & 1) << (31 - i);
    return ~reflected;
}

static uint32_t unmask(uint32_t masked) {
    uint32_t rotated = masked - 0xa282ead8u;
    return rotated >> 17 | rotated << 15;
}

typedef struct field {
    int number, wire;
    uint64_t value;
    const uint8_t *bytes;
} field;

static uint64_t read_varint(ls_reader *in) {
    uint64_t value = 0;
    const uint8_t *b;
    for (int shift = 0;; shift += 7) {
        assert_true(shift < 64 && ls_reader_take(in, 1, &b));
        value |= (uint64_t)(*b & 0x7f) << shift;
        if (*b < 0x80) return value;
    }
}

static field read_field(ls_reader *in) {
    uint64_t key = read_varint(in);
    field f = {.number = (int)(key >> 3), .wire = (int)(key & 7)};
    uint32_t narrow;
    switch (f.wire) {
    case 0:
        f.value = read_varint(in);
        break;
    case 1:
        assert_true(ls_reader_u64(in, &f.value));
        break;
    case 2:
        f.value = read_varint(in);
        assert_true(ls_reader_take(in, (size_t)f.value, &f.bytes));
        break;
    case 5:
        assert_true(ls_reader_u32(in, &narrow));
        f.value = narrow;
        break;
    default:
        fail_msg("wire type %d", f.wire);
    }
    return f;
}

typedef struct event {
    double wall_time;
    int64_t step;
    bool version, restart;
    int scalars;
    char tag[8][64];
    float value[8];
} event;

static void read_value(ls_reader in, event *out) {
    int k = out->scalars++;
    assert_true(k < 8);
    while (in.left > 0) {
        field f = read_field(&in);
        if (f.number == 1) snprintf(out->tag[k], 64, "%.*s", (int)f.value, (const char *)f.bytes);
        if (f.number == 2) memcpy(&out->value[k], &(uint32_t){(uint32_t)f.value}, 4);
    }
}

static event read_event(ls_reader in) {
    event e = {.wall_time = -1};
    while (in.left > 0) {
        field f = read_field(&in);
        ls_reader inner = {f.bytes, f.wire == 2 ? (size_t)f.value : 0};
        if (f.number == 1) memcpy(&e.wall_time, &f.value, 8);
        if (f.number == 2) e.step = (int64_t)f.value;
        if (f.number == 3) e.version = f.value == 13 && memcmp(f.bytes, "brain.Event:2", 13) == 0;
        if (f.number == 5)
            while (inner.left > 0) {
                field value = read_field(&inner);
                assert_int_equal(value.number, 1);
                read_value((ls_reader){value.bytes, (size_t)value.value}, &e);
            }
        if (f.number == 7) {
            field status = read_field(&inner);
            e.restart = status.number == 1 && status.value == 1;
        }
    }
    return e;
}

static size_t read_events(const ls_text *file, event *out, size_t most) {
    ls_reader in = {(const uint8_t *)file->bytes, file->length};
    size_t count = 0;
    while (in.left > 0) {
        const uint8_t *head = in.at, *data;
        uint64_t length;
        uint32_t check;
        assert_true(ls_reader_u64(&in, &length));
        assert_true(ls_reader_u32(&in, &check));
        assert_int_equal(unmask(check), division_crc(head, 8));
        assert_true(ls_reader_take(&in, (size_t)length, &data));
        assert_true(ls_reader_u32(&in, &check));
        assert_int_equal(unmask(check), division_crc(data, (size_t)length));
        assert_true(count < most);
        out[count++] = read_event((ls_reader){data, (size_t)length});
    }
    return count;
}

static void events_are_readable(void **state) {
    (void)state;
    assert_int_equal(ls_crc32c("123456789", 9), 0xe3069283); /* the polynomial's check value */
    assert_int_equal(division_crc((const uint8_t *)"123456789", 9), 0xe3069283);
    ls_ctx ctx = ls_ctx_default();
    char path[256];
    snprintf(path, sizeof path, "%s/events", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    const ls_scalar scalars[] = {{"train/loss", 2.5}, {"train/lr", 0.125}};
    assert_int_equal(ls_events_begin(&ctx, file, path, 1000.25), LS_OK);
    assert_int_equal(ls_events_restart(&ctx, file, path, 1000.5, 7), LS_OK);
    assert_int_equal(ls_events_add(&ctx, file, path, 1001, 300, scalars, 2), LS_OK);
    assert_int_equal(ls_events_add(&ctx, file, path, 1002, (int64_t)1 << 40, scalars, 1), LS_OK);
    fclose(file);
    ls_text text = {0};
    event e[8];
    read_file(&ctx, "events", &text);
    assert_int_equal(read_events(&text, e, 8), 4);
    assert_true(e[0].version && e[0].wall_time == 1000.25);
    assert_true(e[1].restart && e[1].step == 7);
    assert_true(e[2].step == 300 && e[2].scalars == 2 && e[2].value[0] == 2.5f);
    assert_string_equal(e[2].tag[1], "train/lr");
    assert_true(e[2].value[1] == 0.125f);
    assert_true(e[3].step == (int64_t)1 << 40 && e[3].scalars == 1);
    ls_text_clear(&ctx, &text);
}

static void a_run_leaves_events(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, NULL, "steps=5", NULL);
    fixture_expect(&f, LS_OK);
    char **names;
    size_t count, files = 0;
    event e[16];
    assert_int_equal(ls_folder_list(&f.ctx, f.folder, &names, &count), LS_OK);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], "events.out.tfevents.", 20) != 0) continue;
        ls_text text = {0};
        fixture_read(&f, names[i], &text);
        assert_int_equal(read_events(&text, e, 16), 6);
        assert_true(e[0].version);
        for (int k = 1; k <= 5; k++) {
            assert_int_equal(e[k].step, k);
            assert_string_equal(e[k].tag[0], "train/loss");
            assert_true(isfinite(e[k].value[0]));
        }
        ls_text_clear(&f.ctx, &text);
        files++;
    }
    assert_int_equal(files, 1);
    ls_names_free(&f.ctx, names, count);
    fixture_close(&f, true);
}

static void the_line_reads_well(void **state) {
    (void)state;
    char line[256];
    ls_metrics_row row = {.step = 120,
                          .loss = 2.34561,
                          .rate = 3e-4,
                          .norm = 0.871,
                          .tokens_per_second = 12345,
                          .peak_share = 0.414};
    ls_metrics_line(&row, 1000, 192, line, sizeof line);
    assert_string_equal(line, "step 120/1000  loss 2.3456  lr 3.00e-04  norm 0.87  12.3k tokens/s"
                              "  41% of peak  3m12s left");
    row.tokens_per_second = 999;
    for (int i = 0; i < 2; i++) { /* not known, or of a peak that was measured beside other work */
        row.peak_share = i == 0 ? 0 : 2.71;
        ls_metrics_line(&row, 1000, -1, line, sizeof line);
        assert_string_equal(line,
                            "step 120/1000  loss 2.3456  lr 3.00e-04  norm 0.87  999 tokens/s");
    }
    ls_metrics_line(&row, 1000, 7322, line, sizeof line);
    assert_non_null(strstr(line, "2h02m left"));
    ls_metrics_line(&row, 1000, 9, line, 10); /* a short line is cut, not overrun */
    assert_int_equal(strlen(line), 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_cut_back),
        cmocka_unit_test(events_are_readable),
        cmocka_unit_test(a_run_leaves_events),
        cmocka_unit_test(the_line_reads_well),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
