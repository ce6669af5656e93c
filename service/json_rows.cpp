// Rows of ids as a JSON list of lists.
//
//     rows(ids, offsets, begin, end) -> bytes
//
//     ids 7 8 9 10, offsets 0 2 2 4, rows 0 to 3   ->   [[7,8],[],[9,10]]
//
// orjson is called with an array for each row, which takes longer than its digits.
// service/json_rows.py is the same in Python.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <charconv>
#include <cstdint>

namespace {

constexpr Py_ssize_t ID_CHARACTERS = 12;  // -2147483648 and a comma.
constexpr Py_ssize_t ROW_CHARACTERS = 3;  // Brackets and a comma.

struct View {
    Py_buffer buffer{};
    bool is_held = false;
    ~View() {
        if (is_held) PyBuffer_Release(&buffer);
    }
};

// An id as decimal digits; returns where they end.
char* write_id(char* out, int32_t id) { return std::to_chars(out, out + ID_CHARACTERS, id).ptr; }

// Ids first to last of a row in brackets; returns where they end.
char* write_row(char* out, const int32_t* ids, Py_ssize_t first, Py_ssize_t last) {
    *out++ = '[';
    for (Py_ssize_t i = first; i < last; i++) {
        out = write_id(out, ids[i]);
        *out++ = ',';
    }
    if (last > first) out--;
    *out++ = ']';
    return out;
}

// The place in an ascending list of offsets; -1 with an exception where it is none.
Py_ssize_t offset_at(PyObject* offsets, Py_ssize_t row, Py_ssize_t least, Py_ssize_t most) {
    Py_ssize_t place = PyLong_AsSsize_t(PyList_GET_ITEM(offsets, row));
    if (place == -1 && PyErr_Occurred()) return -1;
    if (place >= least && place <= most) return place;
    PyErr_SetString(PyExc_ValueError, "offsets must ascend and end within the ids");
    return -1;
}

PyObject* rows(PyObject*, PyObject* arguments) {
    View ids;
    PyObject* offsets;
    Py_ssize_t begin, end;
    if (!PyArg_ParseTuple(arguments, "y*O!nn", &ids.buffer, &PyList_Type, &offsets, &begin, &end)) return nullptr;
    ids.is_held = true;
    Py_ssize_t num_ids = ids.buffer.len / static_cast<Py_ssize_t>(sizeof(int32_t));
    if (begin < 0 || end < begin || end >= PyList_GET_SIZE(offsets)) {
        PyErr_SetString(PyExc_IndexError, "no such rows");
        return nullptr;
    }
    Py_ssize_t first = offset_at(offsets, begin, 0, num_ids);
    Py_ssize_t last = first < 0 ? -1 : offset_at(offsets, end, first, num_ids);
    if (last < 0) return nullptr;
    Py_ssize_t most = 2 + (last - first) * ID_CHARACTERS + (end - begin) * ROW_CHARACTERS;
    PyObject* written = PyBytes_FromStringAndSize(nullptr, most);
    if (!written) return nullptr;
    char *const start = PyBytes_AS_STRING(written), *out = start;
    *out++ = '[';
    for (Py_ssize_t row = begin; row < end; row++) {
        Py_ssize_t next = offset_at(offsets, row + 1, first, last);
        if (next < 0) {
            Py_DECREF(written);
            return nullptr;
        }
        out = write_row(out, static_cast<const int32_t*>(ids.buffer.buf), first, next);
        *out++ = ',';
        first = next;
    }
    if (end > begin) out--;
    *out++ = ']';
    _PyBytes_Resize(&written, out - start);
    return written;
}

PyMethodDef methods[] = {
    {"rows", rows, METH_VARARGS, "rows(ids, offsets, begin, end, /): rows of int32 ids as JSON."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "service._json_rows", nullptr, 0, methods,
                      nullptr,               nullptr,              nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__json_rows() { return PyModule_Create(&module); }
