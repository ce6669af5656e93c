// The tokens of a vocabulary of letters, and which of them may be neighbours.
//
// A base is one of the four letters that most tokens have; its code has two bits. Other letters that merge are mixed
// letters, and so are the tokens that have some. Packed text has four bases a byte, the first one in the lowest bits.
// Most functions read the *latest* letters in front of a place: the last one is in the highest bits of a word.
//
//     text     G A T C      packed    C T A G (one byte)      latest at place 3    T A G . . . (64 bits)
//     place   0 1 2 3 4
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "../../native/large_pages.hpp"

namespace dna {

constexpr int MAX_LETTERS = 64;     // Of a token.
constexpr int LATEST = 28;          // Letters that a word of the latest letters has at any place, at least.
constexpr int PADDING = 16;         // Bytes in front of packed text that may be read.
constexpr uint8_t FIRST_MIXED = 4;  // Codes of letters: bases are below it,
constexpr uint8_t MERGING = 32;     // and mixed letters below this one.
constexpr uint16_t NO_TOKEN = 0xFFFF;

using Place = int64_t;
using Two = uint64_t __attribute__((vector_size(16)));  // Two words at once.

// The bits of so many bases.
inline uint64_t mask_of(int num_bases) { return (uint64_t{1} << 2 * num_bases) - 1; }

// The place of the texts of so many bases in a table of all texts by their length: theirs is a one in front of them.
inline uint32_t begin_of(int length) { return 1u << 2 * length; }

// The LATEST letters or more in front of a place.
inline uint64_t latest_letters(const uint8_t* packed, Place place) {
    uint64_t word;
    std::memcpy(&word, packed + (place >> 2) - 7, 8);
    return word << (8 - 2 * (place & 3));
}

// The last letters of a text as a number: the last one has the highest two bits of 2 * length.
inline uint64_t ending(uint64_t latest, int length) { return latest >> (64 - 2 * length); }

// The same behind a one, which is begin_of(length) + ending(latest, length).
inline uint64_t one_and_ending(uint64_t latest, int length) {
    return (latest >> 1 | uint64_t{1} << 63) >> (63 - 2 * length);
}

struct Token {
    uint16_t id = 0;
    uint16_t left = 0, right = 0;  // Its classes as the left and as the right one of two neighbours.
    uint8_t length = 0;            // 0: no token has this id.
    bool is_mixed = false;
    uint64_t latest[2] = {0, 0};   // Its last 32 letters, and those in front of them; of pure tokens.

    bool is_pure() const { return length > 0 && !is_mixed; }
};

// The nodes of all texts that tokens end with, from their last letter on.
class Endings {
   public:
    static constexpr uint32_t NONE = 0;

    explicit Endings(int num_letters) : num_letters_(static_cast<size_t>(num_letters)) { add_node(); }

    void add(const uint8_t* letters, int length, uint16_t id) {
        uint32_t node = 0;
        for (int i = length - 1; i >= 0; i--) {
            size_t slot = node * num_letters_ + letters[i];
            if (children_[slot] == NONE) {
                uint32_t added = add_node();
                children_[slot] = added;
            }
            node = children_[slot];
        }
        tokens_[node] = id;
    }
    uint32_t child(uint32_t node, uint8_t letter) const { return children_[node * num_letters_ + letter]; }
    uint16_t token(uint32_t node) const { return tokens_[node]; }

   private:
    uint32_t add_node() {
        children_.resize(children_.size() + num_letters_, NONE);
        tokens_.push_back(NO_TOKEN);
        return static_cast<uint32_t>(tokens_.size() - 1);
    }

    size_t num_letters_;
    std::vector<uint32_t> children_;
    std::vector<uint16_t> tokens_;
};

// Finds the id of a pure token: of up to `k` letters by these as a number, longer ones by hash.
class SpelledTokens {
   public:
    explicit SpelledTokens(int k) : k_(k), short_(begin_of(k + 1), NO_TOKEN) {}

    void build(const std::vector<Token>& tokens) {
        size_t num_long = 0, num_slots = 2;
        for (const Token& token : tokens) num_long += token.is_pure() && token.length > k_;
        while (num_slots < 4 * num_long) num_slots *= 2;
        long_.assign(num_slots, {0, NO_TOKEN, 0});
        for (const Token& token : tokens) {
            if (!token.is_pure()) continue;
            if (token.length <= k_) short_[begin_of(token.length) + ending(token.latest[0], token.length)] = token.id;
            else add_long(token);
        }
    }

    // The token that the last `length` letters in front of a place spell. There is one.
    uint16_t find(const std::vector<Token>& tokens, const uint8_t* packed, Place place, int length) const {
        uint64_t latest = latest_letters(packed, place);
        if (__builtin_expect(length <= k_, 1)) return short_[one_and_ending(latest, length)];
        return find_long(tokens, packed, place, length);
    }

    // Whether the letters in front of a place are a token's.
    static bool is_spelled(const Token& token, const uint8_t* packed, Place place) {
        for (int done = 0; done < token.length; done += LATEST) {
            int count = std::min<int>(LATEST, token.length - done);
            uint64_t differs = latest_letters(packed, place - done) ^ latest_of(token, done);
            if (ending(differs, count)) return false;
        }
        return true;
    }

   private:
    struct Slot {
        uint64_t key;  // The last LATEST letters.
        uint16_t id;
        uint8_t length;
    };

    uint16_t find_long(const std::vector<Token>& tokens, const uint8_t* packed, Place place, int length) const {
        uint64_t latest = latest_letters(packed, place);
        uint64_t key = ending(latest, std::min(length, LATEST));
        for (size_t slot = hash(key, length);; slot = (slot + 1) & (long_.size() - 1)) {
            const Slot& found = long_[slot];
            if (found.id == NO_TOKEN) return NO_TOKEN;
            if (found.key != key || found.length != length) continue;
            if (length <= LATEST || is_spelled(tokens[found.id], packed, place)) return found.id;
        }
    }

    // The latest letters of a token without its last `done`.
    static uint64_t latest_of(const Token& token, int done) {
        if (done == 0) return token.latest[0];
        if (done >= 32) return token.latest[1] << 2 * (done - 32);
        return token.latest[0] << 2 * done | token.latest[1] >> (64 - 2 * done);
    }
    size_t hash(uint64_t key, int length) const {
        uint64_t mixed = (key + static_cast<uint64_t>(length) * 0xD6E8FEB86659FD93) * 0x9E3779B97F4A7C15;
        return (mixed ^ mixed >> 32) & (long_.size() - 1);
    }
    void add_long(const Token& token) {
        uint64_t key = ending(token.latest[0], std::min<int>(token.length, LATEST));
        size_t slot = hash(key, token.length);
        while (long_[slot].id != NO_TOKEN) slot = (slot + 1) & (long_.size() - 1);
        long_[slot] = {key, token.id, token.length};
    }

    int k_;
    LargeVector<uint16_t> short_;
    LargeVector<Slot> long_;
};

// Which tokens may follow which, by their classes; left class 0 is the begin of a text. A row for each right class, as
// one token is tested behind many.
class Pairs {
   public:
    // `bits` has a row of `row_words` words for each left class, and a bit in it for each right class. `order` has the
    // left classes in the order in which they are numbered here.
    Pairs(const uint32_t* bits, size_t row_words, const std::vector<uint16_t>& order)
        : num_right_(32 * row_words), row_words_((order.size() + 31) / 32), bits_(num_right_ * row_words_),
          first_bits_(num_right_) {
        for (size_t left = 0; left < order.size(); left += 32)
            for (size_t word = 0; word < row_words; word++) {
                uint32_t block[32] = {};
                for (size_t i = 0; i < 32 && left + i < order.size(); i++)
                    block[i] = bits[order[left + i] * row_words + word];
                transpose(block);
                for (size_t i = 0; i < 32; i++) bits_[(32 * word + i) * row_words_ + left / 32] = block[i];
            }
        for (size_t right = 0; right < num_right_; right++) first_bits_[right] = bits_[right * row_words_];
    }

    bool may_follow(uint16_t left, uint16_t right) const {
        return bits_[right * row_words_ + left / 32] >> left % 32 & 1;
    }
    // The same by a table that stays in the cache, for the left classes of tokens that end with a mixed letter, which are
    // the first ones: each N in a text is looked up here.
    bool may_follow_mixed(uint16_t left, uint16_t right) const {
        return left < 32 ? first_bits_[right] >> left & 1 : may_follow(left, right);
    }

   private:
    // Swaps the upper right and the lower left half of a block of bits, then those of its quarters, and so on.
    static void transpose(uint32_t* block) {
        uint32_t mask = 0xFFFF;
        for (int size = 16; size; size >>= 1, mask ^= mask << size)
            for (int i = 0; i < 32; i = (i + size + 1) & ~size) {
                uint32_t swapped = (block[i] >> size ^ block[i + size]) & mask;
                block[i] ^= swapped << size;
                block[i + size] ^= swapped;
            }
    }

    size_t num_right_, row_words_;
    LargeVector<uint32_t> bits_;
    std::vector<uint32_t> first_bits_;  // The first word of each row.
};

// The tokens as the caller gives them: arrays of `count` elements, the codes of all letters, and which left class may
// be in front of which right class.
struct GivenTokens {
    const uint8_t *letters, *lengths;
    const uint16_t *ids, *left, *right;
    size_t count;
    const uint32_t* pairs;     // A row of `row_words` for each left class.
    size_t num_left, row_words;
    int num_letters;           // Codes of letters are below it.

    void check() const {
        size_t num_codes = 0;
        for (size_t i = 0; i < count; i++) {
            if (lengths[i] == 0 || lengths[i] > MAX_LETTERS) throw std::invalid_argument("a token's length");
            if (left[i] >= num_left || right[i] >= 32 * row_words) throw std::invalid_argument("a token's class");
            if (ids[i] == NO_TOKEN) throw std::invalid_argument("a token's id");
            num_codes += lengths[i];
        }
        if (std::any_of(letters, letters + num_codes, [&](uint8_t code) { return code >= num_letters; }))
            throw std::invalid_argument("a letter's code");
    }
};

// All tokens that merges reach.
struct Tokens {
    std::vector<Token> by_id;
    std::vector<uint16_t> left_of;  // The left class of each id.
    size_t num_left;
    Pairs pairs;
    SpelledTokens spelled;
    Endings endings;           // Filled if there are mixed tokens.
    int longest = 1, longest_mixed = 0;
    int tail = 0;              // The most bases behind the last mixed letter of a token.
    bool has_mixed = false;

    Tokens(const GivenTokens& given, int k)
        : num_left(given.num_left), pairs(given.pairs, given.row_words, find_order(given)), spelled(k),
          endings(given.num_letters) {
        std::vector<uint16_t> order = find_order(given), number_of(order.size());
        for (size_t i = 0; i < order.size(); i++) number_of[order[i]] = static_cast<uint16_t>(i);
        const uint8_t* letters = given.letters;
        for (size_t i = 0; i < given.count; letters += given.lengths[i++]) {
            Token token = read(given, letters, i);
            token.left = number_of[token.left];
            add(token);
            for (int behind = 0; token.is_mixed; behind++)
                if (letters[token.length - 1 - behind] >= FIRST_MIXED) {
                    tail = std::max(tail, behind);
                    break;
                }
        }
        spelled.build(by_id);
        letters = given.letters;
        for (size_t i = 0; has_mixed && i < given.count; letters += given.lengths[i++])
            endings.add(letters, given.lengths[i], given.ids[i]);
    }

    bool may_follow(uint16_t before, uint16_t after) const {
        return pairs.may_follow(left_of[before], by_id[after].right);
    }
    int length_of(uint16_t id) const { return by_id[id].length; }

   private:
    static Token read(const GivenTokens& given, const uint8_t* letters, size_t number) {
        Token token{given.ids[number], given.left[number], given.right[number], given.lengths[number], false, {0, 0}};
        for (int i = 0; i < token.length; i++) {
            uint8_t code = letters[token.length - 1 - i];
            token.is_mixed |= code >= FIRST_MIXED;
            token.latest[i / 32] |= static_cast<uint64_t>(code & 3) << (62 - 2 * (i % 32));
        }
        return token;
    }

    // Orders left classes by the last letters of one of their tokens, so that the bits of tokens that end alike are
    // near each other: those that are looked up where a text ends with some letters. Class 0, the begin, stays first;
    // then come those of tokens that end with a mixed letter.
    static std::vector<uint16_t> find_order(const GivenTokens& given) {
        std::vector<uint64_t> latest(given.num_left);
        std::vector<bool> ends_mixed(given.num_left);
        const uint8_t* letters = given.letters;
        for (size_t i = 0; i < given.count; letters += given.lengths[i++]) {
            Token token = read(given, letters, i);
            if (letters[token.length - 1] >= FIRST_MIXED) ends_mixed[token.left] = true;
            if (!latest[token.left]) latest[token.left] = token.latest[0];
        }
        std::vector<uint16_t> order(given.num_left);
        std::iota(order.begin(), order.end(), uint16_t{0});
        std::stable_sort(order.begin() + 1, order.end(), [&](uint16_t a, uint16_t b) { return latest[a] < latest[b]; });
        std::stable_partition(order.begin() + 1, order.end(), [&](uint16_t left) { return ends_mixed[left]; });
        return order;
    }

    void add(const Token& token) {
        has_mixed |= token.is_mixed;
        longest = std::max<int>(longest, token.length);
        if (token.is_mixed) longest_mixed = std::max<int>(longest_mixed, token.length);
        if (by_id.size() <= token.id) {
            by_id.resize(token.id + 1u);
            left_of.resize(token.id + 1u);
        }
        by_id[token.id] = token;
        left_of[token.id] = token.left;
    }
};

}  // namespace dna
