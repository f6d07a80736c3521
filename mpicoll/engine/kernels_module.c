/* The kernels as functions of Python, for tests and measurements. */

#include "kernels_module.h"

#include <stdlib.h>
#include <string.h>

#include "kernels.h"

/* The bytes of one element: a name ends in its bits, but for bool. */
static Py_ssize_t itemsize(const char *dtype)
{
    const long bits = strtol(dtype + strcspn(dtype, "0123456789"), NULL, 10);
    return bits ? bits / 8 : 1;
}

static PyObject *undefined(const char *op, const char *dtype)
{
    return PyErr_Format(PyExc_ValueError, "op '%s' is not defined on '%s'", op, dtype);
}

/* Return the number of elements of `out`, or -1 with an error set where an operand has others. */
static Py_ssize_t count_of(const char *dtype, const Py_buffer *out, const Py_buffer *operands,
                           Py_ssize_t many)
{
    for (Py_ssize_t k = 0; k < many; k++)
        if (operands[k].len != out->len) {
            PyErr_Format(PyExc_ValueError, "operand %zd has %zd bytes, out has %zd", k,
                         operands[k].len, out->len);
            return -1;
        }
    if (out->len % itemsize(dtype)) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are no whole elements of '%s'", out->len, dtype);
        return -1;
    }
    return out->len / itemsize(dtype);
}

static PyObject *fold(PyObject *module, PyObject *args)
{
    const char *op, *dtype;
    Py_buffer out, operands[2];
    (void)module;
    if (!PyArg_ParseTuple(args, "ssw*y*y*", &op, &dtype, &out, &operands[0], &operands[1]))
        return NULL;
    PyObject *result = NULL;
    const Fold fold = find_fold(op, dtype);
    const Py_ssize_t count = fold ? count_of(dtype, &out, operands, 2) : -1;
    if (!fold)
        undefined(op, dtype);
    else if (count >= 0) {
        Py_BEGIN_ALLOW_THREADS
        fold(out.buf, operands[0].buf, operands[1].buf, (size_t)count);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&operands[0]);
    PyBuffer_Release(&operands[1]);
    return result;
}

static PyObject *fold_many(PyObject *module, PyObject *args)
{
    enum { MOST = 64 };
    const char *op, *dtype;
    PyObject *given, *result = NULL;
    Py_buffer out, operands[MOST];
    const void *addresses[MOST];
    Py_ssize_t held = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "ssw*O!", &op, &dtype, &out, &PyTuple_Type, &given))
        return NULL;
    const Py_ssize_t many = PyTuple_GET_SIZE(given);
    const FoldMany fold = find_fold_many(op, dtype);
    if (!fold) {
        undefined(op, dtype);
        goto release;
    }
    if (many < 1 || many > MOST) {
        PyErr_Format(PyExc_ValueError, "%zd operands: 1 to %d are folded", many, MOST);
        goto release;
    }
    for (; held < many; held++) {
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(given, held), &operands[held], PyBUF_SIMPLE))
            goto release;
        addresses[held] = operands[held].buf;
    }
    const Py_ssize_t count = count_of(dtype, &out, operands, many);
    if (count < 0)
        goto release;
    Py_BEGIN_ALLOW_THREADS
    fold(out.buf, addresses, (size_t)many, (size_t)count);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
release:
    PyBuffer_Release(&out);
    while (held)
        PyBuffer_Release(&operands[--held]);
    return result;
}

static PyObject *divide(PyObject *module, PyObject *args)
{
    const char *dtype;
    Py_buffer x;
    double divisor;
    (void)module;
    if (!PyArg_ParseTuple(args, "sw*d", &dtype, &x, &divisor))
        return NULL;
    PyObject *result = NULL;
    const Divide divide = find_divide(dtype);
    const Py_ssize_t count = divide ? count_of(dtype, &x, NULL, 0) : -1;
    if (!divide)
        undefined("avg", dtype);
    else if (count >= 0) {
        Py_BEGIN_ALLOW_THREADS
        divide(x.buf, divisor, (size_t)count);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&x);
    return result;
}

static PyObject *copy(PyObject *module, PyObject *args)
{
    Py_buffer target, source;
    int streams = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*|p", &target, &source, &streams))
        return NULL;
    PyObject *result = NULL;
    if (target.len != source.len)
        PyErr_Format(PyExc_ValueError, "the target has %zd bytes, the source %zd", target.len,
                     source.len);
    else {
        Py_BEGIN_ALLOW_THREADS
        copy_bytes(target.buf, source.buf, (size_t)source.len, streams);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&target);
    PyBuffer_Release(&source);
    return result;
}

static PyObject *target(PyObject *module, PyObject *args)
{
    const char *name = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "|s", &name))
        return NULL;
    if (name && !use_kernel_target(name))
        return PyErr_Format(PyExc_ValueError, "'%s' does not run here", name);
    return PyUnicode_FromString(kernel_target());
}

PyMethodDef kernel_methods[] = {
    {"fold", fold, METH_VARARGS, "Write left op right to out."},
    {"fold_many", fold_many, METH_VARARGS, "Fold operands in their order, each read once."},
    {"divide", divide, METH_VARARGS, "Divide in place."},
    {"copy", copy, METH_VARARGS, "Copy between areas that do not overlap."},
    {"target", target, METH_VARARGS, "Return which instructions run; change them by name."},
    {0},
};
