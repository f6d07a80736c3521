#include "where.h"

enum { CACHE_SITES = 1024, PROBES = 4, MAX_DEPTH = 40 };

int sites_make(Sites *sites, PyObject *locate)
{
    sites->cache = PyMem_Calloc(CACHE_SITES, sizeof(Site));
    if (!sites->cache) {
        PyErr_NoMemory();
        return -1;
    }
    sites->locate = Py_NewRef(locate);
    return 0;
}

void sites_free(Sites *sites)
{
    for (int i = 0; sites->cache && i < CACHE_SITES; i++)
        Py_CLEAR(sites->cache[i].code);
    PyMem_Free(sites->cache);
    sites->cache = NULL;
    memset(sites->recent, 0, sizeof sites->recent);
    Py_CLEAR(sites->locate);
}

/* Ask Python for the line, and keep the answer in `site`. */
static uint32_t locate(Sites *sites, PyCodeObject *code, int instruction, Site *site)
{
    PyObject *place = PyObject_CallFunction(sites->locate, "Oi", code, instruction);
    unsigned long line = place ? PyLong_AsUnsignedLong(place) : 0;
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(sites->locate);
        line = 0;
    }
    Py_XDECREF(place);
    if (sites->cache) {
        PyCodeObject *evicted = site->code;
        memset(sites->recent, 0, sizeof sites->recent);
        *site = (Site){(PyCodeObject *)Py_NewRef(code), instruction, (uint32_t)line};
        Py_XDECREF(evicted);
    }
    return (uint32_t)line;
}

static uint32_t look_up(Sites *sites, PyCodeObject *code, int instruction)
{
    size_t hash = ((size_t)code >> 4) * 31 + (size_t)instruction;
    hash ^= hash >> 11;
    Site *free_site = NULL;
    for (size_t probe = 0; probe < PROBES; probe++) {
        Site *site = sites->cache + (hash + probe) % CACHE_SITES;
        if (site->code == code && site->instruction == instruction)
            return site->line;
        if (!free_site && (!site->code || probe == PROBES - 1))
            free_site = site;
    }
    return locate(sites, code, instruction, free_site);
}

/* Return the place of a frame's line. `recent` is the last site at this depth, or NULL. */
static uint32_t line_of(Sites *sites, PyFrameObject *frame, Site *recent)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    int instruction = PyFrame_GetLasti(frame);
    uint32_t line;
    if (recent && recent->code == code && recent->instruction == instruction) {
        line = recent->line;
    } else {
        line = look_up(sites, code, instruction);
        if (recent && sites->cache)
            *recent = (Site){code, instruction, line};
    }
    Py_DECREF(code);
    return line;
}

/* sys._getframe, and its argument for the caller of the innermost frame. */
static PyObject *get_frame, *one;

int sites_import(void)
{
    get_frame = Py_XNewRef(PySys_GetObject("_getframe"));
    one = PyLong_FromLong(1);
    if (!get_frame && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "this Python has no sys._getframe");
    return get_frame && one ? 0 : -1;
}

uint32_t sites_find(Sites *sites, int below_library)
{
    /* PyFrame_GetBack(PyEval_GetFrame()) would make an object of the library's frame, too. */
    PyFrameObject *frame = below_library
                               ? (PyFrameObject *)PyObject_CallOneArg(get_frame, one)
                               : (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    uint32_t line = 0;
    for (int depth = 0; frame && depth < MAX_DEPTH && sites->cache; depth++) {
        line = line_of(sites, frame, depth < 2 ? sites->recent + depth : NULL);
        PyFrameObject *caller = line ? NULL : PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = caller;
    }
    Py_XDECREF(frame);
    if (!line)
        PyErr_Clear(); /* there was no memory for the object of a frame */
    return line;
}
