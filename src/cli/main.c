/* The program's start: processor state, signals, words into settings, the verb, the exit code. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "base/file.h"
#include "cli/cli.h"
#include "tensor/engine/device.h"
#include "tensor/engine/kernel.h"

#ifndef LS_VERSION
#error "the build defines LS_VERSION"
#endif

/* The mutable globals of the program: handlers can reach nothing else. */
static volatile sig_atomic_t stop_wanted, orderly, ended;

/* The first signal asks for an orderly end; a second interrupt leaves at once. So do verbs that
 * have nothing to keep, if they have not come to an end by themselves in the meantime. */
static void on_signal(int number) {
    const struct itimerval soon = {.it_value = {.tv_usec = 400 * 1000}};
    if (number == SIGINT && stop_wanted) _exit(128 + SIGINT);
    if (!orderly && !stop_wanted) setitimer(ITIMER_REAL, &soon, NULL);
    stop_wanted = 1;
}

static void on_alarm(int number) {
    static const char said[] = "longshot: stopped\n";
    (void)number;
    if (write(STDERR_FILENO, said, sizeof said - 1) < 0) errno = 0; /* nobody listens */
    _exit(ls_status_exit_code(LS_ESTOP));
}

const volatile sig_atomic_t *ls_cli_stop(void) {
    return &stop_wanted;
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = SIG_IGN; /* a file as large as it may be is an error of the write */
    sigaction(SIGXFSZ, &action, NULL);
    sigset_t
        wanted; /* a study starts its jobs deaf to it, so that none is lost before this point */
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &wanted, NULL);
}

/* Threads that wait for work spin for long by default, and two programs on one machine then slow
 * each other many times over. The OpenMP runtime reads its settings before main, so they are put in
 * place and the program starts itself once more. */
static void wait_politely(char **argv) {
    if (getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL) return;
    if (setenv("GOMP_SPINCOUNT", "20000", 1) != 0) return;
    if (setenv("KMP_BLOCKTIME", "0", 0) != 0)
        return;                    /* LLVM's name for the same, in milliseconds */
    execv("/proc/self/exe", argv); /* where it fails the program goes on as it is */
}

/* Numbers below the smallest normal one are taken as 0: they cost a hundred times the time and
 * carry nothing. Threads inherit this. */
static void flush_subnormals(void) {
#if defined(__SSE__)
    enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x40 };
    _mm_setcsr(_mm_getcsr() | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
#endif
}

static void log_line(void *user, const char *line) {
    ls_cli_progress(user, line);
}

/* key=value, where the key could be one: a path may hold the sign too. */
static bool is_setting(const char *word) {
    size_t key = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_.-");
    return key > 0 && word[key] == '=' && word[0] != '-';
}

static ls_status take_flag(ls_cli *cli, const char *word) {
    if (strcmp(word, "--json") == 0)
        cli->json = true;
    else if (strcmp(word, "--quiet") == 0 || strcmp(word, "-q") == 0)
        cli->quiet = true;
    else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        cli->help = true;
    else
        return LS_FAIL(&cli->ctx, LS_EUSE, "there is no flag %s; there are --json, --quiet, --help",
                       word);
    return LS_OK;
}

/* A study goes on by its file, a run by its folder: whoever mixes them up is told the command. */
static ls_status refuse_study_folder(ls_cli *cli, const char *word) {
    char path[4096];
    struct stat about;
    LS_TRY(ls_path_join(&cli->ctx, path, sizeof path, word, "study.yaml"));
    if (stat(path, &about) != 0) return LS_OK; /* who opens the word says why it cannot be */
    return LS_FAIL(&cli->ctx, LS_EUSE,
                   "%s is the folder of a study: `longshot study %s out=%s` goes on with it", word,
                   path, word);
}

static ls_status refuse_study_file(ls_cli *cli, const char *word) {
    for (size_t i = 0; i < cli->settings.count; i++)
        if (strncmp(cli->settings.items[i].key, "arms.", 5) == 0)
            return LS_FAIL(&cli->ctx, LS_EUSE, "%s has arms: `longshot study %s` runs it", word,
                           word);
    return LS_OK;
}

/* A key without its value is no recipe. */
static ls_status refuse_bare_key(ls_cli *cli, const char *word) {
    char key[256];
    if (ls_path_exists(word)) return LS_OK;
    for (const ls_section *s = cli->verb->sections; s != NULL && s->table != NULL; s++)
        for (size_t i = 0; i < s->table->count; i++) {
            snprintf(key, sizeof key, "%s%s%s", s->prefix, s->prefix[0] == '\0' ? "" : ".",
                     s->table->options[i].key);
            if (strcmp(key, word) == 0)
                return LS_FAIL(&cli->ctx, LS_EUSE, "%s is a key: write %s=VALUE", word, word);
        }
    return LS_OK;
}

/* A recipe, or the folder that one was made from, which then is what the verb goes on with. */
static ls_status read_recipe(ls_cli *cli, const char *word) {
    char path[4096];
    cli->recipe = word;
    LS_TRY(refuse_bare_key(cli, word));
    LS_TRY(refuse_study_folder(cli, word));
    if (cli->verb->kept_recipe == NULL) return ls_settings_read(&cli->ctx, &cli->settings, word);
    if (!ls_path_is_folder(word)) {
        LS_TRY(ls_settings_read(&cli->ctx, &cli->settings, word));
        return refuse_study_file(cli, word);
    }
    LS_TRY(ls_path_join(&cli->ctx, path, sizeof path, word, cli->verb->kept_recipe));
    if (!ls_path_exists(path))
        return LS_FAIL(&cli->ctx, LS_EINPUT, "%s is no folder of a run: it has no %s", word,
                       cli->verb->kept_recipe);
    cli->folder = word;
    return ls_settings_read(&cli->ctx, &cli->settings, path);
}

/* -m KEY=A,B */
static ls_status take_sweep(ls_cli *cli, const char *word) {
    char key[256];
    const char *equals = word == NULL ? NULL : strchr(word, '=');
    if (equals == NULL || !is_setting(word))
        return LS_FAIL(&cli->ctx, LS_EUSE,
                       "-m stands before a key and its values: -m train.lr=1e-3,3e-3");
    if ((size_t)snprintf(key, sizeof key, "sweep.%.*s", (int)(equals - word), word) >= sizeof key)
        return LS_FAIL(&cli->ctx, LS_EUSE, "the key of `%.40s...` is too long", word);
    return ls_settings_put(&cli->ctx, &cli->settings, key, equals + 1);
}

/* Sorts the words after the verb; `words` has room for all. */
static ls_status sort_words(ls_cli *cli, int count, char **argv, const char **words) {
    ls_ctx *ctx = &cli->ctx;
    bool help_verb = strcmp(cli->verb->name, "help") == 0;
    bool flags_end = false;
    for (int i = 0; i < count; i++) {
        bool flag = argv[i][0] == '-' && argv[i][1] != '\0' && !flags_end && !help_verb;
        if (flag && strcmp(argv[i], "--") == 0)
            flags_end = true;
        else if (flag && cli->verb->sweeps && strcmp(argv[i], "-m") == 0)
            i++; /* its word is taken below */
        else if (flag)
            LS_TRY(take_flag(cli, argv[i]));
        else if (!is_setting(argv[i]))
            words[cli->word_count++] = argv[i];
    }
    cli->words = words;
    if (cli->verb->recipe && cli->word_count > 0) {
        LS_TRY(read_recipe(cli, words[0]));
        cli->words++;
        cli->word_count--;
    }
    flags_end = false;
    for (int i = 0; i < count; i++) {
        flags_end |= strcmp(argv[i], "--") == 0;
        if (cli->verb->sweeps && !flags_end && strcmp(argv[i], "-m") == 0)
            LS_TRY(take_sweep(cli, ++i < count ? argv[i] : NULL));
        else if (is_setting(argv[i]))
            LS_TRY(ls_settings_put_word(ctx, &cli->settings, argv[i]));
    }
    return LS_OK;
}

static ls_status take_common(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    LS_TRY(ls_cli_read(cli, "", &ls_common_options, &cli->common));
    if (cli->common.threads > 0) ctx->threads = (int)cli->common.threads;
    static const char *const isas[] = {NULL, "base", "avx2", "avx512"};
    ctx->isa = isas[cli->common.isa];
    if (ls_kernel_isa(ctx->isa) == NULL)
        return LS_FAIL(ctx, LS_EUSE, "this processor does not have %s", ctx->isa);
    return cli->verb->computes ? ls_device_open(ctx, ls_cli_device(cli), cli->ranks.local) : LS_OK;
}

/* Before anything that may fail on one of them alone. Rank 0 is the one that people hear. */
static ls_status join_ranks(ls_cli *cli) {
    LS_TRY(ls_ranks_join(&cli->ctx, &cli->ranks));
    cli->quiet = cli->ranks.rank > 0;
    const uint64_t verb = ls_hash(cli->verb->name, strlen(cli->verb->name));
    return ls_ranks_compare(&cli->ctx, &cli->ranks, verb, "another command");
}

static ls_status run_verb(ls_cli *cli, int count, char **argv) {
    ls_ctx *ctx = &cli->ctx;
    const char **words = ls_new(ctx, (size_t)count + 1, sizeof *words);
    if (words == NULL) return LS_ENOMEM;
    ls_status status;
    if (cli->verb->ranks) LS_TRY_GOTO(join_ranks(cli));
    ls_ranks_forget_launch(); /* the jobs of a study are processes of their own */
    LS_TRY_GOTO(sort_words(cli, count, argv, words));
    if (cli->help) {
        ls_text text = {0};
        ls_help_verb(ctx, cli->verb, &text);
        status = ls_cli_print_text(cli, &text);
        goto fail;
    }
    cli->live = isatty(STDERR_FILENO) && !cli->quiet && getenv("NO_COLOR") == NULL;
    static const ls_section common[] = {{"", &ls_common_options}, {0}};
    ls_keys_know(ctx, &cli->settings, cli->verb->sections, common, &cli->known);
    LS_TRY_GOTO(take_common(cli));
    LS_TRY_GOTO(cli->verb->run(cli));
    /* none leaves before rank 0 has reported: what fails there is the end of all */
    status = ls_ranks_barrier(ctx, &cli->ranks);
fail:
    ls_device_close(ctx);
    ls_settings_clear(ctx, &cli->settings);
    ls_free(ctx, words);
    return status;
}

static ls_status run_program(ls_cli *cli, int argc, char **argv) {
    ls_ctx *ctx = &cli->ctx;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        ls_text text = {0};
        ls_help_program(ctx, &text);
        LS_TRY(ls_cli_print_text(cli, &text));
        return argc < 2 ? LS_FAIL(ctx, LS_EUSE, "say what to do: longshot VERB") : LS_OK;
    }
    if (strcmp(argv[1], "--version") == 0)
        return ls_cli_print(cli, "longshot " LS_VERSION "\n", strlen("longshot " LS_VERSION "\n"));
    LS_TRY(ls_verb_find(ctx, argv[1], &cli->verb));
    orderly = cli->verb->orderly;
    return run_verb(cli, argc - 2, argv + 2);
}

/* The OpenMP runtime calls exit(1) where it cannot get memory or threads: nothing else does before
 * the verb has ended. Its sentence stands already. */
static void on_exit_of_another(void) {
    static const char said[] =
        "longshot: the OpenMP runtime could not go on: it lacks memory or threads\n";
    if (ended) return;
    if (write(STDERR_FILENO, said, sizeof said - 1) < 0) errno = 0; /* nobody listens */
    _exit(ls_status_exit_code(LS_ENOMEM));
}

/* One that lists more names than fit its line goes on below. It is broken beside a name alone, a
 * word between commas: others stay whole, with their paths. Who reads it in a log knows the rest by
 * its indentation (study/study_jobs.c): that of the hint is another. */
static void print_sentence(const char *text) {
    enum { COLUMNS = 100, MARGIN = 12 };
    size_t column = (size_t)fprintf(stderr, "longshot:");
    for (bool first = true, before = false; *text != '\0'; first = false) {
        const char *comma = strstr(text, ", ");
        const size_t piece = comma == NULL ? strlen(text) : (size_t)(comma + 1 - text);
        const bool name = comma != NULL && memchr(text, ' ', piece) == NULL;
        const bool listed = !first && (name || before);
        before = name;
        if (listed && column + 1 + piece > COLUMNS)
            column = (size_t)fprintf(stderr, "\n%*s", MARGIN - 1, "") - 1;
        column += (size_t)fprintf(stderr, " %.*s", (int)piece, text);
        text += piece + (comma != NULL);
    }
    fputc('\n', stderr);
}

static void print_error(ls_cli *cli, ls_status status) {
    ls_error *error = &cli->ctx.error;
    ls_plain(error->message, false); /* it may quote what stands in a file */
    print_sentence(error->code != LS_OK ? error->message : ls_status_sentence(status));
    if (status == LS_EUSE && cli->verb != NULL && strcmp(cli->verb->name, "help") != 0)
        fprintf(stderr, "          see `longshot help %s` for the keys and their ranges\n",
                cli->verb->name);
    else
        fprintf(stderr, "          %s\n", ls_status_hint(status));
}

int main(int argc, char **argv) {
    wait_politely(argv);
    flush_subnormals();
    catch_signals();
    ls_cli cli = {.ctx = ls_ctx_default(),
                  .argc = argc,
                  .argv = argv,
                  .terminal = isatty(STDOUT_FILENO) != 0};
    cli.ctx.log = log_line;
    cli.ctx.log_user = &cli;
    cli.ctx.stop = &stop_wanted;
    cli.ranks = ls_ranks_alone();
    atexit(on_exit_of_another);
    ls_status status = run_program(&cli, argc, argv);
    ended = 1;
    ls_cli_progress_end(&cli);
    if (status != LS_OK && ls_ranks_speaks(&cli.ranks)) print_error(&cli, status);
    ls_ranks_leave(&cli.ctx, &cli.ranks, status);
    return ls_status_exit_code(status);
}
