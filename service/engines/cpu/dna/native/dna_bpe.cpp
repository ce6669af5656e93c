// Byte-pair encoding of DNA letters for the CPU engine; service/engines/cpu/dna/encoder.py calls it.
//
//     make(tokens, pairs, letters, rules) -> a vocabulary
//     encode(vocabulary, data, offsets, mode, with_spans, threads, task_bytes) -> the encoded rows of a batch
//     counts(encoded, counts, reasons)            int64[B] and uint8[B] get the ids of each row, or why it has none
//     write(encoded, offsets, prefix, suffix, ids, spans)
//
// All but `make` release Python's lock. `encode` keeps data and offsets alive with its result, as long as that lives.
#include "../../native/python_buffers.hpp"

#include "batch.hpp"

namespace {

constexpr const char* VOCABULARY = "warptok.dna.vocabulary";
constexpr const char* ENCODED = "warptok.dna.encoded";

struct Encoded {
    PyObject* vocabulary;  // Kept alive.
    View data, offsets;
    std::unique_ptr<dna::BatchEncoder> batch;
};

void destroy_encoded(PyObject* capsule) {
    auto* encoded = static_cast<Encoded*>(PyCapsule_GetPointer(capsule, ENCODED));
    PyObject* vocabulary = encoded->vocabulary;
    delete encoded;
    Py_DECREF(vocabulary);
}

// Calls `add(bytes, number, number, number)` for each tuple of a list; the last two numbers may be left out.
template <typename Add>
bool for_each(PyObject* list, Add add) {
    if (!PyList_Check(list)) return refuse("a list is expected") != nullptr;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        const char* content;
        Py_ssize_t size;
        int numbers[3] = {0, 0, 0};
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "y#i|ii", &content, &size, numbers, numbers + 1, numbers + 2))
            return false;
        add(std::string(content, static_cast<size_t>(size)), numbers);
    }
    return true;
}

bool add_special(PyObject* list, dna::Rules& rules) {
    return for_each(list, [&](std::string content, const int* numbers) {
        auto action = static_cast<dna::SpecialToken::Action>(numbers[2]);
        auto first_byte = static_cast<uint8_t>(numbers[1]);
        rules.special.push_back({std::move(content), first_byte, static_cast<uint16_t>(numbers[0]), action});
    });
}

// The arguments of `make`, in order.
struct Arguments {
    PyObject *letters, *lengths, *ids, *left, *right, *pairs;                       // Tokens.
    PyObject *codes, *letter_ids, *mapped, *is_stripped, *is_run;                   // By byte.
    PyObject *special[dna::NUM_MODES], *motifs, *whole;
    Py_ssize_t row_words, run_length;
    int k, num_letters, num_bases, strips, run_id;

    bool parse(PyObject* arguments) {
        return PyArg_ParseTuple(arguments, "(OOOOO)(On)(iii)(OOOOO)(ini)(OOO)(OO)", &letters, &lengths, &ids, &left,
                                &right, &pairs, &row_words, &k, &num_letters, &num_bases, &codes, &letter_ids, &mapped,
                                &is_stripped, &is_run, &strips, &run_length, &run_id, &special[0], &special[1],
                                &special[2], &motifs, &whole);
    }
};

template <typename Element>
bool copy_table(PyObject* object, Element* table) {
    View view;
    if (!view.acquire(object)) return false;
    if (view.size<Element>() != 256) return refuse("a table of all bytes is expected") != nullptr;
    std::copy_n(view.elements<const Element>(), 256, table);
    return true;
}

bool read_rules(const Arguments& given, bool has_mixed, dna::Rules& rules) {
    uint8_t is_stripped[256], is_run[256];
    if (!copy_table(given.codes, rules.codes) || !copy_table(given.letter_ids, rules.ids) ||
        !copy_table(given.mapped, rules.mapped) || !copy_table(given.is_stripped, is_stripped) ||
        !copy_table(given.is_run, is_run)) {
        return false;
    }
    for (int i = 0; i < 256; i++) {
        rules.is_stripped[i] = is_stripped[i];
        rules.is_run[i] = is_run[i];
    }
    rules.strips_left = given.strips & 1;
    rules.strips_right = given.strips & 2;
    rules.run_length = static_cast<size_t>(given.run_length);
    rules.run_id = static_cast<uint16_t>(given.run_id);
    rules.has_mixed = has_mixed;
    rules.are_acgt = rules.codes['A'] == 0 && rules.codes['C'] == 1 && rules.codes['G'] == 2 && rules.codes['T'] == 3;
    bool are_read = for_each(given.motifs, [&](const std::string& motif, const int* numbers) {
        rules.motifs.add(motif, static_cast<uint16_t>(numbers[0]));
    });
    return are_read && for_each(given.whole, [&](const std::string& token, const int* numbers) {
        rules.whole[token] = static_cast<uint16_t>(numbers[0]);
        rules.longest_whole = std::max(rules.longest_whole, token.size());
    });
}

PyObject* make(PyObject*, PyObject* arguments) {
    Arguments given{};
    View letters, lengths, ids, left, right, pairs;
    if (!given.parse(arguments)) return nullptr;
    if (!letters.acquire(given.letters) || !lengths.acquire(given.lengths) || !ids.acquire(given.ids) ||
        !left.acquire(given.left) || !right.acquire(given.right) || !pairs.acquire(given.pairs)) {
        return nullptr;
    }
    dna::GivenTokens tokens{letters.elements<const uint8_t>(), lengths.elements<const uint8_t>(),
                            ids.elements<const uint16_t>(), left.elements<const uint16_t>(),
                            right.elements<const uint16_t>(), lengths.size<uint8_t>(),
                            pairs.elements<const uint32_t>(), 0, static_cast<size_t>(given.row_words),
                            std::max<int>(given.num_letters, dna::FIRST_MIXED)};
    size_t num_letters = 0;
    for (size_t i = 0; i < tokens.count; i++) num_letters += tokens.lengths[i];
    if (ids.size<uint16_t>() != tokens.count || left.size<uint16_t>() != tokens.count ||
        right.size<uint16_t>() != tokens.count || letters.size<uint8_t>() != num_letters || given.row_words < 1 ||
        pairs.size<uint32_t>() < tokens.row_words || given.num_letters > dna::MERGING || given.k < 1 ||
        given.k > dna::MAX_K) {
        return refuse("arrays of tokens do not belong together");
    }
    tokens.num_left = pairs.size<uint32_t>() / tokens.row_words;
    dna::Rules rules{};
    std::unique_ptr<dna::Vocabulary> vocabulary;
    bool is_made = run_unlocked([&] {
        tokens.check();
        vocabulary = std::make_unique<dna::Vocabulary>(tokens, given.k, static_cast<uint8_t>(given.num_bases));
    });
    if (!is_made || !read_rules(given, vocabulary->tokens.has_mixed, rules)) return nullptr;
    for (int mode = 0; mode < dna::NUM_MODES; mode++) {
        vocabulary->rules[mode] = rules;
        if (!add_special(given.special[mode], vocabulary->rules[mode])) return nullptr;
    }
    return PyCapsule_New(vocabulary.release(), VOCABULARY, destroy<dna::Vocabulary>);
}

bool are_rows(const View& data, const View& offsets) {
    auto* begins = offsets.elements<const int64_t>();
    size_t count = offsets.size<int64_t>();
    return count > 0 && begins[0] >= 0 && std::is_sorted(begins, begins + count) &&
           begins[count - 1] <= static_cast<int64_t>(data.size<uint8_t>());
}

PyObject* encode(PyObject*, PyObject* arguments) {
    PyObject *capsule, *data, *offsets;
    int mode, with_spans, num_threads;
    Py_ssize_t task_bytes;
    if (!PyArg_ParseTuple(arguments, "OOOipin", &capsule, &data, &offsets, &mode, &with_spans, &num_threads,
                          &task_bytes)) {
        return nullptr;
    }
    auto* vocabulary = static_cast<dna::Vocabulary*>(PyCapsule_GetPointer(capsule, VOCABULARY));
    auto encoded = std::make_unique<Encoded>();
    if (!vocabulary || !encoded->data.acquire(data) || !encoded->offsets.acquire(offsets)) return nullptr;
    if (!are_rows(encoded->data, encoded->offsets)) return refuse("offsets must ascend within the data");
    if (mode < 0 || mode >= dna::NUM_MODES) return refuse("the mode is unknown");
    if (task_bytes < dna::MIN_TASK_BYTES) return refuse("parts of rows are too small");
    bool is_done = run_unlocked([&] {
        encoded->batch = std::make_unique<dna::BatchEncoder>(
            *vocabulary, static_cast<dna::Mode>(mode), encoded->data.elements<const uint8_t>(),
            encoded->offsets.elements<const int64_t>(), encoded->offsets.size<int64_t>() - 1, with_spans != 0,
            num_threads, task_bytes);
        encoded->batch->encode();
    });
    if (!is_done) return nullptr;
    encoded->vocabulary = capsule;
    PyObject* made = PyCapsule_New(encoded.get(), ENCODED, destroy_encoded);
    if (!made) return nullptr;
    Py_INCREF(capsule);
    encoded.release();
    return made;
}

PyObject* counts(PyObject*, PyObject* arguments) {
    PyObject *capsule, *count_array, *reason_array;
    View row_counts, reasons;
    if (!PyArg_ParseTuple(arguments, "OOO", &capsule, &count_array, &reason_array)) return nullptr;
    auto* encoded = static_cast<Encoded*>(PyCapsule_GetPointer(capsule, ENCODED));
    if (!encoded || !row_counts.acquire(count_array, true) || !reasons.acquire(reason_array, true)) return nullptr;
    const dna::BatchEncoder& batch = *encoded->batch;
    if (row_counts.size<int64_t>() != batch.num_rows() || reasons.size<uint8_t>() != batch.num_rows()) {
        return refuse("a number for each row is expected");
    }
    std::copy(batch.counts.begin(), batch.counts.end(), row_counts.elements<int64_t>());
    std::copy(batch.reasons.begin(), batch.reasons.end(), reasons.elements<uint8_t>());
    Py_RETURN_NONE;
}

// Whether each row's ids and those around them are within the arrays.
bool fits(const dna::BatchEncoder& batch, const View& offsets, size_t added, size_t num_ids) {
    auto* begins = offsets.elements<const int64_t>();
    if (offsets.size<int64_t>() != batch.num_rows() + 1 || begins[0] < 0) return false;
    for (size_t row = 0; row < batch.num_rows(); row++) {
        auto count = batch.reasons[row] ? 0 : batch.counts[row] + static_cast<int64_t>(added);
        if (begins[row + 1] - begins[row] < count) return false;
    }
    return begins[batch.num_rows()] <= static_cast<int64_t>(num_ids);
}

PyObject* write(PyObject*, PyObject* arguments) {
    PyObject *capsule, *offset_array, *prefix_array, *suffix_array, *id_array, *span_array;
    View offsets, prefix, suffix, ids, spans;
    if (!PyArg_ParseTuple(arguments, "OOOOOO", &capsule, &offset_array, &prefix_array, &suffix_array, &id_array,
                          &span_array)) {
        return nullptr;
    }
    auto* encoded = static_cast<Encoded*>(PyCapsule_GetPointer(capsule, ENCODED));
    if (!encoded || !offsets.acquire(offset_array) || !prefix.acquire(prefix_array) || !suffix.acquire(suffix_array) ||
        !ids.acquire(id_array, true) || (span_array != Py_None && !spans.acquire(span_array, true))) {
        return nullptr;
    }
    dna::BatchEncoder& batch = *encoded->batch;
    size_t added = prefix.size<int32_t>() + suffix.size<int32_t>();
    auto num_bytes = static_cast<size_t>(ids.buffer.itemsize);
    if ((num_bytes != 2 && num_bytes != 4) || batch.with_spans() != (span_array != Py_None) ||
        !fits(batch, offsets, added, ids.size<uint8_t>() / num_bytes) ||
        (batch.with_spans() && spans.size<dna::Span>() != ids.size<uint8_t>() / num_bytes)) {
        return refuse("the arrays have no room for the ids");
    }
    dna::BatchEncoder::Around around{prefix.elements<const int32_t>(), suffix.elements<const int32_t>(),
                                     prefix.size<int32_t>(), suffix.size<int32_t>()};
    bool is_done = run_unlocked([&] {
        auto* begins = offsets.elements<const int64_t>();
        auto* span = batch.with_spans() ? spans.elements<dna::Span>() : nullptr;
        if (num_bytes == 2) batch.write(begins, around, ids.elements<uint16_t>(), span);
        else batch.write(begins, around, ids.elements<int32_t>(), span);
    });
    if (!is_done) return nullptr;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"make", make, METH_VARARGS, "make(tokens, pairs, sizes, letters, steps, special, whole, /): Make the tables."},
    {"encode", encode, METH_VARARGS,
     "encode(vocabulary, data, offsets, mode, with_spans, threads, task_bytes, /): Encode the rows of a batch."},
    {"counts", counts, METH_VARARGS, "counts(encoded, counts, reasons, /): Write the number of ids of each row."},
    {"write", write, METH_VARARGS,
     "write(encoded, offsets, prefix, suffix, ids, spans, /): Write the ids of all rows."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "service.engines.cpu.dna._dna_bpe", nullptr, 0, methods,
                      nullptr,               nullptr,                            nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__dna_bpe() { return PyModule_Create(&module); }
