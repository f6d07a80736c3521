/* The kernels as functions of Python, for tests and measurements. */
#ifndef MPICOLL_KERNELS_MODULE_H
#define MPICOLL_KERNELS_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef kernel_methods[];

#endif
