/* The walk from scale 1 to t and back, in double, for one group of threads: LS_CLEX_EACH(i, count)
 * shares the numbers below count out among them, LS_CLEX_WAIT lets all of them arrive. On the
 * processor there is one. */
#ifndef LS_TENSOR_OP_CLEX_WALK_H
#define LS_TENSOR_OP_CLEX_WALK_H

#include <math.h>

#include "tensor/op/clex/clex.h"

#ifndef LS_CLEX_EACH
#define LS_CLEX_EACH(i, count) for (int64_t i = 0; i < (count); i++)
#define LS_CLEX_WAIT()
#define LS_CLEX_FUNCTION static
#endif

typedef struct clex_walk {
    const ls_clex *about;
    double *up, *down;       /* [pairs][hidden], [hidden][pairs] */
    double *dup, *ddown;     /* likewise; NULL going forward */
    double *z;               /* rows [pairs], one for each step where it goes back; else one */
    double *k[4], *at[4];    /* of the stages of a step: slopes, and where they are taken */
    double *x, *dk, *g, *dz; /* [pairs]; dk is reused for each stage */
    double *sum, *hidden;    /* [hidden]: before and behind the activation */
} clex_walk;

/* Lays the walk out in a room of ls_clex_room doubles. */
LS_CLEX_FUNCTION clex_walk clex_walk_in(const ls_clex *about, double *room, bool backward) {
    clex_walk w;
    const int64_t weights = about->pairs * about->hidden, pairs = about->pairs;
    w.about = about;
    w.up = room, w.down = room + weights, room += 2 * weights;
    w.dup = backward ? room : NULL;
    w.ddown = backward ? room + weights : NULL;
    if (backward) room += 2 * weights;
    w.sum = room, w.hidden = room + about->hidden, room += 2 * about->hidden;
    for (int i = 0; i < 4; i++) w.k[i] = room + i * pairs, w.at[i] = room + (4 + i) * pairs;
    w.x = room + 8 * pairs, w.dk = room + 9 * pairs;
    w.g = room + 10 * pairs, w.dz = room + 11 * pairs;
    w.z = room + 12 * pairs;
    return w;
}

/* x = z + ln g(t), and the hidden layer of it. */
LS_CLEX_FUNCTION void clex_hidden(clex_walk *w, double t, const double *z) {
    const int64_t pairs = w->about->pairs, hidden = w->about->hidden;
    const double d = 2 * (double)pairs;
    LS_CLEX_EACH(i, pairs) {
        w->x[i] =
            z[i] - 2 * (double)i / d * log(10000.0) - 2 * (double)i / (d - 2) * log(2 * t - 1);
    }
    LS_CLEX_WAIT();
    LS_CLEX_EACH(j, hidden) {
        double sum = 0;
        for (int64_t i = 0; i < pairs; i++) sum += w->x[i] * w->up[i * hidden + j];
        w->sum[j] = sum;
        w->hidden[j] = w->about->tanh ? tanh(sum) : sum / (1 + exp(-sum));
    }
    LS_CLEX_WAIT();
}

LS_CLEX_FUNCTION void clex_slope(clex_walk *w, double t, const double *z, double *k) {
    const int64_t pairs = w->about->pairs, hidden = w->about->hidden;
    clex_hidden(w, t, z);
    LS_CLEX_EACH(i, pairs) {
        double sum = 0;
        for (int64_t j = 0; j < hidden; j++) sum += w->hidden[j] * w->down[j * pairs + i];
        k[i] = sum - 4 * (double)i / ((2 * (double)pairs - 2) * (2 * t - 1));
    }
    LS_CLEX_WAIT();
}

/* The four stages of a step from z at t. */
LS_CLEX_FUNCTION void clex_stages(clex_walk *w, double t, double h, const double *z) {
    const int64_t pairs = w->about->pairs;
    double *const *k = w->k, *const *at = w->at;
    LS_CLEX_EACH(i, pairs) {
        at[0][i] = z[i];
    }
    LS_CLEX_WAIT();
    clex_slope(w, t, at[0], k[0]);
    LS_CLEX_EACH(i, pairs) {
        at[1][i] = z[i] + h * k[0][i] / 3;
    }
    LS_CLEX_WAIT();
    clex_slope(w, t + h / 3, at[1], k[1]);
    LS_CLEX_EACH(i, pairs) {
        at[2][i] = z[i] + h * (k[1][i] - k[0][i] / 3);
    }
    LS_CLEX_WAIT();
    clex_slope(w, t + 2 * h / 3, at[2], k[2]);
    LS_CLEX_EACH(i, pairs) {
        at[3][i] = z[i] + h * (k[0][i] - k[1][i] + k[2][i]);
    }
    LS_CLEX_WAIT();
    clex_slope(w, t + h, at[3], k[3]);
}

/* z at `scale` in the last row; with rows for each step all are kept. Returns that row. */
LS_CLEX_FUNCTION double *clex_forward(clex_walk *w, int64_t scale, bool keeps) {
    const int64_t pairs = w->about->pairs, steps = (scale - 1) * w->about->steps;
    const double h = 1 / (double)w->about->steps;
    double *z = w->z;
    LS_CLEX_EACH(i, pairs) {
        z[i] = log(w->about->frequency[i]);
    }
    LS_CLEX_WAIT();
    for (int64_t step = 0; step < steps; step++) {
        double *next = keeps ? z + pairs : z;
        clex_stages(w, 1 + (double)step * h, h, z);
        LS_CLEX_EACH(i, pairs) {
            next[i] = z[i] + h * (w->k[0][i] + 3 * (w->k[1][i] + w->k[2][i]) + w->k[3][i]) / 8;
        }
        LS_CLEX_WAIT();
        z = next;
    }
    return z;
}

/* Back through a slope at t: dk -> g, the gradient of where it was taken; weights' are added. */
LS_CLEX_FUNCTION void clex_slope_back(clex_walk *w, double t, const double *at) {
    const int64_t pairs = w->about->pairs, hidden = w->about->hidden;
    clex_hidden(w, t, at);
    LS_CLEX_EACH(j, hidden) {
        double sum = 0;
        for (int64_t i = 0; i < pairs; i++) {
            sum += w->dk[i] * w->down[j * pairs + i];
            w->ddown[j * pairs + i] += w->hidden[j] * w->dk[i];
        }
        const double a = w->sum[j], s = 1 / (1 + exp(-a));
        w->sum[j] =
            sum * (w->about->tanh ? 1 - w->hidden[j] * w->hidden[j] : s * (1 + a * (1 - s)));
    }
    LS_CLEX_WAIT();
    LS_CLEX_EACH(i, pairs) {
        double sum = 0;
        for (int64_t j = 0; j < hidden; j++) {
            sum += w->up[i * hidden + j] * w->sum[j];
            w->dup[i * hidden + j] += w->x[i] * w->sum[j];
        }
        w->g[i] = sum;
    }
    LS_CLEX_WAIT();
}

/* dz of the last row -> gradients of the weights. */
LS_CLEX_FUNCTION void clex_backward(clex_walk *w, int64_t scale) {
    const int64_t pairs = w->about->pairs, steps = (scale - 1) * w->about->steps;
    const double h = 1 / (double)w->about->steps;
    /* what a slope's own gradient and those of the stages behind it are times */
    const double share[4] = {h / 8, 3 * h / 8, 3 * h / 8, h / 8};
    const double of[4][4] = {{0}, {h / 3}, {-h / 3, h}, {h, -h, h}};
    for (int64_t step = steps - 1; step >= 0; step--) {
        const double t = 1 + (double)step * h;
        clex_stages(w, t, h, w->z + step * pairs);
        /* k becomes the gradient of the slopes */
        LS_CLEX_EACH(i, pairs) {
            for (int s = 0; s < 4; s++) w->k[s][i] = share[s] * w->dz[i];
        }
        LS_CLEX_WAIT();
        for (int s = 3; s >= 0; s--) {
            LS_CLEX_EACH(i, pairs) {
                w->dk[i] = w->k[s][i];
            }
            LS_CLEX_WAIT();
            clex_slope_back(w, s == 3 ? t + h : t + s * h / 3, w->at[s]);
            LS_CLEX_EACH(i, pairs) {
                w->dz[i] += w->g[i];
                for (int before = 0; before < s; before++)
                    w->k[before][i] += of[s][before] * w->g[i];
            }
            LS_CLEX_WAIT();
        }
    }
}

#endif
