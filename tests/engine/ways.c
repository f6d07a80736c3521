/* How a program writes, by a clock that stands still but for what is planted: test_sanitizers.py
   builds it and reads what it prints, for each run `c`, through the cache, or `s`, past it.

   ways NS...: runs whose adaptive copy has a trial that takes so many nanoseconds */

#include <stdio.h>
#include <stdlib.h>

#include "program.h"

/* A part is timed; after the rest the next trial is due. */
enum { PART = 4096, NBYTES = PART + (1 << 20) };

static char input[NBYTES], output[NBYTES];
static int64_t now = 1, part_ns;
static int way;
static Program program;

int64_t nanoseconds(void)
{
    return now;
}

void copy_bytes(void *target, const void *source, size_t nbytes, int streams)
{
    (void)source;
    if (nbytes > PART) {
        way = streams;
    } else if (target == output) {
        now += part_ns;
    }
}

static void run(void)
{
    const Operand in = {.reg = INPUT, .tiles = 1}, out = {.reg = OUTPUT, .tiles = 1};
    const Instruction rows[] = {{COPY, NBYTES, ADAPTIVE, out, in, in}};
    char *registers[] = {input, output};
    program.rows = rows, program.registers = registers;
    program.length = program.until = 1;
    program_begin(&program);
    if (program_advance(&program, 0) != DONE)
        exit(1);
    putchar(way ? 's' : 'c');
}

int main(int argc, char **argv)
{
    for (int trial = 1; trial < argc; trial++) {
        part_ns = atoi(argv[trial]);
        run();
    }
    return 0;
}
