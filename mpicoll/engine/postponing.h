/* Calls of programs in whose middle no handler of a signal runs.

   A library's own call blocks in C, so Python runs handlers of signals after it. Our calls run code of
   Python, too. A handler that raised there would take this rank out of a call that the other ranks
   complete. So handlers are postponed while a call is open: they run, and may raise, at its end.

   Python calls handlers in the main thread alone. Calls of other threads are never open. */

#ifndef MPICOLL_POSTPONING_H
#define MPICOLL_POSTPONING_H

#include "module.h"

/* Open a call. It costs nothing until the call has to run code of Python. */
void call_open(void);

/* Postpone handlers until the call that is open ends, if there is one. Before code of Python runs. */
void postpone(void);

/* Keep the errors of handlers that had to run before: where C goes back to code within an open call. */
void keep_raised(void);

/* Run the handlers of the signals that have come: 0; -1 where one has raised, and no call is open. */
int check_signals(void);

/* Close a call, run the handlers of the signals that came meanwhile, unless it lies within another one, and
   return its result; NULL where Python has raised. */
PyObject *call_end(PyObject *result);

int postponing_import(void);
extern PyMethodDef postponing_methods[];

#endif
