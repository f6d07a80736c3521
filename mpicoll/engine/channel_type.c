/* The type Channel: the collectives of one group of a library, whose ranks share memory. */

#define _GNU_SOURCE
#include "channel_type.h"

#include <sched.h>
#include <signal.h>
#include <errno.h>
#include <stddef.h>

#include <structmember.h>

enum { BELOW_LIBRARY = 1 };

static ChannelObject *owner_of(Channel *channel)
{
    return (ChannelObject *)(void *)((char *)channel - offsetof(ChannelObject, channel));
}

/* -- waits ------------------------------------------------------------------------------------- */

void release_lock(ChannelObject *self)
{
    if (self->has_lock)
        self->released = PyEval_SaveThread(), self->has_lock = 0;
}

void take_lock(ChannelObject *self)
{
    if (self->released) {
        PyEval_RestoreThread(self->released);
        self->released = NULL, self->has_lock = 1;
    }
}

static int has_process_ended(int64_t process)
{
    if (kill((pid_t)process, 0) < 0 && errno == ESRCH)
        return 1;
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)process);
    FILE *const file = fopen(path, "re");
    if (!file)
        return 0;
    const int read = fscanf(file, "%*d (%*[^)]) %c", &state);
    fclose(file);
    return read == 1 && (state == 'Z' || state == 'X');
}

static int fail(ChannelObject *self, int peer, const char *reason, double seconds)
{
    self->failure = (Failure){reason, peer, seconds};
    return -1;
}

/* Let MPI go on, and look at the rank that this one waits for; -1 where it will not come. */
static int look_at(ChannelObject *self, int peer, int is_long, double seconds)
{
    if (self->progress != Py_None) {
        take_lock(self);
        PyObject *const result = PyObject_CallNoArgs(self->progress);
        Py_XDECREF(result);
        release_lock(self);
        if (!result)
            return fail(self, peer, NULL, 0);
    }
    if (self->is_closing)
        return fail(self, peer, "over", seconds);
    int64_t *const words = unit_words(self->channel.units[peer]);
    const int64_t left = __atomic_load_n(words + LEFT, __ATOMIC_ACQUIRE);
    if (left)
        return fail(self, peer, left == BY_EXIT ? "exited" : "left", seconds);
    if (is_long && has_process_ended(self->processes[peer]))
        return fail(self, peer, "ended", seconds);
    const double deadline = self->deadline;
    if (deadline > 0 && seconds > deadline)
        return fail(self, peer, "deadline", deadline);
    return 0;
}

/* Have the process keep memory that it frees, and objects of so many bytes need, where the allocator would give it
   back to the system after each call: glibc keeps twice the longest piece that it has freed, of up to 32 MiB. */
static void keep_memory(int64_t nbytes)
{
    enum { MOST = 31 << 20 };
    static int64_t longest;
    const int64_t piece = nbytes > MOST / KEPT_CALLS ? MOST : nbytes * KEPT_CALLS;
    if (piece <= longest)
        return;
    longest = piece;
    void *volatile memory = malloc((size_t)piece); /* lest the compiler removes the pair */
    free(memory);
}

/* keep_memory(): do so for the memory of a program of several ranks. */
static PyObject *keep_first_memory(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    keep_memory(UNIT_BYTES);
    Py_RETURN_NONE;
}

/* `Channel.wait`: yield, then sleep, while MPI's own messages move. A handler of a signal in Python runs
   after the call, as with MPI's own. */
static int wait_for(Channel *channel, const int64_t *word, int64_t minimum, int peer)
{
    enum { NAP_NS = 1000000, LOOK_NS = 50000000 };
    ChannelObject *const self = owner_of(channel);
    const int had_lock = self->has_lock;
    /* A thread beside the program's own leaves a core to it that other ranks use, too. */
    const int64_t yield_ns = channel->has_cores ? self->is_aside ? YIELD_NS : LONG_YIELD_NS
                                                : self->is_aside ? 0 : YIELD_NS;
    const int64_t begun = nanoseconds();
    int64_t now = begun, moved = begun, looked = begun;
    int outcome = 0, is_there = 0;
    if (had_lock)
        release_lock(self);
    self->waits_for = peer;
    while (!is_there && !outcome) {
        if (now - begun < yield_ns)
            for (int yields = 0; yields < YIELDS && !is_there; yields++) {
                sched_yield();
                is_there = __atomic_load_n(word, __ATOMIC_ACQUIRE) >= minimum;
            }
        else
            is_there = word_sleep(word, minimum, unit_words(channel->units[0]) + SLEEPERS, NAP_NS);
        now = nanoseconds();
        if (is_there || now - moved < NAP_NS)
            continue;
        moved = now;
        const int is_long = now - looked > LOOK_NS;
        if (is_long)
            looked = now;
        outcome = look_at(self, peer, is_long, (double)(now - begun) * 1e-9);
        is_there = __atomic_load_n(word, __ATOMIC_ACQUIRE) >= minimum;
        if (is_there && self->failure.reason)
            outcome = 0; /* it came meanwhile */
    }
    self->waits_for = -1;
    if (had_lock)
        take_lock(self);
    return outcome;
}

/* -- calls ------------------------------------------------------------------------------------- */

static PyObject *key_tuple(Key key)
{
    const uint8_t collective = key.collective < COLLECTIVES ? key.collective : BARRIER;
    return Py_BuildValue("iiiii", collective, key.is_object, key.op, key.kind, key.root);
}

/* Raise the error of messages that do not fit. */
static void raise_difference(ChannelObject *self)
{
    const Channel *const channel = &self->channel;
    PyObject *const odd = key_tuple(channel->odd.key), *const local = key_tuple(channel->odd_key);
    PyObject *const numbers =
        odd && local ? Py_BuildValue("NLNL", odd, (long long)channel->odd.total, local,
                                     (long long)channel->odd_total)
                     : NULL;
    if (!numbers)
        return;
    PyObject *const result = PyObject_CallMethod(self->owner, "fail", "isO", channel->odd_peer, "different", numbers);
    Py_DECREF(numbers);
    Py_XDECREF(result);
}

/* Return the bytes of a block list to three binary digits, and mix them into `number`. */
static long long rough_total(const ChannelObject *self, const int64_t *lengths, uint64_t *number)
{
    uint64_t total = 0;
    for (int rank = 0; rank < self->channel.size; rank++)
        total += (uint64_t)lengths[rank];
    const int extra = total ? 61 - __builtin_clzll(total) : 0;
    total = extra > 0 ? total >> extra << extra : total;
    *number = (*number ^ total) * 0x9e3779b97f4a7c15u;
    return (long long)total;
}

/* Return about how many times the mean each rank's block has, as a tuple of powers of two, and mix it into
   `number`; of an alltoall, the bytes that this rank sends and receives. None where blocks have no lengths of their
   own. */
static PyObject *shares_of(const ChannelObject *self, const Request *request, uint64_t *number)
{
    const Move *const move = &request->move;
    const int64_t *const lengths =
        request->shape == MOVES                                ? move->target.lengths ? move->target.lengths
                                                                                      : move->source.lengths
        : request->shape == FOLDS_ROWS && request->x.has_counts ? request->x.lengths
                                                               : NULL;
    int64_t total = 0;
    if (request->shape == MOVES && request->key.collective == ALLTOALL) {
        if (!move->source.lengths || !move->target.lengths)
            return Py_NewRef(Py_None);
        const long long sent = rough_total(self, move->source.lengths, number);
        return Py_BuildValue("LL", sent, rough_total(self, move->target.lengths, number));
    }
    for (int rank = 0; lengths && rank < self->channel.size; rank++)
        total += lengths[rank];
    if (!total)
        return Py_NewRef(Py_None);
    PyObject *const shares = PyTuple_New(self->channel.size);
    for (int rank = 0; shares && rank < self->channel.size; rank++) {
        const double share = (double)lengths[rank] * self->channel.size / (double)total;
        const uint64_t parts = (uint64_t)(share * 64 * 1.4142), bits = parts ? 64 - __builtin_clzll(parts) : 0;
        *number = (*number ^ bits) * 0x9e3779b97f4a7c15u;
        PyTuple_SET_ITEM(shares, rank, PyLong_FromLong(bits ? 1L << bits : 0));
    }
    return shares;
}

/* The place of a call in the table of the recorder; 0 where Python has raised. */
uint32_t request_place(ChannelObject *self, const Request *request)
{
    const Key key = request->key;
    const int64_t nbytes = request->nbytes;
    uint64_t number = 0;
    memcpy(&number, &key, sizeof key);
    const int size = nbytes > 0 ? 64 - __builtin_clzll((unsigned long long)nbytes) : 0;
    number = (number ^ (uint64_t)size << 58) + 1;
    PyObject *const shares = shares_of(self, request, &number);
    Place *const place = self->places + (number * 0x9e3779b97f4a7c15u >> 56) % PLACES;
    if (shares && place->key != number) {
        PyObject *const tuple = key_tuple(key);
        PyObject *const result =
            tuple ? PyObject_CallMethod(self->owner, "place", "NLO", tuple, (long long)nbytes, shares) : NULL;
        if (result)
            place->place = (uint32_t)PyLong_AsUnsignedLong(result), place->key = number;
        Py_XDECREF(result);
    }
    Py_XDECREF(shares);
    return PyErr_Occurred() ? 0 : place->place;
}

void request_raise(ChannelObject *self, enum outcome outcome)
{
    const Failure failure = self->failure;
    if (PyErr_Occurred())
        return;
    if (outcome == DIFFERENT) {
        raise_difference(self);
    } else if (failure.reason) {
        PyObject *const result =
            PyObject_CallMethod(self->owner, "fail", "isd", failure.peer, failure.reason, failure.seconds);
        Py_XDECREF(result);
    }
    if (!PyErr_Occurred())
        PyErr_NoMemory();
}

int request_record(ChannelObject *self, Request *request)
{
    if (self->forks != forks) {
        PyErr_SetString(PyExc_RuntimeError, "this process is a fork of one of the group's, and makes no calls");
        return -1;
    }
    if (self->has_ended) {
        fail(self, self->channel.rank, self->channel.units ? "failed" : "over", 0);
        request_raise(self, BROKEN);
        return -1;
    }
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a call of this group is under way: code that runs while it waits (a finalizer, "
                        "another thread) cannot make another one here");
        return -1;
    }
    request->row = 0;
    if (self->log) {
        const uint32_t place = request_place(self, request);
        request->row = PyErr_Occurred() ? 0 : log_begin_below(self->log, place, BELOW_LIBRARY);
        if (log_has_raised(request->row))
            return -1;
    }
    return 0;
}

void request_open(ChannelObject *self, const Request *request)
{
    self->is_busy = self->has_lock = 1, self->failure.reason = NULL;
    if (request->nbytes > SLOT_BYTES)
        release_lock(self);
}

int request_begin(ChannelObject *self, Request *request)
{
    if (request_record(self, request) < 0)
        return -1;
    request_open(self, request);
    return 0;
}

static void leave(ChannelObject *self, enum departure departure)
{
    if (self->channel.units && !self->has_ended && self->forks == forks)
        channel_leave(&self->channel, departure);
}

void channel_end(ChannelObject *self)
{
    leave(self, BY_ERROR);
    self->has_ended = 1;
}

static ChannelObject *channels; /* all that exist */

/* Tell ranks that wait for this one that its program ends; once. */
static void channel_exit(ChannelObject *self)
{
    ChannelObject **place = &channels;
    while (*place && *place != self)
        place = &(*place)->next;
    if (!*place)
        return;
    *place = self->next;
    leave(self, BY_EXIT);
}

void queues_stop(void)
{
    ChannelObject *channel = channels;
    while (channel) {
        const int has_thread = channel->has_thread;
        if (has_thread)
            queue_close(channel); /* other threads may change the list meanwhile */
        channel = has_thread ? channels : channel->next;
    }
}

static void exit_all(PyObject *Py_UNUSED(capsule))
{
    while (channels)
        channel_exit(channels);
}

/* The interpreter drops its dictionary after the last object of a program, which may make a call as it is
   deleted. */
int exit_with_interpreter(void)
{
    static const char name[] = "mpicoll.channels";
    PyObject *const state = PyInterpreterState_GetDict(PyInterpreterState_Get());
    PyObject *const capsule = state ? PyCapsule_New(&channels, name, exit_all) : NULL;
    const int added = capsule ? PyDict_SetItemString(state, name, capsule) : -1;
    Py_XDECREF(capsule);
    return added;
}

static PyObject *channel_close(ChannelObject *self, PyObject *ignored);

void request_close(ChannelObject *self)
{
    take_lock(self);
    self->is_busy = self->has_lock = 0;
}

PyObject *request_end(ChannelObject *self, uint64_t row, enum outcome outcome)
{
    request_close(self);
    if (outcome != FINE) {
        request_raise(self, outcome);
        channel_end(self);
    } else {
        log_help_issued();
    }
    log_end(self->log, row, outcome != FINE);
    if (self->closes_later)
        Py_XDECREF(channel_close(self, NULL));
    return outcome == FINE ? Py_NewRef(Py_None) : NULL;
}

/* skip(): count a call that the library serves. */
static PyObject *channel_skip_call(ChannelObject *self, PyObject *Py_UNUSED(ignored))
{
    if (self->has_ended)
        Py_RETURN_NONE; /* its own call raises */
    return request_end(self, 0, channel_skip(&self->channel));
}

/* channel(name, x, out, op, root[, is_flat]): run a call; return None.

   With `is_flat` the arrays are those that the arguments of a call have been read as: return True where others run
   it. */
static PyObject *channel_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    ChannelObject *const self = (ChannelObject *)object;
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    if ((names && PyTuple_GET_SIZE(names)) || count < 5 || count > 6) {
        PyErr_SetString(PyExc_TypeError, "a call takes five or six arguments");
        return NULL;
    }
    Request request;
    if (!self->channel.units)
        return request_begin(self, &request) < 0 ? NULL : Py_NewRef(Py_None); /* it raises */
    const enum served served = request_read(self, args, &request);
    PyObject *result = NULL;
    if (served == IS_SERVED && request_begin(self, &request) == 0) {
        buffer_copy(&request.x, 0), buffer_copy(&request.out, 0);
        const enum outcome outcome = request_run(self, &request);
        if (outcome == FINE)
            buffer_copy(&request.x, 1), buffer_copy(&request.out, 1);
        result = request_end(self, request.row, outcome);
    }
    buffer_release(&request.x), buffer_release(&request.out);
    if (served == IS_SERVED || served == IS_RAISED)
        return result;
    PyErr_Clear();
    if (served == IS_MPIS) {
        PyObject *const done = channel_skip_call(self, NULL);
        Py_XDECREF(done);
        if (!done)
            return NULL;
    }
    if (count == 6)
        Py_RETURN_TRUE;
    return PyObject_Vectorcall(served == IS_MPIS ? self->library : self->slow, args, 5, NULL);
}

/* -- objects ----------------------------------------------------------------------------------- */

/* `Channel.allocate`: bytes for an object that a rank sends. */
static char *allocate(Channel *channel, int peer, int64_t total)
{
    ChannelObject *const self = owner_of(channel);
    if (!self->received[peer]) {
        const int had_lock = self->has_lock;
        take_lock(self);
        self->received[peer] = PyBytes_FromStringAndSize(NULL, total);
        if (!had_lock)
            release_lock(self);
    }
    return self->received[peer] ? PyBytes_AS_STRING(self->received[peer]) : NULL;
}

static PyObject *received_of(ChannelObject *self, const Move *move, PyObject *result)
{
    if (!result || move->first_peer >= move->end_peer)
        return result;
    Py_DECREF(result);
    const int count = move->end_peer - move->first_peer;
    PyObject *const list = PyList_New(count);
    for (int index = 0; list && index < count; index++) {
        PyObject *const item = self->received[move->first_peer + index];
        PyList_SET_ITEM(list, index, Py_NewRef(item ? item : Py_None));
    }
    return list;
}

/* exchange(collective, root, data): move bytes whose lengths only their senders know.

   root: in a reduce the distance between the two ranks of a pair, of which the first one receives: a level of a tree.
   data: what this rank sends: bytes, or a list of bytes for each rank; None where it sends nothing.
   Returns a list of what it receives, in rank order, with None for its own. */
PyObject *channel_exchange(ChannelObject *self, PyObject *args)
{
    int collective, root;
    PyObject *data;
    const int size = self->channel.size, rank = self->channel.rank;
    if (!PyArg_ParseTuple(args, "iiO", &collective, &root, &data))
        return NULL;
    const int is_pair = collective == REDUCE;
    if (collective < BCAST || collective > REDUCE || root < is_pair || root >= size) {
        PyErr_SetString(PyExc_ValueError, "no such collective, or root");
        return NULL;
    }
    const int is_root = rank == root, has_rows = collective == SCATTER || collective == ALLTOALL;
    Move move = {.key = {.collective = (uint8_t)collective, .is_object = 1, .root = (uint16_t)root},
                 .sends_rows = has_rows, .end_reader = size, .end_peer = size, .allocates = 1};
    if (collective == BCAST || collective == SCATTER) {
        move.sends = is_root, move.first_peer = root, move.end_peer = is_root ? root : root + 1;
    } else if (collective == GATHER) {
        move.sends = !is_root, move.first_reader = root, move.end_reader = root + 1;
        move.end_peer = is_root ? size : 0;
    } else if (is_pair) {
        const int place = rank % (2 * root), reader = rank - place;
        move.key.root = (uint16_t)reader, move.sends = place == root;
        move.first_reader = reader, move.end_reader = reader + 1;
        move.first_peer = rank + root, move.end_peer = !place && rank + root < size ? rank + root + 1 : 0;
    } else {
        move.sends = 1;
    }
    Py_buffer views[MOST_MEMBERS];
    int64_t lengths[MOST_MEMBERS], nbytes = 0;
    char *places[MOST_MEMBERS];
    int count = 0;
    const int wanted = move.sends ? has_rows ? size : 1 : 0;
    PyObject *items = has_rows && move.sends ? PySequence_Fast(data, "a list of bytes") : Py_NewRef(data);
    PyObject *result = NULL, **const received = PyMem_Calloc((size_t)size, sizeof(PyObject *));
    int fine = items && received && (!(has_rows && move.sends) || PySequence_Fast_GET_SIZE(items) == size);
    for (; fine && count < wanted; count++) {
        PyObject *const item = has_rows ? PySequence_Fast_GET_ITEM(items, count) : items;
        if (PyObject_GetBuffer(item, views + count, PyBUF_SIMPLE) < 0)
            break;
        lengths[count] = views[count].len, places[count] = views[count].buf, nbytes += views[count].len;
    }
    fine = fine && count == wanted;
    if (!fine && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "one item for each rank");
    move.source = (Blocks){.lengths = lengths, .places = places};
    Request request;
    request.shape = FOLDS, request.key = move.key, request.nbytes = nbytes;
    request.key.root = is_pair ? 0 : move.key.root;
    if (fine && request_begin(self, &request) == 0) {
        PyObject **const outer = self->received;
        self->received = received;
        if (!has_rows && wanted)
            move.source = (Blocks){.base = places[0], .nbytes = lengths[0]};
        result = request_end(self, request.row, channel_move(&self->channel, &move));
        for (int peer = 0; peer < size; peer++)
            nbytes += received[peer] ? PyBytes_GET_SIZE(received[peer]) : 0;
        keep_memory(nbytes);
        result = received_of(self, &move, result);
        self->received = outer;
    }
    for (int index = 0; index < count; index++)
        PyBuffer_Release(views + index);
    for (int peer = 0; received && peer < size; peer++)
        Py_XDECREF(received[peer]);
    PyMem_Free(received);
    Py_XDECREF(items);
    return result;
}

/* close(): leave the channel, whose memory other channels of the ranks then get; at the end of a call that is under
   way. */
static PyObject *channel_close(ChannelObject *self, PyObject *Py_UNUSED(ignored))
{
    if (self->is_busy)
        self->closes_later = 1;
    else if (!self->has_ended || self->channel.units) {
        for (int peer = 0; self->channel.units && self->forks == forks && peer < self->channel.size; peer++)
            __atomic_add_fetch(unit_words(self->channel.units[peer]) + CLOSED, 1, __ATOMIC_ACQ_REL);
        self->has_ended = 1;
        queue_close(self);
        PyMem_Free(self->channel.units);
        self->channel.units = NULL;
    }
    Py_RETURN_NONE;
}

/* leave(): make no more calls, after an error of this rank. */
static PyObject *channel_leave_it(ChannelObject *self, PyObject *Py_UNUSED(ignored))
{
    channel_end(self);
    Py_RETURN_NONE;
}

/* unit_is_closed(address, members): whether all members of a channel have left it. */
static PyObject *unit_is_closed(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long address;
    int members;
    if (!PyArg_ParseTuple(args, "Ki", &address, &members))
        return NULL;
    int64_t *const words = unit_words((char *)(uintptr_t)address);
    return PyBool_FromLong(__atomic_load_n(words + CLOSED, __ATOMIC_ACQUIRE) >= members);
}

/* clear_unit(address): prepare a unit for a new channel. */
static PyObject *clear_unit(PyObject *Py_UNUSED(module), PyObject *address)
{
    char *const unit = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    unit_clear(unit);
    Py_RETURN_NONE;
}

PyMethodDef channel_functions[] = {
    {"prepare_channels", prepare_channels, METH_VARARGS, NULL},
    {"read_buffers", read_buffers, METH_VARARGS, NULL},
    {"keep_memory", keep_first_memory, METH_NOARGS, NULL},
    {"unit_is_closed", unit_is_closed, METH_VARARGS, NULL},
    {"clear_unit", clear_unit, METH_O, NULL},
    {"place_handles", place_handles, METH_VARARGS, NULL},
    {"add_layout", add_layout, METH_VARARGS, NULL},
    {"forget_layout", forget_layout, METH_O, NULL},
    {NULL},
};

/* -- the type ---------------------------------------------------------------------------------- */

static int channel_init(ChannelObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"forms", "units", "rank", "processes", "slow", "library", "owner", "keep", "progress", "log",
                            "deadline", "has_cores", "shares_above", "first_share_ranks", NULL};
    PyObject *forms, *units, *processes, *slow, *library, *owner, *keep, *progress, *log;
    int rank;
    double deadline;
    int has_cores;
    long long above, first;
    if (self->channel.units || self->has_ended) {
        PyErr_SetString(PyExc_TypeError, "a channel is made once");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OO!iO!OOOOOOdpLL", names, &forms, &PyTuple_Type, &units, &rank,
                                     &PyTuple_Type, &processes, &slow, &library, &owner, &keep, &progress, &log,
                                     &deadline, &has_cores, &above, &first))
        return -1;
    const Py_ssize_t size = PyTuple_GET_SIZE(units);
    if (size > MOST_MEMBERS || rank < 0 || rank >= size || PyTuple_GET_SIZE(processes) != size) {
        PyErr_Format(PyExc_ValueError, "a channel has up to %d ranks, each with a unit and a process",
                     MOST_MEMBERS);
        return -1;
    }
    if (log != Py_None && !PyObject_TypeCheck(log, &LogType)) {
        PyErr_SetString(PyExc_TypeError, "a compiled log, or None");
        return -1;
    }
    if (!(self->forms = PyCapsule_GetPointer(forms, FORMS)) || queue_open(self) < 0)
        return -1;
    Channel *const channel = &self->channel;
    channel->rank = rank, channel->size = (int)size, channel->has_cores = has_cores;
    channel->wait = wait_for, channel->allocate = allocate;
    channel->units = PyMem_Calloc((size_t)size, sizeof(char *));
    channel->taken = PyMem_Calloc((size_t)size * 3, sizeof(int64_t));
    if (!channel->units || !channel->taken) {
        PyErr_NoMemory();
        return -1;
    }
    channel->read = channel->taken + size, self->processes = channel->taken + 2 * size;
    for (Py_ssize_t peer = 0; peer < size; peer++) {
        channel->units[peer] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(units, peer));
        self->processes[peer] = PyLong_AsLongLong(PyTuple_GET_ITEM(processes, peer));
    }
    self->slow = Py_NewRef(slow), self->library = Py_NewRef(library);
    self->owner = Py_NewRef(owner), self->keep = Py_NewRef(keep), self->progress = Py_NewRef(progress);
    self->log = log == Py_None ? NULL : (LogObject *)Py_NewRef(log);
    self->deadline = deadline, self->forks = forks;
    self->shares_above = above, self->first_share_ranks = first, self->waits_for = -1;
    self->vectorcall = channel_call;
    self->next = channels, channels = self;
    keep_memory(UNIT_BYTES);
    return PyErr_Occurred() ? -1 : 0;
}

static int channel_traverse(ChannelObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->slow);
    Py_VISIT(self->library);
    Py_VISIT(self->owner);
    Py_VISIT(self->progress);
    return 0;
}

static int channel_clear(ChannelObject *self)
{
    Py_CLEAR(self->slow);
    Py_CLEAR(self->library);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->progress);
    return 0;
}

static void channel_dealloc(ChannelObject *self)
{
    if (PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0)
        return;
    PyObject_GC_UnTrack(self);
    queue_close(self);
    channel_clear(self);
    Py_XDECREF(self->keep);
    Py_XDECREF(self->log);
    PyMem_Free(self->channel.units);
    PyMem_Free(self->channel.taken);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef channel_members[] = {
    {"progress", T_OBJECT, offsetof(ChannelObject, progress), 0, NULL},
    {"deadline", T_DOUBLE, offsetof(ChannelObject, deadline), 0, NULL},
    {"held", T_BOOL, offsetof(ChannelObject, is_held), 0, NULL},
    {"issued", T_LONGLONG, offsetof(ChannelObject, issued), READONLY, NULL},
    {"completed", T_LONGLONG, offsetof(ChannelObject, completed), READONLY, NULL},
    {"failed", T_LONGLONG, offsetof(ChannelObject, failed), READONLY, NULL},
    {"has_ended", T_BOOL, offsetof(ChannelObject, has_ended), READONLY, NULL},
    {"waits_for", T_INT, offsetof(ChannelObject, waits_for), READONLY, NULL},
    {NULL},
};

static PyMethodDef channel_methods[] = {
    {"run", (PyCFunction)(void (*)(void))queue_run, METH_FASTCALL, NULL},
    {"run_next", (PyCFunction)(void (*)(void))queue_run_next, METH_FASTCALL, NULL},
    {"issue", (PyCFunction)(void (*)(void))queue_issue, METH_FASTCALL, NULL},
    {"complete", (PyCFunction)queue_complete, METH_O, NULL},
    {"exchange", (PyCFunction)channel_exchange, METH_VARARGS, NULL},
    {"skip", (PyCFunction)channel_skip_call, METH_NOARGS, NULL},
    {"leave", (PyCFunction)channel_leave_it, METH_NOARGS, NULL},
    {"close", (PyCFunction)channel_close, METH_NOARGS, NULL},
    {NULL},
};

PyTypeObject ChannelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.engine._compiled.Channel",
    .tp_basicsize = sizeof(ChannelObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(ChannelObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)channel_init,
    .tp_traverse = (traverseproc)channel_traverse,
    .tp_clear = (inquiry)channel_clear,
    .tp_dealloc = (destructor)channel_dealloc,
    .tp_finalize = (destructor)channel_exit,
    .tp_methods = channel_methods,
    .tp_members = channel_members,
};
