/* What the ranks of a node say of a call before they run it: which one it is, in shared memory.

   Each has two lines, for calls in turn: the number of the call, the length of what is exchanged,
   and the digest of the call. Nothing here knows Python. */

#ifndef MPICOLL_STATEMENTS_H
#define MPICOLL_STATEMENTS_H

#include "program.h"

enum { NUMBER, LENGTH, DIGEST };

typedef struct {
    int64_t **lines; /* for each rank */
    int64_t size, rank;
    int64_t stride;  /* 64-bit words from the one line to the other */
    int64_t *number; /* of the last call that was stated */
} Statements;

/* The line of a rank for a call. */
static inline int64_t *stated(const Statements *all, int64_t rank, int64_t number)
{
    return all->lines[rank] + number % 2 * all->stride;
}

/* State a call; its number. */
static inline int64_t state_call(const Statements *all, int64_t digest)
{
    const int64_t number = ++*all->number;
    int64_t *own = stated(all, all->rank, number);
    own[LENGTH] = 0;
    own[DIGEST] = digest;
    word_raise(own + NUMBER, number);
    return number;
}

#endif
