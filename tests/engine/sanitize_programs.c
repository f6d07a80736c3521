/* Programs of several ranks, which are threads here, for the sanitizers: test_sanitizers.py builds
   and runs it, and plants faults that it has to find.

   sanitize_programs PROGRAM RANKS [given|called|FAULT]
   sanitize_programs FILE
   PROGRAM: one_shot or ring (allreduce), broadcast
   given: the progress thread runs them, at random times, instead of the ranks in turn
   called: the progress thread runs programs that have callbacks between their rows, and their ranks
   run these
   FAULT: `slot`, one where two are needed; `await`, no rank waits for data; `count`, one element
   too many
   FILE: programs that test_sanitizers.py writes, in 64-bit integers: how many ranks and segments,
   the bytes of each segment; for each rank the bytes of its input and output; how many further
   registers, for each its segment and 0, or -1 and its bytes; how many rows, and the rows */

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"

enum { MOST_SEGMENTS = 64, MOST_REGISTERS = 256 };
enum { RUNS = 20, GIVEN_RUNS = 400, COUNT = 120, TILES = 4, MOST_RANKS = 4, MOST_ROWS = 8192 };
enum { LINE = 64, ROOT = 1 };
enum { SLOT = COUNT * sizeof(float), SLOTS = 2 };
/* In a rank's segment: the word that says what is published, what is read, and the slots. */
enum { PUBLISHED = 0, READ = LINE, DATA = 2 * LINE, SEGMENT = DATA + SLOTS * SLOT };

static int ranks;
static int given, called;
static const char *fault = "";
static char *segments[MOST_SEGMENTS];

typedef struct {
    int rank;
    int64_t tiles;
    size_t input, output; /* bytes */
    Program program;
    char *registers[MOST_REGISTERS];
    Instruction rows[MOST_ROWS];
} Rank;

/* ---- places ---- */

static Operand plain(int64_t reg, int64_t offset)
{
    return (Operand){.reg = reg, .offset = offset, .tiles = 1};
}

static Operand word(const Rank *me, int of, int64_t offset, int64_t tile)
{
    return (Operand){.reg = FIRST_OWN + of, .offset = offset, .tiles = me->tiles, .tile = tile};
}

static Operand slot(const Rank *me, int of, int64_t tile)
{
    return (Operand){.reg = FIRST_OWN + of,
                     .offset = DATA,
                     .stride = SLOT,
                     .mask = strcmp(fault, "slot") ? SLOTS - 1 : 0,
                     .tiles = me->tiles,
                     .tile = tile};
}

/* ---- instructions ---- */

static void row(Rank *me, Instruction given)
{
    const int64_t length = me->program.length;
    if (called && length % 3 == 0)
        me->rows[me->program.length++] = (Instruction){.code = length % 2 ? CALL : POLL};
    me->rows[me->program.length++] = given;
}

static void copy(Rank *me, Operand target, Operand left, int64_t count)
{
    row(me, (Instruction){COPY, count * (int64_t)sizeof(float), 0, target, left, plain(0, 0)});
}

static void fold(Rank *me, Operand target, Operand left, Operand right, int64_t count)
{
    count += !strcmp(fault, "count");
    row(me, (Instruction){FOLD, count, 0, target, left, right});
}

static void raise_word(Rank *me, int64_t offset, int64_t tile)
{
    row(me, (Instruction){RAISE, 0, 0, word(me, me->rank, offset, tile), plain(0, 0), plain(0, 0)});
}

static void await(Rank *me, int of, int64_t offset, int64_t tile, int64_t behind)
{
    if (offset == PUBLISHED && !strcmp(fault, "await"))
        return;
    row(me, (Instruction){AWAIT, 0, behind, word(me, of, offset, tile), plain(0, 0), plain(0, 0)});
}

/* ---- programs ---- */

/* Everybody publishes, everybody folds in rank order. That a rank publishes tile n says that it
   has read tile n-1, so two slots need no word of their own for it. */
static void one_shot(Rank *me)
{
    const int64_t part = COUNT / TILES;
    me->tiles = TILES;
    for (int64_t tile = 0; tile < TILES; tile++) {
        const int64_t at = tile * part * (int64_t)sizeof(float);
        const Operand out = plain(OUTPUT, at);
        copy(me, slot(me, me->rank, tile), plain(INPUT, at), part);
        raise_word(me, PUBLISHED, tile);
        for (int peer = 0; peer < ranks; peer++)
            if (peer != me->rank)
                await(me, peer, PUBLISHED, tile, 0);
        fold(me, out, slot(me, 0, tile), slot(me, 1, tile), part);
        for (int peer = 2; peer < ranks; peer++)
            fold(me, out, out, slot(me, peer, tile), part);
    }
}

static void ring(Rank *me)
{
    const int64_t part = COUNT / ranks;
    const int right = (me->rank + 1) % ranks, left = (me->rank + ranks - 1) % ranks;
    me->tiles = 2 * (ranks - 1);
    copy(me, plain(OUTPUT, 0), plain(INPUT, 0), COUNT);
    for (int64_t step = 0; step < me->tiles; step++) {
        const int64_t sent = (me->rank + 2 * ranks - step) % ranks;
        const int64_t received = (me->rank + 2 * ranks - step - 1) % ranks;
        const Operand block = plain(OUTPUT, received * part * (int64_t)sizeof(float));
        await(me, right, READ, step, SLOTS);
        copy(me, slot(me, me->rank, step), plain(OUTPUT, sent * part * (int64_t)sizeof(float)),
             part);
        raise_word(me, PUBLISHED, step);
        await(me, left, PUBLISHED, step, 0);
        if (step < ranks - 1)
            fold(me, block, slot(me, left, step), block, part);
        else
            copy(me, block, slot(me, left, step), part);
        raise_word(me, READ, step);
    }
}

static void broadcast(Rank *me)
{
    const int64_t part = COUNT / TILES;
    me->tiles = TILES;
    for (int64_t tile = 0; tile < TILES; tile++) {
        const int64_t at = tile * part * (int64_t)sizeof(float);
        if (me->rank == ROOT) {
            for (int peer = 0; peer < ranks; peer++)
                if (peer != ROOT)
                    await(me, peer, READ, tile, SLOTS);
            copy(me, slot(me, ROOT, tile), plain(INPUT, at), part);
            raise_word(me, PUBLISHED, tile);
        } else {
            await(me, ROOT, PUBLISHED, tile, 0);
            copy(me, plain(OUTPUT, at), slot(me, ROOT, tile), part);
            raise_word(me, READ, tile);
        }
    }
}

static const struct {
    const char *name;
    void (*make)(Rank *me);
} PROGRAMS[] = {{"one_shot", one_shot}, {"ring", ring}, {"broadcast", broadcast}};
enum { PROGRAM_COUNT = sizeof PROGRAMS / sizeof *PROGRAMS };

static int chosen;

/* ---- programs of a file ---- */

static int64_t next(FILE *file)
{
    int64_t value;
    if (fread(&value, sizeof value, 1, file) != 1) {
        fprintf(stderr, "the file ends too early\n");
        exit(2);
    }
    return value;
}

static void read_rank(FILE *file, Rank *me)
{
    me->input = (size_t)next(file), me->output = (size_t)next(file);
    const int64_t registers = next(file);
    for (int64_t each = 0; each < registers; each++) {
        const int64_t segment = next(file), nbytes = next(file);
        me->registers[FIRST_OWN + each] =
            segment < 0 ? calloc(1, (size_t)nbytes) : segments[segment];
    }
    me->program.length = next(file);
    for (int64_t each = 0; each < me->program.length; each++)
        if (fread(me->rows + each, sizeof *me->rows, 1, file) != 1)
            next(file);
}

static void read_programs(FILE *file, Rank *all)
{
    ranks = (int)next(file);
    const int64_t many = next(file);
    for (int64_t each = 0; each < many; each++)
        segments[each] = calloc(1, (size_t)next(file));
    for (int rank = 0; rank < ranks; rank++)
        read_rank(file, &all[rank]);
}

/* ---- whose turn it is ---- */

/* One rank runs at a time, for some instructions, and then another by chance: the same faults in
   every run. Relaxed atomics order nothing, so the sanitizer sees no order but the programs'. */
static int turn, finished;
static unsigned chance = 1;

#define GET(of) __atomic_load_n(&(of), __ATOMIC_RELAXED)
#define SET(of, value) __atomic_store_n(&(of), value, __ATOMIC_RELAXED)

static int draw(int below)
{
    SET(chance, GET(chance) * 1103515245 + 12345);
    return (int)(GET(chance) >> 16) % below;
}

static void take_turn(int rank)
{
    while (GET(turn) != rank)
        sched_yield();
}

static void pass_turn(void)
{
    if (GET(finished) == (1 << ranks) - 1)
        return;
    int next = draw(ranks);
    while (GET(finished) >> next & 1)
        next = (next + 1) % ranks;
    SET(turn, next);
}

/* ---- ranks ---- */

static float value(int rank, int run, int index)
{
    return (float)(1000 * rank + 10 * run + index % 7);
}

static float expected(int run, int index)
{
    if (PROGRAMS[chosen].make == broadcast)
        return value(ROOT, run, index);
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++)
        sum += value(rank, run, index);
    return sum;
}

static void check(int right, const char *what, int rank, int run)
{
    if (right)
        return;
    fprintf(stderr, "rank %d, run %d: %s\n", rank, run, what);
    exit(1);
}

/* Run some rows, then let another rank run, until the program is complete. */
static void complete_in_turn(Rank *me, int run)
{
    Program *const program = &me->program;
    for (int looks = 0; program->position < program->length; looks++) {
        check(looks < 100000, "a word does not come", me->rank, run);
        pass_turn();
        take_turn(me->rank);
        const int64_t most = draw(4) ? 1 + draw(8) : program->length;
        const int64_t left = program->length - program->position;
        program->until = program->position + (most < left ? most : left);
        program_advance(program, 0);
    }
}

/* A callback is complete at once, or after another look at it. */
static int advance(Program *program, int64_t yield_ns)
{
    static __thread unsigned polls;
    enum state state;
    do {
        program->until = program->length;
        state = program_advance(program, yield_ns);
        if (state == CALLING && program->rows[program->position].code == POLL && polls++ % 2)
            return 0;
        program->position += state == CALLING;
    } while (state == CALLING);
    return state == DONE;
}

/* Give the program to the progress thread, and wait for it, or ask for it now and then. */
static void complete_given(Rank *me, int run)
{
    Program *const program = &me->program;
    const struct timespec pause = {0, run % 5 * 20000};
    check(progress_give(&program->job, run % 2), "there is no progress thread", me->rank, run);
    nanosleep(&pause, NULL);
    if (run % 3) {
        progress_take(&program->job);
        while (!advance(program, 1000000))
            ;
    } else {
        while (!progress_try_take(&program->job) || !advance(program, 0)) {
            if (!program->job.given)
                progress_give(&program->job, 0);
            sched_yield();
        }
    }
}

static void prepare(Rank *me)
{
    Program *const program = &me->program;
    program->job.run = program_turn;
    program->rows = me->rows;
    program->registers = me->registers;
    program->position = program->length;
    program->folds = find_fold_row("sum", "float32");
}

static void *run_rank(void *given_rank)
{
    Rank *const me = given_rank;
    Program *const program = &me->program;
    prepare(me);
    if (!given)
        take_turn(me->rank);
    for (int run = 0; run < (given ? GIVEN_RUNS : RUNS); run++) {
        float *const input = malloc(me->input);
        float *const output = malloc(me->output);
        for (int k = 0; k < (int)(me->input / sizeof *input); k++)
            input[k] = value(me->rank, run, k);
        me->registers[INPUT] = (char *)input, me->registers[OUTPUT] = (char *)output;
        program_begin(program);
        (given ? complete_given : complete_in_turn)(me, run);
        const int knows = chosen < PROGRAM_COUNT && !*fault &&
                          (PROGRAMS[chosen].make != broadcast || me->rank != ROOT);
        for (int k = 0; knows && k < COUNT; k++)
            check(output[k] == expected(run, k), "a result is wrong", me->rank, run);
        free(input), free(output);
    }
    if (given)
        return NULL;
    SET(finished, GET(finished) | 1 << me->rank);
    pass_turn();
    return NULL;
}

static void make_programs(Rank *all)
{
    for (int rank = 0; rank < ranks; rank++) {
        Rank *const me = &all[rank];
        me->rank = rank, me->input = me->output = SLOT;
        PROGRAMS[chosen].make(me);
        segments[rank] = aligned_alloc(LINE, SEGMENT);
        /* What came before the first tile of the first run. */
        *(int64_t *)(segments[rank] + PUBLISHED) = me->tiles - 1;
        *(int64_t *)(segments[rank] + READ) = me->tiles - 1;
    }
    for (int rank = 0; rank < ranks; rank++)
        memcpy(all[rank].registers + FIRST_OWN, segments, (size_t)ranks * sizeof *segments);
}

int main(int argc, char **argv)
{
    static Rank all[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    FILE *const file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    ranks = argc > 2 ? atoi(argv[2]) : 0;
    fault = argc > 3 ? argv[3] : "";
    called = !strcmp(fault, "called");
    given = called || !strcmp(fault, "given");
    fault = given ? "" : fault;
    while (argc > 1 && chosen < PROGRAM_COUNT && strcmp(PROGRAMS[chosen].name, argv[1]))
        chosen++;
    if (!file && (argc < 3 || chosen == PROGRAM_COUNT || ranks < 2 || ranks > MOST_RANKS)) {
        fprintf(stderr,
                "usage: %s FILE | one_shot|ring|broadcast RANKS [given|called|slot|await|count]\n",
                argv[0]);
        return 2;
    }
    /* The thread sanitizer does not see moves of more than 16 bytes. */
    use_kernel_target("baseline");
    if (file)
        read_programs(file, all);
    else
        make_programs(all);
    for (int rank = 0; rank < ranks; rank++) {
        all[rank].rank = rank;
        pthread_create(&threads[rank], NULL, run_rank, &all[rank]);
    }
    for (int rank = 0; rank < ranks; rank++)
        pthread_join(threads[rank], NULL);
    progress_stop();
    return 0;
}
