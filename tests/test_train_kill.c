/* kill -9 at fifty random moments: every time the run goes on, and it ends with the same bytes as
 * one that was left in peace. Training happens in children only: threads do not survive a fork.
 * Tier: unsanitized. */
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "train_fixture.h"

enum { KILLS = 50, STEPS = 300 };

static void pause_for(uint64_t microseconds) {
    nanosleep(&(struct timespec){0, (long)microseconds * 1000}, NULL);
}

/* The child's whole life. */
static void train(const char *folder) {
    fixture f;
    ls_train_result result;
    fixture_open(&f, folder, "steps=300", "checkpoint_every=5", NULL);
    _exit(fixture_run(&f, &result) == LS_OK ? 0 : 1);
}

static pid_t start(const char *folder) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) train(folder);
    return child;
}

/* Kills and restarts until the run is through, or until `most` kills were
 * made; returns how many. */
static int run_with_kills(const char *folder, int most, uint64_t round) {
    ls_random key = {.seed = 11, .step = (uint32_t)round};
    int status, kills = 0;
    do {
        pid_t child = start(folder);
        if (kills < most) {
            pause_for(2000 + ls_random_below(key, (uint64_t)kills, 60000));
            kill(child, SIGKILL);
        }
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) kills++;
    } while (WIFSIGNALED(status));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return kills;
}

static void survives_being_killed(void **state) {
    (void)state;
    fixture a = {.ctx = ls_ctx_default()}, b = {.ctx = ls_ctx_default()};
    char whole[] = "/tmp/longshot-kill-XXXXXX";
    assert_non_null(mkdtemp(whole));
    strcpy(a.folder, whole);
    assert_int_equal(run_with_kills(whole, 0, 0), 0);
    uint64_t runs = 0;
    for (int kills = 0; kills < KILLS; runs++) { /* a fast machine needs several runs for fifty */
        char killed[] = "/tmp/longshot-kill-XXXXXX";
        assert_non_null(mkdtemp(killed));
        strcpy(b.folder, killed);
        kills += run_with_kills(killed, KILLS - kills, runs);
        expect_same_checkpoint(&a, &b, STEPS);
        assert_int_equal(ls_folder_remove(&b.ctx, killed), LS_OK);
        assert_true(runs < 1000);
    }
    assert_int_equal(ls_folder_remove(&a.ctx, whole), LS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives_being_killed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
