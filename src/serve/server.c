#include "serve/server.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "serve/checkpoint_chat.h"

enum { CODES = 16 };

struct ls_ticket {
    ls_server *server;
    ls_job *job;
    ls_answer_head head;
    ls_answer_sent *sent; /* [choices], of a stream */
    ls_text events;
    size_t fetched;
    bool ended, parked;
    int holders; /* the thread that computes, and whoever submitted it */
    ls_wake_fn wake;
    void *user;
    double since;
    ls_ticket *next; /* in the queue */
};

struct ls_server {
    ls_trained *trained;
    ls_server_options options;
    ls_serving serving;
    ls_checkpoint_chat chat;
    ls_batch *batch;
    pthread_t thread;
    bool threaded;
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under the lock: */
    ls_ticket *first, *last;
    int64_t queued, tickets;
    bool draining, quit;
    uint64_t number;
    ls_batch_counts counts;
    int64_t accepted, refused, cancelled, answered[CODES];
    int codes[CODES];
    double seconds;
};

static void lock(ls_server *server) {
    pthread_mutex_lock(&server->lock);
}

static void unlock(ls_server *server) {
    pthread_mutex_unlock(&server->lock);
}

/* ---- tickets ---- */

static void wake(ls_ticket *ticket) {
    if (!ticket->parked) return;
    ticket->parked = false;
    ticket->wake(ticket->user);
}

/* Under the lock; true: nobody holds it any more, and it is to be freed outside. */
static bool leave(ls_ticket *ticket) {
    return --ticket->holders == 0;
}

static void free_ticket(ls_ctx *ctx, ls_ticket *ticket) {
    ls_job_free(ctx, ticket->job);
    ls_text_clear(ctx, &ticket->events);
    ls_free(ctx, ticket->sent);
    ls_free(ctx, ticket);
}

/* Events that were made outside the lock. */
static void append_events(ls_ctx *ctx, ls_ticket *ticket, ls_text *more) {
    lock(ticket->server);
    if (ticket->fetched == ticket->events.length) ticket->fetched = ticket->events.length = 0;
    ls_text_append(ctx, &ticket->events, more->bytes, more->length);
    wake(ticket);
    unlock(ticket->server);
    ls_text_clear(ctx, more);
}

static void on_progress(ls_job *job, const ls_choice *choice) {
    ls_ticket *ticket = job->user;
    ls_ctx *ctx = ticket->server->trained->ctx;
    ls_text more = {0};
    ls_answer_event(ctx, &ticket->head, job, choice, &ticket->sent[choice->number], &more);
    append_events(ctx, ticket, &more);
}

/* What a stream is told where its request fails on the way. */
static void end_events(ls_ctx *ctx, ls_ticket *ticket) {
    ls_job *job = ticket->job;
    ls_text more = {0};
    if (job->status == LS_OK && job->ended == job->choices && !job->cancelled) {
        ls_answer_last(ctx, &ticket->head, job, &more);
    } else {
        ls_text_printf(ctx, &more, "data: ");
        ls_answer_error(ctx, 503, job->why[0] != '\0' ? job->why : "the request was cancelled",
                        &more);
        ls_text_printf(ctx, &more, "\n");
    }
    append_events(ctx, ticket, &more);
}

static void on_done(ls_job *job) {
    ls_ticket *ticket = job->user;
    ls_server *server = ticket->server;
    ls_ctx *ctx = server->trained->ctx;
    if (job->request.stream) end_events(ctx, ticket);
    lock(server);
    ticket->ended = true;
    server->seconds += ls_clock() - ticket->since;
    server->cancelled += job->cancelled;
    wake(ticket);
    const bool last = leave(ticket);
    unlock(server);
    if (last) free_ticket(ctx, ticket);
}

ls_acceptance ls_server_submit(ls_server *server, ls_request *request, ls_wake_fn wake_fn,
                               void *user, ls_ticket **out) {
    ls_ctx ctx = ls_ctx_default();
    *out = NULL;
    lock(server);
    const ls_acceptance now = server->draining                          ? LS_DRAINING
                              : server->queued >= server->options.queue ? LS_FULL
                                                                        : LS_ACCEPTED;
    if (now != LS_ACCEPTED) server->refused++;
    unlock(server);
    if (now != LS_ACCEPTED) return now;
    ls_ticket *ticket = ls_new(&ctx, 1, sizeof *ticket);
    if (ticket == NULL) return LS_NO_MEMORY;
    if (ls_job_new(&ctx, request, &ticket->job) != LS_OK ||
        (ticket->sent = ls_new(&ctx, ticket->job->choices, sizeof *ticket->sent)) == NULL) {
        free_ticket(&ctx, ticket);
        return LS_NO_MEMORY;
    }
    ls_job *job = ticket->job;
    ticket->server = server;
    ticket->holders = 2;
    ticket->wake = wake_fn;
    ticket->user = user;
    ticket->since = ls_clock();
    job->deadline = ticket->since + server->options.seconds;
    job->user = ticket;
    job->progress = job->request.stream ? on_progress : NULL;
    job->done = on_done;
    lock(server);
    ticket->head = (ls_answer_head){
        .serving = &server->serving, .number = ++server->number, .created = (int64_t)time(NULL)};
    if (server->first == NULL)
        server->first = ticket;
    else
        server->last->next = ticket;
    server->last = ticket;
    server->queued++;
    server->tickets++;
    server->accepted++;
    pthread_cond_signal(&server->work);
    unlock(server);
    *out = ticket;
    return LS_ACCEPTED;
}

size_t ls_ticket_fetch(ls_ticket *ticket, char *to, size_t room, bool *ended, ls_wake_fn parked) {
    lock(ticket->server);
    size_t count = ticket->events.length - ticket->fetched;
    if (count > room) count = room;
    if (count > 0) memcpy(to, ticket->events.bytes + ticket->fetched, count);
    ticket->fetched += count;
    *ended = count == 0 && ticket->ended;
    if (count == 0 && !ticket->ended) {
        ticket->parked = true;
        parked(ticket->user);
    }
    unlock(ticket->server);
    return count;
}

bool ls_ticket_ended(ls_ticket *ticket, ls_wake_fn parked) {
    lock(ticket->server);
    const bool ended = ticket->ended;
    if (!ended) {
        ticket->parked = true;
        parked(ticket->user);
    }
    unlock(ticket->server);
    return ended;
}

int ls_ticket_answer(ls_ctx *ctx, const ls_ticket *ticket, ls_text *out) {
    const ls_job *job = ticket->job;
    if (job->status == LS_OK && !job->cancelled)
        return ls_answer_write(ctx, &ticket->head, job, out) == LS_OK ? 200 : 500;
    const int code = job->cancelled ? 499 : 503;
    ls_answer_error(ctx, code, job->cancelled ? "the client has gone" : job->why, out);
    return code;
}

bool ls_ticket_streams(const ls_ticket *ticket) {
    return ticket->job->request.stream;
}

void ls_ticket_cancel(ls_ticket *ticket) {
    ticket->job->cancelled = true;
}

void ls_ticket_leave(ls_ticket *ticket) {
    ls_server *server = ticket->server;
    ls_ctx ctx = ls_ctx_default();
    lock(server);
    if (!ticket->ended) ticket->job->cancelled = true;
    ticket->parked = false;
    server->tickets--;
    const bool last = leave(ticket);
    unlock(server);
    if (last) free_ticket(&ctx, ticket);
}

/* ---- the thread ---- */

/* Tickets from the queue into the batch, under the lock. */
static void take_tickets(ls_server *server) {
    while (server->first != NULL && ls_batch_has_room(server->batch)) {
        ls_ticket *ticket = server->first;
        server->first = ticket->next;
        if (server->first == NULL) server->last = NULL;
        server->queued--;
        ls_batch_add(server->batch, ticket->job);
    }
    server->counts = ls_batch_counted(server->batch);
}

static void *work(void *user) {
    ls_server *server = user;
    for (bool busy = false;;) {
        lock(server);
        while (!busy && server->first == NULL && !server->quit)
            pthread_cond_wait(&server->work, &server->lock);
        take_tickets(server);
        const bool over =
            server->quit && !busy && server->first == NULL && ls_batch_is_empty(server->batch);
        unlock(server);
        if (over) return NULL;
        busy = ls_batch_turn(server->batch);
    }
}

static ls_status describe(ls_server *server) {
    ls_trained *trained = server->trained;
    ls_ctx *ctx = trained->ctx;
    LS_TRY(ls_checkpoint_chat_open(ctx, trained, &server->chat));
    server->serving = (ls_serving){
        .tokenizer = trained->tokenizer,
        .model = server->options.model,
        .vocabulary = trained->config.model.vocabulary,
        .context = server->options.batch.context,
        .text_flags = trained->family.type != NULL ? LS_ENCODE_TEMPLATE : 0,
        .chat = server->chat.chat,
        .chat_missing = server->chat.missing,
    };
    return LS_OK;
}

ls_status ls_server_open(ls_trained *trained, const ls_server_options *options, ls_server **out) {
    ls_ctx *ctx = trained->ctx;
    ls_server *server = ls_new(ctx, 1, sizeof *server);
    *out = NULL;
    if (server == NULL) return LS_ENOMEM;
    server->trained = trained;
    server->options = *options;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->work, NULL);
    ls_status status;
    LS_TRY_GOTO(describe(server));
    LS_TRY_GOTO(ls_batch_new(trained, &options->batch, &server->batch));
    if (pthread_create(&server->thread, NULL, work, server) != 0) {
        status = LS_FAIL(ctx, LS_ENOMEM, "no thread could be made to compute in");
        goto fail;
    }
    server->threaded = true;
    *out = server;
    return LS_OK;
fail:
    ls_server_close(server);
    return status;
}

void ls_server_close(ls_server *server) {
    if (server == NULL) return;
    ls_ctx *ctx = server->trained->ctx;
    lock(server);
    server->quit = server->draining = true;
    pthread_cond_signal(&server->work);
    unlock(server);
    if (server->threaded) pthread_join(server->thread, NULL);
    ls_batch_free(server->batch);
    ls_checkpoint_chat_clear(ctx, &server->chat);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->work);
    ls_free(ctx, server);
}

const ls_serving *ls_server_serving(const ls_server *server) {
    return &server->serving;
}

const char *ls_server_template(const ls_server *server) {
    return server->chat.source.bytes;
}

void ls_server_drain(ls_server *server) {
    lock(server);
    server->draining = true;
    unlock(server);
}

bool ls_server_draining(const ls_server *server) {
    ls_server *own = (ls_server *)(uintptr_t)server;
    lock(own);
    const bool draining = server->draining;
    unlock(own);
    return draining;
}

int64_t ls_server_open_tickets(ls_server *server) {
    lock(server);
    const int64_t tickets = server->tickets;
    unlock(server);
    return tickets;
}

/* ---- figures ---- */

void ls_server_count_answer(ls_server *server, int code) {
    lock(server);
    int i = 0;
    while (i < CODES - 1 && server->codes[i] != 0 && server->codes[i] != code) i++;
    server->codes[i] = code;
    server->answered[i]++;
    unlock(server);
}

static void put_figure(ls_ctx *ctx, ls_text *out, const char *name, const char *type,
                       const char *help, double value) {
    ls_text_printf(ctx, out, "# HELP longshot_%s %s\n# TYPE longshot_%s %s\nlongshot_%s %.17g\n",
                   name, help, name, type, name, value);
}

ls_status ls_server_metrics(ls_ctx *ctx, ls_server *server, ls_text *out) {
    lock(server);
    const ls_batch_counts counts = server->counts;
    const struct {
        const char *name, *type, *help;
        double value;
    } figures[] = {
        {"requests_accepted_total", "counter", "Requests for completions that were accepted.",
         (double)server->accepted},
        {"requests_refused_total", "counter", "Those refused: a full queue, or the end is near.",
         (double)server->refused},
        {"requests_cancelled_total", "counter", "Those whose client went away.",
         (double)server->cancelled},
        {"request_seconds_total", "counter", "Seconds from acceptance to the end, added up.",
         server->seconds},
        {"requests_queued", "gauge", "Requests that wait.", (double)server->queued},
        {"sequences_active", "gauge", "Sequences that are computed.", (double)counts.active},
        {"prompt_tokens_total", "counter", "Prompt tokens computed.", (double)counts.prompt_tokens},
        {"reused_tokens_total", "counter", "Prompt tokens taken from earlier prompts.",
         (double)counts.reused_tokens},
        {"generated_tokens_total", "counter", "Tokens written.", (double)counts.made_tokens},
        {"decode_steps_total", "counter",
         "Computations that sequences share: a token further, or a short piece of a prompt.",
         (double)counts.steps},
        {"decode_sequences_total", "counter", "Sequences of these, added up.",
         (double)counts.stepped},
        {"prefixes", "gauge", "Beginnings of prompts that are kept.", (double)counts.prefixes},
        {"prefix_bytes", "gauge", "Bytes that they take.", (double)counts.prefix_bytes},
    };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        put_figure(ctx, out, figures[i].name, figures[i].type, figures[i].help, figures[i].value);
    ls_text_printf(ctx, out,
                   "# HELP longshot_http_answers_total Answers by code.\n"
                   "# TYPE longshot_http_answers_total counter\n");
    for (int i = 0; i < CODES && server->codes[i] != 0; i++)
        ls_text_printf(ctx, out, "longshot_http_answers_total{code=\"%d\"} %lld\n",
                       server->codes[i], (long long)server->answered[i]);
    unlock(server);
    return ls_text_status(out);
}
