// Seams: where windows of level 0 do not meet, and which windows have a bridge.
//
// Bits of windows, in words of 32: a window that does not meet the next one *fails*; one is in a *run*
// if its text repeats a few bytes. Windows inside a run meet each other whether they are right or not, or
// none does, since "aaaa..." is cut from its first letter on. So every run has a bridge from the window in
// front of it, none inside, and what follows from there is right through all of it:
//
//     text      . . . x a a a a a a a a a a a b . . . .       one character for 256 bytes
//     runs      0 0 0 0 1 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0
//     fails     0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0
//     bridged   0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0
#pragma once
#include "text/split/windows_common.cuh"
#include "text/split/window_result.cuh"

constexpr uint32_t MAX_RUN_PERIOD = 160;  // Of a run, in bytes: three of them fit into a window.

// The last place where two neighbouring windows meet, in bytes from the second one's beginning; NO_PLACE
// where they do not. By a thread, from the last word of the overlap to the first, as a border's next one may be in another.
DEVICE uint32_t meeting_of(const Window& first, const Window& second) {
    uint32_t distance = second.begin - first.begin, overlap = WINDOW_0 - distance;  // No first one is shorter.
    bool is_next_common = false;  // Of the next border of either, behind the word that is looked at.
    uint32_t behind = 0;         // The first one's word behind that one.
    for (uint32_t i = overlap / 32 + 1; i-- > 0;) {
        uint32_t word = distance / 32 + i, own = word < WORDS_0 ? first.borders[word] : 0;
        uint32_t left = shift_right(own, behind, distance % 32), right = second.borders[i];
        behind = own;
        if (i == overlap / 32) right &= ~bits_above(overlap % 32);
        uint32_t both = left & right, either = left | right;
        for (uint32_t bits = both; bits; bits ^= 1u << highest_bit(bits)) {
            uint32_t above = either & bits_above(highest_bit(bits));
            if (above ? both & above & (0 - above) : is_next_common) return 32 * i + highest_bit(bits);
        }
        if (either) is_next_common = both & either & (0 - either);
    }
    return NO_PLACE;
}

// Fills the bits, a warp a word, and says where the chain goes from window to window. All windows count as
// right until a bridge leads past them.
DEVICE void check_windows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = all_windows(job), lane = threadIdx.x & 31;
    for (uint32_t first = block * BLOCK + threadIdx.x - lane; first < windows; first += num_blocks * BLOCK) {
        uint32_t window = first + lane, place = 0;
        bool is_run = false, is_first = false;
        if (window < windows) {
            const LongPiece& piece = piece_of_window(job, window);
            is_first = window == piece.first_window;
            is_run = window_of(job, window).period != 0;
            if (window < last_window(piece)) place = meeting_of(window_of(job, window), window_of(job, window + 1));
            if (place && place != NO_PLACE) window_of(job, window + 1).joint += place;
        }
        uint32_t fails = __ballot_sync(ALL_LANES, place == NO_PLACE), runs = __ballot_sync(ALL_LANES, is_run);
        uint32_t firsts = __ballot_sync(ALL_LANES, is_first);
        if (lane) continue;
        job.seam_bits[first / 32] = {fails, runs, firsts, 0xFFFFFFFF};
        if (fails) atomic_add(job.window_counts + COUNT_SEAMS, count_bits(fails));
    }
}

DEVICE bool fails(const Job& job, uint32_t window) {
    return job.seam_bits[window / 32].fails >> window % 32 & 1;
}

DEVICE bool is_in_run(const Job& job, uint32_t window) {
    return job.seam_bits[window / 32].runs >> window % 32 & 1;
}

DEVICE bool is_live(const Job& job, uint32_t window) {
    return job.seam_bits[window / 32].live >> window % 32 & 1;
}

// Which windows of a word have a bridge: those that fail or that a run follows, but for those inside of runs;
// and the first one of a piece that begins with a run.
DEVICE uint32_t bridged_windows(const Job& job, uint32_t word) {
    if (!job.window_counts[COUNT_SEAMS]) return 0;
    SeamBits bits = job.seam_bits[word], behind = {};
    if ((word + 1) * 32ull < all_windows(job)) behind = job.seam_bits[word + 1];
    uint32_t run_follows = (bits.runs & ~bits.firsts) >> 1 | (behind.runs & ~behind.firsts) << 31;
    return ((bits.fails | run_follows) & ~bits.runs) | (bits.runs & bits.firsts);
}

DEVICE bool is_bridged(const Job& job, uint32_t window) {
    return bridged_windows(job, window / 32) >> window % 32 & 1;
}

// Where the chain enters a window: from the window before, or from a bridge that leads to it.
DEVICE uint32_t entered_at(const Job& job, const LongPiece& piece, uint32_t window) {
    bool is_met = window == piece.first_window || (is_live(job, window - 1) && !is_bridged(job, window - 1));
    return is_met ? window_of(job, window).joint : window_of(job, window).entry;
}

// Where the chain leaves a window: for its bridge, for the window behind it, or at the piece's end. NO_PLACE where nobody
// says so: it fails and is in a run, which the chain must have passed.
DEVICE uint32_t left_at(const Job& job, const LongPiece& piece, uint32_t window) {
    if (is_bridged(job, window)) return window_of(job, window).exit;
    if (window == last_window(piece)) return piece.end;
    return fails(job, window) ? NO_PLACE : window_of(job, window + 1).joint;
}

// The windows ahead of one with a bridge.
//
//     window        5   6   7   8   9  10          look_ahead of 5: next is 9, fine is 8
//     bridged       x   .   .   .   x   .
//     fails         x   .   x   .   x   .          a bridge may end on window 8 or 9: all from there on meet
struct Ahead {
    uint32_t next;                         // The next one with a bridge, else `end`.
    uint32_t fine;                         // The first one up to `next` from which on none fails in front of `next`.
};

// By the whole warp, 32 words of seam_bits at a time.
DEVICE_RARE Ahead look_ahead(const Job& job, uint32_t window, uint32_t end) {
    uint32_t lane = threadIdx.x & 31, words = (end + 31) / 32, fine = window;
    for (uint32_t first = window / 32; first < words; first += 32) {
        uint32_t word = first + lane, bridged = 0, failing = 0;
        if (word < words) {
            bridged = bridged_windows(job, word), failing = job.seam_bits[word].fails;
            if (end - word * 32 < 32) bridged &= (1u << end % 32) - 1, failing &= (1u << end % 32) - 1;
        }
        if (word == window / 32) bridged &= 0xFFFFFFFEu << window % 32, failing &= 0xFFFFFFFFu << window % 32;
        uint32_t filled = __ballot_sync(ALL_LANES, bridged != 0);
        uint32_t found = filled ? lowest_bit(filled) : 31;
        if (filled && lane == found) failing &= (bridged & (0 - bridged)) - 1;
        uint32_t any = __ballot_sync(ALL_LANES, failing != 0) & ~bits_above(found);
        uint32_t last = any ? highest_bit(any) : 0;
        uint32_t bits = __shfl_sync(ALL_LANES, failing, last);
        if (any) fine = (first + last) * 32 + highest_bit(bits) + 1;
        bits = __shfl_sync(ALL_LANES, bridged, found);
        if (filled) return {(first + found) * 32 + lowest_bit(bits), fine};
    }
    return {end, fine};
}

// The first window from `window` on that is not in a run; `end` where there is none before. The whole warp
// looks.
DEVICE_RARE uint32_t end_of_run(const Job& job, uint32_t window, uint32_t end) {
    uint32_t lane = threadIdx.x & 31, words = (end + 31) / 32;
    for (uint32_t first = window / 32; first < words; first += 32) {
        uint32_t word = first + lane, bits = 0;
        if (word < words) bits = ~job.seam_bits[word].runs;
        if (word == window / 32) bits &= 0xFFFFFFFFu << window % 32;
        uint32_t filled = __ballot_sync(ALL_LANES, bits != 0);
        if (!filled) continue;
        uint32_t found = __shfl_sync(ALL_LANES, bits, lowest_bit(filled));
        return min_of(end, (first + lowest_bit(filled)) * 32 + lowest_bit(found));
    }
    return end;
}

// Takes windows `begin` to `end` - 1 out of the chain; the whole warp does.
DEVICE_RARE void pass_windows(const Job& job, uint32_t begin, uint32_t end) {
    for (uint32_t word = begin / 32 + (threadIdx.x & 31); word * 32ull < end; word += 32) {
        uint32_t mask = 0xFFFFFFFF;
        if (word == begin / 32) mask <<= begin % 32;
        if (end - word * 32 < 32) mask &= (1u << end % 32) - 1;
        if (begin < end) atomicAnd(&job.seam_bits[word].live, ~mask);
    }
}
