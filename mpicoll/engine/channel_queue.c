/* Calls of a channel that are issued, and run in order: by a thread of their own, or by whoever waits for
   them first. They are given as torch's process group has them. */

#define _GNU_SOURCE
#include "channel_type.h"
#include "postponing.h"

#include <errno.h>
#include <stdlib.h>

/* -- arguments --------------------------------------------------------------------------------- */

/* Read an array into a place of a buffer; whether it is one. `given`: what it is, where that has been read. */
static int read_block(
    ChannelObject *self, PyObject *object, const ArrayArgument *given, Buffer *buffer, int place, int written)
{
    ArrayArgument array;
    if (given)
        array = *given;
    else if (object == Py_None || !read_array(&self->forms->reader, object, &array, written))
        return 0;
    const int32_t kind = forms_kind(self->forms, array.kind);
    if (!kind || (place && kind != buffer->kind))
        return 0;
    char *const end = array.address + array.nbytes;
    buffer->kind = kind, buffer->itemsize = self->forms->itemsizes[kind - 1];
    buffer->low = place && buffer->low < array.address ? buffer->low : array.address;
    buffer->high = place && buffer->high > end ? buffer->high : end;
    buffer->nbytes += array.nbytes;
    buffer->lengths[place] = array.nbytes, buffer->places[place] = array.address;
    return 1;
}

/* Read an array, None, or a list of an array for each rank. `counts`: elements of each block, or NULL. */
static int read_side(
    ChannelObject *self, PyObject *object, const ArrayArgument *given, Buffer *buffer, int written, int has_rows,
    const int64_t *counts)
{
    const int size = self->channel.size;
    buffer->kind = 0, buffer->nbytes = 0, buffer->has_counts = 0, buffer->address = NULL;
    if (object == Py_None)
        return 1;
    if (has_rows && (PyList_CheckExact(object) || PyTuple_CheckExact(object))) {
        if (PySequence_Fast_GET_SIZE(object) != size)
            return 0;
        for (int rank = 0; rank < size; rank++)
            if (!read_block(self, PySequence_Fast_GET_ITEM(object, rank), NULL, buffer, rank, written))
                return 0;
        buffer->has_counts = 1, buffer->address = buffer->low;
        return 1;
    }
    if (!read_block(self, object, given, buffer, 0, written))
        return 0;
    buffer->address = buffer->low;
    if (!counts)
        return 1;
    int64_t total = 0;
    for (int rank = 0; rank < size; rank++) {
        if (counts[rank] < 0)
            return 0;
        buffer->places[rank] = buffer->address + total;
        total += buffer->lengths[rank] = counts[rank] * buffer->itemsize;
    }
    buffer->has_counts = 1;
    return total == buffer->nbytes;
}

static int read_counts(const ChannelObject *self, PyObject *object, int64_t width, int64_t *counts)
{
    if (!PyTuple_CheckExact(object) || PyTuple_GET_SIZE(object) != self->channel.size)
        return 0;
    for (int rank = 0; rank < self->channel.size; rank++)
        counts[rank] = PyLong_AsLongLong(PyTuple_GET_ITEM(object, rank)) * width;
    return !PyErr_Occurred();
}

/* name, x, out, op, root, counts, algorithm, rows; whether this rank's arguments are such a call.

   counts: those of all ranks' blocks, in `width` elements; of an alltoall, two tuples: what this rank sends,
   and gets. `x_given`, `out_given`: what `x` and `out` are, where these have been read; else NULL. */
int queue_read(
    ChannelObject *self, PyObject *const *args, Py_ssize_t count, int64_t width, const ArrayArgument *x_given,
    const ArrayArgument *out_given, Request *request)
{
    const enum collective collective = count == QUEUE_ARGUMENTS ? collective_named(args[0]) : COLLECTIVES;
    const long root = collective < COLLECTIVES && PyLong_CheckExact(args[4]) ? PyLong_AsLong(args[4]) : -1;
    if (root < 0 || root >= self->channel.size)
        return 0;
    const long rows = PyLong_AsLong(args[7]);
    const int is_root = self->channel.rank == root, has_counts = args[5] != Py_None;
    PyObject *x_counts = args[5], *out_counts = args[5];
    if (has_counts && collective == ALLTOALL) {
        if (!PyTuple_CheckExact(args[5]) || PyTuple_GET_SIZE(args[5]) != 2)
            return 0;
        x_counts = PyTuple_GET_ITEM(args[5], 0), out_counts = PyTuple_GET_ITEM(args[5], 1);
    }
    int64_t counts[MOST_MEMBERS];
    const int counts_x = has_counts && (collective == ALLTOALL || (collective == SCATTER && is_root));
    const int counts_out = has_counts && (collective == ALLTOALL || collective == ALLGATHER ||
                                          (collective == GATHER && is_root));
    request->root = (int)root, request->has_room = 0;
    request->has_counts = has_counts && collective == REDUCE_SCATTER;
    if ((request->has_counts && !read_counts(self, x_counts, width, request->counts)) ||
        (counts_x && !read_counts(self, x_counts, width, counts)) ||
        !read_side(self, args[1], x_given, &request->x, collective == BCAST && !is_root, rows & INPUT_ROWS,
                   counts_x ? counts : NULL) ||
        (counts_out && !read_counts(self, out_counts, width, counts)) ||
        !read_side(self, args[2], out_given, &request->out, 1, rows & OUTPUT_ROWS, counts_out ? counts : NULL))
        return 0;
    Buffer *const x = &request->x, *const out = &request->out;
    if (collective < REDUCE) {
        const int counted = (collective == SCATTER ? x : out)->has_counts;
        if (collective == ALLTOALL && x->has_counts != out->has_counts)
            return 0;
        if (collective == ALLTOALL && !counted && x->address == out->address)
            x->kind = -1; /* in place */
        return build_move(self, collective, counted, request) == IS_SERVED;
    }
    return build_fold(self, collective, args[3], request) == IS_SERVED;
}

/* -- running ----------------------------------------------------------------------------------- */

/* Free what has run; with the interpreter's lock. */
static void free_done(ChannelObject *self)
{
    pthread_mutex_lock(&self->lock);
    Request *request = self->done;
    self->done = NULL;
    pthread_mutex_unlock(&self->lock);
    while (request) {
        Request *const next = request->next;
        Py_XDECREF(request->arguments);
        free(request);
        request = next;
    }
}

static int has_pending(ChannelObject *self)
{
    pthread_mutex_lock(&self->lock);
    const int has = self->first && !self->is_broken && !self->is_closing;
    pthread_mutex_unlock(&self->lock);
    return has;
}

/* Count the first call as complete; under `lock`. */
static Request *take_first(ChannelObject *self)
{
    Request *const request = self->first;
    self->first = request->next;
    if (!self->first)
        self->last = NULL;
    request->next = self->done, self->done = request;
    __atomic_add_fetch(&self->completed, 1, __ATOMIC_RELEASE);
    return request;
}

/* Run the first call. It needs the turn, and not the interpreter's lock. */
static void run_first(ChannelObject *self)
{
    Request *const request = self->first;
    self->failure.reason = NULL;
    const enum outcome outcome = request_run(self, request);
    if (outcome == FINE) {
        log_done(self->log, request->row);
        pthread_mutex_lock(&self->lock);
        take_first(self);
    } else {
        channel_leave(&self->channel, BY_ERROR);
        pthread_mutex_lock(&self->lock);
        self->outcome = outcome, self->is_broken = self->has_ended = 1;
    }
    pthread_mutex_unlock(&self->lock);
}

static void *live(void *argument)
{
    ChannelObject *const self = argument;
    for (;;) {
        pthread_mutex_lock(&self->lock);
        while (!self->is_closing && (!self->first || self->is_broken))
            pthread_cond_wait(&self->wake, &self->lock);
        const int is_closing = self->is_closing;
        pthread_mutex_unlock(&self->lock);
        if (is_closing)
            return NULL;
        pthread_mutex_lock(&self->turn);
        self->is_aside = 1;
        if (has_pending(self))
            run_first(self);
        self->is_aside = 0;
        pthread_mutex_unlock(&self->turn);
    }
}

/* run_next(...): run a call after those that were issued, which have all run; False where Python has to
   change its arrays first. */
PyObject *queue_run_next(ChannelObject *self, PyObject *const *args, Py_ssize_t count)
{
    Request request;
    free_done(self);
    if (!queue_read(self, args, count, 1, NULL, NULL, &request)) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    if (request_begin(self, &request) < 0)
        return NULL;
    PyObject *const result = request_end(self, request.row, request_run(self, &request));
    if (!result)
        return NULL;
    Py_DECREF(result);
    Py_RETURN_TRUE;
}

/* run(...): the same; False, too, where others have not run. */
PyObject *queue_run(ChannelObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (self->is_held || self->completed < self->issued || self->is_busy)
        Py_RETURN_FALSE;
    call_open();
    return call_end(queue_run_next(self, args, count));
}

/* issue(...): have a call run in its turn, and return its number; 0 where Python has to run it. */
PyObject *queue_issue(ChannelObject *self, PyObject *const *args, Py_ssize_t count)
{
    free_done(self);
    Request *const request = self->is_held || self->has_ended || self->is_busy ? NULL : malloc(sizeof *request);
    if (!request)
        return PyLong_FromLong(0);
    int is_accepted = queue_read(self, args, count, 1, NULL, NULL, request);
    if (is_accepted && !self->has_thread)
        is_accepted = self->has_thread = thread_begin(&self->thread, live, self, "collectives");
    if (!is_accepted) {
        PyErr_Clear();
        free(request);
        return PyLong_FromLong(0);
    }
    const uint32_t place = self->log ? request_place(self, request) : 0;
    request->row = PyErr_Occurred() ? 0 : log_start(self->log, place);
    request->arguments = log_has_raised(request->row) ? NULL : PyTuple_New(2);
    if (!request->arguments) {
        free(request);
        return NULL;
    }
    for (int side = 0; side < 2; side++) {
        PyObject *const item = args[1 + side];
        PyTuple_SET_ITEM(request->arguments, side,
                         PyList_CheckExact(item) ? PyList_AsTuple(item) : Py_NewRef(item));
    }
    request->next = NULL;
    pthread_mutex_lock(&self->lock);
    if (self->last)
        self->last->next = request;
    else
        self->first = request;
    self->last = request, self->issued++;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->lock);
    return PyLong_FromLongLong(self->issued);
}

/* Raise the error of the first call, which has failed as all do that follow; NULL. */
static PyObject *raise_broken(ChannelObject *self)
{
    pthread_mutex_lock(&self->lock);
    const uint64_t row = take_first(self)->row;
    self->failed = self->completed;
    pthread_mutex_unlock(&self->lock);
    request_raise(self, self->outcome);
    log_end(self->log, row, 1);
    free_done(self);
    return NULL;
}

/* complete(number): return once so many calls have run. An error ends the one that was completed last. */
PyObject *queue_complete(ChannelObject *self, PyObject *number)
{
    const long long wanted = PyLong_AsLongLong(number);
    if (PyErr_Occurred())
        return NULL;
    while (__atomic_load_n(&self->completed, __ATOMIC_ACQUIRE) < wanted) {
        if (self->is_broken && self->first)
            return raise_broken(self);
        if (!self->first)
            break; /* the group has been closed */
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&self->turn);
        while (has_pending(self) && __atomic_load_n(&self->completed, __ATOMIC_ACQUIRE) < wanted)
            run_first(self);
        pthread_mutex_unlock(&self->turn);
        Py_END_ALLOW_THREADS
    }
    free_done(self);
    Py_RETURN_NONE;
}

int queue_open(ChannelObject *self)
{
    if (pthread_mutex_init(&self->turn, NULL) || pthread_mutex_init(&self->lock, NULL) ||
        pthread_cond_init(&self->wake, NULL)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

void queue_close(ChannelObject *self)
{
    const int has_thread = self->has_thread;
    self->has_thread = 0;
    if (has_thread && self->forks != forks)
        return; /* in a child, which has no such thread */
    pthread_mutex_lock(&self->lock);
    self->is_closing = 1;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->lock);
    if (has_thread) {
        Py_BEGIN_ALLOW_THREADS
        pthread_join(self->thread, NULL);
        Py_END_ALLOW_THREADS
    }
    while (self->first)
        take_first(self);
    free_done(self);
}
