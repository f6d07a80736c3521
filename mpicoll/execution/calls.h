/* How a call finds its program: what the types Calls and Queue share. */

#ifndef MPICOLL_CALLS_H
#define MPICOLL_CALLS_H

#include "module.h"
#include "queue.h"

enum { MOST_DIMENSIONS = 8, MOST_DTYPES = 32 };

/* An array as it was given; `kind` is 0 where there is none, IN_PLACE where the word for that stands.
   `beside` is a digest of what stands beside the array in a list or tuple. */
typedef struct {
    char *address;
    Py_ssize_t nbytes;
    int32_t kind, dimensions;
    Py_ssize_t shape[MOST_DIMENSIONS];
    uint64_t beside[2];
} Given;

enum { NAME, OP, COUNTS, ALGORITHM, WORDS };

typedef struct {
    PyObject *words[WORDS]; /* compared by identity */
    long root;
    Py_ssize_t apart; /* the bytes from x to out where they overlap */
    Given x, out;
} Key;

typedef struct {
    Key key;
    PyObject *kept; /* the objects of which the key has the addresses; NULL where the place is empty */
    PyObject *serve; /* a function of x and out that serves such calls instead of a program */
    int x_in_out;   /* the input lies in the array given as output */
    Py_ssize_t x_shift, out_shift; /* bytes from the arrays to where input and output begin */
    ProgramObject *program;
    int64_t digest, until; /* `until`: the program's run from which Python decides again */
    int returns;    /* whether this rank gets an array */
    PyObject *make; /* makes that array where none was given; True: another serves such a call, which
                       is the result */
    Py_buffer tally; /* of these calls; empty where nobody wants to know their times */
} Entry;

typedef struct {
    PyObject_HEAD
    PyTypeObject *tensors; /* arrays of this type, exactly */
    const struct DLExchange *exchange; /* for NumPy's, their dtypes, itemsizes and codes instead */
    PyObject *dtypes;
    PyTypeObject *lent; /* beside NumPy's, arrays of this type, exactly, are read by the table */
    int32_t lent_kinds[MOST_DTYPES]; /* as the table has them, for each of NumPy's dtypes */
    Statements statements;
    int64_t spins;
    Py_buffer number; /* of the last call that was stated, and whether the group has ended */
    PyObject *slow, *wait, *broken, *keep;
    PyObject *late; /* told of a call that was left unsettled, and in which the ranks differed */
    PyObject *unsettled; /* the name of the last call, where this rank has not read what others state */
    int64_t settles; /* what it has stated of that call */
    PyObject *in_place, *datatype; /* a word, and the type of objects that are known by identity */
    int in_method; /* it is called by methods of Python, one frame above the user's */
    Entry *entries;
} CallsObject;

/* Read an array; 0 where only Python understands it, which may have raised. */
int calls_read(const CallsObject *self, PyObject *array, Given *given, int written);

/* Say by how much the arrays of a key overlap. */
void calls_set_apart(Key *key);

/* What serves a call; NULL where nothing is known of it. */
Entry *calls_find(const CallsObject *self, const Key *key);

/* Say that a program has failed in the middle of a run. The error stays as it is: 0; or Python keeps it
   for the end of the call, which goes on: 1. */
int calls_give_up(CallsObject *self, PyObject *program);

#endif
