/* The type Program: a table of instructions that Python makes, run without it. */

#include "active.h"
#include "postponing.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <structmember.h>

int forks;

static void count_fork(void)
{
    forks++;
}

void count_forks(void)
{
    static int is_counting;
    if (!is_counting)
        is_counting = !pthread_atfork(NULL, NULL, count_fork);
}

static int program_new_rows(ProgramObject *self, PyObject *table)
{
    Py_buffer view;
    if (PyObject_GetBuffer(table, &view, PyBUF_SIMPLE) < 0)
        return -1;
    if (view.len % (Py_ssize_t)sizeof(Instruction)) {
        PyErr_Format(PyExc_ValueError, "a table is rows of %zu bytes, not %zd bytes in all",
                     sizeof(Instruction), view.len);
        PyBuffer_Release(&view);
        return -1;
    }
    self->rows = PyMem_Malloc(view.len ? (size_t)view.len : 1);
    if (!self->rows) {
        PyBuffer_Release(&view);
        PyErr_NoMemory();
        return -1;
    }
    memcpy(self->rows, view.buf, (size_t)view.len);
    self->program.rows = self->rows;
    self->program.length = view.len / (Py_ssize_t)sizeof(Instruction);
    PyBuffer_Release(&view);
    return 0;
}

static int program_new_registers(ProgramObject *self, PyObject *addresses)
{
    PyObject *items = PySequence_Fast(addresses, "registers is a list of addresses");
    if (!items)
        return -1;
    Py_ssize_t many = PySequence_Fast_GET_SIZE(items);
    self->program.registers = PyMem_Calloc((size_t)many, sizeof(char *));
    for (Py_ssize_t each = 0; self->program.registers && each < many; each++)
        self->program.registers[each] = PyLong_AsVoidPtr(PySequence_Fast_GET_ITEM(items, each));
    Py_DECREF(items);
    if (!self->program.registers)
        PyErr_NoMemory();
    if (PyErr_Occurred())
        return -1;
    for (int64_t each = 0; each < self->program.length; each++) {
        const Instruction *row = self->rows + each;
        int fine = row->code >= 0 && row->code < CODES;
        for (const Operand *one = &row->target; one <= &row->right; one++)
            fine = fine && one->reg >= 0 && one->reg < many;
        const int calls = row->code == CALL || row->code == POLL;
        self->calls |= calls;
        if (calls)
            fine = fine && row->count >= 0 && row->count < PyTuple_GET_SIZE(self->callbacks) &&
                   row->extra >= 0 && (row->code == POLL || row->extra <= OPERANDS);
        if (row->code == FOLD)
            fine = fine && row->extra >= 0 && row->extra <= MOST_OPERANDS - 2 &&
                   each + row->extra < self->program.length;
        if (!fine) {
            PyErr_Format(PyExc_ValueError, "row %lld has no such code, register or callback",
                         (long long)each);
            return -1;
        }
        if ((row->code == FOLD && !self->program.folds->fold) ||
            (row->code == DIVIDE && !self->program.folds->divide)) {
            PyErr_Format(PyExc_ValueError, "row %lld needs a kernel", (long long)each);
            return -1;
        }
    }
    return 0;
}

static int program_init(ProgramObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"table", "registers", "op", "dtype", "check",
                            "light", "heavy", "waits", "keep",
                            "numbers", "callbacks", "arrays", NULL};
    PyObject *table, *registers, *waits, *keep, *numbers = Py_None, *callbacks = NULL, *arrays = NULL;
    const char *op, *dtype;
    long long check;
    int light, heavy;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOzzLppOO|OO!O!", names, &table, &registers, &op,
                                     &dtype, &check, &light, &heavy, &waits, &keep, &numbers,
                                     &PyTuple_Type, &callbacks, &PyList_Type, &arrays))
        return -1;
    if (self->rows) {
        PyErr_SetString(PyExc_TypeError, "a program is made once");
        return -1;
    }
    self->program.folds = find_fold_row(op ? op : "", dtype ? dtype : "");
    self->callbacks = callbacks ? Py_NewRef(callbacks) : PyTuple_New(0);
    if (!self->callbacks || program_new_rows(self, table) < 0 || program_new_registers(self, registers) < 0 ||
        active_open(numbers, &self->numbers) < 0)
        return -1;
    self->forks = forks, self->check = check;
    self->light = light, self->heavy = heavy;
    self->program.position = self->program.length;
    self->program.job.run = program_turn;
    self->waits = Py_NewRef(waits), self->keep = Py_NewRef(keep), self->arrays = Py_XNewRef(arrays);
    return 0;
}

static int program_traverse(ProgramObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->waits);
    Py_VISIT(self->keep);
    Py_VISIT(self->callbacks);
    Py_VISIT(self->arrays);
    return 0;
}

static void drop_objects(ProgramObject *self)
{
    Py_CLEAR(self->waits);
    Py_CLEAR(self->keep);
    Py_CLEAR(self->callbacks);
    Py_CLEAR(self->arrays);
}

static int program_clear(ProgramObject *self)
{
    progress_take(&self->program.job);
    drop_objects(self);
    Py_CLEAR(self->log);
    return 0;
}

static void program_dealloc(ProgramObject *self)
{
    PyObject_GC_UnTrack(self);
    program_clear(self);
    if (self->numbers.buf)
        PyBuffer_Release(&self->numbers);
    PyMem_Free(self->rows);
    PyMem_Free(self->program.registers);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

void program_leave(ProgramObject *self)
{
    if (self->forks == forks && self->program.position < self->program.length)
        program_withdraw(&self->program);
}

static PyObject *call_wait(ProgramObject *self, int error)
{
    postpone();
    return PyObject_CallMethod(self->waits, "wait", "OLi", self, (long long)self->program.position, error);
}

/* Tell the owner that a callback has raised; it may raise another error instead. */
static void fail(ProgramObject *self)
{
    PyObject *const error = take_raised();
    PyObject *const result =
        PyObject_CallMethod(self->waits, "fail", "OLO", self, (long long)self->program.position, error);
    if (result)
        raise_again(error);
    else
        Py_DECREF(error);
    Py_XDECREF(result);
}

static PyObject *call_with_addresses(ProgramObject *self, const Instruction *row)
{
    const Operand *const operands[OPERANDS] = {&row->target, &row->left, &row->right};
    PyObject *arguments[OPERANDS] = {NULL}, *result = NULL;
    int64_t count = 0;
    for (; count < row->extra; count++) {
        arguments[count] = PyLong_FromVoidPtr(address_of(&self->program, operands[count]));
        if (!arguments[count])
            break;
    }
    if (count == row->extra)
        result = PyObject_Vectorcall(PyTuple_GET_ITEM(self->callbacks, row->count), arguments,
                                     (size_t)count, NULL);
    while (count)
        Py_DECREF(arguments[--count]);
    return result;
}

/* Run the callback of the next row; whether the row is complete; -1 where it has raised. */
static int call_back(ProgramObject *self)
{
    const Instruction *const row = self->program.rows + self->program.position;
    if (self->calling) {
        PyErr_SetString(PyExc_RuntimeError, "a callback of this program cannot go on with it");
        return -1;
    }
    const PyObject *const callback = PyTuple_GET_ITEM(self->callbacks, row->count);
    if (PyFunction_Check(callback) || PyMethod_Check(callback))
        postpone();
    self->calling = 1;
    PyObject *const result =
        row->code == CALL ? call_with_addresses(self, row)
                          : PyObject_CallNoArgs(PyTuple_GET_ITEM(self->callbacks, row->count));
    self->calling = 0;
    int done = -1;
    if (result)
        done = row->code == CALL ? 1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    if (done > 0)
        self->program.position++;
    else if (done < 0)
        fail(self);
    return done;
}

/* Run the callback of a POLL until it is complete, and yield the core after its first turns. */
static int poll(const ActiveCall *call)
{
    ProgramObject *const self = call->program;
    const int may_test = self->program.rows[self->program.position].extra != 0;
    const int64_t end = nanoseconds() + YIELD_NS;
    for (int look = 0; may_test && (look < YIELDS || nanoseconds() < end); look++) {
        if (look >= YIELDS) {
            Py_BEGIN_ALLOW_THREADS
            sched_yield();
            Py_END_ALLOW_THREADS
            if (check_signals() < 0) {
                fail(self);
                return -1;
            }
            if (call->state != RUNNING)
                return 1;
        }
        const int done = call_back(self);
        if (done)
            return done;
    }
    return 0;
}

/* Have Python wait for what the next row waits for. */
static int wait_in_python(const ActiveCall *call, int error)
{
    ProgramObject *const self = call->program;
    const int polls = program_calls(&self->program);
    const char calling = self->calling;
    self->calling |= polls && !self->program.rows[self->program.position].extra;
    PyObject *const result = call_wait(self, error);
    self->calling = calling;
    if (!result)
        return -1;
    Py_DECREF(result);
    if (polls && call->state == RUNNING)
        self->program.position++;
    return 0;
}

/* Run the next row, a CALL or a POLL, to its end; -1 where Python has raised. */
static int complete_callback(const ActiveCall *call)
{
    ProgramObject *const self = call->program;
    const int is_call = self->program.rows[self->program.position].code == CALL;
    const int done = is_call ? call_back(self) : poll(call);
    return done ? done : wait_in_python(call, 0);
}

static enum state advance_waiting(const ActiveCall *call, int64_t until)
{
    ProgramObject *const self = call->program;
    Program *const program = &self->program;
    enum state state = WAITING;
    program->until = until;
    if (self->light)
        state = program_advance(program, 0);
    if (state != WAITING)
        return state;
    if (call->outer == PYTHON_CALL)
        postpone(); /* code of Python follows this wait before its call ends */
    Py_BEGIN_ALLOW_THREADS
    state = program_advance(program, YIELD_NS);
    Py_END_ALLOW_THREADS
    return state;
}

int program_drive(const ActiveCall *call, int64_t until)
{
    ProgramObject *const self = call->program;
    Program *const program = &self->program;
    while (call->state == RUNNING && program->position < until) {
        const enum state state =
            program_calls(program) ? CALLING : advance_waiting(call, until);
        if (state == DONE)
            break;
        const int done = state == CALLING
                             ? complete_callback(call)
                             : wait_in_python(call, state == FAILED ? errno : 0);
        if (done < 0) {
            if (call->state == RUNNING)
                program_leave(self);
            return -1;
        }
    }
    return 0;
}

static enum call_state advance_run(ActiveCall *call)
{
    const int done = program_drive(call, call->program->program.length);
    return done < 0 ? FAILED_CALL : COMPLETE;
}

/* Run the program to its end from where it stands; -1 where Python has raised. */
static int run_active(ProgramObject *self)
{
    ActiveCall call = {.program = self, .advance = advance_run};
    const int64_t outer = self->numbers.buf ? ((int64_t *)self->numbers.buf)[UNDER_WAY] : NO_CALL;
    /* Another thread runs it beside a call of this group: that thread completes none of these. */
    if (self->numbers.buf && !active_is_elsewhere(outer))
        call.under_way = (int64_t *)self->numbers.buf + UNDER_WAY;
    active_run(&call);
    return PyErr_Occurred() ? -1 : 0;
}

/* Complete the calls of the group that this thread has begun; -1 where Python has raised. Python runs
   programs inside of its own calls. */
static int complete_others(const ProgramObject *self)
{
    const int64_t *const numbers = self->numbers.buf;
    if (!numbers || numbers[UNDER_WAY] <= PYTHON_CALL || active_is_elsewhere(numbers[UNDER_WAY]))
        return 0;
    return active_complete(numbers + UNDER_WAY);
}

static int run(ProgramObject *self)
{
    if (complete_others(self) < 0)
        return -1;
    if (self->busy || self->program.job.given) {
        PyErr_SetString(PyExc_RuntimeError,
                        self->waits ? "this plan is under way: wait for it before it runs again, or "
                                      "is freed"
                                    : "this plan has been freed: make a new one");
        return -1;
    }
    if (self->forks != forks) {
        PyErr_SetString(PyExc_RuntimeError, "this process is a fork of the one that has made this "
                                            "plan");
        return -1;
    }
    if (self->program.position < self->program.length) {
        PyErr_SetString(PyExc_RuntimeError, "this plan failed in the middle of its last run: make "
                                            "a new one");
        return -1;
    }
    program_begin(&self->program);
    return run_active(self);
}

static PyObject *program_run(ProgramObject *self, PyObject *Py_UNUSED(ignored))
{
    uint64_t row = log_begin(self->log, self->call);
    int done = log_has_raised(row) ? -1 : run(self);
    log_end(self->log, row, done < 0);
    if (done < 0)
        return NULL;
    Py_RETURN_NONE;
}

int program_hold(ProgramObject *self, PyObject *x, PyObject *out)
{
    if (!self->calls || !self->arrays)
        return 0;
    PyObject *const pair = PyTuple_Pack(2, x, out);
    const int done = pair ? PyList_Append(self->arrays, pair) : -1;
    Py_XDECREF(pair);
    return done;
}

void program_release(ProgramObject *self)
{
    if (!self->calls || !self->arrays)
        return;
    const Py_ssize_t size = PyList_GET_SIZE(self->arrays);
    if (PyList_SetSlice(self->arrays, size - 1, size, NULL) < 0)
        PyErr_Clear();
}

/* run_on(x_address, out_address, x, out): run once on these arrays, as a part of a call that is
   recorded. */
static PyObject *program_run_on(ProgramObject *self, PyObject *args)
{
    unsigned long long x_address, out_address;
    PyObject *x = Py_None, *out = Py_None;
    if (!PyArg_ParseTuple(args, "KK|OO", &x_address, &out_address, &x, &out) ||
        program_hold(self, x, out) < 0)
        return NULL;
    self->program.registers[INPUT] = (char *)(uintptr_t)x_address;
    self->program.registers[OUTPUT] = (char *)(uintptr_t)out_address;
    if (run(self) < 0)
        return NULL;
    program_release(self);
    Py_RETURN_NONE;
}

/* record(log, call): record the runs from now on. */
static PyObject *program_record(ProgramObject *self, PyObject *args)
{
    PyObject *log;
    if (!PyArg_ParseTuple(args, "O!I", &LogType, &log, &self->call))
        return NULL;
    Py_XSETREF(self->log, (LogObject *)Py_NewRef(log));
    Py_RETURN_NONE;
}

static void end_started(ProgramObject *self, int failed)
{
    log_end(self->log, self->row, failed);
    self->row = 0;
}

/* Advance without waiting; FAILED with an error of Python where a callback has raised. */
static enum state advance(ProgramObject *self)
{
    enum state state;
    self->driven = 1;
    do {
        self->program.until = self->program.length;
        if (self->light) {
            state = program_advance(&self->program, 0);
        } else {
            Py_BEGIN_ALLOW_THREADS
            state = program_advance(&self->program, 0);
            Py_END_ALLOW_THREADS
        }
        if (state == CALLING) {
            const int done = call_back(self);
            state = done < 0 ? FAILED : done ? CALLING : WAITING;
        }
    } while (state == CALLING);
    self->driven = 0;
    return state;
}

/* Let the progress thread go on, unless it cannot. */
static void give(ProgramObject *self, int now)
{
    if (!program_calls(&self->program))
        progress_give(&self->program.job, now);
}

/* Begin a run; whether it is complete. If not, the progress thread goes on with it. */
static PyObject *program_start(ProgramObject *self, PyObject *Py_UNUSED(ignored))
{
    if (complete_others(self) < 0)
        return NULL;
    progress_take(&self->program.job);
    self->row = log_start(self->log, self->call);
    if (log_has_raised(self->row))
        return NULL;
    program_begin(&self->program);
    enum state state = self->heavy ? WAITING : advance(self);
    if (PyErr_Occurred()) {
        program_leave(self);
        return NULL;
    }
    if (state == WAITING)
        give(self, self->heavy);
    if (state == DONE)
        end_started(self, 0);
    return PyBool_FromLong(state == DONE);
}

/* Advance as far as is possible without waiting; whether the run is complete. */
static PyObject *program_test(ProgramObject *self, PyObject *Py_UNUSED(ignored))
{
    if (self->driven || !progress_try_take(&self->program.job))
        Py_RETURN_FALSE;
    enum state state = advance(self);
    if (state == DONE) {
        end_started(self, 0);
        Py_RETURN_TRUE;
    }
    PyObject *result = NULL;
    if (!PyErr_Occurred())
        result = state == WAITING ? PyObject_CallMethod(self->waits, "test", "OL", self,
                                                        (long long)self->program.position)
                                  : call_wait(self, errno);
    if (!result) {
        program_leave(self);
        return NULL;
    }
    Py_DECREF(result);
    give(self, 0);
    Py_RETURN_FALSE;
}

static void take(ProgramObject *self)
{
    if (progress_try_take(&self->program.job))
        return;
    Py_BEGIN_ALLOW_THREADS
    progress_take(&self->program.job);
    Py_END_ALLOW_THREADS
}

static PyObject *program_stop(ProgramObject *self, PyObject *Py_UNUSED(ignored))
{
    take(self);
    program_leave(self);
    if (self->program.position < self->program.length)
        end_started(self, 1);
    Py_RETURN_NONE;
}

/* free(): run no more, and drop the arrays that the program holds. Without this they would live until a
   collection of garbage. */
static PyObject *program_free(ProgramObject *self, PyObject *Py_UNUSED(ignored))
{
    if (!self->busy && !self->driven && !self->program.job.given &&
        self->program.position == self->program.length) {
        self->busy = 1;
        drop_objects(self); /* not the log: a call that is recorded may end meanwhile */
    }
    Py_RETURN_NONE;
}

static PyObject *program_wait(ProgramObject *self, PyObject *Py_UNUSED(ignored))
{
    if (self->driven) {
        PyErr_SetString(PyExc_RuntimeError, "another thread waits for this plan");
        return NULL;
    }
    self->driven = 1;
    take(self);
    int done = run_active(self);
    self->driven = 0;
    end_started(self, done < 0);
    if (done < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef program_methods[] = {
    {"run", (PyCFunction)program_run, METH_NOARGS, NULL},
    {"run_on", (PyCFunction)program_run_on, METH_VARARGS, NULL},
    {"record", (PyCFunction)program_record, METH_VARARGS, NULL},
    {"start", (PyCFunction)program_start, METH_NOARGS, NULL},
    {"test", (PyCFunction)program_test, METH_NOARGS, NULL},
    {"wait", (PyCFunction)program_wait, METH_NOARGS, NULL},
    {"stop", (PyCFunction)program_stop, METH_NOARGS, NULL},
    {"free", (PyCFunction)program_free, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef program_members[] = {
    {"busy", T_BOOL, offsetof(ProgramObject, busy), 0, NULL},
    {"given", T_BOOL, offsetof(ProgramObject, program.job.given), READONLY, NULL},
    {"sequence", T_LONGLONG, offsetof(ProgramObject, program.sequence), READONLY, NULL},
    {"position", T_LONGLONG, offsetof(ProgramObject, program.position), READONLY, NULL},
    {"length", T_LONGLONG, offsetof(ProgramObject, program.length), READONLY, NULL},
    {NULL},
};

PyTypeObject ProgramType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.engine._compiled.Program",
    .tp_basicsize = sizeof(ProgramObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)program_init,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_methods = program_methods,
    .tp_members = program_members,
};
