// Byte-level BPE of text for the CPU engine; service/engines/cpu/text/encoder.py calls it.
//
//     make(rule, automaton, classes, composed, tokens, pairs, symbol_ids, special, parts, may_cut, seed) -> a vocabulary
//     encode(vocabulary, data, offsets, is_valid, is_composed, is_plain, threads, task_bytes, id_offsets, reasons,
//            should_continue)
//         -> the ids, and the number of rows that are left; None once should_continue() is false
//
//     encode_short(vocabulary, text, as_list)
//         -> the ids of a string or of bytes, a bytearray of int32 or a list; None: `encode` is needed
//
// `encode` releases Python's lock, except for few bytes. It writes to id_offsets int64[B + 1] where the ids of each row
// begin, and to reasons uint8[B] why a row has none.
#include "../../native/python_buffers.hpp"

#include "batch.hpp"

namespace {

constexpr const char* VOCABULARY = "warptok.text.vocabulary";
constexpr int64_t MIN_TASK_BYTES = 64;
// Fewer bytes are encoded with Python's lock, because getting it back could take longer than encoding them.
constexpr int64_t UNLOCKED_BYTES = 1 << 13;

// A vocabulary with the arrays that its tables point into.
struct Owner {
    std::vector<uint32_t> entries;
    std::vector<uint16_t> row_pages, class_pages, composed_pages, composed_kinds;
    std::vector<uint8_t> rows, classes;
    text::ComposedTable composed{};
    std::unique_ptr<text::Vocabulary> vocabulary;
};

// Runs code, without Python's lock if there are many bytes; returns false, with a Python exception, if it throws.
template <typename Work>
bool run(int64_t num_bytes, Work work) {
    if (num_bytes > UNLOCKED_BYTES) return run_unlocked(work);
    try {
        work();
        return true;
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& thrown) {
        PyErr_SetString(PyExc_RuntimeError, thrown.what());
    }
    return false;
}

// The arguments of `make`, in order.
struct Arguments {
    int family, single_digits, has_contractions, ignores_merges, may_cut;
    PyObject *entries, *row_pages, *rows, *class_pages, *classes, *composed_pages, *composed_kinds;
    PyObject *token_bytes, *token_begins, *token_ids, *pairs, *symbol_ids, *special, *parts;
    unsigned long long seed_low, seed_high;

    bool parse(PyObject* arguments) {
        return PyArg_ParseTuple(arguments, "(ipp)(OOO)(OO)(OO)(OOOp)OOO!O!p(KK)", &family, &single_digits,
                                &has_contractions, &entries, &row_pages, &rows, &class_pages, &classes,
                                &composed_pages, &composed_kinds, &token_bytes, &token_begins, &token_ids,
                                &ignores_merges, &pairs,
                                &symbol_ids, &PyList_Type, &special, &PyList_Type, &parts, &may_cut, &seed_low,
                                &seed_high);
    }
};

template <typename Element>
bool copy_array(PyObject* object, std::vector<Element>& copy) {
    View view;
    if (!view.acquire(object)) return false;
    copy.assign(view.elements<Element>(), view.elements<Element>() + view.size<Element>());
    return true;
}

bool read_special(PyObject* list, text::Rules& rules) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        const char* content;
        Py_ssize_t size;
        int id, is_special, strips_left, strips_right, leaves_row;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "y#ipppp", &content, &size, &id, &is_special, &strips_left,
                              &strips_right, &leaves_row)) {
            return false;
        }
        rules.special.add({content, static_cast<size_t>(size)}, static_cast<int32_t>(i));
        rules.special_tokens.push_back({id, is_special != 0, strips_left != 0, strips_right != 0, leaves_row != 0});
    }
    return true;
}

bool read_parts(PyObject* list, text::Rules& rules) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        char* content;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GET_ITEM(list, i), &content, &size) < 0) return false;
        rules.parts.add({content, static_cast<size_t>(size)}, static_cast<int32_t>(i));
    }
    return true;
}

// Whether tables of 256 code points a page have all their pages.
template <typename Element>
bool are_pages(const std::vector<uint16_t>& pages, const std::vector<Element>& rows) {
    return pages.size() == 0x1100 && *std::max_element(pages.begin(), pages.end()) < rows.size() / 256;
}

bool read_tables(const Arguments& given, Owner& owner) {
    if (!copy_array(given.entries, owner.entries) || !copy_array(given.row_pages, owner.row_pages) ||
        !copy_array(given.rows, owner.rows) || !copy_array(given.class_pages, owner.class_pages) ||
        !copy_array(given.classes, owner.classes) || !copy_array(given.composed_pages, owner.composed_pages) ||
        !copy_array(given.composed_kinds, owner.composed_kinds)) {
        return false;
    }
    bool are_whole = are_pages(owner.row_pages, owner.rows) && are_pages(owner.class_pages, owner.classes) &&
                     (owner.composed_pages.empty() || are_pages(owner.composed_pages, owner.composed_kinds));
    size_t last_row = *std::max_element(owner.rows.begin(), owner.rows.end());
    are_whole = are_whole && owner.entries.size() >= (std::max<size_t>(last_row, text::ROW_END) + 1) * text::ROW_STRIDE;
    return are_whole || refuse("tables of characters do not belong together");
}

// Makes the model; nullptr, with a Python exception, if the arrays do not belong together.
std::unique_ptr<text::Model> read_model(const Arguments& given) {
    View bytes, begins, ids, pairs, symbol_ids;
    if (!bytes.acquire(given.token_bytes) || !begins.acquire(given.token_begins) || !ids.acquire(given.token_ids) ||
        !pairs.acquire(given.pairs) || !symbol_ids.acquire(given.symbol_ids)) {
        return nullptr;
    }
    auto* first = begins.elements<const int64_t>();
    size_t count = begins.size<int64_t>(), num_symbols = symbol_ids.size<int32_t>();
    bool are_tokens = count > 0 && ids.size<int32_t>() == count - 1 && first[0] == 0 &&
                      std::adjacent_find(first, first + count, std::greater_equal<>()) == first + count &&
                      first[count - 1] == static_cast<int64_t>(bytes.size<uint8_t>());
    bool are_symbols = num_symbols >= 256;
    for (size_t i = 0; i < pairs.size<uint64_t>(); i++)
        are_symbols = are_symbols && (pairs.elements<const uint64_t>()[i] & 0x3FFFFF) + 256 < num_symbols;
    if (!are_tokens || !are_symbols) {
        refuse("arrays of tokens do not belong together");
        return nullptr;
    }
    text::Seed seed{given.seed_low, given.seed_high};
    std::unique_ptr<text::Model> model;
    text::GivenTokens tokens{bytes.elements<const uint8_t>(), first, ids.elements<const int32_t>(), count - 1,
                             given.ignores_merges != 0};
    run_unlocked([&] {
        std::vector<int32_t> of_symbols(symbol_ids.elements<const int32_t>(),
                                        symbol_ids.elements<const int32_t>() + num_symbols);
        text::MergeTables merges(pairs.elements<const uint64_t>(), pairs.size<uint64_t>(), std::move(of_symbols),
                                 seed.low);
        model = std::make_unique<text::Model>(std::move(merges), seed, tokens);
    });
    return model;
}

PyObject* make(PyObject*, PyObject* arguments) {
    Arguments given{};
    text::Rules rules{};
    auto owner = std::make_unique<Owner>();
    if (!given.parse(arguments)) return nullptr;
    if (!read_tables(given, *owner) || !read_special(given.special, rules) || !read_parts(given.parts, rules))
        return nullptr;
    std::unique_ptr<text::Model> model = read_model(given);
    if (!model) return nullptr;
    owner->composed = {owner->composed_pages.data(), owner->composed_kinds.data()};
    rules.composed = owner->composed_pages.empty() ? nullptr : &owner->composed;
    text::Rule rule{static_cast<text::Family>(given.family), given.single_digits != 0, given.has_contractions != 0};
    text::Automaton automaton{owner->entries.data(), {owner->row_pages.data(), owner->rows.data()}};
    text::Pretokenizer pretokenizer(rule, automaton, {owner->class_pages.data(), owner->classes.data()});
    owner->vocabulary = std::make_unique<text::Vocabulary>(std::move(model), std::move(rules), pretokenizer,
                                                           given.may_cut != 0);
    return PyCapsule_New(owner.release(), VOCABULARY, destroy<Owner>);
}

bool are_rows(const View& data, const View& offsets) {
    auto* begins = offsets.elements<const int64_t>();
    size_t count = offsets.size<int64_t>();
    return count > 0 && begins[0] >= 0 && std::is_sorted(begins, begins + count) &&
           begins[count - 1] <= static_cast<int64_t>(data.size<uint8_t>());
}

PyObject* encode(PyObject*, PyObject* arguments) {
    PyObject *capsule, *data_array, *offset_array, *id_offset_array, *reason_array, *should_continue;
    int is_valid, is_composed, is_plain, num_threads;
    Py_ssize_t task_bytes;
    View data, offsets, id_offsets, reasons;
    if (!PyArg_ParseTuple(arguments, "OOOpppinOOO", &capsule, &data_array, &offset_array, &is_valid, &is_composed,
                          &is_plain, &num_threads, &task_bytes, &id_offset_array, &reason_array,
                          &should_continue)) {
        return nullptr;
    }
    auto* owner = static_cast<Owner*>(PyCapsule_GetPointer(capsule, VOCABULARY));
    if (!owner || !data.acquire(data_array) || !offsets.acquire(offset_array) ||
        !id_offsets.acquire(id_offset_array, true) || !reasons.acquire(reason_array, true)) {
        return nullptr;
    }
    if (!are_rows(data, offsets)) return refuse("offsets must ascend within the data");
    if (task_bytes < MIN_TASK_BYTES) return refuse("parts of rows are too small");
    size_t num_rows = offsets.size<int64_t>() - 1;
    if (id_offsets.size<int64_t>() != num_rows + 1 || reasons.size<uint8_t>() != num_rows)
        return refuse("a number for each row is expected");
    auto* begins = id_offsets.elements<int64_t>();
    auto* rows = offsets.elements<const int64_t>();
    const int64_t num_bytes = rows[num_rows] - rows[0];
    std::unique_ptr<text::BatchEncoder> batch;
    StillNeeded needed(should_continue);
    bool is_abandoned = false;
    bool is_done = run(num_bytes, [&] {
        batch = std::make_unique<text::BatchEncoder>(
            *owner->vocabulary, data.elements<const uint8_t>(), rows, static_cast<int64_t>(num_rows), is_valid != 0,
            is_composed != 0, is_plain != 0, num_threads, task_bytes, begins + 1, reasons.elements<uint8_t>());
        try {
            batch->encode(needed);
        } catch (const Abandoned&) {
            is_abandoned = true;
        }
    });
    if (!is_done || PyErr_Occurred()) return nullptr;
    if (is_abandoned) Py_RETURN_NONE;
    begins[0] = 0;
    for (size_t row = 0; row < num_rows; row++) begins[row + 1] += begins[row];
    PyObject* ids = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(batch->num_ids() * sizeof(int32_t)));
    if (!ids) return nullptr;
    auto* out = reinterpret_cast<int32_t*>(PyByteArray_AS_STRING(ids));
    if (run(num_bytes, [&] { batch->write(out); }))
        return Py_BuildValue("(Nn)", ids, static_cast<Py_ssize_t>(batch->num_left()));
    Py_DECREF(ids);
    return nullptr;
}

// The ids of a text as a list or as a bytearray.
PyObject* make_ids(const int32_t* ids, Py_ssize_t count, bool as_list) {
    if (!as_list)
        return PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(ids),
                                             count * static_cast<Py_ssize_t>(sizeof(int32_t)));
    PyObject* list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject* id = PyLong_FromLong(ids[i]);
        if (id) PyList_SET_ITEM(list, i, id);
        else Py_CLEAR(list);
    }
    return list;
}

PyObject* encode_short(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 3) return PyErr_Format(PyExc_TypeError, "3 arguments are expected, not %zd", count);
    auto* owner = static_cast<Owner*>(PyCapsule_GetPointer(arguments[0], VOCABULARY));
    if (!owner) return nullptr;
    PyObject* text = arguments[1];
    const bool is_string = PyUnicode_Check(text);
    View bytes;
    Py_ssize_t num_bytes;
    const uint8_t* begin;
    if (is_string) {
        if (PyUnicode_GET_LENGTH(text) > UNLOCKED_BYTES) Py_RETURN_NONE;
        begin = reinterpret_cast<const uint8_t*>(PyUnicode_AsUTF8AndSize(text, &num_bytes));
        if (!begin) {  // It has a lone surrogate, which `encode` names.
            PyErr_Clear();
            Py_RETURN_NONE;
        }
    } else {
        if (!bytes.acquire(text)) return nullptr;
        begin = bytes.elements<const uint8_t>();
        num_bytes = bytes.buffer.len;
    }
    if (num_bytes > UNLOCKED_BYTES) Py_RETURN_NONE;
    StillNeeded needed(reinterpret_cast<PyObject*>(&PyBaseObject_Type));  // Always: object() is true.
    auto worker = owner->vocabulary->borrow();
    int32_t* out = nullptr;
    text::Reason reason = text::NONE;
    bool is_done = run(num_bytes, [&] {
        auto room = static_cast<size_t>(num_bytes) + text::PieceEncoder::SLACK;
        if (worker->ids.size() < room) worker->ids.resize(room);
        out = worker->ids.data();
        reason = worker->encoder.encode({begin, begin + num_bytes, begin + num_bytes, is_string, false}, false, out, needed);
    });
    if (!is_done) return nullptr;
    if (reason) Py_RETURN_NONE;
    return make_ids(worker->ids.data(), out - worker->ids.data(), arguments[2] == Py_True);
}

PyMethodDef methods[] = {
    {"make", make, METH_VARARGS,
     "make(rule, automaton, classes, composed, tokens, pairs, symbol_ids, special, parts, may_cut, seed, /): "
     "Make the tables."},
    {"encode", encode, METH_VARARGS,
     "encode(vocabulary, data, offsets, is_valid, is_composed, is_plain, threads, task_bytes, id_offsets, reasons, "
     "should_continue, /): "
     "Encode the rows of a batch."},
    {"encode_short", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(encode_short)), METH_FASTCALL,
     "encode_short(vocabulary, text, as_list, /): Encode a string or bytes."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "service.engines.cpu.text._text_bpe", nullptr, 0, methods,
                      nullptr,               nullptr,                             nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__text_bpe() { return PyModule_Create(&module); }
