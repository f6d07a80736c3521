/* The key of a call: its arguments, as far as they decide which plan serves it. */

#ifndef MPICOLL_CALL_KEY_H
#define MPICOLL_CALL_KEY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { MAX_DIMENSIONS = 8, MAX_DTYPES = 32 };

/* An array argument. `kind` is its dtype and device: 0 for None. */
typedef struct {
    char *address;
    Py_ssize_t nbytes;
    int32_t kind, dimensions;
    Py_ssize_t shape[MAX_DIMENSIONS];
} ArrayArgument;

enum { NAME, OP, COUNTS, ALGORITHM, OBJECTS };

typedef struct {
    PyObject *objects[OBJECTS]; /* compared by identity */
    long root;
    Py_ssize_t overlap; /* where `out` begins in `x` or `x` in `out`, in bytes + 1; 0 without overlap */
    ArrayArgument x, out;
} CallKey;

/* Reads arguments. */
typedef struct {
    PyTypeObject *array_type;          /* arrays of this type, exactly */
    const struct DLExchange *exchange; /* reads them; for NumPy's arrays `dtypes` instead */
    PyObject *dtypes;                  /* of NumPy, each with its itemsize and DLPack's code */
    PyObject *describe;                /* describes other arrays, such as those on a GPU */
} ArgumentReader;

#pragma GCC visibility push(hidden)

/* Prepare to read arrays like `probe`, by DLPack's exchange table or NumPy's dtypes; -1 where Python has
   raised. */
int reader_open(ArgumentReader *reader, PyObject *probe, PyObject *exchange);

void reader_close(ArgumentReader *reader);

/* Read an array; 0 where only Python understands it, which may have raised. */
int read_array(const ArgumentReader *reader, PyObject *array, ArrayArgument *argument, int written);

/* Read name, x, out, op, root, counts, algorithm; 0 where only Python understands them. */
int read_key(const ArgumentReader *reader, PyObject *const *args, CallKey *key);

size_t key_hash(const CallKey *key);

int key_equals(const CallKey *key, const CallKey *other);

/* Make the names that are looked up; -1 where Python has raised. */
int call_key_import(void);

#pragma GCC visibility pop

#endif
