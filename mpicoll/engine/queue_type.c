/* The type Queue: calls of a group that were issued, run by the progress thread in their order.

   A call that no program of the PlanTable serves is left to Python. Calls are counted, and complete in the
   order of issue, so a number stands for each. */

#include "active.h"
#include "plan_table.h"
#include "postponing.h"

#include <errno.h>
#include <sched.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    Queue queue;
    PlanTableObject *table;
    Py_ssize_t ranks;
    char held;            /* takes no calls, as Python runs one */
    unsigned long driver; /* the thread that runs Python and advances it; 0 where none does */
    char looks;           /* its driver looks at the call, and does not wait for it */
    int64_t failed;       /* the number of the last call that Python's error has ended */
} QueueObject;

static void release_owner(void *owner)
{
    Py_DECREF((PyObject *)owner);
}

/* -- what is given ----------------------------------------------------------------------------- */

/* An array or equal arrays, one for each rank, that may lie apart. */
typedef struct {
    ArrayArgument given;
    PyObject *rows;  /* a tuple of them, as reading one may run Python code; else NULL */
    Py_ssize_t many; /* 0 where they lie together */
} Side;

/* Take an array as one of one dimension, or as `rows` rows; 0 where it cannot be cut so. */
static int flatten(ArrayArgument *given, Py_ssize_t rows)
{
    Py_ssize_t count = 1;
    for (int each = 0; each < given->dimensions; each++)
        count *= given->shape[each];
    if (!count || (rows && count % rows))
        return 0;
    given->dimensions = rows ? 2 : 1;
    given->shape[0] = rows ? rows : count;
    given->shape[1] = rows ? count / rows : 0;
    return 1;
}

/* Read equal arrays, one for each rank; 0 where only Python understands them. */
static int read_rows(const QueueObject *self, PyObject *list, Side *side, int written)
{
    const PlanTableObject *const table = self->table;
    int together = 1;
    side->rows = PySequence_Tuple(list);
    const Py_ssize_t many = side->rows ? PyTuple_GET_SIZE(side->rows) : 0;
    if (!many || many != self->ranks)
        return 0;
    if (!read_array(&table->reader, PyTuple_GET_ITEM(side->rows, 0), &side->given, written) ||
        !flatten(&side->given, 0))
        return 0;
    const ArrayArgument first = side->given;
    for (Py_ssize_t each = 1; each < many; each++) {
        ArrayArgument other;
        if (!read_array(&table->reader, PyTuple_GET_ITEM(side->rows, each), &other, written) ||
            other.kind != first.kind || other.nbytes != first.nbytes)
            return 0;
        together = together && other.address == first.address + each * first.nbytes;
    }
    side->given.dimensions = 2;
    side->given.shape[0] = many, side->given.shape[1] = first.shape[0];
    side->given.nbytes = many * first.nbytes;
    if (!together)
        side->many = many, side->given.address = NULL;
    return 1;
}

static int read_side(const QueueObject *self, PyObject *array, Side *side, int rows, int written)
{
    if (rows && (PyList_CheckExact(array) || PyTuple_CheckExact(array)))
        return read_rows(self, array, side, written);
    if (!read_array(&self->table->reader, array, &side->given, written))
        return 0;
    return array == Py_None || flatten(&side->given, rows ? self->ranks : 0);
}

/* Write the addresses of rows that lie apart; 0 where one has changed since it was read. */
static int place_rows(const PlanTableObject *table, const Side *side, Apart *apart, int written)
{
    for (Py_ssize_t row = 0; row < side->many; row++) {
        ArrayArgument given;
        if (!read_array(&table->reader, PyTuple_GET_ITEM(side->rows, row), &given, written) ||
            given.nbytes * side->many != side->given.nbytes)
            return 0;
        apart->rows[row] = given.address;
        apart->nbytes = (size_t)given.nbytes;
    }
    return 1;
}

/* Whether no row overlaps the input, but for this rank's own, which may be the input. */
static int are_clear(const Apart *apart, const ArrayArgument *x, int64_t rank)
{
    for (int64_t each = 0; each < apart->many; each++) {
        const char *const row = apart->rows[each];
        const int own = each == rank && row == x->address && (Py_ssize_t)apart->nbytes == x->nbytes;
        if (!own && row < x->address + x->nbytes && x->address < row + apart->nbytes)
            return 0;
    }
    return 1;
}

/* Make the call of a key, whose program is held first: reading an array may run Python code. Only a call
   that blocks runs callbacks, which take whole arrays. */
static Call *call_of_key(const PlanTableObject *table, CallKey *key, const Side *x, const Side *out,
                         int makes, int blocks)
{
    if (!x->many && !out->many)
        key_set_overlap(key);
    const Entry *const entry = find_plan(table, key);
    if (!entry || entry->kind != PROGRAM || (entry->program->calls && !blocks) ||
        (entry->make_output && makes))
        return NULL;
    Call *const call = queue_call(x->many, out->many);
    if (!call)
        return NULL;
    call->program = &entry->program->program;
    call->digest = entry->digest, call->check = entry->program->check;
    call->owner = Py_NewRef(entry->program);
    call->input = key->x.address, call->output = key->out.address;
    if (!place_rows(table, x, &call->inputs, 0) || !place_rows(table, out, &call->outputs, 1)) {
        release_owner(call->owner);
        free(call);
        return NULL;
    }
    call->direct = !((ProgramObject *)call->owner)->calls &&
                   (x->many || are_clear(&call->outputs, &x->given, table->digests.rank));
    return call;
}

/* Make the call of name, x, out, op, root, counts, algorithm and which are rows; NULL, without an
   error, where only Python can serve it. */
static Call *make_call(QueueObject *self, PyObject *const *args, Py_ssize_t many, int blocks)
{
    PlanTableObject *const table = self->table;
    const int64_t *const numbers = table->digests.number;
    if (many != 8 || !table->entries || self->held || numbers[HAS_ENDED] || numbers[UNDER_WAY])
        return NULL;
    const long root = PyLong_AsLong(args[4]), rows = PyLong_AsLong(args[7]);
    CallKey key = {.objects = {args[0], args[3], args[5], args[6]}, .root = root};
    Side x = {.rows = NULL}, out = {.rows = NULL};
    const int one = args[1] == args[2] && !rows;
    Call *call = NULL;
    if (!PyErr_Occurred() && read_side(self, args[1], &x, rows & INPUT_ROWS, one) &&
        (one || read_side(self, args[2], &out, rows & OUTPUT_ROWS, 1))) {
        key.x = x.given, key.out = one ? x.given : out.given;
        call = call_of_key(table, &key, &x, &out, args[2] == Py_None, blocks);
    }
    Py_XDECREF(x.rows);
    Py_XDECREF(out.rows);
    if (!call)
        PyErr_Clear();
    return call;
}

/* -- running ----------------------------------------------------------------------------------- */

static ProgramObject *owner(const Call *call)
{
    return (ProgramObject *)call->owner;
}

/* Tell the flight recorder that a call is complete. */
static void record_end(const Call *call)
{
    log_done(owner(call)->log, call->row);
}

/* The same of one that has failed, with the error that Python has raised. */
static void record_failure(QueueObject *self)
{
    Call *const call = queue_head(&self->queue);
    log_end(owner(call)->log, call->row, 1);
    call->row = 0;
}

/* End the call with the error that Python has raised. It is complete only after `failed` says so. */
static void fail(QueueObject *self)
{
    self->failed = queue_completed(&self->queue) + 1;
    queue_skip(&self->queue);
}

static void take(QueueObject *self)
{
    if (progress_try_take(&self->queue.job))
        return;
    Py_BEGIN_ALLOW_THREADS
    progress_take(&self->queue.job);
    Py_END_ALLOW_THREADS
}

/* Leave what remains to the progress thread. */
static void give(QueueObject *self)
{
    const Call *const head = queue_head(&self->queue);
    if (head && self->queue.phase != REFUSED)
        progress_give(&self->queue.job, owner(head)->heavy);
}

/* Advance without waiting, as the driver. */
static enum state advance(QueueObject *self)
{
    const Call *const head = queue_head(&self->queue);
    enum state state;
    if (!head || owner(head)->light)
        return queue_advance(&self->queue, INT64_MAX, 0, 0);
    Py_BEGIN_ALLOW_THREADS
    state = queue_advance(&self->queue, INT64_MAX, 0, 0);
    Py_END_ALLOW_THREADS
    return state;
}

/* Have Python complete what the call waits for; -1 where it has raised, and the call has failed. Code
   that runs in the wait may complete the call, and then raise. */
static int wait_for(QueueObject *self, enum state state)
{
    Queue *const queue = &self->queue;
    PyObject *const program = Py_NewRef((PyObject *)queue_head(queue)->owner);
    const int64_t completed = queue_completed(queue);
    postpone();
    PyObject *const done =
        queue->phase == AGREEMENT
            ? PyObject_CallFunction(self->table->wait, "LLO", (long long)queue->comparison.peer,
                                    (long long)queue->comparison.number, ((ProgramObject *)program)->label)
            : program_wait_in_python((ProgramObject *)program, state == FAILED ? errno : 0);
    if (!done && queue_completed(queue) == completed) {
        plan_give_up(self->table, program);
        record_failure(self);
        fail(self);
    }
    Py_DECREF(program);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Have Python drop a program that only this rank has begun: 0; -1 where it has raised. */
static int drop_begun(QueueObject *self, ProgramObject *program)
{
    PyObject *const done = PyObject_CallFunctionObjArgs(
        self->table->give_up, (PyObject *)program, Py_None, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Leave the call to Python: 0; -1 where it has raised. */
static int refuse(QueueObject *self)
{
    Queue *const queue = &self->queue;
    Call *const call = queue_head(queue);
    log_withdraw(owner(call)->log, call->row);
    call->row = 0;
    if (!queue->comparison.differs)
        return 0;
    queue->comparison.differs = 0;
    const int done = drop_begun(self, owner(call));
    if (done < 0)
        fail(self);
    return done;
}

/* Complete the calls up to a number: 1; 0 where Python has to run the next one, -1 where it raised. */
static int drive(QueueObject *self, int64_t number)
{
    Queue *const queue = &self->queue;
    while (queue_completed(queue) < number) {
        enum state state = WAITING;
        if (owner(queue_head(queue))->light)
            state = queue_advance(queue, INT64_MAX, self->table->spins, 0);
        if (state != DONE && queue->phase != REFUSED) {
            Py_BEGIN_ALLOW_THREADS
            state = queue_advance(queue, INT64_MAX, self->table->spins, YIELD_NS);
            Py_END_ALLOW_THREADS
        }
        if (queue->phase == REFUSED)
            return refuse(self);
        if (state != DONE && wait_for(self, state) < 0)
            return -1;
    }
    return 1;
}

/* Free what is complete, and leave the rest to the progress thread; not within another wait of this
   thread, which goes on. */
static void end_driving(QueueObject *self, unsigned long outer)
{
    self->driver = outer;
    queue_reap(&self->queue, release_owner);
    if (!outer)
        give(self);
}

/* run(name, x, out, op, root, counts, algorithm, rows): whether the call was known, and has run. */
static PyObject *queue_run(QueueObject *self, PyObject *const *args, Py_ssize_t many)
{
    Queue *const queue = &self->queue;
    Call *const call =
        queue_completed(queue) == queue->issued ? make_call(self, args, many, 1) : NULL;
    if (!call)
        Py_RETURN_FALSE;
    ProgramObject *const program = owner(call);
    int same = 0;
    if (queue_prepare(queue, call)) {
        const uint64_t row = log_start(program->log, program->call);
        same = program_hold(program, args[1], args[2]);
        same = same < 0 ? same : plan_run(self->table, program, call->digest, args[0]);
        if (same > 0)
            queue_finish(queue, call), program_release(program);
        else if (!same)
            log_withdraw(program->log, row), same = drop_begun(self, program);
        log_end(program->log, row, same < 0);
    }
    free(call);
    Py_DECREF(program);
    if (!same)
        keep_raised();
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* issue(name, x, out, op, root, counts, algorithm, rows): the number of the call, 0 where Python has
   to run it. */
static PyObject *queue_issue(QueueObject *self, PyObject *const *args, Py_ssize_t many)
{
    Queue *const queue = &self->queue;
    Call *const call = make_call(self, args, many, 0);
    if (!call)
        return PyLong_FromLong(0);
    call->row = log_start(owner(call)->log, owner(call)->call);
    if (self->driver) {
        queue_append(queue, call);
        return PyLong_FromLongLong(queue->issued);
    }
    const int taken = progress_try_take(&queue->job);
    const int alone = queue_completed(queue) == queue->issued;
    queue_append(queue, call);
    const int64_t number = queue->issued;
    queue_reap(queue, release_owner);
    if (taken && alone && !owner(call)->heavy) {
        self->driver = PyThread_get_thread_ident();
        advance(self);
        self->driver = 0;
    }
    if (!taken)
        progress_give(&queue->job, 0);
    else
        give(self);
    return PyLong_FromLongLong(number);
}

/* complete(number): True once that many calls are complete, False where Python has to run the next
   one and `skip` it. What is raised has ended the call that was completed last. */
static PyObject *queue_complete(QueueObject *self, PyObject *given)
{
    const long long number = PyLong_AsLongLong(given);
    if (PyErr_Occurred())
        return NULL;
    const unsigned long me = PyThread_get_thread_ident();
    const int within_look = self->driver == me && self->looks;
    if (number > self->queue.issued || within_look) {
        PyErr_SetString(PyExc_RuntimeError, within_look ? "this thread waits for these calls"
                                                        : "no such call was issued");
        return NULL;
    }
    const unsigned long outer = self->driver == me ? me : 0; /* in code that runs in its wait */
    while (self->driver && !outer) { /* a thread that issues a call advances it, and does not wait */
        Py_BEGIN_ALLOW_THREADS
        sched_yield();
        Py_END_ALLOW_THREADS
    }
    self->driver = me;
    take(self);
    const int done = drive(self, number);
    end_driving(self, outer);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

/* look(): whether Python has to run the next call; raises where what it waits for will never come. */
static PyObject *queue_look(QueueObject *self, PyObject *Py_UNUSED(ignored))
{
    Queue *const queue = &self->queue;
    if (self->driver || !progress_try_take(&queue->job))
        Py_RETURN_FALSE;
    self->driver = PyThread_get_thread_ident(), self->looks = 1;
    const enum state state = advance(self);
    const Call *const head = queue_head(queue);
    int fine = 1;
    if (state == FAILED) {
        fine = wait_for(self, state) == 0;
    } else if (state == WAITING && head && queue->phase == LAST_ROWS) {
        PyObject *const program = head->owner;
        PyObject *const found = program_look((ProgramObject *)program);
        fine = found != NULL;
        Py_XDECREF(found);
        if (!fine) {
            plan_give_up(self->table, program);
            record_failure(self);
            fail(self);
        }
    }
    self->driver = 0, self->looks = 0;
    give(self);
    return fine ? PyBool_FromLong(queue->phase == REFUSED) : NULL;
}

/* skip(): the next call is complete, as Python has run it. */
static PyObject *queue_skip_one(QueueObject *self, PyObject *Py_UNUSED(ignored))
{
    if (self->queue.phase != REFUSED) {
        PyErr_SetString(PyExc_RuntimeError, "no call was left to Python");
        return NULL;
    }
    queue_skip(&self->queue);
    queue_reap(&self->queue, release_owner);
    give(self);
    Py_RETURN_NONE;
}

/* -- the type ---------------------------------------------------------------------------------- */

static int queue_init(QueueObject *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *table;
    Py_ssize_t ranks;
    if (!PyArg_ParseTuple(args, "O!n", &PlanTableType, &table, &ranks))
        return -1;
    if (self->table) {
        PyErr_SetString(PyExc_TypeError, "it is made once");
        return -1;
    }
    if (!queue_begin(&self->queue)) {
        PyErr_NoMemory();
        return -1;
    }
    self->table = (PlanTableObject *)Py_NewRef(table);
    self->ranks = ranks;
    self->queue.digests = self->table->digests;
    self->queue.ended = record_end;
    return 0;
}

static int queue_traverse(QueueObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->table);
    return 0;
}

static int queue_clear(QueueObject *self)
{
    if (self->queue.first) {
        progress_take(&self->queue.job);
        queue_end(&self->queue, release_owner);
    }
    Py_CLEAR(self->table);
    return 0;
}

static void queue_dealloc(QueueObject *self)
{
    PyObject_GC_UnTrack(self);
    queue_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef queue_methods[] = {
    {"run", (PyCFunction)(void (*)(void))queue_run, METH_FASTCALL, NULL},
    {"issue", (PyCFunction)(void (*)(void))queue_issue, METH_FASTCALL, NULL},
    {"complete", (PyCFunction)queue_complete, METH_O, NULL},
    {"look", (PyCFunction)queue_look, METH_NOARGS, NULL},
    {"skip", (PyCFunction)queue_skip_one, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef queue_members[] = {
    {"held", T_BOOL, offsetof(QueueObject, held), 0, NULL},
    {"issued", T_LONGLONG, offsetof(QueueObject, queue.issued), READONLY, NULL},
    {"completed", T_LONGLONG, offsetof(QueueObject, queue.completed), READONLY, NULL},
    {"failed", T_LONGLONG, offsetof(QueueObject, failed), READONLY, NULL},
    {NULL},
};

PyTypeObject QueueType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.engine._compiled.Queue",
    .tp_basicsize = sizeof(QueueObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)queue_init,
    .tp_traverse = (traverseproc)queue_traverse,
    .tp_clear = (inquiry)queue_clear,
    .tp_dealloc = (destructor)queue_dealloc,
    .tp_methods = queue_methods,
    .tp_members = queue_members,
};
