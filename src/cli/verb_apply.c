/* longshot apply: one mechanism alone, on tensors from files, and against reference values. */
#include "cli/apply.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "model/model.h"

#define FIELD(name) offsetof(ls_apply_keys, name)
static const ls_option keys[] = {
    {"mixer", LS_OPTION_TEXT, FIELD(mixer), "", 0, 0, NULL,
     "Mixer to run; its own options follow as key=value."},
    {"position", LS_OPTION_TEXT, FIELD(position), "", 0, 0, NULL,
     "Position method of the mixer, or without a mixer the one whose table is asked for."},
    {"weights", LS_OPTION_TEXT, FIELD(weights), "", 0, 0, NULL,
     "File of weights, under our names or the official ones."},
    {"input", LS_OPTION_TEXT, FIELD(input), "", 0, 0, NULL,
     "File with x [B,T,D]; optionally cot (for grad) and state."},
    {"output", LS_OPTION_TEXT, FIELD(output), "", 0, 0, NULL,
     "File for y, the state, and with grad=true grad.x and grad.PARAMETER."},
    {"golden", LS_OPTION_TEXT, FIELD(golden), "", 0, 0, NULL,
     "File of reference values (in.*, w.*, out.*, cot, grad.*) to compare with."},
    {"names", LS_OPTION_TEXT, FIELD(names), "", 0, 0, NULL,
     "model: what the file calls things: a public code (transformer-xl, compressive, gpt2, "
     "memformer, llama, mpt, mamba, retnet, t5), or a file of rules; empty: our names."},
    {"tensor", LS_OPTION_TEXT, FIELD(tensor), "y", 0, 0, NULL,
     "Without a mixer: which out.NAME of the golden file to compare."},
    {"trained_length", LS_OPTION_INT, FIELD(trained_length), "0", 0, 1 << 30, NULL,
     "Length the weights were trained at, for extensions; 0: not known."},
    {"width", LS_OPTION_INT, FIELD(width), "0", 0, 65536, NULL, "Without a mixer: model width."},
    {"heads", LS_OPTION_INT, FIELD(heads), "1", 1, 4096, NULL, "Without a mixer: heads."},
    {"length", LS_OPTION_INT, FIELD(length), "1", 1, 1 << 24, NULL, "Without a mixer: positions."},
    {"capacity", LS_OPTION_INT, FIELD(capacity), "0", 0, 1 << 30, NULL,
     "Tokens that a state has room for; 0: those of the input."},
    {"layout", LS_OPTION_CHOICE, FIELD(layout), "BTD", 0, 0, "BTD|TBD",
     "Order of batch and time in the files."},
    {"dtype", LS_OPTION_CHOICE, FIELD(dtype), "f64", 0, 0, "f64|f32|bf16", "Arithmetic."},
    {"grad", LS_OPTION_BOOL, FIELD(grad), "false", 0, 0, NULL,
     "Also gradients of sum(y * cot); a golden file with cot implies it."},
    {"causal", LS_OPTION_BOOL, FIELD(causal), "true", 0, 0, NULL, "Later tokens stay unseen."},
    {"tol", LS_OPTION_REAL, FIELD(tol), "1e-11", 0, 1e9, NULL,
     "Largest relative difference of outputs that passes."},
    {"grad_tol", LS_OPTION_REAL, FIELD(grad_tol), "1e-10", 0, 1e9, NULL,
     "Largest relative difference of gradients that passes."},
    {"cut", LS_OPTION_REALS, FIELD(cut), "", 1, 1 << 24, NULL,
     "Lengths of the chunks in which x or the tokens are fed, the last repeated, with the state "
     "carried on; empty: all at once."},
    {"source_cut", LS_OPTION_REALS, FIELD(source_cut), "", 1, 1 << 24, NULL,
     "model with an encoder: tokens of each source, where cut= makes several pieces."},
};
static const ls_option_table key_table = LS_OPTIONS(keys, ls_apply_keys);

ls_status ls_apply_cuts(ls_ctx *ctx, const char *key, const ls_reals *reals, int64_t *out) {
    for (int64_t i = 0; i < reals->count; i++) {
        out[i] = (int64_t)reals->at[i];
        if ((double)out[i] != reals->at[i])
            return LS_FAIL(ctx, LS_EUSE, "%s: %g is no whole number", key, reals->at[i]);
    }
    return LS_OK;
}

void ls_exchange_axes(const double *from, int64_t a, int64_t b, int64_t width, double *to) {
    for (int64_t i = 0; i < a; i++)
        for (int64_t j = 0; j < b; j++)
            memcpy(to + (j * a + i) * width, from + (i * b + j) * width,
                   (size_t)width * sizeof *to);
}

ls_status ls_stored_values(ls_ctx *ctx, const ls_safetensor *tensor, double **out) {
    *out = ls_new(ctx, (size_t)ls_max(tensor->count, 1), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    ls_safetensor_f64(tensor, 0, tensor->count, *out);
    return LS_OK;
}

ls_status ls_compare(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                     const double *computed, const ls_safetensor *reference, double tolerance) {
    double *wanted, difference = 0, largest = 0;
    LS_TRY(ls_stored_values(ctx, reference, &wanted));
    for (int64_t i = 0; i < reference->count; i++) {
        double here = fabs(computed[i] - wanted[i]);
        if (isnan(here)) here = INFINITY;
        if (here > difference) difference = here;
        if (fabs(wanted[i]) > largest) largest = fabs(wanted[i]);
    }
    ls_free(ctx, wanted);
    double rounding = 1000 * (reference->type == LS_STORED_F64 ? DBL_EPSILON : FLT_EPSILON);
    if (largest < rounding * comparison->largest) largest = comparison->largest;
    double relative = largest > 0 ? difference / largest : difference;
    bool good = relative <= tolerance;
    comparison->beyond |= !good;
    if (comparison->rows == NULL) comparison->rows = json_array();
    json_t *row = json_pack("{s:s, s:o, s:f, s:b}", "tensor", name, "difference",
                            isinf(relative) ? json_null() : json_real(relative), "tolerance",
                            tolerance, "good", good);
    if (json_array_append_new(comparison->rows, row) != 0)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for the comparison of %s", name);
    return LS_OK;
}

ls_status ls_comparison_scale(ls_ctx *ctx, const ls_safetensors *file, ls_comparison *comparison) {
    comparison->largest = 0;
    for (size_t i = 0; i < file->count; i++) {
        double *values;
        if (strncmp(file->items[i].name, "grad.", strlen("grad.")) != 0) continue;
        LS_TRY(ls_stored_values(ctx, &file->items[i], &values));
        for (int64_t j = 0; j < file->items[i].count; j++)
            comparison->largest = fmax(comparison->largest, fabs(values[j]));
        ls_free(ctx, values);
    }
    return LS_OK;
}

ls_status ls_comparison_print(ls_cli *cli, ls_comparison *comparison) {
    ls_ctx *ctx = &cli->ctx;
    bool beyond = comparison->beyond;
    ls_status status;
    const char *worst = "";
    ls_text text = {0};
    for (size_t i = 0; i < json_array_size(comparison->rows); i++) {
        const json_t *row = json_array_get(comparison->rows, i);
        const json_t *difference = json_object_get(row, "difference");
        const char *name = json_string_value(json_object_get(row, "tensor"));
        bool good = json_is_true(json_object_get(row, "good"));
        if (!good && worst[0] == '\0') worst = name;
        ls_text_printf(ctx, &text, "%-40s %10.2e  %s\n", name,
                       json_is_null(difference) ? (double)INFINITY : json_real_value(difference),
                       good ? "good" : "BEYOND");
    }
    if (beyond) LS_FAIL(ctx, LS_EBAR, "%s differs by more than its tolerance", worst);
    if (cli->json) {
        ls_text_clear(ctx, &text);
        status = ls_cli_print_json(cli, comparison->rows);
    } else {
        json_decref(comparison->rows);
        status = ls_cli_print_text(cli, &text);
    }
    comparison->rows = NULL;
    return status == LS_OK && beyond ? LS_EBAR : status;
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    ls_apply_keys about;
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    const bool model = cli->word_count == 1 && strcmp(cli->words[0], "model") == 0;
    if (model) return ls_apply_model(cli, &about);
    if (cli->word_count > 0)
        return LS_FAIL(ctx, LS_EUSE, "`%s` is not key=value, nor the word model", cli->words[0]);
    if (about.mixer[0] != '\0') return ls_apply_mixer(cli, &about);
    if (about.position[0] != '\0') return ls_apply_position(cli, &about);
    return LS_FAIL(ctx, LS_EUSE, "say what to apply: mixer=NAME, position=NAME, or model");
}

static const ls_section sections[] = {{"", &key_table}, {"model", &ls_model_options}, {0}};
const ls_verb ls_verb_apply = {
    .name = "apply",
    .summary = "Run a mixer, a position method or a model on tensors from files",
    .usage = "mixer=NAME [key=value ...] weights=W input=X output=Y | [model] ... golden=FILE",
    .about =
        "Weights may bear the names of public code, which the mixer maps. With golden= every\n"
        "output and gradient of the file is compared; exit code 1 where one differs by more\n"
        "than its tolerance, relative to the largest reference value. Without a mixer the\n"
        "table of a position method is printed, written or compared.\n"
        "With the word model a whole language model, described as for training, is compared:\n"
        "outputs, losses, what is carried from piece to piece, and gradients. names= says what\n"
        "its weights, inputs and outputs are called in the file: see docs/apply.md.\n",
    .sections = sections,
    .model_keys = true,
    .run = run,
};
