// Strings joined as UTF-8 in memory of the caller's, each copied once.
//
//     measure(texts, offsets) -> bytes of all; offsets: int64[B + 1]
//     copy(texts, offsets, out)
//
// An ASCII string is its own UTF-8; CPython keeps that of others with the string, so that the second
// call finds it. Python's way joins the strings and then encodes them: two copies and a call for
// each length. vocabularies/text_joining.py is the same in Python.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>

namespace {

// A buffer of the caller's, given back at the end.
struct View {
    Py_buffer buffer{};
    bool is_held = false;
    bool take(PyObject* object) {
        is_held = PyObject_GetBuffer(object, &buffer, PyBUF_CONTIG) == 0;
        return is_held;
    }
    ~View() {
        if (is_held) PyBuffer_Release(&buffer);
    }
};

// The UTF-8 of a string; null with an exception where it is none, or has lone surrogates.
const char* utf8_of(PyObject* text, Py_ssize_t* size) {
    if (PyUnicode_Check(text) && PyUnicode_IS_COMPACT_ASCII(text)) {
        *size = PyUnicode_GET_LENGTH(text);
        return static_cast<const char*>(PyUnicode_DATA(text));
    }
    return PyUnicode_AsUTF8AndSize(text, size);
}

bool has_arguments(Py_ssize_t given, Py_ssize_t wanted, PyObject* texts) {
    if (given != wanted || !PyList_Check(texts)) {
        PyErr_SetString(PyExc_TypeError, "a list of strings and buffers are expected");
        return false;
    }
    return true;
}

bool has_offsets(const View& offsets, Py_ssize_t num_texts) {
    if (offsets.buffer.len == static_cast<Py_ssize_t>(sizeof(int64_t)) * (num_texts + 1)) return true;
    PyErr_SetString(PyExc_ValueError, "offsets must be int64, one more than there are texts");
    return false;
}

PyObject* measure(PyObject*, PyObject* const* arguments, Py_ssize_t given) {
    View view;
    if (!has_arguments(given, 2, given ? arguments[0] : Py_None) || !view.take(arguments[1])) return nullptr;
    PyObject* texts = arguments[0];
    if (!has_offsets(view, PyList_GET_SIZE(texts))) return nullptr;
    auto* offsets = static_cast<int64_t*>(view.buffer.buf);
    int64_t end = 0;
    Py_ssize_t num_texts = PyList_GET_SIZE(texts);
    for (Py_ssize_t i = 0; i < num_texts; i++) {
        Py_ssize_t size = 0;
        if (!utf8_of(PyList_GET_ITEM(texts, i), &size)) return nullptr;
        offsets[i] = end;
        end += size;
    }
    offsets[num_texts] = end;
    return PyLong_FromLongLong(end);
}

// What was measured must still be so: another thread may have changed the list.
PyObject* copy(PyObject*, PyObject* const* arguments, Py_ssize_t given) {
    View places, out;
    if (!has_arguments(given, 3, given ? arguments[0] : Py_None)) return nullptr;
    if (!places.take(arguments[1]) || !out.take(arguments[2])) return nullptr;
    PyObject* texts = arguments[0];
    Py_ssize_t num_texts = PyList_GET_SIZE(texts);
    if (!has_offsets(places, num_texts)) return nullptr;
    auto* offsets = static_cast<const int64_t*>(places.buffer.buf);
    auto* target = static_cast<char*>(out.buffer.buf);
    int64_t end = 0;
    for (Py_ssize_t i = 0; i < num_texts; i++) {
        Py_ssize_t size = 0;
        const char* source = utf8_of(PyList_GET_ITEM(texts, i), &size);
        if (!source) return nullptr;
        if (offsets[i] != end || offsets[i + 1] != end + size || end + size > out.buffer.len) {
            PyErr_SetString(PyExc_ValueError, "the texts are not those that were measured");
            return nullptr;
        }
        std::memcpy(target + end, source, static_cast<size_t>(size));
        end += size;
    }
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"measure", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(measure)), METH_FASTCALL,
     "measure(texts, offsets, /): writes int64[B + 1], returns the bytes of all."},
    {"copy", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(copy)), METH_FASTCALL,
     "copy(texts, offsets, out, /): writes the UTF-8 of all."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "vocabularies._texts", nullptr, 0, methods,
                      nullptr,               nullptr,                nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__texts() { return PyModule_Create(&module); }
