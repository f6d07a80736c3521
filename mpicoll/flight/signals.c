/* Signals that end a rank leave their number and their sender in its flight file; SIGUSR1 from
   outside of the job wakes a thread that prints what is known of the job (mpicoll/flight). SIGCONT, with
   which a stopped rank runs again, is counted.

   Whatever was installed before is called afterwards: a program's own handler, or the default. */

#include "signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counters.h"

/* As ENDING in mpicoll/flight/layout.py. */
typedef struct {
    uint32_t marks, number, sender, unused;
    int64_t when;
} Ending;

typedef struct {
    int number;
    int installed;
    struct sigaction before;
} Watched;

static Watched watched[] = {
    {.number = SIGTERM}, {.number = SIGHUP}, {.number = SIGXCPU}, {.number = SIGUSR1},
    {.number = SIGCONT}};
enum { MANY = sizeof watched / sizeof *watched };

/* SIGUSR1's before `faulthandler` was registered for it: MPICH and Intel MPI have a handler. */
static struct sigaction library;

static Py_buffer view;
static Ending *ending;
static int woken = -1;
static uint32_t continued;

uint32_t signals_continued(void)
{
    return __atomic_load_n(&continued, __ATOMIC_RELAXED);
}

static void go_on(const Watched *each, siginfo_t *info, void *context)
{
    void (*handler)(int) = each->before.sa_handler;
    if (each->before.sa_flags & SA_SIGINFO) {
        each->before.sa_sigaction(each->number, info, context);
    } else if (handler == SIG_DFL && each->number == SIGCONT) {
        /* The process runs again already. */
    } else if (handler == SIG_DFL) {
        /* It is held back until this handler returns, and then ends the process. */
        sigaction(each->number, &each->before, NULL);
        raise(each->number);
    } else if (handler != SIG_IGN) {
        handler(each->number);
    }
}

static void call_library(siginfo_t *info, void *context)
{
    const Watched chained = {.number = SIGUSR1, .before = library};
    if (library.sa_handler != SIG_DFL && library.sa_handler != SIG_IGN)
        go_on(&chained, info, context);
}

static void leave(int number)
{
    _exit(number);
}

/* In a copy of this process: `faulthandler` reads the frames of threads that may end meanwhile, and
   then at times reads where nothing is, or without end. */
static void write_stacks(const Watched *each, siginfo_t *info, void *context)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGVTALRM};
    static const struct itimerval limit = {.it_value.tv_usec = 200000};
    int status = 1;
    for (int tries = 0; tries < 3 && status; tries++) {
        /* No signal tells of its end, so that the program does not come to know of this child. */
        long copy = syscall(SYS_clone, 0L, 0L, 0L, 0L, 0L);
        if (copy < 0)
            return;
        if (copy == 0) {
            for (unsigned i = 0; i < sizeof fatal / sizeof *fatal; i++)
                signal(fatal[i], leave);
            setitimer(ITIMER_VIRTUAL, &limit, NULL);
            go_on(each, info, context);
            _exit(0);
        }
        while (waitpid((pid_t)copy, &status, __WALL) < 0 && errno == EINTR)
            ;
    }
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    int before = errno;
    if (number == SIGUSR1) {
        uint64_t one = 1;
        /* Ranks and the commands ask each other by sigqueue. */
        if (woken >= 0 && info->si_code == SI_USER && write(woken, &one, sizeof one) < 0)
            errno = 0;
    } else if (number == SIGCONT) {
        __atomic_fetch_add(&continued, 1, __ATOMIC_RELAXED);
    } else if (ending) {
        ending->sender = info->si_code == SI_USER ? (uint32_t)info->si_pid : 0;
        ending->when = time_of(CLOCK_MONOTONIC);
        __atomic_store_n(&ending->number, (uint32_t)number, __ATOMIC_RELEASE);
    }
    for (int i = 0; i < MANY; i++)
        if (watched[i].number == number)
            (number == SIGUSR1 ? write_stacks : go_on)(&watched[i], info, context);
    if (number == SIGUSR1)
        call_library(info, context);
    errno = before;
}

static PyObject *unwatch(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    for (int i = 0; i < MANY; i++) {
        struct sigaction now;
        if (watched[i].installed && sigaction(watched[i].number, NULL, &now) == 0 &&
            (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_signal)
            sigaction(watched[i].number, &watched[i].before, NULL);
        watched[i].installed = 0;
    }
    ending = NULL, woken = -1;
    if (view.obj)
        PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *save_handler(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (sigaction(SIGUSR1, NULL, &library) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyObject *watch(PyObject *module, PyObject *args)
{
    PyObject *memory;
    int descriptor;
    if (!PyArg_ParseTuple(args, "Oi", &memory, &descriptor))
        return NULL;
    Py_DECREF(unwatch(module, NULL));
    if (PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE) < 0)
        return NULL;
    if (view.len < (Py_ssize_t)sizeof(Ending) || (uintptr_t)view.buf % sizeof(uint64_t)) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "too little memory, or not aligned");
        return NULL;
    }
    ending = view.buf, woken = descriptor;
    ending->marks = 1;
    for (int i = 0; i < MANY; i++) {
        Watched *each = &watched[i];
        if (sigaction(each->number, NULL, &each->before) < 0)
            continue;
        /* With the flags and the mask of the handler that it calls: a handler of Python's interrupts
           system calls (no SA_RESTART), as it runs only after them. */
        struct sigaction own = each->before;
        own.sa_sigaction = on_signal;
        own.sa_flags |= SA_SIGINFO | SA_ONSTACK;
        if (each->before.sa_handler == SIG_DFL)
            own.sa_flags |= SA_RESTART;
        int has_none = !(each->before.sa_flags & SA_SIGINFO) &&
                       (each->before.sa_handler == SIG_IGN ||
                        (each->number == SIGUSR1 && each->before.sa_handler == SIG_DFL));
        if (!has_none && !(each->number == SIGUSR1 && descriptor < 0))
            each->installed = sigaction(each->number, &own, NULL) == 0;
    }
    Py_RETURN_NONE;
}

/* await_request(descriptor, beat): write the time of the monotonic clock to the memory `beat` once a
   second, until the descriptor has an event. Without the interpreter, so that a rank which keeps it beats,
   too. */
static PyObject *await_request(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { PERIOD = 1000 };
    struct pollfd event = {.events = POLLIN};
    Py_buffer beat;
    if (!PyArg_ParseTuple(args, "iw*", &event.fd, &beat))
        return NULL;
    if (beat.len < (Py_ssize_t)sizeof(int64_t) || (uintptr_t)beat.buf % sizeof(int64_t)) {
        PyBuffer_Release(&beat);
        PyErr_SetString(PyExc_ValueError, "too little memory, or not aligned");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    do {
        __atomic_store_n((int64_t *)beat.buf, time_of(CLOCK_MONOTONIC), __ATOMIC_RELAXED);
    } while (poll(&event, 1, PERIOD) <= 0);
    uint64_t number;
    if (read(event.fd, &number, sizeof number) < 0)
        errno = 0;
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&beat);
    Py_RETURN_NONE;
}

PyMethodDef signal_methods[] = {
    {"await_request", await_request, METH_VARARGS, NULL},
    {"save_handler", save_handler, METH_NOARGS, NULL},
    {"watch_signals", watch, METH_VARARGS, NULL},
    {"unwatch_signals", unwatch, METH_NOARGS, NULL},
    {NULL},
};
