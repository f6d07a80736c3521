/* Signals that the flight recorder watches, as functions of the module: signals.c. */

#ifndef MPICOLL_SIGNALS_H
#define MPICOLL_SIGNALS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

#pragma GCC visibility push(hidden)

extern PyMethodDef signal_methods[];

/* How often the process has received SIGCONT. */
uint32_t signals_continued(void);

#pragma GCC visibility pop

#endif
