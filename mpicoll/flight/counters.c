#include "counters.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "signals.h"

typedef struct {
    uint64_t number;
    int64_t at;
    uint64_t running, queued, process, children, main_running, identity;
    int64_t messages;
    uint32_t thread, preempted, faults, continued, probe, where;
    uint64_t check;
} Sample;

typedef struct {
    uint64_t number;
    int64_t at;
    uint8_t local[16], peer[16];
    uint64_t sent, busy, rate;
    uint32_t retransmitted, rtt, rtt_min;
    uint16_t local_port, peer_port;
    uint64_t check;
} Link;

_Static_assert(sizeof(Sample) == 104 && sizeof(Link) == 96, "entries as layout.py has them");

/* Descriptors that are looked at together. */
enum { BATCH = 256 };

/* A connection that has had no data for so many milliseconds is not recorded. */
enum { IDLE = 2000 };

/* -- entries ----------------------------------------------------------------------------------- */

static int entries_make(EntryRing *ring, const Py_buffer *view, size_t bytes)
{
    *ring = (EntryRing){view->buf, bytes / sizeof(uint64_t), (uint64_t)view->len / bytes, 0};
    return ring->entries && !((size_t)view->len % bytes) && !((uintptr_t)view->buf % sizeof(uint64_t));
}

/* Write an entry, and set its number and its check. A reader, or a kill, finds an entry whole or without
   a number. */
static void add(EntryRing *ring, void *entry)
{
    uint64_t words[sizeof(Sample) / sizeof(uint64_t)], sum = 0;
    memcpy(words, entry, ring->words * sizeof(uint64_t));
    words[0] = ++ring->written;
    for (size_t word = 0; word < ring->words - 1; word++)
        sum = sum * 0x9e3779b97f4a7c15u + words[word];
    words[ring->words - 1] = sum ^ sum >> 29;
    uint64_t *slot = ring->memory + (words[0] - 1) % ring->entries * ring->words;
    __atomic_store_n(slot, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(slot + 1, words + 1, (ring->words - 1) * sizeof(uint64_t));
    __atomic_store_n(slot, words[0], __ATOMIC_RELEASE);
}

/* -- samples ----------------------------------------------------------------------------------- */

/* Read "RUN QUEUED SLICES\n", in nanoseconds; 0 where the descriptor has another content. RUN is that of
   the last tick of the scheduler. It is 0 if the kernel does not count. */
static int read_schedstat(int descriptor, uint64_t *queued)
{
    char content[80];
    const ssize_t length = pread(descriptor, content, sizeof content - 1, 0);
    if (length <= 0)
        return 0;
    content[length] = 0;
    uint64_t run, slices;
    int end = 0;
    const int numbers = sscanf(content, "%" SCNu64 " %" SCNu64 " %" SCNu64 "\n%n", &run, queued, &slices, &end);
    return numbers == 3 && end == length && run;
}

/* The program may have closed all descriptors, and have another file under this number. */
static void close_schedstat(Counters *counters)
{
    uint64_t queued;
    errno = 0;
    if (counters->schedstat >= 0 &&
        (read_schedstat(counters->schedstat, &queued) || errno == ESRCH)) /* its thread has ended */
        close(counters->schedstat);
    counters->schedstat = -1;
}

/* Read how long the calling thread has waited for a core; 0 where the system does not tell. */
static int read_queued(Counters *counters, uint32_t thread, uint64_t *queued)
{
    if (counters->thread == thread &&
        (counters->schedstat < 0 || read_schedstat(counters->schedstat, queued)))
        return counters->schedstat >= 0;
    close_schedstat(counters);
    counters->thread = thread;
    counters->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (counters->schedstat >= 0 && !read_schedstat(counters->schedstat, queued)) {
        close(counters->schedstat);
        counters->schedstat = -1;
    }
    return counters->schedstat >= 0;
}

/* The nanoseconds of a fixed loop of arithmetic, about 10 us: the least of three, as an interrupt adds to
   one of them. */
static uint32_t probe(void)
{
    enum { STEPS = 8192, TRIES = 3 };
    uint64_t value = 1;
    int64_t least = UINT32_MAX;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        const int64_t start = time_of(CLOCK_MONOTONIC);
        for (int step = 0; step < STEPS; step++) {
            value = value * 0x5851f42d4c957f2du + 0x14057b7ef767814fu;
            __asm__ volatile("" : "+r"(value));
        }
        const int64_t elapsed = time_of(CLOCK_MONOTONIC) - start;
        if (elapsed < least)
            least = elapsed;
    }
    return (uint32_t)least;
}

/* The processor time of the thread that the process began with; 0 where it has ended. */
static uint64_t main_running(void)
{
    enum { OF_THREAD = 4, SCHEDULED = 2, SHIFT = 3 }; /* as the kernel numbers the clocks of threads */
    const clockid_t clock = ~getpid() * (1 << SHIFT) | OF_THREAD | SCHEDULED;
    struct timespec time;
    return clock_gettime(clock, &time) < 0 ? 0 : (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static uint64_t children_running(void)
{
    enum { MICROSECOND = 1000 };
    struct rusage usage;
    if (getrusage(RUSAGE_CHILDREN, &usage) < 0)
        return 0;
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * SECOND +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * MICROSECOND;
}

/* Complete a sample of the calling thread, and write it. */
static void record_sample(Counters *counters, Sample sample, int has_probe)
{
    const uint32_t thread = sample.thread;
    struct rusage usage;
    if (!read_queued(counters, thread, &sample.queued) || getrusage(RUSAGE_THREAD, &usage) < 0)
        return;
    sample.running = (uint64_t)time_of(CLOCK_THREAD_CPUTIME_ID);
    sample.process = (uint64_t)time_of(CLOCK_PROCESS_CPUTIME_ID);
    sample.children = children_running();
    sample.main_running = thread == (uint32_t)getpid() ? sample.running : main_running();
    sample.identity = (uint64_t)pthread_self();
    sample.continued = signals_continued();
    sample.preempted = (uint32_t)usage.ru_nivcsw;
    sample.faults = (uint32_t)usage.ru_majflt;
    sample.probe = has_probe ? probe() : 0;
    add(&counters->samples, &sample);
}

/* -- connections ------------------------------------------------------------------------------- */

/* Read the address of one end as one of IPv6; 0 for another family. */
static int read_end(const struct sockaddr_storage *end, uint8_t *address, uint16_t *port)
{
    if (end->ss_family == AF_INET) {
        const struct sockaddr_in *ipv4 = (const void *)end;
        address[10] = address[11] = 0xff;
        memcpy(address + 12, &ipv4->sin_addr, 4);
        *port = ntohs(ipv4->sin_port);
        return 1;
    }
    const struct sockaddr_in6 *ipv6 = (const void *)end;
    memcpy(address, &ipv6->sin6_addr, 16);
    *port = ntohs(ipv6->sin6_port);
    return end->ss_family == AF_INET6;
}

static int read_ends(int descriptor, Link *link)
{
    struct sockaddr_storage local, peer;
    socklen_t local_size = sizeof local, peer_size = sizeof peer;
    return getsockname(descriptor, (struct sockaddr *)&local, &local_size) == 0 &&
           getpeername(descriptor, (struct sockaddr *)&peer, &peer_size) == 0 &&
           read_end(&local, link->local, &link->local_port) &&
           read_end(&peer, link->peer, &link->peer_port);
}

/* Record a descriptor if it is a TCP connection in use. Return whether the descriptor is open. */
static int record_link(Counters *counters, int64_t at, int descriptor)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) < 0)
        return errno != EBADF;
    Link link = {.at = at};
    /* tcpi_rwnd_limited is in the kernel from 4.10 on. */
    if (size < offsetof(struct tcp_info, tcpi_rwnd_limited) + sizeof info.tcpi_rwnd_limited ||
        (info.tcpi_last_data_sent > IDLE && info.tcpi_last_data_recv > IDLE) || !read_ends(descriptor, &link))
        return 1;
    link.sent = info.tcpi_bytes_acked;
    link.busy = info.tcpi_busy_time - info.tcpi_rwnd_limited;
    link.rate = info.tcpi_delivery_rate;
    link.retransmitted = info.tcpi_total_retrans;
    link.rtt = info.tcpi_rtt, link.rtt_min = info.tcpi_min_rtt;
    add(&counters->links, &link);
    return 1;
}

/* Look at the descriptors of one batch; return how many are open. */
static int record_batch(Counters *counters, int64_t at)
{
    int open_descriptors = 0;
    for (int descriptor = 0; descriptor < BATCH; descriptor++)
        open_descriptors += record_link(counters, at, counters->next_descriptor + descriptor);
    return open_descriptors;
}

/* A batch without an open descriptor is beyond the last one. */
static void record_links(Counters *counters, int64_t at)
{
    if (!record_batch(counters, at) && counters->next_descriptor) {
        counters->next_descriptor = 0;
        record_batch(counters, at);
    }
    counters->next_descriptor += BATCH;
}

/* -- all of it --------------------------------------------------------------------------------- */

int counters_make(Counters *counters, const Py_buffer *samples, const Py_buffer *links)
{
    counters->schedstat = -1;
    return entries_make(&counters->samples, samples, sizeof(Sample)) &&
           entries_make(&counters->links, links, sizeof(Link));
}

void counters_record(Counters *counters, uint32_t thread, int64_t at, int64_t ns, int64_t messages,
                     uint32_t where)
{
    const int error = errno, is_due = ns / SECOND != counters->second;
    const Sample sample = {.at = at, .thread = thread, .messages = messages, .where = where};
    record_sample(counters, sample, is_due);
    if (is_due)
        record_links(counters, at);
    counters->second = ns / SECOND;
    errno = error;
}

void counters_close(Counters *counters)
{
    close_schedstat(counters);
}
