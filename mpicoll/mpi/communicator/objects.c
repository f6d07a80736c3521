/* Objects of Python as messages: a head and, behind it, the object as items.c writes it, or its pickle.
   What does not fit there, and the data of long arrays, travel in a payload. */

#include "items.h"

typedef struct {
    uint8_t kind, more; /* `more`: what this message says begins its payload */
    uint16_t unused;
    uint32_t size; /* the bytes of what it says, but for its arrays' data in the payload */
    int64_t payload, alike, need;
} Head;

_Static_assert(sizeof(Head) == 32, "a head as MESSAGE_HEAD has it");

static PyObject *dumps_name, *loads_name;

/* -- writing ----------------------------------------------------------------------------------- */

/* Write the head of a message that ends there; its bytes. */
static int64_t write_head(char *start, const char *end, uint8_t kind)
{
    Head *head = memset(start, 0, sizeof *head);
    head->kind = kind;
    head->size = (uint32_t)(end - start - (Py_ssize_t)sizeof *head);
    return head->need = end - start;
}

/* The bytes of the message of an object, written there, but for the arrays that are left; 0 where it is
   none, -1 where Python has raised. */
static int64_t write_plain(char *start, char *end, PyObject *item, PyObject *left)
{
    Writer to;
    Py_ssize_t many = left ? PyList_GET_SIZE(left) : 0;
    if (item_put(&to, start + sizeof(Head), end, item, left))
        return write_head(start, to.at, PLAIN);
    return left ? PyList_SetSlice(left, many, PyList_GET_SIZE(left), NULL) : 0;
}

/* The same of an object that is pickled; its pickle is left where it does not fit. */
static int64_t write_pickled(char *start, char *end, PyObject *item, PyObject *serializer,
                             PyObject *left)
{
    PyObject *data = PyObject_CallMethodOneArg(serializer, dumps_name, item);
    char *at = start + sizeof(Head);
    int64_t size = data && PyBytes_CheckExact(data) ? PyBytes_GET_SIZE(data) : -1;
    if (size >= 0 && size <= end - at) {
        memcpy(at, PyBytes_AS_STRING(data), (size_t)size);
        size = write_head(start, at + size, PICKLE);
    } else if (data) {
        size = PyList_Append(left, data);
    }
    Py_XDECREF(data);
    return size;
}

/* What a serializer refers to: as many of two functions as it still has. */
typedef struct {
    PyObject *dumps, *loads;
    int left;
} Functions;

static int count_left(PyObject *found, void *functions)
{
    Functions *all = functions;
    all->left += found == all->dumps || found == all->loads;
    return 0;
}

/* What is given as (serializer, dumps, loads): the functions that an unchanged serializer has. */
enum { SERIALIZER, DUMPS, LOADS, STOCK };

/* Whether the serializer is unchanged; -1 where Python has raised. */
static int has_stock(PyObject *stock)
{
    if (!PyTuple_Check(stock) || PyTuple_GET_SIZE(stock) != STOCK) {
        PyErr_SetString(PyExc_TypeError, "a serializer, and its two functions");
        return -1;
    }
    PyObject *serializer = PyTuple_GET_ITEM(stock, SERIALIZER);
    traverseproc traverse = Py_TYPE(serializer)->tp_traverse;
    Functions functions = {PyTuple_GET_ITEM(stock, DUMPS), PyTuple_GET_ITEM(stock, LOADS), 0};
    return traverse && !traverse(serializer, count_left, &functions) && functions.left == 2;
}

/* A part of a room's memory, as bytes from `start`; NULL where Python has raised. */
static char *part_of(PyObject *room, Py_ssize_t size)
{
    if (!PyByteArray_CheckExact(room)) {
        PyErr_SetString(PyExc_TypeError, "a room is a bytearray");
        return NULL;
    }
    if (size < 0 || size > PyByteArray_GET_SIZE(room)) {
        PyErr_SetString(PyExc_ValueError, "the messages are longer than the room");
        return NULL;
    }
    return PyByteArray_AS_STRING(room);
}

static int counts(Py_ssize_t many, Py_ssize_t wanted)
{
    if (many != wanted)
        PyErr_Format(PyExc_TypeError, "it takes %zd arguments, not %zd", wanted, many);
    return many == wanted;
}

/* The bytes of the message of any object; 0 where its pickle does not fit, or may not be left; -1 where
   Python has raised. */
static int64_t write_message(char *start, char *end, PyObject *item, PyObject *stock, PyObject *left)
{
    int unchanged = has_stock(stock);
    int64_t size = unchanged > 0 ? write_plain(start, end, item, left) : unchanged;
    if (size || !left)
        return size;
    return write_pickled(start, end, item, PyTuple_GET_ITEM(stock, SERIALIZER), left);
}

/* write_objects(from, stride, items, stock, left): write the messages of a tuple of items, each so many
   bytes behind the one before. Return the bytes of the longest, 0 where one is not written. The list
   `left` gets what else is to be sent, and loses what it had: arrays, and the pickle of what is not
   written. Where it is None, nothing is pickled, and what has long arrays is not written. */
static PyObject *write_objects(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t many)
{
    if (!counts(many, 5))
        return NULL;
    Py_ssize_t stride = PyLong_AsSsize_t(args[1]);
    PyObject *left = args[4] == Py_None ? NULL : args[4];
    if (stride < (Py_ssize_t)sizeof(Head) || (left && !PyList_Check(left)) ||
        !PyTuple_Check(args[2])) { /* Python code that runs meanwhile could change a list */
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError,
                            "a stride with room for a head, a tuple of items, and a list");
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(args[2]);
    char *start = part_of(args[0], count * stride);
    if (!start || (left && PyList_SetSlice(left, 0, PyList_GET_SIZE(left), NULL) < 0))
        return NULL;
    int64_t longest = 0;
    for (Py_ssize_t each = 0; each < count; each++) {
        char *at = start + each * stride;
        PyObject *item = PyTuple_GET_ITEM(args[2], each);
        int64_t size = write_message(at, at + stride, item, args[3], left);
        if (size <= 0)
            return size ? NULL : PyLong_FromLong(0);
        longest = size > longest ? size : longest;
    }
    for (Py_ssize_t each = 0; each < count; each++)
        ((Head *)(start + each * stride))->need = longest;
    return PyLong_FromLongLong(longest);
}

/* The object of a message in a room that ends there. */
static PyObject *read_message(char *start, char *end, PyObject *stock)
{
    const Head *head = (const Head *)start;
    char *at = start + sizeof *head;
    if (head->size > end - at)
        return PyErr_Format(PyExc_ValueError, "a message of an object is cut short");
    Reader from = {.at = at, .end = at + head->size};
    if (head->kind == PLAIN)
        return item_take(&from);
    if (!head->size)
        return Py_NewRef(Py_None); /* as mpi4py takes a pickle of nothing */
    PyObject *data = PyBytes_FromStringAndSize(at, (Py_ssize_t)head->size);
    PyObject *serializer = PyTuple_GET_ITEM(stock, SERIALIZER);
    PyObject *found = data ? PyObject_CallMethodOneArg(serializer, loads_name, data) : NULL;
    Py_XDECREF(data);
    return found;
}

/* read_objects(from, stride, count, least, wanted, stock): the objects of so many messages, a list that
   is empty where they are not wanted. None where one is of another kind, its sender sends a payload to
   any rank, or none needs more than `least` bytes. */
static PyObject *read_objects(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t many)
{
    if (!counts(many, 6) || has_stock(args[5]) < 0)
        return NULL;
    Py_ssize_t stride = PyLong_AsSsize_t(args[1]), count = PyLong_AsSsize_t(args[2]);
    Py_ssize_t least = PyLong_AsSsize_t(args[3]), wanted = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred())
        return NULL;
    char *start = stride < (Py_ssize_t)sizeof(Head) ? NULL : part_of(args[0], count * stride);
    if (!start)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no room for a head");
    int64_t longest = 0;
    for (Py_ssize_t each = 0; each < count; each++) {
        const Head *head = (const Head *)(start + each * stride);
        if ((head->kind != PLAIN && head->kind != PICKLE) || head->alike)
            Py_RETURN_NONE;
        longest = head->need > longest ? head->need : longest;
    }
    if (longest <= least)
        Py_RETURN_NONE;
    PyObject *all = PyList_New(wanted < count ? wanted : count);
    for (Py_ssize_t each = 0; all && each < PyList_GET_SIZE(all); each++) {
        char *at = start + each * stride;
        PyObject *item = read_message(at, at + stride, args[5]);
        if (!item)
            Py_CLEAR(all);
        else
            PyList_SET_ITEM(all, each, item);
    }
    return all;
}

/* read_object(data, arrays): the object of a message without its head, and the data of its arrays that
   have travelled by themselves. */
static PyObject *read_object(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t many)
{
    Py_buffer view;
    Reader from = {NULL};
    if (!counts(many, 2) || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *found = NULL;
    if (PyObject_GetBuffer(args[1], &from.data, PyBUF_SIMPLE) == 0) {
        from.at = view.buf, from.end = from.at + view.len;
        found = item_take(&from);
        PyBuffer_Release(&from.data);
    }
    PyBuffer_Release(&view);
    return found;
}

int objects_import(void)
{
    dumps_name = PyUnicode_InternFromString("dumps");
    loads_name = PyUnicode_InternFromString("loads");
    return dumps_name && loads_name ? items_import() : -1;
}

PyMethodDef object_methods[] = {
    {"write_objects", (PyCFunction)(void (*)(void))write_objects, METH_FASTCALL, NULL},
    {"read_objects", (PyCFunction)(void (*)(void))read_objects, METH_FASTCALL, NULL},
    {"read_object", (PyCFunction)(void (*)(void))read_object, METH_FASTCALL, NULL},
    {NULL},
};
