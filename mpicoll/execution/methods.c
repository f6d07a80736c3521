/* Methods that stand before others of their object, and take no frame of Python.

   issued: records that a call begins, whose end is that of a request.
   kept:   calls the function that the object keeps, which it makes for the first call. */

#include "module.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *attribute; /* of the object, see the functions that make methods */
    PyObject *given;     /* what they are given besides */
    PyObject *method;    /* whose name and text this one has */
    const void *table;   /* in which issued calls have `place`; NULL for in none yet */
    uint32_t place;
} MethodObject;

/* -- issued ------------------------------------------------------------------------------------ */

static uint64_t issue(MethodObject *self, LogObject *log)
{
    if (log_table(log) != self->table) {
        PyObject *found = PyObject_CallNoArgs(self->given);
        unsigned long place = found ? PyLong_AsUnsignedLong(found) : 0;
        Py_XDECREF(found);
        if (PyErr_Occurred()) {
            PyErr_WriteUnraisable(self->given);
            return 0;
        }
        self->table = log_table(log), self->place = (uint32_t)place;
    }
    return log_issue(log, self->place);
}

static PyObject *issued_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    MethodObject *self = (MethodObject *)object;
    uint64_t number = 0;
    PyObject *log = PyVectorcall_NARGS(flags) ? PyObject_GetAttr(args[0], self->attribute) : NULL;
    if (!log)
        PyErr_Clear();
    else if (Py_IS_TYPE(log, &LogType))
        number = issue(self, (LogObject *)log);
    PyObject *result = PyObject_Vectorcall(self->method, args, flags, names);
    if (!result)
        log_withdraw((LogObject *)log, number);
    Py_XDECREF(log);
    return result;
}

/* -- kept -------------------------------------------------------------------------------------- */

/* What an object itself has in an attribute, NULL where it has nothing. Borrowed: it keeps that as
   long as it lives. */
static PyObject *kept_by(PyObject *object, PyObject *attribute)
{
    PyObject *all = PyObject_GenericGetDict(object, NULL);
    PyObject *found = all ? PyDict_GetItemWithError(all, attribute) : NULL;
    Py_XDECREF(all);
    return found;
}

static PyObject *kept_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    MethodObject *self = (MethodObject *)object;
    Py_ssize_t many = PyVectorcall_NARGS(flags);
    PyObject *function = many ? Py_XNewRef(kept_by(args[0], self->attribute)) : NULL;
    if (!function && !PyErr_Occurred())
        function = PyObject_Vectorcall(self->given, args, (size_t)(many > 0), NULL);
    if (!function)
        return NULL;
    PyObject *result = PyObject_Vectorcall(function, args, flags, names);
    Py_DECREF(function);
    return result;
}

/* -- the type ---------------------------------------------------------------------------------- */

static PyObject *method_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyObject *method_attribute(PyObject *self, PyObject *name)
{
    return PyObject_GetAttr(((MethodObject *)self)->method, name);
}

static int method_traverse(MethodObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->given);
    Py_VISIT(self->method);
    return 0;
}

static int method_clear(MethodObject *self)
{
    Py_CLEAR(self->given);
    Py_CLEAR(self->method);
    return 0;
}

static void method_dealloc(MethodObject *self)
{
    PyObject_GC_UnTrack(self);
    method_clear(self);
    Py_XDECREF(self->attribute);
    PyObject_GC_Del(self);
}

static PyTypeObject MethodType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.execution._compiled.Method",
    .tp_basicsize = sizeof(MethodObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(MethodObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = method_get,
    .tp_getattro = method_attribute,
    .tp_traverse = (traverseproc)method_traverse,
    .tp_clear = (inquiry)method_clear,
    .tp_dealloc = (destructor)method_dealloc,
};

static PyObject *made(vectorcallfunc call, PyObject *attribute, PyObject *given, PyObject *method)
{
    if (PyType_Ready(&MethodType) < 0)
        return NULL;
    MethodObject *self = PyObject_GC_New(MethodObject, &MethodType);
    if (!self)
        return NULL;
    self->vectorcall = call;
    self->attribute = Py_NewRef(attribute), self->given = Py_NewRef(given);
    self->method = Py_NewRef(method);
    self->table = NULL, self->place = 0;
    PyUnicode_InternInPlace(&self->attribute);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* issued(attribute, call, method): the method, whose beginnings are recorded where its object has a
   Log in that attribute; call() returns the place of such calls in the table. */
static PyObject *issued(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *attribute, *call, *method;
    if (!PyArg_ParseTuple(args, "UOO", &attribute, &call, &method))
        return NULL;
    return made(issued_call, attribute, call, method);
}

/* kept(attribute, make, method): the function that its object has in that attribute, named as the
   method; make(object) makes it, and puts it there. */
static PyObject *kept(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *attribute, *make, *method;
    if (!PyArg_ParseTuple(args, "UOO", &attribute, &make, &method))
        return NULL;
    return made(kept_call, attribute, make, method);
}

PyMethodDef method_methods[] = {
    {"issued", issued, METH_VARARGS, NULL},
    {"kept", kept, METH_VARARGS, NULL},
    {NULL},
};
