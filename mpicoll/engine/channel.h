/* A channel: memory in which the ranks of a node make the collectives of one communicator, of any length.

   Each rank has a unit of the memory: a line of words, the numbers of the messages that it has read of
   each rank, and a ring of slots. A rank writes its messages into its slots in turn, and readers find
   them by their numbers. So nothing is made for a length, and a rank waits only for messages that it
   reads, or, once its ring is full, for the readers of the oldest one. A rank that writes alone, such as
   the root of a broadcast, leaves as soon as its slots are written.

   Each message has the key of its call, so a reader finds out whether its rank makes the same call.
   Nothing here knows Python. */

#ifndef MPICOLL_CHANNEL_H
#define MPICOLL_CHANNEL_H

#include <stdint.h>

#include "program.h"

enum {
    SLOTS = 32,             /* of a ring; a ring that the caches of a core hold is slower */
    SLOT_BYTES = 64 * 1024, /* of a message, or of a part of it */
    SLOT_HEAD = 128,
    UNIT_HEAD = 4096,
    MOST_MEMBERS = 256,
    LENGTHS_BYTES = 8 * MOST_MEMBERS, /* behind the lengths of rows */
    SLOT_ROOM = LENGTHS_BYTES + SLOT_BYTES,
    UNIT_BYTES = UNIT_HEAD + SLOTS * (SLOT_HEAD + SLOT_ROOM),
    RECENT_KEYS = 64
};

/* The words of a unit. LEFT says how its rank has left. The count of closed members tells the unit's owner when
   it may be used again. The sleeping waits of all members are counted in the unit of rank 0. */
enum { LEFT, CLOSED, SLEEPERS, FIRST_READ = 8 };
enum departure { BY_ERROR = 1, BY_EXIT };

/* Collectives, as keys name them. LIBRARYS: the library's own call, which only this rank may know. NOBODYS: a
   message that has been taken back. */
enum collective { BARRIER, BCAST, GATHER, SCATTER, ALLGATHER, ALLTOALL, REDUCE, ALLREDUCE, SCAN, EXSCAN,
                  REDUCE_SCATTER, LIBRARYS, NOBODYS, COLLECTIVES };

/* What the ranks of a call must give alike, but for its length. */
typedef struct {
    uint8_t collective, is_object, op, kind;
    uint16_t root;
    uint8_t has_shares; /* each rank folds a share, and so reads all inputs */
    uint8_t is_share;   /* the message is such a share */
} Key;

/* The head of a slot. The data of a short message follow in the same cache line. */
typedef struct {
    int64_t number;  /* of the message among those of its rank; negative while it is written */
    int64_t call;    /* of its rank */
    int64_t total;   /* bytes of the whole message; parts where it has a row for each rank */
    Key key;
} Head;

typedef struct Channel {
    int rank, size;
    char **units;        /* of the ranks */
    int64_t call;        /* the number of the call that is under way, or was the last */
    enum { UNSTARTED, STARTED, STARTED_AND_SENT } started; /* by `channel_start` */
    int64_t written;     /* messages of this rank */
    int64_t *taken;      /* messages of each rank that this one has read or skipped */
    int64_t *read;       /* messages of this rank that each rank was seen to have read */
    int first_reader[SLOTS], end_reader[SLOTS]; /* of this rank's messages */
    Key recent[RECENT_KEYS]; /* of the last calls */
    Copier copier;
    int has_cores;       /* each rank has one of its own */
    /* Wait until a word is at least `minimum`; -1 where it never will be. */
    int (*wait)(struct Channel *channel, const int64_t *word, int64_t minimum, int peer);
    /* Return memory for `total` bytes that rank `peer` sends; NULL where there is none. */
    char *(*allocate)(struct Channel *channel, int peer, int64_t total);
    /* Of an error: the rank whose message does not fit, its key and total, and those of this rank. */
    int odd_peer;
    Head odd;
    Key odd_key;
    int64_t odd_total;
} Channel;

/* Blocks of memory: one, or one for each rank. Without `lengths` and `places`, all have `nbytes` and follow
   each other from `base` on. */
typedef struct {
    char *base;
    int64_t nbytes;
    const int64_t *lengths; /* in bytes */
    char *const *places;
} Blocks;

/* DIFFERENT: a message does not fit; BROKEN: `wait` or `allocate` has failed. */
enum outcome { FINE, DIFFERENT, BROKEN };

/* A call that moves data: what this rank sends, to whom, and what it gets from whom.

   `sends_rows`: each reader gets its block of `source`; else all get the only one. It gets a block from each
   rank from `first_peer` to `end_peer`; `gets_one`: the only one of `target`; `allocates`: of unknown length.
   `has_room`: blocks of `target` may be longer than what comes. `keeps`: it copies its own block. */
typedef struct {
    Key key;
    int sends, sends_rows, first_reader, end_reader;
    Blocks source;
    int first_peer, end_peer, gets_one, allocates, has_room, keeps;
    Blocks target;
} Move;

/* Count a call that the library serves. No rank waits for this one's message, but one that makes another
   call finds it there. */
enum outcome channel_skip(Channel *channel);

/* Tell the other ranks that this one makes no more calls, and why. */
void channel_leave(Channel *channel, enum departure departure);

/* Begin a call before this rank knows whether all ranks make it, and write the first part of what `move` sends.
   Then run the call, or take it back. */
enum outcome channel_start(Channel *channel, const Move *move);
void channel_take_back(Channel *channel);

enum outcome channel_move(Channel *channel, const Move *move);

/* A call that folds `nbytes` of each rank from 0 to `end_peer`, in rank order, into `result` where that is
   not NULL. Ranks from `first_reader` to `end_reader` read this rank's input. With `rows`, a reduce_scatter: each
   rank folds its own block of all ranks' rows. */
typedef struct {
    Key key;
    const FoldRow *folds;
    double divisor; /* of a mean */
    int64_t itemsize, nbytes;
    const char *input;
    const Blocks *rows; /* else NULL */
    char *result;
    int first_reader, end_reader, end_peer;
} FoldCall;

/* What this rank sends of its input. */
static inline Move input_of(const FoldCall *call)
{
    const Blocks whole = {.base = (char *)call->input, .nbytes = call->nbytes};
    return (Move){.key = call->key, .sends = call->first_reader < call->end_reader, .sends_rows = call->rows != NULL,
                  .first_reader = call->first_reader, .end_reader = call->end_reader,
                  .source = call->rows ? *call->rows : whole};
}

enum outcome channel_fold(Channel *channel, const FoldCall *call);

/* The same on all ranks, each of which folds a share of each part: for an allreduce, or a reduce to `root`
   where that is not negative. */
enum outcome channel_fold_shares(Channel *channel, const FoldCall *call, int root);

/* Prepare this rank's unit for a new channel. */
void unit_clear(char *unit);

static inline int64_t *unit_words(char *unit)
{
    return (int64_t *)(void *)unit;
}

#endif
