/* What `longshot apply` can run: one mixer alone, one position method alone, a whole model, the
 * selective scan, and what public code computes before anything is learned. */
#ifndef LS_CLI_APPLY_H
#define LS_CLI_APPLY_H

#include "cli/apply_keys.h"

ls_status ls_apply_mixer(ls_cli *cli, const ls_apply_keys *keys);
ls_status ls_apply_position(ls_cli *cli, const ls_apply_keys *keys);
ls_status ls_apply_model(ls_cli *cli, const ls_apply_keys *keys);
ls_status ls_apply_scan(ls_cli *cli, const ls_apply_keys *keys);
ls_status ls_apply_tables(ls_cli *cli, const ls_apply_keys *keys);
/* Keys of tables alone. */
extern const ls_option_table ls_apply_tables_options;

#endif
