/* The line of the user's source that a call comes from, by Python's public frame functions.

   A frame object costs about 45 ns, once for each time that a function of Python is entered. A loop
   that makes many calls pays for it once. */

#ifndef MPICOLL_WHERE_H
#define MPICOLL_WHERE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* An instruction of a code object, and the place of its line in the table of the recorder. */
typedef struct {
    PyCodeObject *code; /* a reference, so that no other code has its address; NULL if unused */
    int instruction;
    uint32_t line; /* 0 for a line of a library */
} Site;

typedef struct {
    Site *cache;
    Site recent[2];   /* copies of the last sites of the two innermost frames, without references */
    PyObject *locate; /* locate(code, instruction): the place of its line, 0 for a library's */
} Sites;

#pragma GCC visibility push(hidden)

/* -1 where Python has raised. */
int sites_make(Sites *sites, PyObject *locate);

void sites_free(Sites *sites);

/* Get what sites_find calls; -1 where Python has raised. */
int sites_import(void);

/* Return the place of the innermost line of this thread that is no library's, 0 if there is none.

   below_library: the innermost frame is one of a library, and is not looked at. */
uint32_t sites_find(Sites *sites, int below_library);

#pragma GCC visibility pop

#endif
