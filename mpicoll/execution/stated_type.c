/* The type Stated: calls of a method that a plan of Python's serves between nodes. It copies the arrays
   of a call to the plan's own and back, and states in which call this rank is
   (mpicoll/peers/calls.py). Ranks that share cores run in turns, each with cold caches: in Python this
   takes as long as a message. */

#include "calls.h"
#include "kernels.h"

#include <stddef.h>

enum { CALLS_BEGUN, CALL_ENDED, CALL_PLAN, NUMBERS }; /* as mpicoll/peers/calls.py has them */

enum { MEET, RUN, RELEASE, MAKE, FAIL, OTHERWISE, FUNCTIONS };

enum { LONG_COPY = 32 << 10 }; /* bytes from which others get the interpreter meanwhile */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    CallsObject *arrays; /* reads them */
    LogObject *log;      /* NULL where nothing is recorded */
    uint32_t place;
    Py_buffer numbers;
    int64_t plan;
    PyObject *own_x, *own_out, *functions;
    Given x, out; /* of the plan; of no kind where a call's is not copied */
    int takes_out, returns;
} StatedObject;

static int fits(const Given *own, const Given *given)
{
    return !own->kind || own->nbytes == given->nbytes;
}

static void copy_all(char *target, const char *source, Py_ssize_t nbytes)
{
    if (!nbytes)
        return;
    if (nbytes < LONG_COPY) {
        copy_bytes(target, source, (size_t)nbytes, 0);
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    copy_bytes(target, source, (size_t)nbytes, 0);
    Py_END_ALLOW_THREADS
}

static int runs(const StatedObject *self, int which)
{
    PyObject *function = PyTuple_GET_ITEM(self->functions, which);
    PyObject *done = function == Py_None ? Py_NewRef(function) : PyObject_CallNoArgs(function);
    Py_XDECREF(done);
    return done != NULL;
}

/* Run the plan for an input and `*out`, which is made where there is none; 0 where Python raised. */
static int serves(StatedObject *self, const Given *x, PyObject **out, Given *given)
{
    int64_t *numbers = self->numbers.buf;
    PyObject *make = PyTuple_GET_ITEM(self->functions, MAKE);
    if (make != Py_None && (*out == Py_None || !self->takes_out)) {
        Py_SETREF(*out, PyObject_CallNoArgs(make));
        if (!*out)
            return 0;
        if (!calls_read(self->arrays, *out, given, 1) || !fits(&self->out, given)) {
            PyErr_SetString(PyExc_RuntimeError, "the new array cannot be read");
            return 0;
        }
    }
    /* In this order, as another thread reads them between any two. */
    numbers[CALL_PLAN] = self->plan;
    numbers[CALLS_BEGUN]++;
    if (!runs(self, MEET))
        return 0;
    copy_all(self->x.address, x->address, self->x.nbytes);
    if (!runs(self, RUN) || !runs(self, RELEASE))
        return 0;
    copy_all(given->address, self->out.address, self->out.nbytes);
    numbers[CALL_ENDED] = numbers[CALLS_BEGUN];
    return 1;
}

static PyObject *stated_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    StatedObject *self = (StatedObject *)object;
    Given x, out;
    if (PyVectorcall_NARGS(flags) != 2 || (names && PyTuple_GET_SIZE(names))) {
        PyErr_SetString(PyExc_TypeError, "it takes an input and an output");
        return NULL;
    }
    if (!calls_read(self->arrays, args[0], &x, 0) || !calls_read(self->arrays, args[1], &out, 1) ||
        !fits(&self->x, &x) || (self->takes_out && out.kind && !fits(&self->out, &out))) {
        PyErr_Clear();
        return PyObject_Vectorcall(PyTuple_GET_ITEM(self->functions, OTHERWISE), args, 2, NULL);
    }
    PyObject *found = Py_NewRef(args[1]);
    const uint64_t row = log_begin(self->log, self->place);
    const int served = serves(self, &x, &found, &out);
    log_end(self->log, row, !served);
    if (served) {
        if (!self->returns)
            Py_SETREF(found, Py_NewRef(Py_None));
        return found;
    }
    Py_XDECREF(found);
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace)
        PyException_SetTraceback(error, trace);
    PyObject *all[] = {error, args[0], args[1]};
    PyObject *done = PyObject_Vectorcall(PyTuple_GET_ITEM(self->functions, FAIL), all, 3, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return done;
}

static int stated_init(StatedObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"arrays", "numbers", "plan",     "log",       "place",   "x",      "out",
                            "meet",   "run",     "release",  "make",      "failed",  "otherwise",
                            "takes_out", "returns", NULL};
    PyObject *arrays, *numbers, *log, *x, *out, *functions[FUNCTIONS];
    unsigned long place;
    long long plan;
    int takes_out, returns;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!OLOkOOOOOOOOpp", names, &CallsType, &arrays, &numbers, &plan, &log,
            &place, &x, &out, functions + MEET, functions + RUN, functions + RELEASE,
            functions + MAKE, functions + FAIL, functions + OTHERWISE, &takes_out, &returns))
        return -1;
    if (self->functions) {
        PyErr_SetString(PyExc_TypeError, "it is made once");
        return -1;
    }
    if (log != Py_None && !PyObject_TypeCheck(log, &LogType)) {
        PyErr_SetString(PyExc_TypeError, "a compiled log, or None");
        return -1;
    }
    if (!calls_read((CallsObject *)arrays, x, &self->x, 1) ||
        !calls_read((CallsObject *)arrays, out, &self->out, 1)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "the arrays of the plan cannot be read");
        return -1;
    }
    if (PyObject_GetBuffer(numbers, &self->numbers, PyBUF_WRITABLE) < 0)
        return -1;
    if (self->numbers.len != NUMBERS * sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "three numbers of 64 bits");
        return -1;
    }
    self->functions = PyTuple_New(FUNCTIONS);
    if (!self->functions)
        return -1;
    for (int each = 0; each < FUNCTIONS; each++)
        PyTuple_SET_ITEM(self->functions, each, Py_NewRef(functions[each]));
    self->arrays = (CallsObject *)Py_NewRef(arrays);
    self->log = log == Py_None ? NULL : (LogObject *)Py_NewRef(log);
    self->own_x = Py_NewRef(x), self->own_out = Py_NewRef(out);
    self->plan = plan, self->place = (uint32_t)place;
    self->takes_out = takes_out, self->returns = returns;
    self->vectorcall = stated_call;
    return 0;
}

static int stated_traverse(StatedObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->arrays);
    Py_VISIT(self->functions);
    return 0;
}

static int stated_clear(StatedObject *self)
{
    Py_CLEAR(self->functions);
    return 0;
}

static void stated_dealloc(StatedObject *self)
{
    PyObject_GC_UnTrack(self);
    stated_clear(self);
    if (self->numbers.buf)
        PyBuffer_Release(&self->numbers);
    Py_XDECREF(self->arrays);
    Py_XDECREF(self->log);
    Py_XDECREF(self->own_x);
    Py_XDECREF(self->own_out);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject StatedType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.execution._compiled.Stated",
    .tp_basicsize = sizeof(StatedObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(StatedObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)stated_init,
    .tp_traverse = (traverseproc)stated_traverse,
    .tp_clear = (inquiry)stated_clear,
    .tp_dealloc = (destructor)stated_dealloc,
};
