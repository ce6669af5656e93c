// Tables that give the last token of a text by its last letters.
//
// Every place of a text has one last token: the token that ends there and may follow the last token of the place where
// it begins. S(w) is the set of tokens that may be the last one of a text that ends with w: every token longer than w
// that ends with w, every token t with w = v t that may follow a token of S(v), and w itself if it is a token.
// docs/internals/dna-bpe.md, *What letters leave*, has the proof.
//
// For k letters, S(w) mostly has one or two tokens. To choose between two, a record has a mask of *signatures* instead
// of tokens. Every token has one of 30 signatures, chosen so that the tokens of S(v) that t may follow have other
// signatures than those that it may not follow. So one bit of the mask decides, without a look-up of the pair.
//
//     record    0 | mask of signatures : 31 | second option : 16 | first option : 16
//     or        1 | number of a list : 31 | number of a block : 32
//     option    -length : 8 | number of the signature's bit in a record : 8
//
// The first option is the last token if the mask has the signature of the last token at the place where it begins. A
// single token needs no test: both options are the same. All fields are bytes or words, so that a test takes few
// instructions. Where signatures do not decide, there are a list of options, and a block of records by the two letters
// in front of the k letters.
#pragma once

#include "tokens.hpp"

namespace dna {

constexpr int FIRST_SIGNATURE = 32, NUM_SIGNATURES = 31;  // Bits of a record's mask.
constexpr uint64_t HAS_LIST = uint64_t{1} << 63;           // In a record.
constexpr int LAST_BITS = 16, LENGTH_SHIFT = 8;
constexpr int MORE = 2;        // Letters in front of the k letters that are looked up where these do not decide.
constexpr int MAX_K = 10;      // So that a word of letters has those of 16 neighbouring places.

// A last token as places keep it: the bit of its signature, and its length below zero.
using Last = uint16_t;
constexpr Last BEGIN_LAST = FIRST_SIGNATURE;  // At the begin of a text, where every token may begin.

inline int length_of(Last last) { return -static_cast<int8_t>(last >> LENGTH_SHIFT); }

// One of several tokens that may be the last one.
struct Option {
    enum Test : uint8_t {
        BY_SIGNATURE,  // The mask decides; where a signature is doubtful, the pair does.
        BY_LETTERS,    // The token is longer than k: its letters and the pair decide.
        NONE           // It is the last token if no other one is.
    };
    uint64_t mask;
    union {
        uint64_t doubtful;  // Signatures of both tokens that it may follow and tokens that it may not follow.
        uint64_t latest;    // The last letters of the token, if these are compared.
    };
    uint16_t id, right;     // The token and its right class.
    Last last;
    uint8_t length;
    Test test;
};

// A list of numbers for each text of one length.
struct ListsByText {
    std::vector<uint32_t> begins{0};  // By the text's letters as a number.
    std::vector<uint16_t> numbers;

    const uint16_t* begin(uint64_t text) const { return numbers.data() + begins[text]; }
    const uint16_t* end(uint64_t text) const { return numbers.data() + begins[text + 1]; }
    void end_list() { begins.push_back(static_cast<uint32_t>(numbers.size())); }
};

// The sets S(w) of all texts of one length: tokens in the order of their left classes, and these classes.
struct Sets {
    ListsByText ids, classes;

    void add(uint16_t id, uint16_t left_class) {
        ids.numbers.push_back(id);
        bool is_first = classes.numbers.size() == classes.begins.back();
        if (is_first || classes.numbers.back() != left_class) classes.numbers.push_back(left_class);
    }
    void end_set() {
        ids.end_list();
        classes.end_list();
    }
};

// Computes S(w) of all texts of up to k letters.
class PossibleLast {
   public:
    PossibleLast(const Tokens& tokens, int k) : tokens_(tokens) {
        std::vector<uint16_t> ids;
        for (const Token& token : tokens.by_id)
            if (token.is_pure()) ids.push_back(token.id);
        std::stable_sort(ids.begin(), ids.end(),
                         [&](uint16_t a, uint16_t b) { return tokens.left_of[a] < tokens.left_of[b]; });
        levels_.emplace_back();
        for (uint16_t id : ids) levels_[0].add(id, tokens.left_of[id]);
        levels_[0].end_set();
        for (int length = 1; length <= k; length++) add_level(length);
    }

    // A part of one of the lists.
    struct List {
        const uint16_t *begin, *end;

        size_t size() const { return static_cast<size_t>(end - begin); }
    };
    // The tokens in front of one at the end of a text: those of S(v), where w = v t; v has k letters at most.
    struct InFront {
        List ids, classes;
    };
    InFront in_front(const Token& token, uint64_t text, int length) const {
        int before = length - token.length, most = static_cast<int>(levels_.size()) - 1;
        uint64_t letters = text & mask_of(before);
        if (before > most) letters >>= 2 * (before - most);
        const Sets& sets = levels_[static_cast<size_t>(std::min(before, most))];
        return {{sets.ids.begin(letters), sets.ids.end(letters)},
                {sets.classes.begin(letters), sets.classes.end(letters)}};
    }

    // S(w) of a text of up to k letters.
    List of(uint64_t text, int length) const {
        const ListsByText& ids = levels_[static_cast<size_t>(length)].ids;
        return {ids.begin(text), ids.end(text)};
    }

    // Whether a token of S(w) is in S(v w), too, where the text is v w.
    bool may_be_last(const Token& token, uint64_t text, int length) const {
        int compared = std::min<int>(token.length, length);
        if (ending(token.latest[0], compared) != text >> 2 * (length - compared)) return false;
        if (token.length >= length) return true;
        List front = in_front(token, text, length).classes;
        return std::any_of(front.begin, front.end,
                           [&](uint16_t left_class) { return tokens_.pairs.may_follow(left_class, token.right); });
    }

   private:
    void add_level(int length) {
        const ListsByText& shorter = levels_.back().ids;
        Sets made;
        for (uint64_t text = 0; text < uint64_t{1} << 2 * length; text++) {
            for (const uint16_t* id = shorter.begin(text >> 2); id < shorter.end(text >> 2); id++)
                if (may_be_last(tokens_.by_id[*id], text, length)) made.add(*id, tokens_.left_of[*id]);
            made.end_set();
        }
        levels_.push_back(std::move(made));
    }

    const Tokens& tokens_;
    std::vector<Sets> levels_;
};

// Gives each left class a signature, so that the classes that a token may follow have other signatures than those that
// it may not follow. `LastTokens` notices where that is not possible. The first signature is that of the begin of a
// text.
class Signatures {
   public:
    Signatures(size_t num_classes, int count) : count_(count), of_class_(num_classes), members_(num_classes) {}

    // Begins another requirement of a given weight.
    void require(uint32_t weight) { requirements_.push_back({{0, 0}, weight}); }

    // Adds another class to the latest requirement, on either side.
    void add(uint16_t left_class, bool may_follow) {
        auto number = static_cast<uint32_t>(2 * (requirements_.size() - 1) + may_follow);
        members_[left_class].push_back(number);
    }

    // Chooses signatures, first for the classes with the most requirements.
    void choose() {
        std::vector<size_t> order(of_class_.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return members_[a].size() > members_[b].size(); });
        for (size_t number : order) choose_for(number);
        members_.clear();
        requirements_.clear();
    }

    int of(uint16_t left_class) const { return of_class_[left_class]; }

   private:
    struct Requirement {
        uint64_t used[2];      // The signatures of the classes on each side so far.
        uint32_t weight;
    };

    // Chooses the signature that breaks the fewest requirements.
    void choose_for(size_t number) {
        uint64_t broken[64] = {};
        for (uint32_t member : members_[number]) {
            const Requirement& requirement = requirements_[member / 2];
            for (uint64_t used = requirement.used[1 - member % 2]; used; used &= used - 1)
                broken[__builtin_ctzll(used)] += requirement.weight;
        }
        int best = static_cast<int>(std::min_element(broken + 1, broken + count_) - broken);
        of_class_[number] = static_cast<uint8_t>(best);
        for (uint32_t member : members_[number]) requirements_[member / 2].used[member % 2] |= uint64_t{1} << best;
    }

    int count_;
    std::vector<uint8_t> of_class_;
    std::vector<std::vector<uint32_t>> members_;  // By class: 2 * requirement + side.
    std::vector<Requirement> requirements_;
};

// The tables of a vocabulary.
class LastTokens {
   public:
    LastTokens(const Tokens& tokens, int k) : tokens_(tokens), k_(k), signatures_(tokens.num_left, NUM_SIGNATURES) {
        if (k < 1 || k > MAX_K) throw std::invalid_argument("k");
        PossibleLast possible(tokens, k);
        for (uint64_t text = 0; text <= mask_of(k); text++) require(possible, Ending(possible, tokens, text, k));
        signatures_.choose();
        lasts_.resize(tokens.by_id.size());
        for (const Token& token : tokens.by_id)
            if (token.length) lasts_[token.id] = make_last(token);
        records_.reserve(mask_of(k) + 1);
        for (uint64_t text = 0; text <= mask_of(k); text++) records_.push_back(record_of(possible, text));
        find_short(possible);
    }

    int k() const { return k_; }
    const uint64_t* records() const { return records_.data(); }
    const Option* options(uint64_t record) const { return options_.data() + ((record & ~HAS_LIST) >> 32); }
    Last last_of(uint16_t id) const { return lasts_[id]; }

    // The last token of a whole text of fewer than k letters.
    Last of_short(uint64_t latest, int length) const { return short_[begin_of(length) + ending(latest, length)]; }

    static bool has_list(uint64_t record) { return record >> 63; }
    // Whether a record has one token, which needs no test.
    static bool has_one(uint64_t record) { return static_cast<Last>(record ^ record >> LAST_BITS) == 0; }
    // Where the first option begins, as a place below zero.
    static Place tested_begin(uint64_t record) { return static_cast<int8_t>(record >> LENGTH_SHIFT); }
    static bool has_signature(uint64_t mask, Last last) { return mask >> (last & 63) & 1; }

    // The option of a record that the last token in front of the first option leaves.
    static Last choose(uint64_t record, Last before) {
#if defined(__clang__)      // It makes a branch of the other form, which one place in six mispredicts.
        return static_cast<Last>(record >> LAST_BITS * !has_signature(record, before));
#else
        return static_cast<Last>(has_signature(record, before) ? record : record >> LAST_BITS);
#endif
    }

    // Whether a record with a list has a block by more letters, and its record for the latest letters.
    static bool has_block(uint64_t record) { return static_cast<uint32_t>(record); }
    const uint64_t& more_record(uint64_t record, uint64_t latest) const {
        uint32_t block = static_cast<uint32_t>(record) - 1;
        return more_records_[block * BLOCK + (ending(latest, k_ + MORE) & (BLOCK - 1))];
    }

    // The memory that is read next for a record with a list.
    const void* behind(uint64_t record, uint64_t latest) const {
        return has_block(record) ? static_cast<const void*>(&more_record(record, latest)) : options(record);
    }

    // Prefetches the first two options of a record's list; without a branch, so other ones if the record has no list.
    void prefetch_options(uint64_t record) const {
        uint64_t is_list = record >> 63;
        const Option* first = options_.data() + (record >> 32 & (0 - is_list) & 0x7FFFFFFF);
        __builtin_prefetch(first);
        __builtin_prefetch(&first[1].test);
    }

   private:
    static constexpr size_t BLOCK = 1 << 2 * MORE;
    static constexpr size_t MOST_TOKENS = 1024;  // To tell apart for one record.

    // The last letters of texts, and the tokens that may be last there, in the order in which they are tested. Short
    // ones are first, as it is mostly a short one where letters repeat. A token that is all of these letters is last:
    // the last one needs no test, and nothing is known of the letters in front of it.
    struct Ending {
        uint64_t text;
        int length;
        std::vector<uint16_t> ids;

        Ending(const PossibleLast& possible, const Tokens& tokens, uint64_t text_, int length_)
            : text(text_), length(length_) {
            auto all = possible.of(text, length);
            ids.assign(all.begin, all.end);
            sort(tokens);
        }
        // The same texts by two letters more.
        Ending(const PossibleLast& possible, const Tokens& tokens, const Ending& shorter, uint64_t more)
            : text(shorter.text << 2 * MORE | more), length(shorter.length + MORE) {
            for (uint16_t id : shorter.ids)
                if (possible.may_be_last(tokens.by_id[id], text, length)) ids.push_back(id);
            sort(tokens);
        }

       private:
        void sort(const Tokens& tokens) {
            if (ids.size() < 2) return;
            auto rank = [&](uint16_t id) {
                return tokens.length_of(id) == length ? MAX_LETTERS + 1 : tokens.length_of(id);
            };
            std::sort(ids.begin(), ids.end(),
                      [&](uint16_t a, uint16_t b) { return rank(a) < rank(b) || (rank(a) == rank(b) && a < b); });
        }
    };

    Last make_last(const Token& token) const {
        auto length = static_cast<uint8_t>(-token.length);
        return static_cast<Last>((FIRST_SIGNATURE + signatures_.of(token.left)) | length << LENGTH_SHIFT);
    }

    // Requires the signatures that tell the last token of a text. Of two tokens one is tested, of more all but one.
    void require(const PossibleLast& possible, const Ending& ending) {
        size_t num_tested = ending.ids.size() < 2 ? 0 : ending.ids.size() - 1;
        for (size_t i = 0; i < num_tested; i++) {
            const Token& token = tokens_.by_id[ending.ids[i]];
            if (token.length >= ending.length) break;
            auto front = possible.in_front(token, ending.text, ending.length);
            const Token& other = tokens_.by_id[ending.ids[1]];
            if (num_tested > 1 || other.length >= ending.length) {
                require(token, front);
                continue;
            }
            auto other_front = possible.in_front(other, ending.text, ending.length);
            if (front.ids.size() <= other_front.ids.size()) require(token, front, 4);
            else require(other, other_front, 4);
        }
    }
    void require(const Token& token, PossibleLast::InFront front, uint32_t weight = 1) {
        if (front.ids.size() > MOST_TOKENS) return;
        signatures_.require(weight);
        for (const uint16_t* each = front.classes.begin; each < front.classes.end; each++)
            signatures_.add(*each, tokens_.pairs.may_follow(*each, token.right));
    }

    // The signatures in front of a token: those that it may follow, and those that do not tell whether it may.
    struct Masks {
        uint64_t may_follow, doubtful;
    };
    Masks masks_for(const PossibleLast& possible, const Token& token, const Ending& ending) const {
        if (token.length >= ending.length) return {0, ~uint64_t{0}};
        uint64_t masks[2] = {0, 1};    // That it may not follow, and that it may: the begin.
        auto front = possible.in_front(token, ending.text, ending.length).classes;
        for (const uint16_t* each = front.begin; each < front.end; each++)
            masks[tokens_.pairs.may_follow(*each, token.right)] |= uint64_t{1} << signatures_.of(*each);
        return {masks[1] << FIRST_SIGNATURE, (masks[0] & masks[1]) << FIRST_SIGNATURE};
    }

    // The record of texts that end with k letters, and the block of those with more letters if it has a list.
    uint64_t record_of(const PossibleLast& possible, uint64_t text) {
        Ending ending(possible, tokens_, text, k_);
        uint64_t record = record_of(possible, ending);
        if (!has_list(record) || ending.ids.empty()) return record;
        uint64_t number = more_records_.size() / BLOCK + 1;
        for (uint64_t more = 0; more < BLOCK; more++)
            more_records_.push_back(record_of(possible, Ending(possible, tokens_, ending, more)));
        return record | number;
    }

    uint64_t record_of(const PossibleLast& possible, const Ending& ending) {
        const std::vector<uint16_t>& ids = ending.ids;
        bool is_short = std::all_of(ids.begin(), ids.end(),
                                    [&](uint16_t id) { return tokens_.length_of(id) <= ending.length; });
        if (is_short && ids.size() == 1) return make_record(ids[0], ids[0], 0);
        for (size_t tested = 0; is_short && ids.size() == 2 && tested < 2; tested++)
            if (Masks masks = masks_for(possible, tokens_.by_id[ids[tested]], ending); !masks.doubtful)
                return make_record(ids[tested], ids[1 - tested], masks.may_follow);
        uint64_t first = options_.size();
        for (uint16_t id : ids) options_.push_back(option_of(possible, id, ending, id == ids.back()));
        return HAS_LIST | first << 32;
    }

    uint64_t make_record(uint16_t first, uint16_t second, uint64_t mask) const {
        return lasts_[first] | static_cast<uint64_t>(lasts_[second]) << LAST_BITS | mask;
    }

    Option option_of(const PossibleLast& possible, uint16_t id, const Ending& ending, bool is_final) const {
        const Token& token = tokens_.by_id[id];
        Option option{0, {0}, id, token.right, lasts_[id], token.length, Option::BY_SIGNATURE};
        if (is_final) {
            option.test = Option::NONE;
        } else if (token.length > ending.length) {
            option.test = Option::BY_LETTERS;
            option.latest = token.latest[0];
        } else {
            Masks masks = masks_for(possible, token, ending);
            option.mask = masks.may_follow;
            option.doubtful = masks.doubtful;
        }
        return option;
    }

    // Finds the last tokens of whole texts of fewer than k letters.
    void find_short(const PossibleLast& possible) {
        short_.assign(begin_of(k_), 0);
        std::vector<uint16_t> ids(begin_of(k_), NO_TOKEN);
        for (int length = 1; length < k_; length++)
            for (uint64_t text = 0; text <= mask_of(length); text++) {
                auto all = possible.of(text, length);
                const uint16_t* last = std::find_if(all.begin, all.end, [&](uint16_t id) {
                    int before = length - tokens_.length_of(id);
                    if (before <= 0) return before == 0;
                    uint16_t in_front = ids[begin_of(before) + (text & mask_of(before))];
                    return in_front != NO_TOKEN && tokens_.may_follow(in_front, id);
                });
                if (last == all.end) continue;  // Some letter is no token.
                ids[begin_of(length) + text] = *last;
                short_[begin_of(length) + text] = lasts_[*last];
            }
    }

    const Tokens& tokens_;
    int k_;
    Signatures signatures_;
    std::vector<Last> lasts_;         // By id.
    LargeVector<uint64_t> records_;
    LargeVector<uint64_t> more_records_;    // Blocks of records of k and more letters.
    LargeVector<Option> options_;
    std::vector<Last> short_;         // By length, then letters.
};

}  // namespace dna
