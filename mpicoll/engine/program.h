/* Programs over shared memory: a table of instructions over registers, run by one loop.

   Registers hold addresses: of the input, the output, scratch, and of every rank's segments. They
   are filled in when a program runs, so one program serves every array of its signature. Nothing
   here knows Python. */

#ifndef MPICOLL_PROGRAM_H
#define MPICOLL_PROGRAM_H

#include <stdint.h>

#include "kernels.h"
#include "progress.h"

enum { INPUT, OUTPUT, FIRST_OWN };

enum code {
    COPY,   /* target = left, `count` bytes; `extra` is how */
    FOLD,   /* target = left op right, `count` elements; with `extra`, target = left op right op the
               right of as many rows more, which are folds onto the same target */
    DIVIDE, /* target = target / extra, `count` elements */
    RAISE,  /* the word at target = the number of its tile, less `extra`; where `count` is not 0,
               others read the memory at left in place: the word after it = the address of left */
    AWAIT,  /* until the word at target is the number of its tile, less `extra`, or more; where `count` is
               not 0, messages of a library are under way, which only Python advances */
    FETCH,  /* target = `count` bytes of process `extra`, 0 for this one, at the address in the word
               after left, and `right.offset` bytes on */
    VERIFY, /* fail where the rank whose words begin at target has withdrawn what others read in
               place */
    CALL,   /* callback `count` of the owner, with the addresses of the first `extra` operands */
    POLL,   /* callback `count`, until it is complete; a thread that waits runs it `extra` times
               before it gives its core away, or waits in another way where that is 0 */
    CODES
};

/* The most operands that a CALL passes. */
enum { OPERANDS = 3 };

/* How a copy writes: through the cache; past it; or past it while another core is slow to give up the
   lines of the target, of which its cache holds every one since it read the last message there. */
enum how { CACHED, STREAMED, ADAPTIVE };

/* The words of a flag. The last two are those of memory that others read in place. */
enum { FLAG, ADDRESS, WITHDRAWN };

/* Of one chain of folds. */
enum { MOST_OPERANDS = 64 };

/* A place in memory: a register and an offset, in one of `mask` + 1 slots that a tile takes in
   turn. The tile `tile` of the run `sequence` has the number sequence * tiles + tile. */
typedef struct {
    int64_t reg, offset, stride, mask, tiles, tile;
} Operand;

/* One row of the table, as Python makes it: 64-bit integers throughout. */
typedef struct {
    int64_t code, count, extra;
    Operand target, left, right;
} Instruction;

/* Copies to memory that another core has read. Whether to write past the cache depends on where the two
   cores are, and hosts move those of a virtual machine while it runs: so a part is timed at times. */
typedef struct {
    int64_t untried; /* bytes until the next trial */
    int64_t fast;    /* trials since the last that found another core slow */
} Copier;

void copy_adaptively(Copier *copier, char *target, const char *source, size_t nbytes);

typedef struct Program {
    Job job;                  /* as the progress thread runs it: `program_turn` */
    int64_t length;           /* instructions */
    const Instruction *rows;
    char **registers;
    const FoldRow *folds;
    int64_t sequence;         /* the number of the run that is under way, or was the last */
    int64_t position;         /* the next instruction; `length` between runs */
    int64_t until;            /* the position at which `program_advance` stops */
    Copier copier;
} Program;

/* CALLING: the loop stands at a CALL or POLL. The owner runs the callback, and increments `position`
   when the row is complete. */
enum state { DONE, WAITING, FAILED, CALLING };

/* Begin a run. */
void program_begin(Program *program);

/* Whether the next row is a CALL or a POLL. */
int program_calls(const Program *program);

/* The number of an operand's tile, and the operand's address, in this run. */
static inline int64_t number_of(const Program *program, const Operand *operand)
{
    return program->sequence * operand->tiles + operand->tile;
}

static inline char *address_of(const Program *program, const Operand *operand)
{
    return program->registers[operand->reg] + operand->offset +
           (number_of(program, operand) & operand->mask) * operand->stride;
}

/* Run up to `until`. WAITING at an AWAIT whose word has not come after a few looks at it, and then
   `wait_ns` nanoseconds of yields; FAILED, with errno set, where memory of another process cannot be
   read: ECANCELED at a VERIFY. */
enum state program_advance(Program *program, int64_t wait_ns);

/* Withdraw the memory that others read in place, as this rank leaves a run in its middle: its
   program runs no more, and its user may write there. A rank that reads it meanwhile fails. */
void program_withdraw(Program *program);

/* Run some rows of the program that this job is. ENDED at a callback: the thread has no interpreter. */
enum turn program_turn(Job *job);

/* Tell the core that a loop waits. */
#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ __volatile__("yield")
#else
#define PAUSE() ((void)0)
#endif

/* Wait until a word is at least `minimum`, as `program_advance` does; whether it is. */
int word_comes(const int64_t *word, int64_t minimum, int64_t wait_ns);

/* Sleep until a word is at least `minimum`, a signal comes, or `wait_ns` are over; whether it is.

   `sleepers` counts the sleeping waits of all ranks of a node, in shared memory. */
int word_sleep(const int64_t *word, int64_t minimum, int64_t *sleepers, int64_t wait_ns);

/* Write a word, and wake the waits that sleep until it is written; NULL where none sleeps. */
void word_raise(int64_t *word, int64_t value, int64_t *sleepers);

#endif
