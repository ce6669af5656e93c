// Functions of `gpu.host._copy_pool` that use no threads: addresses of arrays, and checked copies of offsets.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

#include "python_helpers.hpp"

namespace {

// Returns the address of an array's first item. NumPy's `array.ctypes` takes a microsecond for it.
PyObject* address_of(PyObject*, PyObject* array) {
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO) < 0) return nullptr;
    PyObject* address = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return address;
}

// Copies offsets. Returns None, or the number of the first row that ends before it begins.
PyObject* put_begins(PyObject*, PyObject* const* arguments, Py_ssize_t given) {
    Py_buffer to, from;
    if (!has_arguments(given, 2) || PyObject_GetBuffer(arguments[0], &to, PyBUF_WRITABLE) < 0) return nullptr;
    if (PyObject_GetBuffer(arguments[1], &from, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&to);
        return nullptr;
    }
    PyObject* found = nullptr;
    auto* begins = static_cast<const uint64_t*>(from.buf);
    if (from.len > to.len) {
        PyErr_SetString(PyExc_ValueError, "the target is too short");
    } else if (copy_ascending(static_cast<uint64_t*>(to.buf), begins, static_cast<size_t>(from.len) / 8)) {
        found = Py_NewRef(Py_None);
    } else {
        found = first_descent(from);
    }
    PyBuffer_Release(&to);
    PyBuffer_Release(&from);
    return found;
}

}  // namespace
