/* The types Ring and Log: rows of the flight recorder (mpicoll/flight/layout.py) from C.

   Ring is the memory of one rank's file, Log one group's calls in it. All is called by threads that
   hold Python's interpreter. The begin and the end of a call also take a sample (counters.h), every
   2 ms. If 200 us lie between two calls, both ends of the gap take one. Before rows are overwritten,
   their calls are added to totals, many at once.

   Messages have no rows: their time is added up, and samples have the sum. They take samples as calls do,
   but at their end only if they last for 200 us. */

#include "flight.h"

#include <pthread.h>
#include <structmember.h>

#include "counters.h"
#include "module.h"
#include "where.h"

typedef struct {
    uint64_t number, sequence;
    int64_t start, end;
    uint32_t group, call, where, thread, outcome, text;
    uint64_t check;
} Row;

/* The same moment by both clocks, when the file was made and lately. Then when the present message began,
   0 if there is none, and the ticks of the longest message. */
typedef struct {
    int64_t first_ticks, first_ns, ticks, ns, message, longest;
} Clock;

enum { BUCKETS = 96 };

/* The calls of one group, kind and line whose rows were overwritten; the first total has those for which
   there was no other. `folded`: the number of the last row that totals have. Buckets 4 (e - FIRST) + q have
   the calls of 2^e (1 + q / 4) ticks and more. */
typedef struct {
    uint32_t group, call, where, check; /* no check: unused */
    uint64_t calls, timed, ticks, least, folded, unused;
    uint32_t buckets[BUCKETS];
} Total;

_Static_assert(sizeof(Row) == 64 && sizeof(Total) == 448, "as layout.py has them");

enum { UNDER_WAY, COMPLETED, RAISED, ISSUED };

/* Nanoseconds between two samples, and between two calls, from which on a gap has its own samples. They
   cost some percent of a call of 1 MiB: calls that follow each other directly take few. */
enum { SAMPLE_INTERVAL = 2000000, LONG_GAP = 200000 };

/* A thread polls if its next test comes within LONG_GAP / TESTS_IN_GAP, or after less than SHORT_RUN nanoseconds of
   processor time. The first check saves a call of the system, which takes as long as some tests. */
enum { TESTS_IN_GAP = 20, SHORT_RUN = 50000 };

/* Rows that are added up at once; looks for a total; the exponent of the first bucket. */
enum { CHUNK = 64, PROBES = 16, FIRST_EXPONENT = 6 };

/* The parts of the file that a ring writes. */
enum { ROWS, CLOCK, SAMPLES, LINKS, TOTALS, VIEWS };

typedef struct {
    PyObject_HEAD
    Py_buffer views[VIEWS];
    Row *rows; /* NULL once it is closed */
    Clock *clock;
    Counters counters;
    int64_t next_sample, last_moment, long_gap; /* ticks; the last begin or end of a call */
    int has_gap;                                /* a long gap ended, and its call has no sample at its end */
    uint64_t mask, written;
    Total *totals;
    uint32_t last_total; /* the place of the last one, but for the first total */
    int by_processor; /* ticks are the processor's; else nanoseconds */
    Sites sites;
    PyObject *describe; /* describe(error): the place of its text in the table */
} RingObject;

struct LogObject {
    PyObject_HEAD
    RingObject *ring;
    uint32_t group;
    long long sequence;
    const PyThreadState *inside; /* the thread that is in a call, and its row */
    uint64_t row;
};

/* -- rows -------------------------------------------------------------------------------------- */

/* The processor's own counter takes half the time of the system's clock, which is read from it. */
static int64_t now(const RingObject *ring)
{
#if defined(__x86_64__)
    if (ring->by_processor)
        return (int64_t)__builtin_ia32_rdtsc();
#endif
    (void)ring;
    return time_of(CLOCK_MONOTONIC);
}

/* Read both clocks, again if the thread was interrupted between them. */
static void set_clock(RingObject *ring)
{
    enum { TRIES = 4, MAX_TICKS = 2000 };
    for (int attempt = 0; attempt < TRIES; attempt++) {
        const int64_t before = now(ring), ns = time_of(CLOCK_MONOTONIC);
        const int64_t ticks = now(ring) - before;
        ring->clock->ticks = before + ticks / 2, ring->clock->ns = ns;
        if (ticks < MAX_TICKS)
            break;
    }
}

static uint64_t check_of(const Row *row, uint64_t number)
{
    uint64_t sum = number * 0x9e3779b97f4a7c15u + row->sequence * 0xc2b2ae3d27d4eb4fu +
                   (uint64_t)row->start * 0x165667b19e3779f9u +
                   (row->group | (uint64_t)row->call << 32) * 0x27d4eb2f165667c5u +
                   (row->where | (uint64_t)row->thread << 32) * 0x85ebca77c2b2ae63u;
    return sum ^ sum >> 29;
}

/* The system's number of this thread, 0 until it is asked for. */
static _Thread_local uint32_t thread_number;

/* The row of the call that this thread is in, which has the time of its messages, too; 0 if there is none. */
static _Thread_local uint64_t outer_row;

/* The ticks of this thread in messages. */
static _Thread_local int64_t message_ticks;

/* The last message of this thread if that was a test without success: its function, its end, and the processor time of
   the thread then, 0 if nobody asked for it, as the gap before the test was short. */
static _Thread_local struct {
    const PyObject *function;
    int64_t end, running;
} failed_test;

/* The thread of a forked child has another number. */
static void reset_thread_number(void)
{
    thread_number = 0;
}

int flight_import(void)
{
    if (pthread_atfork(NULL, NULL, reset_thread_number) == 0)
        return sites_import();
    PyErr_NoMemory();
    return -1;
}

static uint32_t current_thread(void)
{
    if (!thread_number)
        thread_number = (uint32_t)PyThread_get_thread_native_id();
    return thread_number;
}

/* Samples are due when the time of day is a multiple of the interval. So all ranks take them in the same
   call, where they delay the others once and not in turn. */
__attribute__((noinline, cold)) static void take_sample(RingObject *ring, uint32_t where)
{
    const Clock *const clock = ring->clock;
    set_clock(ring);
    const int64_t day = time_of(CLOCK_REALTIME), next = SAMPLE_INTERVAL - day % SAMPLE_INTERVAL;
    counters_record(&ring->counters, current_thread(), clock->ticks, day, message_ticks, where);
    const int64_t ticks = clock->ticks - clock->first_ticks, ns = clock->ns - clock->first_ns;
    const double ticks_per_ns = ns > 0 ? (double)ticks / (double)ns : 0.0;
    ring->next_sample = clock->ticks + (int64_t)(ticks_per_ns * (double)next);
    ring->long_gap = (int64_t)(ticks_per_ns * LONG_GAP);
}

/* Take a sample if a long gap without calls and messages ends, or one is due; return the time. */
static int64_t end_gap(RingObject *ring, int64_t start)
{
    const int is_long = start - ring->last_moment >= ring->long_gap;
    ring->has_gap |= is_long;
    if (!is_long && start < ring->next_sample)
        return start;
    take_sample(ring, 0);
    return now(ring);
}

/* Return the total for a row; the first one where there is no room for another. */
static Total *total_of(const RingObject *ring, const Row *row)
{
    const uint32_t key = row->group * 0x9e3779b1u + row->call * 0x85ebca77u + row->where * 0xc2b2ae3du;
    uint32_t place = (uint32_t)((uint64_t)key * ring->last_total >> 32);
    for (int probe = 0; probe < PROBES; probe++) {
        Total *const total = ring->totals + place + 1;
        if (total->group == row->group && total->call == row->call && total->where == row->where)
            return total;
        if (!total->check) {
            total->group = row->group, total->call = row->call, total->where = row->where;
            __atomic_store_n(&total->check, key | 1, __ATOMIC_RELEASE);
            return total;
        }
        place = place + 1 < ring->last_total ? place + 1 : 0;
    }
    return ring->totals;
}

static void add_up(Total *total, const Row *row)
{
    total->calls++;
    if (row->outcome != COMPLETED && row->outcome != RAISED)
        return;
    const uint64_t ticks = row->end > row->start ? (uint64_t)(row->end - row->start) : 0;
    if (ticks < total->least || !total->timed)
        total->least = ticks;
    total->timed++, total->ticks += ticks;
    const int exponent = ticks >> FIRST_EXPONENT ? 63 - __builtin_clzll(ticks) : FIRST_EXPONENT;
    const int bucket = 4 * (exponent - FIRST_EXPONENT) + (int)(ticks >> (exponent - 2) & 3);
    uint32_t *const count = total->buckets + (bucket < BUCKETS ? bucket : BUCKETS - 1);
    *count += *count < UINT32_MAX;
}

/* Add up the calls of the oldest rows, which the next ones overwrite. */
__attribute__((noinline)) static void fold_rows(RingObject *ring)
{
    const uint64_t first = ring->written - ring->mask; /* the number of the oldest row */
    const Row *last = NULL;
    Total *total = NULL;
    for (uint64_t number = first; number < first + CHUNK; number++) {
        const Row *const row = ring->rows + ((number - 1) & ring->mask);
        if (row->number != number)
            continue;
        if (!last || row->call != last->call || row->where != last->where || row->group != last->group)
            total = total_of(ring, row);
        add_up(total, last = row);
    }
    ring->totals->folded = first + CHUNK - 1;
}

static uint64_t begin(LogObject *log, uint32_t call, uint32_t outcome, int below_library)
{
    RingObject *ring = log->ring;
    if (!ring->rows)
        return 0;
    uint32_t where = sites_find(&ring->sites, below_library);
    if (!ring->rows || (!where && PyErr_Occurred()))
        return 0;
    const int64_t start = ring->last_moment = end_gap(ring, now(ring));
    if (ring->written % CHUNK == 0 && ring->written > ring->mask)
        fold_rows(ring);
    uint64_t number = ++ring->written;
    Row *row = ring->rows + ((number - 1) & ring->mask);
    /* A reader, or a kill, finds a row whole or without a number. */
    __atomic_store_n(&row->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    row->sequence = (uint64_t)++log->sequence;
    row->start = start;
    row->end = 0;
    row->group = log->group, row->call = call;
    row->where = where, row->thread = current_thread();
    row->outcome = outcome, row->text = 0;
    row->check = check_of(row, number);
    __atomic_store_n(&row->number, number, __ATOMIC_RELEASE);
    return number;
}

uint64_t log_start(LogObject *log, uint32_t call)
{
    return log ? begin(log, call, UNDER_WAY, 0) : 0;
}

uint64_t log_begin_below(LogObject *log, uint32_t call, int below_library)
{
    if (!log)
        return 0;
    const PyThreadState *state = PyThreadState_Get();
    if (log->inside == state)
        return 0;
    uint64_t number = begin(log, call, UNDER_WAY, below_library);
    if (number)
        log->inside = state, log->row = number;
    if (!outer_row)
        outer_row = number;
    return number;
}

static void finish(LogObject *log, uint64_t number, uint32_t outcome, uint32_t text)
{
    if (log->row == number)
        log->inside = NULL;
    RingObject *ring = log->ring;
    if (outer_row == number)
        outer_row = 0;
    if (!ring->rows)
        return;
    __builtin_prefetch(ring->rows + (ring->written & ring->mask), 1);
    Row *row = ring->rows + ((number - 1) & ring->mask);
    if (row->number != number)
        return;
    const int64_t end = now(ring);
    row->end = end;
    row->text = text;
    __atomic_store_n(&row->outcome, outcome, __ATOMIC_RELEASE);
    ring->last_moment = end;
    if (ring->has_gap || end >= ring->next_sample) {
        take_sample(ring, 0);
        ring->has_gap = 0;
    }
}

void log_done(LogObject *log, uint64_t number)
{
    if (number)
        finish(log, number, COMPLETED, 0);
}

void log_withdraw(LogObject *log, uint64_t number)
{
    RingObject *ring = number ? log->ring : NULL;
    Row *row = ring && ring->rows ? ring->rows + ((number - 1) & ring->mask) : NULL;
    if (!row || row->number != number)
        return;
    if (row->sequence == (uint64_t)log->sequence)
        log->sequence--;
    memset(row, 0, sizeof *row);
}

/* Return the place of an error's text, 0 where it has none, or where Python has raised. */
static uint32_t described(RingObject *ring, PyObject *error)
{
    PyObject *found = PyObject_CallOneArg(ring->describe, error);
    const unsigned long text = found ? PyLong_AsUnsignedLong(found) : 0;
    Py_XDECREF(found);
    return PyErr_Occurred() ? 0 : (uint32_t)text;
}

void log_end(LogObject *log, uint64_t number, int failed)
{
    if (!number)
        return;
    if (!failed) {
        finish(log, number, COMPLETED, 0);
        return;
    }
    PyObject *const error = take_raised();
    finish(log, number, RAISED, error ? described(log->ring, error) : 0);
    PyObject *const later = take_raised();
    if (later && error)
        PyException_SetContext(later, error);
    if (later || error)
        raise_again(later ? later : error);
}

/* -- messages ---------------------------------------------------------------------------------- */

/* Functions of MPI's messages share one vectorcall, in place of which they have `timed_call`. */
static RingObject *message_ring;
static vectorcallfunc plain_call;

/* Whether a result is that of a test without success: False, or a tuple that begins with it or with an index and it,
   None of a probe, or an empty list of some. */
static int is_failure(PyObject *result)
{
    if (result && PyTuple_CheckExact(result) && PyTuple_GET_SIZE(result)) {
        PyObject *const first = PyTuple_GET_ITEM(result, 0);
        const int has_index = PyLong_CheckExact(first) && PyTuple_GET_SIZE(result) > 1;
        result = has_index ? PyTuple_GET_ITEM(result, 1) : first;
    }
    return result == Py_False || result == Py_None ||
           (result && PyList_CheckExact(result) && !PyList_GET_SIZE(result));
}

/* Call a function that may wait for other ranks, and add its time up. The time between two tests
   counts, too, if the thread only waits. A sample is taken at the end of a long gap without calls and messages, at
   the end of a long message, and every 2 ms. */
static PyObject *time_call(PyObject *function, vectorcallfunc call, int is_test, PyObject *const *args,
                           size_t flags, PyObject *names)
{
    RingObject *const ring = message_ring;
    if (!ring->rows || outer_row)
        return call(function, args, flags, names);
    const int64_t entered = now(ring), gap = failed_test.function == function ? entered - failed_test.end : 0;
    const int64_t running = gap > ring->long_gap / TESTS_IN_GAP ? time_of(CLOCK_THREAD_CPUTIME_ID) : 0;
    if (!running || (failed_test.running && running - failed_test.running < SHORT_RUN))
        message_ticks += gap;
    const int64_t ticks = message_ticks;
    const int64_t start = end_gap(ring, entered);
    ring->clock->message = start;
    PyObject *const result = call(function, args, flags, names);
    if (!ring->rows)
        return result;
    const int64_t end = ring->last_moment = now(ring);
    message_ticks = ticks + end - start;
    failed_test.function = NULL;
    if (is_test && is_failure(result))
        failed_test.function = function, failed_test.end = end,
        failed_test.running = running ? time_of(CLOCK_THREAD_CPUTIME_ID) : 0;
    ring->clock->message = 0;
    if (end - start > ring->clock->longest)
        ring->clock->longest = end - start;
    if (end - start >= ring->long_gap || end >= ring->next_sample) {
        const uint32_t where = result ? sites_find(&ring->sites, 0) : 0;
        if (ring->rows)
            take_sample(ring, where), ring->has_gap = 0;
        if (result && PyErr_Occurred()) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

static PyObject *timed_call(PyObject *function, PyObject *const *args, size_t flags, PyObject *names)
{
    return time_call(function, plain_call, 0, args, flags, names);
}

static PyObject *timed_test(PyObject *function, PyObject *const *args, size_t flags, PyObject *names)
{
    return time_call(function, plain_call, 1, args, flags, names);
}

/* time_messages(functions, are_tests): add up the time of these functions of MPI from now on. */
static PyObject *time_messages(RingObject *self, PyObject *args)
{
    PyObject *functions;
    int are_tests;
    if (!PyArg_ParseTuple(args, "Op", &functions, &are_tests))
        return NULL;
    PyObject *const list = PySequence_Fast(functions, "a sequence of functions");
    for (Py_ssize_t place = 0; list && place < PySequence_Fast_GET_SIZE(list); place++) {
        PyObject *const function = PySequence_Fast_GET_ITEM(list, place);
        const Py_ssize_t offset = Py_TYPE(function)->tp_vectorcall_offset;
        if (!PyVectorcall_Function(function) || offset <= 0)
            continue;
        vectorcallfunc *const call = (vectorcallfunc *)(void *)((char *)function + offset);
        if (!plain_call)
            plain_call = *call;
        if (*call == plain_call)
            *call = are_tests ? timed_test : timed_call;
    }
    if (!list)
        return NULL;
    Py_DECREF(list);
    Py_XSETREF(message_ring, (RingObject *)Py_NewRef(self));
    Py_RETURN_NONE;
}

/* -- Ring -------------------------------------------------------------------------------------- */

/* Get the memory of the file; -1 where Python has raised. */
static int get_views(RingObject *self, PyObject *const *memory)
{
    for (int part = 0; part < VIEWS; part++)
        if (PyObject_GetBuffer(memory[part], self->views + part, PyBUF_WRITABLE) < 0)
            return -1;
    const Py_buffer *const rows = self->views + ROWS, *const clock = self->views + CLOCK;
    const uint64_t many = (uint64_t)rows->len / sizeof(Row);
    const Py_buffer *const totals = self->views + TOTALS;
    if (many < CHUNK || many & (many - 1) || totals->len < (Py_ssize_t)(2 * sizeof(Total)) ||
        (uintptr_t)totals->buf % sizeof(uint64_t) || (uintptr_t)rows->buf % sizeof(Row) ||
        clock->len != sizeof(Clock) || (uintptr_t)clock->buf % sizeof(uint64_t) ||
        !counters_make(&self->counters, self->views + SAMPLES, self->views + LINKS)) {
        PyErr_SetString(PyExc_ValueError,
                        "a power of two of rows of 64 bytes, a clock, samples, links and totals");
        return -1;
    }
    self->mask = many - 1;
    self->clock = clock->buf;
    self->totals = totals->buf;
    self->last_total = (uint32_t)((size_t)totals->len / sizeof(Total)) - 1;
    return 0;
}

static int ring_init(RingObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"rows",   "clock",  "samples",  "links",
                            "totals", "locate", "describe", "by_processor", NULL};
    PyObject *memory[VIEWS], *locate, *describe;
    int by_processor = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOOO|p", names, memory + ROWS, memory + CLOCK,
                                     memory + SAMPLES, memory + LINKS, memory + TOTALS, &locate,
                                     &describe, &by_processor))
        return -1;
    if (self->rows || self->describe) {
        PyErr_SetString(PyExc_TypeError, "it is made once");
        return -1;
    }
    if (get_views(self, memory) < 0)
        return -1;
#if defined(__x86_64__)
    self->by_processor = by_processor;
#endif
    if (sites_make(&self->sites, locate) < 0)
        return -1;
    self->describe = Py_NewRef(describe);
    self->rows = self->views[ROWS].buf;
    set_clock(self);
    self->clock->first_ticks = self->clock->ticks, self->clock->first_ns = self->clock->ns;
    return 0;
}

/* Write no more, and keep the file of the rows open no longer. */
static void release_memory(RingObject *self)
{
    self->rows = NULL;
    if (self->counters.samples.memory)
        counters_close(&self->counters);
    for (int part = 0; part < VIEWS; part++)
        if (self->views[part].obj)
            PyBuffer_Release(self->views + part);
}

static PyObject *ring_close(RingObject *self, PyObject *Py_UNUSED(ignored))
{
    release_memory(self);
    Py_RETURN_NONE;
}

static int ring_traverse(RingObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->describe);
    Py_VISIT(self->sites.locate);
    return 0;
}

static int ring_clear(RingObject *self)
{
    self->rows = NULL;
    Py_CLEAR(self->describe);
    sites_free(&self->sites);
    return 0;
}

static void ring_dealloc(RingObject *self)
{
    PyObject_GC_UnTrack(self);
    ring_clear(self);
    release_memory(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *ring_timed(RingObject *self, PyObject *function);

static PyMethodDef ring_methods[] = {
    {"close", (PyCFunction)ring_close, METH_NOARGS, NULL},
    {"time_messages", (PyCFunction)time_messages, METH_VARARGS, NULL},
    {"timed", (PyCFunction)ring_timed, METH_O, NULL},
    {NULL},
};

PyTypeObject RingType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.engine._compiled.Ring",
    .tp_basicsize = sizeof(RingObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)ring_init,
    .tp_traverse = (traverseproc)ring_traverse,
    .tp_clear = (inquiry)ring_clear,
    .tp_dealloc = (destructor)ring_dealloc,
    .tp_methods = ring_methods,
};

/* -- Log --------------------------------------------------------------------------------------- */

static int log_init(LogObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ring", "group", NULL};
    PyObject *ring;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!I", names, &RingType, &ring, &self->group))
        return -1;
    if (self->ring) {
        PyErr_SetString(PyExc_TypeError, "it is made once");
        return -1;
    }
    self->ring = (RingObject *)Py_NewRef(ring);
    return 0;
}

static void log_dealloc(LogObject *self)
{
    Py_XDECREF(self->ring);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *log_begin_method(LogObject *self, PyObject *call)
{
    unsigned long place = PyLong_AsUnsignedLong(call);
    if (PyErr_Occurred())
        return NULL;
    const uint64_t number = log_begin(self, (uint32_t)place);
    return log_has_raised(number) ? NULL : PyLong_FromUnsignedLongLong(number);
}

static PyObject *log_start_method(LogObject *self, PyObject *call)
{
    unsigned long place = PyLong_AsUnsignedLong(call);
    if (PyErr_Occurred())
        return NULL;
    const uint64_t number = log_start(self, (uint32_t)place);
    return log_has_raised(number) ? NULL : PyLong_FromUnsignedLongLong(number);
}

static PyObject *log_end_method(LogObject *self, PyObject *args)
{
    unsigned long long number;
    PyObject *error = Py_None;
    if (!PyArg_ParseTuple(args, "K|O", &number, &error))
        return NULL;
    if (number)
        finish(self, number, error == Py_None ? COMPLETED : RAISED,
               error == Py_None ? 0 : described(self->ring, error));
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* -- a function that is recorded --------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    LogObject *log;
    uint32_t call;
    PyObject *function;
    int is_issued;          /* the call goes on in a request of MPI's */
    PyObject *place;        /* place(bytes): the place of such calls of up to so many bytes; of issued calls a type
                               of requests, and what waits for one; NULL for none */
    Py_ssize_t argument;    /* that has these bytes */
    uint32_t places[64];    /* by the exponent of 2, 0 where not known yet */
} RecordedObject;

/* Return the place of a call by the bytes of its array, or of the first one of a list; Python may have raised. */
static uint32_t sized_place(RecordedObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *array = self->place && !self->is_issued && self->argument < count ? args[self->argument] : NULL;
    if (array && (PyList_CheckExact(array) || PyTuple_CheckExact(array)))
        array = PySequence_Fast_GET_SIZE(array) ? PySequence_Fast_GET_ITEM(array, 0) : NULL;
    Py_buffer view;
    if (!array || !PyObject_CheckBuffer(array))
        return self->call;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO) < 0) {
        PyErr_Clear();
        return self->call;
    }
    const Py_ssize_t nbytes = view.len;
    PyBuffer_Release(&view);
    const int exponent = nbytes > 1 ? 64 - __builtin_clzll((unsigned long long)nbytes - 1) : 0;
    if (nbytes && !self->places[exponent]) {
        PyObject *place = PyObject_CallFunction(self->place, "n", (Py_ssize_t)1 << exponent);
        self->places[exponent] = place ? (uint32_t)PyLong_AsUnsignedLong(place) : 0;
        Py_XDECREF(place);
    }
    return nbytes && self->places[exponent] ? self->places[exponent] : self->call;
}

/* The request of the last nonblocking call, until it is seen to be complete, and the thread that has it. */
static PyObject *issued;
static const PyThreadState *issuer;

void log_help_issued(void)
{
    enum { STEPS = 16 }; /* they take about as long as MPI's own call would */
    static PyObject *name;
    if (!issued || issuer != PyThreadState_Get() ||
        (!name && !(name = PyUnicode_InternFromString("Get_status"))))
        return;
    for (int step = 0; step < STEPS; step++) {
        PyObject *const answer = PyObject_CallMethodNoArgs(issued, name);
        const int is_open = answer == Py_False;
        PyErr_Clear();
        Py_XDECREF(answer);
        if (!is_open) {
            Py_CLEAR(issued);
            return;
        }
    }
}

/* Return the request of an issued call as one whose wait is recorded. */
static PyObject *recorded_request(const RecordedObject *self, PyObject *request)
{
    if (!self->place)
        return request;
    static PyObject *name;
    if (!name && !(name = PyUnicode_InternFromString("recorded_wait"))) {
        Py_DECREF(request);
        return NULL;
    }
    PyObject *const made = PyObject_CallOneArg(PyTuple_GET_ITEM(self->place, 0), request);
    Py_DECREF(request);
    if (made && PyObject_SetAttr(made, name, PyTuple_GET_ITEM(self->place, 1)) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    Py_XSETREF(issued, Py_XNewRef(made));
    issuer = PyThreadState_Get();
    return made;
}

static PyObject *recorded_call(PyObject *object, PyObject *const *args, size_t flags,
                               PyObject *names)
{
    RecordedObject *self = (RecordedObject *)object;
    const uint32_t call = sized_place(self, args, PyVectorcall_NARGS(flags));
    const uint64_t number = PyErr_Occurred()  ? 0
                            : self->is_issued ? begin(self->log, call, ISSUED, 0)
                                              : log_begin(self->log, call);
    if (log_has_raised(number))
        return NULL;
    PyObject *result = PyObject_Vectorcall(self->function, args, flags, names);
    if (!self->is_issued)
        log_end(self->log, number, !result);
    else if (!result)
        log_withdraw(self->log, number);
    return result && self->is_issued ? recorded_request(self, result) : result;
}

static PyObject *timed_function(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    return time_call(((RecordedObject *)object)->function, PyObject_Vectorcall, 0, args, flags, names);
}

static int recorded_traverse(RecordedObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    Py_VISIT(self->place);
    return 0;
}

static int recorded_clear(RecordedObject *self)
{
    Py_CLEAR(self->function);
    Py_CLEAR(self->place);
    return 0;
}

static void recorded_dealloc(RecordedObject *self)
{
    PyObject_GC_UnTrack(self);
    recorded_clear(self);
    Py_XDECREF(self->log);
    PyObject_GC_Del(self);
}

static PyTypeObject RecordedType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.engine._compiled.Recorded",
    .tp_basicsize = sizeof(RecordedObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(RecordedObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)recorded_traverse,
    .tp_clear = (inquiry)recorded_clear,
    .tp_dealloc = (destructor)recorded_dealloc,
};

static RecordedObject *make_recorded(vectorcallfunc call, PyObject *function)
{
    RecordedObject *const made =
        PyType_Ready(&RecordedType) < 0 ? NULL : PyObject_GC_New(RecordedObject, &RecordedType);
    if (!made)
        return NULL;
    memset((char *)made + sizeof(PyObject), 0, sizeof *made - sizeof(PyObject));
    made->vectorcall = call, made->function = Py_NewRef(function);
    PyObject_GC_Track(made);
    return made;
}

/* timed(function): the function, whose time is added up as that of messages. */
static PyObject *ring_timed(RingObject *self, PyObject *function)
{
    Py_XSETREF(message_ring, (RingObject *)Py_NewRef(self));
    return (PyObject *)make_recorded(timed_function, function);
}

/* recorded(call, function, is_issued, place, argument): the function, whose calls are recorded; of issued
   calls the beginning alone, and the wait that `place` says. */
static PyObject *log_recorded(LogObject *self, PyObject *args)
{
    unsigned int call;
    PyObject *function;
    int is_issued = 0;
    PyObject *place = NULL;
    Py_ssize_t argument = 0;
    if (!PyArg_ParseTuple(args, "IO|pOn", &call, &function, &is_issued, &place, &argument))
        return NULL;
    RecordedObject *const made = make_recorded(recorded_call, function);
    if (!made)
        return NULL;
    made->log = (LogObject *)Py_NewRef(self);
    made->call = call, made->is_issued = is_issued;
    made->place = Py_XNewRef(place), made->argument = argument;
    return (PyObject *)made;
}

static PyMethodDef log_methods[] = {
    {"begin", (PyCFunction)log_begin_method, METH_O, NULL},
    {"start", (PyCFunction)log_start_method, METH_O, NULL},
    {"end", (PyCFunction)log_end_method, METH_VARARGS, NULL},
    {"recorded", (PyCFunction)log_recorded, METH_VARARGS, NULL},
    {NULL},
};

static PyMemberDef log_members[] = {
    {"sequence", T_LONGLONG, offsetof(LogObject, sequence), READONLY, NULL},
    {NULL},
};

PyTypeObject LogType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.engine._compiled.Log",
    .tp_basicsize = sizeof(LogObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)log_init,
    .tp_dealloc = (destructor)log_dealloc,
    .tp_methods = log_methods,
    .tp_members = log_members,
};
