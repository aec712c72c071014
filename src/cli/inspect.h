/* The two halves of `longshot inspect`. */
#ifndef LS_CLI_INSPECT_H
#define LS_CLI_INSPECT_H

#include "cli/cli.h"

/* A table as a JSON list of options; a new reference. */
json_t *ls_inspect_options(const ls_option_table *table);
/* Prints what a run folder, a checkpoint folder or a safetensors file holds. */
ls_status ls_inspect_path(ls_cli *cli, const char *path);

#endif
