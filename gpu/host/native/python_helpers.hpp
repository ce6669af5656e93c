// Functions that both copy_pool.cpp and fast_launch.cpp use.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace {

// Returns whether a call has so many arguments; if not, sets TypeError.
inline bool has_arguments(Py_ssize_t given, Py_ssize_t expected) {
    if (given != expected) PyErr_Format(PyExc_TypeError, "%zd arguments are expected", expected);
    return given == expected;
}

// Copies numbers. Returns whether none is negative (as an int64) or less than the one before. It has no branches, so it
// is as fast as a copy.
inline bool copy_ascending(uint64_t* to, const uint64_t* from, size_t count) {
    uint64_t falls = 0;  // The top bit is set once a number or a difference is negative.
    for (size_t i = 0; i < count; i++) {
        uint64_t number = from[i], before = from[i ? i - 1 : 0];
        falls |= number | (number - before);
        to[i] = number;
    }
    return !(falls >> 63);
}

// Returns the number of the first int64 in an array that is greater than the next one.
inline PyObject* first_descent(const Py_buffer& begins) {
    auto* first = static_cast<const int64_t*>(begins.buf);
    return PyLong_FromSsize_t(std::is_sorted_until(first, first + begins.len / 8) - first - 1);
}

}  // namespace
