/* Objects as bytes: items.c. */

#ifndef MPICOLL_ITEMS_H
#define MPICOLL_ITEMS_H

#include "module.h"

enum { MOST_ONCE = 256 };

/* The kinds of a message, and the format of its head for Python's `struct`: `Head` of objects.c. */
enum { PLAIN = 0, PICKLE = 2 };
#define MESSAGE_HEAD "=BBxxIqqq"

/* Where an object is written. */
typedef struct {
    char *at, *end;
    PyObject *left; /* gets the arrays whose data travel by themselves; NULL: none may */
    Py_ssize_t inside; /* so many bytes of other arrays' data may still stand here */
    int many;
    PyObject *once[MOST_ONCE]; /* the arrays, and the tuples that others refer to */
} Writer;

/* Where one is read, and the data that have travelled by themselves: so many of their bytes are taken. */
typedef struct {
    char *at, *end;
    Py_buffer data;
    Py_ssize_t taken;
} Reader;

/* Write an object to `start` and on; 0 where it does not fit, or is none of those that are written. */
int item_put(Writer *to, char *start, char *end, PyObject *item, PyObject *left);

/* The next object; NULL where Python has raised. */
PyObject *item_take(Reader *from);

int items_import(void);

extern PyMethodDef item_methods[];

#endif
