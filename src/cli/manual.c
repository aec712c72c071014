/* Help, manual page, completion, docs/options.md and docs/errors.md: all from the tables of verbs,
 * options, mixers, positions, extensions and status codes. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "model/model.h"
#include "task/task.h"

void ls_option_range(const ls_option *option, char *out, size_t bytes) {
    switch (option->type) {
    case LS_OPTION_INT:
    case LS_OPTION_REAL:
        snprintf(out, bytes, "%.10g to %.10g", option->low, option->high);
        break;
    case LS_OPTION_BOOL:
        snprintf(out, bytes, "true|false");
        break;
    case LS_OPTION_CHOICE:
        snprintf(out, bytes, "%s", option->choices);
        break;
    case LS_OPTION_TEXT:
        snprintf(out, bytes, "text");
        break;
    case LS_OPTION_INTS:
    case LS_OPTION_REALS:
        snprintf(out, bytes, "numbers %.10g to %.10g, as 1,2,4", option->low, option->high);
        break;
    }
}

/* What an option means, and what it needs to have an effect. */
static void meaning(const ls_option *option, char *out, size_t bytes) {
    const bool free = option->needs == NULL;
    snprintf(out, bytes, "%s%s%s%s", option->help, free ? "" : " Needs ", free ? "" : option->needs,
             free ? "" : ".");
}

static void full_key(const ls_section *section, const ls_option *option, char *out, size_t bytes) {
    snprintf(out, bytes, "%s%s%s", section->prefix, section->prefix[0] == '\0' ? "" : ".",
             option->key);
}

/* ---- help ---- */

void ls_help_program(ls_ctx *ctx, ls_text *out) {
    ls_text_printf(ctx, out,
                   "longshot trains sequence models short and tests them long.\n\n"
                   "  longshot VERB [RECIPE.yaml] [key=value ...] [--json] [--quiet]\n\n");
    for (size_t i = 0; ls_verb_at(i) != NULL; i++)
        ls_text_printf(ctx, out, "  %-10s %s\n", ls_verb_at(i)->name, ls_verb_at(i)->summary);
    ls_text_printf(ctx, out, "\n`longshot help VERB` lists the keys of a verb.\n");
}

static void help_section(ls_ctx *ctx, const ls_section *section, ls_text *out) {
    for (size_t i = 0; i < section->table->count; i++) {
        const ls_option *option = &section->table->options[i];
        char key[128], range[256], text[512];
        full_key(section, option, key, sizeof key);
        ls_option_range(option, range, sizeof range);
        meaning(option, text, sizeof text);
        ls_text_printf(ctx, out, "  %s=%s  (%s)\n      %s\n", key, option->fallback, range, text);
    }
}

static const char model_keys_text[] =
    "  mixer.KEY, position.KEY   options of the mixer and the position method that model.mixer\n"
    "                            and model.position name: `longshot inspect mixers`,\n"
    "                            `longshot inspect positions`\n"
    "  mixer.NAME.KEY            the same for one of several mixers\n"
    "  extend=NAME[,NAME]        extension of positions, with its extend.KEY:\n"
    "                            `longshot inspect extensions`\n";

void ls_help_verb(ls_ctx *ctx, const ls_verb *verb, ls_text *out) {
    ls_text_printf(ctx, out, "longshot %s %s\n\n%s.\n\n%s\n", verb->name, verb->usage,
                   verb->summary, verb->about);
    if (verb->sections != NULL || verb->model_keys)
        ls_text_printf(ctx, out, "Keys, with their defaults:\n");
    for (const ls_section *s = verb->sections; s != NULL && s->table != NULL; s++)
        help_section(ctx, s, out);
    if (verb->model_keys) ls_text_printf(ctx, out, "%s", model_keys_text);
    ls_text_printf(ctx, out, "\nKeys of every verb:\n");
    const ls_section common = {"", &ls_common_options};
    help_section(ctx, &common, out);
    ls_text_fold(ctx, out, 0);
}

/* ---- manual page ---- */

/* Text with what troff would take as its own put out of its way. */
static void troff(ls_ctx *ctx, const char *text, ls_text *out) {
    for (const char *c = text; *c != '\0'; c++) {
        bool line_start = c == text || c[-1] == '\n';
        if (line_start && (*c == '.' || *c == '\'')) ls_text_append(ctx, out, "\\&", 2);
        if (*c == '\\')
            ls_text_append(ctx, out, "\\e", 2);
        else if (*c == '-')
            ls_text_append(ctx, out, "\\-", 2);
        else if (*c == '|')
            ls_text_append(ctx, out, "|\\:", 3); /* a line may end here */
        else
            ls_text_append(ctx, out, c, 1);
    }
}

static void manual_section(ls_ctx *ctx, const ls_section *section, ls_text *out) {
    for (size_t i = 0; i < section->table->count; i++) {
        const ls_option *option = &section->table->options[i];
        char key[128], range[256], text[512];
        full_key(section, option, key, sizeof key);
        ls_option_range(option, range, sizeof range);
        meaning(option, text, sizeof text);
        ls_text_printf(ctx, out, ".TP\n.B ");
        troff(ctx, key, out);
        ls_text_append(ctx, out, "=", 1);
        troff(ctx, option->fallback, out);
        ls_text_append(ctx, out, "\n", 1);
        troff(ctx, text, out);
        ls_text_printf(ctx, out, " (");
        troff(ctx, range, out);
        ls_text_printf(ctx, out, ")\n");
    }
}

void ls_manual_page(ls_ctx *ctx, ls_text *out) {
    ls_text_printf(ctx, out,
                   ".TH LONGSHOT 1\n.SH NAME\nlongshot \\- train sequence models short, test them "
                   "long\n.SH SYNOPSIS\n.B longshot\n.I VERB\n[\\fIRECIPE.yaml\\fR] "
                   "[\\fIkey\\fR=\\fIvalue\\fR ...] [\\-\\-json] [\\-\\-quiet]\n.SH DESCRIPTION\n"
                   "Results go to the standard output, progress and messages to the standard "
                   "error.\nA recipe is a YAML file; words key=value override it.\n"
                   "An unknown key is an error that names the nearest one.\n.SH COMMON KEYS\n");
    const ls_section common = {"", &ls_common_options};
    manual_section(ctx, &common, out);
    ls_text_printf(ctx, out, ".SH VERBS\n");
    for (size_t i = 0; ls_verb_at(i) != NULL; i++) {
        const ls_verb *verb = ls_verb_at(i);
        ls_text_printf(ctx, out, ".SS longshot %s ", verb->name);
        troff(ctx, verb->usage, out);
        ls_text_printf(ctx, out, "\n");
        troff(ctx, verb->summary, out);
        ls_text_printf(ctx, out, ".\n.PP\n");
        troff(ctx, verb->about, out);
        for (const ls_section *s = verb->sections; s != NULL && s->table != NULL; s++)
            manual_section(ctx, s, out);
    }
    ls_text_printf(ctx, out, ".SH EXIT STATUS\n");
#define ROW(name, value, exit_code, text, hint)                                                    \
    ls_text_printf(ctx, out, ".TP\n%d\n%s\n", exit_code, text);
    LS_STATUS_MAP(ROW)
#undef ROW
    ls_text_printf(ctx, out,
                   ".SH ENVIRONMENT\n.TP\nNO_COLOR\nno live line on the terminal\n.TP\n"
                   "OMP_NUM_THREADS\nworker threads where threads= is not given\n.TP\n"
                   "XDG_CACHE_HOME\nwhere token files are kept\n");
}

/* ---- docs ---- */

/* A bar would end the cell of a table. */
static void cell(ls_ctx *ctx, const char *text, ls_text *out) {
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '|') ls_text_append(ctx, out, "\\", 1);
        ls_text_append(ctx, out, c, 1);
    }
}

/* A paragraph, in lines of at most 100 columns. */
static void paragraph(ls_ctx *ctx, ls_text *out, const char *text) {
    size_t column = 0;
    while (*text != '\0') {
        const size_t word = strcspn(text, " ");
        const bool fits = column + 1 + word <= 100;
        if (column > 0) ls_text_append(ctx, out, fits ? " " : "\n", 1);
        column = column > 0 && fits ? column + 1 + word : word;
        ls_text_append(ctx, out, text, word);
        text += word + strspn(text + word, " ");
    }
    ls_text_append(ctx, out, "\n", 1);
}

/* What a mechanism is and where it comes from. */
static void described(ls_ctx *ctx, ls_text *out, const char *summary, const char *paper) {
    char text[1024];
    snprintf(text, sizeof text, "%s (%s)", summary, paper);
    paragraph(ctx, out, text);
}

static void options_table(ls_ctx *ctx, const ls_section *section, ls_text *out) {
    if (section->table->count == 0) {
        ls_text_printf(ctx, out, "\nNo options.\n");
        return;
    }
    ls_text_printf(ctx, out, "\n| key | default | values | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < section->table->count; i++) {
        const ls_option *option = &section->table->options[i];
        char key[128], range[256], text[512];
        full_key(section, option, key, sizeof key);
        ls_option_range(option, range, sizeof range);
        meaning(option, text, sizeof text);
        ls_text_printf(ctx, out, "| `%s` | ", key);
        if (option->fallback[0] != '\0') ls_text_printf(ctx, out, "`%s`", option->fallback);
        ls_text_printf(ctx, out, " | ");
        cell(ctx, range, out);
        ls_text_printf(ctx, out, " | ");
        cell(ctx, text, out);
        ls_text_printf(ctx, out, " |\n");
    }
}

static void task_tables(ls_ctx *ctx, ls_text *out) {
    for (size_t i = 0; i < ls_task_count; i++) {
        const ls_task_type *type = ls_task_types[i];
        const ls_section section = {"task", &type->options};
        ls_text_printf(ctx, out, "\n## Task `%s`\n\n", type->name);
        described(ctx, out, type->summary, type->paper);
        options_table(ctx, &section, out);
    }
}

void ls_manual_options(ls_ctx *ctx, ls_text *out) {
    ls_text_printf(ctx, out,
                   "# Options\n\nGenerated by `longshot help --options`.\n"
                   "Every key can stand in a recipe, or on the command line as `key=value`.\n\n"
                   "## Every verb\n");
    const ls_section common = {"", &ls_common_options};
    options_table(ctx, &common, out);
    for (size_t i = 0; ls_verb_at(i) != NULL; i++) {
        const ls_verb *verb = ls_verb_at(i);
        ls_text_printf(ctx, out, "\n## longshot %s\n\n%s:\n\n```text\nlongshot %s %s\n```\n",
                       verb->name, verb->summary, verb->name, verb->usage);
        for (const ls_section *s = verb->sections; s != NULL && s->table != NULL; s++)
            options_table(ctx, s, out);
        if (verb->model_keys)
            ls_text_printf(ctx, out,
                           "\nAlso `mixer.*`, `position.*`, `extend` and `extend.*`, see below.\n");
    }
    for (size_t i = 0; i < ls_mixer_count; i++) {
        const ls_mixer_type *type = ls_mixer_types[i];
        const ls_section section = {"mixer", &type->options};
        ls_text_printf(ctx, out, "\n## Mixer `%s`\n\n", type->name);
        described(ctx, out, type->summary, type->paper);
        options_table(ctx, &section, out);
    }
    for (size_t i = 0; i < ls_position_count; i++) {
        const ls_position_type *type = ls_position_types[i];
        const ls_section section = {"position", &type->options};
        ls_text_printf(ctx, out, "\n## Position method `%s`\n\n", type->name);
        described(ctx, out, type->summary, type->paper);
        options_table(ctx, &section, out);
    }
    for (size_t i = 0; i < ls_extension_count; i++) {
        const ls_extension_type *type = ls_extension_types[i];
        const ls_section section = {"extend", &type->options};
        ls_text_printf(ctx, out, "\n## Extension `%s`\n\n", type->name);
        described(ctx, out, type->summary, type->paper);
        options_table(ctx, &section, out);
    }
    task_tables(ctx, out);
}

void ls_manual_errors(ls_ctx *ctx, ls_text *out) {
    ls_text_printf(ctx, out,
                   "# Errors\n\nGenerated by `longshot help --errors`.\n"
                   "A failure prints one sentence and a hint on the standard error.\n"
                   "A sentence that lists names may take several lines.\n"
                   "The program ends with the code of the table.\n\n"
                   "| name | exit code | meaning | what to do |\n|---|---|---|---|\n");
#define ROW(name, value, exit_code, text, hint)                                                    \
    ls_text_printf(ctx, out, "| `LS_%s` | %d | %s | %s |\n", #name, exit_code, text, hint);
    LS_STATUS_MAP(ROW)
#undef ROW
}

/* ---- completion ---- */

static void completion_section(ls_ctx *ctx, const ls_section *section, ls_text *out) {
    for (size_t i = 0; i < section->table->count; i++) {
        char key[128];
        full_key(section, &section->table->options[i], key, sizeof key);
        ls_text_printf(ctx, out, " %s=", key);
    }
}

void ls_manual_completion(ls_ctx *ctx, ls_text *out) {
    const ls_section common = {"", &ls_common_options};
    ls_text_printf(ctx, out,
                   "# Completion of longshot for bash; made by `longshot help --completion`.\n"
                   "_longshot() {\n"
                   "    local word=${COMP_WORDS[COMP_CWORD]} keys=\n"
                   "    COMPREPLY=()\n"
                   "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                   "        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; ls_verb_at(i) != NULL; i++)
        ls_text_printf(ctx, out, "%s%s", i == 0 ? "" : " ", ls_verb_at(i)->name);
    ls_text_printf(ctx, out,
                   " --help --version' -- \"$word\"))\n"
                   "        return\n"
                   "    fi\n"
                   "    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; ls_verb_at(i) != NULL; i++) {
        ls_text_printf(ctx, out, "    %s) keys='--json --quiet --help", ls_verb_at(i)->name);
        for (const ls_section *s = ls_verb_at(i)->sections; s != NULL && s->table != NULL; s++)
            completion_section(ctx, s, out);
        completion_section(ctx, &common, out);
        ls_text_printf(ctx, out, "' ;;\n");
    }
    ls_text_printf(ctx, out,
                   "    esac\n"
                   "    COMPREPLY=($(compgen -W \"$keys\" -- \"$word\") $(compgen -f -- "
                   "\"$word\"))\n"
                   "    case ${COMPREPLY[0]} in *=) compopt -o nospace ;; esac\n"
                   "}\n"
                   "complete -o filenames -F _longshot longshot\n");
}
