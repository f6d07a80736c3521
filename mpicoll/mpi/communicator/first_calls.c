/* The type FirstCalls: a method of new communicators, whose first calls MPI runs alone.

   A new communicator has a class with these methods. Each call without an error is counted. After `most` calls
   the communicator gets the class `following`. */

#include "module.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *method;    /* MPI's own */
    Py_ssize_t count_at; /* the offset of the slot `_calls`; an empty slot counts as 0 */
    long most;
    PyTypeObject *following; /* the class after so many calls */
} FirstCallsObject;

static PyObject *call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    FirstCallsObject *const self = (FirstCallsObject *)object;
    PyObject *const result = PyObject_Vectorcall(self->method, args, flags, names);
    if (!result || !PyVectorcall_NARGS(flags) || !PyObject_TypeCheck(args[0], self->following))
        return result;
    PyObject **const place = (PyObject **)(void *)((char *)args[0] + self->count_at);
    PyObject *const count = PyLong_FromLong((*place ? PyLong_AsLong(*place) : 0) + 1);
    Py_XSETREF(*place, count);
    const int has_enough = count && PyLong_AsLong(count) >= self->most && Py_TYPE(args[0])->tp_base == self->following;
    if (!count || (has_enough && PyObject_SetAttrString(args[0], "__class__", (PyObject *)self->following) < 0)) {
        Py_DECREF(result);
        return NULL;
    }
    return result;
}

static PyObject *bind(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object ? PyMethod_New(self, object) : Py_NewRef(self);
}

/* Its name and its text are those of the method. */
static PyObject *get_attribute(PyObject *self, PyObject *name)
{
    return PyObject_GetAttr(((FirstCallsObject *)self)->method, name);
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *method, *member;
    PyTypeObject *following;
    long most;
    if (!PyArg_ParseTuple(args, "OO!lO!", &method, &PyMemberDescr_Type, &member, &most, &PyType_Type, &following))
        return NULL;
    FirstCallsObject *const self = (FirstCallsObject *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->vectorcall = call, self->method = Py_NewRef(method), self->most = most;
    self->count_at = ((PyMemberDescrObject *)member)->d_member->offset;
    self->following = (PyTypeObject *)Py_NewRef(following);
    return (PyObject *)self;
}

static void dealloc(FirstCallsObject *self)
{
    Py_XDECREF(self->method);
    Py_XDECREF(self->following);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject FirstCallsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.engine._compiled.FirstCalls",
    .tp_basicsize = sizeof(FirstCallsObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(FirstCallsObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = bind,
    .tp_getattro = get_attribute,
    .tp_new = make,
    .tp_dealloc = (destructor)dealloc,
};
