/* Look at the frames of this thread as the interpreter keeps them.

   Asking for objects of them, as the public functions do, makes one for each frame of each call: 45
   ns each, where all of a row may take 100. */

#define Py_BUILD_CORE 1

#include "where.h"

#include <internal/pycore_frame.h>

enum { PLACES = 1024, PROBES = 4, DEPTH = 40 };

int sites_make(Sites *sites, PyObject *locate)
{
    sites->known = PyMem_Calloc(PLACES, sizeof(Site));
    if (!sites->known) {
        PyErr_NoMemory();
        return -1;
    }
    sites->locate = Py_NewRef(locate);
    return 0;
}

void sites_free(Sites *sites)
{
    for (int place = 0; sites->known && place < PLACES; place++)
        Py_CLEAR(sites->known[place].code);
    PyMem_Free(sites->known);
    sites->known = NULL;
    memset(sites->last, 0, sizeof sites->last);
    Py_CLEAR(sites->locate);
}

static _PyInterpreterFrame *innermost(const PyThreadState *state)
{
#if PY_VERSION_HEX >= 0x030d0000
    return state->current_frame;
#else
    return state->cframe->current_frame;
#endif
}

static PyCodeObject *code_of(_PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030d0000
    return (PyCodeObject *)frame->f_executable;
#else
    return frame->f_code;
#endif
}

static uint32_t locate(Sites *sites, PyCodeObject *code, int instruction, Site *site)
{
    PyObject *found = PyObject_CallFunction(sites->locate, "Oi", code, instruction);
    unsigned long where = found ? PyLong_AsUnsignedLong(found) : 0;
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(sites->locate);
        where = 0;
    }
    Py_XDECREF(found);
    if (sites->known) {
        PyCodeObject *before = site->code;
        memset(sites->last, 0, sizeof sites->last);
        *site = (Site){(PyCodeObject *)Py_NewRef(code), instruction, (uint32_t)where};
        Py_XDECREF(before);
    }
    return (uint32_t)where;
}

static uint32_t where_of(Sites *sites, PyCodeObject *code, int instruction)
{
    size_t hash = ((size_t)code >> 4) * 31 + (size_t)instruction;
    hash ^= hash >> 11;
    Site *first = NULL;
    for (size_t probe = 0; probe < PROBES; probe++) {
        Site *site = sites->known + (hash + probe) % PLACES;
        if (site->code == code && site->instruction == instruction)
            return site->where;
        if (!first && (!site->code || probe == PROBES - 1))
            first = site;
    }
    return locate(sites, code, instruction, first);
}

/* The same, where it is likely that the last call came from there. */
static uint32_t where_again(Sites *sites, Site *last, PyCodeObject *code, int instruction)
{
    if (last->code != code || last->instruction != instruction) {
        uint32_t where = where_of(sites, code, instruction);
        *last = (Site){code, instruction, where};
    }
    return last->where;
}

uint32_t sites_find(Sites *sites, const PyThreadState *state)
{
    _PyInterpreterFrame *frame = innermost(state);
    for (int depth = 0; frame && depth < DEPTH && sites->known; depth++) {
        if (!_PyFrame_IsIncomplete(frame)) {
            int instruction = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
            PyCodeObject *code = code_of(frame);
            uint32_t where = depth < 2 ? where_again(sites, sites->last + depth, code, instruction)
                                       : where_of(sites, code, instruction);
            if (where)
                return where;
        }
        frame = frame->previous;
    }
    return 0;
}
