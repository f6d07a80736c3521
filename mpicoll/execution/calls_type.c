/* The type Calls: from the arguments of a method to the program that serves them, and its run.

   A call finds its program by what was given: names, root, and the dtype, shape and address of the
   arrays. It states in shared memory which call this is, and every rank compares what the others
   state before it reads anything of theirs; so nobody waits for an answer. Whatever is not found,
   or not understood, is left to Python. */

#include "active.h"
#include "calls.h"
#include "numpy_arrays.h"
#include "tally.h"

#include <structmember.h>

enum { PLACES = 512, PROBES = 8 };

/* -- arrays ------------------------------------------------------------------------------------ */

enum { IN_PLACE = -1 };

/* The parts of DLPack 1.x's exchange table that are used here (dmlc.github.io/dlpack). */
typedef struct {
    void *data;
    struct { int32_t type, id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLExchange {
    struct { uint32_t major, minor; } version;
    void *previous, *allocate, *export, *import;
    int (*describe)(void *object, DLTensor *out);
} DLExchange;

enum { DL_HOST = 1 };

/* 0 where a NumPy array is of a kind that only Python understands. */
static int read_numpy(const NumpyArray *array, PyObject *dtypes, Given *given, int written)
{
    int needed = NUMPY_C_CONTIGUOUS | (written ? NUMPY_WRITEABLE : 0);
    if ((array->flags & needed) != needed || array->nd > MOST_DIMENSIONS)
        return 0;
    Py_ssize_t many = PyTuple_GET_SIZE(dtypes), kind = 0;
    while (kind < many &&
           !numpy_same(array->descr, PyTuple_GET_ITEM(PyTuple_GET_ITEM(dtypes, kind), 0)))
        kind++;
    if (kind == many)
        return 0;
    given->nbytes = PyLong_AsSsize_t(PyTuple_GET_ITEM(PyTuple_GET_ITEM(dtypes, kind), 1));
    given->address = array->data;
    given->kind = 1 + (int32_t)kind;
    given->dimensions = array->nd;
    for (int each = 0; each < array->nd; each++)
        given->nbytes *= given->shape[each] = array->dimensions[each];
    return 1;
}

static PyObject *is_neg, *is_conj;

/* Whether a lazy tensor's own method says True; -1 where it raised. */
static int says(PyObject *tensor, PyObject *name)
{
    PyObject *found = PyObject_CallMethodNoArgs(tensor, name);
    int truth = found ? PyObject_IsTrue(found) : -1;
    Py_XDECREF(found);
    return truth;
}

/* What stands for a dtype of DLPack's. */
static int32_t kind_of(int code, int bits)
{
    return 1 + 256 * (1 + code) + bits;
}

static int read_tensor(const CallsObject *self, PyObject *tensor, Given *given)
{
    DLTensor found;
    if (self->exchange->describe(tensor, &found) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (found.device.type != DL_HOST || found.ndim > MOST_DIMENSIONS || found.dtype.lanes != 1)
        return 0;
    Py_ssize_t count = 1;
    int contiguous = 1;
    for (int each = found.ndim - 1; each >= 0; each--) {
        if (found.strides && found.shape[each] != 1 && found.strides[each] != count)
            contiguous = 0;
        given->shape[each] = (Py_ssize_t)found.shape[each];
        count *= given->shape[each];
    }
    if (count && (!contiguous || says(tensor, is_neg) ||
                  (found.dtype.code == 5 && says(tensor, is_conj)))) {
        PyErr_Clear();
        return 0;
    }
    given->address = (char *)found.data + found.byte_offset;
    given->nbytes = count * found.dtype.bits / 8;
    given->kind = kind_of(found.dtype.code, found.dtype.bits);
    given->dimensions = found.ndim;
    return 1;
}

/* Read an array that is not NumPy's as one that is. */
static int read_lent(const CallsObject *self, PyObject *tensor, Given *given)
{
    if (!read_tensor(self, tensor, given))
        return 0;
    int32_t kind = 0;
    while (kind < MOST_DTYPES && self->lent_kinds[kind] != given->kind)
        kind++;
    given->kind = 1 + kind;
    return kind < MOST_DTYPES;
}

/* -- Calls ------------------------------------------------------------------------------------- */

static void mix(uint64_t digest[2], uint64_t value)
{
    static const uint64_t factors[2] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu};
    for (int each = 0; each < 2; each++) {
        digest[each] = (digest[each] ^ value) * factors[each];
        digest[each] ^= digest[each] >> 29;
    }
}

enum { NOTHING = 1, NUMBER_OF, SEQUENCE, VALUES, KNOWN };

/* Add what stands beside an array: counts and displacements by value, a datatype by identity. */
static int read_beside(const CallsObject *self, PyObject *item, uint64_t digest[2], int depth)
{
    if (item == Py_None) {
        mix(digest, NOTHING);
    } else if (PyLong_CheckExact(item)) {
        mix(digest, NUMBER_OF);
        mix(digest, (uint64_t)PyLong_AsLongLong(item));
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
    } else if (self->datatype && (PyObject *)Py_TYPE(item) == self->datatype) {
        mix(digest, KNOWN);
        mix(digest, (uint64_t)(uintptr_t)item);
    } else if (depth && (PyList_CheckExact(item) || PyTuple_CheckExact(item))) {
        Py_ssize_t many = PySequence_Fast_GET_SIZE(item);
        mix(digest, SEQUENCE);
        mix(digest, (uint64_t)many);
        for (Py_ssize_t each = 0; each < many; each++)
            if (!read_beside(self, PySequence_Fast_GET_ITEM(item, each), digest, depth - 1))
                return 0;
    } else if (Py_TYPE(item) == self->tensors) {
        Given values;
        if (!read_numpy((NumpyArray *)item, self->dtypes, &values, 0) || values.dimensions != 1)
            return 0;
        mix(digest, VALUES);
        mix(digest, (uint64_t)values.kind);
        mix(digest, (uint64_t)values.nbytes);
        for (Py_ssize_t each = 0; each < values.nbytes; each++)
            mix(digest, (uint8_t)values.address[each]);
    } else {
        return 0;
    }
    return 1;
}

int calls_read(const CallsObject *self, PyObject *array, Given *given, int written)
{
    given->kind = 0;
    given->dimensions = 0;
    given->address = NULL;
    given->nbytes = 0;
    given->beside[0] = given->beside[1] = 0;
    if (array == Py_None)
        return 1;
    if (array == self->in_place) {
        given->kind = IN_PLACE;
        return 1;
    }
    if (self->datatype && (PyList_CheckExact(array) || PyTuple_CheckExact(array))) {
        Py_ssize_t many = PySequence_Fast_GET_SIZE(array);
        PyObject *first = many ? PySequence_Fast_GET_ITEM(array, 0) : NULL;
        /* Where there are counts, programs give them on all ranks, and None as array but on the root. */
        if (first != Py_None && (!first || Py_TYPE(first) != self->tensors ||
                                 !read_numpy((NumpyArray *)first, self->dtypes, given, written)))
            return 0;
        mix(given->beside, (uint64_t)many);
        for (Py_ssize_t each = 1; each < many; each++)
            if (!read_beside(self, PySequence_Fast_GET_ITEM(array, each), given->beside, 2))
                return 0;
        return 1;
    }
    if (Py_TYPE(array) == self->lent)
        return read_lent(self, array, given);
    if (Py_TYPE(array) != self->tensors)
        return 0;
    return self->dtypes ? read_numpy((NumpyArray *)array, self->dtypes, given, written)
                        : read_tensor(self, array, given);
}

void calls_set_apart(Key *key)
{
    key->apart = 0;
    if (key->x.address < key->out.address + key->out.nbytes &&
        key->out.address < key->x.address + key->x.nbytes)
        key->apart = 1 + (key->out.address - key->x.address);
}

/* Fill in a key from name, x, out, op, root, counts, algorithm; 0 where only Python understands. */
static int read_key(const CallsObject *self, PyObject *const *args, Key *key)
{
    key->words[NAME] = args[0], key->words[OP] = args[3];
    key->words[COUNTS] = args[5], key->words[ALGORITHM] = args[6];
    if (!PyLong_CheckExact(args[4]) || (args[5] != Py_None && !PyTuple_CheckExact(args[5])))
        return 0;
    key->root = PyLong_AsLong(args[4]);
    if (key->root < 0 || !calls_read(self, args[1], &key->x, 0) ||
        !calls_read(self, args[2], &key->out, 1)) {
        PyErr_Clear();
        return 0;
    }
    calls_set_apart(key);
    return 1;
}

static size_t hash_given(size_t hash, const Given *given)
{
    hash = hash * 31 + (size_t)given->kind;
    for (int each = 0; each < given->dimensions; each++)
        hash = hash * 1000003 + (size_t)given->shape[each];
    return hash ^ (size_t)given->beside[0];
}

static size_t hash_key(const Key *key)
{
    size_t hash = (size_t)key->root * 7 + (size_t)key->apart;
    for (int each = 0; each < WORDS; each++)
        hash = hash * 1000003 + ((size_t)key->words[each] >> 4);
    hash = hash_given(hash_given(hash, &key->x), &key->out);
    return hash ^ hash >> 17;
}

static int same_given(const Given *one, const Given *other)
{
    if (one->kind != other->kind || one->dimensions != other->dimensions ||
        memcmp(one->beside, other->beside, sizeof one->beside))
        return 0;
    for (int each = 0; each < one->dimensions; each++)
        if (one->shape[each] != other->shape[each])
            return 0;
    return 1;
}

static int same_key(const Key *one, const Key *other)
{
    return !memcmp(one->words, other->words, sizeof one->words) && one->root == other->root &&
           one->apart == other->apart && same_given(&one->x, &other->x) &&
           same_given(&one->out, &other->out);
}

Entry *calls_find(const CallsObject *self, const Key *key)
{
    size_t place = hash_key(key);
    for (size_t probe = 0; probe < PROBES; probe++) {
        Entry *entry = self->entries + (place + probe) % PLACES;
        if (entry->kept && same_key(&entry->key, key))
            return entry;
    }
    return NULL;
}

static void empty_entry(Entry *entry)
{
    ProgramObject *program = entry->program;
    PyObject *make = entry->make, *kept = entry->kept, *serve = entry->serve, *words[WORDS];
    memcpy(words, entry->key.words, sizeof words);
    Py_buffer tally = entry->tally;
    entry->program = NULL, entry->make = NULL, entry->kept = NULL, entry->serve = NULL;
    memset(&entry->tally, 0, sizeof tally);
    if (!kept)
        return;
    for (int each = 0; each < WORDS; each++)
        Py_DECREF(words[each]);
    Py_XDECREF(make);
    Py_XDECREF(serve);
    Py_DECREF(kept);
    PyBuffer_Release(&tally);
    Py_XDECREF(program);
}

/* -- a call ------------------------------------------------------------------------------------ */

/* 1 where all ranks state the same call, 0 where one states another, -1 where Python raised. Code of
   Python that runs in a wait may end the call, whose state says so. */
static int agree(const CallsObject *self, int64_t number, int64_t digest, PyObject *name,
                 const ActiveCall *call)
{
    int same = 1;
    const Statements *all = &self->statements;
    for (Py_ssize_t rank = 0; rank < all->size; rank++) {
        if (rank == all->rank)
            continue;
        int64_t *theirs = stated(all, rank, number);
        if (!word_comes(theirs + NUMBER, number, 40, 0)) {
            int came;
            Py_BEGIN_ALLOW_THREADS
            came = word_comes(theirs + NUMBER, number, self->spins, YIELD_NS);
            Py_END_ALLOW_THREADS
            PyObject *done = came ? Py_NewRef(Py_None)
                                  : PyObject_CallFunction(self->wait, "nLO", rank, number, name);
            if (!done)
                return -1;
            Py_DECREF(done);
            if (call && call->state != RUNNING)
                return 1;
        }
        same = same && theirs[DIGEST] == digest;
    }
    return same;
}

/* Call a function of Python's that runs a call of the group. */
static PyObject *call_python(
    CallsObject *self, PyObject *function, PyObject *const *args, size_t many)
{
    int64_t *const under_way = self->statements.number + UNDER_WAY, outer = *under_way;
    *under_way = PYTHON_CALL;
    PyObject *result = PyObject_Vectorcall(function, args, many, NULL);
    *under_way = outer;
    return result;
}

/* Let Python serve a call on which the ranks differ, though this one has begun its program. */
static PyObject *disagree(CallsObject *self, PyObject *const *args, PyObject *program)
{
    PyObject *all[8] = {args[0], args[1], args[2], args[3], args[4], args[5], args[6], program};
    return call_python(self, self->slow, all, 8);
}

int calls_give_up(CallsObject *self, PyObject *program)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *done = PyObject_CallFunctionObjArgs(self->broken, program, value, NULL);
    if (!done)
        PyErr_WriteUnraisable(self->broken);
    const int goes_on = done == Py_True;
    Py_XDECREF(done);
    if (!goes_on) {
        program_leave((ProgramObject *)program);
        PyErr_Restore(type, value, trace);
        return 0;
    }
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
    return 1;
}

/* Leave a call to another, as this rank does whatever the others state: it states its own, and reads
   theirs before it states the next. So it need not wait here, and yet nobody states two calls more
   than another has read. */
static PyObject *calls_leave(CallsObject *self, const Entry *entry, PyObject *name)
{
    ProgramObject *program = entry->program;
    uint64_t row = log_begin_below(program->log, program->call, self->in_method);
    state_call(&self->statements, entry->digest);
    log_end(program->log, row, 0);
    self->settles = entry->digest;
    self->unsettled = Py_NewRef(name);
    Py_RETURN_TRUE;
}

/* Read what the others have stated of a call that this rank has left; -1 where Python raised. */
static int settle(CallsObject *self)
{
    PyObject *name = self->unsettled;
    self->unsettled = NULL;
    int64_t *const number = self->statements.number, outer = number[UNDER_WAY];
    number[UNDER_WAY] = PYTHON_ROUND;
    int same = agree(self, number[LAST_STATED], self->settles, name, NULL);
    number[UNDER_WAY] = outer;
    if (!same) {
        PyObject *done = PyObject_CallOneArg(self->late, name);
        same = done ? 0 : -1;
        Py_XDECREF(done);
    }
    Py_DECREF(name);
    return same < 0 ? -1 : 0;
}

/* A call that is stated to the other ranks. */
typedef struct {
    ActiveCall call;
    CallsObject *calls;
    PyObject *name;
    int64_t number, digest;
    int agreed, differs;
    int is_left; /* to the library, whose own call follows */
} StatedCall;

static enum call_state advance_stated(ActiveCall *call)
{
    StatedCall *const self = (StatedCall *)call;
    ProgramObject *const program = call->program;
    if (!self->agreed) {
        if (program_drive(call, program->check) < 0)
            return FAILED_CALL;
        if (call->state != RUNNING)
            return call->state;
        const int same = agree(self->calls, self->number, self->digest, self->name, call);
        if (same < 0)
            return FAILED_CALL;
        if (call->state != RUNNING)
            return call->state;
        self->agreed = 1, self->differs = !same;
    }
    if (self->differs)
        return UNSERVED;
    if (program_drive(call, program->program.length) < 0)
        return FAILED_CALL;
    return self->is_left ? UNSERVED : COMPLETE;
}

static PyObject *calls_run(CallsObject *self, Entry *entry, const Key *key, PyObject *const *args)
{
    ProgramObject *program = (ProgramObject *)Py_NewRef(entry->program);
    PyObject *out = entry->returns ? Py_NewRef(args[2]) : Py_NewRef(Py_None);
    char *address = key->out.address;
    /* Making an array may run Python code, which may empty the entry. */
    const int64_t digest = entry->digest;
    char *const input = (entry->x_in_out ? key->out.address : key->x.address) + entry->x_shift;
    const Py_ssize_t out_shift = entry->out_shift;
    if (entry->make == Py_True) {
        Py_SETREF(out, Py_NewRef(Py_True));
    } else if (out == Py_None && entry->make) {
        Given made;
        PyObject *const make = Py_NewRef(entry->make);
        Py_SETREF(out, PyObject_CallNoArgs(make));
        Py_DECREF(make);
        if (out && !calls_read(self, out, &made, 1)) {
            PyErr_SetString(PyExc_RuntimeError, "the new array cannot be read");
            Py_CLEAR(out);
        }
        if (!out) {
            Py_DECREF(program);
            if (!PyErr_ExceptionMatches(PyExc_Exception))
                return NULL; /* an interrupt, before the call has begun */
            /* Python tells the other ranks if there is no memory then, either. */
            PyErr_Clear();
            return call_python(self, self->slow, args, 7);
        }
        address = made.address;
    }
    program->program.registers[INPUT] = input;
    program->program.registers[OUTPUT] = address + out_shift;
    uint64_t row = log_begin_below(program->log, program->call, self->in_method);
    StatedCall stated = {
        .call = {.under_way = self->statements.number + UNDER_WAY,
                 .program = program, .advance = advance_stated},
        .calls = self, .name = args[0], .digest = digest, .is_left = out == Py_True};
    stated.number = state_call(&self->statements, digest);
    program_begin(&program->program);
    while (active_run(&stated.call) != COMPLETE && PyErr_Occurred())
        if (!calls_give_up(self, (PyObject *)program))
            break;
    if (PyErr_Occurred())
        Py_CLEAR(out);
    else if (stated.differs)
        Py_SETREF(out, disagree(self, args, (PyObject *)program));
    log_end(program->log, row, !out);
    Py_DECREF(program);
    return out;
}

/* The same, and add it to the tally of such calls. */
static PyObject *calls_tallied(
    CallsObject *self, Entry *entry, const Key *key, PyObject *const *args)
{
    int64_t *tally = entry->tally.buf;
    if (tally[TALLY_CALLS] + 1 < tally[TALLY_NEXT]) {
        tally[TALLY_CALLS]++;
        return calls_run(self, entry, key, args);
    }
    PyObject *owner = Py_NewRef(entry->tally.obj); /* the entry may go meanwhile */
    int64_t began = ticks();
    PyObject *done = calls_run(self, entry, key, args);
    if (done == Py_None) {
        tally_add(tally, ticks() - began);
        tally[TALLY_CALLS]++;
        tally_choose(tally);
    }
    Py_DECREF(owner);
    return done;
}

static PyObject *calls_serve(CallsObject *self, const Entry *entry, PyObject *const *args)
{
    PyObject *serve = Py_NewRef(entry->serve), *given[] = {args[1], args[2]}; /* it may go meanwhile */
    PyObject *done = call_python(self, serve, given, 2);
    Py_DECREF(serve);
    return done;
}

static PyObject *calls_find_and_run(CallsObject *self, PyObject *const *args, Py_ssize_t many)
{
    if (many != 7) {
        PyErr_SetString(PyExc_TypeError, "a call takes seven arguments");
        return NULL;
    }
    Key key;
    int ended = self->statements.number[HAS_ENDED] != 0;
    if (self->unsettled && !ended && settle(self) < 0)
        return NULL;
    Entry *entry = !ended && read_key(self, args, &key) ? calls_find(self, &key) : NULL;
    if (entry && entry->serve)
        return calls_serve(self, entry, args);
    if (entry && entry->make == Py_True && self->late != Py_None)
        return calls_leave(self, entry, args[0]);
    if (entry && entry->program->program.sequence < entry->until)
        return entry->tally.buf ? calls_tallied(self, entry, &key, args)
                                : calls_run(self, entry, &key, args);
    return call_python(self, self->slow, args, 7);
}

/* calls(name, x, out, op, root, counts, algorithm) */
static PyObject *calls_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    CallsObject *self = (CallsObject *)object;
    const int64_t *const under_way = self->statements.number + UNDER_WAY;
    if (*under_way && active_complete(under_way) < 0)
        return NULL;
    const int named = names && PyTuple_GET_SIZE(names);
    return calls_find_and_run(self, args, named ? -1 : PyVectorcall_NARGS(flags));
}

/* within(name, x, out, op, root, counts, algorithm): the same within a call that Python runs. */
static PyObject *calls_within(CallsObject *self, PyObject *const *args, Py_ssize_t many)
{
    return calls_find_and_run(self, args, many);
}

/* -- the type ---------------------------------------------------------------------------------- */

typedef struct {
    CallsObject calls;
    vectorcallfunc vectorcall;
} CallableCalls;

/* DLPack's table, NULL where it is not one that is known here. */
static const DLExchange *exchange_of(PyObject *capsule)
{
    const DLExchange *exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (exchange && (exchange->version.major != 1 || !exchange->describe)) {
        PyErr_SetString(PyExc_ValueError, "this version of DLPack's table is unknown");
        return NULL;
    }
    return exchange;
}

static int calls_init(CallsObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"probe",  "exchange", "lines", "stride", "rank", "number",
                            "spins",  "slow",     "wait",  "broken", "keep",
                            "late",   "in_place", "datatype", "in_method", NULL};
    PyObject *probe, *exchange, *lines, *number, *slow, *wait, *broken, *keep;
    PyObject *late = Py_None, *in_place = NULL, *datatype = NULL;
    long long spins, stride, rank;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOLLOLOOOO|OOOp", names, &probe, &exchange,
                                     &lines, &stride, &rank, &number, &spins, &slow, &wait,
                                     &broken, &keep, &late, &in_place, &datatype,
                                     &self->in_method))
        return -1;
    if (self->entries) {
        PyErr_SetString(PyExc_TypeError, "it is made once");
        return -1;
    }
    if (PyTuple_Check(exchange)) {
        if (numpy_check(probe) < 0)
            return -1;
        self->dtypes = Py_NewRef(exchange);
    } else {
        self->exchange = exchange_of(exchange);
        if (!self->exchange)
            return -1;
    }
    PyObject *items = PySequence_Fast(lines, "lines is a list of addresses");
    if (!items)
        return -1;
    Statements *all = &self->statements;
    all->size = PySequence_Fast_GET_SIZE(items), all->rank = rank, all->stride = stride;
    all->lines = PyMem_Calloc((size_t)all->size + 1, sizeof(int64_t *));
    for (Py_ssize_t each = 0; all->lines && each < all->size; each++)
        all->lines[each] = PyLong_AsVoidPtr(PySequence_Fast_GET_ITEM(items, each));
    Py_DECREF(items);
    self->entries = PyMem_Calloc(PLACES, sizeof(Entry));
    if (!all->lines || !self->entries)
        PyErr_NoMemory();
    if (PyErr_Occurred() || active_open(number, &self->number) < 0)
        return -1;
    if (rank < 0 || rank >= all->size) {
        PyErr_SetString(PyExc_ValueError, "a rank has one of the lines");
        return -1;
    }
    all->number = self->number.buf;
    self->spins = spins;
    self->tensors = (PyTypeObject *)Py_NewRef(Py_TYPE(probe));
    self->slow = Py_NewRef(slow), self->wait = Py_NewRef(wait);
    self->broken = Py_NewRef(broken), self->keep = Py_NewRef(keep);
    self->late = Py_NewRef(late);
    if (self->dtypes)
        self->in_place = Py_XNewRef(in_place), self->datatype = Py_XNewRef(datatype);
    ((CallableCalls *)self)->vectorcall = calls_call;
    return 0;
}

/* What stands beside the arrays of a call, which its key knows by address. */
static PyObject *kept_of(PyObject *given)
{
    PyObject *kept = PyTuple_New(2);
    for (int each = 0; kept && each < 2; each++) {
        PyObject *array = PyTuple_GET_ITEM(given, 1 + each);
        PyObject *rest = PyList_CheckExact(array) || PyTuple_CheckExact(array)
                             ? PySequence_GetSlice(array, 1, PySequence_Fast_GET_SIZE(array))
                             : Py_NewRef(Py_None);
        if (!rest)
            Py_CLEAR(kept);
        else
            PyTuple_SET_ITEM(kept, each, rest);
    }
    return kept;
}

/* A place for such calls, with nothing that serves them yet; NULL where only Python understands them,
   or it has raised. */
static Entry *entry_for(CallsObject *self, PyObject *given)
{
    Key key;
    if (PyTuple_GET_SIZE(given) != 7) {
        PyErr_SetString(PyExc_TypeError, "a call takes seven arguments");
        return NULL;
    }
    if (!read_key(self, ((PyTupleObject *)given)->ob_item, &key))
        return NULL;
    Entry *entry = calls_find(self, &key);
    size_t place = hash_key(&key), probe = 0;
    while (probe < PROBES - 1 && self->entries[(place + probe) % PLACES].kept)
        probe++;
    if (!entry)
        entry = self->entries + (place + probe) % PLACES;
    PyObject *kept = kept_of(given);
    if (!kept)
        return NULL;
    empty_entry(entry);
    for (int each = 0; each < WORDS; each++)
        Py_INCREF(key.words[each]);
    entry->key = key;
    entry->kept = kept;
    return entry;
}

/* lend(probe, exchange): beside NumPy's arrays, read those of another library as if they were NumPy's. */
static PyObject *calls_lend(CallsObject *self, PyObject *args)
{
    PyObject *probe, *capsule;
    if (!PyArg_ParseTuple(args, "OO", &probe, &capsule))
        return NULL;
    const Py_ssize_t many = self->dtypes && !self->lent ? PyTuple_GET_SIZE(self->dtypes) : 0;
    if (!many || many > MOST_DTYPES) {
        PyErr_SetString(PyExc_TypeError, "it reads NumPy's arrays, and is lent others once");
        return NULL;
    }
    const DLExchange *exchange = exchange_of(capsule);
    if (!exchange)
        return NULL;
    for (Py_ssize_t each = 0; each < many; each++) {
        int itemsize, code;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(self->dtypes, each), "Oii", &(PyObject *){NULL},
                              &itemsize, &code))
            return NULL;
        self->lent_kinds[each] = kind_of(code, 8 * itemsize);
    }
    self->exchange = exchange;
    self->lent = (PyTypeObject *)Py_NewRef(Py_TYPE(probe));
    Py_RETURN_NONE;
}

/* add(arguments, program, digest, returns, make, until, x_in_out, x_shift, out_shift, tally): serve
   such calls by a program. */
static PyObject *calls_add(CallsObject *self, PyObject *args)
{
    PyObject *given, *program, *make, *tally = Py_None;
    long long digest, until = INT64_MAX;
    int returns, x_in_out = 0;
    Py_ssize_t x_shift = 0, out_shift = 0;
    if (!PyArg_ParseTuple(args, "O!O!LpO|LpnnO", &PyTuple_Type, &given, &ProgramType, &program,
                          &digest, &returns, &make, &until, &x_in_out, &x_shift, &out_shift,
                          &tally))
        return NULL;
    Entry *entry = entry_for(self, given);
    if (!entry)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    entry->program = (ProgramObject *)Py_NewRef(program);
    if (tally != Py_None && tally_open(tally, &entry->tally) < 0) {
        empty_entry(entry);
        return NULL;
    }
    entry->x_in_out = x_in_out, entry->x_shift = x_shift, entry->out_shift = out_shift;
    entry->digest = digest, entry->until = until, entry->returns = returns;
    entry->make = make == Py_None ? NULL : Py_NewRef(make);
    Py_RETURN_NONE;
}

/* serve(arguments, function): serve such calls by a function of x and out; whether it will. */
static PyObject *calls_serve_by(CallsObject *self, PyObject *args)
{
    PyObject *given, *function;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &given, &function))
        return NULL;
    Entry *entry = entry_for(self, given);
    if (!entry)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    entry->serve = Py_NewRef(function);
    Py_RETURN_TRUE;
}

/* agree(digest, name): state a call that Python runs; whether all ranks state the same. */
static PyObject *calls_agree(CallsObject *self, PyObject *const *args, Py_ssize_t many)
{
    const Statements *all = &self->statements;
    const int64_t digest = many == 2 ? PyLong_AsLongLong(args[0]) : 0;
    if (many != 2)
        PyErr_SetString(PyExc_TypeError, "a digest, and the name of the call");
    if (PyErr_Occurred())
        return NULL;
    int64_t *const number = all->number, outer = number[UNDER_WAY];
    if (number[HAS_ENDED]) /* as this raises */
        return PyObject_CallFunction(self->wait, "nL", all->rank, (long long)number[LAST_STATED]);
    if (outer > PYTHON_CALL && active_complete(number + UNDER_WAY) < 0)
        return NULL;
    number[UNDER_WAY] = PYTHON_ROUND;
    const int same = agree(self, state_call(all, digest), digest, args[1], NULL);
    number[UNDER_WAY] = outer;
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* hold(): begin a call that Python runs, and return what `release` takes. Until then no other call of
   the group begins, but for those of `within`. */
static PyObject *calls_hold(CallsObject *self, PyObject *Py_UNUSED(ignored))
{
    int64_t *const under_way = self->statements.number + UNDER_WAY, outer = *under_way;
    if (outer && active_complete(under_way) < 0)
        return NULL;
    *under_way = PYTHON_CALL;
    return PyLong_FromLongLong(outer);
}

static PyObject *calls_release(CallsObject *self, PyObject *outer)
{
    self->statements.number[UNDER_WAY] = PyLong_AsLongLong(outer);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* complete(): complete the calls of the group that are under way, so that another may begin. */
static PyObject *calls_complete(CallsObject *self, PyObject *Py_UNUSED(ignored))
{
    if (active_complete(self->statements.number + UNDER_WAY) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* reads(arguments): whether such calls can be found here. */
static PyObject *calls_reads(CallsObject *self, PyObject *given)
{
    Key key;
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != 7) {
        PyErr_SetString(PyExc_TypeError, "a call takes seven arguments");
        return NULL;
    }
    return PyBool_FromLong(read_key(self, ((PyTupleObject *)given)->ob_item, &key));
}

/* forget(program): serve no call by it any more, not even one that was issued; or by a function. */
static PyObject *calls_forget(CallsObject *self, PyObject *program)
{
    if (PyObject_TypeCheck(program, &ProgramType))
        ((ProgramObject *)program)->program.retired = 1;
    for (int place = 0; self->entries && place < PLACES; place++)
        if ((PyObject *)self->entries[place].program == program ||
            self->entries[place].serve == program)
            empty_entry(self->entries + place);
    Py_RETURN_NONE;
}

static void forget_all(CallsObject *self)
{
    for (int place = 0; self->entries && place < PLACES; place++)
        empty_entry(self->entries + place);
}

static int calls_traverse(CallsObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->slow);
    Py_VISIT(self->wait);
    Py_VISIT(self->broken);
    Py_VISIT(self->keep);
    Py_VISIT(self->late);
    for (int place = 0; self->entries && place < PLACES; place++)
        if (self->entries[place].kept) {
            Py_VISIT(self->entries[place].program);
            Py_VISIT(self->entries[place].make);
            Py_VISIT(self->entries[place].serve);
            Py_VISIT(self->entries[place].kept);
        }
    return 0;
}

static int calls_clear(CallsObject *self)
{
    forget_all(self);
    Py_CLEAR(self->slow);
    Py_CLEAR(self->wait);
    Py_CLEAR(self->broken);
    Py_CLEAR(self->keep);
    Py_CLEAR(self->late);
    return 0;
}

static void calls_dealloc(CallsObject *self)
{
    PyObject_GC_UnTrack(self);
    calls_clear(self);
    if (self->number.buf)
        PyBuffer_Release(&self->number);
    Py_XDECREF(self->tensors);
    Py_XDECREF(self->lent);
    Py_XDECREF(self->dtypes);
    Py_XDECREF(self->in_place);
    Py_XDECREF(self->unsettled);
    Py_XDECREF(self->datatype);
    PyMem_Free(self->entries);
    PyMem_Free(self->statements.lines);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef calls_methods[] = {
    {"lend", (PyCFunction)calls_lend, METH_VARARGS, NULL},
    {"add", (PyCFunction)calls_add, METH_VARARGS, NULL},
    {"serve", (PyCFunction)calls_serve_by, METH_VARARGS, NULL},
    {"agree", (PyCFunction)(void (*)(void))calls_agree, METH_FASTCALL, NULL},
    {"complete", (PyCFunction)calls_complete, METH_NOARGS, NULL},
    {"hold", (PyCFunction)calls_hold, METH_NOARGS, NULL},
    {"release", (PyCFunction)calls_release, METH_O, NULL},
    {"within", (PyCFunction)(void (*)(void))calls_within, METH_FASTCALL, NULL},
    {"reads", (PyCFunction)calls_reads, METH_O, NULL},
    {"forget", (PyCFunction)calls_forget, METH_O, NULL},
    {NULL},
};

PyTypeObject CallsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.execution._compiled.Calls",
    .tp_basicsize = sizeof(CallableCalls),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(CallableCalls, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)calls_init,
    .tp_traverse = (traverseproc)calls_traverse,
    .tp_clear = (inquiry)calls_clear,
    .tp_dealloc = (destructor)calls_dealloc,
    .tp_methods = calls_methods,
};

int calls_import(void)
{
    is_neg = PyUnicode_InternFromString("is_neg");
    is_conj = PyUnicode_InternFromString("is_conj");
    return is_neg && is_conj ? 0 : -1;
}
