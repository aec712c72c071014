/* No positions: the causal mask alone breaks the symmetry (arXiv 2203.16634). The control arm. */
#include "position/position.h"

const ls_position_type ls_position_none = {
    .name = "none",
    .summary = "no positions: only the causal mask tells tokens apart",
    .paper = "arXiv 2203.16634",
    .traits = LS_POSITION_RELATIVE,
};
