/* Samples and links of a flight file (mpicoll/flight/layout.py): counters of the calling thread, and
   of the TCP connections of the process.

   A sample takes three system calls, about a microsecond. A descriptor stays open for the thread that
   took the last sample. Connections are found by their numbers, so that no other descriptor is opened. */

#ifndef MPICOLL_COUNTERS_H
#define MPICOLL_COUNTERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <time.h>

enum { SECOND = 1000000000 }; /* in nanoseconds */

/* The nanoseconds that a clock tells. */
static inline int64_t time_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

/* A ring of entries. The first word of an entry is its number, the last one its check. */
typedef struct {
    uint64_t *memory;
    size_t words; /* of an entry */
    uint64_t entries, written;
} EntryRing;

typedef struct {
    EntryRing samples, links;
    int schedstat;       /* a descriptor of /proc/thread-self/schedstat, -1 without one */
    uint32_t thread;     /* the thread of which it is, 0 before the first sample */
    int64_t second;      /* of the last probe and reading of connections, since the epoch */
    int next_descriptor; /* where the search for connections goes on */
} Counters;

#pragma GCC visibility push(hidden)

/* 0 where the memory does not hold whole entries. */
int counters_make(Counters *counters, const Py_buffer *samples, const Py_buffer *links);

/* Write a sample of the calling thread, and once a second readings of the connections.

   at, ns: the present moment in ticks of the rows, and in nanoseconds since the epoch.
   messages, where: the ticks of the thread in messages so far, and the line of the present one. */
void counters_record(Counters *counters, uint32_t thread, int64_t at, int64_t ns, int64_t messages,
                     uint32_t where);

void counters_close(Counters *counters);

#pragma GCC visibility pop

#endif
