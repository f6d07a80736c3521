/* Tallies from Python: of calls that no compiled loop has run. */

#include "module.h"
#include "tally.h"

static PyObject *tally_now(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLongLong(ticks());
}

/* count(tally, began): add a call that ends now. */
static PyObject *tally_count(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t many)
{
    int64_t now = ticks();
    Py_buffer view;
    long long began = many == 2 ? PyLong_AsLongLong(args[1]) : 0;
    if (many != 2)
        PyErr_SetString(PyExc_TypeError, "a tally, and when the call began");
    if (PyErr_Occurred() || tally_open(args[0], &view) < 0)
        return NULL;
    int64_t *tally = view.buf;
    tally[TALLY_CALLS]++;
    tally_add(tally, began, now);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

int tally_open(PyObject *tally, Py_buffer *view)
{
    if (PyObject_GetBuffer(tally, view, PyBUF_WRITABLE) < 0)
        return -1;
    if (view->len == TALLY_LENGTH * sizeof(int64_t))
        return 0;
    PyBuffer_Release(view);
    PyErr_Format(PyExc_ValueError, "a tally has %d numbers of 64 bits", TALLY_LENGTH);
    return -1;
}

PyMethodDef tally_methods[] = {
    {"ticks", tally_now, METH_NOARGS, NULL},
    {"count", (PyCFunction)(void (*)(void))tally_count, METH_FASTCALL, NULL},
    {NULL},
};
