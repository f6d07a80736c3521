/* The progress thread: see progress.h.

   A lock guards the list. The thread lets go of it while it runs a job, which it names in
   `running`: whoever holds the lock may do as he likes with every other job. */

#define _GNU_SOURCE
#include "progress.h"
#include "tuning.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

/* The slack of the timers of naps, in ns: the default of 50000 is as long as a nap. */
enum { SLACK = 5000 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock;
static pthread_cond_t wake;
static enum { ABSENT, AWAKENED, NAPPING, ASLEEP } thread;
static Job *listed, *running;
static int stopped;
static int64_t arrivals;

int64_t nanoseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* -- the list, under the lock ------------------------------------------------------------------ */

static void unlink_job(Job *job)
{
    if (!job->link)
        return;
    *job->link = job->next;
    if (job->next)
        job->next->link = job->link;
    job->link = NULL, job->wanted = 0;
}

/* -- the thread -------------------------------------------------------------------------------- */

/* Give a job its turn; whether it has advanced. */
static int run_job(Job *job)
{
    running = job, job->again = 0;
    pthread_mutex_unlock(&lock);
    const enum turn turn = job->run(job);
    pthread_mutex_lock(&lock);
    running = NULL;
    if (turn == ENDED && !job->again)
        unlink_job(job);
    return turn != IDLE;
}

/* Give every job its turn; whether one has advanced. */
static int run_all(void)
{
    int advanced = 0;
    const int64_t now = listed ? nanoseconds() : 0;
    for (Job *each = listed, *next; each && !stopped; each = next) {
        if (!each->wanted && now >= each->not_before)
            advanced |= run_job(each);
        next = each->next;
    }
    return advanced;
}

/* Nap, or sleep where `length` is 0; whether the thread was woken up. */
static int rest(int64_t length)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += length;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    thread = length ? NAPPING : ASLEEP;
    if (length)
        pthread_cond_timedwait(&wake, &lock, &end);
    while (thread == ASLEEP)
        pthread_cond_wait(&wake, &lock);
    const int woken = thread == AWAKENED;
    thread = AWAKENED;
    return woken;
}

static void *live(void *unused)
{
    int64_t advanced = nanoseconds(), length = FIRST_NAP_NS, naps = 0, seen = 0;
    prctl(PR_SET_TIMERSLACK, SLACK);
    pthread_mutex_lock(&lock);
    for (;;) {
        if (run_all()) {
            advanced = nanoseconds(), length = FIRST_NAP_NS;
        } else if (listed && nanoseconds() - advanced < YIELD_NS) {
            pthread_mutex_unlock(&lock);
            sched_yield();
            pthread_mutex_lock(&lock);
        } else {
            naps = arrivals == seen ? naps + 1 : 0, seen = arrivals;
            if (rest(stopped || (!listed && naps > NAPS) ? 0 : length))
                advanced = nanoseconds(), length = FIRST_NAP_NS, naps = 0;
            else
                length = 3 * length / 2 < LAST_NAP_NS ? 3 * length / 2 : LAST_NAP_NS;
        }
    }
    return unused;
}

/* -- its owners -------------------------------------------------------------------------------- */

static void make_lock(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* The child has neither the thread nor a part in what is under way. */
static void in_child(void)
{
    make_lock();
    while (listed)
        unlink_job(listed);
    running = NULL, thread = ABSENT;
}

static void begin(void)
{
    make_lock();
    pthread_atfork(before_fork, in_parent, in_child);
}

int thread_begin(pthread_t *made, void *(*begin_at)(void *), void *argument, const char *name)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int is_made = !pthread_create(made, NULL, begin_at, argument);
    if (is_made)
        pthread_setname_np(*made, name);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_made;
}

static int make_thread(void)
{
    pthread_t made;
    if (thread_begin(&made, live, NULL, "progress"))
        pthread_detach(made), thread = AWAKENED;
    return thread != ABSENT;
}

int progress_give(Job *job, int now)
{
    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
    job->given = !stopped && (thread != ABSENT || make_thread());
    int wakes = 0;
    if (job->given) {
        job->again = 1;
        if (!job->link) {
            job->not_before = nanoseconds() + GRACE_NS;
            job->next = listed, job->link = &listed;
            if (listed)
                listed->link = &job->next;
            listed = job;
        }
        job->not_before = now ? 0 : job->not_before;
        arrivals++;
        wakes = thread == ASLEEP || (now && thread == NAPPING);
        if (wakes)
            thread = AWAKENED;
    }
    pthread_mutex_unlock(&lock);
    if (wakes)
        pthread_cond_signal(&wake);
    return job->given;
}

int progress_try_take(Job *job)
{
    if (!job->given)
        return 1;
    pthread_mutex_lock(&lock);
    job->given = running == job;
    if (!job->given)
        unlink_job(job);
    pthread_mutex_unlock(&lock);
    return !job->given;
}

void progress_take(Job *job)
{
    while (!progress_try_take(job)) {
        pthread_mutex_lock(&lock);
        job->wanted = running == job;
        pthread_mutex_unlock(&lock);
        sched_yield();
    }
}

void progress_stop(void)
{
    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
    stopped = 1;
    while (running) {
        pthread_mutex_unlock(&lock);
        sched_yield();
        pthread_mutex_lock(&lock);
    }
    while (listed)
        unlink_job(listed);
    pthread_mutex_unlock(&lock);
}
