// Tables of the last token of a text, by its last letters.
//
// Every place of a text has one last token: of the tokens that end there the one that may follow the last token of the
// place where it begins. S(w) has the tokens that may be last in any text that ends with w: every token longer than w
// that ends with it; and of w = v t each token t that may follow some token of S(v), or that is all of w.
// docs/internals/dna-bpe.md, *What letters leave*, has the proof.
//
// S(w) of k letters has mostly one token or two. To choose between two, a record does not name tokens but a mask of
// *signatures*: every token has one of 31, and those of S(v) that t may follow have other ones than those that it may not
// follow. So one bit of the mask decides, without a look at the pairs.
//
//     record    mask of signatures : 32 | second option : 16 | first option : 16
//     option    second signature : 6 | length : 4 | signature : 6
//
// The first option is the last token if the mask has the signature of the last token where it begins. A record of more
// options has length 0 as its first one's, and the number of these options in its highest half. They may be tested by
// the *second signatures*, of which there are 63, where the first ones do not tell classes apart.
#pragma once

#include "tokens.hpp"

namespace dna {

constexpr int FIRST_SIGNATURE = 32, NUM_SIGNATURES = 32;  // Bits of a record's mask.
constexpr int NUM_SECOND = 64;
constexpr int LAST_BITS = 16, LENGTH_SHIFT = 6, SECOND_SHIFT = 10;
constexpr int SIGNATURE_MASK = (1 << LENGTH_SHIFT) - 1;
constexpr int MAX_SHORT = 15;  // Letters of the tokens that records have. Last tokens of more letters have length 0.
constexpr int MAX_K = 10;      // 16 places are looked up by one word.

// A last token as places keep it: its signatures and its length, 0 for more than MAX_SHORT.
using Last = uint16_t;
constexpr Last BEGIN_LAST = FIRST_SIGNATURE;  // At the begin of a text, where every token may begin.

// One of several tokens that may be the last one.
struct Option {
    enum Test : uint8_t {
        BY_SIGNATURE,          // The mask decides by the signature of the last token in front of it,
        BY_SECOND_SIGNATURE,   // or by the second one.
        BY_PAIR,               // Neither does.
        BY_LETTERS_AND_PAIR,   // The token is longer than k, so that its letters are compared as well.
        NONE                   // It is the last token if no other one is.
    };
    uint64_t mask;
    uint64_t latest;           // The last letters of the token.
    uint16_t id;
    Last last;
    uint8_t length;
    Test test;
};

// The sets S(w) of all texts of one length.
struct Sets {
    std::vector<uint32_t> begins;  // By the text's letters as a number.
    std::vector<uint16_t> ids;

    const uint16_t* begin(uint64_t text) const { return ids.data() + begins[text]; }
    const uint16_t* end(uint64_t text) const { return ids.data() + begins[text + 1]; }
    size_t size(uint64_t text) const { return begins[text + 1] - begins[text]; }
};

// Computes S(w) of all texts of up to k letters.
class PossibleLast {
   public:
    PossibleLast(const Tokens& tokens, int k) : tokens_(tokens) {
        levels_.emplace_back();
        levels_[0].begins = {0};
        for (const Token& token : tokens.by_id)
            if (token.is_pure()) levels_[0].ids.push_back(token.id);
        levels_[0].begins.push_back(static_cast<uint32_t>(levels_[0].ids.size()));
        for (int length = 1; length <= k; length++) add_level(length);
    }

    const Sets& of_length(int length) const { return levels_[static_cast<size_t>(length)]; }

   private:
    void add_level(int length) {
        const Sets& shorter = levels_.back();
        Sets made;
        made.begins.push_back(0);
        for (uint64_t text = 0; text < uint64_t{1} << 2 * length; text++) {
            for (const uint16_t* id = shorter.begin(text >> 2); id < shorter.end(text >> 2); id++)
                if (may_be_last(tokens_.by_id[*id], text, length)) made.ids.push_back(*id);
            made.begins.push_back(static_cast<uint32_t>(made.ids.size()));
        }
        levels_.push_back(std::move(made));
    }

    // Whether a token that may be last by all letters but the first one may be by all.
    bool may_be_last(const Token& token, uint64_t text, int length) const {
        if (token.length >= length) return (ending(token.latest[0], length) & 3) == (text & 3);
        int before = length - token.length;
        uint64_t letters = text & mask_of(before);
        const Sets& sets = levels_[static_cast<size_t>(before)];
        return std::any_of(sets.begin(letters), sets.end(letters),
                           [&](uint16_t id) { return tokens_.may_follow(id, token.id); });
    }

    const Tokens& tokens_;
    std::vector<Sets> levels_;
};

// Gives each left class a signature, so that the classes that a token may follow have other ones than those that it may
// not follow. Where that is not possible `LastTokens` notices it. The first signature is that of the begin of a text.
class Signatures {
   public:
    Signatures(size_t num_classes, int count) : count_(count), of_class_(num_classes), members_(num_classes) {}

    // Begins another requirement, which counts so much.
    void require(uint32_t weight) { requirements_.push_back({{0, 0}, weight}); }

    // Adds a class to the latest requirement, on either side.
    void add(uint16_t left_class, bool may_follow) {
        auto number = static_cast<uint32_t>(2 * (requirements_.size() - 1) + may_follow);
        std::vector<uint32_t>& members = members_[left_class];
        if (members.empty() || members.back() != number) members.push_back(number);
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
    LastTokens(const Tokens& tokens, int k) : tokens_(tokens), k_(k), signatures_(tokens.num_left, NUM_SIGNATURES),
          second_(tokens.num_left, NUM_SECOND) {
        if (k < 1 || k > MAX_K) throw std::invalid_argument("k");
        PossibleLast possible(tokens, k);
        const Sets& sets = possible.of_length(k);
        for (uint64_t text = 0; text <= mask_of(k); text++)
            if (sets.size(text) > 1) require(possible, text);
        signatures_.choose();
        for (uint64_t text = 0; text <= mask_of(k); text++)
            if (sets.size(text) > 1) require_second(possible, text);
        second_.choose();
        lasts_.resize(tokens.by_id.size());
        for (const Token& token : tokens.by_id)
            if (token.length) lasts_[token.id] = make_last(token);
        records_.reserve(mask_of(k) + 1);
        for (uint64_t text = 0; text <= mask_of(k); text++) records_.push_back(record_of(possible, text));
        find_short(possible);
    }

    int k() const { return k_; }
    const uint64_t* records() const { return records_.data(); }
    const Option* options(uint64_t record) const { return options_.data() + (record >> 32); }
    Last last_of(uint16_t id) const { return lasts_[id]; }
    size_t num_options() const { return options_.size(); }

    // The last token of a whole text of fewer than k letters.
    Last of_short(uint64_t latest, int length) const { return short_[begin_of(length) + ending(latest, length)]; }

    static bool has_list(uint64_t record) { return !(record >> LENGTH_SHIFT & MAX_SHORT); }
    static int first_length(uint64_t record) { return static_cast<int>(record >> LENGTH_SHIFT & MAX_SHORT); }
    static bool has_signature(uint64_t mask, Last last) { return mask >> (last & SIGNATURE_MASK) & 1; }
    static bool has_second(uint64_t mask, Last last) { return mask >> (last >> SECOND_SHIFT) & 1; }

   private:
    static constexpr size_t MOST_CLASSES = 1024;  // To tell apart for one record.

    Last make_last(const Token& token) const {
        int length = token.length > MAX_SHORT ? 0 : token.length;
        return static_cast<Last>((FIRST_SIGNATURE + signatures_.of(token.left)) | length << LENGTH_SHIFT |
                                 second_.of(token.left) << SECOND_SHIFT);
    }

    // The tokens in front of one that some text ends with.
    struct InFront {
        const uint16_t *begin, *end;
    };
    InFront in_front(const PossibleLast& possible, uint16_t id, uint64_t text) const {
        int before = k_ - tokens_.length_of(id);
        const Sets& sets = possible.of_length(before);
        uint64_t letters = text & mask_of(before);
        return {sets.begin(letters), sets.end(letters)};
    }
    bool is_within(uint16_t id) const { return tokens_.length_of(id) < k_; }

    // The tokens of a text in the order in which they are tested. Where letters repeat it is mostly a short one. The one
    // that is all of the k letters comes last, where no test is needed, as nothing is known of what is in front of it.
    std::vector<uint16_t> in_order(const PossibleLast& possible, uint64_t text) const {
        const Sets& sets = possible.of_length(k_);
        std::vector<uint16_t> ids(sets.begin(text), sets.end(text));
        auto rank = [&](uint16_t id) { return tokens_.length_of(id) == k_ ? MAX_LETTERS + 1 : tokens_.length_of(id); };
        std::sort(ids.begin(), ids.end(),
                  [&](uint16_t a, uint16_t b) { return rank(a) < rank(b) || (rank(a) == rank(b) && a < b); });
        return ids;
    }

    // Requires the signatures that tell the last token of a text. Of two tokens one is tested, of more all but one.
    void require(const PossibleLast& possible, uint64_t text) {
        std::vector<uint16_t> ids = in_order(possible, text);
        if (ids.size() == 2 && is_within(ids[0]) && is_within(ids[1])) {
            InFront first = in_front(possible, ids[0], text), second = in_front(possible, ids[1], text);
            bool is_first = first.end - first.begin <= second.end - second.begin;
            require(signatures_, ids[is_first ? 0 : 1], is_first ? first : second, 4);
            return;
        }
        for (size_t i = 0; i + 1 < ids.size() && is_within(ids[i]); i++)
            require(signatures_, ids[i], in_front(possible, ids[i], text), 1);
    }
    // The same for what the first signatures do not tell.
    void require_second(const PossibleLast& possible, uint64_t text) {
        std::vector<uint16_t> ids = in_order(possible, text);
        for (size_t i = 0; i + 1 < ids.size() && is_within(ids[i]); i++)
            if (!mask_for(possible, signatures_, ids[i], text))
                require(second_, ids[i], in_front(possible, ids[i], text), 1);
    }
    void require(Signatures& signatures, uint16_t id, InFront before, uint32_t weight) {
        if (static_cast<size_t>(before.end - before.begin) > MOST_CLASSES) return;
        signatures.require(weight);
        for (const uint16_t* each = before.begin; each < before.end; each++)
            signatures.add(tokens_.left_of[*each], tokens_.may_follow(*each, id));
    }

    // The mask of the signatures that a token may follow; 0 if some class that it may not follow has one of these.
    uint64_t mask_for(const PossibleLast& possible, const Signatures& signatures, uint16_t id, uint64_t text) const {
        if (!is_within(id)) return 0;
        uint64_t masks[2] = {0, 1};    // That it may not follow, and that it may: the begin.
        InFront before = in_front(possible, id, text);
        for (const uint16_t* each = before.begin; each < before.end; each++)
            masks[tokens_.may_follow(*each, id)] |= uint64_t{1} << signatures.of(tokens_.left_of[*each]);
        return masks[0] & masks[1] ? 0 : masks[1];
    }

    uint64_t record_of(const PossibleLast& possible, uint64_t text) {
        std::vector<uint16_t> ids = in_order(possible, text);
        bool is_short = std::all_of(ids.begin(), ids.end(), [&](uint16_t id) { return tokens_.length_of(id) <= k_; });
        if (is_short && ids.size() == 1) return lasts_[ids[0]] | static_cast<uint64_t>(lasts_[ids[0]]) << LAST_BITS;
        for (int tested = 0; is_short && ids.size() == 2 && tested < 2; tested++)
            if (uint64_t mask = mask_for(possible, signatures_, ids[tested], text))
                return lasts_[ids[tested]] | static_cast<uint64_t>(lasts_[ids[1 - tested]]) << LAST_BITS |
                       mask << FIRST_SIGNATURE;
        uint64_t first = options_.size();
        for (uint16_t id : ids) options_.push_back(option_of(possible, id, text, id == ids.back()));
        return first << 32;
    }

    Option option_of(const PossibleLast& possible, uint16_t id, uint64_t text, bool is_final) const {
        const Token& token = tokens_.by_id[id];
        Option option{0, token.latest[0], id, lasts_[id], token.length, Option::BY_PAIR};
        if (is_final) {
            option.test = Option::NONE;
        } else if (token.length > k_) {
            option.test = Option::BY_LETTERS_AND_PAIR;
        } else if (uint64_t mask = mask_for(possible, signatures_, id, text)) {
            option.test = Option::BY_SIGNATURE;
            option.mask = mask << FIRST_SIGNATURE;
        } else if (uint64_t second = mask_for(possible, second_, id, text)) {
            option.test = Option::BY_SECOND_SIGNATURE;
            option.mask = second;
        }
        return option;
    }

    // Finds the last tokens of whole texts of fewer than k letters.
    void find_short(const PossibleLast& possible) {
        short_.assign(begin_of(k_), 0);
        std::vector<uint16_t> ids(begin_of(k_), NO_TOKEN);
        for (int length = 1; length < k_; length++)
            for (uint64_t text = 0; text <= mask_of(length); text++) {
                const Sets& sets = possible.of_length(length);
                const uint16_t* last = std::find_if(sets.begin(text), sets.end(text), [&](uint16_t id) {
                    int before = length - tokens_.length_of(id);
                    if (before <= 0) return before == 0;
                    uint16_t in_front = ids[begin_of(before) + (text & mask_of(before))];
                    return in_front != NO_TOKEN && tokens_.may_follow(in_front, id);
                });
                if (last == sets.end(text)) continue;  // Some letter is no token.
                ids[begin_of(length) + text] = *last;
                short_[begin_of(length) + text] = lasts_[*last];
            }
    }

    const Tokens& tokens_;
    int k_;
    Signatures signatures_, second_;
    std::vector<Last> lasts_;         // By id.
    std::vector<uint64_t> records_;
    std::vector<Option> options_;
    std::vector<Last> short_;         // By length, then letters.
};

}  // namespace dna
