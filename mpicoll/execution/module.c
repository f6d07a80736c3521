/* mpicoll.execution._compiled: what runs programs over host memory, as a module of Python. */

#include "kernels_module.h"
#include "module.h"

static int execute(PyObject *module)
{
    if (calls_import() < 0 || PyModule_AddType(module, &ProgramType) < 0 ||
        PyModule_AddType(module, &CallsType) < 0 ||
        PyModule_AddIntConstant(module, "COLUMNS", sizeof(Instruction) / sizeof(int64_t)) < 0)
        return -1;
    return PyModule_AddFunctions(module, kernel_methods);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mpicoll.execution._compiled",
    .m_doc = "Run programs over host memory.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
