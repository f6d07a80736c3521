/* The type Counted: a call that is counted, so that another thread sees which is under way for how
   long (mpicoll/peers/watch.py). */

#include "postponing.h"

#include <sched.h>

enum { THREADS = 8 }; /* whose calls are watched at once */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function, *references;
    int forks; /* of this process, as it was made */
    unsigned long long begun, under_way[THREADS]; /* 0 for none */
} CountedObject;

static PyObject *counted_call(PyObject *object, PyObject *const *args, size_t flags,
                              PyObject *names)
{
    CountedObject *self = (CountedObject *)object;
    if (self->forks != forks) {
        PyErr_SetString(PyExc_RuntimeError, "this process is a fork of a rank, and none itself");
        return NULL;
    }
    unsigned long long unwatched, *place = self->under_way;
    while (*place)
        if (++place == self->under_way + THREADS) {
            place = &unwatched;
            break;
        }
    *place = ++self->begun;
    PyObject *result = PyObject_Vectorcall(self->function, args, flags, names);
    *place = 0;
    return result;
}

/* Whether a test holds before or between so many yields; -1 for an error. */
static int comes(PyObject *counted, PyObject *test, int yields)
{
    for (int each = 1; each <= 2 * yields; each++) {
        PyObject *result = counted_call(counted, &test, 1, NULL);
        const int holds = result ? PyObject_IsTrue(result) : -1;
        Py_XDECREF(result);
        if (holds)
            return holds;
        if (each % 2)
            continue;
        Py_BEGIN_ALLOW_THREADS;
        sched_yield();
        Py_END_ALLOW_THREADS;
        if (check_signals())
            return -1;
    }
    return 0;
}

static PyObject *counted_comes(PyObject *object, PyObject *args)
{
    PyObject *test;
    int yields;
    if (!PyArg_ParseTuple(args, "Oi", &test, &yields))
        return NULL;
    const int holds = comes(object, test, yields);
    return holds < 0 ? NULL : PyBool_FromLong(holds);
}

static PyObject *counted_oldest(PyObject *object, void *Py_UNUSED(closure))
{
    const CountedObject *self = (CountedObject *)object;
    unsigned long long oldest = 0;
    for (int each = 0; each < THREADS; each++) {
        const unsigned long long number = self->under_way[each];
        if (number && (!oldest || number < oldest))
            oldest = number;
    }
    return PyLong_FromUnsignedLongLong(oldest);
}

static PyObject *counted_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *function;
    if (!PyArg_ParseTuple(args, "O", &function))
        return NULL;
    CountedObject *made = (CountedObject *)type->tp_alloc(type, 0);
    if (made) {
        made->vectorcall = counted_call, made->forks = forks;
        made->function = Py_NewRef(function);
    }
    return (PyObject *)made;
}

static int counted_traverse(CountedObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    return 0;
}

static int counted_clear(CountedObject *self)
{
    Py_CLEAR(self->function);
    return 0;
}

static void counted_dealloc(CountedObject *self)
{
    PyObject_GC_UnTrack(self);
    if (self->references)
        PyObject_ClearWeakRefs((PyObject *)self);
    counted_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef counted_methods[] = {
    {"comes", counted_comes, METH_VARARGS, NULL},
    {NULL},
};

static PyGetSetDef counted_attributes[] = {
    {"oldest", counted_oldest, NULL, NULL, NULL},
    {NULL},
};

PyTypeObject CountedType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.engine._compiled.Counted",
    .tp_basicsize = sizeof(CountedObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_weaklistoffset = offsetof(CountedObject, references),
    .tp_vectorcall_offset = offsetof(CountedObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = counted_new,
    .tp_traverse = (traverseproc)counted_traverse,
    .tp_clear = (inquiry)counted_clear,
    .tp_dealloc = (destructor)counted_dealloc,
    .tp_methods = counted_methods,
    .tp_getset = counted_attributes,
};
