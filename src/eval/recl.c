#include "eval/recl.h"

#include <math.h>
#include <stdlib.h>

typedef struct hard {
    double loss;
    int64_t token;
} hard;

/* The hardest first; of two alike the earlier one. */
static int by_loss(const void *a, const void *b) {
    const hard *x = a, *y = b;
    if (x->loss != y->loss) return x->loss < y->loss ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

static const double *losses_of(const ls_recl_group *g, int64_t model, int64_t context) {
    return g->loss + (model * g->contexts + context) * g->tokens;
}

/* The least loss of any model at a context, of every token; sorted. */
static void find_hard(const ls_recl_group *g, int64_t context, hard *out) {
    for (int64_t t = 0; t < g->tokens; t++) out[t] = (hard){losses_of(g, 0, context)[t], t};
    for (int64_t i = 1; i < g->models; i++)
        for (int64_t t = 0; t < g->tokens; t++)
            out[t].loss = fmin(out[t].loss, losses_of(g, i, context)[t]);
    qsort(out, (size_t)g->tokens, sizeof *out, by_loss);
}

ls_status ls_recl(ls_ctx *ctx, const ls_recl_group *g, double share, double least, int64_t *index,
                  double *gain) {
    const int64_t steps = g->contexts - 1;
    const int64_t counted = ls_max(1, ls_min(g->tokens, llround(share * (double)g->tokens)));
    hard *list = ls_new(ctx, (size_t)g->tokens, sizeof *list);
    if (list == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < g->models; i++) index[i] = 0;
    for (int64_t c = 0; c < steps; c++) {
        find_hard(g, c, list);
        for (int64_t i = 0; i < g->models; i++) {
            const double *longer = losses_of(g, i, c + 1);
            double before = 0, after = 0;
            for (int64_t j = 0; j < counted; j++) {
                before += list[j].loss;
                after += fmin(list[j].loss, longer[list[j].token]);
            }
            const double here = 1 - exp((after - before) / (double)counted);
            if (gain != NULL) gain[i * steps + c] = here;
            if (index[i] == c && here >= least) index[i] = c + 1;
        }
    }
    ls_free(ctx, list);
    return LS_OK;
}
