/* The type Channel, and a call of it whose arguments have been read. */

#ifndef MPICOLL_CHANNEL_TYPE_H
#define MPICOLL_CHANNEL_TYPE_H

#include "call_key.h"
#include "channel.h"
#include "module.h"

#include <pthread.h>

enum { MOST_OPS = 16, PLACES = 256 };

/* The arrays, operators and datatypes that a library gives. */
typedef struct {
    ArgumentReader reader;
    PyObject *in_place; /* what stands instead of an input */
    PyObject *datatype, *op; /* the types of datatypes and operators; None where there are none */
    PyObject *ops;       /* each: an operator of the library's, its name, and kinds of dtypes */
    PyObject *learn; /* learn(datatype): give its layout to `add_layout` */
    PyObject *datatypes; /* each: a datatype of MPI's, and the first of the dtypes with its elements */
    int count;           /* of dtypes */
    int32_t kinds[MAX_DTYPES];     /* as arrays have them */
    int32_t canonical[MAX_DTYPES]; /* the first dtype with the same elements */
    int64_t itemsizes[MAX_DTYPES];
    char types[MAX_DTYPES]; /* as NumPy calls their kinds: i, u, f, c, b */
    const FoldRow *folds[MOST_OPS][MAX_DTYPES];
} Forms;

/* The layout of a datatype in memory: layouts.c. */
typedef struct Layout Layout;

/* What one rank gives as a buffer: `kind` is the number of its dtype, from 1 on; 0 for None, negative for
   MPI.IN_PLACE. */
typedef struct {
    char *address, *low, *high; /* where its bytes begin, and end */
    int64_t nbytes, itemsize;
    int32_t kind;
    int has_counts;
    /* Of a datatype with gaps: a copy of its bytes, which a call moves instead, in so many blocks. */
    char *packed;
    Layout *layout;
    int blocks, is_written;
    int64_t lengths[MOST_MEMBERS];
    char *places[MOST_MEMBERS];
    char *sources[MOST_MEMBERS]; /* where the blocks of the copy come from */
} Buffer;

/* Memory with an element of so many bytes at each `extent`, whose last byte lies before `high`. */
typedef struct {
    char *address;
    int64_t nbytes, size, extent, high;
    Layout *layout; /* NULL without gaps */
} Items;

/* A call whose arguments have been read. */
typedef struct Request {
    enum { MOVES, FOLDS, FOLDS_SHARES, FOLDS_ROWS } shape;
    Key key;
    int root;
    int64_t nbytes; /* for the recorder: of one rank, the mean where only this rank knows them; of an alltoall and
                       of folds, of the whole array */
    Move move;
    FoldCall fold;
    Buffer x, out;
    int has_room; /* blocks may be longer than what comes there, as in MPI */
    int has_counts;
    int64_t counts[MOST_MEMBERS];
    /* Where it was issued: */
    struct Request *next;
    PyObject *arguments;
    uint64_t row; /* in the recorder */
} Request;

/* Which arrays of a call are rows, one for each rank. */
enum { FLAT, INPUT_ROWS, OUTPUT_ROWS, ROWS };

enum served { IS_SERVED, IS_SLOW, IS_MPIS, IS_RAISED };

typedef struct {
    uint64_t key;
    uint32_t place;
} Place;

/* Why a wait has failed. */
typedef struct {
    const char *reason; /* NULL where Python has raised, or memory is short */
    int peer;
    double seconds;
} Failure;

typedef struct ChannelObject {
    PyObject_HEAD
    Channel channel;
    const Forms *forms;
    PyObject *slow;      /* slow(name, x, out, op, root): run a call with arguments of other forms */
    PyObject *library;   /* library(name, x, out, op, root): run the library's own call */
    PyObject *keep;      /* what the memory belongs to: it goes after the channel's thread */
    PyObject *owner;     /* fail(peer, reason, numbers) raises; place(key, bytes, shares) returns the place of a kind of
                            call in the table of the recorder */
    PyObject *progress;  /* lets MPI move messages of its own */
    LogObject *log;
    Place places[PLACES];
    int64_t *processes;
    double deadline;     /* seconds; 0 for none */
    int64_t shares_above, first_share_ranks;
    PyThreadState *released; /* of the thread that is in a call without the interpreter's lock */
    PyObject **received; /* objects, while a call of `exchange` is under way */
    Failure failure;
    int waits_for;       /* a rank, -1 for none */
    char is_busy, has_ended, has_lock, is_aside;
    /* Calls that were issued: channel_queue.c. */
    pthread_mutex_t turn, lock;
    pthread_cond_t wake;
    Request *first, *last, *done; /* that wait, or run; that have run */
    enum outcome outcome;
    long long issued, completed, failed;
    char is_held, has_thread, is_closing, is_broken;
    char closes_later; /* a call was under way as it was to be closed */
    int forks;
    pthread_t thread;
    struct ChannelObject *next; /* of all channels */
    vectorcallfunc vectorcall;
} ChannelObject;

#define FORMS "mpicoll.engine._compiled.forms"

PyObject *prepare_channels(PyObject *module, PyObject *args);
PyObject *read_buffers(PyObject *module, PyObject *args);

/* Read the five arguments of a call on mpi4py's buffers: channel_calls.c. */
enum served request_read(ChannelObject *self, PyObject *const *args, Request *request);

/* The collective of an interned name; COLLECTIVES for another one. */
enum collective collective_named(PyObject *name);

/* Return the handle of an object of the library. */
uint64_t handle_of(PyObject *object);

/* Read memory of a datatype that `add_layout` has described; 0 where it cannot, -1 where Python has raised. */
int layout_find(const Forms *forms, PyObject *datatype, PyObject *memory, int written, Items *items);

/* Have a buffer whose blocks have been read move a copy of them; 0 without memory. */
int layout_use(Layout *layout, Buffer *buffer, int blocks, int written);

/* Copy a buffer with gaps to its packed bytes before a call, and those that it has written back; free them. */
void buffer_copy(const Buffer *buffer, int is_back);
void buffer_release(Buffer *buffer);

PyObject *place_handles(PyObject *module, PyObject *args);
PyObject *add_layout(PyObject *module, PyObject *args);
PyObject *forget_layout(PyObject *module, PyObject *datatype);

/* exchange(collective, root, data): move bytes whose lengths only their senders know: channel_type.c. */
PyObject *channel_exchange(ChannelObject *self, PyObject *args);

/* Run a call; the interpreter's lock is not needed. */
enum outcome request_run(ChannelObject *self, Request *request);

/* Record that a call begins, which may have to wait for another one: -1 where Python has raised. */
int request_record(ChannelObject *self, Request *request);

/* Begin a part of a call that has been recorded, and end it. */
void request_open(ChannelObject *self, const Request *request);
void request_close(ChannelObject *self);

/* Write the first part of a call's data, before this rank knows whether all ranks make it. */
enum outcome request_start(ChannelObject *self, const Request *request);

/* Do both. */
int request_begin(ChannelObject *self, Request *request);

/* End a call that the recorder has begun: None, or NULL where Python has raised. */
PyObject *request_end(ChannelObject *self, uint64_t row, enum outcome outcome);

/* Make no more calls, as this rank has left one by an error, and let the other ranks know. */
void channel_end(ChannelObject *self);

/* The place of a kind of call in the table of the recorder; 0 where Python has raised. */
uint32_t request_place(ChannelObject *self, const Request *request);

/* Raise the error of a call that has failed. */
void request_raise(ChannelObject *self, enum outcome outcome);

/* Make the rest of a call whose buffers have been read. */
enum served build_move(ChannelObject *self, enum collective collective, int counted, Request *request);
enum served build_fold(ChannelObject *self, enum collective collective, PyObject *op, Request *request);

void release_lock(ChannelObject *self);
void take_lock(ChannelObject *self);

int32_t forms_kind(const Forms *forms, int32_t kind);

enum { QUEUE_ARGUMENTS = 8 };

/* Read the arguments of a call on arrays: channel_queue.c. */
int queue_read(
    ChannelObject *self, PyObject *const *args, Py_ssize_t count, int64_t width, const ArrayArgument *x_given,
    const ArrayArgument *out_given, Request *request);

/* The methods run, run_next, issue and complete: channel_queue.c. */
PyObject *queue_run(ChannelObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *queue_run_next(ChannelObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *queue_issue(ChannelObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *queue_complete(ChannelObject *self, PyObject *number);

int queue_open(ChannelObject *self);

/* Run no more calls, and end the thread; with the interpreter's lock. */
void queue_close(ChannelObject *self);

/* Do so for all channels. */
void queues_stop(void);

#endif
