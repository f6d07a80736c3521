/* Where in the user's source a call comes from, at the price of a look-up for each frame. */

#ifndef MPICOLL_WHERE_H
#define MPICOLL_WHERE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* An instruction that calls, and the place of its line in the table; 0 for a line of a library. */
typedef struct {
    PyCodeObject *code; /* kept, so that no other has its address; NULL where there is none */
    int instruction;
    uint32_t where;
} Site;

typedef struct {
    Site *known;
    Site last[2]; /* what was found of the innermost frames, borrowed from there */
    PyObject *locate; /* locate(code, instruction): the place of its line, 0 for a library's */
} Sites;

#pragma GCC visibility push(hidden)

/* -1 where Python has raised. */
int sites_make(Sites *sites, PyObject *locate);

void sites_free(Sites *sites);

/* Return the place of the innermost line that is no library's, 0 where there is none. */
uint32_t sites_find(Sites *sites, const PyThreadState *state);

#pragma GCC visibility pop

#endif
