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
    memset(sites->ways, 0, sizeof sites->ways);
    Py_CLEAR(sites->locate);
}

/* Ask Python for the line, and keep the answer in `site`; 0 where Python has raised. */
static uint32_t locate(Sites *sites, PyCodeObject *code, int instruction, Site *site)
{
    PyObject *place = PyObject_CallFunction(sites->locate, "Oi", code, instruction);
    unsigned long line = place ? PyLong_AsUnsignedLong(place) : 0;
    Py_XDECREF(place);
    if (PyErr_Occurred())
        return 0;
    if (sites->cache) {
        PyCodeObject *evicted = site->code;
        if (evicted)
            memset(sites->ways, 0, sizeof sites->ways), sites->evictions++;
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

/* The site of a frame, without its line. */
static Site site_of(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    const Site site = {code, PyFrame_GetLasti(frame), 0};
    Py_DECREF(code); /* the frame has a reference, too */
    return site;
}

static int is_site(const Site *site, const Site *other)
{
    return site->code == other->code && site->instruction == other->instruction;
}

/* sys._getframe */
static PyObject *get_frame;

int sites_import(void)
{
    get_frame = Py_XNewRef(PySys_GetObject("_getframe"));
    if (!get_frame && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "this Python has no sys._getframe");
    return get_frame ? 0 : -1;
}

/* Return a frame of this thread; NULL, without an error, where there is none. PyFrame_GetBack would make
   the objects of those between, too. */
static PyFrameObject *frame_at(int depth)
{
    if (!depth)
        return (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    PyObject *number = PyLong_FromLong(depth);
    PyObject *frame = number ? PyObject_CallOneArg(get_frame, number) : NULL;
    Py_XDECREF(number);
    if (!frame)
        PyErr_Clear();
    return (PyFrameObject *)frame;
}

/* Return the line of a way that begins at `inner`, 0 where none is remembered. */
static uint32_t follow(Sites *sites, const Site *inner, int first)
{
    Site user = *inner;
    int depth = 0; /* of `user` */
    for (int index = 0; index < WAYS; index++) {
        const Way *way = sites->ways + index;
        if (!is_site(&way->inner, inner))
            continue;
        if (way->depth != depth) {
            PyFrameObject *frame = frame_at(first + way->depth);
            if (!frame)
                continue;
            user = site_of(frame), depth = way->depth;
            Py_DECREF(frame);
        }
        if (is_site(&way->user, &user))
            return way->user.line;
    }
    return 0;
}

/* Look at all frames from the first one on, and remember the way. */
static uint32_t walk(Sites *sites, PyFrameObject *frame, const Site *inner)
{
    const unsigned int evictions = sites->evictions;
    for (int depth = 0; frame && depth < MAX_DEPTH; depth++) {
        Site site = site_of(frame);
        site.line = look_up(sites, site.code, site.instruction);
        PyFrameObject *caller = site.line || PyErr_Occurred() ? NULL : PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = caller;
        if (site.line) {
            if (sites->evictions == evictions)
                sites->ways[sites->next++ % WAYS] = (Way){*inner, site, depth};
            Py_XDECREF(frame);
            return site.line;
        }
        if (!sites->cache)
            break;
    }
    Py_XDECREF(frame);
    return 0;
}

uint32_t sites_find(Sites *sites, int below_library)
{
    PyFrameObject *frame = frame_at(below_library);
    if (!frame || !sites->cache) {
        Py_XDECREF(frame);
        return 0;
    }
    const Site inner = site_of(frame);
    const uint32_t line = follow(sites, &inner, below_library);
    if (!line)
        return walk(sites, frame, &inner);
    Py_DECREF(frame);
    return line;
}
