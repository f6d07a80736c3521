/* The queue of one group: see queue.h. */

#include "queue.h"
#include "tuning.h"

#include <stdlib.h>

/* Bytes of room that is kept: a fresh page costs more than what is written there. */
static const size_t MOST_KEPT = (size_t)64 << 20;

int queue_begin(Queue *queue)
{
    queue->oldest = queue->first = queue->last = queue_call(0, 0);
    queue->job.run = queue_turn;
    return queue->first != NULL;
}

void queue_end(Queue *queue, void (*release)(void *owner))
{
    for (Call *each = queue->oldest, *next; each; each = next) {
        next = each->next;
        if (each->owner)
            release(each->owner);
        free(each);
    }
    free(queue->inputs.memory);
    free(queue->outputs.memory);
    queue->oldest = queue->first = queue->last = NULL;
}

Call *queue_call(int64_t inputs, int64_t outputs)
{
    Call *call = calloc(1, sizeof *call + (size_t)(inputs + outputs) * sizeof *call->rows);
    if (call && inputs)
        call->inputs.rows = call->rows, call->inputs.many = inputs;
    if (call && outputs)
        call->outputs.rows = call->rows + inputs, call->outputs.many = outputs;
    return call;
}

void queue_append(Queue *queue, Call *call)
{
    __atomic_store_n(&queue->last->next, call, __ATOMIC_RELEASE);
    queue->last = call;
    queue->issued++;
}

int64_t queue_completed(const Queue *queue)
{
    return __atomic_load_n(&queue->completed, __ATOMIC_ACQUIRE);
}

Call *queue_head(const Queue *queue)
{
    return __atomic_load_n(&queue->first->next, __ATOMIC_ACQUIRE);
}

void queue_skip(Queue *queue)
{
    if (queue->ended)
        queue->ended(queue_head(queue));
    queue->phase = BEFORE;
    __atomic_store_n(&queue->first, queue_head(queue), __ATOMIC_RELEASE);
    __atomic_store_n(&queue->completed, queue->completed + 1, __ATOMIC_RELEASE);
}

void queue_reap(Queue *queue, void (*release)(void *owner))
{
    Call *const first = __atomic_load_n(&queue->first, __ATOMIC_ACQUIRE);
    while (queue->oldest != first) {
        Call *const each = queue->oldest;
        queue->oldest = each->next;
        if (each->owner)
            release(each->owner);
        free(each);
    }
    void *const owner = first->owner;
    first->owner = NULL; /* before what `release` may run comes here, too */
    if (owner)
        release(owner);
}

/* Return room for rows; NULL where there is no memory. */
static char *make_room(Room *room, const Apart *apart)
{
    const size_t nbytes = (size_t)apart->many * apart->nbytes;
    if (room->nbytes < nbytes) {
        free(room->memory);
        room->memory = aligned_alloc(64, (nbytes + 63) / 64 * 64);
        room->nbytes = room->memory ? nbytes : 0;
    }
    return room->memory;
}

static void keep_little(Room *room)
{
    if (room->nbytes <= MOST_KEPT)
        return;
    free(room->memory);
    room->memory = NULL, room->nbytes = 0;
}

int queue_prepare(Queue *queue, Call *call)
{
    Program *const program = call->program;
    if (program->retired || program->position < program->length || queue->digests.number[1])
        return 0;
    if (call->inputs.rows && !(call->input = make_room(&queue->inputs, &call->inputs)))
        return 0;
    if (call->outputs.rows && call->direct &&
        program_parts(program, (int64_t)call->outputs.nbytes))
        program->apart = call->outputs.rows, program->apart_nbytes = (int64_t)call->outputs.nbytes;
    else if (call->outputs.rows && !(call->output = make_room(&queue->outputs, &call->outputs)))
        return 0;
    for (int64_t each = 0; each < call->inputs.many; each++)
        copy_bytes(call->input + (size_t)each * call->inputs.nbytes, call->inputs.rows[each],
                   call->inputs.nbytes, 0);
    program->registers[INPUT] = call->input;
    program->registers[OUTPUT] = call->output;
    return 1;
}

/* Begin the call: publish its digest; 0 where its program cannot run. */
static int begin(Queue *queue, Call *call)
{
    queue->comparison.differs = 0;
    if (!queue_prepare(queue, call))
        return 0;
    queue->comparison = digest_publish(&queue->digests, call->digest);
    program_begin(call->program);
    return 1;
}

void queue_finish(Queue *queue, const Call *call)
{
    for (int64_t each = 0; !call->program->apart && each < call->outputs.many; each++)
        copy_bytes(call->outputs.rows[each], call->output + (size_t)each * call->outputs.nbytes,
                   call->outputs.nbytes, 0);
    call->program->apart = NULL;
    keep_little(&queue->inputs);
    keep_little(&queue->outputs);
}

enum state queue_advance(Queue *queue, int64_t rows, int64_t spins, int64_t wait_ns)
{
    Call *const call = queue_head(queue);
    if (!call)
        return DONE;
    Program *const program = call->program;
    if (queue->phase == BEFORE)
        queue->phase = begin(queue, call) ? FIRST_ROWS : REFUSED;
    while (queue->phase == FIRST_ROWS || queue->phase == LAST_ROWS) {
        const int64_t target = queue->phase == FIRST_ROWS ? call->check : program->length;
        const int64_t before = program->position;
        program->until = target - before < rows ? target : before + rows;
        const enum state state = program_advance(program, spins, wait_ns);
        rows -= program->position - before;
        if (state != DONE || program->position < target)
            return state == DONE ? WAITING : state;
        if (queue->phase == LAST_ROWS) {
            queue_finish(queue, call);
            queue_skip(queue);
            return DONE;
        }
        queue->phase = AGREEMENT;
    }
    if (queue->phase == AGREEMENT) {
        if (digest_compare(&queue->digests, &queue->comparison, spins, wait_ns) != DONE)
            return WAITING;
        queue->phase = queue->comparison.differs ? REFUSED : LAST_ROWS;
        return rows ? queue_advance(queue, rows, spins, wait_ns) : WAITING;
    }
    return WAITING;
}

enum turn queue_turn(Job *job)
{
    Queue *const queue = (Queue *)job;
    const Call *const call = queue_head(queue);
    if (!call)
        return ENDED;
    const enum phase phase = queue->phase;
    const int64_t position = call->program->position;
    const enum state state = queue_advance(queue, TURN_ROWS, 0, 0);
    if (state == DONE)
        return queue_head(queue) ? ADVANCED : ENDED;
    if (state == FAILED || queue->phase == REFUSED)
        return ENDED;
    return queue->phase != phase || call->program->position != position ? ADVANCED : IDLE;
}
