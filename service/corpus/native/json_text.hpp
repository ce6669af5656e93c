// Checks a line of JSON by RFC 8259, and finds the text of one key in it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace corpus {

constexpr int MAX_DEPTH = 512;

// Why a line has no text; reading/lines.py names the codes.
enum Reject : long { INVALID_JSON, NOT_OBJECT, MISSING_KEY, NOT_TEXT, LONE_SURROGATE };

inline bool ends_plain(unsigned char c) { return c == '"' || c == '\\' || c < 0x20; }

#if defined(__SSE2__)
using Bytes = __m128i;

inline Bytes load(const char* at) { return _mm_loadu_si128(reinterpret_cast<const Bytes*>(at)); }
inline void store(char* out, Bytes bytes) { _mm_storeu_si128(reinterpret_cast<Bytes*>(out), bytes); }

// Returns the number of bytes before the first quote, backslash or control character; 16 if there is none.
inline int count_plain(Bytes bytes) {
    const Bytes quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
    const Bytes is_control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes);
    const Bytes is_sign = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
    return __builtin_ctz(static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(is_sign, is_control))) | 0x10000);
}
#elif defined(__aarch64__)
using Bytes = uint8x16_t;

inline Bytes load(const char* at) { return vld1q_u8(reinterpret_cast<const uint8_t*>(at)); }
inline void store(char* out, Bytes bytes) { vst1q_u8(reinterpret_cast<uint8_t*>(out), bytes); }

inline int count_plain(Bytes bytes) {
    const Bytes is_sign = vorrq_u8(vceqq_u8(bytes, vdupq_n_u8('"')), vceqq_u8(bytes, vdupq_n_u8('\\')));
    const Bytes is_any = vorrq_u8(is_sign, vcltq_u8(bytes, vdupq_n_u8(0x20)));
    // Four bits for each byte.
    const uint64_t bits = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(is_any), 4)), 0);
    return bits ? __builtin_ctzll(bits) / 4 : 16;
}
#endif

// Returns the first quote, backslash or control character; `end` if there is none.
inline const char* skip_plain(const char* at, const char* end) {
#if defined(__SSE2__) || defined(__aarch64__)
    while (end - at >= 16) {
        const int count = count_plain(load(at));
        at += count;
        if (count < 16) return at;
    }
#endif
    while (at < end && !ends_plain(static_cast<unsigned char>(*at))) at++;
    return at;
}

// Copies the bytes up to the first quote, backslash or control character, or to `end`, and moves both pointers behind
// them. `out` may lie before `at` in the same buffer; elsewhere, it has 16 bytes more than the copied ones.
inline void copy_plain(const char*& at, const char* end, char*& out) {
#if defined(__SSE2__) || defined(__aarch64__)
    while (end - at >= 16) {
        const Bytes bytes = load(at);
        const int count = count_plain(bytes);
        // The bytes behind the copied ones must not be overwritten before they are read.
        if (count == 16 || at - out >= 16 || out > at) store(out, bytes);
        else std::memmove(out, at, static_cast<size_t>(count));
        at += count;
        out += count;
        if (count < 16) return;
    }
#endif
    while (at < end && !ends_plain(static_cast<unsigned char>(*at))) *out++ = *at++;
}

inline int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Reads four hexadecimal digits; -1 if they are not there.
inline int32_t read_hex(const char* at, const char* end) {
    if (end - at < 4) return -1;
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

inline bool is_high(int32_t unit) { return unit >= 0xd800 && unit < 0xdc00; }
inline bool is_low(int32_t unit) { return unit >= 0xdc00 && unit < 0xe000; }
inline bool is_surrogate(int32_t unit) { return is_high(unit) || is_low(unit); }

inline char* write_utf8(char* out, uint32_t c) {
    const auto put = [&out](uint32_t byte) { *out++ = static_cast<char>(byte); };
    if (c < 0x80) {
        put(c);
        return out;
    }
    if (c < 0x800) {
        put(0xc0 | c >> 6);
    } else {
        if (c < 0x10000) {
            put(0xe0 | c >> 12);
        } else {
            put(0xf0 | c >> 18);
            put(0x80 | (c >> 12 & 0x3f));
        }
        put(0x80 | (c >> 6 & 0x3f));
    }
    put(0x80 | (c & 0x3f));
    return out;
}

// The JSON of a string, between its quotes.
struct String {
    const char* begin = nullptr;
    const char* end = nullptr;
    bool has_escapes = false;

    std::string_view view() const { return {begin, static_cast<size_t>(end - begin)}; }
};

// Returns what an escape of two characters stands for, by its second character; 0 if there is no such escape.
inline char plain_escape(char c) {
    switch (c) {
        case 'n': return '\n';
        case 't': return '\t';
        case 'r': return '\r';
        case 'b': return '\b';
        case 'f': return '\f';
        case '"':
        case '\\':
        case '/': return c;
        default: return 0;
    }
}

// One line of JSON, which ends at a line feed or at the end of the block.
//
// The text of the key is written to `out` while the line is read. `out` may lie before the line in the same block, as a
// text is never longer than its JSON.
class Line {
   public:
    Line(const char* begin, const char* block_end, std::string_view key, char* out)
        : at_(begin), end_(block_end), key_(key), out_(out) {}

    bool is_blank() { return is_at_end(); }

    // Returns the end of the text that was written; null if the line has none, and `reason` says why.
    char* read_text(Reject& reason) {
        skip_space();
        if (at_ < end_ && *at_ != '{') {
            reason = skip_value(0) && is_at_end() ? NOT_OBJECT : INVALID_JSON;
            return nullptr;
        }
        reason = INVALID_JSON;
        if (at_ == end_ || !read_object() || !is_at_end()) return nullptr;
        reason = !has_key_ ? MISSING_KEY : !is_text_ ? NOT_TEXT : LONE_SURROGATE;
        return has_key_ && is_text_ ? text_end_ : nullptr;
    }

    // Returns the line feed at the end of this line, or the end of the block.
    const char* find_end() const {
        if (at_ == end_ || *at_ == '\n') return at_;
        const void* const found = std::memchr(at_, '\n', static_cast<size_t>(end_ - at_));
        return found ? static_cast<const char*>(found) : end_;
    }

   private:
    // All functions stop before a line feed.

    void skip_space() {
        while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) at_++;
    }

    bool is_at_end() {
        skip_space();
        return at_ == end_ || *at_ == '\n';
    }

    bool take(char c) {
        skip_space();
        if (at_ == end_ || *at_ != c) return false;
        at_++;
        return true;
    }

    bool read_object() {
        at_++;
        if (take('}')) return true;
        do {
            String name;
            skip_space();
            if (!read_string(name) || !take(':')) return false;
            skip_space();
            if (!is_key(name)) {
                if (!skip_value(1)) return false;
                continue;
            }
            has_key_ = true;  // Of equal keys the last one counts, as in Python.
            is_text_ = at_ < end_ && *at_ == '"';
            if (is_text_ ? !copy_string(out_, text_end_) : !skip_value(1)) return false;
        } while (take(','));
        return take('}');
    }

    bool is_key(const String& name) {
        if (!name.has_escapes) return name.view() == key_;
        buffer_.resize(name.view().size() + 16);
        const char* const behind = std::exchange(at_, name.begin - 1);
        char* end = nullptr;
        copy_string(buffer_.data(), end);
        at_ = behind;
        return end && std::string_view(buffer_.data(), static_cast<size_t>(end - buffer_.data())) == key_;
    }

    bool read_string(String& string) {
        if (at_ == end_ || *at_ != '"') return false;
        string.begin = ++at_;
        for (;;) {
            at_ = skip_plain(at_, end_);
            if (at_ == end_) return false;
            if (*at_ == '"') break;
            if (*at_ != '\\' || end_ - at_ < 2) return false;
            string.has_escapes = true;
            if (at_[1] == 'u') {
                if (read_hex(at_ + 2, end_) < 0) return false;
                at_ += 6;
            } else if (plain_escape(at_[1])) {
                at_ += 2;
            } else {
                return false;
            }
        }
        string.end = at_++;
        return true;
    }

    // Reads a string, and writes it without escapes; `out_end` is null if half a surrogate pair stands alone.
    bool copy_string(char* out, char*& out_end) {
        bool is_unicode = true;
        at_++;
        for (;;) {
            copy_plain(at_, end_, out);
            if (at_ == end_) return false;
            if (*at_ == '"') break;
            if (*at_ != '\\' || end_ - at_ < 2) return false;
            if (at_[1] == 'u') {
                const int32_t character = read_escaped_character();
                if (character < 0) return false;
                if (is_surrogate(character)) is_unicode = false;
                else out = write_utf8(out, static_cast<uint32_t>(character));
                continue;
            }
            const char c = plain_escape(at_[1]);
            if (!c) return false;
            *out++ = c;
            at_ += 2;
        }
        at_++;
        out_end = is_unicode ? out : nullptr;
        return true;
    }

    // Reads "\u" and four digits, twice for a surrogate pair; returns a lone surrogate as it is, and -1 if it is no
    // JSON.
    int32_t read_escaped_character() {
        const int32_t unit = read_hex(at_ + 2, end_);
        if (unit < 0) return unit;
        at_ += 6;
        if (!is_high(unit) || end_ - at_ < 6 || at_[0] != '\\' || at_[1] != 'u') return unit;
        const int32_t low = read_hex(at_ + 2, end_);
        if (!is_low(low)) return unit;
        at_ += 6;
        return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    }

    bool skip_value(int depth) {
        skip_space();
        if (at_ == end_ || depth > MAX_DEPTH) return false;
        String string;
        switch (*at_) {
            case '"': return read_string(string);
            case '{': return skip_members(depth, '}');
            case '[': return skip_members(depth, ']');
            case 't': return skip_word("true");
            case 'f': return skip_word("false");
            case 'n': return skip_word("null");
            default: return skip_number();
        }
    }

    // Skips the members of an object, or the items of an array.
    bool skip_members(int depth, char close) {
        at_++;
        if (take(close)) return true;
        do {
            String name;
            skip_space();
            if (close == '}' && (!read_string(name) || !take(':'))) return false;
            if (!skip_value(depth + 1)) return false;
        } while (take(','));
        return take(close);
    }

    bool skip_word(std::string_view word) {
        if (static_cast<size_t>(end_ - at_) < word.size() || std::string_view(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    bool skip_digits() {
        const char* const begin = at_;
        while (at_ < end_ && *at_ >= '0' && *at_ <= '9') at_++;
        return at_ > begin;
    }

    bool skip_number() {
        if (*at_ == '-') at_++;
        if (at_ < end_ && *at_ == '0') {
            at_++;
        } else if (!skip_digits()) {
            return false;
        }
        if (at_ < end_ && *at_ == '.') {
            at_++;
            if (!skip_digits()) return false;
        }
        if (at_ < end_ && (*at_ | 0x20) == 'e') {
            at_++;
            if (at_ < end_ && (*at_ == '+' || *at_ == '-')) at_++;
            return skip_digits();
        }
        return true;
    }

    const char* at_;
    const char* const end_;
    const std::string_view key_;
    char* const out_;
    char* text_end_ = nullptr;
    bool has_key_ = false, is_text_ = false;
    std::string buffer_;
};

}  // namespace corpus
