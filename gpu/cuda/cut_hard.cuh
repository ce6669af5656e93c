// Levels 1 and 2 of cutting long pieces: larger windows by a warp, whole pieces by a block.
#pragma once
#include "cut.cuh"
#include "cut_window.cuh"

constexpr int WARPS_1 = 4;  // Warps of a block of level 1.

// Which of the two bit fields holds a window's borders: neighbours overlap and need one each.
DEVICE uint64_t* borders_of(const Job& job, uint32_t number) {
    return number % 2 ? job.odd_borders : job.even_borders;
}

// Up to 64 bits of a bit field from any place on.
DEVICE uint64_t bits_at(const uint64_t* words, uint64_t place, uint32_t count) {
    uint32_t shift = place % 64;
    uint64_t bits = words[place / 64] >> shift;
    if (shift + count > 64) bits |= words[place / 64 + 1] << (64 - shift);
    return count == 64 ? bits : bits & ((1ull << count) - 1);
}

// Replaces 32 bits (or fewer at a window's end) of a bit field that other warps write as well.
DEVICE void put_bits(uint64_t* words, uint64_t place, uint32_t bits, uint32_t count) {
    uint64_t mask = (1ull << count) - 1;
    uint32_t shift = place % 64;
    uint64_t* word = words + place / 64;
    atomic_and(word, ~(mask << shift));
    atomic_or(word, static_cast<uint64_t>(bits) << shift);
    if (shift + count <= 64) return;
    atomic_and(word + 1, ~(mask >> (64 - shift)));
    atomic_or(word + 1, static_cast<uint64_t>(bits) >> (64 - shift));
}

DEVICE void hard_windows_stage(const Job& job, WarpColumns* columns, uint32_t block,
                               uint32_t num_blocks) {
    uint64_t counts = job.window_counts[1];
    uint32_t windows = static_cast<uint32_t>(counts), pieces = counts >> 40;
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (uint32_t window = block * WARPS_1 + warp; window < windows; window += num_blocks * WARPS_1) {
        LongPiece piece = job.hard_pieces[piece_of(job.hard_pieces, pieces, window)];
        uint32_t number = window - piece.first_window, begin = piece.begin + number * STRIDE_1;
        uint32_t length = min_of(WINDOW_1, piece.end - begin);
        uint32_t borders = merge_window(job, columns[warp], job.text + begin, length);
        if (32 * lane < length)
            put_bits(borders_of(job, number), begin + 32 * lane, borders, min_of(32, length - 32 * lane));
        __syncwarp();
    }
}

// Windows of a level-1 piece.
DEVICE uint32_t num_hard_windows(const LongPiece& piece) {
    return num_windows(piece.end - piece.begin, STRIDE_1, OVERLAP_1);
}

// Where windows `number` and `number + 1` meet, in bytes from the second's beginning.
DEVICE uint32_t meeting_of_hard_windows(const Job& job, const LongPiece& piece, uint32_t number) {
    uint64_t begin = piece.begin + (number + 1) * static_cast<uint64_t>(STRIDE_1);
    const uint64_t* left = borders_of(job, number);
    const uint64_t* right = borders_of(job, number + 1);
    uint32_t shared_place = NO_PLACE;
    for (uint32_t part = 0; part < OVERLAP_1; part += 64) {
        uint64_t in_left = bits_at(left, begin + part, 64), in_right = bits_at(right, begin + part, 64);
        for (uint64_t any = in_left | in_right; any; any &= any - 1) {
            uint64_t bit = any & -any;
            bool both = (in_left & bit) && (in_right & bit);
            if (both && shared_place != NO_PLACE) return shared_place;
            shared_place = both ? part + lowest_bit(bit) : NO_PLACE;
        }
    }
    // The left window's end is a border of both if a token of the right one begins there.
    bool end = bits_at(right, begin + OVERLAP_1, 1);
    return end ? shared_place : NO_PLACE;
}

DEVICE void check_hard_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t counts = job.window_counts[1];
    uint32_t windows = static_cast<uint32_t>(counts), pieces = counts >> 40;
    for (uint32_t window = block * BLOCK + threadIdx.x; window < windows; window += num_blocks * BLOCK) {
        LongPiece& piece = job.hard_pieces[piece_of(job.hard_pieces, pieces, window)];
        uint32_t number = window - piece.first_window;
        if (number + 1 == num_hard_windows(piece) || piece.failed) continue;
        if (meeting_of_hard_windows(job, piece, number) == NO_PLACE)
            fail_piece(piece, job.whole_pieces, job.window_counts + 2, WINDOW_1, 0);
    }
}

// Sets the start bits of window `number` that lie between two places of the batch.
DEVICE void write_hard_window(const Job& job, uint32_t number, uint64_t from, uint64_t to) {
    for (uint64_t place = from; place < to; place += 64) {
        uint32_t count = to - place < 64 ? to - place : 64;
        set_starts(job, place, bits_at(borders_of(job, number), place, count));
    }
}

DEVICE void write_hard_borders_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t counts = job.window_counts[1];
    uint32_t windows = static_cast<uint32_t>(counts), pieces = counts >> 40;
    for (uint32_t window = block * BLOCK + threadIdx.x; window < windows; window += num_blocks * BLOCK) {
        LongPiece piece = job.hard_pieces[piece_of(job.hard_pieces, pieces, window)];
        if (piece.failed) continue;
        uint32_t number = window - piece.first_window;
        uint64_t begin = piece.begin + static_cast<uint64_t>(number) * STRIDE_1, from = begin;
        uint64_t to = piece.end;
        if (number > 0) from += meeting_of_hard_windows(job, piece, number - 1);
        if (number + 1 < num_hard_windows(piece))
            to = begin + STRIDE_1 + meeting_of_hard_windows(job, piece, number);
        write_hard_window(job, number, from, to);
    }
}
