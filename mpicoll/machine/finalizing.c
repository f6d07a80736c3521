/* Threads that are inside a C++ library while the interpreter ends.

   A thread that asks for the interpreter then is ended by pthread_exit, which C++ takes for an
   exception that nobody catches: std::terminate ends the whole process by SIGABRT, whatever its
   status was. From Python 3.14 on such a thread sleeps until the process has ended ("will instead
   hang", PyEval_RestoreThread in its C API); here a thread that was told so does. */

#include "module.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

typedef void (*Handler)(void);

static _Thread_local int sleeps;
static Handler before;
static int is_exiting;

void finalizing_begin(void)
{
    __atomic_store_n(&is_exiting, 1, __ATOMIC_RELEASE);
}

static void on_terminate(void)
{
    while (sleeps && __atomic_load_n(&is_exiting, __ATOMIC_ACQUIRE))
        pause();
    if (before)
        before();
    abort();
}

/* Without such a library in the process there is nothing to do. */
static PyObject *sleep_when_finalizing(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    void *library = before ? NULL : dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (library) {
        Handler (*set_terminate)(Handler);
        *(void **)&set_terminate = dlsym(library, "_ZSt13set_terminatePFvvE");
        if (set_terminate)
            before = set_terminate(on_terminate);
        dlclose(library);
    }
    sleeps = 1;
    Py_RETURN_NONE;
}

PyMethodDef finalizing_methods[] = {
    {"sleep_when_finalizing", sleep_when_finalizing, METH_NOARGS, NULL},
    {NULL},
};
