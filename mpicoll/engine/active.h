/* The calls of a group that are under way on this rank.

   Code of Python runs inside a wait: handlers of signals, finalizers, callbacks. A call that such
   code makes of the same group first completes the call that waits, so that the calls of a group
   run in the order in which they begin. Where that is impossible it raises RuntimeError. */

#ifndef MPICOLL_ACTIVE_H
#define MPICOLL_ACTIVE_H

#include "module.h"

/* The numbers of a group: `Mailbox.number` in mpicoll/memory/mailbox.py. The last call
   that was stated; whether the group has ended; the call that is under way. */
enum { LAST_STATED, HAS_ENDED, UNDER_WAY, GROUP_NUMBERS };

/* Values of UNDER_WAY: nothing, a call that Python runs, a round of the mailbox. Any other value is
   the address of an ActiveCall. */
enum { NO_CALL, PYTHON_CALL, PYTHON_ROUND };

enum call_state {
    RUNNING,
    COMPLETE,
    UNSERVED, /* the ranks have made different calls, or MPI's own call follows */
    FAILED_CALL
};

/* A call that is under way, in the frame of the function that runs it. */
typedef struct ActiveCall {
    int64_t *under_way;  /* the number of the group; NULL for a call of no group */
    int64_t outer;       /* its value before this call */
    unsigned long thread;
    enum call_state state;
    PyObject *error;     /* with which it has failed inside another call */
    ProgramObject *program;
    int is_closed;       /* it cannot be completed by code that runs inside of it */
    enum call_state (*advance)(struct ActiveCall *call); /* complete it from where it stands */
} ActiveCall;

/* Complete the calls of a group that are under way, before another one begins; -1 where Python has
   raised, as they cannot be completed here. */
int active_complete(const int64_t *under_way);

/* Whether such a number is the address of a call of another thread. */
int active_is_elsewhere(int64_t under_way);

/* Run a call to its end. FAILED_CALL: Python has raised. COMPLETE and UNSERVED: Python may have
   raised after the end, in code that ran inside of the wait. */
enum call_state active_run(ActiveCall *call);

/* Open the number of a group in a buffer; 0 where `numbers` is None, -1 where Python has raised. */
int active_open(PyObject *numbers, Py_buffer *view);

#endif
