/* Read the arguments of a channel's calls, and run what they say. */

#include "channel_type.h"

#include "numpy_arrays.h"

#include <stdlib.h>

/* The methods of mpi4py, in small letters, and our names of collectives. */
enum method { BARRIER_, BCAST_, BROADCAST_, GATHER_, GATHERV_, SCATTER_, SCATTERV_, ALLGATHER_, ALLGATHERV_,
              ALLTOALL_, ALLTOALLV_, REDUCE_, ALLREDUCE_, SCAN_, EXSCAN_, REDUCE_SCATTER_BLOCK_, REDUCE_SCATTER_,
              METHODS };
static const char *const method_names[METHODS] = {
    "barrier", "bcast", "broadcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv",
    "alltoall", "alltoallv", "reduce", "allreduce", "scan", "exscan", "reduce_scatter_block", "reduce_scatter"};
static const enum collective collective_of[METHODS] = {
    BARRIER, BCAST, BCAST, GATHER, GATHER, SCATTER, SCATTER, ALLGATHER, ALLGATHER, ALLTOALL, ALLTOALL, REDUCE,
    ALLREDUCE, SCAN, EXSCAN, REDUCE_SCATTER, REDUCE_SCATTER};
static PyObject *methods[METHODS];

int channel_import(void)
{
    for (int method = 0; method < METHODS; method++)
        if (!(methods[method] = PyUnicode_InternFromString(method_names[method])))
            return -1;
    return 0;
}

/* The number of a method, given its interned name; METHODS for another one. */
static int method_of(PyObject *name)
{
    int method = 0;
    while (method < METHODS && methods[method] != name)
        method++;
    return method;
}

enum collective collective_named(PyObject *name)
{
    const int method = method_of(name);
    return method < METHODS ? collective_of[method] : COLLECTIVES;
}

/* -- buffers ----------------------------------------------------------------------------------- */

enum { UNREAD, READ };

/* The number of a dtype, from 1 on; 0 for one that no call has. */
int32_t forms_kind(const Forms *forms, int32_t kind)
{
    int32_t number = 0;
    while (number < forms->count && forms->kinds[number] != kind)
        number++;
    return number < forms->count ? number + 1 : 0;
}

/* Read an integer of any class; -1 for what is none. */
static int64_t read_integer(PyObject *item)
{
    const Py_ssize_t integer = PyNumber_AsSsize_t(item, PyExc_OverflowError);
    return integer == -1 && PyErr_Occurred() ? (PyErr_Clear(), -1) : integer;
}

/* Read one number for each of `size` ranks. */
static int read_numbers(const Forms *forms, int size, PyObject *item, int64_t *numbers)
{
    if (Py_TYPE(item) == forms->reader.array_type) {
        ArrayArgument array;
        if (!read_array(&forms->reader, item, &array, 0) || array.dimensions != 1 || array.kind < 1 ||
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
        numbers[rank] = read_integer(PySequence_Fast_GET_ITEM(item, rank));
        if (numbers[rank] < 0)
            return UNREAD;
    }
    return READ;
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

/* The number of the dtype that a code of Python's struct module names, from 1 on; 0 where none does.

   size: of its elements, 0 if the code says so; `is_moved`: they are not folded, so halves are like integers. */
static int32_t kind_of_code(const Forms *forms, const char *code, int64_t size, int is_moved)
{
    static const char codes[] = "bBhHiIlLqQfd?FDe", types[] = "iuiuiuiuiuffbccu";
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, sizeof(long), sizeof(long), 8, 8, 4, 8, 1, 8, 16, 2};
    if (size && *code == (PY_BIG_ENDIAN ? '>' : '<'))
        code++; /* memory of ctypes */
    const char letter = code[0] == 'Z' ? code[1] == 'f' ? 'F' : code[1] == 'd' ? 'D' : 0 : code[0];
    const char *const place = letter ? strchr(codes, letter) : NULL;
    if (!place || code[code[0] == 'Z' ? 2 : 1] || (letter == 'e' && !is_moved))
        return 0;
    const int64_t itemsize = size ? size : sizes[place - codes];
    int32_t number = 0;
    while (number < forms->count && (forms->types[number] != types[place - codes] ||
                                     forms->itemsizes[number] != itemsize))
        number++;
    return number < forms->count ? number + 1 : 0;
}

/* Read memory without gaps: an array, or what else has Python's buffer protocol, in the order of its elements in
   memory. */
static int read_memory(const Forms *forms, PyObject *memory, ArrayArgument *array, int written, int is_moved)
{
    if (Py_TYPE(memory) == forms->reader.array_type && read_array(&forms->reader, memory, array, written) &&
        (array->kind = forms_kind(forms, array->kind)))
        return READ;
    PyErr_Clear();
    Py_buffer view;
    const int flags = PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0);
    if (forms->datatype == Py_None || PyObject_GetBuffer(memory, &view, flags) < 0) {
        PyErr_Clear();
        return UNREAD;
    }
    array->address = view.buf, array->nbytes = view.len, array->dimensions = 1;
    array->kind = kind_of_code(forms, view.format ? view.format : "B", view.itemsize, is_moved);
    if (!is_moved && (uintptr_t)view.buf % (uintptr_t)(view.itemsize < 8 ? view.itemsize : 8))
        array->kind = 0; /* folds read aligned elements */
    PyBuffer_Release(&view); /* the caller's arguments keep it */
    return array->kind ? READ : UNREAD;
}

/* How a rank gives one buffer of a call: with a count for each rank if `is_counted`, else with one for `blocks`
   blocks of it. */
typedef struct {
    int is_read, is_written, is_folded, is_counted, blocks, may_be_in_place;
} Side;

/* Say how a rank gives the two buffers of a method. */
static void find_sides(enum method method, int is_root, int size, int is_in_place, Side sides[2])
{
    const enum collective collective = collective_of[method];
    const int counted = method == GATHERV_ || method == SCATTERV_ || method == ALLGATHERV_ || method == ALLTOALLV_;
    const int has_root = collective == GATHER || collective == REDUCE, is_folded = method >= REDUCE_;
    const int scatters = collective == SCATTER || collective == ALLTOALL;
    const int gathers = collective == GATHER || collective == ALLGATHER || collective == ALLTOALL;
    const int folds_blocks = method == REDUCE_SCATTER_BLOCK_;
    sides[0] = (Side){
        .is_read = collective != BARRIER && (collective != SCATTER || is_root),
        .is_written = collective == BCAST && !is_root, .is_folded = is_folded, .is_counted = counted && scatters,
        .blocks = scatters || folds_blocks ? size : 1,
        .may_be_in_place = has_root ? is_root : collective > SCATTER};
    sides[1] = (Side){
        .is_read = collective > BCAST && (!has_root || is_root),
        .is_written = 1, .is_folded = is_folded, .is_counted = counted && collective != SCATTER,
        .blocks = gathers || (folds_blocks && is_in_place) ? size : 1,
        .may_be_in_place = collective == SCATTER && is_root};
}

static int is_in_place(const Forms *forms, PyObject *object)
{
    return object == Py_None || object == forms->in_place;
}

/* Whether so many elements from the one at `start` on end within the memory. */
static int has_elements(const Items *items, int64_t start, int64_t count)
{
    const int64_t room = items->nbytes - items->high;
    return count == 0 || (count > 0 && start >= 0 && room >= 0 && start <= room / items->extent &&
                          count - 1 <= room / items->extent - start);
}

/* Read a buffer: an array, or a list of an array, counts, displacements and a datatype; -1 where Python has
   raised. */
static int read_buffer(const Forms *forms, int size, PyObject *object, Buffer *buffer, const Side *side)
{
    ArrayArgument array;
    buffer->has_counts = 0, buffer->kind = 0, buffer->nbytes = 0, buffer->address = NULL;
    if (!side->is_read)
        return READ;
    if (side->may_be_in_place && is_in_place(forms, object)) {
        buffer->kind = -1;
        return READ;
    }
    PyObject *memory = object, *extra[2] = {NULL, NULL}, *datatype = NULL;
    const char *code = NULL;
    if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) {
        const Py_ssize_t length = PySequence_Fast_GET_SIZE(object);
        PyObject **const items = PySequence_Fast_ITEMS(object);
        if (length < 2 || length > 4)
            return UNREAD;
        memory = items[0];
        PyObject *const last = items[length - 1];
        if ((PyObject *)Py_TYPE(last) == forms->datatype)
            datatype = last;
        else if (PyUnicode_CheckExact(last))
            code = PyUnicode_AsUTF8(last);
        else if (length > 2)
            return UNREAD;
        const Py_ssize_t numbers = length - 1 - (datatype || code);
        if (numbers > 0)
            extra[0] = items[1];
        if (numbers > 1)
            extra[1] = items[2];
        if (numbers == 1 && PyTuple_CheckExact(extra[0])) {
            if (PyTuple_GET_SIZE(extra[0]) != 2)
                return UNREAD;
            extra[1] = PyTuple_GET_ITEM(extra[0], 1), extra[0] = PyTuple_GET_ITEM(extra[0], 0);
        }
    }
    const int is_read = read_memory(forms, memory, &array, side->is_written, !side->is_folded);
    Items items;
    if (datatype && !(is_read && same_elements(forms, datatype, array.kind))) {
        const int answer =
            side->is_folded ? UNREAD : layout_find(forms, datatype, memory, side->is_written, &items);
        if (answer != READ)
            return answer;
        buffer->kind = 1;
    } else {
        const int32_t named = !is_read ? 0 : code ? kind_of_code(forms, code, 0, 0) : array.kind;
        if (!named || forms->canonical[named - 1] != forms->canonical[array.kind - 1])
            return UNREAD;
        const int64_t itemsize = forms->itemsizes[array.kind - 1];
        items = (Items){.address = array.address, .nbytes = array.nbytes, .size = itemsize, .extent = itemsize,
                        .high = itemsize};
        buffer->kind = array.kind;
    }
    buffer->itemsize = items.size;
    const int64_t elements = items.nbytes / items.extent;
    if (!side->is_counted) {
        const int64_t given = extra[0] ? read_integer(extra[0]) : 0, start = extra[1] ? read_integer(extra[1]) : 0;
        const int64_t count = extra[0] ? given * side->blocks : elements;
        if (given < 0 || given > elements + 1 || start < 0 || start > elements ||
            (!extra[0] && items.nbytes % items.extent) || !has_elements(&items, start, count))
            return UNREAD;
        buffer->address = buffer->low = items.address + start * items.extent;
        buffer->nbytes = count * items.size, buffer->high = buffer->low + buffer->nbytes;
        buffer->places[0] = buffer->address, buffer->lengths[0] = buffer->nbytes;
        return !items.layout || layout_use(items.layout, buffer, 1, side->is_written);
    }
    int64_t starts[MOST_MEMBERS];
    if (!extra[0]) {
        for (int rank = 0; rank < size; rank++)
            buffer->lengths[rank] = elements / size + (rank < elements % size);
    } else if (read_numbers(forms, size, extra[0], buffer->lengths) == UNREAD) {
        return UNREAD;
    }
    if (extra[1] && read_numbers(forms, size, extra[1], starts) == UNREAD)
        return UNREAD;
    int64_t total = 0;
    for (int rank = 0; rank < size; rank++) {
        const int64_t start = extra[1] ? starts[rank] : total, length = buffer->lengths[rank];
        if (!has_elements(&items, start, length))
            return UNREAD;
        buffer->places[rank] = items.address + (length ? start * items.extent : 0);
        buffer->lengths[rank] = length * items.size;
        total += length;
    }
    buffer->address = buffer->low = items.address, buffer->high = items.address + items.nbytes;
    buffer->nbytes = items.nbytes, buffer->has_counts = 1;
    return !items.layout || layout_use(items.layout, buffer, size, side->is_written);
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

/* Whether blocks of two buffers overlap, of `size` ranks. */
static int overlap(const Buffer *left, const Buffer *right, int size)
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

/* Whether blocks of equal length fill a buffer. */
static int is_even(const ChannelObject *self, const Buffer *buffer)
{
    return buffer->nbytes / buffer->itemsize % self->channel.size == 0;
}

/* Make a call of `x` and `out`, which have been read as far as this rank has them. `counted`: what has blocks
   has a count for each. */
enum served build_move(ChannelObject *self, enum collective collective, int counted, Request *request)
{
    const int rank = self->channel.rank, size = self->channel.size, root = request->root;
    const int is_root = rank == root, has_room = request->has_room;
    Move *const move = &request->move;
    Buffer *const x = &request->x, *const out = &request->out;
    memset(move, 0, sizeof *move);
    move->key.collective = (uint8_t)collective, move->key.root = (uint16_t)root;
    move->has_room = has_room && collective != BCAST;
    request->key = move->key, request->shape = MOVES;
    Blocks whole;
    switch (collective) {
    case BARRIER:
        move->sends = 1, move->end_reader = size, move->end_peer = size;
        request->nbytes = 0;
        return IS_SERVED;
    case BCAST:
        move->sends = is_root, move->end_reader = size, move->source = one_block(x);
        move->first_peer = root, move->end_peer = is_root ? root : root + 1;
        move->gets_one = 1, move->target = one_block(out->kind > 0 ? out : x);
        move->keeps = is_root && out->kind > 0;
        if ((is_root ? x : out->kind > 0 ? out : x)->kind < 1 ||
            (move->keeps && (x->nbytes != out->nbytes ||
                             (x->address != out->address && overlap(x, out, size)))))
            return IS_SLOW;
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
            if ((!has_room && whole.nbytes > out->nbytes) ||
                (overlap(x, out, size) && whole.base != out->address))
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
        if (move->keeps && !has_room &&
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
        if (has_room && move->source.nbytes > whole.nbytes)
            move->source.nbytes = whole.nbytes;
        if ((!has_room && move->source.nbytes != whole.nbytes) ||
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

/* -- calls that fold --------------------------------------------------------------------------- */

enum { NO_OP = -1, USERS_OP = -2 };

/* The number of an operator; NO_OP for an object that is none, USERS_OP for another one of the library's. */
static int op_of(const Forms *forms, PyObject *op)
{
    const int has_handles = forms->op != Py_None;
    if (has_handles && !PyObject_TypeCheck(op, (PyTypeObject *)forms->op))
        return NO_OP;
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(forms->ops); index++) {
        PyObject *const known = PyTuple_GET_ITEM(PyTuple_GET_ITEM(forms->ops, index), 0);
        if (known == op || (has_handles && handle_of(known) == handle_of(op)))
            return (int)index;
    }
    return has_handles ? USERS_OP : NO_OP;
}

/* Whether results would overwrite rows that are not sent. */
static int overwrites_rows(const ChannelObject *self, const Request *request, const Blocks *rows)
{
    return overlap(&request->x, &request->out, self->channel.size) &&
           block_of(rows, self->channel.rank).base != request->out.address;
}

/* Run a reduce_scatter. */
static enum outcome fold_rows(ChannelObject *self, Request *request)
{
    Blocks rows = all_blocks(self, &request->x);
    char *places[MOST_MEMBERS], *copy = NULL;
    if (overwrites_rows(self, request, &rows)) {
        copy = malloc((size_t)request->x.nbytes);
        if (!copy)
            return BROKEN;
        char *place = copy;
        for (int rank = 0; rank < self->channel.size; rank++) {
            const Blocks row = block_of(&rows, rank);
            places[rank] = memcpy(place, row.base, (size_t)row.nbytes);
            place += row.nbytes;
        }
        rows.places = places;
    }
    request->fold.rows = &rows;
    const enum outcome outcome = channel_fold(&self->channel, &request->fold);
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
    if (!forms->folds[op][kind]->fold)
        return IS_MPIS;
    if (gets && (forms->canonical[out->kind - 1] != kind || (x->has_counts && !is_rows) ||
                 (!in_place && !is_rows && x->address != out->address && overlap(x, out, size))))
        return IS_SLOW;
    if (is_rows) {
        int64_t total = 0;
        for (int peer = 0; request->has_counts && !x->has_counts && peer < size; peer++) {
            if (request->counts[peer] < 0)
                return IS_SLOW;
            x->lengths[peer] = request->counts[peer] * x->itemsize, x->places[peer] = x->address + total;
            total += x->lengths[peer];
        }
        if (request->has_counts && !x->has_counts && total != x->nbytes)
            return IS_SLOW;
        x->has_counts |= request->has_counts;
        if ((!x->has_counts && !is_even(self, x)) ||
            (!in_place && out->nbytes != (x->has_counts ? x->lengths[rank] : x->nbytes / size)))
            return IS_SLOW;
    } else if (gets && x->nbytes != out->nbytes) {
        return IS_SLOW;
    }
    static char nothing; /* an empty array may have no address */
    char *const result = out->address ? out->address : &nothing;
    request->fold = (FoldCall){
        .key = {.collective = (uint8_t)collective, .op = (uint8_t)op, .kind = (uint8_t)kind,
                .root = (uint16_t)root},
        .folds = forms->folds[op][kind], .divisor = size, .itemsize = x->itemsize, .nbytes = x->nbytes,
        .input = x->address, .result = gets ? result : NULL, .end_reader = size, .end_peer = size};
    FoldCall *const call = &request->fold;
    /* Shares make the ranks fold at the same time, which is nothing for a root where they share cores. */
    const int has_shares = (collective == ALLREDUCE || (collective == REDUCE && channel->has_cores)) &&
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

/* Tell all ranks how many elements this one gets, and keep in `target` how many each of them gets. */
static enum served exchange_counts(ChannelObject *self, Request *request, PyObject *target)
{
    const int size = self->channel.size;
    const int64_t own = request->out.nbytes / request->out.itemsize;
    PyObject *const args = Py_BuildValue("iiy#", ALLGATHER, 0, (const char *)&own, (Py_ssize_t)sizeof own);
    PyObject *const items = args ? channel_exchange(self, args) : NULL, *const counts = items ? PyList_New(size) : NULL;
    for (int rank = 0; counts && rank < size; rank++) {
        PyObject *const item = PyList_GET_ITEM(items, rank);
        request->counts[rank] = item == Py_None ? own : -1; /* what is no count is of another call */
        if (item != Py_None && PyBytes_GET_SIZE(item) == sizeof own)
            memcpy(request->counts + rank, PyBytes_AS_STRING(item), sizeof own);
        PyList_SET_ITEM(counts, rank, PyLong_FromLongLong(request->counts[rank]));
    }
    Py_XDECREF(args), Py_XDECREF(items);
    return !counts || PyList_SetItem(target, 1, counts) < 0 || PyErr_Occurred() ? IS_RAISED : IS_SERVED;
}

/* Read how many elements of a reduce_scatter each rank gets, which a list has beside the output; 1 where the ranks
   must ask each other, -1 where the counts cannot be read. */
static int find_counts(ChannelObject *self, PyObject *target, Request *request)
{
    if (!PyList_CheckExact(target) || PyList_GET_SIZE(target) != 2)
        return -1;
    PyObject *const counts = PyList_GET_ITEM(target, 1);
    if (counts == Py_None)
        return 1;
    return read_numbers(self->forms, self->channel.size, counts, request->counts) == READ ? 0 : -1;
}

/* Read a call that is given as channel_call() takes it. */
enum served request_read(ChannelObject *self, PyObject *const *args, Request *request)
{
    const Forms *const forms = self->forms;
    const int size = self->channel.size, method = method_of(args[0]);
    const int64_t root = read_integer(args[4]);
    Buffer *const x = &request->x, *const out = &request->out;
    request->root = (int)root, request->has_room = 1;
    x->packed = out->packed = NULL;
    if (method == METHODS || root < 0 || root >= size)
        return IS_SLOW;
    const enum collective collective = collective_of[method];
    const int is_root = self->channel.rank == root, folds = method >= REDUCE_;
    if (folds && op_of(forms, args[3]) == USERS_OP)
        return IS_MPIS;
    PyObject *target = args[2];
    int is_unknown = 0;
    request->has_counts = method == REDUCE_SCATTER_;
    if (request->has_counts) {
        is_unknown = find_counts(self, target, request);
        if (is_unknown < 0)
            return IS_SLOW;
        target = PyList_GET_ITEM(target, 0);
    }
    Side sides[2];
    find_sides((enum method)method, is_root, size, is_in_place(forms, args[1]), sides);
    int is_read = read_buffer(forms, size, args[1], x, sides);
    if (is_read == READ)
        is_read = read_buffer(forms, size, target, out, sides + 1);
    if (is_read != READ)
        return is_read == UNREAD ? IS_SLOW : IS_RAISED;
    if (!folds)
        return build_move(self, collective, sides[0].is_counted || sides[1].is_counted, request);
    if (is_unknown) {
        if (x->kind < 1 || out->kind < 1 || op_of(forms, args[3]) < 0)
            return IS_SLOW;
        if (exchange_counts(self, request, args[2]) == IS_RAISED)
            return IS_RAISED;
    }
    return build_fold(self, collective, args[3], request);
}

/* -- buffers as flat arrays ------------------------------------------------------------------------ */

/* Return the address, the bytes and the number of the dtype of a buffer that has been read, and the bytes of its
   blocks, or None; None where its elements do not follow each other. */
static PyObject *view_of(const Buffer *buffer, int size)
{
    const char *end = NULL, *start = buffer->address;
    PyObject *const lengths = buffer->has_counts ? PyList_New(size) : Py_NewRef(Py_None);
    for (int rank = 0; lengths && buffer->has_counts && rank < size; rank++) {
        const int64_t length = buffer->lengths[rank];
        PyList_SET_ITEM(lengths, rank, PyLong_FromLongLong(length));
        if (!length)
            continue;
        if (end && end != buffer->places[rank]) {
            Py_DECREF(lengths);
            Py_RETURN_NONE;
        }
        start = end ? start : buffer->places[rank];
        end = buffer->places[rank] + length;
    }
    const long long nbytes = !buffer->has_counts ? buffer->nbytes : end ? end - start : 0;
    return Py_BuildValue("KLiN", (unsigned long long)(uintptr_t)start, nbytes, buffer->kind - 1, lengths);
}

/* read_buffers(forms, rank, size, pack, name, x, out, root): the two buffers of a call of mpi4py, each as
   `view_of` returns it, as pack(buffer, is_written, is_folded, is_counted, blocks) does where it cannot be read,
   MPI.IN_PLACE, or None where a rank gives none. */
PyObject *read_buffers(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule, *pack, *name, *given[2], *root_object;
    int rank, size;
    if (!PyArg_ParseTuple(args, "OiiOUOOO", &capsule, &rank, &size, &pack, &name, given, given + 1, &root_object))
        return NULL;
    const Forms *const forms = PyCapsule_GetPointer(capsule, FORMS);
    const int64_t root = read_integer(root_object);
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    const int method = method_of(name);
    Py_DECREF(name); /* the arguments keep it */
    if (!forms)
        return NULL;
    if (method == METHODS || root < 0 || root >= size || size > MOST_MEMBERS) {
        PyErr_Format(PyExc_ValueError, "no %U with root %R on %d ranks", name, root_object, size);
        return NULL;
    }
    Side sides[2];
    find_sides((enum method)method, rank == root, size, is_in_place(forms, given[0]), sides);
    Buffer *const buffer = PyMem_Malloc(sizeof *buffer);
    PyObject *views = buffer ? PyTuple_New(2) : PyErr_NoMemory();
    for (int index = 0; views && index < 2 && !PyErr_Occurred(); index++) {
        const Side *const side = sides + index;
        buffer->packed = NULL;
        PyObject *view = NULL;
        if (read_buffer(forms, size, given[index], buffer, side) == READ && !buffer->packed)
            view = buffer->kind > 0   ? view_of(buffer, size)
                   : buffer->kind < 0 ? Py_NewRef(forms->in_place)
                                      : Py_NewRef(Py_None);
        buffer_release(buffer);
        if (view == Py_None && side->is_read)
            Py_CLEAR(view);
        if (view && buffer->kind > 0 && !side->is_counted && buffer->nbytes / buffer->itemsize % side->blocks) {
            PyErr_SetString(PyExc_ValueError, "blocks of different lengths");
            Py_CLEAR(view);
        }
        if (!view && !PyErr_Occurred())
            view = PyObject_CallFunction(pack, "Oiiii", given[index], side->is_written, side->is_folded,
                                         side->is_counted, side->blocks);
        if (view)
            PyTuple_SET_ITEM(views, index, view);
    }
    PyMem_Free(buffer);
    if (PyErr_Occurred())
        Py_CLEAR(views);
    return views;
}

enum outcome request_start(ChannelObject *self, const Request *request)
{
    if (request->shape == MOVES)
        return channel_start(&self->channel, &request->move);
    FoldCall of_rows;
    Blocks rows;
    if (request->shape == FOLDS_ROWS) {
        rows = all_blocks(self, &request->x), of_rows = request->fold, of_rows.rows = &rows;
        of_rows.end_reader = overwrites_rows(self, request, &rows) ? 0 : of_rows.end_reader;
    }
    const Move move = input_of(request->shape == FOLDS_ROWS ? &of_rows : &request->fold);
    return channel_start(&self->channel, &move);
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

/* -- what a library gives ------------------------------------------------------------------------ */

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
        forms->kinds[kind] = array.kind, forms->itemsizes[kind] = array.nbytes, forms->types[kind] = types[kind][0];
        int first = 0;
        while (strcmp(names[first], names[kind]))
            first++;
        forms->canonical[kind] = first;
        for (Py_ssize_t op = 0; op < ops; op++) {
            const char *text, *defined;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(forms->ops, op), "Oss", &(PyObject *){NULL}, &text, &defined))
                return -1;
            forms->folds[op][kind] = find_fold_row(strstr(defined, types[kind]) ? text : "", names[kind]);
        }
    }
    return 0;
}

/* prepare_channels(layout, dtypes, ops, datatypes, in_place, datatype, op, learn): what channels read.

   dtypes: of each its name, its kind, and an array of one element. */
PyObject *prepare_channels(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *probe, *table, *dtypes, *ops, *datatypes, *in_place, *datatype, *op, *learn;
    if (!PyArg_ParseTuple(args, "(OO)O!O!O!OOOO", &probe, &table, &PyTuple_Type, &dtypes, &PyTuple_Type, &ops,
                          &PyTuple_Type, &datatypes, &in_place, &datatype, &op, &learn))
        return NULL;
    Forms *const forms = PyMem_Calloc(1, sizeof *forms); /* it lasts as long as the process */
    if (!forms)
        return PyErr_NoMemory();
    forms->ops = Py_NewRef(ops), forms->datatypes = Py_NewRef(datatypes);
    if (reader_open(&forms->reader, probe, table) < 0 || find_folds(forms, dtypes) < 0)
        return NULL;
    forms->in_place = Py_NewRef(in_place), forms->datatype = Py_NewRef(datatype), forms->op = Py_NewRef(op);
    forms->learn = Py_NewRef(learn);
    return PyCapsule_New(forms, FORMS, NULL);
}
