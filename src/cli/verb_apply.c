/* longshot apply: one mechanism alone, on tensors from files, and against reference values. */
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "compare/compare.h"
#include "model/model.h"

static ls_status print_rows(ls_cli *cli, const ls_comparison *comparison) {
    ls_ctx *ctx = &cli->ctx;
    const char *worst = NULL;
    json_t *rows = cli->json ? json_array() : NULL;
    ls_text text = {0};
    for (size_t i = 0; i < comparison->count; i++) {
        const ls_comparison_row *row = &comparison->rows[i];
        if (!row->good && worst == NULL) worst = row->tensor;
        ls_text_printf(ctx, &text, "%-40s %10.2e  %s\n", row->tensor, row->difference,
                       row->good ? "good" : "BEYOND");
        if (cli->json)
            json_array_append_new(
                rows, json_pack("{s:s, s:o, s:f, s:b}", "tensor", row->tensor, "difference",
                                isinf(row->difference) ? json_null() : json_real(row->difference),
                                "tolerance", row->tolerance, "good", row->good));
    }
    if (cli->json && json_array_size(rows) != comparison->count) {
        json_decref(rows);
        rows = NULL;
    }
    ls_status status;
    if (cli->json) {
        ls_text_clear(ctx, &text);
        status = ls_cli_print_json(cli, rows);
    } else {
        status = ls_cli_print_text(cli, &text);
    }
    if (status != LS_OK || worst == NULL) return status;
    return LS_FAIL(ctx, LS_EBAR, "%s differs by more than its tolerance", worst);
}

static ls_status print_table(ls_cli *cli, const ls_comparison *comparison) {
    ls_text text = {0};
    for (int64_t r = 0; r < comparison->lines; r++)
        for (int64_t c = 0; c < comparison->columns; c++)
            ls_text_printf(&cli->ctx, &text, "%.17g%s",
                           comparison->table[r * comparison->columns + c],
                           c + 1 < comparison->columns ? " " : "\n");
    return ls_cli_print_text(cli, &text);
}

/* What is compared: a word, or by the keys a mixer or a position method. */
static ls_status choose(ls_cli *cli, const ls_compare_keys *keys, const char **out) {
    static const char *const words[] = {"model",  "scan",   "tables", "metric",
                                        "prompt", "reader", "heads"};
    *out = keys->mixer[0] != '\0' ? "mixer" : keys->position[0] != '\0' ? "position" : NULL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (cli->word_count == 1 && strcmp(cli->words[0], words[i]) == 0) {
            *out = words[i];
            return LS_OK;
        }
    if (cli->word_count > 0)
        return LS_FAIL(&cli->ctx, LS_EUSE,
                       "`%s` is not key=value, nor the word model, scan, tables, metric, prompt, "
                       "reader or heads",
                       cli->words[cli->word_count - 1]);
    if (*out != NULL) return LS_OK;
    return LS_FAIL(
        &cli->ctx, LS_EUSE,
        "say what to apply: mixer=NAME, position=NAME, model, scan, tables, metric, prompt, "
        "or reader");
}

static ls_status run(ls_cli *cli) {
    ls_compare_keys keys;
    ls_comparison comparison = {0};
    ls_comparer *comparer = NULL;
    const char *what;
    ls_status status;
    LS_TRY(ls_options_default(&cli->ctx, &ls_compare_options, &keys));
    LS_TRY(ls_settings_take_top(&cli->ctx, &cli->settings, "apply", &ls_compare_options, &keys));
    LS_TRY(choose(cli, &keys, &what));
    LS_TRY_GOTO(ls_comparer_new(&cli->ctx, what, &keys, &cli->settings, &comparer));
    LS_TRY_GOTO(ls_cli_finish_settings(cli));
    LS_TRY_GOTO(ls_comparer_run(comparer, &comparison));
    if (comparison.sizes.length > 0)
        ls_say(&cli->ctx, "from the shapes of the file:%s", comparison.sizes.bytes);
    if (comparison.skipped.length > 0)
        ls_say(&cli->ctx, "not compared, as nothing here computes it: %s",
               comparison.skipped.bytes);
    if (comparison.count > 0) LS_TRY_GOTO(print_rows(cli, &comparison));
    if (comparison.table != NULL) status = print_table(cli, &comparison);
fail:
    ls_comparer_free(comparer);
    ls_comparison_clear(&cli->ctx, &comparison);
    return status;
}

static const ls_section sections[] = {
    {"", &ls_compare_options}, {"", &ls_compare_tables_options}, {"model", &ls_model_options}, {0}};
const ls_verb ls_verb_apply = {
    .name = "apply",
    .place = 12,
    .summary = "Run a mixer, a position method, a model or a scan on tensors from files",
    .usage =
        "mixer=NAME [key=value ...] weights=W input=X output=Y | [model|scan|tables|metric|prompt|reader|heads] ... "
        "golden=FILE",
    .about =
        "Weights may bear the names of public code, which the mixer maps; sizes that the shapes\n"
        "of the file tell need not be given. With golden= every output and gradient of the file\n"
        "is compared; exit code 1 where one differs by more than its tolerance, relative to the\n"
        "largest reference value. Without a mixer the table of a position method is printed,\n"
        "written or compared.\n"
        "With the word model a whole language model, described as for training, is compared:\n"
        "outputs, losses, what is carried from piece to piece, and gradients. names= says what\n"
        "the file calls its weights, inputs and outputs: see docs/apply.md.\n"
        "With from= the model is a public checkpoint, and the file has its expected values: see\n"
        "docs/checkpoints.md.\n"
        "With the word scan Mamba's selective scan is compared, by the names of its public code.\n"
        "With the word tables every out.NAME of the file is a table that public code computes\n"
        "before anything is learned, known by its name: HiPPO's matrices and modes, BigBird's\n"
        "random blocks, LongT5's block ids. Integers must be equal.\n"
        "With the words metric, prompt and reader golden= is a .jsonl file that the official code\n"
        "of the benchmark suites made: scores must be equal to 1e-9, prompts byte for byte, ids\n"
        "one by one. prompt takes the tokenizer from= a folder, and input= the folder with the\n"
        "files that items come from: see docs/suites.md. With the word heads scores of attention\n"
        "heads are compared, which are computed from the patterns and weights of the file.\n",
    .sections = sections,
    .model_keys = true,
    .run = run,
};
