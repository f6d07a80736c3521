/* The plan table of a group. */

#ifndef MPICOLL_PLAN_TABLE_H
#define MPICOLL_PLAN_TABLE_H

#include "call_key.h"
#include "module.h"
#include "digests.h"

/* The places in `Calls.numbers` of mpicoll/peers/calls.py. */
enum { CALLS_BEGUN, CALL_ENDED, RECENT_PLANS, MOST_RECENT = 16, CALL_NUMBERS = RECENT_PLANS + MOST_RECENT };

/* What serves the calls of a key: a compiled program, a function of Python's, or the library, whose own
   call the caller makes. */
enum plan_kind { UNUSED, PROGRAM, FUNCTION, LIBRARY };

typedef struct {
    enum plan_kind kind;
    CallKey key;
    PyObject *anchors;  /* objects whose addresses are in the key */
    ProgramObject *program;
    PyObject *function; /* of x and out */
    int64_t digest;     /* that the ranks compare; between nodes the number of the plan */
    uint32_t place;     /* of functions and the library's calls in the table of the flight recorder */

    /* Of programs. */
    int has_output;     /* this rank gets an array */
    PyObject *make_output; /* makes that array where none was given; NULL where one always is */
    int x_in_out;       /* the input lies in the array given as output */
    Py_ssize_t x_shift, out_shift; /* bytes from the arrays to where input and output begin */
} Entry;

typedef struct {
    PyObject_HEAD
    ArgumentReader reader;
    Digests digests;     /* without lines where the ranks share no memory */
    Py_buffer numbers;   /* of the group: active.h */
    Py_buffer calls;     /* `Calls.numbers` of mpicoll/peers/calls.py; empty on one node */
    int64_t spins;
    int is_drop_in;      /* its calls run as a library's would: no handler of a signal runs in them */
    PyObject *slow;      /* serves calls that are not in the table, or differ among the ranks */
    PyObject *wait;      /* wait(rank, number, name): until that rank has published a digest */
    PyObject *give_up;   /* give_up(plan, error): takes a plan that has failed; whether to go on */
    PyObject *agree;     /* agree(digest, name): compares calls of ranks that share no memory */
    PyObject *keep;
    LogObject *log;
    Entry *entries;
} PlanTableObject;

/* Return the plan of a call; NULL where there is none. */
Entry *find_plan(const PlanTableObject *self, const CallKey *key);

/* Compare a call with all ranks, and run its program, unless it is NULL: 1; 0 where the ranks differ,
   -1 where Python has raised. */
int plan_run(PlanTableObject *self, ProgramObject *program, int64_t digest, PyObject *name);

/* Hand over a plan that has failed, with the error that Python has raised, which stays as it is: 0; or
   Python keeps the error, and the call goes on: 1. */
int plan_give_up(PlanTableObject *self, PyObject *plan);

#endif
