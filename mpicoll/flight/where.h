/* The line of the user's source that a call comes from, by Python's public frame functions.

   Making the object of a frame costs about 45 ns. So the last ways from a line of a library to one of
   the user are remembered: a call looks at both ends of such a way, and makes no object of the frames
   between. A way with the same ends and another frame of the user between is taken for the same. */

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

/* From the innermost frame that is looked at to the innermost one of the user, which is `depth` frames
   farther out. Copies of sites, without references. */
typedef struct {
    Site inner, user;
    int depth;
} Way;

enum { WAYS = 16 };

typedef struct {
    Site *cache;
    Way ways[WAYS];
    unsigned int next;      /* the way to be replaced */
    unsigned int evictions; /* sites whose code has no reference here any more */
    PyObject *locate;  /* locate(code, instruction): the place of its line, 0 for a library's */
} Sites;

#pragma GCC visibility push(hidden)

/* -1 where Python has raised. */
int sites_make(Sites *sites, PyObject *locate);

void sites_free(Sites *sites);

/* Get what sites_find calls; -1 where Python has raised. */
int sites_import(void);

/* Return the place of the innermost line of this thread that is no library's, 0 if there is none, or if Python
   has raised: a handler of a signal may run.

   below_library: the innermost frame is one of a library, and is not looked at. */
uint32_t sites_find(Sites *sites, int below_library);

#pragma GCC visibility pop

#endif
