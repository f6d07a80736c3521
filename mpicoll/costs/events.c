/* The simulation of every message of a schedule (see events.py).
 *
 * A message is ready when both its ranks are in its round. It starts when a port of its sender, one
 * of its receiver and all links of its path are free. Of the messages that can start at one time,
 * the one that became ready first starts first; then the one that its sender lists first; then
 * the one of the lowest sender.
 *
 * Ports and links are resources. A message that finds a resource busy waits at it. Each resource
 * calls the first of its waiting messages when it becomes free, so a message is examined a few
 * times, however many others wait. */

#include "events.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NONE (-1)
#define FINISHED (-1)
#define EVENTS_BETWEEN_CHECKS (1 << 15)

typedef struct {
    double time;     /* when the message may start */
    int64_t message; /* the row of its sender */
    int64_t resource; /* that calls it, or NONE */
} Event;

typedef struct {
    /* The schedule: rounds of ranks, rows of rounds (a row is one side of a message). */
    const int64_t *base, *first, *round, *peer, *partner, *path, *links;
    const double *fold, *bytes, *slowness;
    const uint8_t *sends, *in_memory;
    int64_t ranks, rows, link_count, servers;
    /* The times of messages. */
    double latency, hold, beta, memory_alpha, memory_beta, hop;
    int counts_ports_in_memory;
    /* The state. */
    int64_t *now, *open;    /* round of each rank, and rows of it that have not ended */
    double *began, *ends;   /* when the round began, and when it ends as far as known */
    double *ready;          /* of each row */
    int64_t *left, *right;  /* heaps of the messages that wait at a resource */
    double *free_times;     /* of each server of each port, senders' ports first; then of links */
    int64_t *waiting, *called;
    double *called_time;
    Event *events;
    int64_t event_count, event_room, started;
} Simulation;

/* Whether a message precedes another one that could start at the same time. */
static int precedes(const Simulation *s, int64_t a, int64_t b)
{
    if (s->ready[a] != s->ready[b])
        return s->ready[a] < s->ready[b];
    int64_t a_place = a - s->first[s->round[a]], b_place = b - s->first[s->round[b]];
    if (a_place != b_place)
        return a_place < b_place;
    return a < b; /* rows are numbered by rank */
}

static int is_earlier(const Simulation *s, const Event *a, const Event *b)
{
    return a->time != b->time ? a->time < b->time : precedes(s, a->message, b->message);
}

static int push_event(Simulation *s, Event event)
{
    if (s->event_count == s->event_room) {
        int64_t room = s->event_room ? 2 * s->event_room : 1024;
        Event *events = PyMem_RawRealloc(s->events, (size_t)room * sizeof(Event));
        if (!events)
            return -1;
        s->events = events;
        s->event_room = room;
    }
    int64_t place = s->event_count++;
    while (place && is_earlier(s, &event, &s->events[(place - 1) / 2])) {
        s->events[place] = s->events[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    s->events[place] = event;
    return 0;
}

static Event pop_event(Simulation *s)
{
    Event first = s->events[0], last = s->events[--s->event_count];
    int64_t place = 0, child;
    while ((child = 2 * place + 1) < s->event_count) {
        if (child + 1 < s->event_count && is_earlier(s, &s->events[child + 1], &s->events[child]))
            child++;
        if (!is_earlier(s, &s->events[child], &last))
            break;
        s->events[place] = s->events[child];
        place = child;
    }
    s->events[place] = last;
    return first;
}

/* Merge two skew heaps of waiting messages. */
static int64_t merge(Simulation *s, int64_t a, int64_t b)
{
    int64_t root = NONE, *slot = &root;
    while (a != NONE && b != NONE) {
        if (precedes(s, b, a)) {
            int64_t other = a;
            a = b;
            b = other;
        }
        int64_t rest = s->right[a];
        s->right[a] = s->left[a];
        *slot = a;
        slot = &s->left[a];
        a = rest;
    }
    *slot = a == NONE ? b : a;
    return root;
}

/* Return the server of a port that becomes free first; a link has one server. */
static double *free_time(Simulation *s, int64_t resource)
{
    int64_t ports = 2 * s->ranks;
    if (resource >= ports)
        return &s->free_times[ports * s->servers + resource - ports];
    double *first = &s->free_times[resource * s->servers], *least = first;
    for (int64_t index = 1; index < s->servers; index++)
        if (first[index] < *least)
            least = &first[index];
    return least;
}

/* Let a resource call the first of its waiting messages. */
static int call_next(Simulation *s, int64_t resource, double now)
{
    int64_t message = s->called[resource] = s->waiting[resource];
    if (message == NONE)
        return 0;
    double time = *free_time(s, resource);
    s->called_time[resource] = time = time > now ? time : now;
    return push_event(s, (Event){time, message, resource});
}

static int uses_ports(const Simulation *s, int64_t message)
{
    return s->counts_ports_in_memory || !s->in_memory[message];
}

static int64_t owner(const Simulation *s, int64_t message)
{
    return s->peer[s->partner[message]];
}

/* Return the resource of a message that is busy the longest, and until when. */
static int64_t last_busy(Simulation *s, int64_t message, double *until)
{
    int64_t busiest = NONE;
    *until = 0;
    if (uses_ports(s, message)) {
        int64_t ports[] = {owner(s, message), s->ranks + s->peer[message]};
        for (int side = 0; side < 2; side++) {
            double time = *free_time(s, ports[side]);
            if (busiest == NONE || time > *until) {
                *until = time;
                busiest = ports[side];
            }
        }
    }
    for (int64_t at = s->path[message]; at < s->path[message + 1]; at++) {
        int64_t resource = 2 * s->ranks + s->links[at];
        double time = *free_time(s, resource);
        if (busiest == NONE || time > *until) {
            *until = time;
            busiest = resource;
        }
    }
    return busiest;
}

/* Post the rows of the round that a rank has come to. */
static int enter(Simulation *s, int64_t rank)
{
    if (s->now[rank] == s->base[rank + 1]) {
        s->now[rank] = FINISHED;
        return 0;
    }
    int64_t round = s->now[rank];
    s->open[rank] = s->first[round + 1] - s->first[round];
    s->ends[rank] = s->began[rank];
    for (int64_t row = s->first[round]; row < s->first[round + 1]; row++) {
        int64_t peer = s->peer[row], partner = s->partner[row];
        if (s->now[peer] != s->round[partner] || (peer == rank && !s->sends[row]))
            continue; /* the other side is not posted, or posts the message itself */
        int64_t message = s->sends[row] ? row : partner;
        double ready = s->began[rank] > s->began[peer] ? s->began[rank] : s->began[peer];
        s->ready[message] = ready;
        if (push_event(s, (Event){ready, message, NONE}) < 0)
            return -1;
    }
    return 0;
}

/* End one side of a message, and the round of its rank with the last one. */
static int end_row(Simulation *s, int64_t rank, double end)
{
    if (s->ends[rank] < end)
        s->ends[rank] = end;
    if (--s->open[rank])
        return 0;
    s->began[rank] = s->ends[rank] + s->fold[s->now[rank]];
    s->now[rank]++;
    return enter(s, rank);
}

/* Start a message: occupy its ports and links, and end it. */
static int start(Simulation *s, int64_t message, double now)
{
    double factor = s->slowness[message], bytes = s->bytes[message];
    double load = bytes * s->beta, takes = s->latency + load, busy = s->hold + load;
    if (s->in_memory[message])
        takes = busy = s->memory_alpha + bytes * s->memory_beta;
    int64_t source = owner(s, message), target = s->peer[message];
    if (uses_ports(s, message)) {
        *free_time(s, source) = now + factor * busy;
        *free_time(s, s->ranks + target) = now + factor * busy;
    }
    int64_t begin = s->path[message], end = s->path[message + 1];
    for (int64_t at = begin; at < end; at++)
        *free_time(s, 2 * s->ranks + s->links[at]) = now + factor * load;
    s->started++;
    double arrival = now + (factor * takes + s->hop * (double)(end - begin));
    return end_row(s, source, arrival) < 0 || end_row(s, target, arrival) < 0 ? -1 : 0;
}

/* Start the message of an event, or let it wait at a busy resource. */
static int examine(Simulation *s, Event event)
{
    int64_t resource = event.resource, message = event.message;
    if (resource != NONE) {
        if (s->called[resource] != message || s->called_time[resource] != event.time)
            return 0; /* another message was called since */
        s->waiting[resource] = merge(s, s->left[message], s->right[message]);
    }
    double until;
    int64_t busy = last_busy(s, message, &until);
    if (until <= event.time) {
        if (start(s, message, event.time) < 0)
            return -1;
    } else {
        s->left[message] = s->right[message] = NONE;
        s->waiting[busy] = merge(s, s->waiting[busy], message);
        /* The calling resource calls anew below. */
        if (busy != resource && s->waiting[busy] == message && call_next(s, busy, event.time) < 0)
            return -1;
    }
    return resource != NONE ? call_next(s, resource, event.time) : 0;
}

static double processor_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

enum { DONE, OUT_OF_MEMORY, OUT_OF_TIME, INTERRUPTED };

static int run(Simulation *s, double deadline)
{
    for (int64_t rank = 0; rank < s->ranks; rank++)
        s->now[rank] = FINISHED - 1; /* not posted yet */
    for (int64_t rank = 0; rank < s->ranks; rank++) {
        s->now[rank] = s->base[rank];
        if (enter(s, rank) < 0)
            return OUT_OF_MEMORY;
    }
    for (int64_t count = 1; s->event_count; count++) {
        if (examine(s, pop_event(s)) < 0)
            return OUT_OF_MEMORY;
        if (count % EVENTS_BETWEEN_CHECKS)
            continue;
        if (processor_seconds() > deadline)
            return OUT_OF_TIME;
        PyGILState_STATE state = PyGILState_Ensure();
        int is_interrupted = PyErr_CheckSignals() < 0;
        PyGILState_Release(state);
        if (is_interrupted)
            return INTERRUPTED;
    }
    return DONE;
}

static void *zeroed(int64_t count, size_t width)
{
    return PyMem_RawCalloc((size_t)(count ? count : 1), width);
}

static int allocate(Simulation *s)
{
    int64_t resources = 2 * s->ranks + s->link_count;
    s->now = zeroed(s->ranks, sizeof(int64_t));
    s->open = zeroed(s->ranks, sizeof(int64_t));
    s->began = zeroed(s->ranks, sizeof(double));
    s->ends = zeroed(s->ranks, sizeof(double));
    s->ready = zeroed(s->rows, sizeof(double));
    s->left = zeroed(s->rows, sizeof(int64_t));
    s->right = zeroed(s->rows, sizeof(int64_t));
    s->free_times = zeroed(2 * s->ranks * s->servers + s->link_count, sizeof(double));
    s->waiting = zeroed(resources, sizeof(int64_t));
    s->called = zeroed(resources, sizeof(int64_t));
    s->called_time = zeroed(resources, sizeof(double));
    if (!s->now || !s->open || !s->began || !s->ends || !s->ready || !s->left || !s->right ||
        !s->free_times || !s->waiting || !s->called || !s->called_time)
        return -1;
    for (int64_t resource = 0; resource < resources; resource++)
        s->waiting[resource] = s->called[resource] = NONE;
    return 0;
}

static void release(Simulation *s)
{
    void *blocks[] = {s->now,  s->open,       s->began,   s->ends,   s->ready,       s->left,
                      s->right, s->free_times, s->waiting, s->called, s->called_time, s->events};
    for (size_t index = 0; index < sizeof(blocks) / sizeof(*blocks); index++)
        PyMem_RawFree(blocks[index]);
}

/* Return the result for Python: the time, and the first rank that has not finished. */
static PyObject *result(const Simulation *s, int state)
{
    if (state == INTERRUPTED)
        return NULL;
    if (state == OUT_OF_MEMORY)
        return PyErr_NoMemory();
    double price = 0;
    int64_t stuck = NONE;
    for (int64_t rank = s->ranks - 1; rank >= 0; rank--) {
        price = s->began[rank] > price ? s->began[rank] : price;
        stuck = s->now[rank] == FINISHED ? stuck : rank;
    }
    return Py_BuildValue("dLLi", price, (long long)stuck, (long long)s->started,
                         state == OUT_OF_TIME);
}

enum { COLUMNS = 12 };

/* Simulate a schedule. The arrays are those of `Pattern`, in the order of the formats below. */
static PyObject *simulate_messages(PyObject *Py_UNUSED(module), PyObject *args)
{
    static const Py_ssize_t widths[COLUMNS] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 1, 1};
    Py_buffer views[COLUMNS];
    Simulation s = {0};
    PyObject *columns, *began;
    double deadline;
    long long links, servers;
    if (!PyArg_ParseTuple(args, "O!OLLddddddpd:simulate_messages", &PyTuple_Type, &columns, &began,
                          &links, &servers, &s.latency, &s.hold, &s.beta, &s.memory_alpha,
                          &s.memory_beta, &s.hop, &s.counts_ports_in_memory, &deadline))
        return NULL;
    if (PyTuple_GET_SIZE(columns) != COLUMNS) {
        PyErr_SetString(PyExc_ValueError, "simulate_messages takes 12 columns");
        return NULL;
    }
    Py_buffer heads;
    if (PyObject_GetBuffer(began, &heads, PyBUF_C_CONTIGUOUS) < 0)
        return NULL;
    int held = 0;
    PyObject *price = NULL;
    for (; held < COLUMNS; held++) {
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(columns, held), &views[held],
                               PyBUF_C_CONTIGUOUS) < 0)
            goto end;
        if (views[held].itemsize != widths[held]) {
            PyErr_Format(PyExc_ValueError, "column %d has items of %zd bytes", held,
                         views[held].itemsize);
            held++;
            goto end;
        }
    }
    s.base = views[0].buf, s.first = views[1].buf, s.round = views[2].buf, s.peer = views[3].buf;
    s.partner = views[4].buf, s.path = views[5].buf, s.links = views[6].buf;
    s.fold = views[7].buf, s.bytes = views[8].buf, s.slowness = views[9].buf;
    s.sends = views[10].buf, s.in_memory = views[11].buf;
    s.ranks = views[0].len / 8 - 1, s.rows = views[3].len / 8;
    s.link_count = links, s.servers = servers;
    int state = allocate(&s) < 0 ? OUT_OF_MEMORY : DONE;
    if (state == DONE) {
        memcpy(s.began, heads.buf, (size_t)s.ranks * sizeof(double));
        Py_BEGIN_ALLOW_THREADS
        state = run(&s, deadline);
        Py_END_ALLOW_THREADS
    }
    price = result(&s, state);
    release(&s);
end:
    while (held--)
        PyBuffer_Release(&views[held]);
    PyBuffer_Release(&heads);
    return price;
}

PyMethodDef event_methods[] = {
    {"simulate_messages", simulate_messages, METH_VARARGS,
     "Return the time of a schedule, a rank that waits for ever or -1, messages, out of time."},
    {NULL},
};
