/* The simulation of every message of a schedule, as a function of Python. */
#ifndef MPICOLL_EVENTS_H
#define MPICOLL_EVENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef event_methods[];

#endif
