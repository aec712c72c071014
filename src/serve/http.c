/* HTTP by libmicrohttpd: routes, limits, and the life of connections. Part of the program, not of
 * the library, which needs no network.
 *
 * A few threads of libmicrohttpd's read requests and send answers. A connection whose answer is
 * being computed is suspended. One thread more, the keeper, looks ten times a second for clients
 * that have gone and for those that take too long: libmicrohttpd's own timeout counts silence
 * alone, which a byte now and then defeats. */
#include "serve/serve.h"

#if LS_HAVE_MICROHTTPD

#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/page.h"
#include "serve/server.h"
#include "serve/studies.h"

enum { HEADER_BYTES = 64 << 10, THREADS = 4, SILENCE_SECONDS = 60, KEY_BYTES = 512 };

typedef enum { READING, WORKING, SENDING } stage;

/* A connection: of one request after the other. */
typedef struct line {
    struct http *http;
    struct MHD_Connection *connection;
    int socket;
    stage at;
    double since;      /* when this stage began */
    ls_ticket *ticket; /* of the request now answered, or NULL */
    struct line *before, *next;
} line;

/* A request: what is read of it. */
typedef struct call {
    line *line;
    ls_text body;
    bool too_large;
    int refused; /* a code that was found at the headers, or 0 */
    const char *why;
} call;

typedef struct http {
    ls_server *server;
    const ls_serve_settings *settings;
    const char *folder; /* of the model */
    char key[KEY_BYTES];
    bool loopback, quit;
    struct MHD_Daemon *daemon;
    pthread_t keeper;
    pthread_mutex_t lock; /* of the lines, and of what follows */
    line *lines;
    int64_t accepted, answered; /* requests that are over; those whose whole answer was sent */
} http;

/* ---- lines ---- */

static void set_stage(line *l, stage at, ls_ticket *ticket) {
    pthread_mutex_lock(&l->http->lock);
    l->at = at;
    l->since = ls_clock();
    l->ticket = ticket;
    pthread_mutex_unlock(&l->http->lock);
}

static void on_connection(void *user, struct MHD_Connection *connection, void **own,
                          enum MHD_ConnectionNotificationCode code) {
    http *h = user;
    line *l = *own;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *about =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *own = l = calloc(1, sizeof *l);
        if (l == NULL || about == NULL) return;
        *l = (line){
            .http = h, .connection = connection, .socket = about->connect_fd, .since = ls_clock()};
        pthread_mutex_lock(&h->lock);
        l->next = h->lines;
        if (h->lines != NULL) h->lines->before = l;
        h->lines = l;
        pthread_mutex_unlock(&h->lock);
    } else if (l != NULL) {
        pthread_mutex_lock(&h->lock);
        if (l->before != NULL)
            l->before->next = l->next;
        else
            h->lines = l->next;
        if (l->next != NULL) l->next->before = l->before;
        pthread_mutex_unlock(&h->lock);
        free(l);
    }
}

/* Whether the other side has closed. */
static bool has_gone(int socket) {
    struct pollfd fd = {.fd = socket, .events = POLLRDHUP};
    return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static void *keep(void *user) {
    http *h = user;
    for (bool quit = false; !quit;) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        const double now = ls_clock();
        pthread_mutex_lock(&h->lock);
        quit = h->quit;
        for (line *l = h->lines; l != NULL; l = l->next) {
            const double limit =
                l->at == READING ? h->settings->read_seconds : h->settings->seconds;
            if (l->at == WORKING && l->ticket != NULL && has_gone(l->socket))
                ls_ticket_cancel(l->ticket);
            else if (l->at != WORKING && now - l->since > limit)
                shutdown(l->socket, SHUT_RDWR);
        }
        pthread_mutex_unlock(&h->lock);
    }
    return NULL;
}

static void resume(void *user) {
    MHD_resume_connection(((line *)user)->connection);
}

static void suspend(void *user) {
    MHD_suspend_connection(((line *)user)->connection);
}

/* ---- answers ---- */

static enum MHD_Result send_response(line *l, int code, const char *type,
                                     struct MHD_Response *response) {
    if (response == NULL) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (code == 429 || code == 503)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (code == 401) MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (code == 413 || ls_server_draining(l->http->server))
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result result = MHD_queue_response(l->connection, (unsigned)code, response);
    MHD_destroy_response(response);
    ls_server_count_answer(l->http->server, code);
    return result;
}

static enum MHD_Result send_text(ls_ctx *ctx, line *l, int code, const char *type, ls_text *text) {
    struct MHD_Response *response = NULL;
    if (ls_text_status(text) == LS_OK)
        response = MHD_create_response_from_buffer(
            text->length, text->bytes == NULL ? "" : text->bytes, MHD_RESPMEM_MUST_COPY);
    ls_text_clear(ctx, text);
    if (l->at != SENDING) set_stage(l, SENDING, l->ticket);
    return send_response(l, code, type, response);
}

static enum MHD_Result send_error(ls_ctx *ctx, line *l, int code, const char *sentence) {
    ls_text text = {0};
    ls_answer_error(ctx, code, sentence, &text);
    return send_text(ctx, l, code, "application/json", &text);
}

/* The code of a failure that came from a request. */
static int code_of(ls_status status) {
    return status == LS_EUSE || status == LS_EINPUT ? 400 : status == LS_ENOMEM ? 503 : 500;
}

static enum MHD_Result send_made(ls_ctx *ctx, line *l, ls_status status, const char *type,
                                 ls_text *text) {
    if (status == LS_OK) return send_text(ctx, l, 200, type, text);
    ls_text_clear(ctx, text);
    return send_error(ctx, l, code_of(status),
                      ctx->error.message[0] != '\0' ? ctx->error.message
                                                    : ls_status_sentence(status));
}

static ssize_t read_events(void *user, uint64_t at, char *to, size_t room) {
    line *l = user;
    bool ended;
    (void)at;
    const size_t count = ls_ticket_fetch(l->ticket, to, room, &ended, suspend);
    if (count > 0) set_stage(l, SENDING, l->ticket);
    if (count == 0 && !ended) set_stage(l, WORKING, l->ticket);
    return ended ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)count;
}

/* The answer of a ticket: as it comes, or whole once it is there. */
static enum MHD_Result send_ticket(ls_ctx *ctx, line *l) {
    ls_ticket *ticket = l->ticket;
    if (ls_ticket_streams(ticket)) {
        struct MHD_Response *response =
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_events, l, NULL);
        return send_response(l, 200, "text/event-stream", response);
    }
    if (!ls_ticket_ended(ticket, suspend)) return MHD_YES;
    ls_text text = {0};
    const int code = ls_ticket_answer(ctx, ticket, &text);
    return send_text(ctx, l, code, "application/json", &text);
}

/* ---- routes ---- */

typedef enum MHD_Result (*route_fn)(ls_ctx *ctx, call *c);

static enum MHD_Result ask(ls_ctx *ctx, call *c, ls_asks kind) {
    line *l = c->line;
    http *h = l->http;
    ls_request request;
    ls_status status = ls_request_read(ctx, ls_server_serving(h->server), kind, c->body.bytes,
                                       c->body.length, &request);
    if (status != LS_OK) {
        ls_request_clear(ctx, &request);
        return send_error(ctx, l, code_of(status), ctx->error.message);
    }
    ls_ticket *ticket;
    const ls_acceptance accepted = ls_server_submit(h->server, &request, resume, l, &ticket);
    ls_request_clear(ctx, &request);
    if (accepted == LS_FULL)
        return send_error(ctx, l, 429, "too many requests wait already: try again soon");
    if (accepted == LS_DRAINING) return send_error(ctx, l, 503, "the server is about to end");
    if (accepted == LS_NO_MEMORY) return send_error(ctx, l, 503, "out of memory");
    set_stage(l, WORKING, ticket);
    return send_ticket(ctx, l);
}

static enum MHD_Result complete(ls_ctx *ctx, call *c) {
    return ask(ctx, c, LS_ASKS_COMPLETION);
}

static enum MHD_Result chat(ls_ctx *ctx, call *c) {
    return ask(ctx, c, LS_ASKS_CHAT);
}

static enum MHD_Result tokenize(ls_ctx *ctx, call *c) {
    const ls_serving *serving = ls_server_serving(c->line->http->server);
    ls_ids ids = {0};
    ls_text text = {0};
    bool pieces;
    ls_status status =
        ls_request_tokenize(ctx, serving, c->body.bytes, c->body.length, &ids, &pieces);
    if (status == LS_OK) status = ls_answer_tokens(ctx, serving, &ids, pieces, &text);
    ls_ids_clear(ctx, &ids);
    return send_made(ctx, c->line, status, "application/json", &text);
}

static enum MHD_Result detokenize(ls_ctx *ctx, call *c) {
    const ls_serving *serving = ls_server_serving(c->line->http->server);
    ls_ids ids = {0};
    ls_text text = {0};
    ls_status status = ls_request_detokenize(ctx, serving, c->body.bytes, c->body.length, &ids);
    if (status == LS_OK) status = ls_answer_detokenized(ctx, serving, &ids, &text);
    ls_ids_clear(ctx, &ids);
    return send_made(ctx, c->line, status, "application/json", &text);
}

static enum MHD_Result tokenizer_info(ls_ctx *ctx, call *c) {
    ls_server *server = c->line->http->server;
    ls_text text = {0};
    ls_status status =
        ls_answer_tokenizer(ctx, ls_server_serving(server), ls_server_template(server), &text);
    return send_made(ctx, c->line, status, "application/json", &text);
}

static enum MHD_Result models(ls_ctx *ctx, call *c) {
    const ls_answer_head head = {.serving = ls_server_serving(c->line->http->server),
                                 .created = (int64_t)time(NULL)};
    ls_text text = {0};
    return send_made(ctx, c->line, ls_answer_models(ctx, &head, &text), "application/json", &text);
}

static enum MHD_Result health(ls_ctx *ctx, call *c) {
    if (ls_server_draining(c->line->http->server))
        return send_error(ctx, c->line, 503, "the server is about to end");
    ls_text text = {0};
    ls_text_printf(ctx, &text, "{\"status\":\"ok\"}\n");
    return send_text(ctx, c->line, 200, "application/json", &text);
}

static enum MHD_Result metrics(ls_ctx *ctx, call *c) {
    ls_text text = {0};
    ls_status status = ls_server_metrics(ctx, c->line->http->server, &text);
    return send_made(ctx, c->line, status, "text/plain; version=0.0.4", &text);
}

static enum MHD_Result page(ls_ctx *ctx, call *c) {
    ls_text text = {0};
    ls_text_append(ctx, &text, ls_serve_page, strlen(ls_serve_page));
    return send_text(ctx, c->line, 200, "text/html; charset=utf-8", &text);
}

static enum MHD_Result studies(ls_ctx *ctx, call *c) {
    const http *h = c->line->http;
    const char *folder = h->settings->studies[0] != '\0' ? h->settings->studies : h->folder;
    ls_text text = {0};
    ls_status status = ls_studies_write(ctx, folder, &text);
    return send_made(ctx, c->line, status, "application/json", &text);
}

/* A study's own page, by its number in the list. */
static enum MHD_Result study(ls_ctx *ctx, call *c) {
    const http *h = c->line->http;
    const char *folder = h->settings->studies[0] != '\0' ? h->settings->studies : h->folder;
    const char *number =
        MHD_lookup_connection_value(c->line->connection, MHD_GET_ARGUMENT_KIND, "number");
    ls_text text = {0};
    ls_status status =
        ls_studies_page(ctx, folder, number == NULL ? -1 : strtol(number, NULL, 10), &text);
    return send_made(ctx, c->line, status, "text/html; charset=utf-8", &text);
}

/* Everything that there is; `open`: without a key too. */
static const struct route {
    const char *method, *path;
    route_fn answer;
    bool open;
} routes[] = {
    {"POST", "/v1/completions", complete, false},
    {"POST", "/v1/chat/completions", chat, false},
    {"GET", "/v1/models", models, false},
    {"POST", "/tokenize", tokenize, false},
    {"POST", "/detokenize", detokenize, false},
    {"GET", "/tokenizer_info", tokenizer_info, false},
    {"GET", "/metrics", metrics, false},
    {"GET", "/studies.json", studies, false},
    {"GET", "/study", study, false},
    {"GET", "/health", health, true},
    {"GET", "/", page, true},
};

static const struct route *find_route(const char *method, const char *path, bool *known) {
    *known = false;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, path) != 0) continue;
        *known = true;
        if (strcmp(routes[i].method, method) == 0) return &routes[i];
    }
    return NULL;
}

/* The same time for every key of a length. */
static bool same_key(const char *given, const char *key) {
    const size_t length = strlen(key);
    unsigned char differ = strlen(given) != length;
    for (size_t i = 0; i < length; i++)
        differ |= (unsigned char)(key[i] ^ (i < strlen(given) ? given[i] : 0));
    return differ == 0;
}

static bool has_key(const http *h, struct MHD_Connection *connection) {
    static const char scheme[] = "Bearer ";
    const char *given =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    return h->key[0] == '\0' || (given != NULL && strncasecmp(given, scheme, strlen(scheme)) == 0 &&
                                 same_key(given + strlen(scheme), h->key));
}

/* A page from elsewhere that has its name point here must not be answered. */
static bool is_for_us(const http *h, struct MHD_Connection *connection) {
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    const char *host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    if (!h->loopback || host == NULL) return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t length = strlen(names[i]);
        if (strncasecmp(host, names[i], length) == 0 &&
            (host[length] == '\0' || host[length] == ':'))
            return true;
    }
    return false;
}

/* What the headers already decide. */
static void check_headers(http *h, struct MHD_Connection *connection, const char *method,
                          const char *path, call *c) {
    bool known;
    const struct route *route = find_route(method, path, &known);
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (!is_for_us(h, connection))
        c->refused = 403, c->why = "the Host header names another server";
    else if (route != NULL && !route->open && !has_key(h, connection))
        c->refused = 401, c->why = "a bearer key is needed, and this is not it";
    else if (route == NULL)
        c->refused = known ? 405 : 404,
        c->why = known ? "this path has another method" : "there is nothing at this path";
    else if (length != NULL && strtoull(length, NULL, 10) > (uint64_t)h->settings->body_kib << 10)
        c->refused = 413, c->why = "the request is larger than body_kib allows";
}

static enum MHD_Result take_body(const http *h, ls_ctx *ctx, call *c, const char *bytes,
                                 size_t *count) {
    c->too_large |= c->body.length + *count > (size_t)h->settings->body_kib << 10;
    if (c->too_large)
        ls_text_clear(ctx, &c->body);
    else if (c->refused == 0)
        ls_text_append(ctx, &c->body, bytes, *count);
    *count = 0;
    return MHD_YES;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *count, void **own) {
    http *h = user;
    ls_ctx ctx = ls_ctx_default();
    call *c = *own;
    (void)version;
    if (c == NULL) {
        const union MHD_ConnectionInfo *about =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        if (about == NULL || about->socket_context == NULL) return MHD_NO;
        *own = c = calloc(1, sizeof *c);
        if (c == NULL) return MHD_NO;
        c->line = about->socket_context;
        check_headers(h, connection, method, url, c);
        /* a body that will not be taken is not waited for */
        if (c->refused == 413) return send_error(&ctx, c->line, 413, c->why);
        return MHD_YES;
    }
    if (*count > 0) return take_body(h, &ctx, c, bytes, count);
    if (c->line->ticket != NULL) return send_ticket(&ctx, c->line);
    if (c->refused != 0) return send_error(&ctx, c->line, c->refused, c->why);
    if (c->too_large)
        return send_error(&ctx, c->line, 413, "the request is larger than body_kib allows");
    if (ls_text_status(&c->body) != LS_OK) return send_error(&ctx, c->line, 503, "out of memory");
    bool known;
    return find_route(method, url, &known)->answer(&ctx, c);
}

static void on_end(void *user, struct MHD_Connection *connection, void **own,
                   enum MHD_RequestTerminationCode code) {
    http *h = user;
    call *c = *own;
    (void)connection;
    if (c == NULL) return;
    ls_ctx ctx = ls_ctx_default();
    ls_ticket *ticket = c->line->ticket;
    set_stage(c->line, READING, NULL);
    pthread_mutex_lock(&h->lock);
    h->accepted += ticket != NULL;
    h->answered += ticket != NULL && code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    pthread_mutex_unlock(&h->lock);
    if (ticket != NULL) ls_ticket_leave(ticket);
    ls_text_clear(&ctx, &c->body);
    free(c);
    *own = NULL;
}

/* ---- the server's life ---- */

static ls_status read_key(ls_ctx *ctx, const char *path, char *out) {
    ls_text text = {0};
    if (path[0] == '\0') return LS_OK;
    ls_status status = ls_file_read(ctx, path, KEY_BYTES - 1, &text);
    if (status == LS_OK) {
        snprintf(out, KEY_BYTES, "%.*s", (int)strcspn(text.bytes == NULL ? "" : text.bytes, "\r\n"),
                 text.bytes == NULL ? "" : text.bytes);
        if (strlen(out) < 8)
            status = LS_FAIL(ctx, LS_EINPUT, "%s: a key has at least 8 characters", path);
    }
    ls_text_clear(ctx, &text);
    return status;
}

static ls_status start(ls_ctx *ctx, http *h) {
    const ls_serve_settings *s = h->settings;
    struct addrinfo wish = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[8];
    snprintf(port, sizeof port, "%d", (int)s->port);
    if (getaddrinfo(s->host, port, &wish, &found) != 0)
        return LS_FAIL(ctx, LS_EUSE, "host=%s is no address of this machine", s->host);
    const unsigned six = found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | six, (uint16_t)s->port, NULL,
        NULL, on_request, h, MHD_OPTION_SOCK_ADDR, found->ai_addr, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)ls_max(s->clients, THREADS), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HEADER_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SILENCE_SECONDS,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        h, MHD_OPTION_NOTIFY_COMPLETED, on_end, h, MHD_OPTION_END);
    freeaddrinfo(found);
    if (h->daemon == NULL)
        return LS_FAIL(ctx, LS_EIO,
                       "cannot listen at %s port %d: where it is taken, choose another port=",
                       s->host, (int)s->port);
    return LS_OK;
}

static void tell_address(const http *h, const ls_serve_hooks *hooks) {
    const union MHD_DaemonInfo *about = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);
    char address[LS_OPTION_TEXT_BYTES + 32];
    const bool six = strchr(h->settings->host, ':') != NULL;
    snprintf(address, sizeof address, "http://%s%s%s:%d", six ? "[" : "", h->settings->host,
             six ? "]" : "", about == NULL ? 0 : (int)about->port);
    hooks->listening(hooks->user, address);
}

static void pause_shortly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* Accepted requests are finished and their answers fetched; what comes meanwhile is told so. */
static void drain(http *h) {
    const double end = ls_clock() + h->settings->drain_seconds;
    ls_server_drain(h->server);
    while (ls_server_open_tickets(h->server) > 0 && ls_clock() < end) pause_shortly();
}

static ls_status listen_until(http *h, ls_ctx *ctx, const ls_serve_hooks *hooks) {
    LS_TRY(start(ctx, h));
    if (pthread_create(&h->keeper, NULL, keep, h) != 0) {
        MHD_stop_daemon(h->daemon);
        return LS_FAIL(ctx, LS_ENOMEM, "no thread could be made");
    }
    tell_address(h, hooks);
    while (*hooks->stop == 0) pause_shortly();
    drain(h);
    pthread_mutex_lock(&h->lock);
    h->quit = true;
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->keeper, NULL);
    /* one that is suspended must not be stopped: cancelled ones are about to be resumed */
    MHD_socket listening = MHD_quiesce_daemon(h->daemon);
    pthread_mutex_lock(&h->lock);
    for (line *l = h->lines; l != NULL; l = l->next)
        if (l->ticket != NULL) ls_ticket_cancel(l->ticket);
    pthread_mutex_unlock(&h->lock);
    while (ls_server_open_tickets(h->server) > 0) pause_shortly(); /* a turn of the batch */
    MHD_stop_daemon(h->daemon);
    if (listening != MHD_INVALID_SOCKET) close(listening);
    hooks->ended(hooks->user, h->accepted, h->answered);
    return LS_OK;
}

const char *ls_serve_http(void) {
    return MHD_get_version();
}

ls_status ls_serve(ls_trained *trained, const ls_serve_settings *settings,
                   const ls_serve_hooks *hooks) {
    ls_ctx own = ls_ctx_default(), *ctx = trained->ctx;
    http h = {.settings = settings,
              .folder = trained->folder,
              .loopback = settings->key_file[0] == '\0',
              .lock = PTHREAD_MUTEX_INITIALIZER};
    LS_TRY(read_key(ctx, settings->key_file, h.key));
    if (settings->studies[0] != '\0' && !ls_path_is_folder(settings->studies))
        return LS_FAIL(ctx, LS_EUSE, "studies=%s is no folder", settings->studies);
    const ls_server_options options = {
        .batch = {.sequences = settings->sequences,
                  .context = settings->context,
                  .chunk = settings->chunk,
                  .prefix_bytes = (size_t)settings->prefix_mib << 20},
        .queue = settings->queue,
        .seconds = settings->seconds,
        .model = settings->name};
    LS_TRY(ls_server_open(trained, &options, &h.server));
    ls_status status = listen_until(&h, &own, hooks);
    ls_server_close(h.server);
    if (status != LS_OK) ctx->error = own.error;
    return status;
}

#else

const char *ls_serve_http(void) {
    return "";
}

ls_status ls_serve(ls_trained *trained, const ls_serve_settings *settings,
                   const ls_serve_hooks *hooks) {
    (void)settings, (void)hooks;
    return LS_FAIL(trained->ctx, LS_EUSE,
                   "this build has no libmicrohttpd: install libmicrohttpd-dev and build again");
}

#endif
