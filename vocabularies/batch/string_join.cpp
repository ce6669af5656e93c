// Joins strings as UTF-8 in the caller's memory; each string is copied once.
//
//     measure(texts, offsets)      writes offsets, int64[B + 1]; returns the number of bytes of all texts
//     hold(texts, offsets)         the same, but returns a tuple of the texts
//     copy(texts, offsets, out)    writes the bytes of measured texts
//     utf8_size(texts, most)       returns the number of bytes; -1 if the texts have more than `most` characters
//
// The texts are a list or a tuple. The memory of an ASCII string is its UTF-8. CPython keeps the UTF-8 of any other
// string with the string, so `copy` finds what `measure` has encoded. In Python, joining and encoding the strings takes
// two copies, and a call for each length. vocabularies/batch/batch.py does the same in Python.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr Py_ssize_t AHEAD = 16;  // Prefetch distance: strings lie anywhere in memory.

// A buffer of the caller, released with this object.
struct View {
    Py_buffer buffer{};
    bool is_acquired = false;
    bool acquire(PyObject* object) {
        is_acquired = PyObject_GetBuffer(object, &buffer, PyBUF_CONTIG) == 0;
        return is_acquired;
    }
    ~View() {
        if (is_acquired) PyBuffer_Release(&buffer);
    }
};

// Returns the UTF-8 of a string; null with an exception if it is no string or has lone surrogates.
const char* utf8_of(PyObject* text, Py_ssize_t* size) {
    if (PyUnicode_Check(text) && PyUnicode_IS_COMPACT_ASCII(text)) {
        *size = PyUnicode_GET_LENGTH(text);
        return static_cast<const char*>(PyUnicode_DATA(text));
    }
    return PyUnicode_AsUTF8AndSize(text, size);
}

bool check_arguments(PyObject* const* arguments, Py_ssize_t num_arguments, Py_ssize_t num_expected) {
    PyObject* texts = num_arguments ? arguments[0] : Py_None;
    if (num_arguments != num_expected || !(PyList_Check(texts) || PyTuple_Check(texts))) {
        PyErr_Format(PyExc_TypeError, "%zd arguments are expected, the first one a list or tuple of strings", num_expected);
        return false;
    }
    return true;
}

bool check_offsets(const View& offsets, Py_ssize_t num_texts) {
    if (offsets.buffer.len == static_cast<Py_ssize_t>(sizeof(int64_t)) * (num_texts + 1)) return true;
    PyErr_SetString(PyExc_ValueError, "offsets must be int64, one more than there are texts");
    return false;
}

// Writes where each text begins, int64[num_texts + 1], and stores the texts in `held` unless it is null: in
// one pass, since the strings' headers are mostly in no cache. Returns false with an exception.
bool measure_texts(PyObject* texts, int64_t* offsets, PyObject* held) {
    int64_t end = 0;
    Py_ssize_t num_texts = PySequence_Fast_GET_SIZE(texts);
    for (Py_ssize_t i = 0; i < num_texts; i++) {
        Py_ssize_t size = 0;
        if (i + AHEAD < num_texts) __builtin_prefetch(PySequence_Fast_GET_ITEM(texts, i + AHEAD));
        PyObject* text = PySequence_Fast_GET_ITEM(texts, i);
        if (held) PyTuple_SET_ITEM(held, i, Py_NewRef(text));
        if (!utf8_of(text, &size)) return false;
        offsets[i] = end;
        end += size;
    }
    offsets[num_texts] = end;
    return true;
}

// Checks the arguments and returns the buffer for the offsets; null with an exception.
int64_t* offsets_for(PyObject* const* arguments, Py_ssize_t num_arguments, View* view) {
    if (!check_arguments(arguments, num_arguments, 2) || !view->acquire(arguments[1])) return nullptr;
    if (!check_offsets(*view, PySequence_Fast_GET_SIZE(arguments[0]))) return nullptr;
    return static_cast<int64_t*>(view->buffer.buf);
}

PyObject* measure(PyObject*, PyObject* const* arguments, Py_ssize_t num_arguments) {
    View view;
    int64_t* offsets = offsets_for(arguments, num_arguments, &view);
    if (!offsets || !measure_texts(arguments[0], offsets, nullptr)) return nullptr;
    return PyLong_FromLongLong(offsets[PySequence_Fast_GET_SIZE(arguments[0])]);
}

PyObject* hold(PyObject*, PyObject* const* arguments, Py_ssize_t num_arguments) {
    View view;
    int64_t* offsets = offsets_for(arguments, num_arguments, &view);
    if (!offsets) return nullptr;
    bool is_tuple = PyTuple_CheckExact(arguments[0]);
    PyObject* held = is_tuple ? Py_NewRef(arguments[0]) : PyTuple_New(PySequence_Fast_GET_SIZE(arguments[0]));
    if (held && !measure_texts(arguments[0], offsets, is_tuple ? nullptr : held)) Py_CLEAR(held);
    return held;
}

// Checks each text's size again: another thread may have changed the list since it was measured.
PyObject* copy(PyObject*, PyObject* const* arguments, Py_ssize_t num_arguments) {
    View places, out;
    if (!check_arguments(arguments, num_arguments, 3)) return nullptr;
    if (!places.acquire(arguments[1]) || !out.acquire(arguments[2])) return nullptr;
    PyObject* texts = arguments[0];
    Py_ssize_t num_texts = PySequence_Fast_GET_SIZE(texts);
    if (!check_offsets(places, num_texts)) return nullptr;
    auto* offsets = static_cast<const int64_t*>(places.buffer.buf);
    auto* target = static_cast<char*>(out.buffer.buf);
    int64_t end = 0;
    for (Py_ssize_t i = 0; i < num_texts; i++) {
        Py_ssize_t size = 0;
        const char* source = utf8_of(PySequence_Fast_GET_ITEM(texts, i), &size);
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

bool check_strings(PyObject* texts) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(texts); i++) {
        if (PyUnicode_Check(PySequence_Fast_GET_ITEM(texts, i))) continue;
        PyErr_SetString(PyExc_TypeError, "a list of strings is expected");
        return false;
    }
    return true;
}

// Returns the size of a string's UTF-8; -1 with an exception if it has none. Strings up to U+00FF are
// counted without encoding them.
Py_ssize_t utf8_size_of(PyObject* text) {
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    if (PyUnicode_KIND(text) != PyUnicode_1BYTE_KIND) return utf8_of(text, &size) ? size : -1;
    if (PyUnicode_IS_ASCII(text)) return size;
    const Py_UCS1* characters = PyUnicode_1BYTE_DATA(text);
    Py_ssize_t num_others = 0;
    for (Py_ssize_t i = 0; i < size; i++) num_others += characters[i] >> 7;
    return size + num_others;
}

PyObject* utf8_size(PyObject*, PyObject* const* arguments, Py_ssize_t num_arguments) {
    if (!check_arguments(arguments, num_arguments, 2) || !check_strings(arguments[0])) return nullptr;
    Py_ssize_t most = PyLong_AsSsize_t(arguments[1]);
    if (most == -1 && PyErr_Occurred()) return nullptr;
    PyObject* texts = arguments[0];
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(texts); i++) {
        most -= PyUnicode_GET_LENGTH(PySequence_Fast_GET_ITEM(texts, i));
        if (most < 0) return PyLong_FromLong(-1);
    }
    Py_ssize_t all = 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(texts); i++) {
        Py_ssize_t size = utf8_size_of(PySequence_Fast_GET_ITEM(texts, i));
        if (size < 0) return nullptr;
        all += size;
    }
    return PyLong_FromSsize_t(all);
}

PyMethodDef methods[] = {
    {"measure", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(measure)), METH_FASTCALL,
     "measure(texts, offsets, /): writes int64[B + 1], returns the bytes of all."},
    {"hold", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(hold)), METH_FASTCALL,
     "hold(texts, offsets, /): writes int64[B + 1], returns a tuple of the texts."},
    {"copy", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(copy)), METH_FASTCALL,
     "copy(texts, offsets, out, /): writes the UTF-8 of all."},
    {"utf8_size", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(utf8_size)), METH_FASTCALL,
     "utf8_size(texts, most, /): of the UTF-8 of all; -1 where there are more characters."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "vocabularies.batch._string_join", nullptr, 0, methods,
                      nullptr,               nullptr,                nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__string_join() { return PyModule_Create(&module); }
