/* The plan table of a group. */

#ifndef MPICOLL_PLAN_TABLE_H
#define MPICOLL_PLAN_TABLE_H

#include "call_key.h"
#include "channel_type.h"
#include "digests.h"

/* What serves the calls of a key: a compiled program, a function of Python's, or a channel, whose calls
   have any length. */
enum plan_kind { UNUSED, PROGRAM, FUNCTION, CHANNEL };

/* The first axis of an array: not there, as the array is one row; or not read, as no array is. */
enum { ONE_ROW = -1, NO_ARRAY = -2 };

typedef struct {
    enum plan_kind kind;
    CallKey key;
    PyObject *runner;   /* the program, or the function of x and out */
    PyObject *plan;     /* by which Python knows it */
    int64_t digest;     /* that the ranks compare */
    uint32_t place;     /* of functions in the table of the flight recorder */

    /* Of programs and the channel. */
    int has_output;     /* this rank gets an array */
    PyObject *make_output; /* makes that array where none was given; NULL where one always is */

    /* Of the channel's calls. */
    PyObject *op, *counts; /* as `queue_read` takes them */
    Py_ssize_t x_rows, out_rows; /* the length of the first axis */
    ArrayArgument row;     /* its shape is that of a row, where no array of this rank shows it */
} Entry;

typedef struct {
    PyObject_HEAD
    ArgumentReader reader;
    Digests digests;     /* without lines where the ranks share no memory */
    Py_buffer numbers;   /* of the group: active.h */
    PyObject *slow;      /* serves calls that are not in the table, or differ among the ranks */
    PyObject *wait;      /* wait(rank, number, name): until that rank has published a digest */
    PyObject *give_up;   /* give_up(plan, error): takes a plan that has failed */
    PyObject *agree;     /* agree(digest, name): compares calls of ranks that share no memory */
    PyObject *keep;
    LogObject *log;
    Entry *entries;
    ChannelObject *channel; /* NULL where no call has one */
    vectorcallfunc vectorcall;
} PlanTableObject;

/* Make the objects that calls are compared with; -1 where Python has raised. */
int table_import(void);

#endif
