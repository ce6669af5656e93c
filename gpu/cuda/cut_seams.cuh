// Seams: where windows of level 0 do not meet, and which windows get a patch.
//
// Bits of windows, in words of 32: a window that does not meet the next one *fails*; one is in a *run*
// if its text and the 32 bytes behind it, as far as the piece goes, repeat a few bytes. Windows inside a run meet each other
// whether they are right or not, since "aaaa..." is cut from its first letter on. So every run has a
// patch where it begins, none inside, and what follows from there is right through all of it:
//
//     text      . . . x a a a a a a a a a a a b . . . .       one character for 32 bytes
//     runs      0 0 0 0 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0 0
//     fails     0 0 0 1 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0
//     patched   0 0 1 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0
#pragma once
#include "cut.cuh"
#include "cut_window.cuh"

constexpr uint32_t MAX_PERIOD = 32;               // Of a run, in bytes.
constexpr uint32_t RUN_BYTES = 3 * MAX_PERIOD;    // So that two of a run overlap by two periods.

// A run's start bits that a warp alone would write for too long are noted and written by all
// (cut_patch.cuh): those of a period, `length` bytes of them.
constexpr uint32_t SLIDE_BYTES = 1 << 12;

// How many are noted; there is room for each that the text has room for.
DEVICE uint32_t num_run_starts(const Job& job) {
    uint64_t noted = job.window_counts[3], room = job.num_bytes / SLIDE_BYTES + 1;
    return static_cast<uint32_t>(noted < room ? noted : room);
}

// A word that begins at any byte.
DEVICE uint32_t word_at(const uint8_t* text) {
    uint64_t address = reinterpret_cast<uint64_t>(text);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~3ull);
    return shift_right(__ldg(aligned), __ldg(aligned + 1), (address & 3) * 8);
}

// Whether a text repeats its first `period` bytes; it has at least three times as many.
DEVICE bool repeats(const uint8_t* text, uint32_t length, uint32_t period) {
    uint32_t end = length - period - 4;
    for (uint32_t i = 0; i < end; i += 4)
        if (word_at(text + i) != word_at(text + i + period)) return false;
    return word_at(text + end) == word_at(text + end + period);
}

// How many bytes of text at a place make it a run; fewer at the end of a piece.
DEVICE uint32_t run_bytes(uint32_t begin, uint32_t end) { return min_of(RUN_BYTES, end - begin); }

// Which periods a text has, bit i that of i + 1 bytes; each lane asks for one.
DEVICE uint32_t periods_of(const uint8_t* text, uint32_t length) {
    uint32_t period = (threadIdx.x & 31) + 1;
    return __ballot_sync(ALL_LANES, 3 * period <= length && repeats(text, length, period));
}

// Whether RUN_BYTES bytes of text repeat a few; they lie in registers, and loops are unrolled.
DEVICE bool repeats_some(const uint8_t* text) {
    constexpr uint32_t WORDS = RUN_BYTES / 4;
    uint64_t address = reinterpret_cast<uint64_t>(text);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~3ull);
    uint32_t words[WORDS + 1], shift = (address & 3) * 8;
#pragma unroll
    for (uint32_t i = 0; i <= WORDS; i++) words[i] = __ldg(aligned + i);
#pragma unroll
    for (uint32_t i = 0; i < WORDS; i++) words[i] = shift_right(words[i], words[i + 1], shift);
    bool found = false;
#pragma unroll
    for (uint32_t period = 1; period <= MAX_PERIOD; period++) {
        constexpr uint32_t FIRST = (RUN_BYTES - MAX_PERIOD) / 4 / 2;  // Words that are looked at first.
        uint32_t further = period / 4, bits = period % 4 * 8, different = 0;
#pragma unroll
        for (uint32_t i = 0; i < FIRST; i++)
            different |= words[i] ^ shift_right(words[i + further], words[i + further + 1], bits);
        if (!__any_sync(ALL_LANES, different == 0)) continue;
#pragma unroll
        for (uint32_t i = FIRST; i + further + 1 < WORDS; i++)
            different |= words[i] ^ shift_right(words[i + further], words[i + further + 1], bits);
        different |= (words[WORDS - 1 - further] ^ words[WORDS - 1] >> bits) << bits;
        found |= different == 0;
    }
    return found;
}

// The lanes whose window is in a run. All call it; windows near the end of a piece are looked at one by one.
DEVICE uint32_t windows_in_runs(const Job& job, const LongPiece& piece, uint32_t begin, bool is_window) {
    uint32_t length = is_window ? run_bytes(begin, piece.end) : 0;
    bool is_whole = length == RUN_BYTES;
    uint32_t found = __ballot_sync(ALL_LANES, repeats_some(job.text + (is_whole ? begin : piece.begin)) && is_whole);
    for (uint32_t others = __ballot_sync(ALL_LANES, is_window && !is_whole); others; others &= others - 1) {
        uint32_t lane = lowest_bit(others), place = __shfl_sync(ALL_LANES, begin, lane);
        if (periods_of(job.text + place, __shfl_sync(ALL_LANES, length, lane))) found |= 1u << lane;
    }
    return found;
}

// Fills the bits; a warp a word. All windows count as right until a bridge leads past them.
DEVICE void check_windows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = static_cast<uint32_t>(job.window_counts[0]), lane = threadIdx.x & 31;
    for (uint32_t first = block * BLOCK + threadIdx.x - lane; first < windows; first += num_blocks * BLOCK) {
        uint32_t window = first + lane;
        bool fails = false, is_first = false, is_window = window < windows;
        const LongPiece& piece = piece_of_window(job, is_window ? window : first);
        if (is_window) {
            fails = window < last_window(piece) && meeting_of_windows(job, window) == NO_PLACE;
            is_first = window == piece.first_window;
        }
        uint32_t all_runs = windows_in_runs(job, piece, begin_of_window(piece, window), is_window);
        uint32_t all_fails = __ballot_sync(ALL_LANES, fails);
        uint32_t firsts = __ballot_sync(ALL_LANES, is_first);
        if (lane) continue;
        job.seam_bits[first / 32] = {all_fails, all_runs, firsts, 0xFFFFFFFF};
        if (all_fails) atomic_add(job.window_counts + 1, count_bits(all_fails));
    }
}

DEVICE bool fails(const Job& job, uint32_t window) {
    return job.seam_bits[window / 32].fails >> window % 32 & 1;
}

DEVICE bool is_live(const Job& job, uint32_t window) {
    return job.seam_bits[window / 32].live >> window % 32 & 1;
}

// The lowest bit of each byte, and of what lies behind each of the `firsts` in it.
DEVICE uint32_t lowest_of_bytes(uint32_t bits, uint32_t firsts) {
    uint32_t goes_on = 0xFEFEFEFE & ~firsts, further = goes_on & goes_on << 1, from = bits;
    from |= from << 1 & goes_on;
    from |= from << 2 & further;
    from |= from << 4 & further & further << 2;
    return bits & ~(from << 1 & goes_on);
}

// Which windows of a word get a patch, none of them inside a run: the one in front of a stretch of failing
// ones, so that the patch meets what is right; the one in front of a run; where a run has ended; and every
// fourth one that fails. Of eight neighbours the first of these gets one, whose patch covers the others.
DEVICE uint32_t patched_windows(const Job& job, uint32_t word) {
    constexpr uint32_t FOURTH = 0x11111111;
    if (!job.window_counts[1]) return 0;
    SeamBits bits = job.seam_bits[word], before = {}, behind = {};
    if (word) before = job.seam_bits[word - 1];
    if ((word + 1) * 32ull < static_cast<uint32_t>(job.window_counts[0])) behind = job.seam_bits[word + 1];
    uint32_t begins = bits.runs & ~bits.firsts, next = behind.runs & ~behind.firsts;
    uint32_t run_begins = begins >> 1 | next << 31;
    uint32_t fails_before = bits.fails << 1 | before.fails >> 31;
    uint32_t runs_before = bits.runs << 1 | before.runs >> 31;
    uint32_t is_new = (bits.fails | run_begins) & (~fails_before | runs_before);
    uint32_t first_fails = bits.fails & ~(fails_before | runs_before | bits.firsts);
    uint32_t next_fails = behind.fails & ~((bits.fails | bits.runs) >> 31 | behind.firsts);
    is_new = (is_new & ~first_fails) | first_fails >> 1 | next_fails << 31;
    uint32_t wanted = ~bits.runs & (is_new | (bits.fails & FOURTH & ~run_begins));
    return lowest_of_bytes(wanted, bits.firsts) | (bits.runs & bits.firsts);
}

DEVICE bool is_patched(const Job& job, uint32_t window) {
    return patched_windows(job, window / 32) >> window % 32 & 1;
}

// The windows ahead of a patched one: where the next patch is, else `end`, and the first window in
// front of it from which on none fails.
struct Ahead {
    uint32_t next, fine;
};

DEVICE Ahead look_ahead(const Job& job, uint32_t window, uint32_t end) {
    uint32_t lane = threadIdx.x & 31, words = (end + 31) / 32, fine = window;
    for (uint32_t first = window / 32; first < words; first += 32) {
        uint32_t word = first + lane, patched = 0, failing = 0;
        if (word < words) {
            patched = patched_windows(job, word), failing = job.seam_bits[word].fails;
            if (end - word * 32 < 32) patched &= (1u << end % 32) - 1, failing &= (1u << end % 32) - 1;
        }
        if (word == window / 32) patched &= 0xFFFFFFFEu << window % 32, failing &= 0xFFFFFFFFu << window % 32;
        uint32_t filled = __ballot_sync(ALL_LANES, patched != 0);
        uint32_t found = filled ? lowest_bit(filled) : 31;
        if (filled && lane == found) failing &= (patched & (0 - patched)) - 1;
        uint32_t any = __ballot_sync(ALL_LANES, failing != 0) & ~bits_above(found);
        uint32_t last = any ? highest_bit(any) : 0;
        uint32_t bits = __shfl_sync(ALL_LANES, failing, last);
        if (any) fine = (first + last) * 32 + highest_bit(bits) + 1;
        bits = __shfl_sync(ALL_LANES, patched, found);
        if (filled) return {(first + found) * 32 + lowest_bit(bits), fine};
    }
    return {end, fine};
}

// The first window from `window` on that is not in a run (nor fails, if `calm`); `end` where there is
// none before. The whole warp looks.
DEVICE uint32_t end_of_run(const Job& job, uint32_t window, uint32_t end, bool calm) {
    uint32_t lane = threadIdx.x & 31, words = (end + 31) / 32;
    for (uint32_t first = window / 32; first < words; first += 32) {
        uint32_t word = first + lane, bits = 0;
        if (word < words) bits = ~(job.seam_bits[word].runs | (calm ? job.seam_bits[word].fails : 0));
        if (word == window / 32) bits &= 0xFFFFFFFFu << window % 32;
        uint32_t filled = __ballot_sync(ALL_LANES, bits != 0);
        if (!filled) continue;
        uint32_t found = __shfl_sync(ALL_LANES, bits, lowest_bit(filled));
        return min_of(end, (first + lowest_bit(filled)) * 32 + lowest_bit(found));
    }
    return end;
}

// Takes windows `begin` to `end` - 1 out of the chain, or back into it; the whole warp does.
DEVICE void pass_windows(const Job& job, uint32_t begin, uint32_t end, bool back = false) {
    for (uint32_t word = begin / 32 + (threadIdx.x & 31); word * 32ull < end; word += 32) {
        uint32_t mask = 0xFFFFFFFF;
        if (word == begin / 32) mask <<= begin % 32;
        if (end - word * 32 < 32) mask &= (1u << end % 32) - 1;
        if (begin >= end) continue;
        if (back) atomicOr(&job.seam_bits[word].live, mask);
        else atomicAnd(&job.seam_bits[word].live, ~mask);
    }
}
