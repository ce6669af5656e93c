// Rows of ids as a JSON list of lists, alone or with how many ids each has.
//
//     rows(ids, offsets, begin, end) -> bytes
//     rows_and_sizes(before, between, after, ids, offsets, begin, end) -> bytes
//     row_and_size(before, between, after, ids, offsets, row) -> bytes
//
//     ids 7 8 9 10, offsets 0 2 2 4
//     rows 0 to 3               [[7,8],[],[9,10]]
//     with their sizes    BEFORE[[7,8],[],[9,10]]BETWEEN[2,0,2]AFTER
//     row 2 with its size BEFORE[9,10]BETWEEN2AFTER
//
// orjson is called with an array for each row, which takes longer than its digits.
// service/operations/rendering/json_rows.py is the same in Python.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <charconv>
#include <cstdint>
#include <cstring>

namespace {

constexpr Py_ssize_t ID_CHARACTERS = 12;  // -2147483648 and a comma.
constexpr Py_ssize_t ROW_CHARACTERS = 3;  // Brackets and a comma.
constexpr Py_ssize_t SIZE_CHARACTERS = 20;
constexpr Py_ssize_t SLACK = 8;  // Four characters are stored at once, whatever their number.
constexpr uint32_t THOUSAND = 1000;

// Up to three digits and perhaps a comma, and how many characters they are.
struct Digits {
    char text[4];
    uint32_t size;
};

// Numbers below a thousand as they stand in one of less than a million, by what stands before.
struct Table {
    Digits thousands[THOUSAND];   // 0 is nothing.
    Digits rest[2][THOUSAND];     // With a comma; [1] behind thousands, so with all zeros.
    Table() {
        for (uint32_t number = 0; number < THOUSAND; number++) {
            thousands[number] = digits_of(number, number > 0, false);
            rest[0][number] = digits_of(number, 1, true);
            rest[1][number] = digits_of(number, 3, true);
        }
    }
    static Digits digits_of(uint32_t number, uint32_t least, bool with_comma) {
        const char all[] = {static_cast<char>('0' + number / 100), static_cast<char>('0' + number / 10 % 10),
                            static_cast<char>('0' + number % 10)};
        uint32_t size = number >= 100 ? 3 : number >= 10 ? 2 : 1;
        size = size < least ? least : least ? size : 0;
        Digits digits{{0, 0, 0, 0}, size};
        std::memcpy(digits.text, all + 3 - size, size);
        if (with_comma) digits.text[digits.size++] = ',';
        return digits;
    }
};

const Table TABLE;

// A buffer of the caller's, given back at the end.
struct View {
    Py_buffer buffer{};
    bool is_held = false;
    bool take(PyObject* object) {
        is_held = PyObject_GetBuffer(object, &buffer, PyBUF_CONTIG_RO) == 0;
        return is_held;
    }
    ~View() {
        if (is_held) PyBuffer_Release(&buffer);
    }
};

char* write_digits(char* out, const Digits& digits) {
    std::memcpy(out, digits.text, sizeof(digits.text));
    return out + digits.size;
}

// A number and a comma; returns where they end. Two looks at a table instead of a turn per digit,
// whose number a processor cannot foretell.
char* write_number(char* out, int64_t number) {
    if (number < 0 || number >= THOUSAND * THOUSAND) {
        out = std::to_chars(out, out + SIZE_CHARACTERS, number).ptr;
        *out++ = ',';
        return out;
    }
    uint32_t all = static_cast<uint32_t>(number), thousands = all / THOUSAND;
    out = write_digits(out, TABLE.thousands[thousands]);
    return write_digits(out, TABLE.rest[thousands != 0][all - thousands * THOUSAND]);
}

// Behind the last element of a list: its comma becomes the bracket.
char* end_list(char* out, bool has_elements) {
    out -= has_elements;
    *out++ = ']';
    return out;
}

char* write_bytes(char* out, const View& view) {
    std::memcpy(out, view.buffer.buf, static_cast<size_t>(view.buffer.len));
    return out + view.buffer.len;
}

// The place in an ascending list of offsets; -1 with an exception where it is none.
Py_ssize_t offset_at(PyObject* offsets, Py_ssize_t row, Py_ssize_t least, Py_ssize_t most) {
    Py_ssize_t place = PyLong_AsSsize_t(PyList_GET_ITEM(offsets, row));
    if (place == -1 && PyErr_Occurred()) return -1;
    if (place >= least && place <= most) return place;
    PyErr_SetString(PyExc_ValueError, "offsets must ascend and end within the ids");
    return -1;
}

// Rows begin to end of ids, which are first to last of them all.
struct Rows {
    View ids;
    PyObject* offsets = nullptr;
    Py_ssize_t begin = 0, end = 0, first = 0, last = 0;

    // Takes ids, offsets and rows from `from` to `to`, or `from` alone where `to` is null; false
    // with an exception where there are no such rows.
    bool take(PyObject* all_ids, PyObject* all_offsets, PyObject* from, PyObject* to) {
        offsets = all_offsets;
        if (!PyList_Check(offsets)) {
            PyErr_SetString(PyExc_TypeError, "offsets must be a list");
            return false;
        }
        if (!ids.take(all_ids)) return false;
        begin = PyLong_AsSsize_t(from);
        end = to ? PyLong_AsSsize_t(to) : begin < PY_SSIZE_T_MAX ? begin + 1 : begin;
        if (PyErr_Occurred()) return false;
        if (begin < 0 || end < begin || end >= PyList_GET_SIZE(offsets)) {
            PyErr_SetString(PyExc_IndexError, "no such rows");
            return false;
        }
        Py_ssize_t num_ids = ids.buffer.len / static_cast<Py_ssize_t>(sizeof(int32_t));
        first = offset_at(offsets, begin, 0, num_ids);
        last = first < 0 ? -1 : offset_at(offsets, end, first, num_ids);
        return last >= 0;
    }

    Py_ssize_t most_characters() const {
        return 2 + (last - first) * ID_CHARACTERS + (end - begin) * ROW_CHARACTERS;
    }

    // The ids from one place to another.
    char* write_row(char* out, Py_ssize_t from, Py_ssize_t to) const {
        const auto* all = static_cast<const int32_t*>(ids.buffer.buf);
        *out++ = '[';
        for (Py_ssize_t i = from; i < to; i++) out = write_number(out, all[i]);
        return end_list(out, to > from);
    }

    // The list of lists; null with an exception where the offsets between do not ascend.
    char* write(char* out) const {
        Py_ssize_t place = first;
        *out++ = '[';
        for (Py_ssize_t row = begin; row < end; row++) {
            Py_ssize_t next = offset_at(offsets, row + 1, place, last);
            if (next < 0) return nullptr;
            out = write_row(out, place, next);
            *out++ = ',';
            place = next;
        }
        return end_list(out, end > begin);
    }

    // How many ids each row has, as a list; the rows have been written.
    char* write_sizes(char* out) const {
        Py_ssize_t place = first;
        *out++ = '[';
        for (Py_ssize_t row = begin; row < end; row++) {
            Py_ssize_t next = PyLong_AsSsize_t(PyList_GET_ITEM(offsets, row + 1));
            out = write_number(out, next - place);
            place = next;
        }
        return end_list(out, end > begin);
    }
};

bool has_arguments(Py_ssize_t given, Py_ssize_t wanted) {
    if (given == wanted) return true;
    PyErr_Format(PyExc_TypeError, "%zd arguments are expected", wanted);
    return false;
}

// What was written into as many bytes as there may be at most; null where `end` is.
PyObject* shortened(PyObject* bytes, const char* end) {
    if (!end) {
        Py_DECREF(bytes);
        return nullptr;
    }
    _PyBytes_Resize(&bytes, end - PyBytes_AS_STRING(bytes));
    return bytes;
}

PyObject* rows(PyObject*, PyObject* const* arguments, Py_ssize_t given) {
    Rows chosen;
    if (!has_arguments(given, 4)) return nullptr;
    if (!chosen.take(arguments[0], arguments[1], arguments[2], arguments[3])) return nullptr;
    PyObject* written = PyBytes_FromStringAndSize(nullptr, chosen.most_characters() + SLACK);
    return written ? shortened(written, chosen.write(PyBytes_AS_STRING(written))) : nullptr;
}

// What stands around rows and their sizes.
struct Frame {
    View before, between, after;

    bool take(PyObject* const* arguments) {
        return before.take(arguments[0]) && between.take(arguments[1]) && after.take(arguments[2]);
    }

    // Room for all; null with an exception where there is none.
    PyObject* room(const Rows& chosen) const {
        Py_ssize_t own = before.buffer.len + between.buffer.len + after.buffer.len;
        Py_ssize_t sizes = 2 + (chosen.end - chosen.begin) * SIZE_CHARACTERS;
        return PyBytes_FromStringAndSize(nullptr, own + chosen.most_characters() + sizes + SLACK);
    }
};

PyObject* rows_and_sizes(PyObject*, PyObject* const* arguments, Py_ssize_t given) {
    Rows chosen;
    Frame frame;
    if (!has_arguments(given, 7) || !frame.take(arguments)) return nullptr;
    if (!chosen.take(arguments[3], arguments[4], arguments[5], arguments[6])) return nullptr;
    PyObject* written = frame.room(chosen);
    if (!written) return nullptr;
    char* out = chosen.write(write_bytes(PyBytes_AS_STRING(written), frame.before));
    if (out) out = write_bytes(chosen.write_sizes(write_bytes(out, frame.between)), frame.after);
    return shortened(written, out);
}

PyObject* row_and_size(PyObject*, PyObject* const* arguments, Py_ssize_t given) {
    Rows chosen;
    Frame frame;
    if (!has_arguments(given, 6) || !frame.take(arguments)) return nullptr;
    if (!chosen.take(arguments[3], arguments[4], arguments[5], nullptr)) return nullptr;
    PyObject* written = frame.room(chosen);
    if (!written) return nullptr;
    char* out = write_bytes(PyBytes_AS_STRING(written), frame.before);
    out = write_bytes(chosen.write_row(out, chosen.first, chosen.last), frame.between);
    out = write_number(out, chosen.last - chosen.first) - 1;  // Without its comma.
    return shortened(written, write_bytes(out, frame.after));
}

template <typename Function>
PyCFunction method(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"rows", method(rows), METH_FASTCALL, "rows(ids, offsets, begin, end, /): rows of int32 ids as JSON."},
    {"rows_and_sizes", method(rows_and_sizes), METH_FASTCALL,
     "rows_and_sizes(before, between, after, ids, offsets, begin, end, /): rows and their sizes as JSON."},
    {"row_and_size", method(row_and_size), METH_FASTCALL,
     "row_and_size(before, between, after, ids, offsets, row, /): one row and its size as JSON."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "service.operations.rendering._json_rows", nullptr, 0, methods,
                      nullptr,               nullptr,              nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__json_rows() { return PyModule_Create(&module); }
