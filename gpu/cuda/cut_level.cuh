// Level 0 of cutting long pieces: windows of 512 bytes, a warp each, in rounds (cut_window.cuh); and the chain
// at the end.
//
//     windows    |-------|-------|
//                        |-------|-------|       each begins in the middle of the one before
//     chain      0000000000001111111222 ...      from joint to joint, as long as windows meet
//
// Behind a seam the chain is a bridge's (cut_bridge.cuh), from the window's exit to another one's entry.
#pragma once
#include "cut_seams.cuh"

// A word that begins at any byte.
DEVICE uint32_t word_at(const uint8_t* text) {
    uint64_t address = reinterpret_cast<uint64_t>(text);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~3ull);
    return shift_right(__ldg(aligned), __ldg(aligned + 1), (address & 3) * 8);
}

// Whether a text repeats its first `period` bytes, of every `step`th word from number `first` on.
DEVICE bool repeats(const uint8_t* text, uint32_t length, uint32_t period, uint32_t first, uint32_t step) {
    for (uint32_t i = 4 * first; i + period < length; i += 4 * step) {
        uint32_t different = word_at(text + i) ^ word_at(text + i + period), left = length - period - i;
        if (left < 4 ? different << 8 * (4 - left) : different) return false;
    }
    return true;
}

// The period of a text that repeats up to MAX_PERIOD bytes three times or more, 0 where it has none; by a warp.
// The lowest period of its front, if it has one itself, is its own.
DEVICE uint32_t period_of_text(const uint8_t* text, uint32_t length) {
    uint32_t lane = threadIdx.x & 31, period = lane + 1, front = min_of(length, 3 * MAX_PERIOD);
    bool of_front = 3 * period <= length && repeats(text, front, period, 0, 1);
    uint32_t found = __ballot_sync(ALL_LANES, of_front);
    if (!found) return 0;
    period = lowest_bit(found) + 1;
    return __all_sync(ALL_LANES, repeats(text, length, period, lane, 32)) ? period : 0;
}

// Encodes a window, by the whole warp.
DEVICE void encode_window_0(const Merging& how, WarpColumns<WINDOW_0 / 32>& columns, uint32_t number) {
    LongPiece piece = piece_of_window(how.job, number);
    uint32_t begin = begin_of_window(piece, number), length = min_of(WINDOW_0, piece.end - begin);
    uint32_t places = length <= WINDOW_0 / 2 ? WINDOW_0 / 64 : WINDOW_0 / 32, lane = threadIdx.x & 31;
    const uint8_t* text = how.job.text + begin;
    uint32_t word = words_of_places(merge_window(how, columns, text, length, places), places);
    uint32_t period = period_of_text(text, length);
    if (lane == length / 32) word |= 1u << length % 32;
    Window& window = window_of(how.job, number);
    if (lane < WORDS_0) window.borders[lane] = word;
    if (lane) return;
    window.begin = window.joint = window.entry = begin;
    window.length = length;
    window.period = period;
    window.exit = NO_PLACE;
    window.written = window.is_lost = window.run_starts = 0;
}

DEVICE void windows_stage(const Job& job, MergeShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = static_cast<uint32_t>(job.window_counts[0]), warp = threadIdx.x / 32;
    if (block >= windows) return;
    Merging how = merging(job, load_cache(job, shared.cache));
    auto& columns = reinterpret_cast<WarpColumns<WINDOW_0 / 32>&>(shared.columns[warp]);
    for (uint32_t window = warp * num_blocks + block; window < windows; window += num_blocks * MERGE_WARPS) {
        encode_window_0(how, columns, window);
        __syncwarp();
    }
}

// Repeats the start bits of a long run, the whole grid at once: 64 bytes a thread and step.
DEVICE void repeat_starts(const Job& job, const RunStarts& run, uint32_t thread, uint32_t threads) {
    for (uint64_t i = run.period + 64ull * thread; i < run.length; i += 64ull * threads) {
        uint32_t phase = i % run.period, left = run.period - phase;
        uint64_t bits = starts_from(job, run.place + phase);
        if (left < 64) bits = (bits & ((1ull << left) - 1)) | starts_from(job, run.place) << left;
        set_starts(job, run.place + i, run.length - i < 64 ? bits & ((1ull << (run.length - i)) - 1) : bits);
    }
}

// Cuts where a window of the chain says so, a lane a word; false where it is left before it is entered, or
// nobody says where.
DEVICE bool write_window(const Job& job, const LongPiece& piece, uint32_t number) {
    const Window& window = window_of(job, number);
    uint32_t from = entered_at(job, piece, number), to = left_at(job, piece, number), lane = threadIdx.x & 31;
    if (from > to || to > window.begin + window.length) return false;
    uint32_t bits = lane < WORDS_0 ? window.borders[lane] : 0;
    bits &= bits_below(to - window.begin) & ~bits_below(from - window.begin);
    if (bits) set_starts(job, window.begin + 32 * lane, bits);
    return true;
}

// Cuts all pieces but those that failed, a warp a window of the chain. Where the chain would go backwards the
// piece fails.
DEVICE void write_borders_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = static_cast<uint32_t>(job.window_counts[0]), runs = num_run_starts(job);
    uint32_t thread = block * BLOCK + threadIdx.x;
    for (uint32_t run = 0; run < runs; run++) repeat_starts(job, job.run_starts[run], thread, num_blocks * BLOCK);
    for (uint32_t window = thread / 32; window < windows; window += num_blocks * BLOCK / 32) {
        LongPiece& piece = piece_of_window(job, window);
        if (piece.failed || !is_live(job, window) || write_window(job, piece, window)) continue;
        if (thread % 32 == 0) fail_piece(job, piece);
    }
}
