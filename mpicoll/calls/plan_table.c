/* The type PlanTable: from the arguments of a call to the plan that serves it, and its run.

   A call finds its plan by its arguments: names, root, and the dtype, shape and overlap of the arrays.
   The ranks compare the digests of their calls before any rank reads data of another, so a call
   exchanges nothing in advance. Calls without a plan, and calls that differ among the ranks, are left to
   Python. A channel serves calls of any length: their entries have no shapes. */

#include "plan_table.h"

#include "active.h"
#include "postponing.h"

#include <structmember.h>

enum { ENTRIES = 512, PROBES = 8 };

/* A method of this package calls the table, one frame of Python above the user's. */
enum { BELOW_LIBRARY = 1 };

/* Return the plan of a call; NULL where there is none. */
static Entry *find_plan(const PlanTableObject *self, const CallKey *key)
{
    const size_t place = key_hash(key);
    for (size_t probe = 0; probe < PROBES; probe++) {
        Entry *entry = self->entries + (place + probe) % ENTRIES;
        if (entry->kind && key_equals(&entry->key, key))
            return entry;
    }
    return NULL;
}

static void empty_entry(Entry *entry)
{
    Entry old = *entry; /* releasing an object may run Python code, which may fill the entry */
    memset(entry, 0, sizeof *entry);
    if (!old.kind)
        return;
    for (int index = 0; index < OBJECTS; index++)
        Py_DECREF(old.key.objects[index]);
    Py_XDECREF(old.make_output);
    Py_XDECREF(old.op);
    Py_XDECREF(old.counts);
    Py_XDECREF(old.runner);
    Py_XDECREF(old.plan);
}

/* -- agreement --------------------------------------------------------------------------------- */

static int64_t *under_way(const PlanTableObject *self)
{
    return (int64_t *)self->numbers.buf + UNDER_WAY;
}

/* Compare a call with all ranks; -1 where Python has raised. Code of Python that runs in a wait may end
   the call: its state says so. */
static int compare(
    PlanTableObject *self, Comparison *comparison, PyObject *name, const ActiveCall *call)
{
    enum state state = digest_compare(&self->digests, comparison, 0);
    while (state != DONE) {
        if (call->outer == PYTHON_CALL)
            postpone(); /* code of Python follows this wait before its call ends */
        Py_BEGIN_ALLOW_THREADS
        state = digest_compare(&self->digests, comparison, YIELD_NS);
        Py_END_ALLOW_THREADS
        if (state == DONE)
            break;
        postpone();
        PyObject *done = PyObject_CallFunction(self->wait, "LLO", (long long)comparison->peer,
                                               (long long)comparison->number, name);
        if (!done)
            return -1;
        Py_DECREF(done);
        if (call->state != RUNNING)
            break;
    }
    return 0;
}

/* A call that the ranks compare. */
typedef struct {
    ActiveCall call; /* its program is NULL where Python, the library or the channel runs it */
    ChannelObject *channel; /* which runs the request, or NULL */
    Request *request;
    PlanTableObject *table;
    PyObject *name;
    Comparison comparison;
    int is_started, is_compared;
} ComparedCall;

static enum call_state advance_compared(ActiveCall *call)
{
    ComparedCall *const self = (ComparedCall *)call;
    ProgramObject *const program = call->program;
    if (!self->is_compared) {
        if (self->request && !self->is_started && self->request->key.collective != BARRIER) {
            self->is_started = 1;
            request_open(self->channel, self->request);
            const enum outcome outcome = request_start(self->channel, self->request);
            request_close(self->channel);
            if (outcome != FINE) {
                request_raise(self->channel, outcome);
                return FAILED_CALL;
            }
        }
        if (program && program_drive(call, program->check) < 0)
            return FAILED_CALL;
        if (call->state != RUNNING)
            return call->state;
        if (compare(self->table, &self->comparison, self->name, call) < 0)
            return FAILED_CALL;
        if (call->state != RUNNING)
            return call->state;
        self->is_compared = 1;
    }
    if (self->comparison.differs || (!program && !self->request))
        return UNSERVED;
    if (self->request) {
        if (self->request->key.collective == BARRIER)
            return COMPLETE; /* as all have come */
        self->call.is_closed = 1;
        request_open(self->channel, self->request);
        PyObject *const done =
            request_end(self->channel, 0, request_run(self->channel, self->request));
        Py_XDECREF(done);
        return done ? COMPLETE : FAILED_CALL;
    }
    return program_drive(call, program->program.length) < 0 ? FAILED_CALL : COMPLETE;
}

/* Hand over a plan, or the channel, that has failed, with the error that Python has raised, which stays. */
static void plan_give_up(PlanTableObject *self, PyObject *plan)
{
    PyObject *const error = take_raised();
    PyObject *done = PyObject_CallFunctionObjArgs(self->give_up, plan, error, NULL);
    if (!done)
        PyErr_WriteUnraisable(self->give_up);
    Py_XDECREF(done);
    raise_again(error);
}

/* Compare a call with all ranks, and run its program, or its request of the channel, unless both are NULL: 1;
   0 where the ranks differ, -1 where Python has raised. `plan`: that of the program, or the channel. */
static int plan_run(
    PlanTableObject *self, ProgramObject *program, Request *request, int64_t digest, PyObject *name,
    PyObject *plan)
{
    ComparedCall compared = {
        .call = {.under_way = under_way(self), .program = program, .advance = advance_compared},
        .channel = request ? (ChannelObject *)plan : NULL, .request = request, .table = self, .name = name};
    if (self->digests.size)
        compared.comparison = digest_publish(&self->digests, digest);
    else
        compared.is_compared = 1; /* before */
    if (program)
        program_begin(&program->program);
    if (active_run(&compared.call) != COMPLETE && PyErr_Occurred() && plan) {
        if (request)
            channel_end(compared.channel);
        plan_give_up(self, plan);
        if (program)
            program_leave(program);
    }
    if (PyErr_Occurred())
        return -1;
    if (compared.comparison.differs && request && compared.is_started)
        channel_take_back(&compared.channel->channel);
    if (compared.comparison.differs && program) {
        program->program.sequence--; /* the other ranks have not begun this run */
        program->program.position = program->program.length;
        program_release(program);
    }
    return !compared.comparison.differs;
}

/* Compare a call that Python runs with all ranks, as `plan_run` does. */
static int agree(PlanTableObject *self, int64_t digest, PyObject *name)
{
    if (self->digests.size)
        return plan_run(self, NULL, NULL, digest, name, NULL);
    postpone();
    PyObject *const same = PyObject_CallFunction(self->agree, "LO", (long long)digest, name);
    const int truth = same ? PyObject_IsTrue(same) : -1;
    Py_XDECREF(same);
    return truth;
}

/* -- a call ------------------------------------------------------------------------------------ */

/* Call a function of Python's that runs a call of the group. */
static PyObject *call_python(
    PlanTableObject *self, PyObject *function, PyObject *const *args, size_t count)
{
    int64_t *const active = under_way(self), outer = *active;
    *active = PYTHON_CALL;
    postpone();
    PyObject *result = PyObject_Vectorcall(function, args, count, NULL);
    *active = outer;
    return result;
}

/* Let Python serve a call on which the ranks differ. */
static PyObject *serve_difference(PlanTableObject *self, PyObject *const *args)
{
    PyObject *all[] = {args[0], args[1], args[2], args[3], args[4], args[5], args[6], Py_True};
    return call_python(self, self->slow, all, 8);
}

/* Return the array of a result, which is made where none is given; NULL where Python has raised.

   `shape`: of the array, where the entry does not know it; else NULL. */
static PyObject *take_output(
    PlanTableObject *self, const Entry *entry, PyObject *out, PyObject *shape, char **address)
{
    if (!entry->has_output)
        Py_RETURN_NONE;
    if (out != Py_None || !entry->make_output)
        return Py_NewRef(out);
    ArrayArgument argument;
    PyObject *const make = Py_NewRef(entry->make_output);
    PyObject *result = shape ? PyObject_CallOneArg(make, shape) : PyObject_CallNoArgs(make);
    Py_DECREF(make);
    if (result && !read_array(&self->reader, result, &argument, 1)) {
        PyErr_SetString(PyExc_RuntimeError, "the new array cannot be read");
        Py_CLEAR(result);
    }
    *address = argument.address;
    return result;
}

/* Let Python serve a call for which there was no memory: it tells the other ranks if there is none then,
   either. */
static PyObject *serve_without_output(PlanTableObject *self, PyObject *const *args)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL; /* an interrupt, before the call has begun */
    PyErr_Clear();
    return call_python(self, self->slow, args, 7);
}

/* Run a call by its program or function. */
static PyObject *run_plan(
    PlanTableObject *self, const Entry *entry, const CallKey *key, PyObject *const *args)
{
    /* Making an array may run Python code, which may empty the entry. */
    PyObject *const runner = Py_NewRef(entry->runner), *const plan = Py_NewRef(entry->plan);
    ProgramObject *const program = entry->kind == PROGRAM ? (ProgramObject *)runner : NULL;
    LogObject *const log = program ? program->log : self->log;
    const uint32_t place = program ? program->call : entry->place;
    const int64_t digest = entry->digest;
    char *const input = key->x.address, *address = key->out.address;
    PyObject *result = NULL, *const out = take_output(self, entry, args[2], NULL, &address);
    const uint64_t row = out ? log_begin_below(log, place, BELOW_LIBRARY) : 0;
    if (!out) {
        result = serve_without_output(self, args);
    } else if (!log_has_raised(row)) {
        int same = program && self->digests.size ? 1 : agree(self, digest, args[0]);
        if (same > 0 && program) {
            program->program.registers[INPUT] = input;
            program->program.registers[OUTPUT] = address;
            same = program_hold(program, args[1], out) < 0
                       ? -1
                       : plan_run(self, program, NULL, digest, args[0], plan);
            if (same > 0)
                program_release(program), result = Py_NewRef(out);
        } else {
            result = same > 0 ? call_python(self, runner, args + 1, 2) : NULL;
            if (same && !result)
                plan_give_up(self, plan);
        }
        if (!same)
            result = serve_difference(self, args);
        log_end(log, row, !result);
    }
    Py_DECREF(runner), Py_DECREF(plan), Py_XDECREF(out);
    return result;
}

/* -- calls of the channel ------------------------------------------------------------------------ */

static PyObject *automatic, *zero; /* the algorithm of such calls; none of their arrays has a list of rows */

/* Make a key that calls of all lengths have. */
static void forget_lengths(CallKey *key)
{
    key->x.dimensions = key->out.dimensions = -1;
    key->overlap = key->overlap != 0;
}

static int64_t digest_with(int64_t digest, const ArrayArgument *row)
{
    uint64_t mixed = (uint64_t)digest ^ (uint64_t)row->dimensions;
    for (int axis = 0; axis < row->dimensions; axis++) {
        mixed = (mixed ^ (uint64_t)row->shape[axis]) * 0x9e3779b97f4a7c15u;
        mixed ^= mixed >> 29;
    }
    return (int64_t)mixed;
}

/* Find the shape of a row, which all arrays of this rank must have; whether they do. */
static int find_row(const Entry *entry, const CallKey *key, ArrayArgument *row)
{
    *row = entry->row;
    int is_known = 0;
    for (int side = 0; side < 2; side++) {
        const ArrayArgument *const array = side ? &key->out : &key->x;
        const Py_ssize_t rows = side ? entry->out_rows : entry->x_rows;
        const int first = rows != ONE_ROW;
        if (rows == NO_ARRAY || !array->kind)
            continue;
        if (array->dimensions < first || (first && array->shape[0] != rows) ||
            (is_known && array->dimensions - first != row->dimensions))
            return 0;
        for (int axis = 0; is_known && axis < row->dimensions; axis++)
            if (row->shape[axis] != array->shape[axis + first])
                return 0;
        row->dimensions = array->dimensions - first;
        memcpy(row->shape, array->shape + first, (size_t)row->dimensions * sizeof *row->shape);
        is_known = 1;
    }
    return row->dimensions >= 0;
}

/* Return the shape of the result, as a tuple. */
static PyObject *output_shape(const Entry *entry, const ArrayArgument *row)
{
    const int first = entry->out_rows != ONE_ROW;
    PyObject *const shape = PyTuple_New(row->dimensions + first);
    for (int axis = 0; shape && axis < row->dimensions + first; axis++)
        PyTuple_SET_ITEM(shape, axis,
                         PyLong_FromSsize_t(axis < first ? entry->out_rows : row->shape[axis - first]));
    return shape;
}

/* Compare a call, and run it by the channel. */
static PyObject *run_request(
    PlanTableObject *self, ChannelObject *channel, const Entry *entry, const CallKey *key,
    PyObject *const *args, PyObject *out, const ArrayArgument *row)
{
    int64_t width = 1;
    for (int axis = 0; axis < row->dimensions; axis++)
        width *= row->shape[axis];
    PyObject *const call[QUEUE_ARGUMENTS] = {
        args[0], entry->x_rows == NO_ARRAY ? Py_None : args[1], out, entry->op, args[4], entry->counts,
        args[6], zero};
    const ArrayArgument *const x_given = call[1] == Py_None ? NULL : &key->x;
    const ArrayArgument *const out_given = out == Py_None || out != args[2] ? NULL : &key->out;
    Request request;
    if (!queue_read(channel, call, QUEUE_ARGUMENTS, width, x_given, out_given, &request)) {
        PyErr_Clear();
        return call_python(self, self->slow, args, 7);
    }
    if (request_record(channel, &request) < 0)
        return NULL;
    const int same =
        plan_run(self, NULL, &request, digest_with(entry->digest, row), args[0], (PyObject *)channel);
    log_end(channel->log, request.row, same < 0);
    return same < 0 ? NULL : same ? Py_NewRef(out) : serve_difference(self, args);
}

static PyObject *run_channel(
    PlanTableObject *self, const Entry *found, const CallKey *key, PyObject *const *args)
{
    ChannelObject *const channel = (ChannelObject *)Py_NewRef(self->channel);
    const Entry entry = *found; /* Python code may empty it */
    ArrayArgument row;
    if (channel->has_ended || !find_row(&entry, key, &row)) {
        Py_DECREF(channel);
        return call_python(self, self->slow, args, 7);
    }
    char *address;
    Py_INCREF(entry.op), Py_INCREF(entry.counts);
    PyObject *const shape =
        entry.has_output && args[2] == Py_None ? output_shape(&entry, &row) : Py_NewRef(Py_None);
    PyObject *const out = shape ? take_output(self, &entry, args[2], shape, &address) : NULL;
    PyObject *const result = out ? run_request(self, channel, &entry, key, args, out, &row)
                                 : serve_without_output(self, args);
    Py_XDECREF(shape), Py_XDECREF(out);
    Py_DECREF(entry.op), Py_DECREF(entry.counts), Py_DECREF(channel);
    return result;
}

/* table(name, x, out, op, root, counts, algorithm) */
static PyObject *table_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    PlanTableObject *const self = (PlanTableObject *)object;
    if (*under_way(self) && active_complete(under_way(self)) < 0)
        return NULL;
    if ((names && PyTuple_GET_SIZE(names)) || PyVectorcall_NARGS(flags) != 7) {
        PyErr_SetString(PyExc_TypeError, "a call takes seven arguments");
        return NULL;
    }
    CallKey key;
    const int ended = ((int64_t *)self->numbers.buf)[HAS_ENDED] != 0;
    const int is_read = !ended && read_key(&self->reader, args, &key);
    if (is_read && self->channel && args[6] == automatic) {
        CallKey kind = key;
        forget_lengths(&kind);
        const Entry *const entry = find_plan(self, &kind);
        if (entry && entry->kind == CHANNEL)
            return run_channel(self, entry, &key, args);
    }
    Entry *const entry = is_read ? find_plan(self, &key) : NULL;
    if (entry && entry->kind != CHANNEL)
        return run_plan(self, entry, &key, args);
    return call_python(self, self->slow, args, 7);
}

/* agree(digest): whether all ranks make the same call, which Python runs. */
static PyObject *table_agree(PlanTableObject *self, PyObject *number)
{
    const int64_t digest = PyLong_AsLongLong(number);
    if (PyErr_Occurred())
        return NULL;
    const int64_t *const numbers = self->numbers.buf;
    if (numbers[HAS_ENDED]) /* as this raises */
        return PyObject_CallFunction(self->wait, "LLO", (long long)self->digests.rank,
                                     (long long)numbers[LAST_STATED], Py_None);
    if (numbers[UNDER_WAY] > PYTHON_CALL && active_complete(numbers + UNDER_WAY) < 0)
        return NULL;
    const int same = agree(self, digest, Py_None);
    if (same >= 0)
        keep_raised();
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* complete(): complete the calls of the group that are under way, so that another may begin. */
static PyObject *table_complete(PlanTableObject *self, PyObject *Py_UNUSED(ignored))
{
    if (active_complete(under_way(self)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* -- the entries ------------------------------------------------------------------------------- */

/* Return the entry for such calls; NULL where only Python understands them, or it has raised. */
static Entry *new_entry(PlanTableObject *self, PyObject *given, enum plan_kind kind, int64_t digest, PyObject *plan)
{
    CallKey key;
    if (PyTuple_GET_SIZE(given) != 7) {
        PyErr_SetString(PyExc_TypeError, "a call takes seven arguments");
        return NULL;
    }
    if (!read_key(&self->reader, ((PyTupleObject *)given)->ob_item, &key))
        return NULL;
    if (kind == CHANNEL)
        forget_lengths(&key);
    Entry *entry = find_plan(self, &key);
    const size_t place = key_hash(&key);
    for (size_t probe = 0; !entry; probe++)
        if (probe == PROBES - 1 || !self->entries[(place + probe) % ENTRIES].kind)
            entry = self->entries + (place + probe) % ENTRIES;
    empty_entry(entry);
    for (int index = 0; index < OBJECTS; index++)
        Py_INCREF(key.objects[index]);
    entry->key = key, entry->kind = kind, entry->digest = digest, entry->plan = Py_XNewRef(plan);
    return entry;
}

/* Read the shape of a row; -1 where Python has raised. */
static int read_shape(PyObject *shape, ArrayArgument *row)
{
    const Py_ssize_t dimensions = PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : MAX_DIMENSIONS + 1;
    if (dimensions > MAX_DIMENSIONS) {
        PyErr_Format(PyExc_ValueError, "a shape is a tuple of at most %d lengths", MAX_DIMENSIONS);
        return -1;
    }
    row->dimensions = (int32_t)dimensions;
    for (int axis = 0; axis < row->dimensions; axis++)
        row->shape[axis] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis));
    return PyErr_Occurred() ? -1 : 0;
}

/* add(arguments, runner, digest, plan, place, has_output, make_output): serve such calls by a program, or by a
   function of x and out. */
static PyObject *table_add(PlanTableObject *self, PyObject *args)
{
    PyObject *given, *runner, *plan, *make_output = Py_None;
    long long digest;
    unsigned int place;
    int has_output = 0;
    if (!PyArg_ParseTuple(args, "O!OLOI|pO", &PyTuple_Type, &given, &runner, &digest, &plan, &place, &has_output,
                          &make_output))
        return NULL;
    const enum plan_kind kind = Py_IS_TYPE(runner, &ProgramType) ? PROGRAM : FUNCTION;
    Entry *const entry = new_entry(self, given, kind, digest, plan);
    if (!entry)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    entry->runner = Py_NewRef(runner), entry->place = place, entry->has_output = has_output;
    entry->make_output = make_output == Py_None ? NULL : Py_NewRef(make_output);
    Py_RETURN_NONE;
}

/* add_channel(arguments, digest, op, counts, has_output, make_output, x_rows, out_rows, row): serve such calls,
   of any length, by the channel. make_output(shape) makes an array. */
static PyObject *table_add_channel(PlanTableObject *self, PyObject *args)
{
    PyObject *given, *op, *counts, *make_output, *row;
    long long digest;
    int has_output;
    Py_ssize_t x_rows, out_rows;
    if (!PyArg_ParseTuple(args, "O!LOOpOnnO", &PyTuple_Type, &given, &digest, &op, &counts, &has_output,
                          &make_output, &x_rows, &out_rows, &row))
        return NULL;
    Entry *const entry = new_entry(self, given, CHANNEL, digest, NULL);
    if (!entry)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    entry->has_output = has_output, entry->make_output = Py_NewRef(make_output);
    entry->op = Py_NewRef(op), entry->counts = Py_NewRef(counts);
    entry->x_rows = x_rows, entry->out_rows = out_rows;
    if (read_shape(row, &entry->row) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* digest_with(digest, row): what the ranks compare of the channel's call, given the shape of a row. */
static PyObject *table_digest_with(PyObject *Py_UNUSED(type), PyObject *args)
{
    long long digest;
    PyObject *shape;
    ArrayArgument row;
    if (!PyArg_ParseTuple(args, "LO", &digest, &shape) || read_shape(shape, &row) < 0)
        return NULL;
    return PyLong_FromLongLong(digest_with(digest, &row));
}

/* serve_by(channel): serve the calls of `add_channel` by a channel; none any more for None. */
static PyObject *table_serve_by(PlanTableObject *self, PyObject *channel)
{
    if (channel != Py_None && !PyObject_TypeCheck(channel, &ChannelType)) {
        PyErr_SetString(PyExc_TypeError, "a channel, or None");
        return NULL;
    }
    Py_XSETREF(self->channel, channel == Py_None ? NULL : (ChannelObject *)Py_NewRef(channel));
    for (int place = 0; place < ENTRIES; place++)
        if (self->entries[place].kind == CHANNEL)
            empty_entry(self->entries + place);
    Py_RETURN_NONE;
}

/* forget(plan): serve no call by a plan any more. */
static PyObject *table_forget(PlanTableObject *self, PyObject *plan)
{
    for (int place = 0; self->entries && place < ENTRIES; place++)
        if (self->entries[place].plan == plan)
            empty_entry(self->entries + place);
    Py_RETURN_NONE;
}

/* -- the type ---------------------------------------------------------------------------------- */

/* Read the addresses of the ranks' lines; -1 where Python has raised. */
static int open_digests(Digests *digests, PyObject *lines, long long stride, long long rank)
{
    PyObject *const items = PySequence_Fast(lines, "lines is a list of addresses");
    if (!items)
        return -1;
    digests->size = PySequence_Fast_GET_SIZE(items), digests->rank = rank;
    digests->stride = stride;
    digests->lines = PyMem_Calloc((size_t)digests->size + 1, sizeof(int64_t *));
    for (Py_ssize_t peer = 0; digests->lines && peer < digests->size; peer++)
        digests->lines[peer] = PyLong_AsVoidPtr(PySequence_Fast_GET_ITEM(items, peer));
    Py_DECREF(items);
    if (!digests->lines)
        PyErr_NoMemory();
    else if (digests->size && (rank < 0 || rank >= digests->size))
        PyErr_SetString(PyExc_ValueError, "a rank has one of the lines");
    return PyErr_Occurred() ? -1 : 0;
}

int table_import(void)
{
    automatic = PyUnicode_InternFromString("auto");
    zero = PyLong_FromLong(0);
    return automatic && zero ? 0 : -1;
}

static int table_init(PlanTableObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"probe", "exchange", "numbers", "slow", "give_up", "lines",
                            "stride", "rank", "wait", "keep", "agree", "describe", "log", NULL};
    PyObject *probe, *exchange, *numbers, *slow, *give_up, *lines;
    PyObject *wait = Py_None, *keep = Py_None, *agree = Py_None, *describe = Py_None, *log = Py_None;
    long long stride = 1, rank = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OOOOO|$OLLOOOOO", names, &probe, &exchange, &numbers, &slow,
            &give_up, &lines, &stride, &rank, &wait, &keep, &agree, &describe, &log))
        return -1;
    if (self->entries) {
        PyErr_SetString(PyExc_TypeError, "it is made once");
        return -1;
    }
    if (log != Py_None && !PyObject_TypeCheck(log, &LogType)) {
        PyErr_SetString(PyExc_TypeError, "a compiled log, or None");
        return -1;
    }
    if ((exchange != Py_None && reader_open(&self->reader, probe, exchange) < 0) ||
        open_digests(&self->digests, lines, stride, rank) < 0 ||
        active_open(numbers, &self->numbers) < 0)
        return -1;
    self->entries = PyMem_Calloc(ENTRIES, sizeof(Entry));
    if (!self->entries) {
        PyErr_NoMemory();
        return -1;
    }
    self->digests.number = self->numbers.buf;
    self->slow = Py_NewRef(slow), self->give_up = Py_NewRef(give_up);
    self->wait = Py_NewRef(wait), self->keep = Py_NewRef(keep), self->agree = Py_NewRef(agree);
    self->log = log == Py_None ? NULL : (LogObject *)Py_NewRef(log);
    self->reader.describe = describe == Py_None ? NULL : Py_NewRef(describe);
    self->vectorcall = table_call;
    return 0;
}

static int table_traverse(PlanTableObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->slow);
    Py_VISIT(self->wait);
    Py_VISIT(self->give_up);
    Py_VISIT(self->agree);
    Py_VISIT(self->keep);
    Py_VISIT(self->reader.describe);
    Py_VISIT(self->channel);
    for (int place = 0; self->entries && place < ENTRIES; place++) {
        Py_VISIT(self->entries[place].runner);
        Py_VISIT(self->entries[place].make_output);
        Py_VISIT(self->entries[place].plan);
        Py_VISIT(self->entries[place].counts);
    }
    return 0;
}

static int table_clear(PlanTableObject *self)
{
    for (int place = 0; self->entries && place < ENTRIES; place++)
        empty_entry(self->entries + place);
    Py_CLEAR(self->channel);
    Py_CLEAR(self->slow);
    Py_CLEAR(self->wait);
    Py_CLEAR(self->give_up);
    Py_CLEAR(self->agree);
    Py_CLEAR(self->keep);
    reader_close(&self->reader);
    return 0;
}

static void table_dealloc(PlanTableObject *self)
{
    PyObject_GC_UnTrack(self);
    table_clear(self);
    if (self->numbers.buf)
        PyBuffer_Release(&self->numbers);
    Py_XDECREF(self->log);
    PyMem_Free(self->entries);
    PyMem_Free(self->digests.lines);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef table_methods[] = {
    {"add", (PyCFunction)table_add, METH_VARARGS, NULL},
    {"add_channel", (PyCFunction)table_add_channel, METH_VARARGS, NULL},
    {"digest_with", (PyCFunction)table_digest_with, METH_VARARGS | METH_STATIC, NULL},
    {"serve_by", (PyCFunction)table_serve_by, METH_O, NULL},
    {"agree", (PyCFunction)table_agree, METH_O, NULL},
    {"complete", (PyCFunction)table_complete, METH_NOARGS, NULL},
    {"forget", (PyCFunction)table_forget, METH_O, NULL},
    {NULL},
};

PyTypeObject PlanTableType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.engine._compiled.PlanTable",
    .tp_basicsize = sizeof(PlanTableObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(PlanTableObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)table_init,
    .tp_traverse = (traverseproc)table_traverse,
    .tp_clear = (inquiry)table_clear,
    .tp_dealloc = (destructor)table_dealloc,
    .tp_methods = table_methods,
};
