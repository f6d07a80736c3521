/* The digests by which the ranks of a node compare their calls, in shared memory.

   Each rank has two lines, for calls in turn: the number of the call, the length of what is exchanged,
   and the digest of the call. A rank publishes the digest of its call, runs what does not depend on
   the other ranks, and compares the digests in its first wait. Nothing here knows Python. */

#ifndef MPICOLL_DIGESTS_H
#define MPICOLL_DIGESTS_H

#include "program.h"

enum { LINE_NUMBER, LINE_LENGTH, LINE_DIGEST };

typedef struct {
    int64_t **lines; /* for each rank */
    int64_t size, rank;
    int64_t stride;  /* 64-bit words from the one line to the other */
    int64_t *number; /* of the last call whose digest was published */
} Digests;

/* The comparison of one call. */
typedef struct {
    int64_t number, digest;
    int64_t peer; /* the next rank whose digest is read */
    int differs;  /* a rank has published another digest */
} Comparison;

/* The line of a rank for a call. */
static inline int64_t *digest_line(const Digests *all, int64_t rank, int64_t number)
{
    return all->lines[rank] + number % 2 * all->stride;
}

/* Publish the digest of the next call. */
static inline Comparison digest_publish(const Digests *all, int64_t digest)
{
    const Comparison comparison = {.number = ++*all->number, .digest = digest};
    int64_t *const line = digest_line(all, all->rank, comparison.number);
    line[LINE_LENGTH] = 0;
    line[LINE_DIGEST] = digest;
    word_raise(line + LINE_NUMBER, comparison.number, NULL);
    return comparison;
}

/* Compare with all ranks. WAITING: the rank `peer` has not published its digest yet. */
static inline enum state digest_compare(
    const Digests *all, Comparison *comparison, int64_t wait_ns)
{
    for (; comparison->peer < all->size; comparison->peer++) {
        if (comparison->peer == all->rank)
            continue;
        const int64_t *const line = digest_line(all, comparison->peer, comparison->number);
        if (!word_comes(line + LINE_NUMBER, comparison->number, wait_ns))
            return WAITING;
        comparison->differs |= line[LINE_DIGEST] != comparison->digest;
    }
    return DONE;
}

#endif
