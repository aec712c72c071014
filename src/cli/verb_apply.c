/* longshot apply: one mechanism alone, on tensors from files, and against reference values. */
#include <string.h>

#include "cli/apply.h"
#include "model/model.h"

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    ls_apply_keys about;
    LS_TRY(ls_cli_read(cli, "", &ls_apply_options, &about));
    const char *word = cli->word_count == 1 ? cli->words[0] : "";
    if (strcmp(word, "model") == 0) return ls_apply_model(cli, &about);
    if (strcmp(word, "scan") == 0) return ls_apply_scan(cli, &about);
    if (strcmp(word, "tables") == 0) return ls_apply_tables(cli, &about);
    if (cli->word_count > 0)
        return LS_FAIL(ctx, LS_EUSE, "`%s` is not key=value, nor the word model, scan or tables",
                       cli->words[cli->word_count - 1]);
    if (about.mixer[0] != '\0') return ls_apply_mixer(cli, &about);
    if (about.position[0] != '\0') return ls_apply_position(cli, &about);
    return LS_FAIL(ctx, LS_EUSE,
                   "say what to apply: mixer=NAME, position=NAME, model, scan, or tables");
}

static const ls_section sections[] = {
    {"", &ls_apply_options}, {"", &ls_apply_tables_options}, {"model", &ls_model_options}, {0}};
const ls_verb ls_verb_apply = {
    .name = "apply",
    .summary = "Run a mixer, a position method, a model or a scan on tensors from files",
    .usage = "mixer=NAME [key=value ...] weights=W input=X output=Y | [model|scan|tables] ... "
             "golden=FILE",
    .about =
        "Weights may bear the names of public code, which the mixer maps. With golden= every\n"
        "output and gradient of the file is compared; exit code 1 where one differs by more\n"
        "than its tolerance, relative to the largest reference value. Without a mixer the\n"
        "table of a position method is printed, written or compared.\n"
        "With the word model a whole language model, described as for training, is compared:\n"
        "outputs, losses, what is carried from piece to piece, and gradients. names= says what\n"
        "its weights, inputs and outputs are called in the file: see docs/apply.md.\n"
        "With the word scan Mamba's selective scan is compared, by the names of its public code.\n"
        "With the word tables every out.NAME of the file is a table that public code computes\n"
        "before anything is learned, known by its name: HiPPO's matrices and modes, BigBird's\n"
        "random blocks, LongT5's block ids. Integers must be equal.\n",
    .sections = sections,
    .model_keys = true,
    .run = run,
};
