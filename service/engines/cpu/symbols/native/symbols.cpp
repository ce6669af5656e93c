// Encodes characters and k-mers for the CPU engine; service/engines/cpu/symbols/encoder.py calls it.
//
//     make(flags, kinds, codes, characters, complement, numbers) -> the rules of a vocabulary
//     measure(rules, data, offsets, options, threads, task_bytes) -> the measured rows of a batch
//     counts(measured, counts, reasons)           int64[B] and uint8[B] get the ids of each row, or why it has none
//     write(measured, offsets, prefix, suffix, piece_size, ids, spans)
//
// `measure` and `write` release Python's lock. `measure` keeps data and offsets alive with its result. Where counts
// follow from lengths, `write` finds the rows without ids, and `counts` returns them after it.
#include "../../native/python_buffers.hpp"

#include "batch.hpp"

namespace {

constexpr const char* RULES = "warptok.symbols.rules";
constexpr const char* MEASURED = "warptok.symbols.measured";
constexpr Py_ssize_t MIN_TASK_BYTES = 4 * symbols::MAX_K;

struct Vocabulary {
    symbols::Rules rules, other_strand;
};

struct Measured {
    PyObject* vocabulary;  // Kept alive.
    View data, offsets;
    std::unique_ptr<symbols::BatchEncoder> batch;
};

void destroy_measured(PyObject* capsule) {
    auto* measured = static_cast<Measured*>(PyCapsule_GetPointer(capsule, MEASURED));
    PyObject* vocabulary = measured->vocabulary;
    delete measured;
    Py_DECREF(vocabulary);
}

template <typename Element>
bool copy_table(PyObject* object, Element* table) {
    View view;
    if (!view.acquire(object)) return false;
    if (view.size<Element>() != 256) return refuse("a table of all bytes is expected") != nullptr;
    std::copy_n(view.elements<const Element>(), 256, table);
    return true;
}

PyObject* make(PyObject*, PyObject* arguments) {
    PyObject *flags, *kinds, *codes, *characters, *complement;
    int has_remainder, has_words, is_prepended, has_code_points;
    uint8_t complements[256];
    auto made = std::make_unique<Vocabulary>();
    symbols::Rules& rules = made->rules;
    if (!PyArg_ParseTuple(arguments, "OOOOO(iiIIIIpppp)", &flags, &kinds, &codes, &characters, &complement, &rules.k,
                          &rules.stride, &rules.num_letters, &rules.num_kmers, &rules.first_id, &rules.unknown_id,
                          &has_remainder, &has_words, &is_prepended, &has_code_points) ||
        !copy_table(flags, rules.flags) || !copy_table(kinds, rules.kinds) || !copy_table(codes, rules.codes) ||
        !copy_table(characters, rules.characters) || !copy_table(complement, complements)) {
        return nullptr;
    }
    rules.has_remainder = has_remainder;
    rules.has_words = has_words;
    rules.is_prepended = is_prepended;
    rules.has_code_points = has_code_points;
    bool are_small = std::all_of(rules.codes, rules.codes + 256, [](uint16_t code) { return code < 256; }) &&
                     std::all_of(rules.characters, rules.characters + 256,
                                 [](uint32_t id) { return id < 1u << symbols::FLAG_SHIFT; });
    if (rules.k < 0 || rules.k > symbols::MAX_K || rules.stride < 1 || rules.stride > std::max(1, rules.k) ||
        rules.num_kmers >= symbols::MAX_KMERS || !are_small) {
        return refuse("the vocabulary is too large");
    }
    made->other_strand = rules.opposite(complements);
    rules.prepare();
    made->other_strand.prepare();
    return PyCapsule_New(made.release(), RULES, destroy<Vocabulary>);
}

bool are_rows(const View& data, const View& offsets) {
    auto* begins = offsets.elements<const int64_t>();
    size_t count = offsets.size<int64_t>();
    return count > 0 && begins[0] >= 0 && std::is_sorted(begins, begins + count) &&
           begins[count - 1] <= static_cast<int64_t>(data.size<uint8_t>());
}

PyObject* measure(PyObject*, PyObject* arguments) {
    PyObject *capsule, *data, *offsets;
    int is_other_strand, is_circular, has_spans, is_counted, num_threads;
    Py_ssize_t task_bytes;
    if (!PyArg_ParseTuple(arguments, "OOO(pppp)in", &capsule, &data, &offsets, &is_other_strand, &is_circular,
                          &has_spans, &is_counted, &num_threads, &task_bytes)) {
        return nullptr;
    }
    auto* vocabulary = static_cast<Vocabulary*>(PyCapsule_GetPointer(capsule, RULES));
    auto measured = std::make_unique<Measured>();
    if (!vocabulary || !measured->data.acquire(data) || !measured->offsets.acquire(offsets)) return nullptr;
    if (!are_rows(measured->data, measured->offsets)) return refuse("offsets must ascend within the data");
    if (task_bytes < MIN_TASK_BYTES) return refuse("parts of rows are too small");
    if (is_circular && (vocabulary->rules.is_characters() || vocabulary->rules.stride > 1))
        return refuse("only k-mers at every base can wrap");
    symbols::Options options{is_other_strand != 0, is_circular != 0, has_spans != 0, is_counted != 0};
    bool is_done = run_unlocked([&] {
        measured->batch = std::make_unique<symbols::BatchEncoder>(
            is_other_strand ? vocabulary->other_strand : vocabulary->rules, measured->data.elements<const uint8_t>(),
            measured->offsets.elements<const int64_t>(), measured->offsets.size<int64_t>() - 1, options, num_threads,
            task_bytes);
        measured->batch->measure();
    });
    if (!is_done) return nullptr;
    measured->vocabulary = capsule;
    PyObject* made = PyCapsule_New(measured.get(), MEASURED, destroy_measured);
    if (!made) return nullptr;
    Py_INCREF(capsule);
    measured.release();
    return made;
}

PyObject* counts(PyObject*, PyObject* arguments) {
    PyObject *capsule, *count_array, *reason_array;
    View row_counts, reasons;
    if (!PyArg_ParseTuple(arguments, "OOO", &capsule, &count_array, &reason_array)) return nullptr;
    auto* measured = static_cast<Measured*>(PyCapsule_GetPointer(capsule, MEASURED));
    if (!measured || !row_counts.acquire(count_array, true) || !reasons.acquire(reason_array, true)) return nullptr;
    const symbols::BatchEncoder& batch = *measured->batch;
    if (row_counts.size<int64_t>() != batch.num_rows() || reasons.size<uint8_t>() != batch.num_rows())
        return refuse("a number for each row is expected");
    std::copy(batch.counts.begin(), batch.counts.end(), row_counts.elements<int64_t>());
    std::copy(batch.reasons.begin(), batch.reasons.end(), reasons.elements<uint8_t>());
    Py_RETURN_NONE;
}

// Whether the arrays have room for each row's ids and the begin and end tokens around them.
bool fits(const symbols::BatchEncoder& batch, const View& offsets, const symbols::Around& around, size_t num_ids) {
    auto* begins = offsets.elements<const int64_t>();
    if (offsets.size<int64_t>() != batch.num_rows() + 1 || begins[0] < 0) return false;
    for (size_t row = 0; row < batch.num_rows(); row++) {
        int64_t own = batch.counts[row];
        int64_t count = batch.reasons[row] ? 0 : own + around.num_pieces(own) * around.size();
        if (begins[row + 1] - begins[row] < count) return false;
    }
    return begins[batch.num_rows()] <= static_cast<int64_t>(num_ids);
}

PyObject* write(PyObject*, PyObject* arguments) {
    PyObject *capsule, *offset_array, *prefix_array, *suffix_array, *id_array, *span_array;
    Py_ssize_t piece_size;
    View offsets, prefix, suffix, ids, spans;
    if (!PyArg_ParseTuple(arguments, "OOOOnOO", &capsule, &offset_array, &prefix_array, &suffix_array, &piece_size,
                          &id_array, &span_array)) {
        return nullptr;
    }
    auto* measured = static_cast<Measured*>(PyCapsule_GetPointer(capsule, MEASURED));
    if (!measured || !offsets.acquire(offset_array) || !prefix.acquire(prefix_array) || !suffix.acquire(suffix_array) ||
        !ids.acquire(id_array, true) || (span_array != Py_None && !spans.acquire(span_array, true))) {
        return nullptr;
    }
    symbols::BatchEncoder& batch = *measured->batch;
    symbols::Around around{prefix.elements<const int32_t>(), suffix.elements<const int32_t>(),
                           static_cast<int64_t>(prefix.size<int32_t>()), static_cast<int64_t>(suffix.size<int32_t>()),
                           piece_size};
    auto num_bytes = static_cast<size_t>(ids.buffer.itemsize);
    if (piece_size < 0 || (num_bytes != 1 && num_bytes != 2 && num_bytes != 4) ||
        batch.has_spans() != (span_array != Py_None) || !fits(batch, offsets, around, ids.size<uint8_t>() / num_bytes) ||
        (batch.has_spans() && spans.size<symbols::Span>() != ids.size<uint8_t>() / num_bytes)) {
        return refuse("the arrays have no room for the ids");
    }
    bool is_done = run_unlocked([&] {
        auto* begins = offsets.elements<const int64_t>();
        auto* span = batch.has_spans() ? spans.elements<symbols::Span>() : nullptr;
        if (num_bytes == 1) batch.write(begins, around, ids.elements<uint8_t>(), span);
        else if (num_bytes == 2) batch.write(begins, around, ids.elements<uint16_t>(), span);
        else batch.write(begins, around, ids.elements<int32_t>(), span);
    });
    if (!is_done) return nullptr;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"make", make, METH_VARARGS, "make(flags, kinds, codes, characters, complement, numbers, /): Make the rules."},
    {"measure", measure, METH_VARARGS,
     "measure(rules, data, offsets, options, threads, task_bytes, /): Count the ids of the rows of a batch."},
    {"counts", counts, METH_VARARGS, "counts(measured, counts, reasons, /): Write the number of ids of each row."},
    {"write", write, METH_VARARGS,
     "write(measured, offsets, prefix, suffix, piece_size, ids, spans, /): Write the ids of all rows."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "service.engines.cpu.symbols._symbols", nullptr, 0, methods,
                      nullptr,               nullptr,                                nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__symbols() { return PyModule_Create(&module); }
