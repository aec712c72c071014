/* The part of a server that knows no network: a queue of requests, the thread that computes them,
 * and answers that are fetched as they come. Any thread may call it. */
#ifndef LS_SERVE_SERVER_H
#define LS_SERVE_SERVER_H

#include "serve/answer.h"

typedef struct ls_server ls_server;
typedef struct ls_ticket ls_ticket; /* an accepted request */

typedef struct ls_server_options {
    ls_batch_options batch;
    int64_t queue;  /* requests that may wait */
    double seconds; /* that a request may take, waiting included */
    const char *model;
} ls_server_options;

/* Takes the model: nobody else may use it until ls_server_close. */
ls_status ls_server_open(ls_trained *trained, const ls_server_options *options, ls_server **out);
/* Waits for the thread, which first finishes what it has. */
void ls_server_close(ls_server *server);
const ls_serving *ls_server_serving(const ls_server *server);
const char *ls_server_template(const ls_server *server); /* its text, or NULL */

/* Called, under the server's lock, when a ticket has more to be fetched or has ended. It must not
 * call the server. */
typedef void (*ls_wake_fn)(void *user);

typedef enum { LS_ACCEPTED, LS_FULL, LS_DRAINING, LS_NO_MEMORY } ls_acceptance;
/* Takes over the request where it is accepted. */
ls_acceptance ls_server_submit(ls_server *server, ls_request *request, ls_wake_fn wake, void *user,
                               ls_ticket **out);
/* Bytes of a streamed answer: 0 and *ended false: none yet, and `wake` will be called once there
 * are, or `parked(user)` was, under the lock, so that no call is missed. */
size_t ls_ticket_fetch(ls_ticket *ticket, char *to, size_t room, bool *ended, ls_wake_fn parked);
/* Whether a whole answer is there; otherwise parked is called as above. */
bool ls_ticket_ended(ls_ticket *ticket, ls_wake_fn parked);
/* The whole answer of one that has ended, and its HTTP code. */
int ls_ticket_answer(ls_ctx *ctx, const ls_ticket *ticket, ls_text *out);
bool ls_ticket_streams(const ls_ticket *ticket);
/* Its client has gone: it ends early. */
void ls_ticket_cancel(ls_ticket *ticket);
void ls_ticket_leave(ls_ticket *ticket); /* cancels what has not ended */

/* From now on nothing is accepted. */
void ls_server_drain(ls_server *server);
bool ls_server_draining(const ls_server *server);
int64_t ls_server_open_tickets(ls_server *server);
void ls_server_count_answer(ls_server *server, int code);
/* Prometheus' text. */
ls_status ls_server_metrics(ls_ctx *ctx, ls_server *server, ls_text *out);

#endif
