// Splits a text of letters into stretches, gaps, runs and special tokens, and encodes them.
//
//     text     A C G T - A C N N .. N A [ S E P ]      a gap, a run of N that a normalizer replaces, a special token
//     ids      stretch g stretch  run  str  special
//
// The order is that of the reference: special tokens, white space at both ends, runs, motifs, whole tokens, letters. A
// text that this encoder does not cover is left to another one, and gets a reason instead of ids.
#pragma once

#include <string>
#include <unordered_map>

#include "stretch.hpp"

namespace dna {

// The codes of letters that do not merge, from MERGING on.
constexpr uint8_t GAP = MERGING;            // It has an id.
constexpr uint8_t DROPPED = MERGING + 1;    // It has no id, and no token crosses it.
constexpr uint8_t UNKNOWN = MERGING + 2;    // It has no id, and its neighbours merge: the row is left.
constexpr uint8_t NOT_ASCII = MERGING + 3;  // The row is left.

// Why a row is left to another encoder.
enum Reason : uint8_t { NONE, HAS_UNKNOWN_LETTER, IS_NOT_ASCII, HAS_SPECIAL_TOKEN };

// A special token where its text is found.
struct SpecialToken {
    enum Action : uint8_t { ACCEPT, KEEP_AS_TEXT, LEAVE_ROW };
    std::string content;  // Without one, its first byte alone leaves the row.
    uint8_t first_byte;
    uint16_t id;
    Action action;
};

// The motifs of a vocabulary by their bytes.
class Motifs {
   public:
    void add(const std::string& motif, uint16_t id) {
        uint32_t node = 0;
        for (char letter : motif) {
            auto [found, is_new] = children_.emplace(key(node, static_cast<uint8_t>(letter)), ids_.size());
            if (is_new) ids_.push_back(NO_TOKEN);
            node = found->second;
        }
        ids_[node] = id;
        may_begin_[static_cast<uint8_t>(motif[0])] = true;
    }
    bool empty() const { return ids_.size() == 1; }

    // The length of the longest motif at a place, 0 if there is none, and its id. Motifs are found in the bytes that
    // normalizers make of the text's bytes.
    size_t longest(const uint8_t* text, const uint8_t* end, const uint8_t* mapped, uint16_t* id) const {
        if (!may_begin_[mapped[*text]]) return 0;
        uint32_t node = 0;
        size_t length = 0;
        for (const uint8_t* letter = text; letter < end; letter++) {
            auto found = children_.find(key(node, mapped[*letter]));
            if (found == children_.end()) break;
            node = found->second;
            if (ids_[node] == NO_TOKEN) continue;
            length = static_cast<size_t>(letter + 1 - text);
            *id = ids_[node];
        }
        return length;
    }

   private:
    static uint64_t key(uint32_t node, uint8_t letter) { return uint64_t{node} << 8 | letter; }

    std::unordered_map<uint64_t, uint32_t> children_;
    std::vector<uint16_t> ids_{NO_TOKEN};
    bool may_begin_[256] = {};
};

// The rules for letters before they merge. Tables are indexed by the bytes of the text as it was sent.
struct Rules {
    uint8_t codes[256];
    uint16_t ids[256];       // Of gaps.
    uint8_t mapped[256];     // The byte that a normalizer makes of each.
    bool is_stripped[256];   // From the ends of a text, on the sides below.
    bool strips_left = false, strips_right = false;
    bool is_run[256];        // Letters whose runs of at least `run_length` are one id.
    size_t run_length = 0;
    uint16_t run_id = NO_TOKEN;
    std::vector<SpecialToken> special;  // The longest first.
    Motifs motifs;
    std::unordered_map<std::string, uint16_t> whole;  // Tokens that merges do not reach, if they are all of a pretoken.
    size_t longest_whole = 0;
    bool has_mixed = false;
    bool are_acgt = false;   // The bases are A, C, G and T in this order.
};

// Letters in words of eight, the first one in the lowest byte.
template <typename Words>
class Letters {
   public:
    explicit Letters(const uint8_t* text) { std::memcpy(&letters_, text, sizeof(Words)); }

    // What the letters differ by from A, C, G and T: 0 if all are one of these. The second and third bit of a letter
    // tell which one it would be.
    Words differ_from_acgt() const {
        Words number = letters_ >> 1 & EACH * 3;            // A 0, C 1, T 2, G 3
        Words is_t = number >> 1 & ~number & EACH;
        return letters_ ^ (EACH * 'A' + number + number) ^ (is_t << 4 | is_t);    // 'E' ^ 'T' is 0x11
    }
    // Their codes, one a byte, if they are.
    Words codes() const {
        Words number = letters_ >> 1 & EACH * 3;
        return number ^ (number >> 1 & EACH);
    }
    // Packs the codes of each word to two bits each.
    static Words packed(Words codes) {
        codes = (codes | codes >> 6) & 0x000F000F000F000F;
        codes = (codes | codes >> 12) & 0x000000FF000000FF;
        return (codes | codes >> 24) & 0xFFFF;
    }

   private:
    static constexpr uint64_t EACH = 0x0101010101010101;

    Words letters_;
};
using EightLetters = Letters<uint64_t>;

struct Span {
    int64_t begin, end;
};

// The ids of one text after another, with the bytes of their text.
struct Ids {
    std::vector<uint16_t> ids;
    std::vector<Span> spans;

    void clear() {
        ids.clear();
        spans.clear();
    }
};

// Encodes texts; each thread has its own.
class RowEncoder {
   public:
    RowEncoder(const Tokens& tokens, const LastTokens& tables, const Repeats& repeats, const Rules& rules,
               bool with_spans)
        : tokens_(tokens), rules_(rules), with_spans_(with_spans),
          stretch_encoder_(tokens, tables, &repeats, stretch_) {
        bool is_known[256] = {};
        for (const SpecialToken& token : rules.special) {
            if (!is_known[token.first_byte]) first_bytes_.push_back({token.first_byte, nullptr});
            is_known[token.first_byte] = true;
        }
    }

    // Adds the ids of a text, which is a whole row or begins or ends inside of one; returns why it is left.
    Reason encode(const uint8_t* begin, const uint8_t* end, bool is_row_begin, bool is_row_end, Ids& out) {
        row_ = begin;
        out_ = &out;
        for (FirstByte& byte : first_bytes_) byte.next = nullptr;
        stretch_.reserve(static_cast<size_t>(end - begin));
        const uint8_t* text = begin;
        for (const SpecialToken* token;; text = special_end_) {
            const uint8_t* special = find_special(text, end, &token);
            if (token && token->action == SpecialToken::LEAVE_ROW) return HAS_SPECIAL_TOKEN;
            bool is_begin = is_row_begin || text > begin, is_end = is_row_end || special < end;
            if (Reason reason = encode_text(text, special, is_begin, is_end)) return reason;
            if (!token) return NONE;
            add(token->id, special, special_end_);
        }
    }

    // The place in the ids where the latest stretch begins.
    size_t latest_stretch() const { return latest_stretch_; }

   private:
    static constexpr uint64_t NO_BASES = 0xFCFCFCFCFCFCFCFC;  // Bits that some of eight other codes have.

    // A byte with which special tokens begin, and its next place from where it was searched last.
    struct FirstByte {
        uint8_t value;
        const uint8_t* next;
    };

    // Finds the next special token that splits the text or leaves the row; sets `special_end_`.
    const uint8_t* find_special(const uint8_t* text, const uint8_t* end, const SpecialToken** found) {
        *found = nullptr;
        while (text < end) {
            text = find_first_byte(text, end);
            if (text == end) break;
            const SpecialToken* token = special_at(text, end);
            if (!token) {
                text++;
            } else if (token->action == SpecialToken::KEEP_AS_TEXT) {
                text += token->content.size();
            } else {
                special_end_ = text + token->content.size();
                *found = token;
                return text;
            }
        }
        return end;
    }

    // The next byte with which a special token may begin.
    const uint8_t* find_first_byte(const uint8_t* text, const uint8_t* end) {
        const uint8_t* first = end;
        for (FirstByte& byte : first_bytes_) {
            if (byte.next < text) {
                const void* found = std::memchr(text, byte.value, static_cast<size_t>(end - text));
                byte.next = found ? static_cast<const uint8_t*>(found) : end;
            }
            first = std::min(first, byte.next);
        }
        return first;
    }

    const SpecialToken* special_at(const uint8_t* text, const uint8_t* end) const {
        for (const SpecialToken& token : rules_.special) {
            if (token.first_byte != *text || token.content.size() > static_cast<size_t>(end - text)) continue;
            if (std::memcmp(token.content.data(), text, token.content.size()) == 0) return &token;
        }
        return nullptr;
    }

    // Encodes the text between two special tokens.
    Reason encode_text(const uint8_t* text, const uint8_t* end, bool is_begin, bool is_end) {
        if (rules_.strips_left && is_begin)
            while (text < end && rules_.is_stripped[*text]) text++;
        if (rules_.strips_right && is_end)
            while (text < end && rules_.is_stripped[end[-1]]) end--;
        if (rules_.motifs.empty()) return encode_pretoken(text, end);
        const uint8_t* behind_motif = text;
        while (text < end) {
            uint16_t id;
            size_t length = rules_.motifs.longest(text, end, rules_.mapped, &id);
            if (!length) {
                text++;
                continue;
            }
            if (Reason reason = encode_pretoken(behind_motif, text)) return reason;
            add(id, text, text + length);
            behind_motif = text += length;
        }
        return encode_pretoken(behind_motif, end);
    }

    Reason encode_pretoken(const uint8_t* text, const uint8_t* end) {
        auto length = static_cast<size_t>(end - text);
        if (length > 0 && length <= rules_.longest_whole) {
            std::string spelled(reinterpret_cast<const char*>(text), length);
            for (char& letter : spelled) letter = static_cast<char>(rules_.mapped[static_cast<uint8_t>(letter)]);
            auto found = rules_.whole.find(spelled);
            if (found != rules_.whole.end()) {
                add(found->second, text, end);
                return NONE;
            }
        }
        return encode_letters(text, end);
    }

    Reason encode_letters(const uint8_t* text, const uint8_t* end) {
        while (text < end) {
            uint8_t code = rules_.codes[*text];
            if (code < MERGING) {
                const uint8_t* behind = read_stretch(text, end);
                if (behind > text) {
                    encode_stretch(text);
                    text = behind;
                    continue;
                }
            }
            if (size_t length = run_at(text, end)) {  // The id stands for the last letter.
                add(rules_.run_id, text + length - 1, text + length);
                text += length;
                continue;
            }
            if (code == UNKNOWN) return HAS_UNKNOWN_LETTER;
            if (code == NOT_ASCII) return IS_NOT_ASCII;
            if (code == GAP) add(rules_.ids[*text], text, text + 1);
            text++;
        }
        return NONE;
    }

    // The length of a run that is one id, 0 if there is none.
    size_t run_at(const uint8_t* text, const uint8_t* end) const {
        if (!rules_.run_length || !rules_.is_run[*text]) return 0;
        const uint8_t* behind = text;
        while (behind < end && rules_.is_run[*behind]) behind++;
        auto length = static_cast<size_t>(behind - text);
        return length >= rules_.run_length ? length : 0;
    }

    // Reads letters that merge, up to another one or a run that is one id; returns the place behind them.
    const uint8_t* read_stretch(const uint8_t* text, const uint8_t* end) {
        stretch_.clear();
        while (text < end) {
            text = read_bases(text, end);
            if (text == end || rules_.codes[*text] >= MERGING) break;
            if (rules_.codes[*text] < FIRST_MIXED) {
                add_letter(*text++);
                continue;
            }
            const uint8_t* first = text;
            if (run_at(text, end)) break;
            do add_letter(*text++);   // All of a short run, so that it is measured once.
            while (rules_.is_run[*first] && text < end && rules_.is_run[*text]);
        }
        return text;
    }

    // Reads bases, sixteen or eight at a time, as long as there are so many.
    const uint8_t* read_bases(const uint8_t* text, const uint8_t* end) {
        if (rules_.are_acgt && stretch_.size() % 4 == 0) text = read_acgt(text, end);
        for (; end - text >= 8; text += 8) {
            uint64_t codes = 0;
            EightLetters letters(text);
            if (rules_.are_acgt && !letters.differ_from_acgt()) {
                codes = letters.codes();
            } else {
                for (int i = 0; i < 8; i++) codes |= static_cast<uint64_t>(rules_.codes[text[i]]) << 8 * i;
                if (codes & NO_BASES) break;
            }
            if (rules_.has_mixed) std::memcpy(stretch_.codes() + stretch_.size(), &codes, 8);
            stretch_.add_bases(EightLetters::packed(codes));
        }
        return text;
    }

    // Reads A, C, G and T, sixteen at a time, behind whole bytes of packed text.
    const uint8_t* read_acgt(const uint8_t* text, const uint8_t* end) {
        const uint8_t* first = text;
        uint8_t* packed = stretch_.packed() + stretch_.size() / 4;
        uint8_t* codes = rules_.has_mixed ? stretch_.codes() + stretch_.size() : nullptr;
        for (; end - text >= 16; text += 16, packed += 4) {
            Letters<Two> letters(text);
            Two differ = letters.differ_from_acgt();
            if (differ[0] | differ[1]) break;
            Two two_codes = letters.codes(), two_packed = Letters<Two>::packed(two_codes);
            if (codes) std::memcpy(codes + (text - first), &two_codes, 16);
            auto word = static_cast<uint32_t>(two_packed[0] | two_packed[1] << 16);
            std::memcpy(packed, &word, 4);
        }
        stretch_.grow(text - first);
        return text;
    }

    void add_letter(uint8_t letter) {
        uint8_t code = rules_.codes[letter];
        if (rules_.has_mixed) stretch_.codes()[stretch_.size()] = code;
        stretch_.add_letter(code);
    }

    void encode_stretch(const uint8_t* text) {
        latest_stretch_ = out_->ids.size();
        auto most = static_cast<size_t>(stretch_.size());
        if (path_.size() < most) path_.resize(most);
        uint16_t* end = path_.data() + path_.size();
        uint16_t* first = stretch_encoder_.encode(end);
        out_->ids.insert(out_->ids.end(), first, end);
        if (!with_spans_) return;
        int64_t place = text - row_;
        for (; first < end; first++) {
            out_->spans.push_back({place, place + tokens_.length_of(*first)});
            place += tokens_.length_of(*first);
        }
    }

    void add(uint16_t id, const uint8_t* begin, const uint8_t* end) {
        out_->ids.push_back(id);
        if (with_spans_) out_->spans.push_back({begin - row_, end - row_});
    }

    const Tokens& tokens_;
    const Rules& rules_;
    const bool with_spans_;
    std::vector<FirstByte> first_bytes_;
    Stretch stretch_;
    StretchEncoder stretch_encoder_;
    std::vector<uint16_t> path_;
    const uint8_t *row_ = nullptr, *special_end_ = nullptr;
    Ids* out_ = nullptr;
    size_t latest_stretch_ = 0;
};

}  // namespace dna
