/* Rows of the flight recorder, written by calls that Python does not make: mpicoll/flight. */

#ifndef MPICOLL_FLIGHT_H
#define MPICOLL_FLIGHT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef struct LogObject LogObject;

#pragma GCC visibility push(hidden)

extern PyTypeObject RingType, LogType;

/* Prepare for forks of the process; -1 where Python has raised. */
int flight_import(void);

/* Begin the row of a call, and return its number; 0 where there is none, because `log` is NULL, this thread is
   within another call on this group, or Python has raised: a handler of a signal may run.

   below_library: the innermost frame of Python is a function of this package. */
uint64_t log_begin_below(LogObject *log, uint32_t call, int below_library);

static inline uint64_t log_begin(LogObject *log, uint32_t call)
{
    return log_begin_below(log, call, 0);
}

/* The same of a call that goes on while its thread makes others. */
uint64_t log_start(LogObject *log, uint32_t call);

/* Whether Python has raised instead of beginning a row. */
static inline int log_has_raised(uint64_t number)
{
    return !number && PyErr_Occurred();
}

/* End the row of a call that is complete; by any thread. */
void log_done(LogObject *log, uint64_t number);

/* Take back the row of a call that is recorded otherwise. */
void log_withdraw(LogObject *log, uint64_t number);

/* Have the library go on with the last nonblocking call that this thread has begun, as the library's own
   blocking call would. */
void log_help_issued(void);

/* End the row. If `failed`, it gets the error that Python has raised, which stays set; if the handler of a signal raises
   meanwhile, its error takes that place. */
void log_end(LogObject *log, uint64_t number, int failed);

#pragma GCC visibility pop

#endif
