// Finds the pretokens of 64 bytes at once, by arithmetic on masks with a bit for each byte.
//
// A window begins where a pretoken begins, and no rule depends on the text before a pretoken. So windows share no
// state: the next window begins at the last certain start of this one, and reads the bytes from there on again.
//
//     text     I t ' s _ _ 3 p m . \n     gpt2
//     starts   1 . 1 . 1 1 . 1 . 1 1
//              |-| |-| | |-| |-| | certain: up to here, since more white space may follow
//
// Characters that the masks cannot handle (a capital behind a letter without case, the letter ſ) are *hard*. Starts in
// front of a hard character are certain, and the automaton finds the pretoken that has it.
#pragma once

#include <algorithm>

#include "automaton.hpp"

namespace text {

constexpr int WINDOW = 64;
constexpr int LOOK_AHEAD = 3;   // A contraction ends up to three bytes behind its quote.

// WHOLE: a text is one pretoken. AUTOMATON: there are no masks for the rule.
enum class Family { WHOLE, AUTOMATON, GPT2, CL100K, O200K };

// A rule, as service/engines/cpu/text/tables.py describes it.
struct Rule {
    Family family;
    bool single_digits;     // Every digit is a pretoken; else up to three are one.
    bool has_contractions;
};

// The classes of a window's bytes. A character of several bytes has its class at each of them.
struct Window {
    uint64_t letter = 0, upper = 0, lower = 0, digit = 0, space = 0, blank = 0, line = 0, quote = 0, slash = 0;
    uint64_t mark = 0, hard = 0, continued = 0;
    uint64_t valid = 0;     // Bytes of the text.

    // The first bytes of the next characters; `mask` has the first bytes of characters.
    uint64_t next(uint64_t mask) const { return (continued + (mask << 1)) & ~continued; }

    // The first bytes of the characters of which `mask` has the last bytes. White space has up to three.
    uint64_t first(uint64_t mask) const {
        uint64_t before = (mask & continued) >> 1;
        return ((mask | before) & ~continued) | (before & continued) >> 1;
    }
};

inline uint64_t bits_below(int count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

inline int lowest_bit(uint64_t mask) { return __builtin_ctzll(mask); }

inline int highest_bit(uint64_t mask) { return 63 - __builtin_clzll(mask); }

// Adds the classes of characters of several bytes, for each run of characters of one class at once.
inline void add_wide_characters(const uint8_t* at, uint64_t high, const CharacterTable& classes, Window& window) {
    uint64_t run = 0;
    uint8_t run_kind = 0;
    auto put = [&](uint64_t& mask, int flag) __attribute__((always_inline)) {
        mask |= run & -static_cast<uint64_t>((run_kind & flag) != 0);
    };
    auto put_run = [&]() __attribute__((always_inline)) {
        put(window.letter, LETTER);
        put(window.digit, DIGIT);
        put(window.mark, MARK);
        put(window.upper, UPPER);
        put(window.lower, LOWER);
        put(window.space, SPACE);
        put(window.hard, FOLDED);
    };
    while (high) {
        int place = lowest_bit(high);
        Character character = read_character(at + place);
        uint8_t kind = classes[character.code_point];
        uint64_t behind_lead = ~uint64_t{1} << place, own = bits_below(character.num_bytes) << place;
        high &= ~own;
        window.continued |= own & behind_lead;
        if (kind != run_kind) {
            put_run();
            run = 0;
            run_kind = kind;
        }
        run |= own;
    }
    put_run();
}

// Returns how many letters a contraction has behind its quote, which a letter follows; 0 if it is no contraction.
// `ignored_case` is 0x20 where capitals count as well.
inline int contraction_size(const uint8_t* at, const Window& w, int quote, uint8_t ignored_case) {
    uint8_t first = at[quote + 1] | ignored_case;
    if (first == 's' || first == 'd' || first == 'm' || first == 't') return 1;
    if (!(w.letter >> quote >> 1 & 2)) return 0;
    uint8_t second = at[quote + 2] | ignored_case;
    return (first == 'l' && second == 'l') || ((first == 'v' || first == 'r') && second == 'e') ? 2 : 0;
}

// The starts of ` ?\p{L}+`, ` ?\p{N}+`, ` ?[^\s\p{L}\p{N}]+` and white space, whose last character is a pretoken of
// its own.
inline uint64_t gpt2_starts(const uint8_t* at, const Window& w) {
    uint64_t sign = w.valid & ~(w.letter | w.digit | w.space);
    uint64_t runs = (w.letter & ~(w.letter << 1)) | (w.digit & ~(w.digit << 1)) | (sign & ~(sign << 1));
    uint64_t last_space = w.first(w.space & ((w.valid & ~w.space) >> 1));
    uint64_t starts = (runs & ~(w.blank << 1)) | (w.space & ~(w.space << 1)) | last_space;
    for (uint64_t quotes = starts & w.quote & (w.letter >> 1); quotes; quotes &= quotes - 1) {
        int quote = lowest_bit(quotes), size = contraction_size(at, w, quote, 0);
        if (!size) continue;
        starts &= ~(uint64_t{2} << quote);
        starts |= w.letter & (uint64_t{2} << (quote + size));
    }
    return starts;
}

// Starts within runs of digits, of which a pretoken has up to three.
inline uint64_t digit_starts(const Window& w, const Rule& rule) {
    uint64_t first = w.digit & ~w.continued;
    if (rule.single_digits) return first;
    uint64_t starts = 0;
    for (first = w.digit & ~(w.digit << 1); first;) {
        starts |= first;
        first = w.next(w.next(w.next(first) & w.digit) & w.digit) & w.digit;
    }
    return starts;
}

// Starts of signs and of white space: `[signs][\r\n]*`, `\s*[\r\n]+` and `\s+(?!\S)`.
//
//     text     . \n _ _ \n _ _ a
//     behind   . 1  . . .  . . .       line breaks that belong to the signs before them
//     starts   1 .  1 . .  1 1 .
inline uint64_t sign_and_space_starts(const Window& w, uint64_t sign) {
    uint64_t behind_signs = w.line & ~(w.line + ((sign << 1) & w.line));
    uint64_t space = w.space & ~behind_signs;
    uint64_t blanks = space & ~w.line;
    uint64_t last_blank = w.first(blanks & ((w.valid & ~w.space) >> 1));
    uint64_t behind_line = blanks & ((space & w.line) << 1);
    // Blanks between two line breaks do not start: the sum carries from their first one to the line break.
    for (uint64_t ends = (blanks + behind_line) & space & w.line; ends; ends &= ends - 1) {
        behind_line &= ~(uint64_t{1} << highest_bit(behind_line & ((ends & -ends) - 1)));
    }
    uint64_t signs = sign & ~(sign << 1) & ~(w.blank << 1);
    return signs | (space & ~(space << 1)) | last_blank | behind_line;
}

// The starts of cl100k, llama3 and qwen2, which differ in digits and at a text's end.
inline uint64_t cl100k_starts(const uint8_t* at, const Window& w, const Rule& rule) {
    uint64_t sign = w.valid & ~(w.letter | w.digit | w.space);
    uint64_t starts = digit_starts(w, rule) | sign_and_space_starts(w, sign);
    // A word begins with the character before it, if that begins a pretoken and is no digit or line break.
    uint64_t absorbed = w.next(starts & ~w.digit & ~w.line);
    uint64_t words = w.letter & ~(w.letter << 1);
    starts |= words & ~absorbed;
    for (uint64_t quotes = starts & w.quote & (w.letter >> 1); quotes; quotes &= quotes - 1) {
        int quote = lowest_bit(quotes), size = contraction_size(at, w, quote, 0x20);
        if (size) starts |= w.letter & (uint64_t{2} << (quote + size));
    }
    return starts;
}

// The starts of o200k and tekken: words of capitals, then small letters; marks belong to words.
inline uint64_t o200k_starts(const uint8_t* at, Window& w, const Rule& rule) {
    uint64_t word = w.letter | w.mark;
    uint64_t without_case = word & ~(w.upper | w.lower);
    w.hard |= w.mark & ~(word << 1) & ~w.continued;      // It may be a sign, or be a word's first character.
    w.hard |= w.upper & ~w.continued & (without_case << 1);
    w.hard |= w.slash & (w.line << 1);
    uint64_t sign = w.valid & ~(word | w.digit | w.space);
    uint64_t starts = digit_starts(w, rule) | sign_and_space_starts(w, sign);
    uint64_t absorbed = w.next(starts & ~w.digit & ~w.line);
    starts |= word & ~(word << 1) & ~absorbed;
    starts |= w.upper & ~w.continued & (w.lower << 1);
    if (!rule.has_contractions) return starts;
    int behind = -1;   // The latest contraction: no other follows it at once.
    for (uint64_t quotes = w.quote & (word << 1) & (w.letter >> 1); quotes; quotes &= quotes - 1) {
        int quote = lowest_bit(quotes);
        int size = quote == behind ? 0 : contraction_size(at, w, quote, 0x20);
        if (!size) continue;
        behind = quote + 1 + size;
        starts &= ~(bits_below(behind) & ~bits_below(quote));
        starts |= word & (uint64_t{2} << (behind - 1));
    }
    return starts;
}

// The starts of pretokens in a window; bit 0 is one of them.
struct Starts {
    uint64_t mask;
    bool is_whole;      // The window's last pretoken ends with the text.
};

class Pretokenizer {
   public:
    Pretokenizer(Rule rule, Automaton automaton, CharacterTable classes)
        : rule_(rule), automaton_(automaton), classes_(classes) {}

    const Automaton& automaton() const { return automaton_; }
    bool has_masks() const { return rule_.family != Family::AUTOMATON; }
    bool is_space(const uint8_t* at) const { return classes_[read_character(at).code_point] & SPACE; }
    bool splits() const { return rule_.family != Family::WHOLE; }

    // Finds the starts in a window. `size`: the bytes up to the text's end, 64 if there are more.
    // 64 bytes must be readable, and a character's bytes behind them.
    Starts find(const uint8_t* at, int64_t size) const {
        AsciiMasks ascii;
        make_masks_(at, ascii);
        Window w = to_window(ascii, size);
        if (uint64_t high = ascii.high & w.valid) add_wide_characters(at, high, classes_, w);
        w.continued &= w.valid;
        uint64_t starts = rule_.family == Family::GPT2     ? gpt2_starts(at, w)
                          : rule_.family == Family::CL100K ? cl100k_starts(at, w, rule_)
                                                           : o200k_starts(at, w, rule_);
        return limit(w, starts, size);
    }

   private:
    static Window to_window(const AsciiMasks& ascii, int64_t size) {
        Window w;
        w.valid = size >= WINDOW ? ~uint64_t{0} : bits_below(static_cast<int>(size));
        w.letter = ascii.letter & w.valid;
        w.upper = ascii.upper & w.valid;
        w.lower = w.letter & ~w.upper;
        w.digit = ascii.digit & w.valid;
        w.space = ascii.space & w.valid;
        w.blank = ascii.blank & w.valid;
        w.line = ascii.line & w.valid;
        w.quote = ascii.quote & w.valid;
        w.slash = ascii.slash & w.valid;
        return w;
    }

    // Keeps the certain starts: those in front of hard characters, of the window's end, and of white space there.
    static Starts limit(const Window& w, uint64_t starts, int64_t size) {
        int end = size > WINDOW ? WINDOW - LOOK_AHEAD : static_cast<int>(size);
        bool is_whole = size <= WINDOW;
        if (w.hard) {
            int hard = lowest_bit(w.hard);
            end = std::min(end, std::max(hard - LOOK_AHEAD + 1, 0));
            is_whole = false;
        }
        uint64_t others = ~w.space & bits_below(end);
        int space_begin = others ? highest_bit(others) + 1 : 0;
        if (space_begin < end) {
            end = space_begin + 1;
            is_whole = false;
        }
        return {(starts & bits_below(end)) | 1, is_whole};
    }

    const Rule rule_;
    const Automaton automaton_;
    const CharacterTable classes_;
    const MakeMasks make_masks_ = choose_make_masks();
};

}  // namespace text
