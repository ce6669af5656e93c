// Copies strings as UTF-8 by threads that do not hold the interpreter's lock.
//
//     texts    "It's"  ""  "北京"       a tuple keeps them; strings never change
//     begins   0       4   4     10
//     target   I t ' s E5 8C 97 E4 BA AC
//
// The caller measures the strings first: it asks CPython for the size of each one's UTF-8. An ASCII string is its own
// UTF-8. For any other string, CPython then makes the UTF-8 and keeps it with the string. So the copy does not need the
// lock. It detects strings that were not measured, and objects that are not strings.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

#include "thread_pool.hpp"

namespace staging {

// Returns the UTF-8 of a string that was measured, and sets its size; null for anything else.
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

// Copies the texts of a tuple. `begins` is int64[texts + 1]: where each text begins in the target, and the size of all.
struct StringsJob final : CopyJob {
    PyObject* const tuple;
    const int64_t* const begins;

    StringsJob(void* to, PyObject* texts, const int64_t* places)
        : CopyJob(to, static_cast<size_t>(places[PyTuple_GET_SIZE(texts)])), tuple(texts), begins(places) {}

   private:
    // Invariant: begins[i] <= place, and place < begins[i + 1] unless text i is empty.
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
