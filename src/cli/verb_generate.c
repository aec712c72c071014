/* longshot generate: text from a trained model, as it comes. */
#include <stdio.h>
#include <string.h>

#include "api/generate.h"
#include "cli/cli.h"

typedef struct generate_keys {
    char prompt_file[LS_OPTION_TEXT_BYTES];
    int64_t tokens, top_k;
    double temperature, top_p;
} generate_keys;
#define FIELD(name) generate_keys, name
static const ls_option keys[] = {
    LS_TEXT("prompt_file", FIELD(prompt_file), "",
            "File with the prompt, whose last newline is left out; `-`: the standard input."),
    LS_INT("tokens", FIELD(tokens), "200", 1, 1 << 30, "Tokens to generate at most."),
    LS_REAL("temperature", FIELD(temperature), "0.8", 0, 100,
            "Divisor of the logits; 0: always the most likely token."),
    LS_INT("top_k", FIELD(top_k), "0", 0, 1 << 24, "Most likely tokens to choose among; 0: all.",
           .needs = "temperature!=0"),
    LS_REAL("top_p", FIELD(top_p), "1", 0, 1,
            "Probability of the most likely tokens to choose among, together.",
            .needs = "temperature!=0"),
};
static const ls_option_table key_table = LS_OPTIONS(keys, generate_keys);

/* Of any length, so it is read as it was given. */
static const ls_option prompt_keys[] = {
    {.key = "prompt",
     .type = LS_OPTION_TEXT,
     .fallback = "",
     .help = "Text to continue, of any length; empty: the start of a document, or of a line; `-`: "
             "the standard input."},
};
static const ls_option_table prompt_table = LS_OPTIONS(prompt_keys, char[LS_OPTION_TEXT_BYTES]);

/* What was printed so far. The prompt waits for the first token: a prompt that is refused is not
 * printed before the refusal. */
typedef struct printing {
    ls_cli *cli;
    const ls_text *prompt; /* NULL once it is printed, and where it is read and not gone on with */
} printing;

static ls_status print_prompt(printing *state) {
    const ls_text *prompt = state->prompt;
    state->prompt = NULL;
    return prompt == NULL ? LS_OK : ls_cli_print(state->cli, prompt->bytes, prompt->length);
}

static ls_status print_token(void *user, int32_t token, const char *bytes, size_t length) {
    printing *state = user;
    (void)token;
    if (*ls_cli_stop() != 0) return LS_FAIL(&state->cli->ctx, LS_ESTOP, "stopped");
    LS_TRY(print_prompt(state));
    return ls_cli_print(state->cli, bytes, length);
}

static bool is_given(const ls_cli *cli, const char *key) {
    char full[64];
    snprintf(full, sizeof full, "generate.%s", key);
    return ls_settings_has(&cli->settings, key) || ls_settings_has(&cli->settings, full);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    generate_keys about;
    ls_trained trained = {.ctx = ctx};
    ls_text prompt = {0};
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    if (cli->word_count < 1 || cli->word_count > 2)
        return LS_FAIL(ctx, LS_EUSE, "say which run: longshot generate RUN \"TEXT\"");
    const ls_sampling_given given = {.temperature = is_given(cli, "temperature"),
                                     .top_k = is_given(cli, "top_k"),
                                     .top_p = is_given(cli, "top_p")};
    ls_sampling how = {.temperature = about.temperature,
                       .top_k = about.top_k,
                       .top_p = about.top_p,
                       .seed = (uint64_t)cli->common.seed};
    ls_status status;
    LS_TRY_GOTO(ls_cli_prompt(cli, about.prompt_file, &prompt));
    LS_TRY_GOTO(ls_trained_open(ctx, cli->words[0], &cli->settings, NULL, &trained));
    LS_TRY_GOTO(ls_cli_finish_settings(cli));
    LS_TRY_GOTO(ls_trained_needs_text(&trained));
    ls_generate_as_published(&trained, given, &how);
    const bool goes_on = trained.config.encoder_layers == 0 && trained.config.model.causal;
    printing state = {.cli = cli, .prompt = goes_on ? &prompt : NULL};
    LS_TRY_GOTO(ls_generate(&trained, prompt.bytes, about.tokens, &how, print_token, &state));
    LS_TRY_GOTO(print_prompt(&state)); /* where the text ended at once */
    status = ls_cli_print(cli, "\n", 1);
fail:
    ls_text_clear(ctx, &prompt);
    ls_trained_clear(&trained);
    return status;
}

static const ls_section sections[] = {{"", &prompt_table}, {"", &key_table}, {0}};
const ls_verb ls_verb_generate = {
    .name = "generate",
    .place = 6,
    .summary = "Write text with a trained model",
    .usage =
        "RUN|CHECKPOINT|FOLDER [TEXT|prompt=TEXT|prompt_file=FILE] [tokens=N] [extend=NAME extend.KEY=VALUE] [key=value ...]",
    .about =
        "The prompt and what follows it go to the standard output as they are made. The same\n"
        "seed gives the same text. A folder may be a public checkpoint (docs/checkpoints.md): its\n"
        "generation_config.json then says how tokens are drawn where no key does.\n",
    .sections = sections,
    .model_keys = true,
    .computes = true,
    .run = run,
};
