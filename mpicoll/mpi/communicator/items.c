/* Objects of Python as bytes, without a pickle where that would restore nothing else: numbers, texts,
   bytes, None, arrays and scalars of NumPy, and tuples, lists and dictionaries of these. Nobody else
   has such a list or dictionary, and no array or tuple stands there twice, as pickle would restore it
   once.

   An object is a letter that says its type, its value, and of a container how many items follow. The
   data of short arrays stand there; those of others travel by themselves, as they lie in memory. */

#include "items.h"
#include "numpy_arrays.h"

enum { DEEPEST = 16, MOST_KINDS = 32, MOST_INSIDE = 4096 };

static PyObject *metadata_name, *transpose_name, *setflags_name, *getitem_name;

/* What is known of NumPy, see know_arrays. */
static PyTypeObject *array_type;
static PyObject *empty_array;
static struct {
    PyObject *written, *restored;
    Py_ssize_t itemsize;
} kinds[MOST_KINDS];
static int known_kinds;

/* -- writing ----------------------------------------------------------------------------------- */

static int append(Writer *to, const void *data, size_t size)
{
    if ((size_t)(to->end - to->at) < size)
        return 0;
    if (size)
        memcpy(to->at, data, size);
    to->at += size;
    return 1;
}

static int put(Writer *to, char letter, const void *data, size_t size)
{
    return append(to, &letter, 1) && append(to, data, size);
}

/* A letter, how many `units` follow, and these. */
static int put_counted(Writer *to, char letter, Py_ssize_t many, const void *data, size_t unit)
{
    uint32_t count = (uint32_t)many;
    return many <= to->end - to->at && put(to, letter, &count, sizeof count) &&
           append(to, data, count * unit);
}

static int put_integer(Writer *to, PyObject *item)
{
    int overflow;
    int64_t value = PyLong_AsLongLongAndOverflow(item, &overflow);
    int8_t small = (int8_t)value;
    int32_t middle = (int32_t)value;
    if (overflow)
        return 0;
    if (small == value)
        return put(to, 'b', &small, sizeof small);
    if (middle == value)
        return put(to, 'i', &middle, sizeof middle);
    return put(to, 'q', &value, sizeof value);
}

static int put_text(Writer *to, PyObject *item)
{
#if PY_VERSION_HEX < 0x030c0000
    if (PyUnicode_READY(item) < 0)
        return PyErr_Clear(), 0;
#endif
    int unit = PyUnicode_KIND(item);
    return put_counted(to, (char)('0' + unit), PyUnicode_GET_LENGTH(item),
                       PyUnicode_DATA(item), (size_t)unit);
}

/* -- arrays ------------------------------------------------------------------------------------ */

enum { SCALAR = 1, FIXED = 2, TURNED = 4 }; /* a scalar; not writeable; its axes lie in another order */

/* The number of a dtype, -1 where it is none of those that are known. */
static int kind_of(PyObject *dtype)
{
    for (int kind = 0; kind < known_kinds; kind++)
        if (kinds[kind].written == dtype)
            return kind;
    int kind = 0;
    while (kind < known_kinds && !numpy_same(dtype, kinds[kind].written))
        kind++;
    if (kind == known_kinds)
        return -1;
    PyObject *beside = PyObject_GetAttr(dtype, metadata_name); /* pickle keeps it */
    PyErr_Clear();
    Py_XDECREF(beside);
    return beside == Py_None ? kind : -1;
}

/* Whether an array or tuple has not been written yet: pickle restores one that stands twice once. */
static int is_first(Writer *to, PyObject *item)
{
    for (int index = 0; index < to->many; index++)
        if (to->once[index] == item)
            return 0;
    if (to->many == MOST_ONCE)
        return 0;
    to->once[to->many++] = item;
    return 1;
}

/* Order the axes as they lie in memory; whether the array has no gaps. */
static int order_axes(const NumpyArray *array, Py_ssize_t itemsize, uint8_t *axes)
{
    for (int each = 0; each < array->nd; each++) {
        int place = each;
        for (; place && array->strides[axes[place - 1]] < array->strides[each]; place--)
            axes[place] = axes[place - 1];
        axes[place] = (uint8_t)each;
    }
    for (int each = array->nd - 1; each >= 0; each--) {
        Py_ssize_t length = array->dimensions[axes[each]];
        if (length != 1 && array->strides[axes[each]] != itemsize)
            return 0;
        itemsize *= length;
    }
    return 1;
}

/* Copy the elements of all axes from `axis` on; where they end. */
static char *copy_axes(char *to, const char *from, const NumpyArray *array, int axis, size_t itemsize)
{
    if (axis == array->nd)
        return (char *)memcpy(to, from, itemsize) + itemsize;
    for (Py_ssize_t each = 0; each < array->dimensions[axis]; each++)
        to = copy_axes(to, from + each * array->strides[axis], array, axis + 1, itemsize);
    return to;
}

static PyObject *axes_of(const uint8_t *axes, int many)
{
    PyObject *all = PyTuple_New(many);
    for (int each = 0; all && each < many; each++)
        PyTuple_SET_ITEM(all, each, PyLong_FromLong(axes[each]));
    return all;
}

/* Leave an array, with its axes in the order given, to be sent by itself. */
static int leave(PyObject *left, PyObject *array, const uint8_t *axes)
{
    PyObject *order = axes ? axes_of(axes, ((NumpyArray *)array)->nd) : NULL;
    PyObject *lying = !axes ? Py_NewRef(array)
                      : order ? PyObject_CallMethodOneArg(array, transpose_name, order) : NULL;
    int done = lying && PyList_Append(left, lying) == 0;
    PyErr_Clear();
    Py_XDECREF(order);
    Py_XDECREF(lying);
    return done;
}

static int put_array(Writer *to, PyObject *item)
{
    const NumpyArray *array = (NumpyArray *)item;
    int kind = kind_of(array->descr), many = array->nd;
    if (kind < 0 || many > NUMPY_DIMENSIONS || !is_first(to, item))
        return 0;
    uint8_t axes[NUMPY_DIMENSIONS], places[NUMPY_DIMENSIONS];
    int64_t shape[NUMPY_DIMENSIONS];
    Py_ssize_t itemsize = kinds[kind].itemsize, size = itemsize;
    int is_plain = array->flags & NUMPY_C_CONTIGUOUS;
    int is_turned = !is_plain && order_axes(array, itemsize, axes);
    int is_fixed = !(array->flags & NUMPY_WRITEABLE) && (is_plain || is_turned);
    for (int each = 0; each < many; each++) {
        int axis = is_turned ? axes[each] : each;
        size *= shape[each] = array->dimensions[axis];
        places[axis] = (uint8_t)each;
    }
    uint8_t form[] = {(uint8_t)kind, (is_fixed ? FIXED : 0) | (is_turned ? TURNED : 0), (uint8_t)many};
    int is_inside = size <= to->inside;
    if (!put(to, is_inside ? 'a' : 'A', form, sizeof form) ||
        !append(to, shape, many * sizeof *shape) || !append(to, places, is_turned ? many : 0))
        return 0;
    if (!is_inside)
        return to->left && leave(to->left, item, is_turned ? axes : NULL);
    to->inside -= size;
    if (is_plain || is_turned)
        return append(to, array->data, (size_t)size);
    if (to->end - to->at < size)
        return 0;
    to->at = copy_axes(to->at, array->data, array, 0, (size_t)itemsize);
    return 1;
}

static int put_scalar(Writer *to, PyObject *item)
{
    int kind = 0;
    while (kind < known_kinds && ((NumpyDtype *)kinds[kind].written)->scalars != Py_TYPE(item))
        kind++;
    if (kind == known_kinds)
        return 0;
    Py_buffer view;
    if (PyObject_GetBuffer(item, &view, PyBUF_SIMPLE) < 0)
        return PyErr_Clear(), 0;
    uint8_t form[] = {(uint8_t)kind, SCALAR, 0};
    int done = view.len == kinds[kind].itemsize && put(to, 'a', form, sizeof form) &&
               append(to, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return done;
}

/* -- containers -------------------------------------------------------------------------------- */

static int put_item(Writer *to, PyObject *item, int depth, int alone);

/* A collection of garbage may run Python code while an item is written, and so change its container.
   Then the announced length is wrong, and the object is not written. */

static int put_items(Writer *to, char letter, PyObject *items, int depth, int alone)
{
    const Py_ssize_t length = PySequence_Fast_GET_SIZE(items);
    int done = put_counted(to, letter, length, NULL, 0);
    for (Py_ssize_t index = 0; done && index < length; index++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, index);
        const int is_alone = alone && Py_REFCNT(item) == 1;
        Py_INCREF(item);
        done = put_item(to, item, depth, is_alone) && PySequence_Fast_GET_SIZE(items) == length;
        Py_DECREF(item);
    }
    return done && PySequence_Fast_GET_SIZE(items) == length;
}

static int put_pair(Writer *to, PyObject *key, PyObject *value, int depth)
{
    const int is_alone = Py_REFCNT(value) == 1;
    Py_INCREF(key);
    Py_INCREF(value);
    const int done = put_item(to, key, depth, 0) && put_item(to, value, depth, is_alone);
    Py_DECREF(key);
    Py_DECREF(value);
    return done;
}

static int put_pairs(Writer *to, PyObject *items, int depth)
{
    PyObject *key, *value;
    const Py_ssize_t length = PyDict_GET_SIZE(items);
    Py_ssize_t place = 0, pairs = 0;
    int done = put_counted(to, '{', length, NULL, 0);
    while (done && pairs < length && PyDict_Next(items, &place, &key, &value)) {
        done = put_pair(to, key, value, depth) && PyDict_GET_SIZE(items) == length;
        pairs++;
    }
    return done && pairs == length && PyDict_GET_SIZE(items) == length;
}

/* 0 where an object does not fit, or is none of those that are written here.

   alone: nobody but what is written refers to it. */
static int put_item(Writer *to, PyObject *item, int depth, int alone)
{
    PyTypeObject *type = Py_TYPE(item);
    if (type == &PyLong_Type)
        return put_integer(to, item);
    if (type == &PyFloat_Type) {
        double value = PyFloat_AS_DOUBLE(item);
        return put(to, 'd', &value, sizeof value);
    }
    if (type == &PyUnicode_Type)
        return put_text(to, item);
    if (item == Py_None || item == Py_False || item == Py_True)
        return put(to, item == Py_None ? 'N' : item == Py_True ? 'T' : 'F', NULL, 0);
    if (type == &PyBytes_Type)
        return put_counted(to, 'y', PyBytes_GET_SIZE(item), PyBytes_AS_STRING(item), 1);
    if (type == &PyComplex_Type) {
        Py_complex value = PyComplex_AsCComplex(item);
        return put(to, 'D', &value, sizeof value);
    }
    if (type == array_type)
        return put_array(to, item);
    if (type == &PyTuple_Type)
        return depth && (alone || !PyTuple_GET_SIZE(item) || is_first(to, item)) &&
               put_items(to, '(', item, depth - 1, alone);
    if (type == &PyList_Type)
        return depth && alone && put_items(to, '[', item, depth - 1, 1);
    if (type == &PyDict_Type)
        return depth && alone && put_pairs(to, item, depth - 1);
    return put_scalar(to, item);
}

int item_put(Writer *to, char *start, char *end, PyObject *item, PyObject *left)
{
    to->at = start, to->end = end, to->left = left, to->inside = MOST_INSIDE, to->many = 0;
    return put_item(to, item, DEEPEST, 1);
}

/* -- reading ----------------------------------------------------------------------------------- */

static PyObject *cut_short(void)
{
    return PyErr_Format(PyExc_ValueError, "a message of an object is cut short");
}

static PyObject *no_message(void)
{
    return PyErr_Format(PyExc_ValueError, "this is no message of an object");
}

static const char *take(Reader *from, size_t size)
{
    if ((size_t)(from->end - from->at) < size)
        return cut_short(), NULL;
    const char *found = from->at;
    from->at += size;
    return found;
}

/* Whether so many bytes were there. */
static int take_to(void *memory, Reader *from, size_t size)
{
    const char *found = take(from, size);
    return found && (memcpy(memory, found, size), 1);
}

/* How many units follow, all of which are there; -1 where Python has raised. */
static Py_ssize_t take_count(Reader *from, size_t unit)
{
    uint32_t count;
    if (!take_to(&count, from, sizeof count) || !take(from, count * unit))
        return -1;
    from->at -= count * unit;
    return (Py_ssize_t)count;
}

/* The bytes of an array, -1 where no array has that shape. */
static Py_ssize_t size_of(const int64_t *shape, int many, Py_ssize_t itemsize)
{
    for (int each = 0; each < many; each++) {
        if (shape[each] < 0 || (shape[each] && itemsize > PY_SSIZE_T_MAX / shape[each]))
            return -1;
        itemsize *= (Py_ssize_t)shape[each];
    }
    return itemsize;
}

/* A new array, or one in this memory. */
static PyObject *new_array(const int64_t *shape, int many, int kind, PyObject *memory)
{
    PyObject *lengths = PyTuple_New(many);
    for (int each = 0; lengths && each < many; each++)
        PyTuple_SET_ITEM(lengths, each, PyLong_FromLongLong(shape[each]));
    PyObject *args[] = {lengths, kinds[kind].restored, memory};
    PyObject *made = memory ? (PyObject *)array_type : empty_array;
    PyObject *array = lengths ? PyObject_Vectorcall(made, args, memory ? 3 : 2, NULL) : NULL;
    Py_XDECREF(lengths);
    return array;
}

/* An array of which the data stand behind it, or have travelled by themselves. */
static PyObject *take_data(Reader *from, const int64_t *shape, int many, int kind, int is_inside)
{
    Py_ssize_t size = size_of(shape, many, kinds[kind].itemsize);
    Py_ssize_t rest = is_inside ? from->end - from->at : from->data.len - from->taken;
    if (size < 0 || size > rest)
        return cut_short();
    const char *data = is_inside ? from->at : (const char *)from->data.buf + from->taken;
    if (is_inside)
        from->at += size;
    else
        from->taken += size;
    /* What is all of that memory keeps it. */
    int is_whole = !is_inside && size == from->data.len && !from->data.readonly;
    PyObject *array = new_array(shape, many, kind, is_whole ? from->data.obj : NULL);
    if (is_whole && array && !(((NumpyArray *)array)->flags & NUMPY_ALIGNED)) {
        Py_DECREF(array);
        array = new_array(shape, many, kind, NULL);
    }
    if (array && size && ((NumpyArray *)array)->data != data)
        memcpy(((NumpyArray *)array)->data, data, (size_t)size);
    return array;
}

/* What a method of an object returns, in place of the object. */
static PyObject *turned_by(PyObject *object, PyObject *name, PyObject *given)
{
    PyObject *found = object && given ? PyObject_CallMethodOneArg(object, name, given) : NULL;
    Py_XDECREF(object);
    Py_XDECREF(given);
    return found;
}

static PyObject *take_array(Reader *from, int is_inside)
{
    uint8_t form[3], places[NUMPY_DIMENSIONS];
    int64_t shape[NUMPY_DIMENSIONS];
    if (!take_to(form, from, sizeof form))
        return NULL;
    int kind = form[0], how = form[1], many = form[2];
    if (kind >= known_kinds || many > NUMPY_DIMENSIONS)
        return no_message();
    if (!take_to(shape, from, many * sizeof *shape) ||
        (how & TURNED && !take_to(places, from, (size_t)many)))
        return NULL;
    PyObject *array = take_data(from, shape, many, kind, is_inside);
    if (how & TURNED)
        array = turned_by(array, transpose_name, axes_of(places, many));
    if (how & FIXED && array) {
        PyObject *done = PyObject_CallMethodOneArg(array, setflags_name, Py_False);
        if (!done)
            Py_CLEAR(array);
        Py_XDECREF(done);
    }
    return how & SCALAR ? turned_by(array, getitem_name, PyTuple_New(0)) : array;
}

static PyObject *take_item(Reader *from, int depth);

static PyObject *take_row(Reader *from, int is_list, int depth)
{
    Py_ssize_t many = take_count(from, 1);
    PyObject *row = many < 0 ? NULL : is_list ? PyList_New(many) : PyTuple_New(many);
    for (Py_ssize_t each = 0; row && each < many; each++) {
        PyObject *item = take_item(from, depth);
        if (!item)
            Py_CLEAR(row);
        else if (is_list)
            PyList_SET_ITEM(row, each, item);
        else
            PyTuple_SET_ITEM(row, each, item);
    }
    return row;
}

static PyObject *take_pairs(Reader *from, int depth)
{
    Py_ssize_t many = take_count(from, 2);
    PyObject *found = many < 0 ? NULL : PyDict_New();
    for (Py_ssize_t each = 0; found && each < many; each++) {
        PyObject *key = take_item(from, depth), *value = key ? take_item(from, depth) : NULL;
        if (!value || PyDict_SetItem(found, key, value) < 0)
            Py_CLEAR(found);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return found;
}

static PyObject *take_units(Reader *from, char letter)
{
    int unit = letter == 'y' ? 1 : letter - '0';
    Py_ssize_t many = take_count(from, (size_t)unit);
    if (many < 0)
        return NULL;
    const char *data = take(from, (size_t)many * (size_t)unit);
    return letter == 'y' ? PyBytes_FromStringAndSize(data, many)
                         : PyUnicode_FromKindAndData(unit, data, many);
}

/* A number of which the type has been read. */
#define TAKE(type, make) \
    do { \
        type value; \
        return take_to(&value, from, sizeof value) ? make(value) : NULL; \
    } while (0)

static PyObject *take_item(Reader *from, int depth)
{
    const char *letter = take(from, 1);
    switch (letter ? *letter : 0) {
    case 'N': return Py_NewRef(Py_None);
    case 'T': return Py_NewRef(Py_True);
    case 'F': return Py_NewRef(Py_False);
    case 'b': TAKE(int8_t, PyLong_FromLong);
    case 'i': TAKE(int32_t, PyLong_FromLong);
    case 'q': TAKE(int64_t, PyLong_FromLongLong);
    case 'd': TAKE(double, PyFloat_FromDouble);
    case 'D': TAKE(Py_complex, PyComplex_FromCComplex);
    case '1': case '2': case '4': case 'y': return take_units(from, *letter);
    case 'a': case 'A': return take_array(from, *letter == 'a');
    }
    if (letter && depth && (*letter == '(' || *letter == '['))
        return take_row(from, *letter == '[', depth - 1);
    if (letter && depth && *letter == '{')
        return take_pairs(from, depth - 1);
    return letter ? no_message() : NULL;
}

PyObject *item_take(Reader *from)
{
    return take_item(from, DEEPEST);
}

/* -- for Python -------------------------------------------------------------------------------- */

/* know_arrays(probe, empty, dtypes): write NumPy's arrays of these dtypes, each of which is given with
   the one that it is restored to, as `empty` makes them. */
static PyObject *know_arrays(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *probe, *empty, *dtypes;
    if (!PyArg_ParseTuple(args, "OOO!", &probe, &empty, &PyTuple_Type, &dtypes) ||
        numpy_check(probe) < 0)
        return NULL;
    Py_ssize_t many = PyTuple_GET_SIZE(dtypes);
    if (many > MOST_KINDS)
        return PyErr_Format(PyExc_ValueError, "at most %d dtypes", MOST_KINDS);
    known_kinds = 0;
    for (Py_ssize_t each = 0; each < many; each++) {
        PyObject *written, *restored;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(dtypes, each), "OO", &written, &restored))
            return NULL;
        PyObject *itemsize = PyObject_GetAttrString(written, "itemsize");
        kinds[each].itemsize = itemsize ? PyLong_AsSsize_t(itemsize) : -1;
        Py_XDECREF(itemsize);
        if (PyErr_Occurred())
            return NULL;
        kinds[each].written = Py_NewRef(written), kinds[each].restored = Py_NewRef(restored);
    }
    known_kinds = (int)many;
    array_type = (PyTypeObject *)Py_NewRef(Py_TYPE(probe)), empty_array = Py_NewRef(empty);
    Py_RETURN_NONE;
}

int items_import(void)
{
    metadata_name = PyUnicode_InternFromString("metadata");
    transpose_name = PyUnicode_InternFromString("transpose");
    setflags_name = PyUnicode_InternFromString("setflags");
    getitem_name = PyUnicode_InternFromString("__getitem__");
    return metadata_name && transpose_name && setflags_name && getitem_name ? 0 : -1;
}

PyMethodDef item_methods[] = {
    {"know_arrays", know_arrays, METH_VARARGS, NULL},
    {NULL},
};
