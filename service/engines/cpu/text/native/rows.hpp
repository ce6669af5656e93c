// Encodes a text: it is split at special tokens, and the texts between them at their pretokens.
#pragma once

#include "checks.hpp"
#include "matcher.hpp"
#include "pieces.hpp"

namespace text {

constexpr int64_t READABLE = WINDOW + 16;   // Bytes that are read from where a window begins.
constexpr size_t WRITES_A_CHECK = 1 << 8;   // Of some hundred bytes each.

// Whether a row is left to another encoder; service/engines/cpu/text/encoder.py reads it.
enum Reason : uint8_t { NONE, LEFT };

// A special token, as it is found in a text.
struct SpecialToken {
    int32_t id;
    bool is_special;            // "plain" leaves it as text.
    bool strips_left, strips_right;
    bool leaves_row;            // Whether it matches depends on more than its content and white space.
};

// How texts are split before their pretokens are encoded.
struct Rules {
    Matcher special;
    std::vector<SpecialToken> special_tokens;
    Matcher parts;                  // Motifs, or a literal, which are pretokens of their own.
    const ComposedTable* composed;  // nullptr: texts are not normalized.
};

// Encodes texts for one thread and one vocabulary.
class TextEncoder {
   public:
    TextEncoder(const Rules& rules, const Pretokenizer& pretokenizer, Model& model)
        : rules_(rules), pretokenizer_(pretokenizer), pieces_(model) {}

    // The text's memory is readable up to `readable_end`.
    struct Text {
        const uint8_t *begin, *end, *readable_end;
        bool is_valid;       // It is known to be UTF-8.
        bool is_composed;    // It is known to be in NFC where it has to be.
    };

    // Writes the ids of a text, and moves `out` behind them. There is memory for an id for each byte, and for
    // PieceEncoder::SLACK more.
    // Throws Abandoned if they are not `needed` any more.
    Reason encode(const Text& text, bool is_plain, int32_t*& out, StillNeeded& needed) {
        readable_end_ = text.readable_end;
        needed_ = &needed;
        pieces_.begin(&needed);
        if (!text.is_valid && !is_utf8_(text.begin, text.end)) return LEFT;
        if (!text.is_composed && rules_.composed && !rules_.composed->leaves(text.begin, text.end)) return LEFT;
        const uint8_t* at = text.begin;
        if (!rules_.special.is_empty()) {
            Matcher::Search search(rules_.special, text.end);
            for (Match match = search.find(at); match.begin < text.end; match = search.find(match.end)) {
                const SpecialToken& token = rules_.special_tokens[static_cast<size_t>(match.string)];
                if (token.leaves_row) return LEFT;
                if (!is_plain || !token.is_special) at = encode_special(token, match, at, text.end, out);
            }
        }
        out = encode_part(at, text.end, out);
        return NONE;
    }

   private:
    // Encodes the text from `at` up to a special token, and the token with the white space that it strips; returns the
    // place behind that. The next token may begin in this white space. One without a text of its own has no id.
    const uint8_t* encode_special(const SpecialToken& token, const Match& match, const uint8_t* at, const uint8_t* end,
                                  int32_t*& out) {
        const uint8_t *token_begin = match.begin, *token_end = match.end;
        if (token.strips_left) {
            for (const uint8_t* before = token_begin; before > at; token_begin = before) {
                do before--;
                while ((*before & 0xC0) == 0x80);
                if (!pretokenizer_.is_space(before)) break;
            }
            token_begin = std::max(token_begin, at);
        }
        while (token.strips_right && token_end < end && pretokenizer_.is_space(token_end))
            token_end += read_character(token_end).num_bytes;
        if (at < token_begin) out = encode_part(at, token_begin, out);
        if (token_begin < token_end) *out++ = token.id;
        return token_end;
    }

    // Encodes a text without special tokens.
    int32_t* encode_part(const uint8_t* at, const uint8_t* end, int32_t* out) {
        if (!rules_.parts.is_empty()) return encode_around_strings(at, end, out);
        if (!pretokenizer_.splits()) return at < end ? encode_piece(at, end, out) : out;
        while (at < end) {
            if (readable_end_ - at < READABLE) return encode_tail(at, end, out);
            at = add_window(at, end);
            if (!pieces_.is_full()) continue;
            out = pieces_.write(out);
            if (++num_writes_ % WRITES_A_CHECK == 0) needed_->check();
        }
        return pieces_.write(out);
    }

    // Encodes motifs and the texts between them.
    int32_t* encode_around_strings(const uint8_t* at, const uint8_t* end, int32_t* out) {
        Matcher::Search search(rules_.parts, end);
        while (at < end) {
            Match match = search.find(at);
            if (at < match.begin) out = encode_piece(at, match.begin, out);
            if (match.begin < match.end) out = encode_piece(match.begin, match.end, out);
            at = match.end;
            if (++num_writes_ % WRITES_A_CHECK == 0) needed_->check();
        }
        return out;
    }

    // Not inlined, as two functions below, so that `add` is in line where windows are added, and nowhere else.
    __attribute__((noinline)) int32_t* encode_piece(const uint8_t* at, const uint8_t* end, int32_t* out) {
        if (readable_end_ - at < READABLE) {
            uint8_t copy[2 * READABLE] = {};
            std::memcpy(copy, at, static_cast<size_t>(end - at));
            pieces_.add(copy, static_cast<size_t>(end - at));
            return pieces_.write(out);
        }
        pieces_.add(at, static_cast<size_t>(end - at));
        return pieces_.write(out);
    }

    // Adds the pretokens of a window, at least one; returns the place behind them.
    const uint8_t* add_window(const uint8_t* at, const uint8_t* end) {
        if (!pretokenizer_.has_masks()) return add_by_automaton(at, end);
        Starts starts = pretokenizer_.find(at, end - at);
        int begin = 0;
        for (uint64_t mask = starts.mask & (starts.mask - 1); mask; mask &= mask - 1) {   // Bit 0 is a start.
            int next = lowest_bit(mask);
            pieces_.add(at + begin, static_cast<size_t>(next - begin));
            begin = next;
        }
        if (starts.is_whole) {
            pieces_.add(at + begin, static_cast<size_t>(end - at - begin));
            return end;
        }
        return begin ? at + begin : add_by_automaton(at, end);
    }

    __attribute__((noinline)) const uint8_t* add_by_automaton(const uint8_t* at, const uint8_t* end) {
        const uint8_t* piece_end = pretokenizer_.automaton().find_end(at, end);
        pieces_.add(at, static_cast<size_t>(piece_end - at));
        return piece_end;
    }

    // Copies a text near the end of the readable memory, and encodes the copy.
    __attribute__((noinline)) int32_t* encode_tail(const uint8_t* at, const uint8_t* end, int32_t* out) {
        out = pieces_.write(out);
        uint8_t copy[2 * READABLE] = {};
        std::memcpy(copy, at, static_cast<size_t>(end - at));
        const uint8_t *place = copy, *copy_end = copy + (end - at);
        while (place < copy_end) {
            place = add_window(place, copy_end);
            if (pieces_.is_full()) out = pieces_.write(out);
        }
        return pieces_.write(out);
    }

    const Rules& rules_;
    const Pretokenizer& pretokenizer_;
    const IsUtf8 is_utf8_ = choose_is_utf8();
    PieceEncoder pieces_;
    const uint8_t* readable_end_ = nullptr;
    StillNeeded* needed_ = nullptr;
    size_t num_writes_ = 0;
};

}  // namespace text
