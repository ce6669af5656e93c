// Finds the tokens of a BPE over letters that merges reach, and which two of them may be neighbours.
//
//     reached(letters, lengths, merges) -> bytes, 1 for each token that merges make from its letters
//     relate(letters, lengths, merges, max_bytes) -> (left, right, bits, words) of gpu.dna.compatible_pairs.Pairs
//
// letters: int32[sum of lengths], the ids of the letters of all tokens, -1 for none. lengths: int32[T]. merges: int32[M, 4],
// left id, right id, rank, merged id; no pair has two ranks. Merges must reach all tokens given to `relate`. It returns
// None if the rank of a merge is not higher than that of every merge that makes one of its two symbols.
//
// The spines of a token are the symbols at its left and at its right end, from a letter to the whole token, each with the
// rank of the merge that consumes it. A merge (x, y) of rank m crosses the border of two tokens l r exactly if x is on the
// right spine of l, y is on the left spine of r, and neither was consumed by a merge before m. If x is consumed at rank m,
// too, that merge is further left and comes first, so m must be lower. If y is, that merge is further right and comes
// second, so m may be equal.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr int32_t NEVER = std::numeric_limits<int32_t>::max();  // The rank that consumes a whole token.

struct View {
    Py_buffer buffer{};
    bool is_acquired = false;
    bool acquire(PyObject* object) {
        is_acquired = PyObject_GetBuffer(object, &buffer, PyBUF_CONTIG_RO) == 0;
        return is_acquired;
    }
    size_t size() const { return static_cast<size_t>(buffer.len) / sizeof(int32_t); }
    const int32_t* begin() const { return static_cast<const int32_t*>(buffer.buf); }
    ~View() {
        if (is_acquired) PyBuffer_Release(&buffer);
    }
};

struct Merge {
    int32_t left, right, rank, merged;
};

class Merges {
   public:
    Merges(const int32_t* numbers, size_t count) {
        while (slots_.size() < 4 * count + 2) slots_.resize(2 * slots_.size(), Merge{-1, -1, NEVER, -1});
        all_.reserve(count);
        for (size_t i = 0; i < count; i++) add({numbers[4 * i], numbers[4 * i + 1], numbers[4 * i + 2], numbers[4 * i + 3]});
    }

    // The merge of two symbols; of rank NEVER if there is none.
    const Merge& find(int32_t left, int32_t right) const {
        size_t slot = hash(left, right);
        while (slots_[slot].left >= 0 && (slots_[slot].left != left || slots_[slot].right != right)) slot = next(slot);
        return slots_[slot];
    }
    const std::vector<Merge>& all() const { return all_; }

    // Whether every merge has a higher rank than all merges that make its parts.
    bool are_in_order() const {
        std::unordered_map<int32_t, int32_t> latest;
        for (const Merge& merge : all_) {
            int32_t& rank = latest.emplace(merge.merged, -1).first->second;
            rank = std::max(rank, merge.rank);
        }
        auto is_made = [&](int32_t id, int32_t rank) {
            auto found = latest.find(id);
            return found == latest.end() || found->second < rank;
        };
        return std::all_of(all_.begin(), all_.end(), [&](const Merge& merge) {
            return is_made(merge.left, merge.rank) && is_made(merge.right, merge.rank);
        });
    }

   private:
    void add(const Merge& merge) {
        if (merge.left < 0 || merge.right < 0 || merge.rank < 0 || merge.merged < 0)
            throw std::invalid_argument("a merge has a negative number");
        size_t slot = hash(merge.left, merge.right);
        while (slots_[slot].left >= 0) slot = next(slot);
        slots_[slot] = merge;
        all_.push_back(merge);
    }
    size_t next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
    size_t hash(int32_t left, int32_t right) const {
        uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
        uint64_t mixed = key * 0x9E3779B97F4A7C15;
        return (mixed ^ mixed >> 32) & (slots_.size() - 1);
    }

    std::vector<Merge> slots_{2, Merge{-1, -1, NEVER, -1}}, all_;
};

// A symbol of a spine, and the rank of the merge that consumes it.
struct Consumed {
    int32_t symbol, rank;
};
using Spine = std::vector<Consumed>;

// Merges the letters of a token, for one token after another.
class Derivation {
   public:
    Spine left, right;

    // Returns whether merges make one symbol of these letters; then `left` and `right` are its spines.
    bool derive(const Merges& merges, const int32_t* letters, int32_t length) {
        symbols_.assign(letters, letters + length);
        left.clear();
        right.clear();
        if (length == 0 || std::any_of(letters, letters + length, [](int32_t letter) { return letter < 0; })) return false;
        found_.clear();
        for (int32_t i = 0; i + 1 < length; i++) found_.push_back(&merges.find(letters[i], letters[i + 1]));
        while (!found_.empty()) {
            auto lowest = std::min_element(found_.begin(), found_.end(),
                                           [](const Merge* a, const Merge* b) { return a->rank < b->rank; });
            if ((*lowest)->rank == NEVER) return false;
            merge_at(merges, lowest - found_.begin());
        }
        left.push_back({symbols_[0], NEVER});
        right.push_back({symbols_[0], NEVER});
        return true;
    }

   private:
    void merge_at(const Merges& merges, ptrdiff_t place) {
        const Merge& merge = *found_[static_cast<size_t>(place)];
        if (place == 0) left.push_back({merge.left, merge.rank});
        if (place + 1 == static_cast<ptrdiff_t>(found_.size())) right.push_back({merge.right, merge.rank});
        symbols_[static_cast<size_t>(place)] = merge.merged;
        symbols_.erase(symbols_.begin() + place + 1);
        found_.erase(found_.begin() + place);
        auto at = static_cast<size_t>(place);
        if (at > 0) found_[at - 1] = &merges.find(symbols_[at - 1], symbols_[at]);
        if (at < found_.size()) found_[at] = &merges.find(symbols_[at], symbols_[at + 1]);
    }

    std::vector<int32_t> symbols_;
    std::vector<const Merge*> found_;  // The merge of each symbol and the next one.
};

// The ranks of the merges with a given left symbol, or right symbol; ascending.
class Ranks {
   public:
    explicit Ranks(const std::vector<Merge>& merges, int32_t Merge::*side) {
        for (const Merge& merge : merges) of_[merge.*side].push_back(merge.rank);
        for (auto& each : of_) std::sort(each.second.begin(), each.second.end());
    }

    // How many of a symbol's merges are of a rank below this one.
    int32_t count_below(int32_t symbol, int64_t rank) const {
        auto found = of_.find(symbol);
        if (found == of_.end()) return 0;
        const std::vector<int32_t>& ranks = found->second;
        return static_cast<int32_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
    }
    const std::vector<int32_t>& of(int32_t symbol) const { return of_.at(symbol); }

   private:
    std::unordered_map<int32_t, std::vector<int32_t>> of_;
};

// Divides tokens into classes: those of one class have the same merges that wait for a neighbour.
class Classes {
   public:
    explicit Classes(const Ranks& ranks) : ranks_(ranks) {}

    // Adds the next token. `may_equal`: a merge of the rank that consumes a symbol of the spine waits, too.
    void add(const Spine& spine, bool may_equal) {
        key_.clear();
        for (const Consumed& each : spine) {
            int32_t count = ranks_.count_below(each.symbol, int64_t{each.rank} + may_equal);
            if (count) key_.insert(key_.end(), {each.symbol, count});
        }
        auto [place, is_new] = numbers_.emplace(key_, static_cast<uint32_t>(waiting_.size()));
        if (is_new) waiting_.push_back(&place->first);
        of_token.push_back(place->second);
    }
    size_t size() const { return waiting_.size(); }

    // The merges that wait in a class, as pairs of numbers: a symbol, and how many of its merges, lowest ranks first.
    const std::vector<int32_t>& waiting(size_t number) const { return *waiting_[number]; }

    std::vector<uint32_t> of_token;

   private:
    const Ranks& ranks_;
    std::vector<int32_t> key_;
    std::map<std::vector<int32_t>, uint32_t> numbers_;
    std::vector<const std::vector<int32_t>*> waiting_;
};

// What `relate` returns; see gpu.dna.compatible_pairs.Pairs.
struct Relation {
    std::vector<uint16_t> left, right;
    std::vector<uint32_t> bits;
    size_t num_words = 0;
    bool is_made = false;
};

// The right classes in which each merge waits, by the merge's rank.
std::unordered_map<int32_t, std::vector<uint32_t>> right_classes(const Classes& right, const Ranks& by_right) {
    std::unordered_map<int32_t, std::vector<uint32_t>> crossed;
    for (uint32_t number = 0; number < right.size(); number++) {
        const std::vector<int32_t>& waiting = right.waiting(number);
        for (size_t i = 0; i < waiting.size(); i += 2)
            for (int32_t k = 0; k < waiting[i + 1]; k++)
                crossed[by_right.of(waiting[i])[static_cast<size_t>(k)]].push_back(number);
    }
    return crossed;
}

// Clears the bits of each left class and the right classes that share a merge with it. A symbol's merges are looked up
// once for all left classes: sorted by how many they wait for, each class adds to those of the one before.
void clear_crossed(const Classes& left, const Ranks& by_left, const Classes& right, const Ranks& by_right, Relation& made) {
    struct Waiting {
        int32_t symbol, count;
        size_t number;
    };
    std::vector<Waiting> all;
    for (size_t number = 0; number < left.size(); number++) {
        const std::vector<int32_t>& waiting = left.waiting(number);
        for (size_t i = 0; i < waiting.size(); i += 2) all.push_back({waiting[i], waiting[i + 1], number});
    }
    std::sort(all.begin(), all.end(), [](const Waiting& a, const Waiting& b) {
        return a.symbol != b.symbol ? a.symbol < b.symbol : a.count < b.count;
    });
    auto crossed = right_classes(right, by_right);
    std::vector<uint32_t> found;  // A bit for each right class in which one of the symbol's merges so far waits.
    int32_t symbol = -1, num_done = 0;
    for (const Waiting& each : all) {
        if (each.symbol != symbol) {
            found.assign(made.num_words, 0);
            symbol = each.symbol;
            num_done = 0;
        }
        for (const std::vector<int32_t>& ranks = by_left.of(symbol); num_done < each.count; num_done++) {
            auto classes = crossed.find(ranks[static_cast<size_t>(num_done)]);
            if (classes == crossed.end()) continue;
            for (uint32_t number : classes->second) found[number / 32] |= uint32_t{1} << number % 32;
        }
        uint32_t* row = made.bits.data() + (1 + each.number) * made.num_words;
        for (size_t word = 0; word < made.num_words; word++) row[word] &= ~found[word];
    }
}

struct Tokens {
    const int32_t *letters, *lengths;
    size_t count;
};

std::vector<char> find_reached(const Merges& merges, const Tokens& tokens) {
    std::vector<char> reached;
    Derivation derivation;
    const int32_t* letters = tokens.letters;
    for (size_t i = 0; i < tokens.count; letters += tokens.lengths[i++])
        reached.push_back(derivation.derive(merges, letters, tokens.lengths[i]));
    return reached;
}

Relation relate_tokens(const Merges& merges, const Tokens& tokens, size_t max_bytes) {
    Relation made;
    if (!merges.are_in_order()) return made;
    Ranks by_left(merges.all(), &Merge::left), by_right(merges.all(), &Merge::right);
    Classes left(by_left), right(by_right);
    Derivation derivation;
    const int32_t* letters = tokens.letters;
    for (size_t i = 0; i < tokens.count; letters += tokens.lengths[i++]) {
        if (!derivation.derive(merges, letters, tokens.lengths[i])) throw std::invalid_argument("a token is not reached");
        left.add(derivation.right, false);
        right.add(derivation.left, true);
    }
    made.num_words = (right.size() + 31) / 32;
    size_t num_bytes = (1 + left.size()) * made.num_words * sizeof(uint32_t);
    if (num_bytes > max_bytes) throw std::invalid_argument(std::to_string(num_bytes) + " bytes for pairs of tokens");
    made.bits.assign((1 + left.size()) * made.num_words, 0xFFFFFFFF);
    clear_crossed(left, by_left, right, by_right, made);
    for (uint32_t number : left.of_token) made.left.push_back(static_cast<uint16_t>(number + 1));
    made.right.assign(right.of_token.begin(), right.of_token.end());
    made.is_made = true;
    return made;
}

// The arguments of both functions.
struct Given {
    View letters, lengths, merges;

    bool acquire(PyObject* const* arguments) {
        if (!letters.acquire(arguments[0]) || !lengths.acquire(arguments[1]) || !merges.acquire(arguments[2])) return false;
        size_t num_letters = 0;
        for (size_t i = 0; i < lengths.size(); i++) {
            if (lengths.begin()[i] < 0) num_letters = SIZE_MAX / 2;
            num_letters += static_cast<size_t>(lengths.begin()[i]);
        }
        if (num_letters == letters.size() && merges.size() % 4 == 0) return true;
        PyErr_SetString(PyExc_ValueError, "the lengths do not add up");
        return false;
    }
    Tokens tokens() const { return {letters.begin(), lengths.begin(), lengths.size()}; }
    Merges read_merges() const { return {merges.begin(), merges.size() / 4}; }
};

// Runs code without Python's lock; returns false, with a Python exception, if it throws.
template <typename Work>
bool run_unlocked(Work work) {
    std::string error;
    bool has_memory = true;
    Py_BEGIN_ALLOW_THREADS
    try {
        work();
    } catch (const std::bad_alloc&) {
        has_memory = false;
    } catch (const std::exception& thrown) {
        error = thrown.what();
    }
    Py_END_ALLOW_THREADS
    if (!has_memory) PyErr_NoMemory();
    else if (!error.empty()) PyErr_SetString(PyExc_ValueError, error.c_str());
    return has_memory && error.empty();
}

template <typename Element>
PyObject* as_bytes(const std::vector<Element>& elements) {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(elements.data()),
                                     static_cast<Py_ssize_t>(elements.size() * sizeof(Element)));
}

PyObject* reached(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    Given given;
    std::vector<char> found;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "3 arguments are expected, not %zd", count);
    if (!given.acquire(arguments)) return nullptr;
    if (!run_unlocked([&] { found = find_reached(given.read_merges(), given.tokens()); })) return nullptr;
    return as_bytes(found);
}

PyObject* relate(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    Given given;
    Relation made;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "4 arguments are expected, not %zd", count);
    size_t max_bytes = PyLong_AsSize_t(arguments[3]);
    if (PyErr_Occurred() || !given.acquire(arguments)) return nullptr;
    if (!run_unlocked([&] { made = relate_tokens(given.read_merges(), given.tokens(), max_bytes); })) return nullptr;
    if (!made.is_made) Py_RETURN_NONE;
    return Py_BuildValue("NNNn", as_bytes(made.left), as_bytes(made.right), as_bytes(made.bits),
                         static_cast<Py_ssize_t>(made.num_words));
}

PyMethodDef methods[] = {
    {"reached", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(reached)), METH_FASTCALL,
     "reached(letters, lengths, merges, /): Find the tokens that merges make from their letters."},
    {"relate", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(relate)), METH_FASTCALL,
     "relate(letters, lengths, merges, max_bytes, /): Compute which tokens may be neighbours."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "gpu.host._compatible_pairs", nullptr, 0, methods, nullptr, nullptr, nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__compatible_pairs() { return PyModule_Create(&module); }
