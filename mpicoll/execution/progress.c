/* The progress thread: see progress.h.

   A lock guards the list. The thread lets go of it while it runs a program, which it names in
   `running`: whoever holds the lock may do as he likes with every other program. */

#define _GNU_SOURCE
#include "progress.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

/* Rows of a program that run before another one has its turn, or its owner may have it back. */
enum { ROWS = 8 };
/* Nanoseconds in which its owner alone may take a program up: he often waits for it at once. */
enum { GRACE = 20000 };
/* While nothing advances the thread yields its core, for so many nanoseconds, and then naps: who
   computes may share that core. After so many naps in which nothing was given it sleeps. */
enum { AWAKE = 100000, FIRST_NAP = 50000, LAST_NAP = 1000000, NAPS = 20, SLACK = 5000 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock;
static pthread_cond_t wake;
static enum { ABSENT, AWAKENED, NAPPING, ASLEEP } thread;
static Program *listed, *running;
static int stopped;
static int64_t arrivals;

/* -- the list, under the lock ------------------------------------------------------------------ */

static void link_program(Program *program)
{
    program->next = listed, program->link = &listed;
    if (listed)
        listed->link = &program->next;
    listed = program;
}

static void unlink_program(Program *program)
{
    if (!program->link)
        return;
    *program->link = program->next;
    if (program->next)
        program->next->link = program->link;
    program->link = NULL, program->wanted = 0;
}

/* -- the thread -------------------------------------------------------------------------------- */

/* Run some rows of a program; whether it has advanced. */
static int run_rows(Program *program)
{
    const int64_t before = program->position, left = program->length - before;
    program->until = before + (left < ROWS ? left : ROWS);
    running = program;
    pthread_mutex_unlock(&lock);
    const enum state state = program_advance(program, 0, 0);
    pthread_mutex_lock(&lock);
    running = NULL;
    if (state == FAILED || program->position == program->length)
        unlink_program(program);
    return program->position != before;
}

/* Give every program its turn; whether one has advanced. */
static int run_all(void)
{
    int advanced = 0;
    const int64_t now = listed ? nanoseconds() : 0;
    for (Program *each = listed, *next; each && !stopped; each = next) {
        if (!each->wanted && now >= each->not_before)
            advanced |= run_rows(each);
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
    int64_t advanced = nanoseconds(), length = FIRST_NAP, naps = 0, seen = 0;
    prctl(PR_SET_TIMERSLACK, SLACK);
    pthread_mutex_lock(&lock);
    for (;;) {
        if (run_all()) {
            advanced = nanoseconds(), length = FIRST_NAP;
        } else if (listed && nanoseconds() - advanced < AWAKE) {
            pthread_mutex_unlock(&lock);
            sched_yield();
            pthread_mutex_lock(&lock);
        } else {
            naps = arrivals == seen ? naps + 1 : 0, seen = arrivals;
            if (rest(stopped || (!listed && naps > NAPS) ? 0 : length))
                advanced = nanoseconds(), length = FIRST_NAP, naps = 0;
            else
                length = 3 * length / 2 < LAST_NAP ? 3 * length / 2 : LAST_NAP;
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
        unlink_program(listed);
    running = NULL, thread = ABSENT;
}

static void begin(void)
{
    make_lock();
    pthread_atfork(before_fork, in_parent, in_child);
}

/* Signals are for the threads that were there before. */
static int make_thread(void)
{
    pthread_t made;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!pthread_create(&made, NULL, live, NULL)) {
        pthread_setname_np(made, "progress");
        pthread_detach(made);
        thread = AWAKENED;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return thread != ABSENT;
}

int progress_give(Program *program, int now)
{
    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
    program->not_before = now ? 0 : nanoseconds() + GRACE;
    program->given = !stopped && (thread != ABSENT || make_thread());
    int wakes = 0;
    if (program->given) {
        link_program(program);
        arrivals++;
        wakes = thread == ASLEEP || (now && thread == NAPPING);
        if (wakes)
            thread = AWAKENED;
    }
    pthread_mutex_unlock(&lock);
    if (wakes)
        pthread_cond_signal(&wake);
    return program->given;
}

int progress_try_take(Program *program)
{
    if (!program->given)
        return 1;
    pthread_mutex_lock(&lock);
    program->given = running == program;
    if (!program->given)
        unlink_program(program);
    pthread_mutex_unlock(&lock);
    return !program->given;
}

void progress_take(Program *program)
{
    while (!progress_try_take(program)) {
        pthread_mutex_lock(&lock);
        program->wanted = running == program;
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
        unlink_program(listed);
    pthread_mutex_unlock(&lock);
}
