/* The type Channel: the collectives of one group of a library, whose ranks share memory. */

#define _GNU_SOURCE
#include "channel_type.h"

#include "numpy_arrays.h"

#include <sched.h>
#include <signal.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include <structmember.h>

enum { BELOW_LIBRARY = 1 };
#define FORMS "mpicoll.engine._compiled.forms"

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

int channel_import(void)
{
    for (int method = 0; method < METHODS; method++)
        if (!(methods[method] = PyUnicode_InternFromString(method_names[method])))
            return -1;
    return queue_import();
}

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
    if (__atomic_load_n(words + LEFT, __ATOMIC_ACQUIRE))
        return fail(self, peer, "left", seconds);
    if (is_long && has_process_ended(self->processes[peer]))
        return fail(self, peer, "ended", seconds);
    const double deadline = self->deadline;
    if (deadline > 0 && seconds > deadline)
        return fail(self, peer, "deadline", deadline);
    return 0;
}

/* `Channel.wait`: yield, then sleep, while MPI's own messages move. A handler of a signal in Python runs
   after the call, as with MPI's own. */
static int wait_for(Channel *channel, const int64_t *word, int64_t minimum, int peer)
{
    enum { NAP_NS = 1000000, LOOK_NS = 50000000 };
    ChannelObject *const self = owner_of(channel);
    const int had_lock = self->has_lock;
    /* A thread beside the program's own leaves the core to it. */
    const int64_t yield_ns = self->is_aside && !channel->spins ? 0 : self->yield_ns;
    const int64_t begun = nanoseconds();
    int64_t now = begun, looked = begun;
    int outcome = 0, is_there = 0;
    if (had_lock)
        release_lock(self);
    self->waits_for = peer;
    while (!is_there && now - begun < yield_ns) {
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
    PyObject *const result = PyObject_CallFunction(self->fail, "isO", channel->odd_peer, "different", numbers);
    Py_DECREF(numbers);
    Py_XDECREF(result);
}

/* Return about how many times the mean each rank's block has, as a tuple of powers of two, and mix it into
   `number`; None where blocks have no lengths of their own. */
static PyObject *shares_of(const ChannelObject *self, const Request *request, uint64_t *number)
{
    const Move *const move = &request->move;
    const int is_move = request->shape == MOVES && request->key.collective != ALLTOALL;
    const int64_t *const lengths =
        is_move                                                ? move->target.lengths ? move->target.lengths
                                                                                      : move->source.lengths
        : request->shape == FOLDS_ROWS && request->has_counts ? request->counts
                                                               : NULL;
    int64_t total = 0;
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
    const int has_shares = request->shape == FOLDS_ROWS || request->shape == MOVES;
    PyObject *const shares = has_shares ? shares_of(self, request, &number) : Py_NewRef(Py_None);
    Place *const place = self->places + (number * 0x9e3779b97f4a7c15u >> 56) % PLACES;
    if (shares && place->key != number) {
        PyObject *const tuple = key_tuple(key);
        PyObject *const result =
            tuple ? PyObject_CallFunction(self->place, "NLO", tuple, (long long)nbytes, shares) : NULL;
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
            PyObject_CallFunction(self->fail, "isd", failure.peer, failure.reason, failure.seconds);
        Py_XDECREF(result);
    }
    if (!PyErr_Occurred())
        PyErr_NoMemory();
}

int request_begin(ChannelObject *self, Request *request)
{
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
        if (PyErr_Occurred())
            return -1;
        request->row = log_begin_below(self->log, place, BELOW_LIBRARY);
    }
    self->is_busy = self->has_lock = 1, self->failure.reason = NULL;
    if (request->nbytes > SLOT_BYTES)
        release_lock(self);
    return 0;
}

PyObject *request_end(ChannelObject *self, uint64_t row, enum outcome outcome)
{
    take_lock(self);
    self->is_busy = self->has_lock = 0;
    if (outcome != FINE) {
        request_raise(self, outcome);
        self->has_ended = 1;
        channel_leave(&self->channel);
    }
    log_end(self->log, row, outcome != FINE);
    return outcome == FINE ? Py_NewRef(Py_None) : NULL;
}

/* -- arguments --------------------------------------------------------------------------------- */

enum { UNREAD, READ };

/* The number of a dtype, from 1 on; 0 for one that no call has. */
int32_t forms_kind(const Forms *forms, int32_t kind)
{
    int32_t number = 0;
    while (number < forms->count && forms->kinds[number] != kind)
        number++;
    return number < forms->count ? number + 1 : 0;
}

/* Read one number for each rank. */
static int read_numbers(ChannelObject *self, PyObject *item, int64_t *numbers)
{
    const int size = self->channel.size;
    if (Py_TYPE(item) == self->forms->reader.array_type) {
        ArrayArgument array;
        if (!read_array(&self->forms->reader, item, &array, 0) || array.dimensions != 1 || array.kind < 1 ||
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

static int same_elements(const Forms *forms, PyObject *datatype, int32_t kind)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(forms->datatypes);
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *const pair = PyTuple_GET_ITEM(forms->datatypes, index);
        if (PyTuple_GET_ITEM(pair, 0) == datatype)
            return PyLong_AsLong(PyTuple_GET_ITEM(pair, 1)) == forms->canonical[kind - 1];
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
    if (object == self->forms->reader.in_place) {
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
        if ((PyObject *)Py_TYPE(items[length - 1]) == self->forms->reader.datatype)
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
    if (Py_TYPE(memory) != self->forms->reader.array_type ||
        !read_array(&self->forms->reader, memory, &array, written) || !(array.kind = forms_kind(self->forms, array.kind)))
        return UNREAD;
    if (datatype && !same_elements(self->forms, datatype, array.kind))
        return UNREAD;
    buffer->address = buffer->low = array.address, buffer->high = array.address + array.nbytes;
    buffer->nbytes = array.nbytes, buffer->kind = array.kind;
    buffer->itemsize = self->forms->itemsizes[array.kind - 1];
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

int overlap(const Buffer *left, const Buffer *right, int size)
{
    if (!left->nbytes || !right->nbytes || left->low >= right->high || right->low >= left->high)
        return 0;
    for (int one = 0; one < (left->has_counts ? size : 1); one++) {
        const char *const start = left->has_counts ? left->places[one] : left->low;
        const char *const end = left->has_counts ? start + left->lengths[one] : left->high;
        for (int other = 0; other < (right->has_counts ? size : 1); other++) {
            const char *const begin = right->has_counts ? right->places[other] : right->low;
            const char *const stop = right->has_counts ? begin + right->lengths[other] : right->high;
            if (start < stop && begin < end)
                return 1;
        }
    }
    return 0;
}

/* -- calls that move data ---------------------------------------------------------------------- */

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

/* Make a call of `x` and `out`, which have been read as far as this rank has them. `counted`: what has blocks
   has a count for each. */
enum served build_move(ChannelObject *self, enum collective collective, int counted, Request *request)
{
    const int rank = self->channel.rank, size = self->channel.size, root = request->root;
    const int is_root = rank == root;
    Move *const move = &request->move;
    Buffer *const x = &request->x, *const out = &request->out;
    memset(move, 0, sizeof *move);
    move->key.collective = (uint8_t)collective, move->key.root = (uint16_t)root;
    request->key = move->key, request->shape = MOVES;
    Blocks whole;
    switch (collective) {
    case BARRIER:
        move->sends = 1, move->end_reader = size, move->end_peer = size;
        request->nbytes = 0;
        return IS_SERVED;
    case BCAST:
        if (x->kind < 1)
            return IS_SLOW;
        move->sends = is_root, move->end_reader = size, move->source = one_block(x);
        move->first_peer = root, move->end_peer = is_root ? root : root + 1;
        move->gets_one = 1, move->target = one_block(x);
        break;
    case SCATTER:
        if (!is_root) {
            if (out->kind < 1)
                return IS_SLOW;
            move->first_peer = root, move->end_peer = root + 1, move->gets_one = 1;
            move->target = one_block(out);
            break;
        }
        if (x->kind < 1 || (!counted && !is_even(self, x)))
            return IS_SLOW;
        move->sends = move->sends_rows = 1, move->end_reader = size;
        move->source = all_blocks(self, x);
        whole = block_of(&move->source, rank);
        if (out->kind > 0) {
            if (whole.nbytes > out->nbytes || (overlap(x, out, size) && whole.base != out->address))
                return IS_SLOW;
            move->keeps = move->gets_one = 1, move->target = one_block(out);
        }
        break;
    case ALLTOALL:
        if (out->kind < 1 || !x->kind ||
            (!counted && ((x->kind > 0 && !is_even(self, x)) || !is_even(self, out))) ||
            (x->kind > 0 && overlap(x, out, size)))
            return IS_SLOW;
        move->sends = move->sends_rows = 1, move->end_reader = size, move->end_peer = size;
        move->target = all_blocks(self, out);
        move->source = x->kind > 0 ? all_blocks(self, x) : move->target;
        move->keeps = x->kind > 0;
        if (move->keeps &&
            block_of(&move->source, rank).nbytes != block_of(&move->target, rank).nbytes)
            return IS_SLOW;
        break;
    default: /* GATHER, ALLGATHER */
        move->sends = 1;
        if (collective == GATHER && !is_root) {
            if (x->kind < 1)
                return IS_SLOW;
            move->first_reader = root, move->end_reader = root + 1;
            move->source = one_block(x);
            break;
        }
        if (out->kind < 1 || (collective == ALLGATHER && !x->kind) || (!counted && !is_even(self, out)))
            return IS_SLOW;
        move->sends = collective == ALLGATHER, move->end_reader = size, move->end_peer = size;
        move->target = all_blocks(self, out);
        /* This rank's block is `x`, or lies there. */
        whole = block_of(&move->target, rank);
        move->keeps = x->kind > 0;
        move->source = x->kind > 0 ? one_block(x) : whole;
        if (move->source.nbytes != whole.nbytes ||
            (x->kind > 0 && overlap(x, out, size) && whole.base != x->address))
            return IS_SLOW;
    }
    const Blocks *const blocks = move->sends ? &move->source : &move->target;
    int64_t total = blocks->nbytes * size;
    for (int peer = 0; blocks->lengths && peer < size; peer++)
        total += blocks->lengths[peer];
    request->nbytes = collective == ALLTOALL ? total : total / size;
    return IS_SERVED;
}

static enum served read_move(
    ChannelObject *self, enum method method, PyObject *const *args, Request *request)
{
    const int is_root = self->channel.rank == request->root;
    const int counted = method == GATHERV_ || method == SCATTERV_ || method == ALLGATHERV_ ||
                        method == ALLTOALLV_;
    const enum collective collective = collective_of[method];
    Buffer *const x = &request->x, *const out = &request->out;
    x->kind = out->kind = 0;
    const int reads_x = collective != BARRIER && (collective != SCATTER || is_root);
    const int reads_out = collective >= GATHER && (collective != GATHER || is_root);
    const int counts_x = counted && (collective == SCATTER || collective == ALLTOALL);
    if ((reads_x && !read_buffer(self, args[1], x, collective == BCAST && !is_root, counts_x)) ||
        (reads_out && !read_buffer(self, args[2], out, 1, counted && collective != SCATTER)))
        return IS_SLOW;
    return build_move(self, collective, counted, request);
}

/* -- calls that fold --------------------------------------------------------------------------- */

static int op_of(const Forms *forms, PyObject *op)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(forms->ops);
    for (Py_ssize_t index = 0; index < count; index++)
        if (PyTuple_GET_ITEM(PyTuple_GET_ITEM(forms->ops, index), 0) == op)
            return (int)index;
    return -1;
}

/* Run a reduce_scatter. */
static enum outcome fold_rows(ChannelObject *self, Request *request)
{
    const int size = self->channel.size;
    const Buffer *const x = &request->x;
    Blocks rows = all_blocks(self, x);
    char *places[MOST_MEMBERS], *copy = NULL;
    int64_t lengths[MOST_MEMBERS];
    if (request->has_counts && !x->has_counts) {
        char *place = x->address;
        for (int rank = 0; rank < size; rank++) {
            lengths[rank] = request->counts[rank] * x->itemsize, places[rank] = place;
            place += lengths[rank];
        }
        rows.lengths = lengths, rows.places = places;
    }
    if (!x->has_counts && overlap(x, &request->out, size) &&
        block_of(&rows, self->channel.rank).base != request->out.address) {
        /* Results would overwrite rows that are not sent. */
        copy = malloc((size_t)x->nbytes);
        if (!copy)
            return BROKEN;
        memcpy(copy, x->address, (size_t)x->nbytes);
        for (int rank = 0; rank < size; rank++)
            places[rank] = copy + (block_of(&rows, rank).base - x->address);
        rows.base = copy, rows.places = rows.lengths ? places : NULL;
    }
    const enum outcome outcome = channel_fold_rows(&self->channel, &request->fold, &rows);
    free(copy);
    return outcome;
}

/* Make a call of `x` and `out`, which have been read as far as this rank has them. */
enum served build_fold(ChannelObject *self, enum collective collective, PyObject *op_object, Request *request)
{
    const Channel *const channel = &self->channel;
    const Forms *const forms = self->forms;
    const int rank = channel->rank, size = channel->size, root = request->root;
    const int gets = collective != REDUCE || rank == root, is_rows = collective == REDUCE_SCATTER;
    Buffer *const x = &request->x, *const out = &request->out;
    const int op = op_of(forms, op_object), in_place = x->kind < 0;
    if (op < 0 || (gets && out->kind < 1) || (in_place && !gets))
        return IS_SLOW;
    if (in_place)
        memcpy(x, out, offsetof(Buffer, lengths));
    if (x->kind < 1)
        return IS_SLOW;
    const int32_t kind = forms->canonical[x->kind - 1];
    if (!forms->folds[op][kind])
        return IS_MPIS;
    if (gets && (forms->canonical[out->kind - 1] != kind || (x->has_counts && !is_rows) ||
                 (!in_place && !is_rows && x->address != out->address && overlap(x, out, size))))
        return IS_SLOW;
    if (is_rows) {
        int64_t total = 0, wanted = x->nbytes / size;
        for (int peer = 0; request->has_counts && peer < size; peer++) {
            if (request->counts[peer] < 0)
                return IS_SLOW;
            total += request->counts[peer] * x->itemsize;
        }
        if (request->has_counts)
            wanted = request->counts[rank] * x->itemsize;
        if ((request->has_counts ? x->nbytes != total : x->nbytes / x->itemsize % size != 0) ||
            (!in_place && out->nbytes != wanted))
            return IS_SLOW;
    } else if (gets && x->nbytes != out->nbytes) {
        return IS_SLOW;
    }
    static char nothing; /* an empty array may have no address */
    char *const result = out->address ? out->address : &nothing;
    request->fold = (FoldCall){
        .key = {.collective = (uint8_t)collective, .op = (uint8_t)op, .kind = (uint8_t)kind,
                .root = (uint16_t)root},
        .fold = forms->folds[op][kind], .fold_many = forms->folds_of_many[op][kind],
        .divide = forms->divides[op][kind], .divisor = size, .itemsize = x->itemsize, .nbytes = x->nbytes,
        .input = x->address, .result = gets ? result : NULL, .end_reader = size, .end_peer = size};
    FoldCall *const call = &request->fold;
    const int has_shares = (collective == ALLREDUCE || collective == REDUCE) &&
                           size >= self->first_share_ranks && x->nbytes > self->shares_above;
    call->key.has_shares = (uint8_t)has_shares;
    if (collective == REDUCE && !has_shares) {
        call->first_reader = root, call->end_reader = rank == root ? root : root + 1;
    } else if (collective == SCAN || collective == EXSCAN) {
        call->first_reader = rank + 1, call->end_peer = rank + (collective == SCAN);
        if (!call->end_peer)
            call->result = NULL;
    }
    request->shape = is_rows ? FOLDS_ROWS : has_shares ? FOLDS_SHARES : FOLDS;
    request->key = call->key, request->nbytes = x->nbytes;
    return IS_SERVED;
}

static enum served read_fold(
    ChannelObject *self, enum method method, PyObject *const *args, Request *request)
{
    const int gets = method != REDUCE_ || self->channel.rank == request->root;
    PyObject *target = args[2];
    request->has_counts = method == REDUCE_SCATTER_;
    if (request->has_counts) {
        if (!PyList_CheckExact(target) || PyList_GET_SIZE(target) != 2 ||
            read_numbers(self, PyList_GET_ITEM(target, 1), request->counts) == UNREAD)
            return IS_SLOW;
        target = PyList_GET_ITEM(target, 0);
    }
    Buffer *const x = &request->x, *const out = &request->out;
    out->kind = 0;
    if (!read_buffer(self, args[1], x, 0, 0) || (gets && !read_buffer(self, target, out, 1, 0)))
        return IS_SLOW;
    if (collective_of[method] == REDUCE_SCATTER && (x->has_counts || (gets && out->has_counts)))
        return IS_SLOW;
    x->has_counts = out->has_counts = 0;
    return build_fold(self, collective_of[method], args[3], request);
}

enum outcome request_run(ChannelObject *self, Request *request)
{
    switch (request->shape) {
    case MOVES:
        return channel_move(&self->channel, &request->move);
    case FOLDS:
        return channel_fold(&self->channel, &request->fold);
    case FOLDS_SHARES:
        return channel_fold_shares(&self->channel, &request->fold,
                                   request->key.collective == REDUCE ? request->root : -1);
    default:
        return fold_rows(self, request);
    }
}

/* skip(): count a call that the library serves. */
static PyObject *channel_skip_call(ChannelObject *self, PyObject *Py_UNUSED(ignored))
{
    if (self->has_ended)
        Py_RETURN_NONE; /* its own call raises */
    return request_end(self, 0, channel_skip(&self->channel));
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
    Request request;
    request.root = (int)root;
    if (method < METHODS && root >= 0 && root < self->channel.size)
        served = method < REDUCE_ ? read_move(self, (enum method)method, args, &request)
                                  : read_fold(self, (enum method)method, args, &request);
    if (served == IS_SERVED)
        return request_begin(self, &request) < 0
                   ? NULL
                   : request_end(self, request.row, request_run(self, &request));
    PyErr_Clear();
    if (served == IS_MPIS) {
        PyObject *const done = channel_skip_call(self, NULL);
        Py_XDECREF(done);
        return done ? Py_NewRef(Py_True) : NULL;
    }
    return PyObject_Vectorcall(self->slow, args, 7, NULL);
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
    Request request;
    request.shape = FOLDS, request.key = move.key, request.nbytes = nbytes;
    if (fine && request_begin(self, &request) == 0) {
        PyObject **const outer = self->received;
        self->received = received;
        if (!has_rows && wanted)
            move.source = (Blocks){.base = places[0], .nbytes = lengths[0]};
        result = request_end(self, request.row, channel_move(&self->channel, &move));
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

/* close(): leave the channel, whose memory other channels of the ranks then get. */
static PyObject *channel_close(ChannelObject *self, PyObject *Py_UNUSED(ignored))
{
    if (!self->has_ended || self->channel.units) {
        for (int peer = 0; self->channel.units && peer < self->channel.size; peer++)
            __atomic_add_fetch(unit_words(self->channel.units[peer]) + CLOSED, 1, __ATOMIC_ACQ_REL);
        self->has_ended = 1;
        queue_close(self);
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

static int find_folds(Forms *forms, PyObject *dtypes)
{
    const Py_ssize_t kinds = PyTuple_GET_SIZE(dtypes), ops = PyTuple_GET_SIZE(forms->ops);
    const char *names[MAX_DTYPES], *types[MAX_DTYPES];
    if (kinds > MAX_DTYPES || ops > MOST_OPS) {
        PyErr_SetString(PyExc_ValueError, "too many operators or dtypes");
        return -1;
    }
    for (forms->count = 0; forms->count < kinds; forms->count++) {
        const int kind = forms->count;
        PyObject *sample;
        ArrayArgument array;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(dtypes, kind), "ssO", names + kind, types + kind, &sample))
            return -1;
        if (!read_array(&forms->reader, sample, &array, 0) || !array.nbytes) {
            PyErr_SetString(PyExc_ValueError, "an array of one element");
            return -1;
        }
        forms->kinds[kind] = array.kind, forms->itemsizes[kind] = array.nbytes;
        int first = 0;
        while (strcmp(names[first], names[kind]))
            first++;
        forms->canonical[kind] = first;
        for (Py_ssize_t op = 0; op < ops; op++) {
            const char *text, *defined;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(forms->ops, op), "Oss", &(PyObject *){NULL}, &text, &defined))
                return -1;
            if (!strstr(defined, types[kind]))
                continue;
            forms->folds[op][kind] = find_fold(text, names[kind]);
            forms->folds_of_many[op][kind] = find_fold_many(text, names[kind]);
            forms->divides[op][kind] = strcmp(text, "avg") ? NULL : find_divide(names[kind]);
        }
    }
    return 0;
}

/* prepare_channels(layout, dtypes, ops, datatypes, in_place, datatype): what channels read.

   dtypes: of each its name, its kind, and an array of one element. */
static PyObject *prepare_channels(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *probe, *table, *dtypes, *ops, *datatypes, *in_place, *datatype;
    if (!PyArg_ParseTuple(args, "(OO)O!O!O!OO", &probe, &table, &PyTuple_Type, &dtypes, &PyTuple_Type, &ops,
                          &PyTuple_Type, &datatypes, &in_place, &datatype))
        return NULL;
    Forms *const forms = PyMem_Calloc(1, sizeof *forms); /* it lasts as long as the process */
    if (!forms)
        return PyErr_NoMemory();
    forms->ops = Py_NewRef(ops), forms->datatypes = Py_NewRef(datatypes);
    if (reader_open(&forms->reader, probe, table) < 0 || find_folds(forms, dtypes) < 0)
        return NULL;
    forms->reader.in_place = Py_NewRef(in_place), forms->reader.datatype = Py_NewRef(datatype);
    return PyCapsule_New(forms, FORMS, NULL);
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
    static char *names[] = {"forms", "units", "rank", "processes", "slow", "fail", "progress", "place", "keep", "log",
                            "deadline", "spins", "yield_ns", "shares_above", "first_share_ranks",
                            NULL};
    PyObject *forms, *units, *processes, *slow, *fail, *progress, *place, *keep, *log;
    int rank;
    double deadline;
    long long spins, yield_ns, above, first;
    if (self->channel.units || self->has_ended) {
        PyErr_SetString(PyExc_TypeError, "a channel is made once");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OO!iO!OOOOOOdLLLL", names, &forms, &PyTuple_Type, &units, &rank,
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
    if (!(self->forms = PyCapsule_GetPointer(forms, FORMS)) || queue_open(self) < 0)
        return -1;
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
    self->shares_above = above, self->first_share_ranks = first, self->waits_for = -1;
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
    queue_close(self);
    channel_clear(self);
    Py_XDECREF(self->log);
    PyMem_Free(self->channel.units);
    PyMem_Free(self->channel.taken);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef channel_members[] = {
    {"deadline", T_DOUBLE, offsetof(ChannelObject, deadline), 0, NULL},
    {"held", T_BOOL, offsetof(ChannelObject, is_held), 0, NULL},
    {"issued", T_LONGLONG, offsetof(ChannelObject, issued), READONLY, NULL},
    {"completed", T_LONGLONG, offsetof(ChannelObject, completed), READONLY, NULL},
    {"failed", T_LONGLONG, offsetof(ChannelObject, failed), READONLY, NULL},
    {"waits_for", T_INT, offsetof(ChannelObject, waits_for), READONLY, NULL},
    {NULL},
};

static PyMethodDef channel_methods[] = {
    {"run", (PyCFunction)(void (*)(void))queue_run, METH_FASTCALL, NULL},
    {"run_next", (PyCFunction)(void (*)(void))queue_run_next, METH_FASTCALL, NULL},
    {"issue", (PyCFunction)(void (*)(void))queue_issue, METH_FASTCALL, NULL},
    {"complete", (PyCFunction)queue_complete, METH_O, NULL},
    {"look", (PyCFunction)queue_look, METH_NOARGS, NULL},
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
    .tp_members = channel_members,
};
