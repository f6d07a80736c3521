/* How a program writes, by a clock that stands still but for what is planted: test_sanitizers.py
   builds it and reads what it prints, for each run `c`, through the cache, or `s`, past it.

   ways handed NS...: runs that hand memory over, and whose trial takes so many nanoseconds
   ways tried [CACHED STREAMED RUNS]...: runs that take so many, by their way; through the cache they
   wait for longer, too */

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

/* A part is timed; after the rest the next trial is due. */
enum { PART = 4096, NBYTES = PART + (1 << 20), WAITED = 1000000 };

static char input[NBYTES], output[NBYTES];
static int64_t word, now = 1, part_ns, way_ns[2];
static int way;
static Program program;

int64_t nanoseconds(void)
{
    return now;
}

int sched_yield(void)
{
    now += program.way == CACHED ? WAITED : 1;
    word = program.sequence;
    return 0;
}

void copy_bytes(void *target, const void *source, size_t nbytes, int streams)
{
    (void)source;
    if (nbytes > PART) {
        now += way_ns[way = streams];
    } else if (target == output) {
        now += part_ns;
    }
}

void copy_pair(void *target, const void *source, void *other, const void *its, size_t nbytes,
               int streams, int others)
{
    (void)other, (void)its, (void)others;
    copy_bytes(target, source, nbytes, streams);
}

static void run(int64_t how)
{
    const Operand in = {.reg = INPUT, .tiles = 1}, out = {.reg = OUTPUT, .tiles = 1};
    const Instruction rows[] = {
        {AWAIT, 0, 0, {.reg = FIRST_OWN, .tiles = 1}, in, in},
        {COPY, NBYTES, how, out, in, in},
    };
    char *registers[] = {input, output, (char *)&word};
    program.rows = rows, program.registers = registers;
    program.length = program.until = sizeof rows / sizeof *rows;
    program.tries = how == TRIED;
    program_begin(&program);
    if (program_advance(&program, 0, 2 * WAITED) != DONE)
        exit(1);
    putchar(way ? 's' : 'c');
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "handed"))
        for (int each = 2; each < argc; each++) {
            part_ns = atoi(argv[each]);
            run(HANDED);
        }
    else
        for (int each = 2; each + 2 < argc; each += 3) {
            way_ns[CACHED] = atoi(argv[each]), way_ns[STREAMED] = atoi(argv[each + 1]);
            for (int runs = atoi(argv[each + 2]); runs; runs--)
                run(TRIED);
        }
    return 0;
}
