// Levels 1 and 2 of cutting long pieces: larger windows by a warp, whole pieces by a block.
#pragma once
#include "cut.cuh"

constexpr int WARPS_1 = 4;  // Warps of a block of level 1.

// The state of one warp's window; lane i keeps the bits and the lowest key of places 32 i .. 32 i + 31.
struct WarpColumns {
    uint32_t keys[WINDOW_1];  // rank << 10 | place.
    uint32_t symbols[WINDOW_1];
};

DEVICE uint32_t long_key(uint32_t rank, uint32_t place) {
    return rank == NO_RANK ? NO_KEY : rank << 10 | place;
}

// The first place behind `place` where a symbol begins, WINDOW_1 where there is none.
DEVICE uint32_t next_place(uint32_t alive, uint32_t place) {
    uint32_t group = place >> 5;
    uint32_t here = __shfl_sync(0xFFFFFFFF, alive, group & 31) & (0xFFFFFFFEu << (place & 31));
    uint32_t filled = __ballot_sync(0xFFFFFFFF, alive != 0) & (0xFFFFFFFEu << (group & 31));
    uint32_t other = filled ? lowest_bit(filled) : 0;
    uint32_t there = __shfl_sync(0xFFFFFFFF, alive, other);
    if (place >= WINDOW_1) return WINDOW_1;
    if (here) return group * 32 + lowest_bit(here);
    return filled ? other * 32 + lowest_bit(there) : WINDOW_1;
}

// The last place before `place` where a symbol begins, WINDOW_1 where there is none.
DEVICE uint32_t last_place(uint32_t alive, uint32_t place) {
    uint32_t group = place >> 5;
    uint32_t here = __shfl_sync(0xFFFFFFFF, alive, group) & ((1u << (place & 31)) - 1);
    uint32_t filled = __ballot_sync(0xFFFFFFFF, alive != 0) & ((1u << group) - 1);
    uint32_t other = filled ? highest_bit(filled) : 0;
    uint32_t there = __shfl_sync(0xFFFFFFFF, alive, other);
    if (here) return group * 32 + highest_bit(here);
    return filled ? other * 32 + highest_bit(there) : WINDOW_1;
}

DEVICE void refresh_group(WarpColumns& columns, uint32_t place, uint32_t& lowest) {
    uint32_t lane = threadIdx.x & 31, group = place >> 5;
    uint32_t least = __reduce_min_sync(0xFFFFFFFF, columns.keys[group * 32 + lane]);
    if (lane == group) lowest = least;
}

// Encodes `length` bytes (at most WINDOW_1) by a warp; lane i gets the bits of places 32 i onwards.
DEVICE uint32_t merge_window(const Job& job, WarpColumns& columns, const uint8_t* text,
                             uint32_t length) {
    uint32_t lane = threadIdx.x & 31, lowest = NO_KEY;
    uint32_t mine = length > 32 * lane ? min_of(32, length - 32 * lane) : 0;
    uint32_t alive = mine == 32 ? 0xFFFFFFFFu : (1u << mine) - 1;
    for (uint32_t place = lane; place < (length + 31) / 32 * 32; place += 32) {
        uint32_t rank = NO_RANK;
        if (place < length) columns.symbols[place] = text[place];
        if (place + 1 < length) rank = job.byte_pairs[text[place + 1] << 8 | text[place]];
        columns.keys[place] = long_key(rank, place);
    }
    __syncwarp();
    for (uint32_t place = 0; place < length; place += 32) refresh_group(columns, place, lowest);
    for (;;) {
        uint32_t best = __reduce_min_sync(0xFFFFFFFF, lowest);
        if (best == NO_KEY) return alive;
        uint32_t place = best & (WINDOW_1 - 1), symbol = FIRST_MERGED + (best >> 10);
        uint32_t second = next_place(alive, place);
        uint32_t third = next_place(alive, second), last = last_place(alive, place);
        if (lane == second >> 5) alive &= ~(1u << (second & 31));
        bool ahead = lane == 0;
        uint32_t other = ahead ? third : last, rank = NO_RANK;
        if (lane < 2 && other < WINDOW_1) {
            uint32_t neighbour = columns.symbols[other];
            rank = rank_of(job, ahead ? symbol : neighbour, ahead ? neighbour : symbol);
        }
        __syncwarp();
        if (lane == 0) {
            columns.symbols[place] = symbol;
            columns.keys[place] = long_key(rank, place);
            columns.keys[second] = NO_KEY;
        }
        if (lane == 1 && last < WINDOW_1) columns.keys[last] = long_key(rank, last);
        __syncwarp();
        refresh_group(columns, place, lowest);
        refresh_group(columns, second, lowest);
        if (last < WINDOW_1) refresh_group(columns, last, lowest);
    }
}

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

// Where windows `number` and `number + 1` meet, in bytes from the second's beginning.
DEVICE uint32_t meeting_of_hard_windows(const Job& job, const LongPiece& piece, uint32_t number) {
    uint64_t begin = piece.begin + (number + 1) * static_cast<uint64_t>(STRIDE_1);
    const uint64_t* left = borders_of(job, number);
    const uint64_t* right = borders_of(job, number + 1);
    uint32_t shared_place = NO_PLACE;
    for (uint32_t part = 0; part < STRIDE_1; part += 64) {
        uint64_t in_left = bits_at(left, begin + part, 64), in_right = bits_at(right, begin + part, 64);
        for (uint64_t any = in_left | in_right; any; any &= any - 1) {
            uint64_t bit = any & -any;
            bool both = (in_left & bit) && (in_right & bit);
            if (both && shared_place != NO_PLACE) return shared_place;
            shared_place = both ? part + lowest_bit(bit) : NO_PLACE;
        }
    }
    // The left window's end is a border of both if a token of the right one begins there.
    bool end = bits_at(right, begin + STRIDE_1, 1);
    return end ? shared_place : NO_PLACE;
}

DEVICE void check_hard_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t counts = job.window_counts[1];
    uint32_t windows = static_cast<uint32_t>(counts), pieces = counts >> 40;
    for (uint32_t window = block * BLOCK + threadIdx.x; window < windows; window += num_blocks * BLOCK) {
        LongPiece& piece = job.hard_pieces[piece_of(job.hard_pieces, pieces, window)];
        uint32_t number = window - piece.first_window;
        if (number + 1 == num_windows(piece.end - piece.begin, STRIDE_1)) continue;
        if (meeting_of_hard_windows(job, piece, number) == NO_PLACE)
            fail_piece(piece, job.whole_pieces, job.window_counts + 2, STRIDE_1);
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
        if (number + 1 < num_windows(piece.end - piece.begin, STRIDE_1))
            to = begin + STRIDE_1 + meeting_of_hard_windows(job, piece, number);
        for (uint64_t place = from; place < to; place += 64) {
            uint32_t count = to - place < 64 ? to - place : 64;
            set_starts(job, place, bits_at(borders_of(job, number), place, count));
        }
    }
}
