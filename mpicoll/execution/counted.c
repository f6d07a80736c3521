/* The type Counted: a call whose beginnings and ends are counted, so that another thread sees
   whether one is under way (mpicoll/peers/watch.py). */

#include "module.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function, *references;
    unsigned long long begun, ended;
} CountedObject;

static PyObject *counted_call(PyObject *object, PyObject *const *args, size_t flags,
                              PyObject *names)
{
    CountedObject *self = (CountedObject *)object;
    self->begun++;
    PyObject *result = PyObject_Vectorcall(self->function, args, flags, names);
    self->ended++;
    return result;
}

static PyObject *counted_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *function;
    if (!PyArg_ParseTuple(args, "O", &function))
        return NULL;
    CountedObject *made = (CountedObject *)type->tp_alloc(type, 0);
    if (made) {
        made->vectorcall = counted_call;
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

static PyMemberDef counted_members[] = {
    {"begun", T_ULONGLONG, offsetof(CountedObject, begun), READONLY, NULL},
    {"ended", T_ULONGLONG, offsetof(CountedObject, ended), READONLY, NULL},
    {NULL},
};

PyTypeObject CountedType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.execution._compiled.Counted",
    .tp_basicsize = sizeof(CountedObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_weaklistoffset = offsetof(CountedObject, references),
    .tp_vectorcall_offset = offsetof(CountedObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = counted_new,
    .tp_traverse = (traverseproc)counted_traverse,
    .tp_clear = (inquiry)counted_clear,
    .tp_dealloc = (destructor)counted_dealloc,
    .tp_members = counted_members,
};
