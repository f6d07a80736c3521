/* How long the calls of one kind take: an array of 64-bit integers that Python owns. */

#ifndef MPICOLL_TALLY_H
#define MPICOLL_TALLY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "program.h"

/* All calls are counted; of short ones only some are timed, TIMED in all and the next one NEXT.
   ENDED is the time at which the last timed call ended. */
enum {
    TALLY_CALLS, TALLY_TIMED, TALLY_TICKS, TALLY_LEAST, TALLY_MOST, TALLY_NEXT, TALLY_ENDED,
    TALLY_BUCKETS, TALLY_LENGTH = 256
};

/* Below so many ticks, one or two microseconds, reading the counter twice is a burden. */
#if defined(__x86_64__)
enum { TALLY_SHORT = 4096 };
#elif defined(__aarch64__)
enum { TALLY_SHORT = 64 };
#else
enum { TALLY_SHORT = 2000 };
#endif

/* The processor's own counter where it has one that is read in a few nanoseconds. */
static inline int64_t ticks(void)
{
#if defined(__x86_64__)
    return (int64_t)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    int64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#else
    return nanoseconds();
#endif
}

/* Four buckets for each power of two: bucket 4 (e - 1) + q holds 2^e (1 + q / 4) and what follows. */
static inline int tally_bucket(int64_t spent)
{
    if (spent < 4)
        return spent < 0 ? 0 : (int)spent;
    int exponent = 63 - __builtin_clzll((uint64_t)spent);
    return 4 * (exponent - 1) + (int)(spent >> (exponent - 2) & 3);
}

/* Add a timed call. */
static inline void tally_add(int64_t *tally, int64_t began, int64_t ended)
{
    const int64_t spent = ended - began;
    if (!tally[TALLY_TIMED] || spent < tally[TALLY_LEAST])
        tally[TALLY_LEAST] = spent;
    if (spent > tally[TALLY_MOST])
        tally[TALLY_MOST] = spent;
    tally[TALLY_TIMED]++;
    tally[TALLY_TICKS] += spent;
    tally[TALLY_ENDED] = ended;
    tally[TALLY_BUCKETS + tally_bucket(spent)]++;
}

/* Choose the next call to time: one of the next 16, by chance, as programs have rhythms. */
static inline void tally_choose(int64_t *tally)
{
    int64_t calls = tally[TALLY_CALLS], skipped = 0;
    if (tally[TALLY_TICKS] < tally[TALLY_TIMED] * TALLY_SHORT)
        skipped = (int64_t)((uint64_t)calls * 0x9e3779b97f4a7c15u >> 60);
    tally[TALLY_NEXT] = calls + 1 + skipped;
}

extern PyMethodDef tally_methods[];

/* Open a tally to write to it; -1 where Python has raised. */
int tally_open(PyObject *tally, Py_buffer *view);

#endif
