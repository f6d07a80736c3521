/* The type Channel: the collectives of one communicator of mpi4py, whose ranks share memory. */

#define _GNU_SOURCE
#include "call_key.h"
#include "channel.h"
#include "module.h"

#include "numpy_arrays.h"

#include <sched.h>
#include <signal.h>
#include <errno.h>
#include <stddef.h>

enum { MOST_OPS = 16, PLACES = 256, BELOW_LIBRARY = 1 };

/* The methods of mpi4py, in small letters. */
enum method { BARRIER_, BCAST_, GATHER_, GATHERV_, SCATTER_, SCATTERV_, ALLGATHER_, ALLGATHERV_, ALLTOALL_,
              ALLTOALLV_, REDUCE_, ALLREDUCE_, SCAN_, EXSCAN_, REDUCE_SCATTER_BLOCK_, REDUCE_SCATTER_,
              METHODS };
static const char *const method_names[METHODS] = {
    "barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall",
    "alltoallv", "reduce", "allreduce", "scan", "exscan", "reduce_scatter_block", "reduce_scatter"};
static const enum collective collective_of[METHODS] = {
    BARRIER, BCAST, GATHER, GATHER, SCATTER, SCATTER, ALLGATHER, ALLGATHER, ALLTOALL, ALLTOALL, REDUCE,
    ALLREDUCE, SCAN, EXSCAN, REDUCE_SCATTER, REDUCE_SCATTER};
static PyObject *methods[METHODS];

typedef struct {
    uint64_t key;
    uint32_t place;
} Place;

/* What all channels read alike. */
static struct {
    ArgumentReader reader;
    PyObject *ops;       /* each: an operator of MPI's, and its name */
    PyObject *datatypes; /* each: a datatype of MPI's, and the first of NumPy's dtypes with its elements */
    int32_t canonical[MAX_DTYPES]; /* the first of NumPy's dtypes with the same elements */
    Fold folds[MOST_OPS][MAX_DTYPES];
    FoldMany folds_of_many[MOST_OPS][MAX_DTYPES];
} forms;

typedef struct {
    PyObject_HEAD
    Channel channel;
    PyObject *slow;      /* slow(name, x, out, op, root, counts): as a call here, of arguments of other forms */
    PyObject *fail;      /* fail(peer, reason, numbers): raises */
    PyObject *progress;  /* lets MPI move messages of its own */
    PyObject *place;     /* place(key, bytes): the place of a kind of call in the table of the recorder */
    PyObject *keep;
    LogObject *log;
    Place places[PLACES];
    int64_t *processes;
    double deadline;     /* seconds; 0 for none */
    int64_t yield_ns, shares_above, first_share_ranks;
    PyThreadState *released; /* of the thread that is in a call without the interpreter's lock */
    PyObject **received; /* objects, while a call of `exchange` is under way */
    char is_busy, has_ended;
    vectorcallfunc vectorcall;
} ChannelObject;

int channel_import(void)
{
    for (int method = 0; method < METHODS; method++)
        if (!(methods[method] = PyUnicode_InternFromString(method_names[method])))
            return -1;
    return 0;
}

static ChannelObject *owner_of(Channel *channel)
{
    return (ChannelObject *)(void *)((char *)channel - offsetof(ChannelObject, channel));
}

/* -- waits ------------------------------------------------------------------------------------- */

static void release_lock(ChannelObject *self)
{
    if (!self->released)
        self->released = PyEval_SaveThread();
}

static void take_lock(ChannelObject *self)
{
    if (self->released) {
        PyEval_RestoreThread(self->released);
        self->released = NULL;
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

/* Raise an error of Python's; -1. */
static int raise_reason(ChannelObject *self, int peer, const char *reason, double seconds)
{
    PyObject *const result = PyObject_CallFunction(self->fail, "isd", peer, reason, seconds);
    if (result) {
        Py_DECREF(result);
        PyErr_SetString(PyExc_RuntimeError, "a function that raises has returned");
    }
    return -1;
}

/* Let MPI go on, and look at the rank that this one waits for; -1 where Python has raised. */
static int look_at(ChannelObject *self, int peer, int is_long, double seconds)
{
    if (self->progress != Py_None) {
        PyObject *const result = PyObject_CallNoArgs(self->progress);
        if (!result)
            return -1;
        Py_DECREF(result);
    }
    int64_t *const words = unit_words(self->channel.units[peer]);
    if (__atomic_load_n(words + LEFT, __ATOMIC_ACQUIRE))
        return raise_reason(self, peer, "left", seconds);
    if (is_long && has_process_ended(self->processes[peer]))
        return raise_reason(self, peer, "ended", seconds);
    if (self->deadline > 0 && seconds > self->deadline)
        return raise_reason(self, peer, "deadline", seconds);
    return 0;
}

/* `Channel.wait`: yield, then sleep, while MPI's own messages move. A handler of a signal in Python runs
   after the call, as with MPI's own. */
static int wait_for(Channel *channel, const int64_t *word, int64_t minimum, int peer)
{
    enum { NAP_NS = 1000000, LOOK_NS = 50000000 };
    ChannelObject *const self = owner_of(channel);
    const int had_lock = !self->released;
    const int64_t begun = nanoseconds();
    int64_t now = begun, looked = begun;
    int outcome = 0, is_there = 0;
    release_lock(self);
    while (!is_there && now - begun < self->yield_ns) {
        for (int yields = 0; yields < YIELDS && !is_there; yields++) {
            sched_yield();
            is_there = __atomic_load_n(word, __ATOMIC_ACQUIRE) >= minimum;
        }
        now = nanoseconds();
    }
    while (!is_there && !outcome) {
        is_there = word_sleep(word, minimum, unit_words(channel->units[0]) + SLEEPERS, NAP_NS);
        now = nanoseconds();
        if (is_there || now - begun < NAP_NS)
            continue;
        const int is_long = now - looked > LOOK_NS;
        if (is_long)
            looked = now;
        take_lock(self);
        outcome = look_at(self, peer, is_long, (double)(now - begun) * 1e-9);
        release_lock(self);
        if (outcome && __atomic_load_n(word, __ATOMIC_ACQUIRE) >= minimum) {
            take_lock(self); /* it came meanwhile */
            PyErr_Clear();
            release_lock(self);
            outcome = 0;
        }
        is_there = __atomic_load_n(word, __ATOMIC_ACQUIRE) >= minimum;
    }
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
    PyObject *const result = PyObject_CallFunction(self->fail, "isO", channel->odd_peer, "different", numbers);
    Py_DECREF(numbers);
    Py_XDECREF(result);
}

/* The place of a call in the table of the recorder; 0 where Python has raised. */
static uint32_t place_of(ChannelObject *self, Key key, int64_t nbytes)
{
    uint64_t number = 0;
    memcpy(&number, &key, sizeof key);
    const int size = nbytes > 0 ? 64 - __builtin_clzll((unsigned long long)nbytes) : 0;
    number = (number ^ (uint64_t)size << 58) + 1;
    Place *const place = self->places + (number * 0x9e3779b97f4a7c15u >> 56) % PLACES;
    if (place->key == number)
        return place->place;
    PyObject *const tuple = key_tuple(key);
    PyObject *const result =
        tuple ? PyObject_CallFunction(self->place, "NL", tuple, (long long)nbytes) : NULL;
    if (!result)
        return 0;
    place->place = (uint32_t)PyLong_AsUnsignedLong(result);
    place->key = number;
    Py_DECREF(result);
    return place->place;
}

/* A call under way, and its row in the recorder. */
typedef struct {
    ChannelObject *self;
    uint64_t row;
} Span;

/* Begin a call; -1 where Python has raised. */
static int begin(ChannelObject *self, Span *span, Key key, int64_t nbytes)
{
    if (self->has_ended)
        return raise_reason(self, self->channel.rank, "over", 0);
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a call of this group is under way: code that runs while it waits (a finalizer, "
                        "another thread) cannot make another one here");
        return -1;
    }
    span->self = self, span->row = 0;
    if (self->log) {
        const uint32_t place = place_of(self, key, nbytes);
        if (PyErr_Occurred())
            return -1;
        span->row = log_begin_below(self->log, place, BELOW_LIBRARY);
    }
    self->is_busy = 1;
    if (nbytes > SLOT_BYTES)
        release_lock(self);
    return 0;
}

/* End a call: None, or NULL where Python has raised. */
static PyObject *end(const Span *span, enum outcome outcome)
{
    ChannelObject *const self = span->self;
    take_lock(self);
    if (outcome == DIFFERENT)
        raise_difference(self);
    if (outcome != FINE) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        self->has_ended = 1;
        word_raise(unit_words(self->channel.units[self->channel.rank]) + LEFT, 1,
                   unit_words(self->channel.units[0]) + SLEEPERS);
    }
    self->is_busy = 0;
    log_end(self->log, span->row, outcome != FINE);
    return outcome == FINE ? Py_NewRef(Py_None) : NULL;
}

/* -- arguments --------------------------------------------------------------------------------- */

/* What one rank gives as a buffer. */
typedef struct {
    char *address;
    int64_t nbytes, itemsize;
    int32_t kind;               /* of NumPy's dtypes, from 1 on; 0 for None, negative for MPI.IN_PLACE */
    int has_counts;
    int64_t lengths[MOST_MEMBERS];
    char *places[MOST_MEMBERS];
} Buffer;

enum { UNREAD, READ };

static int64_t itemsize_of(int32_t kind)
{
    return PyLong_AsLongLong(PyTuple_GET_ITEM(PyTuple_GET_ITEM(forms.reader.dtypes, kind - 1), 1));
}

/* Read one number for each rank. */
static int read_numbers(ChannelObject *self, PyObject *item, int64_t *numbers)
{
    const int size = self->channel.size;
    if (Py_TYPE(item) == forms.reader.array_type) {
        ArrayArgument array;
        if (!read_array(&forms.reader, item, &array, 0) || array.dimensions != 1 || array.kind < 1 ||
            array.shape[0] != size)
            return UNREAD;
        const NumpyDtype *const dtype = (NumpyDtype *)((NumpyArray *)item)->descr;
        if (dtype->kind != 'i' || (array.nbytes != 8 * size && array.nbytes != 4 * size))
            return UNREAD;
        for (int rank = 0; rank < size; rank++)
            numbers[rank] = array.nbytes == 8 * size ? ((int64_t *)(void *)array.address)[rank]
                                                     : ((int32_t *)(void *)array.address)[rank];
        return READ;
    }
    if ((!PyList_CheckExact(item) && !PyTuple_CheckExact(item)) || PySequence_Fast_GET_SIZE(item) != size)
        return UNREAD;
    for (int rank = 0; rank < size; rank++) {
        PyObject *const number = PySequence_Fast_GET_ITEM(item, rank);
        if (!PyLong_CheckExact(number))
            return UNREAD;
        numbers[rank] = PyLong_AsLongLong(number);
    }
    return PyErr_Occurred() ? UNREAD : READ;
}

static int same_elements(PyObject *datatype, int32_t kind)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(forms.datatypes);
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *const pair = PyTuple_GET_ITEM(forms.datatypes, index);
        if (PyTuple_GET_ITEM(pair, 0) == datatype)
            return PyLong_AsLong(PyTuple_GET_ITEM(pair, 1)) == forms.canonical[kind - 1];
    }
    return 0;
}

/* Read a buffer: an array, or a list of an array, counts, displacements and a datatype.

   blocks: it has one for each rank; `counted`: with a count for each. */
static int read_buffer(
    ChannelObject *self, PyObject *object, Buffer *buffer, int written, int counted)
{
    ArrayArgument array;
    buffer->has_counts = 0, buffer->kind = 0, buffer->nbytes = 0, buffer->address = NULL;
    if (object == Py_None)
        return READ;
    if (object == forms.reader.in_place) {
        buffer->kind = -1;
        return READ;
    }
    PyObject *memory = object, *extra[2] = {NULL, NULL}, *datatype = NULL;
    if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) {
        const Py_ssize_t length = PySequence_Fast_GET_SIZE(object);
        PyObject **const items = PySequence_Fast_ITEMS(object);
        if (length < 2 || length > 4)
            return UNREAD;
        memory = items[0];
        if ((PyObject *)Py_TYPE(items[length - 1]) == forms.reader.datatype)
            datatype = items[length - 1];
        else if (length > 2)
            return UNREAD;
        const Py_ssize_t numbers = length - 1 - (datatype != NULL);
        if (numbers > 0)
            extra[0] = items[1];
        if (numbers > 1)
            extra[1] = items[2];
        if (numbers == 1 && counted && PyTuple_CheckExact(extra[0])) {
            if (PyTuple_GET_SIZE(extra[0]) != 2)
                return UNREAD;
            extra[1] = PyTuple_GET_ITEM(extra[0], 1), extra[0] = PyTuple_GET_ITEM(extra[0], 0);
        }
    }
    if (Py_TYPE(memory) != forms.reader.array_type ||
        !read_array(&forms.reader, memory, &array, written) || array.kind < 1)
        return UNREAD;
    if (datatype && !same_elements(datatype, array.kind))
        return UNREAD;
    buffer->address = array.address, buffer->nbytes = array.nbytes, buffer->kind = array.kind;
    buffer->itemsize = itemsize_of(array.kind);
    if (!counted) {
        if (extra[1])
            return UNREAD;
        if (extra[0]) {
            const int64_t count = PyLong_CheckExact(extra[0]) ? PyLong_AsLongLong(extra[0]) : -1;
            if (count < 0 || count > array.nbytes / buffer->itemsize)
                return UNREAD;
            buffer->nbytes = count * buffer->itemsize, buffer->has_counts = 1;
        }
        return READ;
    }
    const int size = self->channel.size;
    int64_t starts[MOST_MEMBERS];
    const int64_t elements = array.nbytes / buffer->itemsize;
    if (!extra[0]) {
        for (int rank = 0; rank < size; rank++)
            buffer->lengths[rank] = elements / size + (rank < elements % size);
    } else if (read_numbers(self, extra[0], buffer->lengths) == UNREAD) {
        return UNREAD;
    }
    if (extra[1] && read_numbers(self, extra[1], starts) == UNREAD)
        return UNREAD;
    int64_t total = 0;
    for (int rank = 0; rank < size; rank++) {
        const int64_t start = extra[1] ? starts[rank] : total, length = buffer->lengths[rank];
        if (length < 0 || (length && (start < 0 || start > elements || length > elements - start)))
            return UNREAD;
        buffer->places[rank] = array.address + (length ? start * buffer->itemsize : 0);
        buffer->lengths[rank] = length * buffer->itemsize;
        total += length;
    }
    buffer->has_counts = 1;
    return READ;
}

static Blocks all_blocks(const ChannelObject *self, const Buffer *buffer)
{
    if (buffer->has_counts)
        return (Blocks){.base = buffer->address, .lengths = buffer->lengths, .places = buffer->places};
    return (Blocks){.base = buffer->address, .nbytes = buffer->nbytes / self->channel.size};
}

static Blocks one_block(const Buffer *buffer)
{
    return (Blocks){.base = buffer->address, .nbytes = buffer->nbytes};
}

static Blocks block_of(const Blocks *blocks, int rank)
{
    return (Blocks){
        .base = blocks->places ? blocks->places[rank] : blocks->base + rank * blocks->nbytes,
        .nbytes = blocks->lengths ? blocks->lengths[rank] : blocks->nbytes};
}

static int overlap(const Buffer *left, const Buffer *right)
{
    return left->nbytes && right->nbytes && left->address < right->address + right->nbytes &&
           right->address < left->address + left->nbytes;
}

/* -- calls that move data ---------------------------------------------------------------------- */

enum served { IS_SERVED, IS_SLOW, IS_MPIS };

/* Whether blocks of equal length fill a buffer: without a count, its elements are divided among them. */
static int is_even(const ChannelObject *self, Buffer *buffer)
{
    const int size = self->channel.size;
    if (buffer->has_counts) {
        /* The count is that of one block. */
        buffer->nbytes *= size;
        return 0;
    }
    return buffer->nbytes / buffer->itemsize % size == 0;
}

static int move_of(
    ChannelObject *self, enum method method, PyObject *const *args, int root, Move *move, Buffer *x,
    Buffer *out)
{
    const int rank = self->channel.rank, size = self->channel.size, is_root = rank == root;
    const int counted = method == GATHERV_ || method == SCATTERV_ || method == ALLGATHERV_ ||
                        method == ALLTOALLV_;
    const enum collective collective = collective_of[method];
    memset(move, 0, sizeof *move);
    move->key.collective = (uint8_t)collective, move->key.root = (uint16_t)root;
    Blocks whole;
    switch (collective) {
    case BARRIER:
        move->sends = 1, move->end_reader = size, move->end_peer = size;
        return READ;
    case BCAST:
        if (!read_buffer(self, args[1], x, !is_root, 0) || x->kind < 1)
            return UNREAD;
        move->sends = is_root, move->end_reader = size, move->source = one_block(x);
        move->first_peer = root, move->end_peer = is_root ? root : root + 1;
        move->gets_one = 1, move->target = one_block(x);
        return READ;
    case GATHER:
        if (!read_buffer(self, args[1], x, 0, 0) || (!is_root && x->kind < 1))
            return UNREAD;
        if (!is_root) {
            move->sends = 1, move->first_reader = root, move->end_reader = root + 1;
            move->source = one_block(x);
            return READ;
        }
        if (!read_buffer(self, args[2], out, 1, counted) || out->kind < 1)
            return UNREAD;
        if (!counted && !is_even(self, out))
            return UNREAD;
        move->end_peer = size, move->target = all_blocks(self, out);
        break;
    case SCATTER:
        if (!read_buffer(self, args[2], out, 1, 0) || (!is_root && out->kind < 1))
            return UNREAD;
        if (!is_root) {
            move->first_peer = root, move->end_peer = root + 1, move->gets_one = 1;
            move->target = one_block(out);
            return READ;
        }
        if (!read_buffer(self, args[1], x, 0, counted) || x->kind < 1)
            return UNREAD;
        if (!counted && !is_even(self, x))
            return UNREAD;
        move->sends = move->sends_rows = 1, move->end_reader = size;
        move->source = all_blocks(self, x);
        whole = block_of(&move->source, rank);
        if (out->kind > 0) {
            if (whole.nbytes > out->nbytes || overlap(x, out))
                return UNREAD;
            move->keeps = move->gets_one = 1, move->target = one_block(out);
        }
        return READ;
    case ALLGATHER:
        if (!read_buffer(self, args[1], x, 0, 0) || !read_buffer(self, args[2], out, 1, counted) ||
            out->kind < 1 || !x->kind)
            return UNREAD;
        if (!counted && !is_even(self, out))
            return UNREAD;
        move->sends = 1, move->end_reader = size, move->end_peer = size;
        move->target = all_blocks(self, out);
        break;
    default: /* ALLTOALL */
        if (!read_buffer(self, args[1], x, 0, counted) || !read_buffer(self, args[2], out, 1, counted) ||
            out->kind < 1 || !x->kind)
            return UNREAD;
        if (!counted && ((x->kind > 0 && !is_even(self, x)) || !is_even(self, out)))
            return UNREAD;
        if (x->kind > 0 && overlap(x, out))
            return UNREAD;
        move->sends = move->sends_rows = 1, move->end_reader = size, move->end_peer = size;
        move->target = all_blocks(self, out);
        move->source = x->kind > 0 ? all_blocks(self, x) : move->target;
        move->keeps = x->kind > 0;
        if (move->keeps &&
            block_of(&move->source, rank).nbytes != block_of(&move->target, rank).nbytes)
            return UNREAD;
        return READ;
    }
    /* A gather, on a rank that gets all blocks: its own is `x`, or lies there. */
    whole = block_of(&move->target, rank);
    move->keeps = x->kind > 0;
    move->source = x->kind > 0 ? one_block(x) : whole;
    if (move->source.nbytes != whole.nbytes || (x->kind > 0 && overlap(x, out)))
        return UNREAD;
    return READ;
}

static enum served serve_move(
    ChannelObject *self, enum method method, PyObject *const *args, int root, PyObject **result)
{
    Move move;
    Buffer x, out;
    if (!move_of(self, method, args, root, &move, &x, &out))
        return IS_SLOW;
    int64_t nbytes = move.sends ? (move.sends_rows ? move.source.nbytes * self->channel.size
                                                   : move.source.nbytes)
                                : move.target.nbytes;
    if (move.source.lengths || move.target.lengths) {
        const Blocks *const blocks = move.source.lengths ? &move.source : &move.target;
        nbytes = 0;
        for (int peer = 0; peer < self->channel.size; peer++)
            nbytes += blocks->lengths[peer];
    }
    Span span;
    if (begin(self, &span, move.key, nbytes) < 0)
        return IS_SERVED;
    *result = end(&span, channel_move(&self->channel, &move));
    return IS_SERVED;
}

/* -- calls that fold --------------------------------------------------------------------------- */

static int op_of(PyObject *op)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(forms.ops);
    for (Py_ssize_t index = 0; index < count; index++)
        if (PyTuple_GET_ITEM(PyTuple_GET_ITEM(forms.ops, index), 0) == op)
            return (int)index;
    return -1;
}

/* Run a reduce_scatter, whose input is `x`; its own block lies at the beginning of `out` afterwards. */
static enum outcome fold_rows(
    ChannelObject *self, FoldCall *call, const Buffer *x, const Buffer *out, const int64_t *counts)
{
    const int size = self->channel.size;
    Blocks rows = {.base = x->address, .nbytes = x->nbytes / size};
    char *places[MOST_MEMBERS], *copy = NULL;
    int64_t lengths[MOST_MEMBERS];
    if (x->address == out->address && x->nbytes) { /* in place: results overwrite rows that are not sent */
        copy = PyMem_RawMalloc((size_t)x->nbytes);
        if (!copy)
            return BROKEN;
        rows.base = memcpy(copy, x->address, (size_t)x->nbytes);
    }
    if (counts) {
        char *place = rows.base;
        for (int rank = 0; rank < size; rank++) {
            lengths[rank] = counts[rank] * x->itemsize, places[rank] = place;
            place += lengths[rank];
        }
        rows.lengths = lengths, rows.places = places;
    }
    const enum outcome outcome = channel_fold_rows(&self->channel, call, &rows);
    PyMem_RawFree(copy);
    return outcome;
}

static enum served serve_fold(
    ChannelObject *self, enum method method, PyObject *const *args, int root, PyObject **result)
{
    Channel *const channel = &self->channel;
    const int rank = channel->rank, size = channel->size;
    const enum collective collective = collective_of[method];
    const int gets = method != REDUCE_ || rank == root, is_rows = collective == REDUCE_SCATTER;
    int64_t counts[MOST_MEMBERS];
    Buffer x, out;
    PyObject *target = args[2];
    if (method == REDUCE_SCATTER_) {
        if (!PyList_CheckExact(target) || PyList_GET_SIZE(target) != 2 ||
            read_numbers(self, PyList_GET_ITEM(target, 1), counts) == UNREAD)
            return IS_SLOW;
        target = PyList_GET_ITEM(target, 0);
    }
    if (!read_buffer(self, args[1], &x, 0, 0) || !x.kind || (!gets && x.kind < 0) ||
        (gets && (!read_buffer(self, target, &out, 1, 0) || out.kind < 1)))
        return IS_SLOW;
    const int op = op_of(args[3]);
    if (op < 0)
        return IS_SLOW;
    const int in_place = x.kind < 0;
    if (in_place)
        x = out;
    if (x.kind < 1)
        return IS_SLOW;
    const int32_t kind = forms.canonical[x.kind - 1];
    if (!forms.folds[op][kind])
        return IS_MPIS;
    if (gets && forms.canonical[out.kind - 1] != kind)
        return IS_SLOW;
    if (gets && !in_place && overlap(&x, &out))
        return IS_SLOW;
    if (is_rows) {
        if (x.has_counts || out.has_counts)
            return IS_SLOW;
        int64_t total = 0;
        for (int peer = 0; method == REDUCE_SCATTER_ && peer < size; peer++) {
            if (counts[peer] < 0)
                return IS_SLOW;
            total += counts[peer];
        }
        if (method == REDUCE_SCATTER_ ? x.nbytes != total * x.itemsize ||
                                            (!in_place && out.nbytes != counts[rank] * x.itemsize)
                                      : x.nbytes / x.itemsize % size ||
                                            (!in_place && out.nbytes != x.nbytes / size))
            return IS_SLOW;
    } else if (gets && x.nbytes != out.nbytes) {
        return IS_SLOW;
    }
    FoldCall call = {
        .key = {.collective = (uint8_t)collective, .op = (uint8_t)op, .kind = (uint8_t)kind,
                .root = (uint16_t)root},
        .fold = forms.folds[op][kind], .fold_many = forms.folds_of_many[op][kind],
        .itemsize = x.itemsize, .nbytes = x.nbytes, .input = x.address,
        .result = gets ? out.address : NULL, .end_reader = size, .end_peer = size};
    const int has_shares = (collective == ALLREDUCE || collective == REDUCE) &&
                           size >= self->first_share_ranks && x.nbytes > self->shares_above;
    call.key.has_shares = (uint8_t)has_shares;
    if (collective == REDUCE && !has_shares) {
        call.first_reader = root, call.end_reader = rank == root ? root : root + 1;
    } else if (collective == SCAN || collective == EXSCAN) {
        call.first_reader = rank + 1, call.end_peer = rank + (collective == SCAN);
        if (!call.end_peer)
            call.result = NULL;
    }
    Span span;
    if (begin(self, &span, call.key, x.nbytes) < 0)
        return IS_SERVED;
    const enum outcome outcome =
        is_rows      ? fold_rows(self, &call, &x, &out, method == REDUCE_SCATTER_ ? counts : NULL)
        : has_shares ? channel_fold_shares(channel, &call, collective == REDUCE ? root : -1)
                     : channel_fold(channel, &call);
    *result = end(&span, outcome);
    return IS_SERVED;
}

/* channel(name, x, out, op, root, counts, algorithm): None, or True where MPI's own method is to serve. */
static PyObject *channel_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    ChannelObject *const self = (ChannelObject *)object;
    if ((names && PyTuple_GET_SIZE(names)) || PyVectorcall_NARGS(flags) != 7) {
        PyErr_SetString(PyExc_TypeError, "a call takes seven arguments");
        return NULL;
    }
    int method = 0;
    while (method < METHODS && methods[method] != args[0])
        method++;
    const long root = PyLong_CheckExact(args[4]) ? PyLong_AsLong(args[4]) : -1;
    enum served served = IS_SLOW;
    PyObject *result = NULL;
    if (method < METHODS && root >= 0 && root < self->channel.size)
        served = method < REDUCE_ ? serve_move(self, (enum method)method, args, (int)root, &result)
                                  : serve_fold(self, (enum method)method, args, (int)root, &result);
    if (served == IS_SERVED)
        return result;
    PyErr_Clear();
    if (served == IS_MPIS)
        return Py_NewRef(Py_True);
    return PyObject_Vectorcall(self->slow, args, 7, NULL);
}

/* -- objects ----------------------------------------------------------------------------------- */

/* `Channel.allocate`: bytes for an object that a rank sends. */
static char *allocate(Channel *channel, int peer, int64_t total)
{
    ChannelObject *const self = owner_of(channel);
    if (!self->received[peer]) {
        const int had_lock = !self->released;
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

   data: what this rank sends: bytes, or a list of bytes for each rank; None where it sends nothing.
   Returns a list of what it receives, in rank order, with None for its own. */
static PyObject *channel_exchange(ChannelObject *self, PyObject *args)
{
    int collective, root;
    PyObject *data;
    const int size = self->channel.size, rank = self->channel.rank;
    if (!PyArg_ParseTuple(args, "iiO", &collective, &root, &data))
        return NULL;
    if (collective < BCAST || collective > ALLTOALL || root < 0 || root >= size) {
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
    Span span;
    if (fine && begin(self, &span, move.key, nbytes) == 0) {
        PyObject **const outer = self->received;
        self->received = received;
        if (!has_rows && wanted)
            move.source = (Blocks){.base = places[0], .nbytes = lengths[0]};
        result = end(&span, channel_move(&self->channel, &move));
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

/* skip(): count a call that the library serves. */
static PyObject *channel_skip_call(ChannelObject *self, PyObject *Py_UNUSED(ignored))
{
    if (self->has_ended)
        Py_RETURN_NONE; /* its own call raises */
    return end(&(Span){.self = self}, channel_skip(&self->channel));
}

/* close(): leave the channel, whose memory other channels of the ranks then get. */
static PyObject *channel_close(ChannelObject *self, PyObject *Py_UNUSED(ignored))
{
    if (!self->has_ended || self->channel.units) {
        for (int peer = 0; self->channel.units && peer < self->channel.size; peer++)
            __atomic_add_fetch(unit_words(self->channel.units[peer]) + CLOSED, 1, __ATOMIC_ACQ_REL);
        self->has_ended = 1;
        PyMem_Free(self->channel.units);
        self->channel.units = NULL;
    }
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

static int find_folds(PyObject *names)
{
    const Py_ssize_t kinds = PyTuple_GET_SIZE(forms.reader.dtypes), ops = PyTuple_GET_SIZE(forms.ops);
    if (kinds > MAX_DTYPES || ops > MOST_OPS || PyTuple_GET_SIZE(names) != kinds) {
        PyErr_SetString(PyExc_ValueError, "too many operators or dtypes, or one without a name");
        return -1;
    }
    for (Py_ssize_t kind = 0; kind < kinds; kind++) {
        PyObject *const name = PyTuple_GET_ITEM(names, kind);
        Py_ssize_t first = 0;
        while (PyUnicode_Compare(PyTuple_GET_ITEM(names, first), name))
            first++;
        forms.canonical[kind] = (int32_t)first;
        const char *const dtype = PyUnicode_AsUTF8(name);
        for (Py_ssize_t op = 0; dtype && op < ops; op++) {
            const char *text, *defined;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(forms.ops, op), "Oss", &(PyObject *){NULL}, &text,
                                  &defined))
                return -1;
            if (!strchr(defined, dtype[0] == 'c' ? 'c' : dtype[0]))
                continue;
            forms.folds[op][kind] = find_fold(text, dtype);
            forms.folds_of_many[op][kind] = find_fold_many(text, dtype);
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* prepare_channels(layout, dtypes, ops, datatypes, in_place, datatype): before the first channel. */
static PyObject *prepare_channels(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *probe, *table, *dtypes, *ops, *datatypes, *in_place, *datatype;
    if (!PyArg_ParseTuple(args, "(OO)O!O!O!OO", &probe, &table, &PyTuple_Type, &dtypes, &PyTuple_Type, &ops,
                          &PyTuple_Type, &datatypes, &in_place, &datatype))
        return NULL;
    if (forms.ops) {
        PyErr_SetString(PyExc_RuntimeError, "channels are prepared once");
        return NULL;
    }
    forms.ops = Py_NewRef(ops), forms.datatypes = Py_NewRef(datatypes);
    if (reader_open(&forms.reader, probe, table) < 0 || find_folds(dtypes) < 0)
        return NULL;
    forms.reader.in_place = Py_NewRef(in_place), forms.reader.datatype = Py_NewRef(datatype);
    Py_RETURN_NONE;
}

PyMethodDef channel_functions[] = {
    {"prepare_channels", prepare_channels, METH_VARARGS, NULL},
    {"unit_is_closed", unit_is_closed, METH_VARARGS, NULL},
    {"clear_unit", clear_unit, METH_O, NULL},
    {NULL},
};

/* -- the type ---------------------------------------------------------------------------------- */

static int channel_init(ChannelObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"units", "rank", "processes", "slow", "fail", "progress", "place", "keep", "log",
                            "deadline", "spins", "yield_ns", "shares_above", "first_share_ranks",
                            NULL};
    PyObject *units, *processes, *slow, *fail, *progress, *place, *keep, *log;
    int rank;
    double deadline;
    long long spins, yield_ns, above, first;
    if (self->channel.units || self->has_ended || !forms.ops) {
        PyErr_SetString(PyExc_TypeError, "a channel is made once, after `prepare_channels`");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O!iO!OOOOOOdLLLL", names, &PyTuple_Type, &units, &rank,
                                     &PyTuple_Type, &processes, &slow, &fail, &progress, &place, &keep, &log,
                                     &deadline, &spins, &yield_ns, &above, &first))
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
    Channel *const channel = &self->channel;
    channel->rank = rank, channel->size = (int)size, channel->spins = spins;
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
    self->slow = Py_NewRef(slow), self->fail = Py_NewRef(fail), self->progress = Py_NewRef(progress);
    self->place = Py_NewRef(place), self->keep = Py_NewRef(keep);
    self->log = log == Py_None ? NULL : (LogObject *)Py_NewRef(log);
    self->deadline = deadline, self->yield_ns = yield_ns;
    self->shares_above = above, self->first_share_ranks = first;
    self->vectorcall = channel_call;
    return PyErr_Occurred() ? -1 : 0;
}

static int channel_traverse(ChannelObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->slow);
    Py_VISIT(self->fail);
    Py_VISIT(self->progress);
    Py_VISIT(self->place);
    Py_VISIT(self->keep);
    return 0;
}

static int channel_clear(ChannelObject *self)
{
    Py_CLEAR(self->slow);
    Py_CLEAR(self->fail);
    Py_CLEAR(self->progress);
    Py_CLEAR(self->place);
    Py_CLEAR(self->keep);
    return 0;
}

static void channel_dealloc(ChannelObject *self)
{
    PyObject_GC_UnTrack(self);
    channel_clear(self);
    Py_XDECREF(self->log);
    PyMem_Free(self->channel.units);
    PyMem_Free(self->channel.taken);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef channel_methods[] = {
    {"exchange", (PyCFunction)channel_exchange, METH_VARARGS, NULL},
    {"skip", (PyCFunction)channel_skip_call, METH_NOARGS, NULL},
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
    .tp_methods = channel_methods,
};
