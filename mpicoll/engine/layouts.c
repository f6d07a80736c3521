/* Where the elements of the library's datatypes lie in memory; a channel packs and unpacks them. */

#include "channel_type.h"

#include <stdlib.h>

struct Layout {
    uint64_t handle;
    int users;            /* calls under way, and the table */
    int64_t size, extent; /* bytes of data in an element, and from one element to the next */
    int64_t low, high;    /* its first byte, and the end of its last one */
    Py_ssize_t count;     /* of pieces */
    struct {
        int64_t start, nbytes;
    } pieces[];
};

enum { MOST_LAYOUTS = 256 };
static Layout *layouts[MOST_LAYOUTS];
static int layout_count;

static void drop(Layout *layout)
{
    if (!--layout->users)
        free(layout);
}

/* Where objects of the library have their handle; no bytes before it is known. */
static Py_ssize_t handle_offset, handle_bytes;

uint64_t handle_of(PyObject *object)
{
    const char *const place = (const char *)object + handle_offset;
    return handle_bytes == 4 ? *(const uint32_t *)(const void *)place
                             : *(const uint64_t *)(const void *)place;
}

static int place_of(PyObject *datatype)
{
    const uint64_t handle = handle_of(datatype);
    int place = 0;
    while (place < layout_count && layouts[place]->handle != handle)
        place++;
    return place;
}

int layout_find(const Forms *forms, PyObject *datatype, PyObject *memory, int written, Items *items)
{
    int place = place_of(datatype);
    Py_buffer view;
    if (place == layout_count) {
        PyObject *const done = PyObject_CallOneArg(forms->learn, datatype);
        Py_XDECREF(done);
        if (!done)
            return -1;
        place = place_of(datatype);
    }
    if (place == layout_count)
        return 0;
    if (PyObject_GetBuffer(memory, &view, PyBUF_ANY_CONTIGUOUS | (written ? PyBUF_WRITABLE : 0)) < 0)
        return PyErr_Clear(), 0;
    Layout *const layout = layouts[place];
    const int is_plain = layout->count == 1 && !layout->low && layout->size == layout->extent;
    *items = (Items){.address = view.buf, .nbytes = view.len, .size = layout->size, .extent = layout->extent,
                     .high = layout->high, .layout = is_plain ? NULL : layout};
    PyBuffer_Release(&view); /* the caller's arguments keep it */
    return 1;
}

int layout_use(Layout *layout, Buffer *buffer, int blocks, int written)
{
    int64_t total = 0;
    for (int block = 0; block < blocks; block++)
        total += buffer->lengths[block];
    buffer->packed = malloc((size_t)(total + 1));
    if (!buffer->packed)
        return 0;
    layout->users++;
    buffer->layout = layout, buffer->blocks = blocks, buffer->is_written = written, buffer->nbytes = total;
    buffer->address = buffer->low = buffer->high = buffer->packed;
    for (int block = 0; block < blocks; block++) {
        buffer->sources[block] = buffer->places[block], buffer->places[block] = buffer->high;
        buffer->high += buffer->lengths[block];
    }
    return 1;
}

void buffer_copy(const Buffer *buffer, int is_back)
{
    if (!buffer->packed || (is_back && !buffer->is_written))
        return;
    const Layout *const layout = buffer->layout;
    for (int block = 0; block < buffer->blocks; block++) {
        char *packed = buffer->places[block], *base = buffer->sources[block];
        const char *const end = packed + buffer->lengths[block];
        for (; packed < end; base += layout->extent)
            for (Py_ssize_t piece = 0; piece < layout->count; piece++) {
                const size_t nbytes = (size_t)layout->pieces[piece].nbytes;
                char *const place = base + layout->pieces[piece].start;
                if (nbytes == 8) /* without a call: a column of 200 doubles takes 0.8 us less */
                    is_back ? memcpy(place, packed, 8) : memcpy(packed, place, 8);
                else
                    is_back ? memcpy(place, packed, nbytes) : memcpy(packed, place, nbytes);
                packed += nbytes;
            }
    }
}

void buffer_release(Buffer *buffer)
{
    if (buffer->packed)
        drop(buffer->layout);
    free(buffer->packed);
    buffer->packed = NULL;
}

/* -- functions for Python ------------------------------------------------------------------------ */

/* place_handles(offset, nbytes): say where objects of the library have their handle. */
PyObject *place_handles(PyObject *Py_UNUSED(module), PyObject *args)
{
    if (!PyArg_ParseTuple(args, "nn", &handle_offset, &handle_bytes))
        return NULL;
    Py_RETURN_NONE;
}

/* forget_layout(datatype): read no more buffers of a datatype, which is freed. */
PyObject *forget_layout(PyObject *Py_UNUSED(module), PyObject *datatype)
{
    const int place = place_of(datatype);
    if (place < layout_count) {
        drop(layouts[place]);
        layouts[place] = layouts[--layout_count];
    }
    Py_RETURN_NONE;
}

/* So many rows of bytes. */
typedef struct {
    const unsigned char *start;
    Py_ssize_t width, count;
} Rows;

static inline int are_equal(
    const Rows *packed, Py_ssize_t byte, const Rows *digits, Py_ssize_t place, size_t nbytes)
{
    Py_ssize_t row = 0;
    while (row < packed->count && !memcmp(packed->start + row * packed->width + byte,
                                          digits->start + row * digits->width + place, nbytes))
        row++;
    return row == packed->count;
}

/* Return how many bytes from this one on were packed from places that follow each other. */
static Py_ssize_t piece_at(const Rows *packed, Py_ssize_t byte, const Rows *digits, int64_t *start)
{
    Py_ssize_t nbytes = 0;
    *start = 0;
    for (Py_ssize_t row = 0; row < packed->count; row++)
        *start |= (int64_t)packed->start[row * packed->width + byte] << 8 * row;
    const Py_ssize_t bytes = packed->width - byte, places = digits->width - *start;
    const Py_ssize_t most = bytes < places ? bytes : places;
    while (nbytes + 8 <= most && are_equal(packed, byte + nbytes, digits, *start + nbytes, 8))
        nbytes += 8;
    while (nbytes < most && are_equal(packed, byte + nbytes, digits, *start + nbytes, 1))
        nbytes++;
    return nbytes;
}

/* add_layout(datatype, size, extent, digits, packed): read buffers of a datatype, which has packed the rows of
   `digits`: of the places 0, 1, 2 ... the low 8 bits, then the next ones. */
PyObject *add_layout(PyObject *module, PyObject *args)
{
    PyObject *datatype;
    Py_ssize_t size;
    long long extent;
    Py_buffer digits, packed;
    if (!PyArg_ParseTuple(args, "OnLy*y*", &datatype, &size, &extent, &digits, &packed))
        return NULL;
    const Rows bytes = {packed.buf, size, packed.len / size}, places = {digits.buf, digits.len / bytes.count, 0};
    Layout *layout = malloc(sizeof *layout + (size_t)size * sizeof layout->pieces[0]);
    if (layout)
        *layout = (Layout){.handle = handle_of(datatype), .users = 1, .size = size, .extent = extent,
                           .low = INT64_MAX};
    for (Py_ssize_t byte = 0; layout && byte < size;) {
        int64_t start;
        const int64_t nbytes = piece_at(&bytes, byte, &places, &start);
        layout->pieces[layout->count].start = start, layout->pieces[layout->count++].nbytes = nbytes;
        layout->low = start < layout->low ? start : layout->low;
        layout->high = start + nbytes > layout->high ? start + nbytes : layout->high;
        byte += nbytes;
        if (nbytes < 1) { /* these bytes say no places */
            PyErr_SetString(PyExc_ValueError, "a datatype packs other bytes");
            free(layout);
            layout = NULL;
        }
    }
    PyBuffer_Release(&digits), PyBuffer_Release(&packed);
    if (!layout)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    Layout *const smaller = realloc(layout, sizeof *layout + (size_t)layout->count * sizeof layout->pieces[0]);
    layout = smaller ? smaller : layout;
    Py_XDECREF(forget_layout(module, datatype));
    if (layout_count < MOST_LAYOUTS)
        layouts[layout_count++] = layout;
    else
        drop(layout);
    Py_RETURN_NONE;
}
