/* Read the arguments of a call: see call_key.h. */

#include "call_key.h"

#include "numpy_arrays.h"

#include <string.h>

/* The parts of DLPack 1.x's exchange table that are used here (dmlc.github.io/dlpack). */
typedef struct {
    void *data;
    struct { int32_t type, id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLExchange {
    struct { uint32_t major, minor; } version;
    void *previous, *allocate, *export, *import;
    int (*describe)(void *object, DLTensor *out);
} DLExchange;

enum { DL_HOST = 1, DL_COMPLEX = 5 };

static PyObject *is_neg, *is_conj;

int call_key_import(void)
{
    is_neg = PyUnicode_InternFromString("is_neg");
    is_conj = PyUnicode_InternFromString("is_conj");
    return is_neg && is_conj ? 0 : -1;
}

/* -- arrays ------------------------------------------------------------------------------------ */

/* 0 where a NumPy array is of a kind that only Python understands. */
static int read_numpy(
    const ArgumentReader *reader, const NumpyArray *array, ArrayArgument *argument, int written)
{
    const int needed = NUMPY_C_CONTIGUOUS | (written ? NUMPY_WRITEABLE : 0);
    if ((array->flags & needed) != needed || array->nd > MAX_DIMENSIONS)
        return 0;
    PyObject *const dtypes = reader->dtypes;
    const Py_ssize_t count = PyTuple_GET_SIZE(dtypes);
    Py_ssize_t kind = 0;
    while (kind < count &&
           !numpy_same(array->descr, PyTuple_GET_ITEM(PyTuple_GET_ITEM(dtypes, kind), 0)))
        kind++;
    if (kind == count)
        return 0;
    argument->nbytes = PyLong_AsSsize_t(PyTuple_GET_ITEM(PyTuple_GET_ITEM(dtypes, kind), 1));
    argument->address = array->data;
    argument->kind = 1 + (int32_t)kind;
    argument->dimensions = array->nd;
    for (int axis = 0; axis < array->nd; axis++)
        argument->nbytes *= argument->shape[axis] = array->dimensions[axis];
    return 1;
}

/* Whether a tensor's method returns True; -1 where it raised. */
static int is_true(PyObject *tensor, PyObject *method)
{
    PyObject *result = PyObject_CallMethodNoArgs(tensor, method);
    const int truth = result ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    return truth;
}

static int read_tensor(const ArgumentReader *reader, PyObject *object, ArrayArgument *argument)
{
    DLTensor tensor;
    if (reader->exchange->describe(object, &tensor) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (tensor.device.type != DL_HOST || tensor.ndim > MAX_DIMENSIONS || tensor.dtype.lanes != 1)
        return 0;
    Py_ssize_t count = 1;
    int contiguous = 1;
    for (int axis = tensor.ndim - 1; axis >= 0; axis--) {
        if (tensor.strides && tensor.shape[axis] != 1 && tensor.strides[axis] != count)
            contiguous = 0;
        argument->shape[axis] = (Py_ssize_t)tensor.shape[axis];
        count *= argument->shape[axis];
    }
    if (count && (!contiguous || is_true(object, is_neg) ||
                  (tensor.dtype.code == DL_COMPLEX && is_true(object, is_conj)))) {
        PyErr_Clear();
        return 0;
    }
    argument->address = (char *)tensor.data + tensor.byte_offset;
    argument->nbytes = count * tensor.dtype.bits / 8;
    argument->kind = 1 + 256 * (1 + tensor.dtype.code) + tensor.dtype.bits;
    argument->dimensions = tensor.ndim;
    return 1;
}

/* Read an array by Python's description: its address, bytes, kind and shape. */
static int read_described(const ArgumentReader *reader, PyObject *array, ArrayArgument *argument)
{
    PyObject *const found = PyObject_CallOneArg(reader->describe, array);
    PyObject *shape;
    unsigned long long address;
    int done = found && found != Py_None &&
               PyArg_ParseTuple(found, "KniO!", &address, &argument->nbytes, &argument->kind,
                                &PyTuple_Type, &shape) &&
               PyTuple_GET_SIZE(shape) <= MAX_DIMENSIONS;
    if (done) {
        argument->address = (char *)(uintptr_t)address;
        argument->dimensions = (int32_t)PyTuple_GET_SIZE(shape);
        for (int axis = 0; axis < argument->dimensions; axis++)
            argument->shape[axis] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis));
        argument->kind |= 1 << 30; /* no kind of arrays that are read here */
        done = !PyErr_Occurred();
    }
    Py_XDECREF(found);
    return done;
}

int read_array(const ArgumentReader *reader, PyObject *array, ArrayArgument *argument, int written)
{
    argument->kind = 0;
    argument->dimensions = 0;
    argument->address = NULL;
    argument->nbytes = 0;
    if (array == Py_None)
        return 1;
    if (Py_TYPE(array) == reader->array_type &&
        (reader->dtypes ? read_numpy(reader, (NumpyArray *)array, argument, written)
                        : read_tensor(reader, array, argument)))
        return 1;
    return reader->describe && read_described(reader, array, argument);
}

/* -- keys -------------------------------------------------------------------------------------- */

int read_key(const ArgumentReader *reader, PyObject *const *args, CallKey *key)
{
    key->objects[NAME] = args[0], key->objects[OP] = args[3];
    key->objects[COUNTS] = args[5], key->objects[ALGORITHM] = args[6];
    if (!PyLong_CheckExact(args[4]) || (args[5] != Py_None && !PyTuple_CheckExact(args[5])))
        return 0;
    key->root = PyLong_AsLong(args[4]);
    if (key->root < 0 || !read_array(reader, args[1], &key->x, 0) ||
        !read_array(reader, args[2], &key->out, 1)) {
        PyErr_Clear();
        return 0;
    }
    key->overlap = 0;
    if (key->x.address < key->out.address + key->out.nbytes &&
        key->out.address < key->x.address + key->x.nbytes)
        key->overlap = 1 + (key->out.address - key->x.address);
    return 1;
}

static size_t hash_argument(size_t hash, const ArrayArgument *argument)
{
    hash = hash * 31 + (size_t)argument->kind;
    for (int axis = 0; axis < argument->dimensions; axis++)
        hash = hash * 1000003 + (size_t)argument->shape[axis];
    return hash;
}

size_t key_hash(const CallKey *key)
{
    size_t hash = (size_t)key->root * 7 + (size_t)key->overlap;
    for (int index = 0; index < OBJECTS; index++)
        hash = hash * 1000003 + ((size_t)key->objects[index] >> 4);
    hash = hash_argument(hash_argument(hash, &key->x), &key->out);
    return hash ^ hash >> 17;
}

static int argument_equals(const ArrayArgument *argument, const ArrayArgument *other)
{
    if (argument->kind != other->kind || argument->dimensions != other->dimensions)
        return 0;
    for (int axis = 0; axis < argument->dimensions; axis++)
        if (argument->shape[axis] != other->shape[axis])
            return 0;
    return 1;
}

int key_equals(const CallKey *key, const CallKey *other)
{
    return !memcmp(key->objects, other->objects, sizeof key->objects) &&
           key->root == other->root && key->overlap == other->overlap &&
           argument_equals(&key->x, &other->x) && argument_equals(&key->out, &other->out);
}

/* -- the reader -------------------------------------------------------------------------------- */

int reader_open(ArgumentReader *reader, PyObject *probe, PyObject *exchange)
{
    if (PyTuple_Check(exchange)) {
        if (numpy_check(probe) < 0)
            return -1;
        reader->dtypes = Py_NewRef(exchange);
    } else {
        const DLExchange *const table = PyCapsule_GetPointer(exchange, "dlpack_exchange_api");
        if (table && (table->version.major != 1 || !table->describe))
            PyErr_SetString(PyExc_ValueError, "this version of DLPack's table is unknown");
        if (PyErr_Occurred())
            return -1;
        reader->exchange = table;
    }
    reader->array_type = (PyTypeObject *)Py_NewRef(Py_TYPE(probe));
    return 0;
}

void reader_close(ArgumentReader *reader)
{
    Py_CLEAR(reader->array_type);
    Py_CLEAR(reader->dtypes);
    Py_CLEAR(reader->describe);
}
