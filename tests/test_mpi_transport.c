/* The MPI plug-in on an MPI of its own, which does wrong what it is told to: what ranks say of one
 * another, and that a failed exchange leaves nothing behind that reaches into memory given back. */
#include "../src/ranks/plugin/mpi_transport.c"
#include "harness.h"

enum { RECEIVE = 1, SEND = 2, ROOM = 64 };

/* One message each way, and one failure, which may have come. */
static struct {
    char *to;      /* where a receive lands; NULL: none */
    int room;      /* of it */
    int in_bytes;  /* of the message that has come; 0: none yet */
    int sent;      /* a send has ended */
    int send_ends; /* whether one does */
    int lost;      /* the other rank is gone */
    int nameless;  /* MPI_Comm_rank fails */
    int aborted, tells;
    const ls_rank_failure *failure;
} mpi;

/* The message from the other rank, now or late. */
static void deliver(int bytes) {
    mpi.in_bytes = bytes;
    if (mpi.to != NULL) memset(mpi.to, 'x', (size_t)(bytes < mpi.room ? bytes : mpi.room));
}

int MPI_Init_thread(int *count, char ***words, int wanted, int *level) {
    (void)count, (void)words;
    *level = wanted;
    return MPI_SUCCESS;
}
int MPI_Finalize(void) {
    return MPI_SUCCESS;
}
int MPI_Abort(MPI_Comm all, int code) {
    (void)all;
    mpi.aborted = code;
    return MPI_SUCCESS;
}
int MPI_Comm_rank(MPI_Comm all, int *rank) {
    (void)all;
    *rank = 0;
    return mpi.nameless ? MPI_ERR_OTHER : MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm all, int *size) {
    (void)all;
    *size = 2;
    return MPI_SUCCESS;
}
int MPI_Comm_set_errhandler(MPI_Comm all, MPI_Errhandler handler) {
    (void)all, (void)handler;
    return MPI_SUCCESS;
}
int MPI_Error_class(int code, int *kind) {
    *kind = code;
    return MPI_SUCCESS;
}
int MPI_Isend(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm all,
              MPI_Request *out) {
    (void)from, (void)count, (void)type, (void)to, (void)all;
    if (tag == FAILURE) mpi.tells++;
    mpi.sent = mpi.send_ends;
    *out = SEND;
    return MPI_SUCCESS;
}
int MPI_Irecv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm all,
              MPI_Request *out) {
    (void)type, (void)from, (void)tag, (void)all;
    mpi.to = to;
    mpi.room = count;
    if (mpi.in_bytes > 0) deliver(mpi.in_bytes);
    *out = RECEIVE;
    return MPI_SUCCESS;
}
int MPI_Recv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm all,
             MPI_Status *status) {
    (void)type, (void)from, (void)tag, (void)all, (void)status;
    memcpy(to, mpi.failure, (size_t)count);
    mpi.failure = NULL;
    return MPI_SUCCESS;
}
int MPI_Iprobe(int from, int tag, MPI_Comm all, int *there, MPI_Status *status) {
    (void)from, (void)tag, (void)all;
    *there = mpi.failure != NULL;
    if (status != NULL) status->MPI_SOURCE = 1;
    return MPI_SUCCESS;
}
int MPI_Test(MPI_Request *request, int *done, MPI_Status *status) {
    (void)status;
    *done = *request != SEND || mpi.sent;
    return MPI_SUCCESS;
}
/* A request that has ended is none any more, as MPI has it. */
int MPI_Testall(int count, MPI_Request requests[], int *done, MPI_Status statuses[]) {
    assert_int_equal(count, 2);
    if (mpi.lost) return MPI_ERR_OTHER;
    const int came = requests[0] == MPI_REQUEST_NULL || mpi.in_bytes > 0 || mpi.to == NULL;
    *done = came && (requests[1] == MPI_REQUEST_NULL || mpi.sent);
    if (!*done) return MPI_SUCCESS;
    const int cut = requests[0] != MPI_REQUEST_NULL && mpi.in_bytes > mpi.room;
    requests[0] = requests[1] = MPI_REQUEST_NULL;
    mpi.to = NULL;
    if (statuses != NULL)
        statuses[0] =
            (MPI_Status){.MPI_ERROR = cut ? MPI_ERR_TRUNCATE : MPI_SUCCESS, .count = mpi.in_bytes};
    return cut ? MPI_ERR_IN_STATUS : MPI_SUCCESS;
}
int MPI_Cancel(MPI_Request *request) {
    assert_int_equal(*request, RECEIVE);
    mpi.to = NULL;
    return MPI_SUCCESS;
}
int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count) {
    (void)type;
    *count = status->count;
    return MPI_SUCCESS;
}

static ls_transport *open_transport(void) {
    char why[80] = "";
    int rank = -1, size = -1;
    ls_transport *t = ls_transport_plugin_open(LS_TRANSPORT_BUILD, &rank, &size, why, sizeof why);
    assert_non_null(t);
    assert_int_equal(rank, 0);
    assert_int_equal(size, 2);
    mpi.send_ends = 1;
    return t;
}

static ls_rank_result swap_bytes(ls_transport *t, char room[ROOM], ls_rank_failure *told) {
    const char ours[ROOM] = "ours";
    const ls_rank_wait wait = {.limit = 0.2};
    memset(room, '-', ROOM);
    return t->exchange(t, &wait, 1, ours, sizeof ours, room, ROOM, told);
}

static void one_exchange(void **unused) {
    (void)unused;
    const struct {
        int bytes, lost;
        ls_rank_result result;
    } cases[] = {
        {ROOM, 0, LS_RANK_DONE}, {ROOM - 1, 0, LS_RANK_ASTRAY}, {ROOM + 1, 0, LS_RANK_ASTRAY},
        {ROOM, 1, LS_RANK_LOST}, {0, 0, LS_RANK_LATE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char room[ROOM];
        ls_rank_failure told;
        memset(&mpi, 0, sizeof mpi);
        ls_transport *t = open_transport();
        mpi.in_bytes = cases[i].bytes;
        mpi.lost = cases[i].lost;
        assert_int_equal(swap_bytes(t, room, &told), cases[i].result);
        free(t);
    }
}

static void late_messages_land_nowhere(void **unused) {
    (void)unused;
    const ls_rank_failure why = {.rank = 1, .code = -5, .message = "its disk is full"};
    for (int told_of = 0; told_of < 2; told_of++) {
        char room[ROOM];
        ls_rank_failure told = {0};
        memset(&mpi, 0, sizeof mpi);
        ls_transport *t = open_transport();
        if (told_of) mpi.failure = &why;
        assert_int_equal(swap_bytes(t, room, &told), told_of ? LS_RANK_TOLD : LS_RANK_LATE);
        if (told_of) assert_string_equal(told.message, why.message);
        deliver(ROOM);
        for (int i = 0; i < ROOM; i++) assert_int_equal(room[i], '-');
        t->tell(t, 1, &why);
        assert_int_equal(mpi.tells, 1);
        assert_int_equal(mpi.aborted, 0);
        free(t);
    }
}

/* What is sent still would be read from memory that is given back: the job ends at once. */
static void a_send_without_end(void **unused) {
    (void)unused;
    char room[ROOM];
    ls_rank_failure told;
    const ls_rank_failure why = {.rank = 0, .code = -8, .message = "late"};
    memset(&mpi, 0, sizeof mpi);
    ls_transport *t = open_transport();
    mpi.send_ends = 0;
    mpi.in_bytes = ROOM;
    assert_int_equal(swap_bytes(t, room, &told), LS_RANK_LATE);
    t->tell(t, 1, &why);
    assert_int_equal(mpi.tells, 0);
    t->close(t, 1);
    assert_int_equal(mpi.aborted, 4);
    free(t);
}

static void what_cannot_be_opened(void **unused) {
    (void)unused;
    char why[80] = "";
    int rank, size;
    memset(&mpi, 0, sizeof mpi);
    assert_null(ls_transport_plugin_open("longshot transport 0", &rank, &size, why, sizeof why));
    assert_string_equal(why, "the plug-in is of another version");
    mpi.nameless = 1;
    assert_null(ls_transport_plugin_open(LS_TRANSPORT_BUILD, &rank, &size, why, sizeof why));
    assert_string_equal(why, "MPI does not say which rank this is");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_exchange),
        cmocka_unit_test(late_messages_land_nowhere),
        cmocka_unit_test(a_send_without_end),
        cmocka_unit_test(what_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
