/* Collectives of any length over the slots of a channel: see channel.h. */

#include "channel.h"

#include <string.h>

enum { LINE = 64, SHORT = LINE - sizeof(Head), AHEAD_PARTS = 16, TURN_PARTS = 8 };

static Head *slot_of(const Channel *channel, int rank, int64_t number)
{
    return (Head *)(void *)(channel->units[rank] + UNIT_HEAD + number % SLOTS * SLOT_HEAD);
}

/* The room of a slot behind all heads. */
static char *room_of(Head *head)
{
    const int64_t slot = (head->number < 0 ? -head->number : head->number) % SLOTS;
    return (char *)head + (SLOTS - slot) * SLOT_HEAD + slot * SLOT_ROOM;
}

/* Where the data of a part of `nbytes` are. */
static char *data_of(Head *head, int64_t nbytes)
{
    return nbytes <= SHORT ? (char *)(head + 1) : room_of(head);
}

static int64_t *read_word(const Channel *channel, int reader, int writer)
{
    return unit_words(channel->units[reader]) + FIRST_READ + writer;
}

static int64_t *sleepers_of(const Channel *channel)
{
    return unit_words(channel->units[0]) + SLEEPERS;
}

void unit_clear(char *unit)
{
    memset(unit, 0, UNIT_HEAD + SLOTS * SLOT_HEAD);
}

void channel_leave(Channel *channel, enum departure departure)
{
    word_raise(unit_words(channel->units[channel->rank]) + LEFT, departure, sleepers_of(channel));
}

static int await(Channel *channel, const int64_t *word, int64_t minimum, int peer)
{
    return word_comes(word, minimum, 0) ? 0 : channel->wait(channel, word, minimum, peer);
}

/* -- writing ----------------------------------------------------------------------------------- */

/* The reader that has not yet read what the next slot holds, -1 where there is none. */
static int slow_reader(Channel *channel)
{
    const int64_t next = channel->written + 1, old = next - SLOTS;
    const int slot = (int)(next % SLOTS);
    for (int peer = channel->first_reader[slot]; old > 0 && peer < channel->end_reader[slot]; peer++) {
        if (peer == channel->rank || channel->read[peer] >= old)
            continue;
        channel->read[peer] =
            __atomic_load_n(read_word(channel, peer, channel->rank), __ATOMIC_ACQUIRE);
        if (channel->read[peer] < old)
            return peer;
    }
    return -1;
}

/* Take the next slot, for readers from `first` to `end`; NULL where a wait has failed. */
static Head *begin_message(Channel *channel, int first, int end)
{
    const int64_t next = channel->written + 1;
    for (int peer; (peer = slow_reader(channel)) >= 0;)
        if (await(channel, read_word(channel, peer, channel->rank), next - SLOTS, peer) < 0)
            return NULL;
    Head *const head = slot_of(channel, channel->rank, next);
    channel->first_reader[next % SLOTS] = first, channel->end_reader[next % SLOTS] = end;
    /* A rank that this message is not for may look at the slot meanwhile. */
    __atomic_store_n(&head->number, -next, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    head->call = channel->call;
    return head;
}

static void end_message(Channel *channel, Head *head, Key key, int64_t total)
{
    head->key = key, head->total = total;
    word_raise(&head->number, ++channel->written, sleepers_of(channel));
}

/* -- reading ----------------------------------------------------------------------------------- */

/* Copy a head, which its owner may write meanwhile: the thread sanitizer knows no fences. */
static __attribute__((no_sanitize("thread"))) Head copy_of(const Head *head)
{
    return *head;
}

/* Whether a message of rank `peer` is for this one. */
static int is_for(const Channel *channel, const Head *head, int peer)
{
    const Key key = head->key;
    switch (key.collective) {
    case NOBODYS:
        return 0;
    case LIBRARYS:
        return channel->call - head->call < RECENT_KEYS &&
               channel->recent[head->call % RECENT_KEYS].collective != LIBRARYS;
    case GATHER:
        return key.root == channel->rank;
    case REDUCE:
        return key.root == channel->rank || (key.has_shares && !key.is_share);
    case SCAN:
    case EXSCAN:
        return channel->rank > peer;
    default:
        return 1;
    }
}

static void mark_read(Channel *channel, int peer)
{
    int64_t *const word = read_word(channel, channel->rank, peer);
    word_raise(word, ++channel->taken[peer], sleepers_of(channel));
}

/* Keep what differs: a message of rank `peer` with `odd_total`, and the key and total that it should have. */
static enum outcome refuse(
    Channel *channel, int peer, const Head *head, int64_t odd_total, Key key, int64_t total)
{
    channel->odd_peer = peer, channel->odd = *head, channel->odd.total = odd_total;
    channel->odd_key = key, channel->odd_total = total;
    return DIFFERENT;
}

/* Return the next message of rank `peer` in this call; NULL with an outcome where it does not come or does
   not fit. `total`: what it must have, or at most if `has_room`; -1 where that is not known. */
static Head *take(
    Channel *channel, int peer, Key key, int64_t total, int has_room, enum outcome *outcome)
{
    for (;;) {
        const int64_t next = channel->taken[peer] + 1;
        Head *const head = slot_of(channel, peer, next);
        if (await(channel, &head->number, next, peer) < 0) {
            *outcome = BROKEN;
            return NULL;
        }
        const int64_t number = __atomic_load_n(&head->number, __ATOMIC_ACQUIRE);
        const Head copy = copy_of(head);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (number < next || __atomic_load_n(&head->number, __ATOMIC_RELAXED) != number)
            continue; /* it is written anew */
        if (number > next) {
            channel->taken[peer] = number - SLOTS; /* messages for others have been overwritten */
            continue;
        }
        const int is_now = copy.call == channel->call;
        const int fits = total < 0 || copy.total == total || (has_room && copy.total < total);
        if (is_now && fits && !memcmp(&copy.key, &key, sizeof key))
            return head;
        if (copy.call > channel->call || is_for(channel, &copy, peer)) {
            if (copy.call < channel->call)
                key = channel->recent[copy.call % RECENT_KEYS], total = -1;
            *outcome = refuse(channel, peer, &copy, copy.total, key, total);
            return NULL;
        }
        mark_read(channel, peer);
    }
}

/* Begin a call, unless it was started; return how many of its parts have been sent. */
static int begin_call(Channel *channel, Key key)
{
    const int started = channel->started;
    channel->started = UNSTARTED;
    if (started == UNSTARTED)
        channel->recent[++channel->call % RECENT_KEYS] = key;
    return started == STARTED_AND_SENT;
}

enum outcome channel_skip(Channel *channel)
{
    const Key key = {.collective = LIBRARYS};
    begin_call(channel, key);
    Head *const head = begin_message(channel, 0, 0);
    if (!head)
        return BROKEN;
    end_message(channel, head, key, 0);
    return FINE;
}

/* -- calls that move data ---------------------------------------------------------------------- */

static int64_t length_of(const Blocks *blocks, int block)
{
    return blocks->lengths ? blocks->lengths[block] : blocks->nbytes;
}

static char *start_of(const Blocks *blocks, int block)
{
    return blocks->places ? blocks->places[block] : blocks->base + block * blocks->nbytes;
}

static int64_t least(int64_t left, int64_t right)
{
    return left < right ? left : right;
}

static int64_t parts_of(int64_t nbytes, int64_t part)
{
    return nbytes > part ? (nbytes + part - 1) / part : 1;
}

static int64_t rest_of(int64_t nbytes, int64_t start, int64_t most)
{
    return nbytes <= start ? 0 : least(nbytes - start, most);
}

/* In a message with rows, a table of their lengths comes first, then a place of this length for each. */
static int64_t row_bytes(const Channel *channel)
{
    return SLOT_BYTES / channel->size / 64 * 64;
}

static char *row_of(const Channel *channel, Head *head, int rank)
{
    return room_of(head) + LENGTHS_BYTES + rank * row_bytes(channel);
}

static int64_t *lengths_in(Head *head)
{
    return (int64_t *)(void *)room_of(head);
}

static int send_part(Channel *channel, const Move *move, int64_t part, int64_t parts)
{
    Head *const head = begin_message(channel, move->first_reader, move->end_reader);
    if (!head)
        return -1;
    if (!move->sends_rows) {
        const int64_t total = length_of(&move->source, 0), start = part * SLOT_BYTES;
        const int64_t nbytes = rest_of(total, start, SLOT_BYTES);
        if (nbytes)
            copy_adaptively(&channel->copier, data_of(head, nbytes), move->source.base + start,
                            (size_t)nbytes);
        end_message(channel, head, move->key, total);
        return 0;
    }
    const int64_t most = row_bytes(channel), start = part * most;
    for (int peer = 0; peer < channel->size; peer++) {
        const int64_t length = length_of(&move->source, peer), nbytes = rest_of(length, start, most);
        lengths_in(head)[peer] = length;
        if (nbytes && peer != channel->rank)
            copy_adaptively(&channel->copier, row_of(channel, head, peer),
                            start_of(&move->source, peer) + start, (size_t)nbytes);
    }
    end_message(channel, head, move->key, parts);
    return 0;
}

static int64_t parts_to_send(const Channel *channel, const Move *move)
{
    if (!move->sends)
        return 0;
    if (!move->sends_rows)
        return parts_of(length_of(&move->source, 0), SLOT_BYTES);
    int64_t longest = 0;
    for (int peer = 0; peer < channel->size; peer++)
        if (length_of(&move->source, peer) > longest)
            longest = length_of(&move->source, peer);
    return parts_of(longest, row_bytes(channel));
}

/* Send the parts up to the one that is read now, and, where this rank reads some, those ahead of it that need no
   wait; `sent`: how many have been. */
static int send_ahead(
    Channel *channel, const Move *move, int64_t *sent, int64_t part, int64_t parts, int reads)
{
    while (*sent < parts &&
           (*sent <= part || (reads && *sent < part + AHEAD_PARTS && slow_reader(channel) < 0))) {
        if (send_part(channel, move, *sent, parts) < 0)
            return -1;
        ++*sent;
    }
    return 0;
}

/* Take a part of the message of rank `peer`; `is_last` becomes true with its last part. */
static enum outcome get_part(Channel *channel, const Move *move, int peer, int64_t part, int *is_last)
{
    const int has_rows = move->key.collective == SCATTER || move->key.collective == ALLTOALL;
    const int block = move->gets_one ? 0 : peer;
    const int64_t wanted = move->allocates ? -1 : length_of(&move->target, block);
    enum outcome outcome = FINE;
    Head *const head = take(channel, peer, move->key, has_rows ? -1 : wanted, move->has_room, &outcome);
    if (!head)
        return outcome;
    const int64_t total = has_rows ? lengths_in(head)[channel->rank] : head->total;
    if (wanted >= 0 && (move->has_room ? total > wanted : total != wanted))
        return refuse(channel, peer, head, total, move->key, wanted);
    const int64_t most = has_rows ? row_bytes(channel) : SLOT_BYTES, start = part * most;
    const int64_t nbytes = rest_of(total, start, most);
    char *target = NULL;
    if (move->allocates) {
        target = channel->allocate(channel, peer, total);
        if (!target)
            return BROKEN;
    } else if (nbytes) {
        target = start_of(&move->target, block);
    }
    if (nbytes)
        copy_bytes(target + start,
                   has_rows ? row_of(channel, head, channel->rank) : data_of(head, nbytes),
                   (size_t)nbytes, 0);
    *is_last = part + 1 >= (has_rows ? head->total : parts_of(total, most));
    mark_read(channel, peer);
    return FINE;
}

/* Copy the block that this rank has for itself. */
static void keep_block(const Channel *channel, const Move *move)
{
    const int sent = move->sends_rows ? channel->rank : 0, block = move->gets_one ? 0 : channel->rank;
    const int64_t nbytes = least(length_of(&move->source, sent), length_of(&move->target, block));
    const char *const source = start_of(&move->source, sent);
    char *const target = start_of(&move->target, block);
    if (nbytes && target != source)
        memmove(target, source, (size_t)nbytes);
}

enum outcome channel_start(Channel *channel, const Move *move)
{
    const int64_t parts = parts_to_send(channel, move);
    begin_call(channel, move->key);
    if (parts && send_part(channel, move, 0, parts) < 0)
        return BROKEN;
    channel->started = parts ? STARTED_AND_SENT : STARTED;
    return FINE;
}

void channel_take_back(Channel *channel)
{
    if (channel->started == STARTED_AND_SENT) {
        const int slot = (int)(channel->written % SLOTS);
        slot_of(channel, channel->rank, channel->written)->key.collective = NOBODYS;
        channel->first_reader[slot] = channel->end_reader[slot] = 0;
    }
    channel->started = UNSTARTED;
    channel->call--;
}

enum outcome channel_move(Channel *channel, const Move *move)
{
    int64_t sent = begin_call(channel, move->key);
    enum outcome outcome = FINE;
    const int64_t parts = parts_to_send(channel, move);
    char done[MOST_MEMBERS] = {0};
    int open = 0;
    for (int peer = move->first_peer; peer < move->end_peer; peer++)
        open += peer != channel->rank;
    for (int64_t part = 0; sent < parts || open; part++) {
        if (send_ahead(channel, move, &sent, part, parts, open) < 0)
            return BROKEN;
        for (int turn = 1; open && turn < channel->size; turn++) {
            const int peer = (channel->rank + turn) % channel->size;
            if (peer < move->first_peer || peer >= move->end_peer || done[peer])
                continue;
            int is_last = 0;
            outcome = get_part(channel, move, peer, part, &is_last);
            if (outcome != FINE)
                return outcome;
            done[peer] = (char)is_last, open -= is_last;
        }
    }
    if (move->keeps)
        keep_block(channel, move);
    return FINE;
}

/* -- calls that fold --------------------------------------------------------------------------- */

/* Write the fold of many operands. */
static void fold_all(const FoldCall *call, char *out, const void **operands, int many, int64_t nbytes)
{
    const size_t count = (size_t)(nbytes / call->itemsize);
    const int first = many < MOST_OPERANDS ? many : MOST_OPERANDS;
    char copy[SLOT_BYTES];
    for (int index = first; index < many; index++)
        if (operands[index] == out && nbytes)
            operands[index] = memcpy(copy, out, (size_t)nbytes);
    call->folds->many(out, operands, (size_t)first, count);
    for (int index = first; index < many; index++)
        call->folds->fold(out, out, operands[index], count);
    if (call->folds->divide)
        call->folds->divide(out, call->divisor, count);
}

/* Find the parts of the ranks from 0 to `end`, this one's at `local`; their data are `offset` behind. */
static enum outcome take_parts(
    Channel *channel, const FoldCall *call, const void **operands, int64_t nbytes, int end,
    const char *local, int64_t offset)
{
    enum outcome outcome = FINE;
    for (int turn = 1; turn <= channel->size; turn++) {
        const int peer = (channel->rank + turn) % channel->size;
        if (peer >= end)
            continue;
        if (peer == channel->rank) {
            operands[peer] = local;
            continue;
        }
        Head *const head = take(channel, peer, call->key, call->rows ? -1 : call->nbytes, 0, &outcome);
        if (!head)
            return outcome;
        if (!call->rows) {
            operands[peer] = data_of(head, nbytes) + offset;
            continue;
        }
        const int64_t length = lengths_in(head)[channel->rank], total = length_of(call->rows, channel->rank);
        if (length != total)
            return refuse(channel, peer, head, length, call->key, total);
        operands[peer] = row_of(channel, head, channel->rank);
    }
    return FINE;
}

static void mark_all_read(Channel *channel, int end)
{
    for (int peer = 0; peer < end; peer++)
        if (peer != channel->rank)
            mark_read(channel, peer);
}

enum outcome channel_fold(Channel *channel, const FoldCall *call)
{
    int64_t sent = begin_call(channel, call->key);
    const void *operands[MOST_MEMBERS];
    const Blocks *const rows = call->rows;
    const Move move = input_of(call);
    const int64_t most = rows ? row_bytes(channel) : SLOT_BYTES;
    const int64_t parts = rows ? parts_to_send(channel, &move) : parts_of(call->nbytes, most);
    const int64_t total = rows ? length_of(rows, channel->rank) : call->nbytes;
    const char *const local = rows ? start_of(rows, channel->rank) : call->input;
    const int reads = call->result && call->end_peer;
    if (!move.sends)
        sent = parts;
    for (int64_t part = 0; part < parts; part++) {
        const int64_t start = part * most, nbytes = rest_of(total, start, most);
        if (send_ahead(channel, &move, &sent, part, parts, reads) < 0)
            return BROKEN;
        if (!reads)
            continue;
        const enum outcome outcome = take_parts(channel, call, operands, nbytes, call->end_peer, local + start, 0);
        if (outcome != FINE)
            return outcome;
        fold_all(call, call->result + start, operands, call->end_peer, nbytes);
        mark_all_read(channel, call->end_peer);
    }
    return FINE;
}

/* The first byte of a rank's share of `nbytes`. */
static int64_t share_start(const Channel *channel, const FoldCall *call, int64_t nbytes, int rank)
{
    return nbytes / call->itemsize * rank / channel->size * call->itemsize;
}

/* Fold this rank's share of a part, and send it. */
static enum outcome send_share(Channel *channel, const FoldCall *call, int64_t part, int root)
{
    const void *operands[MOST_MEMBERS];
    const int64_t start = part * SLOT_BYTES, nbytes = rest_of(call->nbytes, start, SLOT_BYTES);
    const int64_t begin = share_start(channel, call, nbytes, channel->rank);
    const int64_t length = share_start(channel, call, nbytes, channel->rank + 1) - begin;
    const enum outcome outcome = take_parts(channel, call, operands, nbytes, channel->size,
                                            call->input + start + begin, begin);
    if (outcome != FINE)
        return outcome;
    char *result = call->result ? call->result + start + begin : NULL;
    Head *head = NULL;
    if (channel->rank != root) {
        head = begin_message(channel, root < 0 ? 0 : root, root < 0 ? channel->size : root + 1);
        if (!head)
            return BROKEN;
        char folded[SLOT_BYTES], *const target = root < 0 ? result : folded;
        fold_all(call, target, operands, channel->size, length);
        if (length)
            copy_adaptively(&channel->copier, data_of(head, length), target, (size_t)length);
        Key key = call->key;
        key.is_share = 1;
        end_message(channel, head, key, call->nbytes);
    } else {
        fold_all(call, result, operands, channel->size, length);
    }
    mark_all_read(channel, channel->size);
    return FINE;
}

static enum outcome get_shares(Channel *channel, const FoldCall *call, int64_t part)
{
    const int64_t start = part * SLOT_BYTES, nbytes = rest_of(call->nbytes, start, SLOT_BYTES);
    Key key = call->key;
    key.is_share = 1;
    enum outcome outcome = FINE;
    for (int turn = 1; turn < channel->size; turn++) {
        const int peer = (channel->rank + turn) % channel->size;
        Head *const head = take(channel, peer, key, call->nbytes, 0, &outcome);
        if (!head)
            return outcome;
        const int64_t begin = share_start(channel, call, nbytes, peer);
        const int64_t length = share_start(channel, call, nbytes, peer + 1) - begin;
        if (length)
            copy_bytes(call->result + start + begin, data_of(head, length), (size_t)length, 0);
        mark_read(channel, peer);
    }
    return FINE;
}

enum outcome channel_fold_shares(Channel *channel, const FoldCall *call, int root)
{
    const int64_t sent = begin_call(channel, call->key), parts = parts_of(call->nbytes, SLOT_BYTES);
    const int gets = root < 0 || channel->rank == root;
    const Move move = input_of(call);
    /* Each turn writes some parts, folds the shares of those before, and gets those of the ones before these: so
       the ranks wait for what was written a turn ago. A ring holds the parts and shares of two turns. */
    for (int64_t turn = 0; turn < parts + 2 * TURN_PARTS; turn += TURN_PARTS)
        for (int64_t step = 0; step < 3 * TURN_PARTS; step++) {
            const int64_t part = turn - step / TURN_PARTS * TURN_PARTS + step % TURN_PARTS;
            enum outcome outcome = FINE;
            if (part < 0 || part >= parts)
                continue;
            if (step >= 2 * TURN_PARTS)
                outcome = gets ? get_shares(channel, call, part) : FINE;
            else if (step >= TURN_PARTS)
                outcome = send_share(channel, call, part, root);
            else if (part >= sent && send_part(channel, &move, part, parts) < 0)
                outcome = BROKEN;
            if (outcome != FINE)
                return outcome;
        }
    return FINE;
}
