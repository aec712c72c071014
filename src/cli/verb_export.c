/* longshot export: a trained model in the files of others. */
#include "cli/cli.h"
#include "train/export.h"

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    const ls_dtype type = LS_F32;
    ls_export_settings settings;
    ls_trained trained;
    const char *family = "";
    LS_TRY(ls_cli_read(cli, "", &ls_export_options, &settings));
    if (cli->word_count != 1)
        return LS_FAIL(ctx, LS_EUSE, "say which model: longshot export RUN to=hf out=FOLDER");
    LS_TRY(ls_trained_open(ctx, cli->words[0], &cli->settings, &type, &trained));
    ls_status status = ls_cli_finish_settings(cli);
    if (status == LS_OK) status = ls_export(&trained, &settings, &family);
    ls_trained_clear(&trained);
    LS_TRY(status);
    ls_text said = {0};
    ls_text_printf(ctx, &said, cli->json ? "{\"family\": \"%s\"}\n" : "family %s\n", family);
    return ls_cli_print_text(cli, &said);
}

static const ls_section sections[] = {{"", &ls_export_options}, {0}};
const ls_verb ls_verb_export = {
    .name = "export",
    .place = 10,
    .summary = "Write a model as a public checkpoint",
    .usage = "RUN|CHECKPOINT|FOLDER out=FOLDER [to=hf] [family=NAME] [dtype=f32|bf16|f16] "
             "[extend=NAME extend.KEY=VALUE]",
    .about =
        "A folder that transformers opens, in the form of a family of public models: config.json,\n"
        "weights, tokenizer. A model that no family has the form of is refused, and what does\n"
        "not fit is named. Extensions of rotary positions that transformers knows are written\n"
        "too. docs/checkpoints.md has the families.\n",
    .sections = sections,
    .model_keys = true,
    .run = run,
};
