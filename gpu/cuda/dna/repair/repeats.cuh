// Repairs windows in text that repeats a few letters: their borders repeat as well, and are copied without look-ups.
//
//     text       A A A A A A A A A A A A A A A          tokens of four A
//     window     . . | . . . | . . . | . . .            its borders are four letters apart
//     behind                 . . | . . . | . . .        gets the borders that continue these, without look-ups
//
// *Proof* that these are a path: where letters and borders repeat after P places, tokens do. Of 192 places of a path, P
// of 64 at most, a token that begins among the first P ends before 2 x P, and the next one before 3 x P: so all pairs
// of the run's tokens are pairs of that path, and compatible.
#pragma once
#include "dna/windows/stitch.cuh"

namespace warptok::dna {

constexpr uint32_t MAX_PERIOD = 32;

// The thirty-two letters from a place on.
DEVICE uint64_t codes_from(const Job& job, uint64_t place) {
    return letters_from(job, place).codes | static_cast<uint64_t>(letters_from(job, place + 16).codes) << 32;
}

// Whether all letters of a window are those `period` before them.
template <uint32_t CHUNK>
DEVICE bool repeats_in(const Job& job, uint64_t begin, uint32_t period) {
    constexpr uint32_t LAST = 32 * Window<CHUNK>::WORDS - MAX_PERIOD - 32;
    for (uint32_t place = 0; place <= LAST; place += 32)
        if (codes_from(job, begin + place) != codes_from(job, begin + place + period)) return false;
    return true;
}

// Whether a certain border is among a window's places.
template <uint32_t CHUNK>
DEVICE bool has_certain(const Job& job, uint64_t begin) {
    for (uint32_t i = 0; i < 2 * Window<CHUNK>::WORDS; i++)
        if (job.dna.base_words[begin / 16 + i].flags & 0xFFFF) return true;
    return false;
}

// Whether a window is in a run. *Proof* that the shortest period p of the first 32 letters is the only one to try: if
// the window repeats after q > p letters, the first 32 + p do after p and after q, and so after the greatest common
// divisor of these, which then is p; what repeats after q letters, of which the first q do after p, repeats after p.
template <uint32_t CHUNK>
DEVICE bool repeats(const Job& job, uint32_t window) {
    uint64_t begin = static_cast<uint64_t>(window) * CHUNK;
    if (begin + 32 * Window<CHUNK>::WORDS > job.batch.num_bytes) return false;
    uint64_t first = codes_from(job, begin), second = codes_from(job, begin + 32);
    for (uint32_t period = 1; period <= MAX_PERIOD; period++) {
        uint64_t moved = period < 32 ? first >> 2 * period | second << (64 - 2 * period) : second;
        if (moved == first) return repeats_in<CHUNK>(job, begin, period) && !has_certain<CHUNK>(job, begin);
    }
    return false;
}

// The word `period` bits behind the begin of one, 1 .. 64.
DEVICE uint64_t bits_behind(uint64_t word, uint64_t next, uint32_t period) {
    return period < 64 ? word >> period | next << (64 - period) : next;
}

// The period of 192 borders and 32 letters from a place on; 0 where it is more than 64.
DEVICE uint32_t period_of(const Job& job, uint64_t begin, const uint64_t* borders) {
    uint64_t codes = codes_from(job, begin);
    for (uint32_t period = 1; period <= 64; period++) {
        bool is_one = bits_behind(borders[0], borders[1], period) == borders[0] &&
                      bits_behind(borders[1], borders[2], period) == borders[1] &&
                      bits_behind(borders[2], 0, period) == (borders[2] & bits_behind(~0ull, 0, period));
        if (is_one && codes_from(job, begin + period) == codes) return period;
    }
    return 0;
}

// The borders of a run at 64 places from one on; they repeat.
struct RunBorders {
    uint64_t place, bits;
    uint32_t period;                       // 64 at most; 0: they do not repeat.

    // The borders at the 64 places from a later one on.
    DEVICE_METHOD uint64_t from(uint64_t later) const {
        uint32_t moved = (later - place) % period;
        uint64_t found = (bits & ~0ull >> (64 - period)) >> moved;
        if (moved) found |= bits << (period - moved);
        found &= ~0ull >> (64 - period);
        for (uint32_t known = period; known < 64; known *= 2) found |= found << known;
        return found;
    }
};

// The token in front of a border of a run, at 64 places and more behind where it is known. NO_TOKEN, or a wrong one,
// where the text does not go on so far.
DEVICE uint32_t token_before(const Job& job, const RunBorders& run, uint64_t border) {
    return token_of(job, border - 64 + highest_bit(run.from(border - 64)), border);
}

// The token of a window's path that ends at a place behind its first border; NO_TOKEN where a
// certain border is there.
template <uint32_t CHUNK>
DEVICE uint32_t token_before(const Job& job, uint32_t window, uint32_t place) {
    uint64_t begin = static_cast<uint64_t>(window) * CHUNK;
    if (bit_of(job.dna.certain, begin + place)) return NO_TOKEN;
    uint32_t word = place / 64 * 64;
    uint64_t bits = borders_from<CHUNK>(job, window, word) & ((1ull << place % 64) - 1);
    while (!bits && word) bits = borders_from<CHUNK>(job, window, word -= 64);
    return bits ? token_of(job, begin + word + highest_bit(bits), begin + place) : NO_TOKEN;
}

// Returns where a window whose path may continue that of the window before meets it. A single common border suffices if
// the token on its right may follow the token on its left.
template <uint32_t CHUNK>
DEVICE uint32_t meeting_again(const Job& job, uint32_t window) {
    uint32_t meeting = meeting_of<CHUNK>(job, window);
    if (meeting != NO_MEETING) return meeting;
    uint64_t own = borders_from<CHUNK>(job, window, 0);
    uint64_t behind = borders_from<CHUNK>(job, window, 64) | certain_in<CHUNK>(job, window, 1);
    uint64_t common = own & borders_from<CHUNK>(job, window - 1, CHUNK);
    if (!common) return NO_MEETING;
    uint32_t place = lowest_bit(common);
    uint64_t rest = place == 63 ? 0 : own >> (place + 1), begin = static_cast<uint64_t>(window) * CHUNK + place;
    if (!rest && !behind) return NO_MEETING;
    uint64_t length = rest ? 1 + lowest_bit(rest) : 64 - place + lowest_bit(behind);
    uint32_t left = token_before<CHUNK>(job, window - 1, CHUNK + place);
    uint32_t right = length > MAX_LETTERS ? NO_TOKEN : token_of(job, begin, begin + length);
    if (left == NO_TOKEN || right == NO_TOKEN) return NO_MEETING;
    bool may_meet = may_follow(job, left_class(job.dna.dna_tokens[left]), right_class(job.dna.dna_tokens[right]));
    return may_meet ? place : NO_MEETING;
}

// Whether a window goes on with the path of the one before, as far as this one's overlap.
template <uint32_t CHUNK>
DEVICE bool is_one_path(const Job& job, uint32_t window) {
    bool has_same = borders_from<CHUNK>(job, window - 1, CHUNK) == borders_from<CHUNK>(job, window, 0);
    return has_same && meeting_again<CHUNK>(job, window) != NO_MEETING;
}

// The borders of the run that a window and the one before it are in, from 128 places before the window's last ones on.
template <uint32_t CHUNK>
DEVICE RunBorders run_borders(const Job& job, uint32_t window) {
    bool is_large = CHUNK >= 128;
    if (!is_large && !is_one_path<CHUNK>(job, window)) return {0, 0, 0};
    uint64_t borders[3] = {
        is_large ? borders_from<CHUNK>(job, window, CHUNK - 128) : borders_from<CHUNK>(job, window - 1, 0),
        borders_from<CHUNK>(job, window, CHUNK - 64), borders_from<CHUNK>(job, window, CHUNK)};
    uint64_t begin = static_cast<uint64_t>(window + 1) * CHUNK - 128;
    return {begin, borders[0], period_of(job, begin, borders)};
}

// Writes the borders of a window that is in a run.
template <uint32_t CHUNK>
DEVICE void write_run(const Job& job, uint32_t window, const RunBorders& run) {
    constexpr uint32_t WORDS = Window<CHUNK>::WORDS;
    uint32_t* to = job.dna.window_bits + window;
    uint32_t stride = num_windows<CHUNK>(job);
    for (uint32_t word = 0; word < WORDS; word++, to += stride) {
        // The words that repeats_in reads. Behind them a border counts only where the next window has the same token.
        bool is_run = word < WORDS - 1;
        *to = is_run ? static_cast<uint32_t>(run.from(static_cast<uint64_t>(window) * CHUNK + 32 * word)) : 0;
    }
}

}  // namespace warptok::dna
