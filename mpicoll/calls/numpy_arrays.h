/* What is read of NumPy's arrays and dtypes without NumPy's headers. */

#ifndef MPICOLL_NUMPY_ARRAYS_H
#define MPICOLL_NUMPY_ARRAYS_H

#include <Python.h>

/* Their first fields, the same in all versions of NumPy. They cost a nanosecond where the buffer
   protocol costs a hundred. */
typedef struct {
    PyObject_HEAD
    char *data;
    int nd;
    Py_ssize_t *dimensions, *strides;
    PyObject *base, *descr;
    int flags;
} NumpyArray;

typedef struct {
    PyObject_HEAD
    PyTypeObject *scalars;
    char kind, letter, byte_order;
} NumpyDtype;

enum { NUMPY_C_CONTIGUOUS = 0x1, NUMPY_ALIGNED = 0x100, NUMPY_WRITEABLE = 0x400 };

/* Whether two dtypes of numbers are one: pickle, and so a message of MPI's, restores another object
   than all other arrays have. */
static inline int numpy_same(PyObject *descr, PyObject *known)
{
    return descr == known ||
           (Py_IS_TYPE(descr, Py_TYPE(known)) &&
            ((NumpyDtype *)descr)->byte_order == ((NumpyDtype *)known)->byte_order);
}

/* Whether the fields of a writeable array without gaps are what the buffer protocol says; -1 where
   Python has raised. */
int numpy_check(PyObject *array);

#endif
