// Checks a line of JSON by RFC 8259, and finds the text of one key in it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

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

// Returns the first quote, backslash or control character; `end` if there is none.
inline const char* skip_plain(const char* at, const char* end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
    for (; end - at >= 16; at += 16) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        const __m128i is_control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes);
        const __m128i is_sign = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
        const int mask = _mm_movemask_epi8(_mm_or_si128(is_sign, is_control));
        if (mask) return at + __builtin_ctz(static_cast<unsigned>(mask));
    }
#elif defined(__aarch64__)
    for (; end - at >= 16; at += 16) {
        const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const uint8_t*>(at));
        const uint8x16_t is_sign = vorrq_u8(vceqq_u8(bytes, vdupq_n_u8('"')), vceqq_u8(bytes, vdupq_n_u8('\\')));
        if (vmaxvq_u8(vorrq_u8(is_sign, vcltq_u8(bytes, vdupq_n_u8(0x20))))) break;
    }
#endif
    while (at < end && !ends_plain(static_cast<unsigned char>(*at))) at++;
    return at;
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

inline char plain_escape(char c) {
    switch (c) {
        case 'n': return '\n';
        case 't': return '\t';
        case 'r': return '\r';
        case 'b': return '\b';
        case 'f': return '\f';
        default: return c;
    }
}

// Writes a checked string without escapes; `out` may lie before it in the same buffer. Returns the end of what was
// written; null if half a surrogate pair stands alone.
inline char* unescape(const String& string, char* out) {
    const char* at = string.begin;
    const char* const end = string.end;
    while (at < end) {
        const char* const plain = at;
        at = string.has_escapes ? skip_plain(at, end) : end;
        std::memmove(out, plain, static_cast<size_t>(at - plain));
        out += at - plain;
        if (at == end) break;
        if (at[1] != 'u') {
            *out++ = plain_escape(at[1]);
            at += 2;
            continue;
        }
        const int32_t unit = read_hex(at + 2, end);
        at += 6;
        if (is_low(unit)) return nullptr;
        uint32_t character = static_cast<uint32_t>(unit);
        if (is_high(unit)) {
            if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return nullptr;
            const int32_t low = read_hex(at + 2, end);
            if (!is_low(low)) return nullptr;
            at += 6;
            character = 0x10000 + ((character - 0xd800) << 10) + (static_cast<uint32_t>(low) - 0xdc00);
        }
        out = write_utf8(out, character);
    }
    return out;
}

// One line of JSON.
class Line {
   public:
    Line(const char* begin, const char* end, std::string_view key) : at_(begin), end_(end), key_(key) {}

    // Returns whether the line has a text, which `text` then is; else `reason` says why not.
    bool find(String& text, Reject& reason) {
        skip_space();
        if (at_ < end_ && *at_ != '{') {
            reason = skip_value(0) && is_at_end() ? NOT_OBJECT : INVALID_JSON;
            return false;
        }
        reason = INVALID_JSON;
        if (at_ == end_ || !read_object() || !is_at_end()) return false;
        reason = has_key_ ? NOT_TEXT : MISSING_KEY;
        text = text_;
        return has_key_ && is_text_;
    }

   private:
    void skip_space() {
        while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) at_++;
    }

    bool is_at_end() {
        skip_space();
        return at_ == end_;
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
            String name, value;
            skip_space();
            if (!read_string(name) || !take(':')) return false;
            skip_space();
            const bool is_string = at_ < end_ && *at_ == '"';
            if (is_string ? !read_string(value) : !skip_value(1)) return false;
            if (is_key(name)) {  // Of equal keys the last one counts, as in Python.
                has_key_ = true;
                is_text_ = is_string;
                text_ = value;
            }
        } while (take(','));
        return take('}');
    }

    bool is_key(const String& name) {
        if (!name.has_escapes) return name.view() == key_;
        buffer_.resize(name.view().size());
        const char* const end = unescape(name, buffer_.data());
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
            } else if (std::memchr("\"\\/bfnrt", at_[1], 8)) {
                at_ += 2;
            } else {
                return false;
            }
        }
        string.end = at_++;
        return true;
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
    String text_;
    bool has_key_ = false, is_text_ = false;
    std::string buffer_;
};

}  // namespace corpus
