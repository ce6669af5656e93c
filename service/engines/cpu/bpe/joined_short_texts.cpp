// Short texts joined for an encoder, with a separator between them, and their ids taken apart again.
//
//     join(texts, separator, longest, most, groups) -> the groups joined; groups: int64[B]
//     split(ids, offsets, groups, separator_id, out, out_offsets)
//
//     "to be"  " or"  "not"  "to"      separator |
//     "to be"  " or|not|to"            groups 1 3: white space at a text's begin begins a group
//
// Texts with characters above U+00FF, with the separator in them or of more than `longest`
// characters stay alone; a group has at most `most`. `groups` gets how many texts each group has.
// service/engines/cpu/bpe/joined_short_texts.py says why the ids are those of each text.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

// A buffer of the caller's, given back at the end.
struct View {
    Py_buffer buffer{};
    bool is_held = false;
    bool take(PyObject* object, bool is_written) {
        is_held = PyObject_GetBuffer(object, &buffer, is_written ? PyBUF_CONTIG : PyBUF_CONTIG_RO) == 0;
        return is_held;
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
        if (is_held) PyBuffer_Release(&buffer);
    }
};

// What is joined, and how long it may be.
struct Rule {
    Py_UCS1 separator;
    Py_ssize_t longest, most;
};

bool may_be_joined(PyObject* text, const Rule& rule) {
    if (PyUnicode_KIND(text) != PyUnicode_1BYTE_KIND || PyUnicode_GET_LENGTH(text) > rule.longest) return false;
    return !std::memchr(PyUnicode_DATA(text), rule.separator, static_cast<size_t>(PyUnicode_GET_LENGTH(text)));
}

bool may_go_on(PyObject* text) {
    return PyUnicode_GET_LENGTH(text) > 0 && !Py_UNICODE_ISSPACE(PyUnicode_1BYTE_DATA(text)[0]);
}

// The end of the group that begins with a text, and how many characters the group has.
Py_ssize_t group_end(PyObject* texts, Py_ssize_t begin, const Rule& rule, Py_ssize_t* size) {
    *size = PyUnicode_GET_LENGTH(PyList_GET_ITEM(texts, begin));
    Py_ssize_t end = begin + 1;
    if (!may_be_joined(PyList_GET_ITEM(texts, begin), rule)) return end;
    for (; end < PyList_GET_SIZE(texts); end++) {
        PyObject* text = PyList_GET_ITEM(texts, end);
        Py_ssize_t longer = *size + 1 + PyUnicode_GET_LENGTH(text);
        if (longer > rule.most || !may_be_joined(text, rule) || !may_go_on(text)) break;
        *size = longer;
    }
    return end;
}

PyObject* joined(PyObject* texts, Py_ssize_t begin, Py_ssize_t end, Py_UCS1 separator, Py_ssize_t size) {
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

bool are_strings(PyObject* texts) {
    bool are = PyList_Check(texts);
    for (Py_ssize_t i = 0; are && i < PyList_GET_SIZE(texts); i++) are = PyUnicode_Check(PyList_GET_ITEM(texts, i));
    if (!are) PyErr_SetString(PyExc_TypeError, "a list of strings is expected");
    return are;
}

PyObject* join(PyObject*, PyObject* arguments) {
    PyObject *texts, *counts;
    char separator;
    Rule rule{};
    Py_ssize_t begin = 0, end = 0, size = 0;
    View groups;
    if (!PyArg_ParseTuple(arguments, "OcnnO", &texts, &separator, &rule.longest, &rule.most, &counts)) {
        return nullptr;
    }
    if (!are_strings(texts) || !groups.take(counts, true)) return nullptr;
    rule.separator = static_cast<Py_UCS1>(separator);
    if (groups.size<int64_t>() != PyList_GET_SIZE(texts) || rule.separator > 0x7F) {
        PyErr_SetString(PyExc_ValueError, "a number for each text and a separator of ASCII are expected");
        return nullptr;
    }
    PyObject* all = PyList_New(0);
    for (int64_t* group = groups.elements<int64_t>(); all && begin < PyList_GET_SIZE(texts); begin = end) {
        end = group_end(texts, begin, rule, &size);
        *group++ = end - begin;
        PyObject* text = PyList_GET_ITEM(texts, begin);
        text = end - begin > 1 ? joined(texts, begin, end, rule.separator, size) : Py_NewRef(text);
        if (!text || PyList_Append(all, text) < 0) Py_CLEAR(all);
        Py_XDECREF(text);
    }
    return all;
}

// Where the ids of texts go, one after another.
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

// The ids of each text of one group without separators; false where there are more or fewer of them.
bool split_group(const int32_t* ids, const int32_t* end, int64_t num_texts, int32_t separator, Output& out) {
    if (num_texts == 1) return out.add(ids, end);
    for (; num_texts > 0; num_texts--) {
        const int32_t* text_end = std::find(ids, end, separator);
        if ((text_end == end) != (num_texts == 1) || !out.add(ids, text_end)) return false;
        ids = text_end + 1;
    }
    return true;
}

// Whether groups of texts with these ids fill the caller's arrays, and not more.
bool fit(const View& ids, const View& offsets, const View& groups, const View& out, const View& out_offsets) {
    Py_ssize_t num_groups = offsets.size<int64_t>() - 1, num_texts = 0;
    if (num_groups < 0 || num_groups > groups.size<int64_t>()) return false;
    const auto *places = offsets.elements<const int64_t>(), *counts = groups.elements<const int64_t>();
    for (Py_ssize_t i = 0; i < num_groups; i++) {
        if (places[i] > places[i + 1] || counts[i] < 1 || counts[i] > groups.size<int64_t>()) return false;
        num_texts += counts[i];
    }
    Py_ssize_t num_ids = ids.size<int32_t>();
    return places[0] == 0 && places[num_groups] == num_ids && num_texts == groups.size<int64_t>() &&
           out_offsets.size<int64_t>() == num_texts + 1 &&
           out.size<int32_t>() == std::max<Py_ssize_t>(0, num_ids - (num_texts - num_groups));
}

bool split_all(const View& ids, const View& offsets, const View& groups, int32_t separator, const View& out,
               const View& out_offsets) {
    if (!fit(ids, offsets, groups, out, out_offsets)) return false;
    const auto* all = ids.elements<const int32_t>();
    const auto *places = offsets.elements<const int64_t>(), *counts = groups.elements<const int64_t>();
    auto* out_ids = out.elements<int32_t>();
    Output output{out_ids, out_ids, out_ids + out.size<int32_t>(), out_offsets.elements<int64_t>()};
    *output.text_ends++ = 0;
    for (Py_ssize_t i = 0; i < offsets.size<int64_t>() - 1; i++) {
        if (!split_group(all + places[i], all + places[i + 1], counts[i], separator, output)) return false;
    }
    return output.at == output.end;
}

PyObject* split(PyObject*, PyObject* arguments) {
    PyObject* given[5];
    int separator;
    View views[5];
    if (!PyArg_ParseTuple(arguments, "OOOiOO", &given[0], &given[1], &given[2], &separator, &given[3], &given[4])) {
        return nullptr;
    }
    for (int i = 0; i < 5; i++) {
        if (!views[i].take(given[i], i >= 3)) return nullptr;
    }
    if (split_all(views[0], views[1], views[2], separator, views[3], views[4])) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "the ids are not those of joined texts");
    return nullptr;
}

PyMethodDef methods[] = {
    {"join", join, METH_VARARGS, "join(texts, separator, longest, most, groups, /): short texts joined."},
    {"split", split, METH_VARARGS,
     "split(ids, offsets, groups, separator_id, out, out_offsets, /): the ids of each text."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "service.engines.cpu.bpe._joined_short_texts", nullptr, 0, methods,
                      nullptr,               nullptr,                nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__joined_short_texts() { return PyModule_Create(&module); }
