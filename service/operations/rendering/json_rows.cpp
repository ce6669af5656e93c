// Writes rows of ids as a JSON list of lists.
//
//     write_rows(ids, offsets) -> bytes
//
//     ids 7 8 9 10, offsets 0 2 2 4      [[7,8],[],[9,10]]
//
// orjson needs an array for each row, which costs more than its digits: docs/decisions/protocols/0060 has the figures.
// `rows_json` in service/operations/rendering/json_stream.py is the same in Python.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>

namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first digit is the lowest byte");

constexpr int64_t ID_CHARACTERS = 21;       // -9223372036854775808 and a comma.
constexpr int64_t ROW_CHARACTERS = 3;       // Brackets and a comma.
constexpr int64_t MAX_IDS_LOCKED = 16'384;  // About 30 µs; more are written without Python's lock.

// A buffer of the caller, released at the end.
struct View {
    Py_buffer buffer{};
    bool acquire(PyObject* object) {
        return PyObject_GetBuffer(object, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0;
    }
    bool has_format(const char* format) const { return std::strcmp(buffer.format, format) == 0; }
    bool is_int64() const { return has_format("q") || (has_format("l") && buffer.itemsize == 8); }
    int64_t size() const { return buffer.len / buffer.itemsize; }
    ~View() { PyBuffer_Release(&buffer); }
};

// The three digits of each number below 1,000, the first one in the lowest byte.
constexpr std::array<uint32_t, 1'000> make_digits() {
    std::array<uint32_t, 1'000> digits{};
    for (uint32_t i = 0; i < 1'000; i++) digits[i] = i / 100 | i / 10 % 10 << 8 | i % 10 << 16;
    return digits;
}

constexpr std::array<uint32_t, 1'000> DIGITS = make_digits();

// Writes a number and a comma; returns where they end. Six digits and the comma are stored at once, without leading
// zeros and without a branch for how many digits there are, which a processor cannot predict.
char* write_number(char* out, int64_t number) {
    if (number < 0 || number >= 1'000'000) {
        out = std::to_chars(out, out + ID_CHARACTERS, number).ptr;
        *out++ = ',';
        return out;
    }
    auto small = static_cast<uint32_t>(number);
    uint64_t digits = DIGITS[small / 1'000] | uint64_t{DIGITS[small % 1'000]} << 24;
    int num_zeros = __builtin_ctzll(digits | uint64_t{1} << 40) / 8;  // Leading zeros; the number 0 has five.
    uint64_t text = (digits | 0x2C'30'30'30'30'30'30) >> 8 * num_zeros;  // "000000," in ASCII.
    std::memcpy(out, &text, sizeof(text));
    return out + 7 - num_zeros;
}

// Ends a list: the bracket replaces the comma behind the last element.
char* end_list(char* out, bool has_elements) {
    out -= has_elements;
    *out = ']';
    return out + 1;
}

// Writes the rows; returns their end, or null if the offsets do not ascend. It reads each offset once, as another
// thread may change them.
template <typename Id>
char* write_lists(const Id* ids, const int64_t* offsets, int64_t num_rows, int64_t begin, int64_t end, char* out) {
    *out++ = '[';
    for (int64_t row = 1; row <= num_rows; row++) {
        int64_t row_end = offsets[row];
        if (row_end < begin || row_end > end) return nullptr;
        *out++ = '[';
        for (int64_t i = begin; i < row_end; i++) out = write_number(out, ids[i]);
        out = end_list(out, row_end > begin);
        *out++ = ',';
        begin = row_end;
    }
    return end_list(out, num_rows > 0);
}

PyObject* write_rows(PyObject*, PyObject* const* arguments, Py_ssize_t num_arguments) {
    View ids, places;
    if (num_arguments != 2) return PyErr_Format(PyExc_TypeError, "ids and offsets are expected");
    if (!ids.acquire(arguments[0]) || !places.acquire(arguments[1])) return nullptr;
    bool is_uint8 = ids.has_format("B"), is_uint16 = ids.has_format("H"), is_int32 = ids.has_format("i");
    if (!(is_uint8 || is_uint16 || is_int32 || ids.is_int64()) || !places.is_int64() || places.size() == 0) {
        return PyErr_Format(PyExc_ValueError, "ids are uint8, uint16, int32 or int64, and offsets int64[rows + 1]");
    }
    const auto* offsets = static_cast<const int64_t*>(places.buffer.buf);
    int64_t num_rows = places.size() - 1, begin = offsets[0], end = offsets[num_rows];
    PyObject* json = nullptr;
    char* json_end = nullptr;
    if (begin >= 0 && begin <= end && end <= ids.size()) {
        json = PyBytes_FromStringAndSize(nullptr, (end - begin) * ID_CHARACTERS + num_rows * ROW_CHARACTERS + 2);
        if (!json) return nullptr;
        PyThreadState* unlocked = end - begin + num_rows > MAX_IDS_LOCKED ? PyEval_SaveThread() : nullptr;
        auto write = [&](auto id) {
            const auto* all = static_cast<const decltype(id)*>(ids.buffer.buf);
            return write_lists(all, offsets, num_rows, begin, end, PyBytes_AS_STRING(json));
        };
        json_end = is_int32    ? write(int32_t{})
                   : is_uint16 ? write(uint16_t{})
                   : is_uint8  ? write(uint8_t{})
                               : write(int64_t{});
        if (unlocked) PyEval_RestoreThread(unlocked);
    }
    if (!json_end) {
        Py_XDECREF(json);
        return PyErr_Format(PyExc_ValueError, "the offsets do not ascend, or pass the ids");
    }
    _PyBytes_Resize(&json, json_end - PyBytes_AS_STRING(json));
    return json;
}

PyMethodDef methods[] = {
    {"write_rows", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(write_rows)), METH_FASTCALL,
     "write_rows(ids, offsets, /): Write rows of ids as a JSON list of lists."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "service.operations.rendering._json_rows", nullptr, 0, methods,
                      nullptr,               nullptr,                nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__json_rows() { return PyModule_Create(&module); }
