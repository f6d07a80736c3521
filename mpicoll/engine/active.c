/* The calls of a group that are under way: see active.h. */

#include "active.h"

static int refuse(void)
{
    PyErr_SetString(PyExc_RuntimeError,
                    "a call of this group is under way: code that runs while it waits (a handler of "
                    "a signal, a finalizer, a callback, another thread) cannot make another one here");
    return -1;
}

/* Whether all calls outside of this one are complete. */
static int is_outermost(const ActiveCall *call)
{
    while (call->outer > PYTHON_ROUND) {
        call = (const ActiveCall *)(intptr_t)call->outer;
        if (call->state != COMPLETE)
            return 0;
    }
    return call->outer == NO_CALL;
}

int active_is_elsewhere(int64_t under_way)
{
    return under_way > PYTHON_ROUND &&
           ((ActiveCall *)(intptr_t)under_way)->thread != PyThread_get_thread_ident();
}

int active_complete(const int64_t *under_way)
{
    if (*under_way == NO_CALL)
        return 0;
    ActiveCall *const call = (ActiveCall *)(intptr_t)*under_way;
    if (*under_way <= PYTHON_ROUND || active_is_elsewhere(*under_way) || !is_outermost(call) ||
        call->is_closed || (call->program && call->program->calling))
        return refuse();
    if (call->state == RUNNING) {
        call->state = call->advance(call);
        if (call->state == FAILED_CALL) {
            PyObject *const error = take_raised();
            Py_XSETREF(call->error, Py_NewRef(error)); /* for the function that runs this call */
            raise_again(error);
        }
    } else if (call->state == FAILED_CALL) {
        raise_again(Py_NewRef(call->error));
    }
    if (call->state == UNSERVED)
        return refuse();
    return call->state == COMPLETE ? 0 : -1;
}

enum call_state active_run(ActiveCall *call)
{
    call->thread = PyThread_get_thread_ident();
    call->state = RUNNING, call->error = NULL;
    if (call->under_way) {
        call->outer = *call->under_way;
        *call->under_way = (int64_t)(intptr_t)call;
    }
    const enum call_state state = call->advance(call);
    if (call->state == RUNNING)
        call->state = state;
    if (call->under_way)
        *call->under_way = call->outer;
    if (call->error && !PyErr_Occurred())
        raise_again(Py_NewRef(call->error));
    Py_XDECREF(call->error);
    return call->state;
}

int active_open(PyObject *numbers, Py_buffer *view)
{
    if (numbers == Py_None)
        return 0;
    if (PyObject_GetBuffer(numbers, view, PyBUF_WRITABLE) < 0)
        return -1;
    if (view->len == GROUP_NUMBERS * sizeof(int64_t))
        return 0;
    PyErr_Format(PyExc_ValueError, "a group has %d numbers of 64 bits", GROUP_NUMBERS);
    return -1;
}
