/* mpicoll.run._call_times: how long a program's calls of a library take, by the line that makes them.

   It needs no other module of mpicoll, so that a program without mpicoll is recorded as one with it, and
   starts as fast. A recorded call costs about 0.04 us. The GIL is the lock of the table. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

enum { PLACES = 4096, PROBES = 8, MAX_DEPTH = 64 };

/* The calls of one method by one instruction of the program. */
typedef struct {
    PyCodeObject *code; /* a reference; NULL if unused */
    PyObject *name;     /* of the method, a reference */
    int instruction;
    int64_t calls, ticks;
    int64_t library_calls; /* those of them that the library ran */
} Place;

/* A method or function whose calls are recorded. */
typedef struct {
    PyObject_HEAD
    PyObject *function, *name;
    PyObject *collective; /* the name in lower case, which methods of arrays and of objects share */
    vectorcallfunc vectorcall;
    int is_library;    /* the library's own, rather than one of mpicoll */
    int is_collective; /* counted as served or not */
} Recorded;

static Place places[PLACES];
static int64_t first, first_end, last; /* ticks; 0 before the first call */
static Place *first_place; /* NULL where the first call has none */
static int64_t collectives, library_collectives;
/* The file of torch's functions, and the folders of torch and of mpicoll. A call is the program's if it
   comes from a line of the program, or from one of torch's functions, which the program has called. Calls
   that torch makes in C++ would be seen with mpicoll alone. */
static PyObject *module_file, *library_folder, *own_folder;

/* The recorded call of this thread that runs, and whether the library has been seen to run it. */
static _Thread_local Recorded *running;
static _Thread_local int is_by_library;

/* One moment by both clocks, when the module is loaded. */
static int64_t origin, origin_nanoseconds;

static int64_t nanoseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* The processor's own counter, which is read in half the time of the clock. */
static int64_t now(void)
{
#if defined(__x86_64__)
    return (int64_t)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    int64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return nanoseconds();
#endif
}

static int is_module(PyCodeObject *code)
{
    return module_file && PyUnicode_Compare(code->co_filename, module_file) == 0;
}

static int is_in(PyCodeObject *code, PyObject *folder)
{
    return folder && PyUnicode_Tailmatch(code->co_filename, folder, 0, PY_SSIZE_T_MAX, -1) == 1;
}

/* Return the place of an instruction. Without `is_new` NULL if it has none, else if there is no room. */
static Place *find(PyCodeObject *code, int instruction, PyObject *name, int is_new)
{
    size_t hash = ((size_t)code >> 4) * 31 + (size_t)instruction * 7 + ((size_t)name >> 4);
    hash ^= hash >> 12;
    for (size_t probe = 0; probe < PROBES; probe++) {
        Place *place = places + (hash + probe) % PLACES;
        if (!place->code && !is_new)
            return NULL;
        if (!place->code) {
            place->code = (PyCodeObject *)Py_NewRef((PyObject *)code);
            place->name = Py_NewRef(name);
            place->instruction = instruction;
            return place;
        }
        if (place->code == code && place->instruction == instruction && place->name == name)
            return place;
    }
    return NULL; /* a program with so many lines of calls is recorded in part */
}

/* Return the place of the program's innermost line, NULL where the call is none of the program. */
static Place *place_of(Recorded *self)
{
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    Place *place = NULL;
    for (int depth = 0; frame && depth < MAX_DEPTH; depth++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        const int instruction = PyFrame_GetLasti(frame);
        place = find(code, instruction, self->name, 0);
        const int is_inside = !place && (is_in(code, library_folder) || is_in(code, own_folder));
        if (!place && !is_inside)
            place = find(code, instruction, self->name, 1);
        const int is_followed = is_inside && (depth || is_module(code));
        Py_DECREF((PyObject *)code);
        PyFrameObject *caller = is_followed ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF((PyObject *)frame);
        frame = caller;
    }
    Py_XDECREF((PyObject *)frame);
    if (PyErr_Occurred())
        PyErr_Clear();
    return place;
}

static PyObject *call(PyObject *object, PyObject *const *arguments, size_t count, PyObject *names)
{
    Recorded *self = (Recorded *)object;
    if (running) {
        is_by_library |= self->is_library && self->collective == running->collective; /* both interned */
        return PyObject_Vectorcall(self->function, arguments, count, names);
    }
    Place *place = place_of(self);
    if (!place && self->is_library) /* mpicoll makes it for itself */
        return PyObject_Vectorcall(self->function, arguments, count, names);
    running = self, is_by_library = self->is_library;
    const int64_t begin = now();
    PyObject *result = PyObject_Vectorcall(self->function, arguments, count, names);
    const int64_t end = now();
    running = NULL;
    collectives += self->is_collective;
    library_collectives += self->is_collective && is_by_library;
    if (place)
        place->calls++, place->ticks += end - begin, place->library_calls += is_by_library;
    if (!first)
        first = begin, first_end = end, first_place = place;
    last = end;
    return result;
}

static PyObject *get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(kind))
{
    return instance && instance != Py_None ? PyMethod_New(self, instance) : Py_NewRef(self);
}

static PyObject *attribute(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    return PyObject_GetAttr(((Recorded *)self)->function, name);
}

static PyObject *documentation(PyObject *self, void *Py_UNUSED(closure))
{
    return PyObject_GetAttrString(((Recorded *)self)->function, "__doc__");
}

static PyObject *text(PyObject *self)
{
    return PyObject_Repr(((Recorded *)self)->function);
}

static void release(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(((Recorded *)self)->function);
    Py_CLEAR(((Recorded *)self)->name);
    Py_CLEAR(((Recorded *)self)->collective);
    Py_TYPE(self)->tp_free(self);
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Recorded *)self)->function);
    return 0;
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    static char *names[] = {"function", "name", "is_library", "is_collective", NULL};
    PyObject *function, *name;
    int is_library, is_collective;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "OUpp", names, &function, &name, &is_library,
                                     &is_collective))
        return NULL;
    PyObject *collective = PyObject_CallMethod(name, "lower", NULL);
    Recorded *self = collective ? (Recorded *)type->tp_alloc(type, 0) : NULL;
    if (!self) {
        Py_XDECREF(collective);
        return NULL;
    }
    PyUnicode_InternInPlace(&collective);
    self->function = Py_NewRef(function), self->name = Py_NewRef(name), self->collective = collective;
    self->vectorcall = call;
    self->is_library = is_library, self->is_collective = is_collective;
    return (PyObject *)self;
}

static PyGetSetDef properties[] = {{"__doc__", documentation, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyTypeObject RecordedType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mpicoll.run._call_times.Recorded",
    .tp_basicsize = sizeof(Recorded),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(Recorded, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = make,
    .tp_dealloc = release,
    .tp_traverse = traverse,
    .tp_descr_get = get,
    .tp_getattro = attribute,
    .tp_getset = properties,
    .tp_repr = text,
};

/* -- functions of the module ------------------------------------------------------------------ */

static PyObject *set_attribute(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *type, *name, *value;
    if (!PyArg_ParseTuple(arguments, "O!UO", &PyType_Type, &type, &name, &value))
        return NULL;
    /* mpi4py's classes refuse setattr, as all classes in C do. */
    if (PyDict_SetItem(((PyTypeObject *)type)->tp_dict, name, value) < 0)
        return NULL;
    PyType_Modified((PyTypeObject *)type);
    Py_RETURN_NONE;
}

static PyObject *set_files(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *file, *folder;
    if (!PyArg_ParseTuple(arguments, "UU", &file, &folder))
        return NULL;
    Py_XSETREF(module_file, Py_NewRef(file));
    Py_XSETREF(library_folder, Py_NewRef(folder));
    Py_RETURN_NONE;
}

static PyObject *set_own_folder(PyObject *Py_UNUSED(module), PyObject *folder)
{
    Py_XSETREF(own_folder, Py_NewRef(folder));
    Py_RETURN_NONE;
}

static PyObject *extend(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    last = now();
    if (!first)
        first = first_end = last;
    Py_RETURN_NONE;
}

static PyObject *read_times(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    const double tick = (double)(nanoseconds() - origin_nanoseconds) / (double)(now() - origin);
    PyObject *rows = PyList_New(0);
    for (int index = 0; rows && index < PLACES; index++) {
        const Place *place = places + index;
        if (!place->code)
            continue;
        PyObject *row = Py_BuildValue("OiOLLLO", place->code, place->instruction, place->name,
                                      (long long)place->calls, (long long)((double)place->ticks * tick),
                                      (long long)place->library_calls,
                                      place == first_place ? Py_True : Py_False);
        if (!row || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    if (!rows)
        return NULL;
    const int64_t moments[] = {first, first_end, last};
    long long times[3];
    for (int index = 0; index < 3; index++)
        times[index] = moments[index] ? origin_nanoseconds + (int64_t)((double)(moments[index] - origin) * tick) : 0;
    return Py_BuildValue("LLLLLN", times[0], times[1], times[2], (long long)collectives,
                         (long long)library_collectives, rows);
}

static PyMethodDef methods[] = {
    {"set_attribute", set_attribute, METH_VARARGS, "Set an attribute of a class written in C."},
    {"set_files", set_files, METH_VARARGS, "Set the file that calls for the program, and the library's folder."},
    {"set_own_folder", set_own_folder, METH_O, "Set the folder of mpicoll."},
    {"extend", extend, METH_NOARGS, "Count this moment as one of communication."},
    {"read", read_times, METH_NOARGS, "Return begin and end of the first call, the end of the last, counts, and rows by place."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    origin = now(), origin_nanoseconds = nanoseconds();
    return PyModule_AddType(module, &RecordedType);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters /* Python 3.12 */
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil /* Python 3.13 */
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mpicoll.run._call_times",
    .m_doc = "Times of a program's calls of a library, by the line that makes them.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__call_times(void)
{
    return PyModuleDef_Init(&definition);
}
