/* The numbers that decide speed, in C; mpicoll/tuning.py has those of the Python code, and says which
   machines Zen 4 and SPR are. */

#ifndef MPICOLL_TUNING_H
#define MPICOLL_TUNING_H

enum {
    /* Looks at a word, or tests of a message, before a wait yields its core, and yields between two looks at the
       clock.
       Unit: looks, yields. Evidence: EPYC, 2026-11-29, on two cores 16 and 1,000 looks take the same time, a look
       takes 15 ns; on emulated nodes that share these cores `allreduce` of 8 bytes takes 7 and 110 us; SPR,
       2026-11-27, the clock takes 28 ns, a yield 243. Gain: 90 % there, and 10 % of the looks at a word. */
    YIELDS = 16,
    /* Time for which a wait, or an idle progress thread, yields the core.
       Unit: ns. Evidence: Zen 4, 2026-11-29, 9 programs on 2 and 4 ranks take the same time with 20 to 200 us.
       Gain: a wait of less than 0.2 ms needs no interpreter. */
    YIELD_NS = 200000,
    /* The same of a wait that has a core to itself, or that Python runs.
       Unit: ns. Evidence: EPYC, 2 ranks, 2026-11-30, one sleeps 4 ms, the other waits and then computes: 0.88 of
       MPI's speed with 0.2 ms, as a core that has slept is slow, 1.00 with 8 ms; SPR, 2026-11-27, Python's `sleep`
       of 50 us takes 105. Gain: 12 %; waits of up to 20 ms end up to 0.1 ms sooner. */
    LONG_YIELD_NS = 20000000,
    /* Rows that the progress thread runs before another job has its turn.
       Unit: rows. Evidence: none measured. Gain: an owner takes its job back within 8 rows. */
    TURN_ROWS = 8,
    /* Time after a start in which the progress thread leaves a job to its owner.
       Unit: ns. Evidence: none measured. Gain: most owners wait at once, and share no core then. */
    GRACE_NS = 20000,
    /* The first nap of an idle progress thread, and the longest: each is 1.5 times the one before.
       Unit: ns. Evidence: SPR, 2026-11-27, a nap of 50 us takes 59. Gain: a core for other work. */
    FIRST_NAP_NS = 50000,
    LAST_NAP_NS = 1000000,
    /* Naps without a start before the thread sleeps until it is woken.
       Unit: naps. Evidence: none measured. Gain: a start needs no call of the system. */
    NAPS = 20,
    /* An adaptive copy times its first bytes, once in so many bytes.
       Unit: bytes. Evidence: Zen 4, 2026-11-23, a trial takes 0.2 to 2.3 us, a MiB 40. Gain: the
       slower way costs 70 %, trials 5 % at most. */
    TRIAL = 4096,
    TRIAL_EVERY = 1 << 20,
    /* The smallest copy into a slot that is written adaptively.
       Unit: bytes. Evidence: Zen 4, two L3 caches, 2026-11-23, `allreduce` of 16 KiB takes 9.4 us through the
       cache and 2.8 past it; 2026-11-29, a channel's `reduce` of 1 KiB 0.8 and 1.1. Gain: 70 %. */
    ADAPTIVE_COPY = 2048,
    /* From so much for each cache line on, another core is slow to give its lines up.
       Unit: ns. Evidence: Zen 4, 2026-11-23, 3 to 7 with one L3 cache, 12 to 36 with two. Gain: 70 %
       of `allreduce` of 16 KiB. */
    SLOW_LINE_NS = 11,
    /* Trials on end that must be fast before copies go through the cache.
       Unit: trials. Evidence: Zen 4, 2026-11-23, one trial in ten is fast with two L3 caches. Gain:
       `alltoall` of 8 KiB among near and far ranks takes 1.3 us instead of 2.6. */
    FAST_TRIALS = 4,
    /* The smallest copy that is written past the cache: below, its fence costs what it saves.
       Unit: bytes. Evidence: none recorded, 2026-11-24. Gain: a store fence. */
    STREAMED_BYTES = 1024,
    /* How far ahead a streamed copy fetches its source.
       Unit: bytes. Evidence: Zen 4, 2026-11-26, 8 MiB from memory 20 GB/s instead of 17, 256 KiB from a
       third cache 26 instead of 19. Gain: 15 to 37 %. */
    AHEAD = 2048,
    /* How many times the bytes of a call's objects, and first of a unit, a freed piece of memory has, of which glibc
       then keeps two.
       Unit: pieces. Evidence: EPYC, 2 ranks, 2026-11-30, `bcast` of an array of 1 MiB takes 950 us, 350 with it,
       `gather` 2,000 and 150; a Jacobi program with temporaries of 256 KiB 0.45 s and 0.14, as a new page of the
       system takes 2 us. Gain: 60 to 90 %. */
    KEPT_CALLS = 4,
    /* The communicators made of one that are served from their first call on, and the calls of any other one that
       MPI runs first.
       Unit: communicators, calls. Evidence: EPYC, 2 ranks, 2026-11-30, to serve a communicator costs 110 us once,
       and a short call takes 1 to 2 us less then; a program that makes three in each phase, for 1 to 8 calls, took 2.9
       times as long with every one served. Gain: 65 %. */
    FIRST_MADE = 4,
    FIRST_CALLS = 512,
    /* A fold of many operands works on so many bytes at a time, which stay in the first cache.
       Unit: bytes. Evidence: SPR, 2026-11-22, 16 operands of 16 KiB. Gain: 45 %. */
    FOLD_TILE = 4096,
};

#endif
