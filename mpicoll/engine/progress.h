/* The progress thread: it runs what was started while its owner does something else.

   A process has one, made when it is first needed. A job that was given to it is run by nobody else
   until it is taken back. Nothing here knows Python, or what a job is. */

#ifndef MPICOLL_PROGRESS_H
#define MPICOLL_PROGRESS_H

#include <pthread.h>
#include <stdint.h>

/* What a turn of a job has come to: nothing; something; the job is complete, or has failed. */
enum turn { IDLE, ADVANCED, ENDED };

typedef struct Job {
    enum turn (*run)(struct Job *job); /* run a little, never wait */
    /* Whether the thread was given this job and not yet asked to give it back, whether the owner
       waits for it, whether it was given once more since its last turn began, when it may begin,
       and the thread's list. */
    char given, wanted, again;
    int64_t not_before;
    struct Job *next, **link;
} Job;

/* Give a job that is not complete; `now`: even if that takes a call of the system, else within a
   millisecond. One that the thread has already gets another turn after it has ended. 0 where there
   is no thread: none can be made, or the process ends. */
int progress_give(Job *job, int now);

/* Take a job back, given or not, at the end of the turn that is under way. */
void progress_take(Job *job);

/* The same, but 0 instead of waiting for the end of a turn. */
int progress_try_take(Job *job);

/* Run nothing any more. */
void progress_stop(void);

/* Start a thread that takes no signals; whether it was started. */
int thread_begin(pthread_t *thread, void *(*begin_at)(void *), void *argument, const char *name);

/* Nanoseconds of a clock that nobody sets. */
int64_t nanoseconds(void);

#endif
