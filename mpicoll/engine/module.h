/* What the files of mpicoll.engine._compiled share. */

#ifndef MPICOLL_MODULE_H
#define MPICOLL_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "flight.h"
#include "program.h"
#include "tuning.h"

typedef struct {
    PyObject_HEAD
    Program program;
    Instruction *rows;
    int64_t check; /* the position before which the ranks must have agreed on a call */
    int forks;      /* of this process, as it was made */
    char busy;      /* may not run: a run that was started has not been waited for */
    char driven;    /* a thread that runs Python advances it */
    char calls;     /* has rows that are callbacks */
    char calling;   /* it is inside of a callback, in which nobody can complete it */
    int light;      /* moves so little that it need not leave the interpreter to others */
    int heavy;      /* moves so much that a start leaves all of it to the progress thread */
    /* Its methods: wait(program, position, error) completes what a row waits for, or raises;
       test(program, position) raises where that will never come; fail(program, position, error) takes the
       error of a callback, and may raise another. */
    PyObject *waits;
    PyObject *callbacks; /* of the rows CALL and POLL */
    PyObject *keep;
    PyObject *arrays; /* list: what owns the input and the output; a call adds its arrays while it runs */
    LogObject *log; /* records its runs; NULL where nothing does */
    uint32_t call;  /* what they are, for the log */
    uint64_t row;   /* of the run that was started */
    Py_buffer numbers; /* of its group: active.h; empty for a program of no group */
} ProgramObject;

struct ActiveCall;

extern PyTypeObject ProgramType, PlanTableType, CountedType, ChannelType, FirstCallsType;

/* Run the program of a call up to the position `until`; -1 where Python has raised. Code of Python
   that runs in a wait may end the call: its state says so. */
int program_drive(const struct ActiveCall *call, int64_t until);

/* Keep the arrays of a run while callbacks may use their addresses: 0; -1 where Python has raised. After
   a failure they stay, as a library may still write there. */
int program_hold(ProgramObject *self, PyObject *x, PyObject *out);
void program_release(ProgramObject *self);

/* Take the error that Python has raised, as PyErr_GetRaisedException of Python 3.12 does, and raise it again. */
static inline PyObject *take_raised(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace)
        PyException_SetTraceback(value, trace);
    Py_XDECREF(type), Py_XDECREF(trace);
    return value;
}

static inline void raise_again(PyObject *error)
{
    PyErr_Restore(Py_NewRef(Py_TYPE(error)), error, PyException_GetTraceback(error));
}

/* How often this process is a fork of the one that has loaded this: program_type.c. */
extern int forks;
void count_forks(void);

/* Say to the other ranks that this one leaves a run in its middle; before its user goes on. */
void program_leave(ProgramObject *self);

/* Of threads that are inside a C++ library while the interpreter ends: finalizing.c. */
extern PyMethodDef finalizing_methods[];

/* Say that the interpreter exits, before it ends other threads. */
void finalizing_begin(void);

/* Channels: channel_type.c. Kernels: kernels_module.c. */
extern PyMethodDef channel_functions[], kernel_methods[];

/* Make the names that are looked up; -1 where Python has raised. */
int channel_import(void);

/* Have all channels tell ranks that wait when the interpreter has ended; -1 where Python has raised. */
int exit_with_interpreter(void);

#endif
