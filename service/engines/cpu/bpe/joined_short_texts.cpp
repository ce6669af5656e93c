// Joins short texts for an encoder, with a separator between them, and splits the ids again.
//
//     join(texts, separator, max_text, max_group, sizes) -> the joined groups; sizes: int64[B]
//     split(ids, offsets, sizes, separator_id, out, out_offsets)
//
//     "to be"  " or"  "not"  "to"      separator |
//     "to be"  " or|not|to"            sizes 1 3: a text that begins with white space begins a group
//
// Texts with characters above U+00FF, with the separator in them or of more than `max_text`
// characters are not joined; a group has at most `max_group` characters. `sizes` gets the number of
// texts of each group.
// service/engines/cpu/bpe/joined_short_texts.py says why the ids are those of each text.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

// A buffer of a Python object, released at the end.
struct View {
    Py_buffer buffer{};
    bool is_acquired = false;
    bool acquire(PyObject* object, bool is_written) {
        is_acquired = PyObject_GetBuffer(object, &buffer, is_written ? PyBUF_CONTIG : PyBUF_CONTIG_RO) == 0;
        return is_acquired;
    }
    template <typename Element>
    Element* elements() const {
        return static_cast<Element*>(buffer.buf);
    }
    template <typename Element>
    Py_ssize_t size() const {
        return buffer.len / static_cast<Py_ssize_t>(sizeof(Element));
    }
    ~View() {
        if (is_acquired) PyBuffer_Release(&buffer);
    }
};

// The separator, and the most characters of a text and of a group.
struct Rule {
    Py_UCS1 separator;
    Py_ssize_t max_text, max_group;
};

bool may_be_joined(PyObject* text, const Rule& rule) {
    if (PyUnicode_KIND(text) != PyUnicode_1BYTE_KIND || PyUnicode_GET_LENGTH(text) > rule.max_text) return false;
    return !std::memchr(PyUnicode_DATA(text), rule.separator, static_cast<size_t>(PyUnicode_GET_LENGTH(text)));
}

bool may_follow(PyObject* text) {
    return PyUnicode_GET_LENGTH(text) > 0 && !Py_UNICODE_ISSPACE(PyUnicode_1BYTE_DATA(text)[0]);
}

// Finds the end of the group that begins with a text; sets the size of the group in characters.
Py_ssize_t find_group_end(PyObject* texts, Py_ssize_t begin, const Rule& rule, Py_ssize_t* size) {
    *size = PyUnicode_GET_LENGTH(PyList_GET_ITEM(texts, begin));
    Py_ssize_t end = begin + 1;
    if (!may_be_joined(PyList_GET_ITEM(texts, begin), rule)) return end;
    for (; end < PyList_GET_SIZE(texts); end++) {
        PyObject* text = PyList_GET_ITEM(texts, end);
        Py_ssize_t longer = *size + 1 + PyUnicode_GET_LENGTH(text);
        if (longer > rule.max_group || !may_be_joined(text, rule) || !may_follow(text)) break;
        *size = longer;
    }
    return end;
}

PyObject* join_group(PyObject* texts, Py_ssize_t begin, Py_ssize_t end, Py_UCS1 separator, Py_ssize_t size) {
    bool is_ascii = true;
    for (Py_ssize_t i = begin; i < end; i++) is_ascii &= PyUnicode_IS_ASCII(PyList_GET_ITEM(texts, i)) != 0;
    PyObject* group = PyUnicode_New(size, is_ascii ? 0x7F : 0xFF);
    if (!group) return nullptr;
    Py_UCS1* out = PyUnicode_1BYTE_DATA(group);
    for (Py_ssize_t i = begin; i < end; i++) {
        PyObject* text = PyList_GET_ITEM(texts, i);
        if (i > begin) *out++ = separator;
        std::memcpy(out, PyUnicode_DATA(text), static_cast<size_t>(PyUnicode_GET_LENGTH(text)));
        out += PyUnicode_GET_LENGTH(text);
    }
    return group;
}

bool check_strings(PyObject* texts) {
    bool is_valid = PyList_Check(texts);
    for (Py_ssize_t i = 0; is_valid && i < PyList_GET_SIZE(texts); i++) {
        is_valid = PyUnicode_Check(PyList_GET_ITEM(texts, i));
    }
    if (!is_valid) PyErr_SetString(PyExc_TypeError, "a list of strings is expected");
    return is_valid;
}

PyObject* join(PyObject*, PyObject* arguments) {
    PyObject *texts, *counts;
    char separator;
    Rule rule{};
    Py_ssize_t begin = 0, end = 0, size = 0;
    View sizes;
    if (!PyArg_ParseTuple(arguments, "OcnnO", &texts, &separator, &rule.max_text, &rule.max_group, &counts)) {
        return nullptr;
    }
    if (!check_strings(texts) || !sizes.acquire(counts, true)) return nullptr;
    rule.separator = static_cast<Py_UCS1>(separator);
    if (sizes.size<int64_t>() != PyList_GET_SIZE(texts) || rule.separator > 0x7F) {
        PyErr_SetString(PyExc_ValueError, "a number for each text and a separator of ASCII are expected");
        return nullptr;
    }
    PyObject* all = PyList_New(0);
    for (int64_t* group_size = sizes.elements<int64_t>(); all && begin < PyList_GET_SIZE(texts); begin = end) {
        end = find_group_end(texts, begin, rule, &size);
        *group_size++ = end - begin;
        PyObject* text = PyList_GET_ITEM(texts, begin);
        text = end - begin > 1 ? join_group(texts, begin, end, rule.separator, size) : Py_NewRef(text);
        if (!text || PyList_Append(all, text) < 0) Py_CLEAR(all);
        Py_XDECREF(text);
    }
    return all;
}

// The arrays that get the ids of the texts, one after another.
struct Output {
    int32_t *const begin, *at, *const end;
    int64_t* text_ends;

    bool add(const int32_t* ids, const int32_t* ids_end) {
        if (end - at < ids_end - ids) return false;
        at = std::copy(ids, ids_end, at);
        *text_ends++ = at - begin;
        return true;
    }
};

// Splits the ids of one group into those of its texts; false if separators are missing or too many.
bool split_group(const int32_t* ids, const int32_t* end, int64_t num_texts, int32_t separator, Output& out) {
    if (num_texts == 1) return out.add(ids, end);
    for (; num_texts > 0; num_texts--) {
        const int32_t* text_end = std::find(ids, end, separator);
        if ((text_end == end) != (num_texts == 1) || !out.add(ids, text_end)) return false;
        ids = text_end + 1;
    }
    return true;
}

// Returns whether the ids of these groups fill the caller's arrays exactly.
bool check_sizes(const View& ids, const View& offsets, const View& sizes, const View& out, const View& out_offsets) {
    Py_ssize_t num_groups = offsets.size<int64_t>() - 1, num_texts = 0;
    if (num_groups < 0 || num_groups > sizes.size<int64_t>()) return false;
    const auto *places = offsets.elements<const int64_t>(), *counts = sizes.elements<const int64_t>();
    for (Py_ssize_t i = 0; i < num_groups; i++) {
        if (places[i] > places[i + 1] || counts[i] < 1 || counts[i] > sizes.size<int64_t>()) return false;
        num_texts += counts[i];
    }
    Py_ssize_t num_ids = ids.size<int32_t>();
    return places[0] == 0 && places[num_groups] == num_ids && num_texts == sizes.size<int64_t>() &&
           out_offsets.size<int64_t>() == num_texts + 1 &&
           out.size<int32_t>() == std::max<Py_ssize_t>(0, num_ids - (num_texts - num_groups));
}

bool split_all(const View& ids, const View& offsets, const View& sizes, int32_t separator, const View& out,
               const View& out_offsets) {
    if (!check_sizes(ids, offsets, sizes, out, out_offsets)) return false;
    const auto* all = ids.elements<const int32_t>();
    const auto *places = offsets.elements<const int64_t>(), *counts = sizes.elements<const int64_t>();
    auto* out_ids = out.elements<int32_t>();
    Output output{out_ids, out_ids, out_ids + out.size<int32_t>(), out_offsets.elements<int64_t>()};
    *output.text_ends++ = 0;
    for (Py_ssize_t i = 0; i < offsets.size<int64_t>() - 1; i++) {
        if (!split_group(all + places[i], all + places[i + 1], counts[i], separator, output)) return false;
    }
    return output.at == output.end;
}

PyObject* split(PyObject*, PyObject* arguments) {
    PyObject *id_array, *offset_array, *size_array, *out_array, *out_offset_array;
    int separator;
    View ids, offsets, sizes, out, out_offsets;
    if (!PyArg_ParseTuple(arguments, "OOOiOO", &id_array, &offset_array, &size_array, &separator, &out_array,
                          &out_offset_array)) {
        return nullptr;
    }
    if (!ids.acquire(id_array, false) || !offsets.acquire(offset_array, false) || !sizes.acquire(size_array, false) ||
        !out.acquire(out_array, true) || !out_offsets.acquire(out_offset_array, true)) {
        return nullptr;
    }
    if (split_all(ids, offsets, sizes, separator, out, out_offsets)) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "the ids are not those of joined texts");
    return nullptr;
}

PyMethodDef methods[] = {
    {"join", join, METH_VARARGS, "join(texts, separator, max_text, max_group, sizes, /): Join short texts."},
    {"split", split, METH_VARARGS,
     "split(ids, offsets, sizes, separator_id, out, out_offsets, /): Split ids by text."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "service.engines.cpu.bpe._joined_short_texts", nullptr, 0, methods,
                      nullptr,               nullptr,                nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__joined_short_texts() { return PyModule_Create(&module); }
