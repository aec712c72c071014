/* As much of MPI's interface as src/ranks/plugin uses: test_mpi_transport.c is the MPI. */
#ifndef LS_TESTS_STAND_IN_MPI_H
#define LS_TESTS_STAND_IN_MPI_H

typedef int MPI_Comm, MPI_Request, MPI_Datatype, MPI_Errhandler;
typedef struct MPI_Status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR, count;
} MPI_Status;
enum {
    MPI_SUCCESS,
    MPI_ERR_TRUNCATE,
    MPI_ERR_IN_STATUS,
    MPI_ERR_OTHER,
    MPI_BYTE = 1,
    MPI_COMM_WORLD = 1,
    MPI_ERRORS_RETURN = 1,
    MPI_REQUEST_NULL = 0,
    MPI_ANY_SOURCE = -1,
    MPI_THREAD_SERIALIZED = 2
};
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)

int MPI_Init_thread(int *count, char ***words, int wanted, int *level);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm all, int code);
int MPI_Comm_rank(MPI_Comm all, int *rank);
int MPI_Comm_size(MPI_Comm all, int *size);
int MPI_Comm_set_errhandler(MPI_Comm all, MPI_Errhandler handler);
int MPI_Error_class(int code, int *kind);
int MPI_Isend(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm all,
              MPI_Request *out);
int MPI_Irecv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm all,
              MPI_Request *out);
int MPI_Recv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm all,
             MPI_Status *status);
int MPI_Iprobe(int from, int tag, MPI_Comm all, int *there, MPI_Status *status);
int MPI_Test(MPI_Request *request, int *done, MPI_Status *status);
int MPI_Testall(int count, MPI_Request requests[], int *done, MPI_Status statuses[]);
int MPI_Cancel(MPI_Request *request);
int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count);

#endif
