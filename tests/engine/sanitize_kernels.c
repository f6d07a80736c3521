/* Every kernel over areas of exactly their size, at odd addresses, for the address and the
   undefined-behaviour sanitizers: test_sanitizers.py builds and runs it. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { MOST_COUNT = 70, MOST_BYTES = 600 };

static const char *const TARGETS[] = {"avx512", "avx2", "neon", "baseline"};
static const char *const OPS[] = {"sum",  "prod", "min", "max",  "avg",
                                  "band", "bor",  "bxor", "land", "lor"};
static const char *const DTYPES[] = {"bool",     "int8",    "int16",   "int32",     "int64",
                                     "uint8",    "uint16",  "uint32",  "uint64",    "float16",
                                     "bfloat16", "float32", "float64", "complex64", "complex128"};

#define EACH(name, names)                                                                          \
    for (const char *const *name = names; name < names + sizeof names / sizeof *names; name++)

static size_t itemsize(const char *dtype)
{
    const char *digits = strpbrk(dtype, "0123456789");
    return digits ? (size_t)atoi(digits) / 8 : 1;
}

/* Random bytes that end where an allocation ends and begin behind its first byte. */
static uint8_t *area(size_t nbytes)
{
    uint8_t *const memory = malloc(nbytes + 1);
    for (size_t k = 0; k <= nbytes; k++)
        memory[k] = (uint8_t)rand();
    return memory + 1;
}

static void drop(uint8_t *area)
{
    free(area - 1);
}

static void fold(const char *op, const char *dtype, size_t count)
{
    const size_t nbytes = count * itemsize(dtype);
    uint8_t *const out = area(nbytes), *const left = area(nbytes), *const right = area(nbytes);
    const void *const operands[] = {left, right, out, left};
    find_fold_row(op, dtype)->fold(out, left, right, count);
    find_fold_row(op, dtype)->fold(left, left, right, count);
    find_fold_row(op, dtype)->fold(right, left, right, count);
    for (size_t many = 1; many <= 4; many++)
        find_fold_row(op, dtype)->many(out, operands, many, count);
    drop(out), drop(left), drop(right);
}

static void copy(size_t nbytes, int streams)
{
    uint8_t *const target = area(nbytes), *const source = area(nbytes);
    copy_bytes(target, source, nbytes, streams);
    if (memcmp(target, source, nbytes)) {
        fprintf(stderr, "a copy of %zu bytes differs\n", nbytes);
        exit(1);
    }
    drop(target), drop(source);
}

static void run_all(void)
{
    EACH(dtype, DTYPES)
    {
        EACH(op, OPS)
        {
            if (!find_fold_row(*op, *dtype)->fold)
                continue;
            for (size_t count = 0; count <= MOST_COUNT; count++)
                fold(*op, *dtype, count);
            fold(*op, *dtype, 5000);
        }
        for (size_t count = 0; find_fold_row("avg", *dtype)->divide && count <= MOST_COUNT; count++) {
            uint8_t *const x = area(count * itemsize(*dtype));
            find_fold_row("avg", *dtype)->divide(x, 3, count);
            drop(x);
        }
    }
    for (int streams = 0; streams < 2; streams++) {
        for (size_t nbytes = 0; nbytes <= MOST_BYTES; nbytes++)
            copy(nbytes, streams);
        for (size_t nbytes = 10000; nbytes < 10100; nbytes++)
            copy(nbytes, streams);
    }
}

int main(void)
{
    if (find_fold_row("sum", "bool")->fold || find_fold_row("none", "int8")->fold ||
        find_fold_row("avg", "int8")->divide)
        return 1;
    EACH(target, TARGETS)
    {
        if (use_kernel_target(*target)) {
            run_all();
            printf("%s\n", kernel_target());
        }
    }
    return 0;
}
