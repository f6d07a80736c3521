/* Calls of programs in whose middle no handler of a signal runs: see postponing.h.

   While handlers are postponed, a function that notes the signal stands in their place. */

#include "postponing.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How often a handler may raise while another function takes its place; the signals whose handlers wait: those with a
   name, as programs set no other ones, and to ask for each takes 30 ns. */
enum { TRIES = 64, SIGNALS = 32 };

/* The calls of the main thread. */
static struct {
    int64_t open;
    int is_postponing, forks;
    PyObject *handlers[SIGNALS]; /* that are postponed */
    char is_noted[SIGNALS];
    PyObject *error; /* of a handler that ran before it could be postponed */
} calls;

static PyObject *get_handler, *set_handler, *note_function;

static int is_main_thread(void)
{
    static __thread int known_forks = -1, is_main;
    if (known_forks != forks) {
        known_forks = forks;
        is_main = syscall(SYS_gettid) == getpid();
    }
    return is_main;
}

/* Keep the error that Python has raised, if it is the first of the call. */
static void keep_error(void)
{
    PyObject *const error = take_raised();
    if (calls.error)
        Py_DECREF(error);
    else
        calls.error = error;
}

/* Run a handler as Python would: 0; -1 where it has raised. */
static int run_handler(int number, PyObject *handler)
{
    PyObject *const frame = (PyObject *)PyThreadState_GetFrame(PyThreadState_Get());
    PyObject *const done = PyObject_CallFunction(handler, "iO", number, frame ? frame : Py_None);
    Py_XDECREF(frame);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static PyObject *note(PyObject *Py_UNUSED(module), PyObject *args)
{
    int number;
    PyObject *frame;
    if (!PyArg_ParseTuple(args, "iO", &number, &frame))
        return NULL;
    if (number > 0 && number < SIGNALS && calls.forks == forks)
        calls.is_noted[number] = 1;
    else if (number > 0 && number < SIGNALS && calls.handlers[number])
        return PyObject_CallFunction(calls.handlers[number], "iO", number, frame); /* in a child */
    Py_RETURN_NONE;
}

static PyMethodDef note_method = {"note_signal", note, METH_VARARGS,
                                  "Note a signal whose handler runs after the call."};

static PyObject *handler_of(int number)
{
    PyObject *const argument = PyLong_FromLong(number);
    PyObject *const handler = argument ? PyObject_CallOneArg(get_handler, argument) : NULL;
    Py_XDECREF(argument);
    if (!handler)
        PyErr_Clear();
    return handler;
}

/* Set a handler; whether it is set. Python's own function first runs the handlers of the signals that
   have come. The system's settings stay, as another handler in C may precede Python's. */
static int replace(int number, PyObject *handler)
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) < 0)
        return 0;
    for (int tries = 0; tries < TRIES; tries++) {
        PyObject *const before = PyObject_CallFunction(set_handler, "iO", number, handler);
        if (before) {
            Py_DECREF(before);
            sigaction(number, &action, NULL);
            return 1;
        }
        keep_error();
    }
    return 0;
}

void call_open(void)
{
    if (is_main_thread())
        calls.open++;
}

void keep_raised(void)
{
    if (is_main_thread() && calls.open)
        while (PyErr_CheckSignals() < 0)
            keep_error();
}

int check_signals(void)
{
    keep_raised();
    return PyErr_CheckSignals();
}

void postpone(void)
{
    if (!is_main_thread() || !calls.open || calls.is_postponing)
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    calls.is_postponing = 1, calls.forks = forks;
    keep_raised();
    for (int number = 1; number < SIGNALS; number++) {
        PyObject *const handler = handler_of(number);
        if (handler && PyCallable_Check(handler) && replace(number, note_function))
            calls.handlers[number] = Py_NewRef(handler);
        Py_XDECREF(handler);
    }
    PyErr_Restore(type, value, trace);
}

/* Give the handlers their places again. Code that ran in the call may have set others. */
static void restore_handlers(void)
{
    for (int number = 1; number < SIGNALS; number++) {
        PyObject *const handler = calls.handlers[number];
        if (!handler)
            continue;
        PyObject *const current = handler_of(number);
        if (current == note_function)
            replace(number, handler);
        Py_XDECREF(current);
        calls.handlers[number] = NULL;
        Py_DECREF(handler);
    }
    calls.is_postponing = 0;
}

/* Run the handlers of the signals that were noted; after an error the others are left to Python. */
static void run_noted(const char *is_noted)
{
    for (int number = 1; number < SIGNALS; number++) {
        if (!is_noted[number])
            continue;
        PyObject *const handler = calls.error ? NULL : handler_of(number);
        if (calls.error)
            PyErr_SetInterruptEx(number);
        else if (handler && PyCallable_Check(handler) && run_handler(number, handler) < 0)
            keep_error();
        Py_XDECREF(handler);
    }
}

/* 0; -1 where a handler has raised. */
static int call_close(void)
{
    if (!is_main_thread() || !calls.open)
        return 0;
    if (calls.open > 1 || (!calls.is_postponing && !calls.error)) {
        calls.open--;
        return 0;
    }
    PyObject *const raised = PyErr_Occurred() ? take_raised() : NULL;
    char is_noted[SIGNALS];
    restore_handlers();
    memcpy(is_noted, calls.is_noted, sizeof is_noted);
    memset(calls.is_noted, 0, sizeof calls.is_noted);
    calls.open = 0; /* a handler may make further calls */
    run_noted(is_noted);
    PyObject *const error = calls.error;
    calls.error = NULL;
    if (!error) {
        if (raised)
            raise_again(raised);
        return 0;
    }
    if (raised)
        PyException_SetContext(error, raised);
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return -1;
}

PyObject *call_end(PyObject *result)
{
    if (call_close() < 0)
        Py_CLEAR(result);
    return result;
}

/* -- functions of Python ----------------------------------------------------------------------- */

static PyObject *uninterrupted(
    PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count < 1)
        return PyErr_Format(PyExc_TypeError, "a function, and its arguments");
    call_open();
    return call_end(PyObject_Vectorcall(args[0], args + 1, (size_t)count - 1, names));
}

static PyObject *postpone_handlers(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    postpone();
    Py_RETURN_NONE;
}

PyMethodDef postponing_methods[] = {
    {"uninterrupted", (PyCFunction)(void (*)(void))uninterrupted, METH_FASTCALL | METH_KEYWORDS,
     "Return what a function returns; handlers of signals run after its first wait at its end."},
    {"postpone_handlers", postpone_handlers, METH_NOARGS,
     "Have handlers of signals wait from here on for the end of the call that is open."},
    {NULL},
};

int postponing_import(void)
{
    PyObject *const module = PyImport_ImportModule("_signal");
    if (!module)
        return -1;
    get_handler = PyObject_GetAttrString(module, "getsignal");
    set_handler = PyObject_GetAttrString(module, "signal");
    note_function = PyCFunction_New(&note_method, NULL);
    Py_DECREF(module);
    return get_handler && set_handler && note_function ? 0 : -1;
}
