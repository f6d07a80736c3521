/* A fold as a function of Python, and the choice of the kernels, for tests and measurements. */

#include "module.h"

#include <stdlib.h>
#include <string.h>

/* The bytes of one element: a name ends in its bits, but for bool. */
static Py_ssize_t itemsize(const char *dtype)
{
    const long bits = strtol(dtype + strcspn(dtype, "0123456789"), NULL, 10);
    return bits ? bits / 8 : 1;
}

static PyObject *fold(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *op, *dtype;
    Py_buffer out, left, right;
    if (!PyArg_ParseTuple(args, "ssw*y*y*", &op, &dtype, &out, &left, &right))
        return NULL;
    const Fold fold = find_fold_row(op, dtype)->fold;
    PyObject *result = NULL;
    if (!fold) {
        PyErr_Format(PyExc_ValueError, "op '%s' is not defined on '%s'", op, dtype);
    } else if (left.len != out.len || right.len != out.len || out.len % itemsize(dtype)) {
        PyErr_Format(PyExc_ValueError, "operands have %zd and %zd bytes, and out %zd, not equal numbers of '%s'",
                     left.len, right.len, out.len, dtype);
    } else {
        Py_BEGIN_ALLOW_THREADS
        fold(out.buf, left.buf, right.buf, (size_t)(out.len / itemsize(dtype)));
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&out), PyBuffer_Release(&left), PyBuffer_Release(&right);
    return result;
}

static PyObject *target(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *name = NULL;
    if (!PyArg_ParseTuple(args, "|s", &name))
        return NULL;
    if (name && !use_kernel_target(name))
        return PyErr_Format(PyExc_ValueError, "'%s' does not run here", name);
    return PyUnicode_FromString(kernel_target());
}

PyMethodDef kernel_methods[] = {
    {"fold", fold, METH_VARARGS, "Write left op right to out."},
    {"target", target, METH_VARARGS, "Return which instructions run; change them by name."},
    {0},
};
