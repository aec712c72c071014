#include "model/marks.h"

int64_t ls_marks_rows(int64_t every, int64_t T, bool due) {
    return every == 0 || T < 1 ? T : T + (T - 1) / every + due;
}

int64_t ls_marks_tokens(int64_t every, int64_t rows, bool due) {
    return every == 0 || rows < 1 ? rows : rows - due - (rows - due) / (every + 1);
}

/* The mark for each of `count` blocks, [count,1,D]. */
static ls_tensor *marks(ls_program *p, ls_tensor *mark, int64_t count) {
    const int64_t D = mark->dim[0];
    return ls_plus_broadcast(p, ls_constant(p, ls_type(p), LS_DIMS(count, 1, D), NULL), mark);
}

/* Rows of tokens [count,n,D] with a mark before or behind each of `count`. */
static ls_tensor *marked(ls_program *p, ls_tensor *mark, ls_tensor *rows, bool before) {
    if (rows == NULL) return NULL;
    ls_tensor *each = marks(p, mark, rows->dim[0]);
    return ls_join_rows(p, 2, before ? (ls_tensor *[]){each, rows} : (ls_tensor *[]){rows, each});
}

static ls_tensor *unmarked(ls_program *p, ls_tensor *rows, bool before) {
    ls_tensor *part[2];
    if (rows == NULL) return NULL;
    const int64_t n = rows->dim[1] - 1;
    ls_cut_rows(p, rows, 2, before ? (int64_t[]){1, n} : (int64_t[]){n, 1}, part);
    return ls_failed(p) ? NULL : part[before];
}

ls_tensor *ls_marks_put(ls_program *p, const ls_model_config *config, bool due, ls_tensor *x) {
    const int64_t every = ls_marks_every(config), D = config->model.width;
    ls_init init = ls_init_normal(config->model.init);
    init.no_decay = true;
    ls_tensor *mark = ls_shared_param(p, "landmark", LS_DIMS(D), init), *part[2];
    if (x == NULL || mark == NULL) return NULL;
    const int64_t B = x->dim[0], T = x->dim[1], blocks = (T - 1) / every;
    if (blocks == 0) return due ? marked(p, mark, x, true) : x;
    ls_cut_rows(p, x, 2, (int64_t[]){blocks * every, T - blocks * every}, part);
    if (ls_failed(p)) return NULL;
    part[0] = marked(p, mark, ls_reshape(p, part[0], LS_DIMS(B * blocks, every, D)), due);
    if (part[0] != NULL) part[0] = ls_reshape(p, part[0], LS_DIMS(B, blocks * (every + 1), D));
    if (due) part[1] = marked(p, mark, part[1], true);
    return ls_join_rows(p, 2, part);
}

ls_tensor *ls_marks_drop(ls_program *p, const ls_model_config *config, bool due, ls_tensor *x) {
    const int64_t every = ls_marks_every(config), D = config->model.width;
    ls_tensor *part[2];
    if (x == NULL) return NULL;
    const int64_t B = x->dim[0], rows = x->dim[1];
    const int64_t blocks = (ls_marks_tokens(every, rows, due) - 1) / every;
    if (blocks == 0) return due ? unmarked(p, x, true) : x;
    ls_cut_rows(p, x, 2, (int64_t[]){blocks * (every + 1), rows - blocks * (every + 1)}, part);
    if (ls_failed(p)) return NULL;
    part[0] = unmarked(p, ls_reshape(p, part[0], LS_DIMS(B * blocks, every + 1, D)), due);
    if (part[0] != NULL) part[0] = ls_reshape(p, part[0], LS_DIMS(B, blocks * every, D));
    if (due) part[1] = unmarked(p, part[1], true);
    return ls_join_rows(p, 2, part);
}
