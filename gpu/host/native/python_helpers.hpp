// What the extensions of this package share.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace {

inline bool has_arguments(Py_ssize_t given, Py_ssize_t wanted) {
    if (given != wanted) PyErr_Format(PyExc_TypeError, "%zd arguments are expected", wanted);
    return given == wanted;
}

// Copies numbers; whether none is below the one before it, the first not below 0. Without branches, so that it is as
// fast as a copy.
inline bool copy_ascending(uint64_t* to, const uint64_t* from, size_t count) {
    uint64_t falls = 0;  // Its top bit: a number is below 0, or the difference of two that are not.
    for (size_t i = 0; i < count; i++) {
        uint64_t number = from[i], before = from[i ? i - 1 : 0];
        falls |= number | (number - before);
        to[i] = number;
    }
    return !(falls >> 63);
}

// The number of the first int64 in an array that is above the next one.
inline PyObject* first_descent(const Py_buffer& begins) {
    auto* first = static_cast<const int64_t*>(begins.buf);
    return PyLong_FromSsize_t(std::is_sorted_until(first, first + begins.len / 8) - first - 1);
}

}  // namespace
