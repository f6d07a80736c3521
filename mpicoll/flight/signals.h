/* Signals that the flight recorder watches, as functions of the module: signals.c. */

#ifndef MPICOLL_SIGNALS_H
#define MPICOLL_SIGNALS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef signal_methods[];

#endif
