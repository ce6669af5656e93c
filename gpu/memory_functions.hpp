// Functions of `gpu._staging` that need no threads: where an array lies, and looking at what another thread sets.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "copy_threads.hpp"

namespace {

bool has_arguments(Py_ssize_t given, Py_ssize_t wanted) {
    if (given != wanted) PyErr_Format(PyExc_TypeError, "%zd arguments are expected", wanted);
    return given == wanted;
}

// An array's own `ctypes` takes a microsecond to say so.
PyObject* address_of(PyObject*, PyObject* array) {
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO) < 0) return nullptr;
    PyObject* address = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return address;
}

// The interpreter's lock is not held meanwhile, so that another thread can set the byte.
PyObject* look(PyObject*, PyObject* const* arguments, Py_ssize_t given) {
    if (!has_arguments(given, 2)) return nullptr;
    double seconds = PyFloat_AsDouble(arguments[1]);
    Py_buffer flag;
    if (PyErr_Occurred() || PyObject_GetBuffer(arguments[0], &flag, PyBUF_SIMPLE) < 0) return nullptr;
    auto* byte = static_cast<const char*>(flag.buf);
    auto longest = std::chrono::duration_cast<staging::Clock::duration>(std::chrono::duration<double>(seconds));
    bool is_set = false;
    Py_BEGIN_ALLOW_THREADS
    is_set = staging::spin_until([&] { return flag.len && __atomic_load_n(byte, __ATOMIC_ACQUIRE); }, longest);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&flag);
    return PyBool_FromLong(is_set);
}

}  // namespace
