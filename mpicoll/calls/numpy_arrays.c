/* Whether this version of NumPy lays out its arrays as numpy_arrays.h has it. */

#define PY_SSIZE_T_CLEAN
#include "numpy_arrays.h"

static int same_fields(const NumpyArray *array, const Py_buffer *view, PyObject *dtype)
{
    int needed = NUMPY_C_CONTIGUOUS | NUMPY_ALIGNED | NUMPY_WRITEABLE;
    if (array->data != view->buf || array->nd != view->ndim || array->descr != dtype ||
        (array->flags & needed) != needed)
        return 0;
    for (int each = 0; each < view->ndim; each++)
        if (array->dimensions[each] != view->shape[each] ||
            array->strides[each] != view->strides[each])
            return 0;
    return strchr("=|", ((NumpyDtype *)dtype)->byte_order) && view->format &&
           strchr(view->format, ((NumpyDtype *)dtype)->letter);
}

int numpy_check(PyObject *array)
{
    Py_buffer view;
    PyObject *dtype = PyObject_GetAttrString(array, "dtype");
    if (!dtype || PyObject_GetBuffer(array, &view, PyBUF_FULL) < 0) {
        Py_XDECREF(dtype);
        return -1;
    }
    int same = same_fields((NumpyArray *)array, &view, dtype);
    PyBuffer_Release(&view);
    Py_DECREF(dtype);
    if (!same)
        PyErr_SetString(PyExc_ValueError, "this version of NumPy lays out its arrays otherwise");
    return same ? 0 : -1;
}
