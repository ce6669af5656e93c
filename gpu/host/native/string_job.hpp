// Copies strings as UTF-8 by threads that do not hold the interpreter's lock.
//
//     texts    "It's"  ""  "北京"       a tuple keeps them; strings never change
//     begins   0       4   4     10
//     target   I t ' s E5 8C 97 E4 BA AC
//
// An ASCII string is its own UTF-8. For other strings, CPython makes the UTF-8 when its size is queried, and keeps it
// with the string. So after measuring, nothing needs the lock. Objects that were not measured, or are not strings, are
// detected while they are copied.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

#include "thread_pool.hpp"

namespace staging {

// The UTF-8 of a string that was measured; null for anything else.
inline const char* measured_utf8(PyObject* text, int64_t* size) {
    if (!PyUnicode_Check(text)) return nullptr;
    if (PyUnicode_IS_COMPACT_ASCII(text)) {
        *size = PyUnicode_GET_LENGTH(text);
        return static_cast<const char*>(PyUnicode_DATA(text));
    }
    auto* compact = reinterpret_cast<PyCompactUnicodeObject*>(text);
    *size = compact->utf8_length;
    return compact->utf8;
}

// Copies the texts of a tuple, int64[number + 1] begins of them in the target, from 0 to its end.
struct StringsJob final : CopyJob {
    PyObject* const tuple;
    const int64_t* const begins;

    StringsJob(void* to, PyObject* texts, const int64_t* places)
        : CopyJob(to, static_cast<size_t>(places[PyTuple_GET_SIZE(texts)])), tuple(texts), begins(places) {}

   private:
    // Invariant: begins[i] <= first, and first < begins[i + 1] unless text i is empty.
    void copy(size_t first, size_t end) override {
        auto place = static_cast<int64_t>(first), limit = static_cast<int64_t>(end);
        Py_ssize_t i = std::upper_bound(begins, begins + PyTuple_GET_SIZE(tuple) + 1, place) - begins - 1;
        for (; place < limit; i++) {
            int64_t size = 0, text_end = std::min(limit, begins[i + 1]);
            const char* bytes = measured_utf8(PyTuple_GET_ITEM(tuple, i), &size);
            if (!bytes || size != begins[i + 1] - begins[i]) {
                is_wrong = true;
                return;
            }
            std::memcpy(target + place, bytes + (place - begins[i]), static_cast<size_t>(text_end - place));
            place = text_end;
        }
    }
};

}  // namespace staging
