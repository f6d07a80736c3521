/* Objects of Python as messages, without a pickle where that would restore nothing else: numbers,
   texts, bytes, None, and tuples, lists and dictionaries of these in which nobody else has a list or
   dictionary, so that it stands there once.

   A message is a head and, behind it, the object: a letter that says its type, its value, and of a
   container how many items follow. Other objects are pickled, but for those of types that Python
   describes, whose heads name another kind. */

#include "module.h"

enum { PLAIN = 0, PICKLE = 2, DEEPEST = 16 };

/* As `struct` writes "=BBxxIqqq" in mpicoll/mpi/communicator/messages.py. */
typedef struct {
    uint8_t kind, more; /* `more`: what this message says is in a payload that follows */
    uint16_t unused;
    uint32_t outline;
    int64_t size, alike, need;
} Head;

typedef struct {
    char *at, *end;
} Room;

static PyObject *dumps_name, *loads_name;

/* -- writing ----------------------------------------------------------------------------------- */

static int put(Room *room, char letter, const void *data, size_t size)
{
    if ((size_t)(room->end - room->at) < 1 + size)
        return 0;
    *room->at++ = letter;
    if (size)
        memcpy(room->at, data, size);
    room->at += size;
    return 1;
}

/* A letter, how many `units` follow, and these. */
static int put_counted(Room *room, char letter, Py_ssize_t many, const void *data, size_t unit)
{
    uint32_t count = (uint32_t)many;
    if (many > room->end - room->at || !put(room, letter, &count, sizeof count))
        return 0;
    size_t size = count * unit;
    if ((size_t)(room->end - room->at) < size)
        return 0;
    if (size)
        memcpy(room->at, data, size);
    room->at += size;
    return 1;
}

static int put_integer(Room *room, PyObject *item)
{
    int overflow;
    int64_t value = PyLong_AsLongLongAndOverflow(item, &overflow);
    int8_t small = (int8_t)value;
    int32_t middle = (int32_t)value;
    if (overflow)
        return 0;
    if (small == value)
        return put(room, 'b', &small, sizeof small);
    if (middle == value)
        return put(room, 'i', &middle, sizeof middle);
    return put(room, 'q', &value, sizeof value);
}

static int put_text(Room *room, PyObject *item)
{
#if PY_VERSION_HEX < 0x030c0000
    if (PyUnicode_READY(item) < 0)
        return PyErr_Clear(), 0;
#endif
    int unit = PyUnicode_KIND(item);
    return put_counted(room, (char)('0' + unit), PyUnicode_GET_LENGTH(item),
                       PyUnicode_DATA(item), (size_t)unit);
}

static int put_item(Room *room, PyObject *item, int depth, int alone);

static int put_items(Room *room, char letter, PyObject *items, int depth, int alone)
{
    Py_ssize_t many = PySequence_Fast_GET_SIZE(items);
    if (!put_counted(room, letter, many, NULL, 0))
        return 0;
    for (Py_ssize_t each = 0; each < many; each++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, each);
        if (!put_item(room, item, depth, alone && Py_REFCNT(item) == 1))
            return 0;
    }
    return 1;
}

static int put_pairs(Room *room, PyObject *items, int depth)
{
    PyObject *key, *value;
    Py_ssize_t place = 0;
    if (!put_counted(room, '{', PyDict_GET_SIZE(items), NULL, 0))
        return 0;
    while (PyDict_Next(items, &place, &key, &value))
        if (!put_item(room, key, depth, 0) ||
            !put_item(room, value, depth, Py_REFCNT(value) == 1))
            return 0;
    return 1;
}

/* 0 where an object does not fit, or is none of those that are written here.

   alone: nobody but what is written refers to it. */
static int put_item(Room *room, PyObject *item, int depth, int alone)
{
    PyTypeObject *type = Py_TYPE(item);
    if (type == &PyLong_Type)
        return put_integer(room, item);
    if (type == &PyFloat_Type) {
        double value = PyFloat_AS_DOUBLE(item);
        return put(room, 'd', &value, sizeof value);
    }
    if (type == &PyUnicode_Type)
        return put_text(room, item);
    if (item == Py_None || item == Py_False || item == Py_True)
        return put(room, item == Py_None ? 'N' : item == Py_True ? 'T' : 'F', NULL, 0);
    if (type == &PyBytes_Type)
        return put_counted(room, 'y', PyBytes_GET_SIZE(item), PyBytes_AS_STRING(item), 1);
    if (type == &PyComplex_Type) {
        Py_complex value = PyComplex_AsCComplex(item);
        return put(room, 'D', &value, sizeof value);
    }
    if (!depth)
        return 0;
    if (type == &PyTuple_Type)
        return put_items(room, '(', item, depth - 1, alone);
    if (type == &PyList_Type)
        return alone && put_items(room, '[', item, depth - 1, 1);
    return type == &PyDict_Type && alone && put_pairs(room, item, depth - 1);
}

/* Write the head of a message that ends there; its bytes. */
static int64_t write_head(char *start, const char *end, uint8_t kind)
{
    Head *head = memset(start, 0, sizeof *head);
    head->kind = kind;
    head->size = end - start - (Py_ssize_t)sizeof *head;
    return head->need = end - start;
}

/* The bytes of the message of an object, written there; 0 where it is none. */
static int64_t write_plain(char *start, char *end, PyObject *item)
{
    Room room = {start + sizeof(Head), end};
    return put_item(&room, item, DEEPEST, 1) ? write_head(start, room.at, PLAIN) : 0;
}

/* The same of an object that is pickled, which goes to `left` where it does not fit; -1 where Python
   has raised. */
static int64_t write_pickled(char *start, char *end, PyObject *item, PyObject *serializer,
                             PyObject *left)
{
    Py_INCREF(item); /* what pickles it may take it from where it is */
    PyObject *data = PyObject_CallMethodOneArg(serializer, dumps_name, item);
    Py_DECREF(item);
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

/* -- reading ----------------------------------------------------------------------------------- */

static const char *take(Room *room, size_t size)
{
    if ((size_t)(room->end - room->at) < size) {
        PyErr_SetString(PyExc_ValueError, "a message of an object is cut short");
        return NULL;
    }
    const char *found = room->at;
    room->at += size;
    return found;
}

/* How many units follow, all of which are there; -1 where Python has raised. */
static Py_ssize_t take_count(Room *room, size_t unit)
{
    uint32_t count;
    const char *found = take(room, sizeof count);
    if (!found)
        return -1;
    memcpy(&count, found, sizeof count);
    if (!take(room, count * unit))
        return -1;
    room->at -= count * unit;
    return (Py_ssize_t)count;
}

static PyObject *take_item(Room *room, int depth);

static PyObject *take_row(Room *room, int is_list, int depth)
{
    Py_ssize_t many = take_count(room, 1);
    PyObject *row = many < 0 ? NULL : is_list ? PyList_New(many) : PyTuple_New(many);
    for (Py_ssize_t each = 0; row && each < many; each++) {
        PyObject *item = take_item(room, depth);
        if (!item)
            Py_CLEAR(row);
        else if (is_list)
            PyList_SET_ITEM(row, each, item);
        else
            PyTuple_SET_ITEM(row, each, item);
    }
    return row;
}

static PyObject *take_pairs(Room *room, int depth)
{
    Py_ssize_t many = take_count(room, 2);
    PyObject *found = many < 0 ? NULL : PyDict_New();
    for (Py_ssize_t each = 0; found && each < many; each++) {
        PyObject *key = take_item(room, depth), *value = key ? take_item(room, depth) : NULL;
        if (!value || PyDict_SetItem(found, key, value) < 0)
            Py_CLEAR(found);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return found;
}

static PyObject *take_units(Room *room, char letter)
{
    int unit = letter == 'y' ? 1 : letter - '0';
    Py_ssize_t many = take_count(room, (size_t)unit);
    if (many < 0)
        return NULL;
    const char *data = take(room, (size_t)many * (size_t)unit);
    return letter == 'y' ? PyBytes_FromStringAndSize(data, many)
                         : PyUnicode_FromKindAndData(unit, data, many);
}

/* A number of which the type has been read. */
#define TAKE(type, make) \
    do { \
        type value; \
        const char *data = take(room, sizeof value); \
        return data ? (memcpy(&value, data, sizeof value), make(value)) : NULL; \
    } while (0)

static PyObject *take_item(Room *room, int depth)
{
    const char *letter = take(room, 1);
    switch (letter ? *letter : 0) {
    case 'N': return Py_NewRef(Py_None);
    case 'T': return Py_NewRef(Py_True);
    case 'F': return Py_NewRef(Py_False);
    case 'b': TAKE(int8_t, PyLong_FromLong);
    case 'i': TAKE(int32_t, PyLong_FromLong);
    case 'q': TAKE(int64_t, PyLong_FromLongLong);
    case 'd': TAKE(double, PyFloat_FromDouble);
    case 'D': TAKE(Py_complex, PyComplex_FromCComplex);
    case '1': case '2': case '4': case 'y': return take_units(room, *letter);
    }
    if (letter && depth && (*letter == '(' || *letter == '['))
        return take_row(room, *letter == '[', depth - 1);
    if (letter && depth && *letter == '{')
        return take_pairs(room, depth - 1);
    if (letter)
        PyErr_SetString(PyExc_ValueError, "this is no message of an object");
    return NULL;
}

/* -- for Python -------------------------------------------------------------------------------- */

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

/* Of what is given as (serializer, dumps, loads, types), the functions that an unchanged serializer has,
   and the types that Python describes. */
enum { SERIALIZER, DUMPS, LOADS, TYPES, STOCK };

/* Whether the serializer is unchanged; -1 where Python has raised. */
static int has_stock(PyObject *stock)
{
    if (!PyTuple_Check(stock) || PyTuple_GET_SIZE(stock) != STOCK ||
        !PyFrozenSet_Check(PyTuple_GET_ITEM(stock, TYPES))) {
        PyErr_SetString(PyExc_TypeError, "a serializer, its two functions, and a set of types");
        return -1;
    }
    PyObject *serializer = PyTuple_GET_ITEM(stock, SERIALIZER);
    traverseproc traverse = Py_TYPE(serializer)->tp_traverse;
    Functions functions = {PyTuple_GET_ITEM(stock, DUMPS), PyTuple_GET_ITEM(stock, LOADS), 0};
    return traverse && !traverse(serializer, count_left, &functions) && functions.left == 2;
}

static PyObject *is_stock(PyObject *Py_UNUSED(module), PyObject *stock)
{
    int found = has_stock(stock);
    return found < 0 ? NULL : PyBool_FromLong(found);
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

/* The bytes of the message of any object; 0 where it does not fit, or Python describes it; -1 where
   Python has raised. */
static int64_t write_message(char *start, char *end, PyObject *item, PyObject *stock, PyObject *left)
{
    int unchanged = has_stock(stock);
    int64_t size = unchanged > 0 ? write_plain(start, end, item) : unchanged;
    if (size)
        return size;
    PyObject *types = PyTuple_GET_ITEM(stock, TYPES), *type = (PyObject *)Py_TYPE(item);
    int described = unchanged ? PySet_Contains(types, type) : 0;
    if (described)
        return described < 0 ? -1 : 0;
    return write_pickled(start, end, item, PyTuple_GET_ITEM(stock, SERIALIZER), left);
}

/* write_objects(room, stride, items, stock, left): write the messages of all items, each so many
   bytes behind the one before. Return the bytes of the longest, 0 where one is not written; if it was
   pickled, that is appended to `left`. */
static PyObject *write_objects(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t many)
{
    if (!counts(many, 5))
        return NULL;
    Py_ssize_t stride = PyLong_AsSsize_t(args[1]);
    if (stride < (Py_ssize_t)sizeof(Head) || !PyList_Check(args[4]) ||
        !(PyTuple_Check(args[2]) || PyList_Check(args[2]))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a stride with room for a head, items, and a list");
        return NULL;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(args[2]);
    char *start = part_of(args[0], count * stride);
    if (!start)
        return NULL;
    int64_t longest = 0;
    for (Py_ssize_t each = 0; each < PySequence_Fast_GET_SIZE(args[2]); each++) {
        char *at = start + each * stride;
        PyObject *item = PySequence_Fast_GET_ITEM(args[2], each);
        int64_t size = write_message(at, at + stride, item, args[3], args[4]);
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
    if (head->size < 0 || head->size > end - at)
        return PyErr_Format(PyExc_ValueError, "a message of an object is cut short");
    Room room = {at, at + head->size};
    if (head->kind == PLAIN)
        return take_item(&room, DEEPEST);
    if (!head->size)
        return Py_NewRef(Py_None); /* as mpi4py takes a pickle of nothing */
    PyObject *data = PyBytes_FromStringAndSize(at, (Py_ssize_t)head->size);
    PyObject *serializer = PyTuple_GET_ITEM(stock, SERIALIZER);
    PyObject *found = data ? PyObject_CallMethodOneArg(serializer, loads_name, data) : NULL;
    Py_XDECREF(data);
    return found;
}

/* read_objects(room, stride, count, least, wanted, stock): the objects of so many messages, a list that
   is empty where they are not wanted. None where one is of another kind, its sender sends a payload to
   any rank, or none needs more than `least` bytes. */
static PyObject *read_objects(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t many)
{
    if (!counts(many, 6) || has_stock(args[5]) < 0)
        return NULL;
    Py_ssize_t stride = PyLong_AsSsize_t(args[1]), count = PyLong_AsSsize_t(args[2]);
    Py_ssize_t least = PyLong_AsSsize_t(args[3]);
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
    int wanted = args[4] == Py_True;
    PyObject *all = PyList_New(wanted ? count : 0);
    for (Py_ssize_t each = 0; all && each < count && wanted; each++) {
        char *at = start + each * stride;
        PyObject *item = read_message(at, at + stride, args[5]);
        if (!item)
            Py_CLEAR(all);
        else
            PyList_SET_ITEM(all, each, item);
    }
    return all;
}

/* read_object(data): the object of a message without its head. */
static PyObject *read_object(PyObject *Py_UNUSED(module), PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Room room = {view.buf, (char *)view.buf + view.len};
    PyObject *found = take_item(&room, DEEPEST);
    PyBuffer_Release(&view);
    return found;
}

int objects_import(void)
{
    dumps_name = PyUnicode_InternFromString("dumps");
    loads_name = PyUnicode_InternFromString("loads");
    return dumps_name && loads_name ? 0 : -1;
}

PyMethodDef object_methods[] = {
    {"write_objects", (PyCFunction)(void (*)(void))write_objects, METH_FASTCALL, NULL},
    {"read_objects", (PyCFunction)(void (*)(void))read_objects, METH_FASTCALL, NULL},
    {"read_object", read_object, METH_O, NULL},
    {"is_stock", is_stock, METH_O, NULL},
    {NULL},
};
