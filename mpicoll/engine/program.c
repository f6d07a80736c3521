/* The loop over the instructions of a program: see program.h. */

#define _GNU_SOURCE
#include "program.h"
#include "tuning.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Linux moves at most 2 GiB less a page in one call. */
#define MOST ((size_t)1 << 30)

static uint32_t *low_half(const int64_t *word)
{
    return (uint32_t *)(intptr_t)word + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

void word_raise(int64_t *word, int64_t value, int64_t *sleepers)
{
    if (!sleepers) {
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
        return;
    }
    /* A wait counts itself, and then looks at the word: it sees this value, or is seen here. */
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, low_half(word), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int is_there(const int64_t *word, int64_t minimum)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= minimum;
}

int word_sleep(const int64_t *word, int64_t minimum, int64_t *sleepers, int64_t wait_ns)
{
    const struct timespec time = {.tv_nsec = wait_ns};
    int64_t value;
    long slept = 0;
    __atomic_fetch_add(sleepers, 1, __ATOMIC_SEQ_CST);
    while ((value = __atomic_load_n(word, __ATOMIC_SEQ_CST)) < minimum &&
           (!slept || errno == EAGAIN))
        slept = syscall(SYS_futex, low_half(word), FUTEX_WAIT, (uint32_t)value, &time, NULL, 0);
    __atomic_fetch_sub(sleepers, 1, __ATOMIC_SEQ_CST);
    return value >= minimum;
}

int word_comes(const int64_t *word, int64_t minimum, int64_t wait_ns)
{
    if (is_there(word, minimum))
        return 1;
    for (int look = 1; look < YIELDS; look++) {
        PAUSE();
        if (is_there(word, minimum))
            return 1;
    }
    for (int64_t end = wait_ns ? nanoseconds() + wait_ns : 0; wait_ns && nanoseconds() < end;)
        for (int yields = 0; yields < YIELDS; yields++) {
            sched_yield();
            if (is_there(word, minimum))
                return 1;
        }
    return 0;
}

void copy_adaptively(Copier *copier, char *target, const char *source, size_t nbytes)
{
    if (nbytes < ADAPTIVE_COPY) {
        copy_bytes(target, source, nbytes, 0);
        return;
    }
    if (copier->untried <= 0) {
        const size_t tried = nbytes < TRIAL ? nbytes : TRIAL;
        char part[TRIAL];
        copy_bytes(part, source, tried, 0); /* not timed: the source may lie in no cache */
        const int64_t begun = nanoseconds();
        copy_bytes(target, part, tried, 0);
        __atomic_add_fetch(&copier->fast, 1, __ATOMIC_SEQ_CST); /* waits for the stores */
        if (nanoseconds() - begun > (int64_t)tried / 64 * SLOW_LINE_NS)
            copier->fast = 0;
        copier->untried = TRIAL_EVERY;
        target += tried, source += tried, nbytes -= tried;
    }
    copier->untried -= (int64_t)nbytes;
    copy_bytes(target, source, nbytes, copier->fast < FAST_TRIALS);
}

/* Whether memory was withdrawn before all that this rank has read there. Both ranks modify the word:
   who comes second sees the first, and so writes after it has read, or knows that it was written. */
static int is_withdrawn(int64_t *flag)
{
    return __atomic_fetch_add(flag + WITHDRAWN, 0, __ATOMIC_ACQ_REL) != 0;
}

static int fetch(char *target, pid_t process, char *source, size_t nbytes)
{
    if (!process) {
        copy_bytes(target, source, nbytes, 0);
        return 1;
    }
    while (nbytes) {
        size_t part = nbytes < MOST ? nbytes : MOST;
        struct iovec mine = {target, part}, theirs = {source, part};
        ssize_t moved = process_vm_readv(process, &mine, 1, &theirs, 1, 0);
        if (moved <= 0) {
            errno = moved ? errno : EFAULT;
            return 0;
        }
        target += moved, source += moved, nbytes -= (size_t)moved;
    }
    return 1;
}

/* Fold the operands of the next rows in one pass: the result is written once. */
static void fold_chain(Program *program, const Instruction *row)
{
    const void *operands[MOST_OPERANDS];
    const size_t many = (size_t)row->extra + 2;
    operands[0] = address_of(program, &row->left);
    for (size_t each = 1; each < many; each++)
        operands[each] = address_of(program, &row[each - 1].right);
    program->folds->many(address_of(program, &row->target), operands, many, (size_t)row->count);
    program->position += row->extra;
}

void program_begin(Program *program)
{
    program->sequence++;
    program->position = 0;
}

int program_calls(const Program *program)
{
    const int64_t code =
        program->position < program->length ? program->rows[program->position].code : CODES;
    return code == CALL || code == POLL;
}

enum state program_advance(Program *program, int64_t wait_ns)
{
    for (; program->position < program->until; program->position++) {
        const Instruction *row = program->rows + program->position;
        switch (row->code) {
        case COPY:
            if (row->extra == ADAPTIVE)
                copy_adaptively(&program->copier, address_of(program, &row->target),
                                address_of(program, &row->left), (size_t)row->count);
            else
                copy_bytes(address_of(program, &row->target), address_of(program, &row->left),
                           (size_t)row->count, row->extra == STREAMED);
            break;
        case FOLD:
            if (row->extra) {
                fold_chain(program, row);
                break;
            }
            program->folds->fold(address_of(program, &row->target), address_of(program, &row->left),
                                 address_of(program, &row->right), (size_t)row->count);
            break;
        case DIVIDE:
            program->folds->divide(address_of(program, &row->target), (double)row->extra,
                                   (size_t)row->count);
            break;
        case RAISE:
            if (row->count)
                ((int64_t *)address_of(program, &row->target))[ADDRESS] =
                    (int64_t)(intptr_t)address_of(program, &row->left);
            word_raise((int64_t *)address_of(program, &row->target),
                       number_of(program, &row->target) - row->extra, NULL);
            break;
        case AWAIT:
            if (!word_comes((int64_t *)address_of(program, &row->target),
                            number_of(program, &row->target) - row->extra,
                            row->count ? 0 : wait_ns))
                return WAITING;
            break;
        case FETCH:
            if (!fetch(address_of(program, &row->target), (pid_t)row->extra,
                       (char *)(intptr_t)((int64_t *)address_of(program, &row->left))[ADDRESS] +
                           row->right.offset,
                       (size_t)row->count))
                return FAILED;
            break;
        case VERIFY:
            if (is_withdrawn((int64_t *)address_of(program, &row->target))) {
                errno = ECANCELED;
                return FAILED;
            }
            break;
        case CALL:
        case POLL:
            return CALLING;
        }
    }
    return DONE;
}

void program_withdraw(Program *program)
{
    for (int64_t index = 0; index < program->length; index++) {
        const Instruction *row = program->rows + index;
        if (row->code == RAISE && row->count)
            __atomic_exchange_n((int64_t *)address_of(program, &row->target) + WITHDRAWN, 1,
                                __ATOMIC_ACQ_REL);
    }
}

enum turn program_turn(Job *job)
{
    Program *program = (Program *)job;
    const int64_t before = program->position, left = program->length - before;
    program->until = before + (left < TURN_ROWS ? left : TURN_ROWS);
    const enum state state = program_advance(program, 0);
    if (state == FAILED || state == CALLING || program->position == program->length)
        return ENDED;
    return program->position == before ? IDLE : ADVANCED;
}
