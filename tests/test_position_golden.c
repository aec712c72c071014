/* The attention mixer against public reference code: its lines of tests/golden/cases.txt, outputs
 * and gradients, weights under their official names. */
#include "golden_file.h"
#include "position_model.h"

typedef struct place {
    const ls_parameter *parameter;
    int layout;
} place;

/* Where an official tensor stands in ours; parameter NULL for one that is known but not learned. */
static place place_of(const model *m, const char *official) {
    char name[256];
    for (const ls_alias *alias = m->mixer.type->aliases; alias->official != NULL; alias++) {
        if (strcmp(alias->official, official) != 0) continue;
        snprintf(name, sizeof name, "%s%s", *alias->ours == '/' ? "" : "layers.0.",
                 alias->ours + (*alias->ours == '/'));
        place found = {ls_parameters_find(m->store, name), alias->layout};
        if (found.parameter == NULL) fail_msg("%s: there is no %s", official, name);
        return found;
    }
    for (const ls_buffer *buffer = m->mixer.type->buffers; buffer->official != NULL; buffer++)
        if (strncmp(buffer->official, "w.", 2) == 0 && strcmp(buffer->official + 2, official) == 0)
            return (place){0};
    fail_msg("%s has no alias", official);
    return (place){0};
}

/* Our rows of an official tensor, from weights or gradients. */
static void each_row(const model *m, place at, double *ours, double *official, size_t count,
                     bool to_ours) {
    size_t width = at.parameter->rank == 2 ? (size_t)at.parameter->dim[1] : 1;
    for (size_t r = 0; r < count / width; r++) {
        double *row = ours + (size_t)m->mixer.type->row(&m->mixer, at.layout, (int64_t)r) * width;
        if (to_ours)
            memcpy(row, official + r * width, width * sizeof *row);
        else
            memcpy(official + r * width, row, width * sizeof *row);
    }
}

/* [T,B,D] <-> [B,T,D]. */
static void swap_axes(double *values, int64_t outer, int64_t inner, int64_t D) {
    size_t count = (size_t)(outer * inner * D);
    double *copy = malloc(count * sizeof *copy);
    memcpy(copy, values, count * sizeof *copy);
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++)
            memcpy(values + (j * outer + i) * D, copy + (i * inner + j) * D,
                   (size_t)D * sizeof *copy);
    free(copy);
}

static double *golden_rows(const golden *g, const char *name, bool TBD, int64_t dim[5]) {
    size_t count;
    double *values = golden_tensor(g, name, dim, &count);
    assert_non_null(values);
    if (TBD) {
        swap_axes(values, dim[0], dim[1], dim[2]);
        int64_t B = dim[1];
        dim[1] = dim[0];
        dim[0] = B;
    }
    return values;
}

static void close_enough(const char *file, const char *what, const double *got, const double *want,
                         size_t count, double most) {
    double off = difference(got, want, count);
    if (!(off <= most)) fail_msg("%s: %s differs by %.2e (bar %.0e)", file, what, off, most);
}

static void check_case(const char *file, const char *words, double forward, double backward) {
    golden g;
    model m;
    int64_t dim[5];
    bool TBD = strstr(words, "layout=TBD") != NULL;
    golden_open(&g, file);
    double *x = golden_rows(&g, "in.x", TBD, dim);
    model_new(&m, words, LS_F64, dim[0], dim[2], 1);
    const int64_t T = dim[1];
    ls_program *p = model_program(&m, (ls_program_options){.length = T, .grad = true});
    const char *name;
    json_t *entry;
    size_t count;
    json_object_foreach(g.header, name, entry) {
        if (strncmp(name, "w.", 2) != 0) continue;
        place at = place_of(&m, name + 2);
        if (at.parameter == NULL) continue;
        int64_t shape[5];
        double *values = golden_tensor(&g, name, shape, &count);
        each_row(&m, at, ls_parameter_master(m.store, at.parameter), values, count, true);
        free(values);
    }
    ls_parameters_clear_gradient(m.store);
    double *y = golden_rows(&g, "out.y", TBD, dim), *cot = golden_rows(&g, "cot", TBD, dim);
    double *dx = golden_rows(&g, "grad.in.x", TBD, dim), *got = malloc(model_count(&m, T) * 8);
    put(ls_program_find(p, "x"), x);
    put(ls_program_find(p, "cot"), cot);
    OK(ls_program_run(p, NULL, 0, 0));
    take(ls_program_find(p, "y"), got);
    close_enough(file, "y", got, y, model_count(&m, T), forward);
    take(ls_program_find(p, "grad.x"), got);
    close_enough(file, "grad.x", got, dx, model_count(&m, T), backward);
    json_object_foreach(g.header, name, entry) {
        if (strncmp(name, "grad.w.", 7) != 0) continue;
        int64_t shape[5];
        double *want = golden_tensor(&g, name, shape, &count), *have = malloc(count * sizeof *have);
        place at = place_of(&m, name + 7);
        each_row(&m, at, ls_parameter_gradient(m.store, at.parameter), have, count, false);
        /* a key's bias shifts a row of scores as a whole, so its exact gradient is zero where keys
         * are not rotated: what public code leaves there is rounding */
        double most = 0;
        for (size_t i = 0; i < count; i++) most = fmax(most, fabs(want[i]));
        if (most > 1e-10) close_enough(file, name, have, want, count, backward);
        free(want);
        free(have);
    }
    /* the same outputs token by token */
    double *stream = model_stream(&m, T, x, (int64_t[]){1}, 1);
    close_enough(file, "stream", stream, y, model_count(&m, T), forward);
    free(stream);
    free(x), free(y), free(cot), free(dx), free(got);
    ls_program_free(p);
    model_free(&m);
    golden_close(&g);
}

static void cases(void **state) {
    (void)state;
    char path[512], line[1024];
    int checked = 0;
    snprintf(path, sizeof path, "%s/tests/golden/cases.txt", LS_TEST_SOURCE);
    FILE *list = fopen(path, "r");
    assert_non_null(list);
    while (fgets(line, sizeof line, list) != NULL) {
        char file[128], words[512];
        double forward, backward;
        if (line[0] == '#' || strstr(line, "mixer=attention ") == NULL) continue;
        /* not of f64, of inference, or of one stream: `apply` compares these */
        static const char *const of_apply[] = {" dtype=", " training=", "=call", "-train."};
        bool skipped = false;
        for (size_t i = 0; i < sizeof of_apply / sizeof *of_apply; i++)
            skipped |= strstr(line, of_apply[i]) != NULL;
        if (skipped) continue;
        assert_int_equal(
            sscanf(line, "%127s | %511[^|]| %lf %lf", file, words, &forward, &backward), 4);
        check_case(file, words, forward, backward);
        checked++;
    }
    fclose(list);
    assert_true(checked >= 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
