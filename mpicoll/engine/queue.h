/* Calls that were issued and wait for their turn, of one group on this rank.

   One thread at a time runs them, in the order of issue: the progress thread, or the owner, who has
   taken the job. Only the owner appends and frees. Nothing here knows Python. */

#ifndef MPICOLL_QUEUE_H
#define MPICOLL_QUEUE_H

#include "digests.h"

/* Equal rows that lie apart: while their call runs, they are laid side by side, but for those of the
   output that the program can write where they are. */
typedef struct {
    char **rows; /* NULL where the array is one */
    int64_t many;
    size_t nbytes; /* of each */
} Apart;

typedef struct Call {
    struct Call *next;
    Program *program;
    int64_t digest, check; /* `check`: the row before which the ranks must have agreed */
    char *input, *output;
    Apart inputs, outputs;
    char direct;  /* the rows of the output may be written while the input is read */
    void *owner; /* what keeps the program alive */
    uint64_t row; /* of the flight recorder, 0 for none */
    char *rows[]; /* of both */
} Call;

typedef struct {
    char *memory;
    size_t nbytes;
} Room;

/* Which arrays of a call are rows, one for each rank. */
enum { FLAT, INPUT_ROWS, OUTPUT_ROWS, ROWS };

enum phase { BEFORE, FIRST_ROWS, AGREEMENT, LAST_ROWS, REFUSED };

typedef struct {
    Job job; /* `queue_turn` */
    Digests digests;
    Call *oldest, *first, *last; /* `first`: the call that was the last to be completed */
    int64_t issued, completed;   /* how many calls */

    /* Of the call after `first`. */
    enum phase phase;
    Comparison comparison;
    Room inputs, outputs;

    void (*ended)(const Call *call); /* is told of every call that is complete, unless NULL */
} Queue;

/* Make an empty queue; 0 where there is no memory. */
int queue_begin(Queue *queue);

/* Free a queue that nobody runs, with its calls; `release` frees their owners. */
void queue_end(Queue *queue, void (*release)(void *owner));

/* Make a call with room for the addresses of rows; NULL where there is no memory. */
Call *queue_call(int64_t inputs, int64_t outputs);

void queue_append(Queue *queue, Call *call);

/* Lay the input side by side and set the program's arrays; 0 where it cannot run. */
int queue_prepare(Queue *queue, Call *call);

/* Hand out the output of a call that is complete, or has failed. */
void queue_finish(Queue *queue, const Call *call);

/* How many calls are complete. */
int64_t queue_completed(const Queue *queue);

/* The call that is under way, or the next one; NULL where there is none. */
Call *queue_head(const Queue *queue);

/* Run at most `rows` rows of that call. DONE when it is complete, or there is none. It may be left to
   its owner: its phase is REFUSED then, as the ranks differ in their calls, or the program can run
   no more. Else WAITING and FAILED are as those of `program_advance`. */
enum state queue_advance(Queue *queue, int64_t rows, int64_t spins, int64_t wait_ns);

/* Count the call as complete, as its owner has run it otherwise, or it has failed. */
void queue_skip(Queue *queue);

/* Free what completed calls keep. */
void queue_reap(Queue *queue, void (*release)(void *owner));

/* Run some rows of the queue that this job is. */
enum turn queue_turn(Job *job);

#endif
