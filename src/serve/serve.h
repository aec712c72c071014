/* `longshot serve`: a model behind HTTP. */
#ifndef LS_SERVE_SERVE_H
#define LS_SERVE_SERVE_H

#include "base/settings.h"
#include "train/trained.h"

typedef struct ls_serve_settings {
    char host[LS_OPTION_TEXT_BYTES], name[LS_OPTION_TEXT_BYTES], key_file[LS_OPTION_TEXT_BYTES],
        studies[LS_OPTION_TEXT_BYTES];
    int64_t port, context, sequences, chunk, prefix_mib, queue, clients, body_kib;
    double seconds, read_seconds, drain_seconds;
} ls_serve_settings;
extern const ls_option_table ls_serve_options;

typedef struct ls_serve_hooks {
    const volatile int *stop; /* a sig_atomic_t: counts the signals that came */
    /* Once it listens, at this address. */
    void (*listening)(void *user, const char *address);
    /* After the last: requests for completions that were accepted, and those whose client was sent
     * the whole answer. */
    void (*ended)(void *user, int64_t accepted, int64_t answered);
    void *user;
} ls_serve_hooks;

/* What is served where, "" for none: the version of the library that speaks HTTP. */
const char *ls_serve_http(void);
/* LS_EUSE for a model that cannot be served, or settings that do not go together. */
ls_status ls_serve_check(const ls_trained *trained, ls_serve_settings *settings);
/* Serves until a signal comes, then finishes what was accepted. */
ls_status ls_serve(ls_trained *trained, const ls_serve_settings *settings,
                   const ls_serve_hooks *hooks);

#endif
