/* mpicoll.engine._compiled: what runs programs over host memory, as a module of Python. */

#include "active.h"
#include "channel_type.h"
#include "counters.h"
#include "events.h"
#include "plan_table.h"
#include "postponing.h"
#include "signals.h"

static PyObject *stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    finalizing_begin();
    queues_stop();
    Py_BEGIN_ALLOW_THREADS
    progress_stop();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Order the loads and stores of Python code before and after this call. */
static PyObject *fence(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {{"fence", fence, METH_NOARGS, NULL}, {NULL}};

static PyMethodDef stop_method = {"stop", stop, METH_NOARGS, NULL};

/* Have all threads of C stop before the interpreter frees what they work on. */
static int stop_at_exit(void)
{
    PyObject *function = PyCFunction_New(&stop_method, NULL);
    PyObject *atexit = function ? PyImport_ImportModule("atexit") : NULL;
    PyObject *done = atexit ? PyObject_CallMethod(atexit, "register", "O", function) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(atexit);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

#define NUMBER(name) {#name, name}

/* What Python and C share: Python reads these numbers, and has no copy of them. */
static const struct {
    const char *name;
    long value;
} numbers[] = {
    /* rows of a program */
    {"COLUMNS", sizeof(Instruction) / sizeof(int64_t)}, NUMBER(OPERANDS),
    NUMBER(COPY), NUMBER(FOLD), NUMBER(DIVIDE), NUMBER(RAISE), NUMBER(AWAIT), NUMBER(FETCH),
    NUMBER(VERIFY), NUMBER(CALL), NUMBER(POLL), NUMBER(CACHED), NUMBER(STREAMED), NUMBER(ADAPTIVE),
    NUMBER(ADAPTIVE_COPY), NUMBER(LONG_YIELD_NS),
    NUMBER(INPUT), NUMBER(OUTPUT),
    /* a group and its mailbox */
    NUMBER(LAST_STATED), NUMBER(HAS_ENDED), NUMBER(UNDER_WAY), NUMBER(GROUP_NUMBERS), NUMBER(NO_CALL),
    NUMBER(PYTHON_CALL), NUMBER(PYTHON_ROUND), NUMBER(LINE_LENGTH), NUMBER(LINE_DIGEST),
    NUMBER(FLAT), NUMBER(INPUT_ROWS), NUMBER(OUTPUT_ROWS), NUMBER(ROWS),
    /* communicators */
    NUMBER(FIRST_MADE), NUMBER(FIRST_CALLS),
    /* channels */
    NUMBER(UNIT_BYTES), NUMBER(MOST_MEMBERS), NUMBER(BCAST), NUMBER(GATHER), NUMBER(SCATTER),
    NUMBER(ALLGATHER), NUMBER(ALLTOALL), NUMBER(REDUCE), NUMBER(ONE_ROW), NUMBER(NO_ARRAY),
};

static int add_numbers(PyObject *module)
{
    for (size_t place = 0; place < sizeof numbers / sizeof *numbers; place++)
        if (PyModule_AddIntConstant(module, numbers[place].name, numbers[place].value) < 0)
            return -1;
    return 0;
}

static int execute(PyObject *module)
{
    count_forks();
    if (call_key_import() < 0 || channel_import() < 0 || table_import() < 0 || flight_import() < 0 ||
        postponing_import() < 0 || stop_at_exit() < 0 || exit_with_interpreter() < 0 || add_numbers(module) < 0)
        return -1;
    PyTypeObject *const types[] = {&ProgramType, &PlanTableType, &RingType, &LogType, &CountedType,
                                   &ChannelType, &FirstCallsType};
    PyMethodDef *const functions[] = {
        channel_functions, signal_methods, postponing_methods, finalizing_methods, event_methods,
        kernel_methods, module_methods};
    for (size_t place = 0; place < sizeof types / sizeof *types; place++)
        if (PyModule_AddType(module, types[place]) < 0)
            return -1;
    for (size_t place = 0; place < sizeof functions / sizeof *functions; place++)
        if (PyModule_AddFunctions(module, functions[place]) < 0)
            return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters /* Python 3.12 */
    /* There is one progress thread in a process, and the types are static. */
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil /* Python 3.13 */
    /* The GIL is the lock of the types' fields. A free-threaded Python turns it on. */
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mpicoll.engine._compiled",
    .m_doc = "Run programs over host memory.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
