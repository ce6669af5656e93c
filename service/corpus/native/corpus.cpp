// Finds documents in blocks of lines, and adds begin and end tokens to rows of ids.
//
// Where this module is not built, slower Python code beside each call does the same.
//
//     extract(block, key) -> offsets int64[B + 1], places int64[B], rejects [(place, reason)]
//     split(block) -> offsets int64[B + 1], places int64[B]
//     add_begin_end_tokens(ids[T], offsets int64[B + 1], begin, end, out, out_offsets int64[B + 1])
//
// `block` is a writable buffer of whole lines: lines of JSON, which have the text at `key`, or lines of text. The texts
// are joined at the beginning of the block. No text is longer than its line, so nothing is overwritten before it was
// read. A place is the first byte of a line. Blank lines are no documents.
//
// `add_begin_end_tokens` copies rows to `out`; the elements of `ids` and `out` are uint16 or int32. Each row that is not
// empty gets the token `begin` before it and `end` behind it; -1 adds none.
#include "../../engines/cpu/native/python_buffers.hpp"

#include <algorithm>
#include <vector>

#include "json_text.hpp"

namespace {

struct Rejected {
    int64_t place;
    corpus::Reject reason;
};

struct Documents {
    std::vector<int64_t> offsets{0}, places;
    std::vector<Rejected> rejects;

    void add(int64_t place, int64_t end) {
        places.push_back(place);
        offsets.push_back(end);
    }
};

bool is_blank(const char* at, const char* end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) at++;
    return at == end;
}

// Calls `visit(begin, end)` for each line that is not blank, without its line feed.
template <typename Visit>
void visit_lines(const char* block, size_t size, Visit visit) {
    const char* const end = block + size;
    for (const char* line = block; line < end;) {
        const void* const found = std::memchr(line, '\n', static_cast<size_t>(end - line));
        const char* const line_end = found ? static_cast<const char*>(found) : end;
        if (!is_blank(line, line_end)) visit(line, line_end);
        line = line_end + 1;
    }
}

void extract_texts(char* block, size_t size, std::string_view key, Documents& documents) {
    const char* const end = block + size;
    char* out = block;
    for (const char* begin = block; begin < end;) {
        corpus::Line line(begin, end, key, out);
        if (!line.is_blank()) {
            corpus::Reject reason;
            if (char* const text_end = line.read_text(reason)) {
                out = text_end;
                documents.add(begin - block, out - block);
            } else {
                documents.rejects.push_back({begin - block, reason});
            }
        }
        begin = line.find_end() + 1;
    }
}

void split_lines(char* block, size_t size, Documents& documents) {
    char* out = block;
    visit_lines(block, size, [&](const char* line, const char* end) {
        if (end[-1] == '\r') end--;
        std::memmove(out, line, static_cast<size_t>(end - line));
        out += end - line;
        documents.add(line - block, out - block);
    });
}

// The begin and the end token of rows; a negative id adds none.
struct BeginEndTokens {
    int begin, end;
};

template <typename From, typename Id>
void copy_rows(const From* ids, const int64_t* offsets, size_t num_rows, BeginEndTokens tokens, Id* out,
               int64_t* out_offsets) {
    Id* at = out;
    out_offsets[0] = 0;
    for (size_t row = 0; row < num_rows; row++) {
        const From* id = ids + offsets[row];
        const From* const row_end = ids + offsets[row + 1];
        const bool is_empty = id == row_end;
        if (tokens.begin >= 0 && !is_empty) *at++ = static_cast<Id>(tokens.begin);
        at = std::copy(id, row_end, at);
        if (tokens.end >= 0 && !is_empty) *at++ = static_cast<Id>(tokens.end);
        out_offsets[row + 1] = at - out;
    }
}

PyObject* to_bytes(const std::vector<int64_t>& values) {
    const auto size = static_cast<Py_ssize_t>(values.size() * sizeof(int64_t));
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values.data()), size);
}

PyObject* make_list(const std::vector<Rejected>& rejects) {
    PyObject* const list = PyList_New(static_cast<Py_ssize_t>(rejects.size()));
    for (size_t i = 0; list && i < rejects.size(); i++) {
        const auto place = static_cast<long long>(rejects[i].place);
        PyObject* const pair = Py_BuildValue("(Ll)", place, static_cast<long>(rejects[i].reason));
        if (!pair) {
            Py_DECREF(list);
            return nullptr;
        }
        PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), pair);
    }
    return list;
}

PyObject* extract(PyObject*, PyObject* arguments) {
    PyObject* block;
    const char* key;
    Py_ssize_t key_size;
    if (!PyArg_ParseTuple(arguments, "Oy#", &block, &key, &key_size)) return nullptr;
    View view;
    if (!view.acquire(block, true)) return nullptr;
    Documents found;
    const std::string_view name(key, static_cast<size_t>(key_size));
    if (!run_unlocked([&] { extract_texts(view.elements<char>(), view.size<char>(), name, found); })) return nullptr;
    return Py_BuildValue("(NNN)", to_bytes(found.offsets), to_bytes(found.places), make_list(found.rejects));
}

PyObject* split(PyObject*, PyObject* block) {
    View view;
    if (!view.acquire(block, true)) return nullptr;
    Documents found;
    if (!run_unlocked([&] { split_lines(view.elements<char>(), view.size<char>(), found); })) return nullptr;
    return Py_BuildValue("(NN)", to_bytes(found.offsets), to_bytes(found.places));
}

PyObject* add_begin_end_tokens(PyObject*, PyObject* arguments) {
    PyObject *ids, *offsets, *out, *out_offsets;
    BeginEndTokens tokens;
    if (!PyArg_ParseTuple(arguments, "OOiiOO", &ids, &offsets, &tokens.begin, &tokens.end, &out, &out_offsets)) return nullptr;
    View id_view, offset_view, out_view, out_offset_view;
    if (!id_view.acquire(ids) || !offset_view.acquire(offsets) || !out_view.acquire(out, true) ||
        !out_offset_view.acquire(out_offsets, true)) {
        return nullptr;
    }
    const size_t num_offsets = offset_view.size<int64_t>();
    if (num_offsets == 0 || out_offset_view.size<int64_t>() != num_offsets) return refuse("offsets of other rows");
    const size_t num_rows = num_offsets - 1, num_added = (tokens.begin >= 0) + (tokens.end >= 0);
    const bool are_narrow = id_view.buffer.itemsize == 2, is_narrow = out_view.buffer.itemsize == 2;
    const size_t most = static_cast<size_t>(id_view.buffer.len) / (are_narrow ? 2 : 4) + num_rows * num_added;
    if (static_cast<size_t>(out_view.buffer.len) < most * (is_narrow ? 2 : 4)) return refuse("too few ids in out");
    const bool is_done = run_unlocked([&] {
        const auto* const begins = offset_view.elements<int64_t>();
        auto* const to = out_offset_view.elements<int64_t>();
        const auto copy = [&](const auto* from) {
            if (is_narrow) copy_rows(from, begins, num_rows, tokens, out_view.elements<uint16_t>(), to);
            else copy_rows(from, begins, num_rows, tokens, out_view.elements<int32_t>(), to);
        };
        if (are_narrow) copy(id_view.elements<uint16_t>());
        else copy(id_view.elements<int32_t>());
    });
    if (!is_done) return nullptr;
    Py_RETURN_NONE;
}

PyMethodDef METHODS[] = {
    {"extract", extract, METH_VARARGS, "Join the texts of a key at the beginning of a block of JSON lines."},
    {"split", split, METH_O, "Join the lines of a block at its beginning, without line ends."},
    {"add_begin_end_tokens", add_begin_end_tokens, METH_VARARGS, "Copy rows of ids with begin and end tokens."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_corpus", nullptr, -1, METHODS, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__corpus() { return PyModule_Create(&MODULE); }
