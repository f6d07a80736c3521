/* The collectives of a channel, whose ranks are threads here, for the sanitizers: test_sanitizers.py builds
   and runs it, and plants faults that it has to find.

   sanitize_channel RANKS [SEED]

   All ranks make the same calls, in an order drawn by chance: each collective with each kind of length.
   Each rank compares its results with what they must be. At times a rank is slow, and another one then
   sends it more than a ring holds. */

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "channel.h"
#include "progress.h"

enum { MOST_RANKS = 8, KINDS = 8, LONGEST = KINDS - 1, CALLS = KINDS * (LIBRARYS + 1), WAIT_S = 20 };

/* What a rank reads and writes alone: the thread sanitizer need not look at it. */
#define PRIVATE __attribute__((no_sanitize("thread")))

typedef struct {
    Blocks blocks;
    int64_t lengths[MOST_RANKS];
    char *places[MOST_RANKS];
} Memory;

typedef struct {
    Channel channel; /* the first member, so that `allocate` finds the rest */
    unsigned chance; /* the same on all ranks, as are the call and its lengths */
    int call, collective, root, is_even, allocates, has_shares, is_in_place, slow;
    int64_t itemsize, drawn[MOST_RANKS][MOST_RANKS]; /* bytes from a rank, to a rank */
    const char *dtype;
    char *received[MOST_RANKS];
} Rank;

static int ranks;
static __thread Rank *local;

const char *__tsan_default_options(void)
{
    return "halt_on_error=1";
}

static void check(int is_right, const Rank *me, const char *fault)
{
    if (!is_right) {
        fprintf(stderr, "rank %d, call %d, collective %d: %s\n", me->channel.rank, me->call, me->collective, fault);
        exit(1);
    }
}

static void nap(const Rank *me, long us)
{
    if (me->slow == me->channel.rank)
        nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* No order comes from here: the channel itself has to look at the word again. */
static int wait_for(Channel *channel, const int64_t *word, int64_t minimum, int peer)
{
    (void)channel, (void)peer;
    for (const int64_t end = nanoseconds() + WAIT_S * 1000000000LL; nanoseconds() < end; sched_yield())
        if (__atomic_load_n(word, __ATOMIC_RELAXED) >= minimum)
            return 0;
    return -1;
}

static char *allocate(Channel *channel, int peer, int64_t total)
{
    Rank *const me = (Rank *)(void *)channel;
    nap(me, 300);
    return me->received[peer] = me->received[peer] ? me->received[peer] : malloc((size_t)total);
}

static void fold_many(void *out, const void *const *operands, size_t many, size_t count)
{
    nap(local, 1000);
    find_fold_row("sum", local->dtype)->many(out, operands, many, count);
}

static int draw(Rank *me, int below)
{
    me->chance = me->chance * 1103515245 + 12345;
    return (int)(me->chance >> 16) % below;
}

PRIVATE static int has_rows(const Rank *me)
{
    return me->collective == SCATTER || me->collective == ALLTOALL || me->collective == REDUCE_SCATTER;
}

static int64_t draw_length(Rank *me, int kind)
{
    const int64_t near = draw(me, 3) - 1, row = SLOT_BYTES / ranks / 64 * 64;
    const int64_t ring = (SLOTS + 3) * SLOT_BYTES / (has_rows(me) ? ranks : 1) + draw(me, 9);
    const int64_t lengths[KINDS] = {0, 1, 32 + near, draw(me, 500), SLOT_BYTES + near, row + near,
                                    SLOT_BYTES * (2 + draw(me, 3)) + near, ring};
    return (lengths[kind] + me->itemsize - 1) / me->itemsize * me->itemsize;
}

static void draw_call(Rank *me, int collective, int kind)
{
    me->call++, me->collective = collective, me->root = draw(me, ranks);
    me->is_even = draw(me, 2) && kind != LONGEST;
    me->allocates = collective >= BCAST && collective <= ALLTOALL && draw(me, 3) == 0;
    me->has_shares = (collective == REDUCE || collective == ALLREDUCE) && draw(me, 3);
    me->is_in_place = draw(me, 3) == 0;
    me->itemsize = collective >= REDUCE && draw(me, 3) ? sizeof(float) : 1;
    me->dtype = me->itemsize == 1 ? "uint8" : "float32";
    for (int pair = 0; pair < ranks * ranks; pair++) {
        const int is_other = pair && (kind == LONGEST || draw(me, 2));
        me->drawn[pair / ranks][pair % ranks] = draw_length(me, is_other ? draw(me, LONGEST) : kind);
    }
}

/* The length of a block. */
static int64_t bytes_of(const Rank *me, int from, int to)
{
    const int c = me->collective, is_from = c == GATHER || c == ALLGATHER || c == ALLTOALL;
    return me->drawn[is_from && !me->is_even ? from : 0][has_rows(me) && !me->is_even ? to : 0];
}

/* Write what a rank sends, or compare a result with the sum of what ranks have sent. */
PRIVATE static void visit(const Rank *me, char *place, int first, int end, int to, int64_t nbytes, int writes)
{
    float *const numbers = (float *)(void *)place;
    for (unsigned index = 0; index < nbytes / me->itemsize; index++) {
        unsigned sum = 0; /* fits in a byte */
        for (int from = first; from < end; from++)
            sum += (unsigned)(11 * from + 17 * to * has_rows(me) + 5 * me->call + (int)index) % 41;
        if (writes && me->itemsize > 1)
            numbers[index] = (float)sum;
        else if (writes)
            place[index] = (char)sum;
        else
            check((me->itemsize > 1 ? numbers[index] : (float)(unsigned char)place[index]) == (float)sum, me,
                  "a result is wrong");
    }
}

/* Make blocks, of even or of other lengths, whose end the address sanitizer sees. */
static void memory_open(Memory *memory, int many, int is_even)
{
    int64_t total = 0;
    for (int block = 0; block < many; block++)
        total += memory->lengths[block];
    memory->places[0] = malloc((size_t)total);
    for (int block = 1; block < many; block++)
        memory->places[block] = memory->places[block - 1] + memory->lengths[block - 1];
    memory->blocks = is_even || many == 1 ? (Blocks){.base = memory->places[0], .nbytes = memory->lengths[0]}
                                          : (Blocks){.lengths = memory->lengths, .places = memory->places};
}

/* Make the blocks that this rank sends: one for each rank, or one. */
static void open_source(const Rank *me, Memory *source)
{
    const int rank = me->channel.rank, is_from_root = me->collective == BCAST || me->collective == SCATTER;
    const int many = is_from_root && rank != me->root ? 0 : has_rows(me) ? ranks : 1;
    for (int to = 0; to < many; to++)
        source->lengths[to] = bytes_of(me, rank, to);
    memory_open(source, many, me->is_even);
    for (int to = 0; to < many; to++)
        visit(me, source->places[to], rank, rank + 1, to, source->lengths[to], 1);
}

static enum outcome move(Rank *me, const Memory *source)
{
    const int c = me->collective, root = me->root, rank = me->channel.rank, is_root = rank == root;
    const int is_from_root = c == BCAST || c == SCATTER, is_to_root = c == GATHER;
    Move move = {.key = {.collective = (uint8_t)c, .is_object = (uint8_t)me->allocates, .root = (uint16_t)root},
                 .sends = is_from_root ? is_root : !is_to_root || !is_root, .sends_rows = has_rows(me),
                 .first_reader = is_to_root ? root : 0, .end_reader = is_to_root ? root + 1 : ranks,
                 .first_peer = is_from_root ? root : 0,
                 .end_peer = is_from_root ? root + !is_root : is_to_root && !is_root ? 0 : ranks,
                 .gets_one = is_from_root, .allocates = me->allocates};
    if (c == BARRIER)
        return channel_move(&me->channel, &move);
    move.keeps = !me->allocates && (is_root ? c > BCAST : c == ALLGATHER || c == ALLTOALL);
    Memory target;
    for (int block = 0; block < ranks; block++)
        target.lengths[block] = bytes_of(me, is_from_root ? root : block, rank);
    memory_open(&target, is_from_root ? 1 : ranks, me->is_even);
    move.source = source->blocks, move.target = me->allocates ? (Blocks){0} : target.blocks;
    const enum outcome outcome = channel_move(&me->channel, &move);
    for (int peer = 0; peer < ranks; peer++) {
        const int gets = peer == rank ? move.keeps : peer >= move.first_peer && peer < move.end_peer;
        char *const place = me->allocates ? me->received[peer] : target.places[is_from_root ? 0 : peer];
        if (outcome == FINE && gets)
            visit(me, place, peer, peer + 1, rank, bytes_of(me, peer, rank), 0);
        free(me->received[peer]), me->received[peer] = NULL;
    }
    free(target.places[0]);
    return outcome;
}

static enum outcome fold(Rank *me, const Memory *source)
{
    const int c = me->collective, root = me->root, rank = me->channel.rank, is_scan = c == SCAN || c == EXSCAN;
    const int64_t nbytes = bytes_of(me, 0, rank);
    char *const memory = malloc((size_t)nbytes);
    FoldRow folds = *find_fold_row("sum", me->dtype);
    folds.many = fold_many;
    FoldCall fold = {.key = {.collective = (uint8_t)c, .root = (uint16_t)root, .has_shares = (uint8_t)me->has_shares},
                     .folds = &folds, .rows = has_rows(me) ? &source->blocks : NULL,
                     .itemsize = me->itemsize, .nbytes = nbytes, .input = source->places[0],
                     .result = me->is_in_place ? source->places[has_rows(me) ? rank : 0] : memory,
                     .first_reader = is_scan ? rank + 1 : 0, .end_reader = ranks,
                     .end_peer = is_scan ? rank + (c == SCAN) : ranks};
    if ((c == REDUCE && rank != root) || !fold.end_peer)
        fold.result = NULL;
    if (c == REDUCE && !me->has_shares)
        fold.first_reader = root, fold.end_reader = root + (rank != root);
    const enum outcome outcome =
        me->has_shares ? channel_fold_shares(&me->channel, &fold, c == REDUCE ? root : -1)
                       : channel_fold(&me->channel, &fold);
    if (outcome == FINE && fold.result)
        visit(me, fold.result, 0, fold.end_peer, rank, nbytes, 0);
    free(memory);
    return outcome;
}

static void run_call(Rank *me)
{
    Memory source = {0};
    open_source(me, &source);
    nap(me, 4000);
    const enum outcome outcome = me->collective == LIBRARYS ? channel_skip(&me->channel)
                                 : me->collective < REDUCE  ? move(me, &source)
                                                            : fold(me, &source);
    check(outcome == FINE, me, outcome == DIFFERENT ? "a message does not fit" : "a word does not come");
    free(source.places[0]);
}

static void *run_rank(void *argument)
{
    Rank *const me = local = argument;
    const int step = 1 + 6 * draw(me, CALLS / 6); /* so it reaches each of the 2 * 2 * ... * 3 calls */
    for (int index = 0, chosen = 0; index < CALLS; index++) {
        chosen = (chosen + step) % CALLS;
        draw_call(me, chosen / KINDS, chosen % KINDS);
        const int is_prompt = draw(me, 4) && !me->has_shares && me->collective != REDUCE_SCATTER;
        me->slow = is_prompt ? -1 : (me->root + 1 + draw(me, ranks - 1)) % ranks;
        run_call(me);
        if (me->slow < 0)
            continue;
        const int next = (me->slow + 1) % ranks, is_root = next == me->root && ranks > 2;
        draw_call(me, BCAST, LONGEST);
        me->root = (next + is_root) % ranks;
        run_call(me);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static Rank all[MOST_RANKS];
    static int64_t numbers[MOST_RANKS][2][MOST_RANKS];
    static char *units[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    ranks = argc > 1 ? atoi(argv[1]) : 0;
    if (ranks < 2 || ranks > MOST_RANKS)
        return 2;
    use_kernel_target("baseline"); /* the thread sanitizer does not see moves of more than 16 bytes */
    for (int rank = 0; rank < ranks; rank++) {
        units[rank] = memset(aligned_alloc(64, UNIT_BYTES), 0x55, UNIT_BYTES);
        unit_clear(units[rank]);
    }
    for (int rank = 0; rank < ranks; rank++) {
        all[rank].channel = (Channel){.rank = rank, .size = ranks, .units = units, .taken = numbers[rank][0],
                                      .read = numbers[rank][1], .has_cores = rank % 2, .wait = wait_for,
                                      .allocate = allocate};
        all[rank].chance = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
        pthread_create(&threads[rank], NULL, run_rank, &all[rank]);
    }
    for (int rank = 0; rank < ranks; rank++)
        pthread_join(threads[rank], NULL);
    return 0;
}
